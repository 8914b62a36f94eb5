"""Items in groups -> counts, sums and estimates of all groups at once, as one long frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from flipmeter.errors import Problem
from flipmeter.stats.metrics import needs_order
from flipmeter.types import Estimate, Mode, Policy

Ranks = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]


def ranks(values: npt.ArrayLike, what: str = "ranks", n_classes: int | None = None) -> Ranks:
    """Classes 1..M, with 0 for "no class", as whole numbers along one axis."""
    array = _check_integral(_shaped(values, what, 1), what)
    if array.min() < 0:
        raise Problem(f"{what} contains {array.min()}; classes are 1 to M, and 0 is 'no class'")
    if n_classes is not None and array.max() > n_classes:
        raise Problem(f"{what} contains {array.max()}, but the scale has {n_classes} classes")
    return array


def same_length(**arrays: npt.NDArray[Any]) -> None:
    """Refuse arrays that cannot be paired item by item."""
    sizes = {name: len(array) for name, array in arrays.items()}
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise Problem(f"items are compared one by one, but {shown}; align them by item first")


def booleans(values: npt.ArrayLike, what: str, n_axes: int) -> Booleans:
    """Yes and no (or 1 and 0) as booleans."""
    array = _shaped(values, what, n_axes)
    if array.dtype != np.bool_ and not np.isin(array, (0, 1)).all():
        raise Problem(
            f"{what} must be true or false for every item; got {_describe_example(array)}"
        )
    return array.astype(np.bool_)


def ratio(part: npt.ArrayLike, whole: npt.ArrayLike) -> Floats:
    """Divide, with NaN where there is nothing to divide by."""
    part, whole = np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64)
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1), np.nan)


def _check_integral(array: npt.NDArray[Any], what: str) -> Ranks:
    if array.dtype.kind not in "iufb":
        raise Problem(f"{what} must be whole numbers; got {_describe_example(array)}")
    if array.dtype.kind == "f" and not (np.isfinite(array) & (array == np.floor(array))).all():
        raise Problem(f"{what} must be whole numbers, with 0 for 'no class' and never NaN")
    return array.astype(np.int64)


def _shaped(values: npt.ArrayLike, what: str, n_axes: int) -> npt.NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise Problem(f"{what} is ragged: every item needs the same conditions") from error
    if array.size == 0:
        raise Problem(f"{what} is empty; there is nothing to measure")
    if array.ndim != n_axes:
        wanted = "one value per item" if n_axes == 1 else "items x conditions"
        raise Problem(f"{what} must be {wanted}; got an array of shape {array.shape}")
    return array


def _describe_example(array: npt.NDArray[Any]) -> str:
    return f"values such as {array.flat[0]!r}"


NO_COUNT = -1


@dataclass(frozen=True)
class Groups:
    """The group of each item, and the number of groups; a group may be empty.

    Items of one `cluster` are not independent of each other; without it all items are.
    """

    of: Ints
    n: int
    cluster: Ints | None = None

    def among(self, items: Booleans) -> Groups:
        """The same groups with only these items."""
        cluster = None if self.cluster is None else self.cluster[items]
        return Groups(self.of[items], self.n, cluster)

    @cached_property
    def n_clusters(self) -> int:
        """Numbers that clusters have, used or not."""
        return 0 if self.cluster is None else int(self.cluster.max(initial=0)) + 1

    @cached_property
    def by_cluster(self) -> Ints:
        """A number for each item's group and cluster: `n_clusters` times the group, and more."""
        of = self.of.astype(np.int64, copy=False)
        return of if self.cluster is None else of * self.n_clusters + self.cluster

    @property
    def is_apart(self) -> bool:
        """Whether every item is a cluster of its own, and they stand in that order."""
        return self.cluster is None or bool((np.diff(self.by_cluster) > 0).all())

    def count(self, items: Booleans | None = None) -> Ints:
        """Count the items of each group, or only the marked ones."""
        return np.bincount(self.of if items is None else self.of[items], minlength=self.n)

    def total(self, values: Floats) -> Floats:
        """Add up a number per item, to the last bit as `np.sum` adds up each group alone."""
        sizes = self.count()
        starts = np.cumsum(sizes) - sizes
        in_order = values[np.argsort(self.of, kind="stable")]
        # Without the zero in front, reduceat would start from the first value and add pairwise
        # from the second: another order of additions, and no place for an empty group.
        return np.add.reduceat(np.insert(in_order, starts, 0.0), starts + np.arange(self.n))


def one_group(n_items: int) -> Groups:
    """Put all items into one group."""
    return Groups(np.zeros(n_items, dtype=np.int64), 1)


@dataclass(frozen=True)
class Estimates:
    """One metric of many groups: an `Estimate` whose fields are columns, `NO_COUNT` for no k."""

    metric: str
    value: Floats
    low: Floats
    high: Floats
    n: Ints
    k: Ints
    failed: Ints
    note: Sequence[str]

    def take(self, places: Ints) -> Estimates:
        """The estimates at these indices."""
        return Estimates(
            *(self.metric, self.value[places], self.low[places], self.high[places]),
            *(self.n[places], self.k[places], self.failed[places]),
            note=[self.note[place] for place in places.tolist()],
        )

    def only(self) -> Estimate:
        """The estimate of the only group."""
        k = int(self.k[0])
        return Estimate(
            *(float(self.value[0]), float(self.low[0]), float(self.high[0]), int(self.n[0])),
            k=None if k == NO_COUNT else k,
            failed=int(self.failed[0]),
            metric=self.metric,
            note=self.note[0],
        )


