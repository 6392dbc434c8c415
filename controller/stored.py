"""Files of trained controllers: reading them, and giving their variables back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from controller.interface import StoredControllerError
from taso_ext.files import UNREADABLE_ARRAYS

if TYPE_CHECKING:
    import tensorflow as tf

RETRAIN = "Train it anew, in another run directory (--run-dir)."
"""What errors about stored controllers advise."""


def read(path: str | os.PathLike[str], version: int) -> dict[str, np.ndarray]:
    """Returns the arrays of a stored controller, without their "format_version".

    Raises:
      StoredControllerError: the file has another format or cannot be read.
    """
    try:
        with np.load(path) as arrays:
            state = dict(arrays)
    except UNREADABLE_ARRAYS as error:
        raise StoredControllerError(
            f"{os.fspath(path)} cannot be read as a controller ({type(error).__name__}: {error}): it is missing or "
            f"damaged. {RETRAIN}"
        ) from error
    found = int(state.pop("format_version", 0))
    if found != version:
        raise StoredControllerError(
            f"{os.fspath(path)} holds a controller of format {found}, expected {version}. Train it anew, "
            "in another run directory (--run-dir), or go on with the RLFlow that wrote it."
        )
    return state


def named(parts: Mapping[str, Iterable[tf.Variable]]) -> dict[str, tf.Variable]:
    """Returns variables by the names under which they are stored: their part, and their place in it."""
    return {f"{part}/{i:03d}": weight for part, weights in parts.items() for i, weight in enumerate(weights)}


def assign(variables: Mapping[str, tf.Variable], state: Mapping[str, np.ndarray]) -> None:
    """Gives variables the values that are stored by their names.

    Raises:
      StoredControllerError: there are other names, or other shapes. Then nothing has changed.
    """
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    given = {name: array.shape for name, array in state.items()}
    if shapes != given:
        wrong = min(name for name in {*shapes, *given} if shapes.get(name) != given.get(name))
        raise StoredControllerError(
            f"The stored controller does not fit: {wrong} is {given.get(wrong, 'missing')} in the file and "
            f"{shapes.get(wrong, 'absent')} here. It was trained for another graph, rule set or configuration."
        )
    for name, variable in variables.items():
        variable.assign(state[name])
