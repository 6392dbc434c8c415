"""Every rule of the corpus keeps what it promises: the wrong ones change their witness, and the true ones do not."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tests.conformance.rule_corpus import CORPUS, TRUE, WRONG, entries, fault, read


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
