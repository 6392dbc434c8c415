"""Every rule of the corpus keeps what it promises: the wrong ones change their witness, and the true ones do not."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from taso_ext.verify.prove import prove_rule
from tests.conformance.rule_corpus import CORPUS, TRUE, WRONG, Entry, entries, fault, matches_as_proven, read


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*.toml")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_witnesses_are_evidence(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of onnx.reference, on infinities
        faults = {entry.name: fault(entry, path.parent.name) for entry in read(path)}
    assert not {name: text for name, text in faults.items() if text}


def test_the_corpus_is_large_and_its_names_are_unique() -> None:
    for kind, least in ((WRONG, 300), (TRUE, 150)):
        names = [entry.name for entry in entries(kind)]
        assert len(set(names)) == len(names) >= least


def test_few_witnesses_lie_beyond_the_promise() -> None:
    assert {entry.name for entry in entries(WRONG) if entry.unpromised} == {
        "reassociate-sum-and-difference",
        "cosine-as-shifted-sine",
        "largest-index-of-squares",
    }
    assert not any(entry.unpromised for entry in entries(TRUE))


ONCE_ACCEPTED = ("compose-average-pools-side-by-side", "drop-clip-of-layer-norm")


def test_wrong_rules_that_were_accepted_are_refused() -> None:
    assert not accepted([entry for entry in entries(WRONG) if entry.name in ONCE_ACCEPTED])


SAMPLE = 8


def accepted(cases: list[Entry]) -> set[str]:
    """Returns the names of the rules that the verifier accepts where they match their witness."""
    found = set()
    for entry in cases:
        outcome = prove_rule(entry.text, instances=24, glances=60)
        found |= {entry.name} if matches_as_proven(entry, outcome) else set()
    return found


@pytest.mark.parametrize("path", sorted((CORPUS / WRONG).glob("*.toml")), ids=lambda path: path.stem)
def test_wrong_rules_are_refused_where_they_are_wrong(path: Path) -> None:
    sample = [entry for entry in read(path) if not entry.refused][::SAMPLE]
    assert not accepted([entry for entry in sample if not entry.unpromised])


@pytest.mark.full
@pytest.mark.parametrize("path", sorted((CORPUS / WRONG).glob("*.toml")), ids=lambda path: path.stem)
def test_there_is_no_hole(path: Path) -> None:
    assert accepted(list(read(path))) == {entry.name for entry in read(path) if entry.unpromised}
