"""The clean-up keeps every function at every opset, folds what is static, and leaves random operators alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto
from onnxscript import optimizer

from environment import zoo
from taso_ext import ModelError, ModelWarning, OnnxModel
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.cleanup import passes
from taso_ext.onnx_io.cleanup.library import to_ir
from taso_ext.onnx_io.cleanup.passes import LEVELS, clean_up, prepared
from taso_ext.onnx_io.dimensions import open_dims
from taso_ext.onnx_io.reading import read_model
from tests.taso_ext.samples.onnx_cases import (
    assert_round_trip,
    assert_same,
    make_model,
    node,
    normal,
    operators,
    run,
    value,
)

OPSETS = (7, 9, 10, 11, 12, 13, 14, 17, 18, 21, 26)
"""The opsets in which the operators below change, and the oldest and newest that ONNX Runtime runs."""

Case = tuple[list[NodeProto], list[int], list[int], dict[str, np.ndarray]]
"""Nodes from x to y, dims of x, dims of y, weights."""


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def f32(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


BATCH_NORM = {"s": f32(1, 2, 0.5), "b": f32(0.1, 0.2, 0.3), "m": f32(0.5, 0.1, 0.2), "v": f32(1, 2, 3)}
BN = node("BatchNormalization", ["c", "s", "b", "m", "v"], ["y"])


def clips(opset: int) -> Iterator[tuple[str, Case]]:
    """Yields clips with bounds in every spelling, which are attributes at some opsets and inputs at others."""
    low, high = {"a": np.float32(-0.5)}, {"b": np.float32(0.3)}
    if opset < 11:
        first, second = node("Clip", ["x"], ["t"], min=-0.5), node("Clip", ["t"], ["y"], max=0.3)
    else:
        first, second = node("Clip", ["x", "a"], ["t"]), node("Clip", ["t", "", "b"], ["y"])
    weights = {} if opset < 11 else low | high
    yield "clip of clip", ([first, second], [2, 3], [2, 3], weights)
    yield "relu of clip", ([first, node("Relu", ["t"], ["y"])], [2, 3], [2, 3], low if weights else {})
    yield "clip of relu", ([node("Relu", ["x"], ["t"]), second], [2, 3], [2, 3], high if weights else {})
    if opset >= 8:
        for outer, inner in (("Min", "Max"), ("Max", "Min"), ("Min", "Min")):
            chain = [node(inner, ["x", "a"], ["t"]), node(outer, ["t", "b"], ["y"])]
            yield f"{outer} of {inner}", (chain, [2, 3], [2, 3], low | high)
        yield "crossed bounds", (
            [node("Max", ["x", "b"], ["t"]), node("Min", ["t", "a"], ["y"])], [2, 3], [2, 3], low | high,
        )  # fmt: skip


def layouts(opset: int) -> Iterator[tuple[str, Case]]:
    def reshape(
        name: str, first: np.ndarray, second: np.ndarray, before: list[int], after: list[int]
    ) -> tuple[str, Case]:
        chain = [node("Reshape", ["x", "p"], ["t"]), node("Reshape", ["t", "q"], ["y"])]
        return name, (chain, before, after, {"p": first, "q": second})

    yield reshape("reshape of reshape", ints(4, 3), ints(3, -1), [2, 6], [3, 4])
    yield reshape("reshape that copies", ints(2, 3, 2), ints(0, 0, -1), [2, 6], [2, 3, 2])
    yield "flatten", ([node("Flatten", ["x"], ["y"], axis=2)], [2, 3, 4, 5], [6, 20], {})
    chain = [node("Transpose", ["x"], ["t"], perm=[0, 2, 1]), node("Transpose", ["t"], ["y"], perm=[2, 0, 1])]
    yield "transpose of transpose", (chain, [2, 3, 4], [3, 2, 4], {})
    if opset < 10:
        cuts = [node("Slice", ["x"], [n], axes=[1], starts=[a], ends=[b]) for n, a, b in (("p", 0, 3), ("q", 3, 2**31))]
        yield "halves", ([*cuts, node("Mul", ["p", "q"], ["y"])], [2, 6], [2, 3], {})
    else:
        cuts = [node("Slice", ["x", "zero", "mid", "axis"], ["p"]), node("Slice", ["x", "mid", "end", "axis"], ["q"])]
        bounds = {"zero": ints(0), "mid": ints(3), "end": ints(6), "axis": ints(-1)}
        yield "halves", ([*cuts, node("Mul", ["p", "q"], ["y"])], [2, 6], [2, 3], bounds)
    if opset < 13:
        chain = [node("Unsqueeze", ["x"], ["t"], axes=[0]), node("Unsqueeze", ["t"], ["u"], axes=[3])]
        axes = {}
    else:
        chain = [node("Unsqueeze", ["x", "p"], ["t"]), node("Unsqueeze", ["t", "q"], ["u"])]
        axes = {"p": ints(0), "q": ints(3)}
    yield "unsqueeze and squeeze", ([*chain, node("Squeeze", ["u"], ["y"])], [2, 3], [2, 3], axes)


def products(opset: int) -> Iterator[tuple[str, Case]]:
    conv = node("Conv", ["x", "w"], ["c"], auto_pad="SAME_LOWER", strides=[2, 2])
    kernel = {"w": normal(3, 3, 3, 3)}
    yield "conv and batch norm", ([conv, BN], [1, 3, 7, 8], [1, 3, 4, 4], kernel | BATCH_NORM)
    twice = [node("Conv", ["x", "w"], ["c"]), BN, node("Conv", ["x", "w"], ["d"]), node("Sub", ["y", "d"], ["z"])]
    twice[1] = node("BatchNormalization", ["c", "s", "b", "m", "v"], ["e"])
    twice[3] = node("Sub", ["e", "d"], ["y"])
    yield "batch norm of a shared kernel", (twice, [1, 3, 7, 8], [1, 3, 5, 6], kernel | BATCH_NORM)
    gemm = node("Gemm", ["x", "g", "h"], ["c"], beta=0.5, transB=1)
    yield "gemm and batch norm", ([gemm, BN], [4, 5], [4, 3], {"g": normal(3, 5), "h": f32(1, 2, 3)} | BATCH_NORM)
    plain = node("Gemm", ["x", "g", "h"], ["y"])
    yield "gemm without bias", ([plain], [4, 5], [4, 3], {"g": normal(5, 3), "h": f32(0, 0, 0)})
    unbiased = node("Conv", ["x", "w", "h"], ["y"])
    yield "conv without bias", ([unbiased], [1, 3, 7, 8], [1, 3, 5, 6], kernel | {"h": f32(0, 0, 0)})
    pads = [0, 0, 1, 2, 0, 0, 1, 1]
    pad = node("Pad", ["x"], ["p"], pads=pads) if opset < 11 else node("Pad", ["x", "pads"], ["p"])
    padded = kernel | ({} if opset < 11 else {"pads": ints(*pads)})
    yield "pad and conv", ([pad, node("Conv", ["p", "w"], ["y"])], [1, 3, 7, 8], [1, 3, 7, 9], padded)
    scaled = [node("Mul", ["x", "one"], ["t"]), node("Add", ["t", "zero"], ["y"])]
    yield "neutral elements", (scaled, [3], [2, 3], {"one": np.ones((2, 1), np.float32), "zero": np.float32(0)})
    yield "dropout", ([node("Dropout", ["x"], ["t"]), node("Relu", ["t"], ["y"])], [3], [3], {})
    casts = [node("Cast", ["x"], ["t"], to=TensorProto.INT64), node("Cast", ["t"], ["y"], to=TensorProto.FLOAT)]
    yield "cast of cast", (casts, [2, 3], [2, 3], {})


def sequences(opset: int) -> Iterator[tuple[str, Case]]:
    if opset < 11:
        return
    for axis, dims in ((0, [4, 3]), (1, [2, 2, 3])):
        chain = [node("SequenceConstruct", ["x", "x"], ["q"])]
        chain.append(node("ConcatFromSequence", ["q"], ["y"], axis=0, new_axis=axis))
        yield f"concat from sequence {axis}", (chain, [2, 3], dims, {})
    for name, parts, width in (("even", np.int64(2), 2), ("sizes", ints(2, 4), 4)):
        chain = [node("SplitToSequence", ["x", "k"], ["q"], axis=1), node("SequenceAt", ["q", "i"], ["y"])]
        yield f"split to sequence {name}", (chain, [2, 6], [2, width], {"k": parts, "i": np.int64(1)})


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("family", [clips, layouts, products, sequences])
def test_function_is_kept_at_every_opset_and_level(family, opset: int) -> None:
    for name, (nodes, before, after, weights) in family(opset):
        model = make_model(nodes, [value("x", before)], [value("y", after)], weights, opset=opset)
        for level in LEVELS:
            try:
                assert_round_trip(model, clean=level)
            except (AssertionError, ModelError, onnx.checker.ValidationError) as error:
                raise AssertionError(f"{name}, clean-up {level}, opset {opset}: {error}") from error


def flatten_by_shape(opset: int) -> onnx.ModelProto:
    """Returns a model with `x.view(x.size(0), -1)` as PyTorch's exporter writes it."""
    axes = {"axes": [0]} if opset < 13 else {}
    unsqueeze = [["d"], ["rest"]] if opset < 13 else [["d", "zero"], ["rest", "zero"]]
    nodes = [
        node("Tanh", ["x"], ["t"]),
        node("Clip", ["t"], ["c"], max=1.0) if opset < 11 else node("Clip", ["t", "", "one"], ["c"]),
        node("Shape", ["c"], ["shape"]),
        node("Gather", ["shape", "first"], ["d"], axis=0),
        node("Unsqueeze", unsqueeze[0], ["u"], **axes),
        node("Unsqueeze", unsqueeze[1], ["v"], **axes),
        node("Concat", ["u", "v"], ["target"], axis=0),
        node("Reshape", ["c", "target"], ["y"]),
    ]
    weights = {"first": np.int64(0), "rest": np.int64(-1)}
    weights |= {} if opset < 13 else {"zero": ints(0)}
    weights |= {} if opset < 11 else {"one": np.float32(1)}
    return make_model(nodes, [value("x", ["n", 3, 4])], [value("y", ["n", None])], weights, opset=opset)


