"""Tests of how world models are trained and evaluated for the tables of accuracy."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from environment import GraphSubstitutionEnv
from environment.policies.random import RandomAgent
from experiments.config.run import RunConfig, load_config
from experiments.runs.progress import make_progress
from experiments.runs.run import Run
from experiments.studies import evaluation
from experiments.studies.policy import IN_THE_DREAM, exploit, trivial_gaps
from experiments.studies.setting import Effort, Setting, figures_fingerprint, fingerprint
from worldmodel.accuracy.baselines import PER_RULE, PER_SITE, ZERO
from worldmodel.accuracy.exploit import ComparedPlan, points
from worldmodel.data.episodes import EpisodeBuffer, collect
from worldmodel.world_model import WorldModel

MODEL = "squeezenet1.1-tiny"
EFFORT = Effort(first=2, at_least=5)
DOUBTFUL = "world_model.mdn_rnn.ensemble=2", "dream.pessimism=2", "dream.legal_from=0.8"


def config(*assignments: str) -> RunConfig:
    return load_config("demo", {}, list(assignments))


def test_adding_rounds_or_processes_trains_nothing_anew() -> None:
    """The name of a unit holds all that its result depends on, and nothing else."""
    usual = Setting(MODEL, config("recollect.rounds=1"))
    same = Setting(MODEL, config("recollect.rounds=3", "collect.processes=2", "evaluate.sampled_episodes=1"))
    assert same.record() == usual.record() and same.model_record() == usual.model_record()
    stricter = Setting(MODEL, config("recollect.rounds=1", "dream.legal_from=0.95"))
    assert stricter.record() != usual.record() and stricter.model_record() == usual.model_record()
    changes = "collect.noop_probability=0.3", "collect.steps=100", "collect.actions=rank", "environment.max_steps=7"
    for change in (*changes, "world_model.mdn_rnn.ensemble=2"):
        assert Setting(MODEL, config(change)).model_record() != usual.model_record()
    for other in (Setting("bert-base-tiny", usual.config), usual.seeded(1)):
        assert other.model_record() != usual.model_record()


@pytest.mark.parametrize(
    "changed", ["environment.substitution.features.FEATURES_VERSION", "environment.substitution.features.NUM_OPERATORS"]
)
def test_other_features_are_other_units(changed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint.__wrapped__(MODEL)
    monkeypatch.setattr(changed, 99)
    after = fingerprint.__wrapped__(MODEL)
    assert {key for key in before if before[key] != after[key]} == {"features"}


def test_other_figures_are_other_units(monkeypatch: pytest.MonkeyPatch) -> None:
    before = figures_fingerprint()
    monkeypatch.setattr("worldmodel.accuracy.figure_names.MASK_ERROR", "masks: wrong bits")
    assert figures_fingerprint() != before


def test_steps_are_evaluated_as_far_as_there_are() -> None:
    effort = Effort(steps=(1, 5, 10))
    assert [effort.furthest(step) for step in (20, 10, 7, 1)] == [10, 10, 5, 1]
    assert Effort(steps=(5, 10)).furthest(2) == 5


def test_policies_are_put_to_the_test_in_the_dream_they_were_trained_in(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {}
    played = [ComparedPlan(((0, 0),), (0.0, 2.0), (0.0, 1.5), 1.5, illegal=0)]

    def for_real(*_: Any, **given: Any) -> list[ComparedPlan]:
        found.update(given)
        return played

    def in_the_dream(model: Any, dream: Any, *_: Any, **__: Any) -> list[ComparedPlan]:
        found["dream"] = dream
        return played

    monkeypatch.setattr("worldmodel.accuracy.exploit.played_for_real", for_real)
    monkeypatch.setattr("worldmodel.accuracy.exploit.dreamed_then_replayed", in_the_dream)
    models = [
        SimpleNamespace(fresh=lambda number=number: SimpleNamespace(table=f"table {number}")) for number in range(3)
    ]
    learning: Any = SimpleNamespace(
        run=Run(config(*DOUBTFUL), None, make_progress()),  # type: ignore[arg-type]  # nothing is kept
        loaded=SimpleNamespace(name=MODEL, env=SimpleNamespace(max_steps=12)),
        model=models.__getitem__,
        controller=lambda number: SimpleNamespace(policy=None),
        root_dream=lambda model: f"dream by {model.table}",
        episodes=lambda number: (SimpleNamespace(num_transitions=20 + number), SimpleNamespace(num_transitions=1)),
    )
    monkeypatch.setattr("worldmodel.accuracy.baselines.Trivial.of", lambda training, model: (training, model))
    monkeypatch.setattr("experiments.studies.policy.trivial_gaps", lambda *given: given[1])
    record = exploit(learning, 2, EFFORT)
    training, model = record[IN_THE_DREAM]["trivial_gap"]
    assert (training.num_transitions, model.table) == (22, "table 2")
    assert (found["config"], found["dream"]) == (config(*DOUBTFUL).dream, "dream by table 2")
    assert record["real_steps"] == 23 and record[IN_THE_DREAM]["gap"] == 0.5


def test_tables_of_rewards_tell_of_plans_what_these_add_up_to() -> None:
    """The gap is to the improvement really reached before the first illegal rewrite."""

    class Table:
        num_actions = 3

        def encode(self, pairs: np.ndarray) -> np.ndarray:
            assert pairs.shape[1] == 2
            first: np.ndarray = pairs[:, 0]
            return first

    plans = [
        ComparedPlan(((0, 0), (2, 0)), (0.0, 1.0, 2.0), (0.0, 1.0), 1.5, illegal=1),
        ComparedPlan((), (0.0,), (0.0,), 0.0, illegal=0),
    ]
    tables: Any = SimpleNamespace(per_rule=np.array([1.0, 9.0, 1.0, 0.0]), per_site=np.array([0.5, 9.0, 0.5, 0.0]))
    gaps = trivial_gaps(plans, tables, Table())  # type: ignore[arg-type]
    assert gaps == pytest.approx({ZERO: 0.5, PER_RULE: (points(2.0) - 1.0) / 2, PER_SITE: (1.0 - points(1.0)) / 2})


class Asked:
    """A replacement for a world model that has only the configuration of its MDN-RNN."""

    class mdn_rnn:  # noqa: N801
        config = RunConfig().world_model.mdn_rnn


@pytest.mark.parametrize(("found", "as_judged"), [(5, True), (4, False), (None, False)])
def test_intervals_are_fitted_where_they_are_evaluated_if_there_is_enough(
    found: int | None, as_judged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Some:
        def __init__(self, count: int) -> None:
            self.episode = np.arange(count)

    asked: dict[str, Any] = {}

    def find(*_: Any, **where: Any) -> Some | None:
        asked.update(where)
        return None if found is None else Some(found)

    monkeypatch.setattr("worldmodel.accuracy.open_loop.find_windows", find)
    monkeypatch.setattr("worldmodel.accuracy.open_loop.cut_windows", lambda *_, **__: Some(50))
    monkeypatch.setattr("worldmodel.accuracy.latents.fit_intervals", lambda model, windows: float(len(windows.episode)))
    env = GraphSubstitutionEnv(MODEL, max_steps=4)
    training = collect(env, RandomAgent(), 2, seed=0)
    fitted = evaluation.fitted_intervals(Asked(), training, training, EFFORT)  # type: ignore[arg-type]
    count = found if as_judged else 50
    assert fitted == {"factor": count, "windows": count, "as_judged": as_judged}
    assert (asked["first"], asked["last"], asked["stride"]) == (EFFORT.first, EFFORT.max_steps - 1, 1)
    assert asked["seen"] == {graph_hash for episode in training for graph_hash in episode.hashes}


def test_models_without_mixtures_have_no_intervals_to_fit() -> None:
    model: Any = Asked()
    model.mdn_rnn = type(
        "Dynamics", (), {"config": dataclasses.replace(Asked.mdn_rnn.config, dynamics="deterministic")}
    )
    empty: Any = EpisodeBuffer
    assert evaluation.fitted_intervals(model, empty, empty, EFFORT)["factor"] is None


def test_facts_of_play_are_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    env = GraphSubstitutionEnv(MODEL, max_steps=6)
    training, held_out = (collect(env, RandomAgent(), 6, seed=seed) for seed in (0, 1))

    class Known:
        def episode_data(self, buffer: EpisodeBuffer) -> Any:
            assert buffer is held_out
            return type("Data", (), {"unknown_share": 0.25, "cut_share": float("nan")})

    model: WorldModel = Known()  # type: ignore[assignment]
    facts = evaluation.held_out_facts(model, training, held_out, EFFORT)
    seen = {graph_hash for episode in training for graph_hash in episode.hashes}
    visits = [graph_hash not in seen for episode in held_out for graph_hash in episode.hashes[2:]]
    assert facts == {"unseen": pytest.approx(np.mean(visits)), "unknown": 0.25, "cut": None}
