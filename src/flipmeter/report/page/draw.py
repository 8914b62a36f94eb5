"""Numbers -> SVG. Places are percentages, so that a picture stretches and its text does not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from flipmeter.base.pareto import non_dominated
from flipmeter.report.page.texts import excerpt, visible

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
    """A configuration: how often it flips, how accurate it is, and the word of its verdict."""

    title: str
    flips: float
    accuracy: float
    is_base: bool = False
    word: str = ""


def front(points: Sequence[Point]) -> list[Point]:
    """The Pareto front of the points, the most stable first."""
    kept = non_dominated([(point.flips, -point.accuracy) for point in points])
    places = {
        (point.flips, point.accuracy): point
        for point, is_kept in zip(reversed(points), kept[::-1], strict=True)
        if is_kept
    }
    return [places[place] for place in sorted(places)]


def is_best(point: Point, best: Sequence[Point]) -> bool:
    """Say whether a point is on the front, or in the same place as one that is."""
    return any((point.flips, point.accuracy) == (one.flips, one.accuracy) for one in best)


def scatter(points: Sequence[Point], title: str) -> Markup:
    """Draw accuracy against flips; the Pareto front is full and joined by steps."""
    across = axis_for((point.flips for point in points), low=0.0)
    up = axis_for(point.accuracy for point in points)
    best = front(points)
    parts = [*_grid(across, up), *_steps(best, across, up)]
    for point in sorted(points, key=lambda one: is_best(one, best)):  # the best on top
        kind = "best" if is_best(point, best) else "beaten"
        x, y = across.at(point.flips), 100 - up.at(point.accuracy)
        text = (
            f"{point.title}: flips {100 * point.flips:.1f} %, accuracy {100 * point.accuracy:.1f} %"
        )
        parts.append(
            Markup('<circle class="{}" cx="{}%" cy="{}%" r="5"><title>{}</title></circle>').format(
                kind, place(x), place(y), visible(text)
            )
        )
    for point in _labelled(points, best, up):
        parts.append(_name(point, across.at(point.flips), 100 - up.at(point.accuracy)))
    return _svg("scatter", 300, parts, title)


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


def _steps(best: Sequence[Point], across: Axis, up: Axis) -> list[Markup]:
    """Join the Pareto front: a step to the right, then up."""
    parts = []
    for a, b in itertools.pairwise(best):
        x, y = across.at(a.flips), 100 - up.at(a.accuracy)
        to_x, to_y = across.at(b.flips), 100 - up.at(b.accuracy)
        parts += [_line(x, y, to_x, y, "front"), _line(to_x, y, to_x, to_y, "front")]
    return parts


def _labelled(points: Sequence[Point], best: Sequence[Point], up: Axis) -> list[Point]:
    """Pick the points that get a name: the front and the base, unless names would touch.

    A name is about six percent of the picture high.
    """
    chosen: list[Point] = []
    for point in (*best, *(p for p in points if p.is_base and not is_best(p, best))):
        if all(abs(up.at(point.accuracy) - up.at(other.accuracy)) > 6 for other in chosen):
            chosen.append(point)
    return chosen


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
