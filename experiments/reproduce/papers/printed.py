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

TEMPERATURES: Mapping[float, tuple[float, float]] = {
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
"""Table III [R], on BERT: score of the world model and real score by temperature [%], means of five runs. [D] has the
same, but 8.37 in place of 10.20."""

OPTIMISATION_SECONDS: Mapping[str, tuple[float, float]] = {
    "squeezenet1.1": (23.1, 8.0),
    "resnet18": (10.0, 4.5),
    "resnet50": (1099.0, 64.0),
    "inception-v3": (654.0, 50.0),
    "bert-base": (10.8, 6.6),
    "vit-base": (9.7, 6.0),
}
"""Figure 8 [R]: seconds of TASO's search and of RLFlow on each graph, without the training of either."""
