// Shared by the figures: the data, small drawing functions, and which models are shown.
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
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
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
  const star = (sides, turn, inner) => Array.from({ length: inner ? 2 * sides : sides }, (_, i) => {
    const angle = turn + (2 * Math.PI * i) / (inner ? 2 * sides : sides), radius = r * (inner && i % 2 ? inner : 1.25);
    return `${(x + radius * Math.cos(angle)).toFixed(2)},${(y + radius * Math.sin(angle)).toFixed(2)}`;
  }).join(" ");
  const up = -Math.PI / 2;
  const polygon = (points) => element("polygon", { class: "dot", points });
  return [
    () => element("circle", { class: "dot", cx: x, cy: y, r }),
    () => element("rect", { class: "dot", x: x - r * 0.9, y: y - r * 0.9, width: 1.8 * r, height: 1.8 * r }),
    () => polygon(star(3, up)),
    () => polygon(star(4, 0)),
    () => polygon(star(3, -up)),
    () => polygon(star(5, up, 0.55)),
    () => polygon(star(4, up, 0.5)),
    () => polygon(star(4, up / 2, 0.5)),
  ][index % 8]();
}

// An arm's sign where there is no figure: a piece of its line with its marker.
function glyph(arm) {
  return element("svg", { width: 24, height: 14, viewBox: "0 0 24 14", "aria-hidden": "true", class: `glyph c${arm.colour}` },
    element("line", { x1: 1, x2: 23, y1: 7, y2: 7, stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": dashes[arm.dash] }),
    marker(arm.marker, 12, 7, 4.6));
}

function drawAll() { for (const draw of redraw) draw(); }

// Figures say in words what a pointer or the arrow keys are at.
function tell(id, text) { document.getElementById(id).textContent = text; }

// Buttons of which one is chosen: arrow keys move, as in every group of radio buttons.
function choice(box, options, choose) {
  const buttons = options.map((text, index) => {
    const button = element("button", { type: "button", role: "radio", "aria-checked": String(index === 0), tabindex: index === 0 ? 0 : -1 }, text);
    button.addEventListener("click", () => take(index));
    button.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
      if (!move) return;
      event.preventDefault();
      const next = (index + move + options.length) % options.length;
      take(next);
      buttons[next].focus();
    });
    return button;
  });
  function take(chosen) {
    buttons.forEach((button, index) => {
      button.setAttribute("aria-checked", String(index === chosen));
      button.tabIndex = index === chosen ? 0 : -1;
    });
    choose(chosen);
  }
  box.append(...buttons);
}

// Figures are drawn at their true width, so that letters keep their size on a phone.
function onWidth(node, draw) {
  redraw.push(draw);
  let last = 0;
  new ResizeObserver(() => {
    if (Math.abs(node.clientWidth - last) > 0.5) { last = node.clientWidth; draw(); }
  }).observe(node);
}
