"""Tests of the tables of default runs of `rlflow optimise`, whose ratios are measured after everything was decided."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from environment import GraphSubstitutionEnv, zoo
from environment.costs.prices.database import default_database
from environment.counting import Counts
from environment.measurement.effort import Effort
from environment.measurement.timing import Timing, Variant, VariantTiming
from environment.statistics.intervals import Estimate
from experiments.cli import main
from experiments.executors.units import Record
from experiments.reproduce.search import anytime, contributions, default_runs, sample_efficiency
from experiments.request import Request
from experiments.runs.progress import ProgressDisplay
from taso_ext.onnx_io.checked_model import CheckedModel
from taso_ext.onnx_io.model_file import write_model
from tests.commands import failure, read_table

GRAPH = "squeezenet1.1-tiny"
MODELS = Path(__file__).parents[3] / "taso_ext/samples/data/pytorch"
CURVE = [(1.0, 3, 0.9), (20.0, 9, 0.8)]
MEASURED = ("model_ms", "ratio", "low", "high", "control", "verdict")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def optimise_to(
    monkeypatch: pytest.MonkeyPatch,
    measured: object,
    actions: list[Record] | None = None,
    curves: Mapping[str, Sequence[tuple[float, int, float]]] | None = None,
) -> list[Request]:
    """Makes every run write its model as its result, a journal and `actions`; returns the list of the requests."""
    requests: list[Request] = []

    def optimised(request: Request, progress: ProgressDisplay) -> tuple[Any, Path]:
        requests.append(request)
        model = zoo.build(request.model) if request.model in zoo.names() else None
        assert request.output is not None and request.run_directory is not None
        request.output.parent.mkdir(parents=True, exist_ok=True)
        if model is None:
            shutil.copy(request.model, request.output)
        else:
            write_model(CheckedModel.from_proto(model), request.output)
        journal = request.run_directory / "checkpoints/climb.jsonl"
        journal.parent.mkdir(parents=True)
        lines = [
            {"kind": "best", "graph": "g", "actions": [], "ratio": r, "timed": t, "elapsed_s": s}
            for s, t, r in (curves or {}).get(request.config.controller, CURVE)
        ]
        journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
        (request.run_directory / "actions.json").write_text(json.dumps({"actions": actions or []}))
        rules = {"a rule": 2} if measured else {}
        found = SimpleNamespace(improvements={"search": 3.0}, measured=measured, rules_applied=rules, timed=12)
        found.stage_seconds, found.selection, found.counts = {"load": 60.0}, "", Counts(end_to_end_timings=12)
        return found, request.run_directory

    monkeypatch.setattr(default_runs, "optimise", optimised)
    return requests


def measure_as(monkeypatch: pytest.MonkeyPatch, ratio: float) -> list[Effort]:
    """Makes the last measurement find `ratio`; returns the list of the efforts that it is made with."""
    efforts: list[Effort] = []

    def measure(reference: Variant, candidates: list[Variant], effort: Effort) -> Timing:
        efforts.append(effort)
        estimate = Estimate(ratio, ratio - 0.1, ratio + 0.1)
        itself = VariantTiming("model", "fake", Estimate(5, 4, 6), Estimate(1, 0.99, 1.01), 0.0)
        found = [VariantTiming(each.name, "fake", estimate, estimate, 0.0, (ratio,) * 20) for each in candidates]
        return Timing(itself, tuple(found), itself, 3, 1, "pairs", 0.01, 0.01, "clock", 1.0)

    monkeypatch.setattr(default_runs, "measure", measure)
    monkeypatch.setattr(contributions, "measure", measure)
    return efforts


def reproduce(table: str, *arguments: str) -> list[dict[str, str]]:
    assert main(["reproduce", table, "--scale", "smoke", *arguments]) == 0
    return read_table(table)


def test_a_result_that_is_slower_after_all_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = optimise_to(monkeypatch, measured=SimpleNamespace(ratio=0.9, high=0.95))
    efforts = measure_as(monkeypatch, 1.2)
    (row,) = reproduce("never-slower", GRAPH)
    assert float(row["ratio"]) == 1.2 and float(row["control"]) == 1.0 and (row["steps"], row["timed"]) == ("2", "12")
    table = capsys.readouterr().out
    assert f"Slower than its model beyond noise: {GRAPH}." in table and "Geometric mean of all ratios: 1.200." in table
    assert len(efforts) == 1 and efforts[0].control
    assert requests[0].config.controller == "climb" and requests[0].config.costs == "measured:cpu"


def test_the_model_itself_has_no_ratio(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    optimise_to(monkeypatch, measured=None)
    efforts = measure_as(monkeypatch, 1.2)
    (row,) = reproduce("never-slower", GRAPH)
    assert {row[key] for key in MEASURED} == {"–"} and not efforts
    table = capsys.readouterr().out
    assert f"noise: none. The model itself: {GRAPH}. Geometric mean of all ratios: 1.000." in table
    monkeypatch.setattr(default_runs, "optimise", lambda *_: pytest.fail("optimised again"))
    reproduce("never-slower", GRAPH)
    assert capsys.readouterr().out == table


def test_at_full_scale_the_settings_are_the_defaults() -> None:
    config = default_runs.DefaultRun(GRAPH, "full").config
    assert config.search.seconds == 300 and config.measure.all_cores and config.controller == "climb"


def test_files_of_the_user_are_optimised_too(monkeypatch: pytest.MonkeyPatch) -> None:
    optimise_to(monkeypatch, measured=SimpleNamespace())
    measure_as(monkeypatch, 0.8)
    rows = reproduce("never-slower", "--models", str(MODELS / "encoder-dynamo.onnx"), str(MODELS / "bag-dynamo.onnx"))
    assert [row["graph"] for row in rows] == ["encoder-dynamo", "bag-dynamo"]
    assert all(row["verdict"] == "faster" for row in rows)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--models", "nowhere"], "expected an ONNX file, or a folder"),
        (["--models", "."], "expected an ONNX file, or a folder"),
        (["--models", "copy.onnx", "folder"], "Two models would be called copy"),
        ([GRAPH, "--models", "copy.onnx"], "Name one kind"),
    ],
)
def test_bad_models_are_one_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if "copy.onnx" in arguments:
        (tmp_path / "folder").mkdir()
        for place in (tmp_path, tmp_path / "folder"):
            shutil.copy(MODELS / "bag-dynamo.onnx", place / "copy.onnx")
    assert said in failure(capsys, "reproduce", "never-slower", *arguments)


def test_the_curve_says_when_which_gain_was_reached(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    optimise_to(monkeypatch, measured=SimpleNamespace())
    measure_as(monkeypatch, 0.8)
    rows = reproduce("anytime", GRAPH, "--seeds", "0,3")
    assert [row["seed"] for row in rows] == ["0", "3"]
    for row in rows:
        assert [round(float(row[f"{moment} s"]), 6) for moment in (10, 20, 300)] == [10.0, 20.0, 20.0]
        assert (float(row["near_s"]), row["near_timed"]) == (20.0, "9")
    assert "2 of 2 runs" in (Path("runs/reproduce/anytime/README.md")).read_text()
    assert Path("runs/reproduce/anytime/figure.png").is_file()
    reproduce("never-slower", GRAPH)  # the run of seed 0 is shared
    assert len(list(Path("runs/reproduce/defaults/units").glob("*.json"))) == 2


def test_a_curve_is_read_from_the_left() -> None:
    assert [anytime.ratio_at(CURVE, seconds) for seconds in (0.5, 1.0, 19.0, 20.0)] == [1.0, 0.9, 0.9, 0.8]
    assert anytime.ratio_at([], 10) == anytime.last_ratio([]) == 1.0
    assert anytime.reached(CURVE, 0.85) == (20.0, 9) and anytime.reached(CURVE, 0.5) is None
    assert anytime.reached([], 1.0) == (0.0, 0)


def test_repeats_have_a_spread(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    requests = optimise_to(monkeypatch, measured=SimpleNamespace())
    measure_as(monkeypatch, 0.8)
    rows = reproduce("repeats", GRAPH, "--seeds", "0,1,2")
    assert [row["seed"] for row in rows] == ["0", "1", "2"]
    assert "mean ratio 0.800 [0.800, 0.800] over 3 seeds, from 0.800 to 0.800." in capsys.readouterr().out
    assert len({request.config.seed for request in requests}) == 3


def test_ways_to_find_a_graph_are_compared_by_their_timings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    curves = {"taso": [(1.0, 20, 0.8)], "climb": [(1.0, 3, 0.9), (2.0, 7, 0.8)], "ppo": []}
    requests = optimise_to(monkeypatch, measured=SimpleNamespace(), curves=curves)
    measure_as(monkeypatch, 0.85)
    rows = reproduce("sample-efficiency", GRAPH, "--rows", "taso, climb,ppo-dream", "--seeds", "0,1")
    assert [row["row"] for row in rows] == ["taso", "climb", "ppo-dream"]
    assert all((row["near"], float(row["timed"])) == ("2", 12) for row in rows)
    assert {float(row[key]) for row in rows for key in ("kernels", "all_kernels")} == {0}
    assert [float(row["timings"]) for row in rows] == [20, 7, 12]
    assert [float(row[end]) for row in rows for end in ("fewest", "most")] == [20, 20, 7, 7, 12, 12]
    said = Path("runs/reproduce/sample-efficiency/README.md").read_text()
    assert f"{GRAPH}: climb with 7 timings; ppo-dream needs 12 [12, 12]." in said
    assert "at most 64 timings on 1 of 1 graphs" in said and "beyond the intervals on 0. Both hold on 0 of 1" in said
    for axis in sample_efficiency.AXES:
        assert list(Path("runs/reproduce/sample-efficiency").glob(f"figure*{axis}.png")), axis
    assert [request.config.controller for request in requests] == ["taso"] * 2 + ["climb"] * 2 + ["ppo"] * 2
    assert all(request.config.evaluate.climb_seconds == 0 for request in requests[4:])
    assert "No row is called 'tasso'" in failure(capsys, "reproduce", "sample-efficiency", GRAPH, "--rows", "tasso")


def test_all_timings_count_where_the_last_measurement_is_better_than_the_journal() -> None:
    record = {"curve": CURVE, "counts": {"end_to_end_timings": 40}}
    assert [sample_efficiency.timings_until(record, gain) for gain in (0.05, 0.2, 0.3)] == [3, 9, 40]
    assert sample_efficiency.timings_until({**record, "curve": []}, 0.1) == 40


def test_the_dream_wins_only_beyond_the_intervals_and_with_few_timings() -> None:
    def row(name: str, timings: float, width: float = 1.0) -> Record:
        ends = {"timings": timings, "fewest": timings - width, "most": timings + width}
        return {"graph": GRAPH, "row": name, "seeds": 2, "near": 2, "gain": 9.0, **ends}

    won = "on 1 of 1 graphs (squeezenet1.1-tiny)"
    assert won in sample_efficiency.finding([row("ppo-dream", 10), row("climb", 20)])
    for rows in ([row("ppo-dream", 10), row("climb", 11)], [row("ppo-dream", 70), row("climb", 90)]):
        assert won not in sample_efficiency.finding(rows)
    many = sample_efficiency.finding([row("ppo-dream", 70), row("climb", 90)])
    assert "ppo-dream with 70 [69, 71] timings." in many and "at most 64 timings on 0 of 1 graphs" in many
    assert "beyond the intervals on 1. Both hold on 0 of 1 graphs; elsewhere the dream buys nothing" in many
    assert won not in sample_efficiency.finding([row("ppo-dream", 10)]), "there is nothing to compare it with"
    assert "Without the row ppo-dream, nothing is said" in sample_efficiency.finding([row("climb", 10)])
    tied = sample_efficiency.finding([row("ppo-dream", 6), row("climb", 6)])
    assert "ppo-dream and climb with 6 [5, 7] timings." in tied and won not in tied
    far = row("climb", 5) | {"near": 1}
    assert won in sample_efficiency.finding([row("ppo-dream", 10), far]), "who does not come near needs no timings"


def test_kernels_are_those_of_the_runs_that_come_near() -> None:
    def record(ratio: float, kernels: int) -> Record:
        steps = dict.fromkeys(("real_steps", "dreamed_steps", "cost_evaluations"), 0)
        counts = {"end_to_end_timings": 4, "kernel_timings": kernels, **steps}
        return {"graph": GRAPH, "row": "taso", "ratio": ratio, "curve": [], "counts": counts, "minutes": 1.0}

    (row,) = sample_efficiency.rows_of([record(0.8, 64), record(0.9, 200)])
    assert (row["near"], row["kernels"], row["all_kernels"]) == (1, 64, 132)


def test_prices_can_follow_whole_graphs_by_the_clock(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = optimise_to(monkeypatch, measured=SimpleNamespace())
    measure_as(monkeypatch, 0.85)
    arguments = (GRAPH, "--rows", "taso,climb", "--seeds", "0")
    reproduce("sample-efficiency", *arguments, "--costs", "endtoend")
    assert [request.config.costs for request in requests] == ["endtoend:cpu:timings=64"] * 2
    assert requests[0].config.measure.resolution == 0.5, "a quick look"
    said = Path("runs/reproduce/sample-efficiency/README.md").read_text()
    assert "endtoend:cpu, predicted, and corrected by timings of whole graphs in batches" in said
    reproduce("sample-efficiency", *arguments, "--force")
    assert [request.config.costs for request in requests[2:]] == ["measured:cpu"] * 2, "these are other runs"
    said = failure(capsys, "reproduce", "sample-efficiency", *arguments, "--costs", "roofline:rtx2070")
    assert "--costs expects measured or endtoend, got 'roofline:rtx2070'" in said


def test_courses_of_seeds_have_a_mean_at_every_step() -> None:
    record = {"curve": CURVE, "counts": {"end_to_end_timings": 40}, "minutes": 1.0, "ratio": 0.75, "verdict": "faster"}
    assert sample_efficiency.course_of(record, "timings") == [
        (0, 0),
        (3, pytest.approx(10)),
        (9, pytest.approx(20)),
        (40, 25),
    ]
    assert [at for at, _ in sample_efficiency.course_of(record, "seconds")] == [0, 1, 20, 60]
    assert sample_efficiency.mean_course([[(0, 0), (4, 8)], [(0, 0), (2, 4)]]) == [(0, 0), (2, 2), (4, 6)]


def test_a_run_from_the_shipped_prices_has_a_database_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with default_runs.own_cache(tmp_path / "unit"):
        assert default_database() == tmp_path / "unit/rlflow/prices.sqlite"
    assert default_database() == tmp_path / "rlflow/prices.sqlite"
    monkeypatch.delenv("XDG_CACHE_HOME")
    with default_runs.own_cache(tmp_path / "unit"):
        pass
    assert "XDG_CACHE_HOME" not in os.environ


def test_busy_processes_end_with_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    import multiprocessing

    monkeypatch.setattr(default_runs, "num_cores", lambda: 2)
    before = len(multiprocessing.active_children())
    with default_runs.busy_cores():
        assert len(multiprocessing.active_children()) == before + 1
    assert len(multiprocessing.active_children()) == before


def test_each_family_is_left_out_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    env, rng = GraphSubstitutionEnv(GRAPH, everywhere=False), np.random.default_rng(0)
    env.reset(seed=0)
    actions: list[Record] = []
    families: list[str] = []
    while len(set(families)) < 2:
        rule, location = (int(each) for each in rng.choice(env.legal_actions()))
        env.step([rule, location])
        actions.append({"rule": rule, "location": location})
        families.append(contributions.family_of(env.rules, rule))
    optimise_to(monkeypatch, measured=SimpleNamespace(), actions=actions)
    measure_as(monkeypatch, 1.3)
    rows = reproduce("contributions", GRAPH)
    assert {row["family"] for row in rows} == set(families)
    assert sum(int(row["rewrites"]) for row in rows) == len(actions)
    assert all(int(row["gone"]) >= int(row["rewrites"]) and row["verdict"] == "slower" for row in rows)
