"""Properties of the native engine: hashes, predicted costs, limits, and errors instead of crashes."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.shape_inference
import pytest

from environment import zoo
from taso_ext import CostModel, Graph, GraphBuilder, OnnxModel, RuleSet, State, search_taso

FLOAT = onnx.TensorProto.FLOAT
RTX2070 = CostModel.roofline("rtx2070")
TINY = ("squeezenet1.1-tiny", "bert-base-tiny")


@pytest.fixture(scope="module", params=TINY)
def model(request: pytest.FixtureRequest) -> OnnxModel:
    return OnnxModel.load(zoo.build(request.param))


def random_walk(state: State, seed: int, steps: int) -> list[State]:
    rng, states = np.random.default_rng(seed), []
    for _ in range(steps):
        legal = state.legal_actions()
        if not len(legal):
            break
        rules = np.unique(legal[:, 0])
        actions = legal[legal[:, 0] == rng.choice(rules)]
        rule, location = actions[rng.integers(len(actions))]
        state.step(int(rule), int(location))
        states.append(state.copy())
    return states


def test_independent_rewrites_commute() -> None:
    """Two rewrites in either order lead to one hash, although the new nodes are made in another order."""
    model = OnnxModel.load(zoo.build("bert-base-tiny"))
    start = State(model.graph, RuleSet.default(), RTX2070)
    rule = RuleSet.default().names.index("separate-key-transpose")
    first, second = (int(location) for r, location in start.legal_actions() if r == rule)
    one, other = start.copy(), start.copy()
    one.step(rule, first)
    one.step(rule, second)
    other.step(rule, second)
    other.step(rule, first)
    assert one.hash == other.hash
    assert one.cost.ms == pytest.approx(other.cost.ms, rel=1e-12)


def chain(order: str, *, shared: bool = False, op: str = "Relu") -> Graph:
    """Returns x -> {Tanh, op} -> Add, with branches built in the given order; with `shared`, one node `op` is both."""
    builder = GraphBuilder()
    x = builder.input("x", FLOAT, [4, 4])
    values = {}
    for name in order:
        op_type = op if name == "b" or shared else "Tanh"
        if shared and values:
            values[name] = next(iter(values.values()))
        else:
            (values[name],) = builder.node("", op_type, {}, [x], [(name, FLOAT, [4, 4])])
    (y,) = builder.node("", "Add", {}, [values["a"], values["b"]], [("y", FLOAT, [4, 4])])
    builder.output(y)
    return builder.build()


def twins() -> Graph:
    """Returns a graph that adds two equal Relus of x."""
    builder = GraphBuilder()
    x = builder.input("x", FLOAT, [4, 4])
    a, b = (builder.node("", "Relu", {}, [x], [(name, FLOAT, [4, 4])])[0] for name in "ab")
    builder.output(builder.node("", "Add", {}, [a, b], [("y", FLOAT, [4, 4])])[0])
    return builder.build()


def test_hash_sees_structure_and_nothing_else() -> None:
    assert chain("ab").hash == chain("ba").hash
    assert chain("ab").hash != chain("ab", op="Sigmoid").hash
    assert chain("ab", shared=True).hash != twins().hash  # one node read twice costs less than two


def test_engine_infers_the_shapes_that_onnx_infers(model: OnnxModel) -> None:
    state = random_walk(State(model.graph, RuleSet.default(), RTX2070), 3, 25)[-1]
    exported = onnx.shape_inference.infer_shapes(model.export(state.graph), strict_mode=True)
    inferred = {
        info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in exported.graph.value_info
    }
    compared = 0
    for value in state.graph.values().values():
        if value.name in inferred and value.dims is not None:
            assert inferred[value.name] == value.dims, value.name
            compared += 1
    assert compared > 10


def test_taso_search_replays_to_its_cost_and_beats_descent() -> None:
    model = OnnxModel.load(zoo.build("squeezenet1.1"))
    start = State(model.graph, RuleSet.default(), RTX2070)
    found = search_taso(start, alpha=1.05, budget=2000)
    state = start.copy()
    for rule, location in found.actions:
        state.step(rule, location)
    assert state.cost.ms == pytest.approx(found.cost_ms, rel=1e-12)
    assert found.cost_ms < 0.9 * start.cost.ms  # greedy descent finds nothing: no first step gains
    assert found.stop_reason in ("budget", "exhausted")


def test_taso_search_stops_when_told() -> None:
    model = OnnxModel.load(zoo.build("bert-base-tiny"))
    state = State(model.graph, RuleSet.default(), RTX2070)
    assert search_taso(state, 1.05, 50).stop_reason == "budget"
    stopped = search_taso(state, 1.05, 10**6, progress=lambda expanded, best: expanded == 0)
    assert stopped.stop_reason == "interrupted" and 0 < stopped.expanded < 10**6
    with pytest.raises(ValueError, match="alpha"):
        search_taso(state, 0.5, 50)
    with pytest.raises(ValueError, match="budget"):
        search_taso(state, 1.05, 0)


RULE = """
rule r
  var    x: float[m, k]; a: weight float[k, n]
  source y = MatMul(x, a)
  target y = MatMul(x, a)
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rule r", "rule", "expected the name"),
        ("MatMul(x, a)\n  target", "MatMull(x, a)\n  target", "neither an operator"),
        ("weight float[k, n]", "weight floot[k, n]", "dtype class"),
        ("  target y = MatMul(x, a)", "", "a rule needs a 'source' and a 'target'"),
        ("target y = MatMul(x, a)", "target z = MatMul(x, a)", "nothing to replace"),
        ("target y = MatMul(x, a)", "target y = MatMul(x, b)", "'b' is not defined"),
        ("target y = MatMul(x, a)", "target t = MatMul(x, a); y = MatMul(y, a)", "a result of the source"),
        ("target y", "where q == 1\n  target y", "symbol 'q' is not bound"),
        ("target y", "where foo(m) == 1\n  target y", "unknown function"),
        ("target y", "where take(m) == 1\n  target y", "takes 2 arguments"),
        ("source y = MatMul(x, a)", "source y = MatMul(x, a); z = Relu(x); w = Tanh(b)", "'b' is not defined"),
        ("x: float[m, k]", "x: float[..., ..., k]", "once"),
        ("float[m, k]", "float[m, $]", "unexpected character"),
        ("float[m, k]", "float[m, k", "expected"),
        ("float[m, k]", "float[m, 9999999999999999]", "below 10"),
        ("target y", "where " + "(" * 100 + "m == 1\n  target y", "nested deeper"),
        ("target y", "where " + "not " * 100_000 + "m == 1\n  target y", "nested deeper"),
        ("target y", "where m == " + "1 + " * 100_000 + "1\n  target y", "more than 2000 operators"),
        ("target y", "where dims(x)" + "[0]" * 100_000 + " == 1\n  target y", "more than 2000 operators"),
    ],
)
def test_malformed_rules_are_refused_with_their_line(old: str, new: str, message: str) -> None:
    assert old in RULE
    with pytest.raises(ValueError, match=message) as error:
        RuleSet.parse(RULE.replace(old, new, 1))
    assert "<text>:" in str(error.value)


