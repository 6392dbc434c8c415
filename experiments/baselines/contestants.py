"""What a model is run by when tools are compared: runtimes, and tools that rewrite a model before one runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx

from environment.runtimes import Model, OnnxRuntime, OpenVino, Runtime, UnavailableError
from experiments.baselines.simplifier import simplified, simplifier_label
from experiments.tensorflow_start import import_tensorflow
from taso_ext.onnx_session import Level

THREADS = 1
"""Of every runtime: only so do all do the same work in times that one clock can compare."""


@dataclass(frozen=True)
class Contestant:
    """A tool that is installed.

    Attributes:
      label: its name, version and settings.
      runtime: that runs what it makes of a model.
      prepare: makes it; may raise ModelError.
    """

    label: str
    runtime: Runtime
    prepare: Callable[[onnx.ModelProto], Model]


Maker = Callable[[], Contestant]
"""Raises UnavailableError, which says how to install the tool, where it is missing."""


def _by_itself(make: Callable[[], Runtime]) -> Maker:
    def contestant() -> Contestant:
        runtime = make()
        return Contestant(runtime.label, runtime, lambda model: model)

    return contestant


def onnx_runtime(level: Level) -> Maker:
    """ONNX Runtime with one of its levels of optimisation."""
    return _by_itself(lambda: OnnxRuntime(threads=THREADS, level=level))


def _simplifier() -> Contestant:
    runtime = OnnxRuntime(threads=THREADS)
    return Contestant(f"{simplifier_label()}, then {runtime.label}", runtime, simplified)


def _tensorflow(xla: bool) -> Maker:
    def make() -> Runtime:
        import_tensorflow()
        from experiments.baselines.tensorflow_runtime import TensorFlow

        return TensorFlow(xla=xla, threads=THREADS)

    return _by_itself(make)


MAKERS: dict[str, Maker] = {
    "ort-disabled": onnx_runtime("disabled"),
    "ort-basic": onnx_runtime("basic"),
    "ort-extended": onnx_runtime("extended"),
    "ort-all": onnx_runtime("all"),
    "onnxsim": _simplifier,
    "openvino": _by_itself(lambda: OpenVino(threads=THREADS)),
    "tf-grappler": _tensorflow(xla=False),
    "tf-xla": _tensorflow(xla=True),
}
"""By the name of their column."""


def installed(makers: Mapping[str, Maker]) -> tuple[dict[str, Contestant], dict[str, str]]:
    """The tools that are here, and why the others are not and how to get them."""
    here, absent = {}, {}
    for name, make in makers.items():
        try:
            here[name] = make()
        except UnavailableError as error:
            absent[name] = str(error)
    return here, absent
