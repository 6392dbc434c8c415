"""Reading and checking of ONNX models: every reason why a file cannot be used is one clear `ModelError`.

In addition to what `onnx.checker` checks, strings must be UTF-8 text, element types must agree, and no size may be so
large that it would fill the memory of any machine.
"""

from __future__ import annotations

import mmap
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]

from taso_ext.errors import ModelError, ModelWarning, one_paragraph
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.dimensions import bind_dims
from taso_ext.onnx_io.legacy_operators import raise_to_oldest
from taso_ext.onnx_io.model_file import DEEPEST_MESSAGE, ends_inside_a_model, without_weights
from taso_ext.onnx_io.operators import DEFAULT_DOMAINS, all_nodes, bodies, declared_values, inner_nodes
from taso_ext.onnx_io.shape_inference import infer_shapes, without_inferable_shapes
from taso_ext.onnx_io.weights.handles import MappedFiles, map_file

Source = str | os.PathLike[str] | bytes | onnx.ModelProto | CheckedModel
"""A path, the bytes of a file, or a model."""
_LARGEST_EXPANSION = 1 << 18
"""The most nodes that a model may have after inlining. Thirty functions that each call the next one twice make 2^30."""
_DEEPEST_CALLS = 100
"""The longest chain of function calls, as in onnx itself."""
_LARGEST_RANK = 1 << 10
"""The most dimensions that an Expand may have, far more than any runtime accepts.

Shape inference spends four microseconds on each axis, again and again.
"""
_EXPAND_MENDED = 13
"""From this opset on, shape inference of Expand looks at the shape's values only."""


def read_model(
    source: Source,
    dims: Mapping[str, int] | None = None,
    freeze_initializers: bool = False,
) -> CheckedModel:
    """Reads and checks a model. Its weights stay in the mapped file, in files beside it, or in the given model.

    Args:
      source: a path to an ONNX file (external data is read from its directory), the bytes of an ONNX file, or a model,
        which is not changed.
      dims: sizes of symbolic dimensions by name; an unnamed one is called `<input>:<axis>`.
      freeze_initializers: whether initializers that a caller could override become constants.
    Raises:
      ModelError: a missing, empty, truncated or foreign file, a directory, missing external data, a model that fails
        `onnx.checker`, an opset below 7 that cannot be raised, or an unknown name in `dims`.
    """
    name = name_of(source)
    if not isinstance(source, CheckedModel):
        source = _checked(*_parsed(source), name, freeze_initializers)
    return bind_dims(raise_to_oldest(source, name), dims or {}, name)


def external_files(path: Path) -> list[Path]:
    """Returns the files beside a model file in which its external data lie, whether they exist or not.

    Raises:
      ModelError: the model file cannot be read.
    """
    proto = _parse(_map(path), str(path), "")
    locations = {entry.value for entry in _external_locations(proto)} - {""}
    return [path.parent / location for location in sorted(locations)]


def _external_locations(message: Message) -> Iterator[onnx.StringStringEntryProto]:
    """Yields the entries that name a file, of all tensors in a message."""
    if isinstance(message, onnx.TensorProto):
        yield from (entry for entry in message.external_data if entry.key == "location")
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                yield from _external_locations(inner)


def name_of(source: Source) -> str:
    """Returns the name of a model in error messages."""
    return os.fspath(source) if isinstance(source, (str, os.PathLike)) else "the given model"


def _parsed(source: str | os.PathLike[str] | bytes | onnx.ModelProto) -> tuple[onnx.ModelProto, MappedFiles]:
    """Returns a model whose larger weights stay where they are, and the files that hold these weights."""
    if isinstance(source, onnx.ModelProto):
        return source, MappedFiles()
    path = None if isinstance(source, bytes) else Path(source)
    data = source if isinstance(source, bytes) else _map(Path(source))
    files = MappedFiles(path and path.parent)
    location = path.name if path else ""  # no file has an empty name
    files.add(location, data)
    return _parse(data, name_of(source), location), files


