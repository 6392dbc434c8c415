"""Asks the verifier about rules that are wrong, for which a sampler that shares no code with it has found a witness.

A rule is wrong if onnx.reference gives another result after a rewrite: for finite inputs of moderate size, where the
result of the model itself is finite. A rule is a hole if the verifier accepts it and it matches its witness with the
domain of its proof.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
import onnx

from taso_ext import RuleSet
from taso_ext.verify.prove import prove_rule
from tests.attack.claims import claim, moderate
from tests.attack.finding import Finding
from tests.conformance.rule_corpus import TRUE, Entry, entries, matches_as_proven, rewritten, run
from tests.conformance.rule_mutations import corrupt

REJECTED, ELSEWHERE = "wrong and rejected", "wrong, and accepted for a domain without the witness"
UNDECIDED, UNUSABLE = "no witness was found", "not a rule"
HOLE = "HOLE"
GOOD = (REJECTED, ELSEWHERE, UNDECIDED, UNUSABLE)
FAULTS = (HOLE,)
MOST_MODELS = 40
_TOLERANCE = 1e-3


class Drawn(Protocol):
    """A rule that may be wrong, and models that it may match."""

    @property
    def name(self) -> str: ...

    @property
    def text(self) -> str: ...

    def models(self, rng: np.random.Generator) -> Iterator[tuple[onnx.ModelProto, dict[str, np.ndarray]]]:
        """Yields models that the rule may match, with inputs."""
        ...


class Changed:
    """A true rule of the corpus with one change, or two."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        while True:
            self._entry = rng.choice(_true_rules())
            changed = corrupt(self._entry.text, rng)
            if changed is not None:
                break
        self.text, how = changed
        self.name = f"{how.replace(' ', '-')}-{seed}"

    def models(self, rng: np.random.Generator) -> Iterator[tuple[onnx.ModelProto, dict[str, np.ndarray]]]:
        """Yields the witness of the true rule with its own inputs, and then with others."""
        yield self._entry.model, dict(self._entry.feeds)
        while True:
            yield self._entry.model, {name: _redrawn(array, rng) for name, array in self._entry.feeds.items()}


def _redrawn(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return moderate(rng, array.shape).astype(array.dtype) if array.dtype.kind == "f" else array


@functools.cache
def _true_rules() -> list[Entry]:
    return entries(TRUE)


def attack(seed: int) -> list[Finding]:
    """Asks the verifier about rule number `seed`, if it is wrong."""
    wrong: Drawn = claim(seed) if seed % 2 else Changed(seed)
    kind = wrong.name.rpartition("-")[0]
    try:
        rules = RuleSet.parse(wrong.text)
    except Exception as error:  # a variable that the source lacks, a rule of nothing …
        return [Finding(seed, kind, UNUSABLE, f"{wrong.text}{error}")]
    found = witness(wrong, rules, np.random.default_rng([seed, 1]))
    if found is None:
        return [Finding(seed, kind, UNDECIDED, wrong.text)]
    model, feeds = found
    outcome = prove_rule(wrong.text)
    if outcome.proof is None:
        return [Finding(seed, kind, REJECTED, outcome.refusal)]
    entry = Entry(wrong.name, "", wrong.text, model, feeds, False)
    accepted = matches_as_proven(entry, outcome)
    details = f"{wrong.text}  proof  {outcome.proof_text}\n{onnx.printer.to_text(model)}\n{feeds}"
    return [Finding(seed, kind, HOLE if accepted else ELSEWHERE, details)]


def witness(
    wrong: Drawn, rules: RuleSet, rng: np.random.Generator
) -> tuple[onnx.ModelProto, Mapping[str, np.ndarray]] | None:
    """Returns a model and inputs for which a rewrite changes a finite result; None if none is found."""
    for model, feeds in itertools.islice(wrong.models(rng), MOST_MODELS):
        try:
            expected = run(model, feeds)
            if any(_changed(expected, run(each, feeds)) for each in rewritten(rules, model)):
                return model, feeds
        except Exception:  # attributes that the operator does not take, or that onnx.reference does not know
            continue
    return None


def _changed(expected: list[np.ndarray], found: list[np.ndarray]) -> bool:
    for a, b in zip(expected, found, strict=True):
        if a.shape != b.shape:
            return True
        finite = np.isfinite(a)
        scale = max(1.0, float(np.abs(a[finite]).max(initial=0.0)))
        with np.errstate(all="ignore"):
            near = np.abs(a - b) <= _TOLERANCE * scale
        if (finite & ~near).any() and scale < 1e6:
            return True
    return False
