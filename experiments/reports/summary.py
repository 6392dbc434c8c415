"""The tables that are printed at the end of a run and of a training."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from environment.counting import Counts
from environment.runtimes.interface import threads_text
from experiments.runs.progress import format_duration
from experiments.runs.result import Result, plus_minus

Row = tuple[str, str, str, str]

PREFIXES = (("G", 1e9), ("M", 1e6), ("k", 1e3))

FILE_WIDTH = 120
"""Characters per line of a summary that goes to a file or a pipe, where rich would assume a terminal of 80."""


ACCURACY_COLUMNS = {
    "step": "steps ahead",
    "windows": "windows",
    "latent_error": "latent error",
    "mask_error": "mask error",
    "change_precision": "precision",
    "change_recall": "recall",
    "offered": "offered of what pays",
    "return_r2": "R² of the return",
    "return_mae": "mean error of the return [%]",
}
ROUND_COLUMNS = {
    "round": "round",
    "episodes": "episodes",
    "mask_error": "mask error",
    "return_r2": "R² of the return",
    "dreamed_percent": "dreamed [%]",
    "real_percent": "real [%]",
    "skipping_percent": "really saved [%]",
    "gap": "gap [points]",
    "illegal_share": "illegal",
    "offered": "offered of what pays",
    "paying_recall": "the same along plans",
}


def print_summary(result: Result, output: str, run_directory: str, console: Console | None = None) -> None:
    """Prints everything that a user needs to decide; plain text if standard output is not a terminal."""
    console = console or Console(width=None if sys.stdout.isatty() else FILE_WIDTH)
    if result.unverified:
        console.print(not_verified(result), highlight=False, markup=False, soft_wrap=True)
    console.print(_graph_table(result))
    for title, rows in (
        ("best graph of each source (estimated improvement)", source_rows(result)),
        ("rules applied", rule_rows(result)),
        ("time", time_rows(result)),
    ):
        if rows:
            console.print(_two_columns(title, rows), "")
    for line in remarks(result):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(
        f"Wrote {output}. Everything about the run: {run_directory}", highlight=False, markup=False, soft_wrap=True
    )


def print_training(
    title: str,
    accuracy: Sequence[Mapping[str, Any]],
    rounds: Sequence[Mapping[str, Any]],
    updates: Sequence[Mapping[str, Any]],
    best_real: float | None,
    warnings: Sequence[str],
    counts: Counts,
    run_directory: str,
    console: Console | None = None,
) -> None:
    """Prints the results of a training.

    Args:
      title: the model and what was trained.
      accuracy: the accuracy of the world model on held-out episodes, see `measure_accuracy`.
      rounds: one row for each round whose policy was trained, see `Learning.round_row`.
      updates: the logged metrics of the policy's updates.
      best_real: the improvement of the best real episode of a training without a world model, in percent.
      warnings: the alarms of the round that will play.
      counts: what the training took.
    """
    console = console or Console(width=None if sys.stdout.isatty() else FILE_WIDTH)
    if accuracy:
        console.print(_columns(f"{title}: world model on held-out episodes", ACCURACY_COLUMNS, accuracy))
    if rounds:
        rows = [row["plans"] | row for row in rounds]
        console.print(_columns(f"{title}: dream and reality", ROUND_COLUMNS, rows))
    if updates:
        last = updates[-1]
        if "percent" in last:
            figures = [("mean improvement of the last update's episodes", f"{last['percent']:.2f} %")]
        else:
            figures = [("mean return of the last update", f"{last['return']:.3f}")]
            figures.append(("its best return", f"{last['best_return']:.3f}"))
        if best_real is not None:
            figures.append(("best real episode, estimated improvement", f"{best_real:.2f} %"))
        console.print(_two_columns(f"{title}: training", figures))
    for line in (*warnings, counts_line(counts)):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(
        f"Everything about the run: {run_directory}. `rlflow optimise` with the same options goes on from here.",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def graph_rows(result: Result) -> list[Row]:
    """Returns rows (figure, before, after, change)."""
    before, after = result.before, result.after
    rows = [
        ("operators", f"{before.operators}", f"{after.operators}", _change(before.operators, after.operators)),
        _row("estimated time [ms]", before.cost_ms, after.cost_ms, result.improvement_noise),
        _scaled_row("FLOPs", "", before.flops, after.flops),
        _scaled_row("memory", "B", before.memory_bytes, after.memory_bytes),
        (
            "kernel launches",
            f"{before.kernel_launches}",
            f"{after.kernel_launches}",
            _change(before.kernel_launches, after.kernel_launches),
        ),
    ]
    rows.append(_scaled_row("file", "B", result.bytes_before, result.bytes_after))
    if result.measured:
        measured = result.measured
        interval = f"ratio {measured.interval}"
        rows.append(
            (f"measured on {measured.device} [ms]", f"{measured.before_ms:.3f}", f"{measured.after_ms:.3f}", interval)
        )
        if (other := result.with_other_threads) is not None:
            times = f"{other.before_ms:.3f}", f"{other.after_ms:.3f}"
            rows.append((f"the same, {threads_text(other.threads)} [ms]", *times, f"ratio {other.interval}"))
        if measured.control is not None:
            rows.append(("the model against itself", "", "", f"ratio {measured.control}"))
    return rows


def source_rows(result: Result) -> list[tuple[str, str]]:
    """Returns rows (source, improvement and number of episodes)."""
    rows = []
    for source, percent in result.improvements.items():
        episodes, noise = result.episodes[source], plus_minus(result.noise.get(source, 0.0))
        rows.append((source, f"{percent:.2f}{noise} %  ({episodes} episode{'s' * (episodes != 1)})"))
    return rows


def rule_rows(result: Result) -> list[tuple[str, str]]:
    """Returns rows (rule, count), the most used rule first."""
    return [(name, str(count)) for name, count in sorted(result.rules_applied.items(), key=lambda item: -item[1])]


def time_rows(result: Result) -> list[tuple[str, str]]:
    """Returns rows (stage, duration), and behind them the total and the peak memory."""
    rows = [(stage, format_duration(seconds)) for stage, seconds in result.stage_seconds.items()]
    total = format_duration(sum(result.stage_seconds.values()))
    return [*rows, ("total", total), ("peak memory", f"{result.peak_memory_bytes / 1e9:.2f} GB")]


def remarks(result: Result) -> list[str]:
    """Returns the sentences that are printed below the tables, the most important first."""
    first = result.conclusion(), *result.alarms()
    return [line for line in (*first, *verification_lines(result)) if line]


def not_verified(result: Result) -> str:
    """Returns the sentence that a result begins with of which nothing was proved."""
    return f"Not verified: {result.unverified}. Only the proofs of its rules speak for the result."


def verification_lines(result: Result) -> list[str]:
    """Returns sentences on how the result was found and verified, and on how certain the figures are."""
    lines = [f"The exported graph was found by: {result.found_by}."] if result.rules_applied else []
    lines += [*subgraph_lines(result), *result.symbolic_notes]
    if result.is_rewritten and not result.unverified:
        lines.append(
            f"Verified in {result.verified_in}: largest output difference {result.largest_difference:.2e} of the "
            f"output's spread (tolerance {result.tolerance:.0e})."
        )
    if result.unmeasured:
        lines.append(f"Not measured end to end, because {result.unmeasured.rstrip('.')}.")
    if result.measured:
        lines.append(f"{result.measured.ending} {result.measured.runtime}; {result.measured.clock}.")
    if result.reward_noise:
        sure = f"and single rewards are sure to ± {result.reward_noise:.2f}"
        lines.append(f"Costs are measured: ± is half the width of a 95 % interval, {sure}.")
    if result.raised_opset:
        lines.append(f"The opset was raised from {result.raised_opset}, as its new operators need (see --opset).")
    lines.append(counts_line(result.counts, result.final_timings))
    if result.stop_reason:
        timed = f" It timed {result.timed} whole graphs." if result.timed else ""
        lines.append(f"The search stopped because {result.stop_reason}.{timed}")
    return lines


def counts_line(counts: Counts, final_timings: int | None = None) -> str:
    """Returns a sentence that says what it took to find and choose the result.

    Args:
      final_timings: timings of the result itself; None if there is no result yet, or if nobody has counted them.
    """
    final = "" if final_timings is None else f"; {final_timings:,} more timed the result itself at the end"
    return (
        f"It took {counts.real_steps:,} real steps, {counts.dreamed_steps:,} dreamed steps, "
        f"{counts.cost_evaluations:,} evaluations of the cost model, {counts.kernel_timings:,} timings of kernels and "
        f"{counts.end_to_end_timings:,} of whole graphs{final}."
    )


def subgraph_lines(result: Result) -> list[str]:
    """Returns sentences on the graphs inside If, Loop and Scan."""
    lines = list(result.subgraph_notes)
    if result.rules_in_subgraphs:
        count = sum(result.rules_in_subgraphs.values())
        names = ", ".join(f"{name} ({uses})" for name, uses in result.rules_in_subgraphs.items())
        lines.insert(
            0, f"In subgraphs: {count} rewrite{'s' * (count > 1)}: {names}. The estimated time is without them."
        )
    return lines


def _row(label: str, before: float, after: float, noise: float) -> Row:
    return (label, f"{before:.4f}", f"{after:.4f}", _change(before, after, noise))


def _scaled_row(label: str, unit: str, before: float, after: float) -> Row:
    """Returns a row in the unit prefix that suits the larger number."""
    prefix, factor = next((item for item in PREFIXES if max(before, after) >= item[1]), PREFIXES[-1])
    return (f"{label} [{prefix}{unit}]", f"{before / factor:.3f}", f"{after / factor:.3f}", _change(before, after))


def _change(before: float, after: float, noise: float = 0.0) -> str:
    return f"{100 * (after / before - 1):+.1f}{plus_minus(noise)} %" if before else ""


def _graph_table(result: Result) -> Table:
    table = _table(f"{result.model} · {result.controller}")
    table.add_column("")
    for heading in ("before", "after", "change"):
        table.add_column(heading, justify="right")
    for row in graph_rows(result):
        table.add_row(*map(Text, row))  # Text: rich would read the units' brackets as markup
    return table


def figure_text(value: float | None) -> str:
    """Returns a figure of a table as text; an en dash if there is none."""
    if value is None:
        return "–"
    return str(value) if isinstance(value, int) else f"{value:.3f}"


def _columns(title: str, columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> Table:
    table = _table(title)
    for heading in columns.values():
        table.add_column(Text(heading), justify="right")
    for row in rows:
        table.add_row(*(Text(figure_text(row.get(key))) for key in columns))
    return table


def _two_columns(title: str, rows: list[tuple[str, str]]) -> Table:
    table = _table(title)
    table.add_column("")
    table.add_column("", justify="right")
    for row in rows:
        table.add_row(*map(Text, row))
    table.show_header, table.box = False, None
    return table


def _table(title: str) -> Table:
    return Table(title=Text(title), title_justify="left", title_style="bold", box=SIMPLE_HEAD, min_width=50)
