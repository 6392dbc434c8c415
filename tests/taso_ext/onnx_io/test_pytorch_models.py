"""Models from PyTorch's two exporters keep their outputs at every clean-up level, with and without rewrites.

`samples/data/export_pytorch_models.py` made them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from environment.verification import verify
from taso_ext import OnnxModel
from taso_ext.onnx_io.cleanup.passes import LEVELS
from taso_ext.onnx_io.dimensions import open_dims
from tests.taso_ext.samples.onnx_cases import random_walk

MODELS = sorted((Path(__file__).parents[1] / "samples" / "data" / "pytorch").glob("*.onnx"))
REWRITES = 30
CRASHING = {("bag-dynamo", "none")}
"""Cases whose model, exported or not, makes the constant folding of ONNX Runtime 1.31 and 1.32 kill the process."""


def load(path: Path, level: str) -> OnnxModel:
    """Loads the model with its open dimensions bound to other sizes than at its export."""
    dims = {dim.name: 3 + i for i, dim in enumerate(open_dims(onnx.load(path).graph))}
    return OnnxModel.load(path, dims=dims, clean=level)


CASES = [(path, level) for path in MODELS for level in LEVELS if (path.stem, level) not in CRASHING]


@pytest.mark.parametrize(("path", "level"), CASES, ids=[f"{path.stem}-{level}" for path, level in CASES])
def test_rewritten_models_compute_the_same(path: Path, level: str) -> None:
    model = load(path, level)
    graphs = random_walk(model.graph, np.random.default_rng(len(path.stem)), REWRITES)
    for graph in (graphs[0], graphs[-1]):
        exported = model.export_checked(graph)
        found = verify(model.source, exported, num_inputs=2)
        assert found.equal and found.reacts, f"after {len(graphs) - 1} rewrites: {found.reason}"


def test_nodes_keep_their_names_and_metadata() -> None:
    """This also holds if the exporter's constants and identities around a node are gone."""
    kept = 0
    for path in MODELS:
        before = {node.name: node for node in onnx.load(path).graph.node if node.name}
        model = load(path, "none")
        for node in model.export_checked(model.graph).skeleton.graph.node:
            if node.name in before and node.op_type == before[node.name].op_type:
                assert list(node.metadata_props) == list(before[node.name].metadata_props)
                kept += 1
    assert kept > 300


def test_there_are_models_of_both_exporters() -> None:
    assert sum("dynamo" in path.stem for path in MODELS) >= 8
    assert sum("torchscript" in path.stem for path in MODELS) >= 8
    assert all(path.stat().st_size < 60_000 for path in MODELS)


def test_dynamo_models_become_as_small_as_torchscript_ones() -> None:
    """The clean-up removes what the newer exporter leaves to its optimiser."""
    for path in MODELS:
        twin = path.with_name(path.name.replace("dynamo", "torchscript"))
        if path == twin or not twin.exists():
            continue
        clean, twin_clean = (load(each, "full").graph.num_runtime_nodes for each in (path, twin))
        assert clean < load(path, "none").graph.num_runtime_nodes
        assert clean <= twin_clean + 4, path.stem
