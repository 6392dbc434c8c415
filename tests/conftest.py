"""One thread, no GPU and quiet logs for every test, set before TensorFlow or NumPy are imported."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import tracing

for _name, _value in {
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "1",  # the same kernels on every processor
    "CUDA_VISIBLE_DEVICES": "-1",
}.items():
    os.environ.setdefault(_name, _value)


def pytest_sessionstart() -> None:
    """Ends the tests if they would test another engine than the one that RLFLOW_ENGINE names, a folder."""
    folder = os.environ.get("RLFLOW_ENGINE")
    if folder is None:
        return
    from taso_ext import _core

    if not Path(_core.__file__ or "").is_relative_to(Path(folder).resolve()):
        pytest.exit(f"The tests were to run with the engine of {folder}, but {_core.__file__} was imported.", 1)


@pytest.fixture(scope="session", autouse=True)
def small_forests() -> Iterator[None]:
    """Fits eight trees instead of 64 wherever prices are predicted, which takes seconds for each price list.

    How good predictions are is tested with all trees, see `tests.environment.costs.learned.conftest`.
    """
    from environment.costs.learned.regressor import Trees

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(Trees, "NUMBER", 8)
        yield


@pytest.fixture
def untraced() -> Iterator[None]:
    """Runs a test without the traces of `tf.function`, see `tests.tracing`."""
    with tracing.untraced():
        yield
