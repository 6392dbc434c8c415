"""Rows of the table of accuracy: one for each figure, over the seeds that have it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from environment.statistics.intervals import Estimate, bootstrap, mean_of_seeds
from experiments.executors.units import Record
from experiments.reproduce.table import UNDEFINED, iqm_of_seeds
from experiments.runs.rounds import best_round
from experiments.studies.policy import FOR_REAL, IN_THE_DREAM, OF_PLANS
from experiments.studies.requirements import (
    DREAM_GAP,
    DREAM_ILLEGAL,
    DREAM_OFFERED,
    OF_TRAINING,
    REAL_GAP,
    REAL_OFFERED,
    TRAINED_FOR,
    required,
    required_figures,
)
from experiments.studies.study import COUNTS_FROM_PERCENT
from worldmodel.accuracy import figure_names as names
from worldmodel.accuracy.baselines import PREDICTORS

YES, NO, NOT_COUNTED = "yes", "no", "not counted"
"""Whether a figure meets its requirement; `UNDEFINED` if the figure does not exist."""

BEST_KNOWN = "best known improvement [%]"
POLICY = "policy"
CHOSEN = "chosen"
"""Stands for the round of each seed whose policy plays: the one whose plans really save most."""
POLICY_FIGURES: Mapping[str, tuple[str, str]] = {
    "played for real: real improvement [%]": (FOR_REAL, "real_percent"),
    "played for real: dreamed improvement [%]": (FOR_REAL, "dreamed_percent"),
    REAL_GAP: (FOR_REAL, "gap"),
    "played in the dream: dreamed improvement [%]": (IN_THE_DREAM, "dreamed_percent"),
    "played in the dream, then replayed: real improvement [%]": (IN_THE_DREAM, "real_percent"),
    DREAM_GAP: (IN_THE_DREAM, "gap"),
    DREAM_ILLEGAL: (IN_THE_DREAM, "illegal_share"),
    REAL_OFFERED: (FOR_REAL, "paying_recall"),
    DREAM_OFFERED: (IN_THE_DREAM, "paying_recall"),
    "played in the dream, then replayed: gap at the first illegal rewrite [points]": (IN_THE_DREAM, "prefix_gap"),
    "played in the dream, then replayed without illegal rewrites: gap [points]": (IN_THE_DREAM, "skipping_gap"),
    "played in the dream: share of rewrites that reality never came to": (IN_THE_DREAM, "lost_share"),
    "best dream [%]": (IN_THE_DREAM, "best_dreamed_percent"),
    "best dream along what was played for real [%]": (FOR_REAL, "best_dreamed_percent"),
}
LESS_IS_BETTER = {
    names.REWARD_ERROR,
    names.TOTAL_ERROR,
    names.TOTAL_RELATIVE,
    names.MASK_ERROR,
    names.LATENT_ERROR,
    names.READ_MASK_ERROR,
    names.READ_MASK_ERROR + names.OF_REAL_LATENTS,
    names.READ_MASK_ERROR + names.OF_COMPONENTS,
    REAL_GAP,
    DREAM_GAP,
}
PRINTED = 0.01
"""Percentage points: percentages that differ by less are printed alike."""
ALARM = "alarm: share of seeds whose best dream is better than the best known result"


def best_known(search: Record, judged: Sequence[Record], played: Sequence[Record]) -> float:
    """Returns the best improvement that a search or any play has found, in percent of the start graph's cost."""
    real = [record[way]["best_real_percent"] for record in played for way in (FOR_REAL, IN_THE_DREAM)]
    return float(max([search["best_percent"], *(record["best_percent"] for record in judged), *real]))


def table_rows(
    graph: str, best_percent: float, judged: Sequence[Record], played: Sequence[Record], steps: Sequence[int]
) -> Iterator[Record]:
    """Yields all rows of a graph.

    Args:
      best_percent: the best known improvement.
      judged: records from `experiments.studies.evaluation`, of all seeds and rounds.
      played: records from `experiments.studies.policy`, of all seeds and rounds.
      steps: see `figure_rows`.
    """
    counted = best_percent >= COUNTS_FROM_PERCENT
    yield {"graph": graph, "figure": BEST_KNOWN, "model": best_percent}
    for number, records in _by_round(judged).items():
        yield from _fact_rows(graph, number, records)
        yield from held_out_rows(records)
        yield from figure_rows(records, counted=counted, steps=steps)
    by_round = _by_round(played)
    for number, records in by_round.items():
        yield from _policy_rows(graph, number, records, best_percent, counted, is_asked=len(by_round) == 1)
    if len(by_round) > 1:
        yield from _policy_rows(graph, CHOSEN, that_play(played), best_percent, counted, is_asked=True)


