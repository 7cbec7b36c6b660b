// Differences: one line per comparison with its interval, as a change of the metric; of perplexities in percent.
const forestBox = document.getElementById("forest");
if (forestBox) {
  const reference = view.differences.reference, percent = view.differences.percent;

  // Ticks in round percents on a scale of logarithms, as many as there is room for: the coarsest first.
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
      group.addEventListener("pointermove", (event) => showTooltip(event, [element("strong", {}, `${row.arm} against ${reference}`),
        element("div", {}, element("span", {}, row.short))]));
      group.addEventListener("pointerleave", hideTooltip);
      drawing.append(group);
    });
  }
  onWidth(forestBox, drawForest);
}
