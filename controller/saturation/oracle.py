"""What a rule makes of its pattern for given attributes and kinds of tensors: the engine is asked, once for each.

The pattern becomes a graph of its own, and the engine rewrites it, or finds that the rule does not apply. So all
conditions of a rule, and the domain on which it was proved, are judged by the matcher that judges them everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from controller.saturation.patterns import Pattern
from controller.saturation.vocabulary import ABSENT, Kind, Operator, Settings, Vocabulary, add_leaf, add_operator
from taso_ext import CostModel, Graph, GraphBuilder, Node, RuleSet, State

_MOST_LOCATIONS = 64
"""Places at which a rule is looked for in the graph of its pattern, which has a handful of operators."""


class Reference(NamedTuple):
    """A tensor of a target: a result of its `node`-th operator, or, if that is -1, the `result`-th leaf."""

    node: int
    result: int


class Made(NamedTuple):
    """An operator of a target; absent operands are None."""

    operator: Operator
    operands: tuple[Reference | None, ...]


class Template(NamedTuple):
    """The form of a target, without attributes and types.

    Attributes:
      operators: its operators, producers first.
      roots: what stands for each root of the pattern.
    """

    operators: tuple[Made, ...]
    roots: tuple[Reference, ...]


class Answer(NamedTuple):
    """What a rule makes of its pattern.

    Attributes:
      template: the form.
      settings: the number of the settings of each of its operators.
      kinds: the number of the kind of each result of its operators, in order.
    """

    template: Template
    settings: tuple[int, ...]
    kinds: tuple[int, ...]


class Oracle:
    """The engine, asked for rewrites of patterns.

    Attributes:
      asked: questions so far.
      answers: how many of them a rule answered.
    """

    def __init__(self, rules: RuleSet, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._single = cache(lambda rule: rules.restricted(names={rules.names[rule]}))
        self.asked = self.answers = 0
        self._costs = CostModel.roofline(CostModel.devices()[0])  # not used: no rewrite is chosen by its cost here

    def answer(self, pattern: Pattern, settings: Sequence[int], kinds: Sequence[int]) -> Answer | None:
        """Returns what the pattern's rule makes of it; None if the rule does not apply.

        Args:
          pattern: the pattern.
          settings: numbers of the settings of its operators.
          kinds: numbers of the kinds of its tensors.
        """
        self.asked += 1
        rewritten = self._rewritten(
            pattern, [self._vocabulary.settings(number) for number in settings], list(map(self._vocabulary.kind, kinds))
        )
        if rewritten is None:
            return None
        self.answers += 1
        return self._read(rewritten, pattern)

    def _rewritten(self, pattern: Pattern, settings: list[Settings], kinds: list[Kind]) -> Graph | None:
        """Returns the graph that the rule makes of its pattern's."""
        leaves, results = kinds[: len(pattern.leaves)], kinds[len(pattern.leaves) :]
        if any(
            not kind.weight_only for name, kind in zip(pattern.leaves, leaves, strict=True) if name in pattern.weights
        ):
            return None
        graph = _graph_of(pattern, settings, leaves, results)
        state = State(graph, self._single(pattern.rule), self._costs, _MOST_LOCATIONS)
        actions = state.legal_actions()
        if not len(actions):
            return None
        state.step(*(int(part) for part in actions[0]))
        return state.graph

    def _read(self, graph: Graph, pattern: Pattern) -> Answer:
        values, nodes = graph.values(), graph.nodes()
        known: dict[int, Reference] = {}
        for identifier, value in values.items():
            if value.name in pattern.leaves and (value.handle is not None or identifier in graph.inputs):
                known[identifier] = Reference(-1, pattern.leaves.index(value.name))
        roots = graph.outputs[: len(pattern.roots)]
        made: list[Made] = []
        settings: list[int] = []
        kinds: list[int] = []
        for node in _needed(nodes, roots):
            operands = tuple(None if operand == ABSENT else known[operand] for operand in node.inputs)
            for position, result in enumerate(node.outputs):
                known[result] = Reference(len(made), position)
                kinds.append(self._vocabulary.kind_number(Kind.of(values[result])))
            made.append(Made(Operator.of(node), operands))
            settings.append(self._vocabulary.settings_number(Settings.of(node)))
        template = Template(tuple(made), tuple(known[root] for root in roots))
        return Answer(template, tuple(settings), tuple(kinds))


def _graph_of(pattern: Pattern, settings: list[Settings], leaves: list[Kind], results: list[Kind]) -> Graph:
    """Returns the pattern as a graph whose outputs are its roots and what the rewrite keeps."""
    builder = GraphBuilder()
    values: dict[str, int] = {}
    for name, kind in zip(pattern.leaves, leaves, strict=True):
        values[name] = add_leaf(builder, name, kind)
    kinds = dict(zip(pattern.results, results, strict=True))
    for found, attributes in zip(pattern.operators, settings, strict=True):
        operands = [values[name] for name in found.operands]
        outputs = [(name, kinds[name]) for name in found.results]
        made = add_operator(builder, found.operator, attributes, operands, outputs)
        values |= zip(found.results, made, strict=True)
    kept = [name for found in pattern.operators if found.kept for name in found.results]
    for name in dict.fromkeys((*pattern.roots, *kept)):
        builder.output(values[name])
    return builder.build()


def _needed(nodes: list[Node], roots: Sequence[int]) -> Iterator[Node]:
    """Yields the nodes on which roots depend, producers first."""
    needed = set(roots)
    kept = []
    for node in reversed(nodes):
        if needed.intersection(node.outputs):
            kept.append(node)
            needed.update(node.inputs)
    yield from reversed(kept)
