// Draws the charts of the page with Observable Plot. charts.go decides their content,
// this file only their look.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const contenders = new Map(data.contenders.map((c) => [c.name, c]));

  // Contenders differ by symbol and dashes as well as by colour: Ral's are full and
  // heavy, its peers light, the yardsticks dashed lines everywhere. With five symbols and
  // six colours, thirty peers differ.
  const symbols = { ral: ["circle", "diamond"], peer: ["square", "triangle", "cross", "star", "wye"], floor: ["times", "plus"] };
  const dashes = ["none", "7 3", "2 3", "9 3 2 3", "4 4", "12 3"];
  const look = (name) => {
    const c = contenders.get(name) || { kind: "peer", index: 0 };
    const at = (list) => list[c.index % list.length];
    return {
      kind: c.kind,
      color: c.kind === "floor" ? "var(--floor)" : `var(--${c.kind}${c.index % (c.kind === "ral" ? 2 : 6)})`,
      symbol: at(symbols[c.kind]),
      dash: { ral: "none", peer: at(dashes.slice(1).concat("none")), floor: at(["2 4", "6 3"]) }[c.kind],
      width: c.kind === "ral" ? 2.75 : 1.5,
    };
  };

  // Numbers as the tables have them, but shorter.
  const trim = (x) => String(Number(x.toPrecision(3)));
  const scaled = (steps) => (x) => {
    const [size, name] = steps.find(([size]) => Math.abs(x) >= size) || steps[steps.length - 1];
    return trim(x / size) + name;
  };
  const formats = {
    rate: scaled([[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]]),
    time: scaled([[1e9, " s"], [1e6, " ms"], [1e3, " µs"], [1, " ns"]]),
    bytes: scaled([[1e9, " GB"], [1e6, " MB"], [1e3, " kB"], [1, " B"]]),
    times: (x) => trim(x) + " x",
    share: (x) => trim(100 * x) + "%",
  };
  const names = (c) => [...new Set(c.points.map((p) => p.contender))];
  const hasSpread = (p) => p.min !== undefined;

  // Plot breaks no lines: a long name is cut, and the tip and the table have it whole.
  const cut = (room) => (name) => (name.length > room ? name.slice(0, room - 1) + "…" : name);
  const letter = 6.4; // wide, on average
  const room = (left) => Math.floor((left - 14) / letter + 0.01);
  const gutter = (labels, width) => Math.min(Math.max(...labels.map((l) => l.length)) * letter + 14, width * 0.42);

  // A tick for each power of ten, and some between them where those are few.
  const logTicks = (values) => {
    const [low, high] = [Math.log10(Math.min(...values)), Math.log10(Math.max(...values))];
    const steps = high - low < 1 ? [1, 1.5, 2, 3, 4, 5, 7] : high - low < 2 ? [1, 2, 5] : [1];
    const exponents = d3.range(Math.floor(low), Math.ceil(high) + 1);
    return exponents.flatMap((e) => steps.map((s) => s * 10 ** e)).filter((x) => Math.log10(x) >= low - 0.05 && Math.log10(x) <= high + 0.05);
  };
  const yardsticks = (c) => c.lines ?? [];
  const extremes = (c) => c.points.flatMap((p) => [p.min ?? p.value, p.max ?? p.value]).concat(yardsticks(c).map((l) => l.value)).filter((x) => x > 0);
  const lineLabel = 16; // the height of a line's label
  const grid = { stroke: "var(--grid)", strokeOpacity: 1 };

  const kinds = {
    bars(c, width) {
      const format = formats[c.unit];
      const labels = names(c);
      const left = gutter(labels, width);
      const color = (p) => (look(p.contender).kind === "ral" ? look(p.contender).color : "var(--bar)");
      // The figures stand in the right margin, where no line crosses them.
      const top = Math.max(...extremes(c));
      const more = lineLabel * Math.max(yardsticks(c).length - 1, 0);
      const ticks = d3.ticks(0, top, Math.max(2, Math.floor((width - left - 62) / 80)));
      const marks = [
        Plot.gridX({ ...grid, ticks }),
        Plot.axisX({ anchor: "bottom", label: null, tickFormat: format, ticks, tickSize: 0 }),
        Plot.axisY({ label: null, tickSize: 0, tickFormat: cut(room(left)) }),
        Plot.barX(c.points, {
          className: "bars", x: "value", y: "contender", fill: color, rx: 2, insetTop: 5, insetBottom: 5,
          channels: { figure: "text" }, tip: { format: { x: false, y: true, fill: false, figure: true } },
        }),
        // A light edge keeps the whisker apart from its bar.
        Plot.ruleY(c.points.filter(hasSpread), { y: "contender", x1: "min", x2: "max", stroke: "var(--panel)", strokeWidth: 4 }),
        Plot.ruleY(c.points.filter(hasSpread), { className: "whiskers", y: "contender", x1: "min", x2: "max", stroke: "var(--text)", strokeWidth: 1.5 }),
        Plot.tickX(c.points.filter(hasSpread), { y: "contender", x: "min", stroke: "var(--text)", insetTop: 9, insetBottom: 9 }),
        Plot.tickX(c.points.filter(hasSpread), { y: "contender", x: "max", stroke: "var(--text)", insetTop: 9, insetBottom: 9 }),
      ];
      // Each line has its label in a row of its own above the bars.
      yardsticks(c).forEach((l, i) => marks.push(
        Plot.ruleX([l.value], { className: "floor", stroke: "var(--floor)", strokeWidth: 1.5, strokeDasharray: ["4 3", "1 3"][i % 2] }),
        Plot.text([l.value], { className: "floor-label", x: (x) => x, frameAnchor: "top", lineAnchor: "bottom", dy: -4 - lineLabel * i, text: () => l.name + " " + l.text, fill: "var(--soft)", textAnchor: l.value > top / 2 ? "end" : "start" }),
      ));
      marks.push(
        Plot.text(c.points, {
          className: "figures", y: "contender", frameAnchor: "right", text: (p) => p.text.split(" (")[0], dx: 58, textAnchor: "end", fill: "var(--text)",
          fontVariant: "tabular-nums", fontWeight: (p) => (look(p.contender).kind === "ral" ? 650 : 400),
        }),
      );
      return {
        height: labels.length * 30 + 52 + more, marginLeft: left, marginRight: 66, marginTop: 20 + more, marginBottom: 28,
        x: { domain: [0, top], nice: false }, y: { domain: labels, padding: 0 }, marks,
      };
    },

    dots(c, width) {
      const groups = [...new Set(c.points.map((p) => p.group))];
      const order = names(c);
      const left = gutter(groups, width);
      const ends = d3.extent(extremes(c));
      return {
        legend: order,
        height: groups.length * (order.length * 11 + 18) + 60, marginLeft: left, marginRight: 24, marginTop: 22, marginBottom: 30, insetTop: 4, insetBottom: 4,
        x: { type: "log", domain: [ends[0] / 1.08, ends[1] * 1.08] },
        y: { domain: order, axis: null, padding: 0.2 },
        fy: { domain: groups, padding: 0.12, label: null },
        symbol: { type: "identity" },
        marks: [
          Plot.axisFy({ label: null, anchor: "left", tickFormat: cut(room(left)), dx: 4, fontWeight: 600 }),
          Plot.frame({ stroke: "none", fill: "var(--bg)", rx: 4 }),
          Plot.gridX({ ...grid, ticks: logTicks(ends) }),
          Plot.axisX({ label: null, tickFormat: formats[c.unit], ticks: logTicks(ends), tickSize: 0 }),
          ...yardsticks(c).flatMap((l) => [
            Plot.ruleX([l.value], { className: "floor", stroke: "var(--floor)", strokeWidth: 1.5, strokeDasharray: "4 3" }),
            Plot.text([l.value], { className: "floor-label", x: (x) => x, fy: () => groups[0], frameAnchor: "top", lineAnchor: "bottom", dy: -4, text: () => l.name, fill: "var(--soft)" }),
          ]),
          Plot.ruleY(c.points.filter(hasSpread), { className: "whiskers", fy: "group", y: "contender", x1: "min", x2: "max", stroke: (p) => look(p.contender).color, strokeWidth: 1.5 }),
          Plot.dot(c.points, {
            className: "dots", fy: "group", y: "contender", x: "value", symbol: (p) => look(p.contender).symbol,
            fill: (p) => (hollow(look(p.contender).symbol) ? "none" : look(p.contender).color), stroke: (p) => (hollow(look(p.contender).symbol) ? look(p.contender).color : "var(--bg)"), strokeWidth: (p) => (hollow(look(p.contender).symbol) ? 1.5 : 0.75), r: (p) => (look(p.contender).kind === "ral" ? 5 : 4),
            channels: { workload: "group", figure: "text" }, tip: { format: { x: false, symbol: false, fill: false, r: false, fy: false, y: true, figure: true } },
          }),
        ],
        r: { type: "identity" },
      };
    },

    curves(c, width) {
      const groups = ["p50", "p90", "p99", "p99.9", "worst"].filter((g) => c.points.some((p) => p.group === g));
      return { ...lines(c, width, { x: "group" }), x: { type: "point", domain: groups, padding: 0.15, label: null } };
    },

    scaling(c, width) {
      const cpus = [...new Set(c.points.map((p) => p.x))].sort((a, b) => a - b);
      return {
        ...lines(c, width, { x: "x" }),
        x: { type: "log", base: 2, domain: [cpus[0] / 1.1, cpus[cpus.length - 1] * 1.1], label: null, ticks: cpus, tickFormat: (n) => n + (n === 1 ? " CPU" : " CPUs") },
      };
    },
  };

  // A cross has no inside to fill.
  const hollow = (symbol) => symbol === "times" || symbol === "plus";
  const paint = (l) => (hollow(l.symbol) ? { stroke: l.color, strokeWidth: 1.5 } : { fill: l.color, stroke: "var(--panel)", strokeWidth: 0.75 });

  // Curves and scaling both have a line for each contender.
  function lines(c, width, { x }) {
    const order = names(c);
    // Ral's lines are drawn last, above the others.
    const rank = { floor: 0, peer: 1, ral: 2 };
    const back = [...order].sort((a, b) => rank[look(a).kind] - rank[look(b).kind]);
    const values = extremes(c);
    const ticks = c.log ? logTicks(values) : 5;
    const marks = [
      Plot.gridY({ ...grid, ticks }),
      Plot.axisY({ label: null, tickFormat: formats[c.unit], ticks, tickSize: 0 }),
    ];
    for (const name of back) {
      const points = c.points.filter((p) => p.contender === name);
      const l = look(name);
      // Whiskers side by side can be told apart; without them all stand in line.
      const dx = points.some(hasSpread) ? (order.indexOf(name) - (order.length - 1) / 2) * 4 : 0;
      marks.push(
        Plot.ruleX(points.filter(hasSpread), { className: "whiskers", x, dx, y1: "min", y2: "max", stroke: l.color, strokeWidth: 1 }),
        Plot.line(points, { className: "lines", x, dx, y: "value", stroke: l.color, strokeWidth: l.width, strokeDasharray: l.dash }),
        Plot.dot(points, { className: "dots", x, dx, y: "value", symbol: l.symbol, r: l.kind === "ral" ? 5 : 4, ...paint(l) }),
      );
    }
    marks.push(Plot.tip(c.points, Plot.pointer({ x, y: "value", channels: { contender: "contender", figure: "text" }, format: { x: false, y: false, contender: true, figure: true } })));
    return {
      legend: order, height: Math.max(260, Math.min(340, width * 0.62)), marginLeft: 58, marginRight: 28, marginTop: 12, marginBottom: 28,
      y: c.log ? { type: "log", nice: false, insetBottom: 8 } : { zero: true, nice: true }, symbol: { type: "identity" }, marks,
    };
  }

  const svg = (name, attributes) => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    return e;
  };
  // The mark of a contender: a piece of its line with its symbol.
  function mark(name) {
    const l = look(name);
    const types = { times: d3.symbolTimes, plus: d3.symbolPlus, ...Object.fromEntries(["circle", "diamond", "square", "triangle", "cross", "star", "wye"].map((s) => [s, d3["symbol" + s[0].toUpperCase() + s.slice(1)]])) };
    const s = svg("svg", { width: 30, height: 14, viewBox: "-15 -7 30 14", "aria-hidden": "true" });
    s.append(
      svg("path", { d: "M-15 0H15", stroke: l.color, "stroke-width": l.width, "stroke-dasharray": l.dash }),
      svg("path", { d: d3.symbol(types[l.symbol], 48)(), fill: hollow(l.symbol) ? "none" : l.color, stroke: hollow(l.symbol) ? l.color : "none", "stroke-width": 1.5 }),
    );
    return s;
  }

  function legend(order) {
    const list = document.createElement("ul");
    list.className = "legend";
    for (const name of order) {
      const item = document.createElement("li");
      item.className = look(name).kind;
      item.append(mark(name), name);
      list.append(item);
    }
    return list;
  }

  function draw(holder, c) {
    const width = Math.floor(holder.clientWidth);
    if (width === 0 || holder.dataset.width === String(width)) return;
    const { legend: order, ...options } = kinds[c.kind](c, width);
    const drawn = Plot.plot({ ...options, width, style: { background: "transparent", color: "var(--text)" } });
    // To a screen reader the chart is one picture with its figures in words.
    drawn.setAttribute("role", "img");
    drawn.setAttribute("aria-label", holder.dataset.summary);
    holder.replaceChildren(...(order ? [legend(order)] : []), drawn);
    const axis = document.createElement("p");
    axis.className = "note axis";
    axis.textContent = c.axis + "; " + c.better + (c.log ? "; logarithmic scale" : "");
    holder.append(axis);
    holder.dataset.width = String(width);
  }

  document.documentElement.classList.add("drawing");
  for (const m of document.querySelectorAll("[data-mark]")) m.append(mark(m.dataset.mark));
  const watch = new ResizeObserver((entries) => {
    for (const e of entries) draw(e.target, charts.get(e.target.dataset.chart));
  });
  const charts = new Map(data.charts.map((c) => [c.id, c]));
  for (const holder of document.querySelectorAll("[data-chart]")) {
    draw(holder, charts.get(holder.dataset.chart));
    watch.observe(holder);
  }
  // A link to a workload opens it; paper shows all.
  const open = (selector) => document.querySelectorAll(selector).forEach((d) => (d.open = true));
  const follow = () => open('section[id^="w-"]:target > details');
  for (const event of ["load", "hashchange"]) addEventListener(event, follow);
  addEventListener("beforeprint", () => open("details"));
  document.documentElement.dataset.drawn = "yes";
})();
