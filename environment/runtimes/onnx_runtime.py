"""ONNX Runtime, for which results are made, and its devices: those that are here, and how to install the others."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import get_args

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from environment.inputs import Feeds
from environment.measurement.effort import THREAD_CPU, WALL, Clock
from environment.runtimes.interface import UnavailableError, require_threads, threads_text
from taso_ext.errors import ModelError, did_you_mean, one_paragraph
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.session import SHARED_FROM_BYTES, Level, create_session, open_session, session_options

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
NVIDIA = (CUDA, TENSORRT)

_COMPILING = ("tensorrt",)
"""Devices that compile whole parts of a graph into kernels which ONNX Runtime can neither show nor write."""
_SUFFIX = "ExecutionProvider"
_REMOTE = ("AzureExecutionProvider",)  # sends the model to a web service
_FATAL_SEVERITY = 4  # errors arrive as exceptions
_CUDA_STEPS = (
    "it needs an NVIDIA driver (see nvidia-smi), CUDA 13 and cuDNN 9: run `pip uninstall onnxruntime`, then "
    "`pip install 'onnxruntime-gpu[cuda,cudnn]'`"
)
_INSTALLATION = {
    "cuda": f"To install cuda: {_CUDA_STEPS}.",
    "tensorrt": f"To install tensorrt: {_CUDA_STEPS} and `pip install tensorrt`.",
}
_ALONGSIDE = {CPU: (CPU,), TENSORRT: (TENSORRT, CUDA, CPU)}
"""All providers of a session by the requested one; the others run the nodes that it does not support."""
_PARKED_THREADS = {"session.force_spinning_stop": "1"}
"""Stops waiting threads from spinning, because spinning halves the speed of the session that is measured next."""
_RECORDED_NODES = {"session.record_ep_graph_assignment_info": "1"}


def available_devices() -> list[str]:
    """Returns the devices that this ONNX Runtime was built for, such as `cpu`, `cuda` and `tensorrt`."""
    return [_name(provider) for provider in ort.get_available_providers() if provider not in _REMOTE]


def kernel_devices() -> list[str]:
    """Returns those of `available_devices()` whose kernels ONNX Runtime shows, so that each can be timed."""
    return [device for device in available_devices() if device not in _COMPILING]


def best_device() -> str:
    """Returns the device on which models run fastest here: the first that works, in ONNX Runtime's order of preference.

    Raises:
      UnavailableError: no device works.
    """
    *others, last = available_devices()
    for device in others:
        with contextlib.suppress(UnavailableError):
            require_working(device)
            return device
    require_working(last)
    return last


def require_kernels(device: str) -> None:
    """Checks that ONNX Runtime shows the kernels of a device.

    Raises:
      UnavailableError: it does not.
    """
    if device in _COMPILING:
        raise UnavailableError(
            f"What {device} runs for a model cannot be priced kernel by kernel: it compiles whole parts of a graph, "
            f"and ONNX Runtime cannot show what into. Time whole graphs instead: --costs endtoend:{device}."
        )


def provider_of(device: str) -> str:
    """Returns ONNX Runtime's name of a device.

    Raises:
      UnavailableError: this ONNX Runtime was not built for the device.
    """
    known = available_devices()
    if device not in known:
        hint = "" if device in _INSTALLATION else did_you_mean(device, [*known, *_INSTALLATION])
        raise UnavailableError(
            f"device '{device}' is not available{hint}: ONNX Runtime {ort.__version__} has {', '.join(known)} here. "
            f"Name one of these with --device. {_INSTALLATION.get(device, '')}".rstrip()
        )
    return next(provider for provider in ort.get_available_providers() if _name(provider) == device)


@cache
def require_working(device: str) -> None:
    """Checks that a device works, on a model of one operator: ONNX Runtime may be built for it but lack its libraries.

    Raises:
      UnavailableError: ONNX Runtime was not built for the device, or cannot start it.
    """
    provider = provider_of(device)
    complaints = _load_nvidia_libraries() if provider in NVIDIA else ""
    try:
        works = provider in create_session(_one_operator(), "disabled", providers=[provider]).get_providers()
    except ModelError as error:
        works, complaints = False, complaints or str(error)
    if not works:
        others = ", ".join(other for other in available_devices() if other != device)
        raise UnavailableError(
            f"device '{device}' cannot be used: ONNX Runtime {ort.__version__} was built for it, but cannot start it "
            f"here{f' ({complaints})' if complaints else ''}. {_INSTALLATION.get(device, '')} Or name another with "
            f"--device: {others}."
        )


def _one_operator() -> CheckedModel:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "probe", values[:1], values[1:])
    return CheckedModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8), {})


def _load_nvidia_libraries() -> str:
    """Loads CUDA and cuDNN from where pip puts them; returns the complaints that ONNX Runtime prints meanwhile."""
    ort.set_default_logger_severity(_FATAL_SEVERITY)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        ort.preload_dlls()
    return one_paragraph(said.getvalue(), 150)


def _name(provider: str) -> str:
    return provider.removesuffix(_SUFFIX).lower()


@dataclass(frozen=True)
class OnnxRuntime:
    """ONNX Runtime with one device, number of threads and level of optimisation.

    Attributes:
      device: one of `available_devices()`.
      threads: number of threads of one operator; operators run one after the other.
      level: level of graph optimisation.
    Raises:
      UnavailableError: the device is not available.
      ValueError: there are no threads, or the level is unknown.
    """

    device: str = "cpu"
    threads: int = 1
    level: Level = "all"

    def __post_init__(self) -> None:
        provider_of(self.device)
        require_threads(self.threads)
        if self.level not in get_args(Level):
            known = get_args(Level)
            raise ValueError(
                f"'{self.level}' is no level of ONNX Runtime's optimisation{did_you_mean(self.level, known)}; expected "
                f"one of {', '.join(known)}."
            )

    @property
    def label(self) -> str:
        settings = f"{self.device}, {threads_text(self.threads)}, optimisation {self.level}"
        return f"ONNX Runtime {ort.__version__}, {settings}"

    @property
    def clock(self) -> Clock:
        """The calling thread's CPU time if no other thread works (one thread on a CPU), else the wall clock."""
        return THREAD_CPU if self.device == "cpu" and self.threads == 1 else WALL

    @property
    def providers(self) -> tuple[str, ...]:
        """ONNX Runtime's names of the providers that may run operators, the preferred one first."""
        provider = provider_of(self.device)
        return _ALONGSIDE.get(provider, (provider, CPU))

    def open(self, model: CheckedModel | Path, feeds: Feeds) -> OnnxRuntimeSession:
        place = "cuda" if provider_of(self.device) in NVIDIA else "cpu"
        return OnnxRuntimeSession(self.session(model, self.options()), feeds, place)

    def options(self) -> ort.SessionOptions:
        """Returns the options of a session with this device, number of threads and level."""
        settings = dict(_PARKED_THREADS) if self.threads > 1 else {}
        if provider_of(self.device) != CPU:
            settings |= _RECORDED_NODES
        return session_options(self.level, threads=self.threads, settings=settings)

    def session(
        self, model: CheckedModel | Path, options: ort.SessionOptions, *, shared_from_bytes: int = SHARED_FROM_BYTES
    ) -> ort.InferenceSession:
        """Opens a session in which the device takes part.

        Args:
          options: a result of `options()` for this session alone; further options may be set in it.
          shared_from_bytes: see `open_session`.
        Raises:
          ModelError, UnavailableError: see `open`.
        """
        provider = provider_of(self.device)
        if provider != CPU:
            require_working(self.device)
        session = open_session(model, options, self.providers, shared_from_bytes=shared_from_bytes)
        if provider != CPU:
            self._require_part(session, provider)
        return session

    def _require_part(self, session: ort.InferenceSession, provider: str) -> None:
        """Raises ModelError if other providers do all the work of a session, which ONNX Runtime would not report."""
        parts = session.get_provider_graph_assignment_info()
        runners = {part.ep_name for part in parts}
        if provider in runners or not runners:
            return
        operators = ", ".join(sorted({node.op_type for part in parts for node in part.get_nodes()}))
        raise ModelError(
            f"{self.device} takes no part in running this model: ONNX Runtime gave all its operators "
            f"({one_paragraph(operators, 200)}) to {', '.join(sorted(runners))}. Choose another device."
        )


