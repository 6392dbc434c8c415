"""Sessions tell a watch what they do before they do it, and open nothing that it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from environment.runtimes import OnnxRuntime
from taso_ext.errors import CrashError, ModelError
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.session import (
    Level,
    create_session,
    newest_runnable_ir,
    newest_runnable_opset,
    set_watch,
)
from taso_ext.onnx_io.weights.folding import CannotFoldError, evaluate

X = {"x": np.ones(4, np.float32)}


class Notes:
    """A watch that keeps what it is told: what begins, and None for an end."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.told: list[str | None] = []
        self.refused: set[str] = set()

    def record(self, key: str, doing: str) -> bytes:
        self.keys.append(key)
        return doing.format("stops").encode()

    def begin(self, record: bytes) -> None:
        self.told.append(record.decode())

    def end(self) -> None:
        self.told.append(None)

    def refusal(self, key: str) -> str:
        return f"refused {key}" if key in self.refused else ""


@pytest.fixture
def notes() -> Iterator[Notes]:
    found = Notes()
    set_watch(found)
    yield found
    set_watch(None)


def model(weight: float = 2.0, operator: str = "Mul") -> CheckedModel:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    weights = [numpy_helper.from_array(np.full(4, weight, np.float32), "w")]
    graph = helper.make_graph([helper.make_node(operator, ["x", "w"], ["y"])], "scale", values[:1], values[1:], weights)
    return CheckedModel.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def test_opening_and_running_are_told_and_end(notes: Notes) -> None:
    create_session(model(), "disabled").run(None, X)
    OnnxRuntime().open(model(), X).run()
    begun = [each for each in notes.told if each]
    assert notes.told == [part for each in begun for part in (each, None)]
    assert ["opens" in each for each in begun] == [True, False, True, False]
    assert all("ONNX Runtime" in each and "'scale' of 1 operators" in each for each in begun)
    assert "without optimisations" in begun[0] and "at optimisation level all" in begun[2]


def test_errors_end_as_well(notes: Notes) -> None:
    with pytest.raises(ModelError):
        create_session(CheckedModel.from_proto(_with_unknown_operator()), "disabled")
    session = create_session(model(), "disabled")
    with pytest.raises(Exception, match="y"):
        session.run(None, {"y": np.ones(4, np.float32)})
    assert len(notes.told) == 6 and notes.told[1::2] == [None] * 3


def _with_unknown_operator() -> onnx.ModelProto:
    proto = model().to_proto()
    proto.graph.node[0].domain = "nobody"
    proto.opset_import.append(helper.make_opsetid("nobody", 1))
    return proto


def test_a_model_is_refused_at_its_level_alone(notes: Notes) -> None:
    create_session(model(), "all")
    notes.refused = set(notes.keys)
    with pytest.raises(CrashError, match="refused"):
        create_session(model(), "all")
    for weight, level in ((2.0, "disabled"), (3.0, "all")):
        levels: dict[str, Level] = {"disabled": "disabled", "all": "all"}
        create_session(model(weight), levels[level]).run(None, X)


def test_files_are_told_apart(notes: Notes, tmp_path: Path) -> None:
    path = tmp_path / "file.onnx"
    onnx.save(model().to_proto(), path)
    create_session(path, "all")
    assert notes.told[0] is not None and "the file file.onnx" in notes.told[0]
    notes.refused = set(notes.keys)
    with pytest.raises(CrashError):
        create_session(path, "all")
    create_session(model(), "all")


def test_what_cannot_be_computed_is_not_folded(notes: Notes) -> None:
    nodes, opsets = [helper.make_node("Neg", ["w"], ["folded"])], [helper.make_opsetid("", 17)]
    arguments = nodes, model().tensors, {"folded": TensorProto.FLOAT}, opsets, 8
    assert evaluate(*arguments)["folded"].numpy().tolist() == [-2.0] * 4
    notes.refused = set(notes.keys)
    with pytest.raises(CannotFoldError, match="refused"):
        evaluate(*arguments)


def test_the_newest_versions_run_and_newer_ones_are_made_older() -> None:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "newest", values[:1], values[1:])
    opsets = [helper.make_opsetid("", newest_runnable_opset())]
    for ir_version in (newest_runnable_ir(), onnx.IR_VERSION):
        newest = CheckedModel.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=ir_version))
        create_session(newest, "all").run(None, X)
    opsets[0].version += 1
    newer = helper.make_model(graph, opset_imports=opsets, ir_version=newest_runnable_ir())
    with pytest.raises(ModelError, match="opset"):
        create_session(CheckedModel(newer, {}), "all")
