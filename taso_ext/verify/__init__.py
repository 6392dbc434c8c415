"""Verification that rewrite rules do not change the function: exactly in prime fields, then in ONNX Runtime."""

from __future__ import annotations

from taso_ext.verify.check import Counterexample, RuleVerification, verify_rule

__all__ = ["Counterexample", "RuleVerification", "verify_rule"]
