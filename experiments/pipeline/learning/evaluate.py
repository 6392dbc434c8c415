"""Plays the trained controller, and a random agent for comparison, in the real environment."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from controller.evaluation import Evaluation, episode_counts, evaluate
from controller.records import EpisodeRecord
from controller.search.one_step import RandomController
from environment import GraphSubstitutionEnv
from experiments.pipeline.clock.retime import STAGE as RETIME_STAGE
from experiments.pipeline.clock.retime import TITLE as RETIME_TITLE
from experiments.pipeline.clock.retime import retime_gain, retimes
from experiments.pipeline.clock.timings import TITLE as WHOLE_TITLE
from experiments.pipeline.clock.timings import few_timings, restore_timings, time_batch
from experiments.pipeline.learning.controller import Prepared, TrainingFacts, prepare_controller
from experiments.pipeline.learning.trained import prepare_trained
from experiments.pipeline.loading.load import Loaded
from experiments.runs.run import Run

STAGE = "evaluate"
EVALUATION, TRAINING = "checkpoints/evaluation.json", "checkpoints/training.json"


def train_and_evaluate(
    run: Run, loaded: Loaded, trained: Path | None = None, first: Run | None = None
) -> tuple[Evaluation, TrainingFacts]:
    """Trains the controller and plays it in the real environment.

    A resumed run in which both are finished loads neither the world model nor the controller.

    Args:
      trained: run directory of the controller that plays; None if a controller is trained.
      first: see `experiments.pipeline.learning.rounds.Learning`.
    Returns:
      The episodes of parts (a) to (d) of the report, and its facts of the training.
    """
    for each in (run,) if first is None else (first, run):
        restore_timings(each.directory, loaded)
    if not run.directory.finished(STAGE):
        if trained is not None and loaded.num_candidates:
            prepared = prepare_trained(run, loaded, trained)
        else:
            prepared = prepare_controller(run, loaded, first)
        run.directory.write_json(TRAINING, dataclasses.asdict(prepared.facts))
        _evaluate(run, loaded.env, prepared)
    _make_sure(run, loaded)
    facts = run.directory.stored(TRAINING, lambda fields: TrainingFacts(**fields))
    with run.directory.reading(EVALUATION):
        return Evaluation.load(run.directory.path / EVALUATION), facts


def _evaluate(run: Run, env: GraphSubstitutionEnv, prepared: Prepared) -> None:
    controller = prepared.controller
    num_sampled = run.config.evaluate.sampled_episodes
    with run.stage(STAGE, "play real episodes", 1 + sum(episode_counts(controller, num_sampled))) as bar:
        run.metrics.rewind(STAGE, 0)
        best = 0.0

        def note(done: int, total: int, record: EpisodeRecord) -> None:
            nonlocal best
            best = max(best, record.improvement)
            figures = {"kind": record.kind, "seed": record.seed, "steps": record.num_steps}
            percents = {"return": sum(record.rewards), "improvement_percent": 100 * record.improvement}
            run.metrics.append(STAGE, done - 1, {**figures, **percents, **_noise(record)})
            bar.update(done, best_percent=100 * best)

        evaluation = evaluate(
            env,
            controller,
            num_sampled=num_sampled,
            seed=run.seed(STAGE),
            collection=prepared.collection,
            random_controller=RandomController(run.config.collect.noop_probability, run.config.everywhere_probability),
            on_episode=note,
        )
        evaluation.save(run.directory.path / EVALUATION)


def _make_sure(run: Run, loaded: Loaded) -> None:
    """Times what the gains of the best episodes rest on, and prices all episodes anew until the best one is sure."""
    if not run.config.learns_in or not retimes(run, loaded) or run.directory.finished(RETIME_STAGE):
        return
    path, settings = run.directory.path / EVALUATION, run.config.search
    if (costs := few_timings(loaded)) is not None:
        with run.directory.reading(EVALUATION):
            evaluation = Evaluation.load(path)
        records = [evaluation.best, evaluation.deterministic, *evaluation.sampled, *evaluation.random]
        found = [record.best_actions for record in records if record.best_actions]

        def keep() -> None:
            evaluation.repriced(loaded.env).save(path)

        time_batch(run, loaded, found, RETIME_STAGE, WHOLE_TITLE, costs.timings, keep)
        return
    begin, most = time.monotonic(), 2 * settings.rounds * settings.retiming_seconds
    with run.stage(RETIME_STAGE, RETIME_TITLE, round(most), most) as bar:
        with run.directory.reading(EVALUATION):
            evaluation = Evaluation.load(path)

        def show(facts: Mapping[str, Any], passed: float) -> None:
            bar.update(round(time.monotonic() - begin))

        for _ in range(settings.rounds):
            plans = dict.fromkeys(each.best_actions for each in (evaluation.controller_best, evaluation.best))
            timed = [retime_gain(run, loaded, plan, on_timed=show)["timed"] for plan in plans if plan]
            evaluation = evaluation.repriced(loaded.env)  # always: an interrupted stage may have timed some kernels
            if not any(timed):
                break
        evaluation.save(path)


def _noise(record: EpisodeRecord) -> dict[str, float]:
    """Returns half the widths of the 95 % intervals of an episode's figures; empty if costs are exact."""
    if not record.cost_noise:
        return {}
    return {
        "improvement_noise": 100 * record.improvement_noise,
        "largest_reward_noise": max(record.reward_noise, default=0.0),
    }
