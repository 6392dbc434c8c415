"""What sweeps say: tables, and answers that are right where the truth is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.errors import UserError
from experiments.sweeps.findings import effect_of, fewest_seeds, gain_of_best, smallest_p
from experiments.sweeps.series import series_of
from experiments.sweeps.show import shown

SEEDS = 6
TEMPERATURES = (0, 0.5, 1.0, 2.0)


def records(
    real: Callable[[float, int], float],
    dream: Callable[[float, int], float],
    *,
    seeds: int = SEEDS,
    temperatures: Sequence[float] = TEMPERATURES,
    **other: Any,
) -> list[Any]:
    return [
        {
            "point": {"dream.temperature": temperature, "seed": seed, **other},
            "settings": {"seed": seed, "dream": {"temperature": temperature}, **other},
            "figures": {"real": real(temperature, seed), "dream": dream(temperature, seed), "gap": None},
        }
        for seed in range(seeds)
        for temperature in temperatures
    ]


def noise(temperature: float, seed: int, kind: int = 0) -> float:
    return float(np.random.default_rng([seed, int(10 * temperature), kind]).normal())


def said(found: list[Any], **options: Any) -> str:
    return shown(Path("sweep"), found, "command", **options).finding


def test_an_effect_is_seen_although_seeds_differ_more() -> None:
    text = said(records(lambda t, s: 50.0 * s + 3 * t + 0.1 * noise(t, s), lambda t, s: t + s))
    assert "`dream.temperature` makes a difference to `real`" in text and "p = 0.0001" in text
    assert "Rank correlation of `real` and `dream.temperature`, mean of the seeds: +1.00 (the same in all 6" in text
    assert "Choosing the value whose dream scores best loses 0.00 points (the same in all 6 seeds" in text


def test_no_effect_is_said_to_be_none() -> None:
    text = said(records(lambda t, s: 50.0 * s + noise(t, s), lambda t, s: noise(t, s, 1)), reference=1.0)
    assert "No difference of `real` between values of `dream.temperature` is seen" in text
    assert "The value of `dream.temperature` that is best on the other seeds gains" in text


def test_a_misleading_dream_is_said_to_mislead() -> None:
    text = said(records(lambda t, s: -t + s, lambda t, s: t + s))
    assert "mean of the seeds: -1.00 (the same in all 6 seeds, which gives no interval: other seeds may differ)" in text
    assert "Choosing the value whose dream scores best loses 2.00 points (the same" in text


def test_no_loss_is_below_zero() -> None:
    """The dream errs on one seed of three: an interval that is not bounded would reach below 0."""
    text = said(records(lambda t, s: -t if s == 0 else t, lambda t, s: t, seeds=3))
    assert "loses 0.67 [0.00, " in text and "] points against the best one" in text


@pytest.mark.parametrize(("temperatures", "fewest", "smallest"), [((0, 1), 6, "0.0625"), ((0, 1, 2), 3, "0.167")])
def test_too_few_seeds_for_any_effect_are_said_to_be(temperatures: Any, fewest: int, smallest: str) -> None:
    def text(seeds: int) -> str:
        return said(records(lambda t, s: 10.0 * t + s, lambda t, s: t, seeds=seeds, temperatures=temperatures))

    few = text(fewest - 1)
    assert f"{fewest - 1} seeds are too few to see whether `dream.temperature` makes a difference to `real`" in few
    assert f"cannot come below p = {smallest}. It takes {fewest} seeds or more." in few and "No difference" not in few
    assert "`dream.temperature` makes a difference to `real`: the means" in text(fewest)


@pytest.mark.parametrize(("seeds", "values"), [(2, 2), (5, 2), (2, 3), (3, 3), (2, 4)])
def test_the_smallest_p_is_that_of_seeds_in_one_order(seeds: int, values: int) -> None:
    """The test draws 9,999 arrangements: p is off by at most 5 standard deviations, wrongly in 1 of a million cases."""
    smallest = smallest_p(seeds, values)
    rows = np.arange(seeds)[:, np.newaxis] + np.arange(float(values))
    assert effect_of(rows) == pytest.approx(smallest, abs=5 * np.sqrt(smallest / 9999))
    assert smallest_p(5, 200) == pytest.approx(1e-4) and fewest_seeds(200) == 2


def test_seeds_alone_have_a_mean_and_an_interval() -> None:
    found = records(lambda t, s: 10.0 + s, lambda t, s: 7.0, seeds=4, temperatures=(1,))
    for record in found:
        del record["point"]["dream.temperature"]
    table = shown(Path("sweep"), found, "command")
    assert "Along `seed`, no setting varies. The mean of `real` over 4 seeds is 11.50 [" in table.finding
    assert "The mean of `dream` over 4 seeds is 7.00 (the same in all 4 seeds" in table.finding
    *each, together = table.rows
    assert [row["seed"] for row in each] == [0, 1, 2, 3] and together["seed"] == "all" and together["seeds"] == 4
    assert float(together["real low"]) < float(together["real"]) == 11.5 < float(together["real high"])
    assert "`real` is 10.00 with the one seed that is finished, which gives no interval" in said(found[:1])


def test_one_value_is_compared_with_nothing() -> None:
    text = said(records(lambda t, s: 10.0 + s, lambda t, s: 7.0, seeds=4, temperatures=(1,)))
    assert "`dream.temperature` has one value only, 1. The mean of `real` over 4 seeds is 11.50 [" in text


def test_what_is_missing_to_compare_is_said() -> None:
    found = records(lambda t, s: t, lambda t, s: t, seeds=3)
    assert "one seed does not show how far seeds differ. Add others" in said(found[: len(TEMPERATURES)])
    assert "of 3 seeds, 1 has finished points with all 4 values" in said([*found[:5], found[-1]])
    assert "of 3 seeds, none has finished points with all 4 values" in said([*found[1:5], found[-1]])
    without = records(lambda t, s: t, lambda t, s: t, world="real")
    for record in without:
        del record["figures"]["dream"]
    assert "world=real: No finished point has `dream`." in said(
        [*records(lambda t, s: t, lambda t, s: t, world="dream"), *without]
    )


def test_chance_alone_is_an_effect_as_rarely_as_it_says() -> None:
    rng = np.random.default_rng(0)
    p_values = np.array([effect_of(rng.normal(size=(5, 4)), seed=trial) for trial in range(60)])
    assert np.mean(p_values < 0.05) <= 0.15 and 0.3 < p_values.mean() < 0.7
    assert effect_of(np.ones((3, 4))) == 1.0


def test_the_best_of_noise_gains_nothing_on_other_seeds() -> None:
    rng = np.random.default_rng(1)
    gains = [gain_of_best(rng.normal(size=(6, 10)), 0).value for _ in range(200)]
    assert abs(np.mean(gains)) < 3 * np.std(gains) / np.sqrt(len(gains))
    assert gain_of_best(np.array([[0.0, 1.0, 5.0]] * 3), 0).value == 5.0


def test_a_row_has_mean_interval_and_middle_of_its_seeds() -> None:
    rows = shown(Path("sweep"), records(lambda t, s: t + s, lambda t, s: 0.0), "command").rows
    assert [row["dream.temperature"] for row in rows] == list(TEMPERATURES) and rows[0]["seeds"] == SEEDS
    mean, low, high = (float(rows[0][key]) for key in ("real", "real low", "real high"))
    assert mean == rows[0]["real IQM"] == 2.5 and low < 2.5 < high
    assert "gap" not in rows[0], "no point has it"


def test_no_interval_of_a_saving_reaches_beyond_100_percent() -> None:
    rows = shown(Path("sweep"), records(lambda t, s: 100.0 if s else 70.0, lambda t, s: 0.0), "command").rows
    assert {row["real high"] for row in rows} == {100.0}
    assert all(float(row["real low"]) < 95.0 for row in rows)


def test_other_axes_are_series_and_missing_points_are_left_out() -> None:
    found = [
        *records(lambda t, s: t, lambda t, s: t, world="a"),
        *records(lambda t, s: -t, lambda t, s: t, world="b")[1:],
    ]
    first, second = series_of(found, "dream.temperature")
    assert (first.name, second.name) == ("world=a", "world=b")
    assert first.complete("real").shape == (6, 4) and second.complete("real").shape == (5, 4)
    rows = shown(Path("sweep"), found, "command").rows
    assert [row["series"] for row in rows] == ["world=a"] * 4 + ["world=b"] * 4 and rows[4]["seeds"] == 5


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"x": "dream.temprature"}, r"no axis 'dream\.temprature'\. Did you mean 'dream\.temperature'"),
        ({"figures": ["reel"]}, r"no figure 'reel'\. Did you mean 'real'"),
        ({"figures": ["gap"]}, "No point has the figures gap"),
        ({"reference": 9.0}, r"No point has dream\.temperature=9"),
    ],
)
def test_unknown_names_are_one_clear_error(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        said(records(lambda t, s: t, lambda t, s: t), **options)


def test_searches_show_the_best_episode() -> None:
    found = records(lambda t, s: t, lambda t, s: t)
    for record in found:
        record["figures"] = {"best": record["figures"]["real"]}
    rows = shown(Path("sweep"), found, "command").rows
    assert [row["best"] for row in rows] == pytest.approx(TEMPERATURES)


def test_points_of_several_commands_belong_together() -> None:
    """One command varied the temperature alone, with the base's seed 0, the next one the seed too."""
    first = [record for record in records(lambda t, s: t, lambda t, s: t) if record["point"]["seed"] == 0]
    later = [record for record in records(lambda t, s: t, lambda t, s: t) if record["point"]["seed"] > 0]
    for record in first:
        del record["point"]["seed"]
    rows = shown(Path("sweep"), [*first, *later], "command").rows
    assert len(rows) == len(TEMPERATURES) and all(row["seeds"] == SEEDS for row in rows)


