"""Small models as exporters write them, one for each hand-written rule that no other test applies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import numpy_helper, parser

OPSET = 17
Weight = tuple[int, ...] | float | np.ndarray
"""The dims of random elements, one number, or all elements."""


@dataclass(frozen=True)
class FamilyForm:
    """A model to which `rule` applies.

    Attributes:
      signature: the inputs and outputs in ONNX's text format.
      body: the operators in that format.
      weights: the initializers by name; those whose names begin with `v` are positive.
      left: the operators after the rewrite in alphabetical order, without those on weights alone.
    """

    rule: str
    signature: str
    body: str
    weights: Mapping[str, Weight] = field(default_factory=dict)
    left: str = ""

    def model(self) -> onnx.ModelProto:
        """Returns the model, with the same weights every time."""
        graph = parser.parse_graph(f"g {self.signature} {{ {self.body} }}")
        generator = np.random.default_rng(0)
        for name, weight in self.weights.items():
            elements = generator.standard_normal(weight) if isinstance(weight, tuple) else np.asarray(weight)
            if name.startswith("v"):
                elements = np.abs(elements) + 0.5
            as_stored = elements if elements.dtype == np.int64 else elements.astype(np.float32)
            graph.initializer.append(numpy_helper.from_array(as_stored, name))
        model = onnx.helper.make_model(graph, ir_version=9, opset_imports=[onnx.helper.make_opsetid("", OPSET)])
        onnx.checker.check_model(model, full_check=True)
        return model


_NORM = {"s": (6,), "b": (6,), "e": (6,), "v": (6,)}
_IMAGE = "(float[2, 6, 5, 5] x) => (float[2, 4, 5, 5] y)"
_ROWS = "(float[3, 6] x) => (float[3, 4] y)"
_SAME = "(float[2, 3, 4] x) => (float[2, 3, 4] y)"
_DEPTHWISE = "(float[2, 4, 6, 6] x, float[2, 4, 6, 6] z) => (float[2, 8, 6, 6] y)"
_UNLIKE = "u = Conv<group = 4, pads = [1, 1, 1, 1]>(x, a) v = Conv<group = 4, pads = [2, 2, 2, 2]>(z, b) "
_KERNELS = {"a": (4, 1, 3, 3), "b": (4, 1, 5, 5)}
_LINEAR = "(float[2, 3, 6] x) => (float[2, 3, 4] y)"

FORMS = [
    FamilyForm("drop-zero-term", _SAME, "y = Add(x, c)", {"c": 0.0}),
    FamilyForm("drop-factor-one", _SAME, "y = Div(x, c)", {"c": np.ones(4)}),
    FamilyForm("drop-power-one", _SAME, "y = Pow(x, c)", {"c": 1.0}),
    FamilyForm("square-by-multiplying", _SAME, "y = Pow(x, c)", {"c": 2.0}, "Mul"),
    FamilyForm("root-instead-of-power", _SAME, "z = Abs(x) y = Pow(z, c)", {"c": 0.5}, "Abs Sqrt"),
    FamilyForm("drop-double-negation", _SAME, "n = Neg(x) y = Neg(n)"),
    FamilyForm("drop-double-reciprocal", _SAME, "n = Reciprocal(x) y = Reciprocal(n)"),
    FamilyForm("drop-relu-of-relu", _SAME, "n = Relu(x) y = Relu(n)", {}, "Relu"),
    FamilyForm("subtract-instead-of-adding-negated", _SAME, "t = Tanh(x) n = Neg(t) y = Add(x, n)", {}, "Sub Tanh"),
    FamilyForm(
        "divide-instead-of-multiplying-by-reciprocal",
        _SAME,
        "t = Exp(x) n = Reciprocal(t) y = Mul(x, n)",
        {},
        "Div Exp",
    ),
    FamilyForm("multiply-instead-of-dividing-by-constant", _SAME, "y = Div(x, v)", {"v": (4,)}, "Mul"),
    FamilyForm(
        "drop-slice-of-everything",
        _SAME,
        "r = Relu(x) y = Slice(r, from, to, axis)",
        {"from": np.array([0]), "to": np.array([9223372036854775807]), "axis": np.array([1])},
        "Relu",
    ),
    FamilyForm("drop-pad-of-nothing", _SAME, "r = Relu(x) y = Pad(r, none)", {"none": np.zeros(6, np.int64)}, "Relu"),
    FamilyForm(
        "average-pool-instead-of-conv",
        "(float[2, 6, 5, 5] x) => (float[2, 6, 5, 5] y)",
        "y = Conv<group = 6, pads = [1, 1, 1, 1]>(x, w)",
        {"w": np.full((6, 1, 3, 3), 1 / 9)},
        "AveragePool",
    ),
    FamilyForm(
        "drop-average-pool-of-one-element",
        "(float[2, 6, 5, 5] x) => (float[2, 6, 5, 5] y)",
        "r = Relu(x) y = AveragePool<kernel_shape = [1, 1]>(r)",
        {},
        "Relu",
    ),
    FamilyForm(
        "compose-kept-means",
        "(float[2, 6, 5, 5] x) => (float[2, 6, 1, 1] y)",
        "t = ReduceMean<axes = [2]>(x) y = ReduceMean<axes = [3]>(t)",
        {},
        "ReduceMean",
    ),
    FamilyForm(
        "compose-kept-sums",
        "(float[2, 6, 5, 5] x) => (float[2, 6, 1, 1] y)",
        "t = ReduceSum(x, a) y = ReduceSum(t, b)",
        {"a": np.array([2]), "b": np.array([3])},
        "ReduceSum",
    ),
    FamilyForm(
        "mean-instead-of-divided-sum",
        "(float[2, 7, 6] x) => (float[2, 6] y)",
        "t = ReduceSum<keepdims = 0>(x, a) y = Div(t, c)",
        {"a": np.array([1]), "c": 7.0},
        "ReduceMean",
    ),
    FamilyForm(
        "mean-instead-of-multiplied-sum",
        "(float[2, 7, 6] x) => (float[2, 6] y)",
        "t = ReduceSum<keepdims = 0>(x, a) y = Mul(t, c)",
        {"a": np.array([1]), "c": 1 / 7},
        "ReduceMean",
    ),
    FamilyForm(
        "reshape-instead-of-reducing-one",
        "(float[2, 1, 6] x) => (float[2, 6] y)",
        "y = ReduceMean<axes = [1], keepdims = 0>(x)",
        {},
        "Reshape",
    ),
    FamilyForm(
        "transpose-after-kept-mean",
        "(float[2, 5, 5, 6] x) => (float[2, 6, 1, 1] y)",
        "t = Transpose<perm = [0, 3, 1, 2]>(x) y = ReduceMean<axes = [2, 3]>(t)",
        {},
        "ReduceMean Transpose",
    ),
    FamilyForm(
        "fold-scale-before-grouped-conv",
        _IMAGE,
        "t = Mul(x, s) y = Conv<group = 2, pads = [1, 1, 1, 1]>(t, w)",
        {"s": (1, 6, 1, 1), "w": (4, 3, 3, 3)},
        "Conv",
    ),
    FamilyForm(
        "fold-scale-before-biased-grouped-conv",
        "(float[2, 6, 5, 5] x) => (float[2, 6, 5, 5] y)",
        "t = Mul(x, s) y = Conv<group = 6, pads = [1, 1, 1, 1]>(t, w, c)",
        {"s": (6, 1, 1), "w": (6, 1, 3, 3), "c": (6,)},
        "Conv",
    ),
    FamilyForm(
        "fold-add-before-linear",
        _LINEAR,
        "t = Add(x, b) u = MatMul(t, w) y = Add(u, c)",
        {"b": (6,), "w": (6, 4), "c": (4,)},
        "Add MatMul",
    ),
    FamilyForm(
        "fold-scale-into-linear",
        _LINEAR,
        "t = MatMul(x, w) u = Add(t, c) y = Div(u, d)",
        {"w": (6, 4), "c": (4,), "d": 8.0},
        "Add MatMul",
    ),
    FamilyForm("matmul-instead-of-plain-gemm", _ROWS, "y = Gemm(x, w)", {"w": (6, 4)}, "MatMul"),
    FamilyForm("plain-gemm-of-transposed-weight", _ROWS, "y = Gemm<transB = 1>(x, w)", {"w": (4, 6)}, "Gemm"),
    FamilyForm("gemm-of-transposed-weight", _ROWS, "y = Gemm<transB = 1>(x, w, c)", {"w": (4, 6), "c": (4,)}, "Gemm"),
    FamilyForm("linear-instead-of-gemm", _ROWS, "y = Gemm(x, w, c)", {"w": (6, 4), "c": (4,)}, "Add MatMul"),
    FamilyForm("gemm-instead-of-linear", _ROWS, "t = MatMul(x, w) y = Add(t, c)", {"w": (6, 4), "c": (4,)}, "Gemm"),
    FamilyForm(
        "fold-transpose-into-gemm",
        "(float[6, 3] x) => (float[3, 4] y)",
        "t = Transpose(x) y = Gemm<transB = 1>(t, w, c)",
        {"w": (4, 6), "c": (4,)},
        "Gemm",
    ),
    FamilyForm(
        "fold-add-into-gemm", _ROWS, "t = Gemm<transB = 1>(x, w) y = Add(t, c)", {"w": (4, 6), "c": (4,)}, "Gemm"
    ),
    FamilyForm(
        "fold-add-into-biased-gemm",
        _ROWS,
        "t = Gemm<transB = 1>(x, w, b) y = Add(t, c)",
        {"w": (4, 6), "b": (4,), "c": (4,)},
        "Gemm",
    ),
    FamilyForm(
        "fold-scale-into-gemm",
        _ROWS,
        "t = Gemm<transB = 1>(x, w, b) y = Mul(t, c)",
        {"w": (4, 6), "b": (4,), "c": (4,)},
        "Gemm",
    ),
    FamilyForm(
        "fold-batch-norm-into-gemm",
        "(float[3, 4] x) => (float[3, 6] y)",
        "t = Gemm<transB = 1>(x, w, a) y = BatchNormalization(t, s, b, e, v)",
        {"w": (6, 4), "a": (6,), **_NORM},
        "Gemm",
    ),
    FamilyForm(
        "fold-batch-norm-before-gemm",
        _ROWS,
        "t = BatchNormalization(x, s, b, e, v) y = Gemm<transB = 1>(t, w, a)",
        {"w": (4, 6), "a": (4,), **_NORM},
        "Gemm",
    ),
    FamilyForm(
        "fold-batch-norm-before-matmul",
        _ROWS,
        "t = BatchNormalization(x, s, b, e, v) y = MatMul(t, w)",
        {"w": (6, 4), **_NORM},
        "Add MatMul",
    ),
    FamilyForm(
        "fold-batch-norm-before-linear",
        _ROWS,
        "t = BatchNormalization(x, s, b, e, v) u = MatMul(t, w) y = Add(u, a)",
        {"w": (6, 4), "a": (4,), **_NORM},
        "Add MatMul",
    ),
    FamilyForm(
        "join-concat-of-transposes",
        "(float[2, 5, 5, 6] x) => (float[2, 12, 5, 5] y)",
        "r = Relu(x) a = Transpose<perm = [0, 3, 1, 2]>(x) b = Transpose<perm = [0, 3, 1, 2]>(r) "
        "y = Concat<axis = 1>(a, b)",
        {},
        "Concat Relu Transpose",
    ),
    FamilyForm(
        "move-transpose-behind-constant",
        "(float[2, 5, 5, 6] x) => (float[2, 6, 5, 5] y)",
        "a = Transpose<perm = [0, 3, 1, 2]>(x) y = Add(a, c)",
        {"c": (1, 6, 1, 1)},
        "Add Transpose",
    ),
    FamilyForm(
        "move-transpose-behind-bias",
        "(float[2, 6, 5, 5] x) => (float[2, 5, 5, 6] y)",
        "a = Transpose<perm = [0, 2, 3, 1]>(x) y = Add(a, c)",
        {"c": (6,)},
        "Add Transpose",
    ),
    FamilyForm(
        "enlarge-conv-to-sibling",  # 1x2 to 3x3, one column more on the right
        "(float[2, 6, 5, 5] x) => (float[2, 4, 5, 5] y, float[2, 4, 5, 5] z)",
        "y = Conv<pads = [0, 0, 0, 1]>(x, w) z = Conv<pads = [1, 1, 1, 1]>(x, u)",
        {"w": (4, 6, 1, 2), "u": (4, 6, 3, 3)},
        "Conv Conv",
    ),
    FamilyForm(
        "merge-matmuls-sharing-lhs",
        "(float[2, 3, 6] x) => (float[2, 3, 4] y, float[2, 3, 5] z)",
        "y = MatMul(x, w) z = MatMul(x, u)",
        {"w": (2, 6, 4), "u": (2, 6, 5)},
        "MatMul Split",
    ),
    FamilyForm(
        "factor-binary-from-concat-of-channels",
        "(float[2, 6, 5] x, float[2, 4, 5] u) => (float[2, 10, 5] y)",
        "a = Relu(x) b = Relu(u) c = Add(x, a) d = Add(u, b) y = Concat<axis = 1>(c, d)",
        {},
        "Add Concat Concat Relu Relu",
    ),
    FamilyForm(
        "group-concatenated-convs-enlarging-first",
        _DEPTHWISE,
        _UNLIKE + "y = Concat<axis = 1>(u, v)",
        _KERNELS,
        "Concat Conv",
    ),
    FamilyForm(
        "group-concatenated-convs-enlarging-second",
        _DEPTHWISE,
        _UNLIKE + "y = Concat<axis = 1>(v, u)",
        _KERNELS,
        "Concat Conv",
    ),
    FamilyForm(
        "merge-gates",
        "(float[2, 6] h, float[2, 4] c, float[2, 5] d) => (float[2, 4] y, float[2, 5] z)",
        "p = Exp(c) s = MatMul(h, u) g = Add(p, s) y = Sigmoid(g) "
        "q = Exp(d) t = MatMul(h, w) k = Add(t, q) z = Sigmoid(k)",
        {"u": (6, 4), "w": (6, 5)},
        "Add Concat Exp Exp MatMul Sigmoid Split",
    ),
]
