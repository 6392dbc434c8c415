"""The effect of each mechanism that the published design does not have.

rlflow reproduce mechanisms

Each mechanism is left out alone, and all of them together, at the settings of the preset `demo`. A mechanism moves a
figure if leaving it out changes the figure beyond chance and beyond the spread of the seeds (see `VERDICT`). A unit of
work is one graph, setting and seed. The order is breadth first, so that whatever is finished says something of every
mechanism: all settings of the first seed come before the second seed. On one core, the settings of a graph and seed
take 37 minutes (SqueezeNet1.1) to two hours (BERT-Base).
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from environment.statistics.paired import paired_test
from experiments.config.run import RunConfig
from experiments.config.tree import parse_overrides, replaced
from experiments.executors.local import Unit, finished
from experiments.executors.units import Record, once
from experiments.reproduce.options import add_graphs, add_seeds, chosen_graphs, chosen_seeds, named, run_units
from experiments.reproduce.search.plays import PREDICTED
from experiments.reproduce.table import UNDEFINED, Table
from experiments.runs.progress import ProgressDisplay
from experiments.studies import study
from experiments.studies.evaluation import GREEDY, RANDOM
from experiments.studies.exploiters import Planning
from experiments.studies.mechanisms import (
    BEAM,
    CROSS_ENTROPY,
    EVERYTHING,
    IN_DREAMS,
    PLAY,
    POLICY,
    PREDICTION,
    Case,
    Part,
)
from experiments.studies.policy import FOR_REAL, IN_THE_DREAM
from experiments.studies.setting import OF_PLAY, Effort, Setting, agree, figures_fingerprint, sections_of
from experiments.studies.study import USED, Scale, training_config
from worldmodel.accuracy import figure_names as names

TABLE, FULL = "mechanisms", "full"
ENCODER, MDN_RNN = "world_model.encoder", "world_model.mdn_rnn"


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """A mechanism that can be left out.

    Attributes:
      assignments: the settings that leave it out, as for `--set`.
      parts: the parts that it can change; all others are taken from the full setting.
    """

    assignments: tuple[str, ...]
    parts: frozenset[Part]


MECHANISMS = {
    "strict threshold": Mechanism(("dream.legal_from=0.5",), IN_DREAMS),
    "known ranges": Mechanism((f"{MDN_RNN}.hold_changes=false",), EVERYTHING),
    "cost in the latent": Mechanism((f"{ENCODER}.total_time=false",), EVERYTHING),
    "neighbourhoods": Mechanism((f"{MDN_RNN}.neighbours=0",), EVERYTHING),
}
ALL = "all of them"
MECHANISMS[ALL] = Mechanism(tuple(each for one in MECHANISMS.values() for each in one.assignments), EVERYTHING)

SCALES = {
    "smoke": Scale(
        "demo", (*study.SCALES["smoke"].overrides, "evaluate.sampled_episodes=2"), study.SCALES["smoke"].effort
    ),
    "full": Scale(
        "demo",
        (*study.ON_PAPER, *PREDICTED, "recollect.rounds=2", "environment.max_steps=30", "ppo.horizon=50"),
        Effort(episodes=100),
    ),
}
PLANNING = {"smoke": Planning(width=4, population=8, elites=4, iterations=2), "full": Planning()}
GRAPHS = {
    "smoke": ("squeezenet1.1-tiny",),
    "full": ("squeezenet1.1", "composed-0", "bert-base", "composed-1"),
}
SEEDS = "0,1,2"
ALL_GRAPHS = "all graphs"
SIGNIFICANT = 0.05


@dataclasses.dataclass(frozen=True)
class Measure:
    """One figure of a unit.

    Attributes:
      part, keys: the place of the figure in a unit. For predictions the keys are the play and the name, to which the
        number of steps is added.
      meaning: the meaning of the figure, for the table.
      more_is_better: whether a larger figure is better; otherwise a smaller one is.
      steps: for predictions, the number of steps; if fewer were evaluated, the largest number of these.
    """

    part: Part
    keys: tuple[str, str] | tuple[str]
    meaning: str
    more_is_better: bool = False
    steps: int = 0


MEASURES = {
    **{
        f"{column}{suffix}": Measure(PREDICTION, (play, name), f"{meaning}, {play} play", better, steps)
        for column, name, steps, better, meaning in (
            ("reward", names.REWARD_RANKS, 1, True, "rank correlation of one reward"),
            ("total", names.TOTAL_R2, 20, True, "R² of the total of 20 steps"),
            ("masks", names.MASK_ERROR, 10, False, "wrong bits after 10 steps per wrong bit of copying"),
            ("latents", names.LATENT_ERROR, 20, False, "error of latents after 20 steps per error of copying"),
        )
        for suffix, play in (("", RANDOM), ("_greedy", GREEDY))
    },
    "policy_real": Measure(POLICY, (FOR_REAL, "real_percent"), "policy of PPO, real masks: real improvement [%]", True),
    "policy_gap": Measure(POLICY, (FOR_REAL, "gap"), "policy of PPO, real masks: |dreamed - real| [points]"),
    "policy_dream_gap": Measure(POLICY, (IN_THE_DREAM, "gap"), "policy of PPO in the dream, then replayed: the same"),
    "policy_illegal": Measure(POLICY, (IN_THE_DREAM, "illegal_share"), "the same: share of illegal rewrites"),
    "beam_gap": Measure(BEAM, ("gap",), "plan of the beam search, replayed: |dreamed - real| [points]"),
    "beam_illegal": Measure(BEAM, ("illegal_share",), "the same: share of illegal rewrites"),
    "cross_entropy_gap": Measure(CROSS_ENTROPY, ("gap",), "plan of the cross-entropy planning, replayed: the gap"),
    "cross_entropy_illegal": Measure(CROSS_ENTROPY, ("illegal_share",), "the same: share of illegal rewrites"),
    "play": Measure(PLAY, ("best_percent",), "controller, deterministic: real improvement [%]", True),
    "play_sampled": Measure(
        PLAY, ("sampled_percent",), "controller, sampled episodes: mean real improvement [%]", True
    ),
    "play_gap": Measure(PLAY, ("gap",), "controller, all its episodes: |dreamed - real| [points]"),
}

COLUMNS = {
    "mechanism": "what is left out",
    "graph": f"cleaned in full, under the cost model of the settings; {ALL_GRAPHS}: see below",
    "figure": "; ".join(f"{name}: {measure.meaning}" for name, measure in MEASURES.items()),
    "full": "with all mechanisms, mean over seeds",
    "without": "the same without this one",
    "difference": "without - full, mean over seeds",
    "spread": "standard deviation over seeds, pooled over both settings",
    "in_spreads": "the difference in units of the spread",
    "p_value": "of a paired t-test that the difference is 0",
    "verdict": "see below",
    "seeds": "how many have both settings",
}
FORMATS = {**dict.fromkeys(("full", "without", "difference", "spread"), ".3f"), "in_spreads": ".1f", "p_value": ".3f"}
NOTHING, WORSE, BETTER = "moves nothing", "worse without", "better without"
VERDICT = (
    "A mechanism moves a figure if the 95 % interval of the paired difference over seeds excludes 0 (p below "
    f"{SIGNIFICANT}) and the difference is larger than the spread of the seeds. '{WORSE}' then speaks for the "
    f"mechanism and '{BETTER}' against it. Of fewer than two seeds nothing is said. By chance alone one figure in "
    f"twenty moves on a graph; '{ALL_GRAPHS}' tests the differences of all seeds and graphs together, each in units of "
    "the spread on its graph, and is the row to decide by."
)
SUMMARY_COLUMNS = {"mechanism": "what is left out; by graph, the figures that it moves"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser, default=", ".join(GRAPHS["full"]))
    add_seeds(parser, SEEDS)
    parser.add_argument("--without", metavar="A,B,…", help=f"mechanisms to leave out (all: {', '.join(MECHANISMS)})")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="override a setting of the preset (repeatable)"
    )
    parser.add_argument("--finished", action="store_true", help="make the table of the units that are finished")


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Trains and evaluates every setting on each graph and seed; finished units are not done again."""
    assignments = tuple(options.set)
    config = _config(options.scale, assignments)
    chosen = chosen_graphs(options, GRAPHS[options.scale])
    mechanisms = named(options.without, MECHANISMS, "mechanism")
    keys = [
        (label, graph, seed)
        for seed in chosen_seeds(options, SEEDS)
        for graph in chosen
        for label in (FULL, *mechanisms)
    ]
    units = [
        Unit(
            f"{graph} {label} seed {seed}",
            functools.partial(_unit, label, graph, seed, options.scale, assignments),
            lane=f"{graph} seed {seed}",
        )
        for label, graph, seed in keys
    ]
    done = finished(units) if options.finished else run_units(units, options, progress)
    found = {key: record for key, record in zip(keys, done, strict=True) if record is not None}
    rows = list(_rows(found, list(mechanisms), chosen))
    return Table(
        "What each mechanism brings that the published design does not have",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        f"{config.costs}. {VERDICT}",
        finding=f"{len(found)} of {len(keys)} units are finished; the same command does the others.",
        summary=_summary(rows, list(mechanisms), chosen),
    )


