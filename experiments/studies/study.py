"""Studies: one way to train a world model, with one seed, in units of work; and the options that select it."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from controller.search.native import ALPHA
from environment import GraphSubstitutionEnv
from environment.measurement.memory import restart_peak
from experiments.config.run import RunConfig, load_config
from experiments.errors import UserError
from experiments.executors.units import Record, once
from experiments.pipeline.learning.rounds import Learning
from experiments.pipeline.loading.load import load
from experiments.runs.directory import RunDirectory, digest, stored_formats
from experiments.runs.manifest import make_manifest
from experiments.runs.progress import ProgressDisplay
from experiments.runs.run import Run
from experiments.studies.evaluation import evaluate_model, evaluate_transfer
from experiments.studies.policy import exploit
from experiments.studies.setting import Effort, Setting, Target, agree, figures_fingerprint, fingerprint
from experiments.sweeps.over import Axis
from taso_ext import search_taso

TABLE = "accuracy"
"""The table that all units of studies belong to, whichever table asks for them."""
RUNS = Path("runs/studies")
COUNTS_FROM_PERCENT = 1.0
"""Graphs whose best known improvement is smaller say little about a model of improvements."""
SEEDS, FEWER_SEEDS = (0, 1, 2, 3, 4), (0, 1, 2)
MORE_SEEDS_FOR = ("squeezenet1.1", "bert-base")
SEEDS_METAVAR, SEEDS_HELP = "A,B,…|A..B", "seeds of the runs; a single number is one seed, not a number of seeds"
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
"""The settings of a run that have an effect here; others are refused, because their values would be empty promises."""


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much is trained and evaluated.

    Attributes:
      preset: the settings that `--set` changes.
      overrides: changes to the preset.
      effort: how much is evaluated.
    """

    preset: str
    overrides: tuple[str, ...]
    effort: Effort


ON_PAPER = (
    *("costs=roofline:rtx2070", "device=cpu", "evaluate.climb_seconds=0"),
    *("environment.everywhere=false", "policy.everywhere=always"),
)
"""The tables of world models are about single rewrites and exact costs, as in the papers; nothing takes turns."""
_SMALL = (
    *ON_PAPER,
    "environment.max_steps=12",
    "collect.episodes=40",
    "world_model.encoder.latent=8",
    "world_model.encoder.total_time=true",
    "world_model.encoder.hidden=16",
    "world_model.encoder.rounds=2",
    "world_model.encoder_training.steps=4",
    "world_model.mdn_rnn.hidden=32",
    "world_model.mdn_rnn_training.steps=8",
    "ppo.updates=2",
    "ppo.batch=8",
    "ppo.epochs=1",
    "dream.legality=predicted",
    "recollect.rounds=1",
    "recollect.more=0",
    "recollect.episodes=4",
    "recollect.steps=4",
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
    *ON_PAPER,
    "environment.max_steps=80",
    "ppo.horizon=80",
    "world_model.encoder_training.steps=800",
    "world_model.mdn_rnn_training.steps=1200",
    "ppo.updates=100",
    "ppo.batch=64",
    "recollect.rounds=1",
    "recollect.more=0",
    "dream.legality=predicted",
    "recollect.steps=400",
    "recollect.searched=0",
)
"""A model of BERT-Base then takes a quarter of an hour on one core, and a policy a few minutes. The finished units have
learned from plans of policies alone; `rlflow reproduce truth` is about dreams that know searched plans too."""
SCALES = {"smoke": Scale("demo", _SMALL, _LITTLE), "full": Scale("best", _AFFORDABLE, Effort())}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say how models are trained, and with which seeds."""
    usual = "0..4 for SqueezeNet1.1 and BERT-Base, else 0..2"
    parser.add_argument("--seeds", metavar=SEEDS_METAVAR, help=f"{SEEDS_HELP} ({usual})")
    parser.add_argument("--preset", help="settings of training (best)")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="override one of them (repeatable)"
    )


def training_config(
    scale: Scale, assignments: Sequence[str], preset: str | None = None, *, used: Sequence[str] = USED
) -> RunConfig:
    """Returns the settings of a table of world models.

    Args:
      scale: the preset and the changes to it.
      assignments: of `--set`.
      preset: instead of the preset of `scale`.
      used: the settings that have an effect in the table.
    Raises:
      UserError: if a setting is unknown, has no effect here, or makes it impossible to compute improvements or
        intervals.
    """
    usual = load_config(preset or scale.preset, {}, scale.overrides)
    config = load_config(preset or scale.preset, {}, [*scale.overrides, *assignments])
    if config.environment.reward != "log_ratio":
        raise UserError(
            f"The reward is '{config.environment.reward}', but only sums of 'log_ratio' are improvements. "
            "Leave environment.reward as it is."
        )
    if config.measures_costs:
        raise UserError(f"Costs are measured ('{config.costs}'), and vary. Choose a roofline:<device>.")
    for key, value in _unused(config, usual, used):
        raise UserError(
            f"{key} is {value!r}, but nothing here goes by it: these tables are of the zoo's graphs under the built-in "
            "rules, and of world models and policies of their dreams. Leave it as it is, and study other models with "
            "`rlflow optimise` and the notebook."
        )
    if not config.collect.held_out:
        raise UserError("collect.held_out is 0, but intervals are fitted on held-out random play: set it to 0.1.")
    return config


def _unused(config: RunConfig, usual: RunConfig, used: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yields key and value of every setting that differs from the usual one and has no effect here."""
    if config.collect.processes != usual.collect.processes:
        yield "collect.processes", config.collect.processes
    for field in dataclasses.fields(config):
        here, there = getattr(config, field.name), getattr(usual, field.name)
        if field.name in used or here == there:
            continue
        if not dataclasses.is_dataclass(here):
            yield field.name, here
            continue
        for part in dataclasses.fields(here):
            if getattr(here, part.name) != getattr(there, part.name):
                yield f"{field.name}.{part.name}", getattr(here, part.name)


