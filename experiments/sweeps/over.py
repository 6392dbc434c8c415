"""Axes of a sweep: `--over KEY=VALUES`, and the points that they span.

    dream.temperature=0,0.5,1          a list
    seed=0..4                          whole numbers, both ends included
    dream.temperature=0..3:0.5         steps of 0.5
    ppo.learning_rate=loguniform(1e-4,1e-2)     drawn at random, as often as --draws says
    dream.temperature=uniform(0,3)

Each point has one value of every axis. Random axes are drawn together; all lists and ranges are combined with each
draw.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from experiments.config.tree import parse_overrides
from experiments.errors import UserError

MOST_POINTS = 10_000
_RANGE = re.compile(r"\s*(\S+?)\.\.([^:\s]+)(?::(\S+))?\s*")
_DRAWN = re.compile(r"\s*(uniform|loguniform)\(([^,()]+),([^,()]+)\)\s*")


@dataclass(frozen=True)
class Axis:
    """One setting and its values.

    Attributes:
      key: dotted name of the setting.
      values: the values, in order; empty if they are drawn.
      draw: returns a value for a uniform number in [0, 1); None if the values are listed.
    """

    key: str
    values: tuple[Any, ...] = ()
    draw: Callable[[float], float] | None = None

    @classmethod
    def parsed(cls, text: str) -> Axis:
        """Returns the axis of an argument of `--over`.

        Raises:
          UserError: the argument is none of the forms above, or stands for no value.
        """
        key, equals, values = text.partition("=")
        if not equals or not key.strip() or not values.strip():
            raise UserError(
                f"--over expects KEY=VALUES, for example --over dream.temperature=0,0.5,1 or --over seed=0..4, but got "
                f"'{text}'."
            )
        key = key.strip()
        if drawn := _DRAWN.fullmatch(values):
            return cls(key, draw=_distribution(text, drawn[1], drawn[2], drawn[3]))
        if span := _RANGE.fullmatch(values):
            return cls(key, _range(text, span[1], span[2], span[3] or "1"))
        listed = tuple(_value(key, part) for part in _parts(values))
        repeated = [value for position, value in enumerate(listed) if value in listed[:position]]
        if repeated:
            raise UserError(f"--over {text} holds {repeated[0]} twice. Name every value once.")
        return cls(key, listed)


def _parts(text: str) -> list[str]:
    """Splits at the commas that are in no bracket."""
    parts, depth = [""], 0
    for character in text:
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _value(key: str, text: str) -> Any:
    """Returns a value as `--set KEY=VALUE` reads it."""
    if not text.strip():
        raise UserError(f"--over {key} has an empty value between two commas. Leave it out.")
    tree: Any = parse_overrides([f"value={text}"])
    return tree["value"]


def _range(text: str, first: str, last: str, step: str) -> tuple[Any, ...]:
    try:
        low, high, by = (Decimal(repr(_finite(number))) for number in (first, last, step))
    except ValueError as error:
        raise UserError(
            f"--over {text} is no range: expected numbers, as in seed=0..4 or dream.temperature=0..3:0.5."
        ) from error
    if not (by > 0 and low <= high):
        raise UserError(
            f"--over {text} holds no value: a range begins with its smallest value, and its step is above 0, as in "
            "seed=0..4 or dream.temperature=0..3:0.5."
        )
    if float(high - low) / float(by) >= MOST_POINTS:
        raise UserError(f"--over {text} holds more than {MOST_POINTS} values. Take larger steps.")
    count = int((high - low) / by) + 1
    whole = all(number == number.to_integral_value() for number in (low, by))
    return tuple(int(low + by * index) if whole else float(low + by * index) for index in range(count))


def _finite(text: str) -> float:
    """Returns a number that is neither NaN nor infinite.

    Raises:
      ValueError: the text is no such number.
    """
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _distribution(text: str, kind: str, first: str, last: str) -> Callable[[float], float]:
    try:
        low, high = float(first), float(last)
    except ValueError as error:
        raise UserError(f"--over {text} draws nothing: expected two numbers, as in uniform(0,3).") from error
    least = 0.0 if kind == "loguniform" else -math.inf
    if not least < low < high < math.inf:
        above = " above 0" * (kind == "loguniform")
        raise UserError(f"--over {text} draws nothing: expected a smaller and a larger number{above}.")
    if kind == "uniform":
        return lambda share: low + share * (high - low)
    return lambda share: low * (high / low) ** share


def points(axes: Sequence[Axis], *, draws: int = 1, seed: int = 0) -> list[dict[str, Any]]:
    """Returns the points that some axes span: a value for each key; the last axis varies fastest.

    Args:
      draws: number of draws of the random axes.
      seed: seed of the draws; a larger number of draws begins with those of a smaller one.
    Raises:
      UserError: two axes have one key, or there are too many points.
    """
    keys = [axis.key for axis in axes]
    for key in keys:
        if keys.count(key) > 1:
            raise UserError(f"--over {key} is given twice. Name all its values in one.")
        if any(other.startswith(f"{key}.") for other in keys):
            raise UserError(f"--over {key} is a section of settings, of which other axes name some. Leave it out.")
    listed, drawn = [axis for axis in axes if axis.draw is None], [axis for axis in axes if axis.draw is not None]
    count = math.prod(len(axis.values) for axis in listed) * (draws if drawn else 1)
    if count > MOST_POINTS:
        raise UserError(f"The axes span {count} points, more than {MOST_POINTS}. Name fewer values.")
    rng = np.random.default_rng(seed)
    samples: list[Mapping[str, Any]] = [{}]
    if drawn:
        samples = [{axis.key: axis.draw(float(rng.random())) for axis in drawn if axis.draw} for _ in range(draws)]
    found = [
        {**dict(zip([axis.key for axis in listed], values, strict=True)), **sample}
        for sample in samples
        for values in itertools.product(*(axis.values for axis in listed))
    ]
    return [{key: point[key] for key in keys} for point in found]
