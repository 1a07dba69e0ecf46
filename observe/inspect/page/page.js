"use strict";
// The page shows what the JSON beside it says. Keys and names come from clients: they are
// only ever set as textContent.
const $ = (id) => document.getElementById(id);
const every = 2000; // milliseconds between two looks
const kept = 300; // points of a chart

const limits = new Map(); // by name: {summary, points, card, chart}
let tick = 0;
let chosen = null; // the name of a limit
let shownKey = null; // what the explanation is of: {limit, key} or {limit, id}
let after = ""; // the page of "owes most"
let changes = false;
let wake = () => {}; // ends the pause before the next look

function make(tag, className, text) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

function number(n) {
  if (!Number.isFinite(n)) return "–";
  if (Math.abs(n) >= 100 || Number.isInteger(n)) return Math.round(n).toLocaleString("en");
  return n.toFixed(n < 10 ? 2 : 1);
}

const units = (n) => number(n) + (n === 1 ? " unit" : " units");

function time(s) {
  if (s < 0) return "never";
  if (s === 0) return "now";
  if (s < 1) return Math.max(1, Math.round(s * 1000)) + " ms";
  if (s < 120) return s.toFixed(s < 10 ? 1 : 0) + " s";
  if (s < 7200) return Math.round(s / 60) + " min";
  if (s < 172800) return Math.round(s / 3600) + " h";
  return Math.round(s / 86400) + " days";
}

const named = (k) => k.key || "#" + k.id.slice(0, 12);

class Fault extends Error {}

async function ask(path, body, headers = {}) {
  const options = { headers, cache: "no-store" };
  if (body) {
    options.method = "POST";
    options.body = JSON.stringify(body);
    headers["Content-Type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Fault("The server cannot be reached.");
  }
  const value = await answer.json().catch(() => ({ error: "The server answers " + answer.status + " and no JSON." }));
  if (!answer.ok) throw new Fault(value.error);
  return value;
}

// trouble shows an error of the last thing that was done, and "" that there was none.
function trouble(text) { if ($("trouble").textContent !== text) $("trouble").textContent = text; }

// Charts.

function color(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

// clock labels points in time by the time of day alone, as the chart has ten minutes.
function clock(u, all, axis, space, step) {
  const form = { hour: "2-digit", minute: "2-digit", second: step < 60 ? "2-digit" : undefined, hourCycle: "h23" };
  return all.map((v) => new Date(v * 1000).toLocaleTimeString("en", form));
}

// roundUp returns the end of an axis, such that it and its half are round.
function roundUp(v) {
  const power = 10 ** Math.floor(Math.log10(v));
  return power * [1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10].find((n) => n * power >= v);
}

function chartOf(card, keyless) {
  const box = card.querySelector(".chart");
  const options = {
    width: Math.max(box.clientWidth, 100), height: 120, padding: [6, 26, 6, 0], // right: half of the last label
    cursor: { show: false }, legend: { show: false },
    scales: { x: { range: (u, low, high) => u.data[0].length ? [Math.min(u.data[0][0], u.data[0].at(-1) - 60), u.data[0].at(-1)] : [low, high] }, y: { range: (u, low, high) => [0, keyless ? 1 : roundUp(Math.max(high, 1))] } },
    axes: [
      { stroke: () => color("--soft"), grid: { show: false }, ticks: { show: false }, size: 22, font: "11px system-ui", space: 70, values: clock },
      { stroke: () => color("--soft"), grid: { stroke: () => color("--line"), width: 1 }, ticks: { show: false }, size: 44, font: "11px system-ui",
        splits: (u, axis, low, high) => [low, high / 2, high],
        values: (u, all) => all.map((v) => keyless ? Math.round(v * 100) + "%" : v.toLocaleString("en", { notation: "compact" })) },
    ],
    series: keyless ? [{}, { stroke: () => color("--good"), fill: () => color("--wash"), width: 1.5, points: { show: false } }]
      : [{}, { stroke: () => color("--good"), fill: () => color("--wash"), width: 1.5, points: { show: false } },
        { stroke: () => color("--bad"), width: 1.5, points: { show: false } }],
  };
  const chart = new uPlot(options, keyless ? [[], []] : [[], [], []], box);
  new ResizeObserver(() => { if (box.clientWidth > 0) chart.setSize({ width: box.clientWidth, height: 120 }); }).observe(box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chart.redraw());
  return chart;
}

// Limits.

function addLimit(s) {
  const card = make("button", "card limit");
  card.type = "button";
  card.dataset.limit = s.name;
  card.append(make("b", "", s.name), make("span", "policy", s.words), make("span", "rates"), make("span", "health"), make("span", "chart"));
  card.setAttribute("aria-pressed", "false");
  card.addEventListener("click", () => choose(s.name));
  $("limits").append(card);
  const counted = s.figures.Admitted !== undefined;
  const l = { summary: s, points: [], card, chart: null, used: s.keyless && !counted };
  if (counted || s.keyless) l.chart = chartOf(card, l.used);
  limits.set(s.name, l);
  return l;
}

function drawLimit(l) {
  const s = l.summary, last = l.points.at(-1), rates = l.card.querySelector(".rates");
  l.card.querySelector(".policy").textContent = s.words;
  l.card.querySelector(".health").textContent = [s.health, s.trouble].filter(Boolean).join("\n");
  rates.textContent = "";
  if (last && !l.used && l.chart) {
    rates.append(make("span", "admitted", number(last.admitted) + " a second admitted"), make("span", "refused", number(last.refused) + " a second refused"));
  } else if (last && l.used) {
    rates.append(make("span", "", Math.round(last.used * 100) + "% used"));
  }
  if (s.figures.Keys !== undefined) rates.append(make("span", "soft", number(s.figures.Keys) + (s.figures.Keys === 1 ? " key" : " keys")));
  if (!l.chart) return;
  const at = l.points.map((p) => p.at / 1000);
  l.chart.setData(l.used ? [at, l.points.map((p) => p.used)] : [at, l.points.map((p) => p.admitted), l.points.map((p) => p.refused)]);
}

async function lookLimits() {
  const o = await ask("limits?since=" + tick);
  changes = o.changes;
  $("token-form").hidden = !changes;
  $("read-only").hidden = changes;
  const anew = o.tick < tick; // another process
  for (const s of o.limits) {
    const l = limits.get(s.name) ?? addLimit(s);
    l.summary = s;
    l.points = (anew || tick === 0 ? s.points : l.points.concat(s.points)).slice(-kept);
    drawLimit(l);
  }
  tick = o.tick;
  $("state").textContent = `${o.limits.length} ${o.limits.length === 1 ? "limit" : "limits"}, ${new Date(o.now).toLocaleTimeString()}` +
    (o.hashed ? ", keys shown as hashes" : "");
  if (chosen === null && o.limits.length > 0) {
    const wanted = decoded(location.hash.slice(1));
    choose(limits.has(wanted) ? wanted : o.limits[0].name);
  }
}

// decoded returns the text of an address's part, and "" if it is not one.
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return "";
  }
}

