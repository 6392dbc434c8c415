"""Tests of learning in rounds: what is collected, and the settings of the dreams that policies are trained in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from controller.foreign import BrokenControllerError, Foreign
from controller.interface import Controller
from experiments.config.run import load_config
from experiments.errors import UserError
from experiments.pipeline.learning.collect import collect_episodes
from experiments.pipeline.learning.rounds import Learning
from experiments.pipeline.loading.load import load
from experiments.runs.directory import RunDirectory
from experiments.runs.progress import make_progress
from experiments.runs.rounds import plans_file
from experiments.runs.run import Run
from worldmodel.accuracy import exploit
from worldmodel.accuracy.exploit import ComparedPlan, Comparison, compare
from worldmodel.config import DreamConfig
from worldmodel.data.actions import ActionTable, pack
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.data.trajectory import LatentObservation

MODEL = "squeezenet1.1-tiny"


class Resumed(Controller):
    """A controller that has done some updates before it was interrupted."""

    name, worlds, num_updates = "resumed", ("mixed",), 7


def learning_of(directory: Path, *assignments: str) -> Learning:
    config = load_config("demo", {}, ["environment.max_steps=12", "costs=roofline:rtx2070", "device=cpu", *assignments])
    return Learning(Run(config, RunDirectory.open(directory, {}, {}), make_progress()), load(MODEL, config))


def test_as_many_steps_are_collected_as_are_asked(tmp_path: Path) -> None:
    few, many = (learning_of(tmp_path / str(steps), f"collect.steps={steps}").random_play for steps in (40, 1200))
    assert 40 <= few.num_transitions < 40 + 12 and 1200 <= many.num_transitions < 1200 + 12
    assert [episode.hashes for episode in few] == [episode.hashes for episode in many[: len(few)]]


def test_a_collection_of_steps_logs_each_episode_once(tmp_path: Path) -> None:
    learning = learning_of(tmp_path, "collect.steps=1200")
    count = len(learning.random_play)
    logged = [line["step"] for line in learning.run.metrics.read("collect")]
    assert logged == list(range(len(logged))) and len(logged) >= count
    again = collect_episodes(learning.run, learning.loaded)
    assert [episode.hashes for episode in again] == [episode.hashes for episode in learning.random_play]


def test_the_dreams_of_a_round_are_those_of_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[DreamConfig] = []
    dream = "worldmodel.dream.dream_env.DreamEnv.of_root"
    monkeypatch.setattr(dream, lambda model, env, config: asked.append(config))
    doubtful = "world_model.mdn_rnn.ensemble=2", "dream.pessimism=2", "dream.legal_from=0.8", "dream.temperature=0.5"
    learning_of(tmp_path, *doubtful).root_dream(object())  # type: ignore[arg-type]
    of_root = DreamConfig(temperature=0.5, pessimism=2.0, legal_from=0.8, legality="exact", noise=False)
    assert asked == [of_root], "reality has none"


def test_no_policy_takes_rewrites_by_their_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learning = learning_of(tmp_path, "collect.actions=rank", "collect.episodes=2")
    monkeypatch.setattr(Learning, "model", lambda *_: None)
    with pytest.raises(UserError, match=r"collect\.actions=site"):
        learning.controller(0)


def test_the_world_mixed_goes_on_behind_the_updates_of_a_controller_of_another_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr("controller.worlds.mixed.MixedWorld", lambda *_, **arguments: given.update(arguments))
    monkeypatch.setattr(Learning, "model", lambda *_: SimpleNamespace(fresh=lambda: None))
    monkeypatch.setattr(Learning, "episodes", lambda *_: (None, None))
    learning, controller = learning_of(tmp_path, "world=mixed"), Foreign(Resumed(), BrokenControllerError)
    learning._world(0, controller)
    assert given["done"] == 7


def test_the_policies_of_rounds_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = ActionTable.of_codes(pack(np.array([[3, 0], [3, 1], [3, 60]])), num_rules=9, everywhere=60)
    model = SimpleNamespace(table=table, latent_size=2, hidden_size=1)
    monkeypatch.setattr(Learning, "model", lambda *_: SimpleNamespace(fresh=lambda: model))
    learning = learning_of(tmp_path, "policy.everywhere=by-turns")
    seen = LatentObservation(tf.zeros([1, 2]), tf.zeros([1, 1]), tf.ones([1, 4], tf.bool))
    chosen = [learning.untrained(number).policy.distribution_and_value(seen)[0] for number in range(3)]
    everywhere = [bool(np.exp(each.all_log_probs().numpy())[0, 2] > 0) for each in chosen]
    assert everywhere == [True, False, True]


@pytest.mark.parametrize("offered, omits", [(0.97, True), (0.99, False)])
def test_what_a_dream_omits_weighs_more_until_it_omits_little(
    offered: float, omits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learning = learning_of(tmp_path, "recollect.omitted=0.2", "recollect.emphasis=3", "recollect.rounds=1")
    facts = {"paying": 100, "offered": offered, "omitted": {}}
    monkeypatch.setattr(Learning, "accuracy", lambda *_: [facts])
    monkeypatch.setattr(Learning, "plans", lambda *_: {"gap": 0.0, **facts})
    monkeypatch.setattr(Learning, "controller", lambda *_: SimpleNamespace(policy=None))
    asked: list[bool] = []

    def recollected(*_: Any, omits: bool) -> EpisodeBuffer:
        asked.append(omits)
        return learning.random_play

    learning._models[0] = SimpleNamespace(number=0)  # type: ignore[assignment]
    monkeypatch.setattr("experiments.pipeline.learning.rounds.recollect_episodes", recollected)
    monkeypatch.setattr("experiments.pipeline.learning.rounds.train_further", lambda *_, omits: asked.append(omits))
    learning.model(1)
    assert asked == [omits, omits]
    training, rounds = (learning.run.config.world_model.mdn_rnn_training, learning.run.config.refit(omits))
    assert rounds.mask_emphasis == training.mask_emphasis + 3 * omits


@pytest.mark.parametrize(
    ("rounds", "gaps", "trained"),
    [(1, [9.0, 0.1, 9.0], 2), (1, [0.1, 9.0, 9.0, 9.0], 4), (1, [0.1, 9.0, 0.1], 3), (0, [9.0, 9.0], 1)],
)
def test_rounds_are_added_as_long_as_the_last_dream_is_not_to_be_trusted(
    rounds: int, gaps: Sequence[float], trained: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `more=2` there are at most two, and none if no recollection is asked for."""

    def row(self: Learning, number: int) -> dict[str, Any]:
        plans = {"gap": gaps[number], "skipping_percent": float(number)}
        self.run.directory.write_json(plans_file(number), plans)
        return {"round": number, "plans": plans}

    monkeypatch.setattr(Learning, "round_row", row)
    learning = learning_of(tmp_path, f"recollect.rounds={rounds}", "recollect.more=2", "controller=ppo", "world=dream")
    assert [each["round"] for each in learning.round_rows()] == list(range(trained))
    assert learning.last_round == trained - 1


