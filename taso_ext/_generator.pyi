"""Typed stub of the native part of the rule generator (source: taso_ext/src/generator)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

def enumerate(
    grid: Mapping[str, Any], laws: Sequence[tuple[Any, Any]], progress: Callable[[int, float], object]
) -> dict[str, Any]:
    """Evaluates all expressions of a grid and returns the equations between them that no others imply.

    Args:
      grid: as `taso_ext.generator.grid.Domain.native` makes it.
      laws: equations of other grids, which are not found again.
      progress: called some fifty times a second with the number of operators and the share that is done; what
        it raises stops the enumeration.
    Returns:
      `levels` (counts for each number of operators), `laws` and counts after each pruning. Both sides of a law are
      nested tuples: (operator, shapes, operand, ...), ("$", number, shapes) for a variable, ("#", content, shapes) for
      a constant.
    Raises:
      ValueError: a grid that does not fit.
    """
