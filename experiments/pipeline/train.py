"""`rlflow train`: the stages of `rlflow optimise` up to the world model or the controller, and what came of them."""

from __future__ import annotations

from typing import Any

from experiments.config.run import RunConfig
from experiments.errors import UserError
from experiments.pipeline.learning import STAGE, Learning, train_for_real
from experiments.pipeline.load import load
from experiments.pipeline.optimise import begin_run
from experiments.reports.summary import print_training
from experiments.request import Request
from experiments.runs.progress import ProgressDisplay
from experiments.runs.run import of_round
from experiments.runs.warnings_noted import warnings_noted

WORLD_MODEL, CONTROLLER = "world-model", "controller"


def train(request: Request, part: str, progress: ProgressDisplay) -> None:
    """Trains, or goes on training, and prints a summary; `rlflow optimise` with the same options goes on from there.

    Args:
      part: `WORLD_MODEL` or `CONTROLLER`. With recollection it is that of the last round, and all rounds before it are
        trained in full.
    Raises:
      UserError, ModelError and their like: bad input, or a controller that does not learn; nothing was written.
    """
    require_learning(request.config, part)
    progress.note(f"Loading {request.model}")
    with warnings_noted(progress):
        loaded = load(request.model, request.config)
        run = begin_run(request, loaded, progress)
        accuracy: list[dict[str, Any]] = []
        rows: list[dict[str, Any]] = []
        best_real, last = None, request.config.recollect.rounds
        if request.config.world == "real":
            best_real, last = 100 * train_for_real(run, loaded)[1].improvement, 0
        else:
            learning = Learning(run, loaded)
            rows = [learning.round_row(number) for number in range(last + (part == CONTROLLER))]
            accuracy = learning.accuracy(last)
    updates = run.metrics.read(of_round(STAGE, last)) if part == CONTROLLER else []
    print_training(f"{request.model} · {part}", accuracy, rows, updates, best_real, str(run.directory.path))


def require_learning(config: RunConfig, part: str) -> None:
    """Raises UserError where the settings leave nothing to train."""
    if config.controller != "ppo":
        raise UserError(
            f"rlflow train {part} is for a controller that learns, which --controller {config.controller} does not. "
            "Leave --controller out, or search with `rlflow optimise`."
        )
    if part == WORLD_MODEL and config.world == "real":
        raise UserError(
            "With --world real there is no world model to train. Leave --world out, or use `rlflow train controller`."
        )
