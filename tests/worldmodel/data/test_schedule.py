from __future__ import annotations

import numpy as np
import pytest

from worldmodel.data.schedule import Schedule, bootstrap_counts


def test_a_pass_shows_every_episode_of_every_scene_and_no_step_mixes_them() -> None:
    sizes, batch = [7, 3, 12], 4
    schedule = Schedule(sizes, batch, seed=1)
    steps = 2 + 1 + 3
    for number in range(2):
        seen: list[set[int]] = [set(), set(), set()]
        for step in range(number * steps, (number + 1) * steps):
            scene, rows = schedule.batch(step)
            assert len(rows) == len(set(rows.tolist())) == min(batch, sizes[scene])
            seen[scene] |= set(rows.tolist())
        assert seen == [set(range(size)) for size in sizes]
    again = Schedule(sizes, batch, seed=1)
    assert again.batch(9)[0] == schedule.batch(9)[0] and (again.batch(9)[1] == schedule.batch(9)[1]).all()


def test_members_of_an_ensemble_see_different_episodes_and_one_alone_sees_all() -> None:
    rows = np.arange(400)
    assert (bootstrap_counts(1, 0, rows, seed=0) == 1).all()
    counts = bootstrap_counts(3, 0, rows, seed=0)
    assert counts.mean() == pytest.approx(1, abs=0.1)
    assert 0.3 < (counts == 0).mean() < 0.44  # 1 / e of the episodes are left out
    assert abs(np.corrcoef(counts.T) - np.eye(3)).max() < 0.2
    assert (bootstrap_counts(3, 0, rows[5:6], seed=0) == counts[5]).all()  # whichever batch an episode is in
