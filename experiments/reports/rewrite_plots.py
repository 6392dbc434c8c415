"""A picture of one rewrite: the operators that it takes away and brings, with their neighbours, before and after.

It reads two graphs of the engine and draws with matplotlib; it runs no network.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from experiments.reports.plots import BLUE, GREY, INK, ORANGE
from taso_ext import Graph, Node

LIGHT = "#eceef0"
"""The colour of operators that a rewrite leaves as they are."""
MOST_OPERATORS = 40
"""Largest number of operators of one panel; a rewrite everywhere in a deep network changes more."""

Layers = list[list[Node]]
"""Operators by depth; in a layer from left to right."""


def rewrite_figure(before: Graph, after: Graph) -> Figure:
    """Draws what a rewrite, or several, change between two graphs.

    Operators are drawn with the extents of their first result. Those that are computed from weights alone, and so are
    free when the network runs, have a dashed border.

    Args:
      before, after: graphs of one model, of which one was made from the other by rewrites.
    Raises:
      ValueError: the graphs are equal, or more than `MOST_OPERATORS` operators would have to be drawn in one panel.
    """
    old, new = _origins(before), _origins(after)
    layers = [_layers(before, old - new), _layers(after, new - old)]
    if not any(layers):
        raise ValueError("expected graphs that differ, but no operator of the second one is new or missing")
    most = max(sum(map(len, each)) for each in layers)
    if most > MOST_OPERATORS:
        raise ValueError(f"expected at most {MOST_OPERATORS} operators near a rewrite, got {most}; draw fewer rewrites")
    width = max(len(layer) for each in layers for layer in each)
    rows = max(map(len, layers))
    figure = Figure(figsize=(2 * max(2.6, 1.15 * width), 0.8 + 0.72 * rows), layout="constrained")
    panels = figure.subplots(1, 2, squeeze=False)[0]
    _panel(panels[0], "before", before, layers[0], old - new, colour=ORANGE, rows=rows)
    _panel(panels[1], "after", after, layers[1], new - old, colour=BLUE, rows=rows)
    handles = [Patch(color=colour) for colour in (ORANGE, BLUE, LIGHT)]
    figure.legend(
        handles, ["taken away", "new", "as before"], loc="outside lower center", ncols=3, frameon=False, fontsize=9
    )
    return figure


def _origins(graph: Graph) -> set[str]:
    return {node.origin for node in graph.nodes()}


def _layers(graph: Graph, changed: Collection[str]) -> Layers:
    """Returns the changed operators, named by their origins, and their neighbours, each below all that it reads."""
    own = [node for node in graph.nodes() if node.origin in changed]
    read = {value for node in own for value in node.inputs}
    made = {value for node in own for value in node.outputs}
    beside = [node for node in graph.nodes() if not read.isdisjoint(node.outputs) or not made.isdisjoint(node.inputs)]
    shown = {node.origin for node in (*own, *beside)}
    return _ordered([node for node in graph.nodes() if node.origin in shown])


def _ordered(nodes: Sequence[Node]) -> Layers:
    """Returns operators, producers first, by depth; in a layer they follow the places of what they read."""
    maker = {value: node for node in nodes for value in node.outputs}
    producers = {node.origin: [maker[value] for value in node.inputs if value in maker] for node in nodes}
    depth: dict[str, int] = {}
    for node in nodes:
        depth[node.origin] = max((depth[each.origin] + 1 for each in producers[node.origin]), default=0)
    for node in reversed(nodes):  # what reads nothing that is shown stands directly above its first reader
        readers = [depth[each.origin] for each in nodes if node in producers[each.origin]]
        if not producers[node.origin] and readers:
            depth[node.origin] = min(readers) - 1
    place: dict[str, float] = {}
    layers: Layers = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in nodes:
        layers[depth[node.origin]].append(node)
    for layer in layers:
        above = {node.origin: [place[each.origin] for each in producers[node.origin]] for node in layer}
        layer.sort(key=lambda node: sum(above[node.origin]) / len(above[node.origin]) if above[node.origin] else 0.0)
        place |= {node.origin: x for node, x in zip(layer, _spread(len(layer)), strict=True)}
    return layers


def _spread(count: int) -> list[float]:
    """Returns the horizontal places of the operators of a layer, in the middle and one apart."""
    return [index - (count - 1) / 2 for index in range(count)]


def _panel(
    axes: Axes, title: str, graph: Graph, layers: Layers, changed: Collection[str], *, colour: str, rows: int
) -> None:
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.set_axis_off()
    places = {
        node.origin: (x, -float(row))
        for row, layer in enumerate(layers)
        for node, x in zip(layer, _spread(len(layer)), strict=True)
    }
    nodes = [node for layer in layers for node in layer]
    maker = {value: node.origin for node in nodes for value in node.outputs}
    for node in nodes:
        for value in node.inputs:
            if value in maker:
                _edge(axes, places[maker[value]], places[node.origin])
        fill = colour if node.origin in changed else LIGHT
        _box(axes, places[node.origin], _label(graph, node), fill, dashed=node.weight_only)
    margin = 0.62
    axes.set_xlim(min(x for x, _ in places.values()) - margin, max(x for x, _ in places.values()) + margin)
    axes.set_ylim(0.5 - rows, 0.5)


def _edge(axes: Axes, above: tuple[float, float], below: tuple[float, float]) -> None:
    """Draws an edge between two operators, bent if it passes others."""
    bend = 0.0 if above[1] - below[1] < 1.5 else 0.35
    style = {"arrowstyle": "-", "color": GREY, "connectionstyle": f"arc3,rad={bend}", "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", below, above, arrowprops=style, zorder=1)


def _box(axes: Axes, place: tuple[float, float], text: str, fill: str, *, dashed: bool) -> None:
    ink = INK if fill == LIGHT else "white"
    style = {"boxstyle": "round,pad=0.35", "facecolor": fill, "edgecolor": INK if dashed else fill}
    box = {**style, "linestyle": "--" if dashed else "-", "linewidth": 1.0}
    axes.text(*place, text, ha="center", va="center", fontsize=7.5, color=ink, bbox=box, linespacing=1.3, zorder=2)


def _label(graph: Graph, node: Node) -> str:
    dims = graph.values()[node.outputs[0]].dims
    return node.op_type if dims is None else f"{node.op_type}\n{'×'.join(map(str, dims)) or 'scalar'}"
