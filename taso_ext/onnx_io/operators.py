"""What has to be known about ONNX operators beyond their schemas."""

from __future__ import annotations

DEFAULT_DOMAINS = ("", "ai.onnx")
"""Both name the domain of ONNX's own operators."""

RANDOM_OPERATORS = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
"""Operators that give other values each time: they are neither folded nor merged with their equals."""


def is_random(op_type: str, domain: str, inputs: int) -> bool:
    """Whether an operator draws random numbers; Dropout does where it is given a training flag (third input)."""
    return domain in DEFAULT_DOMAINS and (op_type in RANDOM_OPERATORS or (op_type == "Dropout" and inputs > 2))
