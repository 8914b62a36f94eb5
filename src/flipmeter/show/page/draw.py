"""Numbers and classes -> SVG, whose places are percentages, so that a picture stretches."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import floor, log10

from markupsafe import Markup

from flipmeter.show.format import Record, bounds, visible
from flipmeter.show.page.markup import excerpt
from flipmeter.show.table import Cell, Column
from flipmeter.types import Scale

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
    return _draw_svg("scale", 16, [_axis_tick(axis, tick, {"y": "12"}) for tick in axis.ticks])


def _axis_tick(axis: Axis, tick: float, about: Mapping[str, str]) -> Markup:
    """The number of a tick, which stays inside its picture."""
    x = axis.at(tick)
    anchor = "start" if x < 2 else "end" if x > 98 else "middle"
    return _svg_element("text", {"x": x, "text-anchor": anchor, **about}, f"{100 * tick:.0f}")


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
    parts = [_svg_line("grid", axis.at(tick), 0.0, axis.at(tick), 100.0) for tick in axis.ticks]
    if noise is not None:
        floor, left, right = map(axis.at, noise)
        wide = max(right - left, 0.0)
        band = {"class": "noise", "x": left, "y": 0.0, "width": wide, "height": 100.0}
        parts += [_svg_element("rect", band), _svg_line("floor", floor, 0.0, floor, 100.0)]
    mark = _svg_element("circle", {"class": f"dot {word}", "cx": value, "cy": 50.0, "r": "4.5"})
    if word == "unreadable":  # a cross, so that colour is not all that tells it
        about = {"class": "cross", "x": value, "y": 50.0, "dy": "5", "text-anchor": "middle"}
        mark = _svg_element("text", about, "✕")
    return _draw_svg("span", 24, [*parts, _svg_line("range", low, 50.0, high, 50.0), mark])


def bar(share: float, expected: float | None = None, top: float = 1.0) -> Markup:
    """Draw a share as a bar, and where it was expected as a tick."""
    about = {"class": "bar", "x": 0.0, "y": 25.0, "width": 100 * share / top, "height": 50.0}
    parts = [_svg_element("rect", about)]
    if expected is not None:
        parts.append(_svg_line("expected", 100 * expected / top, 5.0, 100 * expected / top, 95.0))
    return _draw_svg("bars", 16, parts)


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
        parts.append(_svg_line("grid", x, 0.0, x, 100.0))
        parts.append(_axis_tick(across, tick, {"y": "100%", "dy": "16", "text-anchor": "middle"}))
    for tick in up.ticks:
        y = 100 - up.at(tick)
        about = {"x": "0", "dx": "-8", "y": y, "dy": "4", "text-anchor": "end"}
        parts.append(_svg_line("grid", 0.0, y, 100.0, y))
        parts.append(_svg_element("text", about, f"{100 * tick:.0f}"))
    for point in sorted(points, key=lambda one: (one.is_on_front, one.is_chosen)):
        parts += _draw_point(point, across, up)
    for point in _labelled_points(points, up):
        x, y = across.at(point.across[0]), 100 - up.at(point.up[0])
        dx, anchor = ("-9", "end") if x > 55 else ("9", "start")
        about = {"class": "name", "x": x, "y": y, "dx": dx, "dy": "-6", "text-anchor": anchor}
        parts.append(_svg_element("text", about, excerpt(point.title, 32)))
    return _draw_svg("scatter", 340, parts, title)


def _draw_point(point: Point, across: Axis, up: Axis) -> list[Markup]:
    x, left, right = map(across.at, point.across)
    y, low, high = (100 - up.at(value) for value in point.up)
    kind = "best" if point.is_on_front else "beaten"
    told = f"{point.title}: {_ended_percent(point.across)} flips, {_ended_percent(point.up)} right"
    circle = {"class": kind, "cx": x, "cy": y, "r": "7" if point.is_chosen else "5"}
    return [
        _svg_line(f"reach {kind}", left, y, right, y),
        _svg_line(f"reach {kind}", x, low, x, high),
        _svg_element("circle", circle, _svg_element("title", {}, visible(told))),
    ]


def _ended_percent(one: tuple[float, float, float]) -> str:
    value, low, high = (100 * end for end in one)
    return bounds(value, low, high, ".1f", " %")


def _labelled_points(points: Sequence[Point], up: Axis) -> list[Point]:
    """Pick the points that get a name: the choice, the front and the base, unless they touch.

    A name is about six percent of the picture high.
    """
    named = [point for point in points if point.is_chosen or point.is_on_front or point.is_base]
    kept: list[Point] = []
    for point in sorted(named, key=lambda one: (not one.is_chosen, not one.is_on_front)):
        if all(abs(up.at(point.up[0]) - up.at(other.up[0])) > 6 for other in kept):
            kept.append(point)
    return kept


def _svg_line(kind: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return _svg_element("line", {"class": kind, "x1": x1, "y1": y1, "x2": x2, "y2": y2})


def _svg_element(tag: str, about: Mapping[str, object], content: str = "") -> Markup:
    """An element of SVG; numbers are percentages."""
    texts = ((k, f"{place(v)}%" if isinstance(v, float) else v) for k, v in about.items())
    attributes = Markup("").join(Markup(' {}="{}"').format(*one) for one in texts)
    return Markup("<{}{}>{}</{}>" if content else "<{}{}/>").format(tag, attributes, content, tag)


def _draw_svg(kind: str, height: int, parts: Iterable[Markup], title: str = "") -> Markup:
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


SHADES = 9
WIDE, TALL, THIN, NARROW = 16, 16, 8, 5
"""Pixels of a tick with its sign, across and down, of one without, and where views are many."""
MOST_SIGNED, MOST_LINES = 3, 8
"""More lines than this stand without signs, or as one bar for every view."""
BAR = 56
"""Pixels of such a bar."""
MANY_VIEWS = 12
SHORT = 2
"""Letters that fit a tick."""
LETTER = 7
"""Pixels of a character of a score."""
LISTED = 12
"""Classes that a legend names one by one."""
NOT_ASKED = -1


@dataclass(frozen=True)
class DrawnClasses:
    """The classes of a dataset as a page shows them: by shade, by a short sign, by name."""

    scale: Scale | None
    n_ranks: int

    def shade(self, rank: int) -> str:
        """Name the style of a class: k0 where nothing was read, k1 to k9 from the lowest up."""
        if rank <= 0:
            return "k0"
        return f"k{1 + round((SHADES - 1) * (rank - 1) / max(self.n_ranks - 1, 1))}"

    def sign(self, rank: int) -> str:
        """The content of a tick: a short name or score, else the rank; × if unreadable."""
        if rank <= 0:
            return "×"
        if self.scale is not None and self.scale.span is not None:
            return self._score(rank).rstrip("0").rstrip(".") if self._digits else self._score(rank)
        return self.name(rank) if self._are_short else str(rank)

    @cached_property
    def _digits(self) -> int:
        """Decimals of a score: a hundredth of a range of ten, a tenth of one of a hundred."""
        if self.scale is None or self.scale.span is None:
            return 0
        size = floor(log10(self.scale.span.high - self.scale.span.low))
        return max(0, 3 - size if size > 0 else 2 - size)

    def _score(self, rank: int) -> str:
        span = self.scale.span if self.scale is not None else None
        return "" if span is None else f"{span.score(rank):.{self._digits}f}"

    @cached_property
    def _are_short(self) -> bool:
        """Whether names can stand in ticks: "0" must not show as 1 because it is the first."""
        return self.scale is not None and all(len(name) <= SHORT for name in self.scale.names)

    @property
    def width(self) -> int:
        """Pixels of a tick with its sign."""
        ends = (1, self.n_ranks)
        if self.scale is not None and self.scale.span is not None:
            return 4 + LETTER * max(len(self._score(rank)) for rank in ends)
        longest = max(len(self.sign(rank)) for rank in ends)
        return 2 * WIDE if longest > SHORT else WIDE + 3 * (longest - 1)

    def name(self, rank: int) -> str:
        if rank <= 0:
            return "no class"
        if self.scale is None or rank > self.scale.n_ranks:
            return f"class {rank}"
        return self.scale.name(rank)

    @property
    def legend(self) -> list[tuple[Markup, str]]:
        """Every class by its chip and what it does not say; the ends alone where there are many."""
        ranks = range(1, self.n_ranks + 1)
        few = ranks if self.n_ranks <= LISTED else (1, self.n_ranks)
        names = ((rank, self.name(rank)) for rank in (*few, 0))
        return [(self.chip(rank), "" if name == self.sign(rank) else name) for rank, name in names]

    def chip(self, rank: int) -> Markup:
        """A class as a small box with its sign."""
        shown = Markup('<span class="chip {}" aria-hidden="true">{}</span>')
        return shown.format(self.shade(rank), self.sign(rank))


def picture(lines: Sequence[Sequence[int]], views: Sequence[str], classes: DrawnClasses) -> Markup:
    """Draw answers as a small grid: views from left to right, a line for every asking.

    Where there are many lines, every view is one bar with a part for each class.
    """
    by_view = list(zip(*lines, strict=True))
    asked = [[rank for rank in ranks if rank != NOT_ASKED] for ranks in by_view]
    if not any(asked):
        return Markup("")
    if len(lines) > MOST_LINES:
        width = NARROW if len(views) > MANY_VIEWS else THIN
        parts = [
            part
            for at, ranks in enumerate(asked)
            for part in _draw_bar(width * at, width, ranks, classes)
        ]
        return _strip_svg(width * len(views), BAR, parts, _views_in_words(views, asked, classes))
    has_signs = len(lines) <= MOST_SIGNED and len(views) <= MANY_VIEWS
    width = classes.width if has_signs else NARROW if len(views) > MANY_VIEWS else THIN
    height = TALL if has_signs else THIN
    parts = [
        _strip_tick((width * at, height * line), (width, height), rank, classes, has_sign=has_signs)
        for line, ranks in enumerate(lines)
        for at, rank in enumerate(ranks)
        if rank != NOT_ASKED
    ]
    return _strip_svg(
        width * len(views), height * len(lines), parts, _views_in_words(views, asked, classes)
    )


def _draw_bar(
    left: float, width: float, ranks: Sequence[int], classes: DrawnClasses
) -> Iterator[Markup]:
    top = 0.0
    for rank, n in sorted(Counter(ranks).items()):
        own = BAR * n / len(ranks)
        yield _rect((left, top), (width - 1, own), classes.shade(rank))
        top += own


def _views_in_words(
    views: Sequence[str], asked: Sequence[Sequence[int]], classes: DrawnClasses
) -> str:
    """The same in words: what was said under every view, or in all where there are many."""
    if len(views) > MANY_VIEWS:
        return _class_counts_text([rank for ranks in asked for rank in ranks], classes)
    named = zip(views, asked, strict=True)
    return "; ".join(
        f"{view}: {_class_counts_text(ranks, classes)}" for view, ranks in named if ranks
    )


def _class_counts_text(ranks: Sequence[int], classes: DrawnClasses) -> str:
    counts = sorted(Counter(ranks).items(), key=lambda one: (-one[1], one[0]))
    named = [(excerpt(classes.name(rank), 40), n) for rank, n in counts[:LISTED]]
    told = [name if n == 1 else f"{name} {n:,} times" for name, n in named]
    return ", ".join([*told, *(["…"] if len(counts) > LISTED else [])])


def _strip_tick(
    at: tuple[int, int], size: tuple[int, int], rank: int, classes: DrawnClasses, *, has_sign: bool
) -> Markup:
    box = _rect(at, (size[0] - 1, size[1] - 1), classes.shade(rank))
    if not has_sign:
        return box
    text = Markup('<text class="{}" x="{}" y="{}" text-anchor="middle">{}</text>')
    left, top = at[0] + size[0] / 2, at[1] + size[1] / 2 + 4
    return box + text.format(classes.shade(rank), place(left), place(top), classes.sign(rank))


def _rect(at: tuple[float, float], size: tuple[float, float], shade: str) -> Markup:
    box = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>')
    return box.format(shade, *(place(value) for value in (*at, *size)))


def _strip_svg(width: float, height: float, parts: Sequence[Markup], about: str) -> Markup:
    told = visible(about)
    frame = Markup(
        '<svg class="strip" role="img" width="{}" height="{}" aria-label="{}">'
        "<title>{}</title>{}</svg>"
    )
    return frame.format(place(width), place(height), told, told, Markup("").join(parts))
