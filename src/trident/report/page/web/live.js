"use strict";
// A page of runs that are still going: asks its server for news, and shows them without losing what one looks at.

T.live = function (config, shown, build) {
  const sign = T.el("span.alive.soft", {id: "alive", title: "kept up to date"}, "live");
  const live = {sign, tools, replay, ask, begin: () => setTimeout(ask, wait())};
  const buttons = new Map(), replays = new Map();
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
  const skeleton = (content) => JSON.stringify([content.runs.map((run) => [run.name, run.problems, Boolean(run.verdict), Boolean(run.report)]),
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
    const swap = (selector, make) => {
      const old = document.querySelector(selector);
      if (!old) return;
      const focused = old.contains(document.activeElement) ? document.activeElement.id : null;
      old.replaceWith(make());
      if (focused) document.getElementById(focused)?.focus();
    };
    swap("#heading", () => T.heading(run, live));
    if (run.verdict) swap("#summary", () => T.summary(run));
    if (run.diagnoses) swap("#words", () => T.words(run));
    for (const table of document.querySelectorAll("[data-table]")) {
      const group = content.groups.find((g) => g.env === table.dataset.table);
      if (group && group.table) table.renew(group.table);
    }
  }

  /** Episodes of a run that has ended, from the page that it left; asked for once. */
  function replay(run) {
    if (!replays.has(run.name)) {
      replays.set(run.name, T.el("div", {}, T.el("p.soft", {}, "Fetching its episodes ...")));
      fill(run, replays.get(run.name));
    }
    return replays.get(run.name);
  }

  async function fill(run, box) {
    try {
      const answer = await fetch(`replay?run=${encodeURIComponent(run.name)}`);
      if (!answer.ok) throw new Error(await answer.text());
      box.replaceChildren(T.player({...run, replay: await answer.json()}));
    } catch (error) {
      box.replaceChildren(T.el("p.soft", {}, `There is no episode to watch: ${error.message}.`));
    }
  }

  /** The button of a run stays the same while the page is renewed around it: it may be waiting for a second click. */
  function tools(run) {
    if (!run.status || run.status.state !== "training") { buttons.delete(run.name); return null; }
    if (!buttons.has(run.name)) buttons.set(run.name, stopButton(run.name));
    return buttons.get(run.name);
  }

  function stopButton(name) {
    let sure = false;
    const button = T.el("button.danger", {type: "button", id: "stop"}, "Stop and save");
    button.addEventListener("click", async () => {
      if (!sure) {
        sure = true;
        button.textContent = "Stop after this round?";
        setTimeout(() => { sure = false; if (!button.disabled) button.textContent = "Stop and save"; }, 8000);
        return;
      }
      button.disabled = true;
      try {
        const answer = await fetch("stop", {method: "POST", headers: {"X-Trident": config.token}, body: JSON.stringify({run: name})});
        button.textContent = answer.ok ? "stopping after this round" : `cannot: ${await answer.text()}`;
      } catch {
        button.textContent = "cannot: the server has ended";
      }
    });
    return button;
  }

  return live;
};
