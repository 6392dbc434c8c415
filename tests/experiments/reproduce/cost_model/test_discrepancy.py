"""Tests of `rlflow reproduce discrepancy` and `discrepancy-rules`, with made-up prices and measurements."""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from environment.costs.measured import kernel_prices
from environment.costs.measured.benchmark import usual_ms
from environment.costs.measured.kernel import Kernel
from environment.costs.measured.ort_kernels import lower
from environment.costs.prices.price_list import Price
from environment.inputs import Feeds
from environment.measurement.effort import Effort
from environment.measurement.timing import Timing, Variant, VariantTiming
from environment.runtimes import OnnxRuntime
from environment.statistics.intervals import Estimate
from experiments.cli import main
from experiments.reproduce.cost_model import discrepancy_study
from experiments.reproduce.cost_model.discrepancy_study import Rewrites
from taso_ext.onnx_io.checked_model import CheckedModel
from tests.commands import read_table

pytestmark = pytest.mark.xdist_group("discrepancy")  # one worker, which makes the whole table once

GRAPHS = ("squeezenet1.1-tiny", "bert-base-tiny")


def price(kernel: Kernel) -> float:
    """Returns a made-up price in milliseconds: the length of the kernel's signature."""
    return float(len(kernel.signature))


def fake_measure(reference: Variant, candidates: Sequence[Variant], effort: Effort) -> Timing:
    """Returns the timing of a machine on which graphs take twice the sum of their kernels' prices."""

    def ms(variant: Variant) -> float:
        assert isinstance(variant.model, CheckedModel) and isinstance(variant.runtime, OnnxRuntime)
        return 2 * sum(price(each.kernel) for each in lower(variant.model, variant.runtime))

    def timed(variant: Variant) -> VariantTiming:
        value, ratio = ms(variant), ms(variant) / ms(reference)
        exact = Estimate(value, 0.99 * value, 1.01 * value)
        return VariantTiming(variant.name, "fake", exact, Estimate(ratio, 0.99 * ratio, 1.01 * ratio), 0.0)

    found = tuple(timed(each) for each in candidates)
    return Timing(timed(reference), found, None, 3, 1, "pairs", effort.resolution, 0.01, "clock", 1.0)


