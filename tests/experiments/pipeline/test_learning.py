"""Tests of learning in rounds: what is collected, and the settings of the dreams that policies are trained in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.foreign import BrokenControllerError, Foreign
from controller.interface import Controller
from experiments.config.run import load_config
from experiments.errors import UserError
from experiments.pipeline.collect import collect_episodes
from experiments.pipeline.learning import Learning
from experiments.pipeline.load import load
from experiments.runs.directory import RunDirectory
from experiments.runs.progress import make_progress
from experiments.runs.run import Run
from worldmodel.config import DreamConfig
from worldmodel.data.episodes import EpisodeBuffer

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
    assert asked == [DreamConfig(temperature=0.5, pessimism=2.0, legal_from=0.8, noise=False)], "reality has none"


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
    monkeypatch.setattr("experiments.pipeline.learning.recollect_episodes", recollected)
    monkeypatch.setattr("experiments.pipeline.learning.train_further", lambda *_, omits: asked.append(omits))
    learning.model(1)
    assert asked == [omits, omits]
    training, rounds = (learning.run.config.world_model.mdn_rnn_training, learning.run.config.refit(omits))
    assert rounds.mask_emphasis == training.mask_emphasis + 3 * omits


def test_nothing_is_measured_for_weights_that_nobody_asks_for(tmp_path: Path) -> None:
    assert not learning_of(tmp_path)._omits(0)
