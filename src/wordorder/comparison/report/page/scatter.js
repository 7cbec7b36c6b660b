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
    group.addEventListener("pointermove", (event) => showTooltip(event, [element("strong", {}, point.name),
      element("div", {}, element("span", {}, view.quality.title), element("span", {}, number(point.quality))),
      element("div", {}, element("span", {}, cost.title), element("span", {}, number(point.cost, 5)))]));
    group.addEventListener("pointerleave", hideTooltip);
    drawing.append(group);
  }
  const ticks = [...drawing.querySelectorAll("text")].map(boxOf);
  const free = { taken: [...ticks, ...places.map(([px, py]) => [px - 9, py - 9, px + 9, py + 9])], places, width, bottom: height - margin.bottom };
  points.forEach((point, index) => nameBeside(drawing, point.name, ...places[index], free));
}

// The room that a text takes with the font that the browser has chosen.
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
