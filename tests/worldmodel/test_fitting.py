from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.worldmodel.toy_world import QUICK, SIGNATURE
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.fitting import fit
from worldmodel.training import Metrics
from worldmodel.world_model import WorldModel


class Interrupted(BaseException):
    pass


@pytest.mark.usefixtures("untraced")
def test_an_interrupted_fit_ends_bit_for_bit_as_if_it_had_not_been(episodes: EpisodeBuffer, tmp_path: Path) -> None:
    few = EpisodeBuffer(episodes.rule_names, episodes.graphs, episodes[:20])
    log: list[tuple[str, Metrics]] = []

    def fitted(stop_at: tuple[str, int] | None) -> WorldModel:
        def note(stage: str, metrics: Metrics) -> None:
            log.append((stage, metrics))
            if (stage, metrics["step"]) == stop_at:
                raise Interrupted

        return fit(few, SIGNATURE, QUICK, seed=2, directory=tmp_path, on_step=note)

    for stop_at in (("encoder", 2), ("mdn_rnn", 2)):
        with pytest.raises(Interrupted):
            fitted(stop_at)
    resumed, uninterrupted = fitted(None), []
    whole = fit(few, SIGNATURE, QUICK, seed=2, on_step=lambda *entry: uninterrupted.append(entry))
    encoded = [metrics["step"] for stage, metrics in uninterrupted if stage == "embeddings"]
    assert encoded == sorted(encoded) and encoded[-1] == len(few.used_graphs())
    steps, all_steps = ([each for each in one if each[0] != "embeddings"] for one in (log, uninterrupted))
    assert steps == all_steps, "every step once, with the same losses"
    for mine, theirs in ((whole.encoder, resumed.encoder), (whole.mdn_rnn, resumed.mdn_rnn)):
        for one, other in zip(mine.variables, theirs.variables, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=one.name)
