// Shared by the figures: the data, small drawing functions, and which arms are shown.
const view = JSON.parse(document.getElementById("view-json").textContent);
const armOf = new Map(view.arms.map((arm) => [arm.name, arm]));
const hidden = new Set();
const redraw = [];
const dashes = ["", "7 4", "2 4"];

function element(tag, attributes = {}, ...children) {
  const inSvg = ["svg", "g", "path", "line", "text", "circle", "rect", "title", "polygon"].includes(tag);
  const node = inSvg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null));   // strings become text, never markup
  return node;
}

function number(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const places = value === 0 ? 0 : Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))));
  return value.toLocaleString("en", { minimumFractionDigits: Math.min(places, 8), maximumFractionDigits: Math.min(places, 8) });
}

function tickLabel(value) {
  const size = Math.abs(value);
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
  place.ticks = logarithmic ? logTicks(low, high, count) : linearTicks(low, high, count);
  return place;
}

function linearTicks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-9; tick += step) ticks.push(+tick.toPrecision(12));
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
  return element("div", {}, element("span", { class: `c${armOf.get(arm).colour}` }, "●"), element("span", {}, arm), element("span", {}, text));
}

function drawAll() { for (const draw of redraw) draw(); }

// Figures are drawn at their true width, so that letters keep their size on a phone.
function onWidth(node, draw) {
  redraw.push(draw);
  let last = 0;
  new ResizeObserver(() => {
    if (Math.abs(node.clientWidth - last) > 0.5) { last = node.clientWidth; draw(); }
  }).observe(node);
}

const legend = document.querySelector(".legend");
if (legend)
  for (const arm of view.arms.filter((own) => view.curves[own.name])) {
    const line = element("svg", { width: 22, height: 10, "aria-hidden": "true", class: `c${arm.colour}` },
      element("line", { x1: 1, x2: 21, y1: 5, y2: 5, stroke: "currentColor", "stroke-width": 2.5, "stroke-dasharray": dashes[arm.dash] }));
    const button = element("button", { type: "button", "aria-pressed": "true", "data-arm": arm.name }, line, arm.name);
    button.addEventListener("click", () => {
      hidden.has(arm.name) ? hidden.delete(arm.name) : hidden.add(arm.name);
      button.setAttribute("aria-pressed", String(!hidden.has(arm.name)));
      drawAll();
    });
    legend.append(button);
  }

// A Blob rather than a data: address, because browsers cut long ones off and the maps make this file long.
const download = document.getElementById("download-json");
download.href = URL.createObjectURL(new Blob([document.getElementById("results-json").textContent], { type: "application/json" }));
