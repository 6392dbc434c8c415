"""TASO's rules that the rule language can express and that pass the verifier, and reasons against all others.

A rule is tried in several domains, the widest first, and accepted in the first in which no counterexample is found.

A rule of TASO says less than a rule of this project: its convolutions take their number of groups from the shapes, its
splits cut where a concatenation joined, and it was only ever tested on tensors of one shape each. The text of the rule
language (taso_ext/rules/README.md) writes out what is implied, and `Domain` restricts the shapes to which the rule
applies. Strides, pads, dilations and kernels of a convolution are those of the source (`@r`), which includes the stride
1 and SAME padding that TASO asks for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path

from taso_ext._core import Graph, RuleSet
from taso_ext.taso_rules.file import TasoRule, read_taso_file
from taso_ext.taso_rules.instances import source_graphs
from taso_ext.taso_rules.substitution import (
    InexpressibleError,
    Operator,
    Substitution,
    changes_nothing,
    output_terms,
    same_rule,
    substitution,
)
from taso_ext.verify import Counterexample, verify_rule
from taso_ext.verify.prove import TestedDomain, proof_of, prove_rule
from taso_ext.verify.rule_reader import read_rule


class Groups(StrEnum):
    """The groups that the convolutions of a source may have."""

    ANY = "any groups"
    BALANCED = "equally many filters in every group"
    ONE = "one group"


@dataclass(frozen=True)
class Domain:
    """The tensors to which a rule applies.

    Attributes:
      broadcast: whether operands of additions, products and matrix products may broadcast, as in ONNX. Otherwise their
        shapes are equal, as in TASO; for matrix products, their extents without the last two axes.
      groups: the groups of the convolutions; without meaning if there are none.
    """

    broadcast: bool
    groups: Groups

    def describe(self, substitution: Substitution) -> str:
        """Returns the domain in words, without restrictions that have no meaning for this rule."""
        restrictions = []
        if substitution.combines:
            restrictions.append("operands may broadcast" if self.broadcast else "operands of equal shapes")
        if substitution.operators("Conv"):
            restrictions.append(str(self.groups))
        return ", ".join(restrictions) or "any shapes"


def domains(substitution: Substitution) -> list[Domain]:
    """Returns the domains in which to try a rule, wider ones first. The last is no wider than what TASO itself matches.

    Operands of a rule with convolutions never broadcast: an extent of 1 would be taken for a group, or padded.
    """
    convolutions = len(substitution.operators("Conv"))
    if convolutions:
        groups = [Groups.ANY, Groups.BALANCED, Groups.ONE] if convolutions > 1 else [Groups.ANY, Groups.ONE]
        return [Domain(False, group) for group in groups]
    return [Domain(broadcast, Groups.ANY) for broadcast in ([True, False] if substitution.combines else [True])]


def rule_name(substitution: Substitution) -> str:
    """Returns the name of the rule in the text."""
    return f"taso-{substitution.index}"


def rule_text(substitution: Substitution, domain: Domain) -> str:
    """Returns the rule in the language of taso_ext/rules/README.md.

    Raises:
      InexpressibleError: if a convolution of the target has a window that none of the source has, or if no outputs of
        the source give the sizes of a split in the target.
    """
    writer = _Writer(substitution, domain)
    sections = {
        "var": [f"{', '.join(substitution.variables)}: float[...]"],
        "source": [writer.source_statement(position) for position in range(len(substitution.source))],
        "where": list(dict.fromkeys(writer.conditions())),
        "target": [writer.target_statement(operator) for operator in substitution.target],
    }
    lines = [f"rule {rule_name(substitution)}"]
    for section, items in sections.items():
        heads = [section, *[""] * len(items)]
        lines += [f"  {head:<6} {item}" for head, item in zip(heads, items, strict=False)]
    return "\n".join(lines) + "\n"


class _Writer:
    """A writer of the statements and conditions of one rule in one domain."""

    def __init__(self, substitution: Substitution, domain: Domain) -> None:
        self._substitution = substitution
        self._domain = domain
        windows = dict.fromkeys(operator.window for operator in substitution.operators("Conv"))
        self._windows = {window: f"@r{number}" for number, window in enumerate(windows)}

    def source_statement(self, position: int) -> str:
        operator = self._substitution.source[position]
        match operator.op_type:
            case "Conv":
                group = "1" if self._domain.groups is Groups.ONE else f"g{position}"
                return self._statement(operator, f"{self._windows[operator.window]}, group={group}")
            case "Split":
                return self._statement(operator, f"{self._axis(operator)}, split=n{position}")
        return self._statement(operator, self._attributes(operator))

    def target_statement(self, operator: Operator) -> str:
        match operator.op_type:
            case "Conv":
                if operator.window not in self._windows:
                    raise InexpressibleError(
                        "its target has a convolution whose stride, padding and kernel no convolution of its source has"
                    )
                x, w = operator.inputs
                group = f"group=dims({x})[1] / dims({w})[1]"  # as TASO infers it
                return self._statement(operator, f"{self._windows[operator.window]}, {group}")
            case "Split":
                if not set(operator.outputs) <= set(self._substitution.outputs):
                    raise InexpressibleError("no results of its source tell the sizes of a split in its target")
                axis = self._axis(operator)
                sizes = ", ".join(f"dims({name})[{axis.removeprefix('axis=')}]" for name in operator.outputs)
                return self._statement(operator, f"{axis}, split=[{sizes}]")
        return self._statement(operator, self._attributes(operator))

    def _statement(self, operator: Operator, attributes: str) -> str:
        call = ", ".join(operator.inputs) + ("; " if attributes else "") + attributes
        return f"{', '.join(operator.outputs)} = {operator.op_type}({call})"

    def _attributes(self, operator: Operator) -> str:
        if operator.perm is not None:
            return f"perm={list(operator.perm)}"
        return "" if operator.axis is None else self._axis(operator)

    def _axis(self, operator: Operator) -> str:
        return f"axis={self._substitution.axis(operator, 0)}"  # negative if it counts from the end

    def conditions(self) -> Iterator[str]:
        """Yields the conditions that must hold of the tensors of the source."""
        substitution = self._substitution
        for operator in substitution.source:
            if operator.scalar:
                yield f"size({operator.inputs[1]}) == 1"
            if not self._domain.broadcast:
                yield from _equal_shapes(operator)
        if self._domain.groups is Groups.BALANCED:
            convolutions = [(n, op) for n, op in enumerate(substitution.source) if op.op_type == "Conv"]
            for (i, a), (j, b) in pairwise(convolutions):
                yield f"dims({a.inputs[1]})[0] * g{j} == dims({b.inputs[1]})[0] * g{i}"


def _equal_shapes(operator: Operator) -> Iterator[str]:
    a, b = operator.inputs[0], operator.inputs[-1]
    if operator.op_type == "MatMul":
        yield f"take(dims({a}), rank({a}) - 2) == take(dims({b}), rank({b}) - 2)"
    elif operator.op_type in ("Add", "Mul") and not operator.scalar:
        yield f"dims({a}) == dims({b})"


DEFAULT_INSTANCES = 64
_DRAWS_PER_INSTANCE = 60  # few draws fit three grouped convolutions
_LEAST_SHARE = 4  # a quarter of the graphs asked for must be found, and differ
_SEED = 0
Progress = Callable[[int, int], None]


class Verdict(StrEnum):
    """The verdict on a rule."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"
    EMPTY = "changes nothing"
    INEXPRESSIBLE = "not expressible"
    WRONG = "wrong"
    UNTESTED = "not tested"


