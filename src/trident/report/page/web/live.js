"use strict";
// A page of runs that are still going: asks its server for news, and shows them without losing what one looks at.

T.live = function (config, shown, build) {
  const sign = T.el("span.alive.soft", {id: "alive", title: "kept up to date"}, "live");
  const live = {sign, tools, begin: () => setTimeout(ask, wait())};
  let failures = 0;

  const wait = () => 1000 * (shown.content.again || 2);

  async function ask() {
    if (document.hidden) {  // nobody looks: nothing is asked
      document.addEventListener("visibilitychange", ask, {once: true});
      return;
    }
    try {
      const answer = await fetch("data", {cache: "no-store"});
      if (!answer.ok) throw new Error(answer.statusText);
      const content = await answer.json();
      failures = 0;
      sign.className = "alive soft";
      sign.textContent = "live";
      update(content);
    } catch {
      failures += 1;
      sign.className = "alive gone soft";
      sign.textContent = "the server has ended; what is shown is the last it said";
    }
    setTimeout(ask, wait() * Math.min(2 ** failures, 16));
  }

  /** The skeleton of a page: while it stays the same, parts are renewed in place. */
  const skeleton = (content) => JSON.stringify([content.runs.map((run) => [run.name, run.problems, Boolean(run.verdict)]),
    content.groups.map((g) => [g.env, g.table && g.table.rows.length]), ((content.runs[shown.run] || {}).charts || []).map((c) => [c.name, c.lines.length]),
    Boolean((content.runs[shown.run] || {}).policies)]);

  function update(content) {
    const before = shown.content, run = content.runs[shown.run];
    shown.content = content;
    if (!run || skeleton(before) !== skeleton(content)) {
      const y = scrollY;
      build();
      scrollTo({top: y, behavior: "instant"});
      return;
    }
    const specs = new Map((run.charts || []).map((spec) => [`run/${spec.name}`, spec]));
    for (const group of content.groups) for (const spec of group.charts || []) specs.set(`${group.env}/${spec.name}`, spec);
    for (const chart of T.charts) if (specs.has(chart.key)) chart.update(specs.get(chart.key));
    const swap = (selector, made) => { const old = document.querySelector(selector); if (old && made) old.replaceWith(made); };
    swap("#heading", T.heading(run, live));
    if (run.verdict) swap("#summary", T.summary(run));
    if (run.diagnoses) swap("#words", T.words(run));
    for (const table of document.querySelectorAll("[data-table]")) {
      const group = content.groups.find((g) => g.env === table.dataset.table);
      if (group && group.table) table.renew(group.table);
    }
  }

  function tools(run) {
    if (!run.status || run.status.state !== "training") return null;
    let sure = false;
    const button = T.el("button.danger", {type: "button", id: "stop"}, "Stop and save");
    if (asked.has(run.name)) { button.textContent = "stopping after this round"; button.disabled = true; }
    button.addEventListener("click", async () => {
      if (!sure) {
        sure = true;
        button.textContent = "Stop after this round?";
        setTimeout(() => { sure = false; if (!button.disabled) button.textContent = "Stop and save"; }, 4000);
        return;
      }
      button.disabled = true;
      const answer = await fetch("stop", {method: "POST", headers: {"X-Trident": config.token}, body: JSON.stringify({run: run.name})});
      button.textContent = answer.ok ? "stopping after this round" : `cannot: ${await answer.text()}`;
      if (answer.ok) asked.add(run.name);
    });
    return button;
  }

  const asked = new Set();
  return live;
};
