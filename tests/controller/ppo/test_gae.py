from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from controller.ppo.learner import generalised_advantages

DISCOUNT, DECAY = 0.9, 0.8


def random_rows(seed: int, time: int = 7, batch: int = 6) -> dict[str, np.ndarray]:
    """Returns rows of random length; about half end in a terminal, the others are truncated. Padding is random."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, time + 1, batch)
    alive = np.arange(time)[:, None] < lengths
    ends = np.arange(time)[:, None] == lengths - 1
    return {
        "rewards": rng.standard_normal((time, batch)).astype(np.float32),
        "values": rng.standard_normal((time + 1, batch)).astype(np.float32),
        "terminals": ends & (rng.random(batch) < 0.5),
        "alive": alive,
    }


def by_definition(rewards: np.ndarray, values: np.ndarray, terminals: np.ndarray, alive: np.ndarray) -> np.ndarray:
    """Returns Σ_k (γλ)^k δ_{t+k} over the steps from t to the end of the row, in O(T²)."""
    advantages = np.zeros_like(rewards)
    for row in range(rewards.shape[1]):
        length = alive[:, row].sum()
        errors = [
            rewards[t, row] + (0.0 if terminals[t, row] else DISCOUNT * values[t + 1, row]) - values[t, row]
            for t in range(length)
        ]
        for t in range(length):
            advantages[t, row] = sum((DISCOUNT * DECAY) ** (k - t) * errors[k] for k in range(t, length))
    return advantages


def advantages_of(rows: dict[str, np.ndarray]) -> np.ndarray:
    return generalised_advantages(**rows, discount=DISCOUNT, trace_decay=DECAY).numpy()


@pytest.mark.parametrize("seed", range(5))
def test_equals_its_definition(seed: int) -> None:
    rows = random_rows(seed)
    np.testing.assert_allclose(advantages_of(rows), by_definition(**rows), rtol=1e-5, atol=1e-5)


def test_only_truncated_rows_look_at_the_value_behind_their_end() -> None:
    rows = random_rows(1)
    behind = np.pad(rows["alive"], ((0, 1), (0, 0)))
    moved = {**rows, "values": np.where(behind, rows["values"], rows["values"] + 5.0)}
    changed = np.any(advantages_of(moved) != advantages_of(rows), axis=0)
    np.testing.assert_array_equal(changed, ~rows["terminals"].any(axis=0))


def test_padding_has_no_advantage() -> None:
    rows = random_rows(2)
    assert not advantages_of(rows)[~rows["alive"]].any()


def test_values_of_the_wrong_length_are_refused() -> None:
    rows = random_rows(3)
    with pytest.raises(ValueError, match="8 expected, 7 came"):
        advantages_of({**rows, "values": rows["values"][:-1]})


def test_works_inside_a_function_of_unknown_time() -> None:
    rows = random_rows(4)
    any_length = tf.function(
        lambda *fields: generalised_advantages(*fields, discount=DISCOUNT, trace_decay=DECAY),
        input_signature=[tf.TensorSpec([None, 6], kind) for kind in (tf.float32, tf.float32, tf.bool, tf.bool)],
    )
    np.testing.assert_allclose(any_length(*rows.values()), advantages_of(rows), rtol=1e-6)
