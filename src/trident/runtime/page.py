"""The page of a server: who acts for every agent, and the buttons with which a human takes over. One document without
anything from elsewhere."""

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>guard</title>
<style>
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif }
body { max-width: 62rem; margin: 1.5rem auto; padding: 0 1rem }
h1 { font-size: 1.25rem; margin: 0 }
.row { display: flex; gap: .7rem; align-items: center; flex-wrap: wrap; margin: .9rem 0 }
button { font: inherit; padding: .45rem .9rem; border-radius: .4rem; border: 1px solid #8886; cursor: pointer }
.stop { background: #b3261e; color: #fff; border-color: #b3261e }
.stop { font-weight: 600; font-size: 1.1rem; padding: .8rem 1.4rem }
input { font: inherit; padding: .35rem .5rem; border-radius: .4rem; border: 1px solid #8888 }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid #8884; font-variant-numeric: tabular-nums }
td button { padding: .15rem .55rem }
.branch { font-weight: 600 }
.override { color: #b3261e } .fail-safe { color: #b25f00 } .base { color: #8a6d00 }
@media (prefers-color-scheme: dark) {
  .override { color: #ff8a80 } .fail-safe { color: #ffb74d } .base { color: #ffe082 }
}
#lost { color: #fff; background: #b3261e; padding: .5rem .8rem; border-radius: .4rem }
.dim { opacity: .7 }
</style>
<h1 id="title"></h1>
<div class="dim" id="about" role="status"></div>
<p id="lost" role="alert" hidden></p>
<div class="row">
  <button class="stop" id="stop">Take over all agents</button>
  <button id="free">Release all</button>
  <label>Your name <input id="by" autocomplete="name" size="14"></label>
  <label id="ask" hidden>Token <input id="token" type="password" size="18"></label>
</div>
<p class="dim" id="safe"></p>
<table><thead><tr><th>agent<th>who acts<th>why<th>mode<th>heard<th>order<th></tr></thead>
<tbody id="agents"></tbody></table>
<script>
"use strict";
const told = {{told}};
const $ = id => document.getElementById(id);
document.title = $("title").textContent = told.title;
$("ask").hidden = told.key !== null;
let modes = [];

async function order(content) {
  const by = $("by").value || "somebody";
  for (const part of Object.values(content)) part.by = by;
  try {
    const answer = await fetch("order", {method: "POST", body: JSON.stringify(content),
      headers: {"X-Trident": told.key ?? $("token").value}});
    if (!answer.ok) throw new Error(await answer.text());
    say("");
  } catch (error) { say("The order was NOT taken: " + error.message); }
  look();
}
function say(text) { $("lost").textContent = text; $("lost").hidden = !text; }
function cell(row, text, kind) {
  const made = row.insertCell(); made.textContent = text ?? ""; if (kind) made.className = kind; return made;
}
function button(where, text, act) {
  const made = document.createElement("button"); made.textContent = text; made.onclick = act; where.append(made, " ");
}
function shown(order) {
  return order === null ? "" : typeof order === "string" ? order : "mode " + order.mode + " " + order.params;
}
let last = "";
function draw(state) {
  modes = state.modes;
  $("about").textContent = state.decisions + " decisions, " + state.clients + " connections";
  $("safe").textContent = "Fail-safe: " + state["fail-safe"] + ". An order stays until it is released.";
  const now = JSON.stringify(state.agents);
  if (now === last) return;
  last = now;
  const focused = document.activeElement?.dataset?.key;
  const body = document.createElement("tbody"); body.id = "agents";
  for (const a of state.agents) {
    const row = body.insertRow();
    cell(row, a.agent);
    const branch = a.order !== null ? "override" : a.branch ?? "nothing heard";
    cell(row, branch, "branch " + branch);
    cell(row, a.order !== null ? "a human's order" : a.why);
    cell(row, a.mode === undefined ? "" : modes[a.mode] ?? a.mode);
    cell(row, a.heard === null ? "never" : a.heard.toFixed(1) + " s ago");
    cell(row, shown(a.order));
    const last = cell(row, "");
    button(last, "fail-safe", () => order({override: {action: "fail-safe", agents: [a.agent]}}));
    button(last, "base policy", () => order({override: {action: "base policy", agents: [a.agent]}}));
    if (a.order !== null) button(last, "release", () => order({release: {agents: [a.agent]}}));
    [...last.children].forEach((b, i) => b.dataset.key = a.agent + "/" + i);
  }
  $("agents").replaceWith(body);
  if (focused) document.querySelector(`[data-key="${focused}"]`)?.focus();
}
async function look() {
  try {
    const answer = await fetch("state");
    draw(await answer.json());
    if ($("lost").textContent.startsWith("The server")) say("");
  } catch { say("The server does not answer: use the file or the signal."); }
}
$("stop").onclick = () => order({override: {action: "fail-safe"}});
$("free").onclick = () => confirm("Let the policy act again for all agents?") && order({release: {}});
look();
setInterval(look, 1000);
</script>
</html>
"""
