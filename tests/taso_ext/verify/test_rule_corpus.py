"""Every rule of the corpus keeps what it promises: the wrong ones change their witness, and the true ones do not."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from taso_ext.verify.prove import DEFAULT_SHAPES, GLANCES, prove_rule
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


KNOWN_HOLES = {
    "drop-clip-of-layer-norm",  # only of 10 to 16 elements, all zero but one, and bounds between 3 and 3.9
    "reassociate-sum-and-difference",  # policy: in which order sums of extreme numbers overflow
    "cosine-as-shifted-sine",  # a rounding of the angle 10^6, whose cosine moves as much if the angle is rounded
    "largest-index-of-squares",  # the source is wrong where squares underflow, and the target is not
}
RARE = {"compose-average-pools-side-by-side"}
"""Rules that few graphs refute, so that they are tested on as many graphs as `rlflow rules verify` does."""
SAMPLE = 8


def accepted(cases: list[Entry]) -> set[str]:
    """Returns the names of the rules that the verifier accepts where they match their witness."""
    found = set()
    for entry in cases:
        instances, glances = (DEFAULT_SHAPES, GLANCES) if entry.name in RARE else (24, 60)
        outcome = prove_rule(entry.text, instances=instances, glances=glances)
        found |= {entry.name} if matches_as_proven(entry, outcome) else set()
    return found


@pytest.mark.parametrize("path", sorted((CORPUS / WRONG).glob("*.toml")), ids=lambda path: path.stem)
def test_wrong_rules_are_refused_where_they_are_wrong(path: Path) -> None:
    sample = [entry for entry in read(path) if not entry.refused][::SAMPLE]
    assert not accepted([entry for entry in sample if entry.name not in KNOWN_HOLES])


@pytest.mark.full
@pytest.mark.parametrize("path", sorted((CORPUS / WRONG).glob("*.toml")), ids=lambda path: path.stem)
def test_no_other_hole_is_known(path: Path) -> None:
    assert accepted(list(read(path))) == KNOWN_HOLES & {entry.name for entry in read(path)}
