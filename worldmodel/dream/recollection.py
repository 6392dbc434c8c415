"""Recollection: real episodes of a player that sees latents, for the next round of training its world model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import sonnet as snt
import tensorflow as tf

from worldmodel.accuracy.omissions import PayingEnv, paying_rewrites
from worldmodel.data.episodes import BehaviourPolicy, Episode, EpisodeBuffer, RewriteEnv, collect
from worldmodel.dream.dream_env import DreamEnv
from worldmodel.dream.latent_env import LatentEnv
from worldmodel.dream.planning import beam_search, cross_entropy_planning
from worldmodel.dream.players import Player
from worldmodel.dream.step import DreamState, legal_logit
from worldmodel.dream.structure import Structure
from worldmodel.world_model import WorldModel

_LATENT, _IS_FIRST = "latent", "is first"
MOST_ROWS = 2048
"""Rows of a step of a beam search, about: its widest beam has so many rewrites in the first state."""
POPULATION, ELITES, ITERATIONS = 256, 32, 12
"""How hard cross-entropy planning searches."""


def recollect(
    world_model: WorldModel,
    env: PayingEnv,
    player: Player,
    *,
    episodes: int,
    seed: int,
    dream: DreamEnv | None = None,
    dreamed: float = 0.5,
    certain: DreamEnv | None = None,
    searched: float = 0.0,
    omitted: float = 0.0,
    uncertain: float = 0.0,
    legal_from: float = 0.5,
    on_episode: Callable[[Episode], None] | None = None,
) -> EpisodeBuffer:
    """Returns real episodes of a player; `EpisodeBuffer.extend` adds them to those that the model was trained on.

    In some episodes it sees the real states. In others it first plays a dream, and then the dreamed actions are taken
    in reality, except those that turn out to be illegal. These episodes lead to the states where dreams go wrong. A
    player that sees the real states would not go there, and the model would not learn from them. Others again follow a
    plan that a search has found in the dream: it finds mistakes that the player has not found yet, and that a player of
    the next round may find.

    A player does not take what its dream does not offer, and real episodes of it would not teach the model any better.
    So some steps take a rewrite that really pays and that the model, one step before, considered illegal, and others
    one on whose reward the members of the model's ensemble disagree.

    The episodes hold all legal actions, but the player can only take actions in the model's table.

    Args:
      env: the real environment.
      player: it sees the real states through `world_model`.
      dream: a `DreamEnv.of_root` of `world_model`; None: the player sees the real states in all episodes.
      dreamed: the share of episodes that follow a dream.
      certain: the same dream at temperature 0, for searches.
      searched: the share of episodes that follow a plan which a search has found; 0 without `certain`.
      omitted: the share of steps that take a rewrite that pays and that the model omits, if there is one. The larger
        its gain, the likelier it is.
      uncertain: the share of steps that take a rewrite on whose reward the members of an ensemble disagree; the more
        they do, the likelier it is.
      legal_from: probability from which the model's rewrites count as legal, as for `DreamConfig`.
      episodes, seed, on_episode: see `worldmodel.data.episodes.collect`.
    Raises:
      ValueError: some steps are to be uncertain, but the model is no ensemble.
    """
    latent = _Latent(env, world_model, None if dream is None else dream.structure)
    searches = None if certain is None else _Searches(certain)
    behaviour: BehaviourPolicy = _Behaviour(world_model, latent, player, dream, dreamed, searches, searched)
    if uncertain:
        behaviour = _Exploring(behaviour, _Doubts(world_model), latent, uncertain)
    if omitted:
        behaviour = _Correcting(behaviour, _Beliefs(world_model, legal_from), latent, env, omitted)
    return collect(latent, behaviour, episodes, seed, on_episode=on_episode)


class _Searches:
    """Searches in a dream: a beam search of every width once, and cross-entropy plannings with other draws."""

    def __init__(self, dream: DreamEnv) -> None:
        self._dream = dream
        legal = int(np.count_nonzero(dream.start(1, tf.constant([0, 0], tf.int32)).action_mask.numpy()))
        self._widths = [2**number for number in range(1 + int(np.log2(max(2, MOST_ROWS // max(1, legal)))))]

    def plan(self, generator: np.random.Generator) -> tuple[int, ...]:
        """Returns the actions of the plan that a search finds."""
        dream, depth = self._dream, self._dream.longest
        if self._widths and generator.random() < 0.5:  # a beam search of one width would find its plan again
            width = self._widths.pop(int(generator.integers(len(self._widths))))
            return beam_search(dream, width=width, depth=depth).actions
        seed = int(generator.integers(2**31))
        return cross_entropy_planning(
            dream, depth=depth, population=POPULATION, elites=ELITES, iterations=ITERATIONS, seed=seed
        ).actions


class _Behaviour:
    """A behaviour policy that follows the real states, a dream or a search; chance decides when an episode begins."""

    def __init__(
        self,
        world_model: WorldModel,
        env: _Latent,
        player: Player,
        dream: DreamEnv | None,
        dreamed: float,
        searches: _Searches | None,
        searched: float,
    ) -> None:
        self._table, self._longest = world_model.table, world_model.statistics.longest
        self._env, self._player, self._dream, self._dreamed = env, player, dream, dreamed
        self._searches, self._searched = searches, searched
        self._plan: list[int] | None = None

    def __call__(self, observation: dict[str, Any], generator: np.random.Generator) -> np.ndarray:
        if observation[_IS_FIRST]:
            self._plan = self._drawn_plan(generator)
            if self._plan is None:
                self._player.begin(self._env.latent, generator)
        return self._table.decode(np.array([self._action(observation, generator)]))[0]

    def _drawn_plan(self, generator: np.random.Generator) -> list[int] | None:
        """Returns the actions of a plan, last first; None for an episode in which the player sees the real states."""
        if self._dream is None and self._searches is None:
            return None
        drawn = generator.random()
        if self._dream is not None and drawn < self._dreamed:
            seed = int(generator.integers(2**31))
            played = self._player.dream(self._dream, episodes=1, horizon=self._longest, seed=seed)
            taken = played.action[played.alive]
            return [int(action) for action in taken[::-1]]
        if self._searches is not None and drawn < self._dreamed + self._searched:
            return list(self._searches.plan(generator)[::-1])
        return None

    def _action(self, observation: dict[str, Any], generator: np.random.Generator) -> int:
        if self._plan is None:
            return self._player.choose(observation[_LATENT], generator)
        legal = observation[_LATENT].action_mask.numpy()[0]
        while self._plan:
            action = self._plan.pop()
            if legal[action]:
                return action
        return self._table.num_actions


class _Doubts:
    """How far the members of an ensemble are apart on the rewards of the rewrites that are legal in a state."""

    def __init__(self, world_model: WorldModel) -> None:
        self._model = world_model.mdn_rnn
        if len(self._model.members) < 2:
            raise ValueError("a world model of one member has no disagreement; train an ensemble of two or more")
        self._codes = self._model.action_codes(world_model.inputs(world_model.start_graph()))
        self._spread = tf.function(self._spreads, autograph=False, reduce_retracing=True)

    def _spreads(self, state: DreamState, actions: tf.Tensor) -> tf.Tensor:
        rows = tf.zeros_like(actions)
        z, hidden, cell, *bits = (tf.gather(each, rows) for each in state[:5])
        hidden = self._model.advance(z, actions, snt.LSTMState(hidden, cell), self._codes).hidden
        legal, past = (tf.cast(each, tf.float32) for each in bits)
        found = self._model.predict(hidden, z, actions, legal, past, self._codes)
        return tf.math.reduce_std([each["reward"].likely for each in found], axis=0)

    def of(self, state: DreamState, actions: np.ndarray) -> np.ndarray:
        """Returns the standard deviation of the members' rewards [n] of actions [n] in a state of one row."""
        spread: np.ndarray = self._spread(state, tf.constant(actions, tf.int32)).numpy()
        return spread


