"""The charts of a page, as Vega-Lite specifications that Altair checks; and the programs that draw them in a browser.

Importing this module needs the extra `report`. Colours and fonts are those of the page, see browser/page.js.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import altair as alt
import vl_convert

from experiments.reports.plots import LARGE, Curve

T = TypeVar("T")
Spec = dict[str, Any]
Values = Sequence[Mapping[str, Any]]

HEIGHT, ROW_HEIGHT = 260, 26
MOST_POINTS = 400
"""Points of a line; more of them would be larger and look the same."""


@functools.cache
def programs() -> str:
    """Returns the JavaScript that draws the charts: Vega, Vega-Lite and vega-embed, in one text of 0.9 MB."""
    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    return str(vl_convert.javascript_bundle(vl_version=version))


def cost_chart(log: Values) -> Spec:
    """Returns the estimated cost along the rewrites; the page moves its signal `position`, and points are clicked.

    Args:
      log: `rewrite`, the number of rewrites so far, `rule`, the last one, and `cost_ms`; the first is the start.
    """
    base = alt.Chart(_data(log)).encode(
        x=alt.X("rewrite:Q", title="rewrites", scale=alt.Scale(nice=False), axis=alt.Axis(tickMinStep=1, format="d")),
        y=alt.Y("cost_ms:Q", title="estimated time [ms]", scale=alt.Scale(zero=False)),
        tooltip=[
            alt.Tooltip("rewrite:Q", title="rewrites"),
            alt.Tooltip("rule:N"),
            alt.Tooltip("cost_ms:Q", title="estimated time [ms]", format=".5g"),
            alt.Tooltip("percent:Q", title="of the model's time [%]", format=".2f"),
        ],
    )
    here = alt.Chart(_data([{}])).transform_calculate(rewrite="position").mark_rule(strokeWidth=2)
    here = here.encode(x="rewrite:Q").add_params(alt.param(name="position", value=0))
    points = base.mark_point(filled=True, size=70, opacity=1, cursor="pointer")
    return _spec(alt.layer(here, base.mark_line(interpolate="step-after"), points), HEIGHT)


def bar_chart(values: Mapping[str, float], title: str) -> Spec:
    """Returns horizontal bars with their values, in the given order."""
    rows = [{"label": label, "value": value} for label, value in values.items()]
    base = alt.Chart(_data(rows)).encode(
        x=alt.X("value:Q", title=title),
        y=alt.Y("label:N", title=None, sort=None),
        tooltip=[alt.Tooltip("label:N", title=" "), alt.Tooltip("value:Q", title=title, format=".4g")],
    )
    return _spec(base.mark_bar(height={"band": 0.62}), ROW_HEIGHT * len(rows) + 10)


def line_chart(
    curves: Mapping[str, Curve], x_title: str, y_title: str, *, steps: bool = False, losses: bool = False
) -> Spec:
    """Returns lines; the pointer shows the values of the nearest step, and a click on the legend shows one line alone.

    Args:
      curves: label -> (steps, values), thinned out to 400 points.
      steps: whether a value stays until the next one.
      losses: whether values above `LARGE` make the scale logarithmic, except about zero.
    """
    rows: list[dict[str, Any]] = [
        {"x": x, "y": y, "line": label}
        for label, (at, values) in curves.items()
        for x, y in thinned(list(zip(at, values, strict=True)))
    ]
    is_large = losses and max((row["y"] for row in rows), default=0.0) > LARGE
    scale = alt.Scale(type="symlog") if is_large else alt.Scale(zero=False)
    chosen = alt.selection_point(name="chosen", fields=["line"], bind="legend")
    near = alt.selection_point(
        name="near", nearest=True, on="pointerover", clear="pointerout", fields=["x"], empty=False
    )
    base = alt.Chart(_data(rows)).encode(
        x=alt.X("x:Q", title=x_title, scale=alt.Scale(nice=False), axis=alt.Axis(tickMinStep=1)),
        y=alt.Y("y:Q", title=y_title, scale=scale),
        color=alt.Color("line:N", title=None, sort=None),
        opacity=alt.condition(chosen, alt.value(1.0), alt.value(0.12)),
        tooltip=[
            alt.Tooltip("line:N", title=" "),
            alt.Tooltip("x:Q", title=x_title, format=".6~g"),
            alt.Tooltip("y:Q", title=y_title, format=".4~g"),
        ],
    )
    line = base.mark_line(interpolate="step-after" if steps else "linear").add_params(chosen)
    points = base.mark_point(filled=True, size=60).encode(opacity=alt.condition(near, alt.value(1), alt.value(0)))
    return _spec(alt.layer(line, points.add_params(near)), HEIGHT)


def strip_chart(groups: Mapping[str, Sequence[float]], title: str) -> Spec:
    """Returns single values of groups, one row for each group."""
    rows = [
        {"group": group, "value": value, "number": number}
        for group, own in groups.items()
        for number, value in enumerate(own, 1)
    ]
    base = alt.Chart(_data(rows)).encode(
        x=alt.X("value:Q", title=title, scale=alt.Scale(zero=False)),
        y=alt.Y("group:N", title=None, sort=None),
        tooltip=[
            "group:N",
            alt.Tooltip("number:Q", title="episode"),
            alt.Tooltip("value:Q", title=title, format=".4g"),
        ],
    )
    return _spec(base.mark_point(filled=True, size=70, opacity=0.6), 44 * len(groups) + 10)


def interval_chart(rows: Values, figure: str, *, neutral: float) -> Spec:
    """Returns a point with its 95 % interval for each row of a table.

    Args:
      rows: `label`, `value`, `low` and `high`; an interval may be missing.
      figure: the title of the axis.
      neutral: the value that means no change, where a line is drawn.
    """
    base = alt.Chart(_data(rows)).encode(
        y=alt.Y("label:N", title=None, sort=None),
        tooltip=[
            alt.Tooltip("label:N", title=" "),
            *(alt.Tooltip(f"{key}:Q", format=".4g") for key in ("value", "low", "high")),
        ],
    )
    scale = alt.Scale(zero=False)
    layers = [base.mark_point(filled=True, size=80, opacity=1).encode(x=alt.X("value:Q", title=figure, scale=scale))]
    if any("low" in row for row in rows):
        x = alt.X("low:Q", title=figure, scale=scale)
        layers.insert(0, base.mark_rule(strokeWidth=2).encode(x=x, x2="high:Q"))
    line = alt.Chart(_data([{"value": neutral}])).mark_rule(strokeDash=[5, 4])
    line = line.encode(x=alt.X("value:Q", title=figure, scale=scale))
    return _spec(alt.layer(line, *layers), ROW_HEIGHT * len(rows) + 10)


def thinned(points: Sequence[T], most: int = MOST_POINTS) -> Sequence[T]:
    """Returns at most so many of the points, evenly spread, with the first and the last one."""
    count = len(points)
    if count <= most:
        return points
    return [points[round(number * (count - 1) / (most - 1))] for number in range(most)]


def _data(values: Values) -> alt.Data:
    return alt.Data(values=[dict(each) for each in values])


def _spec(chart: alt.Chart | alt.LayerChart, height: int) -> Spec:
    """Returns the specification of a chart that is as wide as the page; it names no address of a server."""
    spec: Spec = chart.properties(width="container", height=height).to_dict()
    del spec["$schema"]
    return spec