@pytest.mark.parametrize("level", ["full", "basic"])
@pytest.mark.parametrize("opset", [9, 11, 13, 17])
def test_shape_computations_become_static(level: str, opset: int) -> None:
    model = OnnxModel.load(flatten_by_shape(opset), dims={"n": 2}, clean=level)
    found = {each.op_type: each for each in model.graph.nodes()}
    assert set(found) == {"Tanh", "Clip", "Reshape"}
    assert found["Reshape"].attributes == {"shape": [2, 12]}
    feeds = {"x": normal(2, 3, 4)}
    assert_same(run(model.source.to_proto(), feeds), run(model.export(model.graph), feeds))


def test_levels_differ_in_what_they_remove() -> None:
    nodes = [node("Conv", ["x", "w"], ["c"]), BN, node("Dropout", ["y"], ["d"]), node("Identity", ["d"], ["z"])]
    weights = {"w": normal(3, 3, 1, 1)} | BATCH_NORM
    model = make_model(nodes, [value("x", [1, 3, 4, 4])], [value("z", [1, 3, 4, 4])], weights, opset=13)
    found = {level: [each.op_type for each in OnnxModel.load(model, clean=level).graph.nodes()] for level in LEVELS}
    assert found["full"] == ["Conv"]
    assert found["basic"] == ["Conv", "BatchNormalization"]
    assert found["none"] == ["Conv", "BatchNormalization", "Dropout"]


