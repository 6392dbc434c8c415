"""Groups: the published rules of co-location, automatic grouping, and freedom from cycles."""

from __future__ import annotations

import numpy as np
import pytest

from environment import zoo
from environment.placement import OperatorGraph, PlacementError, at_most, colocate
from environment.placement.grouping import acyclic_parts, renumbered
from taso_ext import GraphBuilder, OnnxModel
from tests.environment.placement.samples import FLOAT, is_acyclic, random_graph


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("most", [1, 2, 7, 20, 1000])
def test_automatic_groups_are_few_and_lie_on_no_cycle(seed: int, most: int) -> None:
    graph = random_graph(seed, 60, lonely=seed % 2 == 1)
    for start in (None, colocate(graph), np.random.default_rng(seed).integers(0, 9, len(graph))):
        labels = at_most(graph, most, start=start)
        assert len(set(labels.tolist())) <= most
        assert sorted(set(labels.tolist())) == list(range(labels.max() + 1))
        assert is_acyclic(graph, labels)


def test_as_many_groups_as_asked_for_if_there_are_operators_enough() -> None:
    graph = random_graph(1, 80)
    for most in (5, 17, 40):
        assert at_most(graph, most).max() + 1 == most


def test_groups_are_even_in_work() -> None:
    """No group of ten has more than half of the work, although single operators differ by a factor of 100."""
    graph = random_graph(2, 200)
    work = np.random.default_rng(0).uniform(1, 100, len(graph))
    sums = np.bincount(at_most(graph, 10, work=work), work)
    assert sums.max() < work.sum() / 2


@pytest.mark.parametrize("seed", range(8))
def test_parts_of_groups_are_within_groups_and_on_no_cycle(seed: int) -> None:
    graph = random_graph(seed, 50)
    labels = np.random.default_rng(seed).integers(0, 6, len(graph))
    assert not is_acyclic(graph, labels)  # or the test would say little
    parts = acyclic_parts(graph, labels)
    assert is_acyclic(graph, parts)
    assert all(len(set(labels[parts == part].tolist())) == 1 for part in set(parts.tolist()))


def test_groups_without_cycles_stay_whole() -> None:
    graph = random_graph(3, 50)
    labels = at_most(graph, 9)
    assert acyclic_parts(graph, labels).tolist() == labels.tolist()


def diamond() -> OperatorGraph:
    """Returns a → b → c, a → d, (c, d) → e → f, with names of two scopes for b and c."""
    builder = GraphBuilder()
    x = builder.input("x", FLOAT, [4])
    (a,) = builder.node("", "Relu", {}, [x], [("a", FLOAT, [4])], "stem")
    (b,) = builder.node("", "Neg", {}, [a], [("b", FLOAT, [4])], "/cell.0/b")
    (c,) = builder.node("", "Exp", {}, [b], [("c", FLOAT, [4])], "/cell.1/c")
    (d,) = builder.node("", "Abs", {}, [a], [("d", FLOAT, [4])], "/cell.0/d")
    (e,) = builder.node("", "Add", {}, [c, d], [("e", FLOAT, [4])], "join")
    (f,) = builder.node("", "Neg", {}, [e], [("f", FLOAT, [4])], "out")
    builder.output(f)
    return OperatorGraph.of_graph(builder.build())


def groups_by_name(graph: OperatorGraph, labels: np.ndarray) -> set[frozenset[str]]:
    return {
        frozenset(each.output for each, label in zip(graph.operators, labels, strict=True) if label == group)
        for group in set(labels.tolist())
    }


def test_an_operation_joins_its_only_consumer_recursively() -> None:
    graph = diamond()
    assert groups_by_name(graph, colocate(graph)) == {frozenset("a"), frozenset("bcdef")}
    assert len(groups_by_name(graph, colocate(graph, only_consumer=False))) == 6


def test_scopes_share_a_device_and_keep_their_operators() -> None:
    graph = diamond()
    found = groups_by_name(graph, colocate(graph, scopes=[r"/(cell\.\d)/"]))
    assert found == {frozenset("a"), frozenset("bd"), frozenset("c"), frozenset("ef")}


def test_gradients_share_the_device_of_their_operation() -> None:
    graph = diamond()
    numbers = {each.output: number for number, each in enumerate(graph.operators)}
    labels = colocate(graph, gradients={numbers["f"]: numbers["a"]}, only_consumer=False)
    assert labels[numbers["f"]] == labels[numbers["a"]]
    assert not is_acyclic(graph, labels)  # which is as published, and what `acyclic_parts` is for


def test_an_operation_whose_result_is_returned_stays_apart() -> None:
    builder = GraphBuilder()
    x = builder.input("x", FLOAT, [4])
    (a,) = builder.node("", "Relu", {}, [x], [("a", FLOAT, [4])])
    (b,) = builder.node("", "Neg", {}, [a], [("b", FLOAT, [4])])
    builder.output(a)
    builder.output(b)
    assert colocate(OperatorGraph.of_graph(builder.build())).tolist() == [0, 1]


@pytest.mark.parametrize("name", ["inception-v3", "bert-base", "nasrnn", "transformer-transducer"])
def test_networks_of_the_zoo_can_be_grouped(name: str) -> None:
    graph = OperatorGraph.of(OnnxModel.load(zoo.build(zoo.tiny(name))))
    labels = at_most(graph, 12, start=colocate(graph))
    assert labels.max() + 1 <= 12
    assert is_acyclic(graph, labels)


def test_bad_requests_are_refused_in_a_sentence() -> None:
    graph = diamond()
    for call in (
        lambda: at_most(graph, 0),
        lambda: colocate(graph, scopes=["(", "b"]),
        lambda: colocate(graph, scopes=["no group"]),
    ):
        with pytest.raises(PlacementError):
            call()


def test_renumbering_keeps_groups() -> None:
    assert renumbered([7, 7, 2, 7, 9, 2]).tolist() == [0, 0, 1, 0, 2, 1]
