"""The e-graph of a graph of the engine, in egglog: its program, and a copy of its classes for extraction.

A value of the start graph is `Value` with its number. An operator is a constructor whose arguments are the number of
its settings and its operands. The result of an operator with one result is the class itself; of others, `Result` with a
number picks one. `kind` gives the number of each tensor's kind (`controller.saturation.vocabulary`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from controller.saturation.vocabulary import ABSENT, Kind, Operator, Settings, Vocabulary
from taso_ext import SYMMETRIC_OPERATORS, Graph, Node

if TYPE_CHECKING:
    from egglog.bindings import EGraph

MIRROR = "mirror"
"""The set of rules by which operands of commutative operators change places."""
_PROLOGUE = (
    "(sort Tensor)",
    "(constructor Value (i64) Tensor)",
    "(constructor Result (i64 Tensor) Tensor)",
    "(function kind (Tensor) i64 :merge (max old new))",
    f"(ruleset {MIRROR})",
)


@dataclass(frozen=True)
class Term:
    """An e-node: an operator with the classes of its operands (-1: absent), and the classes of its results."""

    operator: Operator
    settings: int
    operands: tuple[int, ...]
    results: tuple[int, ...]

    @property
    def unordered(self) -> Term:
        """The same with operands that may be permuted in ascending order."""
        if len(self.operands) != 2 or self.operator.dotted not in SYMMETRIC_OPERATORS:
            return self
        low, high = sorted(self.operands)
        return self if self.operands[0] == low else replace(self, operands=(low, high))


@dataclass(frozen=True)
class Classes:
    """A copy of an e-graph. Classes are numbered from 0.

    Attributes:
      terms: all e-nodes.
      values: the class of each value of the start graph.
      kinds: the number of each class's kind.
      rows: the rows of the relations that were asked for, by name: classes, and then integers.
    """

    terms: list[Term]
    values: dict[int, int]
    kinds: dict[int, int]
    rows: Mapping[str, list[tuple[int, ...]]]


@dataclass
class Program:
    """An e-graph, and what it was told.

    Attributes:
      graph: the start graph.
      vocabulary: the numbers of settings and kinds.
      operators: the constructors by name.
    """

    graph: Graph
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    operators: dict[str, Operator] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from egglog.bindings import EGraph

        self.egraph: EGraph = EGraph()
        self.run(*_PROLOGUE)
        self._tell(self.graph)

    def run(self, *commands: str) -> list[Any]:
        """Runs commands and returns what they report."""
        # One by one: egglog 13.2 parses 1,538 commands (212 kB) that come as one text within 7 GB, since every part of
        # it holds the text, and runs them within 8 GB more.
        egraph = self.egraph
        return [result for each in commands for result in egraph.run_program(*egraph.parse_program(each))]

    def declare(self, operators: Iterable[Operator]) -> list[str]:
        """Returns the commands that declare the operators that are new."""
        commands = []
        for operator in operators:
            name = operator.constructor
            if self.operators.setdefault(name, operator) is not operator:
                continue
            commands.append(f"(constructor {name} (i64{' Tensor' * operator.num_inputs}) Tensor)")
            if operator.num_inputs == 2 and operator.dotted in SYMMETRIC_OPERATORS:
                commands.append(
                    f'(rule ((= y ({name} s a b))) ((union y ({name} s b a))) :ruleset {MIRROR} :name "{name}")'
                )
        return commands

    @property
    def present(self) -> Mapping[str, set[tuple[int, int]]]:
        """The numbers of operands and results with which operators occur, by their dotted names."""
        found: dict[str, set[tuple[int, int]]] = {}
        for operator in self.operators.values():
            found.setdefault(operator.dotted, set()).add((operator.num_inputs, operator.num_outputs))
        return found

    def size(self) -> int:
        """Returns the number of e-nodes that are operators."""
        (counts,) = self.run("(print-size)")
        return sum(count for name, count in counts.sizes if name in self.operators)

    def _tell(self, graph: Graph) -> None:
        """Adds the nodes of the start graph."""
        values = graph.values()
        commands: list[str] = []
        for number, node in enumerate(graph.nodes()):
            operator = Operator.of(node)
            commands += self.declare([operator])
            settings = settings_of(node, number, self.vocabulary)
            whole = f"({operator.constructor} {settings} {' '.join(map(_value, node.inputs))})"
            for position, result in enumerate(node.outputs):
                term = whole if len(node.outputs) == 1 else f"(Result {position} {whole})"
                commands.append(f"(union {_value(result)} {term})")
        for identifier, value in values.items():
            commands.append(f"(set (kind {_value(identifier)}) {self.vocabulary.kind_number(Kind.of(value))})")
        self.run(*commands)

    def frozen(self) -> Mapping[str, Any]:
        """Returns a copy of all functions and relations by name."""
        return self.egraph.freeze().functions

    def classes(self, relations: Mapping[str, int] = MappingProxyType({})) -> Classes:
        """Returns a copy of the e-graph.

        Args:
          relations: by the name of each relation whose rows are wanted, how many of its columns, the first ones, are
            tensors; the others are integers.
        """
        frozen = self.frozen()
        integer = self.egraph.value_to_i64
        numbers: dict[Any, int] = {}

        def number(value: Any) -> int:
            return numbers.setdefault(value, len(numbers))

        values = {integer(row.inputs[0]): number(row.output) for row in frozen["Value"].rows}
        picked: dict[Any, dict[int, int]] = {}
        for row in frozen["Result"].rows:
            picked.setdefault(row.inputs[1], {})[integer(row.inputs[0])] = number(row.output)
        absent = values.pop(ABSENT, None)
        terms: list[Term] = []
        for name, operator in self.operators.items():
            for row in frozen[name].rows:
                operands = tuple(-1 if (operand := number(value)) == absent else operand for value in row.inputs[1:])
                if operator.num_outputs == 1:
                    results: tuple[int, ...] = (number(row.output),)
                else:
                    results = tuple(picked[row.output][place] for place in range(operator.num_outputs))
                terms.append(Term(operator, integer(row.inputs[0]), operands, results))
        kinds = {number(row.inputs[0]): integer(row.output) for row in frozen["kind"].rows}
        rows = {
            name: [
                (*map(number, row.inputs[:tensors]), *map(integer, row.inputs[tensors:])) for row in frozen[name].rows
            ]
            for name, tensors in relations.items()
        }
        return Classes(terms, values, kinds, rows)


def settings_of(node: Node, number: int, vocabulary: Vocabulary) -> int:
    """Returns the number of the settings of the `number`-th node of the start graph."""
    return vocabulary.settings_number(Settings.of(node, (number + 1) * node.stateful))


def term_of(node: Node, number: int, classes: Classes, vocabulary: Vocabulary) -> Term:
    """Returns the term that the `number`-th node of the start graph is."""
    operands = tuple(ABSENT if operand == ABSENT else classes.values[operand] for operand in node.inputs)
    results = tuple(classes.values[result] for result in node.outputs)
    return Term(Operator.of(node), settings_of(node, number, vocabulary), operands, results)


def first_terms(terms: Iterable[Term], given: Iterable[int]) -> dict[int, Term]:
    """Returns a term for every class that given classes lead to, in the order in which classes are reached.

    The first term to be reached is the simplest.
    """
    known = set(given)
    found: dict[int, Term] = {}
    pending = list(terms)
    while True:
        ready = [term for term in pending if all(each == ABSENT or each in known for each in term.operands)]
        new = {result: term for term in reversed(ready) for result in term.results if result not in known}
        if not new:
            return found
        found |= new
        known |= set(new)
        pending = [term for term in pending if not known.issuperset(term.results)]


def _value(identifier: int) -> str:
    return f"(Value {identifier})"
