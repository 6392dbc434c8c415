"""The prices that come with RLFlow: which kernels are timed, in which order, and what is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from environment.costs.learned.prior import read_prior
from environment.costs.measured import kernel_prices
from environment.costs.prices.price_list import Price
from experiments.cli import main
from experiments.costs import prior as command
from experiments.costs.prior import in_turn
from experiments.reproduce.cost_model.recorded import RecordedGraphs, recorded_graphs
from tests.environment.costs.fake_kernels import price_without_a_clock


def first_kernels(count: int) -> list[RecordedGraphs]:
    """Returns the recorded graphs with few kernels each."""
    return [
        RecordedGraphs(each.name, each.kernels[:count], each.runs[:, :count], each.measured, each.half_widths)
        for each in recorded_graphs()
    ]


def test_the_recorded_graphs_have_all_their_kernels() -> None:
    for each in recorded_graphs():
        assert each.runs.shape == (len(each.measured) + 1, len(each.kernels)) and (each.runs.sum(axis=1) > 0).all()
        assert each.family in each.name.replace("-", "_").replace("resnext", "resnet")


def test_networks_take_turns_and_their_own_kernels_come_first() -> None:
    graphs = first_kernels(5)
    order = in_turn(graphs)
    assert sorted(order) == sorted({key for each in graphs for key in each.kernels})
    own = {key for each in graphs for key, runs in zip(each.kernels, each.runs[0], strict=True) if runs}
    assert set(order[: len(graphs)]) <= own


def test_it_goes_on_after_an_interruption_and_says_where_prices_are_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    graphs = first_kernels(3)
    monkeypatch.setattr(command, "recorded_graphs", lambda: graphs)
    clock = price_without_a_clock(monkeypatch)

    def interrupted(*arguments: object) -> Price:
        if len(clock.timed) == 4:
            raise KeyboardInterrupt
        return clock(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(kernel_prices, "time_kernel", interrupted)
    arguments = ["costs", "prior", "--output", str(tmp_path / "p.gz"), "--database", str(tmp_path / "d.sqlite")]
    main(arguments)
    assert not (tmp_path / "p.gz").exists() and len(clock.timed) == 4
    monkeypatch.setattr(kernel_prices, "time_kernel", clock)
    assert main(arguments) == 0
    assert len(clock.timed) == len(set(clock.timed)) == len(in_turn(graphs))
    found = read_prior(tmp_path / "p.gz")
    assert len(found.kernels) == len(clock.timed) and found.command.startswith("rlflow costs prior")
    assert main(arguments) == 2 and "exists" in capsys.readouterr().err


def test_nothing_known_is_nothing_to_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["costs", "prior", "--write-only", "--output", str(tmp_path / "p.gz")]
    assert main([*arguments, "--database", str(tmp_path / "d.sqlite")]) == 2
    assert "without --write-only" in capsys.readouterr().err


def test_a_played_search_times_few_kernels() -> None:
    """Predictions with the right order find the cheapest graph; wrong ones are found out where they matter."""
    from experiments.reproduce.cost_model.learned import Predicted, played_search

    runs = np.array([[1, 1, 1, 1.0], [1, 1, 0, 0], [1, 1, 1, 0]])
    timed = np.array([1.0, 1.0, 0.5, 0.5])
    used, kernels, lost = played_search(runs, Predicted(1.1 * timed, np.full(4, 0.3), timed))
    assert 0 < used <= 2 and kernels == 4 and lost == 0
    unknown = np.array([np.nan, 1.0, 0.5, 0.5])
    assert played_search(runs, Predicted(timed, np.full(4, 0.3), unknown)) == (0, 0, 0.0)


def test_kernels_of_one_family_cannot_calibrate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "recorded_graphs", lambda: first_kernels(3)[:1])
    price_without_a_clock(monkeypatch)
    arguments = ["costs", "prior", "--output", str(tmp_path / "p.gz"), "--database", str(tmp_path / "d.sqlite")]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert "one family" in error and "--write-only" in error and "Traceback" not in error
    assert not (tmp_path / "p.gz").exists()
