"""`rlflow costs show`: what has been recorded, where, and what single kernels cost."""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Iterator

from environment.costs.measured.cost_model import MeasuredPrices, runtime_here
from environment.costs.measured.kernel_prices import split_key
from environment.costs.prices.database import PriceDatabase
from environment.costs.prices.price_list import Price, PriceList
from experiments.config.run import parse_dims
from experiments.costs.database import chosen_settings, counted, path_of
from experiments.errors import UserError
from experiments.pipeline.load import find_models
from taso_ext import OnnxModel


def run(options: argparse.Namespace) -> int:
    """Prints each setting with its numbers, and the kernels that are asked for; returns 0.

    Raises:
      UserError, ModelError, DatabaseError: what is wrong, and what to do.
    """
    if options.slowest < 0:
        raise UserError(f"--slowest must be at least 0, got {options.slowest}.")
    dims = parse_dims(options.dim)
    with PriceDatabase(path_of(options.database), create=False) as database:
        settings = chosen_settings(database, options.setting)
        model = options.model and OnnxModel.load(find_models([options.model])[0].build(), dims=dims)
        print(database.path)
        for setting in settings:
            prices = database.setting(setting)
            print(f"  {setting}: {counted(len(prices), prices.num_operator_costs)}")
            for line in [*_slowest(prices, options.slowest), *(_in_order(prices, model) if model else ())]:
                print(f"    {line}")
    return 0


def _slowest(prices: PriceList, count: int) -> Iterator[str]:
    for key, price in heapq.nlargest(count, prices.items(), key=lambda item: item[1].ms):
        weights_mb, kernel = split_key(key)
        yield f"{_amount(price)}  {kernel.description}{f' among {weights_mb} MB of weights' * bool(weights_mb)}"


def _in_order(prices: PriceList, model: OnnxModel) -> Iterator[str]:
    device, runtime = prices.setting.device, runtime_here(prices.setting)
    if runtime is None:
        yield f"{device} cannot be used here: nobody can tell which kernels it runs for this model, or what they cost"
        return
    costs = MeasuredPrices(model, runtime, prices, replay=True)
    kernels = [each.kernel for each in costs.lowered(model.graph)]
    known = [costs.kernels.known(kernel, model.graph.weights_mb) for kernel in kernels]
    for kernel, price in zip(kernels, known, strict=True):
        yield f"{_amount(price) if price else 'not recorded':>20}  {kernel.description}"
    total, missing = sum(price.ms for price in known if price), known.count(None)
    yield f"{total:9.4f} ms in all" + (f", without {missing} that are not recorded" if missing else "")


def _amount(price: Price) -> str:
    return f"{price.ms:9.4f} ms ±{100 * price.spread:4.1f} %"
