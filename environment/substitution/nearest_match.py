"""Why a rule does not apply: the largest part of its source that fits somewhere, and what keeps the rest from fitting.

The engine's matcher itself is asked, with rules that demand less: a part of the statements, without the conditions,
without what attributes and variables are declared to be. Such a rule replaces operators by equal ones, so that nothing
but its source decides where it applies.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from taso_ext import CostModel, Graph, Node, RuleSet, State
from taso_ext.errors import did_you_mean
from taso_ext.verify.rule_reader import domain_items, read_rule, rule_sections, split_items

MOST_PLACES = 4096
MOST_STATEMENTS = 12
"""Rules of more statements are too long for all of their parts to be tried."""


@dataclass(frozen=True)
class Explanation:
    """Where a rule applies, or how far it is from applying.

    Attributes:
      rule: the name of the rule.
      applies_to: the names of the operators of each match; empty if the rule does not apply.
      matched: by statement of the part that fits, the name of the operator that stands for it.
      missing: the statements that nothing stands for.
      failed: the conditions, declarations and attributes that do not hold there, in words.
      refusal: why the engine refuses the match although the whole source fits; empty if it does not fit.
    """

    rule: str
    applies_to: tuple[tuple[str, ...], ...] = ()
    matched: dict[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    refusal: str = ""

    def lines(self) -> list[str]:
        """Returns what a user reads, one finding a line."""
        if self.applies_to:
            places = [", ".join(names) for names in self.applies_to]
            return [
                f"{self.rule} applies at {len(places)} place{'s' * (len(places) > 1)}:",
                *(f"  {p}" for p in places),
            ]
        if not self.matched:
            return [f"{self.rule} does not apply: no operator there fits any statement of its source."]
        total = len(self.matched) + len(self.missing)
        lines = [f"{self.rule} does not apply. The nearest match has {len(self.matched)} of {total} statements:"]
        lines += [f"  {statement}   is {name}" for statement, name in self.matched.items()]
        lines += [f"  {statement}   is missing" for statement in self.missing]
        lines += [f"Not met: {each}" for each in self.failed]
        return [*lines, *([self.refusal] if self.refusal else [])]


def explain(graph: Graph, rules: RuleSet, rule: int, node: str = "") -> Explanation:
    """Returns where a rule applies in a graph, or how near it comes to that.

    Args:
      graph: the graph, for example `OnnxModel.graph`.
      rule: the number of the rule.
      node: the name of an operator that has to take part; empty if any may.
    Raises:
      ValueError: there is no operator of this name.
    """
    names = [each.name for each in graph.nodes()]
    if node and node not in names:
        raise ValueError(f"there is no operator '{node}' in the graph{did_you_mean(node, names)}")
    return _Search(graph, rules, rule, node).run()


class _Part:
    """A part of a rule's source, and what is demanded of it."""

    def __init__(self, text: str) -> None:
        self._sections, self.rule = rule_sections(text), read_rule(text)
        self.statements = [*self._sections["source"], *self._sections["given"]]
        self.conditions = [*self._sections["where"], *domain_items(self._sections["proof"])]
        self.declarations = {name: kind for item in self._sections["var"] for name, kind in _declarations(item)}

    def text(
        self,
        chosen: Collection[int],
        conditions: Sequence[str] = (),
        *,
        declared: Collection[str] = (),
        exact: Collection[int] = (),
    ) -> str:
        """Returns a rule that replaces the chosen statements by equal ones.

        Args:
          conditions: the conditions that it demands.
          declared: the variables that keep their declared kind and shape; the others may be anything.
          exact: the statements whose attributes are demanded.
        """
        made = {term.name for index in chosen for term in self.rule.source[index].results}
        read = {
            term.name: term.starred
            for index in chosen
            for term in self.rule.source[index].arguments
            if term.name not in made
        }
        variables = [
            f"{'*' * starred}{name}: {self.declarations[name] if name in declared else 'any'}"
            for name, starred in read.items()
        ]
        source = [self._statement(index, index in exact) for index in sorted(chosen)]
        used = {self.rule.source[index].op for index in chosen}
        operators = [item for item in self._sections["op"] if item.split(":")[0].strip() in used]
        body = {"var": variables, "op": operators, "source": source, "where": conditions, "target": source}
        least = self._sections["least"]
        lines = [f"  {name} {'; '.join(items)}" for name, items in body.items() if items]
        return "\n".join(["rule part", *lines, *([f"  least {least[0]}"] if least else [])]) + "\n"

    def _statement(self, index: int, exact: bool) -> str:
        text, statement = " ".join(self.statements[index].split()), self.rule.source[index]
        if exact or statement.op in self.rule.operators or not (statement.attributes or statement.rest):
            return text
        head, *_ = split_items(text[: text.rindex(")")].partition("(")[2], ";")
        return f"{text.partition('(')[0]}({head}; @rest{index})"

    def variables_of(self, chosen: Collection[int]) -> list[str]:
        names = {term.name for index in chosen for term in self.rule.source[index].arguments}
        return [name for name in self.rule.variables if name in names]


