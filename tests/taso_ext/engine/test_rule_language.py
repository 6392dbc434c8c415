"""Matching and verification of rules with real numbers, texts, contents of weights and constants."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from taso_ext import CostModel, Graph, GraphBuilder, OnnxModel, RuleSet, State
from taso_ext.onnx_io.weights.content import LARGEST_KNOWN, PATTERNS, describe, materialise
from taso_ext.verify import verify_rule

FLOAT = TensorProto.FLOAT
COSTS = CostModel.roofline("rtx2070")


def states(rule: str, op: str, attributes: dict[str, object], *weights: np.ndarray, dims: tuple[int, ...]) -> State:
    """Returns a state of one operator on an input of shape `dims` and weights; the result has that shape."""
    builder = GraphBuilder()
    operands = [builder.input("x", FLOAT, dims)]
    for i, weight in enumerate(weights):
        operands.append(builder.weight(f"w{i}", f"{i}", FLOAT, weight.shape, describe(weight)))
    builder.output(builder.node("", op, attributes, operands, [("y", FLOAT, dims)])[0])
    return State(builder.build(), RuleSet.parse(rule), COSTS)


def legal(*arguments: object, **options: object) -> int:
    return len(states(*arguments, **options).legal_actions())  # type: ignore[arg-type]


def scalar_rule(condition: str) -> str:
    return f"""
rule r
  var    x: float[..., k]; c: weight float[...]
  source y = Mul(x, c)
  where  {condition}
  target y = Neg(x)
