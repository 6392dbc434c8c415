"""The rewrites of a run as plain JSON, which the page draws: the start graph, and what each rewrite takes and makes.

This module may use the engine and onnx's names of data types; it knows nothing of HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx

from taso_ext import Graph, Node, Value

LONGEST_TEXT = 120
"""Characters of a name or of an attribute that are kept; long lists and names say little in a drawing."""

Operand = int | str
"""What an operator reads: the number of an operator, -1 - the number of a graph input, or a weight in words."""
Wiring = dict[int, list[Operand]]
"""What each operator of a graph reads, by the number of the operator, producers first."""


def drawn(graphs: Iterable[Graph]) -> dict[str, Any]:
    """Returns graphs that follow one another, each as its difference from the one before.

    Operators that are computed from weights alone count as weights, because exporting folds them.

    Args:
      graphs: at least one graph; all of them are states of one start graph.
    Returns:
      `operators`: [name, operator type, outputs and attributes in words], one for each operator of any graph; numbers
      of operators are positions in it. `inputs`: [name, type in words] of the graph inputs. `start`: pairs [operator,
      operands] of the first graph, producers first. `outputs`: triples [name, type in words, operand] of the graph
      outputs. `changes`: for each further graph `gone`, the operators that it has no longer; `made`, pairs [operator,
      operands] of those that are new; `rewired`, such pairs of those that read something else now; and `outputs`, if
      they are others than before.
    """
    numbering = _Numbering()
    states = map(numbering.state_of, graphs)
    before = wiring, outputs = next(states)
    changes = []
    for after in states:
        changes.append(_change(before, after))
        before = after
    return {
        "operators": numbering.operators,
        "inputs": numbering.inputs,
        "start": [list(pair) for pair in wiring.items()],
        "outputs": outputs,
        "changes": changes,
    }


State = tuple[Wiring, list[list[Any]]]
"""The wiring of a graph, and its outputs."""


def _change(before: State, after: State) -> dict[str, Any]:
    (old, old_outputs), (new, new_outputs) = before, after
    change: dict[str, Any] = {
        "gone": [operator for operator in old if operator not in new],
        "made": [[operator, operands] for operator, operands in new.items() if operator not in old],
        "rewired": [
            [operator, operands] for operator, operands in new.items() if old.get(operator, operands) != operands
        ],
    }
    if new_outputs != old_outputs:
        change["outputs"] = new_outputs
    return change


class _Numbering:
    """The numbers of all operators and inputs that were met.

    An operator keeps its number as long as no rewrite takes it: `Node.origin` says so.
    """

    def __init__(self) -> None:
        self.operators: list[list[str]] = []
        self.inputs: list[list[str]] = []
        self._numbers: dict[str, int] = {}

    def state_of(self, graph: Graph) -> State:
        """Returns the wiring of a graph, and [name, type in words, operand] of each of its outputs."""
        values = graph.values()
        if not self.inputs:
            self.inputs = [[_short(values[each].name), type_text(values[each])] for each in graph.inputs]
        operands: dict[int, Operand] = {value: -1 - number for number, value in enumerate(graph.inputs)}
        wiring: Wiring = {}
        for node in graph.nodes():
            if node.weight_only:
                continue
            number = self._number(node, values)
            wiring[number] = [_operand(value, values, operands) for value in node.inputs if value >= 0]
            operands |= dict.fromkeys(node.outputs, number)
        outputs = [
            [_short(values[value].name), type_text(values[value]), _operand(value, values, operands)]
            for value in graph.outputs
        ]
        return wiring, outputs

    def _number(self, node: Node, values: Mapping[int, Value]) -> int:
        if node.origin not in self._numbers:
            self._numbers[node.origin] = len(self.operators)
            made = ", ".join(type_text(values[value]) for value in node.outputs if value in values)
            attributes = [f"{name} = {_short(_plain(value))}" for name, value in sorted(node.attributes.items())]
            kind = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
            self.operators.append([_short(node.name), kind, "\n".join([made, *attributes])])
        return self._numbers[node.origin]


def _operand(value: int, values: Mapping[int, Value], operands: Mapping[int, Operand]) -> Operand:
    return operands[value] if value in operands else f"weight {type_text(values[value])}"


def type_text(value: Value) -> str:
    """Returns element type and shape, such as `float 1×64×55×55`."""
    dtype = onnx.TensorProto.DataType.Name(value.dtype).lower() if value.dtype else "no tensor"
    if value.dims is None:
        return f"{dtype}, unknown shape" if value.dtype else dtype
    return f"{dtype} {'×'.join(map(str, value.dims)) or 'scalar'}"


def _plain(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(str, value))}]"
    return str(value)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
