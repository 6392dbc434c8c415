"""Exports the best graph of a run and proves that it computes what the model computes.

Rewrites that would make the file too large are left out. If the outputs differ, the rewrites at fault are left out,
and the rest is exported. If nothing can be proved, because the model does not run or its outputs say nothing, the graph
is exported too, and the result says that it is not verified.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections import Counter

from controller.records import EpisodeLog, EpisodeRecord
from environment.substitution.omission import leave_out
from environment.verification import ONNX_RUNTIME, Verification, find_first_bad_rewrite, verify
from experiments.pipeline.loading.load import Loaded
from experiments.runs.body_plan import BodyPlan
from experiments.runs.run import Run
from taso_ext.errors import ModelError
from taso_ext.onnx_io.checked_model import CheckedModel

STAGE = "verify"
SMALL_FILE = 1 << 16
"""Results of up to this many bytes may be larger than their models by any factor."""


@dataclasses.dataclass(frozen=True)
class Exported:
    """A model to write, and its comparison with the original.

    Attributes:
      model: the model that will be written to OUT.
      record: the episode whose best graph this is; without actions if the model is the original.
      left_out: one sentence for each rewrite, or rule, that was left out because it changed an output or because the
        result would be too large.
      bodies: the rewrites of graphs inside operators; see `experiments.pipeline.bodies`.
      body_notes: one sentence for each body that stays as it is, and for each rewrite of one that was left out.
      reference: the original with the same symbolic dimensions, against which the model is timed; None if it has none.
      symbolic: the dimensions that `--dim` gives a size and that are symbolic in the model to write; see
        `experiments.pipeline.result.symbolic`.
      symbolic_notes: sentences on the sizes at which that was verified, and on dimensions that are not symbolic.
      unverified: why nothing was proved; empty if the model was, or if no rewrite was applied.
      runs_in: where both models ran to be compared, see `Verification`; empty if the original runs nowhere.
      largest_difference, tolerance: the largest difference between outputs of the two models and the largest one
        allowed, in standard deviations of the output's values; 0 if no rewrite was applied.
    """

    model: CheckedModel
    record: EpisodeRecord
    left_out: tuple[str, ...] = ()
    unverified: str = ""
    runs_in: str = ONNX_RUNTIME
    largest_difference: float = 0.0
    tolerance: float = 0.0
    bodies: tuple[BodyPlan, ...] = ()
    body_notes: tuple[str, ...] = ()
    reference: CheckedModel | None = None
    symbolic: tuple[str, ...] = ()
    symbolic_notes: tuple[str, ...] = ()

    def judged(self, found: Verification) -> Exported:
        """Returns the same with the figures of a comparison that found the model equal, or could not be made."""
        if not found.comparable:
            return dataclasses.replace(self, unverified=found.reason, runs_in=found.runs_in)
        return dataclasses.replace(
            self,
            unverified="" if found.reacts else found.reason,
            runs_in=found.runs_in,
            largest_difference=found.largest_difference,
            tolerance=found.tolerance,
        )

    @property
    def changed(self) -> bool:
        """Whether any rewrite was applied."""
        return bool(self.record.best_actions or self.bodies)


def why_unverifiable(loaded: Loaded, num_inputs: int) -> str:
    """Returns why a comparison of outputs would prove nothing, as part of a sentence; empty if it would.

    The outputs do not react to the inputs, or are random, or the model does not run at all.
    """
    start = loaded.model.export_checked(loaded.model.graph)
    found = verify(loaded.model.source, start, num_inputs=num_inputs, inputs=loaded.inputs)
    return "" if found.comparable and found.reacts else found.reason


def export_verified(run: Run, loaded: Loaded, best: EpisodeRecord) -> Exported:
    """Exports the best graph of an episode that equals the original, without the rewrites that change an output."""
    if not best.best_actions:
        return Exported(loaded.model.source, best)
    record, left_out = small_enough(run, loaded, best)
    if not record.best_actions:
        return Exported(loaded.model.source, record, tuple(left_out))
    with run.stage(STAGE, "compare the result with the model", 1) as bar:
        exported = without_faults(run, loaded, record)
        bar.update(1, largest_difference=exported.largest_difference)
    for sentence in exported.left_out:
        run.progress.note(sentence)
    return dataclasses.replace(exported, left_out=(*left_out, *exported.left_out))


def without_faults(run: Run, loaded: Loaded, record: EpisodeRecord) -> Exported:
    """Returns what remains of an episode's best graph without the rewrites that change an output.

    The first rewrite that breaks equality is left out, and what remains is compared again. When a rule is at fault for
    the second time, all its rewrites are left out.
    """
    left_out: list[str] = []
    faults = Counter[int]()
    while record.best_actions:
        candidate, verification = _compared(run, loaded, record)
        if candidate is not None and (verification.equal or not verification.comparable):
            return Exported(candidate, record, tuple(left_out)).judged(verification)
        position = _first_bad_rewrite(run, loaded, record) - 1
        if position < 0:
            left_out.append(f"The model itself differs after its clean-up: {verification.reason}.")
            break
        (rule, location), name = record.best_actions[position], record.action_names[position]
        faults[rule] += 1
        again = faults[rule] > 1
        uses = [at for at, action in enumerate(record.best_actions) if action[0] == rule]
        place = "everywhere" if again else f"at location {location}"
        left_out.append(f"Rule '{name}' was left out {place}, because with it {verification.reason}.")
        record = without(loaded, record, uses if again else [position])
    return Exported(loaded.model.source, record.until(0), tuple(left_out))


def small_enough(run: Run, loaded: Loaded, record: EpisodeRecord) -> tuple[EpisodeRecord, list[str]]:
    """Returns an episode without the rewrites that let the result outgrow `max_growth`, and a sentence for each rule.

    Of a plan that grows too much, the rewrite goes with which the limit is passed, and so on.
    """
    most = max(run.config.max_growth * loaded.model.source.file_bytes, SMALL_FILE)

    def fits(count: int) -> bool:
        return loaded.model.sketch(loaded.env.replay(record.best_actions[:count])).model.file_bytes <= most

    omitted = Counter[str]()
    try:
        while record.best_actions and not fits(len(record.best_actions)):
            first = bisect.bisect_left(range(1, len(record.best_actions)), True, key=lambda count: not fits(count))
            omitted[record.action_names[first]] += 1
            record = without(loaded, record, [first])
    except ModelError:  # it cannot be written, for which there is a sentence when it is compared
        return record, []
    reason = f"because OUT would be more than {run.config.max_growth:g} times as large as MODEL (see --max-growth)"
    return record, [
        f"Rule '{name}' was left out at {count} place{'s' * (count > 1)}, {reason}." for name, count in omitted.items()
    ]


def _compared(run: Run, loaded: Loaded, record: EpisodeRecord) -> tuple[CheckedModel | None, Verification]:
    """Returns the best graph of an episode as a model, and its comparison with the original.

    There is no model if the graph cannot be written, for example because its operators need a newer opset than those
    that stay have.
    """
    try:
        candidate = loaded.model.export_checked(loaded.env.replay(record.best_actions))
    except ModelError as error:
        return None, Verification(False, float("inf"), 0.0, True, True, reason=f"the graph cannot be written: {error}")
    verification = verify(
        loaded.model.source,
        candidate,
        seed=run.seed(STAGE),
        num_inputs=run.config.verify.num_inputs,
        inputs=loaded.inputs,
    )
    return candidate, verification


def _first_bad_rewrite(run: Run, loaded: Loaded, record: EpisodeRecord) -> int:
    """Returns the number of the rewrite that broke equality, from 1; 0 if the clean-up did."""
    actions = record.best_actions
    return find_first_bad_rewrite(
        loaded.model.source,
        lambda count: loaded.model.export_checked(loaded.env.replay(actions[:count])),
        len(actions),
        seed=run.seed(STAGE),
        num_inputs=run.config.verify.num_inputs,
        inputs=loaded.inputs,
    )


def without(loaded: Loaded, record: EpisodeRecord, omitted: list[int]) -> EpisodeRecord:
    """Returns the episode that plays what remains of another one's way to its best graph.

    NO-OP ends it, so that a graph is measured at its end also where the reward does not have every graph measured.
    """
    env = loaded.env
    env.reset(seed=record.seed)
    plan = leave_out(env.state, record.best_actions, omitted)
    _, info = env.reset(seed=record.seed, options={"max_steps": len(plan) + 1})
    log = EpisodeLog(record.kind, record.seed, info)
    for action in [*plan, (env.num_rules, 0)]:
        if log.over:  # nothing is left to rewrite
            break
        _, reward, terminated, truncated, info = env.step(action)
        log.add(action, float(reward), terminated, truncated, info)
    return dataclasses.replace(log.record(), chosen=None if record.chosen is None else len(plan))
