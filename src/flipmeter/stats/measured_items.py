"""One rater on one dataset, level and seed, item by item -> metrics, and what moves them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from flipmeter.stats.differences import Influences
from flipmeter.stats.frame import Decisions, differ
from flipmeter.stats.groups import Booleans, Floats, Ints, Ranks, joined, ratio
from flipmeter.stats.metrics import needs_order
from flipmeter.stats.panel import Panel, compared
from flipmeter.stats.reading import first_panels
from flipmeter.stats.readings import NOT_COMPARABLE, worded
from flipmeter.stats.scores import (
    MOMENT_SCORES,
    N_MOMENTS,
    moment_scores,
    moments,
    moved_by_one,
    one_more,
    scores,
    shares,
)
from flipmeter.types import NO_LABELS, Contrast, Mode

SCORES: dict[Mode, tuple[str, ...]] = {
    "paper": ("accuracy", "macro_f1", "spearman", "mae"),
    "recommended": ("accuracy", "macro_f1", "spearman", "mae_normalised"),
}
SIGNED = ("spearman", "pearson")
Rows = TypeVar("Rows", Ints, Booleans)
Numbers = npt.NDArray[np.integer[Any]]
"""Ranks, items and clusters in four bytes: all groups of a table are held at once."""

HELD = 4_000_000
"""Number of values in memory at once."""


@dataclass(frozen=True)
class MeasuredItems:
    """One rater on one dataset, level and seed, item by item: what a residual subtracts.

    `items` are numbers that say which items of two sides are the same, `cluster` which of them are
    not independent. `pairs` has the classes under both views of every contrast (contrasts x 2 x
    items). `usable` says what may be counted:
    its first row is for the scores, the others for the contrasts; `notes` go with these rows.
    Ranks up to `tolerance` apart are the same.
    """

    n_classes: int
    items: Numbers
    cluster: Numbers
    gold: Numbers
    classes: Numbers
    pairs: Numbers
    usable: Booleans
    notes: tuple[str, ...]
    tolerance: int = 0

    @property
    def right(self) -> Booleans:
        """Mark the items whose class under the base view is gold, or near enough to its score."""
        return (self.classes > 0) & ~differ(self.classes, self.gold, self.tolerance)

    @property
    def flipped(self) -> Booleans:
        """Mark the pairs of classes that differ (contrasts x items)."""
        return differ(self.pairs[:, 0], self.pairs[:, 1], self.tolerance)

    @property
    def read(self) -> Booleans:
        """Mark what has a class: under the base view, and under both views of each contrast."""
        return np.concatenate([self.classes[None] > 0, self.pairs.min(axis=1) > 0])

    def take(self, places: Ints) -> MeasuredItems:
        """The side with only these items, in this order."""
        return replace(
            self,
            items=self.items[places],
            cluster=self.cluster[places],
            gold=self.gold[places],
            classes=self.classes[places],
            pairs=self.pairs[:, :, places],
            usable=self.usable[:, places],
        )

    def only(self, items: Numbers) -> MeasuredItems:
        """The side with only its items among these."""
        return self.take(np.flatnonzero(np.isin(self.items, items)))

    def why(self, row: int, value: float) -> str:
        """Say why a row of metrics has no number, or what is said of the number it has."""
        if self.notes[row] or not np.isnan(value) or not self.usable[row].any():
            return self.notes[row]
        if (self.usable[row] & self.read[row]).any():
            return "undefined: gold or answers are constant"
        return "undefined: nothing was read"


def read_sides(
    decisions: Decisions, contrasts: Sequence[Contrast], mode: Mode
) -> tuple[pl.DataFrame, list[MeasuredItems]]:
    """The key of each group and the group itself; repeats of a view are left out."""
    keys: list[pl.DataFrame] = []
    sides: list[MeasuredItems] = []
    for panel in first_panels(decisions):
        keys.append(panel.keys)
        sides += _iter_measured_items(panel, contrasts, mode)
    return pl.concat(keys), sides


def _iter_measured_items(
    panel: Panel, contrasts: Sequence[Contrast], mode: Mode
) -> Iterator[MeasuredItems]:
    """The groups of a panel, one after the other."""
    items = panel.item
    found = [contrasted(panel, contrast, mode) for contrast in contrasts]
    reference = (panel.reference, 0)
    classes = panel.classes(reference)
    graded = panel.asked(reference) & (panel.gold > 0)
    pairs = np.array([pair for pair, _, _ in found], dtype=np.int32)
    pairs = pairs.reshape(len(contrasts), 2, len(items))
    usable = np.stack([graded, *(items for _, items, _ in found)])
    ends = np.cumsum(panel.groups.count())
    for group, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        own = slice(start, end)
        ungraded = "" if graded[own].any() else NO_LABELS
        yield MeasuredItems(
            n_classes=int(panel.n_classes[group]),
            items=items[own].astype(np.int32),
            cluster=panel.cluster[own].astype(np.int32),
            gold=panel.gold[own].astype(np.int32),
            classes=classes[own].astype(np.int32),
            pairs=pairs[:, :, own].copy(),
            usable=usable[:, own].copy(),
            notes=(ungraded, *(notes[group] for _, _, notes in found)),
            tolerance=int(panel.units.tolerance[group]),
        )


def contrasted(
    panel: Panel, contrast: Contrast, mode: Mode
) -> tuple[list[Ranks], Booleans, list[str]]:
    """The classes under both views, the items that count, and a note for each group.

    In paper mode the labels that are words are read by position, as the paper does.
    """
    found = compared(panel, contrast)
    first, second = (panel.classes((view, 0)) for view in contrast.views)
    usable = (found.items & found.measured[panel.groups.of]) | found.proved
    notes = list(found.note)
    by_position = worded(panel, contrast) if mode == "paper" else np.zeros(panel.groups.n, bool)
    for group in np.flatnonzero(by_position).tolist():
        notes[group] = joined("words read by position", NOT_COMPARABLE)
    turned = by_position[panel.groups.of]
    mirrored = panel.n_classes[panel.groups.of] + 1 - second
    second = np.where(turned & (second > 0), mirrored, second)
    asked = panel.asked(*((view, 0) for view in contrast.views))
    return [first, second], np.where(turned, asked, usable), notes


def in_common(*sides: MeasuredItems) -> list[MeasuredItems]:
    """Keep the items that all sides have, in one order; what counts must count in all of them."""
    items = reduce(np.intersect1d, [side.items for side in sides])
    orders = [np.argsort(side.items) for side in sides]
    taken = [
        side.take(order[np.searchsorted(side.items, items, sorter=order)])
        for side, order in zip(sides, orders, strict=True)
    ]
    usable = np.logical_and.reduce([side.usable for side in taken])
    return [replace(side, usable=usable) for side in taken]


def merged(base: MeasuredItems, level: MeasuredItems) -> MeasuredItems | None:
    """The base's answers with its classes merged as the level's gold classes are.

    Items of a class that the level has not (the middle of five, of two) are left out; answers of
    it stay a class of their own, so that merging can only make flips fewer. None if the level's
    classes are not the base's, merged.
    """
    here, there = in_common(level, base)
    merging = np.arange(base.n_classes + 1) + level.n_classes
    for rank in range(1, base.n_classes + 1):
        known = np.unique(here.gold[(there.gold == rank) & (here.gold > 0)])
        if len(known) > 1:
            return None
        if len(known) == 1:
            merging[rank] = known[0]
    if (merging[1:] > level.n_classes).all():
        return None
    kept = np.flatnonzero(merging[base.gold] <= level.n_classes)
    pairs = np.where(base.pairs > 0, merging[np.maximum(base.pairs, 0)], base.pairs)
    return replace(base, pairs=pairs).take(kept)


# --- metrics ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """Metrics of a side (rows), without each of its clusters (columns), and with one item more.

    `right` is what one more item adds that is answered right in both views, `slip` what it adds on
    top if it is not.
    """

    value: Floats
    clusters: Ints
    without: Floats
    counted: Booleans
    right: Floats
    slip: Floats
    reach: Floats


def combined(parts: Sequence[Measured], factors: Sequence[float]) -> tuple[Floats, Influences]:
    """Sum of metrics of sides with the same items, each times its factor, with its influences."""
    terms = list(zip(factors, parts, strict=True))
    value = np.sum([by * part.value for by, part in terms], axis=0)
    left_out = np.sum([by * part.without for by, part in terms], axis=0)
    right = np.sum([by * part.right for by, part in terms], axis=0)
    slips = np.stack([0 * right, *(by * part.slip for by, part in terms)])
    unseen = np.stack([right + slips.min(axis=0), right + slips.max(axis=0)], axis=-1)
    reach = np.sum([np.sort(by * part.reach, axis=-1) for by, part in terms], axis=0)
    counted = np.logical_or.reduce([part.counted for part in parts])
    moves = np.where(counted, value[:, None] - left_out, 0.0)
    return value, Influences(parts[0].clusters, moves, counted, unseen, reach)


@dataclass(frozen=True)
class Measurer:
    """Measures sides, and caches those that many are compared with.

    Where answers are decimal scores, all sides are scored without classes.
    """

    mode: Mode
    contrasts: Sequence[str]
    nominal: bool = False
    decimal: bool = False
    _known: dict[tuple[object, ...], Measured] = field(default_factory=dict)

    @property
    def scores(self) -> tuple[str, ...]:
        """The scores of a mode; a dataset whose classes have no order leaves those without one."""
        if self.decimal:
            return tuple(n for n in MOMENT_SCORES if not (self.nominal and n != "accuracy"))
        return tuple(n for n in SCORES[self.mode] if not (self.nominal and needs_order(n)))

    @property
    def names(self) -> list[str]:
        return [*self.scores, *self.contrasts]

    def measure(self, side: MeasuredItems) -> Measured:
        """Every metric of a side, as it is and with other items."""
        adds = _item_contributions(side, self.decimal)
        total = adds.sum(axis=0)
        value = self._metrics(total, side)
        clusters, without, counted = self._left_out(side, adds, total)
        right, slip = self._one_more(total, value, side)
        # Ends of what is possible; distances in ranks have no interval.
        ends = [(-1.0 if name in SIGNED else 0.0, 1.0) for name in self.names]
        return Measured(value, clusters, without, counted, right, slip, np.array(ends))

    def _left_out(
        self, side: MeasuredItems, adds: Floats, total: Floats
    ) -> tuple[Ints, Floats, Booleans]:
        """Clusters, the metrics without each of them, and which of them count."""
        clusters, of = np.unique(side.cluster, return_inverse=True)
        by_cluster = np.zeros((len(clusters), adds.shape[1]))
        np.add.at(by_cluster, of, adds)
        without = np.full((len(self.names), len(clusters)), np.nan)
        for start in range(0, len(clusters), rows := max(1, HELD // adds.shape[1])):
            some = slice(start, start + rows)
            without[:, some] = self._metrics(total - by_cluster[some], side)
        counted = np.zeros((len(side.usable), len(clusters)), dtype=np.bool_)
        for row, marks in enumerate(side.usable & side.read):
            counted[row, of[marks]] = True
        return clusters.astype(np.int64), without, self.by_metric(counted)

    def remember(self, side: MeasuredItems, group: int) -> Measured:
        """Measure a side of a group, and keep that for the next time."""
        which = (group, side.items.tobytes(), side.usable.tobytes())
        if which not in self._known:
            self._known[which] = self.measure(side)
        return self._known[which]

    def by_metric(self, rows: Rows) -> Rows:
        """Repeat the row of the scores for each score."""
        return np.concatenate([np.repeat(rows[:1], len(self.scores), axis=0), rows[1:]])

    def notes(self, sides: Mapping[str, tuple[MeasuredItems, Floats]], note: str) -> list[str]:
        """Say for each metric why it has no number, with the side's name in front, and a note."""
        found = []
        for metric in range(len(self.names)):
            row = max(0, metric - len(self.scores) + 1)
            whys = {name: side.why(row, values[metric]) for name, (side, values) in sides.items()}
            told = [name + why for name, why in whys.items() if why]
            if not told and not all(side.usable[row].any() for side, _ in sides.values()):
                told = ["not applicable: no item in common"]
            found.append(joined(*told, note))
        return found

    def _metrics(self, sums: Floats, side: MeasuredItems) -> Floats:
        """Every score and flip rate (rows) from sums of what items add."""
        n_contrasts = len(self.contrasts)
        flips = ratio(sums[..., :n_contrasts], sums[..., n_contrasts : 2 * n_contrasts])
        if self.decimal:
            found = moment_scores(sums[..., 2 * n_contrasts :], self.scores)
        else:
            found = scores(_sums_to_tables(sums, side), names=self.scores)
        return np.stack([*(found[name] for name in self.scores), *np.moveaxis(flips, -1, 0)])

    def _one_more(self, total: Floats, value: Floats, side: MeasuredItems) -> tuple[Floats, Floats]:
        """Contribution of one extra item if it is right, and the change if it is not."""
        n_scores = len(self.scores)
        right, slip = np.zeros(len(value)), np.ones(len(value))
        right[n_scores:] = -value[n_scores:]
        of_scores = value[None, :n_scores], self.scores
        if self.decimal:
            found = moved_by_one(total[None, 2 * len(side.pairs) :], *of_scores)
        else:
            table = _sums_to_tables(total, side)
            found = one_more(table[None], *of_scores, round(float(table.sum())))
        right[:n_scores], slip[:n_scores] = (of[0] for of in found)
        return right, slip


