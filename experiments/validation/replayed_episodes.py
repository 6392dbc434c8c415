"""Plays recorded episodes again, step by step, and says what is not as it was recorded."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from controller.records import RELATIVE_RESOLUTION, EpisodeRecord
from environment import GraphSubstitutionEnv
from worldmodel.data.actions import pack
from worldmodel.data.episodes import Episode

COLLECTED = ("collection", "recollection")
"""Kinds of episodes that are kept in shards."""
REWARD_RESOLUTION = 1e-6
"""Rewards that differ by less, or by less than this fraction, are equal: collected ones are kept as float32."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """Something that is not as it was recorded.

    Attributes:
      record: the file, and the episode in it.
      step: the number of steps before it; None if it is of no step.
      what: what differs.
      expected, found: what was recorded, and what is so now.
    """

    record: str
    step: int | None
    what: str
    expected: str
    found: str

    def __str__(self) -> str:
        place = self.record if self.step is None else f"{self.record}, step {self.step}"
        return f"{place}: {self.what} is {self.found}, but {self.expected} was recorded"


@dataclasses.dataclass(frozen=True)
class Claim:
    """A recorded episode.

    Attributes:
      name: the file, and the episode in it.
      record: its actions, costs and rewards.
      seed: the seed of the environment's reset, from which costs were drawn; None if nobody knows it.
      episode: also its graphs and legal rewrites, if it was collected.
    """

    name: str
    record: EpisodeRecord
    seed: int | None
    episode: Episode | None = None


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """How far apart costs may be.

    Attributes:
      compares: whether costs are compared at all.
      widened: the factor by which 95 % intervals are widened; 0 if costs are exact.
    """

    compares: bool = True
    widened: float = 0.0

    def equal(self, claimed: float, found: float, claimed_noise: float = 0.0, found_noise: float = 0.0) -> bool:
        """Returns whether two costs are equal; noise is half the width of a 95 % interval as a fraction of the cost."""
        if not self.compares:
            return True
        rounding = RELATIVE_RESOLUTION * max(abs(claimed), abs(found))
        return abs(claimed - found) <= rounding + self.widened * math.hypot(
            claimed * claimed_noise, found * found_noise
        )


class Replay:
    """Plays records again in one environment.

    Costs that are drawn (`noise=resampled`) are drawn again: a draw depends only on the seed of the reset and on the
    step at which an episode first meets a graph.

    Attributes:
      hashes: the hashes of all graphs that were met.
    """

    def __init__(self, env: GraphSubstitutionEnv, tolerance: Tolerance) -> None:
        self._env, self._tolerance = env, tolerance
        self.hashes: set[str] = set()

    def compares_rewards(self, claim: Claim) -> bool:
        """Returns whether the rewards of an episode are compared: if costs are exact, and their draws known if any."""
        if self._tolerance.widened or not self._tolerance.compares:
            return False
        return claim.seed is not None or not self._env.draws_costs

    def of(self, claim: Claim) -> Difference | None:
        """Returns the first difference of an episode; None if everything is as it was recorded."""
        env, record = self._env, claim.record
        steps = record.num_steps
        _, info = env.reset(seed=claim.seed, options={"max_steps": max(1, steps if record.truncated else steps + 1)})
        for what, claimed, found in (
            ("the start graph", record.graph_hash, info["graph_hash"]),
            ("the rule set", record.rules, info["rules_fingerprint"]),
        ):
            if claimed and claimed != found:
                return Difference(claim.name, 0, what, claimed, found)
        terminated = False
        if (difference := self._state(claim, 0, info)) is not None:
            return difference
        for step, action in enumerate(record.played(env.num_locations if env.everywhere else None)):
            _, reward, terminated, _, info = env.step(action)
            difference = self._rewrite(claim, step, info) or self._state(claim, step + 1, info)
            difference = difference or self._reward(claim, step, float(reward))
            if difference is not None:
                return difference
        if terminated != record.terminated:
            return Difference(claim.name, steps, "the end", _end(record.terminated), _end(terminated))
        return None

    def _rewrite(self, claim: Claim, step: int, info: dict[str, Any]) -> Difference | None:
        """Compares what a step has rewritten."""
        record = claim.record
        claimed_name, found_name = record.rule_names[step], info["rule_name"]
        if record.kind in COLLECTED:  # names its actions, of which one may have been left alone for want of a price
            found_name = (*self._env.rule_names, "NO-OP")[record.actions[record.num_actions(step)][0]]
        if claimed_name != found_name:
            return Difference(claim.name, step, "the rewrite", claimed_name, found_name)
        if record.everywhere and record.everywhere[step]:
            claimed = record.actions[record.num_actions(step) : record.num_actions(step + 1)]
            if claimed != info["rewrites"]:
                what = "what was carried out everywhere"
                return Difference(claim.name, step, what, str(list(claimed)), str(list(info["rewrites"])))
        return None

    def _state(self, claim: Claim, step: int, info: dict[str, Any]) -> Difference | None:
        """Compares the graph after `step` steps, its legal rewrites and its cost."""
        record, episode, name = claim.record, claim.episode, claim.name
        self.hashes.add(info["graph_hash"])
        if episode is not None:
            if episode.hashes[step] != info["graph_hash"]:
                return Difference(name, step, "the hash of the graph", episode.hashes[step], info["graph_hash"])
            legal = set(pack(self._env.legal_actions()).tolist())
            recorded = set(episode.codes_at(step).tolist())
            if legal != recorded:
                return Difference(name, step, "the number of legal rewrites", str(len(recorded)), str(len(legal)))
        if self._tolerance.widened and not record.cost_noise:  # how sure the costs were was not kept
            return None
        claimed, found = record.costs_ms[step], info["cost_ms"]
        if not self._tolerance.equal(claimed, found, record.noise_at(step), info["cost_noise"]):
            return Difference(name, step, "the cost", f"{claimed!r} ms", f"{found!r} ms")
        return None

    def _reward(self, claim: Claim, step: int, found: float) -> Difference | None:
        """Compares a reward; rewards of measured costs are as unsure as these and are not compared."""
        if not self.compares_rewards(claim):
            return None
        claimed = claim.record.rewards[step]
        if not abs(claimed - found) <= REWARD_RESOLUTION * max(1.0, abs(found)):
            return Difference(claim.name, step, "the reward", repr(claimed), repr(found))
        return None


def _end(terminated: bool) -> str:
    return "by itself" if terminated else "at the limit of steps"
