"use strict";
// The page shows what the JSON beside it says. Keys and names come from clients: they are
// only ever set as textContent.
const $ = (id) => document.getElementById(id);
const every = 2000; // milliseconds between two looks
const kept = 300; // points of a chart of ten minutes
const busy = 30; // points during which a limit that refused is shown large
const narrow = matchMedia("(max-width: 560px)");
const fewRows = () => !narrow.matches ? 10 : $("status").classList.contains("wrong") ? 3 : 4;
const allRows = 100;

const limits = new Map(); // by name: {summary, points, day, card, chart, used}
let tick = 0;
let chosen = null; // the name of a limit
let shownKey = null; // what the explanation is of: {limit, key} or {limit, id}
let after = ""; // the page of "used most"
let allRefused = false; // more keys of "refused most" are shown
let span = "minutes"; // of the chosen limit's chart: "minutes" or "day"
let changes = false; // a token permits changes
let operator = ""; // whose token was entered, "" if none is right
let wake = () => {}; // ends the pause before the next look

function make(tag, className, text) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

// write sets a text if it differs, so that a selection and a reader of screens are left alone.
function write(e, text) { if (e.textContent !== text) e.textContent = text; }

// keepChildren adds and removes children of an element until it has n, and returns them.
function keepChildren(e, n, add) {
  while (e.children.length > n) e.lastChild.remove();
  while (e.children.length < n) e.append(add());
  return [...e.children];
}

// Numbers and times, rounded for people.

function number(n) {
  if (!Number.isFinite(n)) return "–";
  return (Math.abs(n) >= 10 ? Math.round(n) : Math.round(10 * n) / 10).toLocaleString("en");
}

const many = (n, what) => number(n) + " " + what + (n === 1 ? "" : "s");

function time(s) {
  if (s < 0) return "never";
  if (s === 0) return "now";
  if (s < 1) return "under 1 s";
  if (s < 120) return Math.round(s) + " s";
  if (s < 7200) return Math.round(s / 60) + " min";
  if (s < 172800) return Math.round(s / 3600) + " h";
  return Math.round(s / 86400) + " days";
}

const inFlight = (p) => p.policy.startsWith("in flight"); // a limit of calls at once: units return at the latest at a time
const named = (k) => k.key || "#" + k.id.slice(0, 12);

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
    throw new Error("The server cannot be reached.");
  }
  const value = await answer.json().catch(() => ({ error: "The server answers " + answer.status + " and no JSON." }));
  if (!answer.ok) throw new Error(value.error);
  return value;
}

// trouble shows why the page is not up to date, and "" that it is.
function trouble(text) {
  write($("trouble"), text && text + " The page is not up to date.");
  document.body.classList.toggle("stale", text !== "");
}

// Charts.

function color(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

const steps = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200]; // seconds

// marks returns the round times between two times that have a label: one to four of them.
function marks(from, to) {
  const step = steps.find((s) => (to - from) / s <= 4) ?? steps.at(-1);
  const zone = new Date(to * 1000).getTimezoneOffset() * 60;
  const all = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to; at += step) all.push(at);
  return all.length > 0 ? all : [to];
}

// clock labels times by the time of day alone, as a chart has a day at most.
function clock(u, all) {
  const form = { hour: "2-digit", minute: "2-digit", second: all.some((v) => v % 60) ? "2-digit" : undefined, hourCycle: "h23" };
  return all.map((v) => new Date(v * 1000).toLocaleTimeString("en", form));
}

// roundUp returns the end of an axis, such that it and its half are round.
function roundUp(v) {
  const power = 10 ** Math.floor(Math.log10(v));
  return power * [1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10].find((n) => n * power >= v);
}

