"""How well a trained world model predicts, beside trivial predictors, and what policies make of its dreams.

rlflow reproduce accuracy

World models are trained on random play. They are judged on held-out random and greedy play, from states that training
did not meet, and on what a policy trained in the dream does: for real, and in the dream, its actions replayed. Then
real episodes of the policy are added to the training data, the model goes on learning and another policy is trained, a
few times, unless nobody knows how to improve the graph; the last model is judged on held-out play again.

A unit of work is what is judged of one model or policy, of one graph, seed and round; finished units are not done again
(see `experiments.reproduce.units`).
`--set` changes how models are trained (as for `rlflow optimise`), so that every ablation is a command.
"""

from __future__ import annotations

import argparse
from functools import partial

from experiments.config.run import RunConfig
from experiments.reproduce.options import add_graphs, chosen_graphs
from experiments.reproduce.table import Table
from experiments.reproduce.units import Record
from experiments.reproduce.world_model.accuracy_rows import best_dream, best_known, raises_alarm, table_rows
from experiments.reproduce.world_model.accuracy_summary import summary
from experiments.runs.progress import ProgressDisplay
from experiments.studies import study
from experiments.studies.setting import Effort, Setting
from experiments.studies.study import COUNTS_FROM_PERCENT, SCALES, Study, seeds_of, training_config
from worldmodel.accuracy import figure_names as names
from worldmodel.accuracy.baselines import PREDICTORS
from worldmodel.accuracy.rewards_and_masks import RESOLUTION_PERCENT

GRAPHS = {
    "smoke": ("squeezenet1.1-tiny",),
    "full": ("inception-v3", "resnet18", "resnet50", "squeezenet1.1", "bert-base", "vit-base"),
}
"""Those of the papers, when none are named."""

COLUMNS = {
    "graph": "cleaned in full, under the cost model of the settings",
    "round": "of recollection; the model of round 0 was trained on random play only",
    "play": "whose episodes: held-out random or greedy ones, or those of the policy",
    "figure": "what is measured; rewards in percent, differences between dreams and reality in points",
    "step": "after how many steps without a look at reality",
    "model": "of the world model, mean over seeds",
    "low": "95 % interval of it, lower end: over seeds; with one seed, over its episodes",
    "high": "upper end",
    **{key: f"trivial predictor: {text}" for key, text in PREDICTORS.items()},
    "asked": "what is asked of the model; of policies in the last round",
    "met": f"whether it is; graphs whose best known improvement is under {COUNTS_FROM_PERCENT:g} % are not counted",
    "seeds": "how many there are",
    "windows": "predictions judged, or episodes of policies, over all seeds",
}
FORMATS = dict.fromkeys(("model", "low", "high", *PREDICTORS), ".3f")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options beside those of all tables."""
    add_graphs(parser, default="the six of the papers")
    study.add_options(parser)
    parser.add_argument("--without-policy", action="store_true", help="only judge predictions; train no policy")


def reproduce(options: argparse.Namespace, progress: ProgressDisplay) -> Table:
    """Trains and judges; finished units are not done again."""
    effort, config = SCALES[options.scale].effort, training_config(options)
    chosen = chosen_graphs(options.graphs or GRAPHS[options.scale])
    seeds = {name: seeds_of(name, options.seeds) for name in chosen}
    rounds = config.recollect.rounds
    rows: list[Record] = []
    for name in chosen:
        # A study anew wherever one is needed: what it has collected is let go when it is done.
        of_seed = partial(Study, Setting(name, config), effort=effort, progress=progress)
        search = of_seed(0).search()
        judged = [of_seed(seed).accuracy() for seed in seeds[name]]
        last = rounds if best_known(search, judged, []) >= COUNTS_FROM_PERCENT else 0  # of all seeds, or of none
        played: list[Record] = []
        for seed in seeds[name] if not options.without_policy else ():
            one = of_seed(seed)
            played += [one.exploit(number) for number in range(1 + last)]
            judged += [one.accuracy(last)] if last else []
        best_percent = best_known(search, judged, played)
        for record in (record for record in played if raises_alarm(record, best_percent)):
            progress.note(alarm(record, best_percent))
        rows += table_rows(name, best_percent, judged, played, effort.steps)
    return Table(
        "What world models predict of held-out episodes",
        COLUMNS,
        FORMATS,
        rows,
        options.command_line,
        notes(effort, config),
        summary=summary(rows, f"graphs whose best known improvement is under {COUNTS_FROM_PERCENT:g} %"),
    )


def alarm(played: Record, best_percent: float) -> str:
    """What is said of a dream that is too good to be true."""
    return (
        f"Alarm: {played['graph']}, seed {played['seed']}, round {played['round']}: the policy dreams of "
        f"{best_dream(played):.1f} % where the best known real result is {best_percent:.1f} %. "
        "It makes use of the model's mistakes: add rounds of recollection."
    )


def notes(effort: Effort, config: RunConfig) -> str:
    """What the table was made with."""
    collecting = config.collect
    made_with = (
        f"{config.costs}. Trained on {collecting.episodes} episodes of random play of up to "
        f"{config.environment.max_steps} steps; intervals are fitted on {collecting.held_out:.0%} of them, held out. "
        f"{held_out_notes(effort)} Each round adds {config.recollect.episodes} real episodes of the policy, and "
        f"{effort.policy_episodes} others are judged. Where the best known improvement is under "
        f"{COUNTS_FROM_PERCENT:g} %, a policy has nothing to find, and nothing is recollected. Policies dream at "
        f"τ = {config.dream.temperature:g}, and a rewrite is legal there from a probability of "
        f"{config.dream.legal_from:g}."
    )
    return "\n\n".join([made_with, MIXTURES, SITES, *([TELESCOPING] if config.ppo.telescoping else [])])


def held_out_notes(effort: Effort) -> str:
    """How predictions are judged."""
    return (
        f"Judged on {effort.episodes} other episodes of each kind of play, predicted from depth {effort.first} or "
        "deeper and from states that training did not meet, wherever they lead. A rewrite is predicted to be legal "
        "from a probability of one half; those that the table does not hold count as missed. In rank correlations, "
        f"rewards are equal that differ by less than {RESOLUTION_PERCENT:g} %. What is asked of counts of legal sites "
        "is asked of every rule by itself; how often those of all rules are right at once stands beside it."
    )


MIXTURES = (
    "Rewrites are deterministic: a mixture over the next latent can only model what the latent has forgotten of the "
    "graph and what the network has not learned. Where it has learned all, its scales fall to their floor, its "
    "intervals cover too much, and a temperature changes next to nothing of what is dreamed."
)
SITES = (
    "Linear heads hardly read from a latent where a rewrite is legal. The encoder knows nodes by what surrounds them, "
    "and does not say which of several equal layers was rewritten; and a few dozen numbers are few for thousands of "
    f"rewrites, as the rows '{names.OF_COMPONENTS.strip(' ()')}' show, which are of latents made for nothing else. The "
    "dream keeps the legal rewrites beside the latent. What heads read from predicted latents is to be compared with "
    "what they read from real ones."
)
TELESCOPING = (
    "Dreamed improvements are sums of telescoped rewards, those that the policy is trained on: a dreamed plan that "
    "comes back to the legal rewrites of an earlier state has earned nothing in between. That much of the agreement "
    "with reality is known beforehand, and not learned."
)
