// Shared by the figures.
const view = JSON.parse(document.getElementById("view-json").textContent);
const armOf = new Map(view.arms.map((arm) => [arm.name, arm]));
const redraw = [];
const dashes = ["", "7 4", "2 4"];

function element(tag, attributes = {}, ...children) {
  const inSvg = ["svg", "g", "path", "line", "text", "circle", "rect", "title", "tspan", "polygon"].includes(tag);
  const node = inSvg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) node.setAttribute(name, value);
  return add(node, ...children);
}

// Strings become text, never markup; null is nothing (append alone would write the word).
function add(node, ...children) {
  node.append(...children.filter((child) => child !== null));
  return node;
}

function number(value, digits = 4) {
  if (!Number.isFinite(value)) return "–";
  const places = value === 0 ? 0 : Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))));
  return value.toLocaleString("en", { minimumFractionDigits: Math.min(places, 8), maximumFractionDigits: Math.min(places, 8) });
}

function tickLabel(value) {
  const size = Math.abs(value);
  if (value < 0) return `\u2212${tickLabel(size)}`;
  if (size === 0) return "0";
  if (size >= 1e9) return `${+(value / 1e9).toPrecision(4)}G`;
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(4)}M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(4)}k`;
  return (+value.toPrecision(6)).toLocaleString("en", { maximumFractionDigits: 6 });
}

// A scale from data to pixels, linear or logarithmic, with readable ticks.
function scale([low, high], [from, to], logarithmic, count) {
  const map = logarithmic ? Math.log10 : (value) => value;
  const [a, b] = [map(low), map(high)];
  const place = (value) => from + ((map(value) - a) / (b - a || 1)) * (to - from);
  [place.low, place.high] = [low, high];
  place.ticks = logarithmic ? logTicks(low, high, count) : linearTicks(low, high, count);
  return place;
}

function linearTicks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-9; tick += step) ticks.push(Math.abs(tick) < step * 1e-9 ? 0 : +tick.toPrecision(12));
  return ticks;
}

function logTicks(low, high, count) {
  for (const factors of [[1, 1.5, 2, 3, 4, 5, 6, 8], [1, 2, 3, 5], [1, 2, 5], [1, 3], [1]]) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
      for (const factor of factors) {
        const tick = factor * 10 ** power;
        if (tick >= low * 0.999999 && tick <= high * 1.000001) ticks.push(+tick.toPrecision(6));
      }
    if (ticks.length <= count + 2) return ticks.length >= 2 ? ticks : linearTicks(low, high, count).filter((tick) => tick > 0);
  }
  return [];
}

// Move labels apart that would overlap; `at` holds wanted places in ascending order.
function spreadOut(items, gap, low, high) {
  items.sort((one, other) => one.at - other.at);
  for (let round = 0; round < 60; round++) {
    let moved = false;
    for (let index = 1; index < items.length; index++) {
      const lack = gap - (items[index].at - items[index - 1].at);
      if (lack > 0.1) { items[index].at += lack / 2; items[index - 1].at -= lack / 2; moved = true; }
    }
    for (const item of items) item.at = Math.min(high, Math.max(low, item.at));
    if (!moved) break;
  }
  return items;
}

const tooltip = document.getElementById("tooltip");
function showTooltip(event, children) {
  tooltip.replaceChildren(...children);
  tooltip.hidden = false;
  const wide = tooltip.offsetWidth, page = document.documentElement.clientWidth;
  let left = event.pageX + 16;
  if (left + wide > page - 8) left = Math.max(8, event.pageX - wide - 16);
  tooltip.style.left = `${left}px`;
  tooltip.style.top = `${event.pageY + 14}px`;
}
function hideTooltip() { tooltip.hidden = true; }
function tooltipRow(arm, text) {
  return element("div", {}, glyph(armOf.get(arm)), element("span", {}, arm), element("span", {}, text));
}

// Besides its colour each arm has a shape, the same in every figure and in wordorder's figure files.
function marker(index, x, y, r = 6) {
  const star = (corners, turn, inner = 1.25) => element("polygon", { class: "dot", points: Array.from({ length: corners }, (_, i) => {
    const angle = turn + (2 * Math.PI * i) / corners, radius = r * (i % 2 ? inner : 1.25);
    return `${(x + radius * Math.cos(angle)).toFixed(2)},${(y + radius * Math.sin(angle)).toFixed(2)}`;
  }).join(" ") });
  const up = -Math.PI / 2;
  return [
    () => element("circle", { class: "dot", cx: x, cy: y, r }),
    () => element("rect", { class: "dot", x: x - r * 0.9, y: y - r * 0.9, width: 1.8 * r, height: 1.8 * r }),
    () => star(3, up),
    () => star(4, 0),
    () => star(3, -up),
    () => star(10, up, 0.55),
    () => star(8, up, 0.5),
    () => star(8, up / 2, 0.5),
  ][index % 8]();
}

// An arm's sign where there is no figure: a piece of its line with its marker.
function sign(index, dash) {
  return [element("line", { x1: 1, x2: 23, y1: 7, y2: 7, stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": dashes[dash] }), marker(index, 12, 7, 4.6)];
}

function glyph(arm) {
  return element("svg", { width: 24, height: 14, viewBox: "0 0 24 14", "aria-hidden": "true", class: `glyph c${arm.colour}` }, ...sign(arm.marker, arm.dash));
}

// Show a tooltip while the pointer is on a part of a figure.
function onPointer(part, rows) {
  part.addEventListener("pointermove", (event) => showTooltip(event, rows));
  part.addEventListener("pointerleave", hideTooltip);
}

function tell(id, text) { document.getElementById(id).textContent = text; }

// Radio buttons: the browser moves between them by arrow keys.
function choice(box, options, choose) {
  options.forEach((text, index) => {
    const input = element("input", { type: "radio", name: box.getAttribute("aria-labelledby"), checked: index ? null : "" });
    input.addEventListener("change", () => choose(index));
    box.append(element("label", {}, input, element("span", {}, text)));
  });
}

// Figures are drawn at their true width, so that letters keep their size on a phone.
function onWidth(node, draw) {
  redraw.push(draw);
  let last = 0;
  new ResizeObserver(() => {
    if (Math.abs(node.clientWidth - last) > 0.5) { last = node.clientWidth; draw(); }
  }).observe(node);
}

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

function cursorLine({ drawing, height }, margin) {
  return drawing.appendChild(element("line", { class: "cursor", y1: margin.top, y2: height - margin.bottom, visibility: "hidden" }));
}

// Names at the right ends of lines, moved apart; a thin line leads from a name that had to move.
function nameEnds({ drawing, height }, margin, series, x, y, right) {
  const ends = series.map(({ arm, points }) => ({ arm, from: y(points.at(-1).mean), at: y(points.at(-1).mean), x: x(points.at(-1).x) }));
  for (const end of spreadOut(ends, 15, margin.top + 4, height - margin.bottom)) add(drawing,
    Math.abs(end.at - end.from) > 4 || end.x < right - 4
      ? element("path", { class: `leader c${end.arm.colour}`, d: `M${end.x + 5} ${end.from}L${right + 3} ${end.from}L${right + 12} ${end.at}` }) : null,
    element("g", { class: `c${end.arm.colour}` }, marker(end.arm.marker, right + 19, end.at, 4.6)),
    element("text", { class: "name", x: right + 28, y: end.at + 4 }, end.arm.name));
}

// One line over points {x, mean, std, n}: a band from three repeats on, and a marker at some of the points.
const bandOf = (point) => (point.n >= 3 && point.std !== null ? point.std : 0);
const inWords = (point) => number(point.mean) + (bandOf(point) ? ` ± ${number(bandOf(point), 2)}` : "");
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

// The read-out of figures with lines, by pointer or by arrow keys.
function readable(box, readoutId, plotOf, head) {
  let cursor = null;
  function readOut(value, event) {
    const plot = plotOf();
    const rows = plot.series.map((own) => ({ arm: own.arm.name, point: own.points.find((point) => point.x === value) }))
      .filter((row) => row.point).sort((one, other) => one.point.mean - other.point.mean);
    if (plot.descending) rows.reverse();
    for (const end of ["x1", "x2"]) plot.line.setAttribute(end, plot.x(value));
    plot.line.setAttribute("visibility", "visible");
    const frame = box.getBoundingClientRect();
    const at = event || { pageX: frame.left + window.scrollX + plot.x(value), pageY: frame.top + window.scrollY + 30 };
    showTooltip(at, [element("strong", {}, head(value)), ...rows.map((row) => tooltipRow(row.arm, inWords(row.point)))]);
    if (!event) tell(readoutId, `${head(value)}: ` + rows.map((row) => `${row.arm} ${inWords(row.point)}`).join(", "));
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

// Which models are shown: one bar of buttons for the whole page.
const hidden = new Set();
const shown = (name) => !hidden.has(name);
const shownArms = () => view.arms.filter((arm) => shown(arm.name));

// The signs that the page's tables have room for.
for (const box of document.querySelectorAll("svg[data-sign]")) box.append(...sign(box.dataset.sign, box.dataset.dash));

for (const legend of document.querySelectorAll(".legend")) {
  for (const arm of view.arms) {
    const button = element("button", { type: "button", "aria-pressed": "true", "data-arm": arm.name }, glyph(arm), element("span", {}, arm.name));
    button.addEventListener("click", () => { hidden.has(arm.name) ? hidden.delete(arm.name) : hidden.add(arm.name); showArms(); });
    legend.append(button);
  }
  const all = element("button", { type: "button", class: "all", hidden: "" }, "Show all");
  all.addEventListener("click", () => {
    hidden.clear();
    showArms();
    legend.querySelector("button").focus();   // this button is hidden now, and the focus must not be lost
  });
  legend.append(all);
}

function showArms() {
  const count = shownArms().length, all = view.arms.length;
  for (const button of document.querySelectorAll(".legend button[data-arm]")) {
    button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.arm)));
  }
  for (const button of document.querySelectorAll(".legend .all")) button.hidden = count === all;
  for (const part of document.querySelectorAll("tr[data-arm], figure[data-arm], .matrix [data-arm]"))
    part.hidden = !shown(part.dataset.arm) || (part.dataset.against !== undefined && !shown(part.dataset.against));
  for (const note of document.querySelectorAll(".none-shown")) note.hidden = count > 0;
  tell("arms-status", count === all ? "" : `${count} of ${all} models shown`);
  for (const draw of redraw) draw();
}

// Columns beyond the first few are shown on demand; a page without scripts has them all.
const moreColumns = document.getElementById("more-columns"), resultsTable = document.getElementById("results-table");
const showColumns = () => resultsTable.classList.toggle("few", !moreColumns.checked);
moreColumns.closest(".controls").hidden = !resultsTable.querySelector(".more");
moreColumns.addEventListener("change", showColumns);
showColumns();

// On paper nothing can be unfolded, and how the differences were tested belongs to the result.
addEventListener("beforeprint", () => { for (const part of document.querySelectorAll("details.method, details.caption")) part.open = true; });

// Sorting the results table: a click, Enter or Space on a heading; empty cells always last.
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => {
      const now = heading.getAttribute("aria-sort");
      const first = heading.dataset.best || "ascending";
      const order = now === null ? first : now === "ascending" ? "descending" : "ascending";
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const rows = [...table.tBodies[0].rows].sort((one, other) => {
        const [a, b] = [one, other].map((row) => row.cells[column].dataset.value);
        if (a === "" || b === "") return (a === "") - (b === "");
        return sign * (heading.dataset.kind === "text" ? a.localeCompare(b) : Number(a) - Number(b));
      });
      table.tBodies[0].append(...rows);
      tell("sort-status", `Sorted by ${heading.textContent.trim()}, ${order}.`);
    });
  });
}

// Differences: one line per comparison with its interval, as a change of the metric; of perplexities in percent.
const forestBox = document.getElementById("forest");
if (forestBox) {
  const reference = view.differences.reference, percent = view.differences.percent;

  // Ticks in round percents on a scale of logarithms, the coarsest first.
  function percentTicks(x, room) {
    const ticks = [];
    const take = (share) => {
      const at = Math.log1p(share / 100);
      if (at >= x.low && at <= x.high && ticks.every((tick) => Math.abs(x(tick) - x(at)) >= room)) ticks.push(at);
    };
    take(0);
    const [low, high] = [x.low, x.high].map((end) => 100 * Math.expm1(end));
    for (let power = 3; power >= -3; power--) for (const factor of [5, 2, 1]) {
      const step = factor * 10 ** power;
      if ((high - low) / step > 60) break;
      for (let share = Math.ceil(low / step) * step; share <= high; share += step) take(+share.toPrecision(9));
    }
    return ticks;
  }
  const percentLabel = (at) => { const share = +(100 * Math.expm1(at)).toPrecision(3); return `${share > 0 ? "+" : ""}${tickLabel(share)}%`; };

  // Beside the line of no difference; where there is no room on one side, both stand on the other.
  function sides(zero, width) {
    const [left, right] = view.differences.more_is_better ? ["worse", "better"] : ["better", "worse"];
    if (zero + 72 > width) return [[width - 6, "end", `← ${left} · ${right} →`]];
    return zero < 72 ? [[6, "start", `← ${left} · ${right} →`]] : [[zero - 8, "end", `← ${left}`], [zero + 8, "start", `${right} →`]];
  }

  function drawForest() {
    const rows = view.differences.rows.filter((row) => shown(row.arm));
    const narrow = forestBox.clientWidth < 640, step = narrow ? 46 : 32;
    const longest = Math.max(0, ...rows.map((row) => row.arm.length)), words = Math.max(0, ...rows.map((row) => row.words.length));
    const margin = narrow ? { top: 34, right: 26, bottom: 62, left: 26 }
      : { top: 34, right: Math.min(250, 24 + 7 * words), bottom: 50, left: Math.min(0.35 * forestBox.clientWidth, 44 + 7.2 * longest) };
    const canvas = canvasOf(forestBox, margin.top + margin.bottom + step * Math.max(1, rows.length));
    const { drawing, width, height } = canvas;
    const known = rows.filter((row) => row.difference !== null);
    if (!known.length) return sayNothing(canvas, rows.length ? "No difference could be computed." : "No model is shown.");
    const ends = known.flatMap((row) => [row.difference, row.low ?? row.difference, row.high ?? row.difference, 0]);
    const x = scale(withRoom(Math.min(...ends), Math.max(...ends), 0.06), [margin.left, width - margin.right], false, narrow ? 4 : 7);
    if (percent) x.ticks = percentTicks(x, narrow ? 46 : 58);
    drawAxes(canvas, margin, x, null, `${view.differences.title} from ${reference}`, { grid: true, label: percent ? percentLabel : tickLabel });
    drawing.append(element("line", { class: "zero", x1: x(0), x2: x(0), y1: margin.top - 8, y2: height - margin.bottom }),
      ...sides(x(0), width).map(([at, anchor, text]) => element("text", { x: at, y: margin.top - 14, "text-anchor": anchor }, text)));
    rows.forEach((row, index) => {
      const arm = armOf.get(row.arm), y = margin.top + step * (index + 0.5) + (narrow ? 9 : 0);
      const group = element("g", { class: `c${arm.colour} ${["better", "worse"].includes(row.outcome) ? "claim" : "open"}`, "data-arm": row.arm });
      if (narrow) group.append(element("text", { class: "name", x: 0, y: y - 14 }, row.arm, element("tspan", { class: "value", dx: 10 }, row.words)));
      else group.append(element("text", { class: "name", x: 22, y: y + 4 }, row.arm), element("text", { x: width - margin.right + 14, y: y + 4 }, row.words));
      if (!narrow) group.append(marker(arm.marker, 8, y, 5));
      if (row.difference !== null) {
        if (row.low !== null && row.high !== null) group.append(
          element("path", { class: "whisker", d: `M${x(row.low)} ${y}H${x(row.high)}M${x(row.low)} ${y - 4}v8M${x(row.high)} ${y - 4}v8` }));
        group.append(marker(arm.marker, x(row.difference), y, 5.5));
      }
      onPointer(group, [element("strong", {}, `${row.arm} against ${reference}`), element("div", {}, element("span", {}, row.short))]);
      drawing.append(group);
    });
  }
  onWidth(forestBox, drawForest);
}

// Learning curves with a band over seeds or folds, and the steps at which arms reach the baseline's final loss.
const curvesBox = document.getElementById("curves");
if (curvesBox) {
  let plot = null;

  function shownCurves() {
    return shownArms().filter((arm) => view.curves[arm.name])
      .map((arm) => ({ arm, points: view.curves[arm.name].filter((point) => point.mean !== null).map((point) => ({ ...point, x: point.step })) }))
      .filter((own) => own.points.length);
  }

  function drawCurves() {
    const width = curvesBox.clientWidth, named = width >= 640;
    const longest = Math.max(...view.arms.map((arm) => arm.name.length));
    const margin = { top: 26, right: named ? Math.min(220, 44 + 7.2 * longest) : 24, bottom: 50, left: 52 };
    const series = shownCurves();
    const canvas = canvasOf(curvesBox, width < 560 ? 300 : 420, view.curve_label);
    const { drawing, height } = canvas;
    plot = null;
    if (!series.length) return sayNothing(canvas, "No model is shown.");
    const all = series.flatMap((own) => own.points);
    const floor = view.log_curves ? Math.min(...all.map((point) => point.mean)) * 0.5 : -Infinity;
    let low = Math.min(...all.map((point) => Math.max(point.mean - bandOf(point), floor)));
    let high = Math.max(...all.map((point) => point.mean + bandOf(point)));
    const logarithmic = view.log_curves && low > 0;
    [low, high] = withRoom(low, high, 0.04, logarithmic);
    const steps = all.map((point) => point.step), right = width - margin.right;
    const x = scale([0, Math.max(...steps)], [margin.left, right], false, width < 560 ? 4 : 8);
    const y = scale([low, high], [height - margin.bottom, margin.top], logarithmic, 6);
    drawAxes(canvas, margin, x, y, "Training step");
    const targets = view.targets.filter((own) => own.value > low && own.value < high);
    for (const target of targets) drawing.append(element("line", { class: "target", x1: margin.left, x2: right, y1: y(target.value), y2: y(target.value) }));
    // what the dotted line is stands above the figure, where no marker is
    if (targets.length) drawing.append(element("text", { x: width, y: 13, "text-anchor": "end" }, `···· lowest loss of ${targets.map((own) => own.baseline).join(", ")}`));
    for (const { arm, points } of series) drawSeries(drawing, arm, points, x, y, low, Math.max(1, Math.ceil(points.length / 6)));
    for (const mark of view.reached.filter((own) => shown(own.arm) && own.steps >= x.low && own.steps <= x.high && own.value > low && own.value < high)) {
      const arm = armOf.get(mark.arm);
      const group = element("g", { class: `reached c${arm.colour}`, "data-arm": arm.name },
        element("circle", { cx: x(mark.steps), cy: y(mark.value), r: 4 }));
      group.append(element("title", {}, `${arm.name} is there after ${Math.round(mark.steps).toLocaleString("en")} steps`));
      drawing.append(group);
    }
    if (named) nameEnds(canvas, margin, series, x, y, right);
    const line = cursorLine(canvas, margin);
    plot = { x, line, values: [...new Set(steps)].sort((a, b) => a - b), series };
  }
  readable(curvesBox, "curves-readout", () => plot, (step) => `Step ${step.toLocaleString("en")}`);
  onWidth(curvesBox, drawCurves);
}

// Quality against one of the costs, with the Pareto front of the models that are shown.
const scatterBox = document.getElementById("scatter");
let cost = view.costs[0];
if (cost) choice(document.getElementById("scatter-costs"), view.costs.map((own) => own.short), (index) => { cost = view.costs[index]; drawScatter(); });

// As comparison/statistics/pareto.py: an arm is on the front unless another is no worse in both and better in one.
function paretoFront(points) {
  const [dear, bad] = [cost.more_is_better ? -1 : 1, view.quality.more_is_better ? -1 : 1];
  const place = (point) => [dear * point.cost, bad * point.quality];
  const beats = ([a, b], [c, d]) => a <= c && b <= d && (a < c || b < d);
  return points.filter((point) => !points.some((other) => beats(place(other), place(point)))).sort((one, other) => one.cost - other.cost);
}

function drawScatter() {
  const width = scatterBox.clientWidth, narrow = width < 560;
  const margin = { top: 26, right: 16, bottom: narrow ? 62 : 50, left: 56 };
  const canvas = canvasOf(scatterBox, narrow ? 340 : 400, "");
  const { drawing, height } = canvas;
  const points = cost ? cost.points.filter((point) => shown(point.name) && point.cost !== null && point.quality !== null) : [];
  tell("front-words", "");
  if (!points.length) return sayNothing(canvas, cost ? "No model is shown." : "Nothing to draw yet.");
  const rangeOf = (point) => view.ranges[point.name] || [point.quality, point.quality];
  const lows = points.map((point) => rangeOf(point)[0]), highs = points.map((point) => rangeOf(point)[1]);
  const costs = points.map((point) => point.cost);
  const logY = Math.min(...lows) > 0 && Math.max(...highs) > 2.2 * Math.min(...lows);   // one arm that learned nothing must not press the others together
  const logX = Math.min(...costs) > 0 && Math.max(...costs) > 8 * Math.min(...costs);
  const remarks = [`${view.quality.more_is_better ? "higher" : "lower"} is better`, ...(logY ? ["log scale"] : [])];
  drawing.append(element("text", { x: 0, y: 13, class: "title" }, narrow ? view.quality.title : `${view.quality.title} (${remarks.join("; ")})`));
  const y = scale(withRoom(Math.min(...lows), Math.max(...highs), 0.1, logY), [height - margin.bottom, margin.top], logY, 6);
  const x = scale(withRoom(Math.min(...costs), Math.max(...costs), 0.12, logX), [margin.left, width - margin.right], logX, narrow ? 3 : 7);
  drawAxes(canvas, margin, x, y, `${cost.title}${cost.more_is_better ? ", more is better" : ", less is better"}`, { grid: true });
  const front = paretoFront(points);
  if (front.length > 1) drawing.append(element("path", { class: "front", d: front.map((point, index) => {
    if (!index) return `M${x(point.cost)} ${y(point.quality)}`;
    const before = front[index - 1];
    return cost.more_is_better ? `V${y(point.quality)}H${x(point.cost)}` : `H${x(point.cost)}V${y(point.quality)}`;
  }).join("") }));
  const every = shownArms().length === view.arms.length;
  tell("front-words", every ? cost.words : `On the Pareto front of the models shown: ${front.map((point) => point.name).join(", ")}.`);
  const places = points.map((point) => [x(point.cost), y(point.quality)]);
  for (const point of points) {
    const arm = armOf.get(point.name), px = x(point.cost), py = y(point.quality), on = front.includes(point);
    const group = element("g", { class: `c${arm.colour}`, "data-arm": point.name, "data-front": on ? "on" : null });
    if (on) group.append(element("circle", { class: "ring", cx: px, cy: py, r: 11 }));
    if (view.ranges[point.name]) group.append(element("line", { class: "whisker", x1: px, x2: px, y1: y(rangeOf(point)[0]), y2: y(rangeOf(point)[1]) }));
    group.append(marker(arm.marker, px, py));
    onPointer(group, [element("strong", {}, point.name),
      element("div", {}, element("span", {}, view.quality.title), element("span", {}, number(point.quality))),
      element("div", {}, element("span", {}, cost.title), element("span", {}, number(point.cost, 5)))]);
    drawing.append(group);
  }
  const ticks = [...drawing.querySelectorAll("text")].map(boxOf);
  const free = { taken: [...ticks, ...places.map(([px, py]) => [px - 9, py - 9, px + 9, py + 9])], places, width, bottom: height - margin.bottom };
  points.forEach((point, index) => nameBeside(drawing, point.name, ...places[index], free));
}

function boxOf(text) { const box = text.getBBox(); return [box.x, box.y, box.x + box.width, box.y + box.height]; }

// The first of some places around a point where its name covers nothing and is not nearer to another point.
function nameBeside(drawing, name, px, py, { taken, places, width, bottom }) {
  const label = element("text", { class: "name", x: 0, y: 0 }, name), group = element("g", {}, label), far = [];
  drawing.append(group);
  const [, above, long, below] = boxOf(label);
  for (const away of [26, 40, 54, 70]) for (const side of [14, -14 - long, -long / 2]) far.push([side, -away], [side, away + 8]);
  const boxes = [[14, 4], [-14 - long, 4], [-long / 2, -15], [-long / 2, 24], [12, -12], [12, 21], [-12 - long, -12], [-12 - long, 21], ...far]
    .map(([dx, dy]) => [px + dx, py + dy + above, px + dx + long, py + dy + below]);
  const gap = (box, [qx, qy]) => Math.hypot(Math.max(box[0] - qx, qx - box[2], 0), Math.max(box[1] - qy, qy - box[3], 0));
  const room = (box) => box[0] >= 2 && box[2] <= width - 2 && box[1] >= 16 && box[3] <= bottom
    && taken.every((other) => box[2] + 4 < other[0] || box[0] - 4 > other[2] || box[3] < other[1] || box[1] > other[3]);
  const near = (box) => places.every(([qx, qy]) => (qx === px && qy === py) || gap(box, [px, py]) < gap(box, [qx, qy]));
  const chosen = boxes.slice(0, 8).find((box) => room(box) && near(box)) || boxes.slice(8).find(room);
  if (!chosen) {   // its shape stands in the legend
    label.remove();
    group.setAttribute("data-unnamed", name);
    return;
  }
  taken.push(chosen);
  const led = boxes.indexOf(chosen) >= 8;   // a line leads from a name that found no room beside its point
  if (led) group.prepend(element("line", { class: "leader", x1: px, y1: py, x2: (chosen[0] + chosen[2]) / 2, y2: chosen[3] < py ? chosen[3] : chosen[1] }));
  label.setAttribute("x", chosen[0]);
  label.setAttribute("y", chosen[1] - above);
}
onWidth(scatterBox, drawScatter);

// Probes: lines over numbers, dots beside labels; one panel at a time where a probe has groups.
for (const probe of view.probes) {
  const figure = document.querySelector(`figure.probe[data-probe="${CSS.escape(probe.name)}"]`);
  const box = figure.querySelector(".chart"), readoutId = figure.querySelector(".readout").id, boxes = figure.querySelector(".segments");
  let panel = probe.panels[0], plot = null;
  if (probe.panels.length > 1) choice(boxes, probe.panels.map((own) => own.group || "all"), (index) => { panel = probe.panels[index]; draw(); });

  const shownSeries = () => shownArms().filter((arm) => panel.points[arm.name]).map((arm) => ({ arm, points: panel.points[arm.name].filter((point) => point.mean !== null) }));
  const better = probe.higher_is_better === null ? "" : `${probe.higher_is_better ? "higher" : "lower"} is better`;

  function titled(remarks, narrow) {
    const told = remarks.filter(Boolean).join("; ");
    return told && !narrow ? `${probe.value}; ${told}` : probe.value;
  }

  function drawLines() {
    const width = box.clientWidth, narrow = width < 560, named = width >= 640, series = shownSeries();
    const longest = Math.max(...view.arms.map((arm) => arm.name.length));
    const margin = { top: 26, right: named ? Math.min(220, 44 + 7.2 * longest) : 24, bottom: 50, left: 56 };
    plot = null;
    const all = series.flatMap((own) => own.points);
    const ends = (sign) => all.map((point) => point.mean + sign * bandOf(point));
    const logarithmic = probe.log_value && all.every((point) => point.mean > 0);
    const canvas = canvasOf(box, narrow ? 300 : 360, titled([better, logarithmic ? "log scale" : ""], narrow));
    if (!all.length) return sayNothing(canvas, "No model with a value is shown.");
    const { drawing, height } = canvas, right = width - margin.right;
    const floor = logarithmic ? Math.min(...all.map((point) => point.mean)) * 0.5 : -Infinity;
    const [low, high] = withRoom(Math.max(floor, Math.min(...ends(-1))), Math.max(...ends(1)), 0.05, logarithmic);
    const x = scale(withRoom(panel.xs[0], panel.xs[panel.xs.length - 1], 0.03, panel.log_x), [margin.left, right], panel.log_x, narrow ? 4 : 8);
    const y = scale([low, high], [height - margin.bottom, margin.top], logarithmic, 6);
    if (panel.xs.length <= (narrow ? 6 : 12)) x.ticks = panel.xs;   // a probe's own values are what a reader looks for
    drawAxes(canvas, margin, x, y, probe.x);
    for (const { arm, points } of series) drawSeries(drawing, arm, points, x, y, low, Math.max(1, Math.ceil(points.length / 16)));
    if (named) nameEnds(canvas, margin, series, x, y, right);
    const line = cursorLine(canvas, margin);
    plot = { x, line, values: panel.xs, series, descending: probe.higher_is_better !== false };
  }

  function drawDots() {
    const width = box.clientWidth, narrow = width < 560, series = shownSeries(), lane = 11;
    const tall = Math.max(1, series.length) * lane + 12 + (narrow ? 16 : 0);
    const longest = Math.max(...panel.xs.map((x) => String(x).length));
    const margin = { top: 30, right: 16, bottom: narrow ? 62 : 50, left: narrow ? 10 : Math.min(0.35 * width, 20 + 7.2 * longest) };
    const canvas = canvasOf(box, margin.top + margin.bottom + tall * panel.xs.length, "");
    const { drawing, height } = canvas, all = series.flatMap((own) => own.points);
    if (!all.length) return sayNothing(canvas, "No model with a value is shown.");
    const low = Math.min(...all.map((point) => point.mean - bandOf(point))), high = Math.max(...all.map((point) => point.mean + bandOf(point)));
    const logarithmic = probe.log_value && low > 0;
    const x = scale(withRoom(low, high, 0.05, logarithmic), [margin.left, width - margin.right], logarithmic, narrow ? 4 : 7);
    drawAxes(canvas, margin, x, null, titled([better], false), { grid: true });
    panel.xs.forEach((label, place) => {
      const top = margin.top + place * tall;
      if (place) drawing.append(element("line", { class: "axis faint", x1: 0, x2: width, y1: top, y2: top }));
      drawing.append(element("text", narrow ? { class: "name", x: 0, y: top + 13 } : { class: "name", x: margin.left - 12, y: top + tall / 2 + 4, "text-anchor": "end" }, String(label)));
      series.forEach(({ arm, points }, index) => {
        const point = points.find((own) => own.x === label);
        if (!point) return;
        const y = top + 6 + (narrow ? 16 : 0) + lane * (index + 0.5), group = element("g", { class: `c${arm.colour}`, "data-arm": arm.name });
        if (bandOf(point)) group.append(element("line", { class: "whisker", x1: x(Math.max(point.mean - bandOf(point), low)), x2: x(point.mean + bandOf(point)), y1: y, y2: y }));
        group.append(marker(arm.marker, x(point.mean), y, 4.5));
        onPointer(group, [element("strong", {}, String(label)), tooltipRow(arm.name, inWords(point))]);
        drawing.append(group);
      });
    });
  }
  const numbers = probe.x_kind === "number", draw = numbers ? drawLines : drawDots;
  if (numbers) readable(box, readoutId, () => plot, (value) => `${probe.x}: ${value.toLocaleString("en")}`);
  onWidth(box, draw);
}