def test_a_disconnected_source_is_refused() -> None:
    with pytest.raises(ValueError, match="not connected"):
        RuleSet.parse("rule r\n var x, u: float[m]\n source y = Relu(x); z = Tanh(u)\n target y = Relu(x); z = Tanh(u)")


def test_rule_files_that_cannot_be_read() -> None:
    with pytest.raises(ValueError, match="cannot read"):
        RuleSet.load("/nonexistent.rules")
    with pytest.raises(ValueError, match="at least one rule"):
        RuleSet.parse("# nothing\n")
    with pytest.raises(ValueError, match="must be unique"):
        RuleSet.parse(RULE + RULE)


def test_random_bytes_never_crash_the_parser() -> None:
    """Random mutations of shipped rules either parse or raise ValueError."""
    rules = RuleSet.default()
    text = "".join(rules.text(i) for i in range(0, len(rules), 7))
    rng = np.random.default_rng(0)
    refusals = []
    for _ in range(300):
        letters = list(text)
        for position in rng.integers(len(letters), size=rng.integers(1, 4)):
            letters[position] = rng.choice(list("[](),;:=*@.-x1 \n#"))
        try:
            assert len(RuleSet.parse("".join(letters))) > 0
        except ValueError as error:
            refusals.append(str(error))
    assert 0 < len(refusals) < 300
    assert all(text.startswith("<text>:") or "not connected" in text or "shared operand" in text for text in refusals)


