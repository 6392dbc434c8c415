"""`DreamEnv`: whole rollouts inside the world model, without any step of the real environment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from environment import GraphSubstitutionEnv
from environment.counting import count
from worldmodel.config import DreamConfig
from worldmodel.data.batches import EpisodeData
from worldmodel.data.episodes import EpisodeBuffer, RewriteEnv
from worldmodel.data.trajectory import Policy, Trajectory
from worldmodel.dream.bounds import open_account
from worldmodel.dream.latent_env import LatentEnv
from worldmodel.dream.noise import draw_keys
from worldmodel.dream.settlement import draw_numbers, open_ledger
from worldmodel.dream.step import DreamSettings, DreamState, Known, StartStates, legal_logit
from worldmodel.dream.structure import Structure
from worldmodel.dynamics.mixture import ALGORITHM
from worldmodel.errors import IllegalAction
from worldmodel.world_model import WorldModel

MOST_START_STATES = 4096
_EPISODES_AT_ONCE = 64


def start_states(
    world_model: WorldModel,
    buffer: EpisodeBuffer,
    *,
    max_states: int = MOST_START_STATES,
    seed: int = 0,
    structure: Structure | None = None,
) -> StartStates:
    """Returns the real states of episodes, at any depth, that have something to rewrite.

    All episodes begin in the same state, which is included once.

    Args:
      buffer: episodes of one start graph.
      max_states: if there are more states, as many are drawn; the first state is always among them.
      seed: the seed of the draw.
      structure: numbers the graphs of the states; None: they have no numbers.
    """
    data = world_model.episode_data(buffer)
    states = data.open_states()
    first, deeper = states[states[:, 1] == 0][:1], states[states[:, 1] > 0]
    drawn = np.random.default_rng(seed).permutation(len(deeper))[: max(0, max_states - len(first))]
    chosen = np.concatenate([first, deeper[np.sort(drawn)]])
    parts = [_states_at(world_model, data, rows, chosen, structure) for rows in _chunks(len(data), _EPISODES_AT_ONCE)]
    *state, depth, graph = (tf.constant(np.concatenate(columns)) for columns in zip(*parts, strict=True))
    return StartStates(DreamState(*state)._replace(graph=() if structure is None else graph), depth)


def _states_at(
    world_model: WorldModel, data: EpisodeData, rows: np.ndarray, states: np.ndarray, structure: Structure | None
) -> tuple[np.ndarray, ...]:
    """Returns the fields of `DreamState`, the depth, and the number of the graph (0 without a structure).

    Those of the (episode, time) `states` in the episodes `rows` are meant.
    """
    real = data.trajectory(rows)
    hidden, cell = (part.numpy() for part in world_model.teacher_forced(real))
    mine = states[(states[:, 0] >= rows[0]) & (states[:, 0] <= rows[-1])]
    places = mine[:, 1], mine[:, 0] - rows[0]
    return (
        *(each[places] for each in (real.state, hidden, cell, real.legal, real.past)),
        mine[:, 1].astype(np.int32),
        _numbers_at(real.action, *places, structure),
    )


def _numbers_at(actions: np.ndarray, times: np.ndarray, rows: np.ndarray, structure: Structure | None) -> np.ndarray:
    """Returns the numbers of the graphs at some times of some rows of actions [T, B]: int64 [n]."""
    numbers = np.zeros(len(rows), np.int64)
    if structure is None:
        return numbers
    for row in np.unique(rows):
        mine = rows == row
        numbers[mine] = structure.along(actions[: times[mine].max(), row])[times[mine]]
    return numbers


def _chunks(size: int, width: int) -> Iterator[np.ndarray]:
    return (np.arange(start, min(start + width, size)) for start in range(0, size, width))


class Dreamed(NamedTuple):
    """A dream along given actions.

    Attributes:
      state: float32 [T + 1, B, Z].
      legal: bool [T + 1, B, A + 1].
      reward: float32 [T, B], percent.
      terminal: bool [T, B].
    """

    state: np.ndarray
    legal: np.ndarray
    reward: np.ndarray
    terminal: np.ndarray


class DreamEnv:
    """Vectorised rollouts in the world model.

        dream = DreamEnv.of_episodes(world_model, episodes)
        trajectory = dream.rollout(policy, batch=128, horizon=50, seed=epoch)

    A row ends with NO-OP, with a predicted terminal, or with a predicted mask without any rewrite. It is truncated at
    the horizon, and also at the depth of the longest training episode, because the model knows nothing of deeper
    states.

    With `DreamConfig.telescoping` the rewards of every row sum to zero around loops (`worldmodel.dream.settlement`), in
    `rollout` as in `step`. Without it they are what the networks say.

    Attributes:
      latent_size, hidden_size, num_actions: sizes; NO-OP is not counted.
      longest: depth of the longest training episode.
      structure: says which rewrites are legal; None: the world model does.
    """

    def __init__(
        self,
        world_model: WorldModel,
        starts: StartStates,
        config: DreamConfig | None = None,
        *,
        xla: bool = False,
        structure: Structure | None = None,
    ) -> None:
        """
        Args:
          world_model: a trained model, bound to one start graph; its networks are used as they are now.
          starts: the states to start from.
          config: the settings of the dream; by default `DreamConfig()`.
          structure: says which rewrites are legal, if `config.legality` is "exact"; the starts have its numbers.
          xla: whether XLA compiles whole rollouts, including the policy, and not only the dreamed steps. A single row
            then takes several times as many steps a second. But policies must only have operations of XLA, every
            horizon is compiled anew, and the same seed gives other start states. Exact legality is not possible then.
        Raises:
          ValueError: if legality is to be exact and there is no structure, or `xla`.
          ValueError: if `config.telescoping` is set although the rewards that were learned do not telescope.
          ValueError: if there are no start states, or none at depth 0 although `config.root_fraction` asks for them.
        """
        config = config or DreamConfig()
        if config.telescoping and not world_model.signature.telescopes:
            raise ValueError(
                "The rewards of this world model do not telescope: what is undone is not paid back, as a dream with "
                "telescoping=True would have it. Give the dream the settings DreamConfig(telescoping=False)."
            )
        self.structure = _required(structure, starts, xla) if config.legality == "exact" else None
        roots = tf.cast(tf.where(starts.depth == 0)[:, 0], tf.int32)
        if not len(starts.depth) or (config.root_fraction > 0 and not len(roots)):
            raise ValueError(
                f"{len(starts.depth)} start states, {len(roots)} of them at depth 0, "
                f"root_fraction={config.root_fraction}: a dream needs a state to start from; give it episodes with "
                "something to rewrite"
            )
        self.latent_size, self.hidden_size = world_model.latent_size, world_model.hidden_size
        start_graph = world_model.start_graph()
        self.num_actions = start_graph.table.num_actions
        self._model, self._config, self.longest = world_model, config, world_model.statistics.longest
        self._codes = world_model.mdn_rnn.action_codes(world_model.inputs(start_graph))
        self._remembered = self.longest if config.telescoping else 0
        self._scatters = config.noise and config.telescoping and world_model.mdn_rnn.sizes.cost_noise > 0
        self._numbers = tf.constant(draw_numbers(self.num_actions, self._remembered))
        self._settings = DreamSettings(
            tf.constant(config.temperature, tf.float32),
            tf.constant(config.pessimism, tf.float32),
            tf.constant(legal_logit(config.legal_from), tf.float32),
            self._numbers if config.telescoping else (),
        )
        self._starts, self._roots, self._root_fraction = starts, roots, config.root_fraction
        self._xla = xla
        self._programs: dict[tuple[Policy, int, int | None], Callable[[tf.Tensor, tf.Tensor], Trajectory]] = {}

    @classmethod
    def of_episodes(
        cls,
        world_model: WorldModel,
        episodes: EpisodeBuffer,
        config: DreamConfig | None = None,
        *,
        seed: int = 0,
        env: RewriteEnv | None = None,
    ) -> DreamEnv:
        """Returns a dream that starts from the states of real episodes of one start graph, see `start_states`.

        Args:
          env: the real environment, which exact legality needs.
        """
        structure = structure_of(world_model, env, config)
        return cls(
            world_model,
            start_states(world_model, episodes, seed=seed, structure=structure),
            config,
            structure=structure,
        )

    @classmethod
    def of_root(cls, world_model: WorldModel, env: RewriteEnv, config: DreamConfig | None = None) -> DreamEnv:
        """Returns a dream that starts from the one state in which the real environment's episodes begin."""
        start = LatentEnv(env, world_model, structure_of(world_model, env, config))
        start.reset()
        return cls.of_state(world_model, start.state, config, start.structure)

    @classmethod
    def of_state(
        cls,
        world_model: WorldModel,
        state: DreamState,
        config: DreamConfig | None = None,
        structure: Structure | None = None,
    ) -> DreamEnv:
        """Returns a dream that starts from one state, as if an episode began there."""
        starts = StartStates(state, tf.zeros([1], tf.int32))
        return cls(world_model, starts, (config or DreamConfig()).from_root(), structure=structure)

    def from_root(self) -> DreamEnv:
        """Returns the same dream with all rollouts from the initial graph."""
        config = self._config.from_root()
        return DreamEnv(self._model, self._starts, config, xla=self._xla, structure=self.structure)

    def start(self, batch: int, seed: tf.Tensor) -> DreamState:
        """Draws `batch` start states; `seed` is int32 [2]."""
        return self._state_of(self._draw(batch, seed), seed)

    def start_with_limits(self, batch: int, seed: tf.Tensor) -> tuple[DreamState, tf.Tensor]:
        """Returns what `start` returns, and the number of steps that each row may take: int32 [batch], at least 1."""
        starts = self._draw(batch, seed)
        return self._state_of(starts, seed), self._limits(starts)

    def _limits(self, starts: tf.Tensor) -> tf.Tensor:
        return tf.maximum(self.longest - tf.gather(self._starts.depth, starts), 1)

    def _state_of(self, starts: tf.Tensor, seed: tf.Tensor) -> DreamState:
        """Returns the states at some indices int32 [B], with new ledgers, and with new noise if rewards scatter."""
        state: DreamState = tf.nest.map_structure(lambda values: tf.gather(values, starts), self._starts.state)
        return self.begun(state)._replace(noise=draw_keys(tf.shape(starts)[0], seed) if self._scatters else ())

    def begun(self, state: DreamState) -> DreamState:
        """Returns real states as the first states of rows, with new ledgers; rewards of such rows do not scatter."""
        ledger = open_ledger(state.action_mask, self._numbers, self._remembered)
        model, inputs = self._model.mdn_rnn, self._codes.inputs
        if not model.has_potential:
            return state._replace(ledger=ledger)
        saved = self._saved(state.graph)
        if isinstance(saved, tuple):
            saved = model.saved(state.action_mask, state.past, inputs)
        return state._replace(ledger=ledger, account=open_account(model, state.z, saved, inputs))

    def _saved(self, graphs: tf.Tensor | tuple[()]) -> tf.Tensor | tuple[()]:
        """Returns what the operators of graphs save, by their numbers: float32 [B]; () if that is not known."""
        if self.structure is None or isinstance(graphs, tuple) or not self.structure.knows_costs:
            return ()
        saved = tf.numpy_function(self.structure.saved, [graphs], tf.float32)
        saved.set_shape(graphs.shape)
        return saved

    def _draw(self, batch: int, seed: tf.Tensor) -> tf.Tensor:
        """Draws the indices of start states: int32 [batch]."""
        which, anywhere, root = tf.unstack(tf.random.split(seed, 3, ALGORITHM))
        deep = tf.random.stateless_uniform(
            [batch], anywhere, maxval=tf.shape(self._starts.depth)[0], dtype=tf.int32, alg=ALGORITHM
        )
        if self._root_fraction == 0:
            return deep
        drawn = tf.random.stateless_uniform(
            [batch], root, maxval=tf.shape(self._roots)[0], dtype=tf.int32, alg=ALGORITHM
        )
        at_root = tf.random.stateless_uniform([batch], which, alg=ALGORITHM) < self._root_fraction
        return tf.where(at_root, tf.gather(self._roots, drawn), deep)

    def step(self, state: DreamState, action: tf.Tensor, seed: tf.Tensor) -> tuple[DreamState, tf.Tensor, tf.Tensor]:
        """Takes one step in every row, for planners; `rollout` plays whole episodes.

        Args:
          state: from `start` or the last `step`, or a real state, with which a row begins.
          action: int32 [B] in [0, A].
          seed: int32 [2].
        Returns:
          (next state, reward float32 [B], terminal bool [B]). NO-OP leaves z and the mask as they are.
        """
        if tf.executing_eagerly():
            count(dreamed_steps=len(action))
        if isinstance(state.ledger, tuple):
            state = self.begun(state)
        known, graph = self._known(state, action)
        arguments = state, action, seed, self._codes, self._settings, None, known
        reached, reward, terminal = self._model.dream_step(*arguments)
        return reached._replace(graph=graph), reward, terminal

    def _known(self, state: DreamState, action: tf.Tensor) -> tuple[Known | None, tf.Tensor | tuple[()]]:
        """Returns what the engine knows of the states after a step, and the numbers of their graphs; else None, ()."""
        if self.structure is None:
            return None, ()
        legal, graph = tf.numpy_function(self.structure.step, [state.graph, action], [tf.bool, tf.int64])
        legal.set_shape([action.shape[0], self.num_actions + 1])
        graph.set_shape(action.shape)
        return Known(legal, self._saved(graph)), graph

    def follow(self, state: DreamState, actions: np.ndarray, seed: int = 0) -> Dreamed:
        """Takes given actions in every row.

        Args:
          state: from `start`, or real states, with B rows.
          actions: int32 [T, B] in [0, A].
        """
        latents, masks = [state.z.numpy()], [state.action_mask.numpy()]
        rewards, terminals = np.zeros(actions.shape, np.float32), np.zeros(actions.shape, bool)
        for t, action in enumerate(actions):
            state, reward, terminal = self.step(state, tf.constant(action), tf.constant([seed, t]))
            latents.append(state.z.numpy())
            masks.append(state.action_mask.numpy())
            rewards[t], terminals[t] = reward.numpy(), terminal.numpy()
        return Dreamed(np.stack(latents), np.stack(masks), rewards, terminals)

    def rollout(self, policy: Policy, *, batch: int, horizon: int, seed: int) -> Trajectory:
        """Plays `policy` from `batch` start states for at most `horizon` steps, in one `tf.function`.

        Args:
          policy: traced once per (policy, batch), and with `xla` once per horizon too; see `Policy`.
          batch, horizon: numbers of rows and steps; both at least 1.
          seed: the seed of every random draw; equal seeds and weights give equal rollouts.
        Raises:
          IllegalAction: if the policy takes an action that is not legal in the dream.
        """
        if batch < 1 or horizon < 1:
            raise ValueError(f"batch and horizon must be at least 1, got {batch} and {horizon}")
        kind = policy, batch, horizon if self._xla else None
        if kind not in self._programs:
            self._programs[kind] = self._compile(*kind)
        played = self._programs[kind](tf.constant(horizon), tf.constant([seed, 0], tf.int32))
        self._require_legal(played)
        count(dreamed_steps=int(np.count_nonzero(played.alive.numpy())))
        return played

    def _require_legal(self, played: Trajectory) -> None:
        """Raises `IllegalAction`, which names the first illegal action, if there is one."""
        legal, action, alive = played.legal.numpy()[:-1], played.action.numpy(), played.alive.numpy()
        known = (action >= 0) & (action <= self.num_actions)
        offered = np.take_along_axis(legal, np.where(known, action, 0)[..., np.newaxis], axis=2)[..., 0]
        wrong = np.argwhere(alive & ~(known & offered))
        if len(wrong):
            step, row = wrong[0].tolist()
            raise IllegalAction(
                f"the policy takes action {action[step, row]} in step {step} of a dream, which does not offer it: a "
                f"policy chooses among the actions 0 to {self.num_actions} where `observation.action_mask` is true"
            )

    def _compile(self, policy: Policy, batch: int, horizon: int | None) -> Callable[[tf.Tensor, tf.Tensor], Trajectory]:
        """Returns the program of a rollout, a function of the horizon and the seed.

        Args:
          horizon: the only horizon that the program is compiled for, by XLA; None: any horizon, without XLA.
        """

        def play(given: tf.Tensor, seed: tf.Tensor) -> Trajectory:
            return self._play(policy, batch, given if horizon is None else horizon, seed)

        return tf.function(play, autograph=False, jit_compile=horizon is not None)

    def _play(self, policy: Policy, batch: int, horizon: tf.Tensor | int, seed: tf.Tensor) -> Trajectory:
        start_seed, policy_seed, dream_seed = tf.unstack(tf.random.split(seed, 3, ALGORITHM))
        starts = self._draw(batch, start_seed)
        left = self._limits(starts)

        def unfinished(t: tf.Tensor, state: DreamState, ended: tf.Tensor, *_: Any) -> tf.Tensor:
            return (t < horizon) & ~tf.reduce_all(ended | (t >= left))

        def advance(t: tf.Tensor, state: DreamState, ended: tf.Tensor, arrays: Any) -> tuple[Any, ...]:
            over = ended | (t >= left)
            action, log_prob, value = policy(state.observation(), tf.random.fold_in(policy_seed, t, ALGORITHM))
            action = tf.where(over, self.num_actions, action)
            drawn = tf.random.fold_in(dream_seed, t, ALGORITHM)
            known, graph = self._known(state, action)
            arguments = state, action, drawn, self._codes, self._settings, over, known
            reached, reward, terminal = self._model.compiled_dream_step(*arguments)
            reached = reached._replace(graph=graph)
            step = Trajectory(
                state=state.z,
                legal=state.action_mask,
                action=action,
                reward=tf.where(over, 0.0, reward),
                terminal=terminal & ~over,
                alive=~over,
                hidden=state.hidden,
                log_prob=tf.where(over, 0.0, log_prob),
                value=tf.where(ended, 0.0, value),
            )
            return t + 1, reached, ended | step.terminal, _write(arrays, t, step)

        start, never = self._state_of(starts, start_seed), tf.zeros([batch], tf.bool)
        size = horizon if isinstance(horizon, int) else None
        arrays = _arrays_like(self._padding(start, tf.zeros([batch])), size)
        taken, last, ended, arrays = tf.while_loop(unfinished, advance, (0, start, never, arrays))
        value = tf.where(ended, 0.0, policy(last.observation(), tf.random.fold_in(policy_seed, taken, ALGORITHM))[2])
        padding = self._padding(last, value)
        lengths = Trajectory(*(horizon + (name in _OF_STATES) for name in Trajectory._fields))
        return _of_fields(lambda array, rest, length: _finish(array, rest, taken, length), arrays, padding, lengths)

    def _padding(self, state: DreamState, value: tf.Tensor) -> Trajectory:
        """Returns a step in `state` that no row takes; `value` [B] is the value of the states that rows end in."""
        zero, no = tf.zeros_like(value), tf.zeros_like(value, tf.bool)
        noop = tf.zeros_like(value, tf.int32) + self.num_actions
        return Trajectory(state.z, state.action_mask, noop, zero, no, no, state.hidden, zero, value)


