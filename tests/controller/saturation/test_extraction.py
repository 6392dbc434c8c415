"""Extraction against exhaustive enumeration, and prices of selections against those of the engine."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from collections.abc import Iterator

import pytest

from controller.saturation.choices import Choices, Fusion, choices_of
from controller.saturation.dominators import Dominators
from controller.saturation.egraph import Classes, Program
from controller.saturation.exploration import Exploration, ExplorationLimits
from controller.saturation.extraction import extract
from controller.saturation.graph import graph_of
from controller.saturation.program import relax, solve
from controller.saturation.selection import Selection, cost_of, greedy, initial, needed_of
from environment import zoo
from taso_ext import CostModel, GraphBuilder, OnnxModel, RuleSet

COSTS = CostModel.roofline("rtx2070")
FLOAT = 1


def problem(name: str, **limits: int) -> tuple[OnnxModel, Program, Classes, Choices]:
    model = OnnxModel.load(zoo.build(name))
    program = Program(model.graph)
    Exploration(program, RuleSet.default(), ExplorationLimits(**limits)).run()
    classes = program.classes()
    return model, program, classes, choices_of(model.graph, classes, program.vocabulary, COSTS)


@functools.cache
def small_choices() -> Choices:
    """Returns the choices of y = Relu(x · a + x · b), which has a shared operand, fusions and several forms."""
    builder = GraphBuilder()
    x = builder.input("x", FLOAT, [64, 64])
    a, b = (builder.weight(name, name, FLOAT, [64, 64]) for name in "ab")
    (r,) = builder.node("", "MatMul", {}, [x, a], [("r", FLOAT, [64, 64])])
    (m,) = builder.node("", "MatMul", {}, [x, b], [("m", FLOAT, [64, 64])])
    (s,) = builder.node("", "Add", {}, [r, m], [("s", FLOAT, [64, 64])])
    (y,) = builder.node("", "Relu", {}, [s], [("y", FLOAT, [64, 64])])
    builder.output(y)
    graph = builder.build()
    program = Program(graph)
    Exploration(program, RuleSet.default(), ExplorationLimits(rounds=2)).run()
    return choices_of(graph, program.classes(), program.vocabulary, COSTS)


def selections(choices: Choices) -> Iterator[Selection]:
    """Yields every selection without circles."""
    numbers = list(choices.members)
    for chosen in itertools.product(*(choices.members[number] for number in numbers)):
        whole = dict(zip(numbers, chosen, strict=True))
        if is_acyclic(choices, whole):
            yield needed_of(choices, whole)


def is_acyclic(choices: Choices, chosen: Selection) -> bool:
    done: set[int] = set()
    for _ in chosen:
        done |= {number for number, term in chosen.items() if done.issuperset(choices.needs[term])}
    return done.issuperset(choices.roots)


@pytest.mark.parametrize("name", ["bert-base-tiny", "squeezenet1.1-tiny", "inception-v3-tiny", "t5-small-tiny"])
def test_selections_cost_what_the_engine_says_of_their_graphs(name: str) -> None:
    model, program, classes, choices = problem(name, nodes=800, rounds=3)
    start = initial(choices, model.graph, classes, program.vocabulary)
    for selection in (start, greedy(choices), extract(choices, [start], 3).selection):
        graph = graph_of(model.graph, classes, program.vocabulary, choices, selection)
        assert cost_of(choices, selection) == pytest.approx(graph.cost(COSTS).ms, rel=1e-9)
    assert cost_of(choices, start) == pytest.approx(model.graph.cost(COSTS).ms, rel=1e-9)


def test_the_program_finds_the_cheapest_of_all_selections() -> None:
    choices = small_choices()
    everything = [cost_of(choices, selection) for selection in selections(choices)]
    assert len(set(everything)) > 3
    solved = solve(choices, 10)
    assert solved.is_finished
    assert solved.selection is not None
    assert cost_of(choices, solved.selection) == pytest.approx(min(everything), rel=1e-6)
    assert solved.bound_ms == pytest.approx(min(everything), rel=1e-6)


def test_circles_are_not_chosen() -> None:
    choices = small_choices()
    root, below = choices.roots[0], choices.needs[choices.members[choices.roots[0]][0]][0]
    # A free term that computes what the root reads from the root itself.
    term = dataclasses.replace(choices.terms[0], operands=(root,), results=(below,))
    tempting = dataclasses.replace(
        choices,
        terms=[*choices.terms, term],
        prices_ms=[*choices.prices_ms, 0.0],
        needs=[*choices.needs, (root,)],
        members={**choices.members, below: [*choices.members[below], len(choices.terms)]},
    )
    solved = solve(tempting, 10)
    assert solved.selection is not None
    assert len(choices.terms) not in solved.selection.values()
    assert is_acyclic(tempting, solved.selection)
    assert len(choices.terms) not in greedy(tempting).values()


def random_choices(seed: int) -> Choices:
    """Returns a problem with circles, terms of two results, shared operands and fusions."""
    generator, some = random.Random(seed), small_choices().terms[0]
    numbers = range(6)  # class 0 is the root, and the last one reads nothing
    terms = [dataclasses.replace(some, operands=(), results=(numbers[-1],))]
    for number in numbers[:-1]:
        for below in (True, False):
            others = [each for each in numbers if (each > number if below else each != number)]
            operands = tuple(generator.sample(others, min(len(others), generator.choice((1, 2)))))
            spare = [each for each in numbers[:-1] if each not in (number, *operands)]
            both = not below and generator.random() < 0.5
            results = (number, generator.choice(spare)) if both and spare else (number,)
            terms.append(dataclasses.replace(some, operands=operands, results=results))
    members = {number: [at for at, term in enumerate(terms) if number in term.results] for number in numbers}
    prices = [float(generator.randint(0, 9)) for _ in terms]
    fusions = [
        Fusion(at, operand, tuple(generator.sample(members[operand], 1)), prices[at] / 2)
        for at, term in enumerate(terms)
        for operand in term.operands
        if operand and generator.random() < 0.5 and not set(members[operand]) & {at}
    ]
    needs = [term.operands for term in terms]
    return Choices(terms, prices, members, needs, (0,), frozenset({0}), fusions, {})


@pytest.mark.parametrize("seed", range(30))
def test_programs_agree_with_enumeration(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    choices = random_choices(seed)
    everything = [(cost_of(choices, selection), selection) for selection in selections(choices)]
    cheapest = min(cost for cost, _ in everything)
    solved = solve(choices, 10)
    assert solved.selection is not None
    assert cost_of(choices, solved.selection) == pytest.approx(cheapest, abs=1e-5)
    assert is_acyclic(choices, solved.selection)
    relaxed = relax(choices, 10)
    assert relaxed is not None
    assert relaxed.bound_ms <= cheapest + 1e-5
    for cost, selection in everything:
        assert max(relaxed.with_term_ms[term] for term in selection.values()) <= cost + 1e-5
    dearest = max(everything, key=lambda pair: pair[0])[1]
    monkeypatch.setattr("controller.saturation.extraction.WHOLE", len(choices.terms) - 1)
    extracted = extract(choices, [dearest], 10)
    assert extracted.cost_ms == pytest.approx(cheapest, abs=1e-5)
    assert extracted.is_optimal


def test_dominators_are_in_every_selection() -> None:
    choices = small_choices()
    common = set.intersection(*(set(selection) for selection in selections(choices)))
    assert set(Dominators(choices).of(choices.roots[0])) == common


def test_regions_improve_what_is_too_large_for_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    model, program, classes, choices = problem("bert-base-tiny", nodes=400, rounds=3)
    start = initial(choices, model.graph, classes, program.vocabulary)
    best = extract(choices, [start], 30)
    assert best.is_optimal
    monkeypatch.setattr("controller.saturation.extraction.WHOLE", 0)
    monkeypatch.setattr("controller.saturation.extraction.REGION", 60)
    costs: list[float] = []
    found = extract(choices, [start], 6, costs.append)
    assert costs == sorted(costs, reverse=True)
    assert len(costs) > 1
    assert found.cost_ms < cost_of(choices, start)
    assert found.cost_ms >= best.cost_ms * (1 - 1e-6)
