"""Tests of `rlflow reproduce accuracy` and `accuracy-curve` with the smallest models and with made-up records."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from experiments.cli import main
from experiments.executors import units
from experiments.reproduce.table import UNDEFINED
from experiments.reproduce.world_model import accuracy
from experiments.reproduce.world_model.rows import (
    ALARM,
    BEST_KNOWN,
    CHOSEN,
    FITTED_ELSEWHERE,
    best_known,
    best_trivial,
    raises_alarm,
    table_rows,
    that_play,
)
from experiments.reproduce.world_model.summary import summary
from experiments.studies.evaluation import GREEDY, RANDOM
from experiments.studies.policy import FOR_REAL, IN_THE_DREAM
from experiments.studies.requirements import DREAM_GAP, DREAM_ILLEGAL, Requirement, required
from experiments.studies.study import FEWER_SEEDS, SEEDS, Study, numbers_of, seeds_of
from tests import tracing
from tests.commands import read_table
from worldmodel.accuracy import figure_names as names
from worldmodel.accuracy.baselines import COPY_LAST, PER_RULE
from worldmodel.errors import (
    IncompatibleCheckpoint,
    IncompatibleEpisodes,
    IncompatibleWorldModel,
    NonFinitePrediction,
)

pytestmark = pytest.mark.xdist_group("accuracy")  # one worker, which makes the shared table once

MODEL = "squeezenet1.1-tiny"
SMOKE = ["--scale", "smoke", "--seeds", "0", "--set", "world_model.encoder_training.steps=1"]
SMOKE += ["--set", "world_model.mdn_rnn_training.steps=2", "--set", "recollect.steps=2", "--set", "ppo.updates=1"]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("accuracy")


@pytest.fixture(scope="module")
def rows(workplace: Path) -> list[dict[str, str]]:
    """Returns the rows of the whole table at its smallest scale, made once for all tests."""
    with pytest.MonkeyPatch.context() as patch, tracing.untraced():
        patch.chdir(workplace)
        assert main(["reproduce", "accuracy", *SMOKE]) == 0
    return read_table("accuracy", workplace / "runs/reproduce/accuracy")


@pytest.fixture(autouse=True)
def there(workplace: Path, monkeypatch: pytest.MonkeyPatch, untraced: None) -> None:
    monkeypatch.chdir(workplace)


def test_models_are_judged_on_both_kinds_of_play_beside_trivial_predictors(rows: list[dict[str, str]]) -> None:
    for play in (RANDOM, GREEDY):
        figures = {(row["figure"], row["step"]): row for row in rows if (row["play"], row["round"]) == (play, "0")}
        error = figures[names.REWARD_ERROR, "1"]
        assert all(float(error[key]) >= 0 for key in ("model", "copy_last", "mean", "zero", "per_rule", "per_site"))
        assert {names.COVERAGE[0.9], names.AT_FLOOR, names.MASK_ERROR} <= {name for name, _ in figures}
        assert figures[names.REWARD_RANKS, "1"]["asked"] == ("≥ 0.95, above per_rule" if play == RANDOM else "≥ 0.8")
    random = next(row for row in rows if row["play"] == RANDOM and row["figure"] == names.REWARD_ERROR)
    assert float(random["low"]) <= float(random["model"]) <= float(random["high"])


def test_nothing_is_recollected_where_there_is_nothing_to_find(
    rows: list[dict[str, str]], workplace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert {row["round"] for row in rows} == {"", "0", "1", CHOSEN}
    shutil.copytree(workplace, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(accuracy, "best_known", lambda *_: 0.9)
    assert main(["reproduce", "accuracy", *SMOKE]) == 0
    found = read_table("accuracy", tmp_path / "runs/reproduce/accuracy")
    assert {row["round"] for row in found} == {"", "0"} and {row["play"] for row in found} >= {RANDOM, "policy"}


def test_policies_of_each_round_are_put_to_the_test(rows: list[dict[str, str]]) -> None:
    best = next(float(row["model"]) for row in rows if row["figure"] == BEST_KNOWN)
    for number in ("0", "1", CHOSEN):
        played = {row["figure"]: row for row in rows if (row["play"], row["round"]) == ("policy", number)}
        gap = float(played[DREAM_GAP]["model"])
        assert gap >= 0 and played[DREAM_GAP]["met"] == (("yes" if gap <= 5 else "no") if number == CHOSEN else "")
        assert float(played["played for real: real improvement [%]"]["model"]) <= best
        dreams = [float(row["model"]) for figure, row in played.items() if figure.startswith("best dream")]
        assert len(dreams) == 2 and float(played[ALARM]["model"]) == (max(dreams) >= best + 0.01)
    assert {row["graph"] for row in rows} == {MODEL}


def test_the_last_model_is_judged_too_and_knows_more(rows: list[dict[str, str]]) -> None:
    steps = [float(row["model"]) for row in rows if row["figure"] == "real steps of training and validation"]
    assert len(steps) == 2 and steps[0] < steps[1] <= steps[0] + 4 * 12
    judged = [{(row["play"], row["figure"]) for row in rows if row["round"] == number} for number in ("0", "1")]
    assert (RANDOM, names.REWARD_RANKS) in judged[0] & judged[1]


def test_what_is_finished_is_not_done_again(
    rows: list[dict[str, str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def again(*_: object, **__: object) -> None:
        pytest.fail("trained again")

    for name in ("fit", "refit"):
        monkeypatch.setattr(f"worldmodel.fitting.{name}", again)
    monkeypatch.setattr("experiments.pipeline.learning.collect.collect_shards", again)
    assert main(["reproduce", "accuracy", *SMOKE]) == 0
    assert DREAM_GAP in capsys.readouterr().out
    assert read_table("accuracy") == rows


def test_what_came_with_the_source_is_not_done_again(
    rows: list[dict[str, str]], workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fresh clone on another machine has no models and needs none."""
    monkeypatch.setattr(units, "COMMITTED", tmp_path / "source")
    committed = units.COMMITTED / "accuracy" / units.UNITS
    committed.mkdir(parents=True)
    for unit in (workplace / "runs/reproduce/accuracy/units").glob("*.json"):
        assert unit.stat().st_size < 40_000
        shutil.copy(unit, committed)
    monkeypatch.setattr(Study, "learning", property(lambda _: pytest.fail("done again")))
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "accuracy", *SMOKE]) == 0
    assert read_table("accuracy") == rows


