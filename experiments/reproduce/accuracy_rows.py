"""Rows of the table of accuracy: one for each figure, over the seeds that it was judged with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from environment.intervals import Estimate
from experiments.judging.asked import DREAM_GAP, DREAM_ILLEGAL, REAL_GAP, asked
from experiments.judging.best_known import COUNTS_FROM_PERCENT
from experiments.judging.policy import FOR_REAL, IN_THE_DREAM
from experiments.reproduce.units import Record
from worldmodel import figure_names as names
from worldmodel.bootstrap import over_seeds
from worldmodel.trivial import PREDICTORS

UNDEFINED = "–"
"""Stands for a figure that does not exist, as the correlation with something that never changes."""

POLICY_FIGURES: Mapping[str, tuple[str, str]] = {
    "played for real: real improvement [%]": (FOR_REAL, "real_percent"),
    "played for real: dreamed improvement [%]": (FOR_REAL, "dreamed_percent"),
    REAL_GAP: (FOR_REAL, "gap"),
    "played in the dream: dreamed improvement [%]": (IN_THE_DREAM, "dreamed_percent"),
    "played in the dream, then replayed: real improvement [%]": (IN_THE_DREAM, "real_percent"),
    DREAM_GAP: (IN_THE_DREAM, "gap"),
    DREAM_ILLEGAL: (IN_THE_DREAM, "illegal_share"),
    "played in the dream, then replayed: gap at the first illegal rewrite [points]": (IN_THE_DREAM, "prefix_gap"),
    "played in the dream, then replayed without illegal rewrites: gap [points]": (IN_THE_DREAM, "skipping_gap"),
    "played in the dream: share of rewrites that reality never came to": (IN_THE_DREAM, "lost_share"),
    "best dream [%]": (IN_THE_DREAM, "best_dreamed_percent"),
}
LESS_IS_BETTER = {
    names.REWARD_ERROR,
    names.TOTAL_ERROR,
    names.TOTAL_RELATIVE,
    names.MASK_ERROR,
    names.LATENT_ERROR,
    names.READ_MASK_ERROR,
    names.READ_MASK_ERROR + names.OF_REAL_LATENTS,
}
ALARM = "alarm: share of seeds whose best dream is better than the best known result"


def best_known(search: Record, judged: Sequence[Record], played: Sequence[Sequence[Record]]) -> float:
    """The best improvement that anybody has found, in percent of the start graph's cost."""
    real = [
        record[way]["best_real_percent"] for of_seed in played for record in of_seed for way in (FOR_REAL, IN_THE_DREAM)
    ]
    return float(max([search["best_percent"], *(record["best_percent"] for record in judged), *real]))


def table_rows(
    graph: str, best_percent: float, judged: Sequence[Record], played: Sequence[Sequence[Record]]
) -> Iterator[Record]:
    """All rows of a graph.

    Args:
      best_percent: the best known improvement.
      judged: from `experiments.judging.judge`, by seed.
      played: from `experiments.judging.policy`, by seed and round.
    """
    counted = best_percent >= COUNTS_FROM_PERCENT
    yield {"graph": graph, "figure": "best known improvement [%]", "model": best_percent}
    for key in ("real_steps", "states", "actions"):
        yield {"graph": graph, "figure": _FACTS[key], "model": _mean(record[key] for record in judged)}
    for play in judged[0]["unseen"]:
        share = _mean(record["unseen"][play] for record in judged)
        yield {"graph": graph, "play": play, "figure": "share of states that training did not meet", "model": share}
    yield from figure_rows(judged, counted=counted)
    for number, of_round in enumerate(zip(*played, strict=True)):
        yield from _policy_rows(graph, number, of_round, best_percent, counted)


_FACTS = {
    "real_steps": "real steps of training and validation",
    "states": "distinct states of training",
    "actions": "actions of the table",
}


def figure_rows(judged: Sequence[Record], *, counted: bool) -> Iterator[Record]:
    """One row for each figure of held-out play, over the seeds of one graph."""
    for (play, figure, step), records in _by_figure(judged).items():
        yield _figure_row(judged[0]["graph"], play, figure, step, records, counted)


def best_trivial(row: Record) -> float | str:
    """Of the trivial predictors of a row the best: of errors the least, else the greatest."""
    values = [row[key] for key in PREDICTORS if isinstance(row.get(key), float)]
    if not values:
        return UNDEFINED
    return min(values) if row["figure"] in LESS_IS_BETTER else max(values)


def _by_figure(judged: Sequence[Record]) -> dict[tuple[str, str, int], list[Record]]:
    """Records of each figure, of the seeds that have it, in the order of the first seed that does."""
    found: dict[tuple[str, str, int], list[Record]] = {}
    for record in judged:
        for figure in record["figures"]:
            found.setdefault((figure["play"], figure["figure"], figure["step"]), []).append(figure)
    return found


def _figure_row(graph: str, play: str, figure: str, step: int, records: Sequence[Record], counted: bool) -> Record:
    there = [record for record in records if record["value"] is not None]
    trivial = {
        key: _mean(record["trivial"].get(key) for record in records)
        for key in PREDICTORS
        if key in records[0]["trivial"]
    }
    row: Record = {"graph": graph, "play": play, "figure": figure, "step": step, "seeds": len(there)}
    row |= {key: UNDEFINED if value is None else value for key, value in trivial.items()}
    row |= {"windows": sum(record["windows"] for record in records)}
    if not there:
        return row | {"model": UNDEFINED} | _asked(play, figure, step, None, counted)
    estimate = over_seeds([record["value"] for record in there])
    if len(there) == 1 and there[0]["low"] is not None:
        estimate = Estimate(estimate.value, there[0]["low"], there[0]["high"])
    return row | _interval(estimate) | _asked(play, figure, step, estimate.value, counted)


def _policy_rows(
    graph: str, number: int, records: Sequence[Record], best_percent: float, counted: bool
) -> Iterator[Record]:
    play = f"policy, round {number}"
    common: Record = {"graph": graph, "play": play, "seeds": len(records)}
    for figure, (way, key) in POLICY_FIGURES.items():
        values = [record[way][key] for record in records if record[way][key] == record[way][key]]  # NaN: no rewrite
        estimate = over_seeds(values) if values else None
        row = common | {"figure": figure, "windows": sum(record[way]["episodes"] for record in records)}
        value = None if estimate is None else estimate.value
        yield row | ({} if estimate is None else _interval(estimate)) | _asked(play, figure, 0, value, counted)
    alarms = [record[IN_THE_DREAM]["best_dreamed_percent"] > best_percent for record in records]
    yield common | {"figure": ALARM, "model": _mean(alarms)}


def _interval(estimate: Estimate) -> Record:
    if estimate.low != estimate.low:  # NaN: one seed, and one episode
        return {"model": estimate.value, "low": UNDEFINED, "high": UNDEFINED}
    return {"model": estimate.value, "low": estimate.low, "high": estimate.high}


def _asked(play: str, figure: str, step: int, value: float | None, counted: bool) -> Record:
    wanted = asked(play, figure, step)
    if wanted is None:
        return {}
    if value is None:
        return {"asked": str(wanted), "met": UNDEFINED}
    return {"asked": str(wanted), "met": ("yes" if wanted.met(value) else "no") if counted else "not counted"}


def _mean(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None
