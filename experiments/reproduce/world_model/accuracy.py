"""Accuracy of trained world models, beside trivial predictors, and of what their policies dream.

rlflow reproduce accuracy

World models are trained on random play. They are evaluated on held-out random and greedy play, from states that
training did not meet. A policy is trained in the dream and evaluated twice: it plays in the real environment, and it
plays in the dream, and its actions are then replayed in the real environment.

Some rounds of recollection follow, unless the best known improvement of the graph is too small. In each, real episodes
of the policy are added to the training data, the model goes on learning, and another policy is trained. The last model
is evaluated on held-out play again.

A unit of work evaluates one model or policy of one graph, seed and round; finished units are not done again. `--set`
changes how models are trained (as for `rlflow optimise`), so that every ablation is a command. A unit takes two to
fifteen minutes, and all of them about ten hours of one core.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from experiments.config.run import RunConfig
from experiments.errors import UserError
from experiments.executors.units import Record
from experiments.reproduce.table import OVER_SEEDS
from experiments.reproduce.world_model.experiment import (
    ONE_CONDITION,
    SEARCH,
    Conditions,
    Part,
    Records,
    WorldModelTable,
)
from experiments.reproduce.world_model.rows import (
    BEST_KNOWN,
    CHOSEN,
    NO,
    YES,
    best_dream,
    best_known,
    figure_rows,
    held_out_rows,
    raises_alarm,
    table_rows,
)
from experiments.reproduce.world_model.summary import summary
from experiments.studies.setting import Effort, Target
from experiments.studies.study import COUNTS_FROM_PERCENT
from worldmodel.accuracy import figure_names as names
from worldmodel.accuracy.baselines import PREDICTORS
from worldmodel.accuracy.rewards_and_masks import RESOLUTION_PERCENT
from worldmodel.config import PAYS_PERCENT

COLUMNS = {
    "graph": "cleaned in full, under the cost model of the settings",
    "round": "of recollection; the model of round 0 was trained on random play only; "
    f"{CHOSEN}: of each seed, the round whose policy plays",
    "play": "whose episodes: held-out random or greedy ones, or those of the policy",
    "figure": "what is measured; rewards in percent, differences between dreams and reality in points",
    "step": "after how many steps without a look at reality",
    "model": "of the world model, mean over seeds",
    "low": "95 % interval of it, lower end: over seeds; with one seed, over its episodes",
    "high": "upper end",
    "IQM": OVER_SEEDS["IQM"],
    **{key: f"trivial predictor: {text}" for key, text in PREDICTORS.items()},
    "asked": "what is asked of the model; of policies, of those that play",
    "met": f"whether it is; graphs whose best known improvement is under {COUNTS_FROM_PERCENT:g} % are not counted",
    "seeds": "how many there are",
    "windows": "predictions judged, or episodes of policies, over all seeds",
}
FORMATS = dict.fromkeys(("model", "low", "high", "IQM", *PREDICTORS), ".3f")


def _add_without_policy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--without-policy", action="store_true", help="only judge predictions; train no policy")


def _of(records: Records, method: str) -> list[Record]:
    return [record for studied in records if studied.part[0] == method for record in studied.records]


def _best_known(records: Records) -> float:
    (search,) = _of(records, "search")
    return best_known(search, _of(records, "accuracy"), _of(records, "exploit"))


def _with_policies(records: Records, config: RunConfig, options: argparse.Namespace) -> Sequence[Part]:
    """Returns the parts of policies, with rounds of recollection if there is something to find; alike for all seeds."""
    if options.without_policy:
        return ()
    last = config.recollect.rounds if _best_known(records) >= COUNTS_FROM_PERCENT else 0
    return [*(("exploit", number) for number in range(1 + last)), *([("accuracy", last)] if last else [])]


def _accuracy_rows(graph: str, records: Records, effort: Effort) -> Iterator[Record]:
    return table_rows(graph, _best_known(records), _of(records, "accuracy"), _of(records, "exploit"), effort.steps)


def _alarms(graph: str, records: Records) -> Iterator[str]:
    """Yields an alarm for each policy whose dream is too good to be true."""
    best_percent = _best_known(records)
    for played in _of(records, "exploit"):
        if raises_alarm(played, best_percent):
            yield (
                f"Alarm: {graph}, seed {played['seed']}, round {played['round']}: the policy dreams of "
                f"{best_dream(played):.1f} % where the best known real result is {best_percent:.1f} %. "
                "It makes use of the model's mistakes: add rounds of recollection."
            )


def _met(rows: Sequence[Record]) -> str:
    """Returns how many requirements are met, and the best known improvements, in a sentence."""
    met, missed = (sum(row.get("met") == mark for row in rows) for mark in (YES, NO))
    return (
        f"{met} of {met + missed} figures that are asked for and counted are met; the best known improvements are "
        + (", ".join(f"{row['graph']} {row['model']:.1f} %" for row in rows if row["figure"] == BEST_KNOWN) + ".")
    )


def notes(config: RunConfig, effort: Effort) -> str:
    """Returns the settings that the table was made with, as text."""
    collecting = config.collect
    most = config.environment.max_steps or "as many as the graph needs"
    made_with = (
        f"{config.costs}. Trained on {collecting.episodes} episodes of random play of up to "
        f"{most} steps; intervals are fitted on {collecting.held_out:.0%} of them, held out. "
        f"{held_out_notes(effort)} Each round adds {config.recollect.episodes} real episodes of the policy, and "
        f"{effort.policy_episodes} others are judged. Where the best known improvement is under "
        f"{COUNTS_FROM_PERCENT:g} %, a policy has nothing to find, and nothing is recollected. Policies dream at "
        f"τ = {config.dream.temperature:g}, and a rewrite is legal there from a probability of "
        f"{config.dream.legal_from:g}."
    )
    return "\n\n".join([made_with, MIXTURES, SITES, *([TELESCOPING] if config.dream.telescoping else [])])


def held_out_notes(effort: Effort) -> str:
    """Returns how predictions are evaluated, as text."""
    return (
        f"Judged on {effort.episodes} other episodes of each kind of play, predicted from depth {effort.first} or "
        "deeper and from states that training did not meet, wherever they lead. A rewrite is predicted to be legal "
        "from a probability of one half; those that the table does not hold count as missed. Rewrites that pay are "
        f"those that really lower the cost by more than {PAYS_PERCENT:g} %; offered is what is legal in the dream of a "
        f"policy. In rank correlations, rewards are equal that differ by less than {RESOLUTION_PERCENT:g} %. What is "
        "asked of counts of legal sites is asked of every rule by itself; how often those of all rules are right at "
        "once stands beside it."
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
    "comes back to the legal rewrites of an earlier state has earned nothing in between, and a step that undoes "
    "another one pays back what that one has earned. That much of the agreement with reality is known beforehand, and "
    "not learned."
)


ACCURACY = WorldModelTable(
    title="What world models predict of held-out episodes",
    columns=COLUMNS,
    formats=FORMATS,
    graphs={
        "smoke": ("squeezenet1.1-tiny",),
        "full": ("inception-v3", "resnet18", "resnet50", "squeezenet1.1", "bert-base", "vit-base"),
    },
    parts=lambda graph, config: [SEARCH, ("accuracy", 0)],
    later_parts=_with_policies,
    rows=_accuracy_rows,
    alarms=_alarms,
    notes=notes,
    finding=_met,
    add_options=_add_without_policy,
    summary=lambda rows: summary(rows, f"graphs whose best known improvement is under {COUNTS_FROM_PERCENT:g} %"),
).experiment(__doc__ or "")


TRANSFER_COLUMNS = {
    "trained_on": "cleaned in full, under the cost model of the settings",
    "graph": "that is judged",
    "play": "held-out random or greedy episodes of it",
    "figure": "what is measured; rewards in percent",
    "step": "after how many steps without a look at reality",
    "model": "of the world model, mean over seeds",
    "low": "95 % interval of it, lower end: over seeds; with one seed, over its episodes",
    "high": "upper end",
    "IQM": OVER_SEEDS["IQM"],
    **{key: f"trivial predictor, made of random play of the judged graph: {text}" for key, text in PREDICTORS.items()},
    "asked": "what is asked of a model on the graph that it was trained on",
    "met": "nothing is asked of other graphs",
    "seeds": "how many there are",
    "windows": "predictions judged, over all seeds",
}
TARGETS = {
    "resnet18": (Target("resnet50"),),
    "bert-base": (
        Target("bert-base", {"layers": 6}),
        Target("bert-base", {"layers": 24}),
        Target("bert-base", {"sequence": 64}),
    ),
    "squeezenet1.1": (Target("squeezenet1.1", {"image_size": 160}),),
    "squeezenet1.1-tiny": (Target("squeezenet1.1-tiny", {"image_size": 48}),),
}
"""The graphs that a model is evaluated on, by the graph that it is trained on."""


def _transfer_conditions(graph: str, options: argparse.Namespace) -> Conditions:
    if graph not in TARGETS:
        raise UserError(f"No other graph is like '{graph}'. Choose among {', '.join(TARGETS)}.")
    return ONE_CONDITION


def _transfer_rows(graph: str, records: Records, effort: Effort) -> Iterator[Record]:
    for studied in records:
        judged = studied.records
        for row in (*held_out_rows(judged), *figure_rows(judged, counted=False, steps=effort.steps)):
            yield {"trained_on": graph, **row}


def _transfer_notes(config: RunConfig, effort: Effort) -> str:
    return (
        f"{config.costs}. {held_out_notes(effort)} What training met is here random play of the judged graph, of which "
        "the model is told the rewrites."
    )


def _totals(rows: Sequence[Record]) -> str:
    """Returns R² of the longest totals on every graph, in a sentence."""
    totals = [row for row in rows if row["figure"] == names.TOTAL_R2]
    last = max((row["step"] for row in totals), default=0)
    each = [
        f"{row['graph']} {format(row['model'], '' if isinstance(row['model'], str) else '.2f')} ({row['play']})"
        for row in totals
        if row["step"] == last
    ]
    return f"R² of the total of {last} steps: {', '.join(each)}."


TRANSFER = WorldModelTable(
    title="What world models predict of graphs that they were not trained on",
    columns=TRANSFER_COLUMNS,
    formats=FORMATS,
    graphs={"smoke": ("squeezenet1.1-tiny",), "full": ("resnet18", "bert-base", "squeezenet1.1")},
    seeds="0,1",
    conditions=_transfer_conditions,
    parts=lambda graph, config: [("transfer", target) for target in TARGETS[graph]],
    rows=_transfer_rows,
    notes=_transfer_notes,
    finding=_totals,
    summary=lambda rows: summary(rows, "graphs that a model was not trained on"),
).experiment("""What world models predict of graphs that they were not trained on.

rlflow reproduce accuracy-transfer

The models are those of `rlflow reproduce accuracy` before recollection: trained on random play of one graph, they are
asked about other depths and input shapes of it. They are told the other graph's rewrites, and learn nothing from it.
Where these models are there, a graph takes a few minutes.
""")