// chartOf makes a chart of the load or, if used, of the used share of a limit without keys.
function chartOf(box, used) {
  const line = (name, fill) => ({ stroke: () => color(name), fill: fill && (() => color(fill)), width: 1.5, points: { show: false } });
  const options = {
    width: Math.max(box.clientWidth, 100), height: 120, padding: [6, 26, 6, 0], // right: half of the last label
    cursor: { show: false }, legend: { show: false },
    scales: { x: { range: (u, low, high) => u.data[0].length ? [Math.min(u.data[0][0], u.data[0].at(-1) - 60), u.data[0].at(-1)] : [low, high] }, y: { range: (u, low, high) => [0, used ? 1 : roundUp(Math.max(high, 1))] } },
    axes: [
      { stroke: () => color("--soft"), grid: { show: false }, ticks: { show: false }, size: 22, font: "11px system-ui", splits: (u, axis, low, high) => marks(low, high), values: clock },
      { stroke: () => color("--soft"), grid: { stroke: () => color("--line"), width: 1 }, ticks: { show: false }, size: 44, font: "11px system-ui",
        splits: (u, axis, low, high) => [low, high / 2, high],
        values: (u, all) => all.map((v) => used ? Math.round(v * 100) + "%" : v.toLocaleString("en", { notation: "compact" })) },
    ],
    series: used ? [{}, line("--good", "--wash")] : [{}, line("--good", "--wash"), line("--low")],
  };
  const chart = new uPlot(options, used ? [[], []] : [[], [], []], box);
  new ResizeObserver(() => { if (box.clientWidth > 0) chart.setSize({ width: box.clientWidth, height: 120 }); }).observe(box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chart.redraw());
  return chart;
}

function plot(chart, points, used) {
  const at = points.map((p) => p.at / 1000);
  chart.setData(used ? [at, points.map((p) => p.used)] : [at, points.map((p) => p.admitted), points.map((p) => p.refused)]);
}

// drawLoad shows the chosen limit's chart, over the last minutes or the last day.
function drawLoad(l) {
  const box = $("load").querySelector(".chart");
  $("load").hidden = !l.charted;
  if (!l.charted) return;
  if (drawLoad.of !== l) {
    box.replaceChildren();
    drawLoad.chart = chartOf(box, l.used);
    drawLoad.of = l;
  }
  const day = l.day ?? [];
  plot(drawLoad.chart, span === "day" ? day.concat(l.points.filter((p) => day.length === 0 || p.at > day.at(-1).at)) : l.points, l.used);
  write($("load-words"), rates(l).join(", "));
  for (const name of ["minutes", "day"]) $("span-" + name).setAttribute("aria-pressed", String(span === name));
}

async function lookDay() {
  const l = limits.get(chosen);
  if (span !== "day" || !l || l.dayAt > performance.now() - 60000) return;
  l.dayAt = performance.now();
  l.day = (await ask("history?limit=" + encodeURIComponent(chosen))).points;
  if (chosen === l.summary.name) drawLoad(l);
}

function show(which) { span = which; wake(); }

// Limits.

function addLimit(s) {
  const card = make("button", "card limit");
  card.type = "button";
  card.dataset.limit = s.name;
  card.append(make("b", "", s.name), make("span", "policy"), make("span", "rates"), make("span", "chart"));
  card.addEventListener("click", () => {
    choose(s.name);
    if ($("lists").getBoundingClientRect().top > innerHeight - 200) $("chosen").scrollIntoView();
  });
  const counted = s.figures.Admitted !== undefined;
  const l = { summary: s, points: [], card, chart: null, used: s.keyless && !counted, charted: counted || s.keyless };
  limits.set(s.name, l);
  return l;
}

// refusing returns a limit's refusals a second now, and whether it refused any of late.
function refusing(l) {
  return { now: l.used ? 0 : l.points.at(-1)?.refused ?? 0, late: !l.used && l.points.slice(-busy).some((p) => p.refused > 0) };
}

// rates returns a limit's load in words.
function rates(l) {
  const last = l.points.at(-1), words = [];
  if (last && l.used) words.push(Math.round(last.used * 100) + "% used");
  else if (last && l.charted) words.push(number(last.admitted) + " a second admitted", number(last.refused) + " refused");
  if (l.summary.figures.Waiting > 0) words.push(many(l.summary.figures.Waiting, "waiting call") + (l.summary.figures.LongestWait > 0 ? ", the longest for " + time(l.summary.figures.LongestWait) : ""));
  if (l.summary.figures.Keys !== undefined) words.push(many(l.summary.figures.Keys, "key"));
  return words;
}

// drawLimit shows a limit as a card if it is large, otherwise in a line.
function drawLimit(l, large) {
  const s = l.summary, [, policy, words, chart] = l.card.children;
  l.card.classList.toggle("line", !large);
  l.card.classList.toggle("wrong", Boolean(s.alarms));
  write(policy, s.words);
  const all = rates(l);
  keepChildren(words, large ? all.length : Math.min(1, all.length), () => make("span")).forEach((e, i) => {
    write(e, large ? all[i] : all[i].replace(" admitted", ""));
    e.className = all[i].endsWith(" refused") && refusing(l).now > 0 ? "refused" : all[i].endsWith(" admitted") && large ? "admitted" : "soft";
  });
  l.card.title = s.words;
  if (!large || !l.charted || narrow.matches) return;
  l.chart ??= chartOf(chart, l.used);
  plot(l.chart, l.points, l.used);
}

