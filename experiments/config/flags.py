"""The flags of `rlflow optimise` and `rlflow train`, each declared once: its name, the setting it stands for, its help.

Nothing heavy is imported, so that `--help` answers at once. `experiments.config.run` says in full what each setting
means, and checks the values.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

DISCRETE = {"latent": 512, "categories": 16}
"""The settings of the encoder that `--dynamics discrete` brings with it; `--set` can change them."""


class Flag(NamedTuple):
    """A flag that sets one setting.

    Attributes:
      name: the flag as the user types it.
      setting: dotted path of the setting in `RunConfig`.
      help: one line, with the default in brackets.
      kind: the type that the value is converted to; bool: the flag takes no value; list: the flag is repeatable.
      metavar: name of the value in the help; None derives it from the flag's name.
    """

    name: str
    setting: str
    help: str
    kind: type = str
    metavar: str | None = None

    def add_to(self, parser: argparse._ArgumentGroup) -> None:
        """Adds the flag to a parser; a setting that is not given stays None."""
        if self.kind is bool:
            parser.add_argument(self.name, dest=self.setting, action="store_true", default=None, help=self.help)
        elif self.kind is list:
            parser.add_argument(self.name, dest=self.setting, action="append", metavar=self.metavar, help=self.help)
        else:
            metavar = self.metavar or self.name.lstrip("-").replace("-", "_").upper()
            parser.add_argument(self.name, dest=self.setting, type=self.kind, metavar=metavar, help=self.help)


GROUPS: Mapping[str, Sequence[Flag]] = {
    "what searches": (
        Flag(
            "--controller",
            "controller",
            "auto (default): climb, or ppo if an option says so; cmaes, mcts, mpc, xrlflow, sb3; random, greedy, taso, "
            "beam, restarts, passes, best-of-n, saturation",
        ),
        Flag(
            "--world",
            "world",
            "where to learn: dream, in the world model (default of ppo); real (that of mcts); mixed: short dreams from "
            "real states",
        ),
        Flag(
            "--temperature", "dream.temperature", "τ of the dream's latents: 0 deterministic, 1 as predicted (1)", float
        ),
        Flag(
            "--dynamics",
            "world_model.mdn_rnn.dynamics",
            "how the world model predicts the next latent: mdn (default), discrete, deterministic",
        ),
        Flag(
            "--reward-head",
            "world_model.mdn_rnn.reward_head",
            "the reward network of the world model: shared with the other heads (default), or separate",
        ),
        Flag(
            "--ensemble",
            "world_model.mdn_rnn.ensemble",
            "number of world-model members; where they disagree, the model is in doubt (1)",
            int,
        ),
        Flag(
            "--recollect",
            "recollect.rounds",
            "rounds in which the world model learns from real episodes of ppo, and ppo starts anew (best: 2, demo: 1, "
            "and up to 2 more, recollect.more, while alarms sound)",
            int,
            "N",
        ),
        Flag(
            "--alpha",
            "search.alpha",
            "taso: search on from graphs up to this factor dearer than the best (1.05)",
            float,
        ),
        Flag("--width", "search.width", "beam: number of graphs that each level keeps (16)", int),
        Flag("--walk", "search.walk", "restarts: number of random rewrites before each descent (10)", int),
        Flag("--budget", "search.budget", "searches: number of graphs to expand, of passes or of episodes (1000)", int),
        Flag("--time", "search.seconds", "searches: time limit (none; climb: 300)", float, "SECONDS"),
        Flag("--memory", "search.memory_mb", "taso, beam and restarts: memory limit (512)", int, "MB"),
        Flag(
            "--threads",
            "search.threads",
            "taso, beam and restarts: number of threads; the result does not depend on it (1)",
            int,
        ),
        Flag(
            "--rules",
            "rules",
            "a rule file instead of the built-in rules; default+partial: these and the partially equal ones",
            metavar="FILE",
        ),
        Flag(
            "--opset",
            "opset",
            "raise (default): rewrites may need a newer ONNX opset than MODEL has; keep: they may not",
        ),
        Flag("--only", "only", "use only this rule; * stands for any part of a name (repeatable)", list, "RULE"),
        Flag("--skip", "skip", "do not use this rule; * stands for any part of a name (repeatable)", list, "RULE"),
        Flag("--portable", "portable", "allow no rewrite that makes operators that only ONNX Runtime has", bool),
        Flag("--max-growth", "max_growth", "OUT is at most this many times as large as MODEL (1.5)", float, "FACTOR"),
    ),
    "what is counted": (
        Flag(
            "--costs",
            "costs",
            "cost model: auto (default): measured on the device; roofline:<device>, "
            "measured:<device>, learned:<device>, endtoend:<device>, or a file of recorded prices (.sqlite); all but "
            "roofline take :noise=resampled (rewards of costs drawn from recorded timings; frozen: default), a file "
            "also :kind=endtoend (times of whole graphs), and endtoend:<device> also :timings=N (at most N graphs are "
            "timed; prices of all others agree with them)",
        ),
        Flag(
            "--device",
            "device",
            "where the result is measured end to end: auto (default): the fastest that works here; cpu, cuda, tensorrt",
        ),
    ),
    "how the model is read": (
        Flag(
            "--dim",
            "dims",
            "size of a symbolic dimension (repeatable)",
            list,
            "NAME=VALUE",
        ),
        Flag(
            "--symbolic",
            "symbolic",
            "dimensions with a --dim stay symbolic in OUT; auto (default): if no rewrite depends on their sizes; keep: "
            "leave out rewrites that do; fix: none does",
        ),
        Flag("--clean", "clean", "clean-up before the search: full (default), basic, none"),
        Flag("--inputs", "inputs", "inputs to verify and to time with, by input name", metavar="FILE.npz"),
    ),
    "the run": (Flag("--seed", "seed", "seed of every random draw; two runs with one seed are identical (0)", int),),
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of settings, `--preset`, `--set`, `--run-dir` and `--restart`."""
    for title, flags in GROUPS.items():
        group = parser.add_argument_group(title)
        for flag in flags:
            flag.add_to(group)
    group.add_argument(
        "--preset",
        help="settings: auto (default, by the clock), demo (minutes), best, paper (hours), paper-cut, xrlflow",
    )
    _add_set(group)
    group.add_argument("--run-dir", metavar="DIR", type=Path, help="default: runs/, named after model and settings")
    group.add_argument("--restart", action="store_true", help="begin the run anew, without what it has left so far")


