"""Markov decision processes small enough to enumerate, played through the interface of
`worldmodel.dream.dream_env.DreamEnv`."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from controller.policies.latent import LatentPolicy
from controller.ppo.config import PolicyConfig
from worldmodel.data.trajectory import LatentObservation, Policy, Trajectory
from worldmodel.dream.step import DreamState


@dataclasses.dataclass(eq=False)
class TinyWorld:
    """A deterministic world of S states, A actions and NO-OP; z is the state as one-hot, h is always zero.

    Attributes:
      rules, sites: int [A], the rule and the site of each action.
      legal: bool [S, A]; NO-OP is always legal.
      following: int [S, A], the state that an action leads to.
      rewards: float [S, A]; NO-OP earns 0.
    """

    rules: np.ndarray
    sites: np.ndarray
    legal: np.ndarray
    following: np.ndarray
    rewards: np.ndarray
    structure: None = None
    _compiled: dict = dataclasses.field(default_factory=dict)

    def policy(self, *, seed: int = 0, config: PolicyConfig | None = None) -> LatentPolicy:
        return LatentPolicy(
            np.append(self.rules, self.rules.max() + 1),
            np.append(self.sites, self.sites.max() + 1),
            latent_size=len(self.legal),
            hidden_size=1,
            config=config or PolicyConfig(torso=(32,), width=8, mask_width=4, noop_logit=0.0),
            seed=seed,
        )

    def observe(self, states: tf.Tensor) -> LatentObservation:
        legal = np.pad(self.legal, ((0, 0), (0, 1)), constant_values=True)
        batch = states.shape[0]
        return LatentObservation(
            tf.one_hot(states, len(self.legal)), tf.zeros([batch, 1]), tf.gather(tf.constant(legal), states)
        )

    def rollout(self, policy: Policy, *, batch: int, horizon: int, seed: int) -> Trajectory:
        """Returns a rollout like that of `DreamEnv.rollout`, always from state 0."""
        key = (policy, batch, horizon)
        if key not in self._compiled:
            self._compiled[key] = tf.function(lambda seed: self._rollout(policy, batch, horizon, seed), autograph=False)
        return self._compiled[key](tf.constant(seed))

    def _rollout(self, policy: Policy, batch: int, horizon: int, seed: tf.Tensor) -> Trajectory:
        num_actions = len(self.rules)
        following = tf.constant(np.pad(self.following, ((0, 0), (0, 1))), tf.int32)
        gains = tf.constant(np.pad(self.rewards, ((0, 0), (0, 1))), tf.float32)
        states, alive = tf.zeros([batch], tf.int32), tf.ones([batch], tf.bool)
        steps, observations = [], []
        for t in range(horizon):
            observations.append(self.observe(states))
            action, log_prob, value = policy(observations[-1], tf.stack([seed, t]))
            action = tf.where(alive, action, num_actions)
            pair = tf.stack([states, action], axis=1)
            stopped = action == num_actions
            states = tf.where(alive & ~stopped, tf.gather_nd(following, pair), states)
            terminal = alive & (stopped | ~tf.reduce_any(tf.gather(tf.constant(self.legal), states), axis=1))
            kept = tf.cast(alive, tf.float32)
            steps.append((action, log_prob * kept, value * kept, tf.gather_nd(gains, pair) * kept, terminal, alive))
            alive = alive & ~terminal
        observations.append(self.observe(states))
        last = policy(observations[-1], tf.stack([seed, horizon]))[2] * tf.cast(alive, tf.float32)
        z, h, mask = (tf.stack(field) for field in zip(*observations, strict=True))
        actions, log_probs, values, rewards, terminals, lived = (tf.stack(field) for field in zip(*steps, strict=True))
        values = tf.concat([values, last[tf.newaxis]], axis=0)
        return Trajectory(z, mask, actions, rewards, terminals, lived, h, log_probs, values)

    @property
    def num_actions(self) -> int:
        return len(self.rules)

    def from_root(self) -> TinyWorld:
        return self

    def begun(self, state: DreamState) -> DreamState:
        return state

    def step(self, state: DreamState, action: tf.Tensor, seed: tf.Tensor) -> tuple[DreamState, tf.Tensor, tf.Tensor]:
        """Takes one step in every row, like `DreamEnv.step`."""
        states, actions = state.z.numpy().argmax(axis=1), action.numpy()
        noop = actions == self.num_actions
        taken = np.where(noop, 0, actions)
        reached = np.where(noop, states, self.following[states, taken])
        rewards = np.where(noop, 0.0, self.rewards[states, taken])
        return self.at(reached), tf.constant(rewards, tf.float32), tf.constant(noop | ~self.legal[reached].any(axis=1))

    def at(self, states: np.ndarray) -> DreamState:
        """Returns states, int [batch], as a dream has them."""
        observed = self.observe(tf.constant(states, tf.int32))
        past = tf.zeros_like(observed.action_mask)
        return DreamState(observed.z, observed.h, observed.h, observed.action_mask, past)

    def best_return(self, horizon: int) -> float:
        """Returns the largest undiscounted return from state 0 within `horizon` steps, found by dynamic programming."""
        values = np.zeros(len(self.legal))
        for _ in range(horizon):
            gains = np.where(self.legal, self.rewards + values[self.following], -np.inf)
            values = np.maximum(0.0, gains.max(axis=1, initial=-np.inf))  # 0: NO-OP
        return float(values[0])

    def play(self, policy: LatentPolicy, horizon: int) -> tuple[list[int], float]:
        """Returns the actions (A is NO-OP) and the return of the deterministic episode."""
        state, total, actions = 0, 0.0, []
        for _ in range(horizon):
            action = int(policy.distribution_and_value(self.observe(tf.constant([state])))[0].mode()[0])
            actions.append(action)
            if action == len(self.rules):
                break
            assert self.legal[state, action]
            total += self.rewards[state, action]
            state = int(self.following[state, action])
            if not self.legal[state].any():
                break
        return actions, total


def independent_sites(gains: np.ndarray) -> TinyWorld:
    """Returns a world of 2ⁿ states in which each of n (rule, site) actions can be taken once, in any order.

    Args:
      gains: float [rules, sites], the reward of each action.
    """
    num_rules, num_sites = gains.shape
    count = num_rules * num_sites
    states, actions = np.arange(2**count)[:, None], np.arange(count)[None, :]
    legal = (states >> actions) & 1 == 0
    return TinyWorld(
        rules=np.repeat(np.arange(num_rules), num_sites),
        sites=np.tile(np.arange(num_sites), num_rules),
        legal=legal,
        following=np.where(legal, states | (1 << actions), 0),
        rewards=np.broadcast_to(gains.reshape(-1), legal.shape),
    )


def detour() -> TinyWorld:
    """Returns a world with two plans: +1 and nothing more, or -2, -1 and then +10. Rule 2 undoes the -2."""
    legal, following, rewards = np.zeros((4, 4), bool), np.zeros((4, 4), int), np.zeros((4, 4))
    for state, action, target, reward in [
        (0, 0, 3, 1.0),
        (0, 1, 1, -2.0),
        (1, 2, 0, 2.0),
        (1, 3, 2, -1.0),
        (2, 0, 3, 10.0),
    ]:
        legal[state, action], following[state, action], rewards[state, action] = True, target, reward
    return TinyWorld(np.array([0, 1, 2, 1]), np.array([0, 0, 0, 1]), legal, following, rewards)


class TinyView:
    """A world as a view with one row, in place of a `LatentEnv`; its cost falls by what its actions earn."""

    def __init__(self, world: TinyWorld, max_steps: int = 50) -> None:
        self._world, self._max_steps, self.structure = world, max_steps, None

    @property
    def state(self) -> DreamState:
        return self._world.at(np.array([self._state]))

    def reset(self, *, seed: int | None = None) -> tuple[LatentObservation, dict[str, Any]]:
        self._state, self._cost_ms, self._steps = 0, 100.0, 0
        return self._world.observe(tf.constant([0])), {"cost_ms": self._cost_ms}

    def step(self, action: int) -> tuple[LatentObservation, float, bool, bool, dict[str, Any]]:
        world, noop = self._world, action == self._world.num_actions
        assert noop or world.legal[self._state, action]
        reward = 0.0 if noop else float(world.rewards[self._state, action])
        self._state = self._state if noop else int(world.following[self._state, action])
        self._cost_ms, self._steps = self._cost_ms - reward, self._steps + 1
        pair = (world.rules.max() + 1, 0) if noop else (world.rules[action], world.sites[action])
        info = {"cost_ms": self._cost_ms, "rule_name": str(pair[0]), "action": pair}
        terminated = noop or not world.legal[self._state].any()
        truncated = not terminated and self._steps >= self._max_steps
        return world.observe(tf.constant([self._state])), reward, terminated, truncated, info