function choose(name) {
  if (chosen !== name) {
    chosen = name;
    after = "";
    closeKey();
    $("owed").textContent = $("refused").textContent = $("warned").textContent = "";
    $("warnings").hidden = true;
    $("refused-note").textContent = "";
  }
  for (const [other, l] of limits) l.card.setAttribute("aria-pressed", String(other === name));
  const s = limits.get(name).summary;
  $("chosen").hidden = false;
  $("chosen-name").textContent = s.name;
  $("chosen-policy").textContent = s.words;
  drawUse(s);
  $("lists").hidden = !s.lists;
  $("search").hidden = s.keyless;
  if (location.hash.slice(1) !== encodeURIComponent(name)) history.replaceState(null, "", "#" + encodeURIComponent(name));
  if (s.keyless) openKey({ limit: name });
  wake();
}

// drawUse shows how many keys have used how much, and what candidates would have said.
function drawUse(s) {
  const use = s.use, box = $("use");
  box.hidden = !use;
  if (use) {
    const parts = [["unused", use.unused, "nothing"], ["below", use.belowHalf, "less than half"], ["half", use.half, "half or more"],
      ["most", use.most, "80% or more"], ["all", use.all, "all"]].filter(([, n]) => n > 0);
    box.querySelector(".stack").replaceChildren(...parts.map(([name, n]) => {
      const part = make("i", name);
      part.style.flexGrow = n;
      return part;
    }));
    const words = "Keys by use of their limit: " + (parts.map(([, n, what]) => `${what} (${number(n)})`).join(", ") || "none") + `. Counted ${time(use.age)} ago.`;
    box.querySelector(".stack").setAttribute("aria-label", words);
    box.querySelector("p").textContent = words.replace(" now ago", " just now");
  }
  $("trials").replaceChildren(...(s.trials ?? []).map((t) => make("p", "trial",
    `On trial: ${t.policy}. Of the calls on it, it would refuse ${number(t.wouldRefuse)} that were admitted, and admit ${number(t.wouldAdmit)} that were refused; ` +
    `both admitted ${number(t.admitted)} and refused ${number(t.refused)}.` + (t.failed ? ` It failed on ${number(t.failed)}.` : ""))));
}

// Lists.

