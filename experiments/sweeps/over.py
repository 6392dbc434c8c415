"""Axes of a sweep: `--over KEY=VALUES`, and the points that they span.

    dream.temperature=0,0.5,1          a list
    seed=0..4                          whole numbers, both ends included
    dream.temperature=0..3:0.5         steps of 0.5
    ppo.learning_rate=loguniform(1e-4,1e-2)     drawn at random, as often as --draws says
    dream.temperature=uniform(0,3)

Each point has one value of every axis. Random axes are drawn together; all lists and ranges are combined with each
draw. A setting that takes integers is drawn from those between the bounds, both included.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np

from experiments.config.tree import parse_overrides
from experiments.errors import UserError

MOST_POINTS = 10_000
_RANGE = re.compile(r"\s*(\S+?)\.\.([^:\s]+)(?::(\S+))?\s*")
_CALL = re.compile(r"\s*(\w+)\s*\(([^()]*)\)\s*")
UNIFORM, LOGARITHMIC = "uniform", "loguniform"


@dataclass(frozen=True)
class Draw:
    """A random value between two bounds.

    Attributes:
      low, high: the bounds.
      logarithmic: whether its logarithm is uniform, and not the value itself.
      whole: whether only integers are drawn: from those within the bounds, of which there must be one.
    """

    low: float
    high: float
    logarithmic: bool = False
    whole: bool = False

    @property
    def integers(self) -> tuple[int, int]:
        """The smallest and the largest integer within the bounds; the first is larger if there is none."""
        return math.ceil(self.low), math.floor(self.high)

    def value(self, share: float) -> float:
        """Returns the value of a uniform number in [0, 1)."""
        if not self.whole:
            return self._between(self.low, self.high, share)
        least, largest = self.integers  # each integer stands for the numbers that are rounded to it
        return min(max(round(self._between(least - 0.5, largest + 0.5, share)), least), largest)

    def _between(self, low: float, high: float, share: float) -> float:
        return float(low * (high / low) ** share) if self.logarithmic else low + share * (high - low)


@dataclass(frozen=True)
class Axis:
    """One setting and its values.

    Attributes:
      key: dotted name of the setting.
      values: the values, in order; empty if they are drawn.
      draw: how they are drawn; None if the values are listed.
    """

    key: str
    values: tuple[Any, ...] = ()
    draw: Draw | None = None

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
        if call := _CALL.fullmatch(values):
            return cls(key, draw=_draw(text, call[1], call[2].split(",")))
        if span := _RANGE.fullmatch(values):
            return cls(key, _range(text, span[1], span[2], span[3] or "1"))
        parts = _parts(values)
        if any(part.count("(") != part.count(")") for part in parts):  # a bracket with a comma inside, and more
            raise _unknown_form(text)
        listed = tuple(_value(key, part) for part in parts)
        repeated = [value for position, value in enumerate(listed) if value in listed[:position]]
        if repeated:
            raise UserError(f"--over {text} holds {repeated[0]} twice. Name every value once.")
        return cls(key, listed)

    def of_integers(self) -> Axis:
        """Returns the axis of a setting that takes integers: draws are made of integers, listed values stay.

        Raises:
          UserError: no integer can be drawn.
        """
        if self.draw is None:
            return self
        least, largest = self.draw.integers
        if least > largest:
            raise UserError(
                f"--over {self.key} draws from {self.draw.low:g} to {self.draw.high:g}, but the setting takes "
                "integers, and there is none between. Name other bounds."
            )
        return replace(self, draw=replace(self.draw, whole=True))


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


def _draw(text: str, kind: str, bounds: Sequence[str]) -> Draw:
    if kind not in (UNIFORM, LOGARITHMIC):
        raise _unknown_form(text)
    logarithmic = kind == LOGARITHMIC
    try:
        low, high = (float(bound) for bound in bounds)
    except ValueError as error:
        raise UserError(f"--over {text} draws nothing: expected two numbers, as in uniform(0,3).") from error
    if not (0.0 if logarithmic else -math.inf) < low < high < math.inf:
        above = " above 0" * logarithmic
        raise UserError(f"--over {text} draws nothing: expected a smaller and a larger number{above}.")
    return Draw(low, high, logarithmic)


def _unknown_form(text: str) -> UserError:
    return UserError(
        f"--over {text} has none of the known forms: a list (0,0.5,1), a range (0..4, 0..3:0.5), or one random draw "
        f"({UNIFORM}(0,3), {LOGARITHMIC}(1e-4,1e-2))."
    )


def points(axes: Sequence[Axis], *, draws: int = 1, seed: int = 0) -> list[dict[str, Any]]:
    """Returns the points that some axes span: a value for each key; the last axis varies fastest.

    Args:
      draws: number of draws of the random axes; of equal draws, which integers can be, one is kept.
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
        every = [{axis.key: axis.draw.value(float(rng.random())) for axis in drawn if axis.draw} for _ in range(draws)]
        samples = [sample for position, sample in enumerate(every) if sample not in every[:position]]
    found = [
        {**dict(zip([axis.key for axis in listed], values, strict=True)), **sample}
        for sample in samples
        for values in itertools.product(*(axis.values for axis in listed))
    ]
    return [{key: point[key] for key in keys} for point in found]
