"""One way to train a world model, with one seed, in units of work; and the options that say which."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from typing import Any

from experiments.config.run import RunConfig, load_config
from experiments.errors import UserError
from experiments.reproduce.units import Record, once, unit_path
from experiments.runs.progress import ProgressDisplay
from experiments.studies.best_known import search_best
from experiments.studies.evaluation import judge
from experiments.studies.policy import exploit
from experiments.studies.rounds import Rounds
from experiments.studies.setting import FIGURES, Effort, Setting
from experiments.studies.transfer import Target, transfer

TABLE = "accuracy"
"""Whose units they are, whichever table asks for them."""
SEEDS, FEWER_SEEDS = (0, 1, 2, 3, 4), (0, 1, 2)
MORE_SEEDS_FOR = ("squeezenet1.1", "bert-base")
USED = (
    "costs",
    "environment",
    "collect",
    "world_model",
    "dream",
    "recollect",
    "policy",
    "ppo",
    "updates_per_checkpoint",
)
"""Settings of a run that something here goes by: values of others would be promises."""


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much is trained and judged.

    Attributes:
      preset: the settings that `--set` changes.
      overrides: changes to the preset.
      effort: what is judged.
    """

    preset: str
    overrides: tuple[str, ...]
    effort: Effort


_SMALL = (
    "environment.max_steps=12",
    "collect.episodes=40",
    "world_model.encoder.latent=8",
    "world_model.encoder.total_time=true",
    "world_model.encoder.hidden=16",
    "world_model.encoder.rounds=2",
    "world_model.encoder_training.steps=10",
    "world_model.mdn_rnn.hidden=32",
    "world_model.mdn_rnn_training.steps=30",
    "ppo.updates=2",
    "ppo.batch=8",
    "recollect.rounds=1",
    "recollect.episodes=4",
    "recollect.steps=10",
)
_LITTLE = Effort(
    episodes=40,
    max_steps=12,
    first=2,
    stride=2,
    steps=(1, 3, 5),
    at_least=3,
    policy_episodes=4,
    resamples=50,
    budget=50,
)
_AFFORDABLE = (
    "world_model.encoder_training.steps=800",
    "world_model.mdn_rnn_training.steps=1200",
    "ppo.updates=100",
    "ppo.batch=64",
    "recollect.rounds=1",
    "recollect.steps=400",
)
"""A quarter of an hour on one core for a model of BERT-Base, and a few minutes for a policy."""
SCALES = {"smoke": Scale("demo", _SMALL, _LITTLE), "full": Scale("best", _AFFORDABLE, Effort())}


def add_options(parser: argparse.ArgumentParser) -> None:
    """How models are trained, and with which seeds."""
    parser.add_argument("--seeds", metavar="A,B,…", help="seeds (0 to 4 for SqueezeNet1.1 and BERT-Base, else 0 to 2)")
    parser.add_argument("--preset", help="settings of training (best)")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="override one of them (repeatable)"
    )


def training_config(options: argparse.Namespace) -> RunConfig:
    """The settings of `--scale`, `--preset` and `--set`.

    Raises:
      UserError: unknown ones, or some under which improvements cannot be told.
    """
    scale = SCALES[options.scale]
    usual = load_config(options.preset or scale.preset, {}, scale.overrides)
    config = load_config(options.preset or scale.preset, {}, [*scale.overrides, *options.set])
    if config.environment.reward != "log_ratio":
        raise UserError(
            f"The reward is '{config.environment.reward}', but improvements are only told from sums of 'log_ratio'. "
            "Leave environment.reward as it is."
        )
    if config.measures_costs:
        raise UserError(f"Costs are measured ('{config.costs}'), and vary. Choose a roofline:<device>.")
    for key, value in _unused(config, usual):
        raise UserError(
            f"{key} is {value!r}, but nothing here goes by it: these tables are of the zoo's graphs under the built-in "
            "rules, and of world models and policies of their dreams. Leave it as it is, and study other models with "
            "`rlflow optimise` and the notebook."
        )
    if not config.collect.held_out:
        raise UserError("collect.held_out is 0, but intervals are fitted on held-out random play: set it to 0.1.")
    return config


def _unused(config: RunConfig, usual: RunConfig) -> Iterator[tuple[str, Any]]:
    """Key and value of what is not as usual, and has no effect here."""
    if config.collect.processes != usual.collect.processes:
        yield "collect.processes", config.collect.processes
    for field in dataclasses.fields(config):
        here, there = getattr(config, field.name), getattr(usual, field.name)
        if field.name in USED or here == there:
            continue
        if not dataclasses.is_dataclass(here):
            yield field.name, here
            continue
        for part in dataclasses.fields(here):
            if getattr(here, part.name) != getattr(there, part.name):
                yield f"{field.name}.{part.name}", getattr(here, part.name)


def seeds_of(name: str, given: str | None) -> tuple[int, ...]:
    """Those of `--seeds`, or the default ones of a graph.

    Raises:
      UserError: if they are no numbers.
    """
    if given is None:
        return SEEDS if name in MORE_SEEDS_FOR else FEWER_SEEDS
    parts = [part.strip() for part in given.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UserError(f"--seeds expects numbers with commas between them, for example 0,1,2, but got '{given}'.")
    return tuple(dict.fromkeys(int(part) for part in parts))


class Study:
    """One setting and seed; a unit of work that was finished by any run, on any machine, is only read."""

    def __init__(self, setting: Setting, seed: int, effort: Effort, progress: ProgressDisplay) -> None:
        self._effort, self._progress = effort, progress
        judged = {"seed": seed, "effort": dataclasses.asdict(effort)}
        self._settings, self._model_settings = setting.record() | judged, setting.model_record() | judged
        self._graph = setting.graph
        amount = "" if setting.real_steps is None else f"-{setting.real_steps}steps"
        self._name = f"{setting.graph}{amount}-seed{seed}"
        # Named by what training depends on only: what is judged with other effort is not trained again.
        records = {"model": setting.model_record(), "rounds": setting.record()}
        model, rounds = (
            unit_path(TABLE, f"{self._name}-{what}", {**record, "seed": seed}).with_suffix("")
            for what, record in records.items()
        )
        self._rounds = Rounds(setting, seed, model, rounds, progress)

    def accuracy(self, number: int = 0) -> Record:
        """See `judge`."""

        def work() -> Record:
            return judge(self._rounds, number, self._effort, self._progress)

        settings = (self._settings if number else self._model_settings) | {"figures": FIGURES}
        return once(TABLE, f"{self._name}-round{number}", settings, work, anywhere=True)

    def transfer(self, target: Target) -> Record:
        """See `transfer`."""

        def work() -> Record:
            return transfer(self._rounds, target, self._effort, self._progress)

        settings = self._model_settings | {"target": dataclasses.asdict(target), "figures": FIGURES}
        return once(TABLE, f"{self._name}-on-{target.label}", settings, work, anywhere=True)

    def exploit(self, number: int) -> Record:
        """See `exploit`."""

        def work() -> Record:
            return exploit(self._rounds, number, self._effort, self._progress)

        return once(TABLE, f"{self._name}-policy{number}", self._settings, work, anywhere=True)

    def search(self) -> Record:
        """See `search_best`; of the graph, whatever is trained."""
        settings = {"rules": self._settings["rules"], "costs": self._settings["costs"], "budget": self._effort.budget}

        def work() -> Record:
            return search_best(self._rounds.env, self._effort.budget)

        return once(TABLE, f"{self._graph}-best-known", settings, work, anywhere=True)
