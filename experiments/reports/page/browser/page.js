// Makes tables sort and filter, and draws the charts in the colours of the page.
"use strict";

const stored = id => JSON.parse(document.getElementById(id)?.textContent ?? "null");

for (const table of document.querySelectorAll("table.sorts")) {
  table.tHead.addEventListener("click", event => {
    const heading = event.target.closest("th");
    if (heading) sortBy(table, heading);
  });
}
for (const box of document.querySelectorAll("input[type=search]")) {
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of document.getElementById(box.dataset.table).tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every(word => text.includes(word));
    }
  });
}
for (const button of document.querySelectorAll("[data-rewrite]")) {
  button.addEventListener("click", () => {
    document.dispatchEvent(new CustomEvent("rewrite-asked", { detail: Number(button.dataset.rewrite) }));
  });
}

// Sorts rows by one column: numbers before texts, cells without a value last, in either direction.
function sortBy(table, heading) {
  const column = heading.cellIndex, descending = heading.getAttribute("aria-sort") === "ascending";
  const value = row => {
    const cell = row.cells[column], text = cell.dataset.value ?? cell.textContent.trim();
    const number = text === "" ? NaN : Number(text);
    return Number.isNaN(number) ? text : number;
  };
  const isMissing = each => each === "" || each === "–";
  const compare = (a, b) => {
    if (isMissing(a) || isMissing(b)) return isMissing(a) - isMissing(b);
    const kinds = (typeof a === "string") - (typeof b === "string");
    const order = kinds || (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
    return descending ? -order : order;
  };
  const rows = [...table.tBodies[0].rows].map(row => ({ row, key: value(row) }));
  table.tBodies[0].append(...rows.sort((a, b) => compare(a.key, b.key)).map(each => each.row));
  for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
}

// Colours come from the style sheet, so that charts follow the light or dark mode of the reader.
function chartConfig() {
  const style = getComputedStyle(document.documentElement), colour = name => style.getPropertyValue(`--${name}`).trim();
  const axis = { labelColor: colour("ink"), titleColor: colour("ink"), gridColor: colour("line"), domainColor: colour("faint") };
  const category = [..."12345678"].map(number => colour(`series-${number}`));
  return {
    background: "transparent",
    font: getComputedStyle(document.body).fontFamily,
    view: { stroke: null },
    axis: { ...axis, tickColor: colour("faint"), titleFontWeight: "normal", labelFontSize: 12, titleFontSize: 12, labelLimit: 320 },
    legend: { labelFontSize: 12, symbolType: "circle", labelColor: colour("ink"), titleColor: colour("ink"), orient: "bottom", columns: 3, labelLimit: 320 },
    title: { color: colour("ink") },
    mark: { color: category[0] },
    range: { category },
    rule: { color: colour("faint") },
  };
}

let views = [], drawing = Promise.resolve();

async function drawCharts(charts) {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  for (const view of views) view.finalize();
  const options = { mode: "vega-lite", actions: false, renderer: "svg", config: chartConfig(), tooltip: { theme: dark ? "dark" : "light" } };
  const places = [...document.querySelectorAll("[data-chart]")];
  const drawn = await Promise.all(places.map(place => vegaEmbed(place, charts[place.dataset.chart], options)));
  views = drawn.map(each => each.view);
  for (const view of views) {
    view.addEventListener("click", (_, item) => {
      const rewrite = item?.datum?.rewrite;
      if (rewrite !== undefined) document.dispatchEvent(new CustomEvent("rewrite-asked", { detail: rewrite }));
    });
  }
}

const charts = stored("charts");
if (charts) {
  const draw = () => { drawing = drawing.then(() => drawCharts(charts)); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  document.addEventListener("rewrite-shown", async event => {
    await drawing;
    for (const view of views)
      if (view.getState().signals.position !== undefined) view.signal("position", event.detail).run();
  });
  draw();
}
const rewrites = stored("rewrites");
if (rewrites) showRewrites(document.querySelector(".rewrites"), rewrites.drawing, rewrites.sentences);
