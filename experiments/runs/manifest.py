"""The manifest of a run: what is needed to repeat a command elsewhere and to explain a different result there."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from environment.costs.prices.settings import processor
from environment.costs.roofline import ROOFLINE_VERSION

PACKAGES = (
    *("rlflow", "tensorflow", "graph-nets", "dm-sonnet", "tensorflow-probability"),
    *("onnx", "onnxscript", "onnxruntime", "onnxruntime-gpu", "numpy", "gymnasium"),
)
COMPARING = ("onnx", "onnxruntime", "onnxruntime-gpu", "numpy")
"""Packages that compute the outputs of models which are compared."""


def make_manifest(arguments: Sequence[str], model: str, seed: int) -> dict[str, Any]:
    """Returns the facts that are needed to repeat a command elsewhere and to explain a different result there."""
    return {
        "argv": list(arguments),
        "model": model,
        "seed": seed,
        "python": platform.python_version(),
        "versions": {package: _version(package) for package in PACKAGES},
        "roofline": ROOFLINE_VERSION,
        "cpu": _cpu_name(),
        "processor": processor("cpu"),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "git": _commit(),
    }


def compares_as_here(manifest: Mapping[str, Any]) -> bool:
    """Returns whether a command has compared outputs with the packages and on the processor that are here.

    Of a manifest of an older version, nobody knows.
    """
    versions = manifest["versions"]
    return manifest.get("processor") == processor("cpu") and all(
        versions.get(package) == _version(package) for package in COMPARING
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _commit() -> str | None:
    """Returns the commit of the source tree, with "+changes" if files differ from it; None outside a clone."""
    source = Path(__file__).parent
    git = ["git", "-C", str(source)]
    try:
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changes = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}+changes" if changes.strip() else commit
