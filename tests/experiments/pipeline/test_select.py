"""Under measured costs, only what the clock confirms is exported."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controller.evaluation import Evaluation
from controller.records import EpisodeLog, EpisodeRecord
from environment import zoo
from environment.costs.measured import kernel_prices
from environment.costs.measured.cost_model import MeasuredPrices
from environment.costs.prices.database import PriceDatabase
from environment.costs.prices.price_list import Price
from environment.costs.prices.settings import setting_of
from environment.inputs import Feeds, input_specs, random_feeds
from environment.measurement.racing import Outcome, Rule
from environment.measurement.timing import Timing, Variant, VariantTiming
from environment.runtimes import OnnxRuntime
from environment.statistics.intervals import Estimate
from environment.statistics.sequential import Verdict, verdict_of
from experiments.config.run import RunConfig
from experiments.config.sections import MeasureConfig
from experiments.errors import UserError
from experiments.pipeline import select as selecting
from experiments.pipeline.clock import measure as measuring
from experiments.pipeline.loading import load as loading
from experiments.pipeline.loading.load import Loaded, load
from experiments.pipeline.result.export import Exported
from experiments.pipeline.select import MOST, Selected, confirmed, select
from experiments.runs.directory import RunDirectory
from experiments.runs.progress import make_progress
from experiments.runs.result import MeasuredRatio
from experiments.runs.run import Run
from taso_ext import ModelError, OnnxModel, RuleSet, State
from taso_ext.onnx_io.checked_model import CheckedModel

CONFIG = RunConfig(controller="random", costs="measured:cpu")


class Clock:
    """A replacement for `race` and `measure` that makes ratios up, in the order in which graphs are offered."""

    def __init__(self, ratios: Sequence[float]) -> None:
        self.ratios, self.asked = list(ratios), 0
        self.feeds: Feeds | None = None

    def __call__(
        self, reference: Variant, candidates: Sequence[Variant], rule: Rule, *, feeds: Feeds | None, seconds: float
    ) -> list[Outcome]:
        self.feeds = feeds
        return [self.outcome(rule) for _ in candidates]

    def outcome(self, rule: Rule) -> Outcome:
        ratio = self.ratios[min(self.asked, len(self.ratios) - 1)]
        self.asked += 1
        verdict = Verdict.FASTER if ratio < 1 - rule.margin else Verdict.NOT_FASTER
        return Outcome(verdict, Estimate(ratio, ratio - 0.01, ratio + 0.01), 12, 2)


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    found = load("bert-base-tiny", dataclasses.replace(CONFIG, costs="roofline:xeon"))
    return dataclasses.replace(found, clock_chooses=True)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(CONFIG, RunDirectory.open(tmp_path / "run", {}, {}), make_progress())


def episode(loaded: Loaded, costs_ms: Sequence[float]) -> EpisodeRecord:
    """Returns an episode of real rewrites to graphs that all differ, with made-up costs."""
    env, rng = loaded.make_env(), np.random.default_rng(0)
    _, info = env.reset(seed=0)
    met = {info["graph_hash"]}
    log = EpisodeLog("deterministic", 0, {**info, "cost_ms": costs_ms[0]})
    for cost_ms in costs_ms[1:]:
        action = rng.choice(env.legal_actions())
        while after(env.state, action) in met:
            action = rng.choice(env.legal_actions())
        met.add(after(env.state, action))
        _, reward, terminated, truncated, info = env.step(action)
        log.add(action, float(reward), terminated, truncated, {**info, "cost_ms": cost_ms})
    return log.record()


def after(state: State, action: np.ndarray) -> str:
    stepped = state.copy()
    stepped.step(int(action[0]), int(action[1]))
    return stepped.hash


def selected(
    run: Run, loaded: Loaded, record: EpisodeRecord, ratios: Sequence[float], monkeypatch: pytest.MonkeyPatch
) -> tuple[Selected, Clock]:
    clock = Clock(ratios)
    monkeypatch.setattr(selecting.racing, "race", clock)
    return select(run, loaded, Evaluation(None, record, (), (record,)), [record]), clock


def test_the_cheapest_is_taken_if_it_is_the_fastest(run: Run, loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    record = episode(loaded, [10, 9, 9.5, 8, 8.5])
    found, clock = selected(run, loaded, record, [0.8, 0.9], monkeypatch)
    assert found.record.best_actions == record.best_actions and not found.note
    assert len(found.record.actions) == 3 and clock.asked == 2


def test_the_fastest_is_taken_and_said_so(run: Run, loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    record = episode(loaded, [10, 9, 8, 7])
    found, _ = selected(run, loaded, record, [0.97, 0.9, 0.95], monkeypatch)
    assert found.record.best_cost_ms == 8
    assert "0.970" in found.note and "0.900" in found.note


def test_a_graph_that_cannot_be_run_does_not_keep_the_others_from_racing(
    run: Run, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = episode(loaded, [10, 9, 8, 7])
    clock, cheapest = Clock([0.9, 0.95]), loaded.model.export_checked(loaded.env.replay(record.best_actions))

    def race(reference: Variant, candidates: Sequence[Variant], *arguments: Any, **named: Any) -> Any:
        if any(each.model.skeleton == cheapest.skeleton for each in candidates):
            raise ModelError("ONNX Runtime crashes")
        return clock(reference, candidates, *arguments, **named)

    monkeypatch.setattr(selecting.racing, "race", race)
    found = select(run, loaded, Evaluation(None, record, (), (record,)), [record])
    assert found.record.best_cost_ms == 8 and clock.asked == 2
    assert found.note == "The graph that costs least cannot be run, this one takes 0.900."


def test_graphs_are_timed_on_what_the_user_gave(run: Run, loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mask decides, for example, how long a softmax takes. The first of several input sets is used."""
    _, clock = selected(run, loaded, episode(loaded, [10, 9]), [0.9], monkeypatch)
    assert clock.feeds is None, "made up where they are timed"
    specs = input_specs(CheckedModel.from_proto(loaded.model.source.to_proto()))
    sets = [random_feeds(specs, np.random.default_rng(seed)) for seed in range(2)]
    given = dataclasses.replace(loaded, inputs={name: np.stack([each[name] for each in sets]) for name in sets[0]})
    run = dataclasses.replace(run, directory=RunDirectory.open(run.directory.path.with_name("other"), {}, {}))
    _, clock = selected(run, given, episode(loaded, [10, 9]), [0.9], monkeypatch)
    for feeds in (clock.feeds, measured_on(run, given, monkeypatch)):
        assert feeds is not None and feeds.keys() == sets[0].keys()
        for name, array in feeds.items():
            np.testing.assert_array_equal(array, sets[0][name])


