"""Settings under which prices are measured, and the names of this machine's processors.

psutil knows no processor's name, generation or vector instructions. This module therefore reads /proc/cpuinfo.
"""

from __future__ import annotations

import ctypes
import hashlib
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import onnxruntime as ort

from environment.runtimes import OnnxRuntime, UnavailableError
from environment.runtimes.interface import threads_text
from environment.runtimes.onnx_runtime import NVIDIA, provider_of
from taso_ext.onnx_io.session import Level

_DRIVER = "libcuda.so.1"
_LONGEST_NAME = 256
CPU_INFORMATION = Path("/proc/cpuinfo")
_VECTOR = ("sse", "ssse", "avx", "fma", "f16c", "amx", "asimd", "sve", "sme", "i8mm", "bf16", "neon")


@dataclass(frozen=True)
class Setting:
    """The conditions under which prices were measured; prices of different settings are never mixed.

    Attributes:
      device: `cpu`, `cuda`, ...
      processor: name of the processor, with details that tell it apart from others of that name.
      runtime, version: the runtime that ran the operators.
      threads: threads of one operator.
      level: level of the runtime's own optimisation, which decides the kernels of a graph.
    """

    device: str
    processor: str
    runtime: str
    version: str
    threads: int
    level: Level = "all"

    def __str__(self) -> str:
        settings = f"{threads_text(self.threads)}, optimisation {self.level}"
        return f"{self.device} ({self.processor}), {self.runtime} {self.version}, {settings}"


def setting_of(runtime: OnnxRuntime) -> Setting:
    """Returns the setting of a runtime on this machine.

    Raises:
      UnavailableError: the name of the device's processor cannot be found out.
    """
    name = processor(runtime.device)
    return Setting(runtime.device, name, "onnxruntime", ort.__version__, runtime.threads, runtime.level)


@cache
def processor(device: str) -> str:
    """Returns the processor of a device, such as `Intel(R) Xeon(R) Platinum 8481C, 6-143-8, simd 1f2e3d4c` or `NVIDIA
    H200`.

    Raises:
      UnavailableError: NVIDIA's driver is not here, or shows this process no GPU.
    """
    return _gpu() if provider_of(device) in NVIDIA else _cpu()


def _cpu() -> str:
    """Returns the processor, from /proc/cpuinfo if that exists.

    Virtual machines give processors of several generations one name. Family, model and stepping tell them apart, and so
    do the vector instructions that a guest may use. ONNX Runtime chooses its kernels by these instructions.
    """
    said = _said_of_cpu(CPU_INFORMATION)
    name = said.get("model name") or platform.processor() or platform.machine()
    parts = [name, "-".join(said[key] for key in ("cpu family", "model", "stepping") if key in said)]
    flags = (said.get("flags") or said.get("Features", "")).split()
    if vector := sorted(flag for flag in flags if flag.startswith(_VECTOR)):
        parts.append(f"simd {hashlib.sha256(' '.join(vector).encode()).hexdigest()[:8]}")
    return ", ".join(part for part in parts if part)


def _said_of_cpu(information: Path) -> dict[str, str]:
    """Returns the fields of the first processor in a file like /proc/cpuinfo; none if the file is missing."""
    first = information.read_text().partition("\n\n")[0] if information.is_file() else ""
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _gpu() -> str:
    """Returns the name of the first GPU that this process sees, which is the one that runtimes use.

    NVIDIA's driver is asked, because nvidia-smi may be missing and lists all GPUs, whatever CUDA_VISIBLE_DEVICES and
    CUDA_DEVICE_ORDER say.
    """
    device, name = ctypes.c_int(), ctypes.create_string_buffer(_LONGEST_NAME)
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError as error:
        raise UnavailableError(f"The name of the GPU cannot be had: NVIDIA's driver is not here ({error}).") from error
    status = (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(device), 0)
        or driver.cuDeviceGetName(name, _LONGEST_NAME, device)
    )
    if status:
        raise UnavailableError(
            f"The name of the GPU cannot be had: NVIDIA's driver shows this process none (error {status}). See "
            f"nvidia-smi for those that there are, and whether CUDA_VISIBLE_DEVICES hides them."
        )
    return name.value.decode()
