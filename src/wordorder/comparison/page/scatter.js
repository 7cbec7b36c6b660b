// Figure 2: quality against one of the costs.
const scatterBox = document.getElementById("scatter");
const costs = [
  { key: "parameters", title: "Parameters", unit: 1 },
  { key: "flops_per_token", title: "MFLOP per token", unit: 1e6 },
  { key: "tokens_per_second", title: "Tokens per second", unit: 1 },
  { key: "peak_memory_bytes", title: "Peak memory (MiB)", unit: 2 ** 20 },
].filter((cost) => view.points.some((point) => point[cost.key] !== null));
let cost = costs[0];
const costButtons = costs.map((own) => {
  const button = element("button", { type: "button", role: "radio", "aria-checked": String(own === cost), tabindex: own === cost ? 0 : -1 }, own.title);
  button.addEventListener("click", () => chooseCost(own));
  button.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (!move) return;
    event.preventDefault();
    const next = (costs.indexOf(cost) + move + costs.length) % costs.length;
    chooseCost(costs[next]);
    costButtons[next].focus();
  });
  return button;
});
document.getElementById("scatter-costs").append(...costButtons);

function chooseCost(own) {
  cost = own;
  costButtons.forEach((button, index) => {
    button.setAttribute("aria-checked", String(costs[index] === own));
    button.tabIndex = costs[index] === own ? 0 : -1;
  });
  drawScatter();
}

// Besides its colour each arm has a shape.
function marker(index, x, y) {
  const r = 6, points = (sides, turn) => Array.from({ length: sides }, (_, i) => {
    const angle = turn + (2 * Math.PI * i) / sides;
    return `${x + r * 1.2 * Math.cos(angle)},${y + r * 1.2 * Math.sin(angle)}`;
  }).join(" ");
  if (index % 4 === 0) return element("circle", { class: "dot", cx: x, cy: y, r });
  if (index % 4 === 1) return element("rect", { class: "dot", x: x - r, y: y - r, width: 2 * r, height: 2 * r });
  return element("polygon", { class: "dot", points: index % 4 === 2 ? points(3, -Math.PI / 2) : points(4, 0) });
}

function drawScatter() {
  const width = scatterBox.clientWidth, height = width < 560 ? 320 : 380;
  const margin = { top: 26, right: 16, bottom: 46, left: 56 };
  const drawing = element("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
  scatterBox.replaceChildren(drawing);
  const heading = element("text", { x: 0, y: 13, class: "title" });
  drawing.append(heading);
  const points = cost ? view.points.filter((point) => !hidden.has(point.arm) && point[cost.key] !== null && point.quality !== null) : [];
  if (!points.length) {
    drawing.append(element("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "Nothing to draw yet."));
    return;
  }
  const xs = points.map((point) => point[cost.key] / cost.unit);
  const lows = points.map((point) => (point.range || [point.quality])[0]), highs = points.map((point) => (point.range || [0, point.quality])[1]);
  const room = (low, high, share) => { const extra = (high - low || Math.abs(high) * 0.1 || 1) * share; return [low - extra, high + extra]; };
  const ratio = Math.min(...lows) > 0 ? Math.max(...highs) / Math.min(...lows) : 1;
  const logarithmic = ratio > 4;   // one arm that learned nothing must not press the others together
  const remarks = [`${view.quality.higher_is_better ? "higher" : "lower"} is better`, ...(logarithmic ? ["log scale"] : [])];
  heading.textContent = width < 560 ? view.quality.title : `${view.quality.title} (${remarks.join("; ")})`;
  const edge = logarithmic ? ratio ** 0.06 : 1;
  const y = scale(logarithmic ? [Math.min(...lows) / edge, Math.max(...highs) * edge] : room(Math.min(...lows), Math.max(...highs), 0.1),
    [height - margin.bottom, margin.top], logarithmic, 6);
  const x = scale(room(Math.min(...xs), Math.max(...xs), 0.12), [margin.left, width - margin.right], false, width < 560 ? 3 : 7);
  for (const tick of y.ticks) drawing.append(
    element("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: y(tick), y2: y(tick) }),
    element("text", { x: margin.left - 8, y: y(tick) + 4, "text-anchor": "end" }, tickLabel(tick)));
  for (const tick of x.ticks) drawing.append(
    element("line", { class: "grid", x1: x(tick), x2: x(tick), y1: margin.top, y2: height - margin.bottom }),
    element("text", { x: x(tick), y: height - margin.bottom + 18, "text-anchor": "middle" }, tickLabel(tick)));
  drawing.append(
    element("line", { class: "axis", x1: margin.left, x2: width - margin.right, y1: height - margin.bottom, y2: height - margin.bottom }),
    element("text", { x: (margin.left + width - margin.right) / 2, y: height - 6, "text-anchor": "middle", class: "title" }, cost.title));
  const taken = points.map((point) => { const px = x(point[cost.key] / cost.unit), py = y(point.quality); return [px - 9, py - 9, px + 9, py + 9]; });
  for (const point of points) {
    const arm = armOf.get(point.arm), px = x(point[cost.key] / cost.unit), py = y(point.quality);
    const group = element("g", { class: `c${arm.colour}`, "data-arm": point.arm });
    if (point.range) group.append(element("line", { class: "whisker", x1: px, x2: px, y1: y(point.range[0]), y2: y(point.range[1]) }));
    group.append(marker(view.arms.indexOf(arm), px, py));
    group.addEventListener("pointermove", (event) => showTooltip(event, [element("strong", {}, point.arm),
      element("div", {}, element("span", {}, view.quality.title), element("span", {}, number(point.quality))),
      element("div", {}, element("span", {}, cost.title), element("span", {}, number(point[cost.key] / cost.unit, 5)))]));
    group.addEventListener("pointerleave", hideTooltip);
    drawing.append(group);
    drawing.append(nameBeside(point.arm, arm.colour, px, py, taken, width, height - margin.bottom));
  }
}

// The first of eight places around a point where its name covers no point and no other name.
function nameBeside(name, colour, px, py, taken, width, bottom) {
  const long = 7.2 * name.length;
  const places = [[12, 4], [-12 - long, 4], [-long / 2, -13], [-long / 2, 22], [10, -10], [10, 19], [-10 - long, -10], [-10 - long, 19], [12, -24], [12, 33], [-12 - long, -24], [-12 - long, 33]];
  const boxes = places.map(([dx, dy]) => [px + dx, py + dy - 11, px + dx + long, py + dy + 3]);
  const free = (box) => box[0] >= 2 && box[2] <= width - 2 && box[1] >= 16 && box[3] <= bottom
    && taken.every((other) => box[2] < other[0] || box[0] > other[2] || box[3] < other[1] || box[1] > other[3]);
  const chosen = boxes.find(free) || boxes[0];
  taken.push(chosen);
  return element("text", { class: `name c${colour}`, x: chosen[0], y: chosen[3] - 3 }, name);
}
onWidth(scatterBox, drawScatter);
