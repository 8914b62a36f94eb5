"""Items in groups -> counts, sums and estimates of all groups at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flipmeter.measure.panel.checked import Booleans, Floats, Ints, ratio
from flipmeter.types import Estimate

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
