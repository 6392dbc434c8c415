"""What a model is run by when tools are compared: runtimes, and tools that rewrite a model before one runs it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType

import onnx

from environment.runtimes import OnnxRuntime, OpenVino, Runtime, UnavailableError
from experiments.runs.run import import_tensorflow
from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.session import LEVELS, Level

THREADS = 1
"""Of every runtime: only so do all do the same work in times that one clock can compare."""


@dataclass(frozen=True)
class Tool:
    """A tool that is installed.

    Attributes:
      label: its name, version and settings.
      runtime: that runs what it makes of a model.
      prepare: makes it; may raise ModelError.
    """

    label: str
    runtime: Runtime
    prepare: Callable[[CheckedModel], CheckedModel]


Maker = Callable[[], Tool]
"""Raises UnavailableError, which says how to install the tool, where it is missing."""


def _by_itself(make: Callable[[], Runtime]) -> Maker:
    def tool() -> Tool:
        runtime = make()
        return Tool(runtime.label, runtime, lambda model: model)

    return tool


def onnx_runtime(level: Level, device: str = "cpu") -> Maker:
    """ONNX Runtime with one of its levels of optimisation."""
    return _by_itself(lambda: OnnxRuntime(device, THREADS, level))


def _simplifier(device: str) -> Tool:
    runtime = OnnxRuntime(device, THREADS)
    return Tool(f"{simplifier_label()}, then {runtime.label}", runtime, simplified)


def _tensorflow(xla: bool) -> Maker:
    def make() -> Runtime:
        import_tensorflow()
        from experiments.baselines.tensorflow.runtime import TensorFlow

        return TensorFlow(xla=xla, threads=THREADS)

    return _by_itself(make)


ON_CPU: dict[str, Maker] = {
    "openvino": _by_itself(lambda: OpenVino(threads=THREADS)),
    "tf-grappler": _tensorflow(xla=False),
    "tf-xla": _tensorflow(xla=True),
}
"""Those that are made for one device here."""


def makers(device: str) -> dict[str, Maker]:
    """By the name of their column, the tools that run models on a device; on others than the CPU all but `ON_CPU`."""
    ours = {f"ort-{level}": onnx_runtime(level, device) for level in LEVELS}
    return {**ours, "onnxsim": partial(_simplifier, device), **(ON_CPU if device == "cpu" else {})}


def installed(wanted: Mapping[str, Maker]) -> tuple[dict[str, Tool], dict[str, str]]:
    """The tools that are here, and why the others are not and how to get them."""
    here, absent = {}, {}
    for name, make in wanted.items():
        try:
            here[name] = make()
        except UnavailableError as error:
            absent[name] = str(error)
    return here, absent


def simplifier_label() -> str:
    """Name and version, as tables call it.

    Raises:
      UnavailableError: it is not installed.
    """
    return f"onnxsim {_onnxsim().__version__.removeprefix('v')}"


def simplified(model: CheckedModel) -> CheckedModel:
    """The model as onnxsim rewrites it, with its default settings.

    Raises:
      ModelError: onnxsim cannot rewrite it.
      UnavailableError: it is not installed.
    """
    simplify = _onnxsim().simplify
    try:
        # The outputs are compared here anyway, and a proof for each small model takes time.
        found, _ = simplify(model.to_proto(), check_n=0, certify=False)
    except Exception as error:  # its passes raise whatever they like
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
