"""Prices that come with RLFlow: the kernels of the zoo's networks and of their rewrites, timed on one machine.

The file holds data only, and the model is fitted when it is first needed. `rlflow costs prior` writes it.
"""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from environment.costs.prices.settings import Setting
from environment.costs.prices.sqlite_file import DatabaseError
from taso_ext.files import write_atomically

FILE = Path(__file__).with_name("prior.json.gz")
FORMAT = 2
"""Version of the file's contents."""


@dataclass(frozen=True)
class Timed:
    """A kernel of the prior.

    Attributes:
      key: signature of its price.
      ratio: its time over that of the reference kernel.
      spread, timings: see `environment.costs.prices.price_list.Price`.
      families: numbers of the families of networks that run it.
    """

    key: str
    ratio: float
    spread: float
    timings: int
    families: frozenset[int]


@dataclass(frozen=True)
class Prior:
    """Timed kernels, and where they come from.

    Attributes:
      setting: processor, runtime and settings of the timings.
      date: day of the last timing, as YYYY-MM-DD.
      command: the command that wrote the file.
      families: names of the families of networks.
      kernels: the kernels.
      errors: how wrong predictions of left-out kernels were, see `regressor.Regressor`, at even ranks; intervals are
        as wide as they require.
    """

    setting: Setting
    date: str
    command: str
    families: tuple[str, ...]
    kernels: tuple[Timed, ...]
    errors: tuple[float, ...]


def write_prior(prior: Prior, path: Path) -> None:
    """Writes a prior to a file; equal priors make equal files."""
    head = {"format": FORMAT, "setting": asdict(prior.setting), "date": prior.date, "command": prior.command}
    errors = [float(f"{each:.4g}") for each in prior.errors]
    lines = [json.dumps(head | {"families": prior.families, "kernels": len(prior.kernels), "errors": errors})]
    for each in sorted(prior.kernels, key=lambda kernel: kernel.key):
        figures = [float(f"{each.ratio:.5g}"), float(f"{each.spread:.2g}"), each.timings, sorted(each.families)]
        lines.append(json.dumps([each.key, *figures], separators=(",", ":")))
    packed = gzip.compress("\n".join(lines).encode(), mtime=0)
    write_atomically(path, lambda file: file.write(packed))


def read_prior(path: Path = FILE) -> Prior:
    """Reads a prior.

    Raises:
      DatabaseError: the file is missing, damaged, or of another version.
    """
    try:
        head, *rows = (json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines())
        if head["format"] != FORMAT:
            raise DatabaseError(
                f"{path} has version {head['format']} of the prices to predict from, and this RLFlow reads version "
                f"{FORMAT}. Install RLFlow anew, or write the file with `rlflow costs prior`."
            )
        kernels = tuple(
            Timed(key, ratio, spread, timings, frozenset(families)) for key, ratio, spread, timings, families in rows
        )
        if len(kernels) != head["kernels"]:
            raise ValueError(f"it has {len(kernels)} kernels of {head['kernels']}")
        setting, errors = Setting(**head["setting"]), tuple(map(float, head["errors"]))
        if not errors:
            raise ValueError("it has no errors to calibrate intervals by")
        return Prior(setting, head["date"], head["command"], tuple(head["families"]), kernels, errors)
    except DatabaseError:
        raise
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise DatabaseError(
            f"The prices to predict from cannot be read from {path}: {error}. Install RLFlow anew, or write the file "
            f"with `rlflow costs prior`; --set measure.predict=false measures without predictions."
        ) from error


@cache
def shipped_prior() -> Prior:
    """Returns the prior that comes with RLFlow.

    Raises:
      DatabaseError: see `read_prior`.
    """
    return read_prior()
