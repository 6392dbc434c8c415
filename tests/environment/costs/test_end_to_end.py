"""`endtoend:` prices are ratios to the start graph, each measured once, and only if the reward looks."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from environment import GraphSubstitutionEnv
from environment.costs.end_to_end import EFFORT, EndToEnd
from environment.costs.limits import NoisyClockWarning, Recent
from environment.policies.random import RandomAgent
from taso_ext import State
from tests.environment.costs.timed_graphs import MS_PER_OPERATOR, TimedGraphs, fake_costs, true_ms
from tests.environment.measurement.fake_machine import FakeMachine

TINY = ("squeezenet1.1-tiny", "bert-base-tiny")


def walk(env: GraphSubstitutionEnv, steps: int, seed: int = 0) -> list[dict]:
    """Returns `info` of a reset and of random rewrites until the episode ends, with the reward and the globals."""
    agent, infos = RandomAgent(seed, noop_probability=0.0), []
    observation, info = env.reset(seed=seed)
    infos.append({**info, "reward": 0.0, "globals": observation["globals"]})
    for _ in range(steps):
        observation, reward, terminated, truncated, info = env.step(agent(observation))
        infos.append({**info, "reward": float(reward), "globals": observation["globals"]})
        if terminated or truncated:
            break
    return infos


@pytest.mark.parametrize("name", TINY)
def test_costs_are_what_the_graphs_take(name: str) -> None:
    """The machine's clock is exact, but its speed drifts."""
    runtime = TimedGraphs(FakeMachine(drift=0.005))
    env = GraphSubstitutionEnv(name, costs=fake_costs(runtime), max_steps=6)
    truth = [true_ms(env.model.export_checked(env.state.graph))]
    observation, info = env.reset(seed=0)
    agent, infos = RandomAgent(0, noop_probability=0.0), [info]
    for _ in range(6):
        observation, reward, *_, info = env.step(agent(observation))
        infos.append(info)
        truth.append(true_ms(env.model.export_checked(env.state.graph)))
        assert reward == pytest.approx(100 * np.log(truth[-2] / truth[-1]), abs=1.5)
        assert observation["globals"][0] == pytest.approx(np.log(truth[-1] / truth[0]), abs=0.01)
    assert len({round(ms) for ms in truth}) > 1, "nothing changed, so nothing was tested"
    start_ms = infos[0]["cost_ms"]
    assert [info["cost_ms"] / start_ms for info in infos] == pytest.approx([ms / truth[0] for ms in truth], rel=0.01)
    assert infos[-1]["best_cost_ms"] == min(info["cost_ms"] for info in infos)


def test_every_graph_is_timed_once() -> None:
    """Another environment with the same cost model, which loads the same model again, times nothing."""
    runtime = TimedGraphs()
    costs = fake_costs(runtime)
    env = GraphSubstitutionEnv("squeezenet1.1-tiny", costs=costs, max_steps=5)
    first = walk(env, 5)
    count = len(runtime.timed)
    assert count > 0
    again = walk(GraphSubstitutionEnv("squeezenet1.1-tiny", costs=costs, max_steps=5), 5)
    assert len(runtime.timed) == count
    for before, after in zip(first, again, strict=True):
        assert np.array_equal(before.pop("globals"), after.pop("globals")) and before == after
    _, reward, *_, info = env.step([env.num_rules, 0])
    assert (reward, info["reward_noise"], len(runtime.timed)) == (0.0, 0.0, count), "NO-OP: one measurement, twice"