def _unit(
    label: str,
    graph: str,
    seed: int,
    scale: str,
    assignments: tuple[str, ...],
    progress: ProgressDisplay,
) -> Record:
    """Trains and evaluates one setting; what its mechanism cannot change is taken from the full one.

    Args:
      label: the mechanism that is left out, or `FULL`.
      assignments: the assignments of `--set`.
    """
    mechanism = Mechanism((), EVERYTHING) if label == FULL else MECHANISMS[label]
    config = replaced(_config(scale, assignments), parse_overrides(mechanism.assignments), f"what is without {label}")
    settings = Setting(graph, config).seeded(seed).record() | {
        **sections_of(config, OF_PLAY),
        "effort": dataclasses.asdict(SCALES[scale].effort),
        "planning": dataclasses.asdict(PLANNING[scale]),
        "figures": figures_fingerprint(),
    }

    def work() -> Record:
        shared = EVERYTHING - mechanism.parts
        of_full = _unit(FULL, graph, seed, scale, assignments, progress) if shared else {}
        begun = time.process_time()
        case = _case(graph, seed, scale, assignments)
        case.progress = progress
        found = case.examine(config, mechanism.parts) | {part: of_full[part] for part in shared}
        spent = {"cpu_seconds": time.process_time() - begun}
        return {"settings": settings, "without": label, "spent": spent, **found}

    name = FULL if label == FULL else f"without-{label.replace(' ', '-')}"
    return once(TABLE, f"{graph}-{name}-seed{seed}", settings, work, anywhere=True, agree=agree)


