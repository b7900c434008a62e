"use strict";
// Tables that can be sorted by any column and copied into a spreadsheet or a paper.

/** A cell is text, or [text, number to sort by, state], or {state}. */
T.cellText = (cell) => (Array.isArray(cell) ? cell[0] : cell && cell.state ? T.STATES[T.known(cell.state)][1] : String(cell));

T.cellKey = function (cell) {
  if (Array.isArray(cell)) return T.isNumber(cell[1]) ? cell[1] : null;
  if (cell && cell.state) return ["within", "unsure", "over", "unknown"].indexOf(T.known(cell.state));
  const text = String(cell), found = text.match(/^−?-?[\d.,]+(e[-+]?\d+)?/i);
  return found ? parseFloat(found[0].replace("−", "-").replaceAll(",", "")) : text.toLowerCase();
};

T.compareKeys = function (a, b) {
  if (a === null || b === null) return (a === null) - (b === null);  // what is not known comes last, either way
  if (typeof a === "number" && typeof b === "number") return a - b;
  return typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1;
};

/** `follow(name)`, if given, is what a click on the name of a row does. A table with a key can be renewed in place. */
T.table = function (table, follow, key) {
  let order = table.rows.map((_, i) => i);
  let sorted = {column: -1, down: false};
  const body = T.el("tbody");
  const heads = table.header.map((name, column) => T.el("th", {scope: "col", class: column ? "" : "text"},
    T.el("button", {type: "button", title: "sort", onclick: () => sort(column)}, name)));

  function sort(column) {
    sorted = {column, down: sorted.column === column && !sorted.down};
    const keys = table.rows.map((row) => T.cellKey(row[column]));
    order.sort((i, j) => {
      const unknown = (keys[i] === null) - (keys[j] === null);
      return unknown || (sorted.down ? -1 : 1) * T.compareKeys(keys[i], keys[j]) || i - j;
    });
    heads.forEach((head, i) => head.setAttribute("aria-sort", i === column ? (sorted.down ? "descending" : "ascending") : "none"));
    fill();
  }

  function fill() {
    body.replaceChildren(...order.map((i) => T.el("tr", {}, table.rows[i].map((cell, column) => {
      const text = T.cellText(cell);
      if (column === 0) {
        return T.el("td", {title: text}, follow ? T.el("a", {href: "#run", onclick: () => follow(text)}, text) : text);
      }
      const state = Array.isArray(cell) ? cell[2] : null;
      return T.el("td", {}, cell && cell.state ? T.badge(cell.state) : text, state && state === "over" ? " ✕" : null);
    }))));
  }

  const lines = (mark) => [table.header, ...order.map((i) => table.rows[i].map(T.cellText))].map((row) => row.join(mark));
  const markdown = () => {
    const [head, ...rest] = lines(" | ").map((line) => `| ${line} |`);
    return [head, `| --- ${"| ---: ".repeat(table.header.length - 1)}|`, ...rest].join("\n");
  };
  fill();
  const whole = T.el("div", {"data-table": key},
    T.el("div.scroll", {tabindex: 0}, T.el("table", {}, table.caption ? T.el("caption", {}, table.caption) : null,
      T.el("thead", {}, T.el("tr", {}, heads)), body)),
    T.el("div.row", {style: {marginTop: "8px"}}, T.copyButton(() => lines("\t").join("\n"), "Copy for a spreadsheet"),
      T.copyButton(markdown, "Copy as Markdown"), table.note ? T.el("span.soft", {}, table.note) : null));
  whole.renew = (next) => {
    table = next;
    order = table.rows.map((_, i) => i);
    if (sorted.column >= 0) { sorted.down = !sorted.down; sort(sorted.column); } else fill();
  };
  return whole;
};

/** Two columns, a fact in each row. */
T.facts = (rows) => T.el("div.scroll", {}, T.el("table.facts", {}, T.el("tbody", {},
  rows.map(([name, value]) => T.el("tr", {}, T.el("td", {}, name), T.el("td", {}, value))))));
