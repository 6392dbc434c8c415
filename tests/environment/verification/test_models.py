"""Verification claims equality only if it could have seen a difference, and names the rewrite that made one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from environment import verification as outputs
from environment import zoo
from environment.inputs import InputReaders, accepted_range, edge_feeds, input_specs, random_feeds, timing_feeds
from environment.verification import Scale, Verification, difference
from environment.verification import models as comparing
from taso_ext import ModelError, OnnxModel
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.session import Level

FLOAT, DOUBLE, INT64 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64
TINY = ("squeezenet1.1-tiny", "bert-base-tiny")


def verify(original: onnx.ModelProto, candidate: onnx.ModelProto, **options: Any) -> Verification:
    """Calls `outputs.verify` with models as onnx protos."""
    return outputs.verify(CheckedModel.from_proto(original), CheckedModel.from_proto(candidate), **options)


def find_first_bad_rewrite(original: onnx.ModelProto, export: Callable[[int], onnx.ModelProto], count: int) -> int:
    """Calls `outputs.find_first_bad_rewrite` with models as onnx protos."""
    checked = CheckedModel.from_proto(original)
    return outputs.find_first_bad_rewrite(checked, lambda step: CheckedModel.from_proto(export(step)), count)


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[list[int | str], int]],
    outputs: dict[str, tuple[list[int], int]],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 17,
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    values = [
        [helper.make_tensor_value_info(name, dtype, dims) for name, (dims, dtype) in group.items()]
        for group in (inputs, outputs)
    ]
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "graph", *values, initializers)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(model)
    return model


def scaled(factor: float, dims: int = 8) -> onnx.ModelProto:
    """Returns the model y = factor · relu(x)."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Mul", ["r", "f"], ["y"])]
    return model_of(nodes, {"x": ([dims], FLOAT)}, {"y": ([dims], FLOAT)}, {"f": np.float32(factor)})


def with_changed_weight(model: onnx.ModelProto, relative: float, seed: int = 0) -> onnx.ModelProto:
    """Returns the model with noise of `relative` times its spread on one weight matrix or kernel.

    A constant shift could have no effect: added to all keys, it cancels in the softmax.
    """
    rng = np.random.default_rng(seed)
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    tensors = [each for each in changed.graph.initializer if each.data_type == FLOAT and len(each.dims) > 1]
    tensor = tensors[rng.integers(len(tensors))]
    array = numpy_helper.to_array(tensor).copy()
    array += relative * array.std() * rng.standard_normal(array.shape)
    tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float32), tensor.name))
    return changed


@pytest.mark.parametrize("name", TINY)
def test_a_model_equals_itself(name: str) -> None:
    model = zoo.build(name)
    found = verify(model, model)
    assert found.equal and found.reacts and not found.reason
    assert found.largest_difference < found.tolerance / 10
    assert found.num_inputs >= 8
    assert [each.name for each in found.outputs] == [each.name for each in model.graph.output]


@pytest.mark.parametrize("name", TINY)
def test_small_changes_of_one_weight_tensor_are_seen(name: str) -> None:
    model = zoo.build(name)
    for seed in range(4):
        found = verify(model, with_changed_weight(model, 0.05, seed), num_inputs=2)
        assert not found.equal
        assert found.largest_difference > found.tolerance
        assert "differs by" in found.reason


def test_open_dimensions_are_given_a_size() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Shape", ["z"], ["s"])]
    inputs = {"x": ([4], FLOAT), "z": (["n", 3], FLOAT)}
    model = model_of(nodes, inputs, {"y": ([4], FLOAT), "s": ([2], INT64)})
    assert verify(model, model).equal
    for rows in (1, 7):
        given = {"x": np.ones(4, np.float32), "z": np.zeros((rows, 3), np.float32)}
        assert verify(model, model, inputs=given).equal
    with pytest.raises(ModelError, match=r"expected \['any size', 3\]"):
        verify(model, model, inputs={"x": np.zeros(4, np.float32), "z": np.zeros((1, 4), np.float32)})


