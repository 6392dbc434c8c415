"""Values that are kept as long as there are not too many newer ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """Values by name, of which those asked for last are kept.

    Args:
      most: how many.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: OrderedDict[str, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, name: str, make: Callable[[], Value]) -> Value:
        """The value of a name; `make` makes it where there is none, and if that raises there still is none."""
        if name not in self._kept:
            self._kept[name] = make()
        self._kept.move_to_end(name)
        while len(self._kept) > self.most:
            self._kept.popitem(last=False)
        return self._kept[name]

    def forget(self, name: str) -> None:
        """The value of a name is made anew when it is asked for next."""
        self._kept.pop(name, None)
