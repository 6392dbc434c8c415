"""Weights are handles: they stay in their files until they are written, whatever their type and wherever they lie."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from environment import zoo
from taso_ext import ModelError, OnnxModel
from taso_ext.onnx_io import model_file as model_writing
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.model_file import without_weights, write_model
from taso_ext.onnx_io.reading import read_model
from taso_ext.onnx_io.weights.folding import Spill
from taso_ext.onnx_io.weights.handles import MappedFiles, content_handle
from tests.perf import loading
from tests.taso_ext.samples.onnx_cases import assert_same, is_mapped, make_model, model_with, node, normal, run, value

DTYPES = [number for name, number in TensorProto.DataType.items() if name not in ("UNDEFINED", "STRING")]
LARGE, SMALL = (40, 61), (2, 3)
"""Dims above and below the size from which weights are moved out of a model's structure."""


def random_tensor(name: str, dtype: int, dims: tuple[int, ...], *, raw: bool = True) -> onnx.TensorProto:
    """Returns a tensor of random bits, which without `raw` are in the field of the element type."""
    bits = ir.DataType(dtype).bitwidth * int(np.prod(dims))
    array = np.random.default_rng(dtype).integers(0, 2 if dtype == TensorProto.BOOL else 256, -(-bits // 8), np.uint8)
    if bits % 8:
        array[-1] &= (1 << bits % 8) - 1  # clears the bits after the last element
    data = array.tobytes()
    proto = onnx.TensorProto(name=name, data_type=dtype, dims=dims, raw_data=data)
    if raw:
        return proto
    values = numpy_helper.to_array(proto)
    return helper.make_tensor(name, dtype, dims, values.reshape(-1))


def passing(tensor: onnx.TensorProto) -> onnx.ModelProto:
    """Returns a model whose outputs are a weight as it is and the negated input."""
    model = make_model(
        [node("Neg", ["x"], ["y"])],
        [value("x", [2])],
        [value("w", tensor.dims, tensor.data_type), value("y", [2])],
        {"w": np.zeros(1)},
        opset=onnx.defs.onnx_opset_version(),
        ir_version=onnx.IR_VERSION,
    )
    model.graph.initializer[0].CopyFrom(tensor)
    return model


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("dims", [LARGE, SMALL, (0, 5), ()])
@pytest.mark.parametrize("dtype", DTYPES, ids=TensorProto.DataType.Name)
def test_weights_of_every_type_come_out_bit_for_bit(
    dtype: int, dims: tuple[int, ...], raw: bool, tmp_path: Path
) -> None:
    if not raw and dtype in (TensorProto.FLOAT6E2M3, TensorProto.FLOAT6E3M2):
        pytest.skip("onnx.helper cannot write them so")
    tensor = random_tensor("w", dtype, dims, raw=raw)
    path = tmp_path / "m.onnx"
    onnx.save(passing(tensor), path)
    expected = None
    for source in (path, onnx.load(path)):
        loaded = OnnxModel.load(source)
        (found,) = loaded.export(loaded.graph).graph.initializer
        assert (found.data_type, tuple(found.dims)) == (dtype, dims)
        assert numpy_helper.to_array(found).tobytes() == numpy_helper.to_array(tensor).tobytes()
        expected = expected or loaded.graph.hash
        assert loaded.graph.hash == expected


def test_large_weights_stay_in_the_mapped_file(tmp_path: Path) -> None:
    onnx.save(zoo.build("bert-base-tiny"), tmp_path / "m.onnx")
    loaded = OnnxModel.load(tmp_path / "m.onnx")
    exported = loaded.export_checked(loaded.graph)
    large = {name: tensor for name, tensor in loaded.source.tensors.items() if tensor.nbytes >= 1024}
    assert len(large) >= 14
    assert all(map(is_mapped, large.values()))
    assert all(is_mapped(tensor) for name, tensor in exported.tensors.items() if name in large)
    assert len(large.keys() & exported.tensors.keys()) >= 14


def test_files_may_be_replaced_while_a_model_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(zoo.build("squeezenet1.1-tiny"), path)
    loaded = OnnxModel.load(path)
    before = loaded.export(loaded.graph).SerializeToString(deterministic=True)
    loaded.save(loaded.graph, path)  # over its own file
    assert loaded.export(loaded.graph).SerializeToString(deterministic=True) == before
    assert OnnxModel.load(path).graph.hash == loaded.graph.hash


@pytest.fixture(params=["one file", "external data"])
def limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "external data":
        monkeypatch.setattr(model_writing, "LARGEST_PROTOBUF", 1 << 12)
    return request.param


@pytest.mark.parametrize("name", ["bert-base-tiny", "squeezenet1.1-tiny"])
def test_written_files_hold_the_model(name: str, limit: str, tmp_path: Path) -> None:
    given = zoo.build(name)
    loaded = OnnxModel.load(given)
    loaded.save(loaded.graph, tmp_path / "deep" / "m.onnx")
    written = onnx.load(tmp_path / "deep" / "m.onnx")
    onnx.checker.check_model(tmp_path / "deep" / "m.onnx", full_check=True)
    for tensor in written.graph.initializer:
        tensor.ClearField("data_location")  # onnx.load leaves a default behind
    assert written == loaded.export(loaded.graph)
    names = {path.name for path in (tmp_path / "deep").iterdir()}
    assert names == ({"m.onnx"} if limit == "one file" else {"m.onnx", "m.onnx.data"})


def test_nothing_is_left_of_a_file_that_could_not_be_written(tmp_path: Path) -> None:
    def fail() -> ir.TensorProtocol:
        raise OSError("no more data")

    model = CheckedModel.from_proto(model_with({"w": normal(64, 64)}))
    model.tensors["w"] = ir.LazyTensor(fail, dtype=ir.DataType.FLOAT, shape=ir.Shape((64, 64)), name="w")
    (tmp_path / "m.onnx").write_bytes(b"old")
    with pytest.raises(OSError, match="no more data"):
        write_model(model, tmp_path / "m.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
    assert (tmp_path / "m.onnx").read_bytes() == b"old"


def test_two_initializers_of_one_name_are_refused() -> None:
    model = model_with({"w": normal(40, 50)})
    model.graph.initializer.append(model.graph.initializer[0])
    with pytest.raises(ModelError, match="two initializers have the name 'w'"):
        OnnxModel.load(model)


def nested_weights() -> onnx.ModelProto:
    """Returns a model with large weights, initializers and constants, at the top and in both branches of an If."""

    def branch(name: str, seed: int) -> onnx.GraphProto:
        constant = node("Constant", [], ["k"], value=numpy_helper.from_array(normal(40, 50, seed=seed)))
        nodes = [constant, node("MatMul", ["x", "k"], ["t"]), node("MatMul", ["t", "w"], [name])]
        weight = numpy_helper.from_array(normal(50, 40, seed=seed + 1), "w")
        return helper.make_graph(nodes, name, [], [value(name, [2, 40])], [weight])

    top = node("Constant", [], ["w_1"], value=numpy_helper.from_array(normal(40, 40)))
    nodes = [
        top,
        node("If", ["flag"], ["z"], then_branch=branch("a", 1), else_branch=branch("b", 5)),
        node("MatMul", ["z", "w_1"], ["y"]),
    ]
    return make_model(nodes, [value("x", [2, 40]), value("flag", [], TensorProto.BOOL)], [value("y", [2, 40])])


@pytest.mark.parametrize("clean", ["full", "basic", "none"])
@pytest.mark.parametrize("scattering", [False, True])
def test_weights_inside_nodes_are_handles_too(clean: str, scattering: bool, tmp_path: Path) -> None:
    model = nested_weights()
    onnx.save(model, tmp_path / "m.onnx")
    if scattering:
        onnx.save_model(
            onnx.load(tmp_path / "m.onnx"), tmp_path / "m.onnx", save_as_external_data=True, convert_attribute=True,
            location="w.bin", size_threshold=0,
        )  # fmt: skip
    loaded = OnnxModel.load(tmp_path / "m.onnx", clean=clean)
    assert len([tensor for tensor in loaded.source.tensors.values() if is_mapped(tensor)]) == 5
    assert loaded.source.skeleton.ByteSize() < 2000
    exported = loaded.export(loaded.graph)
    onnx.checker.check_model(exported)
    for flag in (True, False):
        feeds = {"x": normal(2, 40, seed=3), "flag": np.array(flag)}
        assert_same(run(model, feeds), run(exported, feeds))


@pytest.mark.parametrize("clean", ["full", "basic", "none"])
def test_weights_that_a_branch_gives_as_they_are_stay_in_it(clean: str, tmp_path: Path) -> None:
    constant = node("Constant", [], ["a"], value=numpy_helper.from_array(normal(40, 50)))
    first = helper.make_graph([constant], "first", [], [value("a", [40, 50])])
    weight = numpy_helper.from_array(normal(40, 50, seed=1), "b")
    second = helper.make_graph([node("Neg", ["b"], ["c"])], "second", [], [value("b", [40, 50])], [weight])
    nodes = [node("If", ["flag"], ["z"], then_branch=first, else_branch=second), node("Add", ["x", "z"], ["y"])]
    inputs = [value("x", [40, 50]), value("flag", [], TensorProto.BOOL)]
    model = make_model(nodes, inputs, [value("y", [40, 50])])
    onnx.save(model, tmp_path / "m.onnx")
    loaded = OnnxModel.load(tmp_path / "m.onnx", clean=clean)
    for flag in (True, False):
        feeds = {"x": normal(40, 50, seed=2), "flag": np.array(flag)}
        assert_same(run(model, feeds), run(loaded.export(loaded.graph), feeds))


def test_attaching_undoes_detaching() -> None:
    for name in ("squeezenet1.1-tiny", "bert-base-tiny"):
        model = zoo.build(name)
        again = CheckedModel.from_proto(model).to_proto()
        assert sorted(tensor.SerializeToString() for tensor in again.graph.initializer) == sorted(
            tensor.SerializeToString() for tensor in model.graph.initializer
        )
        for each in (again, model):
            del each.graph.initializer[:]
        assert again == model


sizes = st.sampled_from([0, 1, 100, 255, 256, 300, 5000])


@given(st.lists(st.tuples(sizes, st.booleans(), st.booleans()), max_size=6), st.binary(max_size=40))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_splitting_a_file_loses_nothing(tensors: list[tuple[int, bool, bool]], rest: bytes) -> None:
    """This holds for any fields around the tensors, and for tensors in initializers and in attributes."""
    model = onnx.ModelProto(producer_name=rest.hex())
    for index, (size, in_node, documented) in enumerate(tensors):
        tensor = numpy_helper.from_array(np.arange(size, dtype=np.float32) + index, f"t{index}")
        tensor.doc_string = rest.hex() if documented else ""
        if in_node:
            model.graph.node.add(op_type="Any").attribute.add(name="v").t.CopyFrom(tensor)
        else:
            model.graph.initializer.append(tensor)
    data = model.SerializeToString()
    split = onnx.ModelProto.FromString(without_weights(data, "here"))
    files = MappedFiles()
    files.add("here", data)
    for index, tensor in enumerate(all_tensors(split)):
        assert content_handle("", files.tensor(tensor)) == content_handle("", files.tensor(all_tensors(model)[index]))
        assert len(tensor.raw_data) < 1024
    for each in (model, split):
        for tensor in all_tensors(each):
            for name in ("raw_data", "external_data", "data_location"):
                tensor.ClearField(name)
    assert split == model


def all_tensors(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    return [*model.graph.initializer, *(node.attribute[0].t for node in model.graph.node)]


@given(st.data())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_splitting_damaged_files_ends(data: st.DataObject) -> None:
    """The result does not matter, because protobuf's parser decides about such files afterwards."""
    good = bytearray(model_with({"w": normal(30, 40)}).SerializeToString())
    for _ in range(data.draw(st.integers(1, 5))):
        good[data.draw(st.integers(0, 120) | st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    without_weights(bytes(good[: data.draw(st.integers(0, len(good)))]), "here")


def test_spilled_arrays_are_equal_and_take_no_memory() -> None:
    spill = Spill(largest_kept=1 << 17)
    arrays = [normal(200, 200, seed=i) for i in range(4)]
    kept = [spill.keep(array) for array in arrays]
    del spill
    for array, found in zip(arrays, kept, strict=True):
        np.testing.assert_array_equal(array, found)
    assert [isinstance(found, np.memmap) for found in kept] == [True] * 4
    assert Spill().keep(arrays[0]) is arrays[0]


def test_reading_by_path_and_from_memory_agree(tmp_path: Path) -> None:
    onnx.save(zoo.build("bert-base-tiny"), tmp_path / "m.onnx")
    by_path, given_model = read_model(tmp_path / "m.onnx"), read_model(onnx.load(tmp_path / "m.onnx"))
    assert by_path.skeleton == given_model.skeleton
    sizes = [sorted(tensor.nbytes for tensor in model.tensors.values()) for model in (by_path, given_model)]
    assert sizes[0] == sizes[1]


@pytest.mark.full
def test_models_over_2_gb_take_little_memory(tmp_path: Path) -> None:
    """The model is loaded, exported, written, rewritten, folded and written again."""
    path = tmp_path / "m.onnx"
    model = loading.big_model(layers=11)
    write_model(model, path)
    assert model.nbytes > 2**31
    assert (tmp_path / "m.onnx.data").stat().st_size >= model.nbytes
    found = loading.measure_apart(path)
    assert found["rewritten"] >= 10
    assert found["anon_mb"] < 1000
