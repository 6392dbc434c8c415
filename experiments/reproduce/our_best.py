"""Our best graph of a zoo network on this machine, for tables that compare it with what other tools make.

Where it comes from is decided here and nowhere else: from a hill climb by the clock (`rlflow reproduce end-to-end`), or
from ONNX files that the user gives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from environment.runtimes import OnnxRuntime
from experiments.errors import UserError
from experiments.reproduce.end_to_end import best_model, climbed, settings_of
from experiments.reproduce.units import Record
from taso_ext import RuleSet
from taso_ext.detached import DetachedModel
from taso_ext.onnx_file import read_model


@dataclass(frozen=True)
class OurBest:
    """A graph that may still have to be found.

    Attributes:
      settings: all that it depends on, for units of work that use it.
      words: how it is found, for a note under a table.
      model: finds it, which can take minutes; may raise ModelError.
    """

    settings: Record
    words: str
    model: Callable[[], DetachedModel]


def our_best(name: str, scale: str, runtime: OnnxRuntime, directory: Path | None) -> OurBest:
    """Our best graph of a zoo network.

    Args:
      scale: of the search, `smoke` or `full`.
      runtime: that it is made for.
      directory: holds `<name>.onnx`; None: search.
    Raises:
      UserError: there is no such file.
    """
    return _of_search(name, scale, runtime) if directory is None else _of_file(name, directory)


def _of_search(name: str, scale: str, runtime: OnnxRuntime) -> OurBest:
    rules = RuleSet.default()
    return OurBest(
        {"search": settings_of(rules, scale, runtime)},
        f"the best graph of the climb of `rlflow reproduce end-to-end --scale {scale}`",
        lambda: best_model(climbed(name, rules, scale, runtime), rules),
    )


def _of_file(name: str, directory: Path) -> OurBest:
    path = directory / f"{name}.onnx"
    if not path.is_file():
        raise UserError(
            f"There is no {path}: --ours names a directory that holds an ONNX file for each graph of the table. Leave "
            f"it out to search for the graphs instead."
        )
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return OurBest({"file": digest}, f"the graphs in {directory}", lambda: read_model(path))
