"""Open-loop predictions beside reality on held-out episodes: the model sees the first state and then only actions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from worldmodel.accuracy import figure_names as names
from worldmodel.accuracy import metrics
from worldmodel.accuracy.figures import MODEL, RESAMPLES, Figure, FigureMaker
from worldmodel.config import DreamConfig
from worldmodel.data.batches import EpisodeData
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.data.trajectory import Trajectory
from worldmodel.dream.dream_env import Dreamed, DreamEnv
from worldmodel.dream.step import DreamState, StartStates
from worldmodel.errors import NonFinitePrediction, NothingToLearn
from worldmodel.world_model import WorldModel

LIKELIER_THAN_NOT = 0.5
"""Probability from which a rewrite is predicted to be legal; a half, because no policy exploits these masks."""
_EPISODES_AT_ONCE = 32
_AT_ONCE = 2048


class Windows(NamedTuple):
    """W stretches of K steps of real episodes.

    Attributes:
      trajectory: the W stretches; all their steps were taken.
      hidden, cell: float32 [W, H], the recurrent state that the first step starts from.
      unknown: bool [K + 1, W, E], which of E rewrites that the model's table does not hold are legal.
      unknown_rules: int [E], the rules of these rewrites.
      last_reward: float32 [W], the reward of the step before the first; 0 at the start of an episode.
      episode: int [W], the position of the episode in the buffer.
      depth: int [W], the number of steps before the first.
    """

    trajectory: Trajectory
    hidden: np.ndarray
    cell: np.ndarray
    unknown: np.ndarray
    unknown_rules: np.ndarray
    last_reward: np.ndarray
    episode: np.ndarray
    depth: np.ndarray

    @property
    def steps(self) -> int:
        """K, the number of steps of each window."""
        return len(self.trajectory.action)

    def chunks(self) -> Iterator[slice]:
        """Yields the windows in parts that are small enough to be predicted at once."""
        count = len(self.episode)
        return (slice(begin, min(begin + _AT_ONCE, count)) for begin in range(0, count, _AT_ONCE))

    def mask(self) -> np.ndarray:
        """Returns the legal rewrites of the table, without NO-OP: bool [K + 1, W, A]."""
        mask: np.ndarray = self.trajectory.legal[..., :-1]
        return mask

    def legal(self) -> np.ndarray:
        """Returns all legal rewrites, in the table or not: bool [K + 1, W, A + E]."""
        return np.concatenate([self.mask(), self.unknown], axis=-1)

    def rows(self, chosen: Sequence[int] | np.ndarray) -> Windows:
        """Returns some of the windows, each as often as `chosen` names it."""
        along = {name: np.take(getattr(self, name), chosen, axis=0) for name in _OF_WINDOWS}
        along["unknown"] = np.take(self.unknown, chosen, axis=1)
        trajectory = tf.nest.map_structure(lambda field: np.take(field, chosen, axis=1), self.trajectory)
        return self._replace(trajectory=trajectory, **along)


_OF_WINDOWS = ("hidden", "cell", "last_reward", "episode", "depth")
"""The fields of `Windows` whose first axis counts the windows."""


class OpenLoop(NamedTuple):
    """Windows and what the model predicts along their actions.

    Attributes:
      real: the windows.
      dreamed: the predictions along their actions, from the real first states.
    """

    real: Windows
    dreamed: Trajectory

    def legal(self) -> np.ndarray:
        """Returns all rewrites that are predicted to be legal: bool [K + 1, W, A + E].

        Rewrites outside the table have their real bits in the first state, and are illegal later.
        """
        predicted = np.zeros_like(self.real.unknown)
        predicted[0] = self.real.unknown[0]
        return np.concatenate([self.dreamed.legal[..., :-1], predicted], axis=-1)


def require_finite(windows: Windows, **predicted: np.ndarray) -> None:
    """Raises `NonFinitePrediction`, which names the first bad window, unless all predictions [K, W, ...] are finite."""
    for name, values in predicted.items():
        bad = ~np.isfinite(values)
        if bad.any():
            of_windows = bad.any(axis=tuple(axis for axis in range(bad.ndim) if axis != 1))
            first = int(np.argmax(of_windows))
            raise NonFinitePrediction(
                f"the {name} that the world model predicts is NaN or infinite in {of_windows.sum()} of "
                f"{len(of_windows)} windows, the first from episode {windows.episode[first]} at depth "
                f"{windows.depth[first]}: train it again, with smaller learning rates or another seed"
            )


def open_loop(
    world_model: WorldModel,
    buffer: EpisodeBuffer,
    *,
    steps: int,
    first: int = 0,
    stride: int = 10,
    seen: Collection[str] = (),
    temperature: float = 0.0,
    seed: int = 0,
) -> OpenLoop:
    """Plays real action sequences in the model, from real states with their recurrent state.

    Args:
      buffer: held-out episodes; the steps after NO-OP or after an action outside the model's table are not used.
      steps: K.
      first, stride: windows start at these depths of every episode: first, first + stride, …
      seen: hashes of states, normally those of the training data. Windows that start in one of them are left out; the
        later states of a window may be seen ones, because the model sees the first state only, and many paths lead to
        the few states at the end.
      temperature, seed: τ of the sampled latents and the seed of the draws; τ = 0 follows the most likely mean.
    Raises:
      NothingToLearn: if there is no window.
    """
    windows = cut_windows(world_model, buffer, steps=steps, first=first, stride=stride, seen=seen)
    return play(world_model, windows, temperature=temperature, seed=seed)


def longest_open_loop(
    world_model: WorldModel,
    buffer: EpisodeBuffer,
    lengths: Sequence[int],
    *,
    first: int = 0,
    stride: int = 10,
    seen: Collection[str] = (),
    at_least: int = 1,
) -> OpenLoop | None:
    """Returns `open_loop` over the `longest_windows`; None if there are no windows."""
    windows = longest_windows(world_model, buffer, lengths, first=first, stride=stride, seen=seen, at_least=at_least)
    return None if windows is None else play(world_model, windows)


def longest_windows(
    world_model: WorldModel,
    buffer: EpisodeBuffer,
    lengths: Sequence[int],
    *,
    first: int = 0,
    stride: int = 10,
    seen: Collection[str] = (),
    at_least: int = 1,
) -> Windows | None:
    """Returns the windows of the longest of `lengths` that has enough of them; None if there are no windows.

    Longer lengths are left out, so callers must check `Windows.steps`.

    Args:
      lengths: numbers of steps, in any order.
      first, stride, seen: see `open_loop`.
      at_least: how many windows are enough; the shortest length needs only one.
    """
    longest = None
    for steps in sorted(lengths):
        windows = find_windows(world_model, buffer, steps=steps, first=first, stride=stride, seen=seen)
        if windows is None:  # no episode is long enough for this length or for a greater one
            break
        if longest is None or len(windows.episode) >= at_least:
            longest = windows
    return longest


def cut_windows(
    world_model: WorldModel,
    buffer: EpisodeBuffer,
    *,
    steps: int,
    first: int = 0,
    stride: int = 10,
    seen: Collection[str] = (),
) -> Windows:
    """Returns the windows of `open_loop`.

    Raises:
      NothingToLearn: if there is no window.
    """
    windows = find_windows(world_model, buffer, steps=steps, first=first, stride=stride, seen=seen)
    if windows is None:
        raise NothingToLearn(
            f"no held-out episode has {steps} usable steps from {'an unseen state at ' * bool(seen)}depth {first} on; "
            "ask for fewer, or collect deeper episodes"
        )
    return windows


def find_windows(
    world_model: WorldModel,
    buffer: EpisodeBuffer,
    *,
    steps: int,
    first: int = 0,
    last: int = 10**6,
    stride: int = 10,
    seen: Collection[str] = (),
) -> Windows | None:
    """Returns the windows of `open_loop`; None if there are none, for example because the buffer is empty.

    Args:
      last: the greatest depth at which a window begins.
    """
    if not len(buffer):
        return None
    data = world_model.episode_data(buffer)
    found: list[Windows] = []
    for rows in np.array_split(np.arange(len(data)), len(data) // _EPISODES_AT_ONCE + 1):
        if len(rows):
            found += _cut(world_model, buffer, data, rows, range(first, last + 1, stride), steps, seen)
    if not found:
        return None
    joined = {name: np.concatenate([getattr(each, name) for each in found]) for name in _OF_WINDOWS}
    fields = zip(*(each.trajectory for each in found), strict=True)
    trajectory = Trajectory(*(() if isinstance(part[0], tuple) else np.concatenate(part, axis=1) for part in fields))
    unknown = np.concatenate([each.unknown for each in found], axis=1)
    return Windows(trajectory=trajectory, unknown=unknown, unknown_rules=data.unknown.rules[:-1], **joined)


def _cut(
    world_model: WorldModel,
    buffer: EpisodeBuffer,
    data: EpisodeData,
    rows: np.ndarray,
    starts: range,
    steps: int,
    seen: Collection[str],
) -> Iterator[Windows]:
    """Yields every window of the episodes `rows`, each alone (W = 1)."""
    real = data.trajectory(rows)
    hidden, cell = (part.numpy() for part in world_model.teacher_forced(real))
    rewrites = real.alive & (real.action < world_model.num_actions)
    for column, row in enumerate(rows.tolist()):
        usable, unknown = int(rewrites[:, column].sum()), data.unknown_bits(row)
        for t in range(starts.start, min(starts.stop, usable - steps + 1), starts.step):
            if buffer[row].hashes[t] in seen:
                continue
            here, states, taken = (slice(column, column + 1), slice(t, t + steps + 1), slice(t, t + steps))
            yield Windows(
                trajectory=Trajectory(
                    state=real.state[states, here],
                    legal=real.legal[states, here],
                    action=real.action[taken, here],
                    reward=real.reward[taken, here],
                    terminal=real.terminal[taken, here],
                    alive=real.alive[taken, here],
                    past=real.past[states, here],
                ),
                hidden=hidden[t, here],
                cell=cell[t, here],
                unknown=unknown[states, np.newaxis],
                unknown_rules=np.zeros(0, int),
                last_reward=real.reward[t - 1, here] if t else np.zeros(1, np.float32),
                episode=np.array([row]),
                depth=np.array([t]),
            )


def play(
    world_model: WorldModel,
    windows: Windows,
    *,
    temperature: float = 0.0,
    seed: int = 0,
    legal_from: float = LIKELIER_THAN_NOT,
) -> OpenLoop:
    """Predicts the steps of windows along their actions, from their first states; rewards are what the networks say.

    Args:
      temperature, seed: see `open_loop`.
      legal_from: probability from which a rewrite is predicted to be legal.
    Raises:
      NonFinitePrediction: if a prediction is not finite.
    """
    config = DreamConfig(temperature=temperature, legal_from=legal_from, telescoping=False)
    dream: DreamEnv | None = None
    parts = []
    for chunk in windows.chunks():
        state = _first_states(windows, chunk)
        if dream is None:  # its start states do not matter, because only its steps are used
            starts = StartStates(state, depth=tf.zeros([len(state.z)], tf.int32))
            dream = DreamEnv(world_model, starts, config)
        parts.append(dream.follow(state, windows.trajectory.action[:, chunk], seed))
    whole = Dreamed(*(np.concatenate(fields, axis=1) for fields in zip(*parts, strict=True)))
    require_finite(windows, latent=whole.state, reward=whole.reward)
    return OpenLoop(windows, windows.trajectory._replace(**whole._asdict()))


def _first_states(windows: Windows, chunk: slice) -> DreamState:
    real = windows.trajectory
    fields = real.state[0, chunk], windows.hidden[chunk], windows.cell[chunk], real.legal[0, chunk], real.past[0, chunk]
    return DreamState(*map(tf.constant, fields))


TEMPERATURES = (0.5, 1.0, 1.5, 2.0)
"""Values of τ. The papers use 0.1 to 3.0 (X-RLflow's Table III); drawn latents move away from the most likely mean."""


def temperature_figures(
    world_model: WorldModel,
    windows: Windows,
    *,
    temperatures: Sequence[float] = TEMPERATURES,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> list[Figure]:
    """Returns figures of the sum of a window's rewards along its own actions, dreamed at several temperatures τ.

    `total_figures` returns them for τ = 0.

    Args:
      windows: windows of two or more steps: τ says how a latent is drawn, and the first reward does not depend on it.
      temperatures: τ > 0.
      seed: the seed of the draws; there is one dream per window.
    Raises:
      ValueError: if the windows have only one step.
    """
    if windows.steps < 2:
        raise ValueError(f"expected windows of two steps or more, got {windows.steps}: one reward is the same at all τ")
    make = FigureMaker(windows.episode, windows.steps, resamples).make
    real = windows.trajectory.reward.sum(axis=0)
    figures = []
    for temperature in temperatures:
        dreamed = play(world_model, windows, temperature=temperature, seed=seed).dreamed.reward.sum(axis=0)
        for name, statistic in (
            (names.TOTAL_R2, metrics.determination),
            (names.TOTAL_RELATIVE, metrics.relative_absolute_error),
        ):
            figures.append(make(names.at_temperature(name, temperature), statistic, {MODEL: (dreamed, real)}))
    return figures
