"""The model, the operators, the groups and the placements of an `rlflow place` command."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controller.placement.interface import Placed, place
from environment import zoo
from environment.placement.grouping import Labels, at_most, colocate
from environment.placement.operators import OperatorGraph
from environment.placement.problem import PlacementProblem
from environment.placement.training import colocated, grouped, is_training
from experiments.config.run import parse_dims
from experiments.pipeline.loading.load import find_model
from experiments.runs.progress import ProgressDisplay, warnings_noted
from taso_ext import OnnxModel


@dataclass(frozen=True)
class Operators:
    """A loaded model with its operators.

    Attributes:
      name: the name of the model in titles.
      model, graph: see there.
    """

    name: str
    model: OnnxModel
    graph: OperatorGraph

    def grouped(self, options: argparse.Namespace, work: npt.NDArray[np.float64]) -> Labels:
        """Returns the groups that the options ask for, [N]: by the rules of co-location, then at most `--groups`.

        Args:
          work: the work of each operator, [N].
        """
        if is_training(self.graph):
            by_rules = int(colocated(self.graph, options.scope).max(initial=0)) + 1
            fine = by_rules < options.groups and not options.scope
            return grouped(self.graph, options.groups, scopes=options.scope, work=work, by_rules=not fine)
        start = colocate(self.graph, scopes=options.scope)
        if int(start.max(initial=0)) + 1 < min(options.groups, len(self.graph)) and not options.scope:
            start = np.arange(len(self.graph))  # the rules would leave fewer groups than may be
        return at_most(self.graph, options.groups, work=work, start=start)


def load_operators(options: argparse.Namespace, progress: ProgressDisplay, *, with_values: bool = True) -> Operators:
    """Loads the model that the options name.

    Args:
      with_values: whether the values of weights are needed. Without them, training graphs of any size can be loaded.
    Raises:
      UserError, ModelError: the model cannot be found or used.
    """
    source = find_model(options.model)
    progress.note(f"Loading {options.model}")
    with warnings_noted(progress):
        # Of a plain model, the clean-up would merge weights that are all zeros.
        outlined = not with_values and source.path is None and zoo.is_trained(source.name)
        given = zoo.outline(source.name) if outlined else source.build()
        model = OnnxModel.load(given, dims=parse_dims(options.dim), clean=options.clean)
    graph = OperatorGraph.of(model)
    if graph.unsized:
        progress.note(f"{graph.unsized} tensors have no known size; handing them over counts as free.")
    return Operators(source.name, model, graph)


def placed_by(placer: str, problem: PlacementProblem, options: argparse.Namespace, progress: ProgressDisplay) -> Placed:
    """Returns the placement that a placer finds with the budget and the seed of the options.

    Raises:
      PlacementError: see `controller.placement.interface.place`.
    """
    with progress.stage(f"place by {placer}", total=options.budget) as bar:
        return place(
            placer,
            problem,
            budget=options.budget,
            seed=options.seed,
            report=lambda done, ms: bar.update(done, best_ms=ms),
        )
