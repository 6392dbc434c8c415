"""How many steps an episode may have, so that there is room for whatever pays."""

from __future__ import annotations

from taso_ext import State

FEWEST_STEPS, OPERATORS_PER_STEP, STEPS_PER_DESCENT = 30, 6, 1.5
COUNTED_BY = "rtx2070"
"""The roofline under which a descent is counted: it prices every graph at once, so that nothing is measured for it."""
_LEAST_SAVING = 1e-6
"""The fraction of its costs that a step of a descent saves at least."""


def usual_steps(start: State) -> int:
    """Returns the usual limit of steps of the episodes that begin at a state.

    It is the largest of 30, one step for every six operators, and half as many again as steepest descent takes (88 for
    BERT-Base). It is the same where one step may carry out a rule everywhere it applies, since a policy may have to do
    without such steps. Single rewrites would need more for the best sequences that are known of NASNet-A (170 rewrites,
    117 steps) and Transformer-Transducer (363 and 93).

    Args:
      start: the first state; its cost model prices every graph.
    """
    operators = start.graph.num_runtime_nodes
    return max(FEWEST_STEPS, operators // OPERATORS_PER_STEP, int(STEPS_PER_DESCENT * descent_steps(start)))


def descent_steps(start: State) -> int:
    """Returns the number of rewrites of steepest descent, which takes the cheapest next graph for as long as that pays.

    More rewrites than the graph has operators are not counted.
    """
    state, most = start.copy(), start.graph.num_runtime_nodes
    for steps in range(most):
        rules, locations, costs_ms = state.candidates()
        if not len(costs_ms) or not costs_ms.min() < (1 - _LEAST_SAVING) * state.cost.ms:
            return steps
        cheapest = int(costs_ms.argmin())
        state.step(int(rules[cheapest]), int(locations[cheapest]))
    return most
