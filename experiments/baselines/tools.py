"""Tools that are compared by running a model: runtimes, and tools that rewrite a model before a runtime runs it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType

import onnx

from environment.runtimes import OnnxRuntime, OpenVino, Runtime, UnavailableError
from environment.runtimes.onnx_runtime import require_working
from experiments.runs.run import import_tensorflow
from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.session import LEVELS, Level

THREADS = 1
"""Number of threads of every runtime: with one each, all do the same work in times that one clock can compare."""


@dataclass(frozen=True)
class Tool:
    """A tool that is installed.

    Attributes:
      label: name, version and settings of the tool.
      runtime: the runtime that runs the prepared model.
      prepare: rewrites a model for the runtime, or returns it as it is; may raise ModelError.
    """

    label: str
    runtime: Runtime
    prepare: Callable[[CheckedModel], CheckedModel]


Maker = Callable[[], Tool]
"""Makes a tool. Raises UnavailableError if it is not installed; the message says how to install it."""


def _by_itself(make: Callable[[], Runtime]) -> Maker:
    def tool() -> Tool:
        runtime = make()
        return Tool(runtime.label, runtime, lambda model: model)

    return tool


def onnx_runtime(level: Level, device: str = "cpu") -> Maker:
    """Returns the maker of ONNX Runtime with one of its optimisation levels."""
    return _by_itself(lambda: OnnxRuntime(device, THREADS, level))


def _simplifier(device: str) -> Tool:
    runtime = OnnxRuntime(device, THREADS)
    return Tool(f"{simplifier_label()}, then {runtime.label}", runtime, simplified)


def _tensorflow(xla: bool) -> Maker:
    def make() -> Runtime:
        try:
            import_tensorflow()
        except ImportError as error:
            raise UnavailableError(
                f"TensorFlow is not here ({one_paragraph(error)}). Install it with `pip install tensorflow`."
            ) from error
        from experiments.baselines.tensorflow.runtime import TensorFlow

        return TensorFlow(xla=xla, threads=THREADS)

    return _by_itself(make)


ON_CPU: dict[str, Maker] = {
    "openvino": _by_itself(lambda: OpenVino(threads=THREADS)),
    "tf-grappler": _tensorflow(xla=False),
    "tf-xla": _tensorflow(xla=True),
}
"""Makers of the tools that are set up here for the CPU only, by the names of their columns."""


def _tensorrt() -> Tool:
    require_working("tensorrt")  # ONNX Runtime may be built for it where its library is missing
    return onnx_runtime("all", "tensorrt")()


ON_DEVICE: dict[str, dict[str, Maker]] = {"cpu": ON_CPU, "cuda": {"tensorrt": _tensorrt}}
"""Makers of the tools that only some devices have, by device."""


def makers(device: str) -> dict[str, Maker]:
    """Returns the makers of the tools for a device by the names of their columns."""
    ours = {f"ort-{level}": onnx_runtime(level, device) for level in LEVELS}
    return {**ours, "onnxsim": partial(_simplifier, device), **ON_DEVICE.get(device, {})}


def installed(wanted: Mapping[str, Maker]) -> tuple[dict[str, Tool], dict[str, str]]:
    """Returns the installed tools, and for each other one a message that says why it is missing and how to get it."""
    here, absent = {}, {}
    for name, make in wanted.items():
        try:
            here[name] = make()
        except UnavailableError as error:
            absent[name] = str(error)
    return here, absent


def simplifier_label() -> str:
    """Returns name and version of onnxsim, as tables call it.

    Raises:
      UnavailableError: onnxsim is not installed.
    """
    return f"onnxsim {_onnxsim().__version__.removeprefix('v')}"


def simplified(model: CheckedModel) -> CheckedModel:
    """Returns a model as onnxsim rewrites it, with the default settings of onnxsim except that it verifies nothing.

    Raises:
      ModelError: onnxsim cannot rewrite the model.
      UnavailableError: onnxsim is not installed.
    """
    simplify = _onnxsim().simplify
    try:
        # The comparison of tools checks the outputs anyway, and onnxsim's own checks take time.
        found, _ = simplify(model.to_proto(), check_n=0, certify=False)
    except Exception as error:  # its passes may raise anything
        raise ModelError(f"onnxsim cannot simplify the model: {one_paragraph(error)}") from error
    assert isinstance(found, onnx.ModelProto)
    return CheckedModel.from_proto(found)


def _onnxsim() -> ModuleType:
    try:
        return importlib.import_module("onnxsim")
    except ImportError as error:
        raise UnavailableError(
            f"onnxsim is not here ({one_paragraph(error)}). Install it with `pip install onnxsim`."
        ) from error
