"""`StoredRun`: a run directory that is read and not changed, for `rlflow validate` and as `experiments.load`.

    run = experiments.load("runs/bert-base-ppo-1a2b3c4d")
    evaluation = controller.evaluate(run.env, run.controller, num_sampled=5, seed=run.seed("evaluate"))
    trajectory = run.dream.rollout(run.controller.policy, batch=16, horizon=20, seed=0)

Each part is made when it is first asked for. The environment needs no TensorFlow.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from controller.interface import Controller
from controller.registry import needs_tensorflow
from environment import GraphSubstitutionEnv
from experiments.config.run import RunConfig, stored_config
from experiments.errors import DamagedRun, UserError
from experiments.pipeline.clock.timings import restore_timings
from experiments.pipeline.learning.collect import EPISODES, RECOLLECT, RECOLLECTED
from experiments.pipeline.learning.collect import STAGE as COLLECT
from experiments.pipeline.learning.controller import prepare_controller
from experiments.pipeline.learning.rounds import MIXED, Learning, learner, train_for_real
from experiments.pipeline.learning.rounds import STAGE as TRAINING
from experiments.pipeline.learning.world_model import MDN_RNN
from experiments.pipeline.loading.load import Loaded, load, load_model
from experiments.pipeline.loading.waypoints import restore_waypoints
from experiments.runs.directory import RunDirectory
from experiments.runs.progress import ProgressDisplay, SilentProgress
from experiments.runs.rounds import SWEEP, first_of, last_round, played_round
from experiments.runs.run import Run, import_tensorflow, of_round, seed_for
from taso_ext import OnnxModel, RuleSet

if TYPE_CHECKING:
    from worldmodel.dream.dream_env import DreamEnv
    from worldmodel.world_model import WorldModel

SAME = {"graph": "the model", "rules": "the rule set"}
"""Parts of a run's fingerprint without which its actions mean nothing, and what a difference says has changed."""


class Shard(NamedTuple):
    """A file of collected episodes.

    Attributes:
      path: the file.
      first: the number of its first episode.
      seed: the seed of its collection, from which `worldmodel.data.episodes.reset_seed` makes that of an episode.
    """

    path: Path
    first: int
    seed: int