"""


@pytest.mark.parametrize(
    ("condition", "value", "matches"),
    [
        ("value(c) == 1", 1.0, True),
        ("value(c) == 1", 1.001, False),
        ("value(c) == 0.1", np.float32(0.1), True),  # the literal is a double
        ("value(c) == 0.1", np.nextafter(np.float32(0.1), np.float32(1)), True),
        ("value(c) == 0.1", np.float32(0.1) * (1 + 1e-6), False),
        ("value(c) == 1 / sqrt(k)", 0.5, True),
        ("value(c) * 2 == 1e0 and 1 < value(c) + 1", 0.5, True),
        ("value(c) > 0.5 or value(c) < 0.5", 0.5, False),
        ("value(c) >= 0.5 and value(c) <= 0.5", 0.5, True),
        ("value(c) == 1 / 4", 0.25, False),  # integers are divided only without remainder
        ("value(c) == 1.0 / 4", 0.25, True),
        ("value(c) == sqrt(-1)", 1.0, False),
        ("value(c) / 0 == 1", 1.0, False),
        ("not (value(c) == 2.5)", 1.0, True),
        ('"a" == "a" and "a" != "b" and value(c) == 1', 1.0, True),
        ('value(c) == "1"', 1.0, False),
        ("[value(c), 1] == [3, 1]", 3.0, True),
        ("sum(repeat(value(c), 4)) == 6.0", 1.5, True),
    ],
)
@pytest.mark.parametrize("dims", [(), (4,)])
def test_reals_and_values(condition: str, value: float, matches: bool, dims: tuple[int, ...]) -> None:
    assert legal(scalar_rule(condition), "Mul", {}, np.full(dims, value, np.float32), dims=(3, 4)) == matches


@pytest.mark.parametrize("dtype", range(TensorProto.FLOAT, TensorProto.INT2 + 1))
def test_element_types_have_the_names_of_onnx(dtype: int) -> None:
    name = TensorProto.DataType.Name(dtype).lower()
    for condition, matches in ((f'dtype(x) == "{name}"', 1), (f'dtype(x) != "{name}"', 0), ("dtype(x) == 1", 0)):
        builder = GraphBuilder()
        x = builder.input("x", dtype, (2, 3))
        builder.output(builder.node("", "Transpose", {"perm": [1, 0]}, [x], [("y", dtype, (3, 2))])[0])
        rule = (
            "rule r\n var x: any\n source y = Transpose(x; perm=p)\n where {}\n target y = Transpose(x; perm=[1, 0])\n"
        )
        assert len(State(builder.build(), RuleSet.parse(rule.format(condition)), COSTS).legal_actions()) == matches


def test_instances_have_the_element_types_that_conditions_and_callers_ask_for() -> None:
    text = "rule r\n var x, z: any\n source y = Mul(x, z)\n {}\n target y = Mul(z, x)\n"
    plain = RuleSet.parse(text.format(""))
    demanding = RuleSet.parse(text.format('where rank(x) > 0 and dtype(x) == "double" and "double" == dtype(z)'))
    asked = {"x": TensorProto.INT64, "z": TensorProto.INT64}
    for rules, dtypes, expected in ((plain, {}, FLOAT), (plain, asked, 7), (demanding, {}, TensorProto.DOUBLE)):
        instance = rules.instance(0, 1, dtypes=dtypes)
        assert instance is not None
        assert {value.dtype for value in instance.values().values()} == {expected}
    assert plain.instance(0, 1, dtypes={"x": TensorProto.INT64}) is None, "the operands of a product have one type"


def test_a_rule_that_asks_for_a_weight_that_its_source_does_not_read_has_no_instance() -> None:
    rules = RuleSet.parse(
        "rule r\n var x: float; c: weight float[]\n source y = Neg(x)\n where value(c) == 1\n target y = Mul(x, c)\n"
    )
    assert rules.instance(0, 1) is None


def test_weights_of_different_elements_have_no_value() -> None:
    for condition in ("value(c) == 1", "value(c) != 1", "is_identity(c)"):
        assert not legal(scalar_rule(condition), "Mul", {}, np.float32([1, 1, 1, 2]), dims=(3, 4))


PATTERN_SHAPES = [(1, 1), (3, 3), (2, 3, 3), (4, 1, 3), (4, 2, 3, 3), (4, 4, 1, 1), (2, 1, 2, 2), (3, 1, 1), (4, 3, 3)]


@pytest.mark.parametrize("dims", PATTERN_SHAPES)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_are_known_whatever_they_are_called(pattern: str, dims: tuple[int, ...]) -> None:
    """A matrix of one element is uniform and an identity; a depthwise mean is uniform and an averaging kernel."""
    function = {"identity": "is_identity", "identity-kernel": "is_identity_kernel"}.get(pattern, "is_averaging_kernel")
    rule = scalar_rule(f"{function}(c)").replace("[..., k]", "[...]")
    values = PATTERNS[pattern](dims)
    if values is not None:
        assert legal(rule, "Mul", {}, values.astype(np.float32), dims=dims) == 1
        values.flat[-1] += 0.25
        assert legal(rule, "Mul", {}, values.astype(np.float32), dims=dims) == 0
    assert legal(rule, "Mul", {}, np.full(dims, 7, np.float32), dims=dims) == 0


@pytest.mark.parametrize("dims", PATTERN_SHAPES)
def test_content_says_what_the_elements_are(dims: tuple[int, ...]) -> None:
    patterns = [make(dims) for make in PATTERNS.values()]
    for values in [np.full(dims, -1.5), *(each for each in patterns if each is not None)]:
        content = describe(values.astype(np.float32))
        assert content is not None
        assert np.array_equal(materialise(content, dims).astype(np.float32), values.astype(np.float32))


def test_large_weights_are_not_looked_at() -> None:
    for size, known in ((LARGEST_KNOWN, True), (LARGEST_KNOWN + 1, False)):
        weight = numpy_helper.from_array(np.zeros(size, np.float32), "w")
        x, y = (helper.make_tensor_value_info(name, FLOAT, [size]) for name in "xy")
        graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [weight])
        values = OnnxModel.load(helper.make_model(graph)).graph.values().values()
        assert [value.content for value in values if value.handle] == [0.0 if known else None]


@pytest.mark.parametrize(
    ("op", "attributes", "pattern", "matches"),
    [
        ("LeakyRelu", {"alpha": float(np.float32(0.01))}, "alpha=0.01", True),
        ("LeakyRelu", {"alpha": 0.02}, "alpha=0.01", False),
        ("LeakyRelu", {"alpha": 1.0}, "alpha=1", True),
        ("Gelu", {"approximate": "tanh"}, 'approximate="tanh"', True),
        ("Gelu", {"approximate": "none"}, 'approximate="tanh"', False),
        ("Gelu", {"approximate": "none"}, "approximate=1", False),
    ],
)
def test_real_and_text_attributes_compare(op: str, attributes: dict[str, object], pattern: str, matches: bool) -> None:
    rule = f"rule r\n var x: float\n source y = {op}(x; {pattern})\n target y = Neg(x)\n"
    assert legal(rule, op, attributes, dims=(2,)) == matches


def test_attributes_are_carried_over_and_computed() -> None:
    rule = (
        "rule r\n var x: float\n source y = Elu(x; alpha=a)\n target t = Elu(x; alpha=a); y = LeakyRelu(t; alpha=a*3)\n"
    )
    state = states(rule, "Elu", {"alpha": float(np.float32(0.1))}, dims=(2,))
    state.step(0, 0)
    first, second = (node.attributes["alpha"] for node in state.graph.nodes())
    assert first == float(np.float32(0.1))
    assert second == float(np.float32(np.float64(np.float32(0.1)) * 3))


CONSTANTS = """
rule constants
  var    x: float[m, 2]
  source y = Neg(x)
  target a = Constant(; shape=[2, 2], values=[-1, 0.25, 0, -1]); e = EyeLike(; size=m)
         b = ConstantOfShape(; shape=[m, 1], value=sqrt(2)); u = MatMul(x, a); v = MatMul(e, u); y = Add(v, b)
