// Returns the least contrast of text and of what is drawn, by the formula of WCAG.
(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = ([r, g, b]) => {
    const f = (c) => ((c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b);
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = rgba(getComputedStyle(e).backgroundColor);
      if (c[3] === 255) return c;
    }
    return [255, 255, 255, 255];
  };
  const contrast = (a, b) => {
    const [x, y] = [luminance(a), luminance(b)].sort((m, n) => n - m);
    return (x + 0.05) / (y + 0.05);
  };
  const texts = { checked: 0, least: 99, of: "" }, marks = { checked: 0, least: 99, of: "" };
  const note = (to, ratio, of) => {
    to.checked++;
    if (ratio < to.least) [to.least, to.of] = [ratio, of];
  };
  for (const e of document.querySelectorAll("body *")) {
    if (["SCRIPT", "STYLE", "NOSCRIPT"].includes(e.tagName) || e.closest("script, noscript")) continue;
    const s = getComputedStyle(e);
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (own && e.getClientRects().length > 0) {
      note(texts, contrast(rgba(e.closest("svg") ? s.fill : s.color), behind(e)), e.textContent.trim().slice(0, 40));
    }
  }
  for (const e of document.querySelectorAll("g.bars rect, g.bars path, g.dots :is(path, circle), g.lines path, g.whiskers line, g.floor line")) {
    const s = getComputedStyle(e);
    const color = s.fill !== "none" && !e.closest(".lines, .whiskers, .floor") ? s.fill : s.stroke;
    note(marks, contrast(rgba(color), behind(e)), e.parentElement.getAttribute("class") + " " + color);
  }
  // The colours of peers that this report does not have, on both grounds.
  const root = getComputedStyle(document.documentElement);
  const of = (name) => rgba(root.getPropertyValue(name).trim());
  for (const name of ["--ral0", "--ral1", "--bar", "--floor", ...[0, 1, 2, 3, 4, 5].map((i) => "--peer" + i)]) {
    for (const ground of ["--bg", "--panel"]) note(marks, contrast(of(name), of(ground)), name + " on " + ground);
  }
  return { texts, marks, page: luminance(rgba(getComputedStyle(document.body).backgroundColor)) };
})();
