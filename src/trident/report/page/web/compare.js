"use strict";
// Several runs on one environment: a table, the Pareto front, and their curves in one chart each.

T.compare = function (group, follow) {
  if (group.problem) return T.el("section", {}, T.el("h2", {}, group.env), T.el("div.notice", {}, group.problem));
  const parts = [T.el("h2", {}, `Side by side: ${group.env}`), T.table(group.table, follow, group.env)];
  if (group.front && group.front.dots.length) parts.push(T.el("div", {style: {marginTop: "14px"}}, T.front(group.front, follow)));
  const charts = group.charts.map((spec) => Object.assign(T.chart(spec, `compare-${group.env}`), {key: `${group.env}/${spec.name}`}));
  charts.forEach((chart) => { if (group.charts[0].lines.length > 6) chart.card.classList.add("big"); });
  parts.push(T.el("div.grid.charts", {style: {marginTop: "14px"}}, charts.map((chart) => chart.card)));
  return T.el("section.group", {"data-env": group.env}, parts);
};

/** Reward against violations: left and up is better. A cross is the interval of each mean, small dots are seeds. */
T.front = function (front, follow) {
  const canvas = T.el("canvas", {style: {width: "100%", height: "380px", display: "block"}, role: "img",
    "aria-label": "Reward against violations: " + front.dots.map((d) => `${d.label} ${T.number(d.y)} at ${T.number(d.x)} %`).join("; ")});
  const told = T.el("p.soft", {"aria-live": "polite"}, "Left and up is better. The shaded strip is where all limits together may be kept; the line joins the best.");
  const card = T.el("section.card", {}, T.el("h3", {}, "What safety costs: reward against violations"), told, canvas);
  let places = [];

  function draw() {
    const width = canvas.clientWidth, height = canvas.clientHeight, ratio = window.devicePixelRatio || 1;
    if (!width) return;
    canvas.width = width * ratio; canvas.height = height * ratio;
    const c = canvas.getContext("2d");
    c.scale(ratio, ratio);
    c.font = "12px system-ui";
    const box = {left: 58, right: width - 16, top: 12, bottom: height - 40};
    const ys = front.dots.flatMap((d) => [d.y, ...(d.y_range || [])]).filter(T.isNumber);
    const xs = front.dots.flatMap((d) => [d.x, ...(d.x_range || [])]).filter(T.isNumber);
    const small = Math.max(front.allowed, 1), squash = (v) => Math.asinh(v / small);
    const right = squash(Math.max(...xs, 1.5 * front.allowed)) * 1.05;
    const [low, high] = [Math.min(...ys), Math.max(...ys)], room = 0.08 * (high - low || 1);
    const X = (v) => box.left + 8 + (box.right - box.left - 8) * squash(Math.max(v, 0)) / right;
    const Y = (v) => box.bottom - (box.bottom - box.top) * (v - low + room) / (high - low + 2 * room);
    c.fillStyle = T.alpha(T.dark() ? "#4fd1a5" : "#00795b", 0.13);
    c.fillRect(box.left, box.top, X(front.allowed) - box.left, box.bottom - box.top);
    c.strokeStyle = T.css("--line"); c.fillStyle = T.css("--soft"); c.lineWidth = 1;
    c.textAlign = "center";
    for (const v of [0, 1, 2, 5, 10, 20, 50, 100, 200]) {
      if (squash(v) > right) continue;
      c.beginPath(); c.moveTo(X(v), box.top); c.lineTo(X(v), box.bottom); c.stroke();
      c.fillText(String(v), X(v), box.bottom + 15);
    }
    c.fillText(front.label, (box.left + box.right) / 2, box.bottom + 33);
    c.textAlign = "right";
    for (let i = 0; i <= 4; i++) {
      const v = low + (high - low) * i / 4;
      c.beginPath(); c.moveTo(box.left, Y(v)); c.lineTo(box.right, Y(v)); c.stroke();
      c.fillText(T.number(v, 3), box.left - 6, Y(v) + 4);
    }
    c.save(); c.translate(13, (box.top + box.bottom) / 2); c.rotate(-Math.PI / 2); c.textAlign = "center"; c.fillText("reward per step", 0, 0); c.restore();
    if (front.front.length) {
      c.strokeStyle = T.css("--ink"); c.lineWidth = 1.5; c.beginPath();
      front.front.forEach(([x, y], i) => {
        if (i) c.lineTo(X(x), Y(front.front[i - 1][1])); else c.moveTo(X(x), box.bottom);
        c.lineTo(X(x), Y(y));
      });
      c.lineTo(box.right, Y(front.front[front.front.length - 1][1]));
      c.stroke();
    }
    places = [];
    const taken = [];
    for (const dot of front.dots) {
      if (!T.isNumber(dot.x) || !T.isNumber(dot.y)) continue;
      const colour = T.ink(dot.colour), x = X(dot.x), y = Y(dot.y);
      c.strokeStyle = c.fillStyle = colour;
      c.lineWidth = 1.4;
      if (dot.x_range) { c.beginPath(); c.moveTo(X(dot.x_range[0]), y); c.lineTo(X(dot.x_range[1]), y); c.stroke(); }
      if (dot.y_range) { c.beginPath(); c.moveTo(x, Y(dot.y_range[0])); c.lineTo(x, Y(dot.y_range[1])); c.stroke(); }
      c.globalAlpha = 0.5;
      for (const [sx, sy] of dot.seeds) { c.beginPath(); c.arc(X(sx), Y(sy), 2, 0, 7); c.fill(); }
      c.globalAlpha = 1;
      c.beginPath(); c.arc(x, y, 6, 0, 7); c.fill();
      c.strokeStyle = T.css("--card"); c.stroke();
      places.push([x, y, dot]);
    }
    c.fillStyle = T.css("--ink");
    if (front.dots.length <= 30) for (const [x, y, dot] of places) {  // a label where nothing stands yet
      const w = c.measureText(dot.label).width;
      for (const [dx, dy, align] of [[10, 4, "left"], [-10, 4, "right"], [0, -11, "center"], [0, 19, "center"]]) {
        const left = align === "left" ? x + dx : align === "right" ? x + dx - w : x - w / 2;
        const box2 = [left - 2, y + dy - 11, left + w + 2, y + dy + 3];
        if (box2[0] < box.left || box2[2] > box.right || box2[3] > box.bottom) continue;
        if (taken.some((t) => t[0] < box2[2] && t[2] > box2[0] && t[1] < box2[3] && t[3] > box2[1])) continue;
        if (places.some(([px, py]) => px > box2[0] - 5 && px < box2[2] + 5 && py > box2[1] - 5 && py < box2[3] + 5 && (px !== x || py !== y))) continue;
        c.textAlign = align;
        c.strokeStyle = T.css("--card"); c.lineWidth = 3; c.lineJoin = "round";
        c.strokeText(dot.label, x + dx, y + dy);
        c.fillText(dot.label, x + dx, y + dy);
        taken.push(box2);
        break;
      }
    }
  }

  const near = (event) => {
    const at = canvas.getBoundingClientRect(), x = event.clientX - at.left, y = event.clientY - at.top;
    const by = places.map(([px, py, dot]) => [Math.hypot(px - x, py - y), dot]).sort((a, b) => a[0] - b[0])[0];
    return by && by[0] < 18 ? by[1] : null;
  };
  canvas.addEventListener("mousemove", (event) => {
    const dot = near(event);
    canvas.style.cursor = dot ? "pointer" : "default";
    if (dot) told.textContent = `${dot.label}: reward ${T.number(dot.y)}, violations ${T.number(dot.x)} %`;
  });
  canvas.addEventListener("click", (event) => { const dot = near(event); if (dot) follow(dot.label); });
  const chart = {card, uplot: true, draw, size: draw};
  new ResizeObserver(draw).observe(canvas);
  T.charts.add({...chart, uplot: {destroy() {}}});
  return card;
};
