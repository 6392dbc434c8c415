"""Exploration: rules are carried out on an e-graph, round by round, until nothing is new or a limit is reached.

A round has two halves. First every rule's pattern is looked for, and what its matches look like (attributes and kinds
of tensors) is noted; the oracle is asked about what is new. Then the rules are carried out where it had an answer. A
rule with many matches waits for a later round. Else orders of the same sums and reshapes fill the e-graph within two or
three rounds, before what pays has been reached.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from enum import StrEnum

from controller.saturation.commands import actions_of, facts_of, kinds_of, variable
from controller.saturation.config import ExplorationLimits
from controller.saturation.egraph import MIRROR, Program
from controller.saturation.groups import Groups
from controller.saturation.oracle import Answer, Oracle, Template
from controller.saturation.patterns import InexpressibleError, Pattern, families_of, patterns_of
from taso_ext import RuleSet
from taso_ext.verify.rule_reader import read_rule


class Stop(StrEnum):
    """Why an exploration stopped."""

    SATURATED = "saturated"
    ROUNDS = "limit of rounds"
    NODES = "limit of e-nodes"
    TIME = "limit of time"


@dataclasses.dataclass(frozen=True)
class Explored:
    """What an exploration did.

    Attributes:
      rounds: rounds that were carried out.
      stop: why it stopped.
      nodes: e-nodes at the end.
      seconds: how long it took.
      asked: questions to the oracle, and how many of them a rule answered.
      inexpressible: by the name of a rule that has no pattern, why.
    """

    rounds: int
    stop: Stop
    nodes: int
    seconds: float
    asked: tuple[int, int]
    inexpressible: dict[str, str]


@dataclasses.dataclass
class _Asking:
    """A pattern in the e-graph.

    Attributes:
      name: of the relation of its questions.
      facts: what a match is, as the body of a rule: its operators and kinds, or, if it has several roots, a note of it.
      columns: the variables that a question consists of: settings of operators, kinds of leaves, kinds of results.
      answered: the questions that were asked.
      applied: by the form of a target, the relation of the answers that have it, which is also the name of a set of
        rules with the one rule that carries them out.
      waiting: matches that have not been carried out.
      bans: how often the rule had too many of them.
    """

    pattern: Pattern
    name: str
    facts: str
    columns: tuple[str, ...]
    answered: set[tuple[int, ...]] = dataclasses.field(default_factory=set)
    applied: dict[Template, str] = dataclasses.field(default_factory=dict)
    waiting: int = 0
    bans: int = 0


_CARRY = "carry-"
"""What the names of the sets of rules that carry out answers begin with."""
_ASK = ("ask-single", "ask-multiple")
"""The sets of rules that note what matches look like: of patterns with one root, and with several."""


class Exploration:
    """The rules on one e-graph."""

    def __init__(self, program: Program, rules: RuleSet, limits: ExplorationLimits) -> None:
        self._program, self._limits = program, limits
        self._oracle = Oracle(rules, program.vocabulary)
        self._texts = [read_rule(rules.text(rule)) for rule in range(len(rules))]
        self._names = rules.names
        self._asking: dict[Pattern, _Asking] = {}
        self._groups = Groups(program, self._oracle)
        self._translated_for = 0  # number of constructors
        self.inexpressible: dict[str, str] = {}
        self._program.run(*(f"(ruleset {name})" for name in _ASK))

    def run(self, on_round: Callable[[int, int], None] | None = None) -> Explored:
        """Explores until a limit is reached or nothing is new.

        Args:
          on_round: called with the number of rounds that are done and the number of e-nodes.
        """
        start = time.monotonic()
        deadline = start + self._limits.seconds if self._limits.seconds else float("inf")
        size, rounds, stop = self._program.size(), 0, Stop.ROUNDS
        while rounds < self._limits.rounds:
            before = size
            reached = self._round(rounds, deadline)
            rounds, size = rounds + 1, self._program.size()
            if on_round is not None:
                on_round(rounds, size)
            if reached is not None:
                stop = reached
                break
            if size == before and not any(asking.waiting for asking in self._asking.values()):
                stop = Stop.SATURATED
                break
        asked = self._oracle.asked, self._oracle.answers
        return Explored(rounds, stop, size, time.monotonic() - start, asked, dict(self.inexpressible))

    def _round(self, number: int, deadline: float) -> Stop | None:
        """Carries out one round; returns the limit that ended it, or None."""
        program, multiple = self._program, number < self._limits.k_multi
        program.run(f"(run-schedule (saturate (run {MIRROR})))")
        self._translate()
        if multiple:
            self._groups.carry_out(deadline)
        for name in _ASK[: 1 + multiple]:
            (report,) = program.run(f"(run {name} 1)")
            matches = report.report.num_matches_per_rule
            for asking in self._asking.values():
                asking.waiting += matches.get(asking.name, 0)
        self._ask()
        for asking in self._asking.values():
            if not asking.waiting:
                continue
            if asking.waiting > self._limits.matches << asking.bans:
                asking.bans += 1
                continue
            asking.waiting = 0
            for name in asking.applied.values():
                program.run(f"(run {_CARRY}{name} 1)")
            if asking.applied and program.size() >= self._limits.nodes:
                return Stop.NODES
            if time.monotonic() > deadline:
                return Stop.TIME
        return None

    def _translate(self) -> None:
        """Adds the patterns that operators of the e-graph could match now."""
        if len(self._program.operators) == self._translated_for:
            return
        self._translated_for = len(self._program.operators)
        for number, text in enumerate(self._texts):
            if self._names[number] in self.inexpressible:
                continue
            try:
                for pattern in patterns_of(number, text, self._program.present):
                    if pattern not in self._asking:
                        self._add(pattern)
                for family in families_of(number, text, self._program.present):
                    self._groups.add(family)
            except InexpressibleError as error:
                self.inexpressible[self._names[number]] = str(error)

    def _add(self, pattern: Pattern) -> None:
        """Adds the rule that notes what the matches of a pattern look like."""
        name = f"ask{len(self._asking)}"
        kinds = kinds_of(pattern)
        columns = (*(f"s{n}" for n in range(len(pattern.operators))), *(f"k{n}" for n in range(len(kinds))))
        # What has several roots is looked for in some rounds only, so that its matches are noted one by one.
        tensors = tuple(map(variable, pattern.tensors)) if pattern.is_multiple else ()
        body, note = " ".join([*facts_of(pattern), *kinds]), f"({name} {' '.join([*tensors, *columns])})"
        self._asking[pattern] = _Asking(pattern, name, note if tensors else body, columns)
        self._program.run(
            f"(relation {name} ({' '.join(['Tensor'] * len(tensors) + ['i64'] * len(columns))}))",
            f'(rule ({body}) ({note}) :ruleset {_ASK[pattern.is_multiple]} :name "{name}")',
        )

    def _ask(self) -> None:
        """Asks the oracle about all matches that look like none before, and tells the e-graph its answers."""
        frozen, integer = self._program.frozen(), self._program.egraph.value_to_i64
        commands: list[str] = []
        for asking in self._asking.values():
            for row in frozen[asking.name].rows:
                question = tuple(map(integer, row.inputs[-len(asking.columns) :]))
                if question in asking.answered:
                    continue
                asking.answered.add(question)
                operators = len(asking.pattern.operators)
                answer = self._oracle.answer(asking.pattern, question[:operators], question[operators:])
                if answer is not None:
                    commands += self._told(asking, question, answer)
        self._program.run(*commands)

    def _told(self, asking: _Asking, question: tuple[int, ...], answer: Answer) -> Iterator[str]:
        """Yields the commands that tell the e-graph an answer, and the rule that carries out answers of a new form."""
        template = answer.template
        if template not in asking.applied:
            name = asking.applied[template] = f"{asking.name}-{len(asking.applied)}"
            yield from self._program.declare([made.operator for made in template.operators])
            settings = [f"u{number}" for number in range(len(answer.settings))]
            kinds = [f"v{number}" for number in range(len(answer.kinds))]
            columns = [*asking.columns, *settings, *kinds]
            yield f"(relation {name} ({' '.join(['i64'] * len(columns))}))"
            yield f"(ruleset {_CARRY}{name})"
            actions = " ".join(actions_of(asking.pattern, template, settings, kinds))
            body = f"{asking.facts} ({name} {' '.join(columns)})"
            yield f'(rule ({body}) ({actions}) :ruleset {_CARRY}{name} :name "{name}")'
        numbers = (*question, *answer.settings, *answer.kinds)
        yield f"({asking.applied[template]} {' '.join(map(str, numbers))})"