@functools.lru_cache(maxsize=1)
def _case(graph: str, seed: int, scale: str, assignments: tuple[str, ...]) -> Case:
    """Returns a case and keeps the last one, since all its settings share its random play and held-out episodes."""
    return Case(graph, seed, _config(scale, assignments), SCALES[scale].effort, PLANNING[scale])


def _config(scale: str, assignments: tuple[str, ...]) -> RunConfig:
    return training_config(SCALES[scale], assignments, used=(*USED, "evaluate"))


def _rows(
    found: Mapping[tuple[str, str, int], Record], mechanisms: Sequence[str], chosen: Sequence[str]
) -> list[Record]:
    """Returns one row for each mechanism, graph and figure that some seed has with and without the mechanism.

    If several graphs have a figure for two seeds or more, one more row is for these graphs together.
    """
    rows = []
    for label in mechanisms:
        of_graphs: dict[str, list[np.ndarray]] = {name: [] for name in MEASURES}
        for graph in chosen:
            seeds = [seed for *key, seed in found if key == [label, graph] and (FULL, graph, seed) in found]
            for name, measure in MEASURES.items():
                pairs = [[_value(found[key, graph, seed], measure) for key in (FULL, label)] for seed in seeds]
                there = np.array([pair for pair in pairs if np.isfinite(pair).all()])
                if len(there):
                    common = {"mechanism": label, "graph": graph, "figure": name}
                    rows.append(common | compared(there, more_is_better=measure.more_is_better))
                if len(there) > 1:
                    of_graphs[name].append(there)
        for name, measure in MEASURES.items():
            if len(of_graphs[name]) > 1:
                common = {"mechanism": label, "graph": ALL_GRAPHS, "figure": name}
                rows.append(common | compared_over_graphs(of_graphs[name], more_is_better=measure.more_is_better))
    return rows