def _parse(data: mmap.mmap | bytes, name: str, location: str) -> onnx.ModelProto:
    """Returns the model with references to `location` in place of its larger weights."""
    if ends_inside_a_model(data):
        raise ModelError(
            f"{name} is truncated: it begins like an ONNX model but ends after {len(data):,} bytes in the middle of a "
            f"field. Export or download it again."
        )
    model = onnx.ModelProto()
    try:
        model.ParseFromString(without_weights(data, location))
    except DecodeError as error:
        if "MaxDepth" in str(error):
            raise ModelError(
                f"{name} nests graphs inside graphs deeper than protobuf reads: {DEEPEST_MESSAGE} messages, about "
                f"{DEEPEST_MESSAGE // 3} graphs. Export the network with less nesting."
            ) from None
        raise _unreadable(name, data) from None
    if not model.HasField("graph"):
        raise _unreadable(name, data)
    return model


def _map(path: Path) -> mmap.mmap | bytes:
    try:
        with path.open("rb") as file:
            data = map_file(file)
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist; expected the path of an ONNX file.") from None
    except IsADirectoryError:
        inside = sorted(file.name for file in path.glob("*.onnx"))
        hint = f" It holds {', '.join(inside[:5])}." if inside else ""
        raise ModelError(
            f"{path} is a directory; expected one ONNX file.{hint} Give the path of the file itself."
        ) from None
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise ModelError(f"{path} cannot be read ({error}); expected a readable ONNX file.") from error
    if not data:
        raise ModelError(f"{path} is empty (0 bytes); expected an ONNX model. Export or download it again.")
    return data


def _unreadable(name: str, data: mmap.mmap | bytes) -> ModelError:
    if data[: len(_LFS_POINTER)] == _LFS_POINTER:
        return ModelError(f"{name} is a Git LFS pointer, not the model itself; run `git lfs pull` beside it first.")
    return ModelError(
        f"{name} is not an ONNX model: its {len(data):,} bytes are not a serialised ModelProto with a graph. "
        f"Export the network to ONNX first and give that file."
    )


def _declare_output_shapes(skeleton: onnx.ModelProto, structure: onnx.ModelProto) -> bool:
    """Adds the shapes that outputs do not declare, which onnx.checker asks for and runtimes do not need.

    Args:
      skeleton, structure: the same model twice; both are changed.
    Returns:
      Whether a shape was added.
    """
    lacking = [value.name for value in structure.graph.output if _lacks_shape(value)]
    if not lacking:
        return False
    types = {value.name: value.type for value in infer_shapes(structure).graph.output if not _lacks_shape(value)}
    for model in (skeleton, structure):
        for value in model.graph.output:
            if value.name in lacking and value.name in types:
                value.type.tensor_type.shape.CopyFrom(types[value.name].tensor_type.shape)
    return bool(types.keys() & set(lacking))


def _lacks_shape(value: onnx.ValueInfoProto) -> bool:
    return value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape")


_LFS_POINTER = b"version https://git-lfs"


def _checked(proto: onnx.ModelProto, files: MappedFiles, name: str, freeze_initializers: bool) -> CheckedModel:
    """Takes a model apart and checks it. The large tensors are checked first; onnx sees only the structure."""
    try:
        model = CheckedModel.from_proto(proto, freeze_initializers=freeze_initializers, files=files)
        _require_text(model.skeleton)
        structure = model.for_onnx()
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from error
    except (ValueError, TypeError) as error:  # a string that is not UTF-8, copied into another message
        raise ModelError(f"{name} is damaged: {one_paragraph(error)}. Export or download it again.") from error
    if _declare_output_shapes(model.skeleton, structure):
        text = f"{name} does not declare the shape of every output; what is missing was inferred."
        warnings.warn(text, ModelWarning, stacklevel=2)
    try:
        onnx.checker.check_model(structure)
    except Exception as error:  # it throws C++ exceptions of several kinds
        raise ModelError(
            f"{name} is not a valid ONNX model; onnx.checker reports: {one_paragraph(error)} "
            f"Correct the exporter, or the file, until onnx.checker accepts it."
        ) from error
    _require_bounded_expansion(structure, name)
    _require_bounded_ranks(structure, name)
    _require_consistent_types(structure, set(model.tensors), name)
    return model


