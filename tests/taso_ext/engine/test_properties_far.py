"""Rewrites whose legality or price depends on operators far away from them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import TensorProto

from taso_ext import Graph, GraphBuilder, RuleSet, State, search_taso
from tests.taso_ext.samples.random_walks import RULE_SETS, after, start

DIMS = [4, 4]


class Matrices:
    """A builder of graphs of 4 × 4 matrices."""

    def __init__(self) -> None:
        self.builder = GraphBuilder()

    def input(self, name: str) -> int:
        return self.builder.input(name, TensorProto.FLOAT, DIMS)

    def weight(self, name: str) -> int:
        return self.builder.weight(name, name, TensorProto.FLOAT, DIMS)

    def apply(self, op_type: str, *operands: int) -> int:
        return self.builder.node("", op_type, {}, operands, [("", TensorProto.FLOAT, DIMS)])[0]

    def far_behind(self, value: int) -> int:
        """Returns the value twelve operators further on, beyond the radius of every rule."""
        for op_type in ["Softsign", "Sin"] * 6:
            value = self.apply(op_type, value)
        return value

    def joined_and_parted(self, first: int, second: int) -> list[int]:
        """Returns the two values after a Concat and a Split, so that each seems to need the other."""
        (whole,) = self.builder.node("", "Concat", {"axis": 0}, [first, second], [("", TensorProto.FLOAT, [8, 4])])
        parts = [("", TensorProto.FLOAT, DIMS)] * 2
        return self.builder.node("", "Split", {"axis": 0, "split": [4, 4]}, [whole], parts)

    def graph(self, *outputs: int) -> Graph:
        for value in outputs:
            self.builder.output(value)
        return self.builder.build()


Pair = Callable[[Matrices, str], tuple[Callable[[int], int], Callable[[int], int]]]
"""A function that returns two operators whose operand is still open; a rule joins them unless one needs the other."""


def products(m: Matrices, name: str) -> tuple[Callable[[int], int], Callable[[int], int]]:
    w = m.weight(name)
    return lambda value: m.apply("MatMul", value, w), lambda value: m.apply("MatMul", value, w)


def readers(m: Matrices, name: str) -> tuple[Callable[[int], int], Callable[[int], int]]:
    t = m.apply("Neg", m.input(name))
    return lambda value: m.apply("Mul", t, value), lambda value: m.apply("Sub", t, value)


def opened_from_afar(m: Matrices, pair: Pair) -> Graph:
    """Returns a graph whose second operator needs the first until a Concat and a Split far away cancel."""
    first, second = pair(m, "w")
    parts = m.joined_and_parted(m.far_behind(first(m.input("x"))), m.input("q"))
    return m.graph(second(m.far_behind(parts[1])), parts[0])


def closed_from_afar(m: Matrices, pair: Pair) -> Graph:
    """Returns a graph with two pairs; each can be joined, but then the other cannot."""
    (first, second), (third, fourth) = pair(m, "v"), pair(m, "w")
    one, other = first(m.input("a")), third(m.input("c"))
    return m.graph(fourth(m.far_behind(one)), second(m.far_behind(other)))


@pytest.mark.parametrize("graph", [opened_from_afar, closed_from_afar])
@pytest.mark.parametrize(
    ("rules", "pair", "name"),
    [("default", products, "merge-matmuls-sharing-rhs"), ("odd", readers, "readers-of-one-value")],
)
def test_a_rewrite_far_away_opens_or_closes_a_match(
    graph: Callable[[Matrices, Pair], Graph], rules: str, pair: Pair, name: str
) -> None:
    state, join = start(graph(Matrices(), pair), rules=RULE_SETS[rules]), RULE_SETS[rules].names.index(name)
    before, changes = int(state.location_counts()[join]), 0
    for rule, location in state.legal_actions().tolist():
        stepped = after(state, rule, location)
        assert stepped.legal_actions().tolist() == stepped.rematched().legal_actions().tolist()
        for action in stepped.legal_actions().tolist():
            after(stepped, *action)  # it can be taken
        changes += int(stepped.location_counts()[join]) != before - (rule == join)
    assert changes > 0


def test_a_rewrite_far_away_changes_the_price_of_what_it_would_free() -> None:
    """The rewrite of x − chain to −x removes the chain, whose cost another rewrite changes at its far end."""
    m = Matrices()
    end = m.far_behind(m.apply("Sub", m.input("p"), m.input("q")))
    state = start(m.graph(m.apply("Sub", m.input("x"), end)), rules=RULE_SETS["odd"])
    assert_prices_are_exact(state)
    rule = RULE_SETS["odd"].names.index("forgets-a-variable")
    locations = np.flatnonzero(state.location_mask()[rule]).tolist()
    assert len(locations) == 2
    for location in locations:
        assert_prices_are_exact(after(state, rule, location))


def assert_prices_are_exact(state: State) -> None:
    for rule, location, cost in zip(*(column.tolist() for column in state.candidates()), strict=True):
        assert after(state, rule, location).cost.ms == pytest.approx(cost, rel=1e-9)


# ---- results that need each other


def read_by_its_own_operand(rules: str) -> State:
    """Returns the state of u = x · a, w = tanh(u), v = x − w under one rule."""
    m = Matrices()
    x = m.input("x")
    u = m.apply("Mul", x, m.input("a"))
    return start(m.graph(m.apply("Sub", x, m.apply("Tanh", u))), rules=RuleSet.parse(rules))


def test_a_target_that_reads_a_given_operand_may_close_a_cycle() -> None:
    state = read_by_its_own_operand("""
rule like-the-given-one
  var    x, a, b: float[...s]
  source u = Mul(x, a)
  given  v = Sub(x, b)
  target u = Sub(x, b)
""")
    assert state.legal_actions().tolist() == []


def test_results_that_do_not_need_each_other_close_no_cycle() -> None:
    state = read_by_its_own_operand("""
rule one-by-one
  var    x, a, b: float[...s]
  source u = Mul(x, a); v = Sub(x, b)
  target u = Sub(a, x); v = Sub(b, x)
""")
    assert state.location_counts().tolist() == [1]


def test_a_replaced_result_that_only_another_one_read_is_free() -> None:
    rules = RuleSet.parse("""
rule apart
  var    x: float[...]
  source y = Neg(x); z = Relu(y)
  target y = Neg(x); z = Tanh(x)
""")
    m = Matrices()
    assert_prices_are_exact(start(m.graph(m.apply("Relu", m.apply("Neg", m.input("x")))), rules=rules))


def test_a_replaced_result_whose_readers_the_target_forgets_is_free() -> None:
    rules = RuleSet.parse("""
rule forgetful
  var    x, a: float[...s]
  source t = Relu(x); u = Neg(t); v = Sub(t, a)
  target u = Tanh(x); v = Abs(x)
""")
    m = Matrices()
    t = m.apply("Relu", m.input("x"))
    state = start(m.graph(m.apply("Sub", t, m.apply("Sigmoid", m.apply("Neg", t)))), rules=rules)
    assert search_taso(state, alpha=10.0, budget=10).stop_reason == "exhausted"
    assert_prices_are_exact(state)
