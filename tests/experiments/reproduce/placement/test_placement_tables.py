"""The tables and figures of device placement at the scale `smoke`, and what they make of records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from controller.placement.interface import PLACERS
from environment.placement import PlacementProblem, find_machine
from environment.placement.training import TrainingParts
from experiments.cli import main
from experiments.reproduce.placement.networks import NETWORKS, SECONDS, by_rules, graph_of, groups_of, problem_of
from experiments.reproduce.placement.table2 import BASELINES, SEARCHES, finding, row_of
from experiments.reproduce.placement.zero_shot import row_of as zero_shot_row
from tests.commands import read_table
from tests.environment.placement.samples import is_acyclic

TINY = replace(NETWORKS["inception-v3"], model="inception-v3-tiny", groups=8)


def record(placer: str, ms: float | None) -> dict[str, object]:
    return {"placer": placer, "ms": ms, "network": TINY.name, "machine": "k80x2"}


def test_every_placer_has_a_column() -> None:
    assert {*BASELINES, *SEARCHES} == set(PLACERS) - {"reinforce-ray"}  # the same as reinforce-async


def test_the_gain_is_that_of_the_best_search_over_the_best_baseline() -> None:
    records = [record("single-gpu", 10.0), record("heft", 8.0), record("metis", None)]
    records += [record("annealing", 6.0), record("annealing", 8.0), record("ppo", 7.5)]
    row = row_of("inception-v3", TINY, "k80x2", records)
    assert row["annealing"] == 7.0
    assert row["metis"] == "oom"
    assert row["scotch"] == "–"
    assert row["gain"] == pytest.approx(100 / 6)  # seeds gain 33.3 and 0 %
    assert row["low"] < row["gain"] < row["high"]
    assert row["printed"] == "26.21, 4.60, 25.24, 22.88, 11.22, 4.60"
    assert finding([row, {**row, "gain": -1.0}, {**row, "gain": "–"}]).startswith(
        "The best search or agent is at least as fast as every baseline in 1 of 2 rows, and 5 % faster or more in 1."
    )


def test_published_gains_are_those_of_the_published_seconds() -> None:
    """The gain is how much longer the best other one takes; the printed percents are rounded."""
    for (network, _), each in SECONDS.items():
        best = min(each.single_cpu, each.single_gpu, each.scotch, each.mincut, each.expert)
        assert 100 * (best / each.rl - 1) == pytest.approx(each.gain, abs=0.6), network


def test_branches_share_a_group_with_their_gradients_and_tasks_have_no_cycle() -> None:
    problem = problem_of(TINY, "k80x2")
    assert groups_of(TINY).max() + 1 <= 8
    assert is_acyclic(problem.graph, problem.tasks)
    labels = by_rules(TINY)
    names = np.array([each.name or each.output for each in problem.graph.operators])
    within = ("/Mixed_5b/branch1x1/", "/training/Mixed_5b/branch1x1/")
    branch = [label for label, name in zip(labels, names, strict=True) if name.startswith(within)]
    assert branch and len(set(branch)) == 1


@pytest.mark.full
@pytest.mark.parametrize("name", ["rnnlm-large", "nmt-large"])
def test_no_layer_of_the_enlarged_networks_fits_one_device(name: str) -> None:
    """Everything else is on the host: only the layer's operators, with updates of its weights, are on a GPU."""
    graph, labels = graph_of(NETWORKS[name]), groups_of(NETWORKS[name])
    problem, weights = PlacementProblem.of(graph, find_machine("k80x4"), labels), TrainingParts.of(graph).weights
    layers = ("encoder.0", "encoder.1", "decoder.0", "decoder.1") if name == "nmt-large" else ("lstm.0", "lstm.1")
    for layer in layers:
        path = f"/{layer.replace('.', '/layers.')}/"
        cells = {int(labels[at]) for at, each in enumerate(graph.operators) if path in each.name}
        updates = {int(labels[at]) for at, weight in weights.items() if weight.startswith(f"{layer}.")}
        assignment = problem.single(0)
        assignment[sorted(cells | updates)] = 1
        assert problem.evaluate(assignment).missing_bytes[1] > 0, layer
    assert problem.evaluate(problem.single(0)).fits


@pytest.mark.full
def test_memory_decides_as_published_which_network_fits_one_gpu() -> None:
    for name, network in NETWORKS.items():
        if network.published:
            problem = problem_of(network, "k80x2")
            published = SECONDS[network.published, "k80x2"].single_gpu
            assert problem.evaluate(problem.single(1)).fits == np.isfinite(published), name


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


def test_policies_place_networks_that_they_were_not_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "placement-zero-shot", "--scale", "smoke"]) == 0
    rows = read_table("placement-zero-shot")
    assert [(row["network"], row["machine"]) for row in rows] == [
        (network, machine) for network in ("inception-v3", "rnnlm") for machine in ("k80x2", "k80x4")
    ]
    for row in rows:
        best = min(float(row["zero-shot"]), float(row["sampled"]))
        assert float(row["gain"]) == pytest.approx(100 * (float(row["baseline"]) / best - 1), abs=1)
    capsys.readouterr()
    assert main(["reproduce", "placement-zero-shot", "rnnlm", "--scale", "smoke"]) == 2
    assert "name two at least" in capsys.readouterr().err
    one = ["reproduce", "placement-zero-shot", "inception-v3", "rnnlm", "--scale", "smoke", "--held-out"]
    assert main([*one, "rnnlm"]) == 0
    assert [row["network"] for row in read_table("placement-zero-shot")] == ["rnnlm", "rnnlm"]
    assert main([*one, "nmt"]) == 2
    assert "No chosen network is called 'nmt'" in capsys.readouterr().err


def test_a_held_out_network_without_a_fitting_placement_has_no_gain() -> None:
    times = {"baseline": 10.0, "random": None, "zero-shot": None, "sampled": 8.0}
    row = zero_shot_row(TINY, "k80x2", times)
    assert (row["random"], row["zero-shot"], row["gain"]) == ("oom", "oom", pytest.approx(25.0))
    assert zero_shot_row(TINY, "k80x2", {**times, "sampled": None})["gain"] == "–"