def structure_of(
    world_model: WorldModel, env: RewriteEnv | None, config: DreamConfig | None = None
) -> Structure | None:
    """Returns the structure of dreams from an environment's start graph; None if legal rewrites are predicted.

    Raises:
      ValueError: legality is to be exact, but no environment is there whose engine knows it.
    """
    if config is None or config.legality != "exact":
        return None
    if not isinstance(env, GraphSubstitutionEnv):
        raise ValueError(f"dream.legality=exact needs a GraphSubstitutionEnv, whose engine knows it, got {env!r}")
    graph = world_model.start_graph()
    return Structure(env, graph.table, graph.operators)


def _required(structure: Structure | None, starts: StartStates, xla: bool) -> Structure:
    if structure is None or isinstance(starts.state.graph, tuple):
        raise ValueError("dream.legality=exact needs a structure, and start states with its numbers of their graphs")
    if xla:
        raise ValueError("dream.legality=exact asks the engine at every step, which XLA cannot compile")
    return structure


_OF_STATES = ("state", "legal", "hidden", "value")
"""The fields of a trajectory of T steps that hold T + 1 times."""


def _arrays_like(step: Trajectory, size: int | None) -> Trajectory:
    """Returns empty arrays for the fields of steps.

    Args:
      size: the fixed size of the arrays, which XLA needs; None: the arrays grow.
    """

    def array_like(values: tf.Tensor) -> tf.TensorArray:
        kind = {"dtype": values.dtype, "element_shape": values.shape}
        return tf.TensorArray(size=size or 0, dynamic_size=size is None, **kind)

    return _of_fields(array_like, step)


def _write(arrays: Trajectory, t: tf.Tensor, step: Trajectory) -> Trajectory:
    return _of_fields(lambda array, values: array.write(t, values), arrays, step)


def _of_fields(function: Callable[..., Any], *trajectories: Trajectory) -> Trajectory:
    """Returns the trajectory of a function's results for each field; fields that there are not stay so."""
    fields = zip(*trajectories, strict=True)
    return Trajectory(*(() if isinstance(first, tuple) else function(first, *rest) for first, *rest in fields))


def _finish(array: tf.TensorArray, rest: tf.Tensor, taken: tf.Tensor, length: tf.Tensor | int) -> tf.Tensor:
    """Returns the `taken` rows that were written into an array, followed by `rest` until there are `length` rows."""
    rows = array.stack()
    if not isinstance(length, int):  # the array has grown, and holds only the rows that were written
        return tf.concat([rows, tf.repeat(rest[tf.newaxis], length - taken, axis=0)], axis=0)
    rows = tf.concat([rows, rest[tf.newaxis]], axis=0)[:length]
    written = tf.reshape(tf.range(length) < taken, [-1, *[1] * rest.shape.rank])
    return tf.where(written, rows, rest)
