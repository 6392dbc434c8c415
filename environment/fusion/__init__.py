"""The decision which operators share a kernel, on the engine's graphs: `rlflow/Fusion-v0` of Gymnasium.

Every configurable tensor has a binary decision: whether the kernels of its readers compute it, or a kernel of its own
writes it. What a plan costs can only be queried, and every query counts. `taso_ext/src/fusion` says how a plan becomes
kernels and how these are priced.
"""

from __future__ import annotations

from environment.fusion.env import FusionEnv
from environment.fusion.graphs import DEFAULT, DEVICES, RANDOM, FusionGraph, bytes_moved, load
from environment.fusion.objective import Objective

__all__ = ["DEFAULT", "DEVICES", "RANDOM", "FusionEnv", "FusionGraph", "Objective", "bytes_moved", "load"]