def fake_measure_beside(model: CheckedModel, runtime: OnnxRuntime, effort: Effort, feeds: Feeds) -> Timing:
    """Returns the timing as a ratio to the reference, whose kernel takes one millisecond."""
    assert feeds
    reference, graph = Variant("reference kernel", runtime, model), Variant("model", runtime, model)
    found = fake_measure(reference, [graph], effort)
    timed, of_reference = found.candidates[0], found.candidates[0].ms.value / usual_ms(1.0)
    ratio = Estimate(of_reference, 0.99 * of_reference, 1.01 * of_reference)
    return dataclasses.replace(found, candidates=(dataclasses.replace(timed, ratio=ratio),))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_the_fake_machine(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder in which the whole table has been made once."""
    folder = tmp_path_factory.mktemp("once")
    with pytest.MonkeyPatch.context() as patches:
        on_the_fake_machine(folder, patches)
        assert reproduce("discrepancy") == 0
    return folder


@pytest.fixture
def done(once: Path, tmp_path: Path) -> None:
    """Copies the finished table into the folder in which the test begins."""
    shutil.copytree(once, tmp_path, dirs_exist_ok=True)


def on_the_fake_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kernel_prices, "time_kernel", lambda kernel, *_: Price(price(kernel), 0.01))
    monkeypatch.setattr(kernel_prices, "time_reference_kernel", lambda runtime: 1.0)
    monkeypatch.setattr(discrepancy_study, "measure", fake_measure)
    monkeypatch.setattr(discrepancy_study, "measure_beside", fake_measure_beside)
    small = dataclasses.replace(discrepancy_study.SCALES["smoke"], random=8)
    monkeypatch.setitem(discrepancy_study.SCALES, "smoke", small)


def reproduce(table: str, *more: str) -> int:
    return main(["reproduce", table, "--scale", "smoke", *GRAPHS, *more])


@pytest.mark.usefixtures("done")
def test_what_is_predicted_exactly_has_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce("discrepancy") == 0
    rows = read_table("discrepancy")
    assert [row["graph"] for row in rows] == list(GRAPHS)
    for row in rows:
        assert float(row["measured_ms"]) == pytest.approx(2 * float(row["summed_ms"]))
        assert float(row["error"]) == pytest.approx(0.0, abs=1e-9), "the factor 2 is fitted on the other graph"
        assert float(row["full"]) == pytest.approx(1.0) and float(row["full_signs"]) == 100
        assert float(row["fast"]) > 0.9 and int(row["graphs"]) > 8 and int(row["differ"]) > 3
    assert "Absolute error 0.0 % in the mean, 0.0 % at most." in capsys.readouterr().out
    picture = imread("runs/reproduce/discrepancy/figure.png")
    assert min(picture.shape[:2]) > 400 and np.ptp(picture) > 0.5


@pytest.mark.usefixtures("done")
def test_predictions_follow_prices_while_measurements_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """In another database, all prices are three times as high, and those of convolutions six times."""
    assert reproduce("discrepancy") == 0
    before = read_table("discrepancy")
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path.cwd() / "another"))
    factors = {"Conv": 6.0}
    timed: list[str] = []

    def dearer(kernel: Kernel, *_: object) -> Price:
        timed.append(kernel.signature)
        return Price(factors.get(kernel.op_type, 3.0) * price(kernel), 0.01)

    monkeypatch.setattr(kernel_prices, "time_kernel", dearer)
    for name in ("measure", "measure_beside"):
        monkeypatch.setattr(discrepancy_study, name, lambda *_: pytest.fail("measured again"))
    assert reproduce("discrepancy") == 0
    after = read_table("discrepancy")
    assert timed
    for old, new in zip(before, after, strict=True):
        assert old["measured_ms"] == new["measured_ms"]
        assert 3 <= float(new["summed_ms"]) / float(old["summed_ms"]) <= 6
    assert float(after[0]["summed_ms"]) > 3.5 * float(before[0]["summed_ms"]), "SqueezeNet is made of convolutions"
    assert float(after[0]["full"]) < 1 == pytest.approx(float(before[0]["full"]))


@pytest.mark.usefixtures("done")
def test_kernels_are_timed_in_turn_until_all_have_been_often_enough(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce("discrepancy") == 0
    assert "Prices are means of 1 to 1 timings" in capsys.readouterr().out
    timed: list[str] = []
    monkeypatch.setattr(
        kernel_prices,
        "time_kernel",
        lambda kernel, weights_mb, *_: timed.append(f"{weights_mb} {kernel.signature}") or Price(price(kernel), 0.01),
    )
    assert reproduce("discrepancy", "--timings", "3") == 0
    assert "Prices are means of 3 to 3 timings, 3.0 in the mean." in capsys.readouterr().out
    once = timed[: len(timed) // 2]
    assert len(set(once)) == len(once) and timed == 2 * once, "each once, before any for the second time"
    assert reproduce("discrepancy-rules", "--timings", "2") == 0
    assert len(timed) == 2 * len(once), "all have been"


@pytest.mark.full
@pytest.mark.usefixtures("done")
def test_an_interrupted_measurement_goes_on_where_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_table("discrepancy")
    batches = 0

    def interrupted(*given: Any) -> Timing:
        nonlocal batches
        batches += 1
        if batches == 3:
            raise KeyboardInterrupt
        return fake_measure(*given)

    shutil.rmtree("runs")
    monkeypatch.setattr(discrepancy_study, "measure", interrupted)
    assert reproduce("discrepancy") == 128 + signal.SIGINT
    (part,) = Path("runs/reproduce/discrepancy/units").glob("*.part")
    assert len(json.loads(part.read_text())["points"]) == 2 * discrepancy_study.TOGETHER
    assert reproduce("discrepancy") == 0
    assert read_table("discrepancy") == whole and not part.exists()
    interrupted_once = batches - 1  # the batch that was interrupted is measured again
    shutil.rmtree("runs")
    batches = 3
    assert reproduce("discrepancy") == 0
    assert batches - 3 == interrupted_once


@pytest.mark.usefixtures("done")
def test_rules_are_read_off_the_same_units(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("measure", "measure_beside"):
        monkeypatch.setattr(discrepancy_study, name, lambda *_: pytest.fail("measured again"))
    assert reproduce("discrepancy-rules") == 0
    rows = read_table("discrepancy-rules")
    assert any(row["rule"].endswith(", early") for row in rows)
    assert "random" not in {row["rule"] for row in rows}
    for row in rows:
        measured, full = float(row["measured"]), float(row["full"])
        assert full == pytest.approx(measured) and float(row["±"]) == pytest.approx(0.01 * measured)
        assert bool(row["sign"]) == (abs(measured - 1) > 0.02)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seed", "-1"], "--seed must be at least 0"),
        (["--threads", "0"], "--threads must be at least 1"),
        (["--timings", "0"], "--timings must be at least 1, got 0"),
        (["--device", "cuda"], "device 'cuda' is not available"),
    ],
)
def test_bad_options_are_one_sentence(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce("discrepancy", *arguments) == 2
    message = capsys.readouterr().err
    assert said in message and "Traceback" not in message
    assert not Path("runs/reproduce/discrepancy/table.csv").exists()


def test_the_full_scale_measures_at_least_sixty_graphs() -> None:
    scale: Rewrites = discrepancy_study.SCALES["full"]
    assert scale.random >= 60
