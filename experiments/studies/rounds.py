"""World models and policies of one graph, each round trained on what the rounds before it have collected as well."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from environment import GraphSubstitutionEnv
from environment.measurement.process_memory import peak_bytes, restart_peak
from environment.policies.random import RandomAgent
from experiments.reproduce.units import Record
from experiments.runs.interruption import raise_if_received
from experiments.runs.progress import Bar, ProgressDisplay
from experiments.runs.seeds import seed_for
from experiments.runs.tensorflow_start import import_tensorflow
from experiments.studies.setting import Setting
from taso_ext.files import write_text
from worldmodel.data.by_rank import by_rank
from worldmodel.data.episodes import Episode, EpisodeBuffer, collect

if TYPE_CHECKING:  # TensorFlow is imported when something is trained
    import onnx

    from controller.ppo.controller import PpoController
    from worldmodel.dream.dream_env import DreamEnv
    from worldmodel.signature import Signature
    from worldmodel.world_model import WorldModel


class Rounds:
    """What is trained and collected for one setting and seed.

    Round 0 learns from random play; the model of round r goes on from that of the round before, with episodes of its
    policy too. Everything is a function of setting and seed. Models, policies and their episodes are kept and read from
    where they are; the random play is collected again, which takes less than reading it would need of the disk.

    The last bits of an embedding depend on which graphs are encoded together, and a model keeps the embeddings of all
    that it has seen. So who uses one reads it anew: what others have shown theirs, or would have shown it if they had
    not been finished before, changes nothing.
    """

    def __init__(
        self, setting: Setting, seed: int, first_model: Path, directory: Path, progress: ProgressDisplay
    ) -> None:
        """
        Args:
          first_model: directory for the model of round 0, which several settings may have in common.
          directory: for all else; nothing else is in it.
        """
        self.setting, self.seed = setting, seed
        self._first_model, self._directory, self._progress = first_model, directory, progress

    @functools.cached_property
    def env(self) -> GraphSubstitutionEnv:
        """The real environment."""
        return self.environment(self.setting.config.environment.max_steps)

    def environment(self, max_steps: int, graph: str | onnx.ModelProto | None = None) -> GraphSubstitutionEnv:
        """The real environment with another limit of steps, and perhaps of another graph."""
        config = self.setting.config
        return GraphSubstitutionEnv(
            self.setting.graph if graph is None else graph,
            costs=config.costs,
            reward=config.environment.reward,
            max_steps=max_steps,
            max_locations=config.environment.max_locations,
        )

    @functools.cached_property
    def random_play(self) -> EpisodeBuffer:
        """What round 0 learns from, and what intervals are fitted on."""
        return self.named(self._collected())

    def named(self, buffer: EpisodeBuffer) -> EpisodeBuffer:
        """Episodes as the models see them."""
        return by_rank(buffer) if self.setting.actions == "rank" else buffer

    def _collected(self) -> EpisodeBuffer:
        collecting, needed = self.setting.config.collect, self.setting.real_steps
        agent, seed = RandomAgent(noop_probability=collecting.noop_probability), seed_for(self.seed, "collect")
        if needed is None:
            with self._progress.stage(self._title("collect"), collecting.episodes) as bar:
                return collect(self.env, agent, collecting.episodes, seed, on_episode=noting(bar))
        buffer = collect(self.env, agent, 2, seed)  # one to train on, one to hold out
        with self._progress.stage(self._title("collect"), needed) as bar:
            while buffer.num_transitions < needed:
                raise_if_received()
                collect(self.env, agent, len(buffer) + 1, seed, buffer=buffer)
                bar.update(min(buffer.num_transitions, needed))
        return buffer

    def episodes(self, number: int) -> tuple[EpisodeBuffer, EpisodeBuffer]:
        """(training, validation) of a round; validation is random play."""
        training, validation = self.random_play.split(
            self.setting.config.collect.held_out, seed_for(self.seed, "held out")
        )
        for before in range(number):
            training.extend(self.policy_play(before))
        return training, validation

    def policy_play(self, number: int) -> EpisodeBuffer:
        """Real episodes of a round's policy."""
        path = self._path(number) / "episodes.npz"
        if path.is_file():
            return EpisodeBuffer.load(path)
        model, controller, settings = self.model(number), self.controller(number), self.setting.config.recollect
        from worldmodel.dream.recollection import recollect

        with self._progress.stage(self._title(f"recollect {number}"), settings.episodes) as bar:
            played = recollect(
                model,
                self.env,
                controller.policy,
                episodes=settings.episodes,
                seed=seed_for(self.seed, f"recollect {number}"),
                dream=self.root_dream(model),
                dreamed=settings.dreamed,
                on_episode=noting(bar),
            )
        played.save(path)
        return played

    def model(self, number: int) -> WorldModel:
        """The world model of a round, as its training has left it: it has seen that round's training data only."""
        import_tensorflow()
        from worldmodel.signature import Signature
        from worldmodel.world_model import WorldModel

        directory = self._path(number) if number else self._first_model
        bundle = directory / "world_model"
        signature = Signature.of(self.env)
        if not bundle.is_dir():
            self._train(number, signature, directory, bundle)
        return WorldModel.load(bundle, signature)

    def _train(self, number: int, signature: Signature, directory: Path, bundle: Path) -> None:
        from worldmodel.fit import fit_world_model, refit_world_model

        scratch = directory / "training"
        is_new = not scratch.is_dir()  # what an interrupted command has used is not known
        started = Started.now()
        before = self.model(number - 1) if number else None
        training, _ = self.episodes(number)
        if number:  # what comes before is another round's, and may have been done by another command
            started = Started.now()
        config, refit = self.setting.config.world_model, self.setting.config.refit()
        done_before = {"encoder": 0, "mdn_rnn": 0 if number else config.encoder_training.steps}
        total = done_before["mdn_rnn"] + (refit.steps if number else config.mdn_rnn_training.steps)
        seed = seed_for(self.seed, f"world model {number}")
        with self._progress.stage(self._title(f"world model {number}"), total) as bar:

            def note(part: str, metrics: Mapping[str, float]) -> None:
                raise_if_received()
                bar.update(done_before[part] + int(metrics["step"]), loss=metrics["loss"])

            model = (
                fit_world_model(training, signature, config, seed=seed, directory=scratch, on_step=note)
                if before is None
                else refit_world_model(before, training, refit, seed=seed, directory=scratch, on_step=note)
            )
        if is_new:
            write_text(directory / "spent.json", json.dumps(started.spent()))
        model.save(bundle)
        shutil.rmtree(scratch)  # it is of use to an interrupted training only, and large

    def spent(self, number: int) -> Record | None:
        """What a round's model took, see `Started.spent`: round 0's from random play on, later ones' training alone.

        None where that is not known.
        """
        path = (self._path(number) if number else self._first_model) / "spent.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def root_dream(self, model: WorldModel) -> DreamEnv:
        """A model's dream of the start graph."""
        from worldmodel.dream.start_dream import root_dream

        return root_dream(model, self.env, **self.setting.config.dream.from_root())

    def controller(self, number: int) -> PpoController:
        """A round's policy, trained in nothing but its dream."""
        model, config = self.model(number), self.setting.config
        from controller.ppo.controller import PpoController
        from worldmodel.dream.dream_env import DreamEnv

        seed = seed_for(self.seed, f"controller {number}")
        controller = PpoController.for_dream(model, config.ppo, config.policy, seed=seed)
        path = self._path(number) / "controller.npz"
        if path.is_file():
            controller.load(path)
        if controller.num_updates == config.ppo.updates:
            return controller
        starts = model.start_states(self.episodes(number)[0], seed=seed)
        with self._progress.stage(self._title(f"policy {number}"), config.ppo.updates) as bar:

            def note(done: int, total: int, metrics: Mapping[str, float]) -> None:
                raise_if_received()
                bar.update(done, **{"return": metrics["return"]})
                if done % config.updates_per_checkpoint == 0 or done == total:
                    controller.save(path)

            controller.train(DreamEnv(model, starts, **dataclasses.asdict(config.dream)), on_progress=note)
        return controller

    def _path(self, number: int) -> Path:
        return self._directory / f"round-{number}"

    def _title(self, text: str) -> str:
        return f"{self.setting.graph} seed {self.seed}: {text}"


class Started(NamedTuple):
    """Clocks when something began, in seconds."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Started:
        restart_peak()
        return cls(time.perf_counter(), time.process_time())

    def spent(self) -> Record:
        """Seconds and seconds of CPU since, and the largest size of the process since then, in bytes."""
        seconds, cpu_seconds = time.perf_counter() - self.wall, time.process_time() - self.cpu
        return {"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_bytes": peak_bytes()}


def noting(bar: Bar) -> Callable[[Episode], None]:
    """Reports every episode, and is where an interruption takes effect."""

    def note(episode: Episode) -> None:
        raise_if_received()
        bar.update(episode.index + 1)

    return note
