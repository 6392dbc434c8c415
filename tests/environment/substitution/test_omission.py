"""What remains of a plan if some of its rewrites are left out."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser

from environment.substitution.omission import leave_out
from taso_ext import CostModel, OnnxModel, RuleSet, State

RULES = RuleSet.parse(
    """
    rule drop-double-negation
      var    x: float
      source t = Neg(x); y = Neg(t)
      target y = x
    rule drop-abs-of-relu
      var    x: float
      source t = Relu(x); y = Abs(t)
      target y = Relu(x)
    rule negate-numerator
      var    x, y: float
      source s = Div(x, y); z = Neg(s)
      target a = Neg(x); z = Div(a, y)
    """
)
DROP, ABS, NUMERATOR = range(3)


def start() -> State:
    model = onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[3] x, float[3] y) => (float[3] z) {
          a = Neg(x) b = Div(a, y) c = Neg(b) d = Relu(c) e = Abs(d) f = Neg(e) z = Neg(f)
        }
        """
    )
    return State(OnnxModel.load(model, clean="none").graph, RULES, CostModel.roofline("xeon"))


def planned(*rules: int) -> list[tuple[int, int]]:
    """Returns a plan that applies each rule at the first place where it is legal."""
    state, plan = start(), []
    for rule in rules:
        plan.append((rule, int(np.flatnonzero(state.location_mask()[rule])[0])))
        state.step(*plan[-1])
    return plan


def reached(plan: list[tuple[int, int]]) -> str:
    state = start()
    for action in plan:
        state.step(*action)
    return state.graph.hash


def test_the_rest_of_a_plan_leads_where_it_would_have_led_alone() -> None:
    plan = planned(NUMERATOR, ABS, DROP, DROP)
    assert leave_out(start(), plan, []) == plan
    assert reached(leave_out(start(), plan, [1])) == reached(planned(NUMERATOR, DROP, DROP))
    assert leave_out(start(), plan, range(4)) == []


def test_what_rests_on_an_omitted_rewrite_goes_with_it() -> None:
    plan = planned(NUMERATOR, ABS, DROP, DROP)
    assert reached(leave_out(start(), plan, [0])) == reached(planned(ABS, DROP))
