"""The first table of the README shows the figures of `rlflow reproduce peers`."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from experiments.reproduce.search.peers import BY_CLOCK

ROOT = Path(__file__).parent.parent.parent
COLUMNS = {
    "greedy": ("greedy",),
    "TASO's search": ("taso",),
    "best of beam, restarts, passes": ("beam", "restarts", "passes"),
    "equality saturation": ("saturation k0", "saturation k1", "saturation k2"),
    "PPO on the engine": ("ppo real",),
    "mcts": ("mcts",),
    "X-RLflow": ("xrlflow",),
    "PPO in dreams": ("ppo dream",),
}
"""The rows of `peers` that a column shows the best of."""


def figures() -> dict[tuple[str, str], tuple[float, float]]:
    """Returns the improvements after 600 s and at the end, by graph and row."""
    with (ROOT / "experiments/results/peers/table.csv").open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["row"] != BY_CLOCK]
    return {(row["graph"], row["row"]): (float(row["600 s"]), float(row["end"])) for row in rows}


def first_table() -> list[list[str]]:
    """Returns the cells of the README's first table, its head first."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.search(r"\n\n((?:\|.*\n)+)", text)
    assert lines is not None
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1].splitlines()]
    return [rows[0], *rows[2:]]


def test_the_first_table_has_the_figures_of_peers() -> None:
    known, (head, *rows) = figures(), first_table()
    assert head == ["graph", *COLUMNS] and len(rows) == 7
    for graph, *cells in rows:
        shown = [re.findall(r"\d+\.\d", cell) for cell in cells]
        for names, numbers in zip(COLUMNS.values(), shown, strict=True):
            if not numbers:
                assert (graph.lower(), names[0]) not in known, "it has been run"
                continue
            after, end = (max(each) for each in zip(*(known[graph.lower(), name] for name in names), strict=True))
            assert numbers == [f"{after:.1f}", f"{end:.1f}"][: len(numbers)], (graph, names)
            assert len(numbers) == 2 or f"{end:.1f}" == f"{after:.1f}", "a later end is in brackets"
        best = f"{max(float(number) for numbers in shown for number in numbers):.1f}"
        bold = [number for cell in cells for number in re.findall(r"\*\*(\d+\.\d)\*\*", cell)]
        assert bold == [number for numbers in shown for number in numbers if number == best], graph
