"""Noise of costs: what is drawn, that it can be repeated and replayed, and that results are judged without it."""

from __future__ import annotations

import itertools
import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from environment import GraphSubstitutionEnv, zoo
from environment.costs import registry as cost_models
from environment.costs.end_to_end import EFFORT, EndToEnd, RecordedEndToEnd
from environment.costs.interface import Costs, Noise, drawing
from environment.costs.limits import UnpricedWarning
from environment.costs.measured.cost_model import Measured, Recorded
from environment.costs.prices.database import PriceDatabase
from environment.costs.prices.graph_prices import GraphPrice
from environment.costs.prices.price_list import Price
from environment.costs.prices.settings import Setting
from environment.costs.resampling import NOISES, Factors, Sum, single_spread
from environment.policies.random import RandomAgent
from taso_ext import OnnxModel, State
from tests.environment.costs.fake_kernels import price_without_a_clock
from tests.environment.costs.timed_graphs import TimedGraphs, fake_costs
from tests.environment.measurement.fake_machine import FakeMachine

HERE = Setting("cpu", "made up", "onnxruntime", "1", 1)
STEPS = 6


@pytest.fixture(scope="module")
def model() -> OnnxModel:
    return OnnxModel.load(zoo.build("squeezenet1.1-tiny"))


def played(env: GraphSubstitutionEnv, seed: int, agent_seed: int = 0) -> list[dict[str, Any]]:
    """Returns `info` of an episode of random rewrites, with the reward, the globals and the features of nodes."""
    agent = RandomAgent(agent_seed, noop_probability=0.0)
    observation, info = env.reset(seed=seed)
    infos, over = [{**info, "reward": 0.0, **seen(observation)}], False
    while not over:
        observation, reward, terminated, truncated, info = env.step(agent(observation))
        infos.append({**info, "reward": float(reward), **seen(observation)})
        over = terminated or truncated
    return infos


def seen(observation: dict[str, Any]) -> dict[str, Any]:
    return {"globals": observation["globals"].tolist(), "nodes": observation["graph"].nodes.tobytes()}


def column(infos: list[dict[str, Any]], name: str) -> list[Any]:
    return [info[name] for info in infos]


# The distributions.


def test_factors_are_the_recorded_timings_as_parts_of_their_mean() -> None:
    factors = Factors.of([1.0, 2.0, 6.0], 0.5)
    assert factors.timings == pytest.approx((1 / 3, 2 / 3, 2.0)) and np.mean(factors.timings) == pytest.approx(1)
    drawn = {round(Sum([1.0], [factors]).draw(np.random.default_rng(seed)), 9) for seed in range(50)}
    assert drawn == {round(each, 9) for each in factors.timings}


@pytest.mark.parametrize("timings", [[], [3.0], [0.0, 0.0]])
def test_what_shows_no_distribution_is_log_normal_with_the_stated_spread(timings: list[float]) -> None:
    factors = Factors.of(timings, 0.196)
    assert not factors.timings and factors.deviation == pytest.approx(0.1, rel=1e-3)
    found = [Sum([1.0], [factors]).draw(np.random.default_rng(seed)) for seed in range(4000)]
    assert np.mean(found) == pytest.approx(1, abs=4 * 0.1 / 4000**0.5)
    assert np.std(np.log(found)) == pytest.approx(0.1, rel=0.05) and min(found) > 0


def test_the_spread_of_a_mean_is_less_than_that_of_a_timing() -> None:
    assert [single_spread(0.01, timings) for timings in (0, 1, 9)] == pytest.approx([0.01, 0.01, 0.03])


def test_a_sum_varies_as_it_says() -> None:
    """Nineteen of twenty draws lie within the half width; 95 ± 1.4 % (four standard errors) of 4,000 do."""
    noisy = Sum([0.5, 0.3, 0.2], [Factors((), 0.05), Factors.of([0.9, 1.0, 1.1, 1.0], 0.0), Factors((), 0.1)])
    found = np.array([noisy.draw(np.random.default_rng(seed)) for seed in range(4000)])
    assert np.mean(found) == pytest.approx(1, abs=4 * noisy.half_width / 1.96 / 4000**0.5)
    assert np.mean(np.abs(found - 1) <= noisy.half_width) == pytest.approx(0.95, abs=0.014)


# Sums of kernels.


