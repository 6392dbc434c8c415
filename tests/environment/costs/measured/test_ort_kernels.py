"""The kernels that ONNX Runtime makes of a model: for all types of weights, and only on the named device."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import tempfile
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from environment import zoo
from environment.costs.measured import ort_kernels as lowering
from environment.costs.measured import ort_kernels as module
from environment.costs.measured.benchmark import copies_model
from environment.costs.measured.kernel import Kernel
from environment.costs.measured.ort_kernels import lower, remove_abandoned, scratch_folder
from environment.policies.random import random_step
from environment.runtimes import OnnxRuntime, UnavailableError, onnx_runtime
from taso_ext import CostModel, ModelError, OnnxModel, RuleSet, State
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.session import create_session

RUNTIME = OnnxRuntime()
F, S = TensorProto.FLOAT, TensorProto.BFLOAT16
SIZE = 128
X = helper.make_tensor_value_info("x", F, [SIZE, SIZE])
Y = helper.make_tensor_value_info("y", F, None)


def model(
    nodes: list[onnx.NodeProto],
    constants: list[onnx.TensorProto],
    output: onnx.ValueInfoProto = Y,
    inputs: tuple[onnx.ValueInfoProto, ...] = (X,),
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, [output], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def kernels(source: onnx.ModelProto, level: Any = "disabled") -> list[Kernel]:
    return [each.kernel for each in lower(CheckedModel.from_proto(source), OnnxRuntime(level=level))]


# Operators without a kernel


def test_operators_that_the_runtime_defines_by_others_have_their_kernels() -> None:
    """ONNX Runtime puts the definition of HardSwish in its place, as nodes without names."""
    nodes, weights = [], []
    for after in (32, 16):
        weights.append(numpy_helper.from_array(np.ones((after, 16, 1, 1), np.float32), f"w{after}"))
        nodes.append(helper.make_node("Conv", ["x", f"w{after}"], [f"c{after}"], f"HardSigmoid_{after}"))
        nodes.append(helper.make_node("HardSwish", [f"c{after}"], [f"h{after}"]))
    x, y = helper.make_tensor_value_info("x", F, [1, 16, 6, 6]), helper.make_tensor_value_info("h32", F, None)
    source = model(nodes, weights, y, (x,))
    source.graph.output.append(helper.make_tensor_value_info("h16", F, None))
    found = {
        (each.kernel.op_type, each.value): each.kernel.operands[0].dims[1]
        for each in lower(CheckedModel.from_proto(source), RUNTIME)
        if each.kernel.op_type in ("HardSigmoid", "Mul") and each.kernel.operands[0]
    }
    assert found == {(name, f"h{size}"): size for name in ("HardSigmoid", "Mul") for size in (32, 16)}


def test_nodes_inside_a_loop_are_not_taken_for_such_operators() -> None:
    text = """
      <ir_version: 10, opset_import: ["" : 21]>
      g (float[1, 16, 6, 6] x, float[1, 16, 3, 3] z) => (float[1, 16, 6, 6] y, float[1, 16, 3, 3] v)
        <int64 count = {2}, bool go = {1}> {
        v = Loop(count, go, z) <body = inner (int64 i, bool c, float[1, 16, 3, 3] s) => (bool d, float[1, 16, 3, 3] t) {
          d = Identity(c)  r = HardSigmoid(s)  t = Mul(s, r)
        }>
        y = HardSwish(x)
      }
    """
    placed = lower(CheckedModel.from_proto(onnx.parser.parse_model(text)), RUNTIME)
    outside = [each.kernel for each in placed if each.kernel.op_type != "Loop"]
    assert outside and all(each.operands[0] and each.operands[0].dims[-1] == 6 for each in outside)


# Types of weights


@pytest.mark.parametrize("level", ["disabled", "all"])
def test_weights_that_numpy_has_no_type_for(level: str) -> None:
    values = np.arange(SIZE * SIZE, dtype=np.float32).reshape(SIZE, SIZE)
    weight = helper.make_tensor("w", S, [SIZE, SIZE], values.ravel().tolist())
    nodes = [helper.make_node("Cast", ["w"], ["f"], to=F), helper.make_node("MatMul", ["x", "f"], ["y"])]
    *casts, product = kernels(model(nodes, [weight]), level)
    assert product.op_type == "MatMul"
    for cast in casts:
        (operand,) = cast.operands
        assert operand is not None and operand.is_weight and operand.dtype == S and operand.nbytes == 2 * SIZE**2
    assert len(casts) == (level == "disabled")


def test_weights_of_four_bits() -> None:
    weight = helper.make_tensor("w", TensorProto.INT4, [SIZE, SIZE], [number % 8 for number in range(SIZE * SIZE)])
    scale = numpy_helper.from_array(np.array(0.5, np.float32), "s")
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["f"]), helper.make_node("MatMul", ["x", "f"], ["y"])]
    dequantising, _ = kernels(model(nodes, [weight, scale]))
    operand, factor = dequantising.operands
    assert operand is not None and operand.is_weight and operand.nbytes == SIZE**2 // 2
    assert factor is not None and factor.values == (0.5,)
    assert Kernel.of_signature(dequantising.signature) == dequantising


# What profiles do not show


SPLIT = helper.make_node("SplitToSequence", ["x"], ["s"], axis=0)
AT = helper.make_node("SequenceAt", ["s", "i"], ["y"])
INDEX = numpy_helper.from_array(np.array(1, np.int64), "i")
SEQUENCES = {
    "read": model([SPLIT, AT], [INDEX]),
    "made": model([SPLIT], [], helper.make_tensor_sequence_value_info("s", F, None)),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_are_refused(name: str) -> None:
    """Profiles leave them out, so that the next operands would be taken for them."""
    operator = {"read": "SequenceAt reads", "made": "SplitToSequence makes"}[name]
    with pytest.raises(ModelError, match=f"operator {operator} something else than tensors.*endtoend:") as error:
        kernels(SEQUENCES[name])
    assert "\n" not in str(error.value)


def test_an_input_that_is_a_sequence_is_refused() -> None:
    given = helper.make_tensor_sequence_value_info("s", F, [SIZE])
    with pytest.raises(ModelError, match="'s' cannot be made up"):
        kernels(model([AT], [INDEX], inputs=(given,)))


WITH_GRAPHS = {
    "If": """
