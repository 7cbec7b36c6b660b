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
    if (named) nameEnds(canvas, margin, series.map(({ arm, points }) => { const last = points[points.length - 1]; return { arm, at: y(last.mean), x: x(last.x) }; }), right);
    const line = element("line", { class: "cursor", y1: margin.top, y2: height - margin.bottom, visibility: "hidden" });
    drawing.append(line);
    plot = { x, line, values: [...new Set(steps)].sort((a, b) => a - b), series };
  }
  readable(curvesBox, "curves-readout", () => plot, (step) => `Step ${step.toLocaleString("en")}`);
  onWidth(curvesBox, drawCurves);
}
