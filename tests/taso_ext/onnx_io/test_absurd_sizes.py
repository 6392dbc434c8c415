"""Absurd sizes are handled in linear time, or refused with the limit named; quadratic code would not end."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from taso_ext import CostModel, Graph, GraphBuilder, RuleSet, State, search_greedy

FLOAT = 1
LONGEST_LIST = 512  # most elements of a starred name, and most readers of a tensor among which rules look for partners
SOURCE = "rule r\n  var x: any\n  source y = Relu(x)\n"
TARGET = "  target y = Tanh(x)\n"


class Sketch:
    """A builder of graphs whose operators have one output each."""

    def __init__(self) -> None:
        self.builder = GraphBuilder()
        self.named = 0

    def input(self, *dims: int) -> int:
        return self.builder.input(self._name(), FLOAT, dims)

    def weight(self, *dims: int) -> int:
        name = self._name()
        return self.builder.weight(name, name, FLOAT, dims)

    def add(self, op_type: str, operands: list[int], *dims: int, **attributes: object) -> int:
        return self.builder.node("", op_type, attributes, operands, [(self._name(), FLOAT, dims)])[0]

    def graph(self, *outputs: int) -> Graph:
        for output in outputs:
            self.builder.output(output)
        return self.builder.build()

    def _name(self) -> str:
        self.named += 1
        return f"v{self.named}"


def state_of(graph: Graph, rules: RuleSet | None = None) -> State:
    return State(graph, rules or RuleSet.default(), CostModel.roofline("xeon"))


def exercise(state: State) -> None:
    """Computes prices and features, and takes and undoes a step if one is legal."""
    assert all(math.isfinite(cost) for cost in state.candidates()[2])
    assert state.features()[0].shape[0] >= state.graph.num_runtime_nodes
    before, actions = state.hash, state.legal_actions()
    if len(actions):
        state.step(*actions[-1])
        assert state.hash != before
        state.undo()
    assert state.hash == before


@pytest.mark.parametrize(
    "add",
    [
        lambda builder, dims: builder.input("big", FLOAT, dims),
        lambda builder, dims: builder.weight("big", "handle", FLOAT, dims),
        lambda builder, dims: builder.node("", "Relu", {}, [], [("big", FLOAT, dims)])[0],
    ],
    ids=["input", "weight", "output"],
)
def test_tensors_have_up_to_1e15_elements(add: Callable[[GraphBuilder, list[int]], int]) -> None:
    for dims in ([2**60], [2**30, 2**30], [2**63 - 1, 2**63 - 1], [2] * 60, [0, 2**60]):
        with pytest.raises(ValueError, match=r"'big' has more than 10\^15 elements"):
            add(GraphBuilder(), dims)
    builder = GraphBuilder()
    builder.output(builder.node("", "Softmax", {"axis": 0}, [add(builder, [10**15])], [("y", FLOAT, [10**15])])[0])
    exercise(state_of(builder.build()))


def test_a_chain_of_a_million_operators() -> None:
    sketch = Sketch()
    value = sketch.input(4, 5)
    for i in range(500_000 - 1):
        value = sketch.add("Tanh", [sketch.add("Sigmoid", [value], 4, 5)], 4, 5)
        if i == 250_000:
            value = sketch.add("Transpose", [sketch.add("Transpose", [value], 5, 4, perm=[1, 0])], 4, 5, perm=[1, 0])
    state = state_of(sketch.graph(value))
    assert state.graph.num_runtime_nodes == 1_000_000
    assert 0 < len(state.legal_actions()) < 10
    exercise(state)


@pytest.mark.parametrize("operators", [20_000])
def test_a_chain_in_which_every_operator_can_be_rewritten(operators: int) -> None:
    sketch = Sketch()
    dims = [4, 5, 6]
    value = sketch.input(*dims)
    for i in range(operators):
        perm = [[1, 2, 0], [0, 2, 1], [2, 1, 0], [1, 0, 2]][i % 4]
        dims = [dims[axis] for axis in perm]
        value = sketch.add("Transpose", [value], *dims, perm=perm)
    state = state_of(sketch.graph(value))
    assert len(state.legal_actions()) == operators - 1
    exercise(state)
    assert search_greedy(state, budget=20).stop_reason == "budget"


def test_a_concat_with_a_hundred_thousand_inputs() -> None:
    sketch = Sketch()
    inputs = [sketch.input(1, 4) for _ in range(100_000)]
    whole = sketch.add("Concat", inputs, 100_000, 4, axis=0)
    turned = sketch.add("Transpose", [whole], 4, 100_000, perm=[1, 0])
    back = sketch.add("Transpose", [turned], 100_000, 4, perm=[1, 0])
    exercise(state_of(sketch.graph(sketch.add("Concat", [back, inputs[0]], 100_001, 4, axis=0))))


def test_a_split_with_a_hundred_thousand_outputs() -> None:
    builder = GraphBuilder()
    x = builder.input("x", FLOAT, [100_000, 4])
    outputs = [(f"y{i}", FLOAT, [1, 4]) for i in range(100_000)]
    parts = builder.node("", "Split", {"axis": 0, "split": [1] * 100_000}, [x], outputs)
    builder.output(builder.node("", "Concat", {"axis": 0}, parts, [("y", FLOAT, [100_000, 4])])[0])
    exercise(state_of(builder.build()))


@pytest.mark.parametrize(("inner", "actions"), [(LONGEST_LIST - 2, 1), (LONGEST_LIST + 1, 0)])
def test_lists_are_matched_up_to_a_length(inner: int, actions: int) -> None:
    """Two Concats in a row become one unless one of the three has more than 512 operands."""
    rules = RuleSet.parse(
        "rule r\n var *a, *x, *b: any[...]\n source t = Concat(*x; axis=d); y = Concat(*a, t, *b; axis=d)\n"
        " target y = Concat(*a, *x, *b; axis=d)\n"
    )
    sketch = Sketch()
    part = sketch.add("Concat", [sketch.input(1, 4) for _ in range(inner)], inner, 4, axis=0)
    graph = sketch.graph(sketch.add("Concat", [part, sketch.input(1, 4)], inner + 1, 4, axis=0))
    assert len(state_of(graph, rules).legal_actions()) == actions


@pytest.mark.parametrize(("readers", "pairs"), [(100, 4950), (LONGEST_LIST + 1, 0), (100_000, 0)])
def test_partners_are_looked_for_among_so_many_readers(readers: int, pairs: int) -> None:
    names = [name for name in RuleSet.default().names if name.startswith("merge-matmuls")]
    rules = RuleSet.default()
    rules = RuleSet.parse("\n".join(rules.text(rules.names.index(name)) for name in names))
    sketch = Sketch()
    x = sketch.input(4, 4)
    graph = sketch.graph(*(sketch.add("MatMul", [x, sketch.weight(4, 4)], 4, 4) for _ in range(readers)))
    state = State(graph, rules, CostModel.roofline("xeon"), 5000)
    assert len(state.legal_actions()) == pairs
    exercise(state)


def test_a_tensor_that_is_an_output_a_hundred_thousand_times() -> None:
    sketch = Sketch()
    exercise(state_of(sketch.graph(*[sketch.add("Relu", [sketch.input(4)], 4)] * 100_000)))


def test_names_and_attributes_of_ten_million_characters() -> None:
    long = "n" * 10_000_000
    builder = GraphBuilder()
    x = builder.input(long + "x", FLOAT, [4])
    builder.output(builder.node(long, long, {long: long}, [x], [(long + "y", FLOAT, [4])], name=long)[0])
    exercise(state_of(builder.build()))


def test_tensors_of_rank_ten_thousand() -> None:
    rank = 10_000
    sketch = Sketch()
    ones, backwards = [1] * rank, list(reversed(range(rank)))
    turned = sketch.add("Transpose", [sketch.input(*ones)], *ones, perm=backwards)
    exercise(state_of(sketch.graph(sketch.add("Transpose", [turned], *ones, perm=backwards))))


@pytest.mark.parametrize(
    ("rule", "limit"),
    [
        (f"rule r\n var {', '.join(f'x{i}' for i in range(100_000))}: any\n", "at most 64 can be matched"),
        (f"rule r\n var x: any[{', '.join(f's{i}' for i in range(100_000))}]\n", "more than 256 symbols"),
        (f"{SOURCE} where {'(' * 100_000}1{')' * 100_000}\n{TARGET}", "nested deeper than 64"),
        (f"{SOURCE} where {'-' * 100_000}1\n{TARGET}", "nested deeper than 64"),
        (f"{SOURCE} where {'not ' * 100_000}1\n{TARGET}", "nested deeper than 64"),
        (f"{SOURCE} where {'[...' * 100_000}\n{TARGET}", "nested deeper than 64"),
        (f"{SOURCE} where {'+'.join('1' * 100_000)}\n{TARGET}", "more than 2000 operators"),
        (f"{SOURCE} where {'1' * 100_000}\n{TARGET}", r"an integer below 10\^15"),
        (f"{SOURCE} least 65\n{TARGET}", r"must lie in \[1, 64\], got 65"),
    ],
)
def test_rules_beyond_a_limit_are_refused_with_the_limit(rule: str, limit: str) -> None:
    with pytest.raises(ValueError, match=limit):
        RuleSet.parse(rule)


@pytest.mark.parametrize(
    "rule",
    [
        f"{SOURCE} where {'; '.join('1' * 100_000)}\n{TARGET}",
        f"{SOURCE} where len([{', '.join('1' * 100_000)}]) == 100000\n{TARGET}",
        f"{SOURCE} unordered {', '.join('y' * 100_000)}\n{TARGET}",
        f"rule r\n var x: any\n op f: {' | '.join(['Relu'] * 100_000)}\n source y = f(x)\n{TARGET}",
        f"rule {'r' * 1_000_000}\n var x: any\n source y = Relu(x)\n{TARGET}",
        "\n".join(f"rule r{i}\n var x: any\n source y = Relu(x)\n{TARGET}" for i in range(10_000)),
    ],
    ids=["conditions", "list", "unordered", "choices", "name", "rules"],
)
def test_rules_may_be_long(rule: str) -> None:
    assert RuleSet.parse(rule).instance(0, 0) is not None


def test_operators_that_may_change_places_in_too_many_ways() -> None:
    """Twelve readers of one tensor can be assigned in 479 million orders."""
    both = "; ".join(f"y{i} = {{0}}(x)" for i in range(12))
    rules = RuleSet.parse(f"rule orders\n var x: any\n source {both.format('Relu')}\n target {both.format('Tanh')}\n")
    with pytest.raises(ValueError, match="rule 'orders' can be matched in too many ways: looked at more than 1000000"):
        rules.instance(0, 0)
