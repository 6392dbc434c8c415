"""The summary of a table of accuracy: a row for each required figure, a column for each graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.executors.units import Record
from experiments.reproduce.table import Table
from experiments.reproduce.world_model.rows import BEST_KNOWN, NO, NOT_COUNTED, POLICY, UNDEFINED, best_trivial
from experiments.studies.requirements import TRAINED_FOR
from worldmodel.accuracy import figure_names as names

COLUMNS = {
    "figure": "what is measured, after how many steps without a look at reality",
    "play": "whose episodes; of held-out ones, predictions of the model that knows random play only, and of those of "
    "the policy, what comes of the round whose policy plays",
    "asked": f"what is asked; of training's steps, states, minutes and memory, of {TRAINED_FOR} only",
}
_SHOWN = {(BEST_KNOWN, 0), (names.COUNTS_IN_ALL, 10)}
"""Figures that are shown without being required. The second is required for each rule by itself; for a whole state it
is harder to reach."""
_MARKS = {NO: "**", NOT_COUNTED: "*"}


def summary(rows: Sequence[Record], why_not_counted: str) -> Table:
    """Returns the summary of the rows of `rlflow reproduce accuracy` or `accuracy-transfer`.

    Args:
      why_not_counted: the graphs whose requirements do not count, as text.
    """
    graphs = list(dict.fromkeys(row["graph"] for row in rows))
    asked: dict[tuple[str, str, int], Record] = {}
    for row in _first_round_or_chosen(rows):
        if row.get("asked") or (row["figure"], row.get("step", 0)) in _SHOWN:
            line = {"figure": _title(row), "play": row.get("play", ""), "asked": row.get("asked", "")}
            asked.setdefault(_key(row), line)
    for row in _first_round_or_chosen(rows):
        if _key(row) in asked:
            asked[_key(row)][row["graph"]] = _cell(row)
    return Table(
        "What is asked of world models",
        COLUMNS
        | {
            name: f"mean over {_seeds(rows, name)} [its 95 % interval] vs the best trivial predictor" for name in graphs
        },
        {},
        [asked[key] for key in _grouped(list(asked))],
        "",
        f"What misses what is asked is set in **bold**, and in *italics* what is not counted: {why_not_counted}. "
        f"{UNDEFINED} stands for what play never came to.",
    )


def _first_round_or_chosen(rows: Sequence[Record]) -> Iterator[Record]:
    """Yields the rows of held-out play before recollection and those of the policies that play."""
    for row in rows:
        if row.get("asked") if row.get("play") == POLICY else not row.get("round"):
            yield row


def _key(row: Record) -> tuple[str, str, int]:
    return row.get("play", ""), row["figure"], row.get("step", 0)


def _grouped(keys: Sequence[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """Returns the keys in their order, but with all numbers of steps of one figure next to each other."""
    figures = list(dict.fromkeys(key[:2] for key in keys))
    return sorted(keys, key=lambda key: (figures.index(key[:2]), key[2]))


def _title(row: Record) -> str:
    step = row.get("step", 0)
    return row["figure"] + (f", {step} step{'s' if step > 1 else ''}" if step else "")


def _cell(row: Record) -> str:
    trivial, there = best_trivial(row), not isinstance(row["model"], str)
    mark = _MARKS.get(row.get("met", ""), "") if there else ""
    interval = f" [{_number(row['low'])}, {_number(row['high'])}]" if isinstance(row.get("low"), float) else ""
    beside = f" vs {_number(trivial)}" if there and trivial != UNDEFINED else ""
    return f"{mark}{_number(row['model'])}{mark}{interval}{beside}"


def _number(value: float | str) -> str:
    digits = 3 if isinstance(value, float) and abs(value) < 100 else 0
    return value if isinstance(value, str) else f"{value:,.{digits}f}"


def _seeds(rows: Sequence[Record], graph: str) -> str:
    count = max(row.get("seeds", 0) for row in rows if row["graph"] == graph)
    return f"{count} seed{'s' if count > 1 else ''}"
