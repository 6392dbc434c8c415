"""Loads the rules of TASO that can be said in the rule language and that pass the verifier; reports all others.

A rule is tried in several domains, the widest first, and accepted in the first in which no counterexample is found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import islice
from pathlib import Path

from taso_ext._core import Graph, RuleSet
from taso_ext.taso_rules.file import TasoRule, read_taso_file
from taso_ext.taso_rules.instances import source_graphs
from taso_ext.taso_rules.substitution import InexpressibleError, Substitution, substitution
from taso_ext.taso_rules.terms import changes_nothing, output_terms, same_rule
from taso_ext.taso_rules.text import domains, rule_name, rule_text
from taso_ext.verify import Counterexample, verify_rule
from taso_ext.verify.domain import TestedDomain
from taso_ext.verify.prove import proof_of, prove_rule
from taso_ext.verify.rule_reader import read_rule

DEFAULT_INSTANCES = 64
_DRAWS_PER_INSTANCE = 60  # of three grouped convolutions few draws fit
_LEAST_SHARE = 4  # a quarter of the graphs asked for must be found, and differ
_SEED = 0
Progress = Callable[[int, int], None]


class Verdict(StrEnum):
    """What became of a rule."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"
    EMPTY = "changes nothing"
    INEXPRESSIBLE = "not expressible"
    WRONG = "wrong"
    UNTESTED = "not tested"


@dataclass(frozen=True)
class Outcome:
    """What became of one rule.

    Attributes:
      index: position in TASO's file.
      formula: the rule as terms over its inputs.
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
      file: its name.
      digest: its SHA-256.
      outcomes: one for each rule of the file, in order.
    """

    file: str
    digest: str
    outcomes: tuple[Outcome, ...]

    @property
    def rejected(self) -> list[tuple[int, str]]:
        """Index and reason of every rule that is not in `rules`."""
        return [
            (outcome.index, f"{outcome.verdict}: {outcome.detail}")
            for outcome in self.outcomes
            if outcome.verdict is not Verdict.ACCEPTED
        ]

    @property
    def text(self) -> str:
        """The accepted rules as a rule file; each is called `taso-` and its index."""
        header = f"# Rules of TASO's {self.file} (SHA-256 {self.digest}) that passed the verifier.\n"
        return "\n".join([header, *(outcome.text for outcome in self.outcomes if outcome.text)])

    @cached_property
    def rules(self) -> RuleSet:
        """The accepted rules.

        Raises:
          ValueError: none was accepted.
        """
        if not any(outcome.text for outcome in self.outcomes):
            raise ValueError(f"None of the {len(self.outcomes)} rules of {self.file} was accepted; see `rejected`.")
        return RuleSet.parse(self.text)


def load_taso_rules(
    path: str | Path, *, instances: int = DEFAULT_INSTANCES, progress: Progress | None = None
) -> TasoRules:
    """Reads TASO's rules, translates and verifies them: about a second a rule.

    Args:
      path: the protobuf file, usually graph_subst.pb.
      instances: random graphs on which a rule is tested in each domain.
      progress: called with (rules done, rules in the file).
    Raises:
      TasoFileError: the file is no such collection.
      ValueError: `instances` is below 1.
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
    """The outcome of `rule`, given the different rules before it, to which it is added."""
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
    """What becomes of the rule in one domain, and its proof or the reason."""
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
    """That of a domain is one of all wider domains as well."""
    graph = next(islice(_sources(rule, instances), counterexample.instance_seed, None))
    values = graph.values()
    inputs = ", ".join(f"{values[id_].name}{values[id_].dims}" for id_ in graph.inputs)
    return f"{counterexample.stage} test on {inputs}, where {counterexample.reason}"
