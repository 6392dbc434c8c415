"""Warm start: the weights of trained dynamics for a world model that knows more of the same graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from worldmodel.dynamics.neighbourhood import NO_SLOT, neighbourhood_rows
from worldmodel.dynamics.start_graphs import UNKNOWN, StartGraph
from worldmodel.world_model import WorldModel

Place = tuple[int | slice, ...]
"""An index into a table of weights."""
Thing = tuple[object, ...]
"""The name of what a place stands for; it is the same in both models."""
SLOTS, SLOTS_LAST = "slots", "slots last"


def warm_start(model: WorldModel, before: WorldModel) -> None:
    """Copies the weights of another model's dynamics into a model.

    Args:
      model: changed in place; all its weights exist. Sites and actions that `before` does not know keep their weights.
        The weights of slots that it does not know become 0, so that they do not disturb what is known.
      before: a trained model of the same configuration.
    """
    tables, old_tables = model.mdn_rnn.tables(), before.mdn_rnn.tables()
    of_data = {id(table) for kind in tables.values() for table in kind}
    for weights, old in zip(model.mdn_rnn.variables, before.mdn_rnn.variables, strict=True):
        if id(weights) not in of_data:
            weights.assign(old)
    for kind, places in _PLACES.items():
        here, there = dict(places(model)), dict(places(before))
        for table, old in zip(tables[kind], old_tables[kind], strict=True):
            values, learned = table.numpy() * (kind not in (SLOTS, SLOTS_LAST)), old.numpy()
            for thing in here.keys() & there.keys():
                values[here[thing]] = learned[there[thing]]
            table.assign(values)


def _sites(model: WorldModel) -> Iterator[tuple[Thing, Place]]:
    yield ("unknown",), (UNKNOWN,)
    for graph in _trained(model):
        table = graph.table
        for site, location in zip(table.sites[:-1].tolist(), table.locations[:-1].tolist(), strict=True):
            yield (graph.start, location), (graph.first_site + site,)
        yield (graph.start, "NO-OP"), (graph.first_site + int(table.sites[-1]),)


def _actions(model: WorldModel) -> Iterator[tuple[Thing, Place]]:
    yield ("unknown",), (UNKNOWN,)
    for graph in _trained(model):
        for action, code in enumerate(graph.table.codes.tolist()):
            yield (graph.start, code), (graph.first_action + action,)
        yield (graph.start, "NO-OP"), (graph.first_action + graph.table.num_actions,)


def _slots(model: WorldModel) -> Iterator[tuple[Thing, Place]]:
    slots = model.statistics.slots
    rows = neighbourhood_rows(slots)
    for rule, slot in np.argwhere(slots[:, :, 0] != NO_SLOT).tolist():
        yield (rule, *slots[rule, slot].tolist()), (int(rows[rule]), slot)


def _slots_last(model: WorldModel) -> Iterator[tuple[Thing, Place]]:
    for thing, (row, slot) in _slots(model):
        yield thing, (row, slice(None), slot)


def _rules(model: WorldModel) -> Iterator[tuple[Thing, Place]]:
    rows = neighbourhood_rows(model.statistics.slots)
    for rule in np.flatnonzero(rows).tolist():
        yield (rule,), (int(rows[rule]),)


def _trained(model: WorldModel) -> Iterator[StartGraph]:
    return (graph for graph in model.start_graphs.values() if graph.is_trained)


_PLACES: dict[str, Callable[[WorldModel], Iterator[tuple[Thing, Place]]]] = {
    "sites": _sites,
    "actions": _actions,
    SLOTS: _slots,
    SLOTS_LAST: _slots_last,
    "rules": _rules,
}
