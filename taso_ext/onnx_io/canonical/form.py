"""The normal form of operators: one notation for operators that ONNX writes differently from opset to opset.

In normal form, attributes are complete, axes are not negative, and structural constants (axes, sizes, pads, shapes) are
attributes instead of inputs. Rules and the engine read only this form. A node that cannot be converted with certainty
stays exactly as it is. Such a node is *raw*, and its domain says so, because the same operator name would mislead the
engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from taso_ext.onnx_io.checked_model import ValueType

Attribute = int | float | str | bytes | list[int] | list[float] | list[str]
"""An attribute as the engine holds it; bytes are the digest of an attribute that the engine does not look into."""

RAW_DOMAIN = "raw"
"""The domain of raw nodes: they are not in normal form, although their operator has one."""


@dataclass(frozen=True)
class RawNode:
    """A node of the default domain as the model has it, with all that is known about its inputs and outputs.

    Attributes:
      inputs, outputs: types of the values, UNKNOWN for absent ones; trailing absent ones are dropped.
      constants: values of the inputs that are small constants, by position.
      present: positions of the inputs that are not absent.
    """

    op_type: str
    opset: int
    attributes: Mapping[str, Attribute]
    inputs: tuple[ValueType, ...]
    outputs: tuple[ValueType, ...]
    constants: Mapping[int, np.ndarray] = field(default_factory=dict)
    present: frozenset[int] = frozenset()

    @property
    def dims(self) -> tuple[int, ...] | None:
        """The static dims of the first input; None if they are not known."""
        return self.inputs[0].dims if self.inputs else None

    def integer(self, name: str, default: int) -> int:
        value = self.attributes.get(name, default)
        return value if isinstance(value, int) else default

    def integers(self, name: str) -> list[int] | None:
        """Returns an attribute that is a list of integers; None if it is absent."""
        value = self.attributes.get(name)
        return [int(each) for each in value] if isinstance(value, list) else None

    def integers_at(self, position: int) -> list[int] | None:
        """Returns a constant input that is a list of integers; None if it is absent or not constant."""
        value = self.constants.get(position)
        return None if value is None or value.dtype.kind not in "iu" else [int(each) for each in value.reshape(-1)]

    def given(self, position: int) -> bool:
        return position in self.present


@dataclass(frozen=True)
class NormalForm:
    """A node in normal form: which of the raw node's inputs it keeps, and its complete attributes."""

    op_type: str
    attributes: dict[str, Attribute]
    inputs: tuple[int, ...]


Lifter = Callable[[RawNode], NormalForm | None]
"""A function that returns the normal form of a node, or None if the node cannot be converted with certainty."""


def axis_of(axis: int, rank: int) -> int | None:
    """Returns the axis counted from the front; None if it is out of range."""
    return axis + rank if -rank <= axis < 0 else axis if 0 <= axis < rank else None


def axes_of(axes: list[int], rank: int) -> list[int] | None:
    """Returns axes counted from the front, in the given order; None if one is out of range or they repeat."""
    found = [axis_of(axis, rank) for axis in axes]
    valid = [axis for axis in found if axis is not None]
    return valid if len(valid) == len(found) == len(set(found)) else None
