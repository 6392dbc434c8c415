"""Comparisons of settings that differ from the usual ones in one thing each.

One shows what helps a world model to predict, the other what keeps policies from exploiting it. Another comparison adds
a list of settings and the figures to compare them by.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from experiments.config.flags import DISCRETE
from experiments.config.run import RunConfig
from experiments.executors.units import Record
from experiments.reproduce.options import named
from experiments.reproduce.table import UNDEFINED
from experiments.reproduce.world_model.accuracy import TELESCOPING, held_out_notes
from experiments.reproduce.world_model.experiment import (
    SEARCH,
    Conditions,
    Records,
    WorldModelTable,
    add_variants,
)
from experiments.reproduce.world_model.rows import POLICY_FIGURES, best_known, raises_alarm
from experiments.studies.evaluation import GREEDY, RANDOM
from experiments.studies.policy import FOR_REAL, IN_THE_DREAM
from experiments.studies.requirements import DREAM_ILLEGAL, REAL_GAP
from experiments.studies.setting import Effort
from worldmodel.accuracy import figure_names as names
from worldmodel.accuracy.omissions import PAYING_RECALL

USUAL = "as usual"
ENCODER, MDN_RNN = "world_model.encoder", "world_model.mdn_rnn"
DIRECTED, EMPHASIS = "collect.directed=0.5", f"{MDN_RNN}_training.mask_emphasis=3"
PREDICTION_VARIANTS: Conditions = {
    USUAL: (),
    "encoder of 1 round": (f"{ENCODER}.rounds=1",),
    "encoder of half the width": (f"{ENCODER}.hidden=32",),
    "attention encoder": (f"{ENCODER}.kind=attention",),
    "encoder frozen as it was drawn": (f"{ENCODER}_training.steps=0",),
    "latent of 16": (f"{ENCODER}.latent=16",),
    "latent of 128": (f"{ENCODER}.latent=128",),
    "latent without the total time": (f"{ENCODER}.total_time=false",),
    "actions by rank": ("collect.actions=rank",),
    "no neighbourhood": (f"{MDN_RNN}.neighbours=0",),
    "episodes of 20 steps": ("environment.max_steps=20",),
    "deterministic dynamics": (f"{MDN_RNN}.dynamics=deterministic",),
    "discrete dynamics": (
        f"{MDN_RNN}.dynamics=discrete",
        *(f"{ENCODER}.{key}={value}" for key, value in DISCRETE.items()),
    ),
    "separate reward network": (f"{MDN_RNN}.reward_head=separate",),
    "directed collection": (DIRECTED,),
    "masks of what pays weigh four times": (EMPHASIS,),
    "directed collection and masks of what pays": (DIRECTED, EMPHASIS),
}
REAL_STEPS = {"smoke": 200, "full": 10_000}
PREDICTION_FIGURES = {
    "reward": (RANDOM, names.REWARD_RANKS, 1, "rank correlation of one reward, random play"),
    "reward_greedy": (GREEDY, names.REWARD_RANKS, 1, "the same, greedy play"),
    "total": (RANDOM, names.TOTAL_R2, 20, "R² of the total of 20 steps, random play"),
    "total_greedy": (GREEDY, names.TOTAL_R2, 20, "the same, greedy play"),
    "offered": (RANDOM, PAYING_RECALL, 10, "share offered of what pays after 10 steps, random play"),
    "offered_greedy": (GREEDY, PAYING_RECALL, 10, "the same, greedy play"),
    "masks": (RANDOM, names.MASK_ERROR, 10, "wrong bits after 10 steps per wrong bit of copying, random play"),
    "changes": (RANDOM, names.CHANGE_F1, 10, "F1 of the bits that change in 10 steps, random play"),
    "latents": (RANDOM, names.LATENT_ERROR, 20, "error of latents after 20 steps per error of copying, random play"),
}
"""Column -> play, figure, number of steps (or the most that are evaluated, if they are fewer), meaning."""


def _prediction_rows(graph: str, records: Records, effort: Effort) -> Iterator[Record]:
    """Yields means over the seeds that have a figure, and the largest difference between seeds in any figure."""
    for _, label, _, judged in records:
        row: Record = {"graph": graph, "variant": label, "seeds": len(judged)}
        spreads = [0.0]
        for column, (play, figure, step, _) in PREDICTION_FIGURES.items():
            key = play, figure, effort.furthest(step)
            values = [value for record in judged if (value := _value(record, *key)) is not None]
            row[column] = _mean(values)
            spreads.append(_spread(values, fewest=1))
        row["minutes"] = _mean([record["spent"]["cpu_seconds"] / 60 for record in judged if record["spent"]])
        yield row | {"spread": max(spreads)}


def _value(record: Record, play: str, figure: str, step: int) -> float | None:
    """Returns a figure, or None if the record does not have it."""
    for each in record["figures"]:
        if (each["play"], each["figure"], each["step"]) == (play, figure, step):
            value: float | None = each["value"]
            return value
    return None


def _mean(values: Sequence[float]) -> float | str:
    return sum(values) / len(values) if values else UNDEFINED


def _spread(values: Sequence[float], fewest: int) -> float:
    return max(values) - min(values) if len(values) >= fewest else 0.0


def _prediction_notes(config: RunConfig, effort: Effort) -> str:
    training = config.world_model
    return (
        f"{config.costs}. Trained on {config.collect.steps:,} real steps of random play, the encoder for "
        f"{training.encoder_training.steps:,} gradient steps and the MDN-RNN for {training.mdn_rnn_training.steps:,}. "
        f"{held_out_notes(effort)} Discrete latents cannot hold the total time, and are wider "
        f"({DISCRETE['latent']} bits): 'latent without the total time' is what to compare them with. Of "
        "other latents dreams hold means to what rules did in training, and of categories nothing."
    )


def _worse(rows: Sequence[Record]) -> str:
    """Returns a sentence about the variants with more wrong bits than usual, by more than the spreads of the seeds."""
    found = []
    for graph in dict.fromkeys(row["graph"] for row in rows):
        of_graph = {row["variant"]: row for row in rows if row["graph"] == graph}
        usual = of_graph.get(USUAL, {"masks": UNDEFINED})
        for label, row in of_graph.items():
            there = isinstance(row["masks"], float) and isinstance(usual["masks"], float)
            if there and row["masks"] - usual["masks"] > max(row["spread"], usual["spread"]):
                found.append(f"{label} ({row['masks']:.2f} instead of {usual['masks']:.2f}, {graph})")
    text = "Legal rewrites are predicted worse, by more than the seeds lie apart in any figure, with"
    return f"{text}: {'; '.join(found)}." if found else f"{text} none of these."


ABLATIONS = WorldModelTable(
    title="What helps a world model to predict",
    columns={
        "graph": "cleaned in full, under the cost model of the settings",
        "variant": "what is different",
        **{column: f"{meaning}; mean over seeds" for column, (_, _, _, meaning) in PREDICTION_FIGURES.items()},
        "spread": "largest difference between seeds in any of these",
        "minutes": "of CPU, from start to trained",
        "seeds": "how many there are",
    },
    formats=dict.fromkeys((*PREDICTION_FIGURES, "spread"), ".3f") | {"minutes": ".1f"},
    graphs={"smoke": ("squeezenet1.1-tiny",), "full": ("bert-base",)},
    seeds="0,1",
    assignments={
        "smoke": (f"collect.steps={REAL_STEPS['smoke']}",),
        "full": (
            "world_model.encoder_training.steps=200",
            "world_model.mdn_rnn_training.steps=400",
            f"collect.steps={REAL_STEPS['full']}",
        ),
    },
    most_episodes=100,
    conditions=lambda graph, options: named(options.variants, PREDICTION_VARIANTS, "variant"),
    parts=lambda graph, config: [("accuracy", 0)],
    rows=_prediction_rows,
    notes=_prediction_notes,
    finding=_worse,
    add_options=partial(add_variants, variants=PREDICTION_VARIANTS),
).experiment("""What helps a world model to predict: settings that differ from the usual ones in one thing each.

