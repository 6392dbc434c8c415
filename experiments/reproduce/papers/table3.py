"""Does a warmer dream make the real result better? A sweep of the dream's temperature (the papers' Table III).

rlflow reproduce table3
rlflow reproduce table3 squeezenet1.1 --worlds "best, on paper" --seeds 0,1 --temperatures 0,1,2

The temperature acts while the policy is trained. One world model of random play a seed serves all temperatures; a round
of recollection then adds what the policy of a temperature plays. In a deterministic world a temperature has little to
act on, so that there are six worlds:

    paper, on paper      the published model as built (preset `paper-cut`: a tenth of its episodes and epochs), roofline
    best, on paper       this project's model (preset `demo` with a larger round of recollection), roofline
    best, noisy prices   the same under prices of kernels that are drawn anew at every step (`--prices FILE`; those
                         of BERT-Tiny are in experiments/results/table3)
    best, by the clock   the same under times of whole graphs, drawn anew; each graph is timed four times when it is
                         first met (`endtoend:cpu:noise=resampled,pairs=4`)
    exact, on paper      the preset `demo` as it is: the engine follows its dreams, so that a temperature acts on
                         rewards alone; roofline
    exact, noisy prices  the same under the noisy prices

In the three worlds of `best`, dreams predict which rewrites are legal, and the temperature acts on that too. What is
noisy is on BERT-Tiny, the others are on BERT-Base and SqueezeNet1.1, or at the scale `smoke` on a tiny BERT alone. On
SqueezeNet1.1 a point takes one minute (`paper-cut`) or five (`demo`), and a world model takes five; on BERT-Base, with
`paper-cut`, a point takes six minutes and a world model ten. A point of noisy prices takes six. By the clock, random
play takes twenty minutes and a point fifteen to forty.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from environment.costs.registry import DATABASE
from environment.measurement.effort import FEWEST_PAIRS
from experiments.config.run import load_config
from experiments.config.tree import as_mapping
from experiments.errors import UserError
from experiments.executors import provenance
from experiments.executors.choice import chosen_executor
from experiments.executors.units import COMMITTED, DIRECTORY, UNITS, Record, as_seen_from_here
from experiments.reproduce.options import add_graphs, add_seeds, chosen_graphs, chosen_seeds, named, require_one_process
from experiments.reproduce.papers.cleaning import against_basic
from experiments.reproduce.papers.players import SHORT, cuts_of
from experiments.reproduce.papers.printed import TEMPERATURES
from experiments.reproduce.search.plays import ON_PAPER, PREDICTED, SMALL, slug
from experiments.reproduce.search.plays import PRICES as PAPERS_PRICES
from experiments.reproduce.table import UNDEFINED, Table
from experiments.runs.directory import digest
from experiments.runs.progress import ProgressDisplay
from experiments.sweeps.findings import said
from experiments.sweeps.over import Axis
from experiments.sweeps.series import series_of
from experiments.sweeps.show import USUAL, columns_of, draw, rows_of
from experiments.sweeps.sweep import Sweep
from taso_ext import RuleSet

NAME = "table3"
KEY = "dream.temperature"
SEEDS = {"smoke": "0", "full": "0,1,2,3,4"}
DEFAULT = {"smoke": "0,2", "full": "0,0.1,0.5,0.75,1,1.2,1.5,1.75,2,2.5,3"}
ROUND = (
    *PREDICTED,
    *("recollect.rounds=1", "recollect.more=0", "recollect.episodes=100", "recollect.steps=600", "ppo.updates=100"),
)
ON_CPU = ("device=cpu", "evaluate.climb_seconds=0")
DRAWN = (*ON_CPU, "dream.noise=true")
NOISY = (*ON_CPU, *ROUND, "dream.noise=true")
RECORDED = COMMITTED / NAME / "cpu.sqlite"
"""Made by `rlflow costs record bert-l2-h128 --walks 300`, five times `--again`, and `export --kernels-alone`."""
CLOCK, PAIRS = "costs=endtoend:cpu:noise=resampled", 4


@dataclass(frozen=True)
class World:
    """Where policies are trained and judged.

    Attributes:
      graphs: names in the zoo.
      preset, settings: as for `--preset` and `--set`.
    """

    graphs: Sequence[str]
    preset: str
    settings: tuple[str, ...]

    @property
    def clocked(self) -> bool:
        """Whether costs are times of whole graphs."""
        return any(setting.startswith(CLOCK) for setting in self.settings)


PAPERS_GRAPHS, TIMED_GRAPHS = ("bert-base", "squeezenet1.1"), ("bert-l2-h128",)
PRICES = ("best, noisy prices", "exact, noisy prices")
"""The worlds whose prices are replayed."""
WORLDS: Mapping[str, World] = {
    "paper, on paper": World(PAPERS_GRAPHS, SHORT["paper"], ON_PAPER),
    "best, on paper": World(PAPERS_GRAPHS, SHORT["best"], (*ON_PAPER, *ROUND)),
    PRICES[0]: World(TIMED_GRAPHS, SHORT["best"], NOISY),
    "best, by the clock": World(TIMED_GRAPHS, SHORT["best"], (f"{CLOCK},pairs={PAIRS}", *NOISY)),
    "exact, on paper": World(PAPERS_GRAPHS, SHORT["best"], ON_PAPER),
    PRICES[1]: World(TIMED_GRAPHS, SHORT["best"], DRAWN),
}
"""The worlds by name."""

COLUMNS = {
    "graph": "cleaned in full",
    "world": "how policies are trained and judged",
    KEY: "τ while the policy was trained",
    "seeds": "runs",
    **columns_of(USUAL),
    "real basic": "`real` against the graph as `--clean basic` leaves it [%]; where costs are prices",
    "printed dream": "the papers' score of the world model on BERT [%]; RLFlow / dissertation where they differ",
    "printed real": "the papers' real score on BERT [%], likewise",
}
FORMATS = {key: ".2f" for key in COLUMNS if key.split()[0] in (*USUAL, "printed")}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser, "those of each world")
    add_seeds(parser, SEEDS["full"])
    parser.add_argument("--worlds", metavar="A;B;…", help=f"worlds (all that are possible: {'; '.join(WORLDS)})")
    parser.add_argument("--temperatures", metavar="A,B,…", help=f"temperatures ({DEFAULT['full']})")
    parser.add_argument(
        "--prices",
        metavar="FILE",
        help=f"database of recorded prices of kernels, for the worlds {' and '.join(PRICES)} (the one of "
        f"{TIMED_GRAPHS[0]} that comes with the source)",
    )


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Sweeps the temperature in every world; finished points are not done again.

    Raises:
      UserError: a world is unknown, or needs prices that are not named.
    """
    worlds = named(options.worlds, WORLDS, "world", separator=";")
    priced = [name for name in PRICES if name in worlds]
    if priced and options.prices is None:
        names = chosen_graphs(options, TIMED_GRAPHS)
        if set(names) <= set(TIMED_GRAPHS):
            options.prices = str(as_seen_from_here(RECORDED))
        elif options.worlds is not None:
            raise UserError(
                f"The world '{priced[0]}' replays prices, and {RECORDED.name} has none of {', '.join(names)}: name a "
                f"database that has with --prices FILE."
            )
        else:
            progress.note(
                f"No --prices of {', '.join(names)} are named, so that these are left out: {'; '.join(priced)}."
            )
            worlds = {name: world for name, world in worlds.items() if name not in PRICES}
    if worlds.keys() & set(PRICES):
        require_prices(Path(options.prices))
    temperatures = options.temperatures or DEFAULT[options.scale]
    seeds = chosen_seeds(options, SEEDS[options.scale])
    rows: list[Record] = []
    sentences: list[str] = []
    figures = {}
    for world_name, world in worlds.items():
        for name in chosen_graphs(options, world.graphs, world.graphs[:1]):
            sweep = sweep_of(name, world_name, world, temperatures, seeds, options)
            records = swept(sweep, options, progress)
            (series,) = series_of(records, KEY)
            prices = prices_of(world_name, options)
            rows += [_beside(row, name, world_name, prices) for row in rows_of([series], KEY, USUAL)]
            about = f"{name}, {world_name}"
            sentences += [f"{about}: {sentence}" for sentence in said(series, KEY, USUAL, 1.0)]
            figures[f"{name}-{slug(world_name)}"] = partial(draw, [series], KEY, USUAL)
    return Table(
        "Temperature of the dream",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        "\n".join(f"- {line}" for line in notes_of(worlds)),
        "\n\n".join(sentences),
        figures,
    )


