"""External data may lie in several files, in subfolders and at offsets; references out of bounds are refused."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto

from taso_ext import ModelError, OnnxModel
from tests.taso_ext.samples.onnx_cases import assert_same, is_mapped, model_with, normal, run


def external(tensor: onnx.TensorProto, location: str, offset: int | None = None, length: int | None = None) -> None:
    """Turns a tensor into a reference to external data, which the caller writes."""
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, entry in {"location": location, "offset": offset, "length": length}.items():
        if entry is not None:
            tensor.external_data.add(key=key, value=str(entry))


@pytest.fixture
def scattered(tmp_path: Path) -> tuple[Path, onnx.ModelProto]:
    """Writes a model with weights in two files, at offsets and in a subfolder; returns its path and the whole model."""
    whole = model_with({name: normal(20, 30, seed=i) for i, name in enumerate("abcd")})
    split = onnx.ModelProto()
    split.CopyFrom(whole)
    data = [tensor.raw_data for tensor in whole.graph.initializer]
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "first.bin").write_bytes(bytes(100) + data[0] + bytes(28) + data[1])
    (tmp_path / "second.bin").write_bytes(data[2])
    external(split.graph.initializer[0], "sub/first.bin", 100, 2400)
    external(split.graph.initializer[1], "sub/first.bin", 2528)
    external(split.graph.initializer[2], "second.bin")
    (tmp_path / "m.onnx").write_bytes(split.SerializeToString())
    return tmp_path / "m.onnx", whole


def test_external_data_may_be_scattered(scattered: tuple[Path, onnx.ModelProto]) -> None:
    path, whole = scattered
    loaded = OnnxModel.load(path)
    assert loaded.graph.hash == OnnxModel.load(whole).graph.hash
    assert all(is_mapped(loaded.source.tensors[name]) for name in "abcd")
    feeds = {"x": normal(20, 30, seed=9)}
    assert_same(run(whole, feeds), run(loaded.export(loaded.graph), feeds))


BREAKING = {
    "missing": (lambda d: (d / "second.bin").unlink(), "separate file that cannot be read"),
    "too short": (lambda d: (d / "second.bin").write_bytes(bytes(2399)), "2,399 bytes where 2,400"),
    "empty": (lambda d: (d / "second.bin").write_bytes(b""), "0 bytes where 2,400"),
    "a directory": (lambda d: ((d / "second.bin").unlink(), (d / "second.bin").mkdir()), "cannot be read"),
}


@pytest.mark.parametrize("case", BREAKING)
def test_broken_external_data_are_refused(case: str, scattered: tuple[Path, onnx.ModelProto]) -> None:
    path, _ = scattered
    make, expected = BREAKING[case]
    make(path.parent)
    with pytest.raises(ModelError, match=expected) as error:
        OnnxModel.load(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("location", "offset", "length"),
    [
        ("../outside.bin", None, None), ("/etc/hostname", None, None), ("", None, None), ("second.bin", -1, None),
        ("second.bin", "x", None), ("second.bin", 2**70, None), ("second.bin", None, 7), ("second.bin", None, 2**62),
    ],
)  # fmt: skip
def test_external_references_out_of_bounds_are_refused(
    location: str, offset: object, length: object, scattered: tuple[Path, onnx.ModelProto]
) -> None:
    path, _ = scattered
    (path.parent.parent / "outside.bin").write_bytes(bytes(2400))
    model = onnx.load(path, load_external_data=False)
    del model.graph.initializer[2].external_data[:]
    external(model.graph.initializer[2], location, offset, length)  # type: ignore[arg-type]
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError):
        OnnxModel.load(path)


def test_a_model_in_memory_cannot_refer_to_files(scattered: tuple[Path, onnx.ModelProto]) -> None:
    with pytest.raises(ModelError, match="Give the path of the model file"):
        OnnxModel.load(onnx.load(scattered[0], load_external_data=False))
