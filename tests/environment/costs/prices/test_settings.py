"""Settings tell prices of different machines apart: the processor's name, and the level of optimisation."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime as ort
import pytest

from environment.costs.prices import settings
from environment.costs.prices.settings import Setting, processor, setting_of
from environment.runtimes import OnnxRuntime, UnavailableError
from taso_ext.onnx_io.session import LEVELS


@dataclass
class FakeDriver:
    """A stand-in for NVIDIA's driver that shows a process some GPUs.

    Attributes:
      visible: the names of the GPUs, in the order of CUDA_VISIBLE_DEVICES.
    """

    visible: list[str]

    def cuInit(self, flags: int) -> int:
        return 0 if self.visible else 100  # CUDA_ERROR_NO_DEVICE

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:
        device._obj.value = 40 + ordinal
        return 0 if ordinal < len(self.visible) else 101

    def cuDeviceGetName(self, name: Any, length: int, device: Any) -> int:
        name.value = self.visible[device.value - 40].encode()[: length - 1]
        return 0


@pytest.fixture(autouse=True)
def forgets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(ort, "get_available_providers", lambda: providers)
    processor.cache_clear()
    yield
    processor.cache_clear()


def test_a_gpu_is_called_what_its_driver_calls_the_first_that_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    """nvidia-smi may not be installed, and it also lists GPUs that are not visible."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeDriver(["NVIDIA H200", "NVIDIA T4"]))
    assert setting_of(OnnxRuntime("cuda")).processor == "NVIDIA H200"


def test_a_gpu_that_cannot_be_seen_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeDriver([]))
    with pytest.raises(UnavailableError, match=r"error 100.*CUDA_VISIBLE_DEVICES"):
        processor("cuda")


def test_a_driver_that_is_not_here_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "_DRIVER", "libnobody-has-this.so.1")
    with pytest.raises(UnavailableError, match="driver is not here"):
        processor("cuda")


def test_settings_differ_where_runtimes_do() -> None:
    runtimes = [OnnxRuntime(threads=threads, level=level) for threads in (1, 2) for level in LEVELS]
    found = [setting_of(runtime) for runtime in runtimes]
    assert len(set(found)) == len({str(each) for each in found}) == len(runtimes)
    assert Setting("cpu", found[0].processor, "onnxruntime", ort.__version__, 1) in found


CPU_INFORMATION = """processor\t: 0
cpu family\t: 6
model\t\t: {model}
model name\t: Intel(R) Xeon(R) Processor
stepping\t: 2
flags\t\t: fpu vme sse sse2 avx2 {flags}

processor\t: 1
model name\t: another
"""


def test_processors_of_one_name_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model and the instructions by which ONNX Runtime chooses its kernels count, other instructions do not."""
    monkeypatch.setattr(settings, "CPU_INFORMATION", tmp_path / "cpuinfo")
    names = []
    for model, flags in ((207, "avx512f ht"), (207, "avx512f"), (143, "avx512f"), (207, "avx512f amx_tile")):
        (tmp_path / "cpuinfo").write_text(CPU_INFORMATION.format(model=model, flags=flags))
        processor.cache_clear()
        names.append(processor("cpu"))
    assert names[0] == names[1] and len(set(names)) == 3
    assert names[0].startswith("Intel(R) Xeon(R) Processor, 6-207-2, simd ")


def test_a_system_that_says_nothing_of_its_processor_has_a_name_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "CPU_INFORMATION", tmp_path / "none")
    assert processor("cpu")
