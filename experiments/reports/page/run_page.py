"""`report.html`: the page of one finished run, made from the files of its run directory, its model and its rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from controller.evaluation import Evaluation
from controller.search.journal import FILE, moves
from experiments.config.run import RunConfig
from experiments.pipeline.loading.replay import graphs_along
from experiments.reports.page import charts
from experiments.reports.page.document import Cell, Markup, document, figure, note, table, tag
from experiments.reports.page.rewrite_section import COST_CHART, MOST_LISTED, RewriteSection
from experiments.reports.page.rewrites import drawn
from experiments.reports.plots import Curve
from experiments.reports.report import loss_curves, stages_of_losses, training_of
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
    result = directory.stored(RESULT, Result.from_json)
    operators = result.before.operators, result.after.operators
    log = directory.stored(ACTIONS, dict)
    with directory.reading(ACTIONS):
        actions = [(int(each["rule"]), int(each["location"])) for each in log["actions"]]
        drawing = drawn(graphs_along(model, actions, rules, config))
        section = RewriteSection.of_log(log, drawing, operators)
    evaluation = directory.stored(EVALUATION, Evaluation.from_json)
    page = _RunPage(directory, result, evaluation, section)
    path = output or directory.path / PAGE
    write_text(path, page.text())
    return path


@dataclasses.dataclass(frozen=True)
class _RunPage:
    directory: RunDirectory
    result: Result
    evaluation: Evaluation
    section: RewriteSection

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
            table(("figure", "before", "after", "change"), graph_rows(result), name="figures"),
            note(
                "“Before” is the model after its clean-up, which is what every estimated improvement is counted from."
            ),
            *self.section.parts(),
            tag("h2", "Best graph of each source"),
            table(("source", "estimated improvement"), source_rows(result), name="sources"),
            *self._world_model_section(),
            *(self._chart_section(specs)),
            tag("h2", "Time and memory"),
            table(("stage", "wall-clock"), self._times(), name="time"),
        ]
        data: dict[str, Any] = {"charts": specs} if specs else {}
        if self.section.is_drawn:
            data["rewrites"] = self.section.data
        programs = [charts.programs()] if specs else []
        return document(title, body, data, programs, advice="Read report.md instead.")

    def _tiles(self) -> Markup:
        """Returns the figures that a reader looks for first."""
        result, measured = self.result, self.result.measured
        before, after = result.before.operators, result.after.operators
        tiles = [(f"{-result.improvement_percent:+.1f} %", f"estimated time, by {result.costs}")]
        if measured is not None:
            within = ", which is within noise" * measured.is_within_noise
            tiles.insert(0, (str(measured.interval), f"of the model's time, measured on {measured.device}{within}"))
        tiles.append((f"{before} → {after}", "operators"))
        tiles.append((f"{len(self.section.rewrites)}", f"rewrites by {len(result.rules_applied)} rules"))
        return tag(
            "div", *(tag("div", tag("b", figure), about, class_="tile") for figure, about in tiles), class_="tiles"
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
                yield table(list(columns.values()), cells, name=title.lower().replace(" ", "-"))
                yield note("report.md beside this page says what the columns mean.")

    def _charts(self) -> Iterator[tuple[str, charts.Spec]]:
        """Yields the charts that the run has data for, by their titles."""
        result = self.result
        if self.section.rewrites:
            yield COST_CHART, charts.cost_chart(charts.thinned(list(self.section.cost_log()), MOST_LISTED))
        if result.improvements:
            yield "Best graph of each source", charts.bar_chart(result.improvements, "less estimated time [%]")
        with self.directory.reading(f"checkpoints/{FILE}"):
            climb = moves(self.directory.checkpoint(FILE))
        if climb:
            gains = [(0.0, 0.0), *((seconds, 100 * (1 - ratio)) for seconds, _, ratio in climb)]
            seconds, percents = map(list, zip(*gains, strict=True))
            climbed: dict[str, Curve] = {"best graph so far": (seconds, percents)}
            yield (
                "Gain by the clock",
                charts.line_chart(climbed, "seconds of the climb", "% of the model's time", steps=True),
            )
        log = MetricsLog(self.directory.path / "metrics.jsonl")
        for stage, title in stages_of_losses(result.played_round).items():
            if curves := loss_curves(log.read(stage)):
                yield (
                    f"Losses of the world model: {title}",
                    charts.line_chart(curves, "gradient step", "loss", losses=True),
                )
        if training := training_of(log.read(of_round("controller", result.played_round)), self.evaluation):
            name, label = training.figure.capitalize(), f"{training.figure} [%]"
            yield f"{name} in training", charts.line_chart(training.curves, "update", label)
            yield f"{name} in real episodes after training", charts.strip_chart(training.real, label)

    def _chart_section(self, specs: Mapping[str, charts.Spec]) -> Iterator[Markup]:
        others = [title for title in specs if title != COST_CHART]
        if others:
            yield tag("h2", "Charts")
        yield from map(figure, others)

    def _times(self) -> list[list[str | Cell]]:
        seconds = [*self.result.stage_seconds.values(), sum(self.result.stage_seconds.values())]
        *stages, memory = time_rows(self.result)
        rows: list[list[str | Cell]] = [
            [name, Cell(text, value)] for (name, text), value in zip(stages, seconds, strict=True)
        ]
        return [*rows, [*memory]]