@pytest.mark.parametrize("level", LEVELS)
def test_random_operators_are_neither_merged_nor_folded(level: str) -> None:
    coins = [node("Bernoulli", ["p"], [name]) for name in ("a", "b")]
    noise = [node("RandomNormal", [], [name], shape=[50]) for name in ("c", "d")]
    sums = [node("Sub", ["a", "b"], ["e"]), node("Sub", ["c", "d"], ["f"]), node("Add", ["e", "f"], ["g"])]
    model = make_model(
        [*coins, *noise, *sums, node("Add", ["g", "x"], ["y"])],
        [value("x", [50])],
        [value("y", [50])],
        {"p": np.full(50, 0.5, np.float32)},
    )
    loaded = OnnxModel.load(model, clean=level)
    exported = loaded.export(loaded.graph)
    assert operators(exported).count("Bernoulli") == 2
    assert operators(exported).count("RandomNormal") == 2
    feeds = {"x": np.zeros(50, np.float32)}
    assert np.std(np.asarray(run(exported, feeds)[0])) > 0.5  # equal twins would cancel


@pytest.mark.parametrize("level", LEVELS)
def test_stale_declared_shapes_do_not_count(level: str) -> None:
    model = make_model(
        [node("Relu", ["x"], ["t"]), node("Flatten", ["t"], ["y"])],
        [value("x", [2, 3, 4])],
        [value("y", ["a", "b"])],
    )
    model.graph.value_info.append(value("t", [5, 5, 5]))
    loaded = OnnxModel.load(model, clean=level)
    assert loaded.graph.nodes()[1].attributes == {"shape": [2, 12]}
    assert_round_trip(model, clean=level)


