"""What X-RLflow makes of the graphs of its paper, beside TASO's search.

    xrlflow-table2  time that TASO's search saves with and without PET's rules on ResNet-18 and ResNeXt-50 (Table 2)
    xrlflow-fig4    time that each controller's graph saves against TASO's, by the clock (Figure 4)
    xrlflow-fig5    rules that are applied on each graph (Figure 5)
    xrlflow-fig6    optimisation time (Figure 6)
    xrlflow-fig7    other input shapes: trained on one, played on several, by the clock (Figure 7)
    xrlflow-fig8    Tensat's equality saturation beside X-RLflow and TASO, by the clock (Figure 8)

rlflow reproduce xrlflow-table2
rlflow reproduce xrlflow-fig4
rlflow reproduce xrlflow-fig5
rlflow reproduce xrlflow-fig6
rlflow reproduce xrlflow-fig7
rlflow reproduce xrlflow-fig8

Controllers minimise prices; in Table 2 and Figures 4, 7 and 8 those of kernels on this machine, so that a thousand
episodes need no clock, and the clock judges the result. A run of X-RLflow takes up to half an hour, the others take a
few minutes. Figure 8 needs the extra `saturation`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from experiments.executors.units import Record
from experiments.reproduce.options import add_graphs, add_seeds, chosen_graphs, chosen_seeds
from experiments.reproduce.papers import heatmap, inference, opttime, runtime
from experiments.reproduce.papers.inference import ONNX_RUNTIME, Inferences, inferences, ratios_of, saved
from experiments.reproduce.papers.players import chosen_players, presets_of
from experiments.reproduce.search import transfer
from experiments.reproduce.search.partial import PRINTED
from experiments.reproduce.search.plays import ON_PAPER, SECONDS, Play, Player, slug
from experiments.reproduce.table import UNDEFINED, Experiment, Table, mean_of
from experiments.reproduce.xrlflow.rows import GRAPHS, QUICK, SEEDS, players
from experiments.runs.progress import ProgressDisplay
from taso_ext import RuleSet

OF_TABLE2 = ("resnet18", "resnext50")
OF_FIGURE8 = ("inception-v3", "squeezenet1.1", "resnext50", "bert-base")
"""The graphs of Figure 4 that Tensat's paper has too."""
ROWS = ("taso", "xrlflow")
TASO = "taso"
SHAPES: Mapping[str, Sequence[str]] = {
    "dalle-mini": [f"dalle-mini:sequence={tokens}" for tokens in (8, 32, 64)],
    "inception-v3": [f"inception-v3:image_size={size}" for size in (224, 256, 330)],
    "squeezenet1.1-tiny": ["squeezenet1.1-tiny:image_size=48"],
}
"""The shapes that are played, by the graph that was trained on; the last one is for a quick look."""
TRAINED_ON = {"smoke": ("squeezenet1.1-tiny",), "full": ("dalle-mini", "inception-v3")}

COLUMNS = {
    "graph": "as the zoo builds it",
    "row": "the controller whose graph is run",
    "seeds": "runs",
    "faster": "time that it saves against the graph of TASO's search, mean of the seeds [%]",
    "low": "95 % interval of this mean, lower end; of the measurement if there is one seed",
    "high": "upper end",
    "of_model": "time that it saves against the model itself in the same runtime, mean of the seeds [%]",
    "minutes": "for everything before this measurement, mean",
    "kernels": "timings of kernels, mean; those that an earlier run has made are not made again",
    "graphs": "timings of whole graphs, mean",
}
FORMATS = {
    **dict.fromkeys(("faster", "low", "high", "of_model", "minutes"), ".1f"),
    **dict.fromkeys(("kernels", "graphs"), ",.0f"),
}


def timed(
    options: argparse.Namespace, progress: ProgressDisplay, graphs: Sequence[str], rows: Mapping[str, Player]
) -> Inferences:
    """Returns the inferences of the controllers' graphs beside that of TASO's search and the model itself.

    Args:
      graphs: the default graphs.
      rows: the controllers by the names of their rows.
    """
    beside = (ONNX_RUNTIME,)
    return inferences(options, progress, memory=False, graphs=graphs, players=rows, reference=TASO, beside=beside)


def by_the_clock(title: str, found: Inferences, about: Sequence[str], options: argparse.Namespace) -> Table:
    """Returns the table of the times of graphs, which were measured beside that of TASO's search; `about` goes to the
    settings."""
    rows = [row for row in found.labels if row != ONNX_RUNTIME]
    made, times = list(rows_of(found, rows)), list(runtime.rows_of(found))
    return Table(
        title,
        COLUMNS,
        FORMATS,
        made,
        options.command_line,
        "\n".join(f"- {line}" for line in about),
        finding(made),
        {
            slug(name): partial(runtime.draw, name, [row for row in times if row["graph"] == name])
            for name in found.records
        },
    )


def rows_of(found: Inferences, rows: Sequence[str]) -> Iterator[Record]:
    """Yields a row for each controller on each graph."""
    for graph, records in found.records.items():
        for row in rows:
            known = [record for record in records if {row, TASO} <= record["times"]["ratios"].keys()]
            if not known:
                continue
            ratios = [ratios_of(record, TASO)[row] for record in known]
            alone = [ratios_of(record, ONNX_RUNTIME).get(row) for record in known]
            of_model = [100 * (1 - ratio.value) for ratio in alone if ratio is not None]
            runs = [play for play in found.plays if (play["graph"], play["controller"]) == (graph, row)]
            yield {
                "graph": graph,
                "row": row,
                "seeds": len(known),
                **saved("faster", ratios),
                "of_model": sum(of_model) / len(of_model) if of_model else UNDEFINED,
                "minutes": mean_of(runs, "minutes"),
                "kernels": mean_of(runs, "kernel_timings"),
                "graphs": mean_of(runs, "end_to_end_timings"),
            }


