"""TASO's file of graph substitutions: its protobuf schema, and the rules in it as plain data.

A rule is two small graphs over numbered inputs and the pairs of tensors that are equal. The schema is that of TASO's
`rules.proto`; operators and parameters are numbered as in its `include/taso/ops.h`.

Source: Jia et al. 2019, "TASO: Optimizing Deep Learning Computation with Automatic Generation of Graph Substitutions".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from taso_ext.errors import one_paragraph


class TasoFileError(ValueError):
    """A file is not a collection of TASO's rules. The message is one paragraph for the user."""


OpType = IntEnum(
    "OpType",
    """INPUT WEIGHT ANY CONV2D DROPOUT LINEAR POOL2D_MAX POOL2D_AVG RELU SIGMOID TANH BATCHNORM CONCAT SPLIT RESHAPE
    TRANSPOSE EW_ADD EW_MUL MATMUL MUL ENLARGE MERGE_GCONV CONSTANT_IMM CONSTANT_ICONV CONSTANT_ONE CONSTANT_POOL
    SQUEEZE UNSQUEEZE EW_SUB EW_DIV EW_EQUAL EW_GREATER EW_LESS EW_MAX EW_MIN REDUCE_ARGMAX REDUCE_ARGMIN REDUCE_MAX
    REDUCE_MEAN REDUCE_MIN REDUCE_PROD REDUCE_SUM PAD SHAPE SIZE TOPK WHERE CEIL CAST EXP ROUND LOG LOGICAL_NOT SQRT
    LEAKYRELU SLICE RESIZE PRELU FUSE_CONV_BATCHNORM FUSE_CONV_BATCHNORM_ALPHA_VAR FUSE_CONV_BATCHNORM_BIAS
    BROADCAST_ADD""",
    start=0,
)
ParameterKey = IntEnum(
    "ParameterKey",
    """OP_TYPE NUM_INPUTS NUM_OUTPUTS GROUP KERNEL_H KERNEL_W STRIDE_H STRIDE_W PAD ACTI NUMDIM AXIS PERM OUTSHUFFLE
    MERGE_GCONV_COUNT AXES KEEP_DIMS""",
    start=0,
)

LARGEST_SIDE = 8
"""Most operators on one side of a rule: TASO's generator makes no larger graphs."""
LARGEST_FAN = 6
"""Most inputs, and most outputs, of one operator: TASO's own limits."""


class TensorRef(NamedTuple):
    """Output `port` of operator `operator` of the same side, or external input `operator` if that is negative."""

    operator: int
    port: int


@dataclass(frozen=True)
class TasoOperator:
    """One operator with its integer parameters."""

    type: OpType
    inputs: tuple[TensorRef, ...]
    parameters: Mapping[ParameterKey, int]

    @property
    def num_outputs(self) -> int:
        """The number of results; only a split has several."""
        return self.parameters.get(ParameterKey.NUM_OUTPUTS, 1) if self.type is OpType.SPLIT else 1


@dataclass(frozen=True)
class TasoRule:
    """A rule as it stands in the file.

    Attributes:
      index: position in the file.
      source, target: operators, producers first.
      outputs: pairs (tensor of the source, tensor of the target that replaces it).
    """

    index: int
    source: tuple[TasoOperator, ...]
    target: tuple[TasoOperator, ...]
    outputs: tuple[tuple[TensorRef, TensorRef], ...]


_SCHEMA: Mapping[str, Sequence[tuple[str, int, str | None]]] = {
    "Parameter": [("key", 1, None), ("value", 2, None)],
    "Tensor": [("opId", 1, None), ("tsId", 2, None)],
    "Operator": [("type", 1, None), ("input", 2, "Tensor"), ("para", 3, "Parameter")],
    "MapOutput": [("srcOpId", 1, None), ("dstOpId", 2, None), ("srcTsId", 3, None), ("dstTsId", 4, None)],
    "Rule": [("srcOp", 1, "Operator"), ("dstOp", 2, "Operator"), ("mappedOutput", 3, "MapOutput")],
    "RuleCollection": [("rule", 1, "Rule")],
}
"""Fields (name, number, message) of each message. A field with a message is repeated; others are required int32."""