def test_the_same_seed_gives_the_same_answer() -> None:
    model, other = zoo.build(TINY[0]), with_changed_weight(zoo.build(TINY[0]), 1e-5)
    assert verify(model, other, seed=3) == verify(model, other, seed=3)
    assert verify(model, other, seed=3) != verify(model, other, seed=4)


def test_a_difference_at_an_edge_alone_is_seen() -> None:
    """The models are equal on ordinary numbers and differ on large ones, because a Clip is missing."""
    nodes = [helper.make_node("Clip", ["x", "", "top"], ["c"]), helper.make_node("Add", ["c", "x"], ["y"])]
    clipped = model_of(nodes, {"x": ([8], FLOAT)}, {"y": ([8], FLOAT)}, {"top": np.float32(50)})
    plain = model_of([helper.make_node("Add", ["x", "x"], ["y"])], {"x": ([8], FLOAT)}, {"y": ([8], FLOAT)})
    assert not verify(clipped, plain).equal


def test_outputs_that_do_not_react_prove_nothing() -> None:
    def dead(bias: float) -> onnx.ModelProto:
        nodes = [
            helper.make_node("Sub", ["x", "big"], ["s"]),
            helper.make_node("Relu", ["s"], ["r"]),
            helper.make_node("Mul", ["r", "w"], ["m"]),
            helper.make_node("Add", ["m", "b"], ["y"]),
        ]
        weights = {"big": np.float32(1e6), "w": np.float32(bias), "b": np.float32(1)}
        return model_of(nodes, {"x": ([8], FLOAT)}, {"y": ([8], FLOAT)}, weights)

    found = verify(dead(1.0), dead(2.0))
    assert found.equal and not found.reacts
    assert "'y' did not react" in found.reason and "--inputs" in found.reason
    awake = {"x": np.linspace(1e6, 3e6, 8, dtype=np.float32)}
    found = verify(dead(1.0), dead(2.0), inputs=awake)
    assert found.reacts and not found.equal


def test_outputs_that_no_input_reaches_need_not_react() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Neg", ["w"], ["constant"]),
        helper.make_node("Shape", ["x"], ["shape"]),
    ]
    outputs = {"y": ([3], FLOAT), "constant": ([2], FLOAT), "shape": ([1], INT64)}
    model = model_of(nodes, {"x": ([3], FLOAT)}, outputs, {"w": np.ones(2, np.float32)})
    found = verify(model, model)
    assert found.equal and found.reacts


def test_random_models_cannot_be_verified() -> None:
    nodes = [helper.make_node("RandomNormalLike", ["x"], ["n"]), helper.make_node("Add", ["x", "n"], ["y"])]
    model = model_of(nodes, {"x": ([8], FLOAT)}, {"y": ([8], FLOAT)})
    found = verify(model, model)
    assert not found.comparable and "other values each time" in found.reason


def test_a_candidate_that_does_not_load_or_lacks_an_input_is_not_equal() -> None:
    model = scaled(2.0)
    broken = onnx.ModelProto()
    broken.CopyFrom(model)
    broken.graph.node[0].op_type = "Rleu"
    assert not verify(model, broken).equal
    renamed = onnx.ModelProto()
    renamed.CopyFrom(model)
    renamed.graph.input[0].name = renamed.graph.node[0].input[0] = "z"
    assert not verify(model, renamed).equal


def test_results_may_become_finite_but_never_stop_being_so() -> None:
    def root(inner: list[onnx.NodeProto]) -> onnx.ModelProto:
        return model_of(
            inner, {"x": ([8], FLOAT)}, {"y": ([8], FLOAT)}, {"zero": np.float32(0), "tiny": np.float32(1e-30)}
        )

    narrow = root([helper.make_node("Sqrt", ["x"], ["y"])])
    clamped = [helper.make_node("Max", ["x", "zero"], ["m"]), helper.make_node("Sqrt", ["m"], ["y"])]
    assert verify(narrow, root(clamped)).equal
    assert not verify(root(clamped), narrow).equal


