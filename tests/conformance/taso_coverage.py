"""Shows which of TASO's rules ours contain: `python -m tests.conformance.taso_coverage FILE` (its graph_subst.pb).

Writes a Markdown page with every rule of the file in one of three classes: sound, sound under a domain, unsound. A rule
that is not sound throughout has a counterexample. A sound rule has a derivation if one is found: at most three of our
rewrites that lead from random instances of its source to the graphs that the rule itself makes of them (equal hashes).
A rule whose source is not connected counts as derived if its form with a Concat after the source and without the Split
after the target is derived.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from taso_ext import CostModel, Graph, GraphBuilder, RuleSet, State
from taso_ext.taso_rules import load_taso_rules
from taso_ext.taso_rules.file import TasoRule, read_taso_file
from taso_ext.taso_rules.instances import source_graphs
from taso_ext.taso_rules.loading import Domain, Groups, Outcome, Verdict, rule_text
from taso_ext.taso_rules.substitution import InexpressibleError, Operator, Substitution, substitution

LONGEST = 3
INSTANCES = 4
_SEED = 7
_DRAWS = 4000
_LOCATIONS = 64  # more than any of these small graphs has for one rule
_COSTS = CostModel.roofline("rtx2070")  # any will do: whether a rewrite is legal does not depend on prices


@dataclass(frozen=True)
class Row:
    """The result for one rule.

    Attributes:
      kind: its class.
      domain: the domain on which it is sound, or a remark.
      counterexample: a graph on which it is wrong although TASO applies it.
      derivation: how it follows from our rules; "" if it does not.
    """

    index: int
    formula: str
    kind: str
    domain: str = ""
    counterexample: str = ""
    derivation: str = ""


def connected(rule: Substitution) -> Substitution | None:
    """Returns `rule` with its results joined by the Concat that its target splits; None if it has another form."""
    *body, split = rule.target
    if split.op_type != "Split" or split.outputs != rule.outputs:
        return None
    joined = Operator("Concat", rule.outputs, ("joined",), axis=split.axis, rank=rule.rank)
    target = [
        replace(operator, outputs=("joined",)) if operator.outputs == split.inputs else operator for operator in body
    ]
    return replace(rule, source=(*rule.source, joined), target=tuple(target), outputs=("joined",))


def own_domain(rule: Substitution, groups: Groups) -> RuleSet:
    """Returns the rule for operands of equal shapes, the only ones that TASO itself applies it to."""
    return RuleSet.parse(rule_text(rule, Domain(False, groups)))


def rewritten(graph: Graph, rules: RuleSet) -> set[str]:
    """Returns the hashes of what the only rule makes of a graph, matched in every way (a sum has two)."""
    state = State(graph, rules, _COSTS, _LOCATIONS)
    hashes = set()
    for location in np.flatnonzero(state.location_mask()[0]):
        stepped = state.copy()
        stepped.step(0, int(location))
        hashes.add(stepped.hash)
    return hashes - {graph.hash}


def derivation(graph: Graph, goals: set[str], rules: RuleSet) -> list[str] | None:
    """Returns the names of at most `LONGEST` rewrites to a hash in `goals`, breadth first; None if there are none."""
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


def with_weights(graph: Graph) -> Graph | None:
    """Returns `graph` with weights for kernels and right operands of products, as in networks; None without any."""
    values, nodes = graph.values(), graph.nodes()
    right = {node.inputs[1] for node in nodes if node.op_type in ("Conv", "MatMul")}
    weights = right.intersection(graph.inputs).difference(*(node.inputs[:1] for node in nodes))
    if not weights:
        return None
    builder = GraphBuilder()
    ids: dict[int, int] = {}
    for id_ in graph.inputs:
        name, dtype, dims = values[id_].name, values[id_].dtype, values[id_].dims or ()
        ids[id_] = builder.weight(name, name, dtype, dims) if id_ in weights else builder.input(name, dtype, dims)
    for node in nodes:
        outputs = [(values[id_].name, values[id_].dtype, values[id_].dims) for id_ in node.outputs]
        built = builder.node("", node.op_type, node.attributes, [ids[id_] for id_ in node.inputs], outputs)
        ids.update(zip(node.outputs, built, strict=True))
    for id_ in graph.outputs:
        builder.output(ids[id_])
    return builder.build()


def instances(graphs: Iterable[Graph | None], own: RuleSet) -> Iterator[tuple[Graph, set[str]]]:
    """Yields the different graphs to which the rule applies, with the hashes of what it makes of each."""
    seen: set[str] = set()
    for graph in graphs:
        goals = set() if graph is None or graph.hash in seen else rewritten(graph, own)
        if graph is not None and goals:
            seen.add(graph.hash)
            yield graph, goals


def derive(rule: Substitution, groups: Groups, rules: RuleSet) -> str:
    """Returns the derivation of the first instance if all have one: `INSTANCES` without weights, as many with them."""
    own = own_domain(rule, groups)
    plain = instances(source_graphs(rule, seed=_SEED, draws=_DRAWS), own)
    heavy = instances(map(with_weights, source_graphs(rule, seed=_SEED, draws=_DRAWS // 10)), own)
    tried = [*islice(plain, INSTANCES), *islice(heavy, INSTANCES)]
    found = [derivation(graph, goals, rules) for graph, goals in tried]
    return " → ".join(found[0]) if found and all(path is not None for path in found) and found[0] else ""


def rows(taso: list[TasoRule], outcomes: tuple[Outcome, ...], rules: RuleSet) -> Iterator[Row]:
    known: dict[int, Row] = {}
    for rule, outcome in zip(taso, outcomes, strict=True):
        known[outcome.index] = row = _row(rule, outcome, rules, known)
        yield row


def _row(rule: TasoRule, outcome: Outcome, rules: RuleSet, known: dict[int, Row]) -> Row:
    row = Row(outcome.index, outcome.formula, "sound")
    match outcome.verdict:
        case Verdict.EMPTY:
            return replace(row, domain="changes nothing here", derivation="source and target are one graph")
        case Verdict.REPEATED:
            other = known[int(outcome.detail.split()[1])]
            domain = f"rule {other.index} under other names" + (f": {other.domain}" if other.counterexample else "")
            return replace(other, index=outcome.index, formula=outcome.formula, domain=domain)
        case Verdict.ACCEPTED:
            domain, _, refuted = outcome.detail.partition("; not for ")
            groups = next(group for group in Groups if not refuted or str(group) in domain)
            kind = "sound under a domain" if refuted else "sound"
            return replace(
                row,
                kind=kind,
                domain=domain,
                counterexample=refuted,
                derivation=derive(substitution(rule), groups, rules),
            )
        case Verdict.INEXPRESSIBLE:
            return _disconnected(rule, outcome, row, rules)
    return replace(row, kind="unsound", counterexample=outcome.detail)


def _disconnected(rule: TasoRule, outcome: Outcome, row: Row, rules: RuleSet) -> Row:
    try:
        whole = connected(substitution(rule))
        found = "" if whole is None else derive(whole, Groups.ANY, rules)
    except (InexpressibleError, ValueError):
        found = ""
    if not found:
        return replace(row, kind="not expressible", domain=outcome.detail)
    return replace(row, domain="its source is not connected; derived with the Concat", derivation=found)


def markdown(table: list[Row], digest: str, ours: RuleSet) -> str:
    """Returns the page: counts by class, then one line for each rule."""
    kinds = Counter({"sound": 0, "sound under a domain": 0, "unsound": 0})
    kinds.update(row.kind for row in table)
    derived = Counter(row.kind for row in table if row.derivation)
    refuted = Counter(row.kind for row in table if row.counterexample)
    lines = [
        "# TASO's rules in our set",
        "",
        "Written by",
        "`python -m tests.conformance.taso_coverage graph_subst.pb -o experiments/results/taso-coverage/table.md`",
        f"from the file with SHA-256 `{digest}`.",
        "",
        f"Ours are the {len(ours)} rules that `RuleSet.default()` loads. A derivation was",
        f"found by trying all rewrites, on {INSTANCES} random graphs of the rule's source and on {INSTANCES} of them",
        "with weights for kernels and right operands of products; the graph that it ends in is the one that TASO's",
        "rule makes. The first graph's is shown.",
        "",
        "TASO applies its rules to convolutions of any groups and any numbers of filters. A rule that is right on some",
        "of them is sound under a domain, and the counterexample is what rejects it beyond; one without such a domain",
        "would be unsound. A rule that `taso-rules` calls repeated is in the class of the one that it repeats; for",
        "those called not expressible there the sources are not connected.",
        "",
        "| class | rules | refuted where TASO applies them | derived from ours in at most three rewrites |",
        "|---|---|---|---|",
        *(f"| {kind} | {number} | {refuted[kind]} | {derived[kind]} |" for kind, number in kinds.items()),
        f"| all | {len(table)} | {sum(refuted.values())} | {sum(derived.values())} |",
        "",
        "| index | rule | class | domain or remark | derivation | beyond the domain |",
        "|---|---|---|---|---|---|",
        *(
            f"| {row.index} | `{row.formula}` | {row.kind} | {row.domain} | {row.derivation or '—'} "
            f"| {row.counterexample} |"
            for row in table
        ),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="TASO's graph_subst.pb")
    parser.add_argument(
        "--instances", type=int, default=64, metavar="N", help="graphs on which a rule is tested (default 64)"
    )
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="the page; printed where no file is given")
    options = parser.parse_args()
    loaded, ours = load_taso_rules(options.file, instances=options.instances), RuleSet.default()
    table = list(rows(read_taso_file(options.file), loaded.outcomes, ours))
    page = markdown(table, loaded.digest, ours)
    if options.out is None:
        print(page, end="")
    else:
        options.out.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
