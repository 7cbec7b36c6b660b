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
    if (named) nameEnds(canvas, margin, series.map(({ arm, points }) => { const last = points[points.length - 1]; return { arm, at: y(last.mean), x: x(last.x) }; }), right);
    const line = element("line", { class: "cursor", y1: margin.top, y2: height - margin.bottom, visibility: "hidden" });
    drawing.append(line);
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
        group.addEventListener("pointermove", (event) => showTooltip(event, [element("strong", {}, String(label)),
          tooltipRow(arm.name, number(point.mean) + (bandOf(point) ? ` ± ${number(bandOf(point), 2)}` : ""))]));
        group.addEventListener("pointerleave", hideTooltip);
        drawing.append(group);
      });
    });
  }
  const numbers = probe.x_kind === "number", draw = numbers ? drawLines : drawDots;
  if (numbers) readable(box, readoutId, () => plot, (value) => `${probe.x}: ${value.toLocaleString("en")}`);
  onWidth(box, draw);
}
