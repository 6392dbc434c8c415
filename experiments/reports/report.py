"""Writes `report.md` and its plots from the directory of a finished run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from controller.evaluation import Evaluation
from controller.records import EpisodeRecord
from controller.search.journal import FILE, moves
from experiments.reports import plots
from experiments.reports.summary import (
    ACCURACY_COLUMNS,
    ROUND_COLUMNS,
    figure_text,
    graph_rows,
    not_verified,
    remarks,
    rule_rows,
    source_rows,
    time_rows,
)
from experiments.runs.directory import MetricsLog
from experiments.runs.result import LEAST_OFFERED, Result
from experiments.runs.rounds import REALLY_SAVED
from experiments.runs.run import in_round, of_round
from taso_ext.files import write_text
from worldmodel.config import PAYS_PERCENT


def stages_of_losses(played_round: int) -> dict[str, str]:
    """Returns stage -> title of the trainings of the first round and of the one whose policy plays."""
    first = {"encoder": "Encoder", "mdn-rnn": "MDN-RNN"}
    return first | {of_round("mdn-rnn", played_round): in_round("MDN-RNN", played_round)}


def write_report(run_directory: Path, result: Result, evaluation: Evaluation, exported: EpisodeRecord) -> None:
    """Draws the plots and writes report.md beside them.

    Args:
      run_directory: the directory of a run whose metrics are complete.
      result: the figures of the run.
      evaluation: the real episodes of the run.
      exported: the episode whose best graph was exported.
    """
    pictures = draw_plots(run_directory, result, evaluation, exported)
    write_text(run_directory / "report.md", report_text(result, pictures))


def draw_plots(run_directory: Path, result: Result, evaluation: Evaluation, exported: EpisodeRecord) -> dict[str, str]:
    """Draws all plots that the run has data for, and returns caption -> path relative to the run directory."""
    metrics = MetricsLog(run_directory / "metrics.jsonl")
    pictures: dict[str, str] = {}

    def picture(caption: str, name: str) -> Path:
        pictures[caption] = f"plots/{name}.png"
        return run_directory / pictures[caption]

    log = exported.costs_ms, exported.rule_names, exported.best_step
    plots.plot_costs(picture("Cost along the exported episode", "cost"), *log)
    plots.plot_improvements(
        picture("Best graph of each source", "improvements"),
        {source: percent / 100 for source, percent in result.improvements.items()},
    )
    if climb := moves(run_directory / "checkpoints" / FILE):
        gains = [(0.0, 0.0), *((seconds, 100 * (1 - ratio)) for seconds, _, ratio in climb)]
        title, labels = "Gain by the clock", ("seconds of the climb", "% of the model's time")
        plots.plot_steps(picture(title, "clock"), title, {"best graph so far": gains}, *labels)
    stages = stages_of_losses(result.played_round)
    losses = {title: loss_curves(metrics.read(stage)) for stage, title in stages.items()}
    if any(losses.values()):
        plots.plot_losses(
            picture("World-model losses", "world-model"), {t: curves for t, curves in losses.items() if curves}
        )
    if training := training_of(metrics.read(of_round("controller", result.played_round)), evaluation):
        place = in_round("in the dream", result.played_round) if result.world == "dream" else "in the real environment"
        title = f"{training.figure.capitalize()} in training and in real episodes"
        plots.plot_training(picture(title, "returns"), training.curves, training.real, training.figure, place)
    return pictures


def loss_curves(records: Sequence[dict[str, Any]]) -> dict[str, plots.Curve]:
    """Returns label -> curve of the loss and its parts in the records of a stage, smoothed for reading."""
    hidden = {"stage", "step", "gradient_norm"}
    keys = dict.fromkeys(key for record in records for key in record if key not in hidden)
    return {key.replace("_", " "): smoothed(curve(records, key)) for key in keys}


def smoothed(line: plots.Curve) -> plots.Curve:
    """Returns moving averages over a fortieth of the values, because single batches are too noisy to read."""
    steps, values = line
    width = max(1, len(values) // 40)
    means = np.convolve(values, np.ones(width) / width, mode="valid")
    return list(steps[width - 1 :]), means.tolist()


def curve(records: Sequence[dict[str, Any]], key: str) -> plots.Curve:
    """Returns steps and values of the records that have `key`."""
    chosen = [record for record in records if key in record]
    return [record["step"] for record in chosen], [record[key] for record in chosen]


class Training(NamedTuple):
    """What episodes have brought in training, and after it in the real environment.

    Attributes:
      figure: `return`, the sum of rewards; `improvement`, by the best graph of an episode, if it was trained for real.
      curves: label -> updates and values [%].
      real: part of the evaluation -> values of its episodes [%], without parts that have no episodes.
    """

    figure: str
    curves: dict[str, plots.Curve]
    real: dict[str, list[float]]


def training_of(updates: Sequence[dict[str, Any]], evaluation: Evaluation) -> Training | None:
    """Returns what the updates of a controller say of its training; None if they say nothing of episodes."""
    if not updates or "return" not in updates[0]:
        return None
    parts = {"deterministic": (evaluation.deterministic,), "sampled": evaluation.sampled, "random": evaluation.random}
    played = {part: records for part, records in parts.items() if records}
    if "percent" in updates[0]:
        figure, curves = "improvement", {"mean of each update": "percent", "best so far": "best_percent"}
        real = {part: [100 * record.improvement for record in records] for part, records in played.items()}
    else:
        figure, curves = "return", {"mean of each update": "return", "best of each update": "best_return"}
        real = {part: [sum(record.rewards) for record in records] for part, records in played.items()}
    return Training(figure, {label: curve(updates, key) for label, key in curves.items()}, real)


def report_text(result: Result, pictures: dict[str, str]) -> str:
    """Returns the text of report.md."""
    sections = [
        f"# {result.model}: {result.controller}{f' in the {result.world}' if result.world else ''}, seed {result.seed}",
        "\n\n".join([*([not_verified(result)] if result.unverified else []), *remarks(result)]),
        "## Before and after",
        _table(("", "before", "after", "change"), graph_rows(result)),
        "“Before” is the model after its clean-up, which is what every estimated improvement is counted from.",
        "## Best graph of each source",
        _table(("source", "estimated improvement"), source_rows(result)),
        "## Rules applied on the way to the exported graph",
        _table(("rule", "times"), rule_rows(result)) if result.rules_applied else "None.",
        *accuracy_section(result),
        *rounds_section(result),
        "## Pictures",
        *(f"**{caption}**\n\n![{caption}]({path})" for caption, path in pictures.items()),
        "## Time and memory",
        _table(("stage", "wall-clock"), time_rows(result)),
    ]
    return "\n\n".join(sections) + "\n"


def accuracy_section(result: Result) -> list[str]:
    """Returns the section about the accuracy of the world model, if there was one."""
    if not result.accuracy:
        return []
    rows = [[figure_text(row.get(key)) for key in ACCURACY_COLUMNS] for row in result.accuracy]
    return [
        "## World model on held-out episodes",
        _table(list(ACCURACY_COLUMNS.values()), rows),
        "Open loop: the model sees the actions and nothing else. Latent and mask errors are relative to copying the "
        "first state (1 would be no better); precision and recall are of the legal actions that changed. What pays are "
        f"the rewrites that really lower the cost by more than {PAYS_PERCENT:g} % there; the dream of a policy should "
        f"offer {LEAST_OFFERED:.0%} of them.",
    ]


def rounds_section(result: Result) -> list[str]:
    """Returns the section about dream and reality after each round, if there was a world model."""
    if not result.rounds:
        return []
    rows = [[figure_text((row["plans"] | row).get(key)) for key in ROUND_COLUMNS] for row in result.rounds]
    steps = max(row.get("step", 0) for row in result.rounds)
    return [
        "## Dream and reality",
        _table(list(ROUND_COLUMNS.values()), rows),
        "Each round adds real episodes of the policy to what the world model learns from, and trains a policy anew. "
        f"Mask error and R² as above, after {steps} steps. Then the policy makes plans wholly in its dream: their mean "
        "improvement there, that of the same rewrites in reality until the first illegal one and without the illegal "
        "ones, the mean difference of the first two, the share of rewrites that are illegal (– where rewards do not "
        "tell improvements), and the share of the rewrites that really pay along these plans which the dream offers.",
        *([said] if (said := played_round_said(result)) else []),
    ]


def played_round_said(result: Result) -> str:
    """Returns a sentence on the round whose policy plays; empty if there is one round only."""
    if len(result.rounds) < 2:
        return ""
    chosen = all(REALLY_SAVED in row["plans"] for row in result.rounds) and result.played is not None
    return f"The policy of round {result.played_round} plays{': its plans really save most' * chosen}."


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(headings) + " |", "|---|" + "---:|" * (len(headings) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])