@cache
def collection_class() -> Any:
    """Returns the protobuf class of a whole file, `RuleCollection`."""
    file = descriptor_pb2.FileDescriptorProto(name="taso_rules.proto", package="GraphSubst", syntax="proto2")
    kinds = descriptor_pb2.FieldDescriptorProto
    for message, fields in _SCHEMA.items():
        descriptor = file.message_type.add(name=message)
        for name, number, type_name in fields:
            if type_name is None:
                descriptor.field.add(name=name, number=number, label=kinds.LABEL_REQUIRED, type=kinds.TYPE_INT32)
            else:
                descriptor.field.add(
                    name=name,
                    number=number,
                    label=kinds.LABEL_REPEATED,
                    type=kinds.TYPE_MESSAGE,
                    type_name=f".GraphSubst.{type_name}",
                )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("GraphSubst.RuleCollection"))


def read_taso_file(path: str | Path) -> list[TasoRule]:
    """Returns the rules of `path`, in order.

    Raises:
      TasoFileError: if the file cannot be read, is not such a protobuf, or holds a rule that refers to a missing tensor
        or exceeds TASO's limits.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise TasoFileError(f"Cannot read {path}: {one_paragraph(error.strerror or error)}.") from error
    collection = collection_class()()
    try:
        collection.ParseFromString(data)
    except DecodeError as error:
        raise TasoFileError(_not_a_collection(path, one_paragraph(error))) from error
    if missing := collection.FindInitializationErrors():
        raise TasoFileError(_not_a_collection(path, f"it lacks {one_paragraph(', '.join(missing), limit=200)}"))
    collection.DiscardUnknownFields()
    # Protobuf takes arbitrary bytes for fields of a later schema and would skip them.
    if collection.ByteSize() != len(data):
        unknown = len(data) - collection.ByteSize()
        raise TasoFileError(_not_a_collection(path, f"{unknown} of its {len(data)} bytes belong to no field of it"))
    if not collection.rule:
        raise TasoFileError(_not_a_collection(path, "it holds no rule"))
    return [_rule(index, message, path) for index, message in enumerate(collection.rule)]


def _not_a_collection(path: str | Path, why: str) -> str:
    return (
        f"{path} is not a collection of TASO's rules: {why}. Expected the protobuf that TASO's generator writes "
        "(RuleCollection), usually named graph_subst.pb; if the file came over a network, fetch it again."
    )


def _rule(index: int, message: Any, path: str | Path) -> TasoRule:
    where = f"{path}: rule {index}"
    source = _side(message.srcOp, f"{where}, source")
    target = _side(message.dstOp, f"{where}, target")
    outputs = tuple(
        (TensorRef(pair.srcOpId, pair.srcTsId), TensorRef(pair.dstOpId, pair.dstTsId)) for pair in message.mappedOutput
    )
    for of_source, of_target in outputs:
        for ref, side, name in ((of_source, source, "source"), (of_target, target, "target")):
            if ref.operator < 0 or not _exists(ref, side):
                raise TasoFileError(f"{where} maps an output to tensor {tuple(ref)} of its {name}, which has no such.")
    return TasoRule(index, source, target, outputs)


def _side(messages: Sequence[Any], where: str) -> tuple[TasoOperator, ...]:
    if not 1 <= len(messages) <= LARGEST_SIDE:
        raise TasoFileError(f"{where}: expected 1 to {LARGEST_SIDE} operators, got {len(messages)}.")
    side: list[TasoOperator] = []
    for position, message in enumerate(messages):
        operator = _operator(message, f"{where} operator {position}")
        for ref in operator.inputs:
            if ref.operator >= 0 and not _exists(ref, side):
                raise TasoFileError(
                    f"{where} operator {position} reads tensor {tuple(ref)}; expected an output of an operator above "
                    "it, or a negative number for an external input."
                )
        side.append(operator)
    return tuple(side)


def _exists(ref: TensorRef, side: Sequence[TasoOperator]) -> bool:
    return ref.operator < len(side) and 0 <= ref.port < side[ref.operator].num_outputs


def _operator(message: Any, where: str) -> TasoOperator:
    try:
        type_ = OpType(message.type)
        parameters = {ParameterKey(parameter.key): parameter.value for parameter in message.para}
    except ValueError as error:
        raise TasoFileError(
            f"{where}: {error}. Operator types are 0 to {len(OpType) - 1} and parameters 0 to {len(ParameterKey) - 1}, "
            "as numbered in TASO's ops.h."
        ) from error
    operator = TasoOperator(type_, tuple(TensorRef(ref.opId, ref.tsId) for ref in message.input), parameters)
    for what, count, least in (("inputs", len(operator.inputs), 0), ("outputs", operator.num_outputs, 1)):
        if not least <= count <= LARGEST_FAN:
            raise TasoFileError(f"{where}: expected {least} to {LARGEST_FAN} {what}, got {count}.")
    return operator
