"""Bodies of random models: the operators that rules like to rewrite, on matrices and images of one element type."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, FLOAT16, DOUBLE, BFLOAT16 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16
DTYPES = {FLOAT: np.float32, FLOAT16: np.float16, DOUBLE: np.float64, BFLOAT16: ml_dtypes.bfloat16}
OLDEST, NEWEST = 11, 23
"""Opsets in which bodies can be drawn; bfloat16 needs 16."""
ROWS, WIDTH = 4, 8
"""Extents of the matrices of a body; images have `ROWS` channels of `WIDTH` by `WIDTH`."""


class Body:
    """The operators of a model under construction, all of one element type.

    Attributes:
      opset: the opset whose forms of the operators are used.
      matrices, images: names of values [ROWS, WIDTH] and [1, ROWS, WIDTH, WIDTH] that later operators may read.
    """

    def __init__(self, rng: np.random.Generator, dtype: int, opset: int) -> None:
        self.rng, self.dtype, self.opset = rng, dtype, opset
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.matrices, self.images = ["x"], ["i"]
        self._count = 0

    def fresh(self, stem: str = "v") -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def weight(self, *dims: int, scale: float = 0.5, at: float = 0.0) -> str:
        return self.constant(at + scale * self.rng.standard_normal(dims))

    def constant(self, values: object) -> str:
        array = np.asarray(values)
        array = array.astype(DTYPES[self.dtype]) if array.dtype.kind == "f" else array
        name = self.fresh("w")
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def add(self, op_type: str, *inputs: str, **attributes: object) -> str:
        """Adds an operator and returns its result."""
        return self.add_with_results(op_type, inputs, 1, **attributes)[0]

    def add_with_results(self, op_type: str, inputs: Sequence[str], results: int, **attributes: object) -> list[str]:
        """Adds an operator and returns all of its results."""
        names = [self.fresh() for _ in range(results)]
        self.nodes.append(helper.make_node(op_type, inputs, names, **attributes))
        return names

    def mean(self, x: str, axis: int) -> str:
        if self.opset < 18:
            return self.add("ReduceMean", x, axes=[axis], keepdims=1)
        return self.add("ReduceMean", x, self.constant(np.array([axis])), keepdims=1)

    def matrix(self) -> str:
        return self.matrices[self.rng.integers(len(self.matrices))]

    def image(self) -> str:
        return self.images[self.rng.integers(len(self.images))]


def _negations(b: Body) -> None:
    b.matrices.append(b.add("Neg", b.add("Neg", b.matrix())))


def _siblings(b: Body) -> None:
    x = b.matrix()
    products = [b.add("MatMul", x, b.weight(WIDTH, WIDTH)) for _ in range(b.rng.integers(2, 4))]
    b.matrices += products
    b.matrices.append(b.add("Add", products[0], products[1]))


def _linear(b: Body) -> None:
    product = b.add("Gemm", b.matrix(), b.weight(WIDTH, WIDTH), b.weight(WIDTH), transB=int(b.rng.integers(2)))
    b.matrices.append(b.add("Mul", product, b.constant(np.float64(b.rng.choice([0.0, 0.5, 2.0])))))


def _affine(b: Body) -> None:
    operator = str(b.rng.choice(["Add", "Mul", "Sub", "Div"]))
    b.matrices.append(b.add(operator, b.matrix(), b.weight(WIDTH, at=3.0)))


def _layout(b: Body) -> None:
    turned = b.add("Transpose", b.add("Transpose", b.matrix(), perm=[1, 0]), perm=[1, 0])
    flat = b.add("Reshape", turned, b.constant(np.array([ROWS * WIDTH])))
    b.matrices.append(b.add("Reshape", flat, b.constant(np.array([ROWS, -1]))))


def _concat_split(b: Body) -> None:
    joined = b.add("Concat", b.matrix(), b.matrix(), axis=1)
    halves = [WIDTH, WIDTH]
    if b.opset < 13:
        b.matrices += b.add_with_results("Split", [joined], 2, axis=1, split=halves)
    else:
        b.matrices += b.add_with_results("Split", [joined, b.constant(np.array(halves))], 2, axis=1)


def _gelu(b: Body) -> None:
    x = b.matrix()
    inner = b.add("Erf", b.add("Div", x, b.constant(np.sqrt(2.0))))
    b.matrices.append(b.add("Mul", b.add("Mul", x, b.add("Add", inner, b.constant(1.0))), b.constant(0.5)))


def _norm(b: Body) -> None:
    x = b.matrix()
    centred = b.add("Sub", x, b.mean(x, -1))
    variance = b.mean(b.add("Mul", centred, centred), 1)
    b.matrices.append(b.add("Div", centred, b.add("Sqrt", b.add("Add", variance, b.constant(1e-2)))))


def _attention(b: Body) -> None:
    x = b.matrix()
    query, key, value = (b.add("MatMul", x, b.weight(WIDTH, WIDTH)) for _ in range(3))
    scores = b.add("MatMul", query, b.add("Transpose", key, perm=[1, 0]))
    b.matrices.append(b.add("MatMul", b.add("Softmax", b.add("Mul", scores, b.constant(0.35)), axis=-1), value))


def _activation(b: Body) -> None:
    kinds = ["Relu", "Sigmoid", "Tanh", "LeakyRelu", "Abs", "HardSigmoid", "Softplus"]
    operator = kinds[b.rng.integers(5 if b.dtype == BFLOAT16 else 7)]  # the last two lack bfloat16
    b.matrices.append(b.add(operator, b.add(operator, b.matrix())))


def clip(b: Body) -> None:
    low, high = sorted(b.rng.choice([-1.0, 0.0, 0.5, 6.0], 2, replace=False))
    b.matrices.append(b.add("Clip", b.add("Relu", b.matrix()), b.constant(low), b.constant(high)))


def _where(b: Body) -> None:
    x, y = b.matrix(), b.matrix()
    b.matrices.append(b.add("Where", b.add("Greater", x, y), x, y))


def _convolution(b: Body) -> None:
    group = int(b.rng.choice([1, 2, ROWS]))
    kernel = b.weight(ROWS, ROWS // group, 3, 3)
    image = b.add("Conv", b.image(), kernel, b.weight(ROWS), pads=[1, 1, 1, 1], group=group)
    scale, variance = b.weight(ROWS, at=1.0), b.constant(b.rng.uniform(0.3, 2.0, ROWS))
    norm = [scale, b.weight(ROWS), b.weight(ROWS), variance]
    b.images += [image, b.add("BatchNormalization", image, *norm), b.add("Relu", b.image())]


def _inception(b: Body) -> None:
    x = b.image()
    small = b.add("Conv", x, b.weight(2, ROWS, 1, 1))
    large = b.add("Conv", x, b.weight(2, ROWS, 3, 3), pads=[1, 1, 1, 1])
    b.images.append(b.add("Concat", small, large, axis=1))


def _pool(b: Body) -> None:
    operator = str(b.rng.choice(["MaxPool", "AveragePool"]))
    b.images.append(b.add(operator, b.image(), kernel_shape=[3, 3], pads=[1, 1, 1, 1]))


FRAGMENTS: tuple[Callable[[Body], None], ...] = (
    *(_negations, _siblings, _linear, _affine, _layout, _concat_split, _gelu, _norm, _attention, _activation, clip),
    *(_where, _convolution, _inception, _pool),
)
MATRICES_ONLY = FRAGMENTS[:-3]
"""Those whose operators have bfloat16."""


def drawn(
    rng: np.random.Generator,
    dtype: int,
    fragments: int,
    opset: int,
    usable: Sequence[Callable[[Body], None]] | None = None,
) -> onnx.ModelProto:
    """Returns a model of random fragments, whose outputs are all values that nothing reads.

    Args:
      dtype: the element type.
      fragments: number of fragments.
      opset: from `OLDEST` to `NEWEST`.
      usable: the fragments to draw from; None: all that have the element type.
    """
    body = Body(rng, dtype, opset)
    usable = usable or (MATRICES_ONLY if dtype == BFLOAT16 else FRAGMENTS)
    for _ in range(fragments):
        usable[rng.integers(len(usable))](body)
    read = {name for node in body.nodes for name in node.input}
    loose = [name for node in body.nodes for name in node.output if name not in read]
    shapes = {key: [ROWS, WIDTH] for key in body.matrices} | {key: [1, ROWS, WIDTH, WIDTH] for key in body.images}
    inputs = [
        helper.make_tensor_value_info(name, dtype, shape)
        for name, shape in (("x", [ROWS, WIDTH]), ("i", [1, ROWS, WIDTH, WIDTH]))
        if name in read
    ]
    outputs = [helper.make_tensor_value_info(name, dtype, shapes.get(name)) for name in loose]
    graph = helper.make_graph(body.nodes, "nasty", inputs, outputs, body.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
