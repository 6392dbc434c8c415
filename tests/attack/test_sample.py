"""A sample of the attack that `make attack` makes, and models that it found to break the program."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.attack import faults, rules, runs
from tests.attack.bodies import BFLOAT16, DOUBLE, Body, clip, drawn
from tests.attack.constructs import CONSTRUCTS
from tests.attack.legacy import legacy_model
from tests.attack.models import Nasty, is_valid, nasty_model
from tests.attack.on_models import EQUAL, FAULTS, attack, attack_model
from tests.attack.spellings import SPELLINGS


def negations(body: Body) -> None:
    body.matrices.append(body.add("Neg", body.add("Neg", body.matrices[-1])))


FOUND = {
    "bfloat16 inputs, which ONNX Runtime cannot be fed": (BFLOAT16, negations),
    "a Clip of doubles, which ONNX Runtime's own optimisations cannot fuse": (DOUBLE, clip),
}


@pytest.mark.parametrize("name", FOUND)
def test_models_that_the_attack_found_have_equal_results(name: str) -> None:
    dtype, fragment = FOUND[name]
    model = drawn(np.random.default_rng(0), dtype, 3, 18, [fragment])
    (finding,) = attack_model(Nasty(model, [name]), controllers=["greedy"])
    assert finding.outcome == EQUAL, finding.details


def test_constants_of_an_older_opset_have_no_newer_attributes() -> None:
    """A pass of the clean-up writes `value_int`, which opset 11 does not have, into model 4222."""
    (finding,) = attack(4222, ["greedy"])
    assert finding.outcome == EQUAL, finding.details


@pytest.mark.parametrize("last", [100, pytest.param(120, marks=pytest.mark.full)])
def test_a_sample_of_nasty_models_has_results(last: int) -> None:
    findings = [each for seed in range(100, last + 1) for each in attack(seed, ["greedy"])]
    assert [each for each in findings if each.outcome in FAULTS] == []
    # Otherwise the attack would show nothing.
    assert sum(each.outcome == EQUAL for each in findings) > len(findings) / 2


@pytest.mark.full
def test_a_run_whose_file_became_a_pipe_is_done_again() -> None:
    """Whoever opens a pipe waits for ever."""
    with tempfile.TemporaryDirectory() as name:
        command = runs.copy_of("taso", Path(name), finished=False)
        faults.a_pipe(np.random.default_rng(0), command.run / "config.json")
        end = command.finish("--force")
        assert end.status == 2 and "config.json" in end.said and "--restart" in end.said and not end.orphans
        assert command.finish("--force", "--restart").status == 0
        assert runs.trace(command) == runs.undisturbed("taso").trace


def test_a_sample_of_wrong_rules_is_rejected() -> None:
    findings = [each for seed in range(5000, 5012) for each in rules.attack(seed)]
    assert [each for each in findings if each.outcome == rules.HOLE] == []
    assert sum(each.outcome == rules.REJECTED for each in findings) >= 3


def test_every_twist_is_used_and_every_model_is_valid() -> None:
    drawn_models = [nasty_model(seed) for seed in range(150)]
    assert all(is_valid(each.model) for each in drawn_models)
    used = {name for each in drawn_models for name in each.twists}
    assert {twist.__name__ for twist in (*CONSTRUCTS, *SPELLINGS)} <= used


def test_models_of_old_opsets_come_with_a_model_that_computes_the_same() -> None:
    """Checked where onnx.reference can run both: it takes an old Softmax for the new one, and ignores `axis`."""
    from onnx.reference import ReferenceEvaluator

    compared = 0
    for seed in range(60):
        old, new = legacy_model(np.random.default_rng(seed))
        if any(n.op_type == "Softmax" or any(a.name == "broadcast" for a in n.attribute) for n in old.graph.node):
            continue
        x = np.random.default_rng(seed).standard_normal((2, 3, 4, 4)).astype(np.float32)
        (expected,) = ReferenceEvaluator(new).run(None, {"x": x})
        try:
            (found,) = ReferenceEvaluator(old).run(None, {"x": x})
        except Exception:  # onnx.reference does not know the attributes of most old operators
            continue
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        compared += 1
    assert compared >= 3