def test_nothing_is_timed_between_measurements() -> None:
    runtime = TimedGraphs()
    env = GraphSubstitutionEnv(
        "bert-base-tiny", costs=fake_costs(runtime), reward="percent:every=3,bonus=0.25", max_steps=8
    )
    observation, info = env.reset(seed=0)
    agent, timed, costs_ms = RandomAgent(1, noop_probability=0.0), len(runtime.timed), [info["cost_ms"]]
    for step in range(1, 9):
        assert env.candidates()[2].size
        observation, reward, *_, info = env.step(agent(observation))
        looks = step in (3, 6, 8)
        assert info["cost_is_fresh"] == looks == (len(runtime.timed) > timed)
        expected = 100 * (costs_ms[-1] - info["cost_ms"]) / costs_ms[0] if looks else 0.25
        assert reward == pytest.approx(expected, abs=1e-9)
        timed = len(runtime.timed)
        costs_ms += [info["cost_ms"]] if looks else []
        assert info["cost_ms"] == costs_ms[-1] and info["best_cost_ms"] == min(costs_ms)
        stale = np.log(costs_ms[-1] / costs_ms[0])
        assert observation["globals"] == pytest.approx([stale, step / 8, step % 3 / 3, stale], abs=1e-6)
    assert len(costs_ms) == 4 and len(set(costs_ms)) > 1


def test_final_times_the_last_graph_only() -> None:
    runtime = TimedGraphs()
    env = GraphSubstitutionEnv("bert-base-tiny", costs=fake_costs(runtime), reward="final", max_steps=4)
    timed = len(runtime.timed)
    infos = walk(env, 3)
    assert len(runtime.timed) == timed and not any(info["cost_is_fresh"] for info in infos[1:])
    infos = walk(env, 4)
    assert len(runtime.timed) > timed and infos[-1]["cost_is_fresh"]
    assert infos[-1]["reward"] == pytest.approx(100 * (1 - infos[-1]["cost_ms"] / env.initial_cost.ms))


def test_an_illegal_action_times_nothing() -> None:
    runtime = TimedGraphs()
    env = GraphSubstitutionEnv("squeezenet1.1-tiny", costs=fake_costs(runtime))
    walk(env, 1)
    timed = len(runtime.timed)
    _, reward, *_, info = env.step([0, env.num_places])
    assert (reward, info["reward_noise"], info["cost_is_fresh"], len(runtime.timed)) == (-100.0, 0.0, True, timed)


@pytest.mark.parametrize("reward", ["final", "percent:every=5"])
def test_an_illegal_last_step_times_the_graph_that_the_episode_ends_with(reward: str) -> None:
    runtime = TimedGraphs()
    env = GraphSubstitutionEnv("bert-base-tiny", costs=fake_costs(runtime), reward=reward, max_steps=4)
    infos, timed = walk(env, 3), len(runtime.timed)
    assert not infos[-1]["cost_is_fresh"]
    _, earned, _, truncated, info = env.step([0, env.num_places])
    assert truncated and info["rule_name"] == "invalid" and info["cost_is_fresh"] and len(runtime.timed) > timed
    assert earned == pytest.approx(-100.0 + 100 * (1 - info["cost_ms"] / env.initial_cost.ms))
    assert info["best_cost_ms"] == min(info["cost_ms"], env.initial_cost.ms)


def test_analytic_costs_are_always_fresh_and_without_noise() -> None:
    for reward in ("log_ratio", "percent", "final"):
        env = GraphSubstitutionEnv("squeezenet1.1-tiny", reward=reward)
        for info in walk(env, 7):
            assert info["cost_is_fresh"] and info["cost_noise"] == info["reward_noise"] == 0
            assert info["best_cost_ms"] <= info["cost_ms"]
        assert info["cost_ms"] == env.state.cost.ms