class _Exploring:
    """A behaviour policy that takes, in a share of the steps, a rewrite whose reward an ensemble is unsure of."""

    def __init__(self, behaviour: BehaviourPolicy, doubts: _Doubts, env: _Latent, share: float) -> None:
        self._behaviour, self._doubts, self._env, self._share = behaviour, doubts, env, share

    def __call__(self, observation: dict[str, Any], generator: np.random.Generator) -> np.ndarray:
        pair = self._behaviour(observation, generator)
        if generator.random() >= self._share:
            return pair
        legal = np.flatnonzero(observation[_LATENT].action_mask.numpy()[0, :-1])
        spread = self._doubts.of(self._env.latent.state, legal) if len(legal) else np.zeros(0)
        if not spread.sum() > 0:
            return pair
        return self._env.latent.table.decode(generator.choice(legal, p=spread / spread.sum()))[0]


class _Beliefs:
    """The masks that a world model predicts one step before each real state."""

    def __init__(self, world_model: WorldModel, legal_from: float) -> None:
        self._model, self._threshold = world_model.mdn_rnn, legal_logit(legal_from)
        self._codes = self._model.action_codes(world_model.inputs(world_model.start_graph()))
        self._logits = tf.function(self._mask_logits, autograph=False)

    def _mask_logits(self, before: DreamState, action: tf.Tensor, hidden: tf.Tensor) -> tf.Tensor:
        legal, past = (tf.cast(each, tf.float32) for each in (before.action_mask, before.past))
        found = self._model.predict(hidden, before.z, action, legal, past, self._codes)
        return tf.add_n([each["mask"] for each in found]) / len(found)

    def after(self, before: DreamState, action: int, reached: DreamState) -> np.ndarray:
        """Returns which rewrites the model considers legal after a real step: bool [A]."""
        logits = self._logits(before, tf.constant([action], tf.int32), reached.hidden)
        mask: np.ndarray = logits.numpy()[0] > self._threshold
        return mask


