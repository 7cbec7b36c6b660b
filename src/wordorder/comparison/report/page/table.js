// Sorting the results table: a click, Enter or Space on a heading; empty cells always last.
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => {
      const now = heading.getAttribute("aria-sort");
      const first = heading.dataset.best || "ascending";
      const order = now === null ? first : now === "ascending" ? "descending" : "ascending";
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const rows = [...table.tBodies[0].rows].sort((one, other) => {
        const [a, b] = [one, other].map((row) => row.cells[column].dataset.value);
        if (a === "" || b === "") return (a === "") - (b === "");
        return sign * (heading.dataset.kind === "text" ? a.localeCompare(b) : Number(a) - Number(b));
      });
      table.tBodies[0].append(...rows);
      tell("sort-status", `Sorted by ${heading.textContent.trim()}, ${order}.`);
    });
  });
}
