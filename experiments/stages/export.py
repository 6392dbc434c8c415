"""Exports the best graph of a run and proves that it computes what the model computes."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx

from controller.records import EpisodeRecord
from environment.verification import find_first_bad_rewrite, verify
from experiments.errors import UserError, VerificationFailed
from experiments.run import Run
from experiments.stages.load import Loaded

STAGE = "verify"


@dataclasses.dataclass(frozen=True)
class Exported:
    """
    Attributes:
      model: what OUT will hold.
      changed: whether any rewrite went into it; if not, it is the model itself.
      largest_difference, tolerance: of the comparison with the model.
    """

    model: onnx.ModelProto
    changed: bool
    largest_difference: float
    tolerance: float


def export_verified(run: Run, loaded: Loaded, best: EpisodeRecord) -> Exported:
    """The best graph of the run as an ONNX model, compared with the original.

    Raises:
      VerificationFailed: the outputs differ (names the first rewrite that broke them), or cannot be compared.
    """
    actions = best.best_actions
    if not actions:
        return Exported(loaded.model.original, changed=False, largest_difference=0.0, tolerance=0.0)
    with run.stage(STAGE, "verify in ONNX Runtime", 1) as bar:
        candidate = loaded.model.export(loaded.env.replay(actions))
        inputs = _given_inputs(run.config.inputs)
        verification = verify(
            loaded.model.original,
            candidate,
            seed=run.seed(STAGE),
            num_inputs=run.config.verify.num_inputs,
            inputs=inputs,
        )
        bar.update(1, largest_difference=verification.largest_difference)
    if not verification.reacts:
        raise VerificationFailed(
            "The model's outputs do not react to random inputs, so nothing would be proved by comparing them. "
            "Give real inputs with --inputs file.npz (arrays named like the model's inputs). Nothing was written."
        )
    if not verification.equal:
        raise VerificationFailed(_first_bad_rewrite(run, loaded, best, verification.largest_difference, inputs))
    return Exported(candidate, True, verification.largest_difference, verification.tolerance)


def _first_bad_rewrite(
    run: Run, loaded: Loaded, best: EpisodeRecord, difference: float, inputs: dict[str, np.ndarray] | None
) -> str:
    """The error text: which rewrite broke equality."""
    actions = best.best_actions
    step = find_first_bad_rewrite(
        loaded.model.original,
        lambda count: loaded.model.export(loaded.env.replay(actions[:count])),
        len(actions),
        seed=run.seed(STAGE),
        inputs=inputs,
    )
    rule = f"'{best.rule_names[step - 1]}' at location {actions[step - 1][1]}"
    return (
        f"Verification failed: the outputs of the result differ from the model's by {difference:.2e} of their spread. "
        f"The first rewrite that broke equality is number {step} of {len(actions)}, {rule}. Nothing was written. This is "
        f"a defect of that rule: please report it together with {run.directory.path}."
    )


def _given_inputs(path: str | None) -> dict[str, np.ndarray] | None:
    """Arrays of `--inputs`."""
    if path is None:
        return None
    try:
        with np.load(path) as arrays:
            return dict(arrays)
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot read the inputs {path}: {error}. Expected an npz file (numpy.savez).") from error
