"""Mutants are compared where it matters: NumPy and whole tensors confirm what few positions say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.runs.progress import LineProgress
from taso_ext import CostModel, RuleSet, State
from taso_ext.generator.partial import generate
from taso_ext.generator.partial.boxes import Difference
from taso_ext.generator.partial.corrections import corrected, in_case
from taso_ext.generator.partial.expressions import InexactError, number, symbol
from taso_ext.generator.partial.mutants import HALF, Mutant, mutants
from taso_ext.generator.partial.positions import RandomLeaves, terms_at
from taso_ext.generator.partial.programs import Concrete, Statement
from taso_ext.generator.partial.relayouts import INNER, OUTER, Move, Relayout
from taso_ext.generator.partial.sources import AVERAGE_POOL, CONV, MATMUL, RESULT, Case, Source
from taso_ext.generator.partial.wording import candidates, rule_text
from taso_ext.generator.selection import examples
from taso_ext.verify.exact.fields import PRIMES

BATCH_IN_ROWS = Mutant(CONV, Relayout((Move(0, OUTER, 2, OUTER, symbol("n"), "all"),)))
PHASES = Mutant(
    CONV,
    Relayout(
        (
            Move(2, INNER, 0, INNER, symbol("d[0]"), "dilation"),
            Move(3, INNER, 0, INNER, symbol("d[1]"), "dilation"),
        )
    ),
    pads="divided",
    even_dilation=True,
)


def outcomes(mutant: Mutant) -> list[tuple[int, Case, Difference | None]]:
    """Returns where a mutant differs, in all cases in which it is well-typed and no identity."""
    found = []
    for number_, case in enumerate(mutant.source.cases):
        program = None if mutant.degenerate(case.env) else in_case(mutant.statements(), case)
        if program is not None:
            found.append((number_, case, case.reference.difference(program)))
    return found


def whole(program: Concrete, leaves: dict[str, np.ndarray], name: str = RESULT) -> np.ndarray:
    """Evaluates a program on whole tensors of integers, operator by operator."""
    if name in leaves:
        return leaves[name]
    step = program.steps[name]
    operands = [whole(program, leaves, each) for each in step.operands]
    at = step.attributes
    match step.op:
        case "Reshape":
            return operands[0].reshape(at["shape"])
        case "Transpose":
            return operands[0].transpose(at["perm"])
        case "Pad":
            rank = operands[0].ndim
            return np.pad(operands[0], [(at["pads"][axis], at["pads"][axis + rank]) for axis in range(rank)])
        case "Slice":
            index = [slice(None)] * operands[0].ndim
            for axis, start, end in zip(at["axes"], at["starts"], at["ends"], strict=True):
                index[axis] = slice(start, end)
            return operands[0][tuple(index)]
        case "Concat":
            return np.concatenate(operands, axis=at["axis"][0])
        case "MatMul":
            return operands[0] @ operands[1]
    assert step.op == "Conv"
    x, kernel = operands
    pads, (group,) = at["pads"], at["group"]
    x = np.pad(x, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])])
    out = np.zeros(step.dims, object)
    per_group = kernel.shape[0] // group
    for filter_ in range(kernel.shape[0]):
        first = filter_ // per_group * kernel.shape[1]
        for row, column in np.ndindex(*step.dims[2:]):
            rows = row * at["strides"][0] + np.arange(kernel.shape[2]) * at["dilations"][0]
            columns = column * at["strides"][1] + np.arange(kernel.shape[3]) * at["dilations"][1]
            window = x[:, first : first + kernel.shape[1]][:, :, rows][:, :, :, columns]
            out[:, filter_, row, column] = (window * kernel[filter_]).sum(axis=(1, 2, 3))
    return out


def test_expressions_have_values_and_few_parentheses() -> None:
    h, d = symbol("h"), symbol("d[0]")
    env = {"h": 6, "d[0]": 4}
    assert ((number(0) - h) % d).value(env) == 2 and ((number(0) - h) % d).text == "(0 - h) % d[0]"
    assert (h - (d - number(1))).text == "h - (d[0] - 1)" and (h - (d - number(1))).value(env) == 3
    assert (h / d * d).text == "h" and (d / d).text == "1" and (h * number(1) + number(0)).text == "h"
    with pytest.raises(InexactError):
        (h / d).value(env)


@pytest.mark.parametrize("source", [CONV, MATMUL], ids=lambda source: source.name)
def test_positions_sum_what_whole_tensors_hold(source: Source) -> None:
    """Every position of sources and mutants; integers small enough that residues are the numbers themselves."""
    generator = np.random.default_rng(0)
    drawn = list(mutants(source))[:: 900 if source is CONV else 7]
    compared = 0
    for mutant in drawn:
        for case in source.cases[:2]:
            program = in_case(mutant.statements(), case)
            if program is None:
                continue
            leaves = {name: generator.integers(0, 9, dims).astype(object) for name, dims in program.leaves.items()}
            positions = np.stack(np.unravel_index(np.arange(np.prod(program.dims(RESULT))), program.dims(RESULT)), 1)
            terms = terms_at(program, RESULT, positions)
            flat = [np.append(each.ravel(), 1) for each in leaves.values()]
            products = np.prod([each[terms.elements[:, :, at]] for at, each in enumerate(flat)], axis=0)
            sums = np.where(terms.zero(), 0, products).sum(axis=1)
            assert (sums == whole(program, leaves).ravel()).all(), [each.text for each in mutant.statements()]
            compared += 1
    assert compared > 2


def test_boxes_tell_every_position_that_differs() -> None:
    """Intervals hold all positions at which whole tensors differ, and not all positions of the result."""
    differing = [(case, each) for _, case, each in outcomes(BATCH_IN_ROWS) if each is not None and not each.nowhere]
    assert len(differing) >= 3
    for case, found in differing:
        program = in_case(BATCH_IN_ROWS.statements(), case)
        assert program is not None
        generator = np.random.default_rng(1)
        leaves = {name: generator.integers(1, 999, dims).astype(object) for name, dims in program.leaves.items()}
        wrong = whole(program, leaves) != whole(case.program, leaves)
        rows = np.flatnonzero(wrong.any(axis=(0, 1, 3)))
        told = {row for begin, end in found.intervals[2] for row in range(begin, end)}
        assert found.intervals[0] == found.intervals[1] == found.intervals[3] == ()
        assert set(rows.tolist()) <= told and wrong.mean() <= found.share < 1
        assert found.tested < wrong.size or wrong.size < 500


def test_a_mutant_that_is_wrong_nearly_everywhere_is_none() -> None:
    wrong = replace(BATCH_IN_ROWS, relayout=Relayout((Move(2, INNER, 3, OUTER, HALF, "half"),)))
    found = [each for _, case, each in outcomes(wrong) if case.env["a[0]"] > 2 and case.env["a[1]"] > 2]
    assert found and all(each is None for each in found)


def test_elements_are_random_in_both_fields_and_in_every_seed() -> None:
    case = CONV.cases[0]
    terms = terms_at(case.program, RESULT, np.zeros((1, 4), np.int64))
    values = [RandomLeaves(case.program.leaves, seed).values_of(terms) for seed in (0, 0, 1)]
    assert values[0].shape == (len(PRIMES), 1) and (values[0] == values[1]).all()
    assert (values[0] != values[2]).all() and values[0][0] != values[0][1]


def test_the_seams_of_a_batch_are_corrected() -> None:
    """The correction is right in the cases, the rule on random graphs; without the correction it is refuted."""
    found = [each for each in candidates(BATCH_IN_ROWS, outcomes(BATCH_IN_ROWS)) if each.is_corrected]
    assert found
    candidate = next(each for each in found if "dims(y)[2] - p[2]" in rule_text(each, "r"))
    assert sum(each.op == "Conv" for each in candidate.statements) >= 2
    conditions = ("s == [1, 1]", "p[0] + p[2] == (a[0] - 1) * d[0]", "p[0] > 0 and p[2] > 0")
    right = replace(candidate, conditions=conditions)
    assert examples(rule_text(right, "r"), instances=30)
    wrong = replace(right, statements=BATCH_IN_ROWS.statements())
    assert examples(rule_text(wrong, "r"), instances=30) is None


def test_intervals_that_are_not_as_many_in_all_cases_are_not_corrected() -> None:
    case = CONV.cases[0]
    one, two = (Difference(((), (), ends, ()), 0.1, 9) for ends in (((0, 1),), ((0, 1), (3, 4))))
    assert corrected(BATCH_IN_ROWS, [(case, one), (case, two), (case, one)]) is None


def test_phases_of_a_dilated_convolution_are_found_to_be_a_plain_one() -> None:
    (candidate,) = [each for each in candidates(PHASES, outcomes(PHASES)) if not each.is_corrected]
    text = rule_text(replace(candidate, conditions=("s == [1, 1]",)), "phases", biased=True)
    assert "dilations=[1, 1]" in text and "p[0] % d[0] == 0" in text
    found = examples(text, instances=12)
    assert found
    for each in found:
        assert all(node.attributes["dilations"] == [1, 1] for node in each.target.nodes() if node.op_type == "Conv")


def test_pools_that_count_their_padding_are_told_from_those_that_do_not() -> None:
    """Zeros added by a Pad count in a mean, and padding of the pool counts only if the pool says so."""
    pads = AVERAGE_POOL.statement.attributes["pads"]
    zero = (number(0),) * 2
    padded = [
        Statement("x0", "Pad", ("x",), {"pads": (*zero, *pads[:2], *zero, *pads[2:]), "value": zero[:1]}),
        replace(
            AVERAGE_POOL.statement,
            operands=("x0",),
            attributes={**AVERAGE_POOL.statement.attributes, "pads": zero * 2},
        ),
    ]
    counted = {0: 0, 1: 0}
    for case in AVERAGE_POOL.cases:
        program = in_case(padded, case)
        if program is not None and any(case.env[f"p[{at}]"] for at in range(4)):
            found = case.reference.difference(program)
            assert (found is not None and found.nowhere) == bool(case.env["i"])
            counted[case.env["i"]] += 1
    assert min(counted.values()) > 0


class _Stop(Exception):
    pass


def test_an_interrupted_generation_goes_on_to_the_same_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run finds the finished re-layouts and compares no mutant of them again."""
    settings = generate.Settings(sources=("matmul",))
    display = LineProgress(open("/dev/null", "w"))  # noqa: SIM115
    calls, judge = [0], generate._judged

    def counted(*arguments: object) -> object:
        calls[0] += 1
        if calls[0] == 8:
            raise _Stop
        return judge(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(generate, "_judged", counted)
    with pytest.raises(_Stop):
        generate.generate_partial(settings, tmp_path, display)
    resumed = generate.generate_partial(settings, tmp_path, display)
    groups = len({mutant.relayout for mutant in mutants(MATMUL)})
    assert calls[0] == groups + 1
    fresh = generate.generate_partial(settings, tmp_path / "other", display)
    assert (resumed.rules, resumed.stages, resumed.worths) == (fresh.rules, fresh.stages, fresh.worths)
    assert resumed.stages["enumerated"] == len(list(mutants(MATMUL))) > resumed.stages["type-correct"] > 0


def test_shipped_rules_are_proven_and_take_dilations_away() -> None:
    rules = RuleSet.default(["partial"])
    own = [at for at in range(len(rules)) if rules.place(at)[0].endswith("partial.rules")]
    assert own and len(rules) == len(RuleSet.default()) + len(own)
    plain = [at for at in own if "phases-of-rows-and-columns-in-batch" in rules.names[at]]
    assert plain
    alone = rules.restricted(names={rules.names[at] for at in plain})
    for index in range(len(alone)):
        graph = next(filter(None, (alone.instance(index, seed) for seed in range(9))))
        state = State(graph, alone, CostModel.roofline("rtx2070"))
        state.step(*map(int, state.legal_actions()[0]))
        assert not any(max(n.attributes["dilations"]) > 1 for n in state.graph.nodes() if n.op_type == "Conv")


def test_families_that_do_not_exist_are_one_clear_error() -> None:
    with pytest.raises(ValueError, match="no optional family of rules is called 'partail'; there is partial"):
        RuleSet.default(["partail"])