def finding(rows: Sequence[Record]) -> str:
    """Returns where each row is faster than TASO's graph beyond the interval, and where slower, in a sentence each."""
    said = []
    for row in dict.fromkeys(each["row"] for each in rows if each["row"] != TASO):
        known = [each for each in rows if each["row"] == row and isinstance(each["low"], float)]
        faster, slower = (
            [each["graph"] for each in known if (each["low"] > 0 if sign > 0 else each["high"] < 0)] for sign in (1, -1)
        )
        names = [
            f"{word} on {len(some)} ({', '.join(some) or 'none'})"
            for word, some in (("faster than TASO's graph", faster), ("slower", slower))
        ]
        said.append(f"`{row}` is {' and '.join(names)} of {len(known)} graphs beyond the interval.")
    return " ".join(said)


def _clocked(graphs: Sequence[str], rows: Sequence[str], title: str, printed: str = "") -> Experiment:
    """Returns the table of the times of some rows' graphs; `printed` says what the paper prints."""

    def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
        chosen = chosen_players(rows, options)
        found = timed(options, progress, graphs, chosen)
        about = [*found.about(presets_of(chosen)), *filter(None, [printed])]
        return by_the_clock(title, found, about, options)

    return Experiment(__doc__ or "", partial(inference.add_options, graphs=graphs, seeds=SEEDS), reproduce)


TABLE2 = _clocked(
    OF_TABLE2,
    (TASO, "taso partial"),
    "What TASO's search saves without and with PET's rules, by the clock",
    "The paper prints "
    + "; ".join(f"{graph}: PET {pet} ms, TASO {taso} ms" for (graph, _), (pet, taso) in PRINTED.items())
    + ".",
)
FIGURE4 = _clocked(
    GRAPHS,
    ROWS,
    "Time that graphs save against TASO's, by the clock",
    "The paper prints up to 40 % on a GPU, on ViT.",
)
FIGURE8 = _clocked(
    OF_FIGURE8,
    (*ROWS, "saturation k1"),
    "Equality saturation beside X-RLflow, by the clock",
    "Tensat's paper prints up to 16 % against TASO's graphs on a GPU.",
)
FIGURE5 = Experiment(
    __doc__ or "",
    partial(heatmap.add_options, graphs=GRAPHS, seeds=SEEDS, row="xrlflow"),
    partial(heatmap.reproduce, graphs=GRAPHS, of_seeds=SEEDS),
)


def optimisation_time(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Returns the table of optimisation times."""
    names, seeds = chosen_graphs(options, GRAPHS, QUICK), chosen_seeds(options, SEEDS)
    rows = opttime.times(players(ROWS), names, seeds, options, progress)
    slow = [row for row in rows if row["row"] == "xrlflow"]
    most = max(float(row["seconds"]) for row in slow)
    return Table(
        "Optimisation time",
        {key: text for key, text in opttime.COLUMNS.items() if key != "printed"},
        opttime.FORMATS,
        rows,
        options.command_line,
        f"{ON_PAPER[0]}; {len(RuleSet.default())} rules. The paper's Figure 6: TASO up to 75 s, X-RLflow up to 200 s, "
        "without its training.",
        f"With its learning, X-RLflow takes up to {most:.0f} s; the episodes at the end, which the paper counts, take "
        f"up to {max(float(row['playing']) for row in slow):.0f} s.",
    )


def _add_runs(parser: argparse.ArgumentParser) -> None:
    add_graphs(parser, ", ".join(GRAPHS))
    add_seeds(parser, SEEDS)


FIGURE6 = Experiment(__doc__ or "", _add_runs, optimisation_time)


def other_shapes(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Returns the table of other input shapes.

    Raises:
      UserError: no shapes are known of a graph.
    """
    names = transfer.known(options.graphs or TRAINED_ON[options.scale], SHAPES)
    plays = {
        (shape, seed): moved(name, shape, seed, options)
        for seed in chosen_seeds(options, SEEDS)
        for name in names
        for shape in (name, *SHAPES[name])
    }
    found = inference.inferences_of(plays, options, progress, memory=False, reference=TASO, beside=(ONNX_RUNTIME,))
    presets = f"`xrlflow` was trained on {' and '.join(names)} alone. {presets_of(players(('xrlflow',)))}"
    return by_the_clock("Other input shapes, without training for them", found, found.about(presets), options)


def moved(name: str, shape: str, seed: int, options: argparse.Namespace) -> dict[str, inference.Playable]:
    """Returns the runs on a shape: TASO's search there, and X-RLflow as it was trained on another one.

    Args:
      name: the graph that was trained on.
      shape: the graph that is played, which may be the same one.
    """
    costs, rows, scale = inference.chosen_costs(options), players(ROWS), options.scale

    def play_of(row: str, graph: str, own_seed: int) -> Play:
        return Play(graph, row, rows[row], scale, SECONDS[scale], own_seed, costs, options.device)

    trained = play_of("xrlflow", name, seed)
    return {
        TASO: play_of(TASO, shape, 0),
        "xrlflow": trained if shape == name else transfer.Move(trained, shape, costs),
    }


FIGURE7 = Experiment(
    __doc__ or "", partial(inference.add_measured, graphs=TRAINED_ON["full"], seeds=SEEDS), other_shapes
)
