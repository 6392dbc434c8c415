"""The requirements that a world model and its policies must meet before they are trusted."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from experiments.runs.result import LEAST_OFFERED
from experiments.studies.evaluation import GREEDY, RANDOM
from worldmodel.accuracy import figure_names as names
from worldmodel.accuracy.baselines import PER_RULE
from worldmodel.accuracy.omissions import PAYING_RECALL

REAL_GAP = "played for real, real masks: gap [points]"
DREAM_GAP = "played in the dream, then replayed: gap [points]"
DREAM_ILLEGAL = "played in the dream: share of rewrites illegal in reality"
REAL_OFFERED = "played for real: share offered of the rewrites that pay along the way"
DREAM_OFFERED = "played in the dream: share offered of the rewrites that really pay along the way"


@dataclasses.dataclass(frozen=True)
class Requirement:
    """The bounds of a figure, ends included, and the trivial predictor that it must be above."""

    at_least: float = -float("inf")
    at_most: float = float("inf")
    above: str | None = None

    def met(self, value: float, trivial: Mapping[str, float | None]) -> bool:
        """Returns whether the value meets the requirement.

        NaN does not meet it; a trivial predictor without such a figure is no obstacle.
        """
        beaten = trivial.get(self.above) if self.above else None
        return self.at_least <= value <= self.at_most and (beaten is None or value > beaten)

    def __str__(self) -> str:
        above = f", above {self.above}" if self.above else ""
        if self.at_most == float("inf"):
            return f"≥ {self.at_least:g}{above}"
        return f"≤ {self.at_most:g}" if self.at_least == -float("inf") else f"{self.at_least:g} to {self.at_most:g}"


_ANY_STEP = 0
_EVERYWHERE: Mapping[tuple[str, int], Requirement] = {
    (names.MASK_ERROR, _ANY_STEP): Requirement(at_most=0.35),
    (names.CHANGE_F1, 10): Requirement(at_least=0.85),
    (names.COUNTS_PER_RULE, 10): Requirement(at_least=0.85),
    (names.TERMINAL_PRECISION, 1): Requirement(at_least=0.95),
    (names.TERMINAL_RECALL, 1): Requirement(at_least=0.95),
    (PAYING_RECALL, _ANY_STEP): Requirement(at_least=LEAST_OFFERED),
    (names.LATENT_ERROR, 1): Requirement(at_most=0.40),
    (names.LATENT_ERROR, 10): Requirement(at_most=0.30),
    (names.LATENT_ERROR, 20): Requirement(at_most=0.25),
    (names.READ_MASK_ERROR, _ANY_STEP): Requirement(at_most=0.35),
    (names.READ_COUNTS, 10): Requirement(at_least=0.85),
    **{
        (name, 1): Requirement(round(level - 0.05, 2), round(level + 0.05, 2)) for level, name in names.COVERAGE.items()
    },
}
_BY_PLAY: Mapping[str, Mapping[tuple[str, int], Requirement]] = {
    RANDOM: {
        (names.REWARD_RANKS, 1): Requirement(at_least=0.95, above=PER_RULE),
        (names.TOTAL_RANKS, 10): Requirement(at_least=0.97),
        (names.TOTAL_R2, 20): Requirement(at_least=0.95),
        (names.TOTAL_RELATIVE, 20): Requirement(at_most=0.2),
        (names.READ_COST_R2, 20): Requirement(at_least=0.95),
    },
    GREEDY: {
        (names.REWARD_RANKS, 1): Requirement(at_least=0.80),
        (names.TOTAL_R2, 20): Requirement(at_least=0.75),
        (names.READ_COST_R2, 20): Requirement(at_least=0.75),
    },
}
_OF_POLICIES: Mapping[str, Requirement] = {
    REAL_GAP: Requirement(at_most=2.5),
    DREAM_GAP: Requirement(at_most=5.0),
    DREAM_ILLEGAL: Requirement(at_most=0.15),
    REAL_OFFERED: Requirement(at_least=LEAST_OFFERED),
    DREAM_OFFERED: Requirement(at_least=LEAST_OFFERED),
}


TRAINED_FOR = "bert-base"
"""The graph whose training has limits, see `OF_TRAINING`."""
OF_TRAINING: Mapping[str, Requirement] = {
    "real_steps": Requirement(at_most=100_000),
    "encoder_states": Requirement(at_most=20_000),
    "seconds": Requirement(at_most=15),
    "peak_bytes": Requirement(at_most=3072),
}
"""The limits by key of a record, in the unit of its table row: minutes on two cores, MiB."""


def required(play: str, figure: str, step: int) -> Requirement | None:
    """Returns what a figure on random play, greedy play or (any other name) of a policy must reach; None: anything."""
    if play not in _BY_PLAY:
        return _OF_POLICIES.get(figure)
    wanted = {**_EVERYWHERE, **_BY_PLAY[play]}
    return wanted.get((figure, step), wanted.get((figure, _ANY_STEP)))


def required_figures(play: str, steps: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Yields (figure, step) of all requirements on random or greedy play after some numbers of steps."""
    for figure, step in {**_EVERYWHERE, **_BY_PLAY[play]}:
        for each in steps:
            if step in (each, _ANY_STEP):
                yield figure, each
