"""Settings of equality saturation. This module imports neither egglog nor TensorFlow."""

from __future__ import annotations

import dataclasses

SEARCHES = ("taso", "beam", "restarts", "passes")
"""The searches that may go on from the extracted graph."""


@dataclasses.dataclass(frozen=True)
class ExplorationLimits:
    """When an exploration stops.

    Attributes:
      nodes: e-nodes. The rule with which they are reached is the last one that is carried out.
      rounds: rounds.
      seconds: time of the exploration; 0 means none. It is looked at between rules.
      k_multi: rounds in which rules with several roots are looked for, k_multi of Tensat.
      matches: the most matches of a rule in a round; a rule with more waits for rounds with twice, four times, … as
        many.
    """

    nodes: int = 10_000
    rounds: int = 30
    seconds: float = 60.0
    k_multi: int = 1
    matches: int = 10

    def __post_init__(self) -> None:
        for name, least in (("nodes", 1), ("rounds", 1), ("seconds", 0), ("k_multi", 0), ("matches", 1)):
            _require(name, getattr(self, name), least)


@dataclasses.dataclass(frozen=True)
class SaturationConfig(ExplorationLimits):
    """The settings of `saturation`. It also keeps the limit of time of searches, which all its parts share.

    Attributes:
      extraction_seconds: time of the integer programs; 0: the greedy method alone.
      then: the search that goes on from the extracted graph, with the settings of `search` and half of its time: taso,
        beam, restarts or passes; none: nothing does. It is read where runs build their controllers.
    """

    extraction_seconds: float = 60.0
    then: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _require("extraction_seconds", self.extraction_seconds, 0)
        if self.then is not None and self.then not in SEARCHES:
            raise ValueError(
                f"saturation: then is '{self.then}'; expected a search that goes on from the extracted graph: "
                f"{', '.join(SEARCHES)}, or none."
            )

    def within(self, seconds: float) -> SaturationConfig:
        """Returns the settings with an exploration of at most half of a limit of time; 0 means none.

        Extraction has what is left: without it, nothing is found.
        """
        return dataclasses.replace(self, seconds=min(self.seconds or seconds, seconds / 2)) if seconds else self


def _require(name: str, value: float, least: float) -> None:
    if not value >= least:
        raise ValueError(f"saturation: {name} is {value}; expected {least} or more.")
