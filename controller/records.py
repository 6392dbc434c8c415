"""`EpisodeRecord`: an episode in the real environment, in a form that anyone can replay and check."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

RELATIVE_RESOLUTION = 1e-9
"""Costs that differ by less than this fraction of the larger are equal: rounding never counts as improvement."""


NOOP = "no-op"
"""The rule name of NO-OP; older records have it in capitals."""


def is_improvement(cost_ms: float, reference_ms: float) -> bool:
    """Returns whether `cost_ms` is below `reference_ms` by more than rounding."""
    return cost_ms < reference_ms * (1 - RELATIVE_RESOLUTION)


@dataclasses.dataclass(frozen=True)
class EpisodeRecord:
    """One episode in the real environment: T steps, T + 1 graphs.

    Attributes:
      kind: who played and how: "deterministic", "sampled" or "random".
      seed: seed of the environment's reset and of the controller.
      actions: pairs (rule, location), one for each step; rule R is NO-OP. A step by an everywhere-action instead has
        all single rewrites that it carried out, so that an environment without everywhere-actions can replay them.
      rule_names: T names.
      rewards: T rewards of the environment.
      costs_ms: T + 1 costs, of which the first is the initial graph's.
      terminated, truncated: how the episode ended.
      cost_noise: T + 1 numbers, each half the width of the 95 % interval of a cost, as a fraction of the cost; empty if
        the costs are exact.
      ratio_noise: T + 1 numbers, each half the width of the 95 % interval of a cost over the initial graph's; empty if
        the costs are exact.
      reward_noise: T numbers, each half the width of the 95 % interval of a reward, in the reward's unit; empty if the
        rewards are exact.
      graph_hash: hash of the start graph (`OnnxModel.graph.hash`).
      rules: fingerprint of the rule set (`RuleSet.fingerprint`), to which the numbers of `actions` belong.
      chosen: number of steps to the graph that the clock has chosen as the best one; None if the costs choose.
      everywhere: T numbers of single rewrites that everywhere-actions carried out, 0 for all other steps; empty if
        there was no everywhere-action.

    `graph_hash` and `rules` say where the actions can be replayed; they are empty in records of older versions.
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
    chosen: int | None = None
    everywhere: tuple[int, ...] = ()
    ratio_noise: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        steps = self.num_steps
        if not len(self.rewards) == len(self.costs_ms) - 1 == steps:
            raise ValueError(
                f"An episode of {steps} steps has {steps} rule names and rewards and {steps + 1} costs; got "
                f"{steps}, {len(self.rewards)} and {len(self.costs_ms)}."
            )
        if len(self.everywhere) not in (0, steps) or self.num_actions(steps) != len(self.actions):
            raise ValueError(
                f"An episode of {steps} steps has {steps} actions, and those that everywhere-actions carried out "
                f"({list(self.everywhere)}); got {len(self.actions)}."
            )
        lengths = len(self.reward_noise) + 1 if self.reward_noise else 0, len(self.cost_noise), len(self.ratio_noise)
        if not set(lengths) <= {0, steps + 1}:
            raise ValueError(
                f"The noise of {steps} rewards, {steps + 1} costs and their ratios has as many figures, or none; got "
                f"{len(self.reward_noise)}, {len(self.cost_noise)} and {len(self.ratio_noise)}."
            )

    @property
    def num_steps(self) -> int:
        """T, the number of steps."""
        return len(self.rule_names)

    @property
    def _sizes(self) -> list[int]:
        """The number of actions of each step."""
        return [max(1, count) for count in self.everywhere] or [1] * self.num_steps

    def num_actions(self, step: int) -> int:
        """Returns the number of actions of the first `step` steps."""
        return sum(self._sizes[:step])

    @property
    def action_steps(self) -> tuple[int, ...]:
        """The step of each action, from 0."""
        return tuple(step for step, size in enumerate(self._sizes) for _ in range(size))

    @property
    def action_names(self) -> tuple[str, ...]:
        """The rule name of each action."""
        return tuple(self.rule_names[step] for step in self.action_steps)

    def played(self, everywhere: int | None) -> tuple[tuple[int, int], ...]:
        """Returns the T actions (rule, location) as they were played.

        Args:
          everywhere: the location of everywhere-actions, L; it is not used if there were none.
        Raises:
          ValueError: there were some, but no location is given.
        """
        if any(self.everywhere) and everywhere is None:
            raise ValueError("The episode holds everywhere-actions, but the environment has none.")
        firsts = [self.actions[self.num_actions(step)] for step in range(self.num_steps)]
        counts = self.everywhere or (0,) * self.num_steps
        return tuple(
            (rule, everywhere if count and everywhere is not None else location)
            for (rule, location), count in zip(firsts, counts, strict=True)
        )

    @property
    def best_step(self) -> int:
        """Number of steps to the best visited graph, the first of equals; 0 if none improved on the initial graph."""
        if self.chosen is not None:
            return self.chosen
        best = 0
        for step, cost_ms in enumerate(self.costs_ms):
            if is_improvement(cost_ms, self.costs_ms[best]):
                best = step
        return best

    @property
    def cut_off(self) -> int:
        """T if the limit of steps ended the episode at its best graph, so that a longer one may find more; else 0."""
        return self.num_steps if self.truncated and self.best_step == self.num_steps else 0

    @property
    def best_cost_ms(self) -> float:
        """Cost of the best visited graph."""
        return self.costs_ms[self.best_step]

    @property
    def best_actions(self) -> tuple[tuple[int, int], ...]:
        """The prefix of `actions` that leads to the best graph.

        A NO-OP at its end, with which a graph may be measured that was not when it was reached, is left out.
        """
        step = self.best_step
        ends = step > 0 and self.rule_names[step - 1].lower() == NOOP
        return self.actions[: self.num_actions(step - ends)]

    @property
    def improvement(self) -> float:
        """1 - best cost / initial cost, at most 1; 0 if the initial graph costs nothing. Negative only if `chosen`."""
        return 1 - self.best_cost_ms / self.costs_ms[0] if self.costs_ms[0] else 0.0

    @property
    def improvement_noise(self) -> float:
        """Half the width of the 95 % interval of `improvement`; in older records as if errors were independent."""
        if self.ratio_noise:
            return self.ratio_noise[self.best_step]
        return independent_noise(1 - self.improvement, self.noise_at(0), self.noise_at(self.best_step))

    def noise_at(self, step: int) -> float:
        """Returns the noise of the cost after `step` steps; see `cost_noise`."""
        return self.cost_noise[step] if self.cost_noise else 0.0

    def until(self, step: int) -> EpisodeRecord:
        """Returns the record of the first `step` steps."""
        return dataclasses.replace(
            self,
            actions=self.actions[: self.num_actions(step)],
            rule_names=self.rule_names[:step],
            rewards=self.rewards[:step],
            costs_ms=self.costs_ms[: step + 1],
            cost_noise=self.cost_noise[: step + 1],
            reward_noise=self.reward_noise[:step],
            chosen=None if self.chosen is None else min(self.chosen, step),
            everywhere=self.everywhere[:step],
            ratio_noise=self.ratio_noise[: step + 1],
        )

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values; `from_json` is the inverse."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> EpisodeRecord:
        """Returns the record of `to_json`'s values.

        Raises:
          ValueError: fields are missing, unknown or of unequal lengths.
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
            chosen=fields.get("chosen"),
            everywhere=tuple(fields.get("everywhere", ())),
            ratio_noise=tuple(fields.get("ratio_noise", ())),
        )


_NEWER = {"cost_noise", "reward_noise", "graph_hash", "rules", "chosen", "everywhere", "ratio_noise"}
"""Fields that records of older versions do not have."""


def independent_noise(ratio: float, before_noise: float, after_noise: float) -> float:
    """Returns half the width of the 95 % interval of a ratio of two costs whose errors are independent.

    The noise of each cost is given as a fraction of it. A ratio of exactly 1 has no noise, because a graph is then
    compared with itself. Records of before `ratio_noise` was kept have nothing better.
    """
    return 0.0 if ratio == 1 else ratio * math.hypot(before_noise, after_noise)


def noise_of(infos: Iterable[Mapping[str, Any]], key: str) -> tuple[float, ...]:
    """Returns the number that each step's `info` has by a name, or nothing if all are 0: what was found is exact."""
    numbers = tuple(float(info.get(key, 0.0)) for info in infos)
    return numbers if any(numbers) else ()