function bar(share) {
  const b = make("div", "bar" + (share >= 1 ? " all" : share >= .8 ? " some" : ""));
  const fill = make("i");
  fill.style.width = 100 * Math.max(0, Math.min(1, share)) + "%";
  b.append(fill);
  return b;
}

function keyCell(row, k) {
  const link = make("button", "link", named(k));
  link.type = "button";
  link.addEventListener("click", () => openKey({ limit: chosen, id: k.id }));
  row.insertCell().append(link);
}

function cell(row, text, className) {
  const c = row.insertCell();
  c.textContent = text;
  if (className) c.className = className;
  return c;
}

// fill replaces the rows of a table, unless one of its keys has the focus.
function fill(body, list, draw, none) {
  const focused = body.contains(document.activeElement) ? [...body.rows].findIndex((r) => r.contains(document.activeElement)) : -1;
  const id = focused >= 0 ? body.rows[focused].dataset.id : "";
  const rows = list.rows.map((k) => {
    const row = make("tr");
    row.dataset.id = k.id;
    keyCell(row, k);
    draw(row, k);
    return row;
  });
  if (rows.length === 0) {
    const row = make("tr");
    row.insertCell().textContent = none;
    row.cells[0].colSpan = 5;
    rows.push(row);
  }
  body.replaceChildren(...rows);
  if (id) rows.find((r) => r.dataset.id === id)?.querySelector("button")?.focus();
}

async function lookLists() {
  const name = chosen, page = after;
  if (name === null || !limits.get(name).summary.lists) return;
  const q = "keys?limit=" + encodeURIComponent(name);
  const all = await Promise.allSettled([ask(q + "&by=owed&after=" + encodeURIComponent(page)), ask(q + "&by=refused"), ask(q + "&by=warned")]);
  if (name !== chosen || page !== after) return;
  const [owed, refused, warned] = all.map((b) => b.value);
  if (owed?.pending) $("owed-note").textContent = "The keys are being gone through.";
  else if (owed) drawOwed(owed, page);
  if (refused) drawRefused(refused);
  if (warned) drawWarned(warned);
  const failed = all.find((b) => b.status === "rejected");
  if (failed) throw failed.reason;
}

function drawOwed(owed, page) {
  fill($("owed"), owed, (row, k) => {
    cell(row, Math.round(100 * k.share) + "%", "number");
    cell(row, "", "share").append(bar(k.share));
    cell(row, k.returns < 0 ? "never" : time(k.returns), "number");
    cell(row, time(k.full), "number");
  }, page === "" ? "No key owes anything." : "No more keys.");
  $("owed-title").textContent = "Owes most" + (owed.total ? `, of ${number(owed.total)} ${owed.total === 1 ? "key that owes" : "keys that owe"}` : "");
  $("owed-note").textContent = owed.age >= 1 ? `As of ${time(owed.age)} ago.` : "";
  $("owed-more").hidden = !owed.next;
  $("owed-more").dataset.after = owed.next ?? "";
  $("owed-first").hidden = page === "";
}

function drawRefused(refused) {
  fill($("refused"), refused, (row, k) => {
    cell(row, number(k.refused), "number");
    cell(row, k.least === k.most ? "exact" : `${number(k.least)} and ${number(k.most)}`, "number");
    cell(row, k.blocked ? "for " + time(k.blocked) : "");
  }, "No key was refused.");
  $("refused-note").textContent = !refused.total ? "" : `${number(refused.total)} ${refused.total === 1 ? "refusal" : "refusals"} in the last ${time(refused.for ?? 0)}; a key that is not listed had ${number(refused.othersMost ?? 0)} at most.`;
}

function drawWarned(warned) {
  $("warnings").hidden = !warned.total;
  fill($("warned"), warned, (row, k) => {
    cell(row, Math.round(100 * k.share) + "%", "number");
    cell(row, number(k.remaining), "number");
    cell(row, time(k.last ?? 0), "number");
  }, "");
  $("warned-note").textContent = `${number(warned.total)} ${warned.total === 1 ? "warning" : "warnings"} in all.`;
}

// A key.

function openKey(request) {
  shownKey = request;
  said("");
  lookKey().then(() => { trouble(""); $("key").scrollIntoView({ block: "nearest" }); }, (e) => { closeKey(); trouble(e.message); });
}

function closeKey() {
  shownKey = null;
  $("key").hidden = true;
}

async function lookKey() {
  const request = shownKey;
  if (request === null) return;
  const x = await ask("key", request);
  if (request === shownKey) drawKey(x);
}

