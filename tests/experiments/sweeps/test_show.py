"""What sweeps say: tables, and answers that are right where the truth is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.errors import UserError
from experiments.sweeps.findings import effect_of, gain_of_best
from experiments.sweeps.series import series_of
from experiments.sweeps.show import shown

SEEDS = 6
TEMPERATURES = (0, 0.5, 1.0, 2.0)


def records(real: Callable[[float, int], float], dream: Callable[[float, int], float], **other: Any) -> list[Any]:
    return [
        {
            "point": {"dream.temperature": temperature, "seed": seed, **other},
            "settings": {"seed": seed, "dream": {"temperature": temperature}, **other},
            "figures": {"real": real(temperature, seed), "dream": dream(temperature, seed), "gap": None},
        }
        for seed in range(SEEDS)
        for temperature in TEMPERATURES
    ]


def noise(temperature: float, seed: int, kind: int = 0) -> float:
    return float(np.random.default_rng([seed, int(10 * temperature), kind]).normal())


def said(found: list[Any], **options: Any) -> str:
    return shown(Path("sweep"), found, "command", **options).finding


def test_an_effect_is_seen_although_seeds_differ_more() -> None:
    text = said(records(lambda t, s: 50.0 * s + 3 * t + 0.1 * noise(t, s), lambda t, s: t + s))
    assert "`dream.temperature` makes a difference to `real`" in text and "p = 0.0001" in text
    assert "Rank correlation of `real` and `dream.temperature`, mean of the seeds: +1.00 [+1.00, +1.00]" in text
    assert "Choosing the value whose dream scores best loses +0.00 [+0.00, +0.00] points" in text


def test_no_effect_is_said_to_be_none() -> None:
    text = said(records(lambda t, s: 50.0 * s + noise(t, s), lambda t, s: noise(t, s, 1)), reference=1.0)
    assert "No difference of `real` between values of `dream.temperature` is seen" in text
    assert "The value of `dream.temperature` that is best on the other seeds gains" in text


def test_a_misleading_dream_is_said_to_mislead() -> None:
    text = said(records(lambda t, s: -t + s, lambda t, s: t + s))
    assert "mean of the seeds: -1.00 [-1.00, -1.00]. Choosing the value whose dream scores best loses +2.00" in text


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
