"""Numbers -> SVG. Places are percentages, so that a picture stretches and its text does not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from flipmeter.report.format import Record, visible
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
    marks = [
        Markup('<text x="{}%" y="12" text-anchor="{}">{}</text>').format(
            place(axis.at(tick)), _anchor(axis.at(tick)), f"{100 * tick:.0f}"
        )
        for tick in axis.ticks
    ]
    return _svg("scale", 16, marks)


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
    value, low, high = row
    parts = [_line(axis.at(tick), 0, axis.at(tick), 100, "grid") for tick in axis.ticks]
    if noise is not None:
        floor, left, right = (axis.at(value) for value in noise)
        parts += [
            Markup('<rect class="noise" x="{}%" y="0" width="{}%" height="100%"/>').format(
                place(left), place(max(right - left, 0.0))
            ),
            _line(floor, 0, floor, 100, "floor"),
        ]
    parts += [_line(axis.at(low), 50, axis.at(high), 50, "range"), _mark(axis.at(value), word)]
    return _svg("span", 24, parts)


def _mark(x: float, word: str) -> Markup:
    """A dot by its word; what is unreadable is a cross, so that colour is not all that tells it."""
    if word == "unreadable":
        return Markup(
            '<text class="cross" x="{}%" y="50%" dy="5" text-anchor="middle">✕</text>'
        ).format(place(x))
    return Markup('<circle class="dot {}" cx="{}%" cy="50%" r="4.5"/>').format(word, place(x))


def bar(share: float, expected: float | None = None, top: float = 1.0) -> Markup:
    """Draw a share as a bar, and where it was expected as a tick."""
    parts = [
        Markup('<rect class="bar" x="0" y="25%" width="{}%" height="50%"/>').format(
            place(100 * share / top)
        )
    ]
    if expected is not None:
        parts.append(_line(100 * expected / top, 5, 100 * expected / top, 95, "expected"))
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
    parts = _grid(across, up)
    for point in sorted(points, key=lambda one: (one.is_on_front, one.is_chosen)):
        parts += _point(point, across, up)
    for point in _labelled(points, up):
        parts.append(_name(point, across.at(point.across[0]), 100 - up.at(point.up[0])))
    return _svg("scatter", 340, parts, title)


def _point(point: Point, across: Axis, up: Axis) -> list[Markup]:
    x, left, right = (across.at(value) for value in point.across)
    y, low, high = (100 - up.at(value) for value in point.up)
    kind = "best" if point.is_on_front else "beaten"
    told = f"{point.title}: {_percent(point.across)} flips, {_percent(point.up)} right"
    circle = '<circle class="{}" cx="{}%" cy="{}%" r="{}"><title>{}</title></circle>'
    return [
        _line(left, y, right, y, f"reach {kind}"),
        _line(x, low, x, high, f"reach {kind}"),
        Markup(circle).format(kind, place(x), place(y), 7 if point.is_chosen else 5, visible(told)),
    ]


def _percent(one: tuple[float, float, float]) -> str:
    value, low, high = (f"{100 * number:.1f}" for number in one)
    return f"{value} % [{low}, {high}]"


def _grid(across: Axis, up: Axis) -> list[Markup]:
    parts = []
    for tick in across.ticks:
        x = across.at(tick)
        parts.append(_line(x, 0, x, 100, "grid"))
        parts.append(
            Markup('<text x="{}%" y="100%" dy="16" text-anchor="middle">{}</text>').format(
                place(x), f"{100 * tick:.0f}"
            )
        )
    for tick in up.ticks:
        y = 100 - up.at(tick)
        parts.append(_line(0, y, 100, y, "grid"))
        parts.append(
            Markup('<text x="0" dx="-8" y="{}%" dy="4" text-anchor="end">{}</text>').format(
                place(y), f"{100 * tick:.0f}"
            )
        )
    return parts


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


def _name(point: Point, x: float, y: float) -> Markup:
    is_right = x > 55
    return Markup(
        '<text class="name" x="{}%" y="{}%" dx="{}" dy="{}" text-anchor="{}">{}</text>'
    ).format(
        place(x),
        place(y),
        -9 if is_right else 9,
        -6,
        "end" if is_right else "start",
        excerpt(point.title, 32),
    )


def _anchor(x: float) -> str:
    return "start" if x < 2 else "end" if x > 98 else "middle"


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return Markup('<line class="{}" x1="{}%" y1="{}%" x2="{}%" y2="{}%"/>').format(
        kind, *(place(value) for value in (x1, y1, x2, y2))
    )


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