def require_prices(path: Path) -> None:
    """Checks that a database of prices can be replayed.

    Raises:
      UserError: the file is missing, or its name is not that of a database.
    """
    problem = "that is no file" if not path.is_file() else f"its name does not end in {DATABASE}"
    if not path.is_file() or path.suffix != DATABASE:
        raise UserError(
            f"--prices expects a database of kernel prices, got '{path}', but {problem}. Name one that "
            f"`rlflow costs record --database FILE{DATABASE}` has written."
        )


def sweep_of(
    graph: str, world_name: str, world: World, temperatures: str, seeds: Sequence[int], options: argparse.Namespace
) -> Sweep:
    """Returns the sweep of one world on one graph."""
    prices = (f"costs={prices_of(world_name, options)}:noise=resampled",) if world_name in PRICES else ()
    small = SMALL if options.scale == "smoke" else ()
    if options.scale == "smoke" and world.clocked:
        small = (*small, f"{CLOCK},pairs={FEWEST_PAIRS}")
    try:
        axes = [Axis.parsed(f"{KEY}={temperatures}"), Axis("seed", tuple(seeds))]
    except UserError as error:
        raise UserError(f"--temperatures {temperatures} cannot be swept: {error}") from error
    changes = (*world.settings, *prices, *small)
    base = digest(
        [changes, as_mapping(load_config(world.preset, {}, changes)), RuleSet.default().fingerprint], digits=8
    )
    folder = DIRECTORY / NAME / "sweeps" / f"{graph}-{slug(world_name)}-{options.scale}-{base}"
    committed = None if world.clocked else COMMITTED / NAME / UNITS
    return Sweep.of(graph, world.preset, changes, axes, folder=folder, committed=committed)


