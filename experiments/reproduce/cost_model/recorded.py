"""The graphs that `rlflow reproduce discrepancy` has measured, with the kernels that each of them runs.

They are committed with the table. The kernels are those of the zoo's networks, of random rewrites of them, and of each
rule wherever it applies.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from environment import zoo
from experiments.errors import UserError
from experiments.reproduce.cost_model.discrepancy_study import TABLE

FOLDER = Path(__file__).parents[2] / "results" / TABLE / "units"


@dataclass(frozen=True)
class RecordedGraphs:
    """A network and graphs that rewriting made of it.

    Attributes:
      name: name of the network in the zoo.
      kernels: signatures of the prices of all kernels [k].
      runs: how often each graph runs each kernel [g + 1, k], the network itself first.
      measured: run time of the rewritten graphs as ratios to the network's [g].
      half_widths: half the widths of the 95 % intervals of these ratios, as fractions of them [g].
    """

    name: str
    kernels: tuple[str, ...]
    runs: npt.NDArray[np.float64]
    measured: npt.NDArray[np.float64]
    half_widths: npt.NDArray[np.float64]

    @property
    def family(self) -> str:
        """The family of the network in the zoo."""
        return zoo.family_of(self.name)


def recorded_graphs(folder: Path = FOLDER) -> list[RecordedGraphs]:
    """Returns the graphs of each network.

    Raises:
      UserError: there are none, or a file cannot be read.
    """
    found = []
    for path in sorted(folder.glob("*-full-*.json")):
        try:
            unit = json.loads(path.read_text(encoding="utf-8"))
            if "kernels" in unit and f"{unit['graph']}-full" in path.name:
                found.append(_of_unit(unit))
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise UserError(f"{path} cannot be read: {error}. Restore it with git.") from error
    if not found:
        raise UserError(
            f"Expected measured graphs in {folder}, but there are none. They come with the sources of RLFlow: run this "
            f"command in a clone."
        )
    return found


def _of_unit(unit: Mapping[str, object]) -> RecordedGraphs:
    kernels, points = unit["kernels"], unit["points"]
    assert isinstance(kernels, list) and isinstance(points, list)
    runs = np.zeros((len(points) + 1, len(kernels)))
    for row, bill in enumerate([unit["fast"], *(point["fast"] for point in points)]):
        assert isinstance(bill, dict)
        for kernel, count in bill.items():
            runs[row, int(kernel)] = count
    measured, half_widths = (np.array([point[key] for point in points]) for key in ("measured", "half_width"))
    return RecordedGraphs(str(unit["graph"]), tuple(kernels), runs, measured, half_widths)
