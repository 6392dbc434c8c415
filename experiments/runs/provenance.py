"""What the metadata of a rewritten model say about the device that it was made for.

The entries are in ONNX's own `metadata_props`, beside those of the model. They are the same in every run of the same
command on the same machine, so that equal runs write equal files.
"""

from __future__ import annotations

import dataclasses
from importlib.metadata import version

import onnx

from taso_ext.onnx_io.checked_model import CheckedModel

PREFIX = "rlflow."


@dataclasses.dataclass(frozen=True)
class Provenance:
    """Where a result comes from.

    Attributes:
      version: the version of this program.
      costs: the cost model that was minimised.
      measured_on: the device, its processor, the runtime, its version and its settings, in which the result was
        measured end to end; empty if it was not.
    """

    version: str
    costs: str
    measured_on: str = ""

    @staticmethod
    def of_this_program(costs: str, measured_on: str) -> Provenance:
        """Returns the provenance of a result of this program."""
        return Provenance(version("rlflow"), costs, measured_on)


def stamped(model: CheckedModel, provenance: Provenance) -> CheckedModel:
    """Returns the model with the provenance in its metadata, in place of that of an earlier run."""
    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(model.skeleton)
    kept = [entry for entry in skeleton.metadata_props if not entry.key.startswith(PREFIX)]
    del skeleton.metadata_props[:]
    skeleton.metadata_props.extend(kept)
    for name, value in dataclasses.asdict(provenance).items():
        if value:
            skeleton.metadata_props.add(key=f"{PREFIX}{name}", value=value)
    return dataclasses.replace(model, skeleton=skeleton)


def provenance_of(model: CheckedModel) -> Provenance | None:
    """Returns the provenance in the metadata of a model; None if this program has not written it."""
    entries = {entry.key.removeprefix(PREFIX): entry.value for entry in model.skeleton.metadata_props}
    if not {"version", "costs"} <= entries.keys():
        return None
    return Provenance(entries["version"], entries["costs"], entries.get("measured_on", ""))
