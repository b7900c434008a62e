"use strict";
// Paints a scene (trident/report/scene.py) on canvases: the same marks, in the same order, as in the GIF.

T.scene = {};
(function () {
  const INK = "#1F2933";
  const USUAL = {
    line: {colour: INK, width: 1.5, alpha: 1, dash: "", fade: false},
    area: {fill: "", edge: "", width: 0, alpha: 1},
    disc: {fill: "", edge: "", width: 1, alpha: 1},
    dot: {colour: INK, shape: "o", size: 6, edge: "", width: 1, alpha: 1},
    label: {text: "", colour: INK, size: 7.5, bold: false, offset: [0, 0], align: "center", box: "", turned: false},
    arrow: {colour: INK, width: 1.5},
    raster: {colours: []},
  };
  // The palette's neutral colours on dark paper; an environment names more of its own.
  const DARK = {"#1F2933": "#e8edf2", "#9AA5B1": "#8794a1", "#FBFBF8": "#151c24", "#D5D9DE": "#34404c", "#EEF1F4": "#26313c"};

  /** Colours and looks of a scene, as the present theme has them. */
  T.scene.looks = function (scene) {
    const swaps = {};
    for (const [from, to] of Object.entries({...DARK, ...scene.dark})) swaps[from.toLowerCase()] = to;
    const own = scene.paper.toLowerCase() !== "#ffffff";  // a scene that is dark by itself stays as it is
    const colour = (c) => (T.dark() && !own && typeof c === "string" ? swaps[c.toLowerCase()] || c : c);
    const paper = (c) => (String(c).toLowerCase() === "#ffffff" && !own ? T.css("--card") : colour(c));
    const looks = scene.looks.map((look) => {
      const whole = {...USUAL[look.kind], ...look};
      for (const name of ["colour", "fill", "edge", "box"]) if (whole[name]) whole[name] = colour(whole[name]);
      if (look.kind === "dot" && String(look.colour).toLowerCase() === "#ffffff") whole.colour = paper("#ffffff");
      return whole;
    });
    return {looks, colour, paper};
  };

  const at = (value, t) => (Array.isArray(value) ? value[Math.min(t, value.length - 1)] : value);
  T.scene.at = at;
  const viewAt = (plane, t) => (Array.isArray(plane.view[0]) ? at(plane.view, t) : plane.view);

  /** Where a plane's coordinates lie in a box of pixels [left, top, width, height]. */
  function projection(plane, t, box, equal) {
    const [x0, y0, x1, y1] = viewAt(plane, t);
    let sx = box[2] / (x1 - x0), sy = box[3] / (y1 - y0), left = box[0], top = box[1];
    if (equal) {
      const s = Math.min(sx, sy);
      left += (box[2] - s * (x1 - x0)) / 2;
      top += (box[3] - s * (y1 - y0)) / 2;
      sx = sy = s;
    }
    return {X: (x) => left + (x - x0) * sx, Y: (y) => top + (y1 - y) * sy, sx, sy, left, top,
      right: left + (x1 - x0) * sx, bottom: top + (y1 - y0) * sy};
  }
  T.scene.projection = projection;

  /** A canvas of so many CSS pixels, cleared, with its context scaled to them. */
  T.scene.sized = function (canvas, width, height) {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    const c = canvas.getContext("2d");
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    return c;
  };

  T.scene.paintMap = function (canvas, scene, theme, t, width, height, chosen) {
    const c = T.scene.sized(canvas, width, height), plane = scene.map, pt = Math.max(0.85, Math.min(width / 420, 1.7));
    c.fillStyle = theme.paper(plane.paper);
    c.fillRect(0, 0, width, height);
    const p = projection(plane, t, [0, 0, width, height], true);
    c.save();
    for (const mark of [...plane.backdrop, ...plane.frames[Math.min(t, plane.frames.length - 1)]]) paint(c, mark, theme, p, pt);
    c.restore();
    const place = scene.agents.length ? at(scene.agents, t)[chosen] : null;
    if (place) {
      c.strokeStyle = T.css("--accent"); c.lineWidth = 2.5;
      c.beginPath(); c.arc(p.X(place[0]), p.Y(place[1]), 13 * pt, 0, 7); c.stroke();
    }
    if (plane.unit) scaleBar(c, plane, t, p, height, theme.colour(scene.ink));
    return p;
  };

  function scaleBar(c, plane, t, p, height, colour) {
    const [x0, , x1] = viewAt(plane, t), most = 0.2 * (x1 - x0), power = 10 ** Math.floor(Math.log10(most));
    const length = [5, 2, 1].map((n) => n * power).find((l) => l <= most), left = Math.max(p.left, 0) + 12;
    c.strokeStyle = c.fillStyle = colour; c.lineWidth = 3;
    c.beginPath(); c.moveTo(left, height - 10); c.lineTo(left + length * p.sx, height - 10); c.stroke();
    c.font = "12px system-ui"; c.textAlign = "center"; c.textBaseline = "bottom";
    const text = `${T.number(length)} ${plane.unit}`, half = Math.max(c.measureText(text).width, length * p.sx) / 2;
    c.fillText(text, left + half, height - 14);
  }

  /** A panel over time shows all of it faintly, what has been clearly, and where the step is. */
  T.scene.paintPanel = function (canvas, scene, plane, theme, t, width, height) {
    const c = T.scene.sized(canvas, width, height), pt = 1.15;
    c.font = "11px system-ui";
    const [x0, y0, x1, y1] = viewAt(plane, t);
    const yTicks = plane.y_ticks || nice(Math.min(y0, y1), Math.max(y0, y1), 3), xTicks = plane.x_ticks || nice(x0, x1, 5);
    const room = Math.min(Math.max(...yTicks.map(([, name]) => c.measureText(name).width), 8) + 10, width / 3);
    const bottom = plane.x_label ? 32 : 18, box = [room, 4, width - room - 10, height - bottom - 4];
    c.fillStyle = theme.paper(plane.paper);
    c.fillRect(...box);
    const p = projection(plane, t, box, false), now = plane.clock.length ? at(plane.clock, t) : null;
    c.save();
    c.beginPath(); c.rect(...box); c.clip();
    for (const mark of plane.backdrop) paint(c, mark, theme, p, pt);
    if (now !== null) {
      c.globalAlpha = 0.22;
      for (const mark of plane.history) paint(c, mark, theme, p, pt, 0.22);
      c.globalAlpha = 1;
      c.save();
      c.beginPath(); c.rect(box[0], 0, Math.max(p.X(now) - box[0], 0) + 0.5, height); c.clip();
      for (const mark of plane.history) paint(c, mark, theme, p, pt);
      c.restore();
    }
    for (const mark of plane.frames[Math.min(t, plane.frames.length - 1)]) paint(c, mark, theme, p, pt);
    c.restore();
    if (now !== null) {
      c.strokeStyle = T.css("--soft"); c.lineWidth = 1;
      c.beginPath(); c.moveTo(p.X(now), box[1]); c.lineTo(p.X(now), box[1] + box[3]); c.stroke();
    }
    c.fillStyle = T.css("--soft"); c.strokeStyle = T.css("--line"); c.lineWidth = 1;
    c.strokeRect(box[0] + 0.5, box[1] + 0.5, box[2] - 1, box[3] - 1);
    c.textAlign = "right"; c.textBaseline = "middle";
    for (const [v, name] of yTicks) c.fillText(name, room - 5, p.Y(v));
    c.textAlign = "center"; c.textBaseline = "top";
    for (const [v, name] of xTicks) c.fillText(name, p.X(v), box[1] + box[3] + 4);
    if (plane.x_label) c.fillText(plane.x_label, box[0] + box[2] / 2, height - 13);
    return p;
  };

  function nice(low, high, count) {
    const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((s) => s >= rough) || 1, ticks = [];
    for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + 1e-9 * step; v += step) ticks.push([v, T.number(Number(v.toPrecision(10)))]);
    return ticks;
  }

  T.scene.swatch = function (canvas, mark, theme) {
    const c = T.scene.sized(canvas, 20, 14), look = theme.looks[mark[0]];
    const p = {X: (x) => x, Y: (y) => y, sx: 1, sy: 1};
    if (look.kind === "line") paint(c, [mark[0], 1, 7, 19, 7], theme, p, 1);
    else if (look.kind === "area" || look.kind === "disc") { stroke(c, look, () => c.rect(2, 2, 16, 10), 1); }
    else paint(c, [mark[0], 10, 7], theme, p, 1);
  };

  function stroke(c, look, path, pt, faint = 1) {
    c.beginPath();
    path();
    c.globalAlpha = look.alpha * faint;
    if (look.fill) { c.fillStyle = look.fill; c.fill(); }
    if (look.edge && look.width) { c.strokeStyle = look.edge; c.lineWidth = look.width * pt; c.stroke(); }
    c.globalAlpha = faint;
  }

  const DASHES = {"-": [5, 3], "--": [7, 7], ":": [1.5, 3]};

  function paint(c, mark, theme, p, pt, faint = 1) {
    const look = theme.looks[mark[0]];
    PAINT[look.kind](c, look, mark, p, pt, faint, theme);
  }

  const PAINT = {
    line(c, look, mark, p, pt, faint) {
      c.strokeStyle = look.colour; c.lineWidth = look.width * pt; c.lineJoin = "round"; c.lineCap = "butt";
      c.setLineDash((DASHES[look.dash] || []).map((d) => d * pt));
      const count = (mark.length - 1) / 2;
      if (look.fade) {
        for (let i = 1; i < count; i++) {
          c.globalAlpha = faint * (0.03 + (look.alpha - 0.03) * i / Math.max(count - 1, 1));
          c.beginPath(); c.moveTo(p.X(mark[2 * i - 1]), p.Y(mark[2 * i])); c.lineTo(p.X(mark[2 * i + 1]), p.Y(mark[2 * i + 2])); c.stroke();
        }
      } else {
        c.globalAlpha = look.alpha * faint;
        c.beginPath();
        let pen = false;
        for (let i = 0; i < count; i++) {
          const x = mark[1 + 2 * i], y = mark[2 + 2 * i];
          if (x === null || y === null) { pen = false; continue; }
          if (pen) c.lineTo(p.X(x), p.Y(y)); else c.moveTo(p.X(x), p.Y(y));
          pen = true;
        }
        c.stroke();
      }
      c.setLineDash([]);
      c.globalAlpha = faint;
    },
    area(c, look, mark, p, pt, faint) {
      stroke(c, look, () => {
        for (let i = 1; i + 1 < mark.length; i += 2) c.lineTo(p.X(mark[i]), p.Y(mark[i + 1]));
        c.closePath();
      }, pt, faint);
    },
    disc(c, look, mark, p, pt, faint) {
      stroke(c, look, () => c.ellipse(p.X(mark[1]), p.Y(mark[2]), mark[3] * Math.abs(p.sx), mark[3] * Math.abs(p.sy), 0, 0, 7), pt, faint);
    },
    dot(c, look, mark, p, pt, faint) {
      const x = p.X(mark[1]), y = p.Y(mark[2]), r = look.size * pt / 2;
      c.globalAlpha = look.alpha * faint;
      c.fillStyle = look.colour || "transparent";
      c.beginPath();
      if (look.shape === "x") {
        c.moveTo(x - r, y - r); c.lineTo(x + r, y + r); c.moveTo(x - r, y + r); c.lineTo(x + r, y - r);
        c.strokeStyle = look.colour; c.lineWidth = look.width * pt; c.stroke();
      } else {
        shape(c, look.shape, x, y, r);
        if (look.colour) c.fill();
        if (look.edge) { c.strokeStyle = look.edge; c.lineWidth = look.width * pt; c.stroke(); }
      }
      c.globalAlpha = faint;
    },
    label(c, look, mark, p, pt) {
      const x = p.X(mark[1]) + look.offset[0] * pt, y = p.Y(mark[2]) - look.offset[1] * pt;
      const size = Math.max(look.size * pt * 1.1, 8.5);
      c.font = `${look.bold ? 700 : 400} ${size}px system-ui`;
      c.textAlign = look.align; c.textBaseline = "middle";
      c.save();
      c.translate(x, y);
      if (look.turned) c.rotate(-Math.PI / 2);
      if (look.box) {
        const w = c.measureText(look.text).width + 7;
        c.fillStyle = look.box;
        c.beginPath(); c.roundRect(-w / 2, -size * 0.7, w, size * 1.4, 3); c.fill();
      }
      c.fillStyle = look.colour;
      c.fillText(look.text, 0, 0.5);
      c.restore();
    },
    arrow(c, look, mark, p, pt) {
      const x = p.X(mark[1]), y = p.Y(mark[2]), dx = mark[3] * p.sx, dy = -mark[4] * p.sy, length = Math.hypot(dx, dy);
      if (length < 1) return;
      const ux = dx / length, uy = dy / length, head = Math.min(8 * pt, length);
      c.strokeStyle = c.fillStyle = look.colour; c.lineWidth = look.width * pt;
      c.beginPath(); c.moveTo(x, y); c.lineTo(x + dx - ux * head * 0.8, y + dy - uy * head * 0.8); c.stroke();
      c.beginPath(); c.moveTo(x + dx, y + dy);
      c.lineTo(x + dx - ux * head - uy * head * 0.45, y + dy - uy * head + ux * head * 0.45);
      c.lineTo(x + dx - ux * head + uy * head * 0.45, y + dy - uy * head - ux * head * 0.45);
      c.fill();
    },
    raster(c, look, mark, p, pt, faint, theme) {
      const [, left, bottom, right, top, rows] = mark, count = (mark.length - 6) / rows;
      const wide = (p.X(right) - p.X(left)) / count, high = (p.Y(bottom) - p.Y(top)) / rows;
      for (let r = 0; r < rows; r++) for (let k = 0; k < count; k++) {
        c.fillStyle = theme.colour(look.colours[mark[6 + r * count + k]]);
        const from = Math.round(p.X(left) + k * wide), to = Math.round(p.X(left) + (k + 1) * wide);  // no seams, no overlaps
        c.fillRect(from, p.Y(top) + r * high, to - from, high);
      }
    },
  };

  function shape(c, name, x, y, r) {
    const corners = {s: [4, Math.PI / 4, 1.35], h: [6, 0, 1.08], ">": [3, Math.PI / 2, 1.15], "^": [3, 0, 1.15], D: [4, 0, 1.2]}[name];
    if (corners) {
      const [n, turn, size] = corners;
      for (let i = 0; i < n; i++) c.lineTo(x + size * r * Math.sin(turn + 2 * Math.PI * i / n), y - size * r * Math.cos(turn + 2 * Math.PI * i / n));
      c.closePath();
    } else if (name === "*") {
      for (let i = 0; i < 10; i++) {
        const q = i % 2 ? 0.42 * r : 1.1 * r;
        c.lineTo(x + q * Math.sin(Math.PI * i / 5), y - q * Math.cos(Math.PI * i / 5));
      }
      c.closePath();
    } else if (name === "X") {
      const a = r * 0.35;
      for (const [u, v] of [[0, -a], [r - a, -r], [r, a - r], [a, 0], [r, r - a], [r - a, r], [0, a], [a - r, r], [-r, r - a], [-a, 0], [-r, a - r], [a - r, -r]]) c.lineTo(x + u, y + v);
      c.closePath();
    } else if (name === "P") {
      const a = r * 0.36;
      for (const [u, v] of [[-a, -r], [a, -r], [a, -a], [r, -a], [r, a], [a, a], [a, r], [-a, r], [-a, a], [-r, a], [-r, -a], [-a, -a]]) c.lineTo(x + u, y + v);
      c.closePath();
    } else {
      c.arc(x, y, r, 0, 7);
    }
  }
})();
