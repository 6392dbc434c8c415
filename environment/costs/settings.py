"""Where prices are measured: this machine's devices, as a database of prices tells them apart."""

from __future__ import annotations

import platform
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import onnxruntime as ort

from environment.runtimes import OnnxRuntime
from environment.runtimes.threads import threads_text
from taso_ext.onnx_session import Level


@dataclass(frozen=True)
class Setting:
    """Where prices were measured; those of different settings are never mixed.

    Attributes:
      device: `cpu`, `cuda`, ...
      processor: its name, as the system tells it.
      runtime, version: what ran the operators.
      threads: how many of them each operator had.
      level: of the runtime's own optimisation, which decides what kernels it makes of a graph.
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
    """Of a runtime on this machine."""
    name = processor(runtime.device)
    return Setting(runtime.device, name, "onnxruntime", ort.__version__, runtime.threads, runtime.level)


@cache
def processor(device: str) -> str:
    """The name of what a device runs on, such as `Intel(R) Xeon(R) Platinum 8481C` or `NVIDIA H200`."""
    return _cpu() if device == "cpu" else _gpu()


def _cpu() -> str:
    """From /proc/cpuinfo, which says more than `platform.processor()` where it is there."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.is_file() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(named), "") or platform.processor() or platform.machine()


def _gpu() -> str:
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    names = subprocess.run(query, capture_output=True, text=True, check=False).stdout.splitlines()
    return names[0].strip() if names else "unknown GPU"
