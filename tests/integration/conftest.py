"""The run with a world model that several tests of commands share: it is made once in each process."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.pipeline.learning import collect
from tests import tracing
from tests.integration.tiny_run import RECOLLECT, run_with_sealed_dreams


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """OUT of a whole run with a round of recollection, during whose dreams the real environment raises.

    Without traces, which every part of an interrupted run would make anew.
    """
    output = tmp_path_factory.mktemp("uninterrupted") / "out.onnx"
    with tracing.untraced(), pytest.MonkeyPatch.context() as patches:
        patches.setattr(collect, "POLICY_EPISODES_PER_SHARD", 4)
        assert run_with_sealed_dreams(output, *RECOLLECT) == ["train ppo", "train ppo, round 1"]
    return output
