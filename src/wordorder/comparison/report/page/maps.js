// Figures 3 on: position-correlation maps, one canvas per head and part, on a palette centred on zero.
const centered = document.getElementById("center-rows"), oneScale = document.getElementById("one-scale");
const partTitles = { absolute: "Absolute part", relative: "Relative part", sum: "Sum" };

function paletteColour(share) {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).split(",").map(Number);
  const [low, mid, high] = [read("--low"), read("--mid"), read("--high")];
  return (value) => {
    const end = value < 0 ? low : high, amount = Math.min(1, Math.abs(value)) ** 0.85;
    return mid.map((channel, index) => Math.round(channel + (end[index] - channel) * amount));
  };
}

// Row and column 0 belong to [CLS]; with rows centred, their own mean is not mixed into the others.
function prepared(values) {
  if (!centered.checked) return values;
  return values.map((row) => {
    const inner = row.slice(1), mean = inner.reduce((sum, value) => sum + value, 0) / (inner.length || 1);
    return row.map((value) => value - mean);
  });
}
function largest(values) {
  let found = 0;
  for (let i = 1; i < values.length; i++) for (let j = 1; j < values.length; j++) found = Math.max(found, Math.abs(values[i][j]));
  return found || 1;
}

function drawMaps(figure) {
  const arm = figure.dataset.arm, parts = view.correlations[arm], colour = paletteColour();
  const maps = Object.entries(parts).filter(([part]) => part !== "sum" || parts.relative).map(([part, heads]) => ({ part, heads: heads.map(prepared) }));
  // A row of maps, one part over all heads, has a scale of its own: the absolute part would leave the relative one grey.
  const limits = maps.map(({ heads }) => Math.max(...heads.map(largest))), shared = Math.max(...limits);
  const title = (part) => (part === "absolute" && !parts.relative ? "Absolute part, which is the sum" : partTitles[part] || part);
  const grid = figure.querySelector(".map-grid"), readout = figure.querySelector(".readout");
  grid.replaceChildren(...maps.map(({ part, heads }, place) => {
    const limit = oneScale.checked ? shared : limits[place];
    const row = element("div", { class: heads.length <= 4 ? "map-row few" : "map-row" }, ...heads.map((values, head) => {
      const size = values.length;
      const canvas = element("canvas", { width: size, height: size, role: "img",
        "aria-label": `${arm}, ${partTitles[part] || part}, head ${head + 1}: ${size} by ${size} positions, values within ${number(limit, 3)} of zero` });
      const context = canvas.getContext("2d"), image = context.createImageData(size, size);
      values.forEach((line, i) => line.forEach((value, j) => image.data.set([...colour(value / limit), 255], 4 * (i * size + j))));
      context.putImageData(image, 0, 0);
      canvas.addEventListener("pointermove", (event) => {
        const box = canvas.getBoundingClientRect();
        const at = (offset, length) => Math.min(size - 1, Math.max(0, Math.floor((offset / length) * size)));
        const j = at(event.clientX - box.left, box.width), i = at(event.clientY - box.top, box.height);
        const numbers = maps.map((own) => `${own.part} ${number(own.heads[head][i][j], 3)}`).join(", ");
        readout.textContent = `Head ${head + 1}, query ${i}, key ${j} (distance ${j - i}): ${numbers}`;
      });
      const axis = (words, ...classes) => element("div", { class: classes.join(" ") }, element("span", {}, "0"), element("span", {}, words), element("span", {}, String(size - 1)));
      return element("div", { class: "map-cell" }, axis("query →", "map-axis", "map-query"), canvas, axis("key →", "map-axis"), element("span", {}, `head ${head + 1}`));
    }));
    return element("div", { class: "map-part" }, element("h4", {}, `${title(part)} · ±${number(limit, 2)}`), row);
  }));
  drawMapLegend(figure.querySelector(".map-legend"), colour, shared);
}

function drawMapLegend(box, colour, limit) {
  const bar = element("canvas", { width: 129, height: 1, role: "img", "aria-label": "Colour scale from negative over zero to positive" });
  const context = bar.getContext("2d"), image = context.createImageData(129, 1);
  for (let i = 0; i < 129; i++) image.data.set([...colour(i / 64 - 1), 255], 4 * i);
  context.putImageData(image, 0, 0);
  const ends = oneScale.checked ? [`−${number(limit, 3)}`, `+${number(limit, 3)}`] : ["− the row's largest", "+ the row's largest"];
  box.replaceChildren(element("span", {}, ends[0]), bar, element("span", {}, ends[1]), element("span", {}, "added to the attention score: red draws attention, blue repels it"));
}

const mapFigures = [...document.querySelectorAll("figure.maps")];
if (mapFigures.length) {
  const draw = () => mapFigures.forEach(drawMaps);
  centered.addEventListener("change", draw);
  oneScale.addEventListener("change", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}