def test_noise_is_reported_and_covers_the_truth() -> None:
    """Of the 95 % intervals of 20 prices with 15 % noise, fewer than 15 cover with a chance below 0.1 %."""
    covered = 0
    for seed in range(4):
        runtime = TimedGraphs(FakeMachine(noise=0.15, seed=seed))
        costs = fake_costs(runtime, replace(EFFORT, resolution=0.02))
        costs.clock.warn = lambda finding: None  # type: ignore[method-assign]  # warnings are tested elsewhere
        env = GraphSubstitutionEnv("bert-base-tiny", costs=costs, max_steps=5, reward="incremental")
        start = true_ms(env.model.export_checked(env.model.graph))
        observation, _ = env.reset(seed=seed)
        agent = RandomAgent(seed, noop_probability=0.0)
        for _ in range(5):
            observation, *_, info = env.step(agent(observation))
            ratio = true_ms(env.model.export_checked(env.state.graph)) / start
            found = info["cost_ms"] / env.initial_cost.ms
            assert 0.005 < info["cost_noise"] < 0.2 and info["reward_noise"] >= 99 * info["cost_noise"] * found
            covered += abs(found - ratio) <= 1.05 * info["cost_noise"] * found
    assert covered >= 15


def test_a_clock_that_is_too_noisy_is_said_once() -> None:
    runtime = TimedGraphs(FakeMachine(noise=0.3))
    with pytest.warns(NoisyClockWarning, match=r"endtoend:cpu: The fake clock was too noisy for ±1 %") as caught:
        infos = walk(GraphSubstitutionEnv("bert-base-tiny", costs=fake_costs(runtime), max_steps=4), 4)
    assert len(caught) == 1
    assert all(info["cost_noise"] > 0.01 for info in infos[1:]), "the intervals stay honest"


def test_an_exact_clock_is_not_complained_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        infos = walk(GraphSubstitutionEnv("bert-base-tiny", costs=fake_costs(), max_steps=3), 3)
    assert all(info["cost_noise"] <= 0.01 for info in infos)


def test_prices_of_models_do_not_mix_and_old_ones_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = TimedGraphs()
    costs = fake_costs(runtime)
    env = GraphSubstitutionEnv("squeezenet1.1-tiny", costs=costs)
    start_ms = env.initial_cost.ms
    env.reset(options={"graph": "bert-base-tiny"})
    assert env.initial_cost.ms != start_ms
    timed = len(runtime.timed)
    env.reset(options={"graph": "squeezenet1.1-tiny"})
    assert env.initial_cost.ms == start_ms and len(runtime.timed) == timed, "known from before"
    monkeypatch.setattr("environment.costs.end_to_end._MOST_PRICES", 2)
    monkeypatch.setattr("environment.costs.end_to_end._MOST_MODELS", 1)
    costs = fake_costs(runtime)
    env = GraphSubstitutionEnv("squeezenet1.1-tiny", costs=costs)
    walk(env, 6)
    assert len(costs._known.get(env.model.graph.hash, pytest.fail).prices) == 2  # type: ignore[arg-type]
    env.reset(options={"graph": "bert-base-tiny"})
    assert len(costs._known) == 1


def test_a_model_that_cannot_be_run_leaves_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    env = GraphSubstitutionEnv("squeezenet1.1-tiny", costs=fake_costs())
    _, before = env.reset(seed=0)
    monkeypatch.setitem(MS_PER_OPERATOR, "Conv", float("inf"))
    env.costs._known = Recent(1)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="operator Foo"):
        env.reset(options={"graph": "resnet18-tiny"})
    monkeypatch.undo()
    assert env.reset(seed=0)[1] == before


def test_in_onnx_runtime() -> None:
    """Real times are not known beforehand, so only their properties are tested."""
    costs = EndToEnd("cpu", effort=replace(EFFORT, resolution=1.0, sessions=1, pairs=4))
    env = GraphSubstitutionEnv("squeezenet1.1-tiny", costs=costs, max_steps=3)
    start, *others = walk(env, 3)
    assert start["cost_noise"] == 0 and start["cost_ms"] == env.initial_cost.ms > 0
    assert all(info["cost_ms"] > 0 and info["cost_noise"] > 0 and info["cost_is_fresh"] for info in others)
    prices = costs.of(env.model)
    assert prices.price(env.state) is prices.price(State(env.state.graph, env.rules, prices.native))
