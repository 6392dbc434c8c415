"""Axes of a sweep: what `--over` stands for, and the points that axes span."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments.errors import UserError
from experiments.sweeps.over import Axis, points


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("dream.temperature=0,0.5,1", (0, 0.5, 1)),
        ("seed=0..4", (0, 1, 2, 3, 4)),
        ("seed=1..9:4", (1, 5, 9)),
        ("dream.temperature=0..0.3:0.1", (0.0, 0.1, 0.2, 0.3)),
        ("dream.temperature=-1..1:0.5", (-1.0, -0.5, 0.0, 0.5, 1.0)),
        ("policy.head=pointer,hierarchical", ("pointer", "hierarchical")),
        ("environment.everywhere=true,false", (True, False)),
        ('skip=[],["a","b"]', ([], ["a", "b"])),
        (" ppo.epochs = 3 ", (3,)),
    ],
)
def test_values_are_those_that_are_named(text: str, values: tuple[Any, ...]) -> None:
    axis = Axis.parsed(text)
    assert axis.key == text.partition("=")[0].strip() and axis.values == values
    assert [type(value) for value in axis.values] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dream.temperature", "--over expects KEY=VALUES"),
        ("=1,2", "--over expects KEY=VALUES"),
        ("seed=", "--over expects KEY=VALUES"),
        ("seed=4..0", "holds no value"),
        ("seed=0..4:0", "holds no value"),
        ("seed=0..4:-1", "holds no value"),
        ("seed=0..inf", "is no range"),
        ("seed=0..1e5000", "is no range"),
        ("seed=0..1e300:1e-300", "more than 10000"),
        ("seed=a..b", "is no range"),
        ("seed=0..1e9", "more than 10000"),
        ("seed=0,,1", "empty value"),
        ("seed=0,1,0", "holds 0 twice"),
        ("dream.temperature=uniform(3,0)", "a smaller and a larger number"),
        ("ppo.learning_rate=loguniform(0,1)", "above 0"),
        ("ppo.learning_rate=uniform(a,1)", "expected two numbers"),
        ("ppo.learning_rate=uniform(1)", "expected two numbers"),
        ("ppo.learning_rate=uniform(0,1,2)", "expected two numbers"),
        ("seed=uniform(0..3)", "expected two numbers"),
        ("dream.temperature=Uniform(0,3)", r"--over dream\.temperature=Uniform\(0,3\) has none of the known forms"),
        ("dream.temperature=normal(0,1)", r"a range \(0\.\.4, 0\.\.3:0\.5\), or one random draw \(uniform\(0,3\)"),
        ("controller=choice(ppo,random)", "none of the known forms"),
        ("controller=choice(ppo)", "none of the known forms"),
        ("dream.temperature=uniform(0,3),5", "none of the known forms"),
        ("dream.temperature=uniform(0,3", "none of the known forms"),
    ],
)
def test_what_stands_for_no_values_is_one_clear_error(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        Axis.parsed(text)


def test_all_lists_are_combined_and_the_last_varies_fastest() -> None:
    axes = [Axis.parsed("a=1,2"), Axis.parsed("b=x,y")]
    assert points(axes) == [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"}]


def test_draws_are_reproducible_and_more_of_them_begin_alike() -> None:
    axes = [Axis.parsed("rate=loguniform(1e-4,1e-2)"), Axis.parsed("seed=0..1"), Axis.parsed("t=uniform(0,3)")]
    few, many, others = (points(axes, draws=draws, seed=seed) for draws, seed in ((3, 0), (50, 0), (3, 1)))
    assert len(few) == 6 and many[:6] == few != others
    assert few[0]["rate"] == few[1]["rate"] != few[2]["rate"] and list(few[0]) == ["rate", "seed", "t"]
    rates, temperatures = {point["rate"] for point in many}, {point["t"] for point in many}
    assert all(1e-4 <= rate <= 1e-2 for rate in rates) and all(0 <= each <= 3 for each in temperatures)
    assert 10 < sum(rate < 1e-3 for rate in rates) < 40, "the logarithm is uniform"


def test_integers_are_drawn_evenly_and_once() -> None:
    def drawn(text: str) -> list[Any]:
        return [point["n"] for point in points([Axis.parsed(f"n={text}").of_integers()], draws=2000)]

    assert sorted(drawn("uniform(0.5,4)")) == [1, 2, 3, 4] == sorted(drawn("loguniform(0.5,4)"))
    assert {type(value) for value in drawn("uniform(0,3)")} == {int}
    draw = Axis.parsed("n=uniform(10,13)").of_integers().draw
    assert draw is not None
    many = [draw.value(share) for share in np.random.default_rng(0).random(4000)]
    assert all(900 < many.count(value) < 1100 for value in (10, 11, 12, 13)), "off by 3.6 standard deviations at most"
    assert draw.value(0.0) == 10 and draw.value(np.nextafter(1.0, 0.0)) == 13
    with pytest.raises(UserError, match=r"draws from 0\.2 to 0\.8, but the setting takes integers"):
        drawn("uniform(0.2,0.8)")


def test_axes_are_named_once_and_span_not_too_much() -> None:
    with pytest.raises(UserError, match="--over seed is given twice"):
        points([Axis.parsed("seed=0"), Axis.parsed("seed=1")])
    with pytest.raises(UserError, match="span 20000 points"):
        points([Axis.parsed("a=1..200"), Axis.parsed("b=1..100")])
