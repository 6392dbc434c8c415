"""The first tables of the README show the figures of `rlflow reproduce peers` and of `rlflow reproduce headline`."""

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
    "PPO in dreams": ("ppo exact",),
}
"""The rows of `peers` that a column shows the best of."""


def figures() -> dict[tuple[str, str], tuple[float, float]]:
    """Returns the improvements after 600 s and at the end, by graph and row."""
    known = {}
    for name in ("table.csv", "table-learning.csv"):
        with (ROOT / "experiments/results/peers" / name).open(encoding="utf-8") as lines:
            rows = [row for row in csv.DictReader(lines) if row["row"] != BY_CLOCK]
        known |= {(row["graph"], row["row"]): (float(row["600 s"]), float(row["end"])) for row in rows}
    return known


BY_THE_CLOCK = {
    "greedy": "greedy",
    "TASO's search": "taso",
    "PPO on the engine": "ppo real",
    "PPO in dreams": "ppo dream",
    "the papers' agent in dreams": "paper dream",
    "`rlflow optimise`": "rlflow optimise",
}
"""The rows of `headline` that a column shows."""


def table(number: int) -> list[list[str]]:
    """Returns the cells of one of the README's tables, its head first."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"\n\n((?:\|.*\n)+)", text)[number]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines.splitlines()]
    return [rows[0], *rows[2:]]


def test_the_first_table_has_the_figures_of_peers() -> None:
    known, (head, *rows) = figures(), table(0)
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


def test_the_second_table_has_the_figures_of_the_headline() -> None:
    known = {}
    tables = sorted((ROOT / "experiments/results/headline").glob("table*.csv"), reverse=True)  # newer ones come last
    for path in tables:
        with path.open(encoding="utf-8") as lines:
            known |= {(row["graph"], row["row"]): row for row in csv.DictReader(lines)}
    head, *rows = table(1)
    names = {"BERT-Tiny": "bert-l2-h128"}
    assert head == ["graph", *BY_THE_CLOCK, "dream off by [points]", "minutes: engine, dreams"]
    shown = [(*row[0].split(", "), row[1:]) for row in rows]
    assert {names.get(graph, graph.lower()) for graph, _, _ in shown} == {graph for graph, _ in known}
    for graph, kind, cells in shown:
        figure = {"on paper": "paper", "by the clock": "clock"}[kind]
        real, dream = (known[names.get(graph, graph.lower()), name] for name in ("ppo real", "ppo dream"))
        minutes = f"{float(real['minutes']):.0f}, {float(dream['minutes']):.0f}"
        expected = ["–", minutes] if kind == "by the clock" else [f"{float(dream['gap']):.1f}", "–"]
        assert cells[len(BY_THE_CLOCK) :] == expected, (graph, kind)
        for name, cell in zip(BY_THE_CLOCK.values(), cells[: len(BY_THE_CLOCK)], strict=True):
            value = known.get((names.get(graph, graph.lower()), name), {}).get(figure, "–")
            said = value if value == "–" else f"{round(float(value), 1) + 0.0:.1f}"
            assert cell.replace("−", "-").replace("*", "") == said, (graph, kind, name)