rlflow reproduce accuracy-ablations

Every model is trained on the same number of real steps of random play. Because there are many, they are trained for
fewer gradient steps and judged on fewer episodes than those of `rlflow reproduce accuracy`. A model takes two to four
minutes.
""")


ENSEMBLE, PESSIMISM = "world_model.mdn_rnn.ensemble=3", "dream.pessimism=1"
DREAM_VARIANTS: Conditions = {
    USUAL: (),
    "legal from 0.5": ("dream.legal_from=0.5",),
    "ensemble of 3": (ENSEMBLE,),
    "ensemble of 3 with pessimism 1": (ENSEMBLE, PESSIMISM),
    "rewards as the networks say": ("dream.telescoping=false",),
    "directed collection": (DIRECTED,),
    "omitted rewrites recollected": ("recollect.omitted=0.3",),
}
EXPLOIT_FIGURES = {
    f"{key} {way}".replace(" ", "_"): (figure, (way, key)) for figure, (way, key) in POLICY_FIGURES.items()
}
"""Column -> meaning, and the keys of the figure in a record."""
EXPLOIT_SPREADS = {"gap_spread": (FOR_REAL, "gap"), "illegal_spread": (IN_THE_DREAM, "illegal_share")}


def _exploit_rows(graph: str, records: Records, effort: Effort) -> Iterator[Record]:
    """Yields means over the seeds that have the figure, and the largest differences between seeds for some of them."""
    (search,) = next(each.records for each in records if each.part == SEARCH)
    played = [each for each in records if each.part != SEARCH]
    best_percent = best_known(search, [], [record for each in played for record in each.records])
    for _, label, (_, number), found in played:
        row: Record = {"graph": graph, "variant": label, "round": number, "seeds": len(found)}
        row |= {column: _mean(_values(found, *where)) for column, (_, where) in EXPLOIT_FIGURES.items()}
        for column, where in EXPLOIT_SPREADS.items():
            values = _values(found, *where)
            row[column] = _spread(values, fewest=2) if len(values) > 1 else UNDEFINED
        yield row | {"alarms": sum(raises_alarm(record, best_percent) for record in found)}


def _values(played: Sequence[Record], way: str, key: str) -> list[float]:
    return [float(record[way][key]) for record in played if math.isfinite(record[way].get(key, math.nan))]


def _exploit_notes(config: RunConfig, effort: Effort) -> str:
    return (
        f"{config.costs}. {effort.policy_episodes} episodes of each policy; each round adds "
        f"{config.recollect.episodes} real ones." + f" {TELESCOPING}" * config.dream.telescoping
    )


def _gaps(rows: Sequence[Record]) -> str:
    """Returns a sentence for each graph about the gaps in the dream before and after recollection."""
    sentences = []
    for graph in dict.fromkeys(row["graph"] for row in rows):
        by_variant: dict[str, list[str]] = {}
        for row in rows:
            if row["graph"] == graph:
                gap = row["gap_in_the_dream"]
                by_variant.setdefault(row["variant"], []).append(gap if isinstance(gap, str) else f"{gap:.2f}")
        each = ", ".join(f"{label} {' / '.join(gaps)}" for label, gaps in by_variant.items())
        sentences.append(f"{graph}: gap in the dream before / after recollection, in points: {each}.")
    return " ".join(sentences)


EXPLOIT = WorldModelTable(
    title="What keeps a policy from living on the mistakes of its dream",
    columns={
        "graph": "cleaned in full, under the cost model of the settings",
        "variant": "what is different",
        "round": "of recollection; 0: the model knows random play only",
        **{column: meaning for column, (meaning, _) in EXPLOIT_FIGURES.items()},
        "gap_spread": f"'{REAL_GAP}': largest difference between seeds",
        "illegal_spread": f"'{DREAM_ILLEGAL}': largest difference between seeds",
        "alarms": "how many seeds' best dream is better than the best that a search or any of these policies has found",
        "seeds": "how many there are",
    },
    formats=dict.fromkeys((*EXPLOIT_FIGURES, *EXPLOIT_SPREADS), ".3f"),
    graphs={"smoke": ("squeezenet1.1-tiny",), "full": ("squeezenet1.1", "bert-base")},
    seeds="0,1",
    conditions=lambda graph, options: named(options.variants, DREAM_VARIANTS, "variant"),
    parts=lambda graph, config: [SEARCH, *(("exploit", number) for number in sorted({0, config.recollect.rounds}))],
    rows=_exploit_rows,
    notes=_exploit_notes,
    finding=_gaps,
    add_options=partial(add_variants, variants=DREAM_VARIANTS),
).experiment("""What keeps a policy from living on the mistakes of its dream.

rlflow reproduce exploit

The exploit test of `rlflow reproduce accuracy` for dreams that differ in one thing each (stricter masks, a pessimistic
ensemble), before recollection and after its last round. A model takes some fifteen minutes, and an ensemble up to
three times as long.
""")
