"""`Result`: the figures of a finished run, which result.json, the summary and the report show."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from controller.records import independent_noise
from environment.counting import Counts
from environment.statistics.intervals import Estimate
from environment.statistics.sequential import Verdict
from experiments.runs.typed import require_types

NOISE = 0.01
"""Ratios closer to 1 than this are noise, however narrow the interval: sessions of identical bytes differ that much."""
MEASURED_FORMAT = 2
"""Version of the files that keep a `MeasuredRatio`; version 2 has the verdict."""
MORE_ROUNDS = 3
"""Rounds of recollection to suggest if dreams are too good to be true: as many as `rlflow reproduce accuracy` runs."""

LARGE_GAP = 3.0
"""Points of improvement between dream and reality above which an alarm sounds."""
LEAST_OFFERED = 0.98
"""The share that a dream must offer of the rewrites that really pay, as `rlflow reproduce truth` judges it."""
OMITTED_NAMED = 3
"""Number of rules that the alarm of omissions names."""


@dataclasses.dataclass(frozen=True)
class GraphFigures:
    """The costs of one graph.

    Attributes:
      operators: number of run-time operators.
      cost_ms, flops, memory_bytes, kernel_launches: figures of the run's cost model.
      cost_noise: half the width of the 95 % interval of `cost_ms`, as a fraction of it; 0 if the cost is exact.
    """

    operators: int
    cost_ms: float
    flops: float
    memory_bytes: float
    kernel_launches: int
    cost_noise: float = 0.0


@dataclasses.dataclass(frozen=True)
class MeasuredRatio:
    """The end-to-end time of the result over that of the model, in ONNX Runtime.

    Attributes:
      ratio, low, high: the ratio and its 95 % interval; below 1 is faster.
      before_ms, after_ms: median times of the model and of the result.
      noise: interquartile range of the model's samples over their median.
      device: device of the measurement.
      runtime: label of the runtime, with device, version and settings.
      clock: name of the clock.
      pairs, sessions: number of interleaved pairs of measurements, and of the sessions over which they were spread.
      ending: one sentence that says how precise the measurement is and why it ended.
      verdict: whether the result is faster or slower, beyond noise, or whether that is undecided.
      threads: number of threads of the runtime.
      control_ratio, control_low, control_high: ratio and interval of the model against itself; None if not measured.
    """

    ratio: float
    low: float
    high: float
    before_ms: float
    after_ms: float
    noise: float
    device: str
    runtime: str
    clock: str
    pairs: int
    sessions: int
    ending: str
    verdict: Verdict
    threads: int = 1
    control_ratio: float | None = None
    control_low: float | None = None
    control_high: float | None = None

    @property
    def interval(self) -> Estimate:
        """The ratio with its interval; as text `0.877 [0.871, 0.886]`."""
        return Estimate(self.ratio, self.low, self.high)

    @property
    def control(self) -> Estimate | None:
        """The model's ratio to itself with its interval; None if it was not measured."""
        if self.control_ratio is None or self.control_low is None or self.control_high is None:
            return None
        return Estimate(self.control_ratio, self.control_low, self.control_high)

    @property
    def is_faster(self) -> bool:
        """Whether the result takes less time than the model, beyond noise."""
        return self.verdict == Verdict.FASTER

    @property
    def is_within_noise(self) -> bool:
        """Whether the result is not known to take less time than the model, nor more."""
        return self.verdict not in (Verdict.FASTER, Verdict.SLOWER)

    def sentence(self) -> str:
        """Returns a sentence that says whether the result is faster or slower, beyond noise."""
        percent = f"{abs(1 - self.ratio) * 100:.1f} %"
        where = f"on this machine's {self.device}"
        if self.verdict == Verdict.SLOWER:
            return f"SLOWER: end to end {where} the result takes {percent} longer than the model."
        if self.is_faster:
            return f"Faster: end to end {where} the result takes {percent} less time than the model."
        return f"End to end {where} the difference is within noise."