def seeds_of(name: str, given: str | None, scale: str = "full") -> tuple[int, ...]:
    """Returns the seeds of `--seeds`, or the default seeds of a graph; at the scale `smoke`, two.

    Raises:
      UserError: if they are not numbers.
    """
    if given is None and scale == "smoke":
        return SEEDS[:2]
    if given is None:
        return SEEDS if name in MORE_SEEDS_FOR else FEWER_SEEDS
    return tuple(dict.fromkeys(numbers_of("--seeds", given, least=0)))


def numbers_of(option: str, text: str, *, least: int) -> list[int]:
    """Returns the numbers that an option lists; a part such as `0..4` is a range, as in `rlflow sweep --over`.

    Raises:
      UserError: if the text is not a list of whole numbers of at least `least` and of ranges of them.
    """
    try:
        numbers = [number for part in text.split(",") for number in _numbers(part.strip())]
    except ValueError:  # UserError among them
        numbers = []
    if not numbers or not all(isinstance(number, int) and number >= least for number in numbers):
        raise UserError(
            f"{option} expects numbers of at least {least} with commas between them, for example {least + 1},"
            f"{least + 2}, or a range from the smallest to the largest, for example {least}..{least + 2}, got '{text}'."
        )
    return numbers


def _numbers(part: str) -> Sequence[Any]:
    """Returns the numbers of one part of a list; NaN if it is neither a whole number nor a range."""
    if ".." in part:
        return Axis.parsed(f"numbers={part}").values
    return [int(part)] if part.isdecimal() else [math.nan]


class Study:
    """One setting and seed in units of work; a unit that was finished by any run, on any machine, is only read.

    World models and policies are kept in run directories below `RUNS`. One directory is for random play and the world
    model of round 0; settings that differ only in later stages share it. Another one is for everything else.
    """

    def __init__(self, setting: Setting, seed: int, effort: Effort, progress: ProgressDisplay) -> None:
        self._setting, self._effort, self._progress = setting.seeded(seed), effort, progress
        steps = setting.config.collect.steps
        self._name = f"{setting.graph}{'' if steps is None else f'-{steps}steps'}-seed{seed}"

    def accuracy(self, number: int = 0) -> Record:
        """Returns what `evaluate_model` finds."""
        record = self._setting.record() if number else self._setting.model_record()
        settings = record | {"effort": dataclasses.asdict(self._effort), "figures": figures_fingerprint()}
        return _unit(
            f"{self._name}-round{number}", settings, lambda: evaluate_model(self.learning, number, self._effort)
        )

    def transfer(self, target: Target) -> Record:
        """Returns what `evaluate_transfer` finds."""
        record = self._setting.model_record() | {"target": dataclasses.asdict(target)}
        settings = record | {"effort": dataclasses.asdict(self._effort), "figures": figures_fingerprint()}
        return _unit(
            f"{self._name}-on-{target.label}", settings, lambda: evaluate_transfer(self.learning, target, self._effort)
        )

    def exploit(self, number: int) -> Record:
        """Returns what `exploit` finds."""
        settings = self._setting.record() | {"effort": dataclasses.asdict(self._effort)}
        return _unit(f"{self._name}-policy{number}", settings, lambda: exploit(self.learning, number, self._effort))

    def search(self) -> Record:
        """Returns the best result that is known of the graph, whatever is trained; see `search_best`."""
        graph, costs, budget = self._setting.graph, self._setting.config.costs, self._effort.budget
        settings = {"graph": graph, "costs": costs, "fingerprint": fingerprint(graph), "budget": budget}
        return _unit(f"{graph}-best-known", settings, lambda: search_best(self.learning.loaded.env, budget))

    @functools.cached_property
    def learning(self) -> Learning:
        """The world models and policies; finished ones are only read."""
        loaded = load(self._setting.graph, self._setting.config)
        model, rounds = (
            self._run(what, record)
            for what, record in (
                ("model", self._setting.trained().model_record()),
                ("policies", self._setting.record()),
            )
        )
        restart_peak()  # the memory that other studies of this command have used must not count here
        return Learning(rounds, loaded, first=model)

    def _run(self, what: str, record: Record) -> Run:
        config, identity = self._setting.config, record | {"formats": stored_formats()}
        manifest = make_manifest((), self._setting.graph, config.seed)
        directory = RunDirectory.open(RUNS / f"{self._name}-{what}-{digest(identity)}", identity, manifest)
        return Run(config, directory, self._progress, f"{self._setting.graph} seed {config.seed}: ")


def _unit(name: str, settings: Record, work: Callable[[], Record]) -> Record:
    """Does a unit of work once; its file holds the settings that its name is made from."""
    return once(TABLE, name, settings, lambda: {"settings": settings, **work()}, anywhere=True, agree=agree)


def search_best(env: GraphSubstitutionEnv, budget: int) -> Record:
    """Returns what TASO's search finds: its improvement in percent of the start graph's cost, and why it stopped."""
    env.reset()
    found = search_taso(env.state, ALPHA, budget)
    return {"best_percent": 100.0 * (1.0 - found.cost_ms / env.initial_cost.ms), "stop_reason": found.stop_reason}
