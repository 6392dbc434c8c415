"""`rlflow costs record`: times the kernels of models and of the graphs that random rewrites make of them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np

from environment.costs.limits import affordable
from environment.costs.measured.benchmark import require_timeable
from environment.costs.measured.cost_model import Measured, MeasuredPrices
from environment.costs.measured.kernel import Kernel
from environment.costs.measured.kernel_prices import KernelPrices, split_key
from environment.costs.measured.ort_kernels import lower
from environment.costs.prices.price_list import PriceList
from environment.policies.random import random_step
from environment.runtimes.onnx_runtime import require_working
from experiments.config.run import parse_dims
from experiments.costs.database import counted
from experiments.errors import UserError, require_at_least
from experiments.pipeline.loading.load import ModelSource, find_models
from experiments.runs.progress import ProgressDisplay, format_duration, make_progress, warnings_noted
from experiments.runs.signals import raise_if_received
from taso_ext import CostModel, OnnxModel, RuleSet, State

_COUNTED_BY = "rtx2070"  # any roofline would do: it only counts the work of graphs


def run(options: argparse.Namespace) -> int:
    """Records the prices of each model; returns 0.

    Raises:
      UserError, ModelError, UnavailableError, DatabaseError: the message says what is wrong and what to do.
    """
    _check(options)
    dims = parse_dims(options.dim)
    models = [] if options.again and not options.models else find_models(options.models)
    require_working(options.device)
    progress = make_progress()
    start, recording = time.perf_counter(), Recording(_costs(options), options, progress)
    with warnings_noted(progress):
        if not models:
            recording.repeat()
        for source in models:
            recording.add(source, OnnxModel.load(source.build(), dims=dims))
    print(recording.summary(len(models), time.perf_counter() - start))
    return 0


def _check(options: argparse.Namespace) -> None:
    require_at_least(1, threads=options.threads, steps=options.steps)
    require_at_least(0, walks=options.walks, seed=options.seed)


def _costs(options: argparse.Namespace) -> Measured:
    try:
        return Measured(options.device, threads=options.threads, level=options.level, database=options.database)
    except ValueError as error:  # an unknown level, or a device that does not show its kernels
        raise UserError(str(error)) from error


class Recording:
    """Records prices of several models in one database, which is opened once the first model is known to run."""

    def __init__(self, costs: Measured, options: argparse.Namespace, progress: ProgressDisplay) -> None:
        self._costs, self._again = costs, options.again
        self._walks, self._steps, self._seed = options.walks, options.steps, options.seed
        self._progress = progress
        self._before: tuple[int, int] | None = None

    def add(self, source: ModelSource, model: OnnxModel) -> None:
        """Records the prices of a model, then those of the graphs on its random walks."""
        kernels = self._kernels(model)
        known = self._costs
        costs = MeasuredPrices(model, known.runtime, known.prices, clock=known.clock)
        self._before = self._before or _counts(self._costs.prices)
        self._time(source.name, costs.kernels, [(kernel, model.graph.weights_mb) for kernel in kernels])
        model.graph.cost(costs.native)
        if self._walks:
            self._walk(source.name, costs, model)

    def repeat(self) -> None:
        """Times all kernels that have a price once more.

        Raises:
          UserError: no kernel has a price.
        """
        prices = self._costs.prices
        self._before = _counts(prices)
        wanted = [(kernel, weights_mb) for weights_mb, kernel in (split_key(key) for key, _ in prices.items())]
        if not wanted:
            raise UserError(
                f"{prices.place} has no prices of {prices.setting} that could be timed again. Record some first: "
                f"`rlflow costs record MODEL`."
            )
        self._time("all that is known", KernelPrices(prices, self._costs.runtime, self._costs.clock), wanted)

    def summary(self, models: int, seconds: float) -> str:
        """Returns a sentence with the numbers of known prices and of those that are new since the start."""
        prices = self._costs.prices
        known = _counts(prices)
        new = [now - before for now, before in zip(known, self._before or known, strict=True)]
        return (
            f"{prices.place} knows {counted(*known)} on {prices.setting}; new are {new[0]:,} and "
            f"{new[1]:,}. {models} model{'s' * (models != 1)} in {format_duration(seconds)}."
        )

    def _kernels(self, model: OnnxModel) -> list[Kernel]:
        """Returns each distinct kernel of the model's graph once."""
        placed = lower(model.sketch(model.graph).model, self._costs.runtime)
        kernels = {each.kernel.signature: each.kernel for each in placed}
        for kernel in kernels.values():
            require_timeable(kernel)
        return list(kernels.values())

    def _time(self, name: str, prices: KernelPrices, kernels: Sequence[tuple[Kernel, int]]) -> None:
        """Times kernels, each given with the megabytes of weights of its graph; known ones only with `--again`."""
        known = [prices.known(*each) for each in kernels]
        if not self._again:
            kernels = [each for each, price in zip(kernels, known, strict=True) if price is None]
        if not kernels:
            self._progress.note(f"{name}: all {len(known)} kernels are known")
            return
        timed = []
        with self._progress.stage(f"{name}: kernels", len(kernels)) as bar:
            for kernel, weights_mb in kernels:
                timed.append(prices.price(kernel, weights_mb, anew=self._again))
                raise_if_received()
                bar.update(len(timed))
        if before := [price.spread for price in known if price is not None and self._again]:
            after = [price.spread for price in timed]
            sure = [f"±{100 * float(np.median(spreads)):.2g} %" for spreads in (after, before)]
            self._progress.note(f"{name}: prices are sure to {sure[0]} in the median; before to {sure[1]}")

    def _walk(self, name: str, costs: MeasuredPrices, model: OnnxModel) -> None:
        """Prices the graphs on random walks; a walk ends at a graph that is too large to be run."""
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


def _counts(prices: PriceList) -> tuple[int, int]:
    """Returns the numbers of prices of kernels and of operators in their surroundings."""
    return len(prices), prices.num_operator_costs
