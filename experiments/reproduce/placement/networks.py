"""The networks and machines of the placement tables, with the published figures beside them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from environment import zoo
from environment.placement import OperatorGraph, PlacementProblem, at_most, colocate, find_machine
from environment.placement.grouping import Labels
from experiments.errors import UserError, nearest_match
from taso_ext import OnnxModel

INCEPTION_SCOPES = (r"/(Mixed_\w+/branch[^/._]*)",)


@dataclass(frozen=True)
class Network:
    """A network that is placed.

    Attributes:
      model: its name in the zoo.
      groups: the most groups; the published number where there is one.
      scopes: parts of operators' names that share a device (`colocate`).
      published: its name in the paper; empty if it is not in it.
    """

    model: str
    groups: int
    scopes: tuple[str, ...] = ()
    published: str = ""


NETWORKS: Mapping[str, Network] = {
    "inception-v3": Network("inception-v3:batch=32", 83, INCEPTION_SCOPES, "Inception-V3"),
    "bert-base": Network("bert-base:batch=32", 100),
    "nasrnn": Network("nasrnn:batch=64", 100),
}
"""Forward passes of networks of the zoo. The paper's graphs also have a backward pass and an optimiser step."""


@dataclass(frozen=True)
class Published:
    """Seconds of a step on a machine: Mirhoseini et al. 2017, table 2."""

    single_cpu: float
    single_gpu: float
    scotch: float
    mincut: float
    expert: float
    rl: float
    gain: float


OPERATIONS = {"RNNLM": (8943, 188), "NMT": (22097, 280), "Inception-V3": (31180, 83)}
"""Operations and groups: Mirhoseini et al. 2017, table 1."""
SECONDS: Mapping[tuple[str, str], Published] = {
    ("RNNLM", "k80x2"): Published(6.89, 1.57, 13.43, 11.94, 3.81, 1.57, 0.0),
    ("RNNLM", "k80x4"): Published(6.89, 1.57, 11.52, 10.44, 4.46, 1.57, 0.0),
    ("NMT", "k80x2"): Published(10.72, float("inf"), 14.19, 11.54, 4.99, 4.04, 23.5),
    ("NMT", "k80x4"): Published(10.72, float("inf"), 11.23, 11.78, 4.73, 3.92, 20.6),
    ("Inception-V3", "k80x2"): Published(26.21, 4.60, 25.24, 22.88, 11.22, 4.60, 0.0),
    ("Inception-V3", "k80x4"): Published(26.21, 4.60, 23.41, 24.52, 10.65, 3.85, 19.0),
}


def chosen_networks(options: argparse.Namespace) -> dict[str, Network]:
    """Returns the networks that the options name, or all; at the scale `smoke` a tiny variant in a few groups.

    Raises:
      UserError: a network is unknown.
    """
    names = options.networks or list(NETWORKS)[: 1 if options.scale == "smoke" else None]
    for name in names:
        if name not in NETWORKS:
            raise UserError(f"No network of this table is called '{name}'. {nearest_match(name, NETWORKS)}")
    chosen = {name: NETWORKS[name] for name in names}
    if options.scale != "smoke":
        return chosen
    return {name: Network(zoo.tiny(each.model), 8, each.scopes, each.published) for name, each in chosen.items()}


def add_networks(parser: argparse.ArgumentParser) -> None:
    """Adds the argument for the names of networks."""
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"networks ({', '.join(NETWORKS)})")


@cache
def operators_of(model: str) -> OperatorGraph:
    """Returns the operators of a network of the zoo."""
    return OperatorGraph.of(OnnxModel.load(zoo.build(model)))


def colocated(network: Network) -> Labels:
    """Returns the groups that the published rules give."""
    return colocate(operators_of(network.model), scopes=network.scopes)


def groups_of(network: Network) -> Labels:
    """Returns the groups to place: by the published rules where they give enough, else of single operators."""
    graph = operators_of(network.model)
    by_rules = colocated(network)
    enough = int(by_rules.max(initial=-1)) + 1 >= network.groups
    return at_most(graph, network.groups, start=by_rules if enough else None)


def problem_of(network: Network, machine: str) -> PlacementProblem:
    """Returns the placement problem of a network on a preset machine."""
    return PlacementProblem.of(operators_of(network.model), find_machine(machine), groups_of(network))
