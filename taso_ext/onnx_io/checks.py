"""What a model is checked for beyond `onnx.checker`: text, element types, and sizes that would fill any machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
from google.protobuf.message import Message  # type: ignore[import-untyped]

from taso_ext.errors import ModelError, one_paragraph
from taso_ext.onnx_io.checked_model import without_inferable_shapes
from taso_ext.onnx_io.operators import DEFAULT_DOMAINS, all_nodes, bodies, declared_values, inner_nodes

LARGEST_EXPANSION = 1 << 18
"""Nodes after inlining. Thirty functions of which each calls the next one twice make 2^30."""
DEEPEST_CALLS = 100
"""As in onnx itself."""
LARGEST_RANK = 1 << 10
"""Far above what any runtime takes; shape inference spends four microseconds on each axis, again and again."""
_EXPAND_MENDED = 13
"""From this opset on, shape inference of Expand looks at the shape's values only."""


def require_text(message: Message) -> None:
    """Checks all strings in a message, which protobuf hands over as bytes where they are not UTF-8.

    Raises:
      ModelError: names the field and what it holds.
    """
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            for text in value if field.is_repeated else (value,):
                if isinstance(text, bytes):
                    raise ModelError(
                        f"the field '{field.name}' of a {message.DESCRIPTOR.name} holds {text[:40]!r}, which is no "
                        f"UTF-8 text; the file is damaged. Export or download it again."
                    )
        elif field.type == field.TYPE_MESSAGE:
            for inner in value if field.is_repeated else (value,):
                require_text(inner)


def require_consistent_types(model: onnx.ModelProto, known: set[str], name: str) -> None:
    """Checks the operands of standard operators against each other, and outputs against their declared types.

    Args:
      model: as `CheckedModel.for_onnx` gives it; it loses its declared shapes.
      known: names of its constants.
    Raises:
      ModelError: names the operator, or the output and both types.
    """
    declared = {value.name: value.type.tensor_type.elem_type for value in model.graph.output}
    for value in without_inferable_shapes(model, known).graph.output:
        value.ClearField("type")
    for value in _inferred(model, name, check_type=True).graph.output:
        found, stated = value.type.tensor_type.elem_type, declared[value.name]
        if found and stated and found != stated:
            raise ModelError(
                f"{name} is not a valid ONNX model: it declares the output '{value.name}' as {_text(stated)}, but "
                f"computes {_text(found)}. Correct the exporter, or export the model again."
            )


def _inferred(model: onnx.ModelProto, name: str, check_type: bool = False) -> onnx.ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(model, check_type=check_type)
    except Exception as error:  # it throws C++ exceptions of several kinds
        raise ModelError(
            f"{name} is not a valid ONNX model: its types contradict each other, {one_paragraph(error)} "
            f"Correct the exporter, or export the model again."
        ) from error


def _text(dtype: int) -> str:
    names = onnx.TensorProto.DataType
    return names.Name(dtype) if dtype in names.values() else str(dtype)


def require_bounded_ranks(model: onnx.ModelProto, name: str) -> None:
    """Checks the lengths of Expand's shapes: onnx makes a dimension of every entry, were there billions.

    Args:
      model: accepted by `onnx.checker`, as `CheckedModel.for_onnx` gives it.
    Raises:
      ModelError: a shape of more than `LARGEST_RANK` entries, or types that contradict each other.
    """
    wanted = {node.input[1] for node in _old_expands(model)}
    if not wanted:
        return
    inferred = _inferred(_without_expand(model), name)
    for value in declared_values(inferred.graph):
        dims = value.type.tensor_type.shape.dim
        if value.name in wanted and len(dims) == 1 and dims[0].dim_value > LARGEST_RANK:
            raise ModelError(
                f"{name} has an Expand to the shape '{value.name}' of {dims[0].dim_value:,} entries; at most "
                f"{LARGEST_RANK:,} dimensions are allowed. Correct the shape of '{value.name}'."
            )


def _old_expands(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    for scope, nodes in ((model, model.graph.node), *((each, each.node) for each in model.functions)):
        versions = [entry.version for entry in scope.opset_import if entry.domain in DEFAULT_DOMAINS]
        if versions and min(versions) < _EXPAND_MENDED:
            yield from (node for node in inner_nodes(nodes) if _is_expand(node) and len(node.input) > 1)


def _without_expand(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graphs = [copy.graph, *(body for node in all_nodes(copy.graph) for body in bodies(node))]
    for holder in (*graphs, *copy.functions):
        kept = [node for node in holder.node if not _is_expand(node)]
        del holder.node[:]
        holder.node.extend(kept)
    return copy


def _is_expand(node: onnx.NodeProto) -> bool:
    return node.op_type == "Expand" and node.domain in DEFAULT_DOMAINS


def require_bounded_expansion(model: onnx.ModelProto, name: str) -> None:
    """Checks how many nodes a model has once its local functions are inlined.

    Args:
      name: of the model, for the message.
    Raises:
      ModelError: more than `LARGEST_EXPANSION`, chains of more than `DEEPEST_CALLS`, or a function that calls itself.
    """
    if not model.functions:
        return
    try:
        nodes = _Expansion(model.functions).of(model.graph.node)
    except _EndlessError as error:
        raise ModelError(
            f"{name} has a local function '{error}' that calls itself, or stands at the end of a chain of more than "
            f"{DEEPEST_CALLS} calls. Export the model without local functions."
        ) from None
    if nodes > LARGEST_EXPANSION:
        raise ModelError(
            f"{name} has local functions that call each other so often that inlining them makes {nodes:,} nodes; at "
            f"most {LARGEST_EXPANSION:,} are allowed. Export the model without local functions."
        )


class _EndlessError(Exception):
    """The name of a function that too many calls lead to; below IR version 8, onnx.checker does not look."""


class _Expansion:
    """Counts nodes after inlining, of every function once."""

    def __init__(self, functions: Iterable[onnx.FunctionProto]) -> None:
        self._bodies = {(_domain(each.domain), each.name, each.overload): each.node for each in functions}
        self._counted: dict[tuple[str, str, str], int] = {}
        self._depth = 0

    def of(self, nodes: Iterable[onnx.NodeProto]) -> int:
        return sum(self._of_node(node) for node in inner_nodes(nodes))

    def _of_node(self, node: onnx.NodeProto) -> int:
        called = (_domain(node.domain), node.op_type, node.overload)
        if called not in self._bodies:
            return 1
        if called not in self._counted:
            if self._depth == DEEPEST_CALLS:
                raise _EndlessError(node.op_type)
            self._depth += 1
            self._counted[called] = self.of(self._bodies[called])
            self._depth -= 1
        return self._counted[called]


def _domain(domain: str) -> str:
    return "" if domain in DEFAULT_DOMAINS else domain