class StoredRun:
    """A run directory, read only.

    Attributes:
      path: the directory.
      directory: its files.
      first: the files of its random play and of its first world model; those of a point of a sweep are elsewhere,
        because other points share them.
      config: the settings of the run.
      fingerprint: the fingerprints of its graph, rules, prices, features and formats.
      manifest: the facts about the last command that worked on the run.
      model: the path or zoo name of its model.
      round: number of the round of `world_model`, `dream` and `controller`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        round: int | None = None,
        model: str | None = None,
        reward: object = None,
        progress: ProgressDisplay | None = None,
    ) -> None:
        """Reads the settings of a run; everything else is read when it is asked for.

        Args:
          path: the run directory.
          round: number of a round of recollection; None means the one whose policy plays.
          model: where the model is now; None means where the run has found it.
          reward: the reward function of a Python module (`module:function`) that the run may import, if it names one.
          progress: the display of notes and bars; None shows none.
        Raises:
          UserError: it is no run directory, it has no such round, or its reward would be imported without being named.
          DamagedRun: a file cannot be read.
        """
        self.path = Path(path)
        if not RunDirectory.holds_run(self.path):
            raise UserError(
                f"{self.path} is no run directory: config.json is missing. Expected what `rlflow optimise` or `rlflow "
                "train` has left, such as runs/MODEL-CONTROLLER-HASH."
            )
        self.directory = RunDirectory(self.path, resumed=True)
        self.first = first_of(self.directory)
        stored = self.directory.stored("config.json", dict)
        with self.directory.reading("config.json"):
            self.fingerprint: Mapping[str, Any] = dict(stored.pop("fingerprint"))
        self.config: RunConfig = stored_config(stored, str(self.path / "config.json"), reward=reward)
        self.manifest: Mapping[str, Any] = self.directory.stored("manifest.json", lambda commands: dict(commands[-1]))
        with self.directory.reading("manifest.json"):
            self.model = model or str(self.manifest["model"])
        last = last_round(self.directory, self.config)
        if round is not None and not 0 <= round <= last:
            raise UserError(f"{self.path} has the rounds 0 to {last}, but round {round} was asked for.")
        self.round = played_round(self.directory, self.config) if round is None else round
        self._progress: ProgressDisplay = progress or SilentProgress()

    @property
    def is_finished(self) -> bool:
        """Whether the run has come to its end."""
        return (self.path / "DONE").is_file()

    def require_done(self, consequence: str) -> None:
        """Raises UserError unless the run has come to its end.

        Args:
          consequence: what follows if it has not, such as "nothing to validate".
        """
        if not self.is_finished and (self.path / "result.json").is_file() and not (self.path / "checkpoints").is_dir():
            raise UserError(
                f"{self.path} keeps the result of a run without its checkpoints, so that there is {consequence}. Read "
                f"{self.path / 'report.md'}, or repeat the command of the run, which its manifest.json names."
            )
        if not self.is_finished:
            raise UserError(
                f"{self.path} holds a run that is not finished, so that there is {consequence}. Repeat its command, "
                "which goes on from where it stopped."
            )
        if not (self.path / "result.json").is_file() and (self.path.absolute().parents[1] / SWEEP).is_file():
            raise UserError(
                f"{self.path} is a point of a sweep, which learns and plays but exports no result, so that there is "
                f"{consequence}. `rlflow sweep show` shows its figures, and `experiments.load` gives its parts back."
            )

    def seed(self, purpose: str) -> int:
        """Returns the seed of one purpose, such as "evaluate"; see `seed_for`."""
        return seed_for(self.config.seed, purpose)

    @functools.cached_property
    def loaded(self) -> Loaded:
        """The model, the rules and the costs of the run.

        Raises:
          UserError: the model or the rules have changed since.
          UserError, ModelError, UnavailableError: they cannot be loaded here.
        """
        return self.load_with(self.config)

    def load_with(self, config: RunConfig) -> Loaded:
        """Returns the same with other settings, such as other costs; see `loaded`."""
        found = load(self.model, config)
        self._require_same({part: found.fingerprint[part] for part in SAME})
        restore_waypoints(self.directory, found.model)
        restore_timings(self.directory, found)
        return found

    def model_and_rules(self) -> tuple[OnnxModel, RuleSet]:
        """Returns the model and the rules of the run, without its costs and on any device.

        Raises:
          UserError, ModelError: they have changed since, or cannot be loaded here.
        """
        model, rules = load_model(self.model, self.config)
        self._require_same({"graph": model.graph.hash, "rules": rules.fingerprint})
        restore_waypoints(self.directory, model)
        return model, rules

    def _require_same(self, found: Mapping[str, str]) -> None:
        """Raises UserError if the model or the rules are others than those of the run, by their fingerprints."""
        for part, now in found.items():
            then, what = self.fingerprint.get(part), SAME[part]
            if then != now:
                raise UserError(
                    f"{what.capitalize()} of {self.path} has changed since the run: fingerprint {then} then, {now} "
                    f"now ({self.model if part == 'graph' else self.config.rules or 'built-in rules'}). The rewrites "
                    f"of the run belong to what it was. Restore it (for another place of the model: --model, or "
                    "model=… in Python), or repeat the run with --restart."
                )

    @functools.cached_property
    def env(self) -> GraphSubstitutionEnv:
        """The real environment."""
        return self.loaded.env

    @functools.cached_property
    def world_model(self) -> WorldModel:
        """The world model of the round.

        Raises:
          UserError: the run has none.
        """
        self._require_world_model()
        return self._learning.model(self.round).fresh()

    @functools.cached_property
    def dream(self) -> DreamEnv:
        """A dream of the round's world model, which begins at real states of all depths.

        The round's controller was trained in it, if that was trained in a dream from its beginning to its end; in the
        world `mixed`, dreams are short and branch off other states too.

        Raises:
          UserError: the run has none.
        """
        from worldmodel.dream.dream_env import DreamEnv

        episodes, _ = self._learning.episodes(self.round) if self._require_world_model() else (None, None)
        assert episodes is not None
        seed = self.seed(of_round(TRAINING, self.round))
        return DreamEnv.of_episodes(self.world_model, episodes, self.config.dream, seed=seed, env=self.loaded.env)

    @functools.cached_property
    def controller(self) -> Controller:
        """The controller, ready to play: a policy is trained, and a search replays its plan.

        Raises:
          UserError: its training is not finished.
        """
        self._require_own_training()
        if not self.config.learns_in:
            self._require_finished("evaluate", "its search")
            self._require_checkpoint()
            return prepare_controller(self._run, self.loaded).controller
        if self.config.uses_world_model:
            self._require_world_model()
            self._require_trained(lambda: self._learning.untrained(self.round))
            return self._learning.controller(self.round)
        if needs_tensorflow(self.config.controller):
            import_tensorflow()
        self._require_trained(lambda: learner(self.config, self.loaded, self.seed(TRAINING)))
        return train_for_real(self._run, self.loaded)[0]

    @property
    def _run(self) -> Run:
        return Run(self.config, self.directory, self._progress)

    @functools.cached_property
    def _learning(self) -> Learning:
        import_tensorflow()
        return Learning(self._run, self.loaded, first=Run(self.config, self.first, self._progress))

    def _require_own_training(self) -> None:
        if "controller" in self.fingerprint:
            raise UserError(
                f"{self.path} plays the controller of another run (--from), which has the world model, the dream and "
                "the controller. Load that run."
            )

    def _require_world_model(self) -> bool:
        self._require_own_training()
        if not self.config.uses_world_model:
            raise UserError(f"{self.path} has no world model: its controller, '{self.config.controller}', needs none.")
        self._require_finished(
            of_round(MDN_RNN, self.round), "the training of its world model", None if self.round else self.first
        )
        list(self.shards())
        return True

    def _require_trained(self, untrained: Callable[[], Controller]) -> None:
        """Raises UserError unless the controller's training is finished, or there is nothing to train.

        Args:
          untrained: makes the controller as it is before its training.
        """
        stage = of_round(TRAINING, self.round)
        if self.directory.finished(stage) or untrained().trains:
            self._require_finished(stage, "the training of its controller")
            self._require_checkpoint()

    def _require_checkpoint(self) -> None:
        """Raises UserError if the controller would be trained again, because nothing of its training is there."""
        stage = of_round(TRAINING, self.round)
        if self.directory.finished(stage) and not self.directory.checkpoint(stage).exists():
            raise UserError(
                f"{self.directory.checkpoint(stage)} is missing: '{self.config.controller}' keeps nothing of its "
                "training, or the run directory was not copied as a whole."
            )

    def _require_finished(self, stage: str, what: str, where: RunDirectory | None = None) -> None:
        if not (where or self.directory).finished(stage):
            raise UserError(f"In {self.path}, {what} is not finished. Repeat the command of that run, which goes on.")

    def shards(self) -> Iterator[Shard]:
        """Yields the files of all collected episodes, in order.

        Raises:
          DamagedRun: a file is missing.
        """
        config = self.config
        if self.first.finished(COLLECT):
            wanted = None if config.collect.steps else config.collect.episodes
            for path, first in self._shards_in(self.first.checkpoint(EPISODES), wanted):
                yield Shard(path, first, self.seed(COLLECT))
        last = last_round(self.directory, config)
        for number in range(1, last + 1):
            stage = of_round(RECOLLECT, number)
            if self.directory.finished(stage):
                played = self.directory.checkpoint(of_round(RECOLLECTED, number))
                for path, first in self._shards_in(played, config.recollect.episodes):
                    yield Shard(path, first, self.seed(f"{stage} {first}"))
        for number in range(last + 1):
            if config.learns_in == "mixed" and self.directory.finished(of_round(TRAINING, number)):
                yield from self._mixed_shards(number)

    def _mixed_shards(self, of: int) -> Iterator[Shard]:
        """Yields the files of the episodes that a round's controller has played while it learned in `mixed`."""
        directory = self.directory.checkpoint(of_round(MIXED, of))
        paths = sorted(directory.glob("episodes-*.npz"))
        for number in range(max(1, len(paths))):
            path = directory / f"episodes-{number:06d}.npz"
            if path not in paths:
                raise DamagedRun(path, "it is missing")
            yield Shard(path, number * self.config.mixed.episodes, self.seed(of_round(TRAINING, of)) + number)

    def _shards_in(self, directory: Path, wanted: int | None) -> Iterator[tuple[Path, int]]:
        """Yields the shards of a folder; checks that they hold all episodes up to the wanted number."""
        following = 0
        for path in sorted(directory.glob("episodes-*.npz")):
            first, last = map(int, path.stem.split("-")[1:])
            if first != following:
                break
            yield path, first
            following = last + 1
        else:
            if following and (wanted is None or following >= wanted):
                return
        raise DamagedRun(directory / f"episodes-{following:06d}-….npz", "it is missing")