@dataclasses.dataclass(frozen=True)
class Result:
    """The figures of a finished run.

    Attributes:
      model, controller, world, costs, seed: the settings of the run; world is where the controller learns, and empty
        for one that does not learn.
      before, after: figures of the model after its clean-up, and of the exported graph.
      improvements: 1 - cost/cost₀ of the best graph of each source, in percent.
      episodes: number of episodes of each source.
      rules_applied: number of uses of each rule on the way to the exported graph, by name, in order of first use.
      found_by: the source of the exported graph.
      stop_reason: why a search stopped; empty if there was no search.
      timed: number of whole graphs that a search by the clock has timed.
      counts: what the whole run has done to find and choose the result, with the random play beside the controller, and
        without measuring the world model, without verification (`pipeline.optimise.APART`) and without `final_timings`.
      final_timings: timings of the result itself against the model: `measured`, `with_other_threads`, and one that did
        not confirm the graph that was chosen first; None in results of older versions.
      candidates: number of rewrites that the start graph allows.
      accuracy: accuracy of the world model on held-out episodes, a row for each number of steps; see
        `pipeline.learning.world_model.measure_accuracy`.
      largest_difference: largest difference between outputs of the model and the result, in standard deviations of the
        output's values; 0 if the model itself was written.
      tolerance: largest difference that was allowed, in the same unit.
      verified_in: where outputs were compared, "ONNX Runtime" or "onnx.reference"; empty if neither runs the model.
      unverified: why nothing was proved of the written model; empty if its outputs were compared, or if it is the model
        itself.
      measured: the end-to-end measurement; None if the model itself was written, or if it could not be measured.
      by_clock: whether a search by the clock has chosen the result, whatever it costs by the cost model.
      bytes_before, bytes_after: file sizes of the model and of the result, with their weights.
      with_other_threads: the same with all cores, or with one thread if `measured` has all; None if not measured.
      unmeasured: why the result could not be measured; empty if it was, or if it is the model itself.
      stage_seconds: wall-clock seconds of each stage, over all commands that worked on the run.
      peak_memory_bytes: largest resident size.
      graph_hash: hash of the exported graph.
      raised_opset: "13 to 20" if the rewrites needed a newer opset than the model's; else empty.
      selection: one sentence if the clock chose another graph than the cheapest or did not confirm that one, or if
        prices are of another machine; else empty.
      noise: half the width of the 95 % interval of each source's improvement, in percentage points; 0 if costs are
        exact.
      reward_noise: the largest half width of an interval of a reward in the evaluated episodes, in the reward's unit.
      rules_in_subgraphs: the same as `rules_applied` for the rewrites of graphs inside If, Loop and Scan, which the
        figures of the cost model do not contain.
      subgraph_notes: one sentence for each such graph that stays as it is, and for each rewrite that was left out.
      symbolic: the dimensions that `--dim` gives a size and that are symbolic in the result.
      symbolic_notes: sentences on the sizes at which that was verified, and on dimensions that are not symbolic.
      rounds: a row for each round of training in a dream, including round 0 before any recollection; empty if
        no policy was trained in a dream; see `pipeline.learning.rounds.Learning.round_row`.
      played: the number of the round whose policy was evaluated; None in results of older versions: the last one.
      ratio_noise: half the width of the 95 % interval of the exported graph's cost over the model's, in which what both
        rest on cancels out; None in results of older versions.
      cut_off: number of steps of the exported graph's episode, if the limit of steps ended it there; else 0.
    """

    model: str
    controller: str
    world: str
    costs: str
    seed: int
    before: GraphFigures
    after: GraphFigures
    improvements: dict[str, float]
    episodes: dict[str, int]
    rules_applied: dict[str, int]
    found_by: str
    stop_reason: str
    candidates: int
    accuracy: list[dict[str, Any]]
    largest_difference: float
    tolerance: float
    measured: MeasuredRatio | None
    stage_seconds: dict[str, float]
    peak_memory_bytes: int
    graph_hash: str
    by_clock: bool = False
    timed: int = 0
    counts: Counts = dataclasses.field(default_factory=Counts)
    final_timings: int | None = None
    with_other_threads: MeasuredRatio | None = None
    bytes_before: int = 0
    bytes_after: int = 0
    unmeasured: str = ""
    verified_in: str = "ONNX Runtime"
    unverified: str = ""
    raised_opset: str = ""
    selection: str = ""
    noise: dict[str, float] = dataclasses.field(default_factory=dict)
    reward_noise: float = 0.0
    rules_in_subgraphs: dict[str, int] = dataclasses.field(default_factory=dict)
    subgraph_notes: list[str] = dataclasses.field(default_factory=list)
    symbolic: list[str] = dataclasses.field(default_factory=list)
    symbolic_notes: list[str] = dataclasses.field(default_factory=list)
    rounds: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    played: int | None = None
    ratio_noise: float | None = None
    cut_off: int = 0

    @property
    def is_rewritten(self) -> bool:
        """Whether any rewrite was applied, also inside operators."""
        return bool(self.rules_applied or self.rules_in_subgraphs)

    @property
    def last_round(self) -> int:
        """The number of the last round; 0 without recollection."""
        return max(0, len(self.rounds) - 1)

    @property
    def played_round(self) -> int:
        """The number of the round whose policy was evaluated; 0 without recollection."""
        return self.last_round if self.played is None else self.played

    @property
    def plans(self) -> Mapping[str, Any]:
        """The figures of the plans of the round whose policy was evaluated; empty without rounds."""
        return self.rounds[self.played_round]["plans"] if self.rounds else {}

    @property
    def improvement_percent(self) -> float:
        """The estimated improvement of the exported graph, in percent of the model's cost."""
        return 100 * (1 - self.after.cost_ms / self.before.cost_ms) if self.before.cost_ms else 0.0

    @property
    def improvement_noise(self) -> float:
        """Half the width of the 95 % interval of `improvement_percent`, in percentage points; 0 if costs are exact."""
        if self.ratio_noise is not None:
            return 100 * self.ratio_noise
        ratio = 1 - self.improvement_percent / 100
        return 100 * independent_noise(ratio, self.before.cost_noise, self.after.cost_noise)

    def conclusion(self) -> str:
        """Returns the sentences that the user should read first."""
        if not self.candidates and not self.is_rewritten:
            return "No rule applies anywhere in this model, so nothing could be rewritten: the result equals the model."
        if not self.is_rewritten and self.selection:
            return f"{self.selection} The result equals the model."
        if not self.is_rewritten and self.by_clock:
            return "No graph that was timed is faster, so nothing was rewritten: the result equals the model."
        if not self.is_rewritten:
            return "No rewrite made the model cheaper, so nothing was rewritten: the result equals the model."
        faster = self.measured.sentence() if self.measured else ""
        percent = f"{abs(self.improvement_percent):.2f}{plus_minus(self.improvement_noise)} %"
        less = "less" if self.improvement_percent >= 0 else "more"  # if the clock has chosen, in spite of the costs
        on_paper = " on paper" * self.costs.startswith("roofline:")
        estimate = f"{percent} {less} estimated time{on_paper} ({self.costs})." if self.rules_applied else ""
        sentences = [faster, self.selection, estimate] if self.by_clock else [estimate, self.selection, faster]
        return " ".join(filter(None, sentences))

    def alarms(self) -> list[str]:
        """Returns the warnings of `dream_alarms` for the round whose policy was evaluated, and that of `cut_off`."""
        alarms = dream_alarms(self.accuracy, self.plans if self.rounds else None, self.last_round)
        if self.cut_off:
            steps = f"{self.cut_off} step{'s' * (self.cut_off > 1)}"
            alarms.append(
                f"The limit of {steps} ended an episode at the graph that was exported: longer episodes may find more, "
                f"with --set environment.max_steps={2 * self.cut_off}."
            )
        return alarms

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Result:
        """Returns the result of `to_json`'s values, also of those that older versions have written.

        Raises:
          TypeError, KeyError, ValueError: a value is missing, or is not of its kind.
        """
        require_types(cls, fields)
        if uncounted := [source for source in fields["improvements"] if source not in fields["episodes"]]:
            raise ValueError(f"'improvements' has {uncounted[0]!r}, of which 'episodes' has no number")
        parts: dict[str, Any] = {name: GraphFigures(**fields[name]) for name in ("before", "after")}
        for name in {"measured", "with_other_threads"} & fields.keys():
            stored = fields[name]
            parts[name] = None if stored is None else MeasuredRatio(**{**stored, "verdict": Verdict(stored["verdict"])})
        return cls(**{**fields, **parts, "counts": Counts.from_json(fields.get("counts", {}))})


