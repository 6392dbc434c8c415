"""What each family of rules contributes to the results of `rlflow optimise`.

rlflow reproduce contributions

The results are those of `rlflow reproduce never-slower`, which takes up to ten minutes for each graph. Of each one,
the rewrites by the rules of one family, a file of `taso_ext/rules`, are left out, with those rewrites that need them.
What remains is timed against the whole result, all families of a graph in one interleaved run.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from controller.search.journal import Actions
from environment import GraphSubstitutionEnv
from environment.measurement.timing import Variant, measure
from environment.statistics.sequential import Verdict
from environment.substitution.omission import leave_out
from experiments.executors.local import Unit
from experiments.executors.units import Record, once
from experiments.pipeline.clock.measure import floor_of, runtime_of
from experiments.pipeline.loading.load import find_model
from experiments.reproduce.options import add_device, add_graphs, run_units
from experiments.reproduce.search.default_runs import LAST, DefaultRun, add_models, chosen_models, finished_run
from experiments.reproduce.table import Table
from experiments.runs.progress import ProgressDisplay
from taso_ext import OnnxModel, RuleSet

TABLE = "contributions"
COLUMNS = {
    "graph": "as the zoo builds it, or as its file has it",
    "family": "file of `taso_ext/rules` whose rules are left out",
    "rewrites": "of the result that are by rules of the family",
    "gone": "rewrites of the result that are missing without the family",
    "ratio": "time without the family over the time of the result; above 1, the family helps",
    "low": "95 % interval of the ratio, lower end",
    "high": "upper end",
    "verdict": "whether the graph without the family is faster or slower, beyond noise",
}
FORMATS = dict.fromkeys(("ratio", "low", "high"), ".3f")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this table has."""
    add_graphs(parser)
    add_models(parser)
    add_device(parser)


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Measures each result without each family; what is finished is not done again."""
    runs = [DefaultRun(model, options.scale, options.device) for model in chosen_models(options)]
    units = [Unit(f"{run.name}: contributions", partial(contributions, run)) for run in runs]
    rows = [row for record in run_units(units, options, progress, measures=True) for row in record["rows"]]
    return Table(
        f"What each family of rules contributes on {options.device}",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        "Graphs whose result is the model itself have no rows.",
        finding(rows),
    )


def finding(rows: Sequence[Record]) -> str:
    """Returns which families help, and for how many graphs, in a sentence."""
    helps = Counter(row["family"] for row in rows if row["verdict"] == Verdict.SLOWER)
    listed = ", ".join(f"{family} ({count})" for family, count in helps.most_common()) or "none"
    return f"Families without which a result is slower beyond noise, and the number of graphs: {listed}."


def family_of(rules: RuleSet, rule: int) -> str:
    """Returns the name of the file that a rule stands in."""
    return Path(rules.place(rule)[0]).stem


def contributions(run: DefaultRun, progress: ProgressDisplay) -> Record:
    """Returns under "rows" the row of each family of one result; done once."""
    finished_run(run, progress)
    return once(TABLE, f"{run.name}-{run.scale}", run.settings, lambda: {"rows": _measured(run)})


def _measured(run: DefaultRun) -> list[Record]:
    actions, rules = run.actions(), RuleSet.default()
    if not actions:
        return []
    model, runtime = OnnxModel.load(find_model(run.model).build()), runtime_of(run.config)
    env = GraphSubstitutionEnv(model, rules=rules, max_locations=run.config.environment.max_locations)
    uses = Counter(family_of(rules, rule) for rule, _ in actions)
    left = {family: _without(env, actions, rules, family) for family in uses}

    def variant(name: str, plan: Sequence[tuple[int, int]]) -> Variant:
        return Variant(name, runtime, model.export_checked(env.replay(plan)))

    variants, result = [variant(family, plan) for family, plan in left.items()], variant("result", actions)
    found = measure(result, variants, LAST[run.scale])
    control = None if found.control is None else found.control.ratio
    return [
        {
            "graph": run.name,
            "family": each.name,
            "rewrites": uses[each.name],
            "gone": len(actions) - len(left[each.name]),
            "ratio": each.ratio.value,
            "low": each.ratio.low,
            "high": each.ratio.high,
            "verdict": str(each.verdict(floor_of(control))),
        }
        for each in found.candidates
    ]


def _without(env: GraphSubstitutionEnv, actions: Actions, rules: RuleSet, family: str) -> list[tuple[int, int]]:
    """Returns what remains of a plan without the rules of a family."""
    env.reset()
    omitted = {at for at, (rule, _) in enumerate(actions) if family_of(rules, rule) == family}
    return leave_out(env.state, actions, omitted)
