"""The part of a run's page about its rewrites: their costs, the graphs with the slider, and tables of them.

This module makes HTML of a log and a drawing; it reads no files and needs no engine.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from experiments.reports.page.document import Cell, Markup, as_json, figure, note, table, tag

LARGEST_DRAWING = 2_500_000
"""Bytes of the graphs of a page; the programs that draw charts take 0.9 MB of its 5."""
MOST_LISTED = 2_000
"""Rewrites that the page lists one by one, in 0.8 MB."""
COST_CHART = "Estimated time along the rewrites (a click on a point shows its rewrite)"
"""The title of the chart that is tied to the slider."""
NAMED_OPERATORS = 8
"""Operators that the sentence about a rewrite names."""


@dataclasses.dataclass(frozen=True)
class Rewrite:
    """One rewrite of the exported graph.

    Attributes:
      rule, location, step: what was carried out, and the step of the episode, from 1.
      cost_before_ms, cost_ms: the estimated time before its step, and after it; the latter is None for the first
        rewrites of a step that carries a rule out everywhere.
    """

    rule: str
    location: int
    step: int
    cost_before_ms: float
    cost_ms: float | None

    @property
    def change_ms(self) -> float | None:
        """What the step changes, if this rewrite is its last one."""
        return None if self.cost_ms is None else self.cost_ms - self.cost_before_ms


@dataclasses.dataclass(frozen=True)
class RewriteSection:
    """The rewrites of the exported graph, and what a page says about them.

    Attributes:
      rewrites: all of them, in order.
      drawing: the graphs along them, see `experiments.reports.page.rewrites.drawn`.
      initial_cost_ms: the estimated time of the start graph.
      operators: the numbers of run-time operators of the start graph and of the exported one.
      num_bodies: number of graphs inside operators that were rewritten too.
    """

    rewrites: Sequence[Rewrite]
    drawing: Mapping[str, Any]
    initial_cost_ms: float
    operators: tuple[int, int]
    num_bodies: int

    @classmethod
    def of_log(cls, log: Mapping[str, Any], drawing: Mapping[str, Any], operators: tuple[int, int]) -> RewriteSection:
        """Returns the section of the contents of actions.json.

        Raises:
          ValueError: no cost is known after the last rewrite, which ends a step.
        """
        rewrites = tuple(_rewrites(log))
        if rewrites and rewrites[-1].cost_ms is None:
            raise ValueError("the last rewrite has no cost")
        return cls(rewrites, drawing, float(log["initial_cost_ms"]), operators, len(log["subgraphs"]))

    def parts(self) -> Iterator[Markup]:
        """Yields the cost along the rewrites, the graphs with the slider, and the tables of rewrites and of rules."""
        yield tag("h2", "The graph before and after each rewrite")
        if self.rewrites:
            yield figure(COST_CHART)
        if self.is_drawn:
            yield self._graphs()
        else:
            yield tag("p", "The graphs are not drawn, because they would make this page larger than 5 MB.")
        if self.num_bodies:
            yield note("Graphs inside operators were rewritten too; they are not drawn.")
        if self.rewrites:
            yield from self._table()
            yield from self._rules()

    def cost_log(self) -> Iterator[dict[str, Any]]:
        """Yields what `charts.cost_chart` draws."""
        yield {"rewrite": 0, "rule": "start", "cost_ms": self.initial_cost_ms, "percent": 100.0}
        for number, rewrite in enumerate(self.rewrites, 1):
            if rewrite.cost_ms is not None:
                percent = 100 * rewrite.cost_ms / self.initial_cost_ms if self.initial_cost_ms else 100.0
                yield {"rewrite": number, "rule": rewrite.rule, "cost_ms": rewrite.cost_ms, "percent": percent}

    @cached_property
    def data(self) -> dict[str, Any]:
        """What the programs of the page draw and say."""
        return {"drawing": self.drawing, "sentences": self._sentences()}

    @cached_property
    def is_drawn(self) -> bool:
        """Whether the graphs are small enough for a page."""
        return len(as_json(self.data).encode()) <= LARGEST_DRAWING

    def _table(self) -> Iterator[Markup]:
        headings = ["number", "rule", "step", "location", "replaced", "made", "time after [ms]", "change [ms]"]
        listed = range(min(len(self.rewrites), MOST_LISTED))
        yield tag("h3", "Rewrites")
        yield table(headings, list(map(self._row, listed)), name="rewrites-table")
        if len(listed) < len(self.rewrites):
            yield note(f"The first {MOST_LISTED:,} of {len(self.rewrites):,} rewrites; actions.json has all.")
        yield note(
            "Replaced and made are numbers of operators. A step that carries a rule out everywhere has several "
            "rewrites; the estimated time is known after the last one."
        )

    def _graphs(self) -> Markup:
        count = len(self.rewrites)
        controls = Markup(
            f'<button data-go="-1" aria-label="previous rewrite">◀</button><input type="range" min="0" max="{count}" '
            'value="0" aria-label="rewrite"><button data-go="1" aria-label="next rewrite">▶</button>'
            '<button data-zoom="1.25" aria-label="larger">+</button>'
            '<button data-zoom="0.8" aria-label="smaller">−</button><button data-zoom="0">fit width</button>'
        )
        panes = [
            tag(
                "div",
                tag("h3", tag("span", class_=f"key {kind}"), f" {title}"),
                tag("div", class_="pane", tabindex="0"),
            )
            for kind, title in (
                ("gone", "before; coloured: what is replaced"),
                ("made", "after; coloured: what is made"),
            )
        ]
        return tag(
            "div",
            tag("div", controls, class_="controls"),
            tag("output", aria_live="polite"),
            tag("div", *panes, class_="panes"),
            tag("div", "Click an operator to see what it reads and makes.", class_="details soft"),
            class_="rewrites",
        )

    def _sentences(self) -> list[str]:
        """Returns what the page says about all rewrites together, and about each."""
        if not self.rewrites:
            return ["No rewrite was applied to this graph, which stays as it is."]
        before, after = self.operators
        last_ms = self.rewrites[-1].cost_ms
        assert last_ms is not None, "see of_log"
        whole = (
            f"All {len(self.rewrites)} rewrites together: {before} operators become {after}, estimated time "
            f"{_change(self.initial_cost_ms, last_ms)}. Move the slider to see each of them."
        )
        return [whole, *map(self._sentence, range(len(self.rewrites)))]

    @cached_property
    def _sizes(self) -> Counter[int]:
        """The number of rewrites of each step."""
        return Counter(rewrite.step for rewrite in self.rewrites)

    def _sentence(self, number: int) -> str:
        rewrite, change = self.rewrites[number], self.drawing["changes"][number]
        gone = self._named(change["gone"])
        made = self._named([operator for operator, _ in change["made"]])
        cost = "the estimated time is known when its step ends"
        if rewrite.cost_ms is not None:
            alone = self._sizes[rewrite.step] == 1
            cost = f"estimated time{'' if alone else ' over the whole step'} "
            cost += _change(rewrite.cost_before_ms, rewrite.cost_ms)
        return (
            f"Rewrite {number + 1} of {len(self.rewrites)}, {rewrite.rule} at location {rewrite.location} "
            f"(step {rewrite.step}): {gone} → {made}; {cost}."
        )

    def _named(self, operators: Sequence[int]) -> str:
        kinds = [self.drawing["operators"][operator][1] for operator in operators]
        more = len(kinds) - NAMED_OPERATORS
        return (", ".join(kinds[:NAMED_OPERATORS]) + (f" and {more} more" if more > 0 else "")) or "nothing"

    def _row(self, number: int) -> list[str | Cell]:
        rewrite, change = self.rewrites[number], self.drawing["changes"][number]
        shown = f"{number + 1}"
        button = tag("button", shown, data_rewrite=shown) if self.is_drawn else shown
        counts = (rewrite.step, rewrite.location, len(change["gone"]), len(change["made"]))
        costs = (rewrite.cost_ms, rewrite.change_ms)
        return [
            Cell(button, number + 1),
            rewrite.rule,
            *(Cell(str(count), count) for count in counts),
            *(
                Cell("–" if cost is None else text.format(cost), cost)
                for cost, text in zip(costs, ("{:.4f}", "{:+.3g}"), strict=True)
            ),
        ]

    def _rules(self) -> Iterator[Markup]:
        uses, changes = defaultdict[str, int](int), defaultdict[str, float](float)
        for rewrite in self.rewrites:
            uses[rewrite.rule] += 1
            changes[rewrite.rule] += rewrite.change_ms or 0.0
        start = self.initial_cost_ms
        rows = [
            (
                rule,
                Cell(str(count), count),
                Cell(f"{changes[rule]:+.3g}", changes[rule]),
                _percent(changes[rule], start),
            )
            for rule, count in sorted(uses.items(), key=lambda item: changes[item[0]])
        ]
        yield tag("h2", "Rules")
        yield table(("rule", "times", "change [ms]", "of the model's time"), rows, name="rules")
        yield note(
            "The change is the sum over the steps of the rule. A rewrite that costs time may be what lets a later one "
            "save more."
        )


def _rewrites(log: Mapping[str, Any]) -> Iterator[Rewrite]:
    cost_ms = float(log["initial_cost_ms"])
    for each in log["actions"]:
        after = each["cost_ms"]
        yield Rewrite(str(each["rule_name"]), int(each["location"]), int(each["step"]) + 1, cost_ms, after)
        cost_ms = cost_ms if after is None else float(after)


def _change(before_ms: float, after_ms: float) -> str:
    return f"{before_ms:.4f} → {after_ms:.4f} ms ({_percent(after_ms - before_ms, before_ms)})"


def _percent(change: float, whole: float) -> str:
    percent = round(100 * change / whole, 2) if whole else 0.0
    return f"{percent:+.2f} %" if percent else "0.00 %"