"""


@pytest.mark.parametrize("opset", [8, 13, 20])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_constants_are_folded_at_export(opset: int, dtype: type) -> None:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x, y = (helper.make_tensor_value_info(name, element, [3, 2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y])
    model = OnnxModel.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8))
    state = State(model.graph, RuleSet.parse(CONSTANTS), COSTS)
    state.step(0, 0)
    assert state.graph.num_runtime_nodes == 3
    exported = model.export(state.graph)
    onnx.checker.check_model(exported, full_check=True)
    assert [node.op_type for node in exported.graph.node] == ["MatMul", "MatMul", "Add"]
    feed = np.arange(6, dtype=dtype).reshape(3, 2)
    expected = (feed @ np.array([[-1, 0.25], [0, -1]])).astype(np.float64) + np.sqrt(2)
    got = onnxruntime.InferenceSession(exported.SerializeToString()).run(None, {"x": feed})[0]
    assert got.dtype == dtype
    assert np.allclose(got, expected, rtol=2e-3 if dtype == np.float16 else 1e-6)


@pytest.mark.parametrize(
    "constant",
    [
        "Constant(; shape=[2, 2], values=[1, 2, 3])",
        "Constant(; shape=[2])",
        "ConstantOfShape(; shape=[0 - 1], value=1)",
        'ConstantOfShape(; shape=[2], value="1")',
        "EyeLike(; size=0)",
        "EyeLike(; size=100000)",
    ],
)
def test_constants_that_do_not_exist_make_a_match_illegal(constant: str) -> None:
    rule = f"rule r\n var x: float\n source y = Neg(x)\n target c = {constant}; t = Mul(x, c); y = Relu(x)\n"
    assert not legal(rule, "Neg", {}, dims=(2, 2))


@pytest.mark.parametrize(
    ("body", "place", "message"),
    [
        ('where value(c) == "a\n', (4, 19), "closing"),
        ("where value(d) == 1\n", (4, 13), "tensor 'd' is not defined"),
        ("where value(c, c) == 1\n", (4, 16), "symbol 'c'"),
        ("where value(c) == 1e99\n", (4, 19), "a number that float32 can hold, got '1e99'"),
        ("where values(c) == 1\n", (4, 7), "unknown function 'values'"),
        ("given z = EyeLike(; size=2)\n", (4, 11), "stands in targets only"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(body: str, place: tuple[int, int], message: str) -> None:
    text = f"rule r\n  var x: float; c: weight float[]\n  source y = Mul(x, c)\n{body}  target y = Neg(x)\n"
    with pytest.raises(ValueError, match=message) as error:
        RuleSet.parse(text)
    assert str(error.value).startswith(f"<text>:{place[0]}:{place[1]}: ")


def test_a_weight_cannot_be_uniformly_nan() -> None:
    with pytest.raises(ValueError, match="NaN"):
        GraphBuilder().weight("w", "w", FLOAT, [2], float("nan"))


HALF, UNIFORM = "Constant(; shape=[], values=[{}])", "ConstantOfShape(; shape=[1], value={})"
RIGHT = {
    "square": ("y = Pow(x, c)", "value(c) == 2", "y = Mul(x, x)"),
    "reciprocal": ("y = Pow(x, c)", "value(c) == -1", "y = Reciprocal(x)"),
    "factor": ("y = Div(x, c)", "value(c) == sqrt(2)", f"d = {HALF.format('1 / sqrt(2)')}; y = Mul(x, d)"),
    "halves": ("t = Mul(x, c); y = Mul(t, c)", "value(c) == sqrt(0.5)", f"d = {HALF.format(0.5)}; y = Mul(x, d)"),
    "depends": ("y = Mul(x, c)", "value(c) > 0.1", f"d = {UNIFORM.format('value(c)')}; y = Mul(x, d)"),
}
WRONG = {
    "cube": ("y = Pow(x, c)", "value(c) == 3", "y = Mul(x, x)"),
    "square or not": ("y = Pow(x, c)", "value(c) <= 2", "y = Mul(x, x)"),
    "other factor": ("y = Div(x, c)", "value(c) == sqrt(2)", f"d = {UNIFORM.format(0.7)}; y = Mul(x, d)"),
    "halves": ("t = Mul(x, c); y = Mul(t, c)", "value(c) == sqrt(0.5)", f"d = {HALF.format(0.25)}; y = Mul(x, d)"),
    "alpha": ("t = LeakyRelu(x; alpha=0.5); y = Mul(t, c)", "value(c) == 1", "y = LeakyRelu(x; alpha=0.25)"),
    "unchecked": ("t = Mul(x, c); y = Relu(t)", "rank(x) > 0", "y = Relu(x)"),
}
CASES = [(*rule, True) for rule in RIGHT.values()] + [(*rule, False) for rule in WRONG.values()]


@pytest.mark.parametrize(("source", "condition", "target", "right"), CASES, ids=[*RIGHT, *(f"no-{n}" for n in WRONG)])
def test_rules_with_constants_are_verified(source: str, condition: str, target: str, right: bool) -> None:
    text = f"rule r\n var x: float[..., k]; c: weight float[]\n source {source}\n where {condition}\n target {target}\n"
    verification = verify_rule(RuleSet.parse(text), 0, instances=8)
    assert verification.ok == right, str(verification)
    assert (verification.counterexample is None) == right


def test_instances_hold_what_the_conditions_demand() -> None:
    """One condition depends on several tensors, and another is an inequality, which gives no value."""
    rule = "rule r\n var x: float[m, k]; c, d: weight float[]; a: weight float[k, k]\n"
    rule += " source s = Mul(x, c); t = MatMul(s, a); y = Add(t, d)\n"
    rule += " where value(c) == 1 / (value(d) * sqrt(m)) and is_identity(a) and value(d) > 0.2\n target y = Neg(x)\n"
    rules = RuleSet.parse(rule)
    graphs: list[Graph] = [graph for seed in range(5) if (graph := rules.instance(0, seed)) is not None]
    assert len(graphs) == 5
    for graph in graphs:
        contents = {value.name[0]: value.content for value in graph.values().values() if value.handle}
        rows = next(value.dims for value in graph.values().values() if value.name.startswith("x"))
        assert rows is not None
        assert contents["c"] == pytest.approx(1 / (contents["d"] * rows[0] ** 0.5), rel=1e-6)
        assert contents["a"] in ("identity", 1.0)


def test_a_dash_ends_no_name() -> None:
    text = "rule {}\n  var x: any\n  source y = Relu(x)\n  target y = Tanh(x)\n"
    assert RuleSet.parse(text.format("a-b1-2")).names == ["a-b1-2"]
    with pytest.raises(ValueError, match="got '-'"):
        RuleSet.parse(text.format("a-"))