def test_ties_between_equal_scores_are_not_a_difference() -> None:
    """Either of two scores that are equal up to rounding may win, and folding a batch norm changes the rounding."""
    rng = np.random.default_rng(0)
    kernel, scale = rng.standard_normal((8, 3, 3, 3)).astype(np.float32), rng.uniform(1, 2, 8).astype(np.float32)
    weights = {"w": kernel, "s": scale, "v": np.full(8, 3, np.float32), "zero": np.zeros(8, np.float32)}
    weights |= {"folded": kernel * (scale / np.sqrt(3 + 1e-5, dtype=np.float32)).reshape(8, 1, 1, 1)}
    weights |= {"pair": np.array([1, 2, 8, 6, 6])}

    def winners(operator: str, first: str, second: str) -> onnx.ModelProto:
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["c"]),
            helper.make_node("BatchNormalization", ["c", "s", "zero", "zero", "v"], ["a"]),
            helper.make_node("Conv", ["x", "folded"], ["b"]),
            helper.make_node("Concat", [first, second], ["both"], axis=1),
            helper.make_node("Reshape", ["both", "pair"], ["r"]),
            helper.make_node(operator, ["r"], ["y"], axis=1),
        ]
        inputs = {"x": ([1, 3, 8, 8], FLOAT)}
        return model_of(nodes, inputs, {"y": ([1, 1, 8, 6, 6], INT64)}, {**weights}, 13)

    original = winners("ArgMax", "a", "b")
    folded = OnnxModel.load(original)
    found = verify(original, folded.export(folded.graph))
    assert found.equal, found.reason
    assert not verify(original, winners("ArgMax", "a", "c")).equal


def token_model(rows: int = 7) -> onnx.ModelProto:
    """Returns a model of token ids that pass a Reshape and a Cast before they index a table, a mask, and indices."""
    nodes = [
        helper.make_node("Reshape", ["ids", "flat"], ["f"]),
        helper.make_node("Cast", ["f"], ["f32"], to=TensorProto.INT32),
        helper.make_node("Gather", ["table", "f32"], ["e"], axis=0),
        helper.make_node("Cast", ["mask"], ["m"], to=FLOAT),
        helper.make_node("Mul", ["e", "m"], ["p"]),
        helper.make_node("GatherElements", ["p", "pick"], ["y"], axis=1),
    ]
    weights = {"flat": np.array([6]), "table": np.random.default_rng(0).standard_normal((rows, 3)).astype(np.float32)}
    inputs = {"ids": ([2, 3], INT64), "mask": ([6, 1], INT64), "pick": ([6, 2], INT64)}
    return model_of(nodes, inputs, {"y": ([6, 2], FLOAT)}, weights)


def test_integer_inputs_stay_in_the_range_their_readers_accept() -> None:
    detached = CheckedModel.from_proto(token_model())
    readers = InputReaders(detached)
    assert accepted_range(readers.of("ids")) == (0, 6)
    assert accepted_range(readers.of("pick")) == (0, 2)
    assert accepted_range(readers.of("mask")) is None
    specs = input_specs(detached)
    rng = np.random.default_rng(0)
    drawn = [random_feeds(specs, rng) for _ in range(30)]
    for name, values in (("ids", range(7)), ("pick", range(3)), ("mask", range(2))):
        assert set(np.unique([feeds[name] for feeds in drawn])) == set(values)
    for feeds in edge_feeds(specs, rng):
        assert feeds["ids"].min() >= 0 and feeds["ids"].max() <= 6
    timed = timing_feeds(specs, rng)
    assert timed["mask"].dtype == np.int64 and (timed["mask"] == 1).all(), "nothing is masked"
    assert len(np.unique(timed["ids"])) > 1, "what is looked up is random"
    assert verify(token_model(), token_model()).equal


