from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taso_ext import files
from tests.worldmodel.toy_world import RULE_NAMES, ToyEnv, uniform_policy
from worldmodel.data.actions import pack
from worldmodel.data.episodes import Episode, EpisodeBuffer, collect, indexed_by_rank
from worldmodel.errors import IncompatibleEpisodes


def fresh(count: int, seed: int = 1, **arguments: object) -> EpisodeBuffer:
    return collect(ToyEnv(8, max_steps=12), uniform_policy(0.02), count, seed, **arguments)  # type: ignore[arg-type]


def assert_equal_buffers(left: EpisodeBuffer, right: EpisodeBuffer) -> None:
    mine, theirs = left.to_arrays(), right.to_arrays()
    assert mine.keys() == theirs.keys()
    for name in mine:
        np.testing.assert_array_equal(mine[name], theirs[name], err_msg=name)


def test_episodes_are_what_the_environment_replays(episodes: EpisodeBuffer) -> None:
    for episode in episodes[:20]:
        env = ToyEnv(8, max_steps=12)
        _, info = env.reset()
        for t in range(episode.num_steps):
            assert info["graph_hash"] == episode.hashes[t]
            np.testing.assert_array_equal(np.sort(pack(env.legal_actions())), pack(episode.legal_actions(t)))
            _, reward, terminated, truncated, info = env.step(episode.actions[t])
            assert reward == pytest.approx(episode.rewards[t], abs=1e-5)
            assert info["cost_ms"] == episode.cost_ms[t + 1]
        assert (terminated, truncated) == (episode.terminated, episode.truncated)


def test_rewards_telescope(episodes: EpisodeBuffer) -> None:
    for episode in episodes:
        total = 100.0 * np.log(episode.cost_ms[0] / episode.cost_ms[-1])
        assert episode.rewards.sum() == pytest.approx(total, abs=1e-3)


def test_an_episode_depends_on_its_seed_and_index_only() -> None:
    seen: list[Episode] = []
    together = fresh(4, on_episode=seen.append)
    assert [episode.index for episode in seen] == [0, 1, 2, 3]
    assert len({episode.actions.tobytes() for episode in together}) > 1
    other = fresh(4, seed=2)
    assert other[0].actions.tobytes() != together[0].actions.tobytes()


def test_saving_loses_nothing(episodes: EpisodeBuffer, tmp_path: Path) -> None:
    episodes.save(tmp_path / "episodes.npz")
    assert_equal_buffers(EpisodeBuffer.load(tmp_path / "episodes.npz"), episodes)