// place puts limits that need a look before those that refuse, and these before the others.
function place() {
  const rank = (l) => l.summary.alarms ? 0 : refusing(l).late ? 1 : 2;
  const all = [...limits.values()].sort((a, b) => rank(a) - rank(b)); // others stay in their order
  const large = all.filter((l) => rank(l) < 2), small = all.filter((l) => rank(l) === 2);
  for (const [box, some] of [[$("limits"), large], [$("quiet"), small]]) {
    const cards = some.map((l) => l.card);
    if (cards.length === box.children.length && cards.every((c, i) => c === box.children[i])) continue;
    const focused = document.activeElement;
    box.replaceChildren(...cards);
    if (cards.includes(focused)) focused.focus({ preventScroll: true });
  }
  large.forEach((l) => drawLimit(l, true));
  small.forEach((l) => drawLimit(l, false));
  return all;
}

// drawStatus says in a line whether anything is wrong, and then where. health is of the configuration.
function drawStatus(all, health) {
  const wrong = (health ? [{ words: health }] : [])
    .concat(all.flatMap((l) => (l.summary.alarms ?? []).map((a) => ({ limit: l.summary.name, ...a }))));
  const late = all.filter((l) => refusing(l).late).map((l) => l.summary.name);
  const young = all.some((l) => l.charted && !l.used && l.summary.usual < 0);
  $("status").hidden = false;
  $("status").className = ["fine", "wrong one"][wrong.length] ?? "wrong";
  document.title = (wrong.length > 0 ? "(" + wrong.length + ") " : "") + "Ral: limits";
  write($("verdict"), wrong.length > 0 ? (wrong.length === 1 ? "Something is wrong:" : wrong.length + " things are wrong:")
    : "Nothing is wrong. " + (late.length === 0 ? "No call was refused in the last minute." : "Calls are refused by " + late.join(", ") + (young ? ". What is usual is known after ten minutes." : ", as is usual.")));
  const item = () => {
    const e = make("li");
    const [where, key] = [make("button", "link"), make("button", "link")];
    where.type = key.type = "button";
    e.append(where, make("span"), make("span", "most", " Most often: "), key);
    return e;
  };
  keepChildren($("alarms"), wrong.length, item).forEach((e, i) => {
    const a = wrong[i], [where, words, most, key] = e.children;
    write(where, a.limit ?? "");
    write(words, (a.limit ? ": " : "Configuration: ") + a.words + ".");
    where.onclick = () => { choose(a.limit); $("chosen").scrollIntoView(); };
    most.hidden = key.hidden = !a.id;
    if (!a.id) return;
    write(key, named(a));
    key.title = named(a);
    key.onclick = () => { choose(a.limit); openKey({ limit: a.limit, id: a.id }); };
  });
}

async function lookLimits() {
  const o = await ask("limits?since=" + tick);
  changes = o.changes;
  const anew = o.tick < tick; // another process
  for (const s of o.limits) {
    const l = limits.get(s.name) ?? addLimit(s);
    l.summary = s;
    l.points = (anew || tick === 0 ? s.points : l.points.concat(s.points)).slice(-kept);
  }
  tick = o.tick;
  const all = place();
  drawStatus(all, o.health);
  write($("state"), `${many(o.limits.length, "limit")} at ${new Date(o.now).toLocaleTimeString([], { hourCycle: "h23" })}` +
    (o.hashed ? ", keys shown as hashes" : ""));
  if (chosen === null && all.length > 0) {
    const wanted = decoded(location.hash.slice(1));
    choose(limits.has(wanted) ? wanted : all[0].summary.name);
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
    allRefused = false;
    closeKey();
    write($("search-trouble"), "");
    for (const id of ["owed", "refused", "warned", "refused-note", "owed-note"]) $(id).textContent = "";
    $("warnings").hidden = $("refused-more").hidden = true;
  }
  for (const [other, l] of limits) l.card.setAttribute("aria-pressed", String(other === name));
  const l = limits.get(name), s = l.summary;
  $("chosen").hidden = false;
  write($("chosen-name"), s.name);
  write($("chosen-policy"), s.words);
  $("lists").hidden = !s.lists;
  $("no-lists").hidden = s.lists || s.keyless;
  $("search").hidden = s.keyless;
  drawLoad(l);
  drawFigures();
  if (location.hash.slice(1) !== encodeURIComponent(name)) history.replaceState(null, "", "#" + encodeURIComponent(name));
  if (s.keyless) openKey({ limit: name });
  wake();
}

