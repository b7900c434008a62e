"use strict";
// Charts of curves, on uPlot: drag to zoom into a stretch, double-click or press 0 to see all of it, arrows to move.

T.charts = new Set();  // those on the page, to be drawn again when the theme or the window changes

/** All lines on one x axis: uPlot wants columns of equal length. */
T.columns = function (lines) {
  const xs = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  const at = new Map(xs.map((x, i) => [x, i]));
  const spread = (line, values) => {
    if (!values) return null;
    const column = new Array(xs.length).fill(null);
    line.x.forEach((x, i) => { column[at.get(x)] = values[i]; });
    return column;
  };
  return [xs, spread];
};

/** Trailing mean over `window` points of what there is. */
T.smooth = function (values, window) {
  if (window < 2) return values;
  const out = [];
  let sum = 0, count = 0;
  values.forEach((value, i) => {
    if (value !== null) { sum += value; count += 1; }
    const gone = i >= window ? values[i - window] : null;
    if (gone !== null) { sum -= gone; count -= 1; }
    out.push(value === null || !count ? null : sum / count);
  });
  return out;
};

/** Where to label an axis on which small values are spread and large ones stand in powers: 0, and as many powers of ten (or
    their 2 and 5 fold) as there is room for. */
T.powers = function (low, high, linear) {
  const at = (v) => Math.asinh(v / linear), room = (at(high) - at(low)) / 9;
  const last = Math.floor(Math.log10(Math.max(Math.abs(low), Math.abs(high), linear))), found = low <= 0 && high >= 0 ? [0] : [];
  for (const factors of [[1], [2, 5]]) if (found.length < 4) for (let k = last; 10 ** k > linear / 10; k--) for (const f of factors) for (const sign of [1, -1]) {
    const v = sign * f * 10 ** k;
    if (v >= low && v <= high && found.every((other) => Math.abs(at(other) - at(v)) > room)) found.push(v);
  }
  return found.sort((a, b) => a - b);
};

