"""Measures gains of fast convolutions: `python -m tests.perf.winograd [--out DIR] [--pairs N] [--zoo GRAPH ...]`.

Each layer stands between two small 1x1 convolutions, as in a network, so that the blocked layout of its neighbours has
to be left and entered again; ratios are those of the three together. Times are CPU times of one thread, interleaved,
with 95 % intervals. `predicted` is what the roofline model of a CPU core says. Errors are relative to the spread of the
results, against float64. In the second table every convolution of a network takes the rule that was fastest for it
alone, if that is faster than none. With --out the tables go to table.md and table.csv in DIR.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from environment import zoo
from environment.measurement.effort import Effort
from environment.measurement.timing import Variant, measure
from environment.runtimes import OnnxRuntime
from environment.statistics.intervals import Estimate
from environment.zoo.layers import GraphWriter
from taso_ext import CostModel, Graph, OnnxModel, RuleSet, State
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.session import create_session

COST_MODEL = CostModel.roofline("xeon")
STACK = "stack-batch-of-grouped-1x1-conv"
NEIGHBOUR_CHANNELS = 16
COLUMNS = ("layer", "rule", "predicted", "ratio", "low", "high", "max_error", "rms_error", "direct_max_error")


class Layer(NamedTuple):
    batch: int
    channels: int
    filters: int
    extent: int
    kernel: tuple[int, int]

    @property
    def pads(self) -> list[int]:
        return [(self.kernel[i % 2] - 1) // 2 for i in range(4)]

    def __str__(self) -> str:
        kernel = "x".join(map(str, self.kernel))
        return f"{self.channels}->{self.filters} {kernel} {self.extent}x{self.extent} batch {self.batch}"


RESNET = [
    Layer(batch, c, c, size, (3, 3)) for batch in (1, 8) for c, size in ((64, 56), (128, 28), (256, 14), (512, 7))
]
OTHERS = [
    Layer(1, 64, 96, 35, (3, 3)),
    Layer(1, 80, 192, 71, (3, 3)),
    Layer(1, 448, 384, 8, (3, 3)),
    Layer(1, 32, 128, 27, (3, 3)),
    Layer(1, 48, 64, 35, (5, 5)),
    Layer(1, 384, 384, 8, (1, 3)),
    Layer(1, 384, 384, 8, (3, 1)),
    Layer(1, 192, 192, 17, (1, 7)),
    Layer(1, 192, 192, 17, (7, 1)),
]


def build(layer: Layer, *, neighbours: bool) -> onnx.ModelProto:
    rng = np.random.default_rng(0)

    def conv(x: str, out: int, channels: int, kernel: Sequence[int], pads: list[int]) -> str:
        scale = np.float32(1 / np.sqrt(channels * kernel[0] * kernel[1]))
        w = writer.weight(f"w{x}", rng.standard_normal((out, channels, *kernel), np.float32) * scale)
        return writer.node("Conv", x, w, writer.weight(f"b{x}", rng.standard_normal(out, np.float32)), pads=pads)

    writer, outer = GraphWriter("layer"), NEIGHBOUR_CHANNELS if neighbours else layer.channels
    x = writer.input("x", [layer.batch, outer, layer.extent, layer.extent])
    if neighbours:
        x = writer.node("Relu", conv(x, layer.channels, outer, (1, 1), [0] * 4))
    x = conv(x, layer.filters, layer.channels, layer.kernel, layer.pads)
    if neighbours:
        x = conv(writer.node("Relu", x), outer, layer.filters, (1, 1), [0] * 4)
    writer.output("y", x, [layer.batch, outer if neighbours else layer.filters, layer.extent, layer.extent])
    return writer.model()


@cache
def rules() -> RuleSet:
    default = RuleSet.default()
    kept = [i for i, name in enumerate(default.names) if name.startswith("winograd-") or name == STACK]
    return RuleSet.parse("\n".join(default.text(i) for i in kept))


def rewritten(start: State, names: Sequence[str]) -> State:
    state = start.copy()
    for name in names:
        rule = rules().names.index(name)
        state.step(rule, int(np.flatnonzero(state.location_mask()[rule])[0]))
    return state


def variants(start: State) -> list[tuple[str, ...]]:
    """Returns the rules that apply, and each of them followed by the rule for batches if that applies."""
    found = sorted({(rules().names[rule],) for rule, _ in start.legal_actions() if rules().names[rule] != STACK})
    stack = rules().names.index(STACK)
    return [*found, *((*one, STACK) for one in found if rewritten(start, one).rule_mask()[stack])]


def run(model: CheckedModel, x: np.ndarray) -> np.ndarray:
    return np.asarray(create_session(model, "all").run(None, {"x": x})[0])


def exactly(layer: Layer, model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """Computes the convolution in float64, tap by tap."""
    weight, bias = (numpy_helper.to_array(tensor).astype(np.float64) for tensor in model.graph.initializer)
    top, left, *_ = layer.pads
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (top, top), (left, left)])
    total = np.broadcast_to(bias[:, None, None], (layer.batch, layer.filters, layer.extent, layer.extent)).copy()
    size = layer.extent
    for i, j in np.ndindex(*layer.kernel):
        window = padded[:, :, i : i + size, j : j + size]
        total += np.einsum("kc,nchw->nkhw", weight[:, :, i, j], window, optimize=True)
    return total


def time_ratio(reference: CheckedModel, candidate: CheckedModel, pairs: int, sessions: int) -> Estimate:
    variants = [Variant(name, OnnxRuntime(), model) for name, model in (("as is", reference), ("fast", candidate))]
    effort = Effort(resolution=None, pairs=pairs, sessions=sessions, control=False)
    return measure(variants[0], variants[1:], effort).ratio


def measure_layer(layer: Layer, pairs: int) -> list[dict[str, object]]:
    context, alone = (OnnxModel.load(build(layer, neighbours=with_them), clean="full") for with_them in (True, False))
    starts = [State(model.graph, rules(), COST_MODEL) for model in (context, alone)]
    x = np.random.default_rng(1).standard_normal((layer.batch, layer.channels, layer.extent, layer.extent), np.float32)
    reference, expected = context.export_checked(context.graph), exactly(layer, build(layer, neighbours=False), x)
    direct = np.abs(run(alone.export_checked(alone.graph), x) - expected).max() / expected.std()
    rows: list[dict[str, object]] = []
    for names in variants(starts[0]):
        states = [rewritten(start, names) for start in starts]
        error = (run(alone.export_checked(states[1].graph), x) - expected) / expected.std()
        timed = time_ratio(reference, context.export_checked(states[0].graph), pairs, sessions=2)
        values = (states[0].cost.ms / starts[0].cost.ms, timed.value, timed.low, timed.high)
        errors = (np.abs(error).max(), np.sqrt((error**2).mean()), direct)
        cells = [str(layer), " + ".join(names), *(f"{v:.3f}" for v in values), *(f"{v:.1e}" for v in errors)]
        rows.append(dict(zip(COLUMNS, cells, strict=True)))
        print("  ".join(cells), flush=True)
    return rows


def convolutions(graph: Graph) -> dict[int, Layer]:
    """Returns the two-dimensional convolutions of a graph, by site."""
    values, found = graph.values(), {}
    for node in graph.nodes():
        if node.op_type == "Conv":
            x, w = (values[id_].dims or [] for id_ in node.inputs[:2])
            if len(x) == 4:
                found[node.site] = Layer(x[0], x[1], w[0], x[2], (w[2], w[3]))
    return found


def measure_network(name: str, pairs: int) -> tuple[Estimate, int]:
    model = OnnxModel.load(zoo.build(name), clean="full")
    state, best = State(model.graph, rules(), COST_MODEL), dict[tuple[Layer, str], float]()
    taken = 0
    while len(actions := state.legal_actions()):
        layers, options = convolutions(state.graph), dict[int, list[tuple[float, int]]]()
        for rule, location in actions:
            layer = layers.get(int(location))
            if layer is None:
                continue
            key = (layer, rules().names[rule])
            if key not in best:
                small = OnnxModel.load(build(layer, neighbours=True), clean="full")
                other = rewritten(State(small.graph, rules(), COST_MODEL), key[1:])
                best[key] = time_ratio(
                    small.export_checked(small.graph), small.export_checked(other.graph), 7, sessions=1
                ).value
            options.setdefault(int(location), []).append((best[key], int(rule)))
        gains = [(*min(found), location) for location, found in options.items() if min(found)[0] < 1]
        if not gains:
            break
        _, rule, location = min(gains)
        state.step(rule, location)
        taken += 1
    return time_ratio(model.export_checked(model.graph), model.export_checked(state.graph), pairs, sessions=3), taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="DIR")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--zoo", nargs="*", default=["resnet18", "resnet50", "inception-v3"], metavar="GRAPH")
    arguments = parser.parse_args()
    rows = [row for layer in RESNET + OTHERS for row in measure_layer(layer, arguments.pairs)]
    command = f"python -m tests.perf.winograd --pairs {arguments.pairs} --out experiments/results/winograd"
    about = " ".join((__doc__ or "").split("\n\n")[1].split())
    lines = [
        "# Fast convolutions",
        "",
        f"Written by `{command}`. {about}",
        "",
    ]
    lines += ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    lines += ["| " + " | ".join(str(row[column]) for column in COLUMNS) + " |" for row in rows]
    lines += ["", "| network | rewritten | ratio | interval |", "|---|---|---|---|"]
    for name in arguments.zoo:
        timed, taken = measure_network(name, arguments.pairs)
        lines.append(f"| {name} | {taken} | {timed.value:.3f} | {timed.low:.3f} to {timed.high:.3f} |")
        print(lines[-1], flush=True)
    if arguments.out:
        (arguments.out / "table.md").write_text("\n".join(lines) + "\n")
        with (arguments.out / "table.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