@dataclass(frozen=True)
class Outcome:
    """The outcome of loading one rule.

    Attributes:
      index: position in TASO's file.
      formula: the rule as terms over its inputs; the names of its operators if it cannot be translated.
      detail: the domain of an accepted rule and why it is no wider, or the reason why it was not accepted.
      text: the accepted rule in the rule language, else empty.
      restricted: whether a wider domain was tried and refused.
    """

    index: int
    formula: str
    verdict: Verdict
    detail: str
    text: str = ""
    restricted: bool = False


@dataclass(frozen=True)
class TasoRules:
    """The rules of a file of TASO.

    Attributes:
      file: the name of the file.
      digest: the SHA-256 of the file.
      outcomes: one outcome for each rule of the file, in order.
    """

    file: str
    digest: str
    outcomes: tuple[Outcome, ...]

    @property
    def rejected(self) -> list[tuple[int, str]]:
        """The index and the reason of every rule that is not in `rules`."""
        return [
            (outcome.index, f"{outcome.verdict}: {outcome.detail}")
            for outcome in self.outcomes
            if outcome.verdict is not Verdict.ACCEPTED
        ]

    @property
    def text(self) -> str:
        """The text of a rule file with the accepted rules; the name of each is `taso-` and its index."""
        header = f"# Rules of TASO's {self.file} (SHA-256 {self.digest}) that passed the verifier.\n"
        return "\n".join([header, *(outcome.text for outcome in self.outcomes if outcome.text)])

    @cached_property
    def rules(self) -> RuleSet:
        """The accepted rules.

        Raises:
          ValueError: if no rule was accepted.
        """
        if not any(outcome.text for outcome in self.outcomes):
            raise ValueError(f"None of the {len(self.outcomes)} rules of {self.file} was accepted; see `rejected`.")
        return RuleSet.parse(self.text)


