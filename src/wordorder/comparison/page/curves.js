// Figure 1: learning curves with a band over seeds or folds, and a read-out by pointer or arrow keys.
const curvesBox = document.getElementById("curves");
if (curvesBox) {
  const logY = document.getElementById("log-y"), logX = document.getElementById("log-x");
  logY.checked = view.log_curves;
  logY.addEventListener("change", drawCurves);
  logX.addEventListener("change", drawCurves);
  let plot = null, cursor = null;

  function shownCurves() {
    return view.arms.filter((arm) => view.curves[arm.name] && !hidden.has(arm.name))
      .map((arm) => ({ arm, points: view.curves[arm.name].filter((point) => point.mean !== null && !(logX.checked && point.step <= 0)) }))
      .filter((own) => own.points.length);
  }
  const spread = (point) => (point.n >= 3 && point.std !== null ? point.std : 0);

  function drawCurves() {
    const width = curvesBox.clientWidth, height = width < 560 ? 300 : 420, named = width >= 640;
    const longest = Math.max(...view.arms.map((arm) => arm.name.length));
    const margin = { top: 26, right: named ? Math.min(160, 20 + 7.5 * longest) : 20, bottom: 44, left: 52 };
    const curves = shownCurves();
    const drawing = element("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
    curvesBox.replaceChildren(drawing);
    plot = null;
    drawing.append(element("text", { x: 0, y: 13, class: "title" }, view.curve_label));
    if (!curves.length) {
      drawing.append(element("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "No arm is shown."));
      return;
    }
    const all = curves.flatMap((own) => own.points);
    const floor = Math.min(...all.map((point) => point.mean)) * 0.5;
    let low = Math.min(...all.map((point) => Math.max(point.mean - spread(point), logY.checked ? floor : -Infinity)));
    let high = Math.max(...all.map((point) => point.mean + spread(point)));
    if (logY.checked && low > 0) { const room = (high / low) ** 0.04; low /= room; high *= room; }
    else { const room = (high - low || 1) * 0.05; low -= room; high += room; }
    const steps = all.map((point) => point.step);
    const x = scale([Math.min(...steps), Math.max(...steps)], [margin.left, width - margin.right], logX.checked, width < 560 ? 4 : 8);
    const y = scale([low, high], [height - margin.bottom, margin.top], logY.checked && low > 0, 6);
    for (const tick of y.ticks) drawing.append(
      element("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: y(tick), y2: y(tick) }),
      element("text", { x: margin.left - 8, y: y(tick) + 4, "text-anchor": "end" }, tickLabel(tick)));
    for (const tick of x.ticks) drawing.append(
      element("line", { class: "axis", x1: x(tick), x2: x(tick), y1: height - margin.bottom, y2: height - margin.bottom + 5 }),
      element("text", { x: x(tick), y: height - margin.bottom + 19, "text-anchor": "middle" }, tickLabel(tick)));
    drawing.append(
      element("line", { class: "axis", x1: margin.left, x2: width - margin.right, y1: height - margin.bottom, y2: height - margin.bottom }),
      element("text", { x: (margin.left + width - margin.right) / 2, y: height - 5, "text-anchor": "middle", class: "title" }, "Training step"));
    const names = [];
    for (const { arm, points } of curves) {
      const line = points.map((point, index) => `${index ? "L" : "M"}${x(point.step)} ${y(point.mean)}`).join("");
      const group = element("g", { class: `c${arm.colour}`, "data-arm": arm.name });
      if (points.some(spread)) {
        const bottom = (point) => y(Math.max(point.mean - spread(point), low));
        const upper = points.map((point, index) => `${index ? "L" : "M"}${x(point.step)} ${y(point.mean + spread(point))}`).join("");
        const lower = [...points].reverse().map((point) => `L${x(point.step)} ${bottom(point)}`).join("");
        group.append(element("path", { class: "band", d: `${upper}${lower}Z` }));
      }
      group.append(element("path", { class: "series", d: line, "stroke-dasharray": dashes[arm.dash] }));
      drawing.append(group);
      const last = points[points.length - 1];
      names.push({ arm, at: y(last.mean), x: x(last.step) + 8 });
    }
    if (named) for (const name of spreadOut(names, 15, margin.top, height - margin.bottom))
      drawing.append(element("text", { class: `name c${name.arm.colour}`, x: name.x, y: name.at + 4 }, name.arm.name));
    const line = element("line", { class: "cursor", y1: margin.top, y2: height - margin.bottom, visibility: "hidden" });
    drawing.append(line);
    plot = { x, line, steps: [...new Set(steps)].sort((a, b) => a - b), curves };
  }

  function readOut(step, event) {
    const rows = plot.curves.map((own) => ({ arm: own.arm.name, point: own.points.find((point) => point.step === step) }))
      .filter((row) => row.point).sort((one, other) => one.point.mean - other.point.mean);
    plot.line.setAttribute("x1", plot.x(step));
    plot.line.setAttribute("x2", plot.x(step));
    plot.line.setAttribute("visibility", "visible");
    const text = (point) => number(point.mean) + (spread(point) ? ` ± ${number(spread(point), 2)}` : "");
    const at = event || { pageX: curvesBox.getBoundingClientRect().left + window.scrollX + plot.x(step), pageY: curvesBox.getBoundingClientRect().top + window.scrollY + 30 };
    showTooltip(at, [element("strong", {}, `Step ${step.toLocaleString("en")}`), ...rows.map((row) => tooltipRow(row.arm, text(row.point)))]);
    if (!event) document.getElementById("curves-readout").textContent = `Step ${step}: ` + rows.map((row) => `${row.arm} ${text(row.point)}`).join(", ");
  }
  function leave() { if (plot) plot.line.setAttribute("visibility", "hidden"); hideTooltip(); cursor = null; }

  curvesBox.addEventListener("pointermove", (event) => {
    if (!plot) return;
    const at = event.clientX - curvesBox.getBoundingClientRect().left;
    const near = plot.steps.reduce((best, step) => (Math.abs(plot.x(step) - at) < Math.abs(plot.x(best) - at) ? step : best));
    cursor = plot.steps.indexOf(near);
    readOut(near, event);
  });
  curvesBox.addEventListener("pointerleave", leave);
  curvesBox.addEventListener("blur", leave);
  curvesBox.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
    if (event.key === "Escape") leave();
    if (!move || !plot) return;
    event.preventDefault();
    const from = cursor === null ? (move > 0 ? -1 : plot.steps.length) : cursor;
    cursor = Math.min(plot.steps.length - 1, Math.max(0, from + move));
    readOut(plot.steps[cursor], null);
  });
  onWidth(curvesBox, drawCurves);
}
