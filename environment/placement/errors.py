"""The error of a placement that cannot be made or described."""

from __future__ import annotations


class PlacementError(ValueError):
    """A machine, a workload or a placement that cannot be used; one paragraph says why and what to do."""
