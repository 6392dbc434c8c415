"""What controllers make of graphs and costs that they were not trained for, without learning anything more.

rlflow reproduce transfer
rlflow reproduce transfer resnet18 --controllers "mcts pointer,ppo dream" --seeds 0

A controller is trained on one graph, as in `rlflow reproduce controllers`, and plays on others by `rlflow optimise
--from`: networks of other depths and input shapes, and the same network priced for another device. Beside it stand
random play with as many episodes and the searches, which see the other graph only. Training takes up to 15 minutes for
a row and a seed, play up to five.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from experiments.config.effect import same_play
from experiments.config.run import RunConfig
from experiments.errors import UserError
from experiments.executors.local import Unit
from experiments.executors.units import Record, once, unit_path
from experiments.pipeline.learning.controller import prepare_controller
from experiments.pipeline.learning.trained import playing_config
from experiments.pipeline.loading.load import load
from experiments.reproduce.options import add_graphs, add_seeds, chosen_seeds, named, run_units
from experiments.reproduce.search.controllers import PLAYERS
from experiments.reproduce.search.plays import COUNTED, ON_PAPER, SECONDS, Play, Player, best_graph, counts_of, play
from experiments.reproduce.table import OVER_SEEDS, WHOLE, Table, mean_of, of_seeds
from experiments.request import Request
from experiments.runs.progress import ProgressDisplay
from experiments.studies.setting import fingerprint
from taso_ext import RuleSet
from taso_ext.onnx_io.checked_model import CheckedModel

NAME = "transfer"
SEEDS = "0,1,2"
ITS_COSTS = "roofline:rtx2070"
ELSEWHERE: Mapping[str, Sequence[tuple[str, str]]] = {
    "bert-base": [
        ("bert-base:layers=6", ITS_COSTS),
        ("bert-base:layers=24", ITS_COSTS),
        ("bert-base:sequence=64", ITS_COSTS),
        ("bert-base", "roofline:xeon"),
    ],
    "resnet18": [("resnet50", ITS_COSTS), ("resnet18", "roofline:xeon")],
    "squeezenet1.1-tiny": [("squeezenet1.1-tiny:image_size=48", ITS_COSTS), ("squeezenet1.1-tiny", "roofline:xeon")],
}
"""The graphs and costs that are played, by the graph that was trained on; the last one is for a quick look."""
GRAPHS = {"smoke": ("squeezenet1.1-tiny",), "full": ("bert-base", "resnet18")}
"""The graphs that are trained on by default, by scale."""
LEARNERS: Mapping[str, Player] = {
    "ppo dream": PLAYERS["ppo dream"],
    "ppo pointer": Player("ppo", ("world=real", "policy.head=pointer")),
    "mcts pointer": Player("mcts", ("policy.head=pointer",)),
}
"""The rows that are trained, by name."""
SEARCHES: Mapping[str, Player] = {row: PLAYERS[row] for row in ("greedy", "taso", "restarts")}
"""The rows of searches; of `restarts`, one seed is enough for comparison."""

COLUMNS = {
    "trained_on": "the graph that the controller was trained on, priced by " + ITS_COSTS,
    "graph": "the graph that is played",
    "costs": "its prices",
    "controller": "the row; what has no graph that it was trained on is a search",
    "seeds": "runs",
    "gain": "improvement of the best of its own episodes, mean of the seeds [%]",
    **OVER_SEEDS,
    "share": "of the largest gain of all rows, means of the seeds [%]",
    "random": "random play with as many episodes as in its evaluation, mean [%]",
    **COUNTED,
    "minutes": "mean; this and what was counted is of this graph alone",
}
FORMATS = {
    **dict.fromkeys(("gain", "low", "high", "IQM", "random"), ".2f"),
    **dict.fromkeys(("share", "minutes"), ".1f"),
    **dict.fromkeys(COUNTED, ",.0f"),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser, f"{', '.join(GRAPHS['full'])}; known: {', '.join(ELSEWHERE)}", "graphs to train on")
    add_seeds(parser, SEEDS)
    parser.add_argument("--controllers", metavar="A,B,…", help=f"rows that learn (all: {', '.join(LEARNERS)})")


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Plays each trained controller elsewhere; finished units are not done again."""
    names, seeds = known(options.graphs or GRAPHS[options.scale], ELSEWHERE), chosen_seeds(options, SEEDS)
    learners = chosen_learners(options.controllers)
    units = [unit for name in names for unit in units_of(name, ELSEWHERE[name], learners, seeds, options.scale)]
    rows = list(rows_of(run_units(units, options, progress)))
    return Table(
        "What controllers make of graphs and costs that they were not trained for",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        f"{SECONDS[options.scale]} s for each search; {len(RuleSet.default())} rules.",
        finding(rows),
    )


def known(names: Sequence[str], places: Mapping[str, object]) -> Sequence[str]:
    """Returns the graphs to train on.

    Raises:
      UserError: it is not known where the controller of one of them is to play.
    """
    for name in names:
        if name not in places:
            raise UserError(f"No other graph is like '{name}'. Choose among {', '.join(places)}.")
    return names


def chosen_learners(given: str | None) -> Mapping[str, Player]:
    """Returns the rows that are named, or all."""
    return named(given, LEARNERS, "row")


