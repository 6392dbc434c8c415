"""The time that rewriting saves on this machine if the clock ranks the candidates.

rlflow reproduce end-to-end

A hill climb from the cleaned input graph measures its candidates (`controller.search.climb`). The ratio in the table
comes from a new measurement of the final graph against the input. At full scale a climb measures no further candidate
after 15 minutes, or after `--seconds`. A unit takes up to 20 minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from controller.search.climb import ClimbController
from controller.search.replayed import SearchLimits, StopCause
from environment import GraphSubstitutionEnv, zoo
from environment.costs.prices.settings import setting_of
from environment.inputs import TIMED_ON
from environment.measurement.effort import Effort
from environment.measurement.timing import Variant, measure
from environment.runtimes import OnnxRuntime
from environment.statistics.sequential import Verdict
from experiments.errors import require_at_least
from experiments.executors.local import Unit
from experiments.executors.units import Record, once, unit_path
from experiments.reproduce.options import add_device, add_graphs, add_threads, chosen_graphs, chosen_threads, run_units
from experiments.reproduce.table import Table
from experiments.runs.progress import ProgressDisplay
from experiments.runs.result import NOISE
from taso_ext import OnnxModel, RuleSet
from taso_ext.onnx_io.session import LEVELS

SECONDS = {"smoke": 60.0, "full": 900.0}
"""Limits of time of a climb."""
MOST_GRAPHS = 10_000
QUICK = ("squeezenet1.1", "bert-base", "nasrnn")
"""The graphs whose tiny variants a quick look at the scale `smoke` is content with."""
FINAL = {"smoke": Effort(resolution=None, pairs=10, sessions=2), "full": Effort(resolution=None, pairs=40, sessions=5)}

COLUMNS = {
    "graph": "cleaned in full",
    "input_ms": "one inference of the input graph",
    "ratio": "time of the best graph over that of the input, below 1 is faster",
    "low": "95 % interval of the ratio, lower end",
    "high": "upper end",
    "control": "the input against itself, measured at the same time, with its interval",
    "verdict": "of these samples: faster or slower beyond noise, or undecided",
    "steps": "rewrites of the best graph",
    "tried": "candidates measured",
    "ended": "why: nothing left that helps (top), no graph left to time, or no time left",
    "rules": "of the best graph, with how often each was applied",
}
ENDED = {StopCause.LOCAL_OPTIMUM: "top", StopCause.BUDGET: "graphs", StopCause.TIME: "time"}
FORMATS = {"input_ms": ".2f", "ratio": ".3f", "low": ".3f", "high": ".3f"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser)
    add_device(parser)
    add_threads(parser)
    parser.add_argument("--level", choices=LEVELS, default="all", help="how much ONNX Runtime optimises (all)")
    parser.add_argument("--seconds", metavar="N", type=int, help="of a climb (smoke: 60, full: 900)")


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Climbs from each graph; finished graphs are not climbed again."""
    names = chosen_graphs(options, quick=QUICK)
    runtime = OnnxRuntime(options.device, chosen_threads(options), options.level)
    seconds = SECONDS[options.scale]
    if options.seconds is not None:
        require_at_least(1, seconds=options.seconds)
        seconds = float(options.seconds)
    units = [Unit(name, partial(climbed, name, options.scale, seconds, runtime)) for name in names]
    rows = run_units(units, options, progress, measures=True)
    return Table(
        f"What rewriting gains on {options.device}, {options.threads} thread{'s' * (options.threads > 1)}",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        f"{runtime.label}, on both sides. {len(RuleSet.default())} rules.",
        finding(rows),
    )


def finding(rows: Sequence[Record]) -> str:
    """Returns which graphs become faster, in a sentence."""
    faster = sorted((row for row in rows if row["verdict"] == Verdict.FASTER), key=lambda row: float(row["ratio"]))
    named = ", ".join(f"{row['graph']} takes {row['ratio']:.3f} of its time" for row in faster)
    return f"{len(faster)} of {len(rows)} graphs become faster beyond noise{': ' * bool(faster)}{named}."


def climbed(
    name: str, scale: str, seconds: float, runtime: OnnxRuntime, progress: ProgressDisplay | None = None
) -> Record:
    """Returns the row of one graph; a finished climb is not done again."""
    final, rules = FINAL[scale], RuleSet.default()
    settings = {
        "scale": {"seconds": seconds, "final_pairs": final.pairs, "final_sessions": final.sessions},
        "rules": rules.fingerprint,
        "setting": str(setting_of(runtime)),
        "feeds": TIMED_ON,
    }
    unit = f"{name}-{scale}"
    journal = unit_path("end-to-end", unit, settings).with_suffix(".jsonl")
    return once("end-to-end", unit, settings, lambda: _climb(name, rules, seconds, final, runtime, journal))


def _climb(name: str, rules: RuleSet, seconds: float, final: Effort, runtime: OnnxRuntime, journal: Path) -> Record:
    model = OnnxModel.load(zoo.build(name))
    env = GraphSubstitutionEnv(model, rules=rules)
    climb = ClimbController(runtime, SearchLimits(MOST_GRAPHS, seconds), journal=journal)
    climb.train(env)
    assert climb.actions is not None and climb.stop_reason is not None, "train has set them"
    best = model.export_checked(env.replay(climb.actions))
    timing = measure(
        Variant("input", runtime, model.export_checked(model.graph)), [Variant("best", runtime, best)], final
    )
    applied = [rules.names[rule] for rule, _ in climb.actions]
    return {
        "graph": name,
        "input_ms": timing.reference.ms.value,
        "ratio": timing.ratio.value,
        "low": timing.ratio.low,
        "high": timing.ratio.high,
        "control": str(timing.control and timing.control.ratio),
        "verdict": str(timing.candidates[0].verdict(NOISE)),
        "steps": len(climb.actions),
        "tried": climb.timed,
        "ended": ENDED[climb.stop_reason.cause],
        "rules": ", ".join(f"{applied.count(rule)} {rule}" for rule in dict.fromkeys(applied)),
        "actions": climb.actions,
        "pairs": timing.pairs,
    }
