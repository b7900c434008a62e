"use strict";
// An episode to be played, scrubbed and asked: what every agent saw, did and brought about, step by step.

T.player = function (run) {
  const replay = run.replay, RANKS = {best: "best", median: "median", worst: "worst"};
  const state = {episode: replay.episodes.length - 1, t: 0, playing: false, speed: 1, agent: 0, track: 0, beside: innerWidth > 700};
  const views = T.el("div.views"), legends = T.el("div.legends"), events = T.el("canvas", {"aria-hidden": "true"});
  const slider = T.el("input", {type: "range", min: 0, value: 0, step: 1, "aria-label": "step"});
  const clock = T.el("span.clock");
  const play = T.el("button.primary", {type: "button", "aria-label": "play", id: "play"}, "▶");
  const who = T.el("h3"), told = T.el("div");
  const agents = T.el("div.chips", {role: "group", "aria-label": "agent"}, [...Array(replay.agents).keys()].map((k) =>
    T.el("button", {type: "button", onclick: () => { state.agent = k; draw(); }}, String(k + 1))));
  const aside = T.el("aside", {"aria-live": "off"}, who, agents, told);
  const button = (text, name, act) => T.el("button", {type: "button", "aria-label": name, title: name, onclick: act}, text);
  const speeds = T.el("select", {"aria-label": "speed", title: "speed", onchange: () => { state.speed = Number(speeds.value); }},
    [0.25, 0.5, 1, 2, 4, 8].map((s) => T.el("option", {value: s, selected: s === 1}, `${s}×`)));
  const episodes = T.el("div.row", {role: "group", "aria-label": "episode"}, replay.episodes.map((episode, i) =>
    T.el("button", {type: "button", "aria-pressed": String(i === state.episode), onclick: () => choose(i)},
      `${RANKS[episode.rank] || episode.rank} of ${replay.played}`)));
  const beside = T.el("button", {type: "button", "aria-pressed": "true", onclick: () => { state.beside = !state.beside; choose(state.episode); }});
  const box = T.el("div.card.player", {tabindex: 0, "aria-label": "episode player: space plays, arrows step"},
    T.el("div.controls", {style: {borderTop: 0, borderBottom: "1px solid var(--line)"}}, T.el("span.soft", {}, "Episode:"), episodes, beside),
    T.el("div.stage", {}, T.el("div", {style: {minWidth: 0}}, views, legends), aside),
    T.el("div.controls", {}, play, button("|◀", "to the start", () => go(0)), button("−1", "one step back", () => go(state.t - 1)),
      button("+1", "one step on", () => go(state.t + 1)), speeds, T.el("div.timeline", {}, events, slider), clock));
  let shown = [], last = 0, due = 0;

  const tracks = () => replay.episodes[state.episode].tracks.slice(0, state.beside ? 2 : 1);
  const length = () => Math.max(...tracks().map((track) => track.length));

  function choose(i) {
    state.episode = i;
    [...episodes.children].forEach((b, k) => b.setAttribute("aria-pressed", String(k === i)));
    const all = replay.episodes[i].tracks;
    beside.classList.toggle("hidden", all.length < 2);
    beside.textContent = all.length > 1 ? `beside ${all[1].name}` : "";
    beside.setAttribute("aria-pressed", String(state.beside));
    state.track = Math.min(state.track, tracks().length - 1);
    slider.max = length();
    state.t = Math.min(state.t, length());
    build();
  }

  function build() {
    views.classList.toggle("two", tracks().length > 1);
    shown = tracks().map((track, k) => {
      const map = T.el("canvas.map", {role: "img", "aria-label": `${track.name}: the episode's map`});
      const title = T.el("span"), alert = T.el("b", {style: {color: "var(--over)"}}), total = T.el("span.soft");
      const panels = track.scene.panels.map((plane) => ({plane, title: T.el("h4"), canvas: T.el("canvas", {"aria-hidden": "true"})}));
      const legend = T.el("div.legend", {}, track.scene.key.map(([text, mark]) => T.el("span", {}, Object.assign(T.el("canvas"), {mark}), text)));
      const figure = T.el("figure", {"data-track": track.name}, T.el("figcaption", {}, T.el("b", {}, track.name), title, alert, total), map,
        T.el("div.panels", {}, panels.map((p) => T.el("div", {}, p.title, p.canvas))));
      map.addEventListener("click", (event) => pick(event, k));
      for (const panel of panels) if (panel.plane.clock.length) {
        panel.canvas.style.cursor = "pointer";
        panel.canvas.addEventListener("click", (event) => seek(event, panel));
      }
      return {track, figure, map, title, alert, total, panels, legend, theme: null, p: null};
    });
    views.replaceChildren(...shown.map((view) => view.figure));
    const scene = shown[0].track.scene, own = scene.paper.toLowerCase() !== "#ffffff";  // its signs are made for its paper
    Object.assign(shown[0].legend.style, own ? {background: scene.paper, color: scene.ink, padding: "7px 11px", borderRadius: "8px"} : {});
    legends.replaceChildren(shown[0].legend);
    retheme();
  }

  function retheme() {
    for (const view of shown) {
      view.theme = T.scene.looks(view.track.scene);
      for (const canvas of view.legend.querySelectorAll("canvas")) T.scene.swatch(canvas, canvas.mark, view.theme);
    }
    draw();
  }

  function draw() {
    for (const view of shown) {
      const {track, map, theme} = view, t = Math.min(state.t, track.length), scene = track.scene, width = map.clientWidth;
      if (!width) continue;
      const v = Array.isArray(scene.map.view[0]) ? scene.map.view[0] : scene.map.view;
      const height = Math.max(160, Math.min(width * Math.abs((v[3] - v[1]) / (v[2] - v[0])), 620));
      view.p = T.scene.paintMap(map, scene, theme, t, width, height, state.agent);
      view.title.textContent = T.scene.at(scene.map.title, t);
      view.alert.textContent = T.scene.at(scene.map.alert, t);
      view.total.textContent = sums(track, t);
      for (const panel of view.panels) {
        panel.title.textContent = T.scene.at(panel.plane.title, t);
        panel.p = T.scene.paintPanel(panel.canvas, scene, panel.plane, theme, t, panel.canvas.clientWidth || 240, 118);
      }
    }
    slider.value = state.t;
    slider.setAttribute("aria-valuetext", `step ${state.t} of ${length()}`);
    clock.textContent = `${state.t} / ${length()}`;
    box.dataset.step = state.t;
    timeline();
    details();
  }

  /** What it came to so far. */
  function sums(track, t) {
    if (!t) return "";
    const mean = (rows) => rows.slice(0, t).reduce((a, b) => a + (b ?? 0), 0) / t;
    const costs = replay.signals.slice(1).map((name, k) => `${name} ${T.quantity(mean(track.cost.map((row) => row[k])), replay.units[k + 1])}`);
    return [`reward ${T.number(mean(track.reward), 3)}`, ...costs].join(" · ");
  }

  /** Marks on the time line: limits broken, the guard at work, deaths. */
  function timeline() {
    const width = events.clientWidth || 300, c = T.scene.sized(events, width, 18), track = shown[state.track].track, n = length();
    const tick = (t, colour, top, high) => { c.fillStyle = colour; c.fillRect(7 + (width - 14) * t / n - 1, top, 2, high); };
    for (let t = 0; t < track.length; t++) {
      if (track.cost[t].some((cost, k) => cost > replay.limits[k])) tick(t + 1, T.css("--over"), 0, 8);
      if (track.changed && track.changed[t].some(Boolean)) tick(t + 1, "#c026d3", 8, 5);
      if (t && track.alive[t].some((a, i) => !a && track.alive[t - 1][i])) tick(t + 1, T.css("--ink"), 13, 5);
    }
    events.title = "red: a limit is broken; purple: the shield acts; dark: an agent is gone";
  }

  function pick(event, k) {
    const view = shown[k], at = view.map.getBoundingClientRect(), t = Math.min(state.t, view.track.length);
    const places = view.track.scene.agents.length ? T.scene.at(view.track.scene.agents, t) : [];
    let best = null;
    places.forEach((place, i) => {
      if (!place) return;
      const d = Math.hypot(view.p.X(place[0]) - (event.clientX - at.left), view.p.Y(place[1]) - (event.clientY - at.top));
      if (best === null || d < best[0]) best = [d, i];
    });
    state.track = k;
    if (best && best[0] < 40) state.agent = best[1];
    draw();
  }

  function seek(event, panel) {
    const x = event.clientX - panel.canvas.getBoundingClientRect().left;
    let best = 0;
    panel.plane.clock.forEach((now, t) => { if (Math.abs(panel.p.X(now) - x) < Math.abs(panel.p.X(panel.plane.clock[best]) - x)) best = t; });
    go(best);
  }

  function go(t) {
    state.t = Math.max(0, Math.min(Math.round(t), length()));
    draw();
  }

  function toggle(on) {
    state.playing = on;
    play.textContent = on ? "❚❚" : "▶";
    play.setAttribute("aria-label", on ? "pause" : "play");
    if (!on) return;
    if (state.t >= length()) go(0);
    last = performance.now(); due = 0;
    requestAnimationFrame(tick);
  }

  function tick(now) {
    if (!state.playing || !box.isConnected) return;
    due += Math.min(now - last, 250) * state.speed / 100;  // ten steps a second
    last = now;
    if (due >= 1) { go(state.t + Math.floor(due)); due %= 1; }
    if (state.t >= length()) toggle(false);
    else requestAnimationFrame(tick);
  }

  // --- one agent, one step ---

  function details() {
    const track = shown[state.track].track, t = Math.min(state.t, track.length) - 1, i = state.agent;
    who.textContent = `Agent ${i + 1}, ${track.name}`;
    [...agents.children].forEach((chip, k) => chip.setAttribute("aria-pressed", String(k === i)));
    if (t < 0) told.replaceChildren(T.el("p.soft", {style: {marginTop: "10px"}}, "Nobody has acted yet. Press play, or click an agent on the map."));
    else told.replaceChildren(...action(track, t, i), ...outcome(track, t, i), ...expected(track, t), ...observation(track, t, i));
  }

  const head = (text) => T.el("h4", {}, text);

  function bar(share, mark) {
    return T.el("span.track", {}, T.el("i", {style: {left: 0, width: `${100 * share}%`}}), mark === undefined ? null : T.el("b", {style: {left: `${100 * mark}%`}}));
  }

  function action(track, t, i) {
    const mode = track.mode[t][i], parts = [head(`Step ${t + 1}: what it did`)];
    const gone = t > 0 && !track.alive[t - 1][i];
    if (gone) return [...parts, T.el("p", {}, "It is gone: what it does is ignored.")];
    parts.push(T.el("p", {}, T.el("b", {}, replay.modes[mode])));
    if (track.changed && track.changed[t][i]) {
      const meant = track.intended_mode[t][i];
      const values = (all) => all[t][i].flatMap((v, k) => (v === null ? [] : `${replay.params[k]} ${T.number(v, 3)}`)).join(", ");
      parts.push(T.el("p", {style: {color: "#c026d3"}}, `The shield changed it: the policy wanted ${replay.modes[meant]} (${values(track.intended_param)}).`));
    }
    if (track.chance) {
      const chance = track.chance[t][i].map((p, m) => [p, m]).filter(([p, m]) => p > 0 || m === mode).sort((a, b) => b[0] - a[0]).slice(0, 8);
      parts.push(head(`How often its policy draws each mode (of ${track.draws})`), T.el("div.bars", {}, chance.flatMap(([p, m]) => [T.el("span", {}, replay.modes[m]), bar(p), T.el("span", {}, T.percent(p))])));
    }
    const used = track.param[t][i].map((v, k) => [v, k]).filter(([v]) => v !== null);
    if (used.length) {
      parts.push(head(track.mean ? "Parameters: what it did (line), what it draws (bar: ± one deviation)" : "Parameters"),
        T.el("div.bars", {}, used.flatMap(([v, k]) => parameter(track, t, i, mode, v, k))));
    }
    return parts;
  }

  function parameter(track, t, i, mode, value, k) {
    const low = replay.low[i][mode][k], high = replay.high[i][mode][k], at = (v) => Math.max(0, Math.min((v - low) / (high - low || 1), 1));
    const marks = [T.el("b", {style: {left: `calc(${100 * at(value)}% - 1px)`}})];
    if (track.mean) {
      const mean = track.mean[t][i][k], spread = track.spread[t][i][k], left = at(mean - spread);
      marks.unshift(T.el("i", {style: {left: `${100 * left}%`, width: `${Math.max(100 * (at(mean + spread) - left), 1.5)}%`}}));
    }
    return [T.el("span", {}, replay.params[k]), T.el("span.track", {title: `from ${T.number(low)} to ${T.number(high)}`}, marks), T.el("span", {}, T.number(value, 3))];
  }

  function outcome(track, t, i) {
    const rows = [["reward", track.reward[t], null, 0], ...track.cost[t].map((cost, k) => [replay.signals[k + 1], cost, replay.limits[k], k + 1])];
    const lines = rows.flatMap(([name, value, limit, j]) => {
      const notes = [];
      if (limit !== null && value > limit) notes.push("✕ over its limit");
      if (limit !== null && track.caused && track.caused[t][i][j - 1] && value > 0) notes.push("this agent caused it");
      if (track.share) notes.push(`its action adds ${T.number(track.share[t][i][j], 3)}`);
      return [T.el("span", {}, name), T.el("span.soft", {}, notes.join("; ")), T.el("b", {}, T.number(value, 3))];
    });
    const note = track.share ? "What an action adds: by the closed form, against the agent's nominal action." : null;
    return [head("What came of it, for all together"), T.el("div.bars", {}, lines), note ? T.el("small", {}, note) : null].filter(Boolean);
  }

  function expected(track, t) {
    const parts = [];
    const table = (heads, rows) => T.el("table", {}, T.el("thead", {}, T.el("tr", {}, heads.map((h) => T.el("th", {}, h)))),
      T.el("tbody", {}, rows.map(([name, ...values]) => T.el("tr", {}, T.el("td", {}, name), values.map((v) => T.el("td", {}, T.number(v, 3)))))));
    if (track.closed_form) parts.push(head("This step, expected and come true"), table(["", "closed form", "came"],
      replay.signals.map((name, j) => [name, track.closed_form[t][j], j ? track.cost[t][j - 1] : track.reward[t]])));
    if (track.expected) {
      const who = Object.keys(track.expected), names = replay.signals.slice(0, track.discount.length);
      parts.push(head("From here to the end, discounted"), table(["", ...who, "came"],
        names.map((name, j) => [`${name} (${T.number(track.discount[j])})`, ...who.map((w) => track.expected[w][t][j]), track.came[t][j]])));
    }
    return parts;
  }

  function observation(track, t, i) {
    if (!track.obs) return [];
    const values = track.obs[t][i], canvas = T.el("canvas.strip", {role: "img", "aria-label": `${values.length} numbers it saw`});
    requestAnimationFrame(() => {
      if (!canvas.isConnected) return;
      const width = canvas.clientWidth, c = T.scene.sized(canvas, width, 44), most = Math.max(1, ...values.map((v) => Math.abs(v ?? 0)));
      values.forEach((v, k) => {
        const high = 20 * (v ?? 0) / most;
        c.fillStyle = high < 0 ? T.css("--limit") : T.css("--accent");
        c.fillRect(k * width / values.length, 22 - Math.max(high, 0), Math.max(width / values.length - 0.6, 0.6), Math.max(Math.abs(high), 0.7));
      });
    });
    return [head(`What it saw before: ${values.length} numbers`), canvas,
      T.el("details", {open: state.open, ontoggle: (e) => { state.open = e.target.open; }}, T.el("summary", {}, "as numbers"), T.el("code", {}, values.map((v) => T.number(v, 3)).join("  ")))];
  }

  play.addEventListener("click", () => toggle(!state.playing));
  slider.addEventListener("input", () => { toggle(false); go(Number(slider.value)); });
  box.addEventListener("keydown", (event) => {
    if (["SELECT", "INPUT", "SUMMARY"].includes(event.target.tagName)) return;
    const act = {ArrowRight: () => go(state.t + 1), ArrowLeft: () => go(state.t - 1), Home: () => go(0), End: () => go(length()),
      " ": () => toggle(!state.playing)}[event.key];
    if (!act || (event.key === " " && event.target.tagName === "BUTTON")) return;
    event.preventDefault();
    act();
  });
  document.addEventListener("themechange", () => { if (box.isConnected) retheme(); });
  new ResizeObserver(() => draw()).observe(views);
  choose(state.episode);
  const notes = [replay.shielded ? "Every action passes the environment's shield." : null,
    replay.left_out && replay.left_out.length ? `To keep this file small it is without ${replay.left_out.join(", ")}.` : null];
  return T.el("div", {}, T.el("p.soft", {style: {marginBottom: "10px"}},
    `Ranked by violations among ${replay.played} episodes that were neither trained nor evaluated on. Click an agent to see what it saw and why it acted.`, " ", notes.filter(Boolean).join(" ")), box);
};
