"""The networks and machines of the placement tables, with the published figures beside them.

All graphs are of a training step: forward pass, loss, backward pass and the step of an optimiser. Weights have no
values, because only shapes count; so graphs beyond the 2 GB of a ModelProto are no exception.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from environment import zoo
from environment.gradients import training_model
from environment.placement import OperatorGraph, PlacementProblem, find_machine
from environment.placement.grouping import Labels
from environment.placement.training import colocated, grouped
from experiments.errors import UserError, nearest_match
from taso_ext import OnnxModel

CELLS = r"/((?:lstm|encoder|decoder)/layers\.\d+/step\.\d+)/"
ATTENTION = r"/(attention/step\.\d+)/"
SOFTMAX = r"/(?:classifier/step|loss/output)\.(\d+)/"
BRANCH = r"/(Mixed_\w+/branch[^/._]*)"


@dataclass(frozen=True)
class Network:
    """A training step that is placed.

    Attributes:
      name: what tables call it.
      model: the network in the zoo.
      tiny: a small variant, for the scale `smoke`.
      optimiser, loss: see `environment.gradients.training_model`.
      groups: the most groups; the published number where there is one.
      scopes: parts of operators' names that share a device (`colocate`).
      published: its name in the paper; empty if its figures are not in it.
      towers: whether data-parallel towers of it are shown.
    """

    name: str
    model: str
    tiny: str
    optimiser: str
    loss: str
    groups: int
    scopes: tuple[str, ...] = ()
    published: str = ""
    towers: bool = False


_RNNLM, _NMT = "rnnlm-tiny:outputs=3,batch=2", "nmt-tiny:outputs=3,batch=2"
_ALL = (
    Network("rnnlm", "rnnlm:batch=64,outputs=40", _RNNLM, "adam", "cross-entropy", 188, (CELLS, SOFTMAX), "RNNLM"),
    Network("nmt", "nmt:batch=64,outputs=40", _NMT, "adam", "cross-entropy", 280, (CELLS, ATTENTION, SOFTMAX), "NMT"),
    Network(
        *("inception-v3", "inception-v3:batch=32", "inception-v3-tiny", "rmsprop", "cross-entropy"),
        *(83, (BRANCH,), "Inception-V3", True),
    ),
    Network("bert-base", "bert-base:batch=32", "bert-base-tiny", "adam", "mean-square", 100),
    Network(
        *("rnnlm-large", "rnnlm:batch=1024,outputs=40,hidden=4096", _RNNLM, "adam", "cross-entropy"),
        *(188, (CELLS, SOFTMAX)),
    ),
    Network(
        *("nmt-large", "nmt:batch=128,outputs=40,hidden=8192,vocabulary=8000", _NMT, "adam", "cross-entropy"),
        *(280, (CELLS, ATTENTION, SOFTMAX)),
    ),
)
NETWORKS: Mapping[str, Network] = {each.name: each for each in _ALL}
"""The networks of the paper with its batch sizes, BERT-Base, and an enlarged pair.

No LSTM layer of the enlarged ones fits into the 12 GB of one device with its optimiser state, gradients and
activations (`tests/experiments/reproduce/placement`). The paper names Adam for RNNs and RMSProp for Inception-V3. The
loss of BERT-Base is the mean square of its outputs, since it has no head.
"""


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


def chosen_networks(options: argparse.Namespace, default: Sequence[str] = ()) -> dict[str, Network]:
    """Returns the networks that the options name; at the scale `smoke` a tiny variant in a few groups.

    Args:
      default: the networks if none is named; if empty, all, but one at the scale `smoke`.
    Raises:
      UserError: a network is unknown.
    """
    usual = default or (["inception-v3"] if options.scale == "smoke" else list(NETWORKS))
    names = options.networks or usual
    for name in names:
        if name not in NETWORKS:
            raise UserError(f"No network of this table is called '{name}'. {nearest_match(name, NETWORKS)}")
    chosen = {name: NETWORKS[name] for name in names}
    if options.scale != "smoke":
        return chosen
    return {name: replace(each, model=each.tiny, groups=8) for name, each in chosen.items()}


def add_networks(parser: argparse.ArgumentParser) -> None:
    """Adds the argument for the names of networks."""
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"networks ({', '.join(NETWORKS)})")


@cache
def operators_of(model: str, optimiser: str, loss: str) -> OperatorGraph:
    """Returns the operators of the training step of a network of the zoo."""
    graph = training_model(zoo.outline(model), optimiser=optimiser, loss=loss, accumulate=True)
    return OperatorGraph.of(OnnxModel.load(graph, clean="none"))  # it is written without what a clean-up removes


def graph_of(network: Network) -> OperatorGraph:
    """Returns the operators of a network's training step."""
    return operators_of(network.model, network.optimiser, network.loss)


def by_rules(network: Network) -> Labels:
    """Returns the groups that the published rules give."""
    return colocated(graph_of(network), network.scopes)


def groups_of(network: Network) -> Labels:
    """Returns the groups to place: those of the rules, merged where there are more than are published."""
    return grouped(graph_of(network), network.groups, scopes=network.scopes)


@cache
def problem_of(network: Network, machine: str) -> PlacementProblem:
    """Returns the placement problem of a network on a preset machine."""
    return PlacementProblem.of(graph_of(network), find_machine(machine), groups_of(network))
