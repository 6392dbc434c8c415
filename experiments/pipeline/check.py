"""`rlflow check`: proves that two models compute the same, and times them against each other, on any machine.

Nothing here asks where the models come from: any pair with the same inputs and outputs can be checked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

from environment.costs.prices.settings import setting_of
from environment.runtimes.onnx_runtime import require_working
from environment.verification import Verification, verify
from experiments.config.run import RunConfig
from experiments.errors import UserError
from experiments.pipeline.clock.measure import first_of, measure_pair, runtime_of
from experiments.pipeline.loading.load import find_model, given_inputs
from experiments.runs.progress import ProgressDisplay, warnings_noted
from experiments.runs.provenance import Provenance, provenance_of
from experiments.runs.result import MeasuredRatio
from experiments.runs.run import seed_for
from taso_ext.errors import ModelError
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.dimensions import open_dims
from taso_ext.onnx_io.reading import read_model


class DifferentInterface(UserError):
    """Two models cannot be compared, because they have different inputs or outputs."""


@dataclasses.dataclass(frozen=True)
class Checked:
    """A pair of models, compared.

    Attributes:
      model, result: the names of the two models.
      verification: the comparison of their outputs.
      measured: the time of `result` over that of `model`; None if they differ or could not be timed.
      unmeasured: why they could not be timed; empty if they were, or if they differ.
      here: the device on which they were timed, with its processor and the runtime.
      provenance: where `result` comes from, if its metadata say so.
      bytes_before, bytes_after: sizes of both models with their weights.
    """

    model: str
    result: str
    verification: Verification
    measured: MeasuredRatio | None
    unmeasured: str
    here: str
    provenance: Provenance | None
    bytes_before: int
    bytes_after: int

    @property
    def is_judged(self) -> bool:
        """Whether the outputs say that the models are equal, or that they differ."""
        found = self.verification
        return found.comparable and (found.reacts or not found.equal)

    def lines(self) -> list[str]:
        """Returns the sentences that the user reads, the most important first."""
        found = self.verification
        lines = []
        if not self.is_judged:
            lines.append(f"Not verified: {found.reason}.")
        elif not found.equal:
            lines.append(f"DIFFERENT: {found.reason}.")
        else:
            lines.append(
                f"Equal: on {found.num_inputs} input sets in {found.runs_in}, outputs differ by at most "
                f"{found.largest_difference:.2e} of their spread (tolerance {found.tolerance:.0e})."
            )
        if self.measured is not None:
            lines.append(f"{self.measured.sentence().rstrip('.')}: ratio {self.measured.interval}.")
            lines.append(f"{self.measured.ending} {self.measured.runtime}; {self.measured.clock}.")
        if self.unmeasured:
            lines.append(f"Not timed, because {self.unmeasured.rstrip('.')}.")
        lines.append(f"Size: {self.bytes_before / 1e6:.2f} MB before, {self.bytes_after / 1e6:.2f} MB after.")
        elsewhere = self.provenance.measured_on if self.provenance is not None else ""
        if elsewhere and elsewhere != self.here:
            lines.append(
                f"Warning: {self.result} was made for {elsewhere}. This is {self.here}: what is faster there need not "
                "be faster here."
            )
        return lines

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return dataclasses.asdict(self)


def check(model: str, result: str, config: RunConfig, progress: ProgressDisplay) -> Checked:
    """Compares the outputs of two models and times them.

    Args:
      model, result: paths of ONNX files, or zoo names; the first one is the oracle.
      config: settings, of which dims, inputs, device, seed, `verify` and `measure` matter here.
    Raises:
      UserError, ModelError, UnavailableError: the input is bad; the message says what is wrong and what to do.
    """
    require_working(config.device)
    progress.note(f"Loading {model} and {result}")
    with warnings_noted(progress):
        before, after = _read(model, result, config)
    return compared(model, result, before, after, config, progress)


def compared(
    model: str,
    result: str,
    before: CheckedModel,
    after: CheckedModel,
    config: RunConfig,
    progress: ProgressDisplay,
    *,
    timed: bool = True,
) -> Checked:
    """Compares the outputs of two models that were read, and times them.

    Args:
      model, result: the names of the two models.
      before, after: the models; the first one is the oracle.
      config: see `check`.
      timed: whether they are timed.
    Raises:
      DifferentInterface: they have not the same inputs and outputs.
    """
    _require_same_interface(before, after)
    inputs = given_inputs(config.inputs)
    with progress.stage("compare the outputs", 1) as bar:
        found = verify(
            before, after, seed=seed_for(config.seed, "verify"), num_inputs=config.verify.num_inputs, inputs=inputs
        )
        bar.update(1)
    measured, unmeasured = None, "" if timed else "that was not asked for"
    if timed and (found.equal or not found.comparable):
        with progress.stage("measure end to end", config.measure.pairs) as bar:
            try:
                measured = measure_pair(config, before, after, first_of(inputs, before), bar.update)
            except ModelError as error:
                unmeasured = str(error)
    return Checked(
        model=model,
        result=result,
        verification=found,
        measured=measured,
        unmeasured=unmeasured,
        here=str(setting_of(runtime_of(config))),
        provenance=provenance_of(after),
        bytes_before=before.file_bytes,
        bytes_after=after.file_bytes,
    )


def _read(model: str, result: str, config: RunConfig) -> tuple[CheckedModel, CheckedModel]:
    """Returns both models; of the second one, only the dimensions that are open there are bound."""
    before = read_model(find_model(model).build(), config.bound_dims())
    return before, read_result(find_model(result).build(), config)


def read_result(result: onnx.ModelProto | Path, config: RunConfig) -> CheckedModel:
    """Reads a model of which only some of the dimensions that `--dim` gives a size may be open."""
    after = read_model(result)
    still_open = {dim.name for dim in open_dims(after.skeleton.graph)}
    return read_model(after, {name: size for name, size in config.bound_dims().items() if name in still_open})


def _require_same_interface(before: CheckedModel, after: CheckedModel) -> None:
    """Raises DifferentInterface unless the outputs have the same names, and the second model needs no other inputs."""
    for kind in ("output", "input"):
        names = [_names(getattr(each.skeleton.graph, kind)) for each in (before, after)]
        if names[0] != names[1]:
            listed = [", ".join(map(repr, each)) or "none" for each in names]
            raise DifferentInterface(
                f"The models have different {kind}s, so that nothing can be compared: {listed[0]} and {listed[1]}."
            )


def _names(values: Sequence[Any]) -> list[str]:
    return [value.name for value in values]