def prices_of(world_name: str, options: argparse.Namespace) -> str | None:
    """Returns the costs of a world whose graphs have a price without noise."""
    if WORLDS[world_name].clocked:
        return None
    return options.prices if world_name in PRICES else PAPERS_PRICES


def swept(sweep: Sweep, options: argparse.Namespace, progress: ProgressDisplay) -> list[Record]:
    """Returns the records of all points.

    Raises:
      Exception: the error of the first point that failed, after all others have ended.
    """
    if sweep.measures:
        require_one_process(options)
    records: list[Record] = []
    executor = chosen_executor(options, f"{NAME} {sweep.folder.name}", progress)
    compiles = options.scale != "smoke"
    failures = sweep.run(executor, lambda point, record: records.append(record), [], compiles=compiles)
    if failures:
        raise failures[0].error
    provenance.note(records)
    return records


def notes_of(worlds: Mapping[str, World]) -> list[str]:
    """Returns sentences on the preset and the settings of each world, and on what is printed."""
    return [
        *(
            f"World `{name}`: preset `{world.preset}` with {', '.join(world.settings)}."
            for name, world in worlds.items()
        ),
        *cuts_of([world.preset for world in worlds.values()]),
        "Printed figures: Table III of RLFlow and the same table of the dissertation, on BERT.",
    ]


def _beside(row: Mapping[str, Any], graph: str, world: str, prices: str | None) -> Record:
    """Returns a row with its names, its figure against the basic graph under the prices of its world, if this has any,
    and what the papers print of its temperature on BERT."""
    basic = UNDEFINED if prices is None or "real" not in row else against_basic(graph, row["real"], prices)
    temperature = row[KEY]
    printed = []
    if graph == "bert-base" and isinstance(temperature, int | float):
        printed = [paper[temperature] for paper in TEMPERATURES.values() if temperature in paper]
    dream, real = map(_both, zip(*printed, strict=True)) if printed else (UNDEFINED, UNDEFINED)
    more = {"graph": graph, "world": world, "real basic": basic, "printed dream": dream, "printed real": real}
    return {**row, **more}


def _both(printed: Sequence[float]) -> float | str:
    """Returns a figure of the papers, or one after the other where they differ."""
    return printed[0] if len(set(printed)) == 1 else " / ".join(f"{each:.2f}" for each in printed)
