"""Every runtime computes what ONNX Runtime does without optimisation, and says what it cannot run and why."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from environment import zoo
from environment.inputs import input_specs, random_feeds
from environment.measurement.effort import THREAD_CPU, WALL
from environment.runtimes import (
    OnnxRuntime,
    OpenVino,
    Runtime,
    UnavailableError,
    available_devices,
    onnx_runtime,
    openvino_runtime,
)
from environment.verification import Scale, difference, spread_of
from taso_ext.errors import ModelError
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.model_file import write_model
from taso_ext.onnx_io.session import LEVELS

TINY = [name for name in zoo.names() if name.endswith("-tiny")]
TOLERANCE = 1e-4  # of an output's spread, in float32


def openvino(threads: int = 1) -> Runtime:
    pytest.importorskip("openvino", reason="OpenVINO is not installed (pip install openvino)")
    return OpenVino(threads)


RUNTIMES = {
    **{f"onnxruntime-{level}": lambda level=level: OnnxRuntime(level=level) for level in LEVELS},
    "onnxruntime-2-threads": lambda: OnnxRuntime(threads=2),
    "openvino": openvino,
    "openvino-2-threads": lambda: openvino(2),
}


@pytest.fixture(params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> Runtime:
    return RUNTIMES[request.param]()  # type: ignore[no-any-return]


def feeds_of(model: CheckedModel, seed: int = 0) -> dict[str, np.ndarray]:
    return random_feeds(input_specs(model), np.random.default_rng(seed))


def results(runtime: Runtime, model: CheckedModel | Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = runtime.open(model, feeds)
    session.run()
    first = session.outputs()
    session.run()
    assert all(np.array_equal(one, other) for one, other in zip(first, session.outputs(), strict=True))
    return first


@pytest.mark.parametrize("name", ["squeezenet1.1-tiny", "bert-base-tiny", "nasnet-a-tiny", "nasrnn-tiny"])
def test_runtimes_agree(runtime: Runtime, name: str) -> None:
    model = CheckedModel.from_proto(zoo.build(name))
    feeds = feeds_of(model)
    expected = results(OnnxRuntime(level="disabled"), model, feeds)
    found = results(runtime, model, feeds)
    assert len(found) == len(expected)
    for one, other in zip(expected, found, strict=True):
        assert one.dtype == other.dtype
        assert difference(one, other, Scale(spread_of((one,)), TOLERANCE)) <= TOLERANCE


def test_runtimes_are_values_that_say_what_they_are(runtime: Runtime) -> None:
    """They are sent to other processes, and tables print their labels."""
    copy = pickle.loads(pickle.dumps(runtime))
    assert copy == runtime and copy.label == runtime.label
    assert ("2 threads" in runtime.label) != ("1 thread," in runtime.label)
    assert runtime.clock is (WALL if "2 threads" in runtime.label else THREAD_CPU)


def test_labels_tell_all_runtimes_apart() -> None:
    labels = [RUNTIMES[name]().label for name in RUNTIMES if name.startswith("onnxruntime")]
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("wrong", [{"threads": 0}, {"level": "allx"}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"at least 1 thread|did you mean 'all'"):
        OnnxRuntime(**wrong)  # type: ignore[arg-type]


def test_levels_reach_onnx_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = ort.InferenceSession

    def spy(data: bytes, sess_options: ort.SessionOptions, **others: object) -> ort.InferenceSession:
        options = sess_options
        seen.append((options.graph_optimization_level, options.intra_op_num_threads, options.inter_op_num_threads))
        return real(data, options, **others)

    monkeypatch.setattr(ort, "InferenceSession", spy)
    model = CheckedModel.from_proto(zoo.build("squeezenet1.1-tiny"))
    for threads, (level, value) in enumerate(LEVELS.items(), 1):
        OnnxRuntime(threads=threads, level=level).open(model, feeds_of(model))
        assert seen[-1] == (value, threads, 1)


def test_models_of_strings_run() -> None:
    """Strings cannot be bound to a session."""
    values = [helper.make_tensor_value_info(name, TensorProto.STRING, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "strings", values[:1], values[1:])
    model = CheckedModel.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))
    words = np.array(["a", "b"], dtype=object)
    assert results(OnnxRuntime(), model, {"x": words})[0].tolist() == ["a", "b"]


def test_large_weights_reach_the_runtime(runtime: Runtime) -> None:
    """ONNX Runtime gets them as arrays, which have to live as long as it reads them."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((256, 256), np.float32) / 16 for _ in range(40)]  # 10 MiB
    nodes = [helper.make_node("MatMul", [f"v{i}", f"w{i}"], [f"v{i + 1}"]) for i in range(len(weights))]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 256]) for name in ("v0", f"v{len(weights)}")]
    constants = [numpy_helper.from_array(weight, f"w{i}") for i, weight in enumerate(weights)]
    graph = helper.make_graph(nodes, "chain", values[:1], values[1:], constants)
    model = CheckedModel.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))
    x = rng.standard_normal((3, 256), np.float32)
    expected = np.linalg.multi_dot([each.astype(np.float64) for each in (x, *weights)]).astype(np.float32)
    (found,) = results(runtime, model, {"v0": x})
    assert difference(expected, found, Scale(spread_of((expected,)), TOLERANCE)) <= TOLERANCE


