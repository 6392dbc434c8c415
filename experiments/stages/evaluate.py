"""Plays the trained controller, and random beside it, in the real environment."""

from __future__ import annotations

from typing import Any

from controller.base import Controller
from controller.evaluate import Evaluation, evaluate
from controller.random import RandomController
from controller.records import EpisodeRecord
from experiments.run import Run

STAGE = "evaluate"


def evaluate_controller(run: Run, env: Any, controller: Controller, collection: EpisodeRecord | None) -> Evaluation:
    """Parts (a) to (d) of the report, kept as `checkpoints/evaluation.json`."""
    path = run.directory.checkpoint("evaluation.json")
    if run.directory.finished(STAGE):
        return Evaluation.load(path)
    num_sampled = run.config.evaluate.sampled_episodes if controller.stochastic else 0
    with run.stage(STAGE, "play real episodes", 2 * (1 + num_sampled)) as bar:
        run.metrics.rewind(STAGE, 0)
        best = 0.0

        def note(done: int, total: int, record: EpisodeRecord) -> None:
            nonlocal best
            best = max(best, record.improvement)
            figures = {"kind": record.kind, "seed": record.seed, "steps": len(record.actions)}
            percents = {"return": sum(record.rewards), "improvement_percent": 100 * record.improvement}
            run.metrics.append(STAGE, done - 1, {**figures, **percents})
            bar.update(done, best_percent=100 * best)

        evaluation = evaluate(
            env,
            controller,
            num_sampled=num_sampled,
            seed=run.seed(STAGE),
            collection=collection,
            random_controller=RandomController(run.config.collect.noop_probability),
            on_episode=note,
        )
        evaluation.save(path)
    return evaluation
