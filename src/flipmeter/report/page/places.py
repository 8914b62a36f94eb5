"""Findings -> where flips go: residuals by level, flip matrices, places in the label list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from flipmeter.report.findings import Findings
from flipmeter.report.format import Record, percent
from flipmeter.report.page.draw import bar
from flipmeter.report.page.markup import (
    MOST_ROWS,
    beside,
    breakable,
    groups_under,
    left_out,
    shade,
    texts,
)
from flipmeter.report.pairs import Matrix, SlotShares
from flipmeter.report.residuals import BETTER_UP, ResidualLine, lay_out, metric_title
from flipmeter.report.table import Cell, Column, Group, Table

MOST_MATRICES = 24
MORE = "flipmeter effects RUN"


def residual_grids(found: Findings) -> list[Table]:
    """The change by level, shaded by better or worse and by size.

    The first has the means over datasets; where more is known, a second has each dataset too.
    """
    if found.residuals is None:
        return []
    layout = lay_out(found.residuals)
    lines = [line for _, lines in layout.blocks for line in lines]
    cells = [row for line in lines for row in line.cells if row is not None]
    sizes = (abs(row["value"]) for row in cells if row["value"] is not None)
    heat = partial(_heat_line, largest=max(sizes, default=0.0))
    means = [
        Group([heat(line) for line in some if line.kind == "level"], title)
        for title, some in layout.blocks
    ]
    heads = ["", *map(metric_title, layout.metrics)]
    n_more = sum(line.kind != "level" for line in lines)
    is_long = n_more > MOST_ROWS
    cut = [f"{n_more:,} rows of single datasets are left out: {MORE}"] if is_long else []
    title = "What a level changes: level minus base, in points"
    first = Table(title, heads, means, [*layout.notes, *cut], "heat")
    if not n_more or is_long:
        return [first]
    every = [Group(list(map(heat, some)), title) for title, some in layout.blocks]
    title = "The same for every dataset, with spreads"
    return [first, Table(title, heads, every, layout.notes[:1], "heat", is_detail=True)]


def _heat_line(line: ResidualLine, largest: float) -> list[Cell]:
    """Shade values by whether they are better or worse; what may be no change at all is faint."""
    cells = [Cell(breakable(line.title), None, f"line-{line.kind}")]
    for text, row in zip(line.texts(), line.cells, strict=True):
        if row is None or row["value"] is None:
            cells.append(Cell(text, None, "num why"))
            continue
        value, _, ends = text.partition(" ")
        shown = beside(value, ends, row["value"]).text if ends else text
        if line.shows != "value":
            cells.append(Cell(shown, None, "num spread"))
            continue
        is_better = (row["value"] > 0) == (row["metric"] in BETTER_UP)
        kind = shade("better" if is_better else "worse", row["value"], largest)
        kind = "faint" if row["word"] == "not distinguishable" else kind
        cells.append(Cell(shown, row["value"], f"num {kind}"))
    return cells


# --- where flips go ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Square:
    """A flip matrix as rows of cells, under the numbers of the classes."""

    title: str
    about: str
    views: tuple[str, ...]
    names: Sequence[tuple[str, str]]
    rows: Sequence[tuple[str, str, Sequence[Cell]]]


def squares(found: Findings) -> tuple[list[tuple[str, str, list[Square]]], list[str]]:
    """The flip matrices at the base by rater and dataset, with the names of the classes."""
    every = [one for one in found.pairs.matrices if one.n_flipped]
    every.sort(key=lambda one: found.severity(one.where))
    abouts = {pair.name: pair for contrast in found.contrasts for pair in contrast.pairs}
    groups: dict[tuple[str, str], list[Square]] = {}
    largest = max((_largest_share(one) for one in every[:MOST_MATRICES]), default=1.0)
    for one in every[:MOST_MATRICES]:
        rater, dataset, _, contrast = one.where
        names = [
            (str(rank), found.class_name(dataset, rank)) for rank in range(1, one.n_classes + 1)
        ]
        names += [("–", "no class")] if one.has_faults else []
        about, views = abouts[contrast].about, abouts[contrast].views
        square = Square(contrast, about, views, names, list(_square_rows(one, names, largest)))
        groups.setdefault((rater, dataset), []).append(square)
    at_base = " at the base" if found.tally["level"].n_unique() > 1 else ""
    notes = [
        f"Counts of items{at_base}, seeds together: the class under the first view down, under "
        "the second across. Agreement lies on the diagonal; byte-equal prompts are left out. "
        "Colours are shares of a table's items, on one scale for all tables."
    ]
    more = "flipmeter measure RUN --show matrix"
    notes += left_out(len(every) - MOST_MATRICES, "matrices", more)
    return [(f"{r} · {d}", _legend(squares), squares) for (r, d), squares in groups.items()], notes


def no_flips(found: Findings) -> str:
    """The sentence of a page without flips; what was not read may have flipped."""
    is_read = found.verdicts["value"].is_not_null().any()
    return "No item flipped." if is_read else "No pair of answers could be read."


def no_matrix(found: Findings) -> str:
    """The sentence of a page without matrices; decimal scores flip, but have no classes."""
    if not found.pairs.n_flips:
        return no_flips(found)
    if any(scale.span is not None for scale in found.scales.values()):
        more = "flipmeter measure RUN --show direction"
        return (
            "Decimal scores have no table of classes. The flips below show how far each score "
            f"moved; means by contrast: {more}"
        )
    return "No item flipped at the base."


def _legend(squares: Sequence[Square]) -> str:
    longest = max((square.names for square in squares), key=len)
    return ", ".join(short if short == name else f"{short} {name}" for short, name in longest)


def _largest_share(one: Matrix) -> float:
    """The largest share of items that move in one way."""
    moved = max((n for (a, b), n in one.counts.items() if a != b), default=0)
    return moved / one.n_pairs


def _square_rows(
    one: Matrix, names: Sequence[tuple[str, str]], largest: float
) -> Iterator[tuple[str, str, Sequence[Cell]]]:
    """The rows of a matrix; shades are shares of its items, so that matrices compare."""
    ranks = [*range(1, one.n_classes + 1), *([0] if one.has_faults else [])]
    for (short, name), a in zip(names, ranks, strict=True):
        cells = []
        for b in ranks:
            n = one.counts.get((a, b), 0)
            kind = "same" if a == b else shade("mass", n / one.n_pairs, largest)
            cells.append(Cell(str(n) if n else "·", n, kind))
        yield short, name, cells


def slots_grid(found: Findings) -> Table | None:
    """The share of choices of each slot of the label list, over both orders."""
    shares = found.pairs.slots
    if not shares:
        return None
    top = max(share for one in shares for share in (*one.shares, *(one.expected or ())))
    columns = [
        texts("place"),
        Column("share", lambda row: Cell(percent(row["share"]), row["share"], "num")),
        Column("", lambda row: Cell(bar(row["share"], row["by_gold"], top), None, "picture")),
        Column("by gold", lambda row: Cell(percent(row["by_gold"]), row["by_gold"], "num")),
    ]
    groups = [
        (f"{one.rater} · {one.dataset} ({one.n:,} answers)", list(_slot_rows(one)))
        for one in shares
    ]
    how = (
        "Share of answers by place in the label list, natural and reversed order together, "
        "among items read both times. The tick marks the share expected from the gold classes: "
        "a rater that ignores places lies near it or, at least, is symmetric."
    )
    title = "Which places in the list are chosen"
    return Table(title, columns, groups_under(columns, groups), [how], "slots")


def _slot_rows(one: SlotShares) -> Iterator[Record]:
    expected: Sequence[float | None] = one.expected or [None] * len(one.shares)
    for place, (share, by_gold) in enumerate(zip(one.shares, expected, strict=True), 1):
        title = {1: "first", len(one.shares): "last"}.get(place, f"{place}")
        yield {"place": title, "share": share, "by_gold": by_gold}
