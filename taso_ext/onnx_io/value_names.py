"""Names of values in an exported model: inputs and outputs as in the original, the rest as the engine has them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence


class ValueNames:
    """Gives every value of a graph one name, and no name to two values.

    Attributes:
      copies: (output position, value) of outputs whose value already goes by another name; they need an Identity.
    """

    def __init__(
        self,
        inputs: Sequence[tuple[int, str]],
        outputs: Sequence[tuple[int, str]],
        fixed: Collection[int],
        reserved: Iterable[str],
    ) -> None:
        """Names inputs and outputs.

        Args:
          inputs, outputs: (value, original name) in order.
          fixed: values that are not computed by a node of the exported graph (weights, folded values).
          reserved: names that graphs inside nodes use for their own values.
        """
        self._names = dict(inputs)
        self._used = {name for _, name in (*inputs, *outputs)} | set(reserved)
        self.copies: list[tuple[int, int]] = []
        for position, (value, name) in enumerate(outputs):
            if value not in self._names and value not in fixed:
                self._names[value] = name
            elif self._names.get(value) != name:
                self.copies.append((position, value))

    def of(self, value: int, wanted: str) -> str:
        """The value's name; `wanted` the first time, unless something else has it."""
        if value not in self._names:
            self._names[value] = self.fresh_name(wanted or f"value_{value}")
        return self._names[value]

    def fresh_name(self, hint: str) -> str:
        """A name close to `hint` that nothing has."""
        name, count = hint, 0
        while name in self._used:
            count += 1
            name = f"{hint}_{count}"
        self._used.add(name)
        return name
