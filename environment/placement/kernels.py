"""Operators without a kernel on some kind of device; they stay on the host."""

from __future__ import annotations

from collections.abc import Mapping

LACKING: Mapping[str, frozenset[str]] = {
    "cuda": frozenset(
        {
            "ai.onnx.ml.*",
            *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Sinh", "Tan"),
            *("Bernoulli", "Multinomial", "Unique"),
            *("BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"),
            *("BlackmanWindow", "DFT", "HammingWindow", "HannWindow", "MelWeightMatrix", "STFT"),
            *("Col2Im", "ConvInteger", "DeformConv", "Det", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul"),
            *("GlobalLpPool", "LpNormalization", "LpPool", "MaxRoiPool", "MaxUnpool", "MeanVarianceNormalization"),
            *("Hardmax", "Mean", "NonMaxSuppression", "SplitToSequence"),
            *("Optional", "OptionalGetElement", "OptionalHasElement"),
            *("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"),
        }
    )
}
"""By the name of a list: operators that ONNX Runtime's provider has no kernel of.

Source: ONNX Runtime, docs/OperatorKernels.md at commit 001d12d2623fd411ce0f83d05abb5e82304a3389, "Operators implemented
by CUDAExecutionProvider": none of these is in the table of the domain `ai.onnx`. TensorFlow's kernels, which the paper
used, are others. Which element types a kernel takes is not considered. A machine file can name other operators."""
