// Which models are shown: one bar of buttons for the whole page.
const hidden = new Set();
const shown = (name) => !hidden.has(name);
const shownArms = () => view.arms.filter((arm) => shown(arm.name));

// The signs that the page's tables have room for.
for (const box of document.querySelectorAll("svg[data-sign]")) {
  const [index, dash] = [Number(box.dataset.sign), dashes[Number(box.dataset.dash)]];
  box.append(element("line", { x1: 1, x2: 23, y1: 7, y2: 7, stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": dash }), marker(index, 12, 7, 4.6));
}

const legends = [...document.querySelectorAll(".legend")];
for (const legend of legends) {
  for (const arm of view.arms) {
    const button = element("button", { type: "button", "aria-pressed": "true", "data-arm": arm.name }, glyph(arm), element("span", {}, arm.name));
    button.addEventListener("click", () => { hidden.has(arm.name) ? hidden.delete(arm.name) : hidden.add(arm.name); showArms(); });
    legend.append(button);
  }
  const all = element("button", { type: "button", class: "all", hidden: "" }, "Show all");
  all.addEventListener("click", () => {
    hidden.clear();
    showArms();
    legend.querySelector("button").focus();   // this button is hidden now, and the focus must not be lost
  });
  legend.append(all);
}

function showArms() {
  const count = shownArms().length, all = view.arms.length;
  for (const button of document.querySelectorAll(".legend button[data-arm]")) {
    button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.arm)));
  }
  for (const button of document.querySelectorAll(".legend .all")) button.hidden = count === all;
  for (const part of document.querySelectorAll("tr[data-arm], figure[data-arm], .matrix [data-arm]"))
    part.hidden = !shown(part.dataset.arm) || (part.dataset.against !== undefined && !shown(part.dataset.against));
  for (const note of document.querySelectorAll(".none-shown")) note.hidden = count > 0;
  tell("arms-status", count === all ? "" : `${count} of ${all} models shown`);
  drawAll();
}

// Columns beyond the first few are shown on demand; a page without scripts has them all.
const moreColumns = document.getElementById("more-columns"), resultsTable = document.getElementById("results-table");
const showColumns = () => resultsTable.classList.toggle("few", !moreColumns.checked);
moreColumns.closest(".controls").hidden = !resultsTable.querySelector(".more");
moreColumns.addEventListener("change", showColumns);
showColumns();

// On paper nothing can be unfolded, and how the differences were tested belongs to the result.
addEventListener("beforeprint", () => { for (const part of document.querySelectorAll("details.method, details.caption")) part.open = true; });
