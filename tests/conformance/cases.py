"""The models of ONNX's own backend tests, with inputs and the outputs that the standard asks for."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted", "light")
"""`real`, the remaining kind, downloads its models."""


@dataclass(frozen=True)
class Case:
    """
    Attributes:
      name: unique within its kind.
      inputs: by name, in the order of the model's inputs.
      expected: by position of the outputs; empty where none are given.
    """

    kind: str
    name: str
    model: onnx.ModelProto
    inputs: dict[str, object]
    expected: Sequence[object]

    @property
    def is_random(self) -> bool:
        """Whether the outputs are drawn at random, so that only their types can agree."""
        return "bernoulli" in self.name or "training_dropout" in self.name


def node_cases() -> list[Case]:
    """One operator each, and the same operators expanded into their function bodies."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # reference implementations divide by zero on purpose
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases(None)
    return [_node_case(case.name, case.model, *case.data_sets[0]) for case in found if case.data_sets]


def _node_case(name: str, model: onnx.ModelProto, inputs: Sequence[object], outputs: Sequence[object]) -> Case:
    names = [value.name for value in model.graph.input]
    named = {key: _plain(value) for key, value in zip(names, inputs, strict=False)}
    return Case("node", name, model, named, [_plain(value) for value in outputs])


def model_cases(kind: str) -> Iterator[Case]:
    """The models in the data directory of a kind."""
    if kind == "light":
        yield from map(_light_case, sorted((DATA / kind).glob("*.onnx")))
        return
    for directory in sorted((DATA / kind).glob("*/test_data_set_0")):
        model = onnx.load(directory.parent / "model.onnx")
        known = {tensor.name for tensor in model.graph.initializer}
        fed = [value for value in model.graph.input if value.name not in known]
        inputs = {value.name: _read(directory / f"input_{i}.pb", value.type) for i, value in enumerate(fed)}
        outputs = [_read(directory / f"output_{i}.pb", value.type) for i, value in enumerate(model.graph.output)]
        yield Case(kind, directory.parent.name, model, inputs, outputs)


def _light_case(path: Path) -> Case:
    """A well-known network whose weights are constants; its input is what onnx's own runner generates."""
    model = onnx.load(path)
    known = {tensor.name for tensor in model.graph.initializer}
    (value,) = (value for value in model.graph.input if value.name not in known)
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    ramp = np.arange(np.prod(shape)).reshape(shape) / np.prod(shape)
    expected = _read(path.with_name(f"{path.stem}_output_0.pb"), model.graph.output[0].type)
    return Case("light", path.stem, model, {value.name: ramp.astype(np.float32)}, [expected])


def _read(path: Path, kind: onnx.TypeProto) -> object:
    data = path.read_bytes()
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def _plain(value: object) -> object:
    """Scalars and TensorProtos among the data of node cases, as arrays."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, dict) else np.asarray(value)