// drawUse shows how many keys or which tenants have used how much, and what candidates would have said.
function drawUse(s) {
  const use = s.use, box = $("use");
  box.hidden = !use && !s.tenants;
  if (!box.hidden) {
    // A tenant is as wide as its guarantee. Its color says whether it was refused, has borrowed, or keeps to its guarantee.
    const parts = s.tenants?.map((t) => [t.refused ? "all" : t.borrowed ? "most" : t.used ? "half" : "unused", Math.max(t.guarantee, 1),
      `${named(t)} (${t.guarantee ? `${number(t.used)} of ${number(t.guarantee)} used` : "no guarantee"}, ${number(t.borrowed)} borrowed, ${number(t.refused)} refused)`]) ??
      [["unused", use.unused, "nothing"], ["below", use.belowHalf, "less than half"], ["half", use.half, "half or more"],
        ["most", use.most, "80% or more"], ["all", use.all, "all"]].filter(([, n]) => n > 0).map(([name, n, what]) => [name, n, `${what} (${number(n)})`]);
    box.querySelector(".stack").replaceChildren(...parts.map(([name, n, words]) => {
      const part = make("i", name);
      part.style.flexGrow = n;
      part.title = words;
      return part;
    }));
    const words = (s.tenants ? "Tenants by refused and borrowed calls in the last minutes: " : "Keys by what they have used of their limit: ") +
      (parts.slice(0, 6).map(([, , what]) => what).join(", ") || "none") + (parts.length > 6 ? ` and ${number(parts.length - 6)} more` : "") + "." + (use?.unitsInUse ? ` ${many(use.unitsInUse, "unit")} in use.` : "") +
      (use?.age >= 10 ? ` Counted ${time(use.age)} ago.` : "");
    box.querySelector(".stack").setAttribute("aria-label", words);
    write(box.querySelector("p"), words);
  }
  $("trials").replaceChildren(...(s.trials ?? []).map((t) => make("p", "trial",
    `On trial: ${t.policy}. Of the calls on it, it would refuse ${number(t.wouldRefuse)} that were admitted, and admit ${number(t.wouldAdmit)} that were refused; ` +
    `both admitted ${number(t.admitted)} and refused ${number(t.refused)}.` + (t.failed ? ` It failed on ${number(t.failed)}.` : ""))));
}

// Lists.

function bar(share) {
  const b = make("div", "bar" + (share >= .8 ? " some" : ""));
  const fill = make("i");
  fill.style.width = 100 * Math.max(0, Math.min(1, share)) + "%";
  b.append(fill);
  return b;
}

function keyCell(row, k) {
  const link = make("button", "link", named(k));
  link.type = "button";
  link.title = named(k);
  link.addEventListener("click", () => openKey({ limit: chosen, id: k.id }));
  row.insertCell().append(link);
}

function cell(row, text, className) {
  const c = row.insertCell();
  c.textContent = text;
  if (className) c.className = className;
  return c;
}

// refusedCell shows a key's refusals a second. The bounds of an estimate are shown on hovering.
function refusedCell(row, k, seconds) {
  const rate = (n) => n > 0 && n < .05 * seconds ? "under 0.1" : number(n / Math.max(seconds, 1));
  const c = cell(row, (k.least === k.most ? "" : "~") + rate(k.refused ?? 0), "number" + (k.refused ? " refused" : ""));
  if (k.refused) c.title = k.least === k.most ? `${number(k.refused)} in the last ${time(seconds)}` : `between ${rate(k.least)} and ${rate(k.most)} a second`;
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
  const q = "keys?limit=" + encodeURIComponent(name), n = "&n=" + fewRows();
  const all = await Promise.allSettled([ask(q + n + "&by=owed&after=" + encodeURIComponent(page)),
    ask(q + "&by=refused&n=" + (allRefused ? allRows : fewRows() + 1)), ask(q + n + "&by=warned")]);
  if (name !== chosen || page !== after) return;
  const [owed, refused, warned] = all.map((b) => b.value);
  if (owed?.pending) write($("owed-note"), "The keys are being gone through.");
  else if (owed) drawOwed(owed, page);
  if (refused) drawRefused(refused);
  if (warned) drawWarned(warned);
  const failed = all.find((b) => b.status === "rejected");
  if (failed) throw failed.reason;
}

