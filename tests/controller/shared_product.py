"""A graph in which a rule pays only where it is carried out everywhere: four products share one."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from environment import GraphSubstitutionEnv
from taso_ext import RuleSet

READERS = 4
RULE = "associate-matmuls-right"
"""y = (x w) v becomes x (w v). Read from the wide x, a product costs more; but x w without readers costs nothing."""


def shared_product(*, max_steps: int = 50, everywhere: bool = True) -> GraphSubstitutionEnv:
    """Returns a strict environment of h = x w, y1 = h v1, ..., y4 = h v4."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((256, 8)), **{f"v{i}": rng.standard_normal((8, 8)) for i in range(READERS)}}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"])]
    nodes += [helper.make_node("MatMul", ["h", f"v{i}"], [f"y{i}"]) for i in range(READERS)]
    outputs = [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [64, 8]) for i in range(READERS)]
    initializers = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 256])
    graph = helper.make_graph(nodes, "shared", [x], outputs, initializers)
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    rules = RuleSet.default().restricted(names={RULE})
    return GraphSubstitutionEnv(
        model, rules=rules, clean="none", max_steps=max_steps, strict=True, everywhere=everywhere
    )
