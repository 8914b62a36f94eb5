"""decisions.parquet -> items: how often each disagrees with itself, side by side, by slice."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import urlencode

import polars as pl
from markupsafe import Markup

from flipmeter.errors import Problem
from flipmeter.parquet import collected
from flipmeter.run.folder import Run
from flipmeter.run.generation import DECISIONS, ITEMS
from flipmeter.show.findings import Findings, GridPage, GridRow, class_name
from flipmeter.show.page.draw import MOST_LINES, NOT_ASKED, DrawnClasses, picture
from flipmeter.show.page.markup import NAMELESS, is_of
from flipmeter.show.pairs import IS_FLIP, SAME, lazy_pairs
from flipmeter.stats.differences import slice_rates
from flipmeter.stats.reading import Parts
from flipmeter.types import Contrast

GOLD, LENGTH = "gold class", "length"
KEY = ("dataset", "item")
MOST_VALUES = 20
"""Values of one column that are slices of their own; the rarer ones are one together."""
QUARTERS = (0.25, 0.5, 0.75)
OTHERS = "other values"
NONE = "none"
"""The name of a missing value."""


def item_texts(run: Run, text: str = "") -> pl.LazyFrame:
    """Dataset, id, text and gold of every rated item in the order of the study, not yet read.

    With a text, the items that have it in their id, text or fields, in capitals or not.
    """
    tested = run.scan(ITEMS).filter(pl.col("role") == "test").with_row_index("nth")
    found = tested.rename({"id": "item"})
    if not text.strip():
        return found
    sought = text.strip().lower()
    return found.filter(
        pl.any_horizontal(
            pl.col(name).fill_null("").str.to_lowercase().str.contains(sought, literal=True)
            for name in ("item", "text", "fields")
        )
    )


@dataclass(frozen=True)
class ItemColumns:
    """The value of every rated item (a row of `keys`) in every column, by column name."""

    keys: pl.DataFrame
    by_name: Mapping[str, pl.Series]

    def of(self, name: str) -> pl.DataFrame:
        """Dataset, item and `slice` of one column."""
        if name not in self.by_name:
            known = ", ".join(self.by_name) or "none"
            raise Problem(f"no column '{name[:80]}' to slice by; known: {known}")
        return self.keys.with_columns(self.by_name[name].alias("slice"))


def item_columns(run: Run) -> ItemColumns:
    """Whatever the items of a run can be told apart by: gold class, length, columns of the data."""
    names = run.scan(ITEMS).collect_schema().names()
    own = [name for name in ("fields", "columns") if name in names]
    length = pl.col("text").str.len_chars().cast(pl.Float64)
    items = item_texts(run).select(*KEY, "gold", *own, n_chars=length).pipe(collected)
    found = {
        GOLD: pl.Series(_gold_names(run, items), dtype=pl.String),
        LENGTH: _bin_by_quarter(items["n_chars"], "characters"),
        **{name: _slice_column(values) for name, values in _iter_item_fields(items, own)},
    }
    several = {name: values for name, values in found.items() if values.n_unique() > 1}
    return ItemColumns(items.select(KEY), several)


def _gold_names(run: Run, items: pl.DataFrame) -> list[str]:
    scales = run.scales
    rows = items.select("dataset", "gold").iter_rows()
    decimal = {name for name, scale in scales.items() if scale.span is not None}
    return [
        NONE if gold is None or dataset in decimal else class_name(scales, dataset, gold)
        for dataset, gold in rows
    ]


def _iter_item_fields(items: pl.DataFrame, own: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the fields and columns that items have beside their texts."""
    for source in own:
        rows: list[Mapping[str, object]] = [
            json.loads(text) if text else {} for text in items[source].to_list()
        ]
        names = dict.fromkeys(name for row in rows for name in row if name != "text")
        for name in names:
            yield name, [str(row.get(name) or NONE) for row in rows]


def _slice_column(values: list[str]) -> pl.Series:
    """A column as slices: a range of numbers in quarters, else its most frequent values."""
    texts = pl.Series("value", values, dtype=pl.String)
    if texts.n_unique() <= MOST_VALUES:
        return texts
    numbers = texts.replace(NONE, None).cast(pl.Float64, strict=False)
    if numbers.null_count() == (texts == NONE).sum():
        return _bin_by_quarter(numbers)
    counts = texts.value_counts(sort=True).head(MOST_VALUES - 1)
    often = set(counts.filter(pl.col("count") > 1)["value"])
    return pl.Series([value if value in often else OTHERS for value in values], dtype=pl.String)


