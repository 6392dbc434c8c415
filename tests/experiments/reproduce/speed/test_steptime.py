"""Tests of `rlflow reproduce steptime`: how long a step takes in the real environment and in the dream."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from environment import GraphSubstitutionEnv
from experiments.cli import main
from experiments.reproduce.speed import steptime
from experiments.reproduce.speed.dream_times import FixedOrder, encode_ms
from experiments.reproduce.table import UNDEFINED
from tests.commands import read_table
from worldmodel.data.trajectory import LatentObservation

MODEL = "squeezenet1.1-tiny"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.full
@pytest.mark.usefixtures("untraced")
def test_every_kind_of_step_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["reproduce", "steptime", "--scale", "smoke", MODEL]
    assert main(command) == 0
    found = {row["step"]: row for row in read_table("steptime")}
    assert list(found) == list(steptime.STEPS.values())
    times_ms = {step: float(found[text]["ms"]) for step, text in steptime.STEPS.items()}
    assert min(times_ms.values()) > 0
    for step, text in steptime.STEPS.items():
        assert float(found[text]["ratio"]) == pytest.approx(times_ms[step] / times_ms["dream"])
    assert times_ms["timed"] > times_ms["real"], "it runs the graph several times"
    monkeypatch.setattr(steptime.StepTimes, "_time", lambda *_: pytest.fail("timed again"))
    assert main(command) == 0


def test_real_steps_are_timed_without_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steptime.StepTimes, "_dream", lambda *_: pytest.fail("dreamed"))
    assert main(["reproduce", "steptime", "--scale", "smoke", "--without-dream", MODEL]) == 0
    found = read_table("steptime")
    assert [row["step"] for row in found] == [
        text for step, text in steptime.STEPS.items() if step not in steptime.DREAMED
    ]
    assert all(float(row["ms"]) > 0 and row["ratio"] == UNDEFINED for row in found)


def test_figures_of_the_papers_stand_where_they_belong() -> None:
    record = {"operators": 1, "actions": 1, **dict.fromkeys(steptime.STEPS, 2.0), "real": 1.0}
    resnet, bert = (steptime.rows(name, record) for name in ("resnet50", "bert-base"))
    assert [row["papers_ms"] for row in resnet if row["papers_ms"] != UNDEFINED] == [850, 10]
    assert [row["papers_ratio"] for row in resnet if row["papers_ratio"] != UNDEFINED] == [85, 1]
    assert [row["ratio"] for row in resnet] == [row["ratio"] for row in bert] == [1, 0.5, 1, 1, 1, 1, 1, 1]
    assert {row["papers_ms"] for row in bert} == {UNDEFINED}


def test_a_walk_that_ends_begins_anew() -> None:
    env = GraphSubstitutionEnv("resnet50-tiny", max_steps=3)
    assert len(list(steptime.real_steps_ms(env, 10))) == 10
    assert len(list(steptime.engine_steps_ms(env.state, 120))) == 120


def test_a_fixed_order_takes_what_is_legal() -> None:
    masks = np.random.default_rng(0).random((64, 9)) < 0.3
    masks[:2], masks[:, 8] = False, True
    action, _, _ = FixedOrder(8)(LatentObservation(tf.zeros([64, 2]), tf.zeros([64, 2]), tf.constant(masks)), None)
    for mask, taken in zip(masks, action.numpy(), strict=True):
        assert mask[taken]
        assert (taken == 8) == (mask.sum() == 1)


def test_a_graph_that_no_rule_applies_to_is_bad_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(GraphSubstitutionEnv, "legal_actions", lambda self: np.zeros((0, 2), np.int32))
    assert main(["reproduce", "steptime", "--scale", "smoke", MODEL]) == 2
    assert "No rule applies" in capsys.readouterr().err
    assert main(["reproduce", "steptime", "bert-tiny"]) == 2
    assert "bert-base-tiny" in capsys.readouterr().err


def test_every_state_that_is_timed_is_encoded() -> None:
    """Each state needs a name of its own, because a model remembers by name what it has encoded."""

    class Recorder:
        def __init__(self) -> None:
            self.names: list[str] = []

        def encode(self, graphs: dict[str, object]) -> None:
            self.names += graphs

    model = Recorder()
    for batch in (1, 3, 3):
        encode_ms(model, None, batch=batch, repeats=4)
    assert len(set(model.names)) == len(model.names) == 5 * 7