def dream_alarms(accuracy: Sequence[Mapping[str, Any]], plans: Mapping[str, Any] | None, last_round: int) -> list[str]:
    """Returns sentences on how far a dream can be trusted, the most important first; none if all is well.

    Args:
      accuracy: a row for each number of steps, see `measure_accuracy`; empty if nothing was measured.
      plans: the figures of the policy's plans; None without a policy that was trained in a dream.
      last_round: number of the last round of recollection.
    """
    of_policy = [] if plans is None else [gap_alarm(plans, last_round), loops_note(plans)]
    return [sentence for sentence in (*of_policy, omission_alarm(accuracy, plans, last_round)) if sentence]


def loops_note(plans: Mapping[str, Any]) -> str:
    """Returns a sentence if the policy's dreams pay for loops; else nothing."""
    if plans.get("telescoping", True):
        return ""
    return (
        "The dream does not telescope (dream.telescoping=false): a rewrite and its undoing together may be dreamed to "
        "gain, though in reality they do not."
    )


def gap_alarm(plans: Mapping[str, Any], last_round: int) -> str:
    """Returns a warning if a policy's dreams are far from what the same rewrites do, or if nobody knows; else nothing.

    Args:
      plans: the figures of the policy's plans; empty if its rewards do not add up to an improvement.
      last_round: number of the last round of recollection.
    """
    if not plans:
        return (
            "Nobody knows how true the policy's dreams are: what its rewards add up to depends on the way to a graph, "
            "and is no improvement that what the same rewrites really do could be compared with. With "
            "--set environment.reward=log_ratio, incremental or combined it is one."
        )
    if not is_far(plans["gap"]):
        return ""
    return (
        f"Alarm: what the policy dreams and what the same rewrites really do are {plans['gap']:.1f} points apart "
        f"on average ({plans['dreamed_percent']:.2f} and {plans['real_percent']:.2f} points of improvement). Its "
        f"world model is wrong where it goes. Let the model learn from what the policy really plays: --recollect "
        f"{last_round + MORE_ROUNDS}."
    )


