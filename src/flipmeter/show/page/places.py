"""Findings -> where flips go: by level, class, place, system and slice of the items."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlencode

import polars as pl
from markupsafe import Markup

from flipmeter.show.findings import Findings
from flipmeter.show.format import Record, percent, visible
from flipmeter.show.page.draw import Axis, axis_for, bar, drawn
from flipmeter.show.page.markup import (
    MOST_ROWS,
    NAMELESS,
    beside,
    breakable,
    count,
    counts,
    groups_under,
    keyed,
    left_out,
    number,
    p_values,
    rate,
    shade,
    texts,
)
from flipmeter.show.pairs import Matrix, SlotShares
from flipmeter.show.residuals import BETTER_UP, ResidualLine, lay_out, metric_title
from flipmeter.show.table import Cell, Column, Group, Table
from flipmeter.stats.metrics import title_of

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
    return [
        (f"{r} · {d}", _place_legend(squares), squares) for (r, d), squares in groups.items()
    ], notes


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


def _place_legend(squares: Sequence[Square]) -> str:
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


HALF = (0.5, 0.5, 0.5)
"""The place of a judge without a preference."""
WHOSE = ("rater", "dataset", "seed")
SHARES = Axis(0.0, 1.0)


def pairs_grid(found: Findings) -> Table | None:
    """The preferences of judges, drawn against one half, with accuracy and ties by order."""
    return _share_table(
        "Does the judge prefer a place?",
        _at_base(found, "pairs").filter(pl.col("p").is_null()),
        WHOSE,
        "The line at 50 % marks a judge without a preference for a place. 95 % intervals over "
        "clusters; accuracy counts unreadable answers as wrong.",
        lambda row: HALF if row["metric"] == "first_share" else None,
    )


def options_grid(found: Findings) -> Table | None:
    """Choices by place of the option, and accuracy by place of the right one."""
    slots, by = _at_base(found, "slots"), [*WHOSE, "view"]
    if slots.is_empty():
        return None
    moved = slots.filter(metric="cramers_v").select(by).unique()
    rows = slots.filter(pl.col("metric").str.contains(r"^(slot|recall):"))
    return _share_table(
        "Which places of the options are chosen",
        rows.join(moved, on=by, how="semi", maintain_order="left"),
        by,
        "Share of answers by the place of the chosen option, over all orders, and the accuracy by "
        "the place of the right one. 95 % intervals over clusters; unreadable answers count as "
        "wrong.",
    )


def _share_table(
    title: str,
    rows: pl.DataFrame,
    by: Sequence[str],
    note: str,
    mark: Callable[[Record], tuple[float, float, float] | None] = lambda row: None,
) -> Table | None:
    """Shares with their intervals, in a group for each value of `by`."""
    if rows.is_empty():
        return None
    columns = [
        Column("", lambda row: Cell(title_of(row["metric"]), row["metric"])),
        drawn(SHARES, mark=mark),
        Column("share [95 %]", rate),
        counts("n", "clusters"),
    ]
    parts = rows.partition_by(*by, maintain_order=True)[:MOST_ROWS]
    groups = ((_leaderboard_title(part, by), part.to_dicts()) for part in parts)
    return Table(title, columns, groups_under(columns, groups), [note], "forest")


def systems_grid(found: Findings) -> Table | None:
    """Win rates of systems in each order, drawn, with their strengths and ranks."""
    rows = _at_base(found, "systems")
    metric = pl.col("metric").str
    rates = rows.filter(metric.starts_with("win_rate:"))
    if rates.is_empty():
        return None
    columns = [
        texts("system"),
        texts("view", "order"),
        drawn(SHARES),
        Column("win rate [95 %]", rate),
        Column("strength", lambda row: number(row["own"]["strength"]["value"], "+z.2f")),
        Column("rank [95 %]", lambda row: _rank_cell(row["own"]["rank"])),
    ]
    groups = []
    for part in rows.partition_by(*WHOSE, maintain_order=True)[:MOST_ROWS]:
        wins = part.filter(metric.starts_with("win_rate:")).sort("metric", maintain_order=True)
        groups.append(
            (
                _leaderboard_title(part, WHOSE) + _order_effect_text(part),
                [_with_system(part, row) for row in wins.to_dicts()],
            )
        )
    notes = [
        "Orders: as given, swapped, both orders. A tie is half a win. Strengths are those of "
        "Bradley and Terry with Davidson's ties, in log-odds with mean 0, and for both orders with "
        "an order effect; 95 % intervals over clusters.",
        *dict.fromkeys(note for note in rows["note"].to_list() if note),
    ]
    title = "Does the ranking of systems change with the order?"
    return Table(title, columns, groups_under(columns, groups), notes, "forest")


def _at_base(found: Findings, name: str) -> pl.DataFrame:
    table = found.aspects.get(name)
    if table is None:
        return pl.DataFrame(schema={"p": pl.Float64, "metric": pl.String, "note": pl.String})
    return table.filter(level="")


def _with_system(part: pl.DataFrame, row: Record) -> Record:
    """A win rate with its system and all else that is known of the system in that order."""
    system = str(row["metric"]).partition(":")[2]
    beside = part.filter(pl.col("metric").str.ends_with(f":{system}"), view=row["view"]).to_dicts()
    own = {one["metric"].removesuffix(f":{system}"): one for one in beside}
    return {**row, "system": system, "own": own}


def _rank_cell(row: Record) -> Cell:
    ends = "" if row["low"] is None else f" [{row['low']:.0f}, {row['high']:.0f}]"
    return Cell("" if row["value"] is None else f"{row['value']:g}{ends}", row["value"], "num")


def _order_effect_text(part: pl.DataFrame) -> str:
    rows = part.filter(metric="order_effect").to_dicts()
    if not rows or rows[0]["value"] is None:
        return ""
    row = rows[0]
    ends = "" if row["low"] is None else f" [{row['low']:+z.2f}, {row['high']:+z.2f}]"
    return f" · order effect {row['value']:+z.2f}{ends}"


def _leaderboard_title(part: pl.DataFrame, by: Sequence[str]) -> str:
    row = part.row(0, named=True)
    return " · ".join(f"seed {row[name]}" if name == "seed" else str(row[name]) for name in by)


MARKS = {"higher": "flips", "lower": "stable"}
"""The style of a slice that differs from the rest."""


def slices_grid(found: pl.DataFrame, column: str, contrast: str, items_at: str = "") -> Table:
    """The slices of a column by rater, highest first; `items_at` is where items are listed."""
    keys = [name for name in ("dataset", "level") if found[name].n_unique() > 1]
    known = found.filter(pl.col("n_clusters") > 0)

    def linked(row: Record) -> Cell:
        told = {name: row[name] for name in ("rater", "dataset", "level", "contrast")}
        told["level"] = told["level"] or NAMELESS["level"]
        query = urlencode({**told, "by": column, "slice": row["slice"], "show": "flipped"})
        link = Markup('<a href="{}?{}">{}</a>').format(items_at, query, visible(row["slice"]))
        return Cell(link if items_at else row["slice"], row["slice"])

    columns = [
        Column(visible(column), linked),
        *keyed(keys),
        Column("flips [95 %]", rate),
        drawn(
            axis_for(known["high"].to_list(), low=0.0),
            lambda row: MARKS.get(row["word"], "inconclusive"),
        ),
        Column("the rest", lambda row: Cell(percent(row["rest"]), row["rest"], "num")),
        Column("against the rest", _slice_reading_cell),
        p_values("p_holm", "p, Holm"),
        counts("n_clusters", "items"),
        Column("not read", lambda row: count(row["n_unreadable"] or None)),
    ]
    groups, cut = [], list[str]()
    for (rater,), rows in known.group_by("rater", maintain_order=True):
        ordered = rows.sort(*keys, "value", descending=[False] * len(keys) + [True])
        groups.append((str(rater), ordered.head(MOST_ROWS).to_dicts()))
        cut += left_out(len(rows) - MOST_ROWS, "rows", "narrow by model or level")
    how = (
        "Flip rates on readable pairs, seeds pooled, with the intervals of the verdicts. Each "
        "slice is compared with all others of its rater, dataset and level by exchanging items "
        f"between them, two-sided; p by Holm over all {len(known):,} rows. A red dot is higher "
        "than the rest, a ring lower, a grey dot not distinguishable."
    )
    listed = groups_under(columns, groups)
    return Table(f"{contrast} by {column}", columns, listed, [how, *cut], "forest slices")


def _slice_reading_cell(row: Record) -> Cell:
    word = row["word"]
    return Cell(word or "not tested", word, "" if word in MARKS else "why")
