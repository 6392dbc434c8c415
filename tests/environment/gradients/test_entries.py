"""Every entry of the table of gradients agrees with TensorFlow's gradients and with finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import tensorflow as tf

from environment.gradients.table import RULES
from taso_ext.errors import ModelError
from tests.environment.gradients.case import Arrays, Case, run
from tests.environment.gradients.spatial_cases import SPATIAL

TOLERANCE = 1e-4
"""Largest difference from TensorFlow's gradient, of that gradient's largest element."""
STEP = 1e-2
"""Step of the finite differences. Operands keep five times this distance from kinks."""


def smooth(*dims: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    """Returns distinct numbers from -1.5 to 1.5 that are at least 0.1 away from zero, in random order."""
    count = int(np.prod(dims))
    half = np.linspace(0.1, 1.5, (count + 1) // 2)
    values = np.concatenate([half, -half[: count // 2] - 0.01])
    return np.random.default_rng(seed).permutation(values).reshape(dims).astype(dtype)


def between(*dims: int, seed: int = 0) -> np.ndarray:
    """Returns numbers that are far from all those of `smooth` of the size 6."""
    return np.round(smooth(*dims, seed=seed) / 0.28) * np.float32(0.28) + np.float32(0.24)


def positive(*dims: int, seed: int = 0) -> np.ndarray:
    return np.abs(smooth(*dims, seed=seed)) + np.float32(0.3)


def ints(*values: Any) -> np.ndarray:
    return np.array(values, np.int64)


def _unary(op_type: str, function: Callable[[Any], Any], x: np.ndarray | None = None, **attributes: Any) -> Case:
    name = "-".join([op_type, *(f"{key}={value}" for key, value in attributes.items())])
    return Case(name, op_type, [smooth(3, 4) if x is None else x], function, attributes)


UNARY = [
    _unary("Identity", tf.identity),
    _unary("Neg", tf.negative),
    _unary("Exp", tf.exp),
    _unary("Log", tf.math.log, positive(3, 4)),
    _unary("Sqrt", tf.sqrt, positive(3, 4)),
    _unary("Reciprocal", tf.math.reciprocal, positive(3, 4)),
    _unary("Abs", tf.abs),
    _unary("Sin", tf.sin),
    _unary("Cos", tf.cos),
    _unary("Sigmoid", tf.sigmoid),
    _unary("Tanh", tf.tanh),
    _unary("Erf", tf.math.erf),
    _unary("Softplus", tf.math.softplus),
    _unary("Relu", tf.nn.relu),
    _unary("LeakyRelu", lambda x: tf.nn.leaky_relu(x, 0.3), alpha=0.3),
    _unary("LeakyRelu", lambda x: tf.nn.leaky_relu(x, 0.01)),
    _unary("Elu", tf.nn.elu),
    _unary("Elu", lambda x: tf.where(x > 0, x, 0.5 * (tf.exp(x) - 1)), alpha=0.5),
    _unary("HardSigmoid", lambda x: tf.clip_by_value(0.5 * x + 0.4, 0, 1), 2 * smooth(3, 4), alpha=0.5, beta=0.4),
    _unary("HardSwish", lambda x: x * tf.nn.relu6(x + 3) / 6, 3.3 * smooth(3, 4)),
    _unary("Cast", lambda x: tf.cast(x, tf.float64), to=onnx.TensorProto.DOUBLE),
    Case("Gelu", "Gelu", [smooth(3, 4)], lambda x: tf.nn.gelu(x), opset=20),
    Case("Gelu-tanh", "Gelu", [smooth(3, 4)], lambda x: tf.nn.gelu(x, True), {"approximate": "tanh"}, opset=20),
]

BROADCAST = [
    Case(f"{op_type}-{left}-{right}", op_type, [smooth(*left), divisor(*right, seed=1)], function)
    for op_type, function, divisor in (
        ("Add", tf.add, smooth),
        ("Sub", tf.subtract, smooth),
        ("Mul", tf.multiply, smooth),
        ("Div", tf.divide, positive),
        ("Max", tf.maximum, between),
        ("Min", tf.minimum, between),
        ("Sum", tf.add, smooth),
        ("Mean", lambda x, y: (x + y) / 2, smooth),
    )
    for left, right in (((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1, 3), (4, 1)), ((3,), (2, 2, 3)), ((2, 3), (1, 1)))
]

POINTWISE = [
    Case("Sum-of-three", "Sum", [smooth(2, 3), smooth(3, seed=1), smooth(2, 1, seed=2)], lambda x, y, z: x + y + z),
    Case("Max-of-one", "Max", [smooth(2, 3)], tf.identity),
    Case("Max-ties", "Max", [np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)], tf.maximum),
    Case("Min-ties", "Min", [np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)], tf.minimum),
    Case("Pow-square", "Pow", [smooth(3, 4), np.float32(2).reshape(())], tf.pow, fixed=[1]),
    Case("Pow-half", "Pow", [positive(3, 4), np.float32(0.5).reshape(())], tf.pow, fixed=[1]),
    Case("Pow-integer", "Pow", [smooth(3, 4), ints(3)[0].reshape(())], lambda x, y: tf.pow(x, 3.0)),
    Case("Pow", "Pow", [positive(2, 3), smooth(3, seed=1)], tf.pow),
    Case("PRelu", "PRelu", [smooth(2, 3, 4), smooth(3, 1, seed=1)], lambda x, a: tf.where(x > 0, x, a * x)),
    Case("Where", "Where", [smooth(2, 3) > 0, smooth(2, 3), smooth(3, seed=1)], tf.where),
    *(
        Case(
            f"Clip-{low}-{high}",
            "Clip",
            [
                smooth(3, 4),
                None if low is None else np.array(low, np.float32),
                None if high is None else np.array(high, np.float32),
            ],
            lambda x, *_, low=low, high=high: tf.clip_by_value(
                x, -9.0 if low is None else low, 9.0 if high is None else high
            ),
            fixed=[1, 2],
        )
        for low, high in ((-0.53, 0.53), (None, 0.53), (-0.53, None), (None, None))
    ),
]

REDUCTIONS = [
    Case(
        f"{op_type}-axes={axes}-keepdims={keep}",
        op_type,
        [positive(2, 3, 4), *([] if axes is None else [ints(*axes)])],
        lambda x, *_, function=function, axes=axes, keep=keep: function(x, axis=axes, keepdims=bool(keep)),
        {"keepdims": keep},
    )
    for op_type, function in (
        ("ReduceSum", tf.reduce_sum),
        ("ReduceMean", tf.reduce_mean),
        ("ReduceMax", tf.reduce_max),
        ("ReduceMin", tf.reduce_min),
        ("ReduceSumSquare", lambda x, axis, keepdims: tf.reduce_sum(x * x, axis, keepdims)),
        ("ReduceL2", lambda x, axis, keepdims: tf.sqrt(tf.reduce_sum(x * x, axis, keepdims))),
        ("ReduceLogSumExp", tf.reduce_logsumexp),
    )
    for axes, keep in ((None, 0), ([1], 1), ([-1, 0], 0))
] + [
    Case("ReduceMax-ties", "ReduceMax", [np.ones((2, 3), np.float32), ints(1)], lambda x, _: tf.reduce_max(x, 1, True)),
    Case("ReduceSum-none", "ReduceSum", [smooth(2, 3)], tf.identity, {"noop_with_empty_axes": 1}),
    *(
        Case(
            f"CumSum-exclusive={exclusive}-reverse={reverse}",
            "CumSum",
            [smooth(2, 3), ints(1)[0].reshape(())],
            lambda x, _, e=exclusive, r=reverse: tf.cumsum(x, 1, bool(e), bool(r)),
            {"exclusive": exclusive, "reverse": reverse},
        )
        for exclusive in (0, 1)
        for reverse in (0, 1)
    ),
]

PRODUCTS = (
    [
        Case(f"MatMul-{left}-{right}", "MatMul", [smooth(*left), smooth(*right, seed=1)], function)
        for left, right, function in (
            ((2, 3), (3, 4), tf.matmul),
            ((5, 2, 3), (3, 4), tf.matmul),
            ((5, 2, 3), (5, 3, 4), tf.matmul),
            ((2, 1, 2, 3), (5, 3, 4), tf.matmul),
            ((2, 3), (5, 3, 4), tf.matmul),
            ((3,), (3, 4), lambda a, b: tf.einsum("k,kn->n", a, b)),
            ((2, 3), (3,), lambda a, b: tf.einsum("mk,k->m", a, b)),
            ((3,), (3,), lambda a, b: tf.einsum("k,k->", a, b)),
            ((3,), (5, 3, 4), lambda a, b: tf.einsum("k,bkn->bn", a, b)),
            ((5, 2, 3), (3,), lambda a, b: tf.einsum("bmk,k->bm", a, b)),
        )
    ]
    + [
        Case(
            f"Gemm-{ta}{tb}-{None if c is None else c}",
            "Gemm",
            [
                smooth(*((3, 2) if ta else (2, 3))),
                smooth(*((4, 3) if tb else (3, 4)), seed=1),
                *([] if c is None else [smooth(*c, seed=2)]),
            ],
            lambda a, b, c=0.0, ta=ta, tb=tb: 0.5 * tf.matmul(a, b, bool(ta), bool(tb)) + 2.0 * c,
            {"alpha": 0.5, "beta": 2.0, "transA": ta, "transB": tb},
        )
        for ta in (0, 1)
        for tb in (0, 1)
        for c in (None, (4,), (2, 1))
    ]
    + [
        Case(
            f"Einsum-{equation}",
            "Einsum",
            [smooth(*each, seed=seed) for seed, each in enumerate(dims)],
            lambda *operands, equation=equation: tf.einsum(equation, *operands),
            {"equation": equation},
        )
        for equation, dims in (
            ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))),
            ("bshd,bthd->bhst", ((2, 3, 2, 4), (2, 5, 2, 4))),
            ("ij->ji", ((2, 3),)),
            ("i,j->ij", ((2,), (3,))),
        )
    ]
)

ROWS = np.array([[2, 0, 2], [1, -1, 0]], np.int64)
PAIRS = np.array([[[2, 0], [2, 0], [-1, 1]], [[1, 2], [0, -1], [2, 0]]], np.int64)


def resized(name: str, operands: list[np.ndarray | None], shape: list[int], method: str, **attributes: Any) -> Case:
    """An image [1, 2, rows, columns] that is resized, which TensorFlow has with channels last."""

    def function(x: Any, *_: Any) -> Any:
        return tf.transpose(tf.image.resize(tf.transpose(x, [0, 2, 3, 1]), shape, method), [0, 3, 1, 2])

    return Case(f"Resize-{name}", "Resize", operands, function, attributes, fixed=[1, 2])


IMAGE, TWICE = smooth(1, 2, 3, 4), np.array([1, 1, 2, 2], np.float32)
RESIZED = [
    resized("nearest", [IMAGE, None, TWICE], [6, 8], "nearest"),
    resized("nearest-sizes", [IMAGE, None, None, ints(1, 2, 6, 12)], [6, 12], "nearest"),
    resized("linear", [IMAGE, None, TWICE], [6, 8], "bilinear", mode="linear"),
    resized("linear-axes", [IMAGE, None, None, ints(5, 7)], [5, 7], "bilinear", mode="linear", axes=[2, 3]),
    resized("linear-smaller", [IMAGE, None, None, ints(1, 2, 2, 3)], [2, 3], "bilinear", mode="linear"),
    resized("cubic", [IMAGE, None, TWICE], [6, 8], "bicubic", mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1),
]

SHAPES = [
    Case("Reshape", "Reshape", [smooth(2, 6), ints(3, -1)], lambda x, _: tf.reshape(x, [3, 4])),
    Case("Flatten", "Flatten", [smooth(2, 3, 2)], lambda x: tf.reshape(x, [2, 6]), {"axis": 1}),
    Case("Squeeze", "Squeeze", [smooth(2, 1, 3), ints(1)], lambda x, _: tf.squeeze(x, 1)),
    Case("Unsqueeze", "Unsqueeze", [smooth(2, 3), ints(0, -1)], lambda x, _: x[None, :, :, None]),
    Case("Transpose", "Transpose", [smooth(2, 3, 4)], lambda x: tf.transpose(x, [1, 2, 0]), {"perm": [1, 2, 0]}),
    Case("Transpose-default", "Transpose", [smooth(2, 3, 4)], tf.transpose),
    Case("Concat", "Concat", [smooth(2, 3), smooth(2, 1, seed=1)], lambda *x: tf.concat(x, 1), {"axis": 1}),
    Case("Concat-negative", "Concat", [smooth(2, 3), smooth(2, 1, seed=1)], lambda *x: tf.concat(x, -1), {"axis": -1}),
    Case("Concat-one", "Concat", [smooth(2, 3)], tf.identity, {"axis": 0}),
    Case("Split", "Split", [smooth(2, 5), ints(2, 3)], lambda x, _: tf.split(x, [2, 3], 1), {"axis": 1}, outputs=2),
    Case("Split-equal", "Split", [smooth(4, 3)], lambda x: tf.split(x, 2), {"num_outputs": 2}, outputs=2),
    Case("Expand", "Expand", [smooth(3, 1), ints(2, 3, 4)], lambda x, _: tf.broadcast_to(x, [2, 3, 4])),
    Case("Expand-smaller", "Expand", [smooth(2, 3), ints(1)], lambda x, _: x),
    Case("Tile", "Tile", [smooth(2, 3), ints(2, 3)], lambda x, _: tf.tile(x, [2, 3])),
    Case("Pad", "Pad", [smooth(2, 3), ints(1, 0, 0, 2)], lambda x, _: tf.pad(x, [[1, 0], [0, 2]])),
    Case("Pad-crop", "Pad", [smooth(3, 4), ints(-1, 1, 0, -2)], lambda x, _: tf.pad(x[1:, :-2], [[0, 0], [1, 0]])),
    Case(
        "Pad-axes",
        "Pad",
        [smooth(2, 3), ints(1, 2), np.float32(7).reshape(()), ints(-1)],
        lambda x, *_: tf.pad(x, [[0, 0], [1, 2]], constant_values=7.0),
        fixed=[2],
    ),
    Case("Slice", "Slice", [smooth(4, 5), ints(1), ints(3), ints(1)], lambda x, *_: x[:, 1:3]),
    Case("Slice-ends", "Slice", [smooth(4, 5), ints(-3, 0), ints(99, -1)], lambda x, *_: x[-3:, :-1]),
    Case(
        "Slice-steps",
        "Slice",
        [smooth(5, 7), ints(-1, 1), ints(-99, 6), ints(0, 1), ints(-2, 3)],
        lambda x, *_: x[::-2, 1:6:3],
    ),
    Case("Gather-rows", "Gather", [smooth(4, 3), ROWS], lambda x, i: tf.gather(x, i % 4)),
    Case("Gather-axis", "Gather", [smooth(2, 4, 3), ROWS], lambda x, i: tf.gather(x, i % 4, axis=1), {"axis": 1}),
    Case("Gather-one", "Gather", [smooth(2, 4, 3), ints(-1)[0].reshape(())], lambda x, _: x[:, -1], {"axis": 1}),
    Case(
        "GatherElements",
        "GatherElements",
        [smooth(2, 4), ROWS],
        lambda x, i: tf.gather(x, i % 4, axis=1, batch_dims=1),
        {"axis": 1},
    ),
    Case("GatherND", "GatherND", [smooth(3, 4, 2), PAIRS], lambda x, i: tf.gather_nd(x, i % [3, 4])),
    Case("GatherND-all", "GatherND", [smooth(3, 4), PAIRS], lambda x, i: tf.gather_nd(x, i % [3, 4])),
    Case(
        "GatherND-batch",
        "GatherND",
        [smooth(2, 4, 3, 2), PAIRS],
        lambda x, i: tf.gather_nd(x, i % [4, 3], batch_dims=1),
        {"batch_dims": 1},
    ),
    Case(
        "ScatterElements-add",
        "ScatterElements",
        [smooth(2, 4), ROWS, smooth(2, 3, seed=1)],
        lambda x, i, u: x + tf.einsum("bk,bkn->bn", u, tf.one_hot(i % 4, 4)),
        {"axis": 1, "reduction": "add"},
    ),
    Case(
        "ScatterElements-replace",
        "ScatterElements",
        [smooth(2, 4), ints([2, 0], [1, 3]), smooth(2, 2, seed=1)],
        lambda x, i, u: tf.where(
            tf.reduce_sum(tf.one_hot(i, 4), 1) > 0, tf.einsum("bk,bkn->bn", u, tf.one_hot(i, 4)), x
        ),
        {"axis": 1},
    ),
    Case("Trilu", "Trilu", [smooth(2, 3, 4)], lambda x: tf.linalg.band_part(x, 0, -1)),
    Case("Trilu-lower", "Trilu", [smooth(3, 3)], lambda x: tf.linalg.band_part(x, -1, 0), {"upper": 0}),
]


def _normed(x: Any, axes: list[int], epsilon: float) -> Any:
    mean, variance = tf.nn.moments(x, axes, keepdims=True)
    return (x - mean) / tf.sqrt(variance + epsilon)


NORMS = [
    *(
        Case(
            f"LayerNormalization-{axis}-{dims}-{shifted}",
            "LayerNormalization",
            [smooth(2, 3, 4), positive(*dims, seed=1), *([smooth(*dims, seed=2)] if shifted else [])],
            lambda x, g, b=0.0, axes=axes: _normed(x, axes, 1e-3) * g + b,
            {"axis": axis, "epsilon": 1e-3},
        )
        for axis, axes, dims, shifted in (
            (-1, [2], (4,), True),
            (1, [1, 2], (3, 4), True),
            (-1, [2], (4,), False),
            (1, [1, 2], (4,), True),
        )
    ),
    *(
        Case(
            f"BatchNormalization-{dims}",
            "BatchNormalization",
            [smooth(*dims), positive(3, seed=1), smooth(3, seed=2), smooth(3, seed=3), positive(3, seed=4)],
            lambda x, g, b, *_, axes=axes: (
                tf.einsum("nc...,c->nc...", _normed(x, axes, 1e-2), g) + tf.reshape(b, [1, 3, *[1] * (len(axes) - 1)])
            ),
            {"epsilon": 1e-2},
            fixed=[3, 4],
        )
        for dims, axes in (((4, 3), [0]), ((2, 3, 5), [0, 2]), ((2, 3, 4, 2), [0, 2, 3]))
    ),
    Case(
        "InstanceNormalization",
        "InstanceNormalization",
        [smooth(2, 3, 4, 2), positive(3, seed=1), smooth(3, seed=2)],
        lambda x, g, b: _normed(x, [2, 3], 1e-2) * g[:, None, None] + b[:, None, None],
        {"epsilon": 1e-2},
    ),
    *(
        Case(f"{op_type}-{axis}", op_type, [smooth(2, 3, 4)], lambda x, f=function, a=axis: f(x, a), {"axis": axis})
        for op_type, function in (("Softmax", tf.nn.softmax), ("LogSoftmax", tf.nn.log_softmax))
        for axis in (-1, 1)
    ),
]

CASES = [*UNARY, *BROADCAST, *POINTWISE, *REDUCTIONS, *PRODUCTS, *SHAPES, *RESIZED, *NORMS, *SPATIAL]
BY_NAME = {case.name: case for case in CASES}
CHECKED_ELSEWHERE = {"Dropout"}
"""Operators with a random result, see `test_normalisation.py`."""


def test_every_entry_has_a_case() -> None:
    assert {case.op_type for case in CASES} | CHECKED_ELSEWHERE == RULES.keys()
    assert len(BY_NAME) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gradients_are_those_of_tensorflow(case: Case) -> None:
    targets = case.targets()
    found = run(case.training(), targets)
    loss, expected = _by_tensorflow(case, targets)
    np.testing.assert_allclose(found.pop("loss"), loss, rtol=TOLERANCE, atol=1e-5)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert found[name].shape == gradient.shape and found[name].dtype == gradient.dtype
        np.testing.assert_allclose(found[name], gradient, rtol=0, atol=TOLERANCE * (np.abs(gradient).max() + 1e-3))


def _by_tensorflow(case: Case, targets: Arrays) -> tuple[float, Arrays]:
    """Returns the loss and its gradients by the trained operands."""
    given = [None if operand is None else tf.constant(operand) for operand in case.operands]
    trained = [given[position] for position in case.trained]
    with tf.GradientTape() as tape:
        tape.watch(trained)
        results = case.function(*(operand for operand in given if operand is not None))
        results = results if case.outputs > 1 else [results]
        parts = [
            tf.reduce_mean((result - targets[f"y{port}.target"]) ** 2)
            for port, result in enumerate(results)
            if f"y{port}.target" in targets
        ]
        loss = tf.add_n(parts)
    gradients = tape.gradient(loss, trained, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    arrays = [tf.convert_to_tensor(gradient).numpy() for gradient in gradients]
    return float(loss), {f"x{at}.gradient": value for at, value in zip(case.trained, arrays, strict=True)}


KINKED = {"Max-ties", "Min-ties", "ReduceMax-ties", "MaxPool-ties"}
"""Functions that have no derivative at their operands."""


@pytest.mark.parametrize("case", [case for case in CASES if case.name not in KINKED], ids=lambda case: case.name)
def test_gradients_are_slopes_of_the_loss(case: Case) -> None:
    """The loss at both sides of the operands differs by the gradient times the step, along a random direction."""
    model, generator = case.training(), np.random.default_rng(1)
    targets = case.targets()
    found = run(model, targets)
    for position in case.trained:
        operand = np.asarray(case.operands[position])
        direction = generator.choice([-1.0, 1.0], operand.shape).astype(operand.dtype)
        above, below = (
            float(
                run(model, {**targets, f"x{position}": operand + sign * operand.dtype.type(STEP) * direction})["loss"]
            )
            for sign in (1, -1)
        )
        gradient = found[f"x{position}.gradient"]
        slope = float((gradient.astype(np.float64) * direction).sum())
        assert (above - below) / (2 * STEP) == pytest.approx(slope, rel=0.01, abs=0.005 * np.abs(gradient).sum() + 1e-4)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"coordinate_transformation_mode": "tf_crop_and_resize"}, "it crops a region of interest"),
        ({"keep_aspect_ratio_policy": "not_larger"}, "it keeps the aspect ratio"),
    ],
)
def test_a_resize_that_is_not_linear_in_each_axis_is_refused(attributes: dict[str, str], reason: str) -> None:
    region = np.array([0, 0, 0, 0, 1, 1, 1, 1], np.float32)
    operands = [IMAGE, region, None, ints(1, 2, 6, 8)]
    case = Case("Resize-refused", "Resize", operands, tf.identity, attributes, fixed=[1])
    with pytest.raises(ModelError, match=f"gradient of the operator Resize 'operator' cannot be written: {reason}"):
        case.training()