def test_random_axes_are_no_series() -> None:
    found = [
        {"point": {"rate": rate, "t": 3 - rate}, "settings": {}, "figures": {"real": rate, "dream": 1.0}}
        for rate in (0.1, 0.7, 1.9)
    ]
    assert (
        len({row["series"] for row in shown(Path("sweep"), found, "command", x="rate", drawn=["rate", "t"]).rows}) == 1
    )


def test_points_that_differ_in_random_axes_alone_are_averaged() -> None:
    found = [
        {"point": {"rate": rate, "t": t}, "settings": {}, "figures": {"real": 10 * t + rate, "dream": 1.0}}
        for rate in (1.0, 3.0)
        for t in (0, 1, 2)
    ]
    (series,) = series_of(found, "t", drawn=["rate"])
    assert series.values["real"].tolist() == [[2.0, 12.0, 22.0]]


def test_figures_are_drawn_over_numbers_and_names(tmp_path: Path) -> None:
    for name, found in {
        "numbers": records(lambda t, s: t + noise(t, s), lambda t, s: t),
        "names": [
            {
                "point": {"policy.head": head, "seed": seed},
                "settings": {},
                "figures": {"real": float(seed), "dream": 1.0},
            }
            for head in ("pointer", "hierarchical")
            for seed in range(2)
        ],
    }.items():
        table = shown(tmp_path / name, found, "command")
        table.write(tmp_path / name)
        assert (tmp_path / name / "figure.png").stat().st_size > 5000