class NoisyToyEnv(ToyEnv):
    """A world whose rewards are differences of drawn costs."""

    def reset(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        self.noise = np.random.default_rng(options.get("seed"))
        observation, info = super().reset(**options)
        self.drawn_ms = info["cost_ms"] * math.exp(self.noise.normal(0, 0.05))
        return observation, {**info, "drawn_cost_ms": self.drawn_ms}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        before_ms, (observation, _, terminated, truncated, info) = self.drawn_ms, super().step(action)
        self.drawn_ms = info["cost_ms"] * math.exp(self.noise.normal(0, 0.05))
        reward = 100 * math.log(before_ms / self.drawn_ms)
        return observation, reward, terminated, truncated, {**info, "drawn_cost_ms": self.drawn_ms}


def noisy(count: int) -> EpisodeBuffer:
    return collect(NoisyToyEnv(8, max_steps=12), uniform_policy(0.02), count, 1)


def test_drawn_costs_are_kept_beside_those_that_judge(tmp_path: Path) -> None:
    """Rewards telescope in the drawn costs; episodes without noise are stored as before."""
    buffer, exact = noisy(5), fresh(5)
    for episode, same in zip(buffer, exact, strict=True):
        np.testing.assert_array_equal(episode.cost_ms, same.cost_ms)
        assert same.drawn_ms is None and same.seen_ms is same.cost_ms
        assert episode.seen_ms is episode.drawn_ms and (episode.drawn_ms != episode.cost_ms).all()
        total = 100.0 * np.log(episode.drawn_ms[0] / episode.drawn_ms[-1])
        assert episode.rewards.sum() == pytest.approx(total, abs=1e-3)
    buffer.save(tmp_path / "noisy.npz")
    assert_equal_buffers(EpisodeBuffer.load(tmp_path / "noisy.npz"), buffer)
    assert "drawn_ms" in buffer.to_arrays() and "drawn_ms" not in exact.to_arrays()
    buffer.extend(exact)
    (tmp_path / "noisy.npz").unlink()
    buffer.save(tmp_path / "noisy.npz")
    loaded = EpisodeBuffer.load(tmp_path / "noisy.npz")
    np.testing.assert_array_equal(loaded[-1].seen_ms, exact[-1].cost_ms)


def test_drawn_costs_are_checked_like_others() -> None:
    episode = noisy(1)[0]
    with pytest.raises(ValueError, match="costs and legal sets are for"):
        replace(episode, drawn_ms=episode.drawn_ms[:-1])
    with pytest.raises(ValueError, match="the drawn cost of state 0 is nan"):
        replace(episode, drawn_ms=np.full_like(episode.cost_ms, np.nan))


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh(1).save(tmp_path / "episodes.npz")

    def broken(file: object, **arrays: np.ndarray) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(files.np, "savez_compressed", broken)
    with pytest.raises(OSError, match="disk full"):
        fresh(2).save(tmp_path / "episodes.npz")
    assert len(EpisodeBuffer.load(tmp_path / "episodes.npz")) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["episodes.npz"]


def test_another_format_is_refused(tmp_path: Path) -> None:
    arrays = fresh(1).to_arrays()
    files.write_arrays(tmp_path / "old.npz", {**arrays, "format_version": np.array(0)})
    with pytest.raises(ValueError, match=r"old\.npz has episodes of format 0"):
        EpisodeBuffer.load(tmp_path / "old.npz")


@pytest.mark.parametrize("held_out", [0.0, 0.001, 0.25, 1.0])
def test_a_split_puts_every_episode_on_one_side(episodes: EpisodeBuffer, held_out: float) -> None:
    training, rest = episodes.split(held_out, seed=3)
    assert sorted(e.index for e in [*training, *rest]) == list(range(len(episodes)))
    assert len(rest) == (0 if held_out == 0 else max(1, round(held_out * len(episodes))))
    again, _ = episodes.split(held_out, seed=3)
    assert [e.index for e in again] == [e.index for e in training]


def test_the_table_holds_every_action_ever_legal(episodes: EpisodeBuffer) -> None:
    table = episodes.action_table()
    legal = {tuple(pair) for e in episodes for t in range(e.num_steps + 1) for pair in e.legal_actions(t).tolist()}
    assert legal == {tuple(pair) for pair in table.decode(np.arange(table.num_actions)).tolist()}
    assert all(np.all(table.encode(episode.actions) >= 0) for episode in episodes)


def test_buffers_join_their_graphs() -> None:
    joined, other = fresh(2), fresh(2, seed=5)
    joined.extend(other)
    assert len(joined) == 4
    assert set(joined.graphs) == {h for episode in joined for h in episode.hashes}


def test_rule_sets_do_not_mix() -> None:
    other = EpisodeBuffer(["another rule"], fresh(1).graphs)
    with pytest.raises(ValueError, match="rule sets"):
        other.extend(fresh(1))


def test_an_episode_needs_its_graphs() -> None:
    buffer = fresh(1)
    homeless = EpisodeBuffer(RULE_NAMES, type(buffer.graphs)(3, 2))
    with pytest.raises(ValueError, match="does not hold"):
        homeless.append(buffer[0])


@pytest.mark.parametrize(
    ("name", "said"), [("rewards", "reward of step 1 is nan"), ("cost_ms", "cost of state 1 is nan")]
)
def test_what_is_not_finite_is_named(name: str, said: str, tmp_path: Path) -> None:
    """Such a value is refused before it enters the statistics of all data and so the losses of other episodes."""
    buffer = fresh(2)
    arrays = buffer.to_arrays()
    buffer.save(tmp_path / "episodes.npz")
    arrays[name][buffer[0].num_steps + (name == "cost_ms") + 1] = np.nan
    files.write_arrays(tmp_path / "episodes.npz", arrays)
    with pytest.raises(IncompatibleEpisodes, match=f"episode 1: the {said}"):
        EpisodeBuffer.load(tmp_path / "episodes.npz")


def test_every_rule_has_as_many_legal_ranks_as_sites(episodes: EpisodeBuffer) -> None:
    """Ranks count from 0 without gaps, in the order of the sites."""
    for episode, ranked in zip(episodes, indexed_by_rank(episodes), strict=True):
        for t in range(episode.num_steps + 1):
            rules = episode.legal_actions(t)[:, 0]
            expected = [(rule, rank) for rule in range(3) for rank in range(int((rules == rule).sum()))]
            assert [tuple(pair) for pair in ranked.legal_actions(t).tolist()] == expected


def test_an_action_names_the_rank_of_its_site(episodes: EpisodeBuffer) -> None:
    taken = 0
    for episode, ranked in zip(episodes, indexed_by_rank(episodes), strict=True):
        for t, (rule, rank) in enumerate(ranked.actions.tolist()):
            if rule == 3:
                np.testing.assert_array_equal(episode.actions[t], ranked.actions[t])
                continue
            legal = episode.legal_actions(t)
            assert legal[legal[:, 0] == rule][rank].tolist() == episode.actions[t].tolist()
            taken += 1
    assert taken > 100


def test_all_else_stays_as_it_is(episodes: EpisodeBuffer) -> None:
    ranked = indexed_by_rank(episodes)
    assert ranked.graphs is episodes.graphs and ranked.rule_names == episodes.rule_names
    for one, other in zip(episodes, ranked, strict=True):
        facts = [(each.hashes, each.index, each.terminated, each.truncated) for each in (one, other)]
        assert facts[0] == facts[1]
        for name in ("rewards", "cost_ms", "legal_offsets"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_ranks_are_no_places(episodes: EpisodeBuffer) -> None:
    assert {episode.num_locations for episode in indexed_by_rank(episodes)} == {0}
    assert {episode.num_locations for episode in episodes} == {8}


def test_states_are_those_visited(split: tuple[EpisodeBuffer, EpisodeBuffer]) -> None:
    training, held_out = split
    seen = training.states()
    assert seen == {graph_hash for episode in training for graph_hash in episode.hashes}
    assert training.share_unseen(seen) == 0.0 and training.share_unseen(frozenset()) == 1.0
    assert 0 < held_out.share_unseen(seen) < held_out.share_unseen(seen, first=4) < 1
    assert math.isnan(held_out.share_unseen(seen, first=1000))
