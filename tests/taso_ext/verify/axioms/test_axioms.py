"""The axioms hold on random graphs, their types follow if they say so, and they prove rules but no corrupted one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from taso_ext._core import CostModel, RuleSet, State
from taso_ext.verify.axioms.axiom_set import axiom_text, axioms, read_axioms
from taso_ext.verify.axioms.proof import CONGRUENCE, equated_variables, prove_by_axioms
from taso_ext.verify.check import verify_rule
from tests.conformance.rule_mutations import Call, Draft

_INSTANCES = 24
_DRAWS = 40

AXIOMS = RuleSet.parse(axiom_text(), "axioms.rules")
TYPED = [
    (index, backwards)
    for index, (_, follows, both) in enumerate(read_axioms(axiom_text()))
    for backwards in (False, True)
    if (both if backwards else follows)
]


@pytest.mark.parametrize("index", range(len(AXIOMS)), ids=AXIOMS.names)
def test_axiom_holds_on_random_graphs(index: int) -> None:
    found = verify_rule(AXIOMS, index, instances=_INSTANCES, float_instances=0)
    assert found.ok, str(found)
    assert len(found.instances) >= 6, found


@pytest.mark.parametrize(("index", "backwards"), TYPED)
def test_types_follow_wherever_the_source_and_the_conditions_hold(index: int, backwards: bool) -> None:
    """The axiom can be applied to every graph that is drawn without regard to its target."""
    draft = Draft.read(AXIOMS.text(index).split("  proof  ")[0])
    if backwards:
        draft.calls["source"], draft.calls["target"] = draft.calls["target"], draft.calls["source"]
    axiom = RuleSet.parse(draft.text())
    alone = RuleSet.parse(replace(draft, calls={**draft.calls, "target": _renamed(draft)}).text())
    graphs = [graph for seed in range(_DRAWS) if (graph := alone.instance(0, seed)) is not None]
    assert len(graphs) >= _DRAWS // 4
    for graph in graphs:
        state = State(graph, axiom, CostModel.roofline("rtx2070"))
        assert np.any(state.location_mask()), "\n".join(
            [axiom.names[0], *(f"{value.name}: {value.dims}" for value in graph.values().values())]
        )


def _renamed(draft: Draft) -> list[Call]:
    """Returns the source once more as a target, with its inner results renamed."""
    kept = {name for call in draft.calls["target"] for name in call.results}
    inner = {name for call in draft.calls["source"] for name in call.results} - kept

    def renamed(name: str) -> str:
        return f"{name}x" if name in inner else name

    return [
        replace(call, results=[*map(renamed, call.results)], arguments=[*map(renamed, call.arguments)])
        for call in draft.calls["source"]
    ]


PROVEN = {
    "concat-and-split": """rule r
  var    x: float[..., m, k]; a: weight float[k, n]; b: weight float[k, p]
  source y = MatMul(x, a); z = MatMul(x, b)
  target w = Concat(a, b; axis=-1); t = MatMul(x, w); y, z = Split(t; axis=-1, split=[n, p])
""",
    "lists": """rule r
  var    x: float[i, c, ...s]; *w: weight float[*n, c, ...k]
  source *y = Conv(x, *w; @r, group=1)
  target v = Concat(*w; axis=0); t = Conv(x, v; @r, group=1); *y = Split(t; axis=1, split=*n)
""",
    "cases": """rule r
  var    x: float[...]; b, s: weight float[...]
  op     g: Mul | Div
  source t = Add(x, b); y = g(t, s)
  target u = g(x, s); v = g(b, s); y = Add(u, v)
""",
    "constants": """rule r
  var    x: float[...]; c, i, h: weight float[...]
  source d = Div(x, c); e = Erf(d); a = Add(e, i); m = Mul(a, h); y = Mul(x, m)
  where  value(c) == sqrt(2) and value(i) == 1 and value(h) == 0.5
  target y = Gelu(x; approximate="none")
""",
}

WRONG = {  # the rule above, a part of its text, and what replaces it
    "swapped operands": ("concat-and-split", "MatMul(x, w)", "MatMul(w, x)"),
    "swapped parts": ("concat-and-split", "Concat(a, b;", "Concat(b, a;"),
    "swapped results": ("concat-and-split", "y, z = Split", "z, y = Split"),
    "another axis of the parts": ("concat-and-split", "t; axis=-1", "t; axis=-2"),
    "another axis of the weights": ("concat-and-split", "b; axis=-1", "b; axis=-2"),
    "off-by-one split": ("concat-and-split", "[n, p]", "[n - 1, p + 1]"),
    "a repeated weight": ("concat-and-split", "Concat(a, b", "Concat(a, a"),
    "groups": ("lists", "Conv(x, v; @r, group=1)", "Conv(x, v; @r, group=2)"),
    "another axis of filters": ("lists", "*w; axis=0", "*w; axis=1"),
    "another axis of channels": ("lists", "t; axis=1", "t; axis=0"),
    "a dropped scale": ("cases", "y = Add(u, v)", "y = Add(u, b)"),
    "another operator": ("cases", "y = Add(u, v)", "y = Mul(u, v)"),
    "one operator for two": ("cases", "v = g(b, s)", "v = Mul(b, s)"),
    "a wrong operator more": ("cases", "Mul | Div", "Mul | Max"),
    "a wrong constant": ("constants", "value(i) == 1", "value(i) == 2"),
    "an unknown constant": ("constants", " and value(h) == 0.5", ""),
    "another relation": ("constants", "value(h) == 0.5", "value(h) <= 0.5"),
}


@pytest.mark.parametrize("text", PROVEN.values(), ids=PROVEN)
def test_rule_is_proven_and_its_variables_stay_apart(text: str) -> None:
    proof = prove_by_axioms(text)
    assert proof and set(proof) <= set(AXIOMS.names)
    assert not equated_variables(text)
    assert prove_by_axioms(text) == proof


@pytest.mark.parametrize(("name", "found", "put"), WRONG.values(), ids=WRONG)
def test_wrong_rule_is_not_proven(name: str, found: str, put: str) -> None:
    assert found in PROVEN[name]
    assert prove_by_axioms(PROVEN[name].replace(found, put)) is None


def test_axioms_on_floating_tensors_do_not_prove_rules_on_integers() -> None:
    text = "rule r\n  var    a, b: any[...]\n  source y = Add(a, b)\n  target y = Add(b, a)\n"
    assert prove_by_axioms(text) is None
    assert prove_by_axioms(text.replace("any", "float")) == ("add-commutes",)


def test_equal_operators_of_equal_operands_need_no_axiom() -> None:
    text = "rule r\n  var    a, b: any[...]\n  given  z = MatMul(a, b)\n  source y = MatMul(a, b)\n  target y = z\n"
    assert prove_by_axioms(text) == (CONGRUENCE,)


def test_every_axiom_is_looked_for() -> None:
    names = [axiom.name for axiom in axioms()]
    assert sorted(set(names)) == sorted(AXIOMS.names)