OF_CHECK, OF_EXPLAIN = ("--device", "--dim", "--inputs", "--seed"), ("--dim", "--clean", "--rules")
"""The flags that `rlflow check` and `rlflow explain` have too."""
OF_FUSE = ("--dim", "--clean", "--seed")
"""The flags that `rlflow fuse` has too."""


def add_some_flags(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """Adds the flags of these names, and `--set`."""
    group = parser.add_argument_group("settings")
    for flag in (flag for flags in GROUPS.values() for flag in flags if flag.name in names):
        flag.add_to(group)
    _add_set(group)


def _add_set(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="override one setting (repeatable)"
    )


def flag_of(setting: str) -> Flag:
    """Returns the flag that stands for a setting."""
    (flag,) = (flag for flags in GROUPS.values() for flag in flags if flag.setting == setting)
    return flag


def given_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the settings that flags were given for, nested as `experiments.config.tree.replaced` takes them."""
    tree: dict[str, Any] = {}
    for flag in (flag for flags in GROUPS.values() for flag in flags):
        value = getattr(options, flag.setting, None)
        if value is not None:
            _put(tree, flag.setting, sorted(value) if flag.kind is list else value)
    if tree.get("world_model", {}).get("mdn_rnn", {}).get("dynamics") == "discrete":
        _put(tree, "world_model.encoder", DISCRETE)
    return tree


def _put(tree: dict[str, Any], path: str, value: Any) -> None:
    *sections, key = path.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
    tree[key] = value
