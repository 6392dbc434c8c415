"""Operators without a kernel on some kind of device; they stay on the host."""

from __future__ import annotations

from collections.abc import Mapping

LACKING: Mapping[str, frozenset[str]] = {
    "cuda": frozenset(
        {
            "ai.onnx.ml.*",
            "Bernoulli",
            "BitShift",
            "Det",
            "LpPool",
            "MaxRoiPool",
            "MaxUnpool",
            "Multinomial",
            "StringConcat",
            "StringNormalizer",
            "StringSplit",
            "RegexFullMatch",
            "TfIdfVectorizer",
            "Unique",
        }
    )
}
"""By the name of a list: operators that ONNX Runtime's provider runs on CPUs only, see its OperatorKernels.md.

The list is not complete: an operator that is missing here is priced as if it had a kernel. A machine file can name
others."""
