"""Proof that rewrite rules keep the function: exact in finite fields, then numerically in ONNX Runtime."""

from __future__ import annotations

from taso_ext.verify.check import Counterexample, RuleVerification, verify_rule

__all__ = ["Counterexample", "RuleVerification", "verify_rule"]
