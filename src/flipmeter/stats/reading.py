"""Decisions -> panels: column by column, so that a table is never held whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from flipmeter.errors import Problem
from flipmeter.parquet import collected
from flipmeter.stats.frame import (
    RANGE,
    Decisions,
    ScaleUnits,
    Scanned,
    distinct,
    read_span,
    scanned,
    typed,
)
from flipmeter.stats.groups import Floats, Groups, Ints
from flipmeter.stats.panel import ABSENT, KEY, UNKNOWN, Laid, Panel, Placement, Run

BASE = "base"


def read_panel(
    decisions: Decisions | Panel,
    reproducible: Collection[str] = (),
    weights: Mapping[str, Sequence[float]] | None = None,
    scales: Mapping[str, Sequence[str]] | None = None,
    whole: Whole | None = None,
    available: Mapping[str, int] | None = None,
) -> Panel:
    """Lay decisions out by item and run, sorted by rater, dataset, level and seed.

    A panel is one already: for several measurements, decisions are read once. `whole` is the
    table that they are a part of.
    """
    if isinstance(decisions, Panel):
        return decisions
    rows = scanned(decisions)
    on = _lay_out(rows, whole)
    keys, of_each = on.keys, _Somewhere(rows, on.group, on.keys.height)
    of_unit = _Somewhere(rows, on.unit, len(on.units))
    known = None if whole is None else whole.clusters
    cluster_names, numbers = _index_values(rows.column(CLUSTER.cast(pl.Categorical)), known)
    cluster, gold = np.zeros((2, len(on.units)), dtype=np.int64)
    cluster[on.unit] = numbers
    if "gold" in rows.told:
        np.maximum.at(gold, on.unit, rows.column(pl.col("gold").fill_null(0)).to_numpy())
    n_replies = pl.col("n_calls").fill_null(1).clip(lower_bound=1)
    return Panel(
        keys=keys,
        nominal=np.array(of_each.told("nominal", False)),
        reproducible=np.array([rater in reproducible for rater in keys["rater"]]),
        n_classes=_n_classes(keys, on.group, rows.column("n_classes").to_numpy()),
        labels=of_each.told("labels", ""),
        groups=Groups(on.units // on.n_items, keys.height, cluster),
        item=on.units % on.n_items,
        reference=on.reference,
        gold=gold,
        cluster=cluster,
        ranks=on.laid(rows, "rank", np.int64, ABSENT),
        errors=on.laid(rows, "fault", np.bool_, False, pl.col("fault") == "error"),
        label_mass=on.laid(rows, "label_mass", np.float64, np.nan),
        slots=on.laid(rows, "slot", np.int64, 0),
        places=Placement(
            on.laid(rows, "place", np.int64, 0),
            on.laid(rows, "gold_place", np.int64, 0),
            np.array(of_unit.told("n_places", 0), dtype=np.int64),
        ),
        systems=pl.DataFrame(
            {name: of_unit.column(name) for name in ("system_a", "system_b")},
        ),
        prompts=on.laid(rows, "prompt", np.uint64, UNKNOWN, _hash_column("prompt")),
        units=ScaleUnits(
            [read_span(*one) for one in zip(*(of_each.told(n) for n in RANGE), strict=True)]
        ),
        probabilities=_at_base(rows, on),
        replies=Groups(on.group, keys.height),
        calls=_calls_by_decision(rows, on),
        completion=_read_token_counts(
            rows, "completion_tokens", pl.col("completion_tokens") / n_replies
        ),
        reasoning=_read_token_counts(
            rows, "reasoning_tokens", pl.col("reasoning_tokens") / n_replies
        ),
        weights={name: np.asarray(one, dtype=np.float64) for name, one in (weights or {}).items()},
        scales=scales or {},
        available=available or {},
        cluster_names=cluster_names.to_list(),
        orbits=on.laid(rows, "orbit", np.uint64, UNKNOWN, _hash_column("orbit")),
        declared=_declared_invariances(rows, on.group),
        item_names=on.items,
        beside=() if whole is None else whole.views,
    )


# --- many at a time ---------------------------------------------------------------------------

TOGETHER = 1_000_000
"""So many decisions are looked at together; of more, one rater on one dataset after the other."""


@dataclass(frozen=True)
class Parts:
    """Decisions cut into whole raters on whole datasets, in their order, none of them read yet."""

    decisions: pl.LazyFrame
    together: int = field(default_factory=lambda: TOGETHER)

    def __iter__(self) -> Iterator[pl.LazyFrame]:
        if self.is_one:
            yield self.decisions
            return
        for part, is_mine in zip(self._whose, self.filters, strict=True):
            own = [self._stretches[whose] for whose in part]
            start, n = min(one.start for one in own), sum(one.n for one in own)
            is_whole = max(one.end for one in own) - start == n
            # What lies in one stretch is found without reading the rest.
            yield self.decisions.slice(start, n) if is_whole else self.decisions.filter(is_mine)

    @property
    def filters(self) -> list[pl.Expr]:
        """For each part, whether a decision is in it."""
        if self.is_one:
            return [pl.lit(True)]
        rater, dataset = pl.col("rater"), pl.col("dataset")
        return [
            pl.any_horizontal((rater == one) & (dataset == other) for one, other in part)
            for part in self._whose
        ]

    @property
    def is_one(self) -> bool:
        return len(self._whose) == 1

    @cached_property
    def _stretches(self) -> dict[tuple[str, str], _Stretch]:
        """The rows of each rater on each dataset."""
        rows = self.decisions.select("rater", "dataset").with_row_index("nth")
        places = rows.group_by("rater", "dataset").agg(
            start=pl.col("nth").min(), end=pl.col("nth").max() + 1, n=pl.len()
        )
        found = places.sort("rater", "dataset").pipe(collected, "streaming")
        return {(rater, dataset): _Stretch(*at) for rater, dataset, *at in found.iter_rows()}

    @cached_property
    def _whose(self) -> list[list[tuple[str, str]]]:
        """Raters and datasets that are looked at together."""
        parts: list[list[tuple[str, str]]] = [[]]
        n_held = 0
        for whose, stretch in self._stretches.items():
            if parts[-1] and n_held + stretch.n > self.together:
                parts.append([])
                n_held = 0
            parts[-1].append(whose)
            n_held += stretch.n
        return parts


@dataclass(frozen=True)
class _Stretch:
    """The first row of some, the one behind the last, and how many there are."""

    start: int
    end: int
    n: int


@dataclass(frozen=True)
class Whole:
    """Facts about all decisions that a part lacks: items and clusters by name, views, reference.

    Numbers of items and clusters mean the same in all parts.
    """

    items: pl.Series
    clusters: pl.Series
    views: Sequence[str]
    reference: str

    @classmethod
    def of(cls, parts: Iterable[pl.LazyFrame], decisions: pl.LazyFrame) -> Whole:
        """Names are found a part at a time: those of a large table at once take much room."""
        items, clusters = (pl.Series(dtype=pl.String) for _ in range(2))
        for part in parts:
            rows = typed(part).select("item", cluster=CLUSTER)
            own = [rows.select(name).pipe(collected, "streaming") for name in ("item", "cluster")]
            items, clusters = (
                pl.concat([known, found.to_series().unique()]).unique()
                for known, found in zip((items, clusters), own, strict=True)
            )
        shown = distinct(decisions, "view", "repeat")
        views = [view for view, _ in shown]
        return cls(
            items.sort(),
            clusters.sort(),
            list(dict.fromkeys(view for view, repeat in shown if repeat == 0)),
            BASE if BASE in views else views[0],
        )


@dataclass(frozen=True)
class Panels:
    """The panels of parts of decisions: what is measured of each is as it is of all together.

    The panel of a table that is one part is kept. `first_only` leaves out repeats of views.
    """

    parts: Parts
    reproducible: Collection[str] = ()
    weights: Mapping[str, Sequence[float]] | None = None
    scales: Mapping[str, Sequence[str]] | None = None
    first_only: bool = False
    available: Mapping[str, int] | None = None

    def __iter__(self) -> Iterator[Panel]:
        if self.parts.is_one:
            yield self.whole
            return
        whole = Whole.of(map(self._asked, self.parts), self._asked(self.parts.decisions))
        for part in self.parts:
            yield self._read(part, whole)

    @cached_property
    def whole(self) -> Panel:
        """All decisions as one panel."""
        return self._read(self.parts.decisions)

    def _read(self, decisions: pl.LazyFrame, whole: Whole | None = None) -> Panel:
        own = self._asked(decisions)
        return read_panel(own, self.reproducible, self.weights, self.scales, whole, self.available)

    def _asked(self, decisions: pl.LazyFrame) -> pl.LazyFrame:
        return decisions.filter(repeat=0) if self.first_only else decisions


def panels_of(
    decisions: Decisions | Panel | Panels, reproducible: Collection[str] = ()
) -> Iterable[Panel]:
    """Decisions as panels: those that are held as one, those of a scan a part at a time."""
    if isinstance(decisions, Panels):
        return decisions
    if isinstance(decisions, pl.LazyFrame):
        return Panels(Parts(decisions), reproducible)
    return (read_panel(decisions, reproducible),)


def first_panels(decisions: Decisions) -> Iterable[Panel]:
    """Decisions without repeats of views, as panels."""
    if isinstance(decisions, pl.LazyFrame):
        return Panels(Parts(decisions), first_only=True)
    return (read_panel(decisions.filter(repeat=0)),)


# --- where decisions stand --------------------------------------------------------------------


@dataclass(frozen=True)
class _Standing:
    """The group, the unit (an item of a group) and the run of every decision."""

    keys: pl.DataFrame
    group: Ints
    items: pl.Series
    units: Ints
    unit: Ints
    runs: Mapping[Run, int]
    run: Ints
    reference: str

    @property
    def n_items(self) -> int:
        return len(self.items)

    @cached_property
    def cell(self) -> Ints:
        """Index of every decision in a table of runs x units."""
        kind = _smallest_int_type(len(self.runs) * len(self.units))
        found: Ints = self.run.astype(kind) * kind.type(len(self.units)) + self.unit.astype(kind)
        return found

    def laid(
        self,
        rows: Scanned,
        name: str,
        kind: type[np.generic],
        blank: float,
        value: pl.Expr | None = None,
    ) -> Laid:
        """A column as runs x units, `blank` where it is empty."""
        if name not in rows.told:
            return Laid(self.runs, len(self.units), kind, blank)
        values = rows.column((pl.col(name) if value is None else value).fill_null(blank)).to_numpy()
        kept = np.dtype(kind)
        if kind is np.int64:  # the smallest whole numbers that hold these
            lowest, highest = int(values.min()), int(values.max())
            kept = np.min_scalar_type(min(lowest, -highest - 1, ABSENT))
        table = np.full((len(self.runs), len(self.units)), blank, kept)
        table.reshape(-1)[self.cell] = values
        return Laid(self.runs, len(self.units), kind, blank, table)


def _smallest_int_type(highest: int) -> np.dtype[Any]:
    """The smallest whole numbers that count so far; those of a large table count themselves."""
    return np.min_scalar_type(-highest - 1)


def _lay_out(rows: Scanned, whole: Whole | None) -> _Standing:
    """Find groups, units and runs; a decision that appears twice is refused."""
    keys, group = _group_decisions(rows)
    items, item = _index_values(
        _read_key_column(rows, "item"), None if whole is None else whole.items
    )
    units, unit = _index_values(pl.Series(group.astype(np.int64) * len(items) + item))
    del item  # of a large table each of these counts
    shown = _read_key_column(rows, "view")
    views, view = _index_values(shown)
    codes, run = _index_values(pl.Series(rows.column("repeat").to_numpy() * len(views) + view))
    runs = [(views[code % len(views)], code // len(views)) for code in codes.to_list()]
    own = BASE if BASE in views else str(shown[0])
    first = own if whole is None else whole.reference
    places = {one: at for at, one in enumerate(runs)}
    layout = _Standing(keys, group, items, units.to_numpy(), unit, places, run, first)
    times = np.bincount(layout.cell)
    if times.max() > 1:
        where = _describe_group(keys, int(group[times[layout.cell] > 1].min()))
        raise Problem(f"{where} decides an item twice in one view and repeat; keep one")
    return layout


def _index_values(column: pl.Series, known: pl.Series | None = None) -> tuple[pl.Series, Ints]:
    """The distinct values in order, or those that are `known`, and the place of each among them."""
    if column.dtype != pl.Categorical:
        distinct = column.unique().sort()
        places = np.searchsorted(distinct.to_numpy(), column.to_numpy())
        return distinct, places.astype(_smallest_int_type(len(distinct)))
    used = column.unique()
    names = used.cast(pl.String)
    every = names.sort() if known is None else known
    codes = used.to_physical().to_numpy()
    places = np.zeros(codes.max() + 1, dtype=_smallest_int_type(len(every)))
    places[codes] = every.search_sorted(names).to_numpy()
    return every, places[column.to_physical().to_numpy()]


def _read_key_column(rows: Scanned, name: str) -> pl.Series:
    """A column of the key, texts as small numbers."""
    is_text = rows.table.collect_schema()[name] == pl.String
    return rows.column(pl.col(name).cast(pl.Categorical) if is_text else name)


def _group_decisions(rows: Scanned) -> tuple[pl.DataFrame, Ints]:
    """The key of each group in order, and the group of each decision."""
    values: list[pl.Series] = []
    cell: Ints = np.zeros(1, dtype=np.int64)
    for name in KEY:
        distinct, places = _index_values(_read_key_column(rows, name))
        values.append(distinct)
        cell = cell * len(distinct) + places
        del places  # of a large table it counts beside the next
    cells, group = _index_values(pl.Series(cell))
    used = np.unravel_index(cells.to_numpy(), [len(distinct) for distinct in values])
    return pl.DataFrame([distinct[at] for distinct, at in zip(values, used, strict=True)]), group


def _describe_group(keys: pl.DataFrame, group: int) -> str:
    rater, dataset, level, seed = keys.row(group)
    return f"rater '{rater}' on '{dataset}' (level '{level}', seed {seed})"


# --- columns ----------------------------------------------------------------------------------


class _Somewhere:
    """The value of a column for each group or unit, within which it is constant."""

    def __init__(self, rows: Scanned, of: Ints, n: int) -> None:
        self._rows = rows
        self._row = np.zeros(n, dtype=np.int64)
        self._row[of] = np.arange(len(of))

    def column(self, name: str) -> pl.Series:
        kind = self._rows.table.collect_schema()[name]
        if name not in self._rows.told:
            return pl.repeat(None, len(self._row), dtype=kind, eager=True).alias(name)
        narrow = pl.Categorical() if kind == pl.String else kind
        return self._rows.column(pl.col(name).cast(narrow))[self._row].cast(kind)

    def told(self, name: str, blank: object = None) -> list[Any]:
        return [blank if one is None else one for one in self.column(name).to_list()]


CLUSTER = pl.coalesce("cluster", "item")


def _n_classes(keys: pl.DataFrame, group: Ints, counts: Ints) -> Ints:
    n_classes = np.zeros(keys.height, dtype=np.int64)
    n_classes[group] = counts
    mixed = group[counts != n_classes[group]]
    if len(mixed):
        found = counts[group == mixed.min()]
        where = _describe_group(keys, int(mixed.min()))
        raise Problem(f"{where} mixes scales of {found.min()} and {found.max()}")
    return n_classes


def _hash_column(name: str) -> pl.Expr:
    """Number texts without sorting them; as many bits as the digests they mostly are."""
    return pl.when(pl.col(name) != "").then(pl.col(name).hash())


def _at_base(rows: Scanned, on: _Standing) -> pl.Series:
    """The probabilities of each item in the first run of the view of reference."""
    name, place = "probabilities", on.runs.get((on.reference, 0))
    if name not in rows.told or place is None:
        return pl.repeat(None, len(on.units), dtype=pl.List(pl.Float64), eager=True).alias(name)
    first = rows.table.filter(view=on.reference, repeat=0).select(name).pipe(collected)
    first = first.with_columns(unit=on.unit[on.run == place])
    units = pl.DataFrame({"unit": np.arange(len(on.units))})
    return units.join(first, on="unit", how="left", maintain_order="left")[name]


def _calls_by_decision(rows: Scanned, on: _Standing) -> Floats:
    """The calls of each decision, with its part of those that its condition shares."""
    own = _read_token_counts(rows, "n_calls", pl.col("n_calls"))
    if "shared_calls" not in rows.told:
        return own
    condition = on.group.astype(np.int64) * len(on.runs) + on.run
    n_items = np.bincount(condition)[condition]
    return np.asarray(own + rows.column(pl.col("shared_calls").fill_null(0)).to_numpy() / n_items)


def _read_token_counts(rows: Scanned, name: str, value: pl.Expr) -> Floats:
    """Counts as numbers, NaN where they were not reported."""
    if name not in rows.told:
        n = rows.column(pl.len()).item()
        return np.broadcast_to(np.float64(np.nan), n)
    return rows.column(value.cast(pl.Float64).fill_null(float("nan"))).to_numpy()


def _declared_invariances(rows: Scanned, group: Ints) -> dict[tuple[int, str], str]:
    """By group and view why its answers cannot differ, where a pipeline says so."""
    if "invariance" not in rows.told:
        return {}
    said = rows.read("view", "invariance").with_columns(group=group)
    said = said.filter(pl.col("invariance").fill_null("") != "").unique(["group", "view"])
    return {(at, view): why for view, why, at in said.iter_rows()}
