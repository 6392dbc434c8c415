"""Our best graph of a zoo network on this machine, for tables that compare it with what other tools make.

Where it comes from is decided here and nowhere else: from a search under measured costs whose result the clock confirms
(`rlflow reproduce never-slower`), or from ONNX files that the user gives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from environment.runtimes import OnnxRuntime
from experiments.errors import UserError
from experiments.reproduce.search.never_slower import TABLE, optimised_graph, result_path, settings_of
from experiments.reproduce.units import Record
from experiments.runs.progress import make_progress
from taso_ext.onnx_io.detached import DetachedModel
from taso_ext.onnx_io.reading import read_model


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
    def model() -> DetachedModel:
        optimised_graph(name, scale, runtime.device, make_progress())
        return read_model(result_path(name, scale, runtime.device))

    return OurBest(
        {"search": settings_of(scale, runtime.device)},
        f"the graphs of `rlflow reproduce {TABLE} --scale {scale}`",
        model,
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
