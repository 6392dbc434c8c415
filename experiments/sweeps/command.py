"""`rlflow sweep MODEL --over KEY=VALUES …` runs a sweep; `rlflow sweep show DIR` shows what its points say."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from environment import rewards
from experiments.config.effect import note_of_unread, unread
from experiments.errors import UserError, require_at_least
from experiments.executors.choice import LOCAL, add_executor, chosen_executor
from experiments.executors.local import Executor
from experiments.executors.units import Record
from experiments.reproduce.table import require_writable_folder
from experiments.runs.progress import ProgressDisplay, make_progress
from experiments.sweeps.over import Axis
from experiments.sweeps.point import FIGURES, Point
from experiments.sweeps.show import USUAL, axis_of, shown
from experiments.sweeps.sweep import Failure, Sweep, read_records, read_sweep, shared_settings

SHOW = "show"
FAILED = 1
DEFAULTS = {"base": "demo", "draws": 10, "draw_seed": 0}
"""The values of options that are not given; `rlflow sweep show` refuses those that are."""
LIVE = ("real", "dream", "best", "minutes")
"""The figures of a finished point that are printed at once."""
EXAMPLES = """\
examples:
  rlflow sweep bert-base --over dream.temperature=0,0.5,1,1.5 --over seed=0..4 --base demo
  rlflow sweep squeezenet1.1 --over ppo.learning_rate=loguniform(1e-4,1e-2) --draws 10 --set costs=roofline:rtx2070
  rlflow sweep show runs/sweeps/bert-base-demo-0a1b2c3d --figures real,gap
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `rlflow sweep`."""
    parser.epilog, parser.formatter_class = EXAMPLES, argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "target", nargs="+", metavar="MODEL", help="path of an ONNX file, or a zoo name; or: show DIR, a sweep's folder"
    )
    running = parser.add_argument_group("to run a sweep")
    running.add_argument(
        "--over",
        metavar="KEY=VALUES",
        action="append",
        default=[],
        help="an axis: a list (0,0.5,1), a range (0..4, 0..3:0.5), or a random draw (uniform(0,3), "
        "loguniform(1e-4,1e-2)) of any setting (repeatable; all axes are combined)",
    )
    running.add_argument("--base", metavar="PRESET", help="preset of all other settings (demo)")
    running.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="override a setting of the preset (repeatable)"
    )
    running.add_argument("--draws", metavar="N", type=int, help="number of random draws (10); equal ones are one")
    running.add_argument("--draw-seed", metavar="N", type=int, help="seed of the random draws (0)")
    running.add_argument("-o", "--output", metavar="DIR", type=Path, help="folder of the sweep (below runs/sweeps)")
    add_executor(running, "points")
    showing = parser.add_argument_group("to show one")
    showing.add_argument("--x", metavar="KEY", help="the axis to plot along (the one with the most values)")
    showing.add_argument(
        "--figures", metavar="A,B,…", help=f"figures to show ({','.join(USUAL)}; known: {', '.join(FIGURES)})"
    )
    showing.add_argument("--reference", metavar="VALUE", type=float, help="value of KEY to compare the others with")


def run(options: argparse.Namespace) -> int:
    """Carries out `rlflow sweep`.

    Returns:
      0, or 1 if a point has failed.
    Raises:
      UserError: the command cannot work; raised before any work is done.
    """
    if options.target[0] == SHOW:
        if len(options.target) != 2:
            raise UserError("rlflow sweep show expects one folder of a sweep.")
        _require_nothing_to_run(options)
        _show(Path(options.target[1]), options)
        return 0
    if len(options.target) != 1:
        raise UserError(f"rlflow sweep expects one model, but {len(options.target)} came: {', '.join(options.target)}.")
    if not options.over:
        raise UserError("Nothing varies: name at least one axis, for example --over dream.temperature=0,0.5,1.")
    given = [f"--{name.replace('_', '-')}" for name in ("draws", "draw_seed") if getattr(options, name) is not None]
    for name, default in DEFAULTS.items():
        if getattr(options, name) is None:
            setattr(options, name, default)
    require_at_least(1, draws=options.draws, processes=options.processes)
    require_at_least(0, **{"draw-seed": options.draw_seed})
    axes = [Axis.parsed(text) for text in options.over]
    if given and all(axis.draw is None for axis in axes):
        raise UserError(
            f"No axis is drawn at random, as in ppo.learning_rate=loguniform(1e-4,1e-2), so that there is nothing for "
            f"{' and '.join(given)} to say. Leave {'it' if len(given) == 1 else 'them'} out."
        )
    sweep = Sweep.planned(
        options.target[0],
        options.base,
        options.set,
        axes,
        draws=options.draws,
        seed=options.draw_seed,
        folder=options.output,
    )
    if sweep.measures and options.executor == LOCAL and options.processes != 1:
        raise UserError(
            f"--processes is {options.processes}, but points measure times (costs={sweep.points[0].config.costs}), and "
            "measurements that run at the same time would disturb one another. Leave it at 1, or choose costs that "
            "time nothing, such as --set costs=roofline:rtx2070."
        )
    axis_of([point.values for point in sweep.points], options.x, _named(options), options.reference)
    progress = make_progress()
    failures = _run(sweep.loaded(), options, chosen_executor(options, "sweep", progress), progress)
    _show(sweep.folder, options)
    for failure in failures:
        print(f"\nFailed: {failure.point}: {failure.error}")
    if failures:
        print(f"{len(failures)} of {len(sweep.points)} points have failed. The same command tries them again.")
    return FAILED if failures else 0


def _require_nothing_to_run(options: argparse.Namespace) -> None:
    """Raises UserError if an option is given that `rlflow sweep show` does not read."""
    values = {
        "--over": options.over or None,
        "--set": options.set or None,
        "--base": options.base,
        "--draws": options.draws,
        "--draw-seed": options.draw_seed,
        "--output": options.output,
        "--processes": None if options.processes == 1 else options.processes,
        "--executor": None if options.executor == LOCAL else options.executor,
        "--address": options.address,
    }
    given = [name for name, value in values.items() if value is not None]
    if given:
        have, them = ("has", "it") if len(given) == 1 else ("have", "them")
        raise UserError(
            f"{', '.join(given)} {have} no effect on rlflow sweep show, which runs nothing and writes into the "
            f"folder that it shows. Leave {them} out."
        )


def _run(sweep: Sweep, options: argparse.Namespace, executor: Executor, progress: ProgressDisplay) -> Sequence[Failure]:
    progress.note(f"Sweep of {len(sweep.points)} points in {sweep.folder}")
    if settings := unread(options.set, [point.config for point in sweep.points]):
        progress.note(note_of_unread(sweep.points[0].config, settings))
    progress.note(_line(["point", *LIVE]))

    def live(point: Point, record: Record) -> None:
        progress.note(_line([point.name, *(_cell(record["figures"].get(name)) for name in LIVE)]))

    return sweep.run(executor, live, options.over, command=shlex.join(["rlflow", *options.arguments]))


def _named(options: argparse.Namespace) -> list[str]:
    """Returns the figures of `--figures`.

    Raises:
      UserError: one of them has no name.
    """
    names = [name.strip() for name in options.figures.split(",")] if options.figures else []
    if not all(names):
        raise UserError(f"--figures expects names and commas, got '{options.figures}'. Known: {', '.join(FIGURES)}.")
    return names


def _line(cells: Sequence[str]) -> str:
    return f"{cells[0]:<40}" + "".join(f"{cell:>12}" for cell in cells[1:])


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _of_other_rewards(records: Sequence[Record]) -> str:
    """Returns a sentence on units if a point's reward is no logarithm of times, which alone make percent of time."""
    others = {record["settings"]["environment"]["reward"] for record in records}
    others = {name for name in others if rewards.is_imported(name) or not rewards.find(name).is_log_ratio}
    if not others:
        return ""
    named = ", ".join(sorted(others))
    return f" Where the reward is {named}, `dream`, `dream_at_1` and `gap` are sums of rewards, and `real` is of time."


def _show(folder: Path, options: argparse.Namespace) -> None:
    """Writes the table, the figure and the sentences into the folder, and prints them."""
    stored = read_sweep(folder)
    over = [Axis.parsed(text) for text in stored["over"]]
    drawn = [axis.key for axis in over if axis.draw is not None]
    require_writable_folder(folder, force=True)
    records, left_out = read_records(folder)
    if not records and options.target[0] != SHOW:  # every point has failed, which is said
        return
    about = shared_settings(stored)
    if left_out:
        points = "1 older point is" if left_out == 1 else f"{left_out} older points are"
        about += f" {points} left out, because the model file, the rules or the prices were others then."
    about += _of_other_rewards(records)
    command = shlex.join(["rlflow", *options.arguments])
    options_of_table = {"x": options.x, "figures": _named(options), "reference": options.reference}
    table = shown(folder, records, command, **options_of_table, drawn=drawn, about=about)
    table.write(folder)
    print(table.markdown(), end="")
    print(f"\n{folder / 'figure.png'}")
