"""What cost models warn of is shown among the progress; other warnings stay warnings."""

from __future__ import annotations

import io
import warnings

import pytest

from environment.costs.limits import NoisyClockWarning, UnpricedWarning
from experiments.runs.progress import make_progress
from experiments.runs.warnings_noted import warnings_noted


@pytest.mark.parametrize("category", [NoisyClockWarning, UnpricedWarning])
def test_what_cost_models_warn_of_is_noted(category: type[Warning]) -> None:
    stream = io.StringIO()
    with warnings_noted(make_progress(stream)):
        warnings.warn("All is not well.", category, stacklevel=1)
    assert stream.getvalue() == "All is not well.\n"


def test_other_warnings_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    with warnings.catch_warnings(record=True) as caught, warnings_noted(make_progress(stream)):
        warnings.simplefilter("always")
        warnings.warn("Something else.", UserWarning, stacklevel=1)
    assert not stream.getvalue() and [str(each.message) for each in caught] == ["Something else."]
