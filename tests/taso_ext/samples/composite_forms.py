"""Composite operators as exporters write them: small ONNX models, and the operator that each should become."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import onnx
import onnx.parser

from taso_ext import CostModel, Graph, RuleSet, State

OPSET = 17  # what PyTorch's exporters write by default, and older than the operators to be recognised
_IR_VERSION = 8


@dataclass(frozen=True)
class Form:
    """A composite operator in one of its forms.

    Attributes:
      name: what is written, and how.
      operator: the operator that it should become.
      text: the nodes from `x` to `y`, both [1, tokens, width], in onnx.parser's syntax; they may read `_constants`.
      inputs: declarations of further inputs.
    """

    name: str
    operator: str
    text: str
    inputs: str = ""

    def model(self, tokens: int = 6, width: int = 8, heads: int = 2) -> onnx.ModelProto:
        """Returns the model at these sizes; `heads` divides `width`."""
        sizes = {"tokens": tokens, "width": width, "heads": heads, "half_depth": width // heads // 2}
        tensor = f"float[1,{tokens},{width}]"
        inputs = ", ".join(filter(None, [f"{tensor} x", self.inputs.format(**sizes)]))
        header = f'<ir_version: {_IR_VERSION}, opset_import: ["" : {OPSET}]>'
        body = " ".join([*_constants(tokens, width, heads), self.text.replace("\n", " ")])
        return onnx.parser.parse_model(f"{header} form ({inputs}) => ({tensor} y) {{ {body} }}")


_NUMBERS = {
    "half": 0.5, "one": 1.0, "two": 2.0, "three": 3.0, "six": 6.0, "zero": 0.0, "sixth": 1 / 6, "tenth": 0.1,
    "minus_half": -0.5, "root_two": 2**0.5, "inverse_root_two": 0.5**0.5, "kappa": 0.044715, "slope": 0.2,
    "beta": 0.7978845608028654, "epsilon": 1e-5,
}  # fmt: skip


def _constants(tokens: int, width: int, heads: int) -> Iterator[str]:
    depth = width // heads
    numbers = _NUMBERS | {"root_depth": depth**0.5, "inverse_root_depth": depth**-0.5, "root_scale": depth**-0.25}
    for name, value in numbers.items():
        yield f"{name} = Constant<value = float {{{value!r}}}>()"
    vectors = {
        "gamma": [0.5 + i % 3 for i in range(width)],
        "shift": [0.25 - i % 2 for i in range(width)],
    }
    for name, values in vectors.items():
        yield f"{name} = Constant<value = float[{width}] {{{', '.join(map(str, values))}}}>()"
    shapes = {"last": [-1], "separated": [1, tokens, heads, depth], "joined": [1, tokens, width]}
    shapes |= {"first": [0], "middle": [depth // 2], "end": [depth]}
    for name, extents in shapes.items():
        yield f"{name} = Constant<value = int64[{len(extents)}] {{{', '.join(map(str, extents))}}}>()"


_HALVINGS = {
    "product halved": "m = Mul(x, a) y = Mul(m, half)",
    "half first": "m = Mul(x, half) y = Mul(m, a)",
    "half inside": "m = Mul(half, a) y = Mul(x, m)",
}
_TANH_ARGUMENTS = {
    "power": "c = Pow(x, three) k = Mul(c, kappa) s = Add(x, k) u = Mul(s, beta)",
    "products": "q = Mul(x, x) c = Mul(x, q) k = Mul(kappa, c) s = Add(x, k) u = Mul(beta, s)",
    "factored": "k = Mul(x, kappa) c = Mul(k, x) s = Add(one, c) w = Mul(x, beta) u = Mul(w, s)",
}


def activations() -> Iterator[Form]:
    """Yields Gelu, by erf and by tanh, and other pointwise functions."""
    erf_arguments = {"divided": "d = Div(x, root_two)", "multiplied": "d = Mul(x, inverse_root_two)"}
    for (argument, first), (halving, last) in product(erf_arguments.items(), _HALVINGS.items()):
        yield Form(f"gelu, {argument}, {halving}", "Gelu", f"{first} e = Erf(d) a = Add(e, one) {last}")
    for (argument, first), (halving, last) in product(_TANH_ARGUMENTS.items(), _HALVINGS.items()):
        yield Form(f"tanh gelu, {argument}, {halving}", "Gelu", f"{first} e = Tanh(u) a = Add(one, e) {last}")
    yield Form("relu as max", "Relu", "y = Max(x, zero)")
    yield Form("leaky relu as max", "LeakyRelu", "s = Mul(x, slope) y = Max(x, s)")
    yield Form("clip as min and max", "Clip", "t = Max(x, zero) y = Min(t, six)")
    yield Form("relu6 as min and relu", "Clip", "t = Relu(x) y = Min(t, six)")
    yield Form("sigmoid, reciprocal", "Sigmoid", "n = Neg(x) e = Exp(n) s = Add(one, e) y = Reciprocal(s)")
    yield Form("sigmoid, divided", "Sigmoid", "n = Neg(x) e = Exp(n) s = Add(one, e) y = Div(one, s)")
    yield Form("softsign", "Softsign", "a = Abs(x) s = Add(a, one) y = Div(x, s)")
    yield Form("mish", "Mish", "s = Softplus(x) t = Tanh(s) y = Mul(x, t)")
    relu6 = "s = Add(x, three) t = Clip(s, zero, six)"
    yield Form("hard sigmoid, linear", "HardSigmoid", "m = Mul(x, slope) s = Add(m, half) y = Clip(s, zero, one)")
    yield Form("hard sigmoid, divided", "HardSigmoid", f"{relu6} y = Div(t, six)")
    yield Form("hard sigmoid, multiplied", "HardSigmoid", f"{relu6} y = Mul(t, sixth)")
    gate = "s = HardSigmoid<alpha = 0.1666666716337204, beta = 0.5>(x)"
    yield Form("hard swish of hard sigmoid", "HardSwish", f"{gate} y = Mul(x, s)")
    yield Form("hard swish, gate divided", "HardSwish", f"{relu6} d = Div(t, six) y = Mul(x, d)")
    yield Form("hard swish, divided last", "HardSwish", f"{relu6} m = Mul(x, t) y = Div(m, six)")
    yield Form("hard swish, multiplied last", "HardSwish", f"{relu6} m = Mul(x, t) y = Mul(m, sixth)")


def softmaxes() -> Iterator[Form]:
    """Yields Softmax and its logarithm, written as their definitions."""
    shifted = "m = ReduceMax<axes = [-1]>(x) d = Sub(x, m) e = Exp(d)"
    total = "s = ReduceSum(e, last)"
    yield Form("softmax", "Softmax", f"{shifted} {total} y = Div(e, s)")
    yield Form("log softmax", "LogSoftmax", f"{shifted} {total} l = Log(s) y = Sub(d, l)")


def norms() -> Iterator[Form]:
    """Yields layer norms with scale and bias, and RMS norms with scale."""
    squares = {"power": "q = Pow({c}, two)", "product": "q = Mul({c}, {c})"}
    roots = {
        "divided": "r = Sqrt(v) n = Div({c}, r)",
        "reciprocal": "r = Sqrt(v) i = Reciprocal(r) n = Mul({c}, i)",
        "one over root": "r = Sqrt(v) i = Div(one, r) n = Mul({c}, i)",
        "negative power": "i = Pow(v, minus_half) n = Mul({c}, i)",
    }
    for (square, first), (root, last) in product(squares.items(), roots.items()):
        text = f"{first} m = ReduceMean<axes = [-1]>(q) v = Add(m, epsilon) {last} t = Mul({{g}})"
        centred = "mean = ReduceMean<axes = [-1]>(x) d = Sub(x, mean)"
        layer = text.format(c="d", g="n, gamma")
        yield Form(f"layer norm, {square}, {root}", "LayerNormalization", f"{centred} {layer} y = Add(t, shift)")
        rms = text.format(c="x", g="gamma, n")
        yield Form(f"rms norm, {square}, {root}", "RMSNormalization", f"{rms} y = Identity(t)")
    yield Form(
        "layer norm as a linear map",
        "LayerNormalization",
        """mean = ReduceMean<axes = [-1]>(x) d = Sub(x, mean) q = Mul(d, d) m = ReduceMean<axes = [-1]>(q)
        v = Add(m, epsilon) r = Sqrt(v) i = Reciprocal(r) f = Mul(i, gamma) a = Mul(x, f) u = Mul(mean, f)
        b = Sub(shift, u) y = Add(a, b)""",
    )


def attentions() -> Iterator[Form]:
    """Yields attention on heads of [1, tokens, width], for the ways to scale, to mask and to transpose the keys."""
    keys = {
        "keys turned once": "k = Transpose<perm = [0, 2, 3, 1]>(k0)",
        "keys turned twice": "k1 = Transpose<perm = [0, 2, 1, 3]>(k0) k = Transpose<perm = [0, 1, 3, 2]>(k1)",
    }
    scales = {
        "no scale": "s = MatMul(q, k)",
        "scores divided": "r = MatMul(q, k) s = Div(r, root_depth)",
        "scores multiplied": "r = MatMul(q, k) s = Mul(r, inverse_root_depth)",
        "queries divided": "r = Div(q, root_depth) s = MatMul(r, k)",
        "queries multiplied": "r = Mul(q, inverse_root_depth) s = MatMul(r, k)",
        "queries and keys scaled": "r = Mul(q, root_scale) t = Mul(k, root_scale) s = MatMul(r, t)",
    }
    masks = {"no mask": ("", "s"), "mask of keys": ("1", "a"), "mask of pairs": ("{tokens}", "a")}
    heads = """q0 = Reshape(x, separated) q = Transpose<perm = [0, 2, 1, 3]>(q0) h = Tanh(x) k0 = Reshape(h, separated)
        g = Neg(x) v0 = Reshape(g, separated) v = Transpose<perm = [0, 2, 1, 3]>(v0)"""
    rest = "c = MatMul(p, v) c0 = Transpose<perm = [0, 2, 1, 3]>(c) y = Reshape(c0, joined)"
    for (key, turned), (scale, scores), (mask, (queries, masked)) in product(
        keys.items(), scales.items(), masks.items()
    ):
        add = "a = Add(s, mask)" if queries else ""
        yield Form(
            f"attention, {key}, {scale}, {mask}",
            "Attention",
            f"{heads} {turned} {scores} {add} p = Softmax<axis = -1>({masked}) {rest}",
            f"float[1,1,{queries},{{tokens}}] mask" if queries else "",
        )


def rotary_embeddings() -> Iterator[Form]:
    """Yields x * cos + rotate_half(x) * sin, with the angles of one half repeated."""
    halves = {
        "split": "a, b = Split<axis = -1>(q)",
        "sliced": "a = Slice(q, first, middle, last) b = Slice(q, middle, end, last)",
    }
    for name, text in halves.items():
        yield Form(
            f"rotary embedding, {name}",
            "RotaryEmbedding",
            f"""q0 = Reshape(x, separated) q = Transpose<perm = [0, 2, 1, 3]>(q0) t = Concat<axis = -1>(angles, angles)
            c0 = Cos(t) s0 = Sin(t) second = Constant<value = int64[1] {{1}}>() c = Unsqueeze(c0, second)
            s = Unsqueeze(s0, second) {text} n = Neg(b) r = Concat<axis = -1>(n, a) u = Mul(q, c) v = Mul(r, s)
            w = Add(u, v) w0 = Transpose<perm = [0, 2, 1, 3]>(w) y = Reshape(w0, joined)""",
            "float[1,{tokens},{half_depth}] angles",
        )


FORMS = (*activations(), *softmaxes(), *norms(), *attentions(), *rotary_embeddings())


_RULES = RuleSet.default()
# Prefixes of the names of rules that recognise something or remove operators that are in the way.
_USED = (
    *("recognise-", "scale-into-", "bias-into-", "join-heads-of-", "join-heads-batch-", "separate-heads-batch-"),
    *("transpose-before-separating-", "compose-", "remove-identity-"),
)
_FUSING = ("fuse-",)
_MOST_STEPS = 1000


def recognised(graph: Graph, *, fuse: bool = False) -> Graph:
    """Returns the graph after all rewrites that recognise composites, always the first in the order of the rule set.

    Args:
      fuse: whether to recognise operators of the runtime's own domain, too.
    Raises:
      RuntimeError: if the rewrites do not end.
    """
    state, used = State(graph, _RULES, CostModel.roofline("rtx2070")), _USED + (_FUSING if fuse else ())
    for _ in range(_MOST_STEPS):
        action = next((a for a in state.legal_actions() if _RULES.names[a[0]].startswith(used)), None)
        if action is None:
            return state.graph
        state.step(*action)
    raise RuntimeError(f"composites are still being recognised after {_MOST_STEPS} rewrites")
