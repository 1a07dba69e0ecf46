// Returns what is drawn in each chart, for browser_test.go.
(() => {
  const box = (e) => {
    const b = e.getBoundingClientRect();
    return { x: b.x, y: b.y, width: b.width, height: b.height };
  };
  const all = (root, selector) => [...root.querySelectorAll(selector)];
  return all(document, "[data-chart]").map((holder) => {
    const svg = holder.querySelector(":scope > svg");
    return {
      id: holder.dataset.chart,
      svgs: all(holder, ":scope > svg").length,
      box: svg ? box(svg) : null,
      label: svg ? svg.getAttribute("aria-label") : "",
      role: svg ? svg.getAttribute("role") : "",
      bars: all(holder, "g.bars rect, g.bars path").map(box),
      figures: all(holder, "g.figures text").map((e) => e.textContent),
      whiskers: all(holder, "g.whiskers line").map(box),
      dots: all(holder, "g.dots :is(path, circle)").map(box),
      lines: all(holder, "g.lines path").length,
      floors: all(holder, "g.floor line").map(box),
      texts: all(holder, "svg text").map((e) => e.textContent),
      legend: all(holder, ".legend li").map((e) => e.textContent),
      // Labels that run into each other.
      touching: [holder].flatMap((axis) => {
        const labels = all(axis, ':is(g[aria-label$="tick label"], g.figures, g.floor-label) text').map((e) => [e.textContent, e.getBoundingClientRect()]);
        const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom - 3 && b.top < a.bottom - 3;
        return labels.flatMap(([text, a], i) => labels.slice(i + 1).filter(([, b]) => meet(a, b)).map(([other]) => text + " and " + other));
      }),
      // Labels that a line for comparison crosses.
      struck: all(holder, "g.floor line").flatMap((line) => {
        const l = line.getBoundingClientRect();
        const meets = (t) => t.left + 1 < l.right && l.left < t.right - 1 && t.top + 3 < l.bottom && l.top < t.bottom - 2;
        return all(holder, ":is(g.figures, g.floor-label) text").filter((e) => meets(e.getBoundingClientRect())).map((e) => e.textContent);
      }),
      // Text that stands out of the frame of its figure.
      outside: all(holder, ":scope > svg text").filter((e) => {
        const frame = holder.closest("figure").getBoundingClientRect(), b = e.getBoundingClientRect();
        return b.width > 0 && (b.left < frame.left || b.right > frame.right || b.top < frame.top || b.bottom > frame.bottom);
      }).map((e) => e.textContent),
    };
  });
})();
