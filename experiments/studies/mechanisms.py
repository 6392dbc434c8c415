"""Figures that show what a mechanism of the world model or of play contributes, for one setting, graph and seed.

All settings of one graph and seed learn from the same random play and are judged on the same held-out episodes. If a
mechanism acts in dreams alone, the settings with and without it share the trained world model; if it acts in real play
alone, they share the policy too.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from experiments.config.run import RunConfig
from experiments.executors.units import Record
from experiments.pipeline.learning.rounds import Learning
from experiments.runs.progress import ProgressDisplay, make_progress
from experiments.studies.evaluation import GREEDY, RANDOM, held_out_play
from experiments.studies.exploiters import Planning, beam_plan, cross_entropy_plan
from experiments.studies.policy import exploit
from experiments.studies.setting import Effort, Setting
from experiments.studies.study import Study
from worldmodel.data.episodes import EpisodeBuffer

if TYPE_CHECKING:  # TensorFlow is imported when a model is judged
    from worldmodel.accuracy.exploit import ComparedPlan

Part = Literal["prediction", "policy", "beam search", "cross-entropy planning", "play"]
PREDICTION: Part = "prediction"
POLICY: Part = "policy"
BEAM: Part = "beam search"
CROSS_ENTROPY: Part = "cross-entropy planning"
PLAY: Part = "play"
IN_DREAMS: frozenset[Part] = frozenset((POLICY, BEAM, CROSS_ENTROPY, PLAY))
EVERYTHING: frozenset[Part] = IN_DREAMS | {PREDICTION}


class Case:
    """One graph and seed, under all settings.

    Args:
      graph: name in the zoo.
      seed: the seed of every random draw.
      config: the settings with all mechanisms. They also say how random play is collected.
      effort: how much is judged.
      planning: how hard the planning exploiters search.

    Attributes:
      progress: the display of the present work.
    """

    def __init__(self, graph: str, seed: int, config: RunConfig, effort: Effort, planning: Planning) -> None:
        self._graph, self._seed = graph, seed
        self._effort, self._planning = effort, planning
        self._config = config
        self.progress: ProgressDisplay = make_progress()

    @functools.cached_property
    def _full(self) -> Learning:
        return self._learning(self._config)

    @functools.cached_property
    def _held_out(self) -> Mapping[str, EpisodeBuffer]:
        """The held-out episodes by the kind of play."""
        env = self._full.loaded.environment(self._effort.max_steps)
        return {play: held_out_play(self._full, env, play, self._effort) for play in (RANDOM, GREEDY)}

    def examine(self, config: RunConfig, parts: frozenset[Part]) -> Record:
        """Trains what is not trained yet under some settings, and judges it.

        Args:
          config: the settings of the case with some mechanisms left out.
          parts: which parts are judged.
        Returns:
          The figures by part. `PREDICTION` has them by play, name and number of steps, see `_prediction`. `POLICY` has
          the fields of `worldmodel.accuracy.exploit.Comparison` by way of playing. The others have the same fields
          directly. `PLAY` also has "best_percent", the improvement of the best graph of the deterministic episode, and
          "sampled_percent", the mean of this over the sampled episodes.
        """
        learning = self._learning(config)
        learning.random_play = self._full.random_play
        judges: dict[Part, Callable[[Learning], Record]] = {
            PREDICTION: self._prediction,
            POLICY: self._policy,
            BEAM: self._beam,
            CROSS_ENTROPY: self._cross_entropy,
            PLAY: self._play,
        }
        return {part: judge(learning) for part, judge in judges.items() if part in parts}

    def _learning(self, config: RunConfig) -> Learning:
        return Study(Setting(self._graph, config), self._seed, self._effort, self.progress).learning

    def _prediction(self, learning: Learning) -> Record:
        """Returns {"NAME after STEPS": value} by play, for predictions from states that training did not meet."""
        model, (training, _) = learning.model(0).fresh(), learning.episodes(0)
        from worldmodel.accuracy.baselines import Trivial
        from worldmodel.accuracy.latents import latent_figures
        from worldmodel.accuracy.open_loop import longest_open_loop
        from worldmodel.accuracy.rewards_and_masks import mask_figures, reward_figures, total_figures

        effort, seen, trivial = self._effort, training.states(), Trivial.of(training, model)
        found: Record = {}
        for play, held_out in self._held_out.items():
            once = longest_open_loop(model, held_out, (1,), first=effort.first, stride=1, seen=seen)
            played = longest_open_loop(
                model, held_out, effort.steps, first=effort.first, stride=effort.stride, seen=seen,
                at_least=effort.at_least,
            )  # fmt: skip
            if once is None or played is None:
                found[play] = {}
                continue
            figures = reward_figures(once, trivial, resamples=0)
            for step in (step for step in effort.steps if step <= played.real.steps):
                figures += total_figures(played, trivial, step, resamples=0)
                figures += mask_figures(played, trivial, model.table.rules[:-1], step, resamples=0)
                figures += latent_figures(played, trivial, step, resamples=0)
            found[play] = {f"{figure.name} after {figure.step}": figure.model.value for figure in figures}
        return found

    def _policy(self, learning: Learning) -> Record:
        """Compares dream and reality for the trained policy, see `experiments.studies.policy.exploit`."""
        record = exploit(learning, 0, self._effort)
        left_out = ("each", "trivial_gap")
        return {
            way: {key: value for key, value in figures.items() if key not in left_out}
            for way, figures in record.items()
            if isinstance(figures, dict)
        }

    def _beam(self, learning: Learning) -> Record:
        return _compared([beam_plan(learning, 0, self._planning)])

    def _cross_entropy(self, learning: Learning) -> Record:
        return _compared([cross_entropy_plan(learning, 0, self._planning)])

    def _play(self, learning: Learning) -> Record:
        """Plays real episodes of the controller, one deterministic and the others sampled, and dreams them too."""
        model, controller, config = learning.model(0).fresh(), learning.controller(0), learning.run.config
        import numpy as np

        from controller.evaluation import play_episode
        from worldmodel.accuracy.exploit import dreamed_beside

        env, seed, count = learning.loaded.env, learning.run.seed("play"), 1 + config.evaluate.sampled_episodes
        with learning.run.bar("play", count) as bar:
            records = []
            for number in range(count):
                records.append(play_episode(env, controller, seed=seed + number, deterministic=number == 0))
                bar.update(number + 1)
        played = []
        for record in records:
            pairs = [pair for pair in record.played(model.table.everywhere) if pair[0] < model.table.num_rules]
            costs_ms = record.costs_ms[: len(pairs) + 1]
            actions = model.table.encode(np.array(pairs, np.int32).reshape(-1, 2)).tolist()
            played.append((actions, tuple(100.0 * (1.0 - cost_ms / costs_ms[0]) for cost_ms in costs_ms)))
        trajectories = dreamed_beside(
            model,
            env,
            played,
            config=config.dream,
        )
        best = [100.0 * record.improvement for record in records]
        return _compared(trajectories) | {"best_percent": best[0], "sampled_percent": sum(best[1:]) / max(1, count - 1)}


def _compared(trajectories: list[ComparedPlan]) -> Record:
    """Returns the fields of `worldmodel.accuracy.exploit.Comparison`."""
    from worldmodel.accuracy.exploit import compare

    return dataclasses.asdict(compare(trajectories))