def test_given_inputs_are_checked_and_used() -> None:
    model = scaled(2.0)
    for given, expected in (
        ({"z": np.zeros(8)}, "'z'.*does not read: it reads x"),
        ({}, "lack x"),
        ({"x": np.zeros(7)}, r"shape \[7\]; expected \[8\]"),
        ({"x": np.full(8, np.nan)}, "holds NaN"),
        ({"x": np.zeros(8, complex)}, "holds complex128; expected float32"),
        ({"x": np.zeros((0, 8))}, "at least 1, but 'x' has 0"),
    ):
        with pytest.raises(ModelError, match=expected):
            verify(model, model, inputs=given)
    one = {"x": np.arange(8.0)}
    several = {"x": np.arange(24.0).reshape(3, 8)}
    for given in (one, several):
        assert verify(model, scaled(2.0), inputs=given).equal
        assert not verify(model, scaled(2.1), inputs=given).equal


@pytest.mark.parametrize("bad", [1, 2, 5, 8, 13])
def test_bisection_finds_the_first_bad_rewrite(bad: int) -> None:
    asked: list[int] = []

    def export(count: int) -> onnx.ModelProto:
        asked.append(count)
        return scaled(2.0 if count < bad else 2.5)

    assert find_first_bad_rewrite(scaled(2.0), export, 13) == bad
    assert len(asked) <= 6


def test_bisection_knows_when_no_rewrite_is_to_blame() -> None:
    assert find_first_bad_rewrite(scaled(2.0), lambda count: scaled(3.0), 5) == 0


def test_an_export_that_fails_counts_as_broken() -> None:
    def export(count: int) -> onnx.ModelProto:
        if count >= 3:
            raise ModelError("cannot be written")
        return scaled(2.0)

    assert find_first_bad_rewrite(scaled(2.0), export, 6) == 3


def cancelling(weights: Sequence[np.ndarray]) -> onnx.ModelProto:
    """Returns the model y = x·w0 + x·w1 + …"""
    names = [f"w{i}" for i in range(len(weights))]
    nodes = [helper.make_node("MatMul", ["x", name], [f"p{name}"]) for name in names]
    nodes.append(helper.make_node("Sum", [f"p{name}" for name in names], ["y"]))
    tensors = {name: weight.astype(np.float32) for name, weight in zip(names, weights, strict=True)}
    return model_of(nodes, {"x": ([8, 32], FLOAT)}, {"y": ([8, 16], FLOAT)}, tensors)


def test_a_result_may_be_as_inexact_as_the_original() -> None:
    """Two large products cancel, so that the original is a thousandth of its spread away from the exact result."""
    rng = np.random.default_rng(0)
    small, large = (scale * rng.standard_normal((32, 16)) for scale in (1.0, 4000.0))
    first, second = (small + large).astype(np.float32), (-large).astype(np.float32)
    original, exact = cancelling([first, second]), first.astype(np.float64) + second
    found = verify(original, cancelling([exact]))
    assert found.equal and 1e-4 < found.tolerance < 1e-2
    for relative in (0.05, 0.02):
        wrong = verify(original, cancelling([exact * (1 + relative * rng.standard_normal(exact.shape))]))
        assert not wrong.equal and "differs by" in wrong.reason


def normalised(scale: float, *, identity: bool) -> onnx.ModelProto:
    """Returns a convolution with a large bias, which a batch norm takes away again."""
    rng = np.random.default_rng(1)
    inner = [helper.make_node("Identity", ["c"], ["i"])] if identity else []
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"]),
        *inner,
        helper.make_node("BatchNormalization", ["i" if identity else "c", "s", "zero", "mean", "v"], ["y"]),
    ]
    weights = {"w": rng.standard_normal((4, 3, 3, 3)) / 5, "b": np.full(4, 4e4), "mean": np.full(4, 4e4)}
    weights |= {"s": np.full(4, scale), "zero": np.zeros(4), "v": np.ones(4)}
    tensors = {name: array.astype(np.float32) for name, array in weights.items()}
    return model_of(nodes, {"x": ([1, 3, 8, 8], FLOAT)}, {"y": ([1, 4, 6, 6], FLOAT)}, tensors)


