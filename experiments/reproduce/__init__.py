"""Tables and figures of the papers and of this project: `rlflow reproduce NAME`.

A module that makes one table has `add_options(parser)`, which adds the options of this table alone, and
`reproduce(options, progress)`, which returns the table. A module that makes several tables has an `Experiment` for
each. Most tables run their units of work with an executor (`experiments.executors`).

Finished units are kept in `runs/reproduce/NAME/units` and are not done again. Some tables share the units of another
one: `discrepancy-rules` those of `discrepancy`; `ablations`, `peers`, `headline`, `table2`, `transfer`, X-RLflow's
tables and all figures but `fig-pairwise` those of `controllers`; and all other tables of world models except
`mechanisms` and `truth` those of `accuracy`. The tables about fusion share those of `fusion-table1`. The units of
`accuracy`, `mechanisms`, `controllers`, `transfer`, `truth`, `table1` and `table3` have the same results on every
machine, if no costs are measured, and are also looked for in `experiments/results/NAME/units`. `never-slower`,
`contributions`, `anytime`, `repeats`, `sample-efficiency` and `baselines` share the runs of `rlflow optimise` in
`runs/reproduce/defaults/units`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # the command line lists the tables without importing it
    from experiments.reproduce.table import Experiment


class Entry(NamedTuple):
    """The module that makes a table, and its line of help.

    Attributes:
      module: the module relative to this package; with ":NAME" behind it if the table is its `Experiment` NAME.
      about: one line for the help.
    """

    module: str
    about: str


TABLES = {
    "headline": Entry("papers.headline", "what controllers gain on paper and by the clock, and what it takes"),
    "table1": Entry("papers.table1", "properties of the graphs and the rewrites that they allow (Table I)"),
    "table2": Entry("papers.table2", "time and memory of an inference against TensorFlow, by controller (Table II)"),
    "table3": Entry("papers.table3", "does a warmer dream make the real result better? sweeps of it (Table III)"),
    "fig-rewards": Entry(
        "papers.rewards", "the reward functions of the papers, and weights of time and memory from 0 to 1 (Figure 6)"
    ),
    "fig-search": Entry("papers.curves:SEARCH", "cost of the best graph of a search, step by step"),
    "fig-modelfree": Entry("papers.curves:MODEL_FREE", "return of PPO in the real environment, by updates"),
    "fig-wmloss": Entry("papers.curves:LOSSES", "losses of the MDN-RNN, by gradient steps"),
    "fig-dreamreward": Entry("papers.curves:DREAM_REWARD", "return of PPO in the dream, by updates"),
    "fig-convergence": Entry(
        "papers.convergence", "learning without and with a world model, by real steps and by seconds (Figure 4.11)"
    ),
    "fig-runtime": Entry("papers.runtime", "run time of the graphs of each controller, as a picture (Figure 7)"),
    "fig-real-rewards": Entry(
        "papers.real_rewards", "rewards by the clock, averaged over N runs: time of a step against gain (section 3.2.4)"
    ),
    "fig-heatmap": Entry("papers.heatmap", "rules that are applied on each graph"),
    "fig-opttime": Entry("papers.opttime", "optimisation time, with learning and without"),
    "rule-sets": Entry(
        "search.rule_sets", "which rules apply to each zoo graph and what they find, against another rule set"
    ),
    "saturation": Entry(
        "search.saturation", "equality saturation: what it finds and takes, beside TASO's search (Tensat's comparison)"
    ),
    "peers": Entry(
        "search.peers", "searches, saturation, partially equal rules and learning, after 10, 60 and 600 seconds"
    ),
    "partial": Entry(
        "search.partial", "what partially equal rules add at batch 1 and 16, beside the published times of PET and TASO"
    ),
    "end-to-end": Entry(
        "search.end_to_end", "what rewriting gains on this machine when candidates are ranked by the clock"
    ),
    "discrepancy": Entry(
        "cost_model.discrepancy",
        "what the measured cost model predicts for whole and for rewritten graphs, against the clock",
    ),
    "discrepancy-rules": Entry(
        "cost_model.discrepancy:RULES", "the same rule by rule: what each does where it is applied wherever it applies"
    ),
    "learned": Entry(
        "cost_model.learned", "what predicted kernel prices are worth for networks that were never seen; times nothing"
    ),
    "shortlist": Entry("cost_model.shortlist", "which graphs to time when few can be; times nothing"),
    "never-slower": Entry(
        "search.never_slower", "what rlflow optimise makes of the zoo, or of your models, checked end to end"
    ),
    "controllers": Entry(
        "search.controllers", "what every controller makes of the same graphs on paper: searches, planners and learners"
    ),
    "ablations": Entry("search.ablations", "what each part of learning brings: runs that differ in one setting each"),
    "transfer": Entry("search.transfer", "what controllers make of graphs and costs that they were not trained for"),
    "xrlflow-table1": Entry(
        "xrlflow.costs", "X-RLflow: the sum of kernels against the time of the whole graph (Table 1)"
    ),
    "xrlflow-table2": Entry(
        "xrlflow.results:TABLE2", "X-RLflow: what TASO's search saves, also with PET's rules (Table 2)"
    ),
    "xrlflow-table3": Entry("xrlflow.steps", "X-RLflow: candidates in a step (Table 3)"),
    "xrlflow-table4": Entry("xrlflow.settings", "X-RLflow: hyperparameters (Table 4)"),
    "xrlflow-fig4": Entry("xrlflow.results:FIGURE4", "X-RLflow: time that graphs save against TASO's (Figure 4)"),
    "xrlflow-fig5": Entry("xrlflow.results:FIGURE5", "X-RLflow: rules that are applied on each graph (Figure 5)"),
    "xrlflow-fig6": Entry("xrlflow.results:FIGURE6", "X-RLflow: optimisation time (Figure 6)"),
    "xrlflow-fig7": Entry("xrlflow.results:FIGURE7", "X-RLflow: input shapes that it was not trained for (Figure 7)"),
    "xrlflow-fig8": Entry(
        "xrlflow.results:FIGURE8", "X-RLflow: beside equality saturation and TASO, by the clock (Figure 8)"
    ),
    "xrlflow-curve": Entry("xrlflow.curve", "X-RLflow: all 1000 episodes on two small networks"),
    "xrlflow-rewards": Entry("xrlflow.rewards", "X-RLflow: rewards by the clock against rewards by prices"),
    "xrlflow-compare": Entry(
        "xrlflow.compare", "X-RLflow: what candidate graphs and attention buy, beside the other controllers"
    ),
    "sample-efficiency": Entry(
        "search.sample_efficiency", "timings of whole graphs that controllers need to come near the fastest graph"
    ),
    "contributions": Entry("search.contributions", "what each family of rules contributes to these results"),
    "anytime": Entry("search.anytime", "what a search by the clock has gained after so many seconds, as a picture too"),
    "repeats": Entry("search.repeats", "how much results vary between seeds, also beside a busy neighbour"),
    "baselines": Entry(
        "baselines.table", "time and memory of other tools and of our best graphs, as ratios in one interleaved run"
    ),
    "steptime": Entry(
        "speed.steptime", "what a step takes in the real environment and in the dream, beside the papers' figures"
    ),
    "accuracy": Entry(
        "world_model.accuracy:ACCURACY", "what trained world models predict, and what policies make of their dreams"
    ),
    "accuracy-curve": Entry(
        "world_model.curve:CURVE",
        "how accuracy grows with the real steps that a world model is trained on, as a picture too",
    ),
    "accuracy-ablations": Entry(
        "world_model.comparisons:ABLATIONS",
        "what helps a world model to predict: settings that differ in one thing each",
    ),
    "accuracy-transfer": Entry(
        "world_model.accuracy:TRANSFER", "what world models predict of graphs that they were not trained on"
    ),
    "exploit": Entry("world_model.comparisons:EXPLOIT", "what keeps a policy from living on the mistakes of its dream"),
    "truth": Entry(
        "world_model.truth", "how far dreams are from reality for all that plays or plans in them, and the alarm"
    ),
    "mechanisms": Entry(
        "world_model.mechanisms", "what each mechanism brings that the published design does not have, left out alone"
    ),
    "fusion-table1": Entry(
        "fusion.tables:TABLE1",
        "fusion plans from the compiler's: what searches find, by queries (local advantages, Table 1)",
    ),
    "fusion-figure1": Entry("fusion.tables:FIGURE1", "the same from random plans (local advantages, Figure 1)"),
    "fusion-ablations": Entry(
        "fusion.tables:ABLATIONS_TABLE", "what guided fusion search owes to its parts, one change in each row"
    ),
    "fusion-groups": Entry(
        "fusion.groups:GROUPS", "what ONNX Runtime's fused operators save, by the prices of plans and by the clock"
    ),
    "placement-table1": Entry("placement.table1", "operators and groups of the networks that are placed on devices"),
    "placement-table2": Entry(
        "placement.table2", "time of a step by placement on 2 and 4 K80, simulated (Mirhoseini et al. 2017)"
    ),
    "placement-zero-shot": Entry(
        "placement.zero_shot", "placements of networks that a policy was not trained on: PPO with a graph encoder"
    ),
    "placement-figures": Entry(
        "placement.figures", "placements by colour, a Gantt chart of computation and copies, and the course of searches"
    ),
    "fig-pairwise": Entry(
        "cost_model.fig_pairwise",
        "how run time goes with operations, memory accesses and kernel launches, as a picture too",
    ),
}
"""The tables by the name that `rlflow reproduce` takes."""


def load(name: str) -> Experiment:
    """Imports the module of a table and returns its experiment."""
    from experiments.reproduce.table import Experiment

    path, _, attribute = TABLES[name].module.partition(":")
    module = importlib.import_module(f"experiments.reproduce.{path}")
    if attribute:
        experiment: Experiment = getattr(module, attribute)
        return experiment
    return Experiment(module.__doc__ or "", module.add_options, module.reproduce)
