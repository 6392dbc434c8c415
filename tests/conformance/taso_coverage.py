"""Which of TASO's rules ours contain: `python -m tests.conformance.taso_coverage FILE`, FILE being its graph_subst.pb.

Prints a Markdown page: every rule of the file in one of three classes (sound, sound under a domain, unsound), and for
each sound one a derivation, that is at most three of our rewrites that lead from random instances of its source to the
very graphs that the rule itself makes of them (equal hashes). A rule whose source is not connected counts as derived
when the form with a Concat behind the source and without the Split behind the target is.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from taso_ext import CostModel, Graph, RuleSet, State
from taso_ext.taso_rules import load_taso_rules
from taso_ext.taso_rules.file import TasoRule, read_taso_file
from taso_ext.taso_rules.instances import source_graphs
from taso_ext.taso_rules.loading import Outcome, Verdict
from taso_ext.taso_rules.substitution import InexpressibleError, Operator, Substitution, substitution
from taso_ext.taso_rules.text import Domain, Groups, rule_text

LONGEST = 3
INSTANCES = 4
_SEED = 7
_DRAWS = 4000
_LOCATIONS = 64  # more than any of these small graphs has for one rule
_COSTS = CostModel.roofline("rtx2070")  # any will do: whether a rewrite is legal does not depend on prices


@dataclass(frozen=True)
class Row:
    """What became of one rule: its class and, where it is sound, how it follows from ours ("" if it does not)."""

    index: int
    formula: str
    kind: str
    detail: str
    derivation: str = ""


def connected(rule: Substitution) -> Substitution | None:
    """`rule` with its results joined by the Concat that its target splits again; None where it has another form."""
    *body, split = rule.target
    if split.op_type != "Split" or split.outputs != rule.outputs:
        return None
    joined = Operator("Concat", rule.outputs, ("joined",), axis=split.axis, rank=rule.rank)
    target = [
        replace(operator, outputs=("joined",)) if operator.outputs == split.inputs else operator for operator in body
    ]
    return replace(rule, source=(*rule.source, joined), target=tuple(target), outputs=("joined",))


def own_domain(rule: Substitution, groups: Groups) -> RuleSet:
    """The rule where TASO itself applies it: on operands of equal shapes."""
    return RuleSet.parse(rule_text(rule, Domain(False, groups)))


def rewritten(graph: Graph, rules: RuleSet) -> set[str]:
    """Hashes of what the single rule makes of a graph of its source, matched in every way (a sum has two)."""
    state = State(graph, rules, _COSTS, _LOCATIONS)
    hashes = set()
    for location in np.flatnonzero(state.location_mask()[0]):
        stepped = state.copy()
        stepped.step(0, int(location))
        hashes.add(stepped.hash)
    return hashes - {graph.hash}


def derivation(graph: Graph, goals: set[str], rules: RuleSet) -> list[str] | None:
    """Names of at most `LONGEST` rewrites from the graph to one with a hash in `goals`, breadth first."""
    level: list[tuple[State, list[str]]] = [(State(graph, rules, _COSTS, _LOCATIONS), [])]
    known = {level[0][0].hash}
    for _ in range(LONGEST):
        following: list[tuple[State, list[str]]] = []
        for state, path in level:
            for rule, location in state.legal_actions():
                stepped = state.copy()
                stepped.step(int(rule), int(location))
                if stepped.hash in known:
                    continue
                known.add(stepped.hash)
                following.append((stepped, [*path, rules.names[rule]]))
                if stepped.hash in goals:
                    return following[-1][1]
        level = following
    return None


def instances(rule: Substitution, own: RuleSet) -> Iterator[tuple[Graph, set[str]]]:
    """Different random graphs of the source in TASO's own domain, with the hashes of what the rule makes of each."""
    seen: set[str] = set()
    for graph in source_graphs(rule, seed=_SEED, draws=_DRAWS):
        goals = set() if graph.hash in seen else rewritten(graph, own)
        if goals:
            seen.add(graph.hash)
            yield graph, goals


