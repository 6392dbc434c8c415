"""The steps of optimisers: new weights, and new values of what an optimiser remembers of each weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from environment.gradients.expressions import Expressions


class Optimiser(Protocol):
    """An optimiser.

    Attributes:
      remembers: names of what it keeps for each weight, tensors of the weight's shape that start at zero.
      counts_steps: whether its step depends on the number of steps before.
      learning_rate: the default value of the input `learning_rate`.
    """

    @property
    def remembers(self) -> Sequence[str]: ...
    @property
    def counts_steps(self) -> bool: ...
    @property
    def learning_rate(self) -> float: ...

    def step(
        self, at: Expressions, weight: str, gradient: str, state: Sequence[str], rate: str, count: str | None
    ) -> tuple[str, Sequence[str]]:
        """Writes one step.

        Args:
          state: what it remembers of the weight.
          rate: the learning rate, a scalar.
          count: the number of this step, a scalar from 1; None if it counts no steps.
        Returns:
          The new weight, and what it remembers then.
        """
        ...


@dataclass(frozen=True)
class Sgd:
    """Gradient descent: w - α · g."""

    learning_rate: float = 0.01
    remembers: ClassVar[Sequence[str]] = ()
    counts_steps: ClassVar[bool] = False

    def step(
        self, at: Expressions, weight: str, gradient: str, state: Sequence[str], rate: str, count: str | None
    ) -> tuple[str, Sequence[str]]:
        return at.write("Sub", weight, at.write("Mul", rate, gradient)), ()


@dataclass(frozen=True)
class Adam:
    """Adam. Source: Kingma and Ba 2015, algorithm 1, with its default numbers.

    Attributes:
      first_decay, second_decay: β₁ and β₂, the shares of the old moments.
    """

    learning_rate: float = 0.001
    first_decay: float = 0.9
    second_decay: float = 0.999
    epsilon: float = 1e-8
    remembers: ClassVar[Sequence[str]] = ("first_moment", "second_moment")
    counts_steps: ClassVar[bool] = True

    def step(
        self, at: Expressions, weight: str, gradient: str, state: Sequence[str], rate: str, count: str | None
    ) -> tuple[str, Sequence[str]]:
        assert count is not None
        first = moved(at, state[0], gradient, self.first_decay)
        second = moved(at, state[1], at.write("Mul", gradient, gradient), self.second_decay)
        unbiased = [
            at.write("Div", moment, at.write("Sub", at.number(1), at.write("Pow", at.number(decay), count)))
            for moment, decay in ((first, self.first_decay), (second, self.second_decay))
        ]
        size = at.write("Add", at.write("Sqrt", unbiased[1]), at.number(self.epsilon))
        change = at.write("Mul", rate, at.write("Div", unbiased[0], size))
        return at.write("Sub", weight, change), (first, second)


@dataclass(frozen=True)
class RmsProp:
    """RMSProp with momentum.

    Source: Tieleman and Hinton 2012, lecture 6.5: v = ρ · v + (1 - ρ) · g², and g / √v takes the place of g. The
    momentum of the rescaled gradients, m = μ · m + α · g / √(v + ε), is TensorFlow's. Inception v3 was trained with it
    (Szegedy et al. 2016, section 8: ρ = 0.9, ε = 1).

    Attributes:
      decay: ρ, the share of the old mean square.
      momentum: μ.
    """

    learning_rate: float = 0.001
    decay: float = 0.9
    momentum: float = 0.9
    epsilon: float = 1e-10
    remembers: ClassVar[Sequence[str]] = ("mean_square", "momentum")
    counts_steps: ClassVar[bool] = False

    def step(
        self, at: Expressions, weight: str, gradient: str, state: Sequence[str], rate: str, count: str | None
    ) -> tuple[str, Sequence[str]]:
        square = moved(at, state[0], at.write("Mul", gradient, gradient), self.decay)
        size = at.write("Sqrt", at.write("Add", square, at.number(self.epsilon)))
        change = at.write("Mul", rate, at.write("Div", gradient, size))
        momentum = at.write("Add", at.scaled(state[1], self.momentum), change)
        return at.write("Sub", weight, momentum), (square, momentum)


def moved(at: Expressions, old: str, new: str, decay: float) -> str:
    """Returns a running mean after it took in a new value: decay · old + (1 - decay) · new."""
    return at.write("Add", at.scaled(old, decay), at.scaled(new, 1 - decay))


OPTIMISERS: Mapping[str, Optimiser] = {"sgd": Sgd(), "adam": Adam(), "rmsprop": RmsProp()}
"""The optimisers by name, with their default numbers."""
