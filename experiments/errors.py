"""Errors of the user, as opposed to defects of the program."""

from __future__ import annotations

import errno
from collections.abc import Iterable


class UserError(ValueError):
    """Bad input on the command line or in a file; its text is one paragraph that says what to do."""


class DamagedRun(UserError):
    """A file of a run directory is missing or cannot be read."""

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(
            f"{path} is damaged: {reason}. Restore the file, or make everything in its run directory again: repeat the "
            "command of this run with --restart, or, for a point of a sweep or a part of a table, remove the directory "
            "and repeat the command."
        )


_FILE_SYSTEM = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO),
        *(errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.EEXIST),
    }
)


def is_of_the_file_system(error: Exception) -> bool:
    """Returns whether the file system refuses, as on a full disk; another OSError is a defect of the program."""
    return isinstance(error, OSError) and error.errno in _FILE_SYSTEM


def require_at_least(least: int, **values: int) -> None:
    """Checks the values of options, which are named without the leading dashes.

    Raises:
      UserError: if one of them is less than `least`.
    """
    for name, value in values.items():
        if value < least:
            raise UserError(f"--{name.replace('_', '-')} must be at least {least}, got {value}.")


def nearest_match(name: str, known: Iterable[str], separator: str = ",") -> str:
    """Returns a hint with the nearest of `known`, then all of them: `Did you mean 'ppo'? Known: greedy, ppo.`"""
    from taso_ext.errors import near  # here, because the engine comes with it, which `--help` does without

    names = sorted(known)
    close = near(name, names)
    hint = f"Did you mean '{close}'? " if close else ""
    return f"{hint}Known: {f'{separator} '.join(names)}."