class EpisodeLog:
    """The log of an episode while it is played.

    The caller adds each step:

        log = EpisodeLog("sampled", seed, info)                 # `info` of the reset
        log.add(action, reward, terminated, truncated, info)
        record = log.record()
    """

    def __init__(self, kind: str, seed: int, info: Mapping[str, Any]) -> None:
        self._kind, self._seed = kind, seed
        self._infos = [info]
        self._actions: list[tuple[int, int]] = []
        self._everywhere: list[int] = []
        self._rule_names: list[str] = []
        self._rewards: list[float] = []
        self._played_on = [str(info.get(key, "")) for key in ("graph_hash", "rules_fingerprint")]
        self.terminated = self.truncated = False

    @property
    def over(self) -> bool:
        return self.terminated or self.truncated

    def add(self, action: Any, reward: float, terminated: bool, truncated: bool, info: Mapping[str, Any]) -> None:
        """Adds one step; a view with actions of its own gives the real action as `info["action"]`.

        What an everywhere-action carried out stands in `info["rewrites"]`.
        """
        rule, location = (int(part) for part in info.get("action", action))
        rewrites = tuple(info.get("rewrites", ())) or ((rule, location),)
        is_everywhere = (rule, location) not in rewrites
        self._everywhere.append(len(rewrites) if is_everywhere else 0)
        self._actions += rewrites
        self._rule_names.append(str(info["rule_name"]))
        self._rewards.append(float(reward))
        self._infos.append(info)
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
            costs_ms=tuple(float(info["cost_ms"]) for info in self._infos),
            terminated=self.terminated,
            truncated=self.truncated,
            cost_noise=noise_of(self._infos, "cost_noise"),
            reward_noise=noise_of(self._infos[1:], "reward_noise"),
            graph_hash=graph_hash,
            rules=rules,
            everywhere=tuple(self._everywhere) if any(self._everywhere) else (),
            ratio_noise=noise_of(self._infos, "ratio_noise"),
        )


def best_record(records: Iterable[EpisodeRecord]) -> EpisodeRecord | None:
    """Returns the record that improved most on its initial graph, the first of equals; None if there are no records.

    Ratios are compared instead of costs, because two records may hold times of one graph measured on different days.
    """
    best: EpisodeRecord | None = None
    for record in records:
        if best is None or is_improvement(1 - record.improvement, 1 - best.improvement):
            best = record
    return best


def best_improvement(records: Sequence[EpisodeRecord]) -> float:
    """Returns the improvement of `best_record`; 0 if there are no records."""
    best = best_record(records)
    return 0.0 if best is None else best.improvement