def measured_on(run: Run, loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> Feeds | None:
    timed_with: list[Feeds | None] = []

    def measure(reference: Variant, candidates: Sequence[Variant], effort: object, *, feeds: Feeds, on_pair: object):  # type: ignore[no-untyped-def]
        timed_with.append(feeds)
        one = Estimate(1, 1, 1)
        timings = [VariantTiming(each.name, "made up", one, one, 0.0) for each in (reference, *candidates)]
        return Timing(timings[0], tuple(timings[1:]), None, 2, 1, "pairs", None, 0.01, "clock", 1.0)

    monkeypatch.setattr(measuring.timing, "measure", measure)
    source = loaded.model.source
    measuring.measure(run, loaded, Exported(source, episode(loaded, [10]), reference=source))
    return timed_with[0]


def test_of_equally_fast_graphs_the_one_that_costs_less_is_taken(
    run: Run, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = episode(loaded, [10, 9, 8, 7])
    found, clock = selected(run, loaded, record, [0.95, 0.9, 0.9], monkeypatch)
    assert clock.asked == 3 and found.record.best_cost_ms == 8 and "0.900" in found.note


def test_nothing_that_is_slower_is_taken(run: Run, loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = selected(run, loaded, episode(loaded, [10, 9, 8]), [1.2, 0.985], monkeypatch)
    assert found.record.best_cost_ms == 9
    run = dataclasses.replace(run, directory=RunDirectory.open(run.directory.path.with_name("other"), {}, {}))
    found, _ = selected(run, loaded, episode(loaded, [10, 9, 8]), [1.2, 0.995], monkeypatch)
    assert not found.record.best_actions and "None of 2 graphs" in found.note


def test_no_more_are_measured_than_can_be_told_apart(run: Run, loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    _, clock = selected(run, loaded, episode(loaded, [10, 9.999, 9.998, 9.997, 5]), [0.9], monkeypatch)
    assert clock.asked == 2
    many = episode(loaded, [10 - 0.5 * step for step in range(12)])
    run = dataclasses.replace(run, directory=RunDirectory.open(run.directory.path.with_name("other"), {}, {}))
    _, clock = selected(run, loaded, many, [0.9], monkeypatch)
    assert clock.asked == MOST


def test_a_resumed_run_does_not_measure_again(run: Run, loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    record = episode(loaded, [10, 9, 8])
    first, _ = selected(run, loaded, record, [0.95, 0.9], monkeypatch)
    again, clock = selected(run, loaded, record, [2.0], monkeypatch)
    assert again == first and clock.asked == 0


def test_with_a_roofline_the_clock_does_not_choose(run: Run, loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    record, elsewhere = episode(loaded, [10, 9, 8]), dataclasses.replace(loaded, clock_chooses=False)
    found, clock = selected(run, elsewhere, record, [2.0], monkeypatch)
    assert found == Selected(record) and clock.asked == 0


@pytest.mark.parametrize(
    ("ratio", "pairs", "control", "kept"),
    [
        (0.97, 15, None, True),
        (0.97, 5, None, False),
        (0.997, 60, None, False),
        (0.97, 15, Estimate(0.96, 0.95, 0.97), False),
        (0.97, 15, Estimate(0.96, 0.95, 1.01), True),
    ],
)
def test_what_was_chosen_for_its_luck_is_given_up(
    loaded: Loaded, ratio: float, pairs: int, control: Estimate | None, kept: bool
) -> None:
    """The rule is the same as that of the report's sentence."""
    chosen = Selected(episode(loaded, [10, 9]))
    verdict = verdict_of([ratio] * pairs, measuring.floor_of(control))
    words = {"device": "cpu", "runtime": "made up", "clock": "clock", "ending": "The clock was noisy."}
    ends = control and {"control_ratio": control.value, "control_low": control.low, "control_high": control.high}
    measured = MeasuredRatio(
        ratio, 0.95, 0.99, 1.0, 0.97, 0.0, pairs=pairs, sessions=2, verdict=verdict, **words, **(ends or {})
    )
    final = confirmed(chosen, measured)
    assert (final is chosen) == kept == ("Faster" in measured.sentence())
    assert kept or (not final.record.best_actions and "measured again" in final.note)
    assert kept or final.note.endswith(" The clock was noisy.")
    assert kept or (f"The model itself, measured again, took {control} of it" in final.note) == (control is not None)


@pytest.mark.parametrize("kind", ["measured", "endtoend"])
def test_costs_and_result_are_of_one_device(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "OnnxRuntime", lambda device, threads, level: None)  # every device is available
    monkeypatch.setattr(loading, "require_working", lambda device: None)
    with pytest.raises(UserError, match="--device cuda"):
        load("squeezenet1.1-tiny", dataclasses.replace(CONFIG, costs=f"{kind}:cuda"))


@dataclasses.dataclass(frozen=True)
class Recording:
    """A database of made-up prices for this machine's CPU, and an episode of one step whose graphs it prices."""

    path: Path
    record: EpisodeRecord

    @classmethod
    def make(cls, path: Path, monkeypatch: pytest.MonkeyPatch, **changes: object) -> Recording:
        """Writes the database to `path`; `changes` replace columns of the setting that its prices are for."""
        monkeypatch.setattr(kernel_prices, "time_reference_kernel", lambda runtime: 1.0)
        monkeypatch.setattr(kernel_prices, "time_kernel", lambda kernel, *_: Price(1.0, 0.01))
        prices, model = PriceDatabase(path), OnnxModel.load(zoo.build("squeezenet1.1-tiny"))
        costs = MeasuredPrices(model, OnnxRuntime(), prices.setting(setting_of(OnnxRuntime())))
        state = State(model.graph, RuleSet.default(), costs.native)
        rule, location = state.legal_actions()[0].tolist()
        state.step(rule, location)
        prices.settle()
        prices.close()
        with contextlib.closing(sqlite3.connect(path)) as file, file:
            for name, value in changes.items():
                file.execute(f"update setting set {name} = ?", (value,))
        record = EpisodeRecord("deterministic", 0, ((rule, location),), ("rule",), (1.0,), (10.0, 9.0), True, False)
        return cls(path, record)

    def load(self, **changes: Any) -> Loaded:
        return load("squeezenet1.1-tiny", dataclasses.replace(CONFIG, costs=str(self.path), **changes))


def test_replayed_prices_of_this_machine_are_checked_by_the_clock(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = Recording.make(tmp_path / "prices.sqlite", monkeypatch)
    found, clock = selected(run, recording.load(), recording.record, [1.2], monkeypatch)
    assert clock.asked == 1 and not found.record.best_actions


@pytest.mark.parametrize("changes", [{"processor": "another one"}, {"version": "0.1"}, {"device": "cuda"}])
def test_replayed_prices_of_another_machine_are_said_to_be_unchecked(
    changes: dict[str, str], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = Recording.make(tmp_path / "prices.sqlite", monkeypatch, **changes)
    found, clock = selected(run, recording.load(), recording.record, [1.2], monkeypatch)
    assert found.record == recording.record and clock.asked == 0
    assert "not checked" in found.note and all(value in found.note for value in changes.values())


def test_replayed_prices_and_the_result_are_of_one_number_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = Recording.make(tmp_path / "prices.sqlite", monkeypatch, threads=2)
    with pytest.raises(UserError, match=r"--device cpu --set measure\.threads=2"):
        recording.load()
    assert recording.load(measure=MeasureConfig(threads=2)).clock_chooses
