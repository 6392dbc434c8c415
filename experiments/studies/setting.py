"""The settings of studied world models, and how much of them is evaluated."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.config.run import RunConfig
from experiments.config.tree import as_mapping, replaced
from experiments.errors import UserError
from experiments.pipeline.loading.load import find_model
from experiments.runs.directory import digest, features_fingerprint
from taso_ext import OnnxModel, RuleSet


@dataclasses.dataclass(frozen=True)
class Effort:
    """How much is collected to evaluate a world model and a policy.

    Attributes:
      episodes: held-out episodes of each kind of play.
      max_steps: step limit of these episodes.
      first, stride: windows start at the depths first, first + stride, …
      steps: numbers of steps after which open-loop predictions are evaluated.
      at_least: how many windows are enough for the longest of these.
      policy_episodes: episodes of the policy in reality, and as many in the dream.
      resamples: bootstrap resamples of each interval.
      budget: how many graphs the search for the best known result expands at most.
    """

    episodes: int = 300
    max_steps: int = 40
    first: int = 5
    stride: int = 10
    steps: tuple[int, ...] = (1, 5, 10, 20)
    at_least: int = 100
    policy_episodes: int = 30
    resamples: int = 200
    budget: int = 2000

    def furthest(self, most: int) -> int:
        """Returns the largest of `steps` that is at most `most`, or the smallest of `steps` if all are larger."""
        return max((step for step in self.steps if step <= most), default=min(self.steps))


@dataclasses.dataclass(frozen=True)
class Target:
    """A graph that a world model was not trained on.

    Attributes:
      name: the name of the graph in the zoo.
      changes: changes to its configuration, see `zoo.build`.
    """

    name: str
    changes: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name in tables and files."""
        return "-".join([self.name, *(f"{key}{value}" for key, value in self.changes.items())])


WITHOUT_EFFECT = {"recollect": ("rounds", "more"), "collect": ("processes",)}
"""Settings that only say how much is done and by how many processes. They change no finished result: rounds can be
added later."""
REMOVED: Mapping[str, Any] = {
    "world_model.mdn_rnn.telling_bits": False,
    "world_model.mdn_rnn_training.open_loop_steps": 0,
    "world_model.mdn_rnn_training.open_loop_weight": 0.5,
    "evaluate.no_repeat": False,
    "ppo.telescoping": True,
}
"""Removed settings by path ("world_model.mdn_rnn.inertia"), each with the value that gives the same units as now."""
OF_THE_MODEL, OF_THE_POLICY = ("environment", "collect", "world_model"), ("dream", "policy", "ppo", "recollect")
"""The sections of the settings that the world model of random play depends on, and those of later stages alone."""
OF_PLAY = ("evaluate",)
"""The sections that only the play of a trained controller depends on."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """One way to train world models and policies of one graph.

    Attributes:
      graph: name in the zoo.
      config: how episodes are collected, and models and policies trained, including the seed. Its other settings are
        not used.
    """

    graph: str
    config: RunConfig

    def seeded(self, seed: int) -> Setting:
        """Returns the same setting with another seed."""
        return Setting(self.graph, dataclasses.replace(self.config, seed=seed))

    def trained(self) -> Setting:
        """Returns the setting with `hold_changes` on, which changes a model's predictions but not its training."""
        mdn_rnn = dataclasses.replace(self.config.world_model.mdn_rnn, hold_changes=True)
        world_model = dataclasses.replace(self.config.world_model, mdn_rnn=mdn_rnn)
        return Setting(self.graph, dataclasses.replace(self.config, world_model=world_model))

    def record(self) -> dict[str, Any]:
        """Returns all that training depends on, as JSON values, with fingerprints of rules, features and graph."""
        return self.model_record() | sections_of(self.config, OF_THE_POLICY)

    def model_record(self) -> dict[str, Any]:
        """Returns all that the world model of random play depends on, in the same form."""
        return {
            "graph": self.graph,
            "seed": self.config.seed,
            "costs": self.config.costs,
            "fingerprint": fingerprint(self.graph),
            **sections_of(self.config, OF_THE_MODEL),
        }


def sections_of(config: RunConfig, names: Sequence[str]) -> dict[str, Any]:
    """Returns sections of the settings as JSON values, without those that have no effect on results."""
    sections = {name: as_mapping(getattr(config, name)) for name in names}
    for name, keys in WITHOUT_EFFECT.items():
        for key in keys if name in sections else ():
            del sections[name][key]
    return sections


def agree(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Returns whether a finished unit has the wanted settings, even if settings were added or removed since.

    A setting that the unit does not know has its default, which must be what the program did before. A removed setting
    must be in `REMOVED` with the value that the unit has. So a forgotten entry costs time, and never shows a result of
    another setting.

    Args:
      stored, wanted: settings as `Setting.record` returns them, and what else the unit depends on.
    """
    try:
        return today(stored) == json.loads(json.dumps(wanted))  # as it would be stored: tuples become lists
    except UserError:  # a setting or a value does not exist any more
        return False


def today(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Returns stored settings in the form of this program, see `agree`.

    Raises:
      UserError: if a setting or a value does not exist any more.
    """
    names = tuple(name for name in (*OF_THE_MODEL, *OF_THE_POLICY, *OF_PLAY) if name in stored)
    kept = {name: _without_removed(stored[name], f"{name}.") for name in names}
    return {**stored, **sections_of(replaced(RunConfig(), kept, "a finished unit"), names)}


def _without_removed(section: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {
        key: _without_removed(value, f"{prefix}{key}.") if isinstance(value, Mapping) else value
        for key, value in section.items()
        if f"{prefix}{key}" not in REMOVED or REMOVED[f"{prefix}{key}"] != value
    }


@functools.cache
def fingerprint(graph: str) -> dict[str, str]:
    """Returns what results on a zoo graph depend on besides the settings: rules, features, and the cleaned-up graph."""
    model = OnnxModel.load(find_model(graph).build(), clean="full")
    return {"graph": model.graph.hash, "rules": RuleSet.default().fingerprint, "features": features_fingerprint()}


def figures_fingerprint() -> str:
    """Returns a digest of the figures of world models and of the trivial predictors beside them."""
    from worldmodel.accuracy import figure_names
    from worldmodel.accuracy.baselines import PREDICTORS

    names = {name: value for name, value in vars(figure_names).items() if name.isupper() and isinstance(value, str)}
    return digest([sorted(names.values()), sorted(figure_names.COVERAGE.values()), sorted(PREDICTORS)])
