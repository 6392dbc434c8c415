"""One thread, no GPU, quiet logs and a cache folder of their own for all tests, set before TensorFlow is imported."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests import tracing

for _name, _value in {
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "1",  # the same kernels on every processor
    "TF_USE_LEGACY_KERAS": "1",  # a fifth of each import of TensorFlow, as in commands
    "CUDA_VISIBLE_DEVICES": "-1",
}.items():
    os.environ.setdefault(_name, _value)

IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ
if not IS_WORKER:  # workers inherit it; the user's database of prices is neither read nor written
    _usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ.setdefault("MPLCONFIGDIR", str(_usual / "matplotlib"))  # its list of fonts takes seconds to make
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="rlflow-tests-")


def pytest_unconfigure() -> None:
    """Removes the cache folder of the tests."""
    if not IS_WORKER:
        shutil.rmtree(os.environ["XDG_CACHE_HOME"], ignore_errors=True)


def pytest_sessionstart() -> None:
    """Ends the tests if they would test another engine than the one that RLFLOW_ENGINE names, a folder."""
    folder = os.environ.get("RLFLOW_ENGINE")
    if folder is None:
        return
    from taso_ext import _core

    if not Path(_core.__file__ or "").is_relative_to(Path(folder).resolve()):
        pytest.exit(f"The tests were to run with the engine of {folder}, but {_core.__file__} was imported.", 1)


def pytest_collection_finish() -> None:
    """Leaves all modules and collected tests out of garbage collection, which took a twentieth of the tests' time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def quick_predictions() -> Iterator[None]:
    """Fits eight trees instead of 64 wherever prices are predicted, and times eight kernels for them instead of 64.

    They would take seconds and a quarter of a minute for each price list. How good predictions are is tested with all
    of them, see `tests.environment.costs.learned.conftest`.
    """
    from environment.costs.learned import adaptation
    from environment.costs.learned.regressor import Trees

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(Trees, "NUMBER", 8)
        patches.setattr(adaptation, "references", partial(adaptation.references, most=8))
        yield


@pytest.fixture
def untraced() -> Iterator[None]:
    """Runs a test without the traces of `tf.function`, see `tests.tracing`."""
    with tracing.untraced():
        yield
