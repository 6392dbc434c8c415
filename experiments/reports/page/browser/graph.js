// Draws the graph before and after each rewrite, and the slider that goes through them. Needs layout.js and page.js.
"use strict";

const SVG = "http://www.w3.org/2000/svg", LABEL = 19, SMALLEST = 0.05, READABLE = 0.85, LARGEST = 2;

// drawing: what `experiments.reports.page.rewrites.drawn` returns.
// sentences: one for all rewrites together, then one for each.
function showRewrites(root, drawing, sentences) {
  const slider = root.querySelector("input[type=range]"), said = root.querySelector("output");
  const panes = [...root.querySelectorAll(".pane")];
  let scale = 0, wanted = -1;

  function layoutAt(number, known) {
    const state = stateAt(drawing, number);
    return { state, ...layered(readsOf(drawing, state), known) };
  }

  function show(number) {
    const last = drawing.changes.length, before = layoutAt(number ? number - 1 : 0);
    const shown = [before, layoutAt(number || last, before.places)];
    const operators = shown.map(({ state }) => new Set(state.wiring.keys()));
    scale ||= Math.min(1, Math.max(READABLE, panes[0].clientWidth / Math.max(...shown.map(each => each.width))));
    panes.forEach((pane, i) => {
      const special = [...operators[i]].filter(operator => !operators[1 - i].has(operator));
      draw(pane, drawing, shown[i], new Set(special), i ? "made" : "gone", scale);
    });
    slider.value = number;
    slider.setAttribute("aria-valuetext", number ? `rewrite ${number} of ${last}` : "all rewrites together");
    said.textContent = sentences[number];
    document.dispatchEvent(new CustomEvent("rewrite-shown", { detail: number }));
  }

  function ask(number) {
    if (wanted < 0) requestAnimationFrame(() => { const now = wanted; wanted = -1; show(now); });
    wanted = Math.min(Math.max(number, 0), drawing.changes.length);
  }

  function zoom(factor) {
    const before = scale, widest = panes[0].querySelector("svg").viewBox.baseVal.width;
    scale = factor ? Math.min(LARGEST, Math.max(SMALLEST, scale * factor)) : panes[0].clientWidth / widest;
    for (const pane of panes) {
      const middle = [pane.scrollLeft + pane.clientWidth / 2, pane.scrollTop + pane.clientHeight / 2];
      resize(pane.querySelector("svg"), scale);
      pane.scrollTo(middle[0] * scale / before - pane.clientWidth / 2, middle[1] * scale / before - pane.clientHeight / 2);
    }
  }

  slider.addEventListener("input", () => ask(Number(slider.value)));
  document.addEventListener("rewrite-asked", event => {
    ask(event.detail);
    root.scrollIntoView({ block: "nearest" });
  });
  root.addEventListener("click", event => {
    const { go, zoom: factor } = event.target.dataset ?? {};
    if (go) ask(Number(slider.value) + Number(go));
    if (factor) zoom(Number(factor));
    const operator = event.target.closest(".operator");
    if (operator) root.querySelector(".details").textContent = operator.querySelector("title").textContent;
  });
  show(0);
}

// Returns `wiring` (Map of operator -> operands) and `outputs` after so many rewrites.
function stateAt(drawing, number) {
  const wiring = new Map(drawing.start);
  let outputs = drawing.outputs;
  for (const change of drawing.changes.slice(0, number)) {
    for (const operator of change.gone) wiring.delete(operator);
    for (const [operator, operands] of [...change.made, ...change.rewired]) wiring.set(operator, operands);
    outputs = change.outputs ?? outputs;
  }
  return { wiring, outputs };
}

// Returns Map of node -> nodes that it reads. Graph inputs are negative numbers, outputs are texts such as "output 0".
function readsOf(drawing, { wiring, outputs }) {
  const nodes = operands => operands.filter(operand => typeof operand === "number");
  const reads = new Map();
  const used = new Set([...wiring.values()].flat());
  drawing.inputs.forEach((_, i) => { if (used.has(-1 - i)) reads.set(-1 - i, []); });
  for (const [operator, operands] of wiring) reads.set(operator, nodes(operands));
  outputs.forEach(([, , operand], i) => {
    if (typeof operand === "number" && !reads.has(operand)) reads.set(operand, []);
    reads.set(`output ${i}`, nodes([operand]));
  });
  return reads;
}

function draw(pane, drawing, { state, places, edges, width, height }, special, kind, scale) {
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  svg.append(element("path", { d: edges, class: "edges" }));
  for (const [node, place] of places) svg.append(drawnNode(drawing, state, node, place, special.has(node) ? kind : ""));
  resize(svg, scale);
  pane.replaceChildren(svg);
  const found = [...special].map(node => places.get(node));
  const middle = axis => found.length ? found.reduce((sum, place) => sum + place[axis], 0) / found.length : 0;
  pane.scrollTo(middle("x") * scale - pane.clientWidth / 2, found.length ? nearestTop(found, middle("y"), pane, scale) : 0);
}

// Where the rewrite has several places far apart, the middle of them may show none: then the first one is shown.
function nearestTop(found, middle, pane, scale) {
  const half = pane.clientHeight / scale / 2;
  const inSight = found.some(place => Math.abs(place.y - middle) < half);
  return (inSight ? middle : Math.min(...found.map(place => place.y))) * scale - pane.clientHeight / 2;
}

function drawnNode(drawing, state, node, { x, y }, kind) {
  const { name, label, under, details } = wordsFor(drawing, state, node);
  const end = typeof node === "string" || node < 0;
  const group = element("g", { class: `operator ${end ? "end" : kind}`, transform: `translate(${x} ${y})` });
  const box = { x: -OPERATOR.width / 2, y: -OPERATOR.height / 2, ...OPERATOR, rx: end ? OPERATOR.height / 2 : 6 };
  group.append(element("title", {}, details), element("rect", box));
  group.append(element("text", { y: -4 }, cut(label || name)), element("text", { y: 12, class: "under" }, cut(under)));
  return group;
}

// Returns what is written on a node and about it: all of it is text of the model, which is never read as markup.
function wordsFor(drawing, { wiring, outputs }, node) {
  if (typeof node === "string" || node < 0) {
    const [name, type] = node < 0 ? drawing.inputs[-1 - node] : outputs[Number(node.split(" ")[1])];
    return { name, label: name, under: type, details: `graph ${node < 0 ? "input" : "output"} ${name}\n${type}` };
  }
  const [name, type, facts] = drawing.operators[node];
  const operands = wiring.get(node).map(operand =>
    typeof operand === "string" ? operand
      : operand < 0 ? `graph input ${drawing.inputs[-1 - operand][0]}`
        : `${drawing.operators[operand][1]} ${drawing.operators[operand][0]}`.trimEnd());
  const details = `${type} ${name}\nreads ${operands.join("; ") || "nothing"}\nmakes ${facts}`;
  return { name, label: type.split(".").at(-1), under: facts.split("\n")[0].replace(/^float /, ""), details };
}

function cut(text) {
  return text.length > LABEL ? `${text.slice(0, LABEL - 1)}…` : text;
}

function resize(svg, scale) {
  svg.setAttribute("width", svg.viewBox.baseVal.width * scale);
  svg.setAttribute("height", svg.viewBox.baseVal.height * scale);
}

function element(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