def _bin_by_quarter(numbers: pl.Series, unit: str = "") -> pl.Series:
    """Numbers by quarter of the items: about as many in every one."""
    cuts = sorted({float(cut) for part in QUARTERS if (cut := numbers.quantile(part)) is not None})
    end = f" {unit}" if unit else ""

    def called(value: float | None) -> str:
        if value is None:
            return NONE
        at = bisect_left(cuts, value)
        low = f"above {cuts[at - 1]:g}" if at else ""
        high = f"up to {cuts[at]:g}" if at < len(cuts) else ""
        return f"{', '.join(filter(None, (low, high)))}{end}"

    return pl.Series([called(value) for value in numbers.to_list()], dtype=pl.String)


PAGE = 30
"""Number of items per page."""
ORDERS = {
    "": "most disagreement first",
    "distance": "farthest first",
    "study": "as in the study",
    "item": "by id",
    "length": "longest first",
}
SHOWN = {
    "": "all",
    "flipped": "flipped",
    "agreed": "never flipped",
    "unread": "unreadable under some view",
}
TOGETHER = 200_000
"""Number of decisions that are counted together."""
WHOSE = ("rater", "dataset", "level")
"""Filters of the conditions shown side by side."""
LANE = ("rater", "level", "seed", "repeat")
"""Whose one answer under every view it is."""
FILTERS = (*WHOSE, "contrast", "show", "q", "by", "slice")


@dataclass(frozen=True)
class Sought:
    """A selection of items or flips: filters by name, an order, and a page from 1."""

    filters: Mapping[str, str] = field(default_factory=dict, hash=False)
    order: str = ""
    page: int = 1

    @classmethod
    def read(
        cls,
        query: Mapping[str, str],
        names: Sequence[str] = FILTERS,
        orders: Mapping[str, str] = ORDERS,
    ) -> Sought:
        """Read an address; what it does not name is not narrowed."""
        told = {**query, "q": query.get("q", "").strip()}
        filters = {name: told[name] for name in names if told.get(name)}
        order = one_of("order", query.get("order", ""), orders)
        one_of("show", filters.get("show", ""), SHOWN)
        page = query.get("page", "1")
        if not (page.isascii() and page.isdecimal()) or not 0 < len(page) < 10 or not int(page):
            raise Problem(f"page '{page[:80]}' is not a whole number, 1 or more")
        return cls(filters, order, int(page))

    def without(self, *names: str) -> Sought:
        return replace(self, filters={k: v for k, v in self.filters.items() if k not in names})

    def at(self, page: int) -> str:
        """The end of an address that asks for another page."""
        asked = {**self.filters, "order": self.order, "page": page if page > 1 else ""}
        return urlencode({name: value for name, value in asked.items() if value})

    def back(self, **more: object) -> dict[str, object]:
        """Parameters that lead back to this list from what stands in it: they begin with _."""
        asked = {**self.filters, "order": self.order, **more}
        return {f"_{name}": value for name, value in asked.items() if value != ""}

    def __getitem__(self, name: str) -> str:
        return self.filters.get(name, "")


def one_of(name: str, value: str, known: Mapping[str, str]) -> str:
    """A word of an address, which must be one of those that are known."""
    if value not in known:
        raise Problem(f"no {name} '{value[:80]}'; known: {', '.join(filter(None, known))}")
    return value


def led_from(query: Mapping[str, str]) -> dict[str, str]:
    """Parameters of an address about the list that led to it."""
    return {name[1:]: value for name, value in query.items() if name.startswith("_")}