class _Correcting:
    """A behaviour policy that takes, in a share of the steps, what pays and what a world model does not offer."""

    def __init__(
        self, behaviour: BehaviourPolicy, beliefs: _Beliefs, latent: _Latent, env: PayingEnv, share: float
    ) -> None:
        self._behaviour, self._beliefs, self._latent, self._env, self._share = behaviour, beliefs, latent, env, share
        self._table = latent.latent.table
        self._last: tuple[DreamState, int] | None = None

    def __call__(self, observation: dict[str, Any], generator: np.random.Generator) -> np.ndarray:
        if observation[_IS_FIRST]:
            self._last = None
        pair = self._behaviour(observation, generator)
        state = self._latent.latent.state
        actions, gains = self._omitted(state)
        if len(actions) and generator.random() < self._share:
            pair = self._table.decode(generator.choice(actions, p=gains / gains.sum()))[0]
        self._last = state, int(self._table.encode(pair)[0])
        return pair

    def _omitted(self, reached: DreamState) -> tuple[np.ndarray, np.ndarray]:
        """Returns the rewrites of the table that pay here and that the model omits, and their gains."""
        if self._last is None:  # the model is shown the first state
            return np.zeros(0, int), np.zeros(0)
        codes, gains = paying_rewrites(self._env)
        actions = self._table.find_codes(codes)
        offered = self._beliefs.after(*self._last, reached)
        omitted = (actions >= 0) & ~offered[actions]
        return actions[omitted], gains[omitted]


class _Latent:
    """A `RewriteEnv` whose observations hold the observation of `LatentEnv` beside the real one."""

    def __init__(self, env: RewriteEnv, world_model: WorldModel, structure: Structure | None) -> None:
        self._real = _Remembering(env)
        self.latent = LatentEnv(self._real, world_model, structure)
        self.rule_names, self.num_locations, self.everywhere = env.rule_names, env.num_locations, env.everywhere
        self.legal_actions = env.legal_actions

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        latent, info = self.latent.reset(seed=seed, options=options)
        return {**self._real.observation, _LATENT: latent, _IS_FIRST: True}, info

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        (index,) = self.latent.table.encode(action)
        latent, reward, terminated, truncated, info = self.latent.step(int(index))
        observation = {**self._real.observation, _LATENT: latent, _IS_FIRST: False}
        return observation, reward, terminated, truncated, info


class _Remembering:
    """A `RewriteEnv` that passes everything on and keeps the last observation, which `LatentEnv` does not show."""

    def __init__(self, env: RewriteEnv) -> None:
        self._env = env
        self.observation: dict[str, Any] = {}
        self.rule_names, self.num_locations, self.everywhere = env.rule_names, env.num_locations, env.everywhere
        self.legal_actions = env.legal_actions

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        self.observation, info = self._env.reset(seed=seed, options=options)
        return self.observation, info

    def step(self, action: Any) -> tuple[dict[str, Any], Any, bool, bool, dict[str, Any]]:
        self.observation, reward, terminated, truncated, info = self._env.step(action)
        return self.observation, reward, terminated, truncated, info