def _item_contributions(side: MeasuredItems, decimal: bool) -> Floats:
    """Contributions of every item: flips, pairs that count, and the sums behind scores.

    A cluster adds as much as an item alone: the mean of its items.
    """
    counted = side.usable & side.read
    _, of = np.unique(side.cluster, return_inverse=True)
    sizes = np.stack([np.bincount(of, row, len(of)) for row in counted])
    weights = counted / np.maximum(sizes[:, of], 1)
    flips = np.concatenate([weights[1:] * side.flipped, weights[1:]]).T
    scored = np.flatnonzero(counted[0])
    gold, given = (of[scored].astype(np.int64) for of in (side.gold, side.classes))
    width = side.n_classes + 1
    adds = np.zeros((len(side.items), N_MOMENTS if decimal else side.n_classes * width))
    if decimal:
        truth, answers = (shares(of, side.n_classes) for of in (gold, given))
        adds[scored] = moments(truth, answers, side.right[scored])
    else:
        adds[scored, (gold - 1) * width + given] = 1
    return np.concatenate([flips, weights[0][:, None] * adds], axis=1)


def _sums_to_tables(sums: Floats, side: MeasuredItems) -> Floats:
    shape = (side.n_classes, side.n_classes + 1)
    return sums[..., 2 * len(side.pairs) :].reshape(*sums.shape[:-1], *shape)
