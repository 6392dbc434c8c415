// Places the operators of a graph in layers, from its inputs at the top to its outputs at the bottom.
// The steps are those of Sugiyama, Tagawa and Toda (1981): layers, places for long edges, order, coordinates.
"use strict";

const OPERATOR = { width: 150, height: 40 }, GAP = { across: 22, down: 34 }, EDGE_WIDTH = 8;
const ORDER_SWEEPS = 8, COORDINATE_SWEEPS = 12;

// reads: Map of node -> array of the nodes that it reads. Returns `places` (Map of node -> {x, y}, its centre), `edges`
// (the data of one SVG path), `width` and `height`. known: places of another graph, whose order is kept where it can be.
function layered(reads, known = new Map()) {
  const rows = withLongEdges(reads, layersOf(reads));
  order(rows, known);
  const width = placeAcross(rows);
  const places = new Map();
  rows.forEach((row, layer) => row.forEach(item => {
    item.y = GAP.down / 2 + OPERATOR.height / 2 + layer * (OPERATOR.height + GAP.down);
    if (item.node !== undefined) places.set(item.node, { x: item.x, y: item.y });
  }));
  const edges = rows.flat().flatMap(item => item.down.map(below => edge(item, below)));
  return { places, edges: edges.join(""), width, height: rows.length * (OPERATOR.height + GAP.down) };
}

// The layer of a node is the length of the longest path to it. What reads nothing stands just above its first reader.
function layersOf(reads) {
  const readers = new Map([...reads.keys()].map(node => [node, []]));
  const waiting = new Map(), ready = [], layers = new Map();
  for (const [node, sources] of reads) {
    const distinct = new Set(sources);
    for (const source of distinct) readers.get(source).push(node);
    waiting.set(node, distinct.size);
    if (!distinct.size) ready.push(node), layers.set(node, 0);
  }
  for (const node of ready)  // grows while it is walked through
    for (const reader of readers.get(node)) {
      layers.set(reader, Math.max(layers.get(reader) ?? 0, layers.get(node) + 1));
      waiting.set(reader, waiting.get(reader) - 1);
      if (!waiting.get(reader)) ready.push(reader);
    }
  for (const [node, sources] of reads) {
    const below = readers.get(node).map(reader => layers.get(reader));
    if (!sources.length && below.length) layers.set(node, Math.min(...below) - 1);
  }
  const used = [...new Set(layers.values())].sort((a, b) => a - b);
  const numbers = new Map(used.map((layer, number) => [layer, number]));
  return new Map([...layers].map(([node, layer]) => [node, numbers.get(layer)]));
}

// Returns rows of items. An edge over several layers passes through one item in each; all readers of a node share them.
function withLongEdges(reads, layers) {
  const rows = Array.from({ length: Math.max(...layers.values(), 0) + 1 }, () => []);
  const put = (layer, node, source = node) => {
    const item = { node, source, layer, up: [], down: [], x: 0, width: node === undefined ? EDGE_WIDTH : OPERATOR.width };
    rows[layer].push(item);
    return item;
  };
  const items = new Map([...reads.keys()].map(node => [node, put(layers.get(node), node)]));
  const join = (above, below) => { above.down.push(below); below.up.push(above); };
  const chains = new Map([...items].map(([node, item]) => [node, [item]]));
  for (const [node, sources] of reads)
    for (const source of new Set(sources)) {
      const chain = chains.get(source), item = items.get(node);
      for (let last = chain.at(-1); last.layer < item.layer - 1; last = chain.at(-1)) {
        chain.push(put(last.layer + 1, undefined, source));
        join(last, chain.at(-1));
      }
      join(chain[item.layer - 1 - chain[0].layer], item);
    }
  return rows;
}

// Sorts each row by the mean place of the neighbours in the row above, then below, and so on, to have fewer crossings.
function order(rows, known) {
  for (const row of rows) {
    for (const item of row)  // what is new begins where the operators are that it reads
      item.guess = known.get(item.source)?.x ?? (item.up.length ? mean(item.up, "guess") : Infinity);
    row.sort((a, b) => a.guess === b.guess ? 0 : a.guess - b.guess).forEach((item, place) => { item.place = place; });
  }
  for (let sweep = 0; sweep < ORDER_SWEEPS; sweep++) {
    const side = sweep % 2 ? "down" : "up";
    for (const row of sweep % 2 ? rows.toReversed() : rows) {
      for (const item of row) item.wish = item[side].length ? mean(item[side], "place") : item.place;
      row.sort((a, b) => a.wish - b.wish).forEach((item, place) => { item.place = place; });
    }
  }
}

// Places each row as near as possible, in least squares, to the neighbours above or below; returns the width of all.
function placeAcross(rows) {
  for (const row of rows) placeRow(row, row.map(item => (item.place - (row.length - 1) / 2) * OPERATOR.width));
  for (let sweep = 0; sweep < COORDINATE_SWEEPS; sweep++) {
    const sides = sweep >= COORDINATE_SWEEPS - 2 ? ["up", "down"] : [sweep % 2 ? "down" : "up"];
    for (const row of sweep % 2 ? rows.toReversed() : rows)
      placeRow(row, row.map(item => {
        const neighbours = sides.flatMap(side => item[side]);
        return neighbours.length ? mean(neighbours, "x") : item.x;
      }));
  }
  const all = rows.flat(), left = Math.min(...all.map(item => item.x - item.width / 2)) - GAP.across;
  for (const item of all) item.x -= left;
  return Math.max(...all.map(item => item.x + item.width / 2)) + GAP.across;
}

// Isotonic regression by pooling adjacent violators: items keep their order and their distances.
function placeRow(row, wishes) {
  const pools = [];
  let offset = 0;
  row.forEach((item, i) => {
    offset += i ? (row[i - 1].width + item.width) / 2 + GAP.across : 0;
    item.offset = offset;
    let pool = { sum: wishes[i] - offset, count: 1 };
    while (pools.length && pools.at(-1).sum / pools.at(-1).count > pool.sum / pool.count) {
      const before = pools.pop();
      pool = { sum: before.sum + pool.sum, count: before.count + pool.count };
    }
    pools.push(pool);
  });
  let i = 0;
  for (const { sum, count } of pools)
    for (const end = i + count; i < end; i++) row[i].x = sum / count + row[i].offset;
}

function mean(items, key) {
  return items.reduce((sum, item) => sum + item[key], 0) / items.length;
}

// A curve from an item to one in the row below; an item without a node is a vertical line through its row.
function edge(from, to) {
  const half = OPERATOR.height / 2, number = value => value.toFixed(1);
  const start = from.y + half, end = to.y - half, middle = (start + end) / 2;
  const through = to.node === undefined ? `V${number(to.y + half)}` : "";
  return `M${number(from.x)} ${number(start)}C${number(from.x)} ${number(middle)} ${number(to.x)} ${number(middle)} `
    + `${number(to.x)} ${number(end)}${through}`;
}
