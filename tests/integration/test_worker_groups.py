"""Tests of one xdist group run on one worker; some pairs of pytest and pytest-xdist releases do not keep to that."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("here")
def test_a_test_tells_the_scheduler_which_group_it_belongs_to(request: pytest.FixtureRequest) -> None:
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("there is something to schedule only with -n and --dist loadgroup, as `make test` does it")
    assert request.node.nodeid.endswith("@here")
