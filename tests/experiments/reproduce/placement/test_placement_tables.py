"""The tables and figures of device placement at the scale `smoke`, and what they make of records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from controller.placement.interface import PLACERS
from experiments.cli import main
from experiments.reproduce.placement.networks import NETWORKS, SECONDS, Network, colocated, groups_of, problem_of
from experiments.reproduce.placement.table2 import BASELINES, SEARCHES, finding, row_of
from tests.commands import read_table
from tests.environment.placement.samples import is_acyclic

TINY = Network("inception-v3-tiny", 8, NETWORKS["inception-v3"].scopes, "Inception-V3")


def record(placer: str, ms: float | None) -> dict[str, object]:
    return {"placer": placer, "ms": ms, "model": TINY.model, "machine": "k80x2"}


def test_every_placer_has_a_column() -> None:
    assert {*BASELINES, *SEARCHES} == set(PLACERS)


def test_the_gain_is_that_of_the_best_search_over_the_best_baseline() -> None:
    records = [record("single-gpu", 10.0), record("heft", 8.0), record("metis", None)]
    records += [record("annealing", 6.0), record("annealing", 8.0), record("ppo", 7.5)]
    row = row_of("inception-v3", TINY, "k80x2", records)
    assert row["annealing"] == 7.0
    assert row["metis"] == "oom"
    assert row["scotch"] == "–"
    assert row["gain"] == pytest.approx(100 / 7)
    assert row["printed"] == "26.21, 4.60, 25.24, 22.88, 11.22, 4.60"
    assert finding([row, {**row, "gain": -1.0}, {**row, "gain": "–"}]).startswith(
        "The best search or agent is at least as fast as every baseline in 1 of 2 rows, and 5 % faster or more in 1."
    )


def test_published_gains_are_those_of_the_published_seconds() -> None:
    """The gain is how much longer the best other one takes; the printed percents are rounded."""
    for (network, _), each in SECONDS.items():
        best = min(each.single_cpu, each.single_gpu, each.scotch, each.mincut, each.expert)
        assert 100 * (best / each.rl - 1) == pytest.approx(each.gain, abs=0.6), network


def test_branches_share_a_group_and_groups_have_no_cycle() -> None:
    problem = problem_of(TINY, "k80x2")
    assert groups_of(TINY).max() + 1 <= 8
    assert is_acyclic(problem.graph, groups_of(TINY))
    labels = colocated(TINY)
    names = np.array([each.name or each.output for each in problem.graph.operators])
    branch = [label for label, name in zip(labels, names, strict=True) if "/Mixed_5b/branch1x1/" in name]
    assert branch and len(set(branch)) == 1


def test_the_tables_are_made_and_finished_placements_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "placement-table1", *NETWORKS, "--scale", "smoke"]) == 0
    assert {row["network"] for row in read_table("placement-table1")} == set(NETWORKS)
    arguments = ["inception-v3", "--scale", "smoke", "--placers", "single-cpu,single-gpu,heft,annealing"]
    assert main(["reproduce", "placement-table2", *arguments]) == 0
    rows = read_table("placement-table2")
    assert [row["machine"] for row in rows] == ["k80x2", "k80x4"]
    assert all(float(row["annealing"]) <= float(row["single-gpu"]) for row in rows)
    units = sorted(Path("runs/reproduce/placement-table2/units").iterdir())
    assert len(units) == 2 * (3 + 2)
    before = [path.stat().st_mtime_ns for path in units]
    drawn = ["inception-v3", "--scale", "smoke", "--placers", "heft,annealing"]
    assert main(["reproduce", "placement-figures", *drawn]) == 0
    assert [path.stat().st_mtime_ns for path in units] == before
    assert len(list(Path("runs/reproduce/placement-figures").glob("figure-*.svg"))) == 4
