"""What is past is what was carried out and is not offered again, in stored episodes as in the real environment."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from environment import GraphSubstitutionEnv
from worldmodel.data.batches import EpisodeData
from worldmodel.data.episodes import collect
from worldmodel.data.past import past_after, past_of


def bits(*rows: str) -> np.ndarray:
    return np.array([[character == "1" for character in row] for row in rows])


def test_a_rewrite_is_past_until_it_is_offered_again() -> None:
    legal = bits("1110", "0110", "0010", "1000")[:, np.newaxis]  # the first is taken, the second, then a third
    singles = bits("1000", "0100", "0010")[:, np.newaxis]
    assert (past_of(legal, singles)[:, 0] == bits("0000", "1000", "1100", "0110")).all()


def test_tensors_follow_the_same_rule() -> None:
    rng = np.random.default_rng(0)
    past, taken, legal = (rng.random((3, 5)) < 0.5 for _ in range(3))
    np.testing.assert_array_equal(past_after(*map(tf.constant, (past, taken, legal))), past_after(past, taken, legal))


def test_everywhere_actions_leave_their_single_rewrites_behind() -> None:
    """As taking these one by one does."""
    env = GraphSubstitutionEnv("bert-base-tiny", costs="roofline:rtx2070", max_steps=12)
    episodes = collect(env, None, 6, seed=0)
    data = EpisodeData(episodes, episodes.action_table())
    seen = 0
    for row, (episode, real) in enumerate(zip(episodes, data, strict=True)):
        rewrites = episode.rewrites_of_steps()
        behind: set[int] = set()
        for t, (action, several) in enumerate(zip(episode.actions, rewrites, strict=True)):
            np.testing.assert_array_equal(np.flatnonzero(real.past[t, 0]), sorted(behind), err_msg=f"{row}, {t}")
            pairs = several or [tuple(action)]
            taken = set(data.table.encode(np.array(pairs)).tolist()) - {data.table.num_actions, -1}
            behind = {each for each in behind | taken if not real.legal[t + 1, 0, each]}
            seen += len(several) > 1
    assert seen, "some step carries out several rewrites"
