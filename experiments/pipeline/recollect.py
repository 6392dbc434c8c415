"""Collects real episodes of a policy that was trained in the dream, for the next round of its world model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from experiments.pipeline.collect import episode_figures, read_episodes
from experiments.pipeline.load import Loaded
from experiments.pipeline.world_model import RoundModel
from experiments.runs.progress import Bar
from experiments.runs.run import Run, in_round, of_round
from worldmodel.data.episodes import Episode, EpisodeBuffer

if TYPE_CHECKING:  # TensorFlow is imported by the stage, not with the module
    from worldmodel.dream.rollout import Policy

STAGE = "recollect"
RECOLLECTED = "recollected"
"""Folder of a round's episodes among the checkpoints."""
EPISODES_PER_SHARD = 20
"""What is kept at a time; what an interrupted command has played beyond is played again."""


def recollect_episodes(run: Run, loaded: Loaded, model: RoundModel, policy: Policy) -> EpisodeBuffer:
    """Real episodes for the next round, of the policy of a round, which sees them through its world model.

    Continues where an interrupted command stopped.
    """
    from worldmodel.dream.recollection import recollect
    from worldmodel.dream.start_dream import root_dream

    number = model.number + 1
    stage, count = of_round(STAGE, number), run.config.recollect.episodes
    directory = run.directory.checkpoint(of_round(RECOLLECTED, number))
    if run.directory.finished(stage):
        return read_episodes(directory)
    directory.mkdir(exist_ok=True)
    with run.stage(stage, in_round("recollect episodes", number), count) as bar:
        run.metrics.rewind(stage, 0)
        seen_through = model.fresh()
        dream = root_dream(seen_through, loaded.env, **run.config.dream.from_root())
        for first in range(0, count, EPISODES_PER_SHARD):
            last = min(first + EPISODES_PER_SHARD, count) - 1
            path = directory / f"episodes-{first:06d}-{last:06d}.npz"
            if not path.is_file():
                recollect(
                    seen_through,
                    loaded.env,
                    policy,
                    episodes=last - first + 1,
                    seed=run.seed(f"{stage} {first}"),
                    dream=dream,
                    dreamed=run.config.recollect.dreamed,
                    on_episode=_reporting(bar, first),
                ).save(path)
            for episode in EpisodeBuffer.load(path):
                run.metrics.append(stage, first + episode.index, episode_figures(episode))
    return read_episodes(directory)


def _reporting(bar: Bar, first: int) -> Callable[[Episode], None]:
    """Reports episodes of the shard that begins with episode `first`."""

    def report(episode: Episode) -> None:
        bar.update(first + episode.index + 1, improvement_percent=episode_figures(episode)["improvement_percent"])

    return report
