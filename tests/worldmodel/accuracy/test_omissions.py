from __future__ import annotations

import numpy as np
import pytest

from tests.worldmodel.toy_world import LENIENT, ToyEnv, UniformPolicy, knowing_half
from worldmodel.accuracy.baselines import COPY_LAST, Trivial
from worldmodel.accuracy.exploit import compare, dreamed_then_replayed, played_for_real
from worldmodel.accuracy.omissions import (
    GAIN_RECALL,
    PAYING_RECALL,
    Offers,
    Paying,
    paying_along,
    paying_figures,
    paying_rewrites,
)
from worldmodel.accuracy.open_loop import OpenLoop, open_loop, play
from worldmodel.config import PAYS_PERCENT
from worldmodel.data.actions import ActionTable, pack, unpack
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.dream.dream_env import DreamEnv
from worldmodel.dream.players import PolicyPlayer
from worldmodel.world_model import WorldModel

Split = tuple[EpisodeBuffer, EpisodeBuffer]


@pytest.fixture(scope="module")
def played(world_model: WorldModel, split: Split) -> OpenLoop:
    return open_loop(world_model, split[1], steps=4, first=1, stride=2)


@pytest.fixture(scope="module")
def paying(played: OpenLoop, split: Split) -> dict[int, list[Paying]]:
    return paying_along(ToyEnv(8, max_steps=12), split[1], played.real, (1, 4))


def really_pays(episodes: EpisodeBuffer, row: int, t: int) -> dict[int, float]:
    """Returns the gain of each rewrite that pays in a state of an episode, by its code, from rewrites really made."""
    env = ToyEnv(8)
    found = {}
    for rule, site in episodes[row].legal_actions(t).tolist():
        env.reset()
        for action in episodes[row].actions[:t]:
            env.step(action)
        gain = env.step((rule, site))[1]
        if gain > PAYS_PERCENT:
            found[int(pack(np.array([[rule, site]]))[0])] = gain
    return found


def test_what_pays_is_what_lowers_the_cost_when_it_is_really_made(
    played: OpenLoop, paying: dict[int, list[Paying]], split: Split
) -> None:
    windows = played.real
    for step, states in paying.items():
        assert len(states) == len(windows.episode)
        for w in range(0, len(states), 7):
            wanted = really_pays(split[1], windows.episode[w], windows.depth[w] + step)
            assert dict(zip(*(part.tolist() for part in states[w]), strict=True)) == pytest.approx(wanted)
    assert any(len(each.codes) for each in paying[4]) and not all(len(each.codes) for each in paying[4])


def test_episodes_of_another_environment_are_refused(played: OpenLoop, split: Split) -> None:
    with pytest.raises(ValueError, match="give the environment that it was played in"):
        paying_along(ToyEnv(start=(1, 1, 0, 1, 0, 1, 0, 1)), split[1], played.real, (1,))


def test_offers_count_rewrites_and_gains() -> None:
    """The table does not hold (2, 0), which pays most and is therefore omitted, as (1, 1) is in the second state."""
    table = ActionTable.of_codes(pack(np.array([[0, 0], [1, 1]])), num_rules=3)
    first = Paying(pack(np.array([[0, 0], [2, 0]])), np.array([1.0, 5.0]))
    second = Paying(pack(np.array([[1, 1]])), np.array([2.0]))
    offers = Offers.of(table, [first, second], np.array([[True, True, True], [True, False, True]]))
    assert offers.counts(2).tolist() == [[1, 2], [0, 1]] and offers.payable(2).tolist() == [[1, 6], [0, 2]]
    assert (offers.recall, offers.gain_recall) == (pytest.approx(1 / 3), pytest.approx(1 / 8))
    assert offers.omitted() == {2: 5.0, 1: 2.0} and list(offers.omitted()) == [2, 1]
    twice = Offers.joined([offers, offers])
    assert twice.counts(4).tolist() == [[1, 2], [0, 1]] * 2
    facts = twice.facts(("a", "b", "c"))
    assert facts == {"paying": 6, "offered": pytest.approx(1 / 3), "omitted": {"c": 10.0, "b": 4.0}}
    assert Offers.of(table, [], np.zeros((0, 3), bool)).facts(()) == {"paying": 0, "offered": None, "omitted": {}}


def test_figures_are_perfect_for_real_masks_and_miss_what_the_table_lacks(
    played: OpenLoop, paying: dict[int, list[Paying]], world_model: WorldModel, split: Split
) -> None:
    real = played._replace(dreamed=played.real.trajectory)
    for step, states in paying.items():
        trivial = Trivial.of(split[0], world_model)
        figures = paying_figures(real, trivial, states, world_model.table, step, resamples=0)
        assert [figure.name for figure in figures] == [PAYING_RECALL, GAIN_RECALL]
        assert [figure.model.value for figure in figures] == [1.0, 1.0]
        assert figures[0].trivial[COPY_LAST] < 1.0
    half = knowing_half(world_model)
    codes = np.concatenate([each.codes for each in paying[1]])
    known = float(np.isin(codes, half.table.codes).mean())
    whole = np.ones((len(paying[1]), half.table.num_actions + 1), bool)
    assert Offers.of(half.table, paying[1], whole).recall == pytest.approx(known) and 0.0 < known < 1.0


def test_a_stricter_dream_offers_less(
    played: OpenLoop, paying: dict[int, list[Paying]], world_model: WorldModel
) -> None:
    recalls = []
    for legal_from in (0.1, 0.5, 0.99):
        masks = play(world_model, played.real, legal_from=legal_from).dreamed.legal[1]
        recalls.append(Offers.of(world_model.table, paying[1], masks).recall)
    assert recalls == sorted(recalls, reverse=True) and recalls[0] > recalls[-1]


def test_offers_along_plans_are_those_of_the_states_really_reached(world_model: WorldModel) -> None:
    """All states but the first count, up to the first illegal rewrite."""
    env, player = ToyEnv(8, max_steps=8), PolicyPlayer(UniformPolicy(noop_logit=-2.0))
    dream = DreamEnv.of_root(world_model, env, LENIENT)
    dreamed = dreamed_then_replayed(world_model, dream, env, player, episodes=12, horizon=8, seed=0)
    real = played_for_real(world_model, env, player, episodes=12, seed=0, config=LENIENT)
    for plan in (*dreamed, *real):
        wanted: list[tuple[int, int, float]] = []
        env.reset()
        for t, pair in enumerate(plan.actions[: len(plan.real_percent) - 1]):
            env.step(pair)
            codes, gains = paying_rewrites(env)
            wanted += [(t, int(rule), gain) for (rule, _), gain in zip(unpack(codes), gains.tolist(), strict=True)]
        found = zip(*(column.tolist() for column in plan.offers[:3]), strict=True)
        assert list(found) == [(t, rule, pytest.approx(gain)) for t, rule, gain in wanted]
    assert any(len(plan.real_percent) - 1 < len(plan.actions) for plan in dreamed), "some plans are illegal"
    comparison = compare(real)
    offered = np.concatenate([plan.offers.offered for plan in real])
    assert comparison.paying_recall == pytest.approx(offered.mean()) and 0.5 < comparison.paying_recall < 1.0