SMALL = (
    *("environment.max_steps=6", "collect.steps=60", "recollect.rounds=0", "ppo.updates=2", "ppo.batch=4"),
    *("world_model.encoder.rounds=1", "world_model.encoder.hidden=8", "world_model.encoder.latent=4"),
    *("world_model.encoder_training.steps=2", "world_model.mdn_rnn.hidden=16", "world_model.mdn_rnn_training.steps=4"),
)


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize(
    ("alpha", "legality"),
    [
        pytest.param(0.0, "predicted", marks=pytest.mark.full),
        (0.7, "predicted"),
        pytest.param(0.7, "exact", marks=pytest.mark.full),
    ],
)
def test_dreams_of_every_reward_that_telescopes_are_compared_with_reality(
    alpha: float, legality: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[ComparedPlan] = []

    def watched(plans: Sequence[ComparedPlan]) -> Comparison:
        found.extend(plans)
        return compare(plans)

    monkeypatch.setattr(exploit, "compare", watched)
    reward = f"environment.reward=combined:alpha={alpha},beta={1 - alpha:.1f}"
    learning = learning_of(tmp_path, *SMALL, reward, f"dream.legality={legality}")
    assert learning.plans(0)["gap"] == pytest.approx(compare(found).gap)
    learns_it = learning.model(0).fresh().start_graph().operators.known
    assert learns_it == (legality == "exact"), "others predict what is legal"
    env, moved = learning.loaded.env, 0
    for plan in found:
        first = env.replay([]).cost(env.cost_model)
        graphs = [env.replay(plan.actions[:step]) for step in range(len(plan.real_percent))]
        costs = [graph.cost(env.cost_model) for graph in graphs]
        time = np.array([1 - cost.ms / first.ms for cost in costs])
        memory = np.array([1 - cost.memory_bytes / first.memory_bytes for cost in costs])
        assert plan.real_percent == pytest.approx(100 * (alpha * time + (1 - alpha) * memory), abs=1e-4)
        moved += bool(np.any(memory))
    assert moved, "no plan changed anything, so nothing was tested"


@pytest.mark.usefixtures("untraced")
def test_models_learn_what_operators_save_if_the_engine_follows_their_dreams(tmp_path: Path) -> None:
    learning = learning_of(tmp_path, *SMALL, "dream.legality=exact")
    assert learning.model(0).fresh().start_graph().operators.known
    assert learning.plans(0)["illegal_share"] == 0


def test_a_reward_whose_sum_depends_on_the_way_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Learning, "controller", lambda *_: None)
    settings = "environment.reward=final", "dream.telescoping=false", "recollect.searched=0"
    assert learning_of(tmp_path, *settings).plans(0) == {}


def test_nothing_is_measured_for_weights_that_nobody_asks_for(tmp_path: Path) -> None:
    assert not learning_of(tmp_path)._omits(0)
