"""All stages of the generation of partially equal rules, with the counts of each.

Finished re-layouts and proofs are kept in a folder, so that an interrupted run goes on where it stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from taso_ext.generator.generate import Checkpoint, Display
from taso_ext.generator.partial.boxes import read_difference
from taso_ext.generator.partial.corrections import LEAST_CASES, in_case
from taso_ext.generator.partial.mutants import Mutant, mutants
from taso_ext.generator.partial.sources import SOURCES, Source
from taso_ext.generator.partial.wording import (
    PLACEHOLDER,
    Candidate,
    Outcomes,
    candidates,
    exact_conditions,
    name_of,
    rule_text,
    stricter,
)
from taso_ext.generator.partial.worth import KEPT, MOST_OF_A_KIND, kind, size, worth
from taso_ext.generator.selection import examples
from taso_ext.verify.prove import prove_rule

STAGES = {
    "enumerated": "mutants of the grammar",
    "type-correct": f"that have the source's result in {LEAST_CASES} cases or more",
    "partly equal": f"of these, that equal the source in a quarter of the places or more, in {LEAST_CASES} cases",
    "right without a correction": "rules drawn from these, under conditions on extents and attributes",
    "corrected": "rules drawn from these that differ in intervals of rows or columns, which the source mends",
    "kept": "profitable, or the simplest of their kind",
    "verified": "rules, with and without a bias, that the verifier proves",
}
_PATIENCE = 6
"""The cases after which a mutant that differed nearly everywhere in all of them is given up."""
_MOST_CASES = 16
"""The cases after which enough is known of a mutant."""
_MOST_USELESS = 8
"""The candidates of a kind after which no other one is tried."""
REFUTED = "refuted on random graphs, or hardly ever applies"
_INSTANCES = 64  # random graphs that refute a rule before the verifier takes its time


@dataclass(frozen=True)
class Settings:
    """What the result depends on, besides the program.

    Attributes:
      sources: the names of the operators whose mutants are enumerated.
      shipped: the text of the rules beside which a rule has to be of use.
    """

    sources: tuple[str, ...] = tuple(source.name for source in SOURCES)
    shipped: str = ""


@dataclass
class Partial:
    """The rules that were found, with their proofs, and the counts of every stage.

    Attributes:
      rules: the rules as text.
      stages: the number of mutants or rules that reached each stage of STAGES.
      worths: how often each reason was given to keep a candidate, or not to.
      refused: the reasons of the verifier, by the names of the rules that it did not prove.
    """

    rules: list[str] = field(default_factory=list)
    stages: Counter[str] = field(default_factory=Counter)
    worths: Counter[str] = field(default_factory=Counter)
    refused: dict[str, str] = field(default_factory=dict)


def generate_partial(settings: Settings, checkpoints: Path, display: Display) -> Partial:
    """Finds partially equal rules and proves them. The result does not depend on interruptions.

    Args:
      checkpoints: the folder in which finished work is kept.
    """
    checkpoint, result = Checkpoint(checkpoints, "partial", settings), Partial()
    found: list[Candidate] = []
    for source in SOURCES:
        if source.name in settings.sources:
            found += _of_source(source, settings, checkpoint, display, result)
    kept = _kept(found, settings, checkpoint, display, result)
    result.stages["kept"] = len(kept)
    _prove(kept, checkpoint, display, result)
    return result


def _of_source(
    source: Source, settings: Settings, checkpoint: Checkpoint, display: Display, result: Partial
) -> list[Candidate]:
    """Returns the candidates of one source. A finished re-layout is not tested again."""
    enumerated = list(mutants(source))
    result.stages["enumerated"] += len(enumerated)
    groups = [list(group) for _, group in groupby(enumerated, key=lambda mutant: mutant.relayout)]
    found, done = list[Candidate](), 0
    with display.stage(f"mutants of {source.name}", len(enumerated)) as bar:
        for number, group in enumerate(groups):

            def report(at: int, before: int = done, candidates: int = len(found)) -> None:
                bar.update(before + at, candidates=candidates)

            judged = checkpoint.judged(f"{source.name}/{number}", partial(_judged, group, report))
            for mutant, (stage, outcomes) in zip(group, judged, strict=True):
                for reached in ("type-correct", "partly equal")[:stage]:
                    result.stages[reached] += 1
                if stage == 2:
                    found += _candidates(mutant, outcomes, result)
            done += len(group)
            bar.update(done, candidates=len(found))
    return found


def _judged(group: Sequence[Mutant], report: Callable[[int], None]) -> list[tuple[int, list[Any]]]:
    """Returns the stage that each mutant reached and, if it is 2, where it differs in which cases."""
    found = []
    for at, mutant in enumerate(group):
        outcomes = _outcomes(mutant)
        close = sum(each is not None for _, _, each in outcomes)
        stage = 0 if len(outcomes) < LEAST_CASES else 1 if close < LEAST_CASES else 2
        written = [(n, None if each is None else [each.intervals, each.share, each.tested]) for n, _, each in outcomes]
        found.append((stage, written if stage == 2 else []))
        report(at + 1)
    return found


def _outcomes(mutant: Mutant) -> Outcomes:
    """Returns where a mutant differs, in each case in which it is well-typed and not the source itself."""
    statements, found = mutant.statements(), []
    for number, case in enumerate(mutant.source.cases):
        program = None if mutant.degenerate(case.env) else in_case(statements, case)
        if program is not None:
            found.append((number, case, case.reference.difference(program)))
            if len(found) == _MOST_CASES or (len(found) >= _PATIENCE and all(each is None for _, _, each in found)):
                break
    return found


def _candidates(mutant: Mutant, written: Sequence[Any], result: Partial) -> list[Candidate]:
    outcomes = [(number, mutant.source.cases[number], read_difference(each)) for number, each in written]
    found = list(candidates(mutant, outcomes))
    for candidate in found:
        result.stages["corrected" if candidate.is_corrected else "right without a correction"] += 1
    return found


def _kept(
    found: Sequence[Candidate], settings: Settings, checkpoint: Checkpoint, display: Display, result: Partial
) -> list[Candidate]:
    """Returns the simplest candidates of each kind that are of use and that random graphs do not refute."""
    kinds: dict[tuple[object, ...], list[Candidate]] = {}
    for candidate in found:
        kinds.setdefault(kind(candidate), []).append(candidate)
    kept: list[Candidate] = []
    with display.stage("worth of the candidates", len(kinds)) as bar:
        for number, of_kind in enumerate(kinds.values()):
            kept += _simplest(sorted(of_kind, key=size), settings, checkpoint, result)
            bar.update(number + 1, kept=len(kept))
    return kept


def _simplest(
    candidates_of_kind: Sequence[Candidate], settings: Settings, checkpoint: Checkpoint, result: Partial
) -> list[Candidate]:
    """Returns the first candidates that are of use; a further one only if it covers cases that those before do not."""
    kept, useless, covered = list[Candidate](), 0, frozenset[int]()
    for candidate in candidates_of_kind:
        if len(kept) == MOST_OF_A_KIND or useless == _MOST_USELESS:
            break
        if candidate.covered <= covered:
            continue
        apart = tuple(text for each in kept for text in _not_where(each))
        for variant in stricter(replace(candidate, conditions=(*candidate.conditions, *apart))):
            text = rule_text(variant, PLACEHOLDER, biased=_has_bias(variant))
            value = checkpoint.judged(f"worth {text}", partial(_worth, variant, text, settings))
            if value != REFUTED:
                break
        result.worths[value] += 1
        if value in KEPT:
            kept.append(variant)
            covered |= variant.covered
        else:
            useless += 1
    return kept


def _not_where(candidate: Candidate) -> list[str]:
    """Returns the condition that another rule does not apply, so that no two rules of a kind offer the same rewrite."""
    conditions = [*candidate.conditions, *exact_conditions(candidate.statements)]
    return [f"not ({' and '.join(conditions)})"] if conditions else []


def _worth(candidate: Candidate, text: str, settings: Settings) -> str:
    if examples(text, instances=_INSTANCES) is None:
        return REFUTED
    return str(worth(candidate, text, settings.shipped))


def _has_bias(candidate: Candidate) -> bool:
    return candidate.mutant.source.statement.op == "Conv"


def _prove(kept: Sequence[Candidate], checkpoint: Checkpoint, display: Display, result: Partial) -> None:
    names: Counter[str] = Counter()
    jobs: list[tuple[str, str]] = []
    for candidate in kept:
        stem = name_of(candidate)
        names[stem] += 1
        name = f"{stem}-{names[stem]}" if names[stem] > 1 else stem
        jobs.append((name, rule_text(candidate, name)))
        if _has_bias(candidate):
            jobs.append((f"{name}-biased", rule_text(candidate, f"{name}-biased", biased=True)))
    with display.stage("prove rules", len(jobs)) as bar:
        for number, (name, text) in enumerate(jobs):
            proof, refusal = checkpoint.judged(f"prove {text}", partial(_proof, text))
            if proof:
                result.rules.append(f"{text}  proof  {proof}\n")
                result.stages["verified"] += 1
            else:
                result.refused[name] = refusal
            bar.update(number + 1, proven=len(result.rules))


def _proof(text: str) -> tuple[str, str]:
    """Returns the proof of a rule and why there is none, one of them empty; sums may be made in another order."""
    outcome = prove_rule(text)
    if outcome.proof is None:
        outcome = prove_rule(text, normwise=True)
    return outcome.proof_text, outcome.refusal
