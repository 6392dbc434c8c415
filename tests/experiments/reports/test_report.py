"""The summary and the report say what happened, also when the result is disappointing."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from controller.evaluation import Evaluation
from controller.records import EpisodeRecord
from environment.counting import Counts
from environment.statistics.sequential import Verdict
from experiments.reports.report import played_round_said, training_of, write_report
from experiments.reports.summary import print_summary
from experiments.runs.directory import MetricsLog
from experiments.runs.result import GraphFigures, MeasuredRatio, Result, count_rules


def make_record(kind: str, costs: tuple[float, ...]) -> EpisodeRecord:
    steps = len(costs) - 1
    names = tuple(f"rule-{i % 2}" for i in range(steps))
    return EpisodeRecord(kind, 0, ((0, 0),) * steps, names, (1.0,) * steps, costs, True, False)


def make_measured(
    ratio: float, low: float, high: float, verdict: Verdict = Verdict.FASTER, **control: float
) -> MeasuredRatio:
    return MeasuredRatio(
        *(ratio, low, high, 10.0, 10.0 * ratio, 0.02),
        device="cpu",
        runtime="ONNX Runtime 1.31.1, cpu",
        clock="wall clock",
        pairs=25,
        sessions=3,
        ending="Measured to ±0.5 % by 25 pairs.",
        verdict=verdict,
        **control,
    )


def make_result(**changes: object) -> Result:
    result = Result(
        model="net.onnx",
        controller="ppo",
        world="dream",
        costs="roofline:rtx2070",
        seed=7,
        before=GraphFigures(100, 4.0, 2e9, 3e7, 90),
        after=GraphFigures(90, 3.0, 1e9, 2e7, 80),
        improvements={"(a) random collection": 20.0, "(b) controller, deterministic": 25.0},
        episodes={"(a) random collection": 30, "(b) controller, deterministic": 1},
        rules_applied={"merge": 3, "cancel": 5},
        found_by="(b) controller, deterministic",
        stop_reason="",
        candidates=12,
        accuracy=[{"step": 5, "windows": 9, "latent_error": 0.25, "change_precision": None, "return_r2": 0.875}],
        largest_difference=3e-7,
        tolerance=1e-4,
        measured=make_measured(0.9, 0.88, 0.92, control_ratio=1.001, control_low=0.998, control_high=1.004),
        stage_seconds={"load": 1.5, "collect": 61.0},
        peak_memory_bytes=1_500_000_000,
        graph_hash="ab" * 16,
        bytes_before=4_000_000,
        bytes_after=5_000_000,
    )
    return dataclasses.replace(result, **changes)  # type: ignore[arg-type]


def summary_text(result: Result) -> str:
    stream = io.StringIO()
    print_summary(result, "out.onnx", "runs/x", Console(file=stream, width=140))
    return stream.getvalue()


def test_the_summary_shows_every_figure() -> None:
    text = summary_text(make_result())
    for part in (
        *(
            "100",
            "90",
            "-10.0 %",
            "estimated time [ms]",
            "4.0000",
            "3.0000",
            "-25.0 %",
            "FLOPs [G]",
            "2.000",
            "memory [MB]",
            "30.000",
            "80",
        ),
        *("ratio 0.900 [0.880, 0.920]", "(a) random collection", "20.00 %", "merge", "cancel", "3.00e-07", "1e-04"),
        *("the model against itself", "ratio 1.001 [0.998, 1.004]", "Measured to ±0.5 %", "wall clock"),
        *("file [MB]", "4.000", "5.000", "+25.0 %"),
        *("1.5 s", "1 min 01 s", "1.50 GB", "out.onnx", "runs/x", "25.00 % less estimated time", "Faster"),
    ):
        assert part in text, part


def test_timings_of_the_result_stand_apart_unless_nobody_has_counted_them() -> None:
    counts = Counts(3, 0, 12, 0, 1234)
    counted = make_result(counts=counts, final_timings=2)
    assert "0 timings of kernels and 1,234 of whole graphs; 2 more timed the result itself at the end." in summary_text(
        counted
    )
    stored = counted.to_json()
    assert Result.from_json(stored) == counted
    del stored["final_timings"]
    assert "1,234 of whole graphs." in summary_text(Result.from_json(stored)), "of an older version"


def test_noise_of_measured_costs_stands_beside_what_it_makes_unsure() -> None:
    before, after = GraphFigures(100, 4.0, 2e9, 3e7, 90, 0.03), GraphFigures(90, 3.0, 1e9, 2e7, 80, 0.04)
    noise = {"(a) random collection": 0.0, "(b) controller, deterministic": 1.25}
    noisy = make_result(costs="endtoend:cpu", before=before, after=after, noise=noise, reward_noise=4.5)
    text = summary_text(noisy)
    for part in ("-25.0 ± 3.75 %", "25.00 ± 3.75 % less estimated time", "25.00 ± 1.25 %", "20.00 %", "sure to ± 4.50"):
        assert part in text, part
    assert "±" not in summary_text(make_result(measured=None)), "exact costs"


@pytest.mark.parametrize(
    ("verdict", "word"),
    [(Verdict.SLOWER, "SLOWER"), (Verdict.FASTER, "Faster"), (Verdict.UNDECIDED, "within noise")],
)
def test_the_sentence_follows_the_verdict(verdict: Verdict, word: str) -> None:
    sentence = make_measured(0.8, 0.7, 1.1, verdict=verdict).sentence()
    assert [name for name in ("SLOWER", "Faster", "within noise") if name in sentence] == [word]


def test_an_unchanged_model_is_said_to_be_unchanged() -> None:
    unchanged = {"rules_applied": {}, "measured": None, "after": make_result().before}
    nothing_applies = make_result(**unchanged, candidates=0)
    nothing_pays = make_result(**unchanged)
    assert "nothing could be rewritten" in summary_text(nothing_applies)
    assert "No rewrite made the model cheaper" in summary_text(nothing_pays)
    assert "Verified" not in summary_text(nothing_pays)


def test_a_result_is_plain_json() -> None:
    stored = json.loads(json.dumps(make_result().to_json()))
    assert stored["model"] == make_result().model and stored["measured"]["ratio"] == make_result().measured.ratio
    assert json.loads(json.dumps(make_result(measured=None).to_json()))["measured"] is None


def test_rules_are_counted_in_order_of_first_use() -> None:
    assert list(count_rules(["b", "a", "b"]).items()) == [("b", 2), ("a", 1)]


@pytest.mark.parametrize("trained", [True, False])
def test_the_report_shows_its_plots(tmp_path: Path, trained: bool) -> None:
    if trained:
        log = MetricsLog(tmp_path / "metrics.jsonl")
        for step in range(5):
            log.append("encoder", step, {"loss": 1 / (step + 1)})
            log.append("mdn-rnn", step, {"loss": 2 / (step + 1), "reward_loss": 1.0})
            log.append("controller", step, {"return": float(step), "best_return": step + 0.5})
    record = make_record("deterministic", (4.0, 3.5, 3.0, 3.2))
    evaluation = Evaluation(None, record, (record,) * 3, (make_record("random", (4.0, 4.1)),) * 4)
    write_report(tmp_path, make_result(), evaluation, record)
    text = (tmp_path / "report.md").read_text()
    pictures = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert pictures == sorted(
        ["cost.png", "improvements.png", *(["returns.png", "world-model.png"] if trained else [])]
    )
    for name in pictures:
        assert f"(plots/{name})" in text
        assert (tmp_path / "plots" / name).read_bytes().startswith(b"\x89PNG")
    assert "| 5 | 9 | 0.250 |" in text and "| – |" in text and "0.875" in text
    assert "25.00 % less estimated time" in text and "| merge | 3 |" in text


@pytest.mark.parametrize(
    ("gaps", "advice"),
    [([3.2], "--recollect 3"), ([9.0, 3.2], "--recollect 4"), ([3.0], ""), ([9.0, 2.9], ""), ([None], "")],
)
def test_dreams_far_from_reality_raise_an_alarm(tmp_path: Path, gaps: list[float | None], advice: str) -> None:
    """The plans of the round that plays count, here the last one."""
    fixed = {"dreamed_percent": 25.5, "real_percent": 25.0, "paying": 0}
    plans = [{"gap": gap, "skipping_percent": number} | fixed for number, gap in enumerate(gaps)]
    result = make_result(rounds=[{"round": number, "plans": each} for number, each in enumerate(plans)])
    record = make_record("deterministic", (4.0, 3.0))
    write_report(tmp_path, result, Evaluation(None, record, (), (record,)), record)
    for text in (summary_text(result), (tmp_path / "report.md").read_text()):
        assert ("Alarm" in text) == bool(advice)
        assert not advice or all(part in text for part in ("3.2 points", "25.50 and 25.00 points", f"{advice}."))


def test_only_the_round_that_plays_raises_an_alarm() -> None:
    fixed = {"dreamed_percent": 25.5, "real_percent": 25.0, "paying": 0}
    far, near = {"gap": 9.0, "skipping_percent": 5.0} | fixed, {"gap": 0.5, "skipping_percent": 8.0} | fixed
    for order, number in (((near, far), 0), ((far, near), 1)):
        rounds = [{"round": place, "plans": each} for place, each in enumerate(order)]
        assert not make_result(rounds=rounds, played=number).alarms()
        assert bool(make_result(rounds=rounds).alarms()) == (number == 0), "older results are of the last round"
        said = played_round_said(make_result(rounds=rounds, played=number))
        assert said == f"The policy of round {number} plays: its plans really save most."
    without = [{"round": number, "plans": {}} for number in range(2)]
    assert played_round_said(make_result(rounds=without, played=1)) == "The policy of round 1 plays."
    assert not played_round_said(make_result(rounds=without[:1], played=0))


def test_where_no_dream_can_be_compared_there_is_no_alarm_but_a_sentence() -> None:
    assert not make_result(rounds=[]).alarms()
    said, of_omissions = make_result(rounds=[{"round": 0, "plans": {}}]).alarms()
    assert of_omissions.startswith("Nobody knows whether the dream offers")
    assert said.startswith("Nobody knows how true") and "reward=log_ratio" in said and "Alarm" not in said


@pytest.mark.parametrize(
    ("held_out", "along", "said"),
    [
        ((0.99, 0.99), 0.99, ""),
        ((0.97, 0.995), 0.99, ""),  # both together: 98.25 %
        ((0.97, 0.985), 0.99, "97.7% of the rewrites that really pay in held-out states"),
        ((1.0, 1.0), 0.97, "97.0% of the rewrites that really pay along its plans"),
        ((None, None), None, ""),
    ],
)
def test_dreams_that_omit_what_pays_raise_an_alarm_that_names_the_rules(
    held_out: tuple[float | None, float | None], along: float | None, said: str
) -> None:
    def facts(offered: float | None, omitted: dict[str, float]) -> dict[str, object]:
        return {"paying": 0 if offered is None else 200, "offered": offered, "omitted": omitted}

    omitted = {"fuse": 3.0, "merge": 9.0, "split": 1.0}
    rows = [{"step": number, "windows": 9} | facts(each, omitted) for number, each in enumerate(held_out)]
    plans = {"gap": 0.0, "skipping_percent": 1.0} | facts(along, {"fold": 7.0})
    result = make_result(accuracy=rows, rounds=[{"round": 0, "plans": {}}, {"round": 1, "plans": plans}])
    alarm = " ".join(result.alarms())
    assert bool(alarm) == bool(said) and said in alarm and (alarm in summary_text(result) or not alarm)
    assert not alarm or ("mostly: merge, fold, fuse." in alarm and "--recollect 2." in alarm)


def test_a_dream_says_if_it_pays_for_loops_and_if_nobody_has_looked_what_it_omits() -> None:
    plans = {"gap": 0.0, "paying": 0, "offered": None, "omitted": {}}
    assert make_result(rounds=[{"round": 0, "plans": plans | {"telescoping": True}}]).alarms() == []
    (said,) = make_result(rounds=[{"round": 0, "plans": plans | {"telescoping": False}}]).alarms()
    assert "does not telescope (dream.telescoping=false)" in said
    (said,) = make_result(rounds=[{"round": 0, "plans": {"gap": 0.0}}]).alarms()
    assert said.startswith("Nobody knows whether the dream offers the rewrites that really pay")
    assert make_result(rounds=[]).alarms() == []


def test_a_source_without_a_number_of_episodes_is_named() -> None:
    fields = json.loads(json.dumps(make_result().to_json()))
    with pytest.raises(ValueError, match=r"'improvements' has '\(a\) random collection', of which 'episodes' has no"):
        Result.from_json(fields | {"episodes": {}})


def test_an_episode_that_ended_at_its_best_graph_is_told() -> None:
    assert make_result().alarms() == []
    (said,) = make_result(cut_off=37).alarms()
    assert "37 steps" in said and "environment.max_steps=74" in said


def test_the_report_shows_rounds_of_recollection(tmp_path: Path) -> None:
    plans = {"dreamed_percent": 19.5, "real_percent": 7.25, "gap": 12.25, "illegal_share": None, "episodes": 20}
    plans |= {"best_dreamed_percent": 20.0, "best_real_percent": 8.0}
    rounds = [
        {"round": 0, "episodes": 180, "step": 20, "mask_error": 0.125, "plans": plans},
        {"round": 1, "episodes": 280, "step": 20, "mask_error": 0.0625, "plans": {}},
    ]
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for stage in ("encoder", "mdn-rnn", "mdn-rnn-1"):
        log.append(stage, 1, {"loss": 1.0})
    log.append("controller", 1, {"return": 99.0, "best_return": 99.0})
    record = make_record("deterministic", (4.0, 3.0))
    write_report(tmp_path, make_result(rounds=rounds), Evaluation(None, record, (), (record,)), record)
    text = (tmp_path / "report.md").read_text()
    assert "| 0 | 180 | 0.125 | – | 19.500 | 7.250 | – | 12.250 | – |" in text and "after 20 steps" in text
    assert "| 1 | 280 | 0.062 | – | – | – | – | – | – |" in text
    assert "world-model.png" in text and "returns.png" not in text, "the policy of the last round has no log here"


def test_training_for_real_shows_improvements_and_training_in_dreams_returns(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append("dream", 1, {"return": 9.0, "best_return": 11.0})
    log.append("real", 1, {"return": 9.0, "best_return": 11.0, "percent": 2.0, "best_percent": 4.0})
    record = make_record("deterministic", (4.0, 3.0, 5.0))
    evaluation = Evaluation(None, record, (), (record, record))
    real, dream = (training_of(log.read(stage), evaluation) for stage in ("real", "dream"))
    assert real is not None and dream is not None and training_of([], evaluation) is None
    assert (real.figure, real.curves["best so far"]) == ("improvement", ([1], [4.0]))
    assert real.real == {"deterministic": [25.0], "random": [25.0, 25.0]}, "by the best graph of an episode"
    assert (dream.figure, dream.curves["best of each update"]) == ("return", ([1], [11.0]))
    assert dream.real["deterministic"] == [sum(record.rewards)]


def test_equal_data_give_equal_pictures(tmp_path: Path) -> None:
    record = make_record("deterministic", (4.0, 3.5))
    evaluation = Evaluation(None, record, (), (record,))
    for name in ("one", "two"):
        write_report(tmp_path / name, make_result(), evaluation, record)
    assert (tmp_path / "one/plots/cost.png").read_bytes() == (tmp_path / "two/plots/cost.png").read_bytes()