def estimates(
    metric: str,
    value: Floats,
    ends: tuple[Floats, Floats] | None = None,
    *,
    n: Ints | None = None,
    k: Ints | None = None,
    failed: Ints | None = None,
    note: Sequence[str] | str = "",
) -> Estimates:
    """Fill in what is not known: no interval, n = 0, no k, none failed, one note for all."""
    size = len(value)
    low, high = ends or (np.full(size, np.nan), np.full(size, np.nan))
    nothing, no_count = np.zeros(size, dtype=np.int64), np.full(size, NO_COUNT)
    return Estimates(
        *(metric, value, low, high),
        n=nothing if n is None else n,
        k=no_count if k is None else k,
        failed=nothing if failed is None else failed,
        note=[note] * size if isinstance(note, str) else note,
    )


def undefined(metric: str, note: Sequence[str]) -> Estimates:
    """Say for every group why there is no number."""
    return estimates(metric, np.full(len(note), np.nan), note=note)


def mean_estimates(
    values: Floats,
    groups: Groups,
    metric: str,
    *,
    note: Sequence[str] | None = None,
) -> Estimates:
    """Mean of a number per item, without an interval."""
    n = groups.count()
    if note is None:
        note = ["" if size else "no complete item" for size in n.tolist()]
    return estimates(metric, ratio(groups.total(values), n), n=n, note=note)


def joined(*notes: str) -> str:
    """Put several notes into one."""
    return "; ".join(note for note in notes if note)


def joined_each(*notes: Sequence[str]) -> list[str]:
    """Put the notes of each group into one."""
    return [joined(*each) for each in zip(*notes, strict=True)]


Column = npt.NDArray[Any]

SCHEMA = {
    "rater": pl.String,
    "dataset": pl.String,
    "level": pl.String,
    "seed": pl.Int64,
    "metric": pl.String,
    "view": pl.String,
    "policy": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
    "k": pl.Int64,
    "failed": pl.Int64,
    "p": pl.Float64,
    "b": pl.Int64,
    "c": pl.Int64,
    "statistic": pl.Float64,
    "note": pl.String,
    "mode": pl.String,
}

ESTIMATED = ("value", "low", "high", "n", "k", "failed")
TESTED = {"p": np.nan, "b": NO_COUNT, "c": NO_COUNT, "statistic": np.nan}


@dataclass(frozen=True)
class Rows:
    """Some groups, their estimates of one metric, what these are about, and the test's numbers.

    `view` names the view of a score and the contrast of a test.
    """

    group: Ints
    estimates: Estimates
    view: str = ""
    policy: Policy | None = None
    test: Mapping[str, Column] = field(default_factory=dict)

    def column(self, name: str) -> Column:
        """A number for each group, blank where there was no such test."""
        if name in ESTIMATED:
            return np.asarray(getattr(self.estimates, name))
        return self.test.get(name, np.full(len(self.group), TESTED[name]))


def rows_of(
    groups: Booleans,
    estimates: Estimates,
    view: str = "",
    policy: Policy | None = None,
    **test: Column,
) -> Rows:
    """Keep the rows of the marked groups out of columns that cover all groups."""
    return _pick_rows(Rows(np.arange(len(groups)), estimates, view, policy, test), groups)


def _pick_rows(rows: Rows, marked: Booleans) -> Rows:
    at = np.flatnonzero(marked)
    test = {name: column[at] for name, column in rows.test.items()}
    return replace(rows, group=rows.group[at], estimates=rows.estimates.take(at), test=test)


def counted_rows(
    groups: Booleans, found: Iterable[Estimates], view: str, policy: Policy = "complete"
) -> Iterator[Rows]:
    """Rows of estimates in the marked groups, where an item counts."""
    for one in found:
        yield rows_of(groups & (one.n > 0), one, view, policy)


def as_frame(
    parts: Sequence[Rows], keys: pl.DataFrame, mode: Mode, nominal: Booleans | None = None
) -> pl.DataFrame:
    """Put rows into one table, sorted by group and then in the order given; no number is null.

    Groups marked `nominal` have no number that needs an order of classes.
    """
    has_order = np.ones(keys.height, dtype=np.bool_) if nominal is None else ~nominal
    kept = (
        _pick_rows(part, has_order[part.group]) if needs_order(part.estimates.metric) else part
        for part in parts
    )
    parts = [part for part in kept if len(part.group)]
    if not parts:
        return pl.DataFrame(schema=SCHEMA)
    group = np.concatenate([part.group for part in parts])
    order = np.argsort(group, kind="stable")
    part_of = np.repeat(np.arange(len(parts)), [len(part.group) for part in parts])[order]
    words: dict[str, list[str | None]] = {
        "metric": [part.estimates.metric for part in parts],
        "view": [part.view for part in parts],
        "policy": [part.policy for part in parts],
    }
    columns = {
        **keys[group[order]].to_dict(),
        **{name: pl.Series(of, dtype=pl.String)[part_of] for name, of in words.items()},
        **{
            name: np.concatenate([part.column(name) for part in parts])[order]
            for name in (*ESTIMATED, *TESTED)
        },
        "note": pl.Series([note for part in parts for note in part.estimates.note])[order],
        "mode": pl.repeat(mode, len(order), eager=True),
    }
    counts = pl.col("k", "b", "c")
    return pl.DataFrame({name: columns[name] for name in SCHEMA}, schema=SCHEMA).with_columns(
        pl.col(pl.Float64).fill_nan(None), pl.when(counts != NO_COUNT).then(counts)
    )
