"""Rewrites that need a newer opset raise that of the model, and the other operators still compute the same."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from taso_ext import CostModel, OnnxModel, RuleSet, State

GELU = """
rule gelu
  var    x: float[...]; r, one, half: weight float[]
  source t = Div(x, r); u = Erf(t); v = Add(u, one); w = Mul(x, v); y = Mul(w, half)
  where  value(r) == sqrt(2) and value(one) == 1 and value(half) == 0.5
  target y = Gelu(x)
"""


def model(opset: int, nodes: list[onnx.NodeProto], dims: list[int]) -> onnx.ModelProto:
    """Returns a model of `nodes` from x [2, 3, 4, 4] to h [*dims] and a GELU of h as exporters write it."""
    constants = {"r": np.sqrt(2), "one": 1.0, "half": 0.5, "low": 0.1}
    initializers = [numpy_helper.from_array(np.float32(value), name) for name, value in constants.items()]
    steps = [("Div", ["h", "r"], "t"), ("Erf", ["t"], "u"), ("Add", ["u", "one"], "v")]
    steps += [("Mul", ["h", "v"], "w"), ("Mul", ["w", "half"], "y")]
    gelu = [helper.make_node(op, inputs, [output]) for op, inputs, output in steps]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 4, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, dims)
    graph = helper.make_graph([*nodes, *gelu], "g", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=4)


SAME = [2, 3, 4, 4]
BEFORE = {
    "same": (9, [helper.make_node("Sigmoid", ["x"], ["h"])], SAME),
    "attributes became inputs": (10, [helper.make_node("Clip", ["x"], ["h"], min=-0.5, max=0.5)], SAME),
    "softmax over several axes": (11, [helper.make_node("Softmax", ["x"], ["h"], axis=1)], SAME),
    "axes became an input": (12, [helper.make_node("ReduceSum", ["x"], ["h"], axes=[2], keepdims=0)], [2, 3, 4]),
    "an operator that was replaced": (
        9,
        [
            helper.make_node("Constant", [], ["s"], value=numpy_helper.from_array(np.float32([1, 1, 2, 2]))),
            helper.make_node("Upsample", ["x", "s"], ["h"], mode="nearest"),
        ],
        [2, 3, 8, 8],
    ),
    "an operator that was renamed": (
        9,
        [
            helper.make_node("Constant", [], ["i"], value=numpy_helper.from_array(np.full((1, 3, 4, 4), 1))),
            helper.make_node("Split", ["x"], ["a", "b"], axis=0, split=[1, 1]),
            helper.make_node("Scatter", ["x", "i", "a"], ["h"], axis=0),
        ],
        SAME,
    ),
    "shape and split": (
        12,
        [
            helper.make_node("Split", ["x"], ["a", "b"], axis=2, split=[1, 3]),
            helper.make_node("ReduceMean", ["b"], ["m"], axes=[2], keepdims=1),
            helper.make_node("Add", ["a", "m"], ["h"]),
        ],
        [2, 3, 1, 4],
    ),
}


@pytest.mark.parametrize(("opset", "nodes", "dims"), BEFORE.values(), ids=BEFORE)
def test_the_opset_is_raised_as_far_as_needed(opset: int, nodes: list[onnx.NodeProto], dims: list[int]) -> None:
    proto = model(opset, nodes, dims)
    loaded = OnnxModel.load(proto)
    state = State(loaded.graph, RuleSet.parse(GELU), CostModel.roofline("rtx2070"))
    unchanged = loaded.export(state.graph)
    state.step(*state.legal_actions()[0])
    exported = loaded.export(state.graph)
    assert loaded.opset == opset
    assert [entry.version for entry in unchanged.opset_import if not entry.domain] == [opset]
    assert [entry.version for entry in exported.opset_import if not entry.domain] == [20]
    assert "Gelu" in [node.op_type for node in exported.graph.node]
    onnx.checker.check_model(exported, full_check=True)
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 3, 4, 4), dtype=np.float32)}
    results = [onnxruntime.InferenceSession(each.SerializeToString()).run(None, feeds)[0] for each in (proto, exported)]
    assert np.allclose(*results, rtol=1e-5, atol=1e-6)
