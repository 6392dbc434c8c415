"""Every model that cannot be used is refused with one clear paragraph, and no other error is raised."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from environment import zoo
from taso_ext import ModelError, OnnxModel
from taso_ext.onnx_io.reading import read_model
from tests.taso_ext.samples.onnx_cases import assert_round_trip, make_model, node, run, value

RELU = make_model([node("Relu", ["x"], ["y"])], [value("x", [2])], [value("y", [2])])
SYMBOLIC = make_model(
    [node("MatMul", ["tokens", "w"], ["y"]), node("Add", ["y", "mask"], ["z"])],
    [value("tokens", ["batch", "seq", 4]), value("mask", ["batch", 1, None])],
    [value("z", ["batch", "seq", 4])],
    {"w": np.ones((4, 4), np.float32)},
)


def saved(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def invalid_model() -> bytes:
    broken = onnx.ModelProto()
    broken.CopyFrom(RELU)
    broken.graph.node[0].input[0] = "nowhere"
    return broken.SerializeToString()


def old_model() -> bytes:
    """Returns a model of opset 6 with an operator that opset 7 does not have."""
    return make_model(
        [node("Dropout", ["x"], ["y"])], [value("x", [2])], [value("y", [2])], opset=6
    ).SerializeToString()


def without_external_data(directory: Path) -> Path:
    model = zoo.build("squeezenet1.1-tiny")
    onnx.save_model(model, directory / "split.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (directory / "w.bin").unlink()
    return directory / "split.onnx"


def edited(**changes: object) -> bytes:
    """Returns a faulty model of two operators in a row; `changes` are fields of the first node or other faults."""
    nodes = [node("Relu", ["x"], ["t"]), node("Add", ["t", "x"], ["y"])]
    model = make_model(nodes, [value("x", [2])], [value("y", [2])])
    first, second = model.graph.node
    for name, change in changes.items():
        if name == "dtype":
            model.graph.input.append(value("z", [2], onnx.TensorProto.INT64))
            second.input[1] = "z"
        elif name == "again":
            model.graph.node.append(second)
        elif name == "output_dtype":
            model.graph.output[0].type.tensor_type.elem_type = change
        else:
            getattr(first, name)[:] = change  # type: ignore[index]
    return model.SerializeToString()


BAD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing": (lambda d: d / "model.onnx", "does not exist"),
    "directory": (lambda d: saved(d / "inner.onnx", b"x").parent, "is a directory.*inner.onnx"),
    "empty": (lambda d: saved(d / "m.onnx", b""), "is empty"),
    "text": (lambda d: saved(d / "m.onnx", b"hello, this is no model"), "is not an ONNX model"),
    "png": (lambda d: saved(d / "m.onnx", b"\x89PNG\r\n\x1a\n" + bytes(100)), "is not an ONNX model"),
    "zip": (lambda d: saved(d / "m.pt", b"PK\x03\x04" + bytes(range(256))), "is not an ONNX model"),
    "git lfs pointer": (lambda d: saved(d / "m.onnx", b"version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"),
    "truncated": (lambda d: saved(d / "m.onnx", RELU.SerializeToString()[:-20]), "is truncated"),
    "invalid": (lambda d: saved(d / "m.onnx", invalid_model()), "onnx.checker reports:.*nowhere"),
    "cyclic": (lambda d: saved(d / "m.onnx", edited(input=["y"])), "topologically sorted"),
    "reads itself": (lambda d: saved(d / "m.onnx", edited(input=["t"])), "topologically sorted"),
    "name used twice": (lambda d: saved(d / "m.onnx", edited(again=True)), "single static assignment"),
    "input named twice": (lambda d: saved(d / "m.onnx", edited(output=["x"])), "single static assignment"),
    "operand missing": (lambda d: saved(d / "m.onnx", edited(input=[])), "input size 0"),
    "operand too many": (lambda d: saved(d / "m.onnx", edited(input=["x", "x"])), "input size 2"),
    "operands of two types": (lambda d: saved(d / "m.onnx", edited(dtype=7)), "inconsistent type"),
    "output of another type": (lambda d: saved(d / "m.onnx", edited(output_dtype=7)), "as INT64, but computes FLOAT"),
    "old opset": (lambda d: saved(d / "m.onnx", old_model()), "opset 6; at least opset 7"),
    "external data gone": (without_external_data, "separate file.*w.bin"),
}


def test_bytes_are_read_like_files(tmp_path: Path) -> None:
    data = zoo.build("squeezenet1.1-tiny").SerializeToString()
    by_bytes, by_path = (OnnxModel.load(source) for source in (data, saved(tmp_path / "m.onnx", data)))
    assert by_bytes.graph.hash == by_path.graph.hash
    assert by_bytes.export(by_bytes.graph) == by_path.export(by_path.graph)
    for damaged in (b"", b"text", data[:-2000]):
        with pytest.raises(ModelError, match="the given model"):
            OnnxModel.load(damaged)


@pytest.mark.parametrize("case", BAD)
def test_bad_file_is_one_clear_paragraph(case: str, tmp_path: Path) -> None:
    make, expected = BAD[case]
    with pytest.raises(ModelError, match=expected) as error:
        OnnxModel.load(make(tmp_path))
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_no_prefix_of_a_model_is_accepted(tmp_path: Path) -> None:
    data = zoo.build("squeezenet1.1-tiny").SerializeToString()
    # Only the opset import and metadata follow the graph, and the checker refuses a model without opset import.
    cuts = np.random.default_rng(0).integers(1, len(data) - 200, 60)
    for cut in map(int, cuts):
        with pytest.raises(ModelError):
            read_model(saved(tmp_path / "m.onnx", data[:cut]))


def test_random_bytes_never_crash(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    model = RELU.SerializeToString()
    for _ in range(300):
        data = bytearray(model)
        for position in rng.integers(0, len(data), 3):
            data[position] = rng.integers(256)
        try:
            OnnxModel.load(saved(tmp_path / "m.onnx", bytes(data)))
        except ModelError as error:
            assert "\n" not in str(error)


def test_open_dimensions_are_named_with_input_and_flag() -> None:
    with pytest.raises(ModelError) as error:
        OnnxModel.load(SYMBOLIC)
    text = str(error.value)
    for part in (
        "'batch'",
        "'seq'",
        "'tokens'",
        "axis 1",
        "'mask:2'",
        "--dim batch=1",
        "--dim seq=1",
        "--dim mask:2=1",
    ):
        assert part in text
    with pytest.raises(ModelError, match="'seq'") as error:
        OnnxModel.load(SYMBOLIC, dims={"batch": 2, "mask:2": 4})
    assert "batch" not in str(error.value)


def test_bound_dimensions_reach_inputs_and_outputs_and_leave_the_source_alone() -> None:
    before = SYMBOLIC.SerializeToString()
    model = OnnxModel.load(SYMBOLIC, dims={"batch": 2, "seq": 3, "mask:2": 4})
    assert SYMBOLIC.SerializeToString() == before
    for proto in (model.source.to_proto(), model.export(model.graph)):
        shapes = [
            [dim.dim_value for dim in each.type.tensor_type.shape.dim]
            for each in (*proto.graph.input, *proto.graph.output)
        ]
        assert shapes == [[2, 3, 4], [2, 1, 4], [2, 3, 4]]


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ({"bach": 1}, "no symbolic dimension 'bach'.*did you mean 'batch'"),
        ({"batch": -1}, "whole number of at least 0"),
    ],
)
def test_wrong_bindings_are_refused(dims: dict[str, int], expected: str) -> None:
    with pytest.raises(ModelError, match=expected):
        OnnxModel.load(SYMBOLIC, dims=dims)


def test_input_without_a_rank_is_refused() -> None:
    model = onnx.ModelProto()
    model.CopyFrom(RELU)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(ModelError, match=r"input 'x' has no shape|not a valid ONNX model"):
        OnnxModel.load(model)


def test_unknown_clean_up_level_lists_the_known_ones() -> None:
    with pytest.raises(ModelError, match="full, basic, none"):
        OnnxModel.load(RELU, clean="thorough")


def test_a_weight_with_too_few_bytes_is_refused() -> None:
    model = make_model(
        [node("Add", ["x", "w"], ["y"])], [value("x", [4])], [value("y", [4])], {"w": np.ones(4, np.float32)}
    )
    model.graph.initializer[0].raw_data = bytes(12)
    with pytest.raises(ModelError, match=r"not a valid ONNX model|12 bytes where 16"):
        OnnxModel.load(model)


def test_external_data_is_read_from_beside_the_file(tmp_path: Path) -> None:
    model = zoo.build("squeezenet1.1-tiny")
    expected = OnnxModel.load(model).graph.hash
    onnx.save_model(model, tmp_path / "split.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    loaded = OnnxModel.load(tmp_path / "split.onnx")
    assert loaded.graph.hash == expected
    feeds = {
        "input": np.zeros([d.dim_value for d in loaded.source.skeleton.graph.input[0].type.tensor_type.shape.dim], "f4")
    }
    np.testing.assert_allclose(
        run(loaded.export(loaded.graph), {loaded.source.skeleton.graph.input[0].name: feeds["input"]})[0],
        run(loaded.source.to_proto(), {loaded.source.skeleton.graph.input[0].name: feeds["input"]})[0],
        rtol=1e-4,
        atol=1e-5,
    )


def test_given_models_are_not_changed() -> None:
    for name in ("squeezenet1.1-tiny", "bert-base-tiny"):
        model = zoo.build(name)
        before = model.SerializeToString(deterministic=True)
        assert_round_trip(model)
        assert model.SerializeToString(deterministic=True) == before
