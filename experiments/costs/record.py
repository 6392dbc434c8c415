"""`rlflow costs record`: times the kernels of models, and of graphs that random rewriting makes of them."""

from __future__ import annotations

import argparse
import time
from functools import cached_property
from pathlib import Path

import numpy as np

from environment.affordable import affordable
from environment.costs.kernel import Kernel
from environment.costs.kernel_model import require_timeable
from environment.costs.kernel_prices import KernelPrices
from environment.costs.lowering import lower
from environment.costs.measured import MeasuredPrices
from environment.costs.price_database import PriceDatabase, PriceList
from environment.costs.settings import setting_of
from environment.runtimes import OnnxRuntime
from environment.runtimes.devices import require_working
from experiments.config import parse_dims
from experiments.costs.database import counted, path_of
from experiments.errors import UserError
from experiments.interruption import raise_if_received
from experiments.model_source import ModelSource, find_models
from experiments.progress import ProgressDisplay, format_duration, make_progress
from experiments.rewriting import random_step
from taso_ext import CostModel, OnnxModel, RuleSet, State

_COUNTED_BY = "rtx2070"  # any roofline: it only tells how large graphs are


def run(options: argparse.Namespace) -> int:
    """Records each model; returns 0.

    Raises:
      UserError, ModelError, UnavailableError, DatabaseError: what is wrong, and what to do.
    """
    _check(options)
    dims, models = parse_dims(options.dim), find_models(options.models)
    require_working(options.device)
    start, recording = time.perf_counter(), Recording(options, make_progress())
    for source in models:
        recording.add(source, OnnxModel.load(source.build(), dims=dims))
    print(recording.summary(len(models), time.perf_counter() - start))
    return 0


def _check(options: argparse.Namespace) -> None:
    for name, least in (("threads", 1), ("walks", 0), ("steps", 1), ("seed", 0)):
        if getattr(options, name) < least:
            raise UserError(f"--{name} must be at least {least}, got {getattr(options, name)}.")


class Recording:
    """Prices of several models in one database, which is opened when the first of them is known to run."""

    def __init__(self, options: argparse.Namespace, progress: ProgressDisplay) -> None:
        self._database: Path | None = options.database
        self._runtime = OnnxRuntime(options.device, options.threads)
        self._walks, self._steps, self._seed = options.walks, options.steps, options.seed
        self._progress = progress

    @cached_property
    def _prices(self) -> PriceList:
        prices = PriceDatabase(path_of(self._database, create=True)).setting(setting_of(self._runtime))
        self._before = (len(prices), prices.num_appraisals)
        return prices

    def add(self, source: ModelSource, model: OnnxModel) -> None:
        """Records a model as it is, then the graphs on its walks."""
        kernels = self._kernels(model)
        costs = MeasuredPrices(model, self._runtime, self._prices)
        self._time(source.name, costs.kernels(model.graph), kernels)
        model.graph.cost(costs.native)
        if self._walks:
            self._walk(source.name, costs, model)

    def summary(self, models: int, seconds: float) -> str:
        """What is known now, and what came since the start."""
        known = (len(self._prices), self._prices.num_appraisals)
        new = [now - before for now, before in zip(known, self._before, strict=True)]
        return (
            f"{self._prices.place} knows {counted(*known)} on {self._prices.setting}; new are {new[0]:,} and "
            f"{new[1]:,}. {models} model{'s' * (models != 1)} in {format_duration(seconds)}."
        )

    def _kernels(self, model: OnnxModel) -> list[Kernel]:
        """Each kernel of the graph once."""
        kernels = {each.kernel.signature: each.kernel for each in lower(model.sketch(model.graph).model, self._runtime)}
        for kernel in kernels.values():
            require_timeable(kernel)
        return list(kernels.values())

    def _time(self, name: str, prices: KernelPrices, kernels: list[Kernel]) -> None:
        fresh = [kernel for kernel in kernels if prices.known(kernel) is None]
        if not fresh:
            self._progress.note(f"{name}: all {len(kernels)} kernels are known")
            return
        with self._progress.stage(f"{name}: kernels", len(fresh)) as bar:
            for done, kernel in enumerate(fresh, 1):
                prices.price(kernel)
                raise_if_received()
                bar.update(done)

    def _walk(self, name: str, costs: MeasuredPrices, model: OnnxModel) -> None:
        """A step that leads to a graph too large to be run ends a walk."""
        start = State(model.graph, RuleSet.default(), CostModel.roofline(_COUNTED_BY))
        with self._progress.stage(f"{name}: walks", self._walks * self._steps) as bar:
            for walk in range(self._walks):
                rng, state = np.random.default_rng((self._seed, walk)), start.copy()
                for step in range(self._steps):
                    if not random_step(state, rng) or not affordable(start.cost, state.cost):
                        break
                    state.graph.cost(costs.native)
                    raise_if_received()
                    bar.update(walk * self._steps + step + 1)