def that_play(played: Sequence[Record]) -> list[Record]:
    """Returns for each seed the record of the round whose policy plays, by the rule of a run, see `runs.rounds`."""
    found = []
    for seed in dict.fromkeys(record["seed"] for record in played):
        rounds = sorted((record for record in played if record["seed"] == seed), key=lambda record: record["round"])
        found.append(rounds[best_round([record[IN_THE_DREAM] for record in rounds])])
    return found


def _by_round(records: Sequence[Record]) -> dict[int, list[Record]]:
    numbers = sorted({record["round"] for record in records})
    return {number: [record for record in records if record["round"] == number] for number in numbers}


def _fact_rows(graph: str, number: int, judged: Sequence[Record]) -> Iterator[Record]:
    common: Record = {"graph": graph, "round": number, "seeds": len(judged)}
    for key, figure in _FACTS.items():
        mean = _mean(record[key] for record in judged)
        yield common | {"figure": figure, "model": mean} | _asked_of_training(graph, number, key, mean)
    spent = [record["spent"] for record in judged if record["spent"]]
    for key, (figure, unit) in _SPENT.items():
        mean = _mean(each[key] / unit for each in spent)
        row = common | {"figure": figure, "model": UNDEFINED if mean is None else mean, "seeds": len(spent)}
        yield row | _asked_of_training(graph, number, key, mean)
    factors = [record["intervals"] for record in judged if record["intervals"]["factor"] is not None]
    if factors:
        factor, elsewhere = _mean(each["factor"] for each in factors), _mean(not each["as_judged"] for each in factors)
        yield common | {"figure": "factor of all σ, fitted on validation", "model": factor, "seeds": len(factors)}
        yield common | {"figure": FITTED_ELSEWHERE, "model": elsewhere, "seeds": len(factors)}


def _asked_of_training(graph: str, number: int, key: str, value: float | None) -> Record:
    """Returns what is required of the training of round 0, and whether it is met; empty if nothing is."""
    wanted = OF_TRAINING.get(key) if graph == TRAINED_FOR and number == 0 else None
    if wanted is None:
        return {}
    if value is None:
        return {"asked": str(wanted), "met": UNDEFINED}
    return {"asked": str(wanted), "met": YES if wanted.met(value, {}) else NO}


_FACTS = {
    "real_steps": "real steps of training and validation",
    "states": "distinct states of training",
    "encoder_states": "distinct states that the encoder's training draws from",
    "actions": "actions of the table",
}
FITTED_ELSEWHERE = "share of seeds whose factor of σ is fitted on states that training met too, for want of others"
_SPENT = {
    "seconds": ("minutes from start to trained; of a later round: of its training", 60),
    "cpu_seconds": ("the same in minutes of CPU", 60),
    "peak_bytes": ("largest size of the process meanwhile [MiB]", 1 << 20),
}


_HELD_OUT = {
    "unseen": "share of states that training did not meet",
    "unknown": "share of legal rewrites that the table does not hold",
    "cut": "share of episodes judged only until they take a rewrite that the table does not hold",
}


def held_out_rows(judged: Sequence[Record]) -> Iterator[Record]:
    """Yields what each kind of held-out play has that training had not, over the seeds of one graph and round."""
    common = {"graph": judged[0]["graph"], "round": judged[0]["round"], "seeds": len(judged)}
    for play in judged[0]["held_out"]:
        for key, figure in _HELD_OUT.items():
            share = _mean(record["held_out"][play][key] for record in judged)
            yield common | {"play": play, "figure": figure, "model": UNDEFINED if share is None else share}


def figure_rows(judged: Sequence[Record], *, counted: bool, steps: Sequence[int]) -> Iterator[Record]:
    """Yields one row for each figure of held-out play, over the seeds of one graph and round.

    Args:
      counted: whether requirements count for this graph.
      steps: the numbers of steps after which predictions are evaluated. A figure with a requirement after one of them
        has a row even if no seed has the figure.
    """
    common = {"graph": judged[0]["graph"], "round": judged[0]["round"]}
    found = _by_figure(judged)
    for play in judged[0]["held_out"]:
        for figure, step in required_figures(play, steps):
            found.setdefault((play, figure, step), [])
    for (play, figure, step), records in found.items():
        yield common | _figure_row(play, figure, step, records, counted)


def best_trivial(row: Record) -> float | str:
    """Returns the best value of the trivial predictors of a row: the least of errors, else the greatest."""
    values = [row[key] for key in PREDICTORS if isinstance(row.get(key), float)]
    if not values:
        return UNDEFINED
    return min(values) if row["figure"] in LESS_IS_BETTER else max(values)


