// Axes, grid and names: what every figure with two axes draws the same way.
function canvasOf(box, height, title) {
  const width = box.clientWidth;
  const drawing = element("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
  if (title) drawing.append(element("text", { x: 0, y: 13, class: "title" }, title));
  box.replaceChildren(drawing);
  return { drawing, width, height };
}

function sayNothing({ drawing, width, height }, text) {
  drawing.append(element("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, text));
}

function drawAxes({ drawing, width, height }, margin, x, y, xTitle, options = {}) {
  const bottom = height - margin.bottom, right = width - margin.right;
  for (const tick of y ? y.ticks : []) drawing.append(
    element("line", { class: "grid", x1: margin.left, x2: right, y1: y(tick), y2: y(tick) }),
    element("text", { x: margin.left - 8, y: y(tick) + 4, "text-anchor": "end" }, tickLabel(tick)));
  for (const tick of x.ticks) add(drawing,
    options.grid ? element("line", { class: "grid", x1: x(tick), x2: x(tick), y1: margin.top, y2: bottom }) : null,
    element("line", { class: "axis", x1: x(tick), x2: x(tick), y1: bottom, y2: bottom + 5 }),
    element("text", { x: x(tick), y: bottom + 19, "text-anchor": "middle" }, (options.label || tickLabel)(tick)));
  const middle = (margin.left + right) / 2;
  // A long title on a phone: centred on the whole drawing, in two lines where one does not do.
  const lines = wrapped(xTitle, width / 7.6);
  drawing.append(
    element("line", { class: "axis", x1: margin.left, x2: right, y1: bottom, y2: bottom }),
    ...lines.map((line, index) => element("text", { x: 7.4 * line.length > right - margin.left ? width / 2 : middle, y: bottom + 38 + 15 * index, "text-anchor": "middle", class: "title" }, line)));
}

function wrapped(text, longest) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const line = lines[lines.length - 1];
    if (line && line.length + 1 + word.length > longest) lines.push(word);
    else lines[lines.length - 1] = line ? `${line} ${word}` : word;
  }
  return lines.slice(0, 2);
}

// The ends of an axis with some room; logarithmic room is a factor.
function withRoom(low, high, share, logarithmic) {
  if (logarithmic) { const factor = (high / low || 1) ** share || 1; return low === high ? [low / 1.2, high * 1.2] : [low / factor, high * factor]; }
  const extra = (high - low || Math.abs(high) * 0.1 || 1) * share;
  return [low - extra, high + extra];
}

// Names at the right ends of lines, moved apart; a thin line leads from a name that had to move.
function nameEnds({ drawing, height }, margin, ends, right) {
  const wanted = ends.map((end) => ({ ...end, from: end.at }));
  for (const end of spreadOut(wanted, 15, margin.top + 4, height - margin.bottom)) add(drawing,
    Math.abs(end.at - end.from) > 4 || end.x < right - 4
      ? element("path", { class: `leader c${end.arm.colour}`, d: `M${end.x + 5} ${end.from}L${right + 3} ${end.from}L${right + 12} ${end.at}` }) : null,
    element("g", { class: `c${end.arm.colour}` }, marker(end.arm.marker, right + 19, end.at, 4.6)),
    element("text", { class: "name", x: right + 28, y: end.at + 4 }, end.arm.name));
}

// One line over points {x, mean, std, n}: a band from three repeats on, the line, a marker at some of the points.
const bandOf = (point) => (point.n >= 3 && point.std !== null ? point.std : 0);
function drawSeries(drawing, arm, points, x, y, low, everyMarker) {
  const at = (point, value) => `${x(point.x).toFixed(2)} ${y(Math.max(value, low)).toFixed(2)}`;
  const group = element("g", { class: `c${arm.colour}`, "data-arm": arm.name });
  if (points.some(bandOf)) {
    const upper = points.map((point, index) => (index ? "L" : "M") + at(point, point.mean + bandOf(point))).join("");
    const lower = [...points].reverse().map((point) => "L" + at(point, point.mean - bandOf(point))).join("");
    group.append(element("path", { class: "band", d: `${upper}${lower}Z` }));
  }
  group.append(element("path", { class: "series", d: points.map((point, index) => (index ? "L" : "M") + at(point, point.mean)).join(""), "stroke-dasharray": dashes[arm.dash] }));
  points.forEach((point, index) => {
    if ((points.length - 1 - index) % everyMarker === 0) group.append(marker(arm.marker, x(point.x), y(Math.max(point.mean, low)), 4.6));
  });
  drawing.append(group);
}

// The read-out of figures with lines: by pointer, or by arrow keys when the figure has the focus.
function readable(box, readoutId, plotOf, head) {
  let cursor = null;
  const text = (point) => number(point.mean) + (bandOf(point) ? ` ± ${number(bandOf(point), 2)}` : "");
  function readOut(value, event) {
    const plot = plotOf();
    const rows = plot.series.map((own) => ({ arm: own.arm.name, point: own.points.find((point) => point.x === value) }))
      .filter((row) => row.point).sort((one, other) => one.point.mean - other.point.mean);
    if (plot.descending) rows.reverse();
    for (const end of ["x1", "x2"]) plot.line.setAttribute(end, plot.x(value));
    plot.line.setAttribute("visibility", "visible");
    const frame = box.getBoundingClientRect();
    const at = event || { pageX: frame.left + window.scrollX + plot.x(value), pageY: frame.top + window.scrollY + 30 };
    showTooltip(at, [element("strong", {}, head(value)), ...rows.map((row) => tooltipRow(row.arm, text(row.point)))]);
    if (!event) tell(readoutId, `${head(value)}: ` + rows.map((row) => `${row.arm} ${text(row.point)}`).join(", "));
  }
  function leave() { const plot = plotOf(); if (plot) plot.line.setAttribute("visibility", "hidden"); hideTooltip(); cursor = null; }
  box.addEventListener("pointermove", (event) => {
    const plot = plotOf();
    if (!plot) return;
    const at = event.clientX - box.getBoundingClientRect().left;
    const near = plot.values.reduce((best, value) => (Math.abs(plot.x(value) - at) < Math.abs(plot.x(best) - at) ? value : best));
    cursor = plot.values.indexOf(near);
    readOut(near, event);
  });
  box.addEventListener("pointerleave", leave);
  box.addEventListener("blur", leave);
  box.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key], plot = plotOf();
    if (event.key === "Escape") leave();
    if (!move || !plot) return;
    event.preventDefault();
    const from = cursor === null ? (move > 0 ? -1 : plot.values.length) : cursor;
    cursor = Math.min(plot.values.length - 1, Math.max(0, from + move));
    readOut(plot.values[cursor], null);
  });
}
