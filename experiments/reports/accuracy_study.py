"""The training of a finished run's world model, and its predictions beside what really happened.

study = AccuracyStudy.load(Path("runs/bert-base-ppo-1a2b3c4d"))
study.mask_errors(), study.coverage(LEVELS), …

It trains nothing and plays nothing: it reads the run directory, and evaluates on the episodes that were held out there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from controller.evaluation import Evaluation
from controller.records import EpisodeRecord
from experiments.config.run import RunConfig, stored_config
from experiments.errors import UserError
from experiments.pipeline.learning.collect import EPISODES, RECOLLECTED, parted, random_play, read_episodes
from experiments.pipeline.learning.evaluate import EVALUATION
from experiments.pipeline.learning.world_model import BUNDLE, FIRST
from experiments.reports.plots import Curve
from experiments.reports.report import loss_curves, stages_of_losses
from experiments.runs.directory import MetricsLog, RunDirectory
from experiments.runs.rounds import played_round
from experiments.runs.run import of_round
from worldmodel.accuracy import baselines as trivial
from worldmodel.accuracy import metrics
from worldmodel.accuracy.baselines import Trivial
from worldmodel.accuracy.latents import next_latents
from worldmodel.accuracy.open_loop import OpenLoop, Windows, cut_windows, longest_open_loop, play
from worldmodel.accuracy.probes import Components
from worldmodel.accuracy.uncertainty import Mixtures, covered, fit_scale
from worldmodel.data.episodes import EpisodeBuffer
from worldmodel.data.trajectory import Trajectory
from worldmodel.world_model import WorldModel

FURTHEST = (30, 20, 15, 10, 5, 2, 1)
"""Numbers of open-loop steps to predict. The study takes the largest one that enough episodes have."""
STRIDE = 5
ENOUGH = 30
MODEL = "world model"
LABELS = {
    trivial.COPY_LAST: "copying the first state",
    trivial.MEAN: "mean of the training data",
    trivial.PER_SITE: "mean per rule and site",
    trivial.PER_RULE: "mean per rule",
}


class RuleErrors(NamedTuple):
    """Counts of one rule's wrong bits over all windows: missed, invented, and wrong by copying the first state."""

    missed: float
    invented: float
    copied: float


class Returns(NamedTuple):
    """The summed rewards along one sequence of actions after 0 to T steps, in percent.

    Attributes:
      title: the name of the sequence.
      real: [T + 1], in the real environment.
      dreamed: [T + 1], in the dream of the most likely latents.
      sampled: [S, T + 1], in sampled dreams.
    """

    title: str
    real: np.ndarray
    dreamed: np.ndarray
    sampled: np.ndarray


class Drawn(NamedTuple):
    """Next latents, drawn at several temperatures after one real step.

    Attributes:
      before, after: [Z], the real latents.
      latents: temperature -> drawn latents [S, Z].
    """

    before: np.ndarray
    after: np.ndarray
    latents: Mapping[float, np.ndarray]


