"""Gradients of matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence

from environment.gradients.operation import Operation
from environment.gradients.rule import Gradients, Rule


def matmul(op: Operation) -> Gradients:
    """MatMul: dA = dY · Bᵀ and dB = Aᵀ · dY, summed over the dimensions along which a stack was broadcast.

    As in NumPy, a vector is a row on the left and a column on the right.
    """
    left, right = op.inputs
    a_dims, b_dims, y_dims = (op.dims(name) for name in (left, right, op.y))
    rows, columns = (1, *a_dims)[-2:], (*b_dims, 1)[:2] if len(b_dims) == 1 else b_dims[-2:]
    a_full, b_full = (*a_dims[:-2], *rows), (*b_dims[:-2], *columns)
    stack = y_dims[: len(y_dims) - (len(a_dims) > 1) - (len(b_dims) > 1)]
    a, b = _as(op, left, a_dims, a_full), _as(op, right, b_dims, b_full)
    cotangent = _as(op, op.cotangent, y_dims, (*stack, rows[0], columns[1]))
    if len(b_full) == 2:
        of_a, of_b = _by_one_matrix(op, a, b, cotangent, a_full, columns)
        return [_as(op, of_a, a_full, a_dims), _as(op, of_b, b_full, b_dims)]
    of_a = op.write("MatMul", cotangent, _turned(op, b, len(b_full)))
    of_b = op.write("MatMul", _turned(op, a, len(a_full)), cotangent)
    of_a = op.summed_to(of_a, (*stack, *rows), a_full)
    of_b = op.summed_to(of_b, (*stack, *columns), b_full)
    return [_as(op, of_a, a_full, a_dims), _as(op, of_b, b_full, b_dims)]


def _by_one_matrix(
    op: Operation, a: str, b: str, cotangent: str, a_dims: Sequence[int], b_dims: Sequence[int]
) -> tuple[str, str]:
    """Returns both gradients of a product with one matrix, whose own is one product over all rows of the stack."""
    if len(a_dims) == 2:
        return op.write("Gemm", cotangent, b, transB=1), op.write("Gemm", a, cotangent, transA=1)
    of_a = op.write("MatMul", cotangent, _turned(op, b, 2))
    rows = math.prod(a_dims[:-1])
    flat, flat_cotangent = op.reshaped(a, [rows, b_dims[0]]), op.reshaped(cotangent, [rows, b_dims[1]])
    return of_a, op.write("Gemm", flat, flat_cotangent, transA=1)


def _as(op: Operation, value: str, given: Sequence[int], wanted: Sequence[int]) -> str:
    return value if tuple(given) == tuple(wanted) else op.reshaped(value, wanted)


def _turned(op: Operation, value: str, rank: int) -> str:
    """Returns a stack of matrices with each of them transposed."""
    return op.transposed(value, [*range(rank - 2), rank - 1, rank - 2])


def gemm(op: Operation) -> Gradients:
    """Gemm, Y = α · A · B + β · C, where A and B may be transposed."""
    a, b = op.inputs[:2]
    alpha, turned_a, turned_b = op.attribute("alpha"), op.attribute("transA"), op.attribute("transB")
    y_bar = op.cotangent
    if turned_a:
        of_a = op.write("Gemm", b, y_bar, alpha=alpha, transA=turned_b, transB=1)
    else:
        of_a = op.write("Gemm", y_bar, b, alpha=alpha, transA=0, transB=1 - turned_b)
    if turned_b:
        of_b = op.write("Gemm", y_bar, a, alpha=alpha, transA=1, transB=turned_a)
    else:
        of_b = op.write("Gemm", a, y_bar, alpha=alpha, transA=1 - turned_a, transB=0)
    if not op.has(2):
        return [of_a, of_b]
    of_c = op.summed_to(y_bar, op.dims(op.y), op.dims(op.inputs[2]))
    return [of_a, of_b, op.scaled(of_c, op.attribute("beta"))]


def einsum(op: Operation) -> Gradients:
    """Einsum: the gradient of an operand is the sum in which it and the result change places.

    Raises:
      ModelError: an operand has an index twice, or one that neither the result nor another operand has.
    """
    equation = op.attribute("equation").replace(" ", "")
    terms, arrow, result = equation.partition("->")
    operands = terms.split(",")
    if not arrow or "." in equation:
        raise op.refusal("its equation has dots or no result")
    gradients = []
    for position, own in enumerate(operands):
        others = [*operands[:position], *operands[position + 1 :]]
        if len(set(own)) < len(own) or not set(own) <= set(result).union(*others):
            raise op.refusal(f"an index of its operand '{own}' occurs twice, or nowhere else")
        names = [name for at, name in enumerate(op.inputs) if at != position]
        swapped = f"{','.join([result, *others])}->{own}"
        gradients.append(op.write("Einsum", op.cotangent, *names, equation=swapped))
    return gradients


RULES = {"MatMul": Rule(matmul), "Gemm": Rule(gemm), "Einsum": Rule(einsum)}
