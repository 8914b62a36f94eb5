"""Classes -> SVG: what an item was called under many conditions, as a strip or as chips."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import floor, log10

from markupsafe import Markup

from flipmeter.report.format import visible
from flipmeter.report.page.draw import place
from flipmeter.report.page.texts import excerpt
from flipmeter.types import Scale

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
            for part in _bar(width * at, width, ranks, classes)
        ]
        return _svg(width * len(views), BAR, parts, _told(views, asked, classes))
    has_signs = len(lines) <= MOST_SIGNED and len(views) <= MANY_VIEWS
    width = classes.width if has_signs else NARROW if len(views) > MANY_VIEWS else THIN
    height = TALL if has_signs else THIN
    parts = [
        _tick((width * at, height * line), (width, height), rank, classes, has_sign=has_signs)
        for line, ranks in enumerate(lines)
        for at, rank in enumerate(ranks)
        if rank != NOT_ASKED
    ]
    return _svg(width * len(views), height * len(lines), parts, _told(views, asked, classes))


def _bar(
    left: float, width: float, ranks: Sequence[int], classes: DrawnClasses
) -> Iterator[Markup]:
    top = 0.0
    for rank, n in sorted(Counter(ranks).items()):
        own = BAR * n / len(ranks)
        yield _rect((left, top), (width - 1, own), classes.shade(rank))
        top += own


def _told(views: Sequence[str], asked: Sequence[Sequence[int]], classes: DrawnClasses) -> str:
    """The same in words: what was said under every view, or in all where there are many."""
    if len(views) > MANY_VIEWS:
        return _counted([rank for ranks in asked for rank in ranks], classes)
    named = zip(views, asked, strict=True)
    return "; ".join(f"{view}: {_counted(ranks, classes)}" for view, ranks in named if ranks)


def _counted(ranks: Sequence[int], classes: DrawnClasses) -> str:
    counts = sorted(Counter(ranks).items(), key=lambda one: (-one[1], one[0]))
    named = [(excerpt(classes.name(rank), 40), n) for rank, n in counts[:LISTED]]
    told = [name if n == 1 else f"{name} {n:,} times" for name, n in named]
    return ", ".join([*told, *(["…"] if len(counts) > LISTED else [])])


def _tick(
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


def _svg(width: float, height: float, parts: Sequence[Markup], about: str) -> Markup:
    told = visible(about)
    frame = Markup(
        '<svg class="strip" role="img" width="{}" height="{}" aria-label="{}">'
        "<title>{}</title>{}</svg>"
    )
    return frame.format(place(width), place(height), told, told, Markup("").join(parts))
