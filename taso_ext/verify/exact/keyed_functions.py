"""Random functions that stand for operators without exact arithmetic, chosen by a key and fixed once chosen.

A rule that holds whatever a nonlinear operator computes also holds for a random function in its place, and a rule that
does not is caught, because a random function has no accidental identities. Each kind below has only the properties its
name declares: a rule that needs more than those is rejected, never accepted by luck.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from taso_ext.verify.exact.prime_field import Array

Hashes = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # constants of splitmix64, Steele et al. 2014, "Fast splittable PRNGs"
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_MODULO_2_64 = np.errstate(over="ignore")  # NumPy warns when a scalar sum wraps; here wrapping is the arithmetic meant


@dataclass(frozen=True)
class KeyedFunctions:
    """Families of random functions into [0, prime); equal `seed` and `key` give the same function."""

    prime: int
    seed: int

    @_MODULO_2_64
    def pointwise(self, key: str, operands: Sequence[Array], *, fixes_zero: bool = False) -> Array:
        """f(a, b, …) element by element over broadcast operands; f(0) = 0 for one operand if asked."""
        hashes = self._start(key)
        for operand in operands:
            hashes = _mix(hashes + operand.astype(np.uint64))
        image = self._element(hashes)
        return np.where(operands[0] == 0, 0, image) if fixes_zero else image

    def symbol(self, key: str) -> int:
        """A random element that is not zero."""
        return int(self._start(key)) % (self.prime - 1) + 1

    @_MODULO_2_64
    def opaque(self, key: str, operands: Sequence[Array | None], dims: Sequence[int]) -> Array:
        """An output of shape `dims` whose every element depends on every element of every operand."""
        digest = self._start(key)
        for operand in operands:
            digest = _mix(digest + (_GOLDEN if operand is None else _digest(operand)))
        positions = np.arange(int(np.prod(dims, dtype=np.int64)), dtype=np.uint64)
        return self._element(_mix(digest + _mix(positions))).reshape(tuple(dims))

    def _start(self, key: str) -> Hashes:
        digest = hashlib.sha256(f"{self.seed}/{self.prime}/{key}".encode()).digest()
        return np.array([int.from_bytes(digest[:8], "little")], np.uint64)[0]

    def _element(self, hashes: Hashes) -> Array:
        return (hashes % np.uint64(self.prime)).astype(np.int64)


def _mix(hashes: Hashes) -> Hashes:
    """The finaliser of splitmix64: every input bit reaches every output bit."""
    hashes = hashes + _GOLDEN
    hashes = (hashes ^ (hashes >> _SHIFTS[0])) * _MULTIPLIERS[0]
    hashes = (hashes ^ (hashes >> _SHIFTS[1])) * _MULTIPLIERS[1]
    return hashes ^ (hashes >> _SHIFTS[2])


def _digest(operand: Array) -> Hashes:
    """One hash of a whole tensor: its shape, its elements and their positions."""
    content = np.concatenate([np.array([operand.ndim, *operand.shape], np.int64), operand.ravel()]).astype(np.uint64)
    positions = np.arange(content.size, dtype=np.uint64)
    return _mix(_mix(content) ^ _mix(~positions)).sum(dtype=np.uint64)
