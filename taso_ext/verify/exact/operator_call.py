"""One operator application as kernels see it, and the errors they raise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from taso_ext.verify.exact.prime_field import Array
from taso_ext.verify.exact.tensor import Arithmetic, FieldTensor, each


class UnsupportedOperatorError(ValueError):
    """The operator is no function of its inputs (random) or needs a form that the evaluator does not know."""


@dataclass(frozen=True)
class Call:
    """One operator application.

    Attributes:
      op_type, attributes: of the node; the domain is prefixed to `op_type` when it is not ONNX's own.
      inputs: operands; None for an absent optional one.
      output_dims: shape of each output, as inferred by the engine.
      literals: by input position, the number that all elements of a constant operand have.
      arithmetic: the fields and random functions of this evaluation.
    """

    op_type: str
    attributes: dict[str, Any]
    inputs: list[FieldTensor | None]
    output_dims: list[tuple[int, ...]]
    literals: dict[int, float]
    arithmetic: Arithmetic

    def operand(self, index: int) -> FieldTensor:
        """The input at `index`, which must be present."""
        value = self.optional(index)
        if value is None:
            raise UnsupportedOperatorError(f"{self.op_type} needs its input {index}, which is absent")
        return value

    def optional(self, index: int) -> FieldTensor | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def operands(self) -> list[FieldTensor]:
        return [self.operand(index) for index in range(len(self.inputs))]

    def each(self, function: Callable[..., Array], *tensors: FieldTensor | None) -> FieldTensor:
        """function(field, *parts) in each field."""
        return each(self.arithmetic, function, tensors)

    def number(self, name: str, default: float) -> FieldTensor:
        """A real attribute as the literal it stands for."""
        return self.arithmetic.constant(float(self.attributes.get(name, default)))

    def key(self, *ignored: str) -> str:
        """Names the random function: the operator and those attributes that change what it computes."""
        kept = {name: value for name, value in self.attributes.items() if name not in ignored}
        return f"{self.op_type}{sorted(kept.items())}"

    def require(self, name: str, *accepted: object) -> None:
        """Refuses an attribute that is there with another value."""
        value = self.attributes.get(name, accepted[0])
        if value not in accepted:
            raise UnsupportedOperatorError(
                f"{self.op_type} with {name}={value!r} is not evaluated; {name}={accepted[0]!r} is"
            )


Kernel = Callable[[Call], list[FieldTensor]]
