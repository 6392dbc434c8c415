"""ONNX Runtime's fused operators: each computes what its group does, and only what a group keeps to itself is fused."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from environment.fusion import FusionGraph
from environment.fusion.export import annotated, with_fused_operators
from environment.fusion.fused_operators import MICROSOFT, SLOW_ON_CPUS, groups
from environment.verification import verify
from taso_ext import OnnxModel

SHAPES = {"image": (1, 3, 8, 8), "like": (1, 4, 8, 8), "rows": (2, 5, 16), "skip": (2, 5, 16), "matrix": (6, 16)}
WEIGHTS = {"kernel": (4, 3, 3, 3), "offset": (4,), "square": (16, 8), "eight": (8,), "bias": (16,), "gamma": (16,)}
SCALARS = {"zero": 0.0, "six": 0.6, "third": 0.3, "half": 0.5, "one": 1.0, "root": 2**0.5, "inverse": 0.5**0.5}
node = helper.make_node
CONV = node("Conv", ["image", "kernel", "offset"], ["c"], pads=[1] * 4)
GEMM = node("Gemm", ["matrix", "square", "eight"], ["c"])
BIASED = node("Add", ["rows", "bias"], ["b"])
ERF = (
    node("Div", ["b", "root"], ["d"]),
    node("Erf", ["d"], ["e"]),
    node("Add", ["e", "one"], ["f"]),
    node("Mul", ["b", "f"], ["g"]),
    node("Mul", ["g", "half"], ["y"]),
)


def activations(first: onnx.NodeProto, *nodes: onnx.NodeProto) -> list[list[onnx.NodeProto]]:
    return [[first, each] for each in nodes]


CASES: dict[str, list[list[onnx.NodeProto]]] = {
    "FusedConv": [
        *activations(
            CONV,
            *(node(name, ["c"], ["y"]) for name in ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid")),
            node("LeakyRelu", ["c"], ["y"], alpha=0.3),
            node("HardSigmoid", ["c"], ["y"], alpha=0.3, beta=0.4),
            node("Clip", ["c", "zero", "six"], ["y"]),
            node("Add", ["like", "c"], ["y"]),
        ),
        [node("Conv", ["image", "kernel"], ["c"], pads=[1] * 4), node("Add", ["c", "like"], ["y"])],
        [CONV, node("Add", ["c", "like"], ["a"]), node("Relu", ["a"], ["y"])],
    ],
    "FusedGemm": activations(
        GEMM,
        *(node(name, ["c"], ["y"]) for name in ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Softplus")),
        node("Elu", ["c"], ["y"], alpha=0.7),
        node("HardSigmoid", ["c"], ["y"], alpha=0.3, beta=0.4),
    ),
    "FusedMatMul": activations(
        node("MatMul", ["rows", "square"], ["c"]),
        *(node("Mul", names, ["y"]) for names in (["c", "third"], ["third", "c"])),
        node("Div", ["c", "third"], ["y"]),
    ),
    "BiasGelu": [[BIASED, node("Gelu", ["b"], ["y"])], [BIASED, *ERF]],
    "FastGelu": [[BIASED, node("Gelu", ["b"], ["y"], approximate="tanh")]],
    "Gelu": [
        [
            node("Mul", ["rows", "inverse"], ["d"]),
            *ERF[1:3],
            node("Mul", ["half", "rows"], ["g"]),
            node("Mul", ["f", "g"], ["y"]),
        ]
    ],
    "QuickGelu": [
        [node("Sigmoid", ["rows"], ["s"]), node("Mul", ["s", "rows"], ["y"])],
        [
            node("Mul", ["rows", "third"], ["t"]),
            node("Sigmoid", ["t"], ["s"]),
            node("Mul", ["rows", "s"], ["y"]),
        ],
    ],
    "SkipLayerNormalization": [
        [node("Add", ["rows", "skip"], ["a"]), node("LayerNormalization", ["a", "gamma", "bias"], ["y"], epsilon=1e-3)],
        [node("Add", ["rows", "skip"], ["a"]), node("LayerNormalization", ["a", "gamma"], ["y"])],
        [BIASED, node("Add", ["skip", "b"], ["a"]), node("LayerNormalization", ["a", "gamma"], ["y"], axis=2)],
    ],
    "SkipSimplifiedLayerNormalization": [
        [node("Add", ["rows", "skip"], ["a"]), node("RMSNormalization", ["a", "gamma"], ["y"], epsilon=1e-3)]
    ],
}
NAMED = [(name, nodes) for name, listed in CASES.items() for nodes in listed]


def model_of(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str] = ("y",)) -> OnnxModel:
    """Returns a model of operators that read the inputs, weights and numbers above."""
    rng, read = np.random.default_rng(0), {name for each in nodes for name in each.input}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPES[name]) for name in SHAPES if name in read]
    weights = {name: rng.normal(size=shape) for name, shape in WEIGHTS.items() if name in read}
    weights |= {name: np.array(value) for name, value in SCALARS.items() if name in read}
    constants = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(list(nodes), "g", inputs, results, constants)
    opset = [helper.make_opsetid("", 23)]
    inferred = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opset, ir_version=10))
    return OnnxModel.load(inferred, clean="none")


def written(model: OnnxModel, fuse: bool = True, without: Collection[str] = ()) -> tuple[list[str], bool]:
    """Returns the types of all operators of the exported model, and whether it computes the same."""
    graph = FusionGraph.of(model.graph, "v100")
    plan = np.zeros(len(graph.problem), np.uint8)
    plan[graph.configurable] = fuse
    found, _ = with_fused_operators(annotated(model, graph, plan), without=without)
    return [each.op_type for each in found.skeleton.graph.node], verify(model.source, found).equal


@pytest.mark.parametrize(("name", "nodes"), NAMED, ids=lambda value: value if isinstance(value, str) else "")
def test_a_fused_operator_computes_what_its_group_does(name: str, nodes: list[onnx.NodeProto]) -> None:
    model = model_of(nodes)
    assert written(model) == ([name], True)
    assert written(model, fuse=False) == ([each.op_type for each in nodes], True)


@pytest.mark.parametrize(("name", "nodes"), NAMED, ids=lambda value: value if isinstance(value, str) else "")
def test_what_somebody_else_reads_stays(name: str, nodes: list[onnx.NodeProto]) -> None:
    inner = nodes[-2].output[0]
    for outputs in (["y"], ["y", inner]):
        found = groups(model_of(nodes, outputs).source, planned=False)
        assert (inner in {name for group in found for each in group.inner for name in each.output}) == (
            len(outputs) < 2
        )


@pytest.mark.parametrize(
    "nodes",
    [
        [CONV, node("Add", ["c", "third"], ["y"])],  # not of the convolution's shape
        [CONV, node("Clip", ["c", "zero"], ["y"])],  # without an upper bound
        [node("MatMul", ["rows", "square"], ["c"]), node("Div", ["third", "c"], ["y"])],
        [node("Add", ["rows", "third"], ["b"]), node("Gelu", ["b"], ["y"])],  # the bias is no vector
        [BIASED, ERF[0], ERF[1], node("Add", ["e", "half"], ["f"]), *ERF[3:]],
        [BIASED, node("Div", ["b", "third"], ["d"]), *ERF[1:]],
        [node("Add", ["rows", "skip"], ["a"]), node("LayerNormalization", ["a", "wide"], ["y"], axis=1)],
        [node("Add", ["rows", "bias"], ["a"]), node("LayerNormalization", ["a", "gamma"], ["y"])],
    ],
)
def test_similar_groups_stay_as_they_are(nodes: list[onnx.NodeProto], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WEIGHTS, "wide", (5, 16))
    assert not groups(model_of(nodes).source, planned=False)


def test_operators_that_are_slow_on_cpus_are_left_out() -> None:
    for name in SLOW_ON_CPUS:
        nodes = CASES[name][0]
        assert written(model_of(nodes), without=SLOW_ON_CPUS) == ([each.op_type for each in nodes], True)


def test_no_double_precision_is_fused() -> None:
    double = TensorProto.DOUBLE
    x = helper.make_tensor_value_info("x", double, (4, 8))
    weight = numpy_helper.from_array(np.random.default_rng(0).normal(size=(8, 8)), "w")
    y = helper.make_tensor_value_info("y", double, (4, 8))
    graph = helper.make_graph([node("Gemm", ["x", "w"], ["c"]), node("Relu", ["c"], ["y"])], "g", [x], [y], [weight])
    model = OnnxModel.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))
    assert not groups(model.source, planned=False) and MICROSOFT not in written(model)[0]