@pytest.fixture
def recorded(model: OnnxModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database of kernels, each timed up to three times, and of the graphs of a few episodes."""
    price_without_a_clock(monkeypatch)
    path = tmp_path / "prices.sqlite"
    monkeypatch.setattr("environment.costs.measured.cost_model.setting_of", lambda runtime: HERE)
    env = GraphSubstitutionEnv(model, costs=Measured(database=path, predict=False), max_steps=STEPS)
    for agent_seed in range(2):
        played(env, 0, agent_seed)
    rng = np.random.default_rng(0)
    with PriceDatabase(path) as database:
        prices = database.setting(HERE)
        for number, (key, price) in enumerate(list(prices.items())):
            for _ in range(number % 3):
                prices.put(key, Price(price.ms * math.exp(rng.normal(0, 0.1)), 0.02))
    return path


def replaying(model: OnnxModel, path: Path, noise: Noise, **settings: Any) -> GraphSubstitutionEnv:
    return GraphSubstitutionEnv(model, costs=Recorded(path, noise), max_steps=STEPS, **settings)


def test_equal_seeds_have_equal_rewards_and_others_differ(model: OnnxModel, recorded: Path) -> None:
    env, other = (replaying(model, recorded, "resampled") for _ in range(2))
    first = played(env, 1)
    assert len(first) > 3 and len(set(column(first, "reward"))) > 3
    played(env, 2)
    assert played(env, 1) == played(other, 1) == first
    different = played(env, 2)
    assert column(different, "graph_hash") == column(first, "graph_hash")
    assert all(a != b for a, b in zip(column(first, "drawn_cost_ms"), column(different, "drawn_cost_ms"), strict=True))
    env.reset(seed=1)
    _, again = env.reset()  # episodes without a seed of their own have other draws, which follow from the last seed
    assert again["drawn_cost_ms"] != first[0]["drawn_cost_ms"]
    other.reset(seed=1)
    assert other.reset()[1] == again


def test_results_are_judged_by_frozen_costs(model: OnnxModel, recorded: Path) -> None:
    """The agent sees the drawn ones in rewards and in the globals. Nodes show the prices as they are known."""
    noisy, frozen = (played(replaying(model, recorded, noise), 3) for noise in NOISES[::-1])
    for name in ("cost_ms", "best_cost_ms", "cost_noise", "graph_hash", "flops", "kernel_launches", "nodes"):
        assert column(noisy, name) == column(frozen, name)
    drawn = column(noisy, "drawn_cost_ms")
    expected = [100 * math.log(before / after) for before, after in itertools.pairwise(drawn)]
    assert column(noisy, "reward")[1:] == pytest.approx(expected)
    assert [each[0] for each in column(noisy, "globals")] == pytest.approx(np.log(np.array(drawn) / drawn[0]), abs=1e-6)
    assert all(0 < noise < 100 for noise in column(noisy, "reward_noise")[1:])


def test_frozen_costs_are_those_without_a_parameter(model: OnnxModel, recorded: Path) -> None:
    named = [
        played(GraphSubstitutionEnv(model, costs=f"{recorded}{text}", max_steps=STEPS), 0)
        for text in ("", ":noise=frozen")
    ]
    assert named[0] == named[1] and column(named[0], "drawn_cost_ms") == column(named[0], "cost_ms")
    costs_ms = column(named[0], "cost_ms")
    for (before, after), reward in zip(itertools.pairwise(costs_ms), column(named[0], "reward")[1:], strict=True):
        assert reward == 100 * math.log(before / after), "bit for bit the formula of the costs"


@pytest.mark.parametrize("reward", ["log_ratio", "incremental", "combined"])
def test_rewards_telescope_in_the_drawn_costs(model: OnnxModel, recorded: Path, reward: str) -> None:
    infos = played(replaying(model, recorded, "resampled", reward=reward), 5)
    drawn, total = column(infos, "drawn_cost_ms"), sum(column(infos, "reward"))
    saved, moved = (100 * (1 - each[-1] / each[0]) for each in (drawn, column(infos, "memory_bytes")))
    expected = {
        "log_ratio": 100 * math.log(drawn[0] / drawn[-1]),
        "incremental": saved,
        "combined": 0.8 * saved + 0.2 * moved,
    }
    assert total == pytest.approx(expected[reward])


def test_a_loop_of_rewrites_earns_nothing(model: OnnxModel, recorded: Path) -> None:
    """A graph that is met again has the draw that it had."""
    costs = Measured(database=recorded, predict=False, noise="resampled")
    env = GraphSubstitutionEnv(model, costs=costs, everywhere=False)
    _, start = env.reset(seed=0)
    earned, hashes, drawn = [], [start["graph_hash"]], [start["drawn_cost_ms"]]
    for _ in range(2):
        for name in ("factor-unary-from-concat", "distribute-unary-over-concat"):
            actions = env.legal_actions()
            _, reward, *_, info = env.step(actions[actions[:, 0] == env.rule_names.index(name)][0])
            earned.append(reward)
            hashes.append(info["graph_hash"])
            drawn.append(info["drawn_cost_ms"])
    assert hashes[0] == hashes[2] == hashes[4] != hashes[1] and len(set(drawn)) == 2
    assert sum(earned) == pytest.approx(0, abs=1e-9) and earned[0] != 0


def test_what_changes_no_graph_draws_nothing(model: OnnxModel, recorded: Path) -> None:
    env = replaying(model, recorded, "resampled")
    _, start = env.reset(seed=0)
    _, _, *_, info = env.step([0, env.num_places])
    assert info["rule_name"] == "invalid" and info["drawn_cost_ms"] == start["drawn_cost_ms"]
    _, reward, terminated, _, info = env.step([env.num_rules, 0])
    assert (reward, info["reward_noise"], terminated) == (0.0, 0.0, True)
    assert info["drawn_cost_ms"] == start["drawn_cost_ms"]


def test_the_mean_of_many_draws_is_the_frozen_cost(model: OnnxModel, recorded: Path) -> None:
    """Within four standard errors: a false alarm in 16,000."""
    prices = drawing(Recorded(recorded, "resampled").of(model))
    assert prices is not None
    state = State(model.graph, GraphSubstitutionEnv(model).rules, prices.native)
    frozen = prices.price(state).cost.ms
    found = [prices.draw(state, np.random.default_rng(seed)) for seed in range(1000)]
    drawn = np.array([each.cost.ms for each in found])
    assert drawn.mean() == pytest.approx(frozen, abs=4 * drawn.std() / 1000**0.5)
    assert drawn.std() > 0.003 * frozen
    assert found[0].error_ms == pytest.approx(1.96 * drawn.std(), rel=0.15)
    assert drawing(Recorded(recorded).of(model)) is None


def test_kernels_are_replayed_without_a_device(
    model: OnnxModel, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = played(replaying(model, recorded, "resampled"), 4)
    with closing(sqlite3.connect(recorded)) as file, file:
        file.execute("update setting set device = 'cuda'")
    monkeypatch.setattr("environment.costs.measured.cost_model.runtime_here", lambda setting: None)
    without_sessions(monkeypatch)
    assert played(replaying(model, recorded, "resampled"), 4) == expected


def without_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_session(*_: object, **__: object) -> None:
        raise AssertionError("a session was opened")

    monkeypatch.setattr(onnxruntime, "InferenceSession", no_session)


def test_predicted_prices_are_as_noisy_as_they_are_unsure(
    model: OnnxModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    price_without_a_clock(monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    env = GraphSubstitutionEnv(model, costs="learned:cpu:noise=resampled", max_steps=1)
    found = np.array([env.reset(seed=seed)[1]["drawn_cost_ms"] for seed in range(200)])
    _, info = env.reset(seed=0)
    assert np.std(found) / info["cost_ms"] == pytest.approx(info["cost_noise"] / 1.96, rel=0.25)
    assert env.log_cost_rewards, "apart from noise"


# Whole graphs.


@pytest.fixture
def timed(model: OnnxModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, EndToEnd]:
    """A database of end-to-end times on a noisy machine, and the cost model that has recorded them."""
    monkeypatch.setattr("environment.costs.end_to_end.setting_of", lambda runtime: HERE)
    monkeypatch.setattr("environment.costs.end_to_end.OnnxRuntime", TimedGraphs)
    monkeypatch.setattr(TimedGraphs, "device", "cpu", raising=False)
    monkeypatch.setattr("environment.costs.end_to_end.require_working", lambda device: None)
    path = tmp_path / "graphs.sqlite"
    fake = fake_costs(TimedGraphs(FakeMachine(noise=0.03)), EFFORT)
    costs = EndToEnd("cpu", runtime=fake.runtime, effort=fake.effort, noise="resampled", database=path)
    return path, costs


@pytest.mark.filterwarnings("ignore:.*too noisy.*")
def test_graphs_are_replayed_without_a_device(
    model: OnnxModel, timed: tuple[Path, EndToEnd], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, costs = timed
    expected = played(GraphSubstitutionEnv(model, costs=costs, max_steps=STEPS), 0)
    frozen_ms, drawn_ms = (np.array(column(expected, name)) for name in ("cost_ms", "drawn_cost_ms"))
    assert drawn_ms[0] == frozen_ms[0], "the start graph is the unit"
    assert (drawn_ms[1:] != frozen_ms[1:]).any() and drawn_ms == pytest.approx(frozen_ms, rel=0.2)
    without_sessions(monkeypatch)
    replay = cost_models.find(f"{path}:kind=endtoend,noise=resampled")
    assert isinstance(replay, RecordedEndToEnd) and replay.name == f"{path}:kind=endtoend,noise=resampled"
    found = played(GraphSubstitutionEnv(model, costs=replay, max_steps=STEPS), 0)
    assert column(found, "graph_hash") == column(expected, "graph_hash")
    for name in ("cost_ms", "drawn_cost_ms", "reward", "cost_noise"):
        assert column(found, name) == pytest.approx(column(expected, name), rel=1e-5, abs=1e-4)
    before = RecordedEndToEnd(path).digest
    assert replay.digest == before
    replay.graphs.put("another", "another", GraphPrice(1.0, 1.0, 0.0))
    assert RecordedEndToEnd(path).digest != before, "a run knows that its prices have changed"


@pytest.mark.filterwarnings("ignore:.*too noisy.*")
def test_a_replay_of_graphs_ends_where_the_recording_did(model: OnnxModel, timed: tuple[Path, EndToEnd]) -> None:
    path, costs = timed
    infos = played(GraphSubstitutionEnv(model, costs=costs, max_steps=2), 0)
    env = GraphSubstitutionEnv(model, costs=RecordedEndToEnd(path), max_steps=50)
    known, met = set(column(infos, "graph_hash")), set()
    with pytest.warns(UnpricedWarning, match="no end-to-end time of a graph that rewriting has made"):
        for action in env.legal_actions():
            _, before = env.reset(seed=0)
            _, reward, _, truncated, info = env.step(action)
            met.add(info["graph_hash"])
            if info["rule_name"] == "unpriced":
                assert truncated and reward == 0 and info["graph_hash"] == before["graph_hash"]
    assert met <= known and len(met) == 2, "the start graph, and the one that was timed"


def test_a_replay_without_the_model_says_how_to_record_it(model: OnnxModel, tmp_path: Path) -> None:
    with PriceDatabase(tmp_path / "empty.sqlite") as database:
        database.setting(HERE)
    with pytest.raises(ValueError, match=r"no end-to-end time of the model.* --costs endtoend:cpu there"):
        GraphSubstitutionEnv(model, costs=f"{tmp_path / 'empty.sqlite'}:kind=endtoend")


# Names.


@pytest.mark.parametrize("name", ["measured:cpu:noise=resampled", "learned:cpu:noise=resampled"])
def test_the_noise_is_in_the_name(name: str) -> None:
    costs: Costs = cost_models.find(name)
    assert costs.name == name
    assert cost_models.find(name.replace("resampled", "frozen")).name == name.partition(":noise")[0]


def test_a_path_may_hold_what_looks_like_a_parameter(tmp_path: Path) -> None:
    folder = tmp_path / "a:b=c"
    folder.mkdir()
    with PriceDatabase(folder / "prices.sqlite") as database:
        database.setting(HERE)
    for text, noise in (("", "frozen"), (":noise=resampled", "resampled")):
        costs = cost_models.find(f"{folder / 'prices.sqlite'}{text}")
        assert isinstance(costs, Recorded) and costs.noise == noise


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("measured:cpu:noise=loud", "'measured:cpu': the noise of costs is frozen or resampled, got 'loud'"),
        ("measured:cpu:nosie=frozen", r"no parameter 'nosie' \(did you mean 'noise'\?\): it takes noise"),
        ("measured:cpu:kind=endtoend", "no parameter 'kind': it takes noise"),
        ("measured:cpu:noise=frozen,noise=frozen", "each key once"),
        ("roofline:xeon:noise=resampled", "a formula, which has no noise"),
        ("mesured:cpu:noise=resampled", "did you mean 'measured:cpu'"),
        ("prices.sqlite:kind=learned", "replays the kind measured or endtoend, got 'learned'"),
        ("prices.sqlite:of=graphs", "it takes kind, noise"),
        ("missing.sqlite:noise=resampled", "There is no database of prices missing.sqlite"),
    ],
)
def test_bad_values_are_named(name: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        cost_models.find(name)
