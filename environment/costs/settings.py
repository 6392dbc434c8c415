"""Where prices are measured: this machine's devices, as a database of prices tells them apart."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from pathlib import Path

import onnxruntime as ort

from environment.costs.price_database import Setting
from environment.runtimes import OnnxRuntime


def setting_of(runtime: OnnxRuntime) -> Setting:
    """Of a runtime on this machine."""
    return Setting(runtime.device, processor(runtime.device), "onnxruntime", ort.__version__, runtime.threads)


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