def _by_figure(judged: Sequence[Record]) -> dict[tuple[str, str, int], list[Record]]:
    """Returns the records of each (play, figure, step) from the seeds that have it, in the order of the first one."""
    found: dict[tuple[str, str, int], list[Record]] = {}
    for record in judged:
        for figure in record["figures"]:
            found.setdefault((figure["play"], figure["figure"], figure["step"]), []).append(figure)
    return found


def _figure_row(play: str, figure: str, step: int, records: Sequence[Record], counted: bool) -> Record:
    there = [record for record in records if record["value"] is not None]
    predictors = [key for key in PREDICTORS if records and key in records[0]["trivial"]]
    trivial = {key: _mean(record["trivial"].get(key) for record in there) for key in predictors}
    row: Record = {"play": play, "figure": figure, "step": step, "seeds": len(there)}
    row |= {key: UNDEFINED if value is None else value for key, value in trivial.items()}
    row |= {"windows": sum(record["windows"] for record in records)}
    if not there:
        return row | {"model": UNDEFINED} | _asked(play, figure, step, None, {}, counted)
    values = [record["value"] for record in there]
    estimate = mean_of_seeds(values)
    if len(there) == 1 and there[0]["low"] is not None:
        estimate = Estimate(estimate.value, there[0]["low"], there[0]["high"])
    return row | _interval(estimate, values) | _asked(play, figure, step, estimate.value, trivial, counted)


def _policy_rows(
    graph: str, number: int | str, records: Sequence[Record], best_percent: float, counted: bool, *, is_asked: bool
) -> Iterator[Record]:
    """Yields the rows of the policies of one round.

    Args:
      number: the round, or `CHOSEN`.
      is_asked: whether requirements apply. They apply to the policies that play, the outcome of recollection.
    """
    common: Record = {"graph": graph, "round": number, "play": POLICY}
    for figure, (way, key) in POLICY_FIGURES.items():
        # A share of no rewrites is NaN, and units of earlier versions lack some figures.
        there = [record[way] for record in records if math.isfinite(record[way].get(key, math.nan))]
        row = common | {"figure": figure, "seeds": len(there), "windows": sum(each["episodes"] for each in there)}
        if key == "gap":
            row |= {name: _mean(each["trivial_gap"][name] for each in there) for name in OF_PLANS}
        estimate = _of_policies(there, key) if there else None
        row |= _interval(estimate, [record[key] for record in there]) if estimate else {"model": UNDEFINED}
        value = estimate.value if estimate else None
        yield row | (_asked(POLICY, figure, 0, value, {}, counted) if is_asked else {})
    alarms = [raises_alarm(record, best_percent) for record in records]
    yield common | {"figure": ALARM, "model": _mean(alarms), "seeds": len(records)}


def raises_alarm(played: Record, best_percent: float) -> bool:
    """Returns whether a policy's dream is better than the best known real result, and so too good to be true."""
    return best_dream(played) - best_percent >= PRINTED


def best_dream(played: Record) -> float:
    """Returns the best improvement in a policy's dreams, in percent; dreams along real play count too."""
    return max(float(played[way]["best_dreamed_percent"]) for way in (FOR_REAL, IN_THE_DREAM))


def _of_policies(comparisons: Sequence[Record], key: str) -> Estimate:
    """Returns the mean over seeds with its interval.

    With one seed the interval is over its episodes, if the figure is a mean over episodes.
    """
    each = comparisons[0]["each"].get(key)
    if len(comparisons) == 1 and each is not None:
        return bootstrap(np.mean, [np.array(each)], resamples=200)
    return mean_of_seeds([comparison[key] for comparison in comparisons])


def _interval(estimate: Estimate, of_seeds: Sequence[float]) -> Record:
    row: Record = {"model": estimate.value, "low": estimate.low, "high": estimate.high, "IQM": iqm_of_seeds(of_seeds)}
    if math.isnan(estimate.low):  # one seed, few episodes
        row |= {"low": UNDEFINED, "high": UNDEFINED}
    return row


def _asked(
    play: str, figure: str, step: int, value: float | None, trivial: Mapping[str, float | None], counted: bool
) -> Record:
    wanted = required(play, figure, step)
    if wanted is None:
        return {}
    if value is None:
        return {"asked": str(wanted), "met": UNDEFINED}
    met = YES if wanted.met(value, trivial) else NO
    return {"asked": str(wanted), "met": met if counted else NOT_COUNTED}


def _mean(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None
