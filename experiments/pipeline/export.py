"""Exports the best graph of a run and proves that it computes what the model computes."""

from __future__ import annotations

import dataclasses

from controller.records import EpisodeRecord
from environment.verification import Verification, find_first_bad_rewrite, verify
from experiments.errors import UserError, VerificationFailed
from experiments.pipeline.load import Loaded
from experiments.runs.run import Run
from taso_ext.onnx_io.checked_model import CheckedModel

STAGE = "verify"


@dataclasses.dataclass(frozen=True)
class Exported:
    """A model to write, and its comparison with the original.

    Attributes:
      model: the model that will be written to OUT.
      changed: whether any rewrite was applied; if not, `model` is the original.
      largest_difference, tolerance: the largest difference between outputs of the two models and the largest one
        allowed, in standard deviations of the output's values; 0 if no rewrite was applied.
    """

    model: CheckedModel
    changed: bool
    largest_difference: float
    tolerance: float


def require_verifiable(loaded: Loaded, num_inputs: int) -> None:
    """Checks, before any work, that a comparison of outputs would prove something.

    Raises:
      UserError: the outputs do not react to the inputs, the outputs are random, or the model does not run at all.
    """
    start = loaded.model.export_checked(loaded.model.graph)
    verification = verify(loaded.model.source, start, num_inputs=num_inputs, inputs=loaded.inputs)
    if verification.reason:
        raise UserError(f"{loaded.name} cannot be optimised, since no result could be verified: {verification.reason}.")


def export_verified(run: Run, loaded: Loaded, best: EpisodeRecord) -> Exported:
    """Exports the best graph of the run and compares it with the original.

    Raises:
      VerificationFailed: the outputs differ; the message names the first rewrite that broke equality.
    """
    actions = best.best_actions
    if not actions:
        return Exported(loaded.model.source, changed=False, largest_difference=0.0, tolerance=0.0)
    with run.stage(STAGE, "verify in ONNX Runtime", 1) as bar:
        candidate = loaded.model.export_checked(loaded.env.replay(actions))
        verification = verify(
            loaded.model.source,
            candidate,
            seed=run.seed(STAGE),
            num_inputs=run.config.verify.num_inputs,
            inputs=loaded.inputs,
        )
        bar.update(1, largest_difference=verification.largest_difference)
        if not (verification.equal and verification.reacts):
            raise VerificationFailed(_first_bad_rewrite(run, loaded, best, verification))
    return Exported(candidate, True, verification.largest_difference, verification.tolerance)


def _first_bad_rewrite(run: Run, loaded: Loaded, best: EpisodeRecord, verification: Verification) -> str:
    """Returns the error text, which names the rewrite that broke equality."""
    actions = best.best_actions
    step = find_first_bad_rewrite(
        loaded.model.source,
        lambda count: loaded.model.export_checked(loaded.env.replay(actions[:count])),
        len(actions),
        seed=run.seed(STAGE),
        num_inputs=run.config.verify.num_inputs,
        inputs=loaded.inputs,
    )
    if step == 0:
        culprit = "No rewrite did it: the model already differs after the clean-up, try --clean none."
    else:
        rule = f"'{best.rule_names[step - 1]}' at location {actions[step - 1][1]}"
        culprit = f"The first rewrite that broke equality is number {step} of {len(actions)}, {rule}."
    return (
        f"Verification failed, so nothing was written: {verification.reason}. {culprit} "
        f"Please report it together with {run.directory.path}."
    )
