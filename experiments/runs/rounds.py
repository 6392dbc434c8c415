"""The rounds of a run with a world model, and the one whose policy plays.

What a policy plans in the dream of its round is tried in reality in every round (`Learning.plans`). As long as the last
dream is not to be trusted, a round may be added. A later round knows more, but its policy may have found a mistake of
its dream that no earlier one had found. So the round is taken whose plans really save most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.config.run import RunConfig
from experiments.errors import DamagedRun
from experiments.runs.directory import RunDirectory
from experiments.runs.result import is_far, omits
from experiments.runs.run import of_round

EXPLOIT = "exploit"
"""The stage in which plans are tried."""
PLAYED = "checkpoints/played-round.json"
FIRST = "first.json"
"""File of a run whose random play and first world model another run keeps: `{"path": where}`, from its folder."""
SWEEP = "sweep.json"
"""File of a sweep, whose points are runs in a folder beside it."""
REALLY_SAVED = "skipping_percent"
"""The mean that plans really save, without their rewrites that are not legal; see `worldmodel.accuracy.exploit`."""


def first_of(directory: RunDirectory) -> RunDirectory:
    """Returns the run that keeps the random play and the first world model of a run: mostly the run itself.

    Raises:
      DamagedRun: it is another one, which is missing.
    """
    path: Path = directory.stored(FIRST, lambda stored: directory.path / stored["path"] if stored else directory.path)
    if not RunDirectory.holds_run(path):
        raise DamagedRun(path.resolve(), f"{directory.path} shares its first world model with others, and that is gone")
    return directory if path == directory.path else RunDirectory(path, resumed=True)


def plans_file(number: int) -> str:
    """Returns the name of the file of a round's plans in the directory of a run."""
    return f"checkpoints/{of_round(EXPLOIT, number)}.json"


def last_round(directory: RunDirectory, config: RunConfig) -> int:
    """Returns the number of the last round of a run, by what its dreams have promised so far; 0 without a world model.

    Raises:
      DamagedRun: a file cannot be read.
    """
    if not config.uses_world_model:
        return 0
    last = config.recollect.rounds
    while last < config.recollect.most and directory.stored(plans_file(last), _are_doubtful):
        last += 1
    return last


def _are_doubtful(plans: Mapping[str, Any] | None) -> bool:
    """Returns whether plans were tried, and their dream is not to be trusted."""
    return plans is not None and (is_far(plans.get("gap")) or omits((), plans))


def best_round(plans: Sequence[Mapping[str, Any]]) -> int:
    """Returns the number of the round whose policy plays: of those whose plans really save most, the latest.

    Args:
      plans: the figures of each round's plans. If one has none, because sums of rewards are no improvements, the last
        round plays; 0 if there are no rounds.
    """
    saved = [each.get(REALLY_SAVED) for each in plans]
    if any(value is None for value in saved):
        return len(plans) - 1
    return max(range(len(saved)), key=lambda number: (saved[number], number), default=0)


def keep_played_round(directory: RunDirectory, number: int) -> None:
    """Writes down which round of a run plays."""
    directory.write_json(PLAYED, {"round": number})


def played_round(directory: RunDirectory, config: RunConfig) -> int:
    """Returns the number of the round of a run whose policy plays; 0 for a run without a world model.

    In a run that does not say it, because an older version has made it, the last round has played.

    Raises:
      DamagedRun: a file cannot be read.
    """
    if not config.uses_world_model:
        return 0
    return directory.stored(PLAYED, lambda kept: config.recollect.rounds if kept is None else int(kept["round"]))