def omission_alarm(accuracy: Sequence[Mapping[str, Any]], plans: Mapping[str, Any] | None, last_round: int) -> str:
    """Returns a warning if a dream offers too few of the rewrites that really pay, or if nobody knows; else nothing.

    Held-out states of all numbers of steps count together, and so do those along the policy's plans.

    Args:
      accuracy: a row for each number of steps, see `measure_accuracy`.
      plans, last_round: see `dream_alarms`.
    """
    if not any("paying" in row for row in (*accuracy, plans or {})):
        if plans is None:
            return ""
        return (
            "Nobody knows whether the dream offers the rewrites that really pay: no held-out episode is long enough, "
            "or can be replayed, and no plans of the policy were compared with reality."
        )
    plans = plans or {}
    if not omits(accuracy, plans):
        return ""
    offered, place = _least_offered(accuracy, plans)
    omitted: Counter[str] = Counter()
    for row in (*accuracy, plans):
        omitted.update(row.get("omitted", {}))
    names = ", ".join(name for name, _ in omitted.most_common(OMITTED_NAMED))
    percent = math.floor(1000 * offered) / 10  # 97.96 % is not 98 %
    return (
        f"Alarm: the dream offers {percent}% of the rewrites that really pay {place}, less than "
        f"{LEAST_OFFERED:.0%}, so that its policy cannot learn to take them, mostly: {names}. Let the model learn "
        f"more of them: --set collect.directed=0.5 --set recollect.omitted=0.2 --set recollect.emphasis=3 "
        f"--recollect {last_round + 1}."
    )


def omits(accuracy: Sequence[Mapping[str, Any]], plans: Mapping[str, Any]) -> bool:
    """Returns whether a dream offers too few of the rewrites that really pay; see `omission_alarm`."""
    return _least_offered(accuracy, plans)[0] < LEAST_OFFERED


def _least_offered(accuracy: Sequence[Mapping[str, Any]], plans: Mapping[str, Any]) -> tuple[float, str]:
    return min((_offered(accuracy), "in held-out states"), (_offered([plans]), "along its plans"))


def _offered(rows: Sequence[Mapping[str, Any]]) -> float:
    """Returns the share that a dream offers of all rewrites that pay in the states of rows; 1 if nothing pays."""
    facts = [row for row in rows if row.get("paying")]
    paying = sum(row["paying"] for row in facts)
    return sum(row["paying"] * row["offered"] for row in facts) / paying if paying else 1.0


def plus_minus(noise: float) -> str:
    """Returns noise as ` ± 0.50`; an empty text if it is 0."""
    return f" ± {noise:.2f}" if noise else ""


def count_rules(rule_names: Sequence[str]) -> dict[str, int]:
    """Returns the number of uses of each rule by name, in order of first use."""
    return dict(Counter(rule_names))


def is_far(gap: float | None) -> bool:
    """Returns whether dreams and reality are so many points apart that an alarm should sound."""
    return gap is not None and gap > LARGE_GAP
