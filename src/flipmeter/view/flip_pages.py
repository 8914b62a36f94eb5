"""decisions.parquet -> flips: counted once, then read a page at a time, never whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

import polars as pl

from flipmeter.base.files.parquet import collected
from flipmeter.report.page.filters import NAMELESS, TITLES, choice, is_of
from flipmeter.report.pairs import DISTANCE, IS_FLIP, SAME, flipped, lazy_pairs
from flipmeter.run.record.folder import Run
from flipmeter.run.record.generation import DECISIONS
from flipmeter.run.results.item_columns import item_texts
from flipmeter.run.results.item_grid import one_of, read_page
from flipmeter.types import Contrast, Problem
from flipmeter.view.folders import Stamp

PAGE = 50
"""Number of flips per page."""
ORDERS = {"": "as in the study", "distance": "farthest first", "item": "by item"}
KEY = (*SAME, "contrast")
"""The keys that identify a flip."""

GOES_BY = {
    **{name: pl.col(name) for name in TITLES},
    "distance": DISTANCE,
    "fault": pl.when(pl.col("fault") != "").then("fault").otherwise("fault_b"),
}
"""The column of each filter; 'base' and 'none' are empty there."""


@dataclass(frozen=True)
class Wanted:
    """A selection of flips: filters by attribute, an order, a page from 1."""

    filters: Mapping[str, str] = field(default_factory=dict)
    order: str = ""
    page: int = 1
    text: str = ""

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Wanted:
        """Read an address; what it does not name is not narrowed."""
        filters = {name: query[name] for name in TITLES if query.get(name)}
        order = one_of("order", query.get("order", ""), ORDERS)
        return cls(filters, order, read_page(query), query.get("q", "").strip())

    @property
    def unread(self) -> str:
        """The query of the items that cannot be read under the conditions of this selection."""
        named = ("rater", "dataset", "level", "contrast")
        return urlencode({n: v for n, v in self.filters.items() if n in named} | {"show": "unread"})

    def at(self, page: int) -> str:
        """The query string of another page of the same list."""
        return urlencode(self.asked | ({"page": page} if page > 1 else {}))

    @property
    def asked(self) -> dict[str, str]:
        """Everything that an address names, but for the page."""
        named = {**self.filters, "order": self.order, "q": self.text}
        return {name: value for name, value in named.items() if value}

    def without(self, *names: str) -> Wanted:
        return replace(self, filters={k: v for k, v in self.filters.items() if k not in names})

    def matches(self) -> pl.Expr:
        return pl.all_horizontal(pl.lit(True), *(_is(*one) for one in self.filters.items()))


def _is(name: str, value: str) -> pl.Expr:
    """Whether a row of the counts fits a filter; a contrast of many views has a row for each."""
    column = pl.col(name)
    if name == "contrast":
        return (column == value) | column.str.starts_with(f"{value}:")
    return column == value


@dataclass(frozen=True)
class Option:
    """A value that a filter may be set to, and how many flips there would be."""

    value: str
    n: int


@dataclass(frozen=True)
class Filter:
    title: str
    name: str
    chosen: str
    options: Sequence[Option]


@dataclass(frozen=True)
class Flips:
    """The flips of a run, or of its items that have a text; `stamp` says which state of its files.

    They are kept for long: the tables of this `run` should not be read whole.
    """

    run: Run
    stamp: Stamp = ()
    text: str = ""

    @property
    def contrasts(self) -> tuple[Contrast, ...]:
        """The pairs of views whose answers are laid side by side."""
        return tuple(pair for contrast in self.run.contrasts for pair in contrast.pairs)

    @property
    def decisions(self) -> pl.LazyFrame:
        every = self.run.scan(DECISIONS)
        if not self.text:
            return every
        some = item_texts(self.run, self.text).select("dataset", "item").pipe(collected)
        near = every.filter(pl.col("item").is_in(some["item"].unique().to_list()))
        return near.join(some.lazy(), on=("dataset", "item"), how="semi", maintain_order="left")

    @property
    def counts(self) -> pl.DataFrame:
        """The number of flips of every kind; the counts of all filters come from it."""
        return _counts(self)

    def n(self, wanted: Wanted) -> int:
        return int(self.counts.filter(wanted.matches())["n"].sum())

    def filters(self, wanted: Wanted) -> list[Filter]:
        """The available filters, with the number of flips under the other filters."""
        return [self._filter(name, wanted) for name in TITLES]

    def _filter(self, name: str, wanted: Wanted) -> Filter:
        every = choice(name, self.counts[name])
        others = self.counts.filter(wanted.without(name).matches())
        counted = ((value, others.filter(_is(name, value))["n"].sum()) for value in every.values)
        options = [Option(value, int(n)) for value, n in counted]
        return Filter(every.title, name, wanted.filters.get(name, ""), options)

    def page(self, wanted: Wanted) -> pl.DataFrame:
        """The pairs that stand on a page."""
        return self.some(wanted, (wanted.page - 1) * PAGE, PAGE)

    def some(self, wanted: Wanted, start: int, size: int) -> pl.DataFrame:
        """Some pairs of a list; those before them are passed over, not kept."""
        if wanted.order == "item":
            rows = self._fitting(wanted).sort("item", maintain_order=True)
            return rows.slice(start, size).pipe(collected, "streaming")
        found = [self._pairs([]).pipe(collected)]
        for stretch in self._stretches(wanted):
            n = self.n(stretch)
            stop = min(start + size - sum(map(len, found)), n)
            if start < stop:
                rows = self._fitting(stretch).slice(start, stop - start)
                found.append(rows.pipe(collected, "streaming"))
            start = max(start - n, 0)
        return pl.concat(found)

    def _stretches(self, wanted: Wanted) -> Iterator[Wanted]:
        """Yield what follows each other in an order: counting takes the place of sorting."""
        farthest = sorted(set(self.counts["distance"]), key=lambda d: -float(d or 0))
        for distance in farthest if wanted.order == "distance" else [None]:
            if distance is not None and wanted.filters.get("distance", distance) != distance:
                continue
            own = {} if distance is None else {"distance": distance}
            for contrast in self._named(wanted):
                yield Wanted({**wanted.filters, **own, "contrast": contrast.name})

    def _named(self, wanted: Wanted) -> list[Contrast]:
        """The pairs of views that a filter by contrast lets through."""
        only = wanted.filters.get("contrast")
        return [one for one in self.contrasts if only is None or is_of(one.name, only)]

    def _fitting(self, wanted: Wanted) -> pl.LazyFrame:
        rows = self._pairs(self._named(wanted))
        for name, value in wanted.without("contrast").filters.items():
            rows = rows.filter(GOES_BY[name] == ("" if value == NAMELESS.get(name) else value))
        return rows

    def row(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """One pair of answers, whether they differ or not; None if it is not there."""
        where = [pl.col(name) == key[name] for name in KEY]
        named = [c for c in self.contrasts if c.name == key["contrast"]]
        pairs = lazy_pairs(self.decisions.filter(pl.col("item") == key["item"]), named)
        found = pairs.with_columns(is_flip=IS_FLIP).filter(where).head(1).pipe(collected)
        return found.row(0, named=True) if len(found) else None

    def views(self, key: Mapping[str, Any]) -> pl.DataFrame:
        """The classes that one rater gave one item, by view."""
        where = [pl.col(name) == key[name] for name in SAME]
        names = ("view", "repeat", "rank", "fault")
        return self.decisions.filter(where).select(names).pipe(collected, "streaming")

    def _pairs(self, contrasts: Sequence[Contrast]) -> pl.LazyFrame:
        return flipped(lazy_pairs(self.decisions, contrasts))


@lru_cache(maxsize=64)
def _counts(flips: Flips) -> pl.DataFrame:
    """Count contrast by contrast: all at once takes the memory of all of them."""
    goes_by = [expression.alias(name) for name, expression in GOES_BY.items()]
    kinds = [
        flips._pairs(some).group_by(goes_by).agg(n=pl.len()).pipe(collected, "streaming")
        for some in ([], *([contrast] for contrast in flips.contrasts))
    ]
    called = [pl.col(name).replace("", NAMELESS.get(name, "")) for name in TITLES]
    return pl.concat(kinds).with_columns(called).sort(*TITLES)


def read_key(query: Mapping[str, str]) -> dict[str, Any]:
    """Read from an address which flip is meant."""
    missing = [name for name in KEY if name not in query]
    if missing:
        raise Problem(f"the URL of a flip needs {', '.join(missing)}")
    if not query["seed"].removeprefix("-").isdecimal():
        raise Problem(f"seed '{query['seed'][:80]}' is not a whole number")
    return {name: query[name] for name in KEY} | {"seed": int(query["seed"])}


def read_place(told: Mapping[str, str]) -> int | None:
    """Read the place of a flip in the list that led to it, from 0; None if unknown."""
    place = told.get("n", "")
    is_place = place.isascii() and place.isdecimal() and len(place) < 10
    return int(place) if is_place else None