def test_a_later_round_goes_on_from_what_is_kept(
    rows: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the last round's result is lost. Its models are still there, so nothing is trained anew."""
    results = Path("runs/reproduce/accuracy")
    (lost,) = (results / units.UNITS).glob(f"{MODEL}-seed0-policy1-*.json")
    before = lost.read_text(encoding="utf-8")
    lost.unlink()
    for name in ("fit", "refit"):
        monkeypatch.setattr(f"worldmodel.fitting.{name}", lambda *_, **__: pytest.fail("trained again"))
    assert main(["reproduce", "accuracy", *SMOKE]) == 0
    assert lost.read_text(encoding="utf-8") == before
    assert read_table("accuracy", results) == rows


def test_the_curve_is_drawn_from_the_same_figures(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def accuracy(study: Study, number: int = 0) -> dict[str, Any]:
        amount = study._setting.config.collect.steps
        assert amount is not None
        value = 0.8 + amount / 1000 + study._setting.config.seed / 100
        figures = [figure(value, play) for play in (RANDOM, GREEDY)]
        far = [{**figure(value / 2, name=names.MASK_ERROR), "step": step} for step in (1, 3, 5)]
        return {**judged(*figures, *far), "graph": MODEL, "real_steps": amount + 3}

    monkeypatch.setattr(Study, "accuracy", accuracy)
    more = ["--scale", "smoke", "--seeds", "0,1", "--real-steps", "60,30"]
    assert main(["reproduce", "accuracy-curve", *more]) == 0
    output = workplace / "runs/reproduce/accuracy-curve"
    found = read_table("accuracy-curve", output)
    ranks = [row for row in found if row["figure"] == names.REWARD_RANKS]
    assert [(float(row["real_steps"]), row["play"]) for row in ranks] == [
        (33, RANDOM),
        (33, GREEDY),
        (63, RANDOM),
        (63, GREEDY),
    ]
    assert [float(row["model"]) for row in ranks] == pytest.approx([0.835, 0.835, 0.865, 0.865])
    masks = [row for row in found if row["figure"] == names.MASK_ERROR]
    assert [(row["play"], row["step"]) for row in masks] == [(RANDOM, "5"), (GREEDY, "5")] * 2
    assert [row["model"] == UNDEFINED for row in masks] == [False, True] * 2, "nobody has seen any of greedy play"
    assert {row["trivial"] for row in found if row["model"] != UNDEFINED} == {"0.5"}
    assert min(imread(output / "figure.png").shape[:2]) > 400


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["accuracy", "--seeds", "0,x"], "--seeds expects numbers"),
        (["accuracy", "--set", "recollect.rounds=-1"], "between 0 and 99"),
        (["accuracy", "--set", "environment.reward=final"], "log_ratio"),
        (["accuracy", "--set", "world_model.encoder.round=3"], "Did you mean 'world_model.encoder.rounds'"),
        (["accuracy", "--set", "costs=measured:cpu"], "roofline"),
        (["accuracy", "--set", "collect.held_out=0"], "held_out"),
        (["accuracy", "--set", "rules=my.rules"], "rules is 'my.rules'"),
        (["exploit", "--set", "clean=none"], "clean is 'none'"),
        (["accuracy", "--set", "search.budget=9"], "search.budget is 9"),
        (["accuracy-curve", "--set", "collect.processes=2"], "collect.processes is 2"),
        (["accuracy-curve", "--set", "collect.steps=500"], "--real-steps"),
        (["accuracy-transfer", "--set", "world=real"], "world is 'real'"),
        (["accuracy", "--preset", "beast"], "best"),
        (["accuracy", "bert-tiny"], "bert-base-tiny"),
        (["accuracy-curve", "--real-steps", "0"], "--real-steps expects numbers"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", *arguments]) == 2
    message = capsys.readouterr().err
    assert said in message and "Traceback" not in message


@pytest.mark.parametrize(
    "error",
    [
        IncompatibleWorldModel("it has format 3"),
        IncompatibleCheckpoint("it was written by another"),
        IncompatibleEpisodes("they are of format 0"),
        NonFinitePrediction("the latent is NaN"),
    ],
)
def test_what_worlds_were_left_by_others_is_one_sentence(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Study, "search", fail)
    assert main(["reproduce", "accuracy", *SMOKE]) == 2
    message = capsys.readouterr().err
    assert f"rlflow: {error}" in message and "Traceback" not in message


def figure(value: float | None, play: str = RANDOM, name: str = names.REWARD_RANKS) -> dict[str, Any]:
    trivial = {COPY_LAST: None, PER_RULE: 0.5}
    return {
        "play": play,
        "figure": name,
        "step": 1,
        "windows": 10,
        "value": value,
        "low": None if value is None else value - 0.1,
        "high": None if value is None else value + 0.2,
        "trivial": trivial,
    }


def judged(*figures: dict[str, Any]) -> dict[str, Any]:
    facts = {"graph": "g", "round": 0, "real_steps": 7, "states": 5, "encoder_states": 5, "actions": 3}
    facts |= {"best_percent": 4.0, "intervals": {"factor": 2.0, "windows": 9, "as_judged": False}}
    facts |= {"spent": {"seconds": 120.0, "cpu_seconds": 60.0, "peak_bytes": 1 << 20}}
    held_out = {play: {"unseen": 0.5, "unknown": 0.25, "cut": None} for play in (RANDOM, GREEDY)}
    return {**facts, "held_out": held_out, "figures": list(figures)}


def played(best_dreamed: float, gap: float = 1.0, round_number: int = 0) -> dict[str, Any]:
    comparison = {
        "dreamed_percent": 3.0,
        "real_percent": 2.0,
        "skipping_percent": 2.0,
        "gap": gap,
        "prefix_gap": gap,
        "skipping_gap": gap,
        "illegal_share": math.nan,
        "lost_share": 0.0,
        "best_dreamed_percent": best_dreamed,
        "best_real_percent": 6.0,
        "episodes": 2,
        "each": {"gap": [gap - 1.0, gap + 1.0] * 10},
        "trivial_gap": {"zero": 2.0, PER_RULE: 1.5, "per_site": 1.0},
    }
    return {"seed": 0, "round": round_number, FOR_REAL: comparison, IN_THE_DREAM: comparison}


def row_of(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(row for row in rows if row["figure"] == name)


def rows_of(
    judged: list[dict[str, Any]], played: list[dict[str, Any]] | None = None, best: float = 9.0
) -> list[dict[str, Any]]:
    return list(table_rows("g", best, judged, played or [], steps=(1, 10)))


def test_what_is_asked_has_a_row_even_where_nobody_has_it() -> None:
    rows = rows_of([judged(figure(0.96))])
    missing = {(row["play"], row["figure"], row["step"]): row for row in rows if row.get("seeds") == 0}
    assert (RANDOM, names.TOTAL_RANKS, 10) in missing and (GREEDY, names.REWARD_RANKS, 1) in missing
    assert {(GREEDY, names.MASK_ERROR, step) for step in (1, 10)} < missing.keys()
    assert not any(step == 20 for _, _, step in missing), "that is not judged here"
    for row in missing.values():
        assert (row["model"], row["met"], row["windows"]) == (UNDEFINED, UNDEFINED, 0) and row["asked"]


def test_what_play_has_that_training_had_not_is_told() -> None:
    rows = [
        row
        for row in rows_of([judged(), judged()])
        if row.get("play") == GREEDY and row["figure"].startswith("share of")
    ]
    assert [row["model"] for row in rows] == [0.5, 0.25, UNDEFINED]
    fitted = {row["figure"]: row["model"] for row in rows_of([judged()])}
    assert (fitted["factor of all σ, fitted on validation"], fitted[FITTED_ELSEWHERE]) == (2.0, 1.0)
    without = {**judged(), "intervals": {"factor": None, "windows": 0, "as_judged": True}}
    assert FITTED_ELSEWHERE not in {row["figure"] for row in rows_of([without])}


def test_intervals_are_over_seeds_or_over_the_episodes_of_one() -> None:
    one = row_of(rows_of([judged(figure(0.96))]), names.REWARD_RANKS)
    assert (one["low"], one["high"]) == pytest.approx((0.86, 1.16))
    three = [judged(figure(value)) for value in (0.94, 0.95, 0.96)]
    row = row_of(rows_of(three), names.REWARD_RANKS)
    assert row["model"] == pytest.approx(0.95) and 0.9 < row["low"] < 0.94 and 0.96 < row["high"] < 1.0
    assert (row["seeds"], row["windows"], row[PER_RULE], row[COPY_LAST]) == (3, 30, 0.5, UNDEFINED)


def test_seeds_without_a_figure_are_left_out_of_it() -> None:
    rows = rows_of([judged(figure(None)), judged(figure(0.96)), judged()])
    row = row_of(rows, names.REWARD_RANKS)
    assert (row["model"], row["seeds"], row["met"]) == (0.96, 1, "yes")
    nowhere = row_of(rows_of([judged(figure(None))]), names.REWARD_RANKS)
    assert (nowhere["model"], nowhere["met"]) == (UNDEFINED, UNDEFINED)


@pytest.mark.parametrize(("best", "met"), [(0.9, "not counted"), (1.0, "no")])
def test_a_graph_that_cannot_be_improved_is_not_counted(best: float, met: str) -> None:
    rows = rows_of([judged(figure(0.1))], [played(0.0, gap=6.0)], best)
    assert row_of(rows, names.REWARD_RANKS)["met"] == row_of(rows, DREAM_GAP)["met"] == met


def test_the_best_known_result_is_anybodys_and_better_dreams_raise_the_alarm() -> None:
    records = [judged(), {**judged(), "best_percent": 5.0}]
    assert best_known({"best_percent": 3.0}, records, []) == 5.0
    assert best_known({"best_percent": 3.0}, records, [played(0.0)]) == 6.0
    rows = rows_of(records, [played(6.1), played(5.9)], 6.0)
    assert row_of(rows, ALARM)["model"] == 0.5


def test_dreams_along_what_was_really_played_raise_the_alarm_too() -> None:
    record = played(5.0)
    assert not raises_alarm(record, 6.0)
    assert raises_alarm({**record, FOR_REAL: {**record[FOR_REAL], "best_dreamed_percent": 6.1}}, 6.0)


def test_a_dream_that_is_printed_like_what_is_real_raises_none() -> None:
    assert not raises_alarm(played(5.0), 4.991) and raises_alarm(played(5.0), 4.989)


def test_the_policy_that_plays_is_asked_and_not_that_of_the_last_round() -> None:
    """Of seed 0, round 1 really saves most; of seed 1, round 2 and round 0 save as much, and the later one plays."""
    saved = {0: (1.0, 3.0, 2.0), 1: (2.0, 1.0, 2.0)}
    records = [
        {**record, "seed": seed, IN_THE_DREAM: {**record[IN_THE_DREAM], "skipping_percent": saved[seed][number]}}
        for number in (2, 0, 1)
        for seed in saved
        for record in [played(0.0, gap=1.0 + number + seed, round_number=number)]
    ]
    rows = [row for row in rows_of([judged()], records, 6.0) if row["figure"] == DREAM_GAP]
    assert [row["round"] for row in rows] == [0, 1, 2, CHOSEN]
    assert [row.get("met") for row in rows] == [None, None, None, "yes"]
    assert (rows[-1]["model"], rows[-1]["seeds"]) == ((2.0 + 4.0) / 2, 2)
    assert that_play(records) == [records[4], records[1]]


def test_seeds_that_dream_nothing_are_left_out() -> None:
    dreaming = played(0.0, gap=1.0, round_number=0)
    dreaming[IN_THE_DREAM] = {**dreaming[IN_THE_DREAM], "illegal_share": 0.1}
    rows = rows_of([judged()], [played(0.0, gap=3.0), dreaming], 6.0)
    (gap,) = [row for row in rows if row["figure"] == DREAM_GAP]
    assert (gap["met"], gap["model"], gap["zero"], gap[PER_RULE], gap["seeds"]) == ("yes", 2.0, 2.0, 1.5, 2)
    (illegal,) = [row for row in rows if row["figure"] == DREAM_ILLEGAL]
    assert (illegal["model"], illegal["seeds"], illegal["met"]) == (0.1, 1, "yes")


def test_figures_of_one_policy_have_intervals_over_its_episodes() -> None:
    rows = rows_of([judged()], [played(0.0, gap=3.0)], 6.0)
    gap, dreamed = row_of(rows, DREAM_GAP), row_of(rows, "played in the dream: dreamed improvement [%]")
    assert gap["model"] == 3.0 and 2.2 < gap["low"] < 2.9 and 3.1 < gap["high"] < 3.8
    assert (dreamed["model"], dreamed["low"]) == (3.0, UNDEFINED), "nothing is known of single episodes"
    nothing = row_of(rows, DREAM_ILLEGAL)
    assert (nothing["model"], nothing["met"]) == (UNDEFINED, UNDEFINED), "no rewrite was dreamed"


def test_the_best_of_trivial_predictors_is_the_least_error_and_the_greatest_correlation() -> None:
    row = {COPY_LAST: 0.2, PER_RULE: 0.7, "mean": UNDEFINED}
    assert best_trivial({**row, "figure": names.REWARD_RANKS}) == 0.7
    assert best_trivial({**row, "figure": names.MASK_ERROR}) == 0.2
    assert best_trivial({"figure": names.AT_FLOOR}) == UNDEFINED


def test_what_is_asked_includes_its_bounds() -> None:
    bound = Requirement(at_least=0.5)
    assert bound.met(0.5, {}) and not bound.met(0.49, {}) and not Requirement(at_most=1).met(math.nan, {})
    above = Requirement(at_least=0.5, above=PER_RULE)
    assert [above.met(0.6, {PER_RULE: other}) for other in (0.59, 0.6, None)] == [True, False, True]
    assert [str(Requirement(at_least=0.95)), str(Requirement(at_most=0.2)), str(Requirement(0.45, 0.55))] == [
        "≥ 0.95",
        "≤ 0.2",
        "0.45 to 0.55",
    ]
    assert required(RANDOM, names.MASK_ERROR, 5) == required(GREEDY, names.MASK_ERROR, 20) == Requirement(at_most=0.35)
    assert required(GREEDY, names.TOTAL_RELATIVE, 20) is None and required(RANDOM, names.LATENT_ERROR, 5) is None


def test_the_summary_has_a_row_for_each_figure_that_is_asked_and_a_column_for_each_graph() -> None:
    late = judged(figure(0.2)) | {"round": 1}
    policies = [played(0.0, gap=1.0), played(0.0, gap=6.0, round_number=1)]
    good = rows_of([judged(figure(0.96), figure(0.9, GREEDY)), late], policies)
    idle = table_rows("idle", 0.5, [{**judged(figure(0.1)), "graph": "idle"}], [played(0.0, gap=7.0)], steps=(1, 10))
    table = summary([*good, *idle], "idle graphs")
    lines = {(row["play"], row["figure"]): row for row in table.rows}
    ranks = lines[RANDOM, f"{names.REWARD_RANKS}, 1 step"]
    assert ranks["asked"] == "≥ 0.95, above per_rule"
    assert (ranks["g"], ranks["idle"]) == ("0.960 [0.860, 1.160] vs 0.500", "*0.100* [0.000, 0.300] vs 0.500")
    gaps = lines["policy", DREAM_GAP]
    assert (gaps["g"], gaps["idle"]) == ("**6.000** [5.500, 6.500] vs 1.000", "*7.000* [6.500, 7.500] vs 1.000")
    assert lines["", BEST_KNOWN] == {"figure": BEST_KNOWN, "play": "", "asked": "", "g": "9.000", "idle": "0.500"}
    assert lines[GREEDY, f"{names.REWARD_RANKS}, 1 step"]["idle"] == UNDEFINED
    masks = [figure for play, figure in lines if play == RANDOM and figure.startswith(names.MASK_ERROR)]
    assert masks == [f"{names.MASK_ERROR}, 1 step", f"{names.MASK_ERROR}, 10 steps"]
    assert (
        list(table.columns)[-2:] == ["g", "idle"] and "1 seed " in table.columns["g"] and "idle graphs" in table.notes
    )


def test_seeds_are_the_users_or_more_for_the_graphs_that_matter_most() -> None:
    assert seeds_of("bert-base", None) == SEEDS and seeds_of("resnet18", None) == FEWER_SEEDS
    assert seeds_of("bert-base", "3, 1,3") == (3, 1)
    assert numbers_of("--real-steps", "3000, 1000,3000", least=1) == [3000, 1000, 3000]


@pytest.mark.parametrize(("graph", "met"), [("bert-base", ["yes", "yes", "no", "no"]), ("vit-base", [None] * 4)])
def test_bert_is_asked_what_its_training_takes(graph: str, met: list[str | None]) -> None:
    """The requirements are on minutes, MiB, real steps and the distinct states that the encoder draws from."""
    record = judged() | {"spent": {"seconds": 800.0, "cpu_seconds": 60.0, "peak_bytes": 2 << 30}, "real_steps": 100_001}
    record["encoder_states"] = 20_001
    rows = list(table_rows(graph, 9.0, [record], [], steps=(1,)))
    figures = ("minutes from start", "largest size", "real steps", "distinct states that the encoder")
    found = [next(row for row in rows if row["figure"].startswith(figure)) for figure in figures]
    assert [row.get("met") for row in found] == met
    rows = list(table_rows(graph, 9.0, [record | {"spent": None}], [], steps=(1,)))
    unknown = next(row for row in rows if row["figure"].startswith(figures[0]))
    assert (unknown["model"], unknown.get("met"), unknown["seeds"]) == (UNDEFINED, met[0] and UNDEFINED, 0)