T.chart = function (spec, sync) {
  const many = spec.lines.length > 1, high = spec.lines.length > 6 ? 320 : 210;
  const state = {hidden: new Set(), log: many && spec.group === "compare" && spec.name !== "reward", window: 1};
  const plot = T.el("div.plot", {tabindex: 0, style: {minHeight: `${high}px`}, role: "img", "aria-label": describe(spec)});
  const keys = T.el("div.keys");
  const reset = T.el("button", {type: "button", title: "See all of it (0)", disabled: true}, "all");
  const log = T.el("button", {type: "button", "aria-pressed": String(state.log), title: "Logarithmic scale"}, "log");
  const smooth = T.el("button", {type: "button", "aria-pressed": "false", title: "Mean of the last points"}, "smooth");
  const card = T.el("section.card.chart", {"data-chart": spec.name},
    T.el("header", {}, T.el("div", {}, T.el("h3", {}, spec.title, spec.unit && !T.isShare(spec.unit) ? T.el("small", {}, ` ${spec.unit}`) : null)),
    T.el("div.tools", {}, smooth, log, reset)), T.el("div.soft", {}, spec.text), plot, keys);
  const chart = {card, spec, uplot: null, draw, size};
  let zoomed = null;

  function describe(s) {
    const ends = s.lines.map((line) => `${line.label}: ${T.number(line.mean[line.mean.length - 1])}`).join(", ");
    return `${s.title}. At the end: ${ends}${T.isNumber(s.limit) ? `; limit ${T.number(s.limit)}` : ""}`;
  }

  function draw() {
    if (chart.uplot) chart.uplot.destroy();
    const [xs, spread] = T.columns(spec.lines);
    const series = [{}], data = [xs], bands = [];
    const add = (values, look) => { series.push({spanGaps: true, points: {show: false}, ...look}); data.push(values); };
    chart.main = [];
    spec.lines.forEach((line, k) => {
      const colour = T.ink(line.colour), show = !state.hidden.has(k);
      const part = (values) => (values ? spread(line, T.smooth(values, state.window)) : null);
      if (line.low) {
        add(part(line.high), {show, stroke: "transparent", width: 0, k});
        add(part(line.low), {show, stroke: "transparent", width: 0, k});
        bands.push({series: [series.length - 2, series.length - 1], fill: alpha(colour, many ? 0.1 : 0.16)});
      }
      if (!many) for (const seed of line.seeds || []) add(part(seed), {show, stroke: alpha(colour, 0.4), width: 0.8, k});
      const lonely = line.x.length < 40;
      chart.main[k] = series.length;
      add(part(line.mean), {show, stroke: colour, width: 2, k, dash: line.dash || undefined,
        points: {show: lonely, size: 4, fill: colour}});
    });
    const options = {
      width: Math.max(plot.clientWidth || 340, 200), height: high, series, bands, legend: {show: false}, pxAlign: false,
      padding: [8, 18, 0, 0],
      scales: {x: {time: false}, y: {distr: state.log ? 4 : 1, asinh: smallest(), range: range}},
      axes: [axis({values: (_, ticks) => ticks.map(T.steps), label: "environment steps per seed", labelSize: 18, labelGap: 0,
        labelFont: "11.5px system-ui", size: 32}),
        axis({size: 62, ...(state.log ? {splits: (u, i, low, top) => T.powers(low, top, smallest()), filter: (u, splits) => splits} : {}), values: (_, ticks) => ticks.map((v) => (v === null ? "" : T.quantity(v, spec.unit)))})],
      cursor: {sync: {key: sync}, drag: {x: true, y: false}, points: {size: 6}},
      hooks: {draw: [marks], setCursor: [read], setScale: [(u, key) => { if (key === "x") zoom(u); }]},
    };
    chart.uplot = new uPlot(options, data, plot);
    if (zoomed) chart.uplot.setScale("x", zoomed);
    legend();
  }

  function axis(more) {
    return {stroke: T.css("--soft"), grid: {stroke: T.css("--line"), width: 1}, ticks: {show: false}, font: "11.5px system-ui",
      ...more};
  }

  function smallest() {
    const ends = spec.budget ? [spec.budget[1][1]] : [T.isNumber(spec.limit) ? spec.limit : 0];
    const top = Math.max(...ends, 0);
    return top > 0 ? top / 10 : 1e-3;
  }

  // The limit is always in view; rare outliers are not allowed to flatten all the rest.
  function range(u, low, high) {
    const values = [];
    spec.lines.forEach((line, k) => {
      if (state.hidden.has(k)) return;
      for (const v of [line.mean, line.low, line.high]) for (const y of v || []) if (y !== null) values.push(y);
    });
    if (!values.length) return [0, 1];
    if (zoomed && low !== null && high !== null) { values.length = 0; values.push(low, high); }
    values.sort((a, b) => a - b);
    let bottom = values[0], top = values[values.length - 1];
    if (!zoomed && spec.group === "method" && values.length > 50) {
      const q = (p) => values[Math.floor(p * (values.length - 1))], middle = q(0.98) - q(0.02);
      if (top - bottom > 4 * middle && middle > 0) {
        bottom = Math.max(bottom, q(0.02) - 0.25 * middle);
        top = Math.min(top, q(0.98) + 0.25 * middle);
      }
    }
    if (T.isNumber(spec.floor)) bottom = Math.max(bottom, spec.floor);
    if (T.isNumber(spec.limit)) { top = Math.max(top, 1.15 * spec.limit); bottom = Math.min(bottom, spec.limit); }
    if (spec.budget) { top = Math.max(top, spec.budget[1][1]); bottom = Math.min(bottom, 0); }
    if (spec.name.startsWith("cost/")) bottom = Math.min(bottom, 0);
    if (top <= bottom) { const more = Math.abs(top) * 0.1 || 1; return [bottom - more, top + more]; }
    const room = 0.05 * (top - bottom);
    return [bottom === 0 ? 0 : bottom - room, top + room];
  }

  function marks(u) {
    const {ctx, bbox} = u, ratio = window.devicePixelRatio || 1;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.font = `${11 * ratio}px system-ui`;
    const across = (value, colour, dash, text, shade) => {
      const y = u.valToPos(value, "y", true);
      if (shade) { ctx.fillStyle = alpha(colour, 0.07); ctx.fillRect(bbox.left, bbox.top, bbox.width, Math.max(y - bbox.top, 0)); }
      ctx.strokeStyle = colour; ctx.lineWidth = 1.4 * ratio; ctx.setLineDash(dash.map((d) => d * ratio));
      ctx.beginPath(); ctx.moveTo(bbox.left, y); ctx.lineTo(bbox.left + bbox.width, y); ctx.stroke();
      ctx.fillStyle = colour; ctx.textAlign = "right"; ctx.textBaseline = "bottom";
      if (text) ctx.fillText(text, bbox.left + bbox.width - 4 * ratio, y - 2 * ratio);
    };
    const taken = [];
    for (const mark of spec.marks) {
      const y = u.valToPos(mark.value, "y", true), free = taken.every((t) => Math.abs(t - y) > 13 * ratio) && y - 12 * ratio > bbox.top;
      across(mark.value, T.css("--faint"), [2, 3], free ? mark.label : "");
      if (free) taken.push(y);
    }
    if (T.isNumber(spec.limit)) across(spec.limit, T.css("--limit"), [6, 4], `limit ${T.quantity(spec.limit, spec.unit)}`, true);
    if (spec.budget) {
      ctx.strokeStyle = T.css("--limit"); ctx.lineWidth = 1.4 * ratio; ctx.setLineDash([6 * ratio, 4 * ratio]);
      ctx.beginPath();
      const [[x0, y0], [x1, y1]] = spec.budget;  // a line in numbers is a curve on a logarithmic scale
      for (let i = 0; i <= 60; i++) {
        const x = u.valToPos(x0 + (x1 - x0) * i / 60, "x", true), y = u.valToPos(y0 + (y1 - y0) * i / 60, "y", true);
        if (i) ctx.lineTo(x, y); else ctx.moveTo(x, y);
      }
      ctx.stroke();
      ctx.fillStyle = T.css("--limit"); ctx.textAlign = "right"; ctx.textBaseline = "bottom";
      ctx.fillText("allowed", bbox.left + bbox.width - 4 * ratio, u.valToPos(y1, "y", true) - 2 * ratio);
    }
    ctx.restore();
  }

  function zoom(u) {
    const xs = u.data[0], {min, max} = u.scales.x;
    const whole = !xs.length || (min <= xs[0] && max >= xs[xs.length - 1]);
    zoomed = whole ? null : {min, max};
    reset.disabled = whole;
  }

  function legend() {
    keys.replaceChildren(...spec.lines.map((line, k) => {
      const swatch = T.el("span.swatch", {style: {width: "16px", borderTop: `3px ${line.dash ? "dashed" : "solid"} ${T.ink(line.colour)}`}});
      return T.el("button", {type: "button", "aria-pressed": String(!state.hidden.has(k)), title: "show or hide",
        onclick: () => { if (!state.hidden.delete(k)) state.hidden.add(k); draw(); },
        onmouseenter: () => raise(k), onfocus: () => raise(k), onmouseleave: () => raise(null), onblur: () => raise(null)}, swatch, line.label, T.el("output", {}));
    }));
    read(chart.uplot);
  }

  /** One line among many: the others step back. */
  function raise(k) {
    if (!many || !chart.uplot) return;
    for (const part of chart.uplot.series.slice(1)) part.alpha = k === null || part.k === k ? 1 : 0.12;
    chart.uplot.redraw(false, false);
  }

  function read(u) {
    const outputs = keys.querySelectorAll("output");
    if (!u || !outputs.length) return;
    const i = u.cursor.idx;
    spec.lines.forEach((line, k) => {
      const column = u.data[chart.main[k]] || [];
      let j = i === null || i === undefined ? column.length - 1 : i;
      while (j >= 0 && column[j] === null) j -= 1;
      if (outputs[k]) outputs[k].textContent = j >= 0 ? T.quantity(column[j], spec.unit) : "";
    });
  }

  function size() {
    if (chart.uplot && plot.clientWidth) chart.uplot.setSize({width: Math.max(plot.clientWidth, 200), height: high});
  }

  function move(by, scale) {
    const u = chart.uplot, xs = u.data[0];
    if (xs.length < 2) return;
    const {min, max} = u.scales.x, span = (max - min) * scale, ends = [xs[0], xs[xs.length - 1]];
    const whole = Math.min(span, ends[1] - ends[0]);
    let left = (min + max) / 2 - whole / 2 + by * (max - min);
    left = Math.max(ends[0], Math.min(left, ends[1] - whole));
    u.setScale("x", {min: left, max: left + whole});
  }

  function all() {
    const xs = chart.uplot.data[0];
    chart.uplot.setScale("x", {min: xs[0], max: xs[xs.length - 1]});
  }

  reset.addEventListener("click", all);
  log.addEventListener("click", () => { state.log = !state.log; log.setAttribute("aria-pressed", String(state.log)); draw(); });
  smooth.addEventListener("click", () => {
    const longest = Math.max(...spec.lines.map((line) => line.x.length));
    state.window = state.window > 1 ? 1 : Math.max(5, Math.round(longest / 20));
    smooth.setAttribute("aria-pressed", String(state.window > 1));
    draw();
  });
  plot.addEventListener("keydown", (event) => {
    const act = {ArrowLeft: () => move(-0.2, 1), ArrowRight: () => move(0.2, 1), "+": () => move(0, 0.6),
      "-": () => move(0, 1 / 0.6), 0: all}[event.key];
    if (act && chart.uplot) { event.preventDefault(); act(); }
  });

  /** New data of the same chart; what is zoomed, hidden or smoothed stays so. */
  chart.update = function (next) {
    spec = next;
    chart.spec = next;
    plot.setAttribute("aria-label", describe(next));
    if (chart.uplot) draw();
  };
  T.charts.add(chart);
  watcher.observe(plot);
  plot.chart = chart;
  return chart;
};

// A chart is drawn when it comes into view: hundreds of them would keep the page waiting.
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const chart = entry.target.chart;
    if (entry.isIntersecting && chart && !chart.uplot) chart.draw();
  }
}, {rootMargin: "300px"});

function alpha(colour, share) {
  const [r, g, b] = (colour.match(/^#/) ? [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16)) : colour.match(/\d+/g)) || [0, 0, 0];
  return `rgba(${r},${g},${b},${share})`;
}
T.alpha = alpha;

T.redrawCharts = () => T.charts.forEach((chart) => { if (chart.uplot) chart.draw(); });
T.resizeCharts = () => T.charts.forEach((chart) => chart.size());
T.forgetCharts = function (within) {
  for (const chart of T.charts) {
    if (!within.contains(chart.card)) continue;
    if (chart.uplot) chart.uplot.destroy();
    T.charts.delete(chart);
  }
};
