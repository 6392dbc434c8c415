"""`Candidates`: one discrete action and one row of features for each candidate rewrite."""

from __future__ import annotations

from typing import Any, Literal, SupportsFloat

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from environment.substitution.env import GraphSubstitutionEnv

RuleEncoding = Literal["one-hot", "id"]
Arrays = dict[str, npt.NDArray[np.float32]]


class Candidates(
    gymnasium.Wrapper[dict[str, Any], Any, dict[str, Any], npt.NDArray[np.int64]],
    RecordConstructorArgs,
):
    """Makes action 0 the NO-OP and action k the k-th legal (rule, location) in ascending order.

        env = Candidates(GraphSubstitutionEnv("bert-base"))
        observation, info = env.reset(seed=0)
        slot = np.random.choice(np.flatnonzero(env.action_masks()))
        observation, reward, terminated, truncated, info = env.step(slot)

    Agents that mask invalid actions need nothing else:

        sb3_contrib.MaskablePPO("MultiInputPolicy", env).learn(100_000)

    With M = max_candidates an observation holds `globals` as in the environment, and `candidates` float32
    [M + 1, F]: row k describes action k, and rows without a rewrite are zero. The columns, which `columns` names, are
    of order 1:

    - the rule, a category. "one-hot" has R + 1 columns, the last for NO-OP. "id" has one column, (rule + 1) / (R + 1),
      for agents that embed rules themselves or need small observations (with 64 rules and M = 512: 10 kB, not 142);
    - `location`, (location + 1) / L: a rewrite keeps its location as long as no step touches it, and the location
      separates rewrites that are alike in all other columns;
    - `position` of the rewrite's root in topological order, in (0, 1], 0 for NO-OP;
    - `log_flops`, `log_bytes` of the matched operators, each log(1 + x) / 20;
    - `cost_change` with `candidate_costs`: 100 ln(cost after / cost now), a one-step look-ahead in percent.

    `info` gains `num_candidates` (candidates with an action, NO-OP not counted) and `truncated_candidates` (candidates
    beyond M, without an action). An action without a rewrite is an illegal action of the environment: it changes
    nothing and its reward is `invalid_reward`, or it raises ValueError if the environment is strict.

    Args:
      env: a GraphSubstitutionEnv, wrapped or not.
      max_candidates: M, which sets the shape of the arrays; an agent made for one M cannot use another.
      candidate_costs: adds `cost_change`.
      rule_encoding: "one-hot" or "id".
    Raises:
      ValueError: it is another environment, or an argument is out of its range.
    """

    def __init__(
        self,
        env: gymnasium.Env[dict[str, Any], npt.NDArray[np.int64]],
        max_candidates: int = 512,
        candidate_costs: bool = False,
        rule_encoding: RuleEncoding = "one-hot",
    ) -> None:
        RecordConstructorArgs.__init__(
            self, max_candidates=max_candidates, candidate_costs=candidate_costs, rule_encoding=rule_encoding
        )
        super().__init__(env)
        space = env.observation_space
        if not (
            isinstance(env.unwrapped, GraphSubstitutionEnv)
            and isinstance(space, spaces.Dict)
            and "globals" in space.spaces
        ):
            raise ValueError(f"Candidates needs a GraphSubstitutionEnv with its observations, got {env}")
        if rule_encoding not in ("one-hot", "id"):
            raise ValueError(f"rule_encoding must be 'one-hot' or 'id', got {rule_encoding!r}")
        self._base = env.unwrapped
        self.max_candidates, self.candidate_costs = max_candidates, candidate_costs
        self.rule_encoding: RuleEncoding = rule_encoding
        self.columns = _column_names(self._base.rule_names, rule_encoding, candidate_costs)
        candidates = _candidate_space(self.columns, len(self._features()))
        self.action_space = spaces.Discrete(max_candidates + 1)
        self.observation_space = spaces.Dict({"globals": space["globals"], "candidates": candidates})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Arrays, dict[str, Any]]:
        """Starts an episode, see `GraphSubstitutionEnv.reset`."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._present(observation, info)

    def step(self, action: int) -> tuple[Arrays, SupportsFloat, bool, bool, dict[str, Any]]:
        """Takes the rewrite of a slot; slot 0 is NO-OP."""
        observation, reward, terminated, truncated, info = self.env.step(self._pair(int(action)))
        shown, info = self._present(observation, info)
        return shown, reward, terminated, truncated, info

    def rewrite(self, slot: int) -> npt.NDArray[np.int64]:
        """Returns the [rule, location] of a slot in this state.

        Raises:
          ValueError: the slot has no rewrite.
        """
        if slot == 0:
            return np.array([self._base.num_rules, 0], np.int64)
        rewrites = self._rewrites()
        if not 1 <= slot <= len(rewrites):
            raise ValueError(
                f"candidate {slot} has no rewrite: this state has NO-OP at 0 and {len(rewrites)} rewrites after it "
                "(see action_masks())"
            )
        return rewrites[slot - 1].astype(np.int64)

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Returns which slots are legal in this state [M + 1]; sb3-contrib calls this method by its name."""
        return np.arange(self.max_candidates + 1) <= len(self._rewrites())

    def _pair(self, slot: int) -> npt.NDArray[np.int64]:
        if self._base.strict or 0 <= slot <= len(self._rewrites()):
            return self.rewrite(slot)
        # No state has a rewrite at location L: the environment decides the reward of an illegal action.
        return np.array([0, self._base.num_locations], np.int64)

    def _present(self, observation: dict[str, Any], info: dict[str, Any]) -> tuple[Arrays, dict[str, Any]]:
        legal, shown = len(self._base.legal_actions()), len(self._rewrites())
        counts = {"num_candidates": shown, "truncated_candidates": legal - shown}
        return {"globals": observation["globals"], "candidates": self._features()}, {**info, **counts}

    def _rewrites(self) -> npt.NDArray[np.int32]:
        return self._base.legal_actions()[: self.max_candidates]

    def _features(self) -> npt.NDArray[np.float32]:
        return self._base.state.candidate_features(
            self.max_candidates, one_hot_rules=self.rule_encoding == "one-hot", costs=self.candidate_costs
        )


def _column_names(rules: tuple[str, ...], rule_encoding: RuleEncoding, candidate_costs: bool) -> tuple[str, ...]:
    rule = [f"rule:{name}" for name in (*rules, "no-op")] if rule_encoding == "one-hot" else ["rule"]
    return (*rule, "location", "position", "log_flops", "log_bytes", *(["cost_change"] if candidate_costs else []))


def _candidate_space(columns: tuple[str, ...], rows: int) -> spaces.Box:
    # log(1 + x) / 20 of e^100 FLOPs, and a cost ratio of e^50 in percent: nothing gets there.
    bounds = {"log_flops": 5.0, "log_bytes": 5.0, "cost_change": 5000.0}
    high = np.array([bounds.get(column, 1.0) for column in columns], np.float32)
    low = np.array([-5000.0 if column == "cost_change" else 0.0 for column in columns], np.float32)
    return spaces.Box(np.tile(low, (rows, 1)), np.tile(high, (rows, 1)), dtype=np.float32)
