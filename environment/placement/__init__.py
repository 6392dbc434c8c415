"""Device placement: which device runs which part of a model, simulated or for real.

model = OnnxModel.load(zoo.build("inception-v3"))
graph = OperatorGraph.of(model)
problem = PlacementProblem.of(graph, find_machine("k80x4"), at_most(graph, 83, start=colocate(graph)))
env = PlacementEnv(problem)
"""

from environment.placement.env import PlacementEnv
from environment.placement.errors import PlacementError
from environment.placement.grouping import at_most, colocate
from environment.placement.machine import Device, Link, Machine, find_machine, parse_machine, presets
from environment.placement.operators import OperatorGraph
from environment.placement.problem import Outcome, PlacementProblem

__all__ = [
    "Device",
    "Link",
    "Machine",
    "OperatorGraph",
    "Outcome",
    "PlacementEnv",
    "PlacementError",
    "PlacementProblem",
    "at_most",
    "colocate",
    "find_machine",
    "parse_machine",
    "presets",
]
