"""Cost models by name, `<model>:<device>`; so far `roofline:<device>`, analytic and deterministic."""

from __future__ import annotations

import difflib

from taso_ext import CostModel


def names() -> list[str]:
    return [f"roofline:{device}" for device in CostModel.devices()]


def find(costs: str | CostModel) -> CostModel:
    """The cost model of a name such as `roofline:rtx2070`.

    Raises:
      ValueError: for an unknown name; suggests the nearest one.
    """
    if isinstance(costs, CostModel):
        return costs
    model, _, device = costs.partition(":")
    if model == "roofline" and device in CostModel.devices():
        return CostModel.roofline(device)
    near = difflib.get_close_matches(costs, names(), n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise ValueError(f"no cost model is called {costs!r}{hint} Choose one of {', '.join(names())}.")
