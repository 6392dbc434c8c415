"""OpenVINO on CPUs, an optional extra, in single precision; its own default is half precision if the CPU has that."""

from __future__ import annotations

import importlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from environment.inputs import Feeds
from environment.measurement.effort import THREAD_CPU, WALL, Clock
from environment.runtimes.interface import UnavailableError, require_threads, threads_text
from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.model_file import write_model


@dataclass(frozen=True)
class OpenVino:
    """OpenVINO's CPU device.

    Attributes:
      threads: number of threads of one inference.
    Raises:
      UnavailableError: OpenVINO is not installed.
      ValueError: there are no threads.
    """

    threads: int = 1

    def __post_init__(self) -> None:
        require_threads(self.threads)
        _openvino()

    @property
    def label(self) -> str:
        version = _openvino().__version__.partition("-")[0]
        return f"OpenVINO {version}, cpu, {threads_text(self.threads)}, float32"

    @property
    def clock(self) -> Clock:
        """The calling thread's CPU time if there is one thread, else the wall clock.

        On the zoo's graphs, no thread but the calling one uses time then.
        """
        return THREAD_CPU if self.threads == 1 else WALL

    def open(self, model: CheckedModel | Path, feeds: Feeds) -> OpenVinoSession:
        settings = {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": self.threads,
            "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False,  # it would also pin whatever else is measured in this thread
        }
        try:
            with tempfile.TemporaryDirectory() as directory:  # a file has no limit of 2 GB; OpenVINO maps its weights
                path = model if isinstance(model, Path) else Path(directory) / "model.onnx"
                if not isinstance(model, Path):
                    write_model(model, path)
                compiled = _openvino().Core().compile_model(_read(path), "CPU", settings)
            return OpenVinoSession(compiled, feeds)
        except Exception as error:  # the exceptions of its frontends share no public base class
            raise ModelError(f"{self.label} cannot load the model: {one_paragraph(error)}") from error


class OpenVinoSession:
    """A compiled model with its inputs in place."""

    def __init__(self, compiled: Any, feeds: Feeds) -> None:
        self._request = compiled.create_infer_request()
        for name, array in feeds.items():
            self._request.set_tensor(name, _openvino().Tensor(np.ascontiguousarray(array)))
        self._num_outputs = len(compiled.outputs)

    def run(self) -> None:
        try:
            self._request.infer()
        except RuntimeError as error:
            raise ModelError(f"OpenVINO cannot run the model: {one_paragraph(error)}") from error

    def outputs(self) -> list[np.ndarray]:
        return [self._request.get_output_tensor(i).data.copy() for i in range(self._num_outputs)]


def _read(path: Path) -> Any:
    """Returns the model of an ONNX file. Its first bytes alone do not always tell OpenVINO the format."""
    frontend = importlib.import_module("openvino.frontend").FrontEndManager().load_by_framework("onnx")
    return frontend.convert(frontend.load(str(path)))


def _openvino() -> ModuleType:
    try:
        return importlib.import_module("openvino")
    except ImportError as error:
        raise UnavailableError(
            f"The runtime OpenVINO is not here ({one_paragraph(error)}). Install it with `pip install openvino`, or "
            f"measure with ONNX Runtime, which is."
        ) from error
