"""A sweep: a folder that holds its base settings and the figures of its finished points.

FOLDER/
  sweep.json   the model, the base settings, the axes of all commands so far, the last command, and what else decided
               its results: the graph, the rules and the like
  points/      the figures of finished points, one file each
  models/      run directories of the world models that points share
  runs/        run directories of the points
  README.md    what `rlflow sweep show` says; table.csv, table.md and figure.png beside it
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from experiments.config.effect import OF_WORLD_MODELS, effective, is_played, is_read, why_unread
from experiments.config.run import OF_CONTROLLERS, RunConfig, load_config
from experiments.config.tree import as_mapping, leaves, parse_overrides, put, replaced, takes_integers
from experiments.errors import UserError
from experiments.executors import provenance
from experiments.executors.local import Executor, Unit, without_compiling
from experiments.executors.units import Record, keep
from experiments.output_file import require_writable_directory
from experiments.pipeline.loading.load import find_model, load
from experiments.request import resolved
from experiments.runs.directory import LOCK, differences, digest, hold
from experiments.runs.progress import ProgressDisplay
from experiments.runs.rounds import SWEEP as FILE
from experiments.sweeps.over import Axis, points
from experiments.sweeps.point import POINTS, Point
from taso_ext import RuleSet
from taso_ext.files import is_temporary, remove_abandoned, write_text

NOT_OF_LOADING = (
    *("seed", "controller", "world", "options", "collect", "evaluate", "search", "updates_per_checkpoint"),
    *OF_WORLD_MODELS,
    *OF_CONTROLLERS,
)
"""Settings that do not decide what a model is loaded as. It is loaded once for all points that agree in the rest."""
FINGERPRINTS = "fingerprints"
FOLDER = Path("runs/sweeps")


@dataclass(frozen=True)
class Failure:
    """A point whose run has failed.

    Attributes:
      point: its name.
      error: the error.
    """

    point: str
    error: Exception


@dataclass(frozen=True)
class Sweep:
    """Points around one base.

    Attributes:
      model: path of an ONNX file, or zoo name.
      base: the settings, without those of the axes.
      folder: where everything is kept.
      points: the points, in the order of the axes.
      committed: a folder of figures of finished points that came with the source; None: there is none.
    """

    model: str
    base: RunConfig
    folder: Path
    points: Sequence[Point]
    committed: Path | None = None

    @classmethod
    def planned(
        cls,
        model: str,
        preset: str,
        assignments: Sequence[str],
        axes: Sequence[Axis],
        *,
        draws: int = 1,
        seed: int = 0,
        folder: Path | None = None,
        committed: Path | None = None,
    ) -> Sweep:
        """Returns the sweep of a command before its model is `loaded`. Nothing is written.

        Args:
          preset, assignments: the base settings, as for `--preset` and `--set`.
          axes: the axes.
          draws, seed: see `over.points`.
          folder: None: one below `FOLDER`, named after the model and the base settings.
          committed: see the attribute.
        Raises:
          UserError: the model, a setting or a value is not known, a setting is both varied and set, or the folder holds
            something else or cannot be written.
        """
        name = find_model(model).name
        _require_not_set(axes, assignments)
        base = load_config(preset, {}, assignments)
        typed = [axis.of_integers() if takes_integers(base, axis.key) else axis for axis in axes]
        spanned = points(typed, draws=draws, seed=seed)
        folder = folder or FOLDER / f"{name}-{preset}-{digest(_identity(model, base), digits=8)}"
        configs = [effective(resolved(_with(base, values))) for values in spanned]
        sketched = [Point(model, *each, {}, folder) for each in zip(spanned, configs, strict=True)]
        _require_played(axes, sketched)
        _require_distinct(sketched)
        sweep = cls(model, base, folder, sketched, committed)
        sweep._require_own_folder()
        return sweep

    @classmethod
    def of(cls, model: str, preset: str, assignments: Sequence[str], axes: Sequence[Axis], **settings: Any) -> Sweep:
        """Returns the sweep of a command, loaded; see `planned`."""
        return cls.planned(model, preset, assignments, axes, **settings).loaded()

    def loaded(self) -> Sweep:
        """Returns the sweep whose points have fingerprints, for which the model is loaded: under costs of this machine,
        this may take half a minute.

        Raises:
          UserError: the model cannot be loaded with these settings.
        """
        return dataclasses.replace(self, points=_with_fingerprints(self.points))

    @property
    def measures(self) -> bool:
        """Whether a point measures times, so that no other one may run on the same machine meanwhile."""
        return any(point.config.measures_costs for point in self.points)

    def _require_own_folder(self) -> None:
        """Raises UserError if the folder holds another sweep or something else, or cannot be written."""
        require_writable_directory(self.folder)
        names = set()
        if self.folder.is_dir():  # where another sweep may be writing its first file, or was killed while it did
            names = {path.name for path in self.folder.iterdir() if not is_temporary(path)}
        if not names - {LOCK} or (POINTS in names and FILE not in names):  # new, or its file is to be written again
            return
        if FILE not in names:
            raise UserError(f"{self.folder} exists and holds no sweep. Name another folder with -o.")
        stored = read_sweep(self.folder)
        wanted = json.loads(json.dumps(_identity(self.model, self.base)))
        for difference in differences({key: stored[key] for key in wanted}, wanted, ""):
            raise UserError(
                f"{self.folder} holds a sweep of another base: {difference.removeprefix('.')}. Name another folder "
                "with -o, or leave -o out."
            )

    def _finished(self, point: Point) -> Record | None:
        record = read_record(point.file)
        if record is not None:
            return record
        return next(filter(point.has_figures_of, self._of_the_source), None)

    @functools.cached_property
    def _of_the_source(self) -> list[Record]:
        return [] if self.committed is None else list(read_folder(self.committed))

    def run(
        self,
        executor: Executor,
        on_record: Callable[[Point, Record], None],
        axes: Sequence[str],
        *,
        command: str = "",
        compiles: bool = True,
    ) -> list[Failure]:
        """Does the points that are not finished; a failed one does not stop the others.

        Args:
          executor: runs the points.
          on_record: called with each point and its record when it is finished, first with those of earlier commands.
          axes: the arguments of `--over`, which are noted in the folder.
          command: the whole command, likewise.
          compiles: whether TensorFlow compiles what it trains, which takes longer than a few steps.
        Returns:
          The failures.
        Raises:
          OSError: there is no space left, or the like, so that no other point can be finished either.
          UserError: another command has begun a sweep of another base in the folder since, or works in it now, or it
            cannot be written.
        """
        self._require_own_folder()
        hold(self.folder, "Wait until it ends, and repeat the command; or name another folder with -o.")
        for folder in (self.folder, self.folder / POINTS):
            remove_abandoned(folder)
        known = read_sweep(self.folder) if (self.folder / FILE).is_file() else {"over": [], FINGERPRINTS: {}}
        fingerprints = {_loading(as_mapping(point.config)): dict(point.fingerprint) for point in self.points}
        noted = {
            **_identity(self.model, self.base),
            "over": list(dict.fromkeys([*known["over"], *axes])),
            "command": command,
            FINGERPRINTS: {**known[FINGERPRINTS], **fingerprints},
        }
        write_text(self.folder / FILE, json.dumps(noted, indent=1))
        units = {}
        for point in self.points:
            if (record := self._finished(point)) is not None:
                on_record(point, record)
                continue
            work = partial(kept, point) if compiles else partial(without_compiling, partial(kept, point))
            unit = Unit(point.name, work, lane=point.lane, measures=point.config.measures_costs)
            units[id(unit)] = point
            executor.submit(unit)
        failures = []
        for result in executor.results() if units else ():
            point = units[id(result.unit)]
            if result.record is not None:
                on_record(point, result.record)
            elif result.error is not None:
                failures.append(Failure(point.name, result.error))
        return failures


def _require_not_set(axes: Sequence[Axis], assignments: Sequence[str]) -> None:
    """Raises UserError if the base settings hold one that an axis varies."""
    assigned = parse_overrides(assignments)
    for axis in axes:
        found: Any = assigned
        for part in axis.key.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        if found is not None:
            raise UserError(f"--over varies {axis.key}, which --set gives the value {found}. Leave out one of the two.")


def _require_played(axes: Sequence[Axis], points: Sequence[Point]) -> None:
    """Raises UserError if the setting of an axis is one on which no point depends."""
    for axis in axes:
        if any(is_played(point.config, axis.key) for point in points):
            continue
        why = why_unread(points[0].config)
        if is_read(points[0].config, axis.key):
            why = "a point learns and plays, and neither chooses, proves, times nor exports a result"
        raise UserError(f"--over {axis.key} has no effect: {why}. Leave it out.")


def _require_distinct(points: Sequence[Point]) -> None:
    """Raises UserError if two points have the same settings that have an effect."""
    known: dict[Path, Point] = {}
    for point in points:
        other = known.setdefault(point.file, point)
        if other is not point:
            raise UserError(
                f"The points '{other.name}' and '{point.name}' would be the same run, because "
                f"{point.config.controller} does not read what differs. Leave out the values that have no effect."
            )


def _with_fingerprints(points: Sequence[Point]) -> list[Point]:
    """Returns points with their fingerprints, after loading the model once for each kind of settings.

    Raises:
      UserError: the model cannot be loaded with these settings.
    """
    known: dict[str, Mapping[str, Any]] = {}
    found = []
    for point in points:
        loading = _loading(as_mapping(point.config))
        if loading not in known:
            known[loading] = load(point.model, point.config).fingerprint
        found.append(dataclasses.replace(point, fingerprint=known[loading]))
    return found


def kept(point: Point, progress: ProgressDisplay) -> Record:
    """Does a point and keeps its record in its file, with its provenance."""
    record = {**point.record(progress), provenance.KEY: provenance.made_here(point.identity)}
    keep(point.file, json.dumps(record, indent=1))
    return record


def _loading(settings: Mapping[str, Any]) -> str:
    """Returns the hash of the settings that decide what a model is loaded as."""
    return digest({name: value for name, value in settings.items() if name not in NOT_OF_LOADING})


def _with(base: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    """Returns the settings with the values of a point."""
    tree: dict[str, Any] = {}
    for path, value in values.items():
        put(tree, path, value, f"--over {path}")
    return replaced(base, tree, "--over")


def _identity(model: str, base: RunConfig) -> dict[str, Any]:
    """Returns what all points of a folder have in common."""
    return {"model": model, "rules": RuleSet.default().fingerprint, "base": as_mapping(base)}


def shared_settings(stored: Mapping[str, Any]) -> str:
    """Returns sentences on the model of a sweep, its base settings and its command, given the contents of its file."""
    base, usual = (dict(leaves(tree)) for tree in (stored["base"], as_mapping(RunConfig())))
    changed = [f"{path}={value}" for path, value in base.items() if usual.get(path) != value]
    settings = f"with {', '.join(changed)}" if changed else "with the default settings"
    command = f" The last of them were made by `{stored['command']}`." if stored["command"] else ""
    return f"Points are runs on {stored['model']} {settings}.{command}"


def read_sweep(folder: Path) -> dict[str, Any]:
    """Returns the contents of a sweep's file.

    Raises:
      UserError: the folder holds no sweep, or the file is damaged.
    """
    path = folder / FILE
    if not path.is_file():
        raise UserError(f"{folder} holds no sweep: {FILE} is missing. `rlflow sweep MODEL --over …` makes one.")
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        known = {"command": "", FINGERPRINTS: {}, **stored}  # older files have neither
        return {key: known[key] for key in ("model", "rules", "base", "over", "command", FINGERPRINTS)}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is no file of a sweep, or is damaged. Remove this file alone and repeat the command of the sweep, "
            "which keeps its finished points; or name another folder with -o."
        ) from error


def read_record(path: Path) -> Record | None:
    """Returns the record of a finished point; None if there is none.

    Raises:
      UserError: the file is damaged.
    """
    if not path.is_file():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        parts = {key: dict(record[key]) for key in ("point", "settings", "figures")}
        made = {provenance.KEY: dict(record[provenance.KEY])} if provenance.KEY in record else {}
        return {**parts, "fingerprint": dict(record.get("fingerprint", {})), **made}  # older files have neither
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged. Remove it, and repeat the command of the sweep.") from error


def read_records(folder: Path) -> tuple[list[Record], int]:
    """Returns the records of the finished points of a folder, and the number of those that are left out.

    Points are left out if the model file, the rules or recorded prices have changed since they were made.

    Raises:
      UserError: the folder holds no sweep, or a file is damaged.
    """
    last = read_sweep(folder)[FINGERPRINTS]
    records = list(read_folder(folder / POINTS))
    known = ((each, last.get(_loading(each["settings"]))) for each in records)
    current = [each for each, fingerprint in known if fingerprint in (None, each["fingerprint"])]
    return current, len(records) - len(current)


def read_folder(folder: Path) -> Iterator[Record]:
    """Yields the records of a folder of files of points.

    Raises:
      UserError: a file is damaged.
    """
    for path in sorted(folder.glob("*.json")):
        record = read_record(path)
        if record is not None:
            yield record
