"""Measures how near networks run to the speed of a large product of matrices: `python -m tests.perf.throughput`.

Prints a table and asserts nothing: a clock is no test. A network that does its operations about as fast as such a
product has little to gain but by fewer operations. ONNX Runtime runs the zoo's networks with its full optimisation on
one thread; times are medians of CPU times of the calling thread.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from environment import zoo
from environment.measurement.effort import Effort
from environment.measurement.timing import Variant, measure
from environment.runtimes import OnnxRuntime
from taso_ext import CostModel, OnnxModel

ROWS, INNER, COLUMNS = 512, 768, 3072


def product(rows: int, inner: int, columns: int) -> OnnxModel:
    """Returns a model of one product of matrices, the second of which is a weight."""
    weight = np.random.default_rng(0).standard_normal((inner, columns)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, inner])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, columns])],
        [numpy_helper.from_array(weight, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    return OnnxModel.load(helper.make_model(graph, opset_imports=opsets, ir_version=8))


def milliseconds(model: OnnxModel, pairs: int) -> float:
    """Returns the time of one inference."""
    variant = Variant("model", OnnxRuntime(), model.source)
    return measure(
        variant, [variant], Effort(resolution=None, pairs=pairs, sessions=2, control=False)
    ).reference.ms.value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("graphs", nargs="*", metavar="GRAPH", default=zoo.published_names())
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    parser.add_argument("--pairs", type=int, default=12, help="samples of each network are twice as many (12)")
    options = parser.parse_args()
    peak = 2 * ROWS * INNER * COLUMNS / milliseconds(product(ROWS, INNER, COLUMNS), options.pairs) / 1e6
    lines = [
        "# How near networks run to the speed of a large product of matrices",
        "",
        f"Written by `python -m tests.perf.throughput` with ONNX Runtime {onnxruntime.__version__}. A product of "
        f"{ROWS} × {INNER} by {INNER} × {COLUMNS} numbers runs at {peak:.0f} GFLOP/s.",
        "",
        "| network | ms | GFLOP | GFLOP/s | of the product's |",
        "|---|---:|---:|---:|---:|",
    ]
    print("\n".join(lines), flush=True)
    for name in options.graphs:
        model = OnnxModel.load(zoo.build(name))
        ms, flops = milliseconds(model, options.pairs), model.graph.cost(CostModel.roofline("xeon")).flops
        speed = flops / ms / 1e6
        lines.append(f"| {name} | {ms:.1f} | {flops / 1e9:.2f} | {speed:.0f} | {speed / peak:.0%} |")
        print(lines[-1], flush=True)
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