@dataclass(frozen=True, repr=False)
class AccuracyStudy:
    """A world model, the episodes that it was trained on, and episodes that were held out.

    Attributes:
      path: the run directory.
      config: the settings of the run.
      model: the world model of the round whose policy plays.
      training: the episodes that the model was trained on.
      held_out: episodes of random play that the model was not trained on.
      evaluation: the real episodes of the controller.
    """

    path: Path
    config: RunConfig
    model: WorldModel
    training: EpisodeBuffer
    held_out: EpisodeBuffer
    evaluation: Evaluation

    @classmethod
    def load(cls, path: Path) -> AccuracyStudy:
        """Reads a run directory.

        Raises:
          UserError: the path is not the directory of a finished run that trained a world model.
        """
        needed = {"config.json", "metrics.jsonl", EVALUATION, f"checkpoints/{BUNDLE}", f"checkpoints/{EPISODES}"}
        missing = sorted(name for name in needed if not (path / name).exists())
        if missing or not RunDirectory.holds_run(path):
            raise UserError(
                f"{path} is not the directory of a finished run with a world model: {', '.join(missing)} is missing. "
                "Such a run is what `rlflow optimise MODEL -o OUT --controller ppo` leaves."
            )
        stored = json.loads((path / "config.json").read_text(encoding="utf-8"))
        stored.pop("fingerprint", None)
        config = stored_config(stored, str(path / "config.json"))
        checkpoints, played = path / "checkpoints", played_round(RunDirectory(path, resumed=True), config)
        training, held_out = parted(config, random_play(config, read_episodes(checkpoints / EPISODES)))
        for number in range(1, played + 1):
            training.extend(read_episodes(checkpoints / of_round(RECOLLECTED, number)))
        model = WorldModel.load(checkpoints / of_round(BUNDLE, played))
        return cls(path, config, model, training, held_out, Evaluation.load(path / EVALUATION))

    def __str__(self) -> str:
        return (
            f"{self.path}: {len(self.training)} episodes to train on, {len(self.held_out)} held out; "
            f"{self.model.num_actions} rewrites, latents of width {self.model.latent_size}; "
            f"rewards: {self.config.environment.reward} under {self.config.costs}"
        )

    def losses(self) -> dict[str, dict[str, Curve]]:
        """Returns title of a stage -> loss -> curve."""
        log = MetricsLog(self.path / "metrics.jsonl")
        titles = stages_of_losses(played_round(RunDirectory(self.path, resumed=True), self.config))
        return {title: loss_curves(log.read(stage)) for stage, title in titles.items()}

    @cached_property
    def trivial(self) -> Trivial:
        """The trivial predictors that the model has to beat."""
        return Trivial.of(self.training, self.model)

    @cached_property
    def single_steps(self) -> OpenLoop:
        """The steps of the held-out episodes from depth `FIRST` on, each predicted from the real state before it."""
        found = longest_open_loop(self.model, self.held_out, (1,), first=FIRST, stride=1, seen=self._seen)
        if found is None:
            raise self._too_little()
        return found

    @cached_property
    def played(self) -> OpenLoop:
        """Windows of the held-out episodes, as long as possible, predicted from their first state."""
        found = longest_open_loop(
            self.model, self.held_out, FURTHEST, first=FIRST, stride=STRIDE, seen=self._seen, at_least=ENOUGH
        )
        if found is None:
            raise self._too_little()
        return found

    @cached_property
    def _seen(self) -> frozenset[str]:
        return self.training.states()

    def _too_little(self) -> UserError:
        return UserError(
            f"{self.path} has no held-out episode with a rewrite from depth {FIRST} on, of a state that training did "
            f"not meet: collect deeper ones, or hold out more."
        )

    def rewards(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Returns predictor -> predicted rewards of single steps, and the real rewards: [n] each, in percent."""
        real = self.single_steps.real
        known = self.trivial.rewards(real)
        tables = {LABELS[key]: known[key][0] for key in (trivial.PER_SITE, trivial.PER_RULE)}
        return {MODEL: self.single_steps.dreamed.reward[0], **tables}, real.trajectory.reward[0]

    def latent_errors(self) -> dict[str, np.ndarray]:
        """Returns predictor -> mean squared error per dimension after 1, 2, … steps: [K]."""
        real = self.played.real
        there = real.trajectory.state
        errors = {MODEL: metrics.squared_errors(self.played.dreamed.state, there).mean(axis=1)[1:]}
        for key, z in self.trivial.latents(real).items():
            errors[LABELS[key]] = metrics.squared_errors(z, there).mean(axis=1)[1:]
        return errors

    def mask_errors(self) -> dict[str, np.ndarray]:
        """Returns predictor -> mean number of wrong bits of a state after 1, 2, … steps: [K]."""
        real = self.played.real
        errors = {MODEL: metrics.wrong_bits(self.played.legal(), real.legal()).mean(axis=1)[1:]}
        for key, mask in self.trivial.masks(real).items():
            errors[LABELS[key]] = metrics.wrong_bits(mask, real.legal()).mean(axis=1)[1:]
        return errors

    def mask_errors_per_rule(self, step: int) -> dict[str, RuleErrors]:
        """Returns rule -> wrong bits after `step` steps, the rules that copying is most wrong about first."""
        legal, predicted = self.played.real.legal(), self.played.legal()[step]
        before, real = legal[0], legal[step]
        missed, invented, copied = (bits.sum(axis=0) for bits in (real & ~predicted, predicted & ~real, before ^ real))
        rules = np.concatenate([self.model.table.rules[:-1], self.played.real.unknown_rules])
        counts = {
            self.training.rule_names[rule]: RuleErrors(
                *(float(each[rules == rule].sum()) for each in (missed, invented, copied))
            )
            for rule in np.unique(rules)
        }
        return dict(sorted(counts.items(), key=lambda item: -item[1].copied))

    def coverage(self, levels: Sequence[float]) -> dict[str, np.ndarray]:
        """Returns the share of real next latents in central intervals of each level, as predicted and with σ rescaled.

        Every other episode serves to fit the factor of σ, and the rest to evaluate it.

        Returns:
          Label -> [levels]; nothing if the model predicts no mixtures (`MdnRnnConfig.dynamics`) or fewer than two
          episodes can be evaluated.
        """
        if self.model.mdn_rnn.config.dynamics != "mdn":
            return {}
        windows = self.single_steps.real
        mixtures, real = next_latents(self.model, windows), windows.trajectory.state[1]
        fitted = windows.episode % 2 == 0
        if fitted.all() or not fitted.any():
            return {}
        scale = fit_scale(real[fitted], Mixtures(*(field[fitted] for field in mixtures)))
        evaluated, real = Mixtures(*(field[~fitted] for field in mixtures)), real[~fitted]
        return {
            label: np.array([covered(real, evaluated, level, factor).mean() for level in levels])
            for label, factor in (("as predicted", 1.0), (f"σ × {scale:.2f}, fitted on other episodes", scale))
        }

    def latents(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns latents [n, Z] of the distinct training states, and costs [n] in percent of the start graph's."""
        costs = {
            graph_hash: 100.0 * cost / episode.cost_ms[0]
            for episode in self.training
            for graph_hash, cost in zip(episode.hashes, episode.cost_ms, strict=True)
        }
        latents = self.model.encode({graph_hash: self.training.graphs[graph_hash] for graph_hash in costs})
        return np.stack(list(latents.values())), np.array(list(costs.values()))

    def start_latent(self) -> np.ndarray:
        """Returns the latent [Z] of the start graph."""
        start = self.training[0].start
        return self.model.encode({start: self.training.graphs[start]})[start]

    @cached_property
    def principal(self) -> Components:
        """The first two principal components of the latents of the training states."""
        return Components.fit([self.latents()[0]], 2)

    def trajectories(self, held_out: int, samples: int = 10, temperature: float = 1.0) -> list[Returns]:
        """Returns real and dreamed rewards of the first long held-out episodes and of the controller's own episodes."""
        windows = cut_windows(self.model, self.held_out, steps=self.played.real.steps, stride=10**6)
        count = min(held_out, len(windows.episode))
        parts = [(f"random episode {windows.episode[i]}", windows.rows([i])) for i in range(count)]
        records = {"controller, deterministic": self.evaluation.deterministic}
        records |= {f"controller, sampled {i + 1}": record for i, record in enumerate(self.evaluation.sampled[:1])}
        parts += [(title, self.window_of(record)) for title, record in records.items() if record.actions]
        return [self._dreamed(title, window, samples, temperature) for title, window in parts]

    def window_of(self, record: EpisodeRecord) -> Windows:
        """Returns a real episode as one window. Only the latent and the mask of its start are known."""
        table = self.model.table
        actions = table.encode(np.array(record.played(table.everywhere)))
        steps = int(np.flatnonzero(np.append(actions, -1) < 0)[0])
        z = np.zeros((steps + 1, 1, self.model.latent_size), np.float32)
        z[0, 0] = self.start_latent()
        legal = np.zeros((steps + 1, 1, table.num_actions + 1), bool)
        legal[0, 0] = table.mask(self.training[0].legal_actions(0))
        trajectory = Trajectory(
            state=z,
            legal=legal,
            action=actions[:steps, np.newaxis],
            reward=np.array(record.rewards[:steps], np.float32)[:, np.newaxis],
            terminal=np.zeros((steps, 1), bool),
            alive=np.ones((steps, 1), bool),
            past=np.zeros_like(legal),
        )
        return Windows(
            trajectory=trajectory,
            unknown=np.zeros((steps + 1, 1, 0), bool),
            last_reward=np.zeros(1, np.float32),
            hidden=np.zeros((1, self.model.hidden_size), np.float32),
            cell=np.zeros((1, self.model.hidden_size), np.float32),
            episode=np.zeros(1, int),
            depth=np.zeros(1, int),
            unknown_rules=np.zeros(0, int),
        )

    def _dreamed(self, title: str, window: Windows, samples: int, temperature: float) -> Returns:
        likely = play(self.model, window)
        sampled = play(self.model, window.rows([0] * samples), temperature=temperature)
        real, dreamed, drawn = (_summed(each.reward) for each in (window.trajectory, likely.dreamed, sampled.dreamed))
        return Returns(title, real[:, 0], dreamed[:, 0], drawn.T)

    def drawn(self, temperatures: Sequence[float], samples: int = 200) -> Drawn:
        """Returns latents drawn after the held-out step that moves the latent most."""
        real = self.single_steps.real
        before, after = real.trajectory.state
        most = int(np.argmax(metrics.squared_errors(before, after)))
        window = real.rows([most] * samples)
        latents = {value: play(self.model, window, temperature=value).dreamed.state[1] for value in temperatures}
        return Drawn(before[most], after[most], latents)


def _summed(rewards: np.ndarray) -> np.ndarray:
    """Returns the sums [K + 1, W] of rewards [K, W] after 0, 1, … steps."""
    return np.cumsum(np.pad(rewards, [(1, 0), (0, 0)]), axis=0)
