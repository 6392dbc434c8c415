"""The fast convolutions of winograd.rules: matrices, exactness, domains and rounding."""

from __future__ import annotations

import re
from fractions import Fraction
from importlib import resources
from math import prod

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from taso_ext import CostModel, OnnxModel, RuleSet, State
from taso_ext.verify import verify_rule
from taso_ext.verify.rule_file import is_normwise

RULES = RuleSet.load(str(resources.files("taso_ext") / "rules" / "winograd.rules"))
ALGORITHMS = [index for index, name in enumerate(RULES.names) if name.startswith("winograd-")]
COST_MODEL = CostModel.roofline("xeon")

Matrix = list[list[Fraction]]


def constant(rule: str, name: str) -> Matrix:
    """Returns the matrix that a rule writes as constant `name`."""
    found = re.search(rf"\b{name} = Constant\(; shape=\[([^]]*)\], values=\[([^]]*)\]\)", rule)
    assert found, f"no constant {name} in {rule}"
    values = [Fraction(number) for number in found[2].split(",")]
    columns = int(found[1].split(",")[-1])
    return [values[i : i + columns] for i in range(0, len(values), columns)]


def names_of(indices: list[int]) -> list[str]:
    return [RULES.names[index] for index in indices]


@pytest.mark.parametrize("index", ALGORITHMS, ids=names_of(ALGORITHMS))
def test_matrices_make_a_convolution(index: int) -> None:
    """Σₑ A[i,e]·G[e,j]/D[e]·B[e,l] is 1 where l = i + j and 0 elsewhere, in rational arithmetic."""
    text = RULES.text(index)
    a, g, b, d = (constant(text, name) for name in "AGBD")
    divisors = [each for row in d for each in row]
    for i in range(len(a)):
        for j in range(len(g[0])):
            for place in range(len(b)):
                terms = (a[i][e] * g[e][j] / divisors[e] * b[e][place] for e in range(len(b)))
                assert sum(terms) == (place == i + j)


@pytest.mark.parametrize("index", ALGORITHMS, ids=names_of(ALGORITHMS))
def test_constants_are_exact_in_float32(index: int) -> None:
    for name in "AGBD":
        for number in (each for row in constant(RULES.text(index), name) for each in row):
            assert Fraction(float(np.float32(float(number)))) == number


def test_no_other_rule_may_round_like_these() -> None:
    default = RuleSet.default()
    rounding = {name for index, name in enumerate(default.names) if is_normwise(default.proof(index))}
    assert rounding == set(names_of(ALGORITHMS))


def test_elementwise_accuracy_is_not_claimed() -> None:
    """Without `rounding(normwise)` the verifier refuses the rule: a small result takes on errors of large data."""
    text = RULES.text(RULES.names.index("winograd-f4x4-3x3")).partition("proof")[0]
    text = text.replace("  where  c >= 32 and o >= 32\n", "")  # sums over few channels have few large terms
    verification = verify_rule(RuleSet.parse(text), 0, instances=12)
    assert verification.counterexample is not None
    assert verification.counterexample.stage == "differential"


def convolution(
    dims: tuple[int, ...], weight: tuple[int, ...], *, group: int = 1, **attributes: list[int]
) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    values = rng.standard_normal(weight).astype(np.float32) / np.float32(np.sqrt(prod(weight[1:])))
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=group, **attributes)
    given = [
        attributes.get(name, default)
        for name, default in (("pads", [0] * 4), ("strides", [1] * 2), ("dilations", [1] * 2))
    ]
    result = [
        (dims[i + 2] + given[0][i] + given[0][i + 2] - (weight[i + 2] - 1) * given[2][i] - 1) // given[1][i] + 1
        for i in range(2)
    ]
    graph = helper.make_graph(
        [node],
        "convolution",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (dims[0], weight[0], *result))],
        [numpy_helper.from_array(values, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def rules_that_apply(model: onnx.ModelProto) -> set[str]:
    state = State(OnnxModel.load(model, clean="none").graph, RULES, COST_MODEL)
    return {RULES.names[rule] for rule, _ in state.legal_actions()}


@pytest.mark.parametrize(
    ("height", "pads"),
    [
        *((height, [0, 0, 0, 0]) for height in (4, 7, 13)),
        *((height, pads) for height in (1, 4, 7, 13) for pads in ([1, 1, 1, 1], [2, 1, 0, 3])),
    ],
    ids=str,
)
def test_any_extents_and_pads(height: int, pads: list[int]) -> None:
    """Tiles need not divide the result: the rules apply whenever the convolution has a result."""
    applied = rules_that_apply(convolution((2, 33, height, 9), (40, 33, 3, 3), pads=pads))
    assert applied == {"winograd-f4x4-3x3", "winograd-f2x2-3x3"}


@pytest.mark.parametrize(
    ("weight", "attributes"),
    [
        ((40, 33, 3, 3), {"strides": [2, 2]}),
        ((40, 33, 3, 3), {"strides": [1, 2]}),
        ((40, 33, 3, 3), {"dilations": [2, 2]}),
        ((40, 33, 2, 3), {}),
        ((40, 33, 4, 4), {}),
    ],
)
def test_other_convolutions_are_left_alone(weight: tuple[int, ...], attributes: dict[str, list[int]]) -> None:
    assert not rules_that_apply(convolution((2, 33, 16, 16), weight, **attributes))


@pytest.mark.parametrize(("filters", "channels"), [(31, 32), (32, 31)])
def test_few_channels_are_left_alone(filters: int, channels: int) -> None:
    assert not rules_that_apply(convolution((1, channels, 16, 16), (filters, channels, 3, 3)))


def test_grouped_convolutions_are_left_alone() -> None:
    assert not rules_that_apply(convolution((2, 80, 16, 16), (40, 40, 3, 3), group=2))


# Largest error against float64, relative to the spread of the results; that of the direct convolution is near 1e-6.
ERRORS = {"winograd-f4x4-3x3": 1e-5, "winograd-f2x2-3x3": 5e-6}


@pytest.mark.parametrize("name", ERRORS)
def test_exported_model_computes_the_same(name: str) -> None:
    """The graph is rewritten, its weights are folded at export, and ONNX Runtime runs it with its optimisations."""
    source = convolution((1, 32, 13, 18), (48, 32, 3, 3), pads=[1, 1, 1, 1])
    model = OnnxModel.load(source, clean="none")
    state = State(model.graph, RULES, COST_MODEL)
    rule = RULES.names.index(name)
    state.step(rule, int(np.flatnonzero(state.location_mask()[rule])[0]))
    exported = model.export(state.graph)
    onnx.checker.check_model(exported, full_check=True)
    x = np.random.default_rng(1).standard_normal((1, 32, 13, 18)).astype(np.float32)
    weight = numpy_helper.to_array(source.graph.initializer[0]).astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x.astype(np.float64), [(0, 0)] * 2 + [(1, 1)] * 2), (3, 3), (2, 3)
    )
    expected = np.einsum("nchwij,kcij->nkhw", windows, weight)
    session = onnxruntime.InferenceSession(exported.SerializeToString(), providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"x": x})
    assert np.abs(got - expected).max() <= ERRORS[name] * expected.std()
