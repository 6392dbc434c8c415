"""Plays controllers in the real environment and keeps the records that prove their results."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from controller.interface import Controller
from controller.records import RELATIVE_RESOLUTION, EpisodeLog, EpisodeRecord, best_improvement, best_record, noise_of
from controller.search.one_step import RandomController
from taso_ext.files import write_text

EpisodeCallback = Callable[[int, int, EpisodeRecord], None]
"""Called as `on_episode(done, total, record)` after every episode."""


class ReplayError(ValueError):
    """An action log does not lead where its record says."""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The results of a run, separated by who found them.

    Attributes:
      collection: (a) the best real episode before the evaluation; None if there was none. It comes from the random
        collection for the world model and the episodes that policies of earlier rounds added to it, or from model-free
        training.
      deterministic: (b) the controller's deterministic episode.
      sampled: (c) the controller's sampled episodes; empty for controllers that do not sample.
      random: (d) episodes of the random agent, as many as (b) and (c) have together; none beside a controller that
        the clock guides, because costs would not show which of the two is better.
    """

    collection: EpisodeRecord | None
    deterministic: EpisodeRecord
    sampled: tuple[EpisodeRecord, ...]
    random: tuple[EpisodeRecord, ...]

    @property
    def controller_best(self) -> EpisodeRecord:
        """The best of (b) and (c), which is the controller's result."""
        best = best_record((self.deterministic, *self.sampled))
        assert best is not None
        return best

    @property
    def best(self) -> EpisodeRecord:
        """The best episode of the whole run, which is exported; among equals it is the controller's own."""
        collection = () if self.collection is None else (self.collection,)
        best = best_record((self.deterministic, *self.sampled, *collection, *self.random))
        assert best is not None
        return best

    def improvements(self) -> dict[str, float]:
        """Returns the improvement 1 - cost/cost₀ of the best graph in each part, by the name of the part."""
        return {
            "collection": 0.0 if self.collection is None else self.collection.improvement,
            "deterministic": self.deterministic.improvement,
            "sampled": best_improvement(self.sampled),
            "controller": self.controller_best.improvement,
            "random": best_improvement(self.random),
            "best": self.best.improvement,
        }

    def repriced(self, env: Any) -> Evaluation:
        """Returns the same episodes with the costs that their graphs have now in the environment."""
        return Evaluation(
            collection=None if self.collection is None else repriced(env, self.collection),
            deterministic=repriced(env, self.deterministic),
            sampled=tuple(repriced(env, record) for record in self.sampled),
            random=tuple(repriced(env, record) for record in self.random),
        )

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values; `from_json` is the inverse."""
        return {
            "collection": None if self.collection is None else self.collection.to_json(),
            "deterministic": self.deterministic.to_json(),
            "sampled": [record.to_json() for record in self.sampled],
            "random": [record.to_json() for record in self.random],
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Evaluation:
        collection = fields["collection"]
        return cls(
            collection=None if collection is None else EpisodeRecord.from_json(collection),
            deterministic=EpisodeRecord.from_json(fields["deterministic"]),
            sampled=tuple(EpisodeRecord.from_json(record) for record in fields["sampled"]),
            random=tuple(EpisodeRecord.from_json(record) for record in fields["random"]),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the records as JSON, atomically."""
        write_text(path, json.dumps(self.to_json(), indent=1))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Evaluation:
        return cls.from_json(json.loads(Path(path).read_text()))


def episode_counts(controller: Controller, num_sampled: int) -> tuple[int, int]:
    """Returns how many sampled and how many random episodes `evaluate` plays, beside the deterministic one."""
    sampled = num_sampled if controller.stochastic else 0
    return sampled, 0 if controller.clocked else 1 + sampled


def evaluate(
    env: Any,
    controller: Controller,
    *,
    num_sampled: int,
    seed: int,
    collection: EpisodeRecord | None = None,
    random_controller: Controller | None = None,
    on_episode: EpisodeCallback | None = None,
) -> Evaluation:
    """Plays the controller, and as many random episodes for comparison, in the real environment.

    Args:
      env: the real environment.
      controller: a controller that is trained or needs no training.
      num_sampled: number of sampled episodes; none are played if the controller is not stochastic.
      seed: the seed of the first episode of each part; episode i has the seed `seed + i`.
      collection: the best real episode so far, which the result keeps unchanged.
      random_controller: the controller that plays part (d); `RandomController()` by default.
      on_episode: called after every episode.
    """
    num_sampled, num_random = episode_counts(controller, num_sampled)
    total = 1 + num_sampled + num_random
    records: list[EpisodeRecord] = []

    def play(player: Controller, kind: str, episode_seed: int) -> EpisodeRecord:
        record = play_episode(env, player, seed=episode_seed, kind=kind, deterministic=kind == "deterministic")
        records.append(record)
        if on_episode is not None:
            on_episode(len(records), total, record)
        return record

    random_controller = random_controller or RandomController()
    return Evaluation(
        collection=collection,
        deterministic=play(controller, "deterministic", seed),
        sampled=tuple(play(controller, "sampled", seed + i) for i in range(num_sampled)),
        random=tuple(play(random_controller, "random", seed + i) for i in range(num_random)),
    )