function drawKey(x) {
  const s = limits.get(x.limit).summary;
  $("key").hidden = false;
  $("key").dataset.id = x.id;
  $("key-name").textContent = s.keyless ? "Now" : named(x);
  $("key-close").hidden = s.keyless;
  const verdict = x.note ? "not known" : x.blocked ? "blocked for " + time(x.blocked) : x.allowed ? (x.wait ? "admitted after " + time(x.wait) : "admitted") : x.retry < 0 ? "refused" : "refused for " + time(x.retry);
  $("key-verdict").textContent = verdict;
  $("key-verdict").className = "badge " + (x.allowed && !x.blocked ? "yes" : "no");
  $("key-words").textContent = x.words;
  $("key-parts").replaceChildren(...x.parts.map((p, i) => {
    const part = make("div", "part");
    const which = x.parts.length > 1 && i === x.binding ? " (this one decides)" : "";
    const used = p.units > 0 ? `${number(p.used)} of ${number(p.units)} used` : "how much is used is not known";
    part.append(make("p", "", `${p.policy}: ${used}${which}`), bar(p.units > 0 ? p.used / p.units : 0));
    if (p.returns.length > 0) part.append(returnsOf(p.returns));
    return part;
  }), ...(x.candidates ?? []).map((c) => make("p", "part", `On trial: ${c.parts.map((p) => p.policy).join(", ")} would ${c.allowed ? "admit" : "refuse"} a call now.`)));
  $("reset-note").textContent = "forgets what it has used" + (s.verbs.includes("lift") ? ", and lifts a block" : "");
  $("changes").hidden = !changes;
  for (const verb of ["charge", "block", "lift", "reset"]) $(verb).hidden = !s.verbs.includes(verb) || verb === "lift" && !x.blocked;
}

// returnsOf shows when units return: the next ones, and when all have.
function returnsOf(all) {
  const rows = all.length <= 6 ? all : [...all.slice(0, 5), all.at(-1)];
  const list = make("ul", "returns");
  list.append(...rows.map((r) => {
    const row = make("li");
    row.append(make("span", "soft", "in " + time(r.after)), make("span", "", units(r.remaining) + " left"));
    return row;
  }));
  return list;
}

// said shows beside the buttons how a change has ended.
function said(text, failed = false) {
  $("changed").textContent = text;
  $("changed").className = failed ? "trouble" : "soft";
}

async function change(what, done) {
  if (shownKey === null) return;
  const request = shownKey;
  try {
    const token = $("token").value;
    if (!token) { $("token").focus(); throw new Fault("A change needs a token: enter it above."); }
    const x = await ask("change", { ...request, ...what }, { Authorization: "Bearer " + token });
    if (request === shownKey) drawKey(x);
    said(done + " at " + new Date().toLocaleTimeString() + ".");
    wake();
  } catch (e) {
    said(e.message, true);
  }
}

function onSubmit(id, f) {
  $(id).addEventListener("submit", (event) => { event.preventDefault(); f(); });
}

onSubmit("token-form", () => {});
onSubmit("search", () => openKey({ limit: chosen, key: $("search-key").value }));
onSubmit("charge", () => change({ do: "charge", units: Number($("units").value) }, Number($("units").value) < 0 ? "Gave back " + units(-Number($("units").value)) : "Charged " + units(Number($("units").value))));
onSubmit("block", () => change({ do: "block", for: $("block-for").value.trim() }, "Blocked for " + $("block-for").value.trim()));
onSubmit("lift", () => change({ do: "lift" }, "Lifted the block"));
onSubmit("reset", () => change({ do: "reset" }, "Reset"));
$("key-close").addEventListener("click", closeKey);
$("owed-more").addEventListener("click", () => { after = $("owed-more").dataset.after; wake(); });
$("owed-first").addEventListener("click", () => { after = ""; wake(); });

function drawFigures() {
  if (chosen === null) return;
  drawUse(limits.get(chosen).summary);
  const rows = Object.entries(limits.get(chosen).summary.figures).filter(([, v]) => v !== "").map(([name, v]) => {
    const row = make("div");
    row.append(make("dt", "", name), make("dd", "", typeof v === "number" ? number(v) : String(v)));
    return row;
  });
  $("figures").replaceChildren(...rows);
}

// One look after the other, and none while the page is hidden.
async function watch() {
  let failed = false;
  for (;;) {
    if (!document.hidden) {
      try {
        await lookLimits();
        drawFigures();
        await Promise.all([lookLists(), lookKey()]);
        if (failed) trouble("");
        failed = false;
        document.documentElement.dataset.drawn = "yes";
      } catch (e) {
        trouble(e.message);
        failed = true;
      }
    }
    await new Promise((done) => { wake = done; setTimeout(done, every); });
  }
}
document.addEventListener("visibilitychange", () => wake());
watch();