@dataclasses.dataclass(frozen=True)
class Move:
    """A controller that was trained by one play and plays on another graph or for other costs.

    Attributes:
      play: the play by which it is trained.
      graph, costs: where it plays.
    """

    play: Play
    graph: str
    costs: str

    @property
    def unit(self) -> Unit:
        """The unit of work. All moves of one training wait for each other, because the first one may have to train."""
        return Unit(f"{self.name} for {self.costs}", self.record, lane=self.play.name)

    @property
    def name(self) -> str:
        """The name of the unit."""
        return f"{self.play.name}-on-{self.graph}"

    @property
    def settings(self) -> Record:
        """Everything that the result depends on."""
        return {"trained": self.play.settings, "costs": self.costs, "graph": fingerprint(self.graph)}

    @property
    def measures_costs(self) -> bool:
        """Whether its costs are measured on this machine."""
        return self._config.measures_costs

    @property
    def _config(self) -> RunConfig:
        return dataclasses.replace(self.play.config, costs=self.costs)

    def record(self, progress: ProgressDisplay) -> Record:
        """Returns the record of the unit; a finished one is not done again."""

        def work() -> Record:
            run, loaded = self.play.begun(progress)
            prepare_controller(run, loaded)
            trained = run.directory.path
            changes = (*ON_PAPER, f"costs={self.costs}", f"device={self.play.device}")
            config = playing_config(trained, "demo", {"seed": self.play.seed}, changes)
            directory = unit_path(NAME, self.name, self.settings).with_suffix("")
            request = Request(self.graph, None, config, directory, (NAME,), trained)
            return {
                "settings": self.settings,
                "trained_on": self.play.graph,
                "costs": self.costs,
                **play(self.play.row, request, progress),
            }

        anywhere = not self.measures_costs
        return once(NAME, self.name, self.settings, work, anywhere=anywhere, agree=same_move)

    def models(self, progress: ProgressDisplay) -> tuple[CheckedModel, CheckedModel]:
        """Returns the start graph and the one that the controller is credited with, as models.

        Raises:
          ModelError: a graph can be written in no opset.
          UserError: the rewrites of the record do not lead to its graph any more.
        """
        loaded = load(self.graph, self._config)
        best = best_graph(self.record(progress), loaded)
        if best is None:
            file = unit_path(NAME, self.name, self.settings)
            raise UserError(f"{file} is of an older version: its rewrites lead to another graph. Remove it.")
        export = loaded.model.export_checked
        return export(loaded.model.graph), export(best)


def same_move(stored: Record, wanted: Record) -> bool:
    """Returns whether the settings of a finished move are the wanted ones, also if settings were added since."""
    return {**stored, "trained": wanted["trained"]} == wanted and same_play(stored["trained"], wanted["trained"])


def units_of(
    name: str,
    places: Sequence[tuple[str, str]],
    learners: Mapping[str, Player],
    seeds: Sequence[int],
    scale: str,
) -> Iterator[Unit]:
    """Yields the units of a graph that is trained on: the moves to other places, and the searches there."""
    for seed in seeds:
        for row, player in learners.items():
            for graph, costs in places:
                yield Move(Play(name, row, player, scale, SECONDS[scale], seed), graph, costs).unit
    for graph, costs in places:
        for row, player in SEARCHES.items():
            yield Unit(f"{graph} {row} for {costs}", partial(searched, name, graph, costs, row, player, scale))


def searched(
    trained_on: str, graph: str, costs: str, row: str, player: Player, scale: str, progress: ProgressDisplay
) -> Record:
    """Returns the record of a search, which is a unit of `controllers`."""
    priced = dataclasses.replace(player, settings=(*player.settings, f"costs={costs}"))
    record = Play(graph, row, priced, scale, SECONDS[scale], 0).record(progress)
    return {**record, "trained_on": "", "beside": trained_on, "costs": costs}


def rows_of(records: Sequence[Record]) -> Iterator[Record]:
    """Yields a row for each controller at each place."""
    keys = [(each["trained_on"] or each["beside"], each["graph"], each["costs"]) for each in records]
    for key in dict.fromkeys(keys):
        here = [record for record, other in zip(records, keys, strict=True) if other == key]
        names = dict.fromkeys(record["controller"] for record in here)
        rows = {name: [record for record in here if record["controller"] == name] for name in names}
        means = {
            name: of_seeds("gain", [float(record["own"]) for record in same], least=0.0, largest=WHOLE)
            for name, same in rows.items()
        }
        most = max(float(mean["gain"]) for mean in means.values())
        for controller, same in rows.items():
            own = means[controller]
            yield {
                "trained_on": same[0]["trained_on"],
                "graph": key[1],
                "costs": key[2],
                "controller": controller,
                "seeds": len(same),
                **own,
                "share": 100 * float(own["gain"]) / most if most > 0 else "",
                "random": mean_of(same, "random"),
                **counts_of(same),
                "minutes": mean_of(same, "minutes"),
            }


def finding(rows: Sequence[Record]) -> str:
    """Returns what share of the largest gain each row has on average, in a sentence."""
    shares: dict[str, list[float]] = {}
    for row in rows:
        if row["share"] != "":
            shares.setdefault(row["controller"], []).append(float(row["share"]))
    said = ", ".join(f"{name} {sum(each) / len(each):.0f} %" for name, each in shares.items())
    return f"Mean share of the largest gain of all rows: {said}."
