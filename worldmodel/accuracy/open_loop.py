"""Open-loop predictions beside reality on held-out episodes: the model is told the actions and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import tensorflow as tf

from worldmodel.data.batches import SequenceData
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.data.windows import OpenLoop, Windows, require_finite
from worldmodel.dream.dream_env import DreamEnv
from worldmodel.dream.rollout import DreamState, StartStates
from worldmodel.errors import NothingToLearn
from worldmodel.world_model import WorldModel

_EPISODES_AT_ONCE = 32
_WINDOWS_AT_ONCE = 2048


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
      buffer: held-out episodes; what follows NO-OP or an action outside the model's table cannot be used.
      steps: K.
      first, stride: windows start at these depths of every episode: first, first + stride, …
      seen: hashes of states, those of the training data: windows that start in one of them are left out. Where a window
        leads is no matter: the model is told of its first state only, and many ways lead to the few states at the end.
      temperature, seed: τ of the latents and what is drawn; 0 follows the most likely mean.
    Raises:
      ValueError: if there is no window.
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
    """`open_loop` over the longest of some lengths of which there are enough windows; None where there are none.

    Longer ones are left out: what `OpenLoop.real` has of steps is to be looked at.

    Args:
      lengths: numbers of steps, in any order.
      at_least: how many windows are enough; the shortest length needs one only.
    """
    longest = None
    for steps in sorted(lengths):
        windows = find_windows(world_model, buffer, steps=steps, first=first, stride=stride, seen=seen)
        if windows is None:  # no episode is that long, and none longer
            break
        if longest is None or len(windows.episode) >= at_least:
            longest = windows
    return None if longest is None else play(world_model, longest)


def cut_windows(
    world_model: WorldModel,
    buffer: EpisodeBuffer,
    *,
    steps: int,
    first: int = 0,
    stride: int = 10,
    seen: Collection[str] = (),
) -> Windows:
    """The windows of `open_loop`.

    Raises:
      NothingToLearn: if there is none.
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
    """The windows of `open_loop`; None where there is none, as of no episodes.

    Args:
      last: depth that no window begins behind.
    """
    if not len(buffer):
        return None
    data = world_model.sequences(buffer)
    found: list[tuple[np.ndarray, ...]] = []
    for rows in np.array_split(np.arange(len(data)), len(data) // _EPISODES_AT_ONCE + 1):
        if len(rows):
            found += _cut(world_model, buffer, data, rows, range(first, last + 1, stride), steps, seen)
    if not found:
        return None
    stacked = [np.stack(parts, axis=1) for parts in zip(*found, strict=True)]
    fields = [*stacked[:6], *(part[0] for part in stacked[6:]), data.unknown.rules[:-1]]
    return Windows(*fields)


def _cut(
    world_model: WorldModel,
    buffer: EpisodeBuffer,
    data: SequenceData,
    rows: np.ndarray,
    starts: range,
    steps: int,
    seen: Collection[str],
) -> Iterator[tuple[np.ndarray, ...]]:
    """The fields of every window in these episodes but the last, each with time in front, be it of one step only."""
    batch = data.batch(rows)
    hidden, cell = (part.numpy() for part in world_model.teacher_forced(batch))
    rewrites = batch.valid & (batch.actions < world_model.num_actions)
    for column, row in enumerate(rows.tolist()):
        usable, unknown = int(rewrites[:, column].sum()), data.unknown_bits(row)
        for t in range(starts.start, min(starts.stop, usable - steps + 1), starts.step):
            if buffer[row].hashes[t] in seen:
                continue
            states, taken = (slice(t, t + steps + 1), column), (slice(t, t + steps), column)
            last = batch.rewards[t - 1 : t, column] if t else np.zeros(1, np.float32)
            first = (slice(t, t + 1), column)
            yield (
                batch.z[states],
                batch.masks[states][:, :-1],
                batch.rewards[taken],
                batch.terminals[taken],
                batch.actions[taken],
                unknown[t : t + steps + 1],
                last,
                hidden[first],
                cell[first],
                np.array([row]),
                np.array([t]),
            )


def play(world_model: WorldModel, windows: Windows, *, temperature: float = 0.0, seed: int = 0) -> OpenLoop:
    """What the model predicts along the actions of windows, from their first states.

    Raises:
      NonFinitePrediction: it is not finite.
    """
    count = len(windows.episode)
    dream: DreamEnv | None = None
    parts = []
    for begin in range(0, count, _WINDOWS_AT_ONCE):
        chunk = slice(begin, min(begin + _WINDOWS_AT_ONCE, count))
        state = _first_states(windows, chunk)
        if dream is None:  # it only steps from states that it is given
            starts = StartStates(*state, depth=tf.zeros([len(state.z)], tf.int32))
            dream = DreamEnv(world_model, starts, temperature=temperature)
        parts.append(_play(dream, state, windows.actions[:, chunk], seed))
    z, mask, reward, terminal = (np.concatenate(fields, axis=1) for fields in zip(*parts, strict=True))
    require_finite(windows, latent=z, reward=reward)
    return OpenLoop(windows, z, mask, reward, terminal)


def _first_states(windows: Windows, chunk: slice) -> DreamState:
    mask = np.pad(windows.mask[0, chunk], [(0, 0), (0, 1)], constant_values=True)  # NO-OP
    return DreamState(*map(tf.constant, (windows.z[0, chunk], windows.hidden[chunk], windows.cell[chunk], mask)))


def _play(dream: DreamEnv, state: DreamState, actions: np.ndarray, seed: int) -> tuple[np.ndarray, ...]:
    """Latents [K + 1, W, Z], masks [K + 1, W, A], rewards and terminals [K, W] of dreamed steps."""
    latents, masks = [state.z.numpy()], [state.action_mask.numpy()[:, :-1]]
    rewards, terminals = [], []
    for t, action in enumerate(actions):
        state, reward, terminal = dream.step(state, tf.constant(action), tf.constant([seed, t]))
        latents.append(state.z.numpy())
        masks.append(state.action_mask.numpy()[:, :-1])
        rewards.append(reward.numpy())
        terminals.append(terminal.numpy())
    return np.stack(latents), np.stack(masks), np.stack(rewards), np.stack(terminals)
