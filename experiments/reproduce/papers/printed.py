"""Figures that the papers print. Nothing here is measured by this project.

[R] "RLFlow: Optimising Neural Network Subgraph Transformation with World Models"
[D] "Model-based Reinforcement Learning in Computer Systems", dissertation, Cambridge 2021
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Properties(NamedTuple):
    """A row of Table I [R].

    Attributes:
      layers, unique_layers: numbers of layers and of different ones.
      substitutions: number of applicable rules times number of matches.
    """

    layers: int
    unique_layers: int
    substitutions: int


PROPERTIES: Mapping[str, Properties] = {
    "inception-v3": Properties(43, 12, 56),
    "resnet18": Properties(18, 6, 40),
    "resnet50": Properties(50, 6, 228),
    "squeezenet1.1": Properties(21, 3, 288),
    "bert-base": Properties(12, 3, 80),
    "vit-base": Properties(16, 5, 60),
}

_RLFLOW_TEMPERATURES: Mapping[float, tuple[float, float]] = {
    0.1: (6.67, 43.92),
    0.5: (7.75, 55.33),
    0.75: (9.10, 55.80),
    1.0: (8.85, 55.78),
    1.2: (9.91, 57.01),
    1.5: (10.20, 58.23),
    1.75: (9.92, 52.07),
    2.0: (9.65, 46.12),
    2.5: (10.04, 41.14),
    3.0: (10.38, 51.32),
}
TEMPERATURES: Mapping[str, Mapping[float, tuple[float, float]]] = {
    "RLFlow": _RLFLOW_TEMPERATURES,
    "dissertation": {**_RLFLOW_TEMPERATURES, 1.5: (8.37, 58.23)},
}
"""Table III [R] on BERT, and that of [D], which differs in one figure: score of the world model and real score [%],
means of five runs, by paper and temperature."""


class Inference(NamedTuple):
    """A row of Table II [R] or of Table 4.2 [D].

    Attributes:
      ms, gib: time and memory of an inference in TensorFlow.
      faster, less: how much of each the graph of RLFlow's agent in its world model saves [%].
    """

    ms: float
    gib: float
    faster: float
    less: float


INFERENCE: Mapping[str, Mapping[str, Inference]] = {
    "RLFlow": {
        "resnet18": Inference(12.55, 1.18, 5.2, 1.1),
        "resnet50": Inference(26.07, 2.34, -1.6, 0.6),
        "inception-v3": Inference(20.14, 2.11, 17.1, 2.3),
        "squeezenet1.1": Inference(4.83, 1.14, 17.6, 1.8),
        "bert-base": Inference(4.41, 0.26, 32.4, 4.5),
        "vit-base": Inference(3.81, 0.34, 30.7, 3.2),
    },
    "dissertation": {
        "resnet18": Inference(12.2, 1.18, 3.0, 1.1),
        "resnet50": Inference(26.7, 2.34, 1.0, 0.6),
        "inception-v3": Inference(17.6, 2.11, 12.5, 2.3),
        "squeezenet1.1": Inference(4.6, 1.14, 18.9, 1.8),
        "bert-base": Inference(4.1, 0.26, 54.1, 4.5),
    },
}
"""Table II [R], and Table 4.2 [D], whose figures differ, by paper and graph."""

REWARDS: Mapping[str, tuple[float, float]] = {"R1": (48.7, 3.2), "R4": (43.2, 2.3)}
"""Figure 6 [R]: improvement after 500 epochs by reward function, mean and half of its interval [%]. R2, R3 and R5 are
drawn only."""

OPTIMISATION_SECONDS: Mapping[str, tuple[float, float]] = {
    "squeezenet1.1": (23.1, 8.0),
    "resnet18": (10.0, 4.5),
    "resnet50": (1099.0, 64.0),
    "inception-v3": (654.0, 50.0),
    "bert-base": (10.8, 6.6),
    "vit-base": (9.7, 6.0),
}
"""Figure 8 [R]: seconds of TASO's search and of RLFlow on each graph, without the training of either."""
