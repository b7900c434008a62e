"use strict";
// Puts the page together, and keeps a live one up to date.

(async function () {
  const page = document.getElementById("page");
  const shown = {content: null, run: 0, live: null};

  async function block(id) {
    const element = document.getElementById(id);
    if (!element) return null;
    if (element.type !== "application/gzip") return JSON.parse(element.textContent);
    const bytes = Uint8Array.from(atob(element.textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  function dress(name) {
    document.documentElement.dataset.theme = name;
    T.redrawCharts();
    document.dispatchEvent(new Event("themechange"));
  }

  function theme(name) {
    try { localStorage.setItem("trident-theme", name); } catch { /* files may not keep anything */ }
    dress(name);
  }

  /** On paper: light, and with every chart. */
  function print() {
    const before = document.documentElement.dataset.theme;
    T.charts.forEach((chart) => { if (!chart.uplot) chart.draw(); });
    dress("light");
    addEventListener("afterprint", () => dress(before), {once: true});
  }

  function preferred() {
    try {
      const kept = localStorage.getItem("trident-theme");
      if (kept === "dark" || kept === "light") return kept;
    } catch { /* as above */ }
    return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }

  function top(content, run) {
    const links = [["summary", "Safe?"], ["replay", "Replay"], ["curves", "Curves"], ["method", "Method"], ["policies", "Policies"], ["setup", "Setup"]];
    const have = {replay: run && ((run.replay && run.replay.episodes.length) || run.report), policies: run && run.policies, curves: run && run.charts && run.charts.length,
      method: run && run.diagnoses && run.diagnoses.length, summary: run && run.verdict, setup: run && run.setup};
    const nav = links.filter(([id]) => have[id]).map(([id, text]) => T.el("a", {href: `#${id}`}, text));
    if (content.runs.length > 1) nav.unshift(T.el("a", {href: "#compare"}, "Runs"));
    return T.el("header.top", {}, T.el("span.brand", {}, "TRIDENT"), T.el("nav", {"aria-label": "sections"}, nav),
      shown.live ? shown.live.sign : null,
      T.el("button", {type: "button", id: "theme", title: "Light or dark", "aria-label": "light or dark",
        onclick: () => theme(T.dark() ? "light" : "dark")}, "◐"));
  }

  function follow(name) {
    const found = shown.content.runs.findIndex((run) => run.name === name);
    if (found < 0) return;
    shown.run = found;
    build();
    document.getElementById("run").scrollIntoView();
  }

  function overview(content) {
    const alone = content.runs.length === 1;
    if (alone) return null;
    const compared = new Set(content.groups.flatMap((g) => (g.table ? g.table.rows.map((row) => row[0]) : [])));
    const others = content.runs.filter((run) => !compared.has(run.name));
    const rows = others.map((run) => [run.name, run.env || "–", run.algo || "–", run.verdict ? {state: run.verdict.state} : run.problems[0] || "–",
      run.status ? [`${run.status.round}/${run.status.rounds}`, run.status.round] : ["–", null]]);
    const count = (state) => content.runs.filter((run) => T.known((run.verdict || {}).state) === state).length;
    const tally = ["within", "unsure", "over", "unknown"].filter(count).map((state) => T.el("span.row", {}, T.el("b", {}, count(state)), T.badge(state)));
    return T.el("section", {id: "compare"}, T.el("div.row.spread", {}, T.el("h1", {}, `${content.runs.length} runs`), T.el("div.row", {id: "tally", style: {columnGap: "18px"}}, tally)),
      content.groups.map((group) => T.compare(group, follow)),
      others.length ? [T.el("h2", {}, compared.size ? "Others" : "All runs"),
        T.table({header: ["run", "environment", "algorithm", "verdict", "round"], rows}, follow)] : null);
  }

  function chooser(content) {
    if (content.runs.length < 2) return null;
    const select = T.el("select", {"aria-label": "run", id: "chooser", onchange: () => { shown.run = Number(select.value); build(); }},
      content.runs.map((run, i) => T.el("option", {value: i, selected: i === shown.run}, run.name)));
    return T.el("div.row", {style: {margin: "40px 0 14px", paddingTop: "26px", borderTop: "1px solid var(--line)"}}, T.el("b", {}, "In detail:"), select);
  }

  function build() {
    const content = shown.content;
    T.forgetCharts(page);
    shown.run = Math.min(shown.run, Math.max(content.runs.length - 1, 0));
    const run = content.runs[shown.run];
    document.title = content.runs.length === 1 ? run.title || run.name : `${content.runs.length} runs`;
    page.replaceChildren(top(content, run), ...[overview(content), chooser(content),
      run ? T.details(run, shown.live) : T.el("p", {}, "There is no run here yet.")].filter(Boolean),
    T.el("footer", {}, `Made ${content.made} by TRIDENT from the records of ${content.runs.length === 1 ? "this run" : "these runs"}. `,
      "This page works without a network. Curves by uPlot (MIT licence)."));
    page.setAttribute("aria-busy", "false");
  }

  T.start = {shown, build, block};
  document.documentElement.dataset.theme = preferred();
  addEventListener("resize", () => T.resizeCharts());
  addEventListener("beforeprint", print);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (e) => dress(e.matches ? "dark" : "light"));
  try {
    shown.content = await block("data");
    const live = await block("live");
    if (live) shown.live = T.live(live, shown, build);
    build();
    if (shown.live) shown.live.begin();
    if (location.hash.length > 1) document.getElementById(location.hash.slice(1))?.scrollIntoView();
  } catch (error) {
    page.replaceChildren(T.el("div.notice", {role: "alert"}, `This report cannot be shown: ${error}`));
    page.setAttribute("aria-busy", "false");
    throw error;
  }
})();
