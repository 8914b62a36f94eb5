"""Numbers -> SVG. Places are percentages, so that a picture stretches and its text does not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from flipmeter.report.format import Record, bounds, visible
from flipmeter.report.page.texts import excerpt
from flipmeter.report.table import Cell, Column

MARGIN = 0.01
"""No point lies on the edge of its picture, unless it is none or all."""
STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5)


@dataclass(frozen=True)
class Axis:
    """A range of shares with a few round ticks."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """The position of a value in percent of the width."""
        return 100 * (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)

    @property
    def ticks(self) -> list[float]:
        step = next((s for s in STEPS if (self.high - self.low) / s <= 6), STEPS[-1])
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(k * step, 4) for k in range(first, last + 1)]


def axis_for(values: Iterable[float], *, low: float | None = None) -> Axis:
    """An axis around some shares, from `low` if it is given, in steps of five points."""
    known = list(values) or [0.0, 1.0]
    bottom = max(0.0, math.floor(20 * (min(known) - MARGIN)) / 20) if low is None else low
    top = min(1.0, math.ceil(20 * (max(known) + MARGIN)) / 20)
    return Axis(bottom, max(top, bottom + 0.05))


def scale(axis: Axis) -> Markup:
    """Draw the ticks of an axis with their numbers, as the head of a column of rows."""
    return _svg("scale", 16, [_tick(axis, tick, {"y": "12"}) for tick in axis.ticks])


def _tick(axis: Axis, tick: float, about: Mapping[str, str]) -> Markup:
    """The number of a tick, which stays inside its picture."""
    x = axis.at(tick)
    anchor = "start" if x < 2 else "end" if x > 98 else "middle"
    return _element("text", {"x": x, "text-anchor": anchor, **about}, f"{100 * tick:.0f}")


def drawn(
    axis: Axis,
    word: Callable[[Record], str] = lambda row: "inconclusive",
    mark: Callable[[Record], tuple[float, float, float] | None] = lambda row: None,
) -> Column:
    """A column of intervals under the scale of an axis, each with the style of its word."""

    def show(row: Record) -> Cell:
        value = row["value"]
        if value is None:
            return Cell()
        low, high = (value if row[end] is None else row[end] for end in ("low", "high"))
        return Cell(span(axis, (value, low, high), mark(row), word(row)), value, "picture")

    return Column(scale(axis), show)


def span(
    axis: Axis,
    row: tuple[float, float, float],
    noise: tuple[float, float, float] | None,
    word: str,
) -> Markup:
    """Draw one row of a forest: the noise floor as a band, the estimate as a dot on its interval.

    A full dot flips, a ring is stable, a cross is unreadable, a grey dot is inconclusive.
    """
    value, low, high = map(axis.at, row)
    parts = [_line("grid", axis.at(tick), 0.0, axis.at(tick), 100.0) for tick in axis.ticks]
    if noise is not None:
        floor, left, right = map(axis.at, noise)
        wide = max(right - left, 0.0)
        band = {"class": "noise", "x": left, "y": 0.0, "width": wide, "height": 100.0}
        parts += [_element("rect", band), _line("floor", floor, 0.0, floor, 100.0)]
    mark = _element("circle", {"class": f"dot {word}", "cx": value, "cy": 50.0, "r": "4.5"})
    if word == "unreadable":  # a cross, so that colour is not all that tells it
        about = {"class": "cross", "x": value, "y": 50.0, "dy": "5", "text-anchor": "middle"}
        mark = _element("text", about, "✕")
    return _svg("span", 24, [*parts, _line("range", low, 50.0, high, 50.0), mark])


def bar(share: float, expected: float | None = None, top: float = 1.0) -> Markup:
    """Draw a share as a bar, and where it was expected as a tick."""
    about = {"class": "bar", "x": 0.0, "y": 25.0, "width": 100 * share / top, "height": 50.0}
    parts = [_element("rect", about)]
    if expected is not None:
        parts.append(_line("expected", 100 * expected / top, 5.0, 100 * expected / top, 95.0))
    return _svg("bars", 16, parts)


@dataclass(frozen=True)
class Point:
    """A configuration in a scatter plot: its two numbers, each with the ends of its interval."""

    title: str
    across: tuple[float, float, float]
    up: tuple[float, float, float]
    is_on_front: bool = False
    is_chosen: bool = False
    is_base: bool = False


def scatter(points: Sequence[Point], title: str) -> Markup:
    """Draw shares against each other with their intervals; the Pareto front is full, on top."""
    across = axis_for((value for point in points for value in point.across), low=0.0)
    up = axis_for(value for point in points for value in point.up)
    parts = []
    for tick in across.ticks:
        x = across.at(tick)
        parts.append(_line("grid", x, 0.0, x, 100.0))
        parts.append(_tick(across, tick, {"y": "100%", "dy": "16", "text-anchor": "middle"}))
    for tick in up.ticks:
        y = 100 - up.at(tick)
        about = {"x": "0", "dx": "-8", "y": y, "dy": "4", "text-anchor": "end"}
        parts.append(_line("grid", 0.0, y, 100.0, y))
        parts.append(_element("text", about, f"{100 * tick:.0f}"))
    for point in sorted(points, key=lambda one: (one.is_on_front, one.is_chosen)):
        parts += _point(point, across, up)
    for point in _labelled(points, up):
        x, y = across.at(point.across[0]), 100 - up.at(point.up[0])
        dx, anchor = ("-9", "end") if x > 55 else ("9", "start")
        about = {"class": "name", "x": x, "y": y, "dx": dx, "dy": "-6", "text-anchor": anchor}
        parts.append(_element("text", about, excerpt(point.title, 32)))
    return _svg("scatter", 340, parts, title)


def _point(point: Point, across: Axis, up: Axis) -> list[Markup]:
    x, left, right = map(across.at, point.across)
    y, low, high = (100 - up.at(value) for value in point.up)
    kind = "best" if point.is_on_front else "beaten"
    told = f"{point.title}: {_percent(point.across)} flips, {_percent(point.up)} right"
    circle = {"class": kind, "cx": x, "cy": y, "r": "7" if point.is_chosen else "5"}
    return [
        _line(f"reach {kind}", left, y, right, y),
        _line(f"reach {kind}", x, low, x, high),
        _element("circle", circle, _element("title", {}, visible(told))),
    ]


def _percent(one: tuple[float, float, float]) -> str:
    value, low, high = (100 * end for end in one)
    return bounds(value, low, high, ".1f", " %")


def _labelled(points: Sequence[Point], up: Axis) -> list[Point]:
    """Pick the points that get a name: the choice, the front and the base, unless they touch.

    A name is about six percent of the picture high.
    """
    named = [point for point in points if point.is_chosen or point.is_on_front or point.is_base]
    kept: list[Point] = []
    for point in sorted(named, key=lambda one: (not one.is_chosen, not one.is_on_front)):
        if all(abs(up.at(point.up[0]) - up.at(other.up[0])) > 6 for other in kept):
            kept.append(point)
    return kept


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return _element("line", {"class": kind, "x1": x1, "y1": y1, "x2": x2, "y2": y2})


def _element(tag: str, about: Mapping[str, object], content: str = "") -> Markup:
    """An element of SVG; numbers are percentages."""
    texts = ((k, f"{place(v)}%" if isinstance(v, float) else v) for k, v in about.items())
    attributes = Markup("").join(Markup(' {}="{}"').format(*one) for one in texts)
    return Markup("<{}{}>{}</{}>" if content else "<{}{}/>").format(tag, attributes, content, tag)


def _svg(kind: str, height: int, parts: Iterable[Markup], title: str = "") -> Markup:
    """Wrap the parts; without a title the numbers stand in text beside the picture."""
    named = (
        Markup('role="img" aria-label="{}"').format(visible(title))
        if title
        else Markup('aria-hidden="true"')
    )
    opening = Markup('<svg class="{}" width="100%" height="{}" {}>').format(kind, height, named)
    return opening + Markup("").join(parts) + Markup("</svg>")


def place(value: float) -> str:
    """A number with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