function drawOwed(owed, page) {
  fill($("owed"), owed, (row, k) => {
    const used = cell(row, "", "used");
    used.append(bar(k.share), make("span", "", Math.round(100 * k.share) + "%"));
    refusedCell(row, k, owed.for);
    cell(row, time(k.returns), "number wide");
    cell(row, time(k.full), "number").title = "the next unit in " + time(k.returns);
  }, page === "" ? "No key has used anything." : "No more keys.");
  write($("owed-title"), "Used most" + (owed.total ? `, of ${many(owed.total, "key")} in use` : ""));
  write($("owed-note"), (inFlight(limits.get(chosen).summary) ? "A release frees units sooner. " : "") + (owed.age >= 10 ? `As of ${time(owed.age)} ago.` : ""));
  $("owed-more").hidden = !owed.next;
  $("owed-more").dataset.after = owed.next ?? "";
  $("owed-first").hidden = page === "";
}

function drawRefused(refused) {
  $("refused-more").hidden = allRefused || refused.rows.length <= fewRows();
  if (!allRefused) refused.rows.length = Math.min(refused.rows.length, fewRows());
  fill($("refused"), refused, (row, k) => {
    refusedCell(row, k, refused.for);
    cell(row, k.blocked ? time(k.blocked) : "", "number");
  }, "No key was refused.");
  write($("refused-note"), !refused.total ? "" : `On average over the last ${time(refused.for)}, with ${many(refused.total, "refusal")}. ${refused.othersMost ? `Any other key was refused at most ${many(refused.othersMost, "time")}` : "No other key was refused"}.`);
}

function drawWarned(warned) {
  $("warnings").hidden = !warned.total;
  fill($("warned"), warned, (row, k) => {
    cell(row, Math.round(100 * k.share) + "%", "number");
    cell(row, number(k.remaining), "number");
    cell(row, time(k.last ?? 0), "number");
  }, "");
  write($("warned-note"), `${many(warned.total, "warning")} in all.`);
}

// A key.

function openKey(request) {
  shownKey = request;
  said("");
  lookKey().then(() => { write($("search-trouble"), ""); $("key").scrollIntoView({ block: "nearest" }); },
    (e) => { closeKey(); write($("search-trouble"), e.message); });
}

function closeKey() { shownKey = null; $("key").hidden = true; }

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
  write($("key-name"), s.keyless ? "Now" : named(x));
  $("key-name").title = named(x);
  $("key-close").hidden = s.keyless;
  const when = time(x.blocked || (x.allowed ? x.wait ?? 0 : x.retry)), most = x.parts.some(inFlight) ? "at most " : "";
  write($("key-verdict"), x.note ? "not known" : x.blocked ? "blocked for " + when : x.allowed ? (x.wait ? "admitted after " + when : "admitted") : x.retry <= 0 ? "refused" : "refused for " + most + when);
  $("key-verdict").className = "badge " + (x.allowed && !x.blocked ? "yes" : "no");
  write($("key-words"), x.words);
  $("key-parts").replaceChildren(...x.parts.map((p, i) => {
    const part = make("div", "part");
    const which = x.parts.length > 1 && i === x.binding ? " (this one decides)" : "";
    part.append(make("p", "", p.policy + which), bar(p.units > 0 ? p.used / p.units : 0));
    if (p.returns.length > 0) part.append(returnsOf(p.returns, when, inFlight(p) ? "in at most " : "in "));
    return part;
  }), ...(x.candidates ?? []).map((c) => make("p", "part", `On trial: ${c.parts.map((p) => p.policy).join(", ")} would ${c.allowed ? "admit" : "refuse"} a call now.`)));
  write($("reset-note"), "forgets what it has used" + (s.verbs.includes("lift") ? ", and lifts a block" : ""));
  $("changes").hidden = !changes;
  $("read-only").hidden = changes;
  for (const verb of ["charge", "block", "lift", "reset"]) $(verb).hidden = !s.verbs.includes(verb) || verb === "lift" && !x.blocked;
  drawToken();
}

