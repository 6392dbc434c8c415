"""The models of ONNX's own backend tests, with inputs and the outputs that the standard asks for."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from taso_ext.onnx_io.legacy_operators import OLDEST_OPSET

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
KINDS = ("node", "older", "simple", "pytorch-operator", "pytorch-converted", "light")
"""`older` are the node cases as models of older opsets; ONNX's kind `real` is left out, because it downloads models."""


@dataclass(frozen=True)
class Case:
    """A model with its inputs and expected outputs.

    Attributes:
      name: unique within its kind.
      inputs: the inputs by name, in the order of the model's inputs.
      expected: the outputs in the model's order; empty if none are given.
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


def cases_of(kind: str) -> Iterable[Case]:
    """Returns all cases of a kind."""
    if kind == "node":
        return node_cases()
    if kind == "older":
        return (older for case in node_cases() for older in aged(case))
    return model_cases(kind)


def node_cases() -> list[Case]:
    """Returns the cases of one operator each, also with the operators expanded into their function bodies."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # reference implementations divide by zero on purpose
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases(None)
    return [_node_case(case.name, case.model, *case.data_sets[0]) for case in found if case.data_sets]


def _node_case(name: str, model: onnx.ModelProto, inputs: Sequence[object], outputs: Sequence[object]) -> Case:
    names = [value.name for value in model.graph.input]
    named = {key: _plain(value) for key, value in zip(names, inputs, strict=False)}
    return Case("node", name, model, named, [_plain(value) for value in outputs])


def aged(case: Case) -> Iterator[Case]:
    """Yields the case as a model of each older opset with another version of one of its operators, if that is valid."""
    newest = max((entry.version for entry in case.model.opset_import if entry.domain == ""), default=0)
    names = {node.op_type for node in case.model.graph.node if node.domain == ""}
    changes = {version for name in names for version in _versions().get(name, ())}
    for version in sorted(version for version in changes if OLDEST_OPSET <= version < newest):
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        for entry in model.opset_import:
            entry.version = version if entry.domain == "" else entry.version
        try:
            onnx.checker.check_model(model, full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            continue
        yield replace(case, kind="older", name=f"{case.name}@{version}", model=model, expected=())


@cache
def _versions() -> dict[str, set[int]]:
    """Returns the opsets in which each operator changed."""
    versions: dict[str, set[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            versions.setdefault(schema.name, set()).add(schema.since_version)
    return versions


def model_cases(kind: str) -> Iterator[Case]:
    """Yields the models in the data directory of a kind."""
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
    """Returns a well-known network with constant weights and the input that onnx's own runner generates."""
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
    """Returns data of a node case with scalars and TensorProtos as arrays."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, dict) else np.asarray(value)
