"""The forward pass of a training graph, and the backward pass through it: reverse-mode differentiation.

What all operators have in common is here: which values need a gradient, sums of the cotangents of several consumers,
and sums over axes along which an operand was broadcast.
Source: Griewank and Walther 2008, "Evaluating Derivatives", section 3.2.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx

from environment.gradients.expressions import Expressions
from environment.gradients.node_writer import NodeWriter
from environment.gradients.operation import Operation, Values
from environment.gradients.rule import Rule
from environment.gradients.table import RULES, has_gradient, rule_of
from taso_ext.onnx_io.operators import DEFAULT_DOMAINS, bodies, captured_names, rename_captured


@dataclass
class ForwardPass:
    """What the forward pass has computed.

    Attributes:
      operations: its nodes in order, as the rules of their operators see them.
      names: values of the model that have another name here, because training computes them otherwise.
      updated: new values of initializers that the forward pass changes by itself, by the names of these.
    """

    operations: list[Operation] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    updated: dict[str, str] = field(default_factory=dict)


def write_forward(nodes: Iterable[onnx.NodeProto], values: Values, writer: NodeWriter) -> ForwardPass:
    """Writes the nodes of a model as training computes them."""
    done, written = ForwardPass(), set[str]()
    for original in nodes:
        node = _with_names(original, done.names)
        operation = Operation.of(node, values, writer)
        rule = RULES.get(node.op_type) if node.domain in DEFAULT_DOMAINS else None
        if rule is None or rule.forward is None:
            writer.copy(node)
        else:
            operation = _in_training(operation, rule, done)
            if operation.y in written:  # an equal operator computes the same value; its gradient counts once
                continue
            written.add(operation.y)
        done.operations.append(operation)
    return done


def _in_training(operation: Operation, rule: Rule, done: ForwardPass) -> Operation:
    """Writes what an operator computes in training, and notes its new names."""
    assert rule.forward is not None
    written = rule.forward(operation)
    node = onnx.NodeProto()
    node.CopyFrom(operation.node)
    for name, new in zip(operation.node.output, written.outputs, strict=False):
        done.names[name] = new
        operation.values.rename(new, name)
    node.output[:] = written.outputs
    done.updated |= written.updated
    return replace(operation, node=node, saved=written.saved)


def _with_names(original: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """Returns a copy of a node that reads values under their new names."""
    node = onnx.NodeProto()
    node.CopyFrom(original)
    node.input[:] = [names.get(name, name) for name in original.input]
    for body in bodies(node):
        rename_captured(body, names)
    return node


def write_backward(
    forward: ForwardPass,
    seeds: Mapping[str, str],
    wanted: Iterable[str],
    writer: NodeWriter,
    *,
    accumulate: bool = False,
) -> dict[str, str]:
    """Writes the backward pass.

    Args:
      seeds: the cotangents of the values that the loss reads, by the names of these values.
      wanted: the values whose gradients are asked for.
      accumulate: whether what the operators add to one of these gradients is added up as it comes, and not in the end.
    Returns:
      The gradients by the names of these values; those on which the loss does not depend are missing.
    Raises:
      ModelError: the gradient of an operator on the way is not known.
    """
    wanted = set(wanted)
    reached = _depending_on(wanted, forward.operations)
    sums = _Cotangents(writer, seeds)
    for operation in reversed(forward.operations):
        read = {*operation.node.input, *captured_names(operation.node)} & reached
        if not read or not has_gradient(operation.node) or not any(map(sums.has, operation.node.output)):
            continue
        rule = rule_of(operation.node)
        operation = replace(operation, cotangents=[sums.of(name, operation) for name in operation.node.output])
        for name, gradient in zip(operation.node.input, rule.backward(operation), strict=False):
            if gradient is not None and name in reached:
                sums.add(name, _of_operand(operation, name, gradient) if rule.broadcasts else gradient)
                if accumulate and name in wanted:
                    sums.of(name, operation)
    found: dict[str, str] = {}
    for name in sorted(wanted):
        end = Expressions(writer, f"/training/gradients/{name}", forward.operations[-1].dtype)
        if (gradient := sums.of(name, end)) is not None:
            found[name] = gradient
    return found


def _depending_on(wanted: set[str], operations: Sequence[Operation]) -> set[str]:
    """Returns the values of floats that change with the wanted ones, and these themselves."""
    reached = set(wanted)
    for operation in operations:
        node = operation.node
        if has_gradient(node) and reached.intersection((*node.input, *captured_names(node))):
            reached.update(name for name in node.output if operation.values.is_float(name))
    return reached


def _of_operand(operation: Operation, name: str, gradient: str) -> str:
    """Returns the gradient of an operand from one of the shape of the result."""
    return operation.summed_to(gradient, operation.dims(operation.y), operation.dims(name))


class _Cotangents:
    """The cotangents of values: what each consumer adds to them, and the sums."""

    def __init__(self, writer: NodeWriter, seeds: Mapping[str, str]) -> None:
        self._writer = writer
        self._parts: defaultdict[str, list[str]] = defaultdict(list)
        for name, seed in seeds.items():
            self.add(name, seed)

    def has(self, name: str) -> bool:
        return bool(name) and name in self._parts

    def add(self, name: str, part: str) -> None:
        self._parts[name].append(part)

    def of(self, name: str, place: Expressions) -> str | None:
        """Returns the sum of what the consumers of a value have added, written once; None if there is nothing."""
        if not self.has(name):
            return None
        parts = self._parts[name]
        if len(parts) > 1:
            self._parts[name] = [place.write("Add" if len(parts) == 2 else "Sum", *parts)]
        return self._parts[name][0]
