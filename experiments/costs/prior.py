"""`rlflow costs prior`: times the kernels of the zoo, and writes the prices that come with RLFlow to predict from."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from environment.costs.learned.adaptation import errors_of
from environment.costs.learned.prior import FILE, Prior, Timed, write_prior
from environment.costs.measured.cost_model import Measured
from environment.costs.measured.kernel_prices import KernelPrices, split_key
from environment.costs.prices.price_list import PriceList
from environment.runtimes.onnx_runtime import require_working
from experiments.costs.database import path_of
from experiments.errors import UserError, require_at_least
from experiments.output_file import require_writable
from experiments.reproduce.cost_model.recorded import RecordedGraphs, recorded_graphs
from experiments.runs.progress import format_duration, make_progress, warnings_noted
from experiments.runs.signals import raise_if_received
from taso_ext.errors import ModelError

_LEAST_MS = 1e-6
"""Least time of a kernel: some take less than the clock can tell."""


def run(options: argparse.Namespace) -> int:
    """Times what is not known, unless nothing is to be timed, and writes the file; returns 0.

    Raises:
      UserError, UnavailableError, DatabaseError: the message says what is wrong and what to do.
    """
    require_at_least(1, timings=options.timings, threads=options.threads)
    output = options.output or FILE
    require_writable(output, force=options.output is None or options.force)
    require_working("cpu")
    graphs = recorded_graphs()
    path = path_of(options.database, create=True)
    costs = Measured("cpu", threads=options.threads, database=path, predict=False)
    begin = time.perf_counter()
    if not options.write_only:
        _time(KernelPrices(costs.prices, costs.runtime, costs.clock), in_turn(graphs), options.timings)
    command = f"rlflow costs prior --timings {options.timings} --threads {options.threads}"
    prior = prior_of(costs.prices, graphs, command)
    write_prior(prior, output)
    took = format_duration(time.perf_counter() - begin)
    print(
        f"Wrote {len(prior.kernels):,} kernels of {prior.setting} to {output}, {output.stat().st_size:,} bytes, {took}."
    )
    return 0


def in_turn(graphs: Sequence[RecordedGraphs]) -> list[str]:
    """Returns the signatures of all kernels once, one of each network in turn; the network's own kernels come first.

    An interrupted recording then has kernels of all networks. The others are in random order.
    """
    orders = []
    for network in graphs:
        own = np.flatnonzero(network.runs[0]).tolist()
        others = np.random.default_rng(0).permutation(np.flatnonzero(network.runs[0] == 0)).tolist()
        orders.append([network.kernels[each] for each in (*own, *others)])
    longest = max(map(len, orders), default=0)
    return list(dict.fromkeys(order[turn] for turn in range(longest) for order in orders if turn < len(order)))


def _time(kernels: KernelPrices, keys: Sequence[str], timings: int) -> None:
    """Times each kernel until it has been timed `timings` times; all are timed once before any is timed again."""
    progress = make_progress()
    refused = set[str]()
    with warnings_noted(progress):
        for number in range(1, timings + 1):
            rare = [key for key in keys if (price := kernels.prices.get(key)) is None or price.timings < number]
            with progress.stage(f"time kernels, time {number}", len(rare)) as bar:
                for done, key in enumerate(rare, 1):
                    weights_mb, kernel = split_key(key)
                    try:
                        kernels.price(kernel, weights_mb, anew=True)
                    except ModelError:  # a kernel that only another version of the runtime has
                        refused.add(kernel.op_type)
                    raise_if_received()
                    bar.update(done)
    if refused:
        progress.note(f"This ONNX Runtime cannot run some recorded kernels of {', '.join(sorted(refused))}.")


def prior_of(prices: PriceList, graphs: Sequence[RecordedGraphs], command: str) -> Prior:
    """Returns the prior of all kernels of some graphs that have been timed.

    Raises:
      UserError: no kernel has been timed, or only kernels of one family of networks.
    """
    families = tuple(sorted({network.family for network in graphs}))
    run_by: dict[str, set[int]] = {}
    for network in graphs:
        for key in network.kernels:
            run_by.setdefault(key, set()).add(families.index(network.family))
    timed, reference_ms = dict(prices.items()), prices.reference_ms
    kernels = [
        Timed(key, max(timed[key].ms, _LEAST_MS) / reference_ms, timed[key].spread, timed[key].timings, frozenset(by))
        for key, by in run_by.items()
        if key in timed and reference_ms is not None
    ]
    if not kernels:
        raise UserError(f"{prices.place} has no prices of the zoo's kernels. Run this command without --write-only.")
    if len(frozenset[int]().union(*(each.families for each in kernels))) < 2:
        raise UserError(
            f"{prices.place} has kernels of one family of networks only, and intervals are calibrated on families that "
            "are left out. Run this command without --write-only."
        )
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    return Prior(prices.setting, date, command, families, tuple(kernels), errors_of(kernels))