@dataclass(frozen=True)
class ItemGrid:
    """The items of a run under all conditions: none of its tables is read whole.

    What it counts it keeps: it is for one state of the files of its run.
    """

    run: Run

    @property
    def decisions(self) -> pl.LazyFrame:
        return self.run.scan(DECISIONS)

    @property
    def pairs(self) -> tuple[Contrast, ...]:
        """The pairs of views whose answers are laid side by side."""
        return tuple(pair for contrast in self.run.contrasts for pair in contrast.pairs)

    @cached_property
    def columns(self) -> ItemColumns:
        """Columns to slice items by."""
        return item_columns(self.run)

    @cached_property
    def conditions(self) -> pl.DataFrame:
        """Every rater, dataset, level and view there is, in the order of the study."""
        names = ("rater", "dataset", "level", "view")
        return self.decisions.select(names).unique(maintain_order=True).pipe(collected, "streaming")

    def named(self, contrast: str) -> list[Contrast]:
        """The pairs of views that a filter by contrast lets through, all without one."""
        return [one for one in self.pairs if not contrast or is_of(one.name, contrast)]

    def views(self, sought: Sought) -> list[str]:
        """The views that are laid side by side: those of the contrast, if one is named."""
        known = self.conditions["view"].unique(maintain_order=True).to_list()
        if not sought["contrast"]:
            return known
        wanted = {view for one in self.named(sought["contrast"]) for view in one.views}
        return [view for view in known if view in wanted]

    def found(self, sought: Sought) -> pl.DataFrame:
        """The items that fit, in order: dataset, item, n_flips, n_pairs, farthest, n_unread."""
        return self._found(replace(sought, page=1))

    @cached_property
    def _found(self) -> Callable[[Sought], pl.DataFrame]:
        return lru_cache(maxsize=8)(self._find)

    def _find(self, sought: Sought) -> pl.DataFrame:
        wanted = sought.filters
        items = item_texts(self.run, wanted.get("q", ""))
        items = items.select("nth", *KEY, length=pl.col("text").str.len_chars())
        if wanted.get("by") and wanted.get("slice"):
            own = self.columns.of(wanted["by"]).filter(slice=wanted["slice"]).lazy()
            items = items.join(own.select(KEY), on=KEY, how="semi", maintain_order="left")
        tally = self._tally(tuple(sought[name] for name in (*WHOSE, "contrast")))
        found = items.pipe(collected).join(tally, on=KEY, how="inner", maintain_order="left")
        is_shown = {
            "": pl.lit(True),
            "flipped": pl.col("n_flips") > 0,
            "agreed": pl.col("n_flips") == 0,
            "unread": pl.col("n_unread") > 0,
        }
        return _sort_items(found.filter(is_shown[sought["show"]]), sought.order).drop(
            "nth", "length"
        )

    @cached_property
    def _tally(self) -> Callable[[Sequence[str]], pl.DataFrame]:
        return lru_cache(maxsize=8)(self._count)

    def _count(self, whose: Sequence[str]) -> pl.DataFrame:
        """Count flips and pairs of every item: all raters at once take their memory together."""
        *conditions, contrast = whose
        own = self.narrowed(dict(zip(WHOSE, conditions, strict=True)))
        counted = [_tally_of(part, self.named(contrast)) for part in Parts(own, TOGETHER)]
        if len(counted) == 1:
            return counted[0]
        sums = pl.col("n_unread", "n_flips", "n_pairs").sum()
        every = pl.concat(counted).group_by(KEY, maintain_order=True)
        return every.agg(sums, pl.col("farthest").max())

    def cells(self, keys: pl.DataFrame, sought: Sought) -> pl.DataFrame:
        """The answers to some items under all matching conditions."""
        names = (*KEY, "view", *LANE, "rank", "fault", "n_classes")
        return (
            self.narrowed(sought.filters)
            .filter(pl.col("item").is_in(keys["item"].unique().to_list()))
            .join(keys.lazy().select(KEY), on=KEY, how="semi", maintain_order="left")
            .select(names)
            .pipe(collected, "streaming")
        )

    def compared(self, keys: pl.DataFrame, sought: Sought) -> pl.DataFrame:
        """The pairs of answers to some items, with `is_flip`."""
        own = self.narrowed(sought.filters).filter(
            pl.col("item").is_in(keys["item"].unique().to_list())
        )
        rows = lazy_pairs(own, self.named(sought["contrast"])).with_columns(is_flip=IS_FLIP)
        names = (*SAME, "contrast", "rank", "rank_b", "fault", "fault_b", "distance", "is_flip")
        return (
            rows.select(names)
            .join(keys.lazy().select(KEY), on=KEY, how="semi", maintain_order="left")
            .pipe(collected)
        )

    def texts(self, keys: pl.DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
        """Text, fields and gold of some items by dataset and id."""
        wanted = item_texts(self.run).filter(pl.col("item").is_in(keys["item"].to_list()))
        rows = wanted.drop("nth").pipe(collected).iter_rows(named=True)
        return {(row["dataset"], row["item"]): row for row in rows}

    def narrowed(self, filters: Mapping[str, str]) -> pl.LazyFrame:
        wanted = {name: filters[name] for name in WHOSE if filters.get(name)}
        return self.decisions.filter(
            pl.lit(True),
            *(pl.col(name) == _value_or_blank(name, value) for name, value in wanted.items()),
        )


def _value_or_blank(name: str, value: str) -> str:
    return "" if value == NAMELESS.get(name) else value


def _sort_items(found: pl.DataFrame, order: str) -> pl.DataFrame:
    share = pl.col("n_flips") / pl.col("n_pairs")
    keys = {
        "": [share, pl.col("n_flips"), pl.col("farthest")],
        "distance": [pl.col("farthest"), share],
        "study": [],
        "item": [],
        "length": [pl.col("length")],
    }[order]
    last = [pl.col("item"), pl.col("nth")] if order == "item" else [pl.col("nth")]
    falls = [True] * len(keys) + [False] * len(last)
    return found.sort([*keys, *last], descending=falls, nulls_last=True)


def _tally_of(own: pl.LazyFrame, contrasts: Sequence[Contrast]) -> pl.DataFrame:
    """The counts of some decisions, contrast by contrast."""
    asked = own.group_by(KEY).agg(n_unread=(pl.col("rank") == 0).sum())
    total = asked.pipe(collected, "streaming").with_columns(
        n_flips=pl.lit(0, pl.Int64), n_pairs=pl.lit(0, pl.Int64), farthest=pl.lit(None, pl.Float64)
    )
    for contrast in contrasts:
        counted = (
            lazy_pairs(own, [contrast])
            .group_by(KEY)
            .agg(
                flips=IS_FLIP.sum().cast(pl.Int64),
                pairs=pl.len().cast(pl.Int64),
                far=pl.col("distance").filter(IS_FLIP).max().cast(pl.Float64),
            )
        )
        both = total.join(counted.pipe(collected, "streaming"), on=KEY, how="left")
        total = both.with_columns(
            n_flips=pl.col("n_flips") + pl.col("flips").fill_null(0),
            n_pairs=pl.col("n_pairs") + pl.col("pairs").fill_null(0),
            farthest=pl.max_horizontal("farthest", "far"),
        ).drop("flips", "pairs", "far")
    return total


MOST_DECISIONS = 100_000
"""Slices of more decisions take too long for a report; the viewer measures them."""


def sliced(
    grid: ItemGrid, column: str, contrasts: Sequence[Contrast], whose: Mapping[str, str]
) -> pl.DataFrame:
    """Flip rates of every slice of a column under some conditions, as `slice_rates` has them."""
    views = [view for one in contrasts for view in one.views]
    rows = (
        grid.narrowed(whose)
        .filter(pl.col("view").is_in(views), pl.col("repeat") == 0)
        .drop("probabilities", strict=False)
        .pipe(collected, "streaming")
    )
    return slice_rates(rows, grid.columns.of(column), contrasts)


def report_slices(found: Findings, run: Run) -> Iterator[tuple[str, str, pl.DataFrame]]:
    """Yield column, contrast and rates at the base, for the contrast with the worst verdict."""
    judged = found.verdicts.filter(pl.col("value").is_not_null(), level="")
    if judged.is_empty() or int(found.tally["n"].sum()) > MOST_DECISIONS:
        return
    worst = str(judged["contrast"][0])
    grid = ItemGrid(run)
    named = [one for one in run.contrasts if one.name == worst]
    for column in grid.columns.by_name:
        yield column, worst, sliced(grid, column, named, {"level": NAMELESS["level"]})


ROOM = 400_000
"""Number of bytes for the pictures of the grid in a report."""
MOST_COLUMNS = 12
"""Raters or levels side by side in a report."""


def grid_page(grid: ItemGrid, sought: Sought) -> GridPage:
    """Lay a page of items side by side under all conditions that fit."""
    found = grid.found(sought)
    start = (sought.page - 1) * PAGE
    keys = found.slice(start, PAGE)
    cells = grid.cells(keys, sought)
    layout = _Layout.of(cells)
    return GridPage(
        list(_drawn_grid_rows(grid, keys, cells, layout, grid.views(sought))),
        [name or NAMELESS["level"] for name in layout.columns],
        grid.views(sought),
        layout.names,
        len(layout.lines) > MOST_LINES,
        {dataset: one.legend for dataset, one in classes_of(grid, cells).items()},
        len(found),
        start + 1,
        -(-len(found) // PAGE),
    )


def report_grid(found: Findings, run: Run) -> GridPage | None:
    """The items that disagree most with themselves, as many as a report has room for."""
    page = grid_page(ItemGrid(run), Sought({"show": "flipped"}))
    if not page.rows:
        return None
    severity = {
        str(name or NAMELESS["level"]): place
        for key in ("level", "rater")
        for place, name in enumerate(found.verdicts[key].unique(maintain_order=True))
    }
    worst = sorted(range(len(page.heads)), key=lambda at: severity.get(page.heads[at], at))
    kept = sorted(worst[:MOST_COLUMNS])
    rows = list(_rows_with_room(page.rows, kept))
    n_items, n_columns = page.n_items - len(rows), len(page.heads) - len(kept)
    left = [
        f"{n_items:,} more items with less disagreement" * (n_items > 0),
        f"{n_columns:,} of {len(page.heads):,} columns with less severe verdicts" * (n_columns > 0),
    ]
    told = f"{' and '.join(filter(None, left))} are left out; `flipmeter view RUN` shows all."
    heads, notes = [page.heads[at] for at in kept], [told] if any(left) else []
    return replace(page, rows=rows, heads=heads, notes=notes)


def _rows_with_room(rows: Sequence[GridRow], columns: Sequence[int]) -> Iterator[GridRow]:
    """Yield rows with some of their columns while there is room, one at least."""
    room = ROOM
    for nth, row in enumerate(rows):
        pictures = [row.pictures[at] for at in columns]
        room -= sum(map(len, pictures))
        if nth and room < 0:
            return
        yield replace(row, pictures=pictures)


def _drawn_grid_rows(
    grid: ItemGrid, keys: pl.DataFrame, cells: pl.DataFrame, layout: _Layout, views: Sequence[str]
) -> Iterator[GridRow]:
    classes, texts = classes_of(grid, cells), grid.texts(keys)
    ranks: dict[tuple[str, str], dict[tuple[Any, ...], int]] = {}
    for dataset, item, *at, rank in cells.select(*KEY, "view", *LANE, "rank").iter_rows():
        ranks.setdefault((dataset, item), {})[tuple(at)] = rank
    for row in keys.iter_rows(named=True):
        key = row["dataset"], row["item"]
        about = texts.get(key, {})
        yield GridRow(
            key,
            str(about.get("text") or ""),
            gold_of(grid, key, about),
            row["n_flips"],
            row["n_pairs"],
            row["n_unread"],
            list(layout.pictures(ranks[key], views, classes[key[0]])),
        )


def classes_of(grid: ItemGrid, cells: pl.DataFrame) -> dict[str, DrawnClasses]:
    """The classes of every dataset that some answers are of."""
    known = grid.run.scales
    sizes = cells.group_by("dataset", maintain_order=True).agg(pl.col("n_classes").max())
    return {name: DrawnClasses(known.get(name), int(n or 1)) for name, n in sizes.iter_rows()}


@dataclass(frozen=True)
class _Layout:
    """Columns are raters and lines their levels, or the other way round where there is one rater.

    A line also has a seed and a repeat.
    """

    are_raters: bool
    columns: Sequence[str]
    lines: Sequence[tuple[str, int, int]]

    @classmethod
    def of(cls, cells: pl.DataFrame) -> _Layout:
        are_raters = cells["rater"].n_unique() > 1
        across, down = ("rater", "level") if are_raters else ("level", "rater")
        places = {name: at for at, name in enumerate(cells[down].unique(maintain_order=True))}
        lines = cells.select(down, "seed", "repeat").unique().rows()
        lines.sort(key=lambda line: (places[line[0]], *line[1:]))
        return cls(are_raters, cells[across].unique(maintain_order=True).to_list(), lines)

    @property
    def names(self) -> list[str]:
        """The names of the lines."""
        return [
            f"{name or NAMELESS['level']} · seed {seed}" + (f" · repeat {nth}" if nth else "")
            for name, seed, nth in self.lines
        ]

    def pictures(
        self, ranks: Mapping[tuple[Any, ...], int], views: Sequence[str], classes: DrawnClasses
    ) -> Iterator[Markup]:
        """Draw what one item was called, column by column."""
        for column in self.columns:
            lanes = [
                (column, name, *rest) if self.are_raters else (name, column, *rest)
                for name, *rest in self.lines
            ]
            drawn = [[ranks.get((view, *lane), NOT_ASKED) for view in views] for lane in lanes]
            yield picture(drawn, views, classes)


def gold_of(grid: ItemGrid, key: tuple[str, str], about: Mapping[str, Any]) -> str:
    """The name of an item's gold class, nothing where it has none."""
    gold = about.get("gold")
    return class_name(grid.run.scales, key[0], gold) if gold else ""
