"""A run of `rlflow optimise` with a tiny world model, which takes seconds."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from environment import GraphSubstitutionEnv
from experiments.cli import build_parser
from experiments.pipeline.optimise import optimise
from experiments.request import one_by_one, parse_request

TINY = [
    *("environment.max_steps=8", "collect.episodes=60", "measure.pairs=2", "evaluate.sampled_episodes=2"),
    *("world_model.encoder.rounds=1", "world_model.encoder.hidden=8", "world_model.encoder.latent=4"),
    *("graph_encoder.rounds=1", "graph_encoder.hidden=8", "graph_encoder.latent=4"),
    *("world_model.encoder_training.steps=6", "world_model.encoder_training.batch=4"),
    *("world_model.encoder_training.checkpoint_every=2", "world_model.mdn_rnn_training.checkpoint_every=2"),
    *("world_model.mdn_rnn.hidden=16", "world_model.mdn_rnn.mixtures=2", "world_model.mdn_rnn_training.steps=6"),
    "world_model.mdn_rnn_training.batch=4",
    *("ppo.updates=4", "ppo.batch=4", "ppo.horizon=6", "ppo.epochs=1", "ppo.minibatches=1", "policy.torso=[16]"),
    *("recollect.more=0", "dream.legality=predicted"),  # no tiny model is to be trusted, and it is to omit something
    "recollect.searched=0.2",
    *("updates_per_checkpoint=2", "ppo_real.updates=2", "ppo_real.batch=2", "ppo_real.horizon=4"),
]


def arguments(output: Path, *more: str) -> list[str]:
    settings = [part for setting in TINY for part in ("--set", setting)]
    run = ["--run-dir", str(output.with_suffix(".run")), "--recollect", "0"]
    costs = ["--costs", "roofline:rtx2070"]  # the result of measured costs depends on the machine
    return ["optimise", "squeezenet1.1-tiny", "-o", str(output), *run, *costs, *settings, *more]


class Watching:
    """A progress display that calls `on_update(title, done)`, also when a stage begins (done 0) and ends (done -1)."""

    def __init__(self, on_update: Callable[[str, int], None]) -> None:
        self._on_update = on_update

    @contextlib.contextmanager
    def stage(self, title: str, total: int, limit_s: float = math.inf) -> Iterator[Any]:
        watching = self

        class Bar:
            def update(self, done: int, **figures: float) -> None:
                watching._on_update(title, done)

        self._on_update(title, 0)
        yield Bar()
        self._on_update(title, -1)

    def note(self, text: str) -> None:
        pass


def run_to_the_end(output: Path, on_update: Callable[[str, int], None], *more: str) -> None:
    command = arguments(output, *more)
    (options,) = one_by_one(build_parser().parse_args(command))
    optimise(parse_request(options), Watching(on_update))


RECOLLECT = ["--recollect", "1", "--set", "recollect.episodes=6", "--set", "recollect.steps=4"]


def run_with_sealed_dreams(output: Path, *more: str) -> list[str]:
    """A whole run, during whose dreams the real environment raises; returns the titles of these stages."""
    sealed: list[str] = []
    with pytest.MonkeyPatch.context() as patches:

        def seal(title: str, done: int) -> None:
            if title.startswith("train ppo") and done == 0:
                patches.setattr(GraphSubstitutionEnv, "step", forbidden)
                patches.setattr(GraphSubstitutionEnv, "reset", forbidden)
                sealed.append(title)
            if title.startswith("train ppo") and done == -1:
                patches.undo()

        run_to_the_end(output, seal, *more)
    return sealed


def forbidden(*args: object, **kwargs: object) -> None:
    raise AssertionError("the real environment was used during the dream")