class TestBuilder:
    """`GraphBuilder` refuses wrong input with a clear ValueError and accepts unusual graphs."""

    def test_values_that_do_not_exist(self) -> None:
        builder = GraphBuilder()
        with pytest.raises(ValueError, match="value 3 does not exist"):
            builder.node("", "Relu", {}, [3], [("y", FLOAT, [1])])
        with pytest.raises(ValueError, match="value -7 does not exist"):
            builder.output(-7)

    def test_no_outputs(self) -> None:
        with pytest.raises(ValueError, match="no output"):
            GraphBuilder().build()

    def test_absurd_extents(self) -> None:
        with pytest.raises(ValueError, match="at least 0"):
            GraphBuilder().input("x", FLOAT, [-1])
        with pytest.raises(ValueError, match="10\\^15"):
            GraphBuilder().input("x", FLOAT, [2**31, 2**31])

    def test_used_after_build(self) -> None:
        builder = GraphBuilder()
        builder.output(builder.input("x", FLOAT, [1]))
        builder.build()
        with pytest.raises(ValueError, match="already built"):
            builder.input("z", FLOAT, [1])

    @pytest.mark.parametrize("op_type", ["MatMul", "Gemm", "Conv", "Concat", "Split", "Gather", "Attention"])
    def test_operators_without_operands_are_priced(self, op_type: str) -> None:
        builder = GraphBuilder()
        (y,) = builder.node("", op_type, {"axis": 0}, [], [("y", FLOAT, [4, 4])])
        builder.output(y)
        graph = builder.build()
        assert graph.cost(RTX2070).kernel_launches <= 1
        assert len(State(graph, RuleSet.default(), RTX2070).legal_actions()) == 0

    def test_unknown_attribute_type(self) -> None:
        builder = GraphBuilder()
        x = builder.input("x", FLOAT, [1])
        with pytest.raises(ValueError, match="attribute 'a'"):
            builder.node("", "Relu", {"a": object()}, [x], [("y", FLOAT, [1])])  # type: ignore[dict-item]

    def test_deep_chains_do_not_overflow_the_stack(self) -> None:
        builder = GraphBuilder()
        value = builder.input("x", FLOAT, [2])
        for _ in range(200_000):
            (value,) = builder.node("", "Relu", {}, [value], [("", FLOAT, [2])])
        builder.output(value)
        graph = builder.build()
        assert graph.num_runtime_nodes == 200_000
        assert graph.cost(RTX2070).kernel_launches == 1  # the others are fused into the first


def test_rewrites_that_would_close_a_cycle_are_not_offered() -> None:
    """If one MatMul feeds the second operand of another, merging both would make the merged one read itself."""
    rules = RuleSet.parse(
        """
rule merge
  var    x: float[m, m]; a, b: float[m, m]
  source y = MatMul(x, a); z = MatMul(x, b)
  unordered y, z
  target w = Concat(a, b; axis=1); t = MatMul(x, w); y, z = Split(t; axis=1, split=[m, m])
"""
    )
    builder = GraphBuilder()
    x, a = (builder.input(name, FLOAT, [4, 4]) for name in "xa")
    (y,) = builder.node("", "MatMul", {}, [x, a], [("y", FLOAT, [4, 4])])
    (b,) = builder.node("", "Relu", {}, [y], [("b", FLOAT, [4, 4])])
    (z,) = builder.node("", "MatMul", {}, [x, b], [("z", FLOAT, [4, 4])])
    (c,) = builder.node("", "MatMul", {}, [x, x], [("c", FLOAT, [4, 4])])
    for value in (y, z, c):
        builder.output(value)
    state = State(builder.build(), rules, RTX2070)
    assert len(state.legal_actions()) == 2  # (y, c) and (c, z), not (y, z)
    for rule, location in state.legal_actions():
        state.copy().step(int(rule), int(location))


def test_inner_results_read_from_outside_are_kept() -> None:
    rules = RuleSet.parse(
        "rule r\n var x: float[...]; a, b: weight float[...]\n source t = Add(x, a); y = Add(t, b)\n"
        " target c = Add(a, b); y = Add(x, c)"
    )

    def legal(extra_output: bool) -> int:
        builder = GraphBuilder()
        x = builder.input("x", FLOAT, [4])
        a, b = (builder.weight(name, name, FLOAT, [4]) for name in "ab")
        (t,) = builder.node("", "Add", {}, [x, a], [("t", FLOAT, [4])])
        (y,) = builder.node("", "Add", {}, [t, b], [("y", FLOAT, [4])])
        for value in (y, t) if extra_output else (y,):
            builder.output(value)
        return len(State(builder.build(), rules, RTX2070).legal_actions())

    assert (legal(False), legal(True)) == (1, 0)
