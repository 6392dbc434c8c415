"""Makes the rewrites of a log again, on the model that they were found on or on the same model at other sizes.

Nothing is priced here, unlike in an environment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.config.run import RunConfig
from experiments.runs.body_plan import Plans
from taso_ext import CostModel, Graph, OnnxModel, RuleSet, State
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.subgraphs import body_at, with_body


class IllegalRewriteError(ValueError):
    """An action of a log is not legal in the graph that it has come to; `position` counts from 0."""

    def __init__(self, position: int) -> None:
        super().__init__(f"action {position} of the log is not legal")
        self.position = position


def replayed(model: OnnxModel, actions: Sequence[tuple[int, int]], rules: RuleSet, config: RunConfig) -> Graph:
    """Returns the graph to which actions lead from that of a model.

    Raises:
      IllegalRewriteError: an action is not legal.
    """
    *_, last = graphs_along(model, actions, rules, config)
    return last


def graphs_along(
    model: OnnxModel, actions: Sequence[tuple[int, int]], rules: RuleSet, config: RunConfig
) -> Iterator[Graph]:
    """Yields the graph of a model, and then the graph after each of the actions.

    Raises:
      IllegalRewriteError: an action is not legal.
    """
    costs, most = CostModel.roofline("rtx2070"), config.environment.max_locations or 0
    state = State(model.graph, rules, costs, most, model.waypoints)
    yield state.graph
    for position, (rule, location) in enumerate(actions):
        try:
            state.step(rule, location)
        except ValueError as error:
            raise IllegalRewriteError(position) from error
        yield state.graph


def rewritten(model: CheckedModel, plans: Plans, rules: RuleSet | None, config: RunConfig) -> CheckedModel:
    """Returns a model with the bodies that plans make.

    Args:
      rules: the rules to which the numbers in the plans belong; None if the plans use none.
    Raises:
      ModelError: a body is not there, or cannot stand alone.
      IllegalRewriteError: a rewrite is not legal.
    """
    for plan in plans:
        body = OnnxModel.load(body_at(model, plan.place), clean=config.clean)
        graph = body.graph if rules is None else replayed(body, plan.actions, rules, config)
        model = with_body(model, plan.place, rewritten(body.export_checked(graph), plan.inner, rules, config))
    return model


def rules_up_to(rules: RuleSet, opset: int) -> RuleSet | None:
    """Returns the rules that need no newer opset; None if there are none."""
    try:
        return rules.restricted(max_opset=opset)
    except ValueError:  # none is left
        return None