def load_taso_rules(
    path: str | Path, *, instances: int = DEFAULT_INSTANCES, progress: Progress | None = None
) -> TasoRules:
    """Reads, translates and verifies the rules of TASO, in about a second for each rule.

    Args:
      path: the protobuf file, usually graph_subst.pb.
      instances: the number of random graphs on which a rule is tested in each domain.
      progress: a function that is called with (rules done, rules in the file) after each rule.
    Raises:
      TasoFileError: if the file is not such a collection.
      ValueError: if `instances` is below 1.
    """
    if instances < 1:
        raise ValueError(f"instances is {instances}; a rule needs at least one graph to be tested on.")
    rules = read_taso_file(path)
    known: list[tuple[Substitution, Outcome]] = []
    outcomes: list[Outcome] = []
    for rule in rules:
        outcomes.append(_load(rule, known, instances))
        if progress is not None:
            progress(len(outcomes), len(rules))
    return TasoRules(Path(path).name, hashlib.sha256(Path(path).read_bytes()).hexdigest(), tuple(outcomes))


def _load(rule: TasoRule, known: list[tuple[Substitution, Outcome]], instances: int) -> Outcome:
    """Returns the outcome of `rule`, and adds the rule to `known` if it differs from the rules there."""
    try:
        translated = substitution(rule)
    except InexpressibleError as error:
        return Outcome(rule.index, _operator_names(rule), Verdict.INEXPRESSIBLE, str(error))
    formula = "; ".join(f"{source} → {target}" for source, target in output_terms(translated))
    if changes_nothing(translated):
        reason = "source and target are one graph once fused activations are operators of their own"
        return Outcome(rule.index, formula, Verdict.EMPTY, reason)
    for other, outcome in known:
        if same_rule(other, translated):
            reason = f"rule {other.index} ({outcome.verdict}) but for names and the order of commutative operands"
            return Outcome(rule.index, formula, Verdict.REPEATED, reason)
    outcome = _try_domains(translated, formula, instances)
    known.append((translated, outcome))
    return outcome


def _operator_names(rule: TasoRule) -> str:
    sides = (", ".join(f"OP_{operator.type.name}" for operator in side) for side in (rule.source, rule.target))
    return " → ".join(sides)


def _try_domains(rule: Substitution, formula: str, instances: int) -> Outcome:
    refused: list[str] = []
    verdict, why = Verdict.UNTESTED, ""
    for domain in domains(rule):
        try:
            text = rule_text(rule, domain)
            rules = RuleSet.parse(text)
        except (InexpressibleError, ValueError) as error:
            reason = str(error).partition(f"rule '{rule_name(rule)}': ")[2] or str(error)
            return Outcome(rule.index, formula, Verdict.INEXPRESSIBLE, reason)
        detail = domain.describe(rule) + (f"; not for {' or '.join(refused)}: {why}" if refused else "")
        verdict, found = _verify(rule, text, rules, instances)
        if verdict == Verdict.ACCEPTED:
            return Outcome(rule.index, formula, verdict, detail, f"{text}  proof  {found}\n", bool(refused))
        why = found
        refused.append(domain.describe(rule))
    return Outcome(rule.index, formula, verdict, f"for {' or '.join(refused)}: {why}")


def _verify(rule: Substitution, text: str, rules: RuleSet, instances: int) -> tuple[Verdict, str]:
    """Returns the verdict on the rule in one domain, and its proof or the reason against it."""
    tested = TestedDomain(read_rule(text))
    found = verify_rule(rules, 0, instances=instances, sources=_sources(rule, instances), observe=tested.observe)
    if found.counterexample is not None:
        return Verdict.WRONG, _why(rule, found.counterexample, instances)
    if len(found.instances) * _LEAST_SHARE < max(instances, 1):
        return Verdict.UNTESTED, f"it applies to {len(found.instances)} of its random graphs, too few to trust it"
    proven = prove_rule(text, instances=instances, domain=tested)  # on the engine's graphs, which reach further
    if proven.refuted:
        return Verdict.WRONG, proven.refusal.splitlines()[0]
    return Verdict.ACCEPTED, proven.proof_text or proof_of(text, found, tested).text(rules, 0)


def _sources(rule: Substitution, instances: int) -> Iterator[Graph]:
    return source_graphs(rule, seed=_SEED, draws=instances * _DRAWS_PER_INSTANCE)


def _why(rule: Substitution, counterexample: Counterexample, instances: int) -> str:
    """Returns why a domain is refused. A reason against a domain is one against all wider domains as well."""
    graph = next(islice(_sources(rule, instances), counterexample.instance_seed, None))
    values = graph.values()
    inputs = ", ".join(f"{values[id_].name}{values[id_].dims}" for id_ in graph.inputs)
    return f"{counterexample.stage} test on {inputs}, where {counterexample.reason}"
