"""Models of opsets 1 to 6 compute after loading what the documentation of their own opset says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from taso_ext import ModelError, OnnxModel
from taso_ext.onnx_io.legacy_operators import BROADCASTING
from tests.conformance.runtimes import run_in_onnx_runtime

BOOLEAN = ("And", "Or", "Xor")
COMPARING = ("Equal", "Greater", "Less")
FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Pow": np.power,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
    "Equal": np.equal,
    "Greater": np.greater,
    "Less": np.less,
}


def legacy(op: str) -> type[OpRun]:
    """Returns the operator as opset 6 defines it, which onnx.reference does not have."""

    def run(self: OpRun, a: np.ndarray, b: np.ndarray, axis: int | None = None, broadcast: int = 0) -> tuple[Any]:
        if broadcast and axis is not None and b.size != 1:
            b = b.reshape([*b.shape, *[1] * (a.ndim - axis - b.ndim)])
        assert broadcast or a.shape == b.shape
        return (FUNCTIONS[op](a, b),)

    return type(op, (OpRun,), {"op_domain": "", "_run": run})


class PRelu(OpRun):
    """The operator as opset 6 defines it: one slope for each channel."""

    op_domain = ""

    def _run(self, x: np.ndarray, slope: np.ndarray) -> tuple[np.ndarray]:
        shape = [1] * x.ndim
        shape[1] = slope.size
        return (np.where(x > 0, x, x * slope.reshape(shape)),)


OLD = [*map(legacy, BROADCASTING), PRelu]


def make(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int]]],
    dtype: int = TensorProto.FLOAT,
    opset: int = 6,
    weights: Mapping[str, np.ndarray] | None = None,
    rank: int | None = None,
) -> onnx.ModelProto:
    """Returns a model whose output `z` has unknown extents, and the rank of the first input unless one is given."""
    given = [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()]
    tensors = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    rank = len(next(iter(inputs.values()))[1]) if rank is None else rank
    output = helper.make_tensor_value_info("z", dtype, [None] * rank)
    given += [helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in tensors]
    graph = helper.make_graph(nodes, "old", given, [output], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)


def feeds_of(inputs: Mapping[str, tuple[int, Sequence[int]]]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    feeds = {}
    for name, (dtype, dims) in inputs.items():
        kind = helper.tensor_dtype_to_np_dtype(dtype)
        drawn = rng.uniform(0.5, 2.0, dims) if kind.kind == "f" else rng.integers(0, 2, dims)
        feeds[name] = drawn.astype(kind)
    return feeds


def loaded(model: onnx.ModelProto, clean: str = "full") -> onnx.ModelProto:
    taken = OnnxModel.load(model, clean=clean)
    return taken.export(taken.graph)


def assert_unchanged(model: onnx.ModelProto, inputs: Mapping[str, tuple[int, Sequence[int]]]) -> None:
    feeds = feeds_of(inputs)
    (expected,) = ReferenceEvaluator(model, new_ops=OLD).run(None, feeds)
    for clean in ("none", "full"):
        result = loaded(model, clean)
        onnx.checker.check_model(result, full_check=True)
        (found,) = ReferenceEvaluator(result).run(None, feeds)
        assert found.dtype == np.asarray(expected).dtype
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("a", "b", "axis"),
    [
        ((2, 3, 4), (3,), 1),
        ((3, 3, 3), (3,), 0),  # fits numpy's rule too, with another result
        ((2, 3, 3, 5), (3, 3), 1),
        ((2, 3, 4), (2,), 0),
        ((2, 3, 4), (3, 4), None),
        ((2, 3, 4), (), None),
        ((2, 3, 4), (1,), 1),
        ((2, 3, 4), (2, 3, 4), 0),
    ],
)
@pytest.mark.parametrize("op", BROADCASTING)
def test_broadcasting_by_attributes(op: str, a: Sequence[int], b: Sequence[int], axis: int | None) -> None:
    dtype = TensorProto.BOOL if op in BOOLEAN else TensorProto.INT32 if op == "Equal" else TensorProto.FLOAT
    result = TensorProto.BOOL if op in (*BOOLEAN, *COMPARING) else dtype
    inputs = {"x": (dtype, a), "y": (dtype, b)}
    attributes = {"broadcast": 1} | ({} if axis is None else {"axis": axis})
    assert_unchanged(make([helper.make_node(op, ["x", "y"], ["z"], **attributes)], inputs, result), inputs)


def test_ranks_are_known_behind_old_operators() -> None:
    """onnx infers nothing about them."""
    nodes = [
        helper.make_node("Mul", ["x", "y"], ["t"], axis=1, broadcast=1),
        helper.make_node("PRelu", ["t", "y"], ["u"]),
        helper.make_node("Sub", ["u", "y"], ["z"], axis=1, broadcast=1),
    ]
    inputs = {"x": (TensorProto.FLOAT, [3, 3, 3]), "y": (TensorProto.FLOAT, [3])}
    assert_unchanged(make(nodes, inputs), inputs)


def test_a_constant_operand_is_aligned() -> None:
    nodes = [helper.make_node("Add", ["x", "w"], ["z"], axis=1, broadcast=1)]
    inputs = {"x": (TensorProto.FLOAT, [3, 3, 3])}
    assert_unchanged(make(nodes, inputs, weights={"w": np.arange(3, dtype=np.float32)}), inputs)


X = {"x": (TensorProto.FLOAT, [1, 2, 4, 4])}
IMAGE = np.linspace(-2.0, 2.0, 32, dtype=np.float32).reshape(1, 2, 4, 4)
STATISTICS = {name: np.array(v, np.float32) for name, v in zip("sbmv", ([1, 2], [0, 1], [0.5, 0], [1, 4]), strict=True)}


AMOUNTS = {"t": np.array([3.0], np.float32), "a": np.array([2.0], np.float32)}
NORMALISED = np.stack([IMAGE[:, 0] - 0.5, IMAGE[:, 1] + 1], 1)
BIGGER = {"height_scale": 2.0, "width_scale": 3.0, "mode": b"nearest"}
CHANGED: list[tuple[int, str, dict[str, Any], Mapping[str, np.ndarray], np.ndarray]] = [
    (1, "Relu", {"consumed_inputs": [0]}, {}, np.maximum(IMAGE, 0)),
    (1, "Selu", {}, {}, 1.0507 * np.where(IMAGE > 0, IMAGE, 1.6732 * np.expm1(IMAGE))),
    (1, "Pad", {"paddings": [0, 0, 1, 0, 0, 0, 0, 2]}, {}, np.pad(IMAGE, ((0, 0), (0, 0), (1, 0), (0, 2)))),
    (1, "Reshape", {"shape": [2, -1]}, {}, IMAGE.reshape(2, -1)),
    (1, "Cast", {"to": "DOUBLE"}, {}, IMAGE.astype(np.float64)),
    (1, "Concat", {"": ["x", "x"]}, {}, np.concatenate([IMAGE, IMAGE], 1)),
    (1, "Tile", {"": ["x", "t", "a"]}, AMOUNTS, np.tile(IMAGE, (1, 1, 3, 1))),
    (1, "Upsample", BIGGER, {}, IMAGE.repeat(2, 2).repeat(3, 3)),
    (1, "Dropout", {"is_test": 1}, {}, IMAGE),
    (5, "Dropout", {"is_test": 1, "ratio": 0.9}, {}, IMAGE),
    (6, "Clip", {"min": -0.5}, {}, np.maximum(IMAGE, -0.5)),
    (6, "PRelu", {"": ["x", "s"]}, STATISTICS, IMAGE * np.where(IMAGE > 0, 1, [[[1]], [[2]]])),
    (6, "BatchNormalization", {"": ["x", *"sbmv"], "is_test": 1, "epsilon": 0.0}, STATISTICS, NORMALISED),
    (1, "GlobalLpPool", {"p": 2.0}, {}, np.sqrt((IMAGE**2).sum((2, 3), keepdims=True))),
]


@pytest.mark.parametrize(("opset", "op", "attributes", "weights", "expected"), CHANGED, ids=[row[1] for row in CHANGED])
def test_changed_operators(
    opset: int, op: str, attributes: dict[str, Any], weights: Mapping[str, np.ndarray], expected: np.ndarray
) -> None:
    """ONNX Runtime judges, because onnx.reference lacks some of these operators at opset 7."""
    inputs = attributes.get("", ["x"])
    made = helper.make_node(op, inputs, ["z"], **{name: value for name, value in attributes.items() if name})
    dtype = TensorProto.DOUBLE if op == "Cast" else TensorProto.FLOAT
    result = loaded(make([made], X, dtype, opset, weights, expected.ndim))
    onnx.checker.check_model(result, full_check=True)
    (found,) = run_in_onnx_runtime(result, {"x": IMAGE})
    np.testing.assert_allclose(found, expected.astype(found.dtype), rtol=1e-5, atol=1e-6)


def test_parts_of_a_split_may_be_an_input() -> None:
    nodes = [helper.make_node("Split", ["x", "n"], ["a", "z"], axis=1)]
    model = make(nodes, {"x": (TensorProto.FLOAT, [2, 5])}, opset=1, weights={"n": np.array([2, 3], np.float32)})
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    np.testing.assert_array_equal(ReferenceEvaluator(loaded(model)).run(["z"], {"x": x})[0], x[:, 2:])


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (helper.make_node("Dropout", ["x"], ["z"]), "Dropout 'z' is in training mode"),
        (helper.make_node("BatchNormalization", ["x", *"ssss"], ["z"]), "BatchNormalization 'z' is in training mode"),
        (helper.make_node("Add", ["x", "s"], ["z"], broadcast=1, axis=4), "rank 1 along axis 4 of one of rank 4"),
        (helper.make_node("Add", ["x", "s"], ["z"], broadcast=1, axis=-1), "along axis -1"),
    ],
)
def test_what_cannot_be_converted_is_refused_by_name(node: onnx.NodeProto, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        OnnxModel.load(make([node], X, weights={"s": STATISTICS["s"]}))


def test_a_fractional_norm_is_refused() -> None:
    with pytest.raises(ModelError, match=r"norm p=2\.5"):
        OnnxModel.load(make([helper.make_node("GlobalLpPool", ["x"], ["z"], p=2.5)], X, opset=1))
