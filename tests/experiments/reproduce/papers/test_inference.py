"""Time and memory of an inference: what is compared with what, what is missing, and what the papers print beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from environment import zoo
from environment.measurement.memory import PeakMemory
from environment.runtimes import UnavailableError
from experiments.baselines.tools import Tool, onnx_runtime
from experiments.cli import main
from experiments.reproduce.baselines import comparison
from experiments.reproduce.papers import headline, inference, runtime, table2
from experiments.reproduce.papers.cleaning import against_basic
from experiments.reproduce.papers.inference import BY_CLOCK, ONNX_RUNTIME, TENSORFLOW, Inferences, ratios_of
from experiments.reproduce.papers.players import PLAYERS, named_players
from experiments.reproduce.papers.printed import INFERENCE
from experiments.reproduce.search.never_slower import OurBest
from taso_ext.onnx_io.reading import read_model
from tests.commands import failure, read_table

TINY = "squeezenet1.1-tiny"
MIB = 1 << 20
CLEANED, BASIC = inference.CLEANED
MEMORY = {TENSORFLOW: 1024 * MIB, ONNX_RUNTIME: 300 * MIB, CLEANED: 256 * MIB, "taso": 192 * MIB}


def timed(taso: float, memory: Mapping[str, int] = MEMORY) -> dict[str, Any]:
    """Returns the record of a unit in which TensorFlow takes 10 ms, and ONNX Runtime 5 for the cleaned graph."""
    ratios = {TENSORFLOW: 1.0, ONNX_RUNTIME: 0.55, CLEANED: 0.5, BASIC: 0.625, "taso": taso}
    each = {name: {"value": ratio, "low": 0.9 * ratio, "high": 1.1 * ratio} for name, ratio in ratios.items()}
    times = {"ms": {"value": 10.0, "low": 9.0, "high": 11.0}, "ratios": each, "refused": {"mcts": "why not"}}
    return {"times": times, "memory": {name: {"total": size, "added": 1} for name, size in memory.items()}}


def found(*records: dict[str, Any], graph: str = "bert-base-tiny") -> Inferences:
    labels = {name: f"about {name}" for name in (TENSORFLOW, ONNX_RUNTIME, CLEANED, BASIC, "taso", "mcts")}
    return Inferences({graph: records}, [], labels, TENSORFLOW, "roofline:rtx2070", [])


def test_graphs_are_compared_with_the_reference_and_with_the_cleaned_graphs_in_their_own_runtime() -> None:
    rows = {row["row"]: row for row in table2.rows_of(found(timed(0.4), timed(0.2)))}
    taso = rows["taso"]
    assert taso["ms"] == pytest.approx(3.0) and taso["faster"] == pytest.approx(70.0)
    assert taso["low"] < 70.0 < taso["high"] and taso["seeds"] == 2
    assert taso["graph_gain"] == pytest.approx(40.0), "4 and 2 ms against the 5 of the cleaned graph"
    assert taso["basic_gain"] == pytest.approx(52.0), "and against the 6.25 of the one with the basic clean-up"
    assert taso["less"] == pytest.approx(81.25) and taso["graph_less"] == pytest.approx(25.0)
    assert rows[CLEANED]["graph_gain"] == 0.0 and rows[CLEANED]["basic_gain"] == pytest.approx(20.0)
    assert rows[ONNX_RUNTIME]["graph_gain"] == "–" and rows[ONNX_RUNTIME]["graph_less"] == "–"
    assert rows["mcts"]["seeds"] == 0 and rows["mcts"]["ms"] == "–"
    said = table2.finding(list(rows.values()), TENSORFLOW)
    assert said.startswith("Time saved against `tf-grappler`: ") and "`taso` 70.0 %" in said
    assert "alone saves, against `cleaned` in the same runtime: " in said and said.endswith("`taso` 40.0 %.")
    assert "`mcts`" not in said


def test_one_seed_has_the_interval_of_its_measurement() -> None:
    rows = {row["row"]: row for row in table2.rows_of(found(timed(0.4, {})))}
    assert (rows["taso"]["low"], rows["taso"]["high"]) == (pytest.approx(56.0), pytest.approx(64.0))
    assert rows["taso"]["gib"] == rows["taso"]["less"] == "–", "no memory was measured"
    times = {row["row"]: row for row in runtime.rows_of(found(timed(0.4)))}
    assert [times["taso"][key] for key in ("ms", "low", "high")] == pytest.approx([4.0, 3.6, 4.4])


def test_run_times_are_means_of_the_seeds_and_the_fastest_is_named(tmp_path: Path) -> None:
    rows = list(runtime.rows_of(found(timed(0.4), timed(0.41))))
    assert [row["row"] for row in rows] == [TENSORFLOW, ONNX_RUNTIME, CLEANED, BASIC, "taso"], (
        "what cannot run has no bar"
    )
    assert rows[-1]["ms"] == rows[-1]["IQM"] == pytest.approx(4.05)
    assert runtime.finding(rows).startswith("bert-base-tiny: taso is fastest, 4.05 ms")
    runtime.draw("bert-base-tiny", rows, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000


def test_the_headline_sets_runs_on_paper_beside_those_by_the_clock() -> None:
    counts = {"real_steps": 7, "dreamed_steps": 0, "kernel_timings": 5, "end_to_end_timings": 1, "minutes": 0.5}
    on_paper = [
        {"graph": "bert-base-tiny", "controller": "taso", "own": own, "gap": None, "illegal": None} for own in (8, 9)
    ]
    played = [{"graph": "bert-base-tiny", "controller": "taso", "own": 3.0, **counts}]
    times = [timed(0.4), timed(0.45)]
    for each in times:  # against the model itself in ONNX Runtime
        each["times"]["ratios"][ONNX_RUNTIME] = {"value": 1.0, "low": 1.0, "high": 1.0}
    taken = found(*times)._replace(plays=played, reference=ONNX_RUNTIME)
    rows = {row["row"]: row for row in headline.rows_of(on_paper, taken)}
    assert ONNX_RUNTIME not in rows and rows["mcts"]["clock"] == rows["mcts"]["paper"] == "–"
    taso = rows["taso"]
    assert (taso["paper"], taso["clock"], taso["gap"]) == (8.5, pytest.approx(57.5), "–")
    assert taso["basic"] == pytest.approx(against_basic("bert-base-tiny", 8.5)) and taso["priced"] == 3.0
    assert (taso["kernels"], taso["graphs"], taso["minutes"]) == (5, 1, 0.5) and taso["low"] < 57.5 < taso["high"]
    one = {row["row"]: row for row in headline.rows_of(on_paper, taken._replace(records={"bert-base-tiny": times[:1]}))}
    assert (one["taso"]["low"], one["taso"]["high"]) == (pytest.approx(56.0), pytest.approx(64.0))
    assert "`taso` gains most on paper, 8.5 %" in headline.finding(list(rows.values()))


def test_the_headline_names_all_that_cannot_be_told_apart() -> None:
    columns = ("row", "paper", "clock", "low", "high")
    table = [("taso", 8.5, -0.8, -2.0, 0.4), ("greedy", 8.51, 2.0, 1.0, 3.0), ("mcts", 8.0, 1.5, 0.5, 2.5)]
    rows = [{"graph": "g", **dict(zip(columns, each, strict=True))} for each in table]
    said = headline.finding(rows)
    on_paper, by_clock = said.split("; ")
    assert on_paper == "g: `greedy`, `taso` gain most on paper, 8.5 %"
    assert by_clock == "`greedy` gains most by the clock, 2.0 % (within its interval: `mcts`)."
    assert "nothing gains by the clock." in headline.finding(rows[:1])
    assert "nothing gains by the clock beyond its interval." in headline.finding([{**rows[1], "low": -0.1}])


def test_a_ratio_to_another_row_has_no_interval() -> None:
    by_runtime = ratios_of(timed(0.4), CLEANED)
    assert by_runtime["taso"].value == pytest.approx(0.8) and by_runtime["taso"].low != by_runtime["taso"].low
    assert ratios_of(timed(0.4), TENSORFLOW)["taso"].low == pytest.approx(0.36)
    assert ratios_of(timed(0.4), "absent") == {}


def test_both_papers_stand_beside_the_rows_that_they_print() -> None:
    assert all(zoo.contains(name) for paper in INFERENCE.values() for name in paper)
    assert table2.DREAMED in PLAYERS
    assert table2.printed("bert-base", "paper dream")["printed_faster"] == "32.4 / 54.1"
    assert table2.printed("vit-base", "paper dream")["printed_faster"] == "30.7", "the dissertation has no ViT"
    assert table2.printed("bert-base", TENSORFLOW)["printed_ms"] == "4.41 / 4.1"
    assert set(table2.printed("bert-base", "ppo dream").values()) == {"–"}
    assert set(table2.printed(TINY, TENSORFLOW).values()) == {"–"}


def test_rows_are_chosen_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = named_players(PLAYERS, SimpleNamespace(rows="ppo dream,taso", long=False))  # type: ignore[arg-type]
    assert list(chosen) == ["ppo dream", "taso"]
    for table in ("table2", "fig-runtime", "headline"):
        said = failure(capsys, "reproduce", table, TINY, "--scale", "smoke", "--rows", "papers dream")
        assert "No row is called 'papers dream'" in said and "paper dream" in said


def test_what_draws_nothing_at_random_has_the_first_seed_in_all_units() -> None:
    options = SimpleNamespace(long=False, scale="smoke", device="cpu")
    plays = inference._plays([TINY], PLAYERS, [3, 4], "roofline:rtx2070", options)  # type: ignore[arg-type]
    assert set(plays) == {(TINY, 3), (TINY, 4)}
    assert [plays[TINY, 4][row].seed for row in ("taso", "ppo dream")] == [3, 4]


def test_missing_runtimes_are_left_out_and_both_tables_share_their_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def absent() -> Tool:
        raise UnavailableError("it is not here.")

    monkeypatch.setattr(inference, "makers", lambda _: {TENSORFLOW: absent, ONNX_RUNTIME: onnx_runtime("all")})
    monkeypatch.setattr(inference, "PLAYERS", {"taso": PLAYERS["taso"]})
    ours = OurBest({}, "made up", lambda: read_model(zoo.build(TINY)))
    monkeypatch.setattr(inference, "our_best", lambda *_: ours)
    monkeypatch.setattr(comparison, "peak_memory", lambda *_, **__: PeakMemory(300 * MIB, 100 * MIB))
    assert main(["reproduce", "table2", TINY, "--scale", "smoke", "--seeds", "0,1"]) == 0
    rows = {row["row"]: row for row in read_table("table2")}
    assert set(rows) == {ONNX_RUNTIME, CLEANED, BASIC, "taso", BY_CLOCK} and float(rows["taso"]["faster"]) != 0.0
    assert rows["taso"]["seeds"] == "2" and float(rows["taso"]["gib"]) == pytest.approx(300 / 1024)
    assert "Left out, tf-grappler: it is not here." in Path("runs/reproduce/table2/README.md").read_text()
    units = {path: path.stat().st_mtime_ns for path in Path("runs").rglob("units/*.json")}
    assert main(["reproduce", "fig-runtime", TINY, "--scale", "smoke", "--seeds", "0,1"]) == 0
    assert units == {path: path.stat().st_mtime_ns for path in Path("runs").rglob("units/*.json")}
    assert {row["row"] for row in read_table("fig-runtime")} == set(rows)
    for table in ("table2", "headline"):
        assert "Leave it at 1" in failure(capsys, "reproduce", table, TINY, "--processes", "2")
    assert main(["reproduce", "headline", TINY, "--scale", "smoke", "--seeds", "0,1", "--rows", "taso"]) == 0
    made = read_table("headline")
    assert [row["row"] for row in made] == ["taso", BY_CLOCK] and list(made[0]) == list(headline.COLUMNS)
    assert float(made[0]["paper"]) > 0 and made[0]["clock"] != "–"


def test_what_is_not_asked_for_is_not_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(inference, "our_best", lambda *_: pytest.fail("the search by the clock is not asked for"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(["reproduce", "xrlflow-table2", TINY, "--scale", "smoke", "--seeds", "0"]) == 0
    assert {row["row"] for row in read_table("xrlflow-table2")} == {"taso", "taso partial"}
    about = Path("runs/reproduce/xrlflow-table2/README.md").read_text()
    assert "ort-all:" in about and "openvino" not in about and "preset" not in about, "neither search learns"


@pytest.mark.full
def test_table2_is_made_from_runs_and_measurements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(["reproduce", "table2", TINY, "--scale", "smoke", "--seeds", "0"]) == 0
    rows = {row["row"]: row for row in read_table("table2")}
    assert {*PLAYERS, BY_CLOCK, ONNX_RUNTIME} <= set(rows)
    assert all(float(row["ms"]) > 0 and float(row["gib"]) > 0 for row in rows.values())
