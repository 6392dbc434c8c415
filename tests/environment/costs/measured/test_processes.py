"""Measured costs in several processes: each opens the database itself, and all agree on the prices."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv

from environment import GraphSubstitutionEnv
from environment.costs.interface import Costs
from environment.costs.measured import kernel_prices
from environment.costs.measured.cost_model import Measured, Recorded
from environment.costs.prices.database import PriceDatabase
from environment.runtimes import OnnxRuntime
from environment.substitution.wrappers import Padded
from tests.environment.costs.fake_kernels import KernelClock, price_without_a_clock

MODEL = "squeezenet1.1-tiny"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> KernelClock:
    return price_without_a_clock(monkeypatch)


class Make:
    """A function that makes an environment in any process, in which kernels are priced without a clock."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs

    def __call__(self) -> Padded:
        kernel_prices.time_kernel = KernelClock()  # type: ignore[assignment]
        kernel_prices.time_reference_kernel = lambda runtime: 1.0  # type: ignore[assignment]
        return Padded(GraphSubstitutionEnv(MODEL, costs=self.costs, max_steps=3), 512, 1024)


def test_a_copy_measures_into_the_same_database(clock: KernelClock, tmp_path: Path) -> None:
    costs = Measured("cpu", threads=2, database=tmp_path / "prices.sqlite", predict=False)
    ms = GraphSubstitutionEnv(MODEL, costs=costs).initial_cost.ms
    timed = len(clock.timed)
    copy = pickle.loads(pickle.dumps(costs))
    assert copy.name == costs.name and copy.runtime == OnnxRuntime("cpu", 2)
    assert GraphSubstitutionEnv(MODEL, costs=copy).initial_cost.ms == ms
    assert len(clock.timed) == timed
    replayed = Recorded(tmp_path / "prices.sqlite")
    GraphSubstitutionEnv(MODEL, costs=replayed)
    assert GraphSubstitutionEnv(MODEL, costs=pickle.loads(pickle.dumps(replayed))).initial_cost.ms == ms


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_environments_in_several_processes_share_prices(context: str, clock: KernelClock, tmp_path: Path) -> None:
    """Forked processes inherit a cost model that is in use, and spawned ones get a pickled copy."""
    costs = Measured("cpu", database=tmp_path / "prices.sqlite", predict=False)
    start = GraphSubstitutionEnv(MODEL, costs=costs)
    env = AsyncVectorEnv([Make(costs)] * 2, shared_memory=False, context=context)
    try:
        _, first = env.reset(seed=0)
        assert first["cost_ms"].tolist() == [start.initial_cost.ms] * 2
        action = start.legal_actions()[-1]
        _, _, _, _, after = env.step(np.stack([action, action]))
    finally:
        env.close()
    start.reset()
    _, _, _, _, here = start.step(action)
    assert after["cost_ms"].tolist() == [here["cost_ms"]] * 2
    with PriceDatabase(tmp_path / "prices.sqlite") as database:
        database.require_sound()
        (setting,) = database.settings()
        keys = [key for key, _ in database.setting(setting).items()]
    assert len(keys) >= len(clock.timed) > 5