class OnnxRuntimeSession:
    """A session with bound inputs and outputs, which saves copies; strings and sequences cannot be bound."""

    def __init__(self, session: ort.InferenceSession, feeds: Feeds, place: str) -> None:
        self._session, self._feeds = session, feeds
        self._found: list[object] = []
        values = (*session.get_inputs(), *session.get_outputs())
        bindable = all(value.type.startswith("tensor(") and "string" not in value.type for value in values)
        self._binding = _bind(session, feeds, place) if bindable else None

    def run(self) -> None:
        try:
            if self._binding is None:
                self._found = self._session.run(None, self._feeds)
            else:
                self._session.run_with_iobinding(self._binding)  # waits for the device
        except Exception as error:  # ONNX Runtime's exceptions share no public base class
            raise ModelError(f"ONNX Runtime {ort.__version__} cannot run the model: {one_paragraph(error)}") from error

    def outputs(self) -> list[np.ndarray]:
        found = self._found if self._binding is None else self._binding.copy_outputs_to_cpu()
        return [np.asarray(value) for value in found]


def _bind(session: ort.InferenceSession, feeds: Feeds, place: str) -> ort.IOBinding:
    known = [value.name for value in session.get_inputs()]
    for name in feeds:
        if name not in known:
            raise ModelError(
                f"the model has no input '{name}'{did_you_mean(name, known)}; it has {', '.join(known) or 'none'}. "
                f"Models that are compared have to have the same inputs."
            )
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array, place, 0))
    for output in session.get_outputs():
        binding.bind_output(output.name, place)
    return binding
