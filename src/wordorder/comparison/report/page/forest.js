// Who differs from whom: one line per comparison, its difference with its interval.
const forestBox = document.getElementById("forest");
if (forestBox) {
  let reference = view.differences.references[0];
  if (view.differences.references.length > 1)
    choice(document.getElementById("forest-references"), view.differences.references, (index) => { reference = view.differences.references[index]; drawForest(); });
  // Beside the line of no difference; where there is no room on one side, both stand on the other.
  function sides(zero, width) {
    if (zero + 72 > width) return [[width - 6, "end", "← worse · better →"]];
    return zero < 72 ? [[6, "start", "← worse · better →"]] : [[zero - 8, "end", "← worse"], [zero + 8, "start", "better →"]];
  }

  function drawForest() {
    const rows = view.differences.rows[reference].filter((row) => shown(row.arm));
    const narrow = forestBox.clientWidth < 640, step = narrow ? 46 : 32;
    const longest = Math.max(0, ...rows.map((row) => row.arm.length)), words = Math.max(0, ...rows.map((row) => row.words.length));
    const margin = narrow ? { top: 34, right: 14, bottom: 62, left: 14 }
      : { top: 34, right: Math.min(250, 24 + 7 * words), bottom: 50, left: Math.min(0.35 * forestBox.clientWidth, 44 + 7.2 * longest) };
    const canvas = canvasOf(forestBox, margin.top + margin.bottom + step * Math.max(1, rows.length));
    const { drawing, width, height } = canvas;
    const known = rows.filter((row) => row.difference !== null);
    if (!known.length) return sayNothing(canvas, rows.length ? "No difference could be computed." : "No arm is shown.");
    const ends = known.flatMap((row) => [row.difference, row.low ?? row.difference, row.high ?? row.difference, 0]);
    const x = scale(withRoom(Math.min(...ends), Math.max(...ends), 0.06), [margin.left, width - margin.right], false, narrow ? 4 : 7);
    drawAxes(canvas, margin, x, null, `${view.differences.title} from ${reference}`, { grid: true });
    drawing.append(element("line", { class: "zero", x1: x(0), x2: x(0), y1: margin.top - 8, y2: height - margin.bottom }),
      ...sides(x(0), width).map(([at, anchor, text]) => element("text", { x: at, y: margin.top - 14, "text-anchor": anchor }, text)));
    rows.forEach((row, index) => {
      const arm = armOf.get(row.arm), y = margin.top + step * (index + 0.5) + (narrow ? 9 : 0);
      const group = element("g", { class: `c${arm.colour} ${["better", "worse"].includes(row.outcome) ? "claim" : "open"}`, "data-arm": row.arm });
      const nameAt = narrow ? { x: 0, y: y - 14 } : { x: 22, y: y + 4 };
      group.append(element("text", { class: "name", ...nameAt }, row.arm),
        element("text", narrow ? { class: "halo", x: width, y: y - 14, "text-anchor": "end" } : { x: width - margin.right + 14, y: y + 4 }, row.words));
      if (!narrow) group.append(marker(arm.marker, 8, y, 5));
      if (row.difference !== null) {
        if (row.low !== null && row.high !== null) group.append(
          element("path", { class: "whisker", d: `M${x(row.low)} ${y}H${x(row.high)}M${x(row.low)} ${y - 4}v8M${x(row.high)} ${y - 4}v8` }));
        group.append(marker(arm.marker, x(row.difference), y, 5.5));
      }
      group.addEventListener("pointermove", (event) => showTooltip(event, [element("strong", {}, `${row.arm} against ${reference}`),
        element("div", {}, element("span", {}, row.short)), row.percent ? element("div", {}, element("span", {}, row.percent)) : null].filter(Boolean)));
      group.addEventListener("pointerleave", hideTooltip);
      drawing.append(group);
    });
  }
  onWidth(forestBox, drawForest);
}