// returnsOf shows when units return: the next ones, and when all have. A time has one row, which says
// "then" if the verdict has the time.
function returnsOf(all, verdict, before) {
  const times = [...new Map(all.map((r) => [time(r.after), r.remaining]))];
  const list = make("ul", "returns");
  list.append(...(times.length <= 6 ? times : [...times.slice(0, 5), times.at(-1)]).map(([when, remaining]) => {
    const row = make("li");
    row.append(make("span", "soft", when === verdict ? "then" : before + when), make("span", "", many(remaining, "unit") + " left"));
    return row;
  }));
  return list;
}

// Changes.

// drawToken lets the buttons be used once the token is right.
function drawToken() {
  for (const b of $("changes").querySelectorAll("button")) {
    b.disabled = operator === "";
    b.title = operator === "" ? "needs a token" : "";
  }
  if (operator !== "") write($("token-note"), "Changes are logged as by " + operator + ".");
  else if (!$("token").value) write($("token-note"), "The buttons need a token.");
}

const authorization = () => ({ Authorization: "Bearer " + $("token").value });
// checkToken asks whose token was entered.
async function checkToken() {
  const entered = $("token").value;
  operator = "";
  try {
    if (entered) {
      const found = await ask("token", {}, authorization());
      if (entered === $("token").value) operator = found.operator;
    }
  } catch (e) {
    if (entered === $("token").value) write($("token-note"), e.message + ".");
  }
  drawToken();
}

// said shows beside the buttons how a change has ended.
function said(text, failed = false) {
  write($("changed"), text);
  $("changed").className = failed ? "trouble" : "soft";
}

async function change(what, done) {
  if (shownKey === null) return;
  const request = shownKey;
  try {
    const x = await ask("change", { ...request, ...what }, authorization());
    if (request === shownKey) drawKey(x);
    said(done + " at " + new Date().toLocaleTimeString([], { hourCycle: "h23" }) + ".");
    wake();
  } catch (e) {
    said(e.message, true);
  }
}

function onSubmit(id, f) {
  $(id).addEventListener("submit", (event) => { event.preventDefault(); f(); });
}

onSubmit("token-form", checkToken);
$("token").addEventListener("change", checkToken);
$("token").addEventListener("input", () => { operator = ""; drawToken(); });
onSubmit("search", () => openKey({ limit: chosen, key: $("search-key").value }));
onSubmit("charge", () => change({ do: "charge", units: Number($("units").value) }, Number($("units").value) < 0 ? "Gave back " + many(-Number($("units").value), "unit") : "Charged " + many(Number($("units").value), "unit")));
onSubmit("block", () => change({ do: "block", for: $("block-for").value.trim() }, "Blocked for " + $("block-for").value.trim()));
onSubmit("lift", () => change({ do: "lift" }, "Lifted the block"));
onSubmit("reset", () => change({ do: "reset" }, "Reset"));
$("key-close").addEventListener("click", closeKey);
$("refused-more").addEventListener("click", () => { allRefused = true; wake(); });
$("owed-more").addEventListener("click", () => { after = $("owed-more").dataset.after; wake(); });
$("owed-first").addEventListener("click", () => { after = ""; wake(); });
$("span-minutes").addEventListener("click", () => show("minutes"));
$("span-day").addEventListener("click", () => show("day"));

function drawFigures() {
  if (chosen === null) return;
  const l = limits.get(chosen);
  drawLoad(l);
  drawUse(l.summary);
  const rows = Object.entries(l.summary.figures).filter(([, v]) => v !== "").map(([name, v]) => {
    const row = make("div");
    row.append(make("dt", "", name), make("dd", "", typeof v === "number" ? number(v) : String(v)));
    return row;
  });
  $("figures").replaceChildren(...rows);
}

// One look after the other, and none while the page is hidden.
async function watch() {
  for (;;) {
    if (!document.hidden) {
      try {
        await lookLimits();
        drawFigures();
        await Promise.all([lookLists(), lookKey(), lookDay()]);
        trouble("");
        document.documentElement.dataset.drawn = "yes";
      } catch (e) {
        trouble(e.message);
      }
    }
    await new Promise((done) => { wake = done; setTimeout(done, every); });
  }
}
document.addEventListener("visibilitychange", () => wake());
watch();
