"use strict";
// One run: summary, replay, curves, the method in plain words, the policies beside it, and how to make it again.

T.words = (run) => T.el("div.plain-words", {id: "words"}, run.diagnoses.map((d) =>
  T.el(`div.card.${d.state === "fine" || d.state === "look" ? d.state : "plain"}`, {}, T.el("h3", {}, d.title), T.el("p", {}, d.text))));

T.details = function (run, live) {
  const parts = [];
  const section = (id, title, ...content) => parts.push(T.el("section", {id}, T.el("h2", {}, title), ...content));
  for (const problem of run.problems) parts.push(T.el("div.notice", {role: "alert"}, problem));
  if (!run.verdict) return T.el("article", {id: "run"}, T.heading(run, live), ...parts);
  if (run.note) parts.push(T.el("p.soft", {}, run.note));
  parts.push(T.summary(run));
  if (run.replay && run.replay.episodes.length) section("replay", "Watch an episode", T.player(run));
  else if (live && run.report) section("replay", "Watch an episode", live.replay(run));
  else if (run.playable) section("replay", "Watch an episode", T.el("p.soft", {}, ...(live ? ["Episodes are played when training has ended."]
    : ["This page holds none. To have some: ", T.el("code", {}, `trident report ${T.quoted(run.folder)} --html page.html`)])));
  const groups = {
    learning: ["curves", "While it learned"], budget: ["budget", "What training spent of its budget"],
    method: ["method-curves", "Measurements of the method"], metrics: ["metrics", "What the system did"],
  };
  const grids = {};
  for (const name of Object.keys(groups)) {
    const charts = run.charts.filter((chart) => chart.group === name).map((spec) => Object.assign(T.chart(spec, `run-${run.name}`), {key: `run/${spec.name}`}));
    if (charts.length) grids[name] = T.el("div.grid.charts", {}, charts.map((chart) => chart.card));
  }
  if (!run.charts.length) parts.push(T.el("p.soft", {}, "Nothing has been recorded yet."));
  for (const name of ["learning", "budget"]) if (grids[name]) section(groups[name][0], groups[name][1], grids[name]);
  if (run.diagnoses.length || grids.method) {
    section("method", "How the method did", T.words(run),
    grids.method ? T.el("details", {ontoggle: () => T.resizeCharts()}, T.el("summary", {}, "all of its measurements, as curves"), grids.method) : null);
  }
  if (grids.metrics) section(...groups.metrics, T.el("details", {}, T.el("summary", {}, "every metric of the environment, as curves"), grids.metrics));
  if (run.policies) section("policies", "Beside scripted policies", T.table(run.policies));
  section("setup", "How to make it again",
    run.setup.command ? T.el("div.card.command", {}, T.el("code", {}, run.setup.command), T.copyButton(run.setup.command)) : null,
    T.el("div", {style: {marginTop: "12px"}}, T.facts(run.setup.facts)),
    T.el("details", {}, T.el("summary", {}, "settings"), T.facts(run.setup.settings)),
    T.el("details", {}, T.el("summary", {}, "the algorithm's settings"), T.facts(run.setup.config)));
  return T.el("article", {id: "run"}, T.heading(run, live), ...parts);
};

T.heading = function (run, live) {
  if (!run.status) return T.el("h1", {id: "heading"}, run.name);
  const status = run.status, share = status.rounds ? Math.min(status.round / status.rounds, 1) : 0;
  const words = [`${status.state}: round ${T.steps(status.round)} of ${T.steps(status.rounds)}`,
    `${T.steps(status.env_steps)} environment steps per seed`, `${run.seeds} seed${run.seeds === 1 ? "" : "s"}`,
    `${run.agents} agent${run.agents === 1 ? "" : "s"}`, T.time(status.seconds)];
  if (T.isNumber(status.left)) words.push(`about ${T.time(status.left)} left`);
  return T.el("div", {id: "heading", style: {marginBottom: "16px"}}, T.el("div.row.spread", {}, T.el("h1", {}, run.title), live ? live.tools(run) : null),
    T.el("p.soft", {id: "status"}, run.title === run.name ? null : `${run.name} · `, words.join(" · ")),
    share < 1 ? T.el("div.progress", {role: "progressbar", "aria-valuenow": Math.round(100 * share), "aria-label": "training"},
      T.el("div", {style: {width: `${100 * share}%`}})) : null);
};
