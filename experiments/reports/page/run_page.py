"""`report.html`: the page of one finished run, made from the files of its run directory, its model and its rules."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from controller.evaluation import Evaluation
from controller.search.journal import FILE, moves
from experiments.config.run import RunConfig
from experiments.pipeline.replay import IllegalRewriteError, graphs_along
from experiments.reports.page import charts
from experiments.reports.page.document import Cell, Markup, as_json, document, tag
from experiments.reports.page.document import table as sorting_table
from experiments.reports.page.rewrites import drawn
from experiments.reports.plots import Curve
from experiments.reports.report import curve, loss_curves, real_returns, stages_of_losses
from experiments.reports.summary import (
    ACCURACY_COLUMNS,
    ROUND_COLUMNS,
    figure_text,
    graph_rows,
    not_verified,
    remarks,
    source_rows,
    time_rows,
)
from experiments.runs.directory import PAGE, MetricsLog, RunDirectory
from experiments.runs.result import Result
from experiments.runs.run import of_round
from taso_ext import OnnxModel, RuleSet
from taso_ext.files import write_text

EVALUATION, ACTIONS, RESULT = "checkpoints/evaluation.json", "actions.json", "result.json"
LARGEST_DRAWING = 2_500_000
"""Bytes of the graphs of a page; the programs that draw charts take 0.9 MB of its 5."""
MOST_LISTED = 2_000
"""Rewrites that the page lists one by one, in 0.8 MB."""
COSTS = "Estimated time along the rewrites (a click on a point shows its rewrite)"
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


def write_run_page(
    directory: RunDirectory, config: RunConfig, model: OnnxModel, rules: RuleSet, output: Path | None = None
) -> Path:
    """Writes the page of a finished run and returns its path.

    Args:
      directory: the run directory, which is complete.
      config: the settings of the run.
      model, rules: those of the run, to which its actions belong.
      output: the file to write; None: report.html in the run directory.
    Raises:
      DamagedRun: a file of the run cannot be read, or its actions are not legal in the model.
    """
    log = directory.stored(ACTIONS, dict)
    with directory.reading(ACTIONS):
        actions = [(int(each["rule"]), int(each["location"])) for each in log["actions"]]
        rewrites = list(_rewrites(log))
        try:
            drawing = drawn(graphs_along(model, actions, rules, config))
        except IllegalRewriteError as error:
            raise ValueError(str(error)) from error
    result = directory.stored(RESULT, Result.from_json)
    evaluation = directory.stored(EVALUATION, Evaluation.from_json)
    page = _RunPage(directory, result, evaluation, rewrites, drawing, float(log["initial_cost_ms"]))
    path = output or directory.path / PAGE
    write_text(path, page.text())
    return path


def _rewrites(log: Mapping[str, Any]) -> Iterator[Rewrite]:
    cost_ms = float(log["initial_cost_ms"])
    for each in log["actions"]:
        after = each["cost_ms"]
        yield Rewrite(str(each["rule_name"]), int(each["location"]), int(each["step"]) + 1, cost_ms, after)
        cost_ms = cost_ms if after is None else float(after)


@dataclasses.dataclass(frozen=True)
class _RunPage:
    directory: RunDirectory
    result: Result
    evaluation: Evaluation
    rewrites: Sequence[Rewrite]
    drawing: Mapping[str, Any]
    initial_cost_ms: float

    def text(self) -> str:
        """Returns the page."""
        result, specs = self.result, dict(self._charts())
        where = f" in the {result.world}" if result.world else ""
        title = f"{result.model}: {result.controller}{where}, seed {result.seed}"
        warning = [tag("p", not_verified(result), class_="warning")] if result.unverified else []
        body = [
            tag("h1", title),
            *warning,
            *(tag("p", sentence) for sentence in remarks(result)),
            self._tiles(),
            tag("h2", "Before and after"),
            _table("figures", ("figure", "before", "after", "change"), graph_rows(result)),
            _note(
                "“Before” is the model after its clean-up, which is what every estimated improvement is counted from."
            ),
            *self._graph_section(specs),
            *self._rule_section(),
            tag("h2", "Best graph of each source"),
            _table("sources", ("source", "estimated improvement"), source_rows(result)),
            *self._world_model_section(),
            *(self._chart_section(specs)),
            tag("h2", "Time and memory"),
            _table("time", ("stage", "wall-clock"), self._times()),
        ]
        data: dict[str, Any] = {"charts": specs} if specs else {}
        if self._is_drawn:
            data["rewrites"] = self._drawing_data
        programs = [charts.programs()] if specs else []
        return document(title, body, data, programs, advice="Read report.md instead.")

    def _tiles(self) -> Markup:
        """Returns the figures that a reader looks for first."""
        result, measured = self.result, self.result.measured
        before, after = result.before.operators, result.after.operators
        tiles = [(f"{-result.improvement_percent:+.1f} %", f"estimated time, by {result.costs}")]
        if measured is not None:
            tiles.insert(0, (str(measured.interval), f"of the model's time, measured on {measured.device}"))
        tiles.append((f"{before} → {after}", "operators"))
        tiles.append((f"{len(self.rewrites)}", f"rewrites by {len(result.rules_applied)} rules"))
        return tag(
            "div", *(tag("div", tag("b", figure), about, class_="tile") for figure, about in tiles), class_="tiles"
        )

    @cached_property
    def _drawing_data(self) -> dict[str, Any]:
        return {"drawing": self.drawing, "sentences": self._sentences()}

    @cached_property
    def _is_drawn(self) -> bool:
        return len(as_json(self._drawing_data).encode()) <= LARGEST_DRAWING

    def _graph_section(self, specs: Mapping[str, charts.Spec]) -> Iterator[Markup]:
        """Yields the cost along the rewrites, the graphs with the slider, and the table of all rewrites."""
        yield tag("h2", "The graph before and after each rewrite")
        if COSTS in specs:
            yield _figure(COSTS)
        if not self._is_drawn:
            yield tag("p", "The graphs are not drawn, because they would make this page larger than 5 MB.")
        else:
            yield self._graphs()
        if self.rewrites:
            yield tag("h3", "Rewrites")
            headings = ["number", "rule", "step", "location", "replaced", "made", "time after [ms]", "change [ms]"]
            listed = range(min(len(self.rewrites), MOST_LISTED))
            yield sorting_table(headings, list(map(self._rewrite_row, listed)), name="rewrites-table")
            if len(listed) < len(self.rewrites):
                yield _note(f"The first {MOST_LISTED:,} of {len(self.rewrites):,} rewrites; actions.json has all.")
            yield _note(
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
        before, after = self.result.before, self.result.after
        if not self.rewrites:
            return ["No rewrite was applied: the graph stays as it is."]
        whole = (
            f"All {len(self.rewrites)} rewrites together: {before.operators} operators become {after.operators}, "
            f"estimated time {_change(before.cost_ms, after.cost_ms)}. Move the slider to see each of them."
        )
        return [whole, *map(self._sentence, range(len(self.rewrites)))]

    def _sentence(self, number: int) -> str:
        rewrite, change = self.rewrites[number], self.drawing["changes"][number]
        gone = self._named(change["gone"])
        made = self._named([operator for operator, _ in change["made"]])
        cost = "the estimated time is known when its step ends"
        if rewrite.cost_ms is not None:
            alone = sum(each.step == rewrite.step for each in self.rewrites) == 1
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

    def _rewrite_row(self, number: int) -> list[str | Cell]:
        rewrite, change = self.rewrites[number], self.drawing["changes"][number]
        shown = f"{number + 1}"
        button = tag("button", shown, data_rewrite=shown) if self._is_drawn else shown
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

    def _rule_section(self) -> Iterator[Markup]:
        if not self.rewrites:
            return
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
        yield _table("rules", ("rule", "times", "change [ms]", "of the model's time"), rows)
        yield _note(
            "The change is the sum over the steps of the rule. A rewrite that costs time may be what lets a later one "
            "save more."
        )

    def _world_model_section(self) -> Iterator[Markup]:
        result = self.result
        plans = [row["plans"] | row for row in result.rounds]
        for title, columns, rows in (
            ("World model on held-out episodes", ACCURACY_COLUMNS, result.accuracy),
            ("Dream and reality", ROUND_COLUMNS, plans),
        ):
            if rows:
                yield tag("h2", title)
                cells = [[figure_text(row.get(key)) for key in columns] for row in rows]
                yield _table(title.lower().replace(" ", "-"), list(columns.values()), cells)
                yield _note("report.md beside this page says what the columns mean.")

    def _charts(self) -> Iterator[tuple[str, charts.Spec]]:
        """Yields the charts that the run has data for, by their titles."""
        result = self.result
        if self.rewrites:
            yield COSTS, charts.cost_chart(charts.thinned(list(self._cost_log()), MOST_LISTED))
        if result.improvements:
            yield "Best graph of each source", charts.bar_chart(result.improvements, "less estimated time [%]")
        if climb := moves(self.directory.checkpoint(FILE)):
            gains = [(0.0, 0.0), *((seconds, 100 * (1 - ratio)) for seconds, _, ratio in climb)]
            seconds, percents = map(list, zip(*gains, strict=True))
            climbed: dict[str, Curve] = {"best graph so far": (seconds, percents)}
            yield (
                "Gain by the clock",
                charts.line_chart(climbed, "seconds of the climb", "% of the model's time", steps=True),
            )
        log = MetricsLog(self.directory.path / "metrics.jsonl")
        for stage, title in stages_of_losses(result.last_round).items():
            if curves := loss_curves(log.read(stage)):
                yield f"Losses of the world model: {title}", charts.line_chart(curves, "gradient step", "loss")
        updates = log.read(of_round("controller", result.last_round))
        if updates and "return" in updates[0]:
            training = {"mean of each update": "return", "best of each update": "best_return"}
            curves = {label: curve(updates, key) for label, key in training.items()}
            yield "Return in training", charts.line_chart(curves, "update", "return [%]")
            yield (
                "Return in real episodes after training",
                charts.strip_chart(real_returns(self.evaluation), "return [%]"),
            )

    def _cost_log(self) -> Iterator[dict[str, Any]]:
        yield {"rewrite": 0, "rule": "start", "cost_ms": self.initial_cost_ms, "percent": 100.0}
        for number, rewrite in enumerate(self.rewrites, 1):
            if rewrite.cost_ms is not None:
                percent = 100 * rewrite.cost_ms / self.initial_cost_ms if self.initial_cost_ms else 100.0
                yield {"rewrite": number, "rule": rewrite.rule, "cost_ms": rewrite.cost_ms, "percent": percent}

    def _chart_section(self, specs: Mapping[str, charts.Spec]) -> Iterator[Markup]:
        others = [title for title in specs if title != COSTS]
        if others:
            yield tag("h2", "Charts")
        yield from map(_figure, others)

    def _times(self) -> list[list[str | Cell]]:
        seconds = [*self.result.stage_seconds.values(), sum(self.result.stage_seconds.values())]
        *stages, memory = time_rows(self.result)
        rows: list[list[str | Cell]] = [
            [name, Cell(text, value)] for (name, text), value in zip(stages, seconds, strict=True)
        ]
        return [*rows, [*memory]]


def _table(name: str, headings: Sequence[str], rows: Sequence[Sequence[str | Cell]]) -> Markup:
    return sorting_table(headings, rows, name=name)


def _figure(title: str) -> Markup:
    return tag("figure", tag("h3", title), tag("div", data_chart=title))


def _note(text: str) -> Markup:
    return tag("p", text, class_="soft")


def _change(before_ms: float, after_ms: float) -> str:
    return f"{before_ms:.4f} → {after_ms:.4f} ms ({_percent(after_ms - before_ms, before_ms)})"


def _percent(change: float, whole: float) -> str:
    percent = round(100 * change / whole, 2) if whole else 0.0
    return f"{percent:+.2f} %" if percent else "0.00 %"
