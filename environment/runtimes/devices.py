"""Devices of ONNX Runtime: which there are, and how to get the others."""

from __future__ import annotations

import contextlib
import io
from functools import cache

import onnxruntime as ort
from onnx import TensorProto, helper

from environment.runtimes.interface import UnavailableError
from taso_ext.errors import ModelError, did_you_mean, one_paragraph
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.session import create_session

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
NVIDIA = (CUDA, TENSORRT)

_COMPILING = ("tensorrt",)
"""Devices that make kernels of their own of whole parts of a graph: ONNX Runtime can neither show nor write them."""
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


def available_devices() -> list[str]:
    """Devices that this ONNX Runtime was built for, such as `cpu`, `cuda` and `tensorrt`."""
    return [_name(provider) for provider in ort.get_available_providers() if provider not in _REMOTE]


def kernel_devices() -> list[str]:
    """Those of `available_devices()` whose kernels ONNX Runtime shows, so that each can be timed."""
    return [device for device in available_devices() if device not in _COMPILING]


def require_kernels(device: str) -> None:
    """
    Raises:
      UnavailableError: a device whose kernels ONNX Runtime does not show.
    """
    if device in _COMPILING:
        raise UnavailableError(
            f"What {device} runs for a model cannot be priced kernel by kernel: it compiles whole parts of a graph, "
            f"and ONNX Runtime cannot show what into. Time whole graphs instead: --costs endtoend:{device}."
        )


def provider_of(device: str) -> str:
    """ONNX Runtime's name of a device.

    Raises:
      UnavailableError: this ONNX Runtime was not built for it.
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
    """Starts a device on a model of one operator: ONNX Runtime may be built for it, and lack its libraries.

    Raises:
      UnavailableError: ONNX Runtime was not built for it, or cannot start it.
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
    """Finds CUDA and cuDNN where pip puts them; returns what ONNX Runtime complains of, which it prints."""
    ort.set_default_logger_severity(_FATAL_SEVERITY)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        ort.preload_dlls()
    return one_paragraph(said.getvalue(), 150)


def _name(provider: str) -> str:
    return provider.removesuffix(_SUFFIX).lower()
