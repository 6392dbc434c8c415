"""Settings that differ from the usual ones in one thing each, for tables of what helps."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from experiments.config.run import RunConfig
from experiments.errors import UserError, nearest_match
from experiments.studies.study import training_config

Choice = TypeVar("Choice")


@dataclass(frozen=True)
class Variant:
    """What is different.

    Attributes:
      assignments: as for `--set`.
    """

    assignments: tuple[str, ...] = ()


def of(*assignments: str) -> Variant:
    """A variant of settings alone."""
    return Variant(assignments)


def add_option(parser: argparse.ArgumentParser, variants: Mapping[str, Variant]) -> None:
    """Which of them."""
    parser.add_argument(
        "--variants", metavar="A,B,…", help=f"names with commas between them (all: {', '.join(variants)})"
    )


def chosen(given: str | None, variants: Mapping[str, Variant]) -> dict[str, Variant]:
    """Those of `--variants`, or all.

    Raises:
      UserError: if there is none of a name.
    """
    return named(given, variants, "variant")


def named(given: str | None, choices: Mapping[str, Choice], kind: str) -> dict[str, Choice]:
    """The choices of some names with commas between them, or all.

    Args:
      kind: what a choice is called in an error.
    Raises:
      UserError: if there is none of a name.
    """
    names = list(choices) if given is None else [name.strip() for name in given.split(",")]
    for name in names:
        if name not in choices:
            raise UserError(f"No {kind} is called '{name}'. {nearest_match(name, list(choices))}")
    return {name: choices[name] for name in names}


def config_of(variant: Variant, options: argparse.Namespace) -> RunConfig:
    """The settings of the options, changed by a variant."""
    changed = argparse.Namespace(**{**vars(options), "set": [*options.set, *variant.assignments]})
    return training_config(changed)