def test_overridable_inputs_are_not_folded() -> None:
    """The caller may replace a default, even if a batch norm could be folded with it."""
    weights = {"w": normal(3, 3, 1, 1)} | BATCH_NORM
    model = make_model(
        [node("Conv", ["x", "w"], ["c"]), BN],
        [value("x", [1, 3, 4, 4]), value("s", [3])],
        [value("y", [1, 3, 4, 4])],
        weights,
        opset=13,
    )
    exported = assert_round_trip(model)
    feeds = {"x": normal(1, 3, 4, 4), "s": f32(3, -1, 2)}
    assert_same(run(model, feeds), run(exported, feeds))
    frozen = OnnxModel.load(model, freeze_initializers=True)
    assert operators(frozen.export(frozen.graph)) == ["Conv"]


def test_weights_that_are_outputs_are_not_folded() -> None:
    """The library's fusion overwrites the weights of a convolution, also where they are outputs of the model."""
    weights = {"w": normal(3, 3, 1, 1), "t": normal(3)} | BATCH_NORM
    model = make_model(
        [node("Cast", ["t"], ["bias"], to=TensorProto.FLOAT), node("Conv", ["x", "w", "bias"], ["c"]), BN],
        [value("x", [1, 3, 4, 4])],
        [value("y", [1, 3, 4, 4]), value("w", [3, 3, 1, 1]), value("bias", [3])],
        weights,
        opset=18,
    )
    assert_round_trip(model)


def test_initializers_among_inputs_are_constants_before_ir_version_4() -> None:
    model = make_model(
        [node("Gemm", ["x", "w", "b"], ["y"])],
        [value("x", [2, 3]), value("w", [3, 4]), value("b", [4])],
        [value("y", [2, 4])],
        {"w": normal(3, 4), "b": normal(4)},
        opset=8,
        ir_version=3,
    )
    exported = assert_round_trip(model)
    assert [each.name for each in exported.graph.input] == ["x"]
    assert exported.ir_version >= 4


def test_nothing_is_logged_about_what_the_optimizer_leaves(caplog: pytest.LogCaptureFixture) -> None:
    model = make_model(
        [node("Split", ["w"], ["p", "q"], axis=0), node("Add", ["x", "p"], ["y"]), node("Neg", ["q"], ["z"])],
        [value("x", [2])],
        [value("y", [2]), value("z", [2])],
        {"w": f32(1, 2, 3, 4)},
    )
    for level in LEVELS:
        assert_round_trip(model, clean=level)
    assert not caplog.records


def reference_clean_up(model: CheckedModel) -> Counter[str]:
    """Counts the operators that onnxscript's own optimizer leaves if it tries all of its rules at every node."""
    form = to_ir(prepared(model))
    optimizer.optimize_ir(form)
    return Counter(each.op_type for each in form.graph)


PYTORCH = sorted((Path(__file__).parents[1] / "samples" / "data" / "pytorch").glob("*.onnx"))
TINY = [name for name in zoo.names() if name.endswith("-tiny")]


@pytest.mark.parametrize("source", [*PYTORCH, *TINY], ids=lambda source: getattr(source, "stem", source))
def test_nothing_is_left_that_the_optimizer_removes(source: Path | str) -> None:
    """The clean-up tries only some of the optimizer's rules; the others would not have applied."""
    given = onnx.load(source) if isinstance(source, Path) else zoo.build(source)
    model = read_model(given, {dim.name: 3 + i for i, dim in enumerate(open_dims(given.graph))})
    found = Counter(each.op_type for each in clean_up(model).skeleton.graph.node)
    assert not found - reference_clean_up(model)


@pytest.mark.parametrize(("broken", "used"), [("rewrite_once", "basic"), ("_fold_constants", "none")])
def test_a_level_that_fails_is_replaced_by_a_lower_one(broken: str, used: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bool:
        raise RuntimeError("a fault of the library")

    model = read_model(zoo.build("squeezenet1.1-tiny"))
    expected = clean_up(model, used)
    monkeypatch.setattr(passes, broken, fail)
    with pytest.warns(ModelWarning) as caught:
        found = clean_up(model, "full")
    assert found.skeleton == expected.skeleton
    last = str(caught[-1].message)
    assert "a fault of the library" in last and f"The clean-up '{used}' is used instead." in last
