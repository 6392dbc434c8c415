"""What a cost model says of its clock is shown among the progress; other warnings stay warnings."""

from __future__ import annotations

import io
import warnings

import pytest

from environment.costs.end_to_end import NoisyClockWarning
from experiments.optimise import noise_noted
from experiments.progress import make_progress


def test_a_noisy_clock_is_noted() -> None:
    stream = io.StringIO()
    with noise_noted(make_progress(stream)):
        warnings.warn("The clock is too noisy.", NoisyClockWarning, stacklevel=1)
    assert stream.getvalue() == "The clock is too noisy.\n"


def test_other_warnings_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    with warnings.catch_warnings(record=True) as caught, noise_noted(make_progress(stream)):
        warnings.simplefilter("always")
        warnings.warn("Something else.", UserWarning, stacklevel=1)
    assert not stream.getvalue() and [str(each.message) for each in caught] == ["Something else."]
