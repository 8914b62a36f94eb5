"""decisions.parquet -> flips: counted once, then read a page at a time, never whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import polars as pl

from flipmeter.errors import Problem
from flipmeter.parquet import collected
from flipmeter.show.item_grid import ItemGrid, Sought, item_texts
from flipmeter.show.page.markup import NAMELESS, TITLES, Menu, excerpt, values_of
from flipmeter.show.pairs import DISTANCE, IS_FLIP, SAME, flipped, lazy_pairs
from flipmeter.show.view.folders import ChosenRuns, Stamp
from flipmeter.types import Contrast

PAGE = 50
"""Number of flips per page."""
FILTERS = (*TITLES, "q")
ORDERS = {"": "as in the study", "distance": "farthest first", "item": "by item"}
KEY = (*SAME, "contrast")
"""The keys that identify a flip."""
LIBRARIES = 8
"""Number of states of runs whose counts are kept."""

GOES_BY = {
    **{name: pl.col(name) for name in TITLES},
    "distance": DISTANCE,
    "fault": pl.when(pl.col("fault") != "").then("fault").otherwise("fault_b"),
}
"""The column of each filter; 'base' and 'none' are empty there."""


def _fits_filter(name: str, value: str) -> pl.Expr:
    """Whether a row of the counts fits a filter; a contrast of many views has a row for each."""
    column = pl.col(name)
    if name == "contrast":
        return (column == value) | column.str.starts_with(f"{value}:")
    return column == value


@dataclass(frozen=True)
class Flips(ItemGrid):
    """The flips of a run; a selection with a text has those of the items that have it."""

    @cached_property
    def counts(self) -> Callable[[str], pl.DataFrame]:
        """The number of flips of every kind, by text; the counts of all filters come from it."""
        return lru_cache(maxsize=8)(self._counts)

    def _counts(self, text: str) -> pl.DataFrame:
        """Count contrast by contrast: all at once takes the memory of all of them."""
        goes_by = [expression.alias(name) for name, expression in GOES_BY.items()]
        kinds = [
            self._flipped(some, text).group_by(goes_by).agg(n=pl.len()).pipe(collected, "streaming")
            for some in ([], *([contrast] for contrast in self.pairs))
        ]
        called = [pl.col(name).replace("", NAMELESS.get(name, "")) for name in TITLES]
        return pl.concat(kinds).with_columns(called).sort(*TITLES)

    def _counted(self, wanted: Sought) -> pl.DataFrame:
        fits = (_fits_filter(*one) for one in wanted.without("q").filters.items())
        return self.counts(wanted["q"]).filter(pl.all_horizontal(pl.lit(True), *fits))

    def n(self, wanted: Sought) -> int:
        return int(self._counted(wanted)["n"].sum())

    def options(self, name: str, wanted: Sought) -> dict[str, int]:
        """The number of flips by value of a filter, under the other filters."""
        others = self._counted(wanted.without(name))
        every = values_of(name, self.counts(wanted["q"])[name])
        return {value: int(others.filter(_fits_filter(name, value))["n"].sum()) for value in every}

    def menus(self, wanted: Sought) -> list[Menu]:
        """The filters that would hide something, with their numbers of flips, and the order."""
        found = []
        for name, title in TITLES.items():
            counted = self.options(name, wanted).items()
            called = [(value, f"{excerpt(value, 50)} ({n:,})") for value, n in counted]
            found.append(Menu(name, title, called, wanted[name]))
        shown = [menu for menu in found if menu.is_shown]
        return [*shown, Menu("order", "Order", list(ORDERS.items()), wanted.order, "")]

    def page(self, wanted: Sought) -> pl.DataFrame:
        """The pairs that stand on a page."""
        return self.some(wanted, (wanted.page - 1) * PAGE, PAGE)

    def some(self, wanted: Sought, start: int, size: int) -> pl.DataFrame:
        """Some pairs of a list; those before them are passed over, not kept."""
        if wanted.order == "item":
            rows = self._fitting(wanted).sort("item", maintain_order=True)
            return rows.slice(start, size).pipe(collected, "streaming")
        found = [self._flipped([]).pipe(collected)]
        for stretch in self._stretches(wanted):
            n = self.n(stretch)
            stop = min(start + size - sum(map(len, found)), n)
            if start < stop:
                rows = self._fitting(stretch).slice(start, stop - start)
                found.append(rows.pipe(collected, "streaming"))
            start = max(start - n, 0)
        return pl.concat(found)

    def _stretches(self, wanted: Sought) -> Iterator[Sought]:
        """Yield what follows each other in an order: counting takes the place of sorting."""
        farthest = sorted(set(self.counts(wanted["q"])["distance"]), key=lambda d: -float(d or 0))
        for distance in farthest if wanted.order == "distance" else [None]:
            if distance is not None and wanted.filters.get("distance", distance) != distance:
                continue
            own = {} if distance is None else {"distance": distance}
            for contrast in self.named(wanted["contrast"]):
                yield replace(wanted, filters={**wanted.filters, **own, "contrast": contrast.name})

    def _fitting(self, wanted: Sought) -> pl.LazyFrame:
        rows = self._flipped(self.named(wanted["contrast"]), wanted["q"])
        for name, value in wanted.without("contrast", "q").filters.items():
            rows = rows.filter(GOES_BY[name] == ("" if value == NAMELESS.get(name) else value))
        return rows

    def _flipped(self, contrasts: Sequence[Contrast], text: str = "") -> pl.LazyFrame:
        decisions = self.decisions
        if text:
            some = item_texts(self.run, text).select("dataset", "item").pipe(collected)
            near = decisions.filter(pl.col("item").is_in(some["item"].unique().to_list()))
            whose = ("dataset", "item")
            decisions = near.join(some.lazy(), on=whose, how="semi", maintain_order="left")
        return flipped(lazy_pairs(decisions, contrasts))

    def row(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """One pair of answers, whether they differ or not; None if it is not there."""
        where = [pl.col(name) == key[name] for name in KEY]
        named = [c for c in self.pairs if c.name == key["contrast"]]
        pairs = lazy_pairs(self.decisions.filter(pl.col("item") == key["item"]), named)
        found = pairs.with_columns(is_flip=IS_FLIP).filter(where).head(1).pipe(collected)
        return found.row(0, named=True) if len(found) else None

    def answers(self, key: Mapping[str, Any]) -> pl.DataFrame:
        """The classes that one rater gave one item, by view."""
        where = [pl.col(name) == key[name] for name in SAME]
        names = ("view", "repeat", "rank", "fault")
        return self.decisions.filter(where).select(names).pipe(collected, "streaming")


def flips_of(chosen: ChosenRuns) -> Flips:
    """The items and flips of some runs, counted once for every state of their files.

    They are kept for long: the tables of their run should not be read whole.
    """
    return _flips_of(chosen, chosen.stamp)


@lru_cache(maxsize=LIBRARIES)
def _flips_of(chosen: ChosenRuns, stamp: Stamp) -> Flips:
    return Flips(chosen.run)


def read_key(query: Mapping[str, str]) -> dict[str, Any]:
    """Read from an address which flip is meant."""
    missing = [name for name in KEY if name not in query]
    if missing:
        raise Problem(f"the URL of a flip needs {', '.join(missing)}")
    if not query["seed"].removeprefix("-").isdecimal():
        raise Problem(f"seed '{query['seed'][:80]}' is not a whole number")
    return {name: query[name] for name in KEY} | {"seed": int(query["seed"])}
