"""The form of an entry in the table of gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from environment.gradients.operation import Operation

Gradients = Sequence[str | None]
"""For each input of an operator, the value that is the gradient of the loss with respect to it.

None, and what is missing at the end, stands for no gradient.
"""


@dataclass(frozen=True)
class Forward:
    """What the forward pass of a training graph computes in place of an operator.

    Attributes:
      outputs: the values that take the place of the operator's outputs, in order.
      saved: values for the gradient alone, by name.
      updated: new values of initializers that the forward pass itself changes, such as running means, by their names.
    """

    outputs: Sequence[str]
    saved: dict[str, str]
    updated: dict[str, str]


@dataclass(frozen=True)
class Rule:
    """The gradient of an operator, which is the product of a cotangent and its Jacobian.

    Attributes:
      backward: writes the gradients of the operator's inputs from the cotangents of its outputs.
      broadcasts: whether `backward` returns gradients of the shape of the result, from which those of operands that
        were broadcast follow by sums.
      forward: writes what the operator computes in training, if that differs from inference or if the gradient needs
        more than its inputs and outputs.
    """

    backward: Callable[[Operation], Gradients]
    broadcasts: bool = False
    forward: Callable[[Operation], Forward] | None = None