class _Search:
    """The search for the largest part that fits."""

    def __init__(self, graph: Graph, rules: RuleSet, rule: int, node: str) -> None:
        self._graph, self._rules, self._index = graph, rules, rule
        self._text = rules.text(rule)
        self._part = _Part(self._text)
        self._nodes = {each.origin: each for each in graph.nodes()}
        self._wanted = {each.origin for each in graph.nodes() if each.name == node} if node else set(self._nodes)

    def run(self) -> Explanation:
        name = self._rules.names[self._index]
        whole = list(self._matches(self._text))
        if whole:
            return Explanation(name, tuple(tuple(node.name for node in nodes) for nodes in whole))
        for parts in self._parts():
            fitting = ((part, next(self._matches(self._part.text(part)), None)) for part in parts)
            near = [self._explained(name, part, found) for part, found in fitting if found is not None]
            if near:
                return min(near, key=lambda each: len(each.failed))
        return Explanation(name)

    def _explained(self, name: str, chosen: tuple[int, ...], found: Sequence[Node]) -> Explanation:
        statements = self._part.statements
        missing = tuple(_line(statements[i]) for i in range(len(statements)) if i not in chosen)
        failed = tuple(self._failed(chosen))
        refusal = ""
        if not missing and not failed:
            refusal = (
                "The whole source fits, but the rewrite is refused: another operator reads a result that the target "
                "does not make, or the target does not have the types of what it replaces."
            )
        return Explanation(name, (), self._standing(chosen, found), missing, failed, refusal)

    def _parts(self) -> Iterator[list[tuple[int, ...]]]:
        """Yields the connected parts of the source by their size, the largest first."""
        count = len(self._part.statements)
        for size in range(count if count <= MOST_STATEMENTS else 1, 0, -1):
            yield [part for part in itertools.combinations(range(count), size) if self._is_connected(part)]

    def _is_connected(self, chosen: Sequence[int]) -> bool:
        source = self._part.rule.source
        terms = {i: {term.name for term in (*source[i].arguments, *source[i].results)} for i in chosen}
        reached, pending = {chosen[0]}, [chosen[0]]
        while pending:
            here = pending.pop()
            fresh = {i for i in chosen if i not in reached and terms[i] & terms[here]}
            reached |= fresh
            pending += fresh
        return len(reached) == len(chosen)

    def _failed(self, chosen: tuple[int, ...]) -> Iterator[str]:
        """Yields what is demanded of a part that fits without it, and does not hold: alone, or else all together."""
        part = self._part
        declared, alone = part.variables_of(chosen), list[str]()
        for name in declared:
            if not self._fits(part.text(chosen, declared=[name])):
                alone.append(f"the declaration {name}: {part.declarations[name]}")
        for index in chosen:
            if not self._fits(part.text(chosen, exact=[index])):
                alone.append(f"the attributes of {_line(part.statements[index])}")
        exact = part.text(chosen, declared=declared, exact=chosen)
        if alone or not self._fits(exact):
            yield from alone or ["the declarations and attributes together"]
            return
        for condition in part.conditions:
            text = part.text(chosen, [condition], declared=declared, exact=chosen)
            if self._is_rule(text) and not self._fits(text):
                yield f"the condition {_line(condition)}"

    def _standing(self, chosen: Sequence[int], found: Sequence[Node]) -> dict[str, str]:
        """Returns, by statement, the operators that stand for it; those of one kind are not told apart."""
        source, standing, left = self._part.rule.source, dict[str, str](), list(found)
        for index in chosen:
            choices = self._part.rule.operators.get(source[index].op, (source[index].op,))
            fitting = [node for node in left if f"{node.domain}.{node.op_type}".lstrip(".") in choices]
            taken = fitting if source[index].mapped else fitting[:1]
            left = [node for node in left if node not in taken]
            standing[_line(self._part.statements[index])] = ", ".join(_called(node) for node in taken) or "an operator"
        return standing

    def _fits(self, text: str) -> bool:
        return next(self._matches(text), None) is not None

    @staticmethod
    def _is_rule(text: str) -> bool:
        try:
            RuleSet.parse(text)
        except ValueError:
            return False
        return True

    def _matches(self, text: str) -> Iterator[list[Node]]:
        """Yields the operators that each match of a rule takes away, for matches in which a wanted one takes part."""
        try:
            rules = RuleSet.parse(text)
        except ValueError:  # a part of a rule need not be a rule, for example if a symbol is bound elsewhere
            return
        state = State(self._graph, rules, CostModel.roofline("xeon"), MOST_PLACES)
        for location in np.flatnonzero(state.location_mask()[0]).tolist():
            after = state.copy()
            after.step(0, location)
            gone = self._nodes.keys() - {node.origin for node in after.graph.nodes()}
            if gone & self._wanted:
                yield [node for origin, node in self._nodes.items() if origin in gone]


def _called(node: Node) -> str:
    return f"{node.name or 'an unnamed operator'} ({node.op_type})"


def _line(text: str) -> str:
    return " ".join(text.split())


def _declarations(item: str) -> Iterator[tuple[str, str]]:
    names, kind = item.split(":", 1)
    for name in names.split(","):
        yield name.strip().lstrip("*"), kind.strip()
