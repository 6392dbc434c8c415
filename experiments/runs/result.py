"""`Result`: the figures of a finished run, as they stand in result.json, the summary and the report."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from controller.records import ratio_noise

NOISE = 0.01
"""Ratios closer to 1 than this are noise, however narrow the interval: sessions of identical bytes differ that much."""
MORE_ROUNDS = 3
"""Of recollection, where dreams are too good to be true: as many as `rlflow reproduce accuracy` goes through."""


def is_faster(ratio: float, high: float, floor: float = NOISE) -> bool:
    """Whether a graph takes less time than the model, beyond noise.

    Args:
      ratio, high: of their times, and the upper end of its interval.
      floor: ratios closer to 1 than this are noise.
    """
    return high < 1 and ratio < 1 - floor


@dataclasses.dataclass(frozen=True)
class GraphFigures:
    """What one graph costs.

    Attributes:
      operators: run-time operators.
      cost_ms, flops, memory_bytes, kernel_launches: by the run's cost model.
      cost_noise: half the width of the 95 % interval of `cost_ms`, as a part of it; 0 where that is exact.
    """

    operators: int
    cost_ms: float
    flops: float
    memory_bytes: float
    kernel_launches: int
    cost_noise: float = 0.0


@dataclasses.dataclass(frozen=True)
class MeasuredRatio:
    """End-to-end time of the result over that of the model, in ONNX Runtime.

    Attributes:
      ratio, low, high: the ratio and its 95 % interval; below 1 is faster.
      before_ms, after_ms: medians.
      noise: interquartile range of the model's samples over their median.
      device: what it was measured on.
      runtime: the same with version and settings.
      clock: what was read.
      pairs, sessions: interleaved pairs of measurements, and the sessions they were spread over.
      ending: one sentence on how precise that is, and why it ended.
      control_ratio, control_low, control_high: the same for the model against itself; None if that was not measured.
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
    control_ratio: float | None = None
    control_low: float | None = None
    control_high: float | None = None

    def floor(self) -> float:
        """Ratios closer to 1 than this are noise: so far has the model been from itself, beyond its interval."""
        if self.control_ratio is None or self.control_low is None or self.control_high is None:
            return NOISE
        deviates = not self.control_low <= 1 <= self.control_high
        return max(NOISE, abs(1 - self.control_ratio)) if deviates else NOISE

    @property
    def is_faster(self) -> bool:
        """Whether the result takes less time than the model, beyond noise."""
        return is_faster(self.ratio, self.high, self.floor())

    def verdict(self) -> str:
        """One sentence that says whether the result is faster or slower beyond noise."""
        percent = f"{abs(1 - self.ratio) * 100:.1f} %"
        where = f"on this machine's {self.device}"
        if self.low > 1 and self.ratio > 1 + self.floor():
            return f"SLOWER: end to end {where} the result takes {percent} longer than the model."
        if self.is_faster:
            return f"Faster: end to end {where} the result takes {percent} less time than the model."
        return f"End to end {where} the difference is within noise."


@dataclasses.dataclass(frozen=True)
class Result:
    """A finished run.

    Attributes:
      model, controller, world, costs, seed, preset: what was asked for; world is empty where there is none.
      before, after: the model after its clean-up, and the exported graph.
      improvements: 1 - cost/cost₀ of the best graph of each source, in percent.
      episodes: number of episodes behind each source.
      rules_applied: rule name -> count, in order of first use, on the way to the exported graph.
      found_by: the source of the exported graph.
      stop_reason: why a search stopped; empty where nothing searched.
      candidates: rewrites that the initial graph allows.
      accuracy: of the last world model on held-out episodes, a row for each number of steps (`stages.accuracy`).
      largest_difference: between outputs of model and result; 0 where the model itself was written.
      tolerance: what was allowed.
      measured: None where the model itself was written.
      stage_seconds: wall-clock time of each stage, over all commands that worked on the run.
      peak_memory_bytes: largest resident size.
      graph_hash: of the exported graph.
      raised_opset: "13 to 20" where the rewrites needed a newer opset than the model's; else empty.
      selection: one sentence where the clock chose another graph than the one that costs least, or could not confirm
        that one; else empty.
      noise: source -> half the width of the 95 % interval of its improvement, in points; 0 where costs are exact.
      reward_noise: the largest such half of a reward of the evaluated episodes, in the reward's unit.
      rounds: where there was a dream, a row for each round of recollection, that before the first included
        (`stages.controller`).
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
    raised_opset: str = ""
    selection: str = ""
    noise: dict[str, float] = dataclasses.field(default_factory=dict)
    reward_noise: float = 0.0
    rounds: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @property
    def last_round(self) -> int:
        """Number of the round whose policy was evaluated; 0 without recollection."""
        return max(0, len(self.rounds) - 1)

    @property
    def improvement_percent(self) -> float:
        """Estimated improvement of the exported graph."""
        return 100 * (1 - self.after.cost_ms / self.before.cost_ms) if self.before.cost_ms else 0.0

    @property
    def improvement_noise(self) -> float:
        """Half the width of the 95 % interval of `improvement_percent`, in points; 0 where costs are exact."""
        ratio = 1 - self.improvement_percent / 100
        return 100 * ratio_noise(ratio, self.before.cost_noise, self.after.cost_noise)

    def conclusion(self) -> str:
        """What the user should know first."""
        if not self.candidates:
            return "No rule applies anywhere in this model, so nothing could be rewritten: the result equals the model."
        if not self.rules_applied and self.selection:
            return f"{self.selection} The result equals the model."
        if not self.rules_applied:
            return "No rewrite made the model cheaper, so nothing was rewritten: the result equals the model."
        percent = f"{self.improvement_percent:.2f}{plus_minus(self.improvement_noise)} %"
        estimate = f"{percent} less estimated time ({self.costs})."
        return " ".join(filter(None, [estimate, self.selection, self.measured.verdict() if self.measured else ""]))

    def alarm(self) -> str:
        """One sentence where the last policy dreams of more than all that is known to be real; else empty."""
        plans = [row["plans"] for row in self.rounds if row["plans"]]
        if not plans:
            return ""
        dreamed = plans[-1]["best_dreamed_percent"]
        real = max(*self.improvements.values(), *(each["best_real_percent"] for each in plans))
        if not is_too_good(dreamed, real):
            return ""
        return (
            f"Alarm: the policy dreams of {dreamed:.2f} % less estimated time, but the best real result of this run is "
            f"{real:.2f} %: it makes use of its world model's mistakes. Let the model learn from what the policy "
            f"really plays: --recollect {self.last_round + MORE_ROUNDS}."
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` is its inverse."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Result:
        measured = fields["measured"]
        nested = {
            "before": GraphFigures(**fields["before"]),
            "after": GraphFigures(**fields["after"]),
            "measured": None if measured is None else MeasuredRatio(**measured),
        }
        return cls(**{**fields, **nested})


def plus_minus(noise: float) -> str:
    """` ± 0.50`; nothing where there is no noise."""
    return f" ± {noise:.2f}" if noise else ""


def count_rules(rule_names: Sequence[str]) -> dict[str, int]:
    """Name -> how often, in order of first use."""
    return dict(Counter(rule_names))


PRINTED = 0.01
"""Points: percents that differ by less are printed alike."""


def is_too_good(dreamed_percent: float, real_percent: float) -> bool:
    """Whether a dreamed improvement is more than the best real one that is known."""
    return dreamed_percent - real_percent >= PRINTED
