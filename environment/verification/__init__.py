"""Proof, by running them, that two models compute the same: see `verify`."""

from environment.verification.differences import Scale, difference, spread_of
from environment.verification.models import ONNX_RUNTIME, Verification, find_first_bad_rewrite, verify

__all__ = [
    "ONNX_RUNTIME",
    "Scale",
    "Verification",
    "difference",
    "find_first_bad_rewrite",
    "spread_of",
    "verify",
]