def derive(rule: Substitution, groups: Groups, rules: RuleSet) -> str:
    """The derivation of the first instance, if every one of `INSTANCES` has one."""
    found = [
        derivation(graph, goals, rules) for graph, goals in islice(instances(rule, own_domain(rule, groups)), INSTANCES)
    ]
    return " → ".join(found[0]) if found and all(path is not None for path in found) and found[0] else ""


def rows(taso: list[TasoRule], outcomes: tuple[Outcome, ...], rules: RuleSet) -> Iterator[Row]:
    known: dict[int, Row] = {}
    for rule, outcome in zip(taso, outcomes, strict=True):
        known[outcome.index] = row = _row(rule, outcome, rules, known)
        yield row


def _row(rule: TasoRule, outcome: Outcome, rules: RuleSet, known: dict[int, Row]) -> Row:
    index, formula = outcome.index, outcome.formula
    match outcome.verdict:
        case Verdict.EMPTY:
            return Row(index, formula, "sound", "changes nothing here", "source and target are one graph")
        case Verdict.REPEATED:
            other = known[int(outcome.detail.split()[1])]
            return replace(other, index=index, formula=formula, detail=f"rule {other.index} under other names")
        case Verdict.ACCEPTED:
            kind = "sound under a domain" if outcome.restricted else "sound"
            groups = next(
                group for group in Groups if not outcome.restricted or str(group) in outcome.detail.split("; not")[0]
            )
            return Row(index, formula, kind, outcome.detail, derive(substitution(rule), groups, rules))
        case Verdict.INEXPRESSIBLE:
            return _disconnected(rule, outcome, rules)
    return Row(index, formula, "unsound", outcome.detail)


def _disconnected(rule: TasoRule, outcome: Outcome, rules: RuleSet) -> Row:
    try:
        whole = connected(substitution(rule))
        found = "" if whole is None else derive(whole, Groups.ANY, rules)
    except (InexpressibleError, ValueError):
        found = ""
    detail = "its source is not connected; derived with the Concat"
    return Row(
        outcome.index,
        outcome.formula,
        "sound" if found else "not expressible",
        detail if found else outcome.detail,
        found,
    )


def markdown(table: list[Row], digest: str, ours: RuleSet) -> str:
    """Counts by class, then one line for each rule."""
    counts = Counter(row.kind for row in table)
    derived = Counter(row.kind for row in table if row.derivation)
    lines = [
        "# TASO's rules in our set",
        "",
        "Printed by `python -m tests.conformance.taso_coverage graph_subst.pb` from the file with SHA-256",
        f"`{digest}` and our {len(ours)} rules. A derivation was found by trying all rewrites, on {INSTANCES} random",
        "graphs of the rule's source; the graph it ends in is the one that TASO's rule makes.",
        "",
        "| class | rules | derived from ours in at most three rewrites |",
        "|---|---|---|",
        *(f"| {kind} | {number} | {derived[kind]} |" for kind, number in counts.items()),
        f"| all | {len(table)} | {sum(derived.values())} |",
        "",
        "| index | rule | class | domain or reason | derivation |",
        "|---|---|---|---|---|",
        *(f"| {row.index} | `{row.formula}` | {row.kind} | {row.detail} | {row.derivation or '—'} |" for row in table),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="TASO's graph_subst.pb")
    parser.add_argument(
        "--instances", type=int, default=64, metavar="N", help="graphs on which a rule is tested (default 64)"
    )
    options = parser.parse_args()
    loaded, ours = load_taso_rules(options.file, instances=options.instances), RuleSet.default()
    table = list(rows(read_taso_file(options.file), loaded.outcomes, ours))
    print(markdown(table, loaded.digest, ours), end="")


if __name__ == "__main__":
    main()
