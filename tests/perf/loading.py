"""Measures loading and exporting of models: `python -m tests.perf.loading [--csv FILE] [bert-base|big|FILE ...]`.

Prints a table and asserts nothing: a clock is no test. Each model is measured in a process of its own. `big` is a model
of 3 GB with external data, written to a temporary directory (TMPDIR says where).
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from environment import zoo
from taso_ext import CostModel, Graph, OnnxModel, RuleSet, State
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.model_file import write_model

COLUMNS = {
    "model": "zoo graph, `big`, or file",
    "size_mb": "the file and its external data",
    "read_s": "reading the file from the page cache, for comparison",
    "load_s": "OnnxModel.load of the file",
    "load_cpu_s": "the same in CPU time, which other processes disturb less",
    "export_s": "OnnxModel.export_checked of the start graph",
    "write_s": "writing that to a file",
    "copy_s": "writing as many zeros to a file, for comparison",
    "rewritten": "rewrites taken before the second export",
    "folded_s": "exporting and writing the rewritten graph, its weights folded",
    "anon_mb": "peak of the process's anonymous resident memory (RssAnon), libraries included",
}
_BIG_LAYERS, _BIG_WIDTH = 16, 4096
_REWRITES = 20
_CHUNK = 1 << 24
Result = TypeVar("Result")


def big_model(layers: int = _BIG_LAYERS) -> CheckedModel:
    """Returns a model of blocks of 0.2 GB of weights each, which are made when they are read.

    A block is a sum of two products, which rules join, and a third product.
    """
    nodes, tensors = [], {}
    for layer in range(layers):
        block = [("MatMul", ["x", "a"], "p"), ("MatMul", ["x", "b"], "q"), ("Add", ["p", "q"], "s"),
                 ("Tanh", ["s"], "t"), ("MatMul", ["t", "c"], "y")]  # fmt: skip
        names = {name: f"{name}{layer}" for name in "abcpqst"} | {"x": f"x{layer}", "y": f"x{layer + 1}"}
        tensors |= {names[name]: _noise(names[name], len(tensors) + index) for index, name in enumerate("abc")}
        nodes += [helper.make_node(kind, [names[name] for name in read], [names[made]]) for kind, read, made in block]
    shape = [1, _BIG_WIDTH]
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in ("x0", f"x{layers}")]
    graph = helper.make_graph(nodes, "big", values[:1], values[1:])
    skeleton = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return CheckedModel(skeleton, tensors)


def _noise(name: str, seed: int) -> ir.TensorProtocol:
    """Returns a random matrix, so small that a block shrinks the differences of two inputs, and so rounding errors."""
    shape = (_BIG_WIDTH, _BIG_WIDTH)
    scale = np.float32(0.7 / math.sqrt(_BIG_WIDTH))

    def make() -> ir.TensorProtocol:
        return ir.tensor(np.random.default_rng(seed).standard_normal(shape, dtype=np.float32) * scale, name=name)

    return ir.LazyTensor(make, dtype=ir.DataType.FLOAT, shape=ir.Shape(shape), name=name)


def measure(path: Path) -> dict[str, float]:
    """Returns the times of one model, measured in this process."""
    files = [path, *path.parent.glob(f"{path.name}.data")]
    size = sum(file.stat().st_size for file in files)
    read_s, _ = _timed(lambda: [_read(file) for file in files])
    cpu = time.process_time()
    load_s, model = _timed(lambda: OnnxModel.load(path))
    load_cpu_s = time.process_time() - cpu
    export_s, exported = _timed(lambda: model.export_checked(model.graph))
    with tempfile.TemporaryDirectory() as directory:
        write_s, _ = _timed(lambda: write_model(exported, Path(directory) / "exported.onnx"))
    with tempfile.TemporaryFile() as file:
        copy_s, _ = _timed(lambda: _write_zeros(file, size))
    graph, rewritten = _rewrite(model.graph)
    with tempfile.TemporaryDirectory() as directory:
        folded_s, _ = _timed(lambda: model.save(graph, Path(directory) / "rewritten.onnx"))
    return {
        "size_mb": size / 1e6, "read_s": read_s, "load_s": load_s, "load_cpu_s": load_cpu_s, "export_s": export_s,
        "write_s": write_s, "copy_s": copy_s, "rewritten": rewritten, "folded_s": folded_s,
    }  # fmt: skip


def _rewrite(graph: Graph) -> tuple[Graph, int]:
    """Returns the graph after some rewrites, each the first of those that save most, and their number."""
    state = State(graph, RuleSet.default(), CostModel.roofline("rtx2070"))
    for taken in range(_REWRITES):
        rules, locations, costs = state.candidates()
        if not len(rules):
            return state.graph, taken
        best = int(np.argmin(costs))
        state.step(int(rules[best]), int(locations[best]))
    return state.graph, _REWRITES


def _timed(work: Callable[[], Result]) -> tuple[float, Result]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def _read(path: Path) -> None:
    with path.open("rb") as file:
        while file.read(_CHUNK):
            pass


def _write_zeros(file: BinaryIO, size: int) -> None:
    for begin in range(0, size, _CHUNK):
        file.write(bytes(min(_CHUNK, size - begin)))


def measure_apart(path: Path) -> dict[str, float]:
    """Runs `measure` in a process of its own and adds the peak of its memory."""
    command = [sys.executable, "-m", "tests.perf.loading", "--measure", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak = 0
    while process.poll() is None:
        peak = max(peak, _anonymous_bytes(process.pid))
        time.sleep(0.002)
    assert process.stdout is not None
    if process.returncode:
        raise SystemExit(f"measuring {path} failed with status {process.returncode}")
    return {**json.loads(process.stdout.read()), "anon_mb": peak / 1e6}


def _anonymous_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")), 0)


def _measure_all(names: list[str]) -> Iterator[dict[str, str | float]]:
    for name in names:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / f"{name}.onnx"
            if name == "big":
                write_model(big_model(), path)
            elif name in zoo.names():
                onnx.save(zoo.build(name), path)
            else:
                path = Path(name)
            yield {"model": name, **measure_apart(path)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["bert-base", "big"], metavar="MODEL")
    parser.add_argument("--csv", metavar="FILE")
    parser.add_argument("--measure", metavar="FILE", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return
    rows = []
    print("  ".join(f"{column:>10}" for column in COLUMNS))
    for row in _measure_all(arguments.models):
        rows.append(row)
        cells = (f"{row[column]:.2f}" if isinstance(row[column], float) else str(row[column]) for column in COLUMNS)
        print("  ".join(f"{cell:>10}" for cell in cells), flush=True)
    print("\n" + "\n".join(f"{column}: {meaning}" for column, meaning in COLUMNS.items()), file=sys.stderr)
    if arguments.csv:
        with open(arguments.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