def _value(record: Record, measure: Measure) -> float:
    """Returns a figure of a unit; NaN if the unit does not have it."""
    found: Any = record[measure.part]
    if measure.part == PREDICTION:
        play, name = measure.keys[0], measure.keys[-1]
        steps = [step for step in range(1, measure.steps + 1) if f"{name} after {step}" in found[play]]
        found = found[play][f"{name} after {steps[-1]}"] if steps else None
    else:
        for key in measure.keys:
            found = found[key]
    return float("nan") if found is None else float(found)


def compared(pairs: np.ndarray, *, more_is_better: bool) -> Record:
    """Compares one figure with and without a mechanism.

    Args:
      pairs: [seeds, 2], the figure with all mechanisms and without this one.
    Returns:
      The columns of a row from "full" on; the test and the verdict are undefined for fewer than two seeds.
    """
    full, without = pairs.mean(axis=0)
    row: Record = {"full": full, "without": without, "difference": without - full, "seeds": len(pairs)}
    if len(pairs) < 2:
        return row | dict.fromkeys(("spread", "in_spreads", "p_value", "verdict"), UNDEFINED)
    spread = _spread(pairs)
    test = paired_test(pairs[:, 1], pairs[:, 0], method="t")
    in_spreads = test.difference / spread if spread else math.copysign(math.inf, test.difference)
    return row | {"spread": spread} | _verdict(in_spreads if test.difference else 0.0, test.p_value, more_is_better)


def compared_over_graphs(graphs: Sequence[np.ndarray], *, more_is_better: bool) -> Record:
    """Compares one figure with and without a mechanism over several graphs.

    Differences are in units of the spread of the seeds on their graph. A graph with a difference, but without any
    spread, has no such unit and is left out.

    Args:
      graphs: for each graph [seeds, 2], with two seeds or more, see `compared`.
    Returns:
      The columns of a row that do not depend on the unit of one graph.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        differences = [np.where(np.ptp(pairs, axis=1), np.diff(pairs)[:, 0] / _spread(pairs), 0.0) for pairs in graphs]
    units = np.concatenate([each for each in differences if np.isfinite(each).all()] or [np.zeros(2)])
    test = paired_test(units, np.zeros_like(units), method="t")
    undefined = dict.fromkeys(("full", "without", "difference", "spread"), UNDEFINED)
    return undefined | {"seeds": len(units)} | _verdict(test.difference, test.p_value, more_is_better)


def _spread(pairs: np.ndarray) -> float:
    """Returns the standard deviation over seeds, pooled over both settings."""
    return float(np.sqrt(pairs.var(axis=0, ddof=1).mean()))


def _verdict(in_spreads: float, p_value: float, more_is_better: bool) -> Record:
    moves = p_value < SIGNIFICANT and abs(in_spreads) > 1.0
    helps = (in_spreads < 0) == more_is_better
    verdict = NOTHING if not moves else WORSE if helps else BETTER
    return {"in_spreads": in_spreads, "p_value": p_value, "verdict": verdict}


def _summary(rows: Sequence[Record], mechanisms: Sequence[str], chosen: Sequence[str]) -> Table:
    """Returns the figures that each mechanism moves on each graph."""
    lines, several = [], [ALL_GRAPHS] if any(row["graph"] == ALL_GRAPHS for row in rows) else []
    for label in mechanisms:
        line: Record = {"mechanism": label}
        for graph in (*chosen, *several):
            here = [row for row in rows if (row["mechanism"], row["graph"]) == (label, graph)]
            line[graph] = _cell([row for row in here if row["verdict"] != UNDEFINED])
        lines.append(line)
    columns = SUMMARY_COLUMNS | dict.fromkeys((*chosen, *several), "the figures that it moves")
    return Table("Mechanisms", columns, {}, lines, "", VERDICT)


def _cell(rows: Sequence[Record]) -> str:
    if not rows:
        return UNDEFINED
    moved = {verdict: [row["figure"] for row in rows if row["verdict"] == verdict] for verdict in (WORSE, BETTER)}
    said = [f"{verdict}: {', '.join(figures)}" for verdict, figures in moved.items() if figures]
    return "; ".join(said) or NOTHING