def _require_text(message: Message) -> None:
    """Checks that all strings in a message are UTF-8; protobuf returns other strings as bytes.

    Raises:
      ModelError: a string is not UTF-8; the message names the field and its content.
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
                _require_text(inner)


def _require_consistent_types(model: onnx.ModelProto, known: set[str], name: str) -> None:
    """Checks that the operands of standard operators fit together, and that outputs have their declared types.

    Args:
      model: a result of `CheckedModel.for_onnx`; it loses its declared shapes.
      known: the names of its constants.
      name: the name of the model in the message.
    Raises:
      ModelError: types contradict each other; the message names the operator, or the output and both types.
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


def _require_bounded_ranks(model: onnx.ModelProto, name: str) -> None:
    """Checks the lengths of the shapes that Expand reads: onnx makes a dimension of every entry, even of billions.

    Args:
      model: a result of `CheckedModel.for_onnx` that `onnx.checker` accepts.
      name: the name of the model in the message.
    Raises:
      ModelError: a shape has more than `_LARGEST_RANK` entries, or types contradict each other.
    """
    wanted = {node.input[1] for node in _old_expands(model)}
    if not wanted:
        return
    inferred = _inferred(_without_expand(model), name)
    for value in declared_values(inferred.graph):
        dims = value.type.tensor_type.shape.dim
        if value.name in wanted and len(dims) == 1 and dims[0].dim_value > _LARGEST_RANK:
            raise ModelError(
                f"{name} has an Expand to the shape '{value.name}' of {dims[0].dim_value:,} entries; at most "
                f"{_LARGEST_RANK:,} dimensions are allowed. Correct the shape of '{value.name}'."
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


def _require_bounded_expansion(model: onnx.ModelProto, name: str) -> None:
    """Checks how many nodes a model has once its local functions are inlined.

    Args:
      name: the name of the model in the message.
    Raises:
      ModelError: there are more than `_LARGEST_EXPANSION` nodes, a chain of more than `_DEEPEST_CALLS` calls, or a
        function that calls itself.
    """
    if not model.functions:
        return
    try:
        nodes, _ = _Expansion(model.functions).of(model.graph.node)
    except _EndlessError as error:
        raise ModelError(
            f"{name} has a local function '{error}' that calls itself, or stands at the end of a chain of more than "
            f"{_DEEPEST_CALLS} calls. Export the model without local functions."
        ) from None
    if nodes > _LARGEST_EXPANSION:
        raise ModelError(
            f"{name} has local functions that call each other so often that inlining them makes {nodes:,} nodes; at "
            f"most {_LARGEST_EXPANSION:,} are allowed. Export the model without local functions."
        )


class _EndlessError(Exception):
    """The error for a function at the end of too many calls; its text is the name of the function.

    Below IR version 8, onnx.checker does not look for such functions.
    """


class _Expansion:
    """A counter of nodes after inlining; it goes through each function only once."""

    def __init__(self, functions: Iterable[onnx.FunctionProto]) -> None:
        self._bodies = {(_domain(each.domain), each.name, each.overload): each.node for each in functions}
        self._known: dict[tuple[str, str, str], tuple[int, int]] = {}

    def of(self, nodes: Iterable[onnx.NodeProto], depth: int = 0) -> tuple[int, int]:
        """Returns how many nodes the given nodes become, and how many calls are inside one another in them."""
        counted = [self._of_node(node, depth) for node in inner_nodes(nodes)]
        return sum(count for count, _ in counted), max((calls for _, calls in counted), default=0)

    def _of_node(self, node: onnx.NodeProto, depth: int) -> tuple[int, int]:
        called = (_domain(node.domain), node.op_type, node.overload)
        if called not in self._bodies:
            return 1, 0
        if called not in self._known:
            if depth == _DEEPEST_CALLS:
                raise _EndlessError(node.op_type)
            count, calls = self.of(self._bodies[called], depth + 1)
            self._known[called] = count, calls + 1
        if depth + self._known[called][1] > _DEEPEST_CALLS:
            raise _EndlessError(node.op_type)
        return self._known[called]


def _domain(domain: str) -> str:
    return "" if domain in DEFAULT_DOMAINS else domain
