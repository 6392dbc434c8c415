"""The engine takes every zoo network: it loads, offers rewrites, and exports a model of the same outputs."""

from __future__ import annotations

import random

import numpy as np
import onnx
import onnxruntime
import pytest

from environment import zoo
from taso_ext import CostModel, OnnxModel, RuleSet, State

RULES = RuleSet.default()
NETWORKS = [name if name.endswith("-tiny") else pytest.param(name, marks=pytest.mark.full) for name in zoo.names()]

WITHOUT_REWRITES = {"unet", "unet-tiny"}
"""Networks that are there for their training graphs, and that no shipped rule rewrites."""


def outputs(model: onnx.ModelProto) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(0)
    feeds = {
        node.name: generator.standard_normal(node.shape, dtype=np.float32)
        if node.type == "tensor(float)"
        else generator.integers(0, 2, node.shape)
        for node in session.get_inputs()
    }
    return [np.asarray(output) for output in session.run(None, feeds)]


def assert_equal_outputs(model: onnx.ModelProto, expected: list[np.ndarray]) -> None:
    for output, reference in zip(outputs(model), expected, strict=True):
        np.testing.assert_allclose(output, reference, rtol=0, atol=1e-4 * reference.std())


def batch_norms(graph: onnx.GraphProto) -> tuple[int, int]:
    """Counts all batch norms, and those that follow no convolution and therefore cannot be folded into one."""
    producers = {name: node.op_type for node in graph.node for name in node.output}
    behind = [producers[node.input[0]] for node in graph.node if node.op_type == "BatchNormalization"]
    return len(behind), sum(producer != "Conv" for producer in behind)


@pytest.mark.parametrize("clean", ["full", "basic"])
@pytest.mark.parametrize("name", NETWORKS)
def test_engine_keeps_the_function(name: str, clean: str) -> None:
    """Before and after random rewrites; the level `basic` keeps batch norms, `full` folds those after convolutions."""
    original = zoo.build(name)
    expected = outputs(original)
    loaded = OnnxModel.load(original, clean=clean)
    norms = sum(node.op_type == "BatchNormalization" for node in loaded.graph.nodes())
    assert norms == batch_norms(original.graph)[clean == "full"]
    assert_equal_outputs(loaded.export(loaded.graph), expected)

    state, draw = State(loaded.graph, RULES, CostModel.roofline("rtx2070")), random.Random(0)
    assert len(state.legal_actions()) or name in WITHOUT_REWRITES, "no rewrite is legal: nothing to learn from it"
    for _ in range(10):
        actions = state.legal_actions()
        if not len(actions):
            break
        rule, location = draw.choice(list(actions))
        state.step(int(rule), int(location))
    assert_equal_outputs(loaded.export(state.graph), expected)