def test_rounding_by_onnx_runtimes_own_optimisations_is_not_the_rewrites_fault() -> None:
    """Batch norm into convolution, as ONNX Runtime does it, moves the result by two thousandths of its spread."""
    original = normalised(1.0, identity=True)
    found = verify(original, normalised(1.0, identity=False))
    assert found.equal and found.largest_difference > 1e-3
    assert not verify(original, normalised(1.02, identity=False)).equal


def test_what_onnx_runtime_cannot_run_is_compared_in_onnx_reference() -> None:
    def model(operator: str) -> onnx.ModelProto:
        return model_of(
            [helper.make_node(operator, ["x"], ["y"])], {"x": ([8], DOUBLE)}, {"y": ([8], DOUBLE)}, opset=21
        )

    found = verify(model("Softsign"), model("Softsign"))
    assert found.equal and found.runs_in == "onnx.reference"
    assert not verify(model("Softsign"), model("Tanh")).equal
    assert verify(model("Tanh"), model("Softsign")).runs_in == "ONNX Runtime"


def test_a_model_that_nothing_runs_cannot_be_compared() -> None:
    node = helper.make_node("Own", ["x"], ["y"], domain="mine")
    model = model_of([node], {"x": ([8], FLOAT)}, {"y": ([8], FLOAT)}, opset=21, domains=["mine"])
    found = verify(model, model)
    assert not found.comparable and not found.runs_in
    assert "ONNX Runtime" in found.reason and "onnx.reference" in found.reason


LEAVES: list[tuple[object, object, Callable[[float], bool]]] = [
    (np.float32([1, 2, np.nan]), np.float32([1, 2, 7]), lambda gap: gap == 0),
    (np.float32([1, np.inf]), np.float32([1, 3]), lambda gap: gap == 0),
    (np.float32([1, np.inf]), np.float32([1, -np.inf]), np.isinf),
    (np.float32([1, np.inf]), np.float32([1, np.nan]), np.isinf),
    (np.float32([1, 2]), np.float32([1, np.nan]), np.isinf),
    (np.float32([1, 2]), np.float32([[1, 2]]), np.isinf),
    (np.float32([1, 2]), np.float64([1, 2]), np.isinf),
    (np.int64([1, 2]), np.int64([1, 3]), np.isinf),
    (["a", "b"], ["a", "b"], lambda gap: gap == 0),
    ([{1: 0.5}], [{1: 0.5}], lambda gap: gap == 0),
    ([{1: 0.5}], [{2: 0.5}], np.isinf),
    ([np.float32([1])], [np.float32([1]), np.float32([2])], np.isinf),
    (np.float32([0, 1]), np.float32([0, 1.5]), lambda gap: gap == 1.0),
]


@pytest.mark.parametrize("case", range(len(LEAVES)))
def test_difference_is_measured_in_spreads(case: int) -> None:
    expected, found, holds = LEAVES[case]
    assert holds(difference(expected, found, Scale(spread=0.1, tolerance=1e-4)))


def test_an_offset_far_above_the_spread_does_not_raise_false_alarms() -> None:
    values = np.float32(1e6) + np.linspace(0, 1, 100, dtype=np.float32)
    scale = Scale(spread=float(values.std()), tolerance=1e-4)
    assert difference(values, np.nextafter(values, np.float32(np.inf)), scale) < scale.tolerance


@pytest.mark.parametrize("fails", [("original", "candidate"), ("candidate",)])
def test_a_candidate_has_to_run_optimised_only_if_the_original_does(
    fails: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    models = {"original": scaled(2), "candidate": scaled(2)}
    for name, model in models.items():
        model.graph.name = name
    real = comparing.create_session

    def session(model: CheckedModel, level: Level) -> Any:
        if level != "disabled" and model.skeleton.graph.name in fails:
            raise ModelError("ONNX Runtime crashes when it opens this")
        return real(model, level)

    monkeypatch.setattr(comparing, "create_session", session)
    found = verify(models["original"], models["candidate"])
    assert found.equal == ("original" in fails) and ("crashes" in found.reason) != found.equal
    assert not verify(models["original"], scaled(2.1)).equal
