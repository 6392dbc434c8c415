"""The version of the sources: it changes with every source, and with nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

from experiments.executors.version import PACKAGES, version_of_sources


def test_every_source_counts_and_results_do_not(tmp_path: Path) -> None:
    for package in PACKAGES:
        (tmp_path / package).mkdir()
    (tmp_path / "controller/a.py").write_text("one")
    (tmp_path / "taso_ext/b.cpp").write_text("one")
    first = version_of_sources(tmp_path)
    found = {first}
    for number, (name, text) in enumerate(
        (("controller/a.py", "two"), ("taso_ext/b.cpp", "two"), ("worldmodel/c.py", ""))
    ):
        other = tmp_path / f"copy-{number}"
        for package in PACKAGES:
            shutil.copytree(tmp_path / package, other / package)
        (other / name).write_text(text)
        found.add(version_of_sources(other))
    assert len(found) == 4
    (tmp_path / "experiments/results.csv").write_text("1")
    version_of_sources.cache_clear()
    assert version_of_sources(tmp_path) == first
    assert version_of_sources() not in found and len(version_of_sources()) == 16