def test_models_in_files_run_as_models_in_memory_do(runtime: Runtime, tmp_path: Path) -> None:
    model = CheckedModel.from_proto(zoo.build("squeezenet1.1-tiny"))
    write_model(model, tmp_path / "m.onnx")
    feeds = feeds_of(model)
    for one, other in zip(results(runtime, model, feeds), results(runtime, tmp_path / "m.onnx", feeds), strict=True):
        assert np.array_equal(one, other)


# Devices that are not there


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("cppu", "did you mean 'cpu'"),
        ("cuda", "pip install 'onnxruntime-gpu"),
        ("tensorrt", "pip install tensorrt"),
        ("abacus", "Name one of these"),
    ],
)
def test_a_device_that_is_not_there_is_one_clear_paragraph(device: str, said: str) -> None:
    if device in available_devices():
        pytest.skip(f"this machine has {device}")
    with pytest.raises(UnavailableError, match=f"'{device}' is not available.*has .*cpu.* here") as error:
        OnnxRuntime(device)
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.fixture
def built_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Imitates onnxruntime-gpu without CUDA, which lists the provider but leaves it out of every session."""
    providers = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(ort, "get_available_providers", lambda: providers)
    onnx_runtime.require_working.cache_clear()


@pytest.mark.filterwarnings("ignore:Specified provider")
@pytest.mark.parametrize("device", ["cuda", "tensorrt"])
def test_a_device_that_does_not_start_is_no_cpu(built_for_cuda: None, device: str) -> None:
    model = CheckedModel.from_proto(zoo.build("squeezenet1.1-tiny"))
    runtime = OnnxRuntime(device)
    assert device in runtime.label and runtime.clock is WALL
    with pytest.raises(UnavailableError, match=f"'{device}' cannot be used: .*cannot start it.*cuDNN") as error:
        runtime.open(model, feeds_of(model))
    assert "\n" not in str(error.value) and "--device: " in str(error.value)


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_device_that_gets_no_operator_takes_no_part(built_for_cuda: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_runtime, "require_working", lambda device: None)
    model = CheckedModel.from_proto(zoo.build("squeezenet1.1-tiny"))
    with pytest.raises(ModelError, match=r"cuda takes no part .*Conv.* to CPUExecutionProvider"):
        OnnxRuntime("cuda").open(model, feeds_of(model))


def test_a_missing_library_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(openvino_runtime.importlib, "import_module", fail)
    with pytest.raises(UnavailableError, match=r"OpenVINO is not here.*pip install openvino"):
        OpenVino()


# Models that a runtime cannot run


def one_node(node: onnx.NodeProto, inputs: dict[str, tuple[int, list[int]]], domain: str = "") -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()]
    output = helper.make_tensor_value_info("y", next(iter(inputs.values()))[0], None)
    graph = helper.make_graph([node], "one-node", values, [output])
    opsets = [helper.make_opsetid("", 18), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return CheckedModel.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=10))


F, D, L = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64
BROKEN = {
    "unknown": one_node(helper.make_node("Foo", ["x"], ["y"], name="foo_7"), {"x": (F, [2])}),
    "foreign": one_node(helper.make_node("Foo", ["x"], ["y"], domain="my.domain"), {"x": (F, [2])}, "my.domain"),
    "type": one_node(
        helper.make_node("Conv", ["x", "w"], ["y"], name="conv_7"), {"x": (D, [1, 1, 4, 4]), "w": (D, [1, 1, 3, 3])}
    ),
    "shapes": one_node(
        helper.make_node("MatMul", ["x", "w"], ["y"], name="mm_7"), {"x": (F, [2, 3]), "w": (F, [2, 3])}
    ),
    "values": one_node(helper.make_node("Gather", ["x", "i"], ["y"], name="gather_7"), {"x": (F, [2]), "i": (L, [1])}),
}
NAMES = {"unknown": "Foo", "foreign": "Foo", "type": "Conv", "shapes": "MatMul|mm_7", "values": "Gather.*gather_7"}


@pytest.mark.parametrize("case", BROKEN)
def test_onnx_runtime_names_the_operator_that_it_cannot_run(case: str) -> None:
    model = BROKEN[case]
    kinds = {F: np.float32, D: np.float64, L: np.int64}
    feeds = {
        value.name: np.full([dim.dim_value for dim in tensor.shape.dim], 9, kinds[tensor.elem_type])
        for value in model.skeleton.graph.input
        if (tensor := value.type.tensor_type)
    }
    with pytest.raises(ModelError, match=NAMES[case]) as error:
        OnnxRuntime().open(model, feeds).run()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("feeds", [{}, {"x": np.zeros(2, np.float32), "xx": np.zeros(2, np.float32)}])
def test_inputs_that_do_not_fit_are_named(feeds: dict[str, np.ndarray]) -> None:
    """An input too many is found when a session is made, a missing one when it runs."""
    model = one_node(helper.make_node("Relu", ["x"], ["y"], name="relu_7"), {"x": (F, [2])})
    with pytest.raises(ModelError, match="no input 'xx'.*it has x" if feeds else "relu_7|Relu") as error:
        OnnxRuntime().open(model, feeds).run()
    assert "\n" not in str(error.value)


def test_openvino_names_the_operator_that_it_cannot_run() -> None:
    with pytest.raises(ModelError, match="Foo"):
        openvino().open(BROKEN["foreign"], {"x": np.zeros(2, np.float32)})