<ir_version: 10, opset_import: ["" : 21]>
g (float[8, 8] x, bool c) => (float[8, 8] y) {
  u = Neg(x)
  y = If (c) <
    then_branch = t () => (float[8, 8] u1) { v = Neg(u) u1 = MatMul(v, w) },
    else_branch = e () => (float[8, 8] u2) {
      n = Not(c)
      u2 = If (n) <
        then_branch = tt () => (float[8, 8] u3) { v = MatMul(u, u) u3 = MatMul(v, w) },
        else_branch = ee () => (float[8, 8] u4) { u4 = Relu(x) }
      >
    }
  >
}
""",
    "Loop": """
<ir_version: 10, opset_import: ["" : 21]>
g (float[8, 8] x) => (float[8, 8] y, float[k, 8, 8] z) <int64 n = {3}, bool go = {1}> {
  a = MatMul(x, w)
  y, z = Loop (n, go, a) <body = l (int64 i, bool k, float[8, 8] s) => (bool kk, float[8, 8] r, float[8, 8] q) {
    kk = Identity(k) p = MatMul(s, a) r = Tanh(p) q = Mul(r, w)
  }>
}
""",
    "Scan": """
<ir_version: 10, opset_import: ["" : 21]>
g (float[64] h, float[5, 64] x) => (float[64] y, float[5, 64] o) {
  b = Neg(x)
  y, o = Scan <num_scan_inputs: int = 1, body = l (float[64] s, float[64] e) => (float[64] z, float[64] q) {
    z = Add(s, e) q = Tanh(z)
  }> (h, b)
}
""",
}
"""Models whose graphs read weights, computed values and inputs, and give results the same names."""


@pytest.mark.parametrize("level", ["disabled", "all"])
@pytest.mark.parametrize(("operator", "num_inputs", "num_captured"), [("If", 1, 4), ("Loop", 3, 2), ("Scan", 2, 0)])
def test_a_kernel_with_graphs_of_its_own_has_their_outer_values_as_operands(
    operator: str, num_inputs: int, num_captured: int, level: Any
) -> None:
    source = onnx.parser.parse_model(WITH_GRAPHS[operator])
    if num_captured:
        source.graph.initializer.append(numpy_helper.from_array(np.eye(8, dtype=np.float32), "w"))
    first, kernel = kernels(source, level)  # what runs inside is no kernel of its own
    assert first.op_type in ("Neg", "MatMul") and kernel.op_type == operator
    assert len(kernel.operands) == num_inputs + num_captured
    assert sum(each.is_weight for each in kernel.operands if each) == bool(num_captured)
    again = Kernel.of_signature(kernel.signature)
    assert again == kernel
    built, feeds = copies_model(again, 3, 2)
    results = create_session(built, "disabled").run(None, feeds)
    assert len(results) == 3 * sum(kernel.results)
    assert len(built.tensors) == 3 * sum(each.constant for each in kernel.operands if each), "each has its own weights"


def test_types_that_nobody_knows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lowering, "_DTYPES", {})
    with pytest.raises(ModelError, match=r"operator Relu reads or makes tensors of float.*endtoend:"):
        kernels(model([helper.make_node("Relu", ["x"], ["y"])], []))


# Devices


def test_sessions_are_those_in_which_graphs_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """They differ only in what shows their kernels. Without `enable_fallback=0` they might run on another device."""
    seen = []
    real = ort.InferenceSession

    def spy(data: bytes, sess_options: ort.SessionOptions, **others: Any) -> ort.InferenceSession:
        options = sess_options
        settings = [options.get_session_config_entry("session.force_spinning_stop"), options.intra_op_num_threads]
        seen.append((settings, options.graph_optimization_level, options.log_severity_level, others))
        return real(data, options, **others)

    monkeypatch.setattr(ort, "InferenceSession", spy)
    source = CheckedModel.from_proto(model([helper.make_node("Relu", ["x"], ["y"])], []))
    runtime = OnnxRuntime(threads=2, level="basic")
    runtime.open(source, {"x": np.zeros((SIZE, SIZE), np.float32)})
    lower(source, runtime)
    assert seen[0] == seen[1]
    assert seen[0][3]["enable_fallback"] == 0


@pytest.fixture
def built_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Imitates onnxruntime-gpu without CUDA, which lists the provider but leaves it out of every session."""
    providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(ort, "get_available_providers", lambda: providers)
    onnx_runtime.require_working.cache_clear()


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_device_that_does_not_start_makes_no_kernels(built_for_cuda: None) -> None:
    with pytest.raises(UnavailableError, match="'cuda' cannot be used"):
        lower(CheckedModel.from_proto(zoo.build("squeezenet1.1-tiny")), OnnxRuntime("cuda"))


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_kernels_of_another_device_are_not_taken_for_its_own(
    built_for_cuda: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_runtime, "require_working", lambda device: None)
    with pytest.raises(ModelError, match="cuda takes no part"):
        lower(CheckedModel.from_proto(zoo.build("squeezenet1.1-tiny")), OnnxRuntime("cuda"))


