"""Small collections of TASO's rules, written with its protobuf classes."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from taso_ext.taso_rules.file import OpType, ParameterKey, collection_class, read_taso_file
from taso_ext.taso_rules.substitution import Substitution, substitution

Tensor = int | tuple[int, int]
Op = tuple[OpType, Sequence[Tensor], dict[str, int]]
Rule = tuple[Sequence[Op], Sequence[Op], Sequence[tuple[Tensor, Tensor]]]


def relu(x: Tensor) -> Op:
    return OpType.RELU, [x], {}


def add(a: Tensor, b: Tensor) -> Op:
    return OpType.EW_ADD, [a, b], {}


def matmul(a: Tensor, b: Tensor, acti: int = 0) -> Op:
    return OpType.MATMUL, [a, b], {"ACTI": acti}


def conv(x: Tensor, weight: Tensor, acti: int = 0, stride: int = 1) -> Op:
    window = {"STRIDE_H": stride, "STRIDE_W": stride, "PAD": 0, "KERNEL_H": 3, "KERNEL_W": 3}
    return OpType.CONV2D, [x, weight], {**window, "ACTI": acti}


def concat(*xs: Tensor, axis: int, rank: int) -> Op:
    return OpType.CONCAT, xs, {"NUM_INPUTS": len(xs), "AXIS": axis, "NUMDIM": rank}


def split(x: Tensor, axis: int) -> Op:
    return OpType.SPLIT, [x], {"NUM_OUTPUTS": 2, "AXIS": axis}


def transpose(x: Tensor) -> Op:
    return OpType.TRANSPOSE, [x], {"NUMDIM": 2, "PERM": 2, "OUTSHUFFLE": 1}


def collection(rules: Sequence[Rule]) -> Any:
    """Returns the protobuf message of `rules`; operators count from 0, external inputs are negative."""
    message = collection_class()()
    for source, target, outputs in rules:
        rule = message.rule.add()
        for operators, side in ((source, rule.srcOp), (target, rule.dstOp)):
            for type_, inputs, parameters in operators:
                operator = side.add(type=int(type_))
                for tensor in inputs:
                    id_, port = tensor if isinstance(tensor, tuple) else (tensor, 0)
                    operator.input.add(opId=id_, tsId=port)
                for name, value in parameters.items():
                    operator.para.add(key=int(ParameterKey[name]), value=value)
        for of_source, of_target in outputs:
            (a, i), (b, j) = (t if isinstance(t, tuple) else (t, 0) for t in (of_source, of_target))
            rule.mappedOutput.add(srcOpId=a, srcTsId=i, dstOpId=b, dstTsId=j)
    return message


def write(path: Path, *rules: Rule) -> Path:
    path.write_bytes(collection(rules).SerializeToString())
    return path


def translated(rule: Rule) -> Substitution:
    """Returns `rule` as it is read back from a file."""
    with tempfile.TemporaryDirectory() as directory:
        return substitution(read_taso_file(write(Path(directory) / "rules.pb", rule))[0])


ASSOCIATE: Rule = ([matmul(-1, -4), matmul(0, -5)], [matmul(-4, -5), matmul(-1, 0)], [(1, 1)])
MERGE_CONVS: Rule = (
    [conv(-7, -10), conv(-8, -11), concat(0, 1, axis=1, rank=4)],
    [concat(-7, -8, axis=1, rank=4), concat(-10, -11, axis=0, rank=4), conv(0, 1)],
    [(2, 2)],
)
COMMUTE: Rule = ([matmul(-1, -4)], [matmul(-4, -1)], [(0, 0)])
