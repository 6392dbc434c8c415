"""One thread, no GPU and quiet logs for every test, set before TensorFlow or NumPy are imported."""

from __future__ import annotations

import os
from collections.abc import Iterator

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


@pytest.fixture
def untraced() -> Iterator[None]:
    """Runs a test without the traces of `tf.function`, see `tests.tracing`."""
    with tracing.untraced():
        yield
