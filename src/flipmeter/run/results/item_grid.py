"""decisions.parquet -> items: how often each disagrees with itself, a page of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import urlencode

import polars as pl

from flipmeter.base.files.parquet import collected
from flipmeter.measure import Parts
from flipmeter.report.page.filters import NAMELESS, is_of
from flipmeter.report.pairs import IS_FLIP, SAME, lazy_pairs
from flipmeter.run.record.folder import Run
from flipmeter.run.record.generation import DECISIONS
from flipmeter.run.results.item_columns import KEY, ItemColumns, item_columns, item_texts
from flipmeter.types import Contrast, Problem

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
        return _sorted(found.filter(is_shown[sought["show"]]), sought.order).drop("nth", "length")

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
            pl.lit(True), *(pl.col(name) == _bare(name, value) for name, value in wanted.items())
        )


def _bare(name: str, value: str) -> str:
    return "" if value == NAMELESS.get(name) else value


def _sorted(found: pl.DataFrame, order: str) -> pl.DataFrame:
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