def test_a_model_that_fails_when_it_runs_is_one_error() -> None:
    """Here it fails at an index that its shapes do not rule out. It is run because a size depends on numbers."""
    indices = numpy_helper.from_array(np.full(70, SIZE + 1, np.int64), "i")
    nodes = [helper.make_node("Gather", ["x", "i"], ["z"]), helper.make_node("Compress", ["z", "c"], ["y"], axis=0)]
    chosen = helper.make_tensor_value_info("c", TensorProto.BOOL, [70])
    with pytest.raises(ModelError, match=r"cannot run the model: .*Gather") as error:
        kernels(model(nodes, [indices], inputs=(X, chosen)))
    assert "\n" not in str(error.value)


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place, disk = tmp_path / "memory", tmp_path / "disk"
    place.mkdir()
    disk.mkdir()
    monkeypatch.setattr(module, "_MEMORY", place)
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    remove_abandoned.cache_clear()
    return place


def test_it_is_gone_afterwards(memory: Path) -> None:
    with pytest.raises(ValueError, match="mine"), scratch_folder(1000) as folder:
        (folder / "weights").write_bytes(b"0" * 1000)
        assert folder.parent == memory
        raise ValueError("mine")
    assert not list(memory.iterdir())


def test_it_is_on_disk_where_memory_has_no_room(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**6, 10**6 - 5000, 5000))
    with scratch_folder(1000) as small, scratch_folder(2000) as large:
        assert small.parent == memory and large.parent == memory.parent / "disk"


def test_it_is_on_disk_where_nothing_is_in_memory(memory: Path) -> None:
    memory.rmdir()
    with scratch_folder(1000) as folder:
        assert folder.parent == memory.parent / "disk"


def _die_inside() -> None:
    with scratch_folder(1000) as folder:
        (folder / "weights").write_bytes(b"0" * 1000)
        os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_process_left_is_removed(memory: Path) -> None:
    killed = multiprocessing.get_context("fork").Process(target=_die_inside)
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    (left,) = memory.iterdir()
    others = [memory / "rlflow-kernels-old", memory / f"rlflow-kernels-{os.getppid()}-a", memory / "other-1-a"]
    for other in others:
        other.mkdir()
    with scratch_folder(1000) as folder:
        assert not left.exists() and folder.is_dir()
    assert sorted(memory.iterdir()) == sorted(others)


@pytest.mark.parametrize("name", ["bert-base-tiny", "nmt-tiny", "dalle-mini-tiny"])
def test_types_that_follow_from_the_model_are_those_of_a_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network = OnnxModel.load(zoo.build(name))
    state, rng = State(network.graph, RuleSet.default(), CostModel.roofline("xeon")), np.random.default_rng(0)
    ran: list[CheckedModel] = []
    feeds = module._feeds
    monkeypatch.setattr(module, "_feeds", lambda model: ran.append(model) or feeds(model))
    for _ in range(3):
        sketched = network.sketch(state.graph).model
        inferred = lower(sketched, RUNTIME)
        assert not ran, "nothing was run"
        with monkeypatch.context() as patch:
            patch.setattr(module, "_types_of_nodes", lambda *_: None)
            assert lower(sketched, RUNTIME) == inferred
        assert ran.pop() is sketched
        for _ in range(4):
            random_step(state, rng, 0.3)
