"""Which settings the result of a run depends on, so that finished work is found again and other settings are not.

A run of `ppo` does not depend on the settings of `mcts`, and a search does not depend on those of world models. This
module imports no TensorFlow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from controller.registry import is_foreign, takes
from experiments.config.run import OF_CONTROLLERS, RunConfig, stored_config
from experiments.config.tree import as_mapping, leaves, parse_overrides, replaced
from experiments.errors import UserError

OF_WORLD_MODELS = ("world_model", "dream", "recollect")
"""Sections that have no effect without a world model; `collect` also says how the random play beside it plays."""
ON_GRAPHS = ("ppo", "mcts")
"""Controllers whose policies see the real graph, through `graph_encoder`, where they learn without a world model."""
OF_SATURATION = ("saturation",)
"""Sections that have an effect on `saturation` alone, which learns nothing."""
SHARED = ("graph_encoder", "policy")
"""Sections of several controllers."""
_LIMITS = frozenset({"budget", "seconds", "memory_mb", "threads"})
SEARCH_SETTINGS: Mapping[str, frozenset[str]] = {
    "taso": _LIMITS | {"alpha", "passes"},
    "beam": _LIMITS | {"width"},
    "restarts": _LIMITS | {"walk"},
    "passes": frozenset({"budget", "seconds"}),
    "best-of-n": frozenset({"budget", "seconds"}),
    "climb": frozenset({"budget", "seconds"}),
    "saturation": frozenset({"seconds"}),
}
"""The settings of the section `search` that are for some controllers alone, by controller."""


def in_effect(config: RunConfig) -> dict[str, Any]:
    """Returns the settings that have an effect, as nested plain values.

    A controller of another package may read any of them.
    """
    if is_foreign(config.controller):
        without: set[str] = set()
    elif not config.learns_in:
        without = {*OF_WORLD_MODELS, *OF_CONTROLLERS, *OF_SATURATION} - {config.controller}
    else:
        own = {name for name in OF_CONTROLLERS if getattr(config, name) is config.of_controller}
        others = set(OF_CONTROLLERS) - own - set(SHARED) - ({"mixed"} if config.learns_in == "mixed" else set())
        if config.uses_world_model or config.controller not in ON_GRAPHS:
            others.add("graph_encoder")
        without = {*others, *OF_SATURATION, *(() if config.uses_world_model else OF_WORLD_MODELS)}
    return {name: value for name, value in as_mapping(_without_idle_turns(config)).items() if name not in without}


def _without_idle_turns(config: RunConfig) -> RunConfig:
    """Returns the settings without turns of the policy if no round has another turn, or no rewrite is everywhere."""
    turns = config.environment.everywhere and config.uses_world_model and config.recollect.most
    if turns or config.policy.everywhere != "by-turns" or is_foreign(config.controller):
        return config
    return dataclasses.replace(config, policy=dataclasses.replace(config.policy, everywhere="always"))


def readers_of(setting: str) -> list[str]:
    """Returns the sorted names of the built-in controllers that read a setting of the section `search`."""
    return sorted(name for name, read in SEARCH_SETTINGS.items() if setting in read)


def reads(config: RunConfig, setting: str) -> bool:
    """Returns whether the controller of a run reads a setting of the section `search`.

    One of another package reads the budget, if what builds it has a parameter of that name.
    """
    if is_foreign(config.controller):
        return setting == "budget" and takes(config.controller, setting)
    then = config.saturation.then if config.controller == "saturation" else None
    names = (config.controller, *([] if then is None else [then]))
    return any(setting in SEARCH_SETTINGS.get(name, ()) for name in names)


NOT_PLAYED = {"max_growth", "verify", "updates_per_checkpoint", "collect.processes", "evaluate.climb_seconds"}
"""Settings, and sections, of how a result is chosen, proved and exported and of how the work is done, of which what a
controller learns and plays does not depend."""


def is_read(config: RunConfig, setting: str) -> bool:
    """Returns whether a run reads a setting, which is given with its section: `ppo.updates`.

    One whose controller is of another package may read any of them.
    """
    section, _, name = setting.partition(".")
    if section == "search" and readers_of(name) and not is_foreign(config.controller):
        return reads(config, name)
    return section in in_effect(config)


def unread(assignments: Sequence[str], configs: Sequence[RunConfig]) -> tuple[str, ...]:
    """Returns the settings of `--set` arguments that none of some runs reads."""
    settings = (setting for setting, _ in leaves(parse_overrides(assignments)))
    return tuple(each for each in settings if not any(is_read(config, each) for config in configs))


def why_unread(config: RunConfig, them: str = "it") -> str:
    """Returns why a run does not read a setting, as the end of a sentence."""
    world = f" in the world '{config.learns_in}'" if config.learns_in else ""
    return f"the controller '{config.controller}'{world} does not read {them}"


def note_of_unread(config: RunConfig, settings: Sequence[str]) -> str:
    """Returns a sentence on settings of `--set` that a run does not read."""
    have, them = ("has", "it") if len(settings) == 1 else ("have", "them")
    return f"--set {', '.join(settings)} {have} no effect: {why_unread(config, them)}."


def is_played(config: RunConfig, setting: str) -> bool:
    """Returns whether what a controller learns and plays can depend on a setting, which is given with its section."""
    timed = config.measures_costs or not setting.startswith("measure.")
    section = setting.partition(".")[0]
    return is_read(config, setting) and timed and not {setting, section} & NOT_PLAYED


def effective(config: RunConfig) -> RunConfig:
    """Returns the settings with the defaults in place of those that have no effect."""
    return replaced(RunConfig(), in_effect(config), "settings that have an effect")


def same_effect(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Returns whether the settings of a finished unit of work are the wanted ones, also if settings were added since.

    A setting that the unit does not know has its default, which must be what the program did before.

    Args:
      stored, wanted: what the units depend on; "config" holds settings as `in_effect` returns them.
    """
    if {**stored, "config": None} != {**wanted, "config": None}:
        return False
    try:
        return in_effect(replaced(RunConfig(), stored["config"], "a finished unit")) == wanted["config"]
    except UserError:  # a setting or a value does not exist any more
        return False


def same_play(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Returns the same as `same_effect` for units that train and play, and export nothing.

    If their costs are not measured either, nothing is timed, and how it would be timed has no effect.
    """
    config = wanted["config"]
    if not RunConfig(costs=config["costs"]).measures_costs:
        stored = {**stored, "config": {**stored["config"], "measure": config["measure"]}}
    return same_effect(stored, wanted)


def same_run(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Returns whether the run of a directory, which may be of an older version, is the wanted one.

    Args:
      stored, wanted: all settings of a run, as a run directory holds them, and what else it depends on.
    """
    sections = {field.name for field in dataclasses.fields(RunConfig)}
    reward = wanted["environment"]["reward"]  # the command itself names it, so that it may be imported

    def compared(run: Mapping[str, Any]) -> dict[str, Any]:
        settings = {name: run[name] for name in sections & run.keys()}
        others = {name: run[name] for name in run.keys() - sections}
        return {**others, "config": in_effect(stored_config(settings, "a run", reward=reward))}

    try:
        return compared(stored) == compared(wanted)
    except UserError:  # a setting or a value does not exist any more
        return False