def play_episode(
    env: Any, controller: Controller, *, seed: int, deterministic: bool = False, kind: str = "sampled"
) -> EpisodeRecord:
    """Plays one episode to its end and records the real graph's changes.

    Args:
      env: the real environment. The controller may see it through a view; the record always describes the real graph.
      controller: the controller that picks the actions.
      seed: seed of the reset and of the controller's draws.
      deterministic: passed to `Controller.act`.
      kind: the kind of the episode in its record.
    """
    view = controller.view(env)
    options = {} if controller.max_steps is None else {"options": {"max_steps": controller.max_steps}}
    observation, info = view.reset(seed=seed, **options)
    controller.begin_episode(view, seed=seed)
    log = EpisodeLog(kind, seed, info)
    while not log.over:
        action = controller.act(observation, deterministic=deterministic)
        observation, *outcome = view.step(action)
        log.add(action, *outcome)
    record = log.record()
    if not controller.clocked:
        return record
    no_op = env.unwrapped.num_rules
    rules = [record.actions[record.num_actions(step)][0] for step in range(record.num_steps)]
    return dataclasses.replace(record, chosen=sum(rule != no_op for rule in rules))


def replay_record(env: Any, record: EpisodeRecord) -> list[float]:
    """Takes the single rewrites of a record one after another, and checks the cost after each step.

    Returns:
      See `replay`.
    Raises:
      ReplayError: as `replay`.
    """
    met = replay(env, record.actions)
    _check_costs([met[record.num_actions(step)] for step in range(record.num_steps + 1)], record.costs_ms)
    return met


def replay(env: Any, actions: Sequence[tuple[int, int]], costs_ms: Sequence[float] | None = None) -> list[float]:
    """Takes `actions` one after another in the real environment, without a controller.

    Args:
      env: the real environment; `replay` resets it.
      actions: pairs (rule, location).
      costs_ms: the costs of the log in ms, the initial graph's first; they are checked if given. For a record with
        everywhere-actions use `replay_record`.
    Returns:
      The len(actions) + 1 real costs in ms, the initial graph's first.
    Raises:
      ReplayError: an action is not legal, or a cost differs from that of the log; the message names the step.
    """
    _, info = env.reset()
    met = [float(info["cost_ms"])]
    for step, (rule, location) in enumerate(actions):
        if not _is_legal(env, rule, location):
            raise ReplayError(f"Action {step} of the log, (rule {rule}, location {location}), is not legal there.")
        info = env.step([rule, location])[4]
        met.append(float(info["cost_ms"]))
    if costs_ms is not None:
        _check_costs(met, costs_ms)
    return met


def repriced(env: Any, record: EpisodeRecord) -> EpisodeRecord:
    """Returns a record with the costs that its graphs have now in the environment; its rewards stay as they were."""
    infos = [env.reset()[1], *(env.step([rule, location])[4] for rule, location in record.actions)]
    met = [infos[record.num_actions(step)] for step in range(record.num_steps + 1)]
    costs_ms = tuple(float(info["cost_ms"]) for info in met)
    return dataclasses.replace(
        record, costs_ms=costs_ms, cost_noise=noise_of(met, "cost_noise"), ratio_noise=noise_of(met, "ratio_noise")
    )


def _is_legal(env: Any, rule: int, location: int) -> bool:
    if rule == env.unwrapped.num_rules:
        return True
    return bool((env.unwrapped.legal_actions() == (rule, location)).all(axis=1).any())


def _check_costs(met: Sequence[float], claimed: Sequence[float]) -> None:
    if len(met) != len(claimed):
        raise ReplayError(f"The log claims {len(claimed)} costs for {len(met)} graphs.")
    for step, (cost_ms, claim_ms) in enumerate(zip(met, claimed, strict=True)):
        if abs(cost_ms - claim_ms) > RELATIVE_RESOLUTION * max(cost_ms, claim_ms):
            raise ReplayError(
                f"After {step} actions the log claims {claim_ms} ms, but the environment has {cost_ms} ms: "
                "the log belongs to another graph, rule set or cost model."
            )
