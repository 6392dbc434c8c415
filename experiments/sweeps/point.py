"""One point of a sweep: a run with its settings, played for real and in its dream, and the figures of both.

Points that differ only in how a controller is trained share the random play and the world model of round 0. All scores
are one formula: the mean improvement at the end of episodes that the policy samples, in percent of the start graph's
cost, in reality and in dreams.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from controller.evaluation import Evaluation
from experiments.config.effect import in_effect, same_effect
from experiments.config.run import OF_CONTROLLERS, RunConfig
from experiments.config.tree import as_mapping
from experiments.executors.units import Record
from experiments.pipeline.learning.evaluate import train_and_evaluate
from experiments.pipeline.learning.rounds import Learning
from experiments.pipeline.loading.load import Loaded, load
from experiments.runs.directory import RunDirectory, digest, finite
from experiments.runs.manifest import make_manifest
from experiments.runs.progress import ProgressDisplay
from experiments.runs.rounds import FIRST
from experiments.runs.run import Run

LATER = (
    *OF_CONTROLLERS,
    *("dream", "recollect", "controller", "world", "options", "updates_per_checkpoint", "evaluate", "search", "verify"),
)
"""Settings that the world model of round 0 does not depend on."""
POINTS, RUNS, MODELS = "points", "runs", "models"
"""The folders, within that of a sweep, of the points' figures, of their runs, and of what runs share."""


class Figure(NamedTuple):
    """A figure of a point.

    Attributes:
      about: its meaning and unit.
      least, largest: its bounds, beyond which no interval of a mean reaches.
    """

    about: str
    least: float = -math.inf
    largest: float = math.inf


FIGURES = {
    "real": Figure("mean improvement at the end of real episodes that the policy samples, if it does [%]", largest=100),
    "dream": Figure("the same in dreams, at the temperature that it was trained at [%]", largest=100),
    "dream_at_1": Figure("the same in dreams at temperature 1 [%]", largest=100),
    "best": Figure("improvement of the best of its own real episodes [%]", largest=100),
    "deterministic": Figure("improvement at the end of the real episode without sampling [%]", largest=100),
    "random": Figure("improvement at the end of episodes of random play, mean [%]", largest=100),
    "gap": Figure("mean distance between a dream and what the same rewrites really do [points]", least=0),
    "illegal": Figure("rewrites in dreams that are not legal in reality [%]", least=0, largest=100),
    "recall": Figure("rewrites that really pay along its plans, share that the dream offers [%]", least=0, largest=100),
    "real_steps": Figure("steps of the exact engine, without those that points share", least=0),
    "dreamed_steps": Figure("steps in dreams", least=0),
    "kernel_timings": Figure("timings of single kernels", least=0),
    "end_to_end_timings": Figure("timings of whole graphs", least=0),
    "minutes": Figure("without the random play and the world model that points share", least=0),
}
"""The figures of a point."""


@dataclass(frozen=True)
class Point:
    """One point.

    Attributes:
      model: path of an ONNX file, or zoo name.
      values: the value of each axis.
      config: all settings, those of the axes included.
      fingerprint: what else decides the result: graph, rules, prices, features and formats (`Loaded.fingerprint`).
      folder: the folder of the sweep.
    """

    model: str
    values: Mapping[str, Any]
    config: RunConfig
    fingerprint: Mapping[str, Any]
    folder: Path

    @property
    def name(self) -> str:
        """The name for people."""
        return ", ".join(f"{key}={value}" for key, value in self.values.items())

    @property
    def file(self) -> Path:
        """The file of the point's figures."""
        return self.folder / POINTS / f"{digest(self.identity)}.json"

    @functools.cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that the figures depend on."""
        return {"config": in_effect(self.config), "fingerprint": self.fingerprint}

    def has_figures_of(self, record: Record) -> bool:
        """Returns whether the figures of a finished point are this one's, also if settings were added since."""
        return same_effect({"config": record["settings"], "fingerprint": record["fingerprint"]}, self.identity)

    @property
    def lane(self) -> str:
        """Equal for points that share a world model, of which one has to train it."""
        return digest(self._shared) if self.config.uses_world_model else ""

    @property
    def _shared(self) -> dict[str, Any]:
        shared = {name: value for name, value in as_mapping(self.config).items() if name not in LATER}
        exact = self.config.dream.legality == "exact"  # the model has learned what operators save then
        return {**shared, "dream": {"legality": "exact"}} if exact else shared

    def record(self, progress: ProgressDisplay) -> Record:
        """Trains and plays, and returns the figures; stages that are finished are not done again."""
        loaded = load(self.model, self.config)
        run = self._run(RUNS, as_mapping(self.config), loaded, progress)
        first = self._run(MODELS, self._shared, loaded, progress) if self.config.uses_world_model else None
        if first is not None:
            run.directory.write_json(FIRST, {"path": os.path.relpath(first.directory.path, run.directory.path)})
        evaluation, training = train_and_evaluate(run, loaded, first=first)
        plans = training.plans
        figures = _real(evaluation) | {
            "dream": plans.get("dreamed_percent"),
            "gap": plans.get("gap"),
            "illegal": _percent(plans.get("illegal_share")),
            "recall": _percent(plans.get("offered")),
        }
        if first is not None and plans:
            figures["dream_at_1"] = _dream_at_one(Learning(run, loaded, first=first), plans)
        counts = run.directory.counts().to_json()
        figures |= {name: counts[name] for name in counts if name in FIGURES}
        figures["minutes"] = sum(run.directory.stage_seconds().values()) / 60
        run.directory.mark_done()
        return {
            "point": dict(self.values),
            "settings": as_mapping(self.config),
            "fingerprint": dict(self.fingerprint),
            "figures": {name: figures.get(name) for name in FIGURES},
        }

    def _run(self, kind: str, settings: Mapping[str, Any], loaded: Loaded, progress: ProgressDisplay) -> Run:
        identity = {**settings, "fingerprint": loaded.fingerprint}
        manifest = make_manifest((), self.model, self.config.seed)
        directory = RunDirectory.open(self.folder / kind / digest(identity), identity, manifest)
        return Run(self.config, directory, progress, f"{self.name}: ")


def _real(evaluation: Evaluation) -> Record:
    """Returns the figures of real play."""
    return {
        "real": _mean_at_end(evaluation.sampled),
        "best": 100 * evaluation.controller_best.improvement,
        "deterministic": _mean_at_end([evaluation.deterministic]),
        "random": _mean_at_end(evaluation.random),
    }


def _mean_at_end(records: Any) -> float | None:
    ends = [100 * (1 - record.costs_ms[-1] / record.costs_ms[0]) for record in records]
    return float(np.mean(ends)) if ends else None


def _dream_at_one(learning: Learning, plans: Mapping[str, Any]) -> float | None:
    """Returns the score of the policy that plays in its dream at temperature 1."""
    from worldmodel.accuracy.exploit import compare, dreamed_then_replayed
    from worldmodel.dream.dream_env import DreamEnv
    from worldmodel.dream.players import player_of

    config, number = learning.run.config, learning.best_round()
    if config.dream.temperature == 1.0:
        return finite(plans["dreamed_percent"])
    model, env = learning.model(number).fresh(), learning.loaded.env
    settings = dataclasses.replace(config.dream, noise=False, temperature=1.0)
    played = dreamed_then_replayed(
        model,
        DreamEnv.of_root(model, env, settings),
        env,
        player_of(learning.controller(number)),
        episodes=int(plans["episodes"]),
        horizon=env.max_steps,
        seed=learning.run.seed("dream at temperature 1"),
    )
    return finite(compare(played).dreamed_percent)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
