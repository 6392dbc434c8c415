"""`EpisodeRecord`: what an episode did to the real graph, in a form that anyone can replay and check."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

RELATIVE_RESOLUTION = 1e-9
"""Costs closer than this, relative to the larger, are equal: float rounding alone never counts as improvement."""


def is_improvement(cost_ms: float, reference_ms: float) -> bool:
    """Whether `cost_ms` is below `reference_ms` by more than rounding."""
    return cost_ms < reference_ms * (1 - RELATIVE_RESOLUTION)


@dataclasses.dataclass(frozen=True)
class EpisodeRecord:
    """One episode in the real environment: T steps, T + 1 graphs.

    Attributes:
      kind: who played and how, e.g. "deterministic", "sampled", "random".
      seed: of the environment's reset and of the controller.
      actions: T pairs (rule, location); rule == R is NO-OP.
      rule_names: T names.
      rewards: T rewards, as the environment gave them.
      costs_ms: T + 1 costs; costs_ms[0] is the initial graph's.
      terminated, truncated: how it ended.
      cost_noise: T + 1 halves of the widths of the 95 % intervals of `costs_ms`, as parts of these; empty where costs
        are exact.
      reward_noise: T such halves of `rewards`, in their own unit; empty where they are exact.
      graph_hash: hash of the start graph (`OnnxModel.graph.hash`).
      rules: fingerprint of the rule set (`RuleSet.fingerprint`), to which the numbers of `actions` belong.

    The last two say where the actions can be replayed; they are empty in records of older versions.
    """

    kind: str
    seed: int
    actions: tuple[tuple[int, int], ...]
    rule_names: tuple[str, ...]
    rewards: tuple[float, ...]
    costs_ms: tuple[float, ...]
    terminated: bool
    truncated: bool
    cost_noise: tuple[float, ...] = ()
    reward_noise: tuple[float, ...] = ()
    graph_hash: str = ""
    rules: str = ""

    def __post_init__(self) -> None:
        steps = len(self.actions)
        if not len(self.rule_names) == len(self.rewards) == len(self.costs_ms) - 1 == steps:
            raise ValueError(
                f"An episode of {steps} actions has {steps} rule names and rewards and {steps + 1} costs; got "
                f"{len(self.rule_names)}, {len(self.rewards)} and {len(self.costs_ms)}."
            )
        if len(self.cost_noise) not in (0, steps + 1) or len(self.reward_noise) not in (0, steps):
            raise ValueError(
                f"The noise of {steps} rewards and {steps + 1} costs has as many figures, or none; got "
                f"{len(self.reward_noise)} and {len(self.cost_noise)}."
            )

    @property
    def best_step(self) -> int:
        """Steps until the best graph visited: the first of equals, 0 if nothing improved on the initial one."""
        best = 0
        for step, cost_ms in enumerate(self.costs_ms):
            if is_improvement(cost_ms, self.costs_ms[best]):
                best = step
        return best

    @property
    def best_cost_ms(self) -> float:
        """Cost of the best graph visited."""
        return self.costs_ms[self.best_step]

    @property
    def best_actions(self) -> tuple[tuple[int, int], ...]:
        """The prefix of `actions` that leads to the best graph."""
        return self.actions[: self.best_step]

    @property
    def improvement(self) -> float:
        """1 - best cost / initial cost, in [0, 1)."""
        return 1 - self.best_cost_ms / self.costs_ms[0]

    @property
    def improvement_noise(self) -> float:
        """Half the width of the 95 % interval of `improvement`; what the two costs have in common is counted twice."""
        return ratio_noise(1 - self.improvement, self.noise_at(0), self.noise_at(self.best_step))

    def noise_at(self, step: int) -> float:
        """Of the cost after `step` steps, see `cost_noise`."""
        return self.cost_noise[step] if self.cost_noise else 0.0

    def until(self, step: int) -> EpisodeRecord:
        """Its first `step` steps."""
        return dataclasses.replace(
            self,
            actions=self.actions[:step],
            rule_names=self.rule_names[:step],
            rewards=self.rewards[:step],
            costs_ms=self.costs_ms[: step + 1],
            cost_noise=self.cost_noise[: step + 1],
            reward_noise=self.reward_noise[:step],
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` is its inverse."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> EpisodeRecord:
        """
        Raises:
          ValueError: if fields are missing, unknown or of unequal lengths.
        """
        expected = {field.name for field in dataclasses.fields(cls)}
        if not expected - _NEWER <= set(fields) <= expected:
            raise ValueError(f"An episode record has the fields {sorted(expected)}; got {sorted(fields)}.")
        return cls(
            kind=fields["kind"],
            seed=fields["seed"],
            actions=tuple((int(rule), int(location)) for rule, location in fields["actions"]),
            rule_names=tuple(fields["rule_names"]),
            rewards=tuple(fields["rewards"]),
            costs_ms=tuple(fields["costs_ms"]),
            terminated=fields["terminated"],
            truncated=fields["truncated"],
            cost_noise=tuple(fields.get("cost_noise", ())),
            reward_noise=tuple(fields.get("reward_noise", ())),
            graph_hash=fields.get("graph_hash", ""),
            rules=fields.get("rules", ""),
        )


_NEWER = {"cost_noise", "reward_noise", "graph_hash", "rules"}
"""Fields that records of older versions do not have."""


def ratio_noise(ratio: float, before_noise: float, after_noise: float) -> float:
    """Half the width of the 95 % interval of a ratio of costs, from those of the costs, as parts of these.

    As if they were independent; 0 where the ratio is 1, for a graph that is compared with itself.
    """
    return 0.0 if ratio == 1 else ratio * math.hypot(before_noise, after_noise)


class EpisodeLog:
    """An episode while it is played.

    log = EpisodeLog("sampled", seed, info)          # info of the reset
    log.add(action, reward, terminated, truncated, info)      # of each step
    record = log.record()
    """

    def __init__(self, kind: str, seed: int, info: Mapping[str, Any]) -> None:
        self._kind, self._seed = kind, seed
        self._costs_ms = [float(info["cost_ms"])]
        self._cost_noise = [float(info.get("cost_noise", 0.0))]
        self._reward_noise: list[float] = []
        self._actions: list[tuple[int, int]] = []
        self._rule_names: list[str] = []
        self._rewards: list[float] = []
        self._played_on = [str(info.get(key, "")) for key in ("graph_hash", "rules_fingerprint")]
        self.terminated = self.truncated = False

    @property
    def over(self) -> bool:
        return self.terminated or self.truncated

    def add(self, action: Any, reward: float, terminated: bool, truncated: bool, info: Mapping[str, Any]) -> None:
        """One step; a view with actions of its own gives the real one as `info["action"]`."""
        rule, location = info.get("action", action)
        self._actions.append((int(rule), int(location)))
        self._rule_names.append(str(info["rule_name"]))
        self._rewards.append(float(reward))
        self._costs_ms.append(float(info["cost_ms"]))
        self._cost_noise.append(float(info.get("cost_noise", 0.0)))
        self._reward_noise.append(float(info.get("reward_noise", 0.0)))
        self.terminated, self.truncated = bool(terminated), bool(truncated)

    def record(self) -> EpisodeRecord:
        """Returns the steps that were played so far."""
        graph_hash, rules = self._played_on
        return EpisodeRecord(
            kind=self._kind,
            seed=self._seed,
            actions=tuple(self._actions),
            rule_names=tuple(self._rule_names),
            rewards=tuple(self._rewards),
            costs_ms=tuple(self._costs_ms),
            terminated=self.terminated,
            truncated=self.truncated,
            cost_noise=tuple(self._cost_noise) if any(self._cost_noise) else (),
            reward_noise=tuple(self._reward_noise) if any(self._reward_noise) else (),
            graph_hash=graph_hash,
            rules=rules,
        )


def best_record(records: Iterable[EpisodeRecord]) -> EpisodeRecord | None:
    """The record that improved most on its initial graph; the first of equals; None without records.

    Of the ratio, not of the cost: where costs are measured, two records may know the same graph by times of two days.
    """
    best: EpisodeRecord | None = None
    for record in records:
        if best is None or is_improvement(1 - record.improvement, 1 - best.improvement):
            best = record
    return best


def best_improvement(records: Sequence[EpisodeRecord]) -> float:
    """Improvement of `best_record`; 0 without records."""
    best = best_record(records)
    return 0.0 if best is None else best.improvement
