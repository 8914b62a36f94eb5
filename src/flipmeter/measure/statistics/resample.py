"""A group of items -> its metrics, as measured and in resamples of the same items."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np
import numpy.typing as npt
import polars as pl

from flipmeter.measure.estimates.long_table import ORDINAL
from flipmeter.measure.estimates.readings import NOT_COMPARABLE, worded
from flipmeter.measure.estimates.scores import scores
from flipmeter.measure.panel.checked import Booleans, Floats, Ints, Ranks, ratio
from flipmeter.measure.panel.frame import checked
from flipmeter.measure.panel.groups import joined
from flipmeter.measure.panel.panel import KEY, Panel, compared, read_panel, reference_of
from flipmeter.types import Contrast, Mode

RANKED = "spearman"
STRAYS = 2.0

Weights = npt.NDArray[np.float32]
"""How often each item (column) stands in each sample (row); whole numbers, so sums are exact."""

RESAMPLES = 2000
SEED = 20260731
"""Every interval is drawn with this seed: the same decisions give the same interval."""

SCORES: dict[Mode, tuple[str, ...]] = {
    "paper": ("accuracy", "macro_f1", "spearman", "mae"),
    "recommended": ("accuracy", "macro_f1", "spearman", "mae_normalised"),
}


@dataclass(frozen=True)
class MeasuredItems:
    """One rater on one dataset, level and seed, item by item: what a residual subtracts.

    `items` are numbers that say which items of two sides are the same. `pairs` has the classes
    under both views of every contrast (contrasts x 2 x items). `usable` says what may be counted:
    its first row is for the scores, the others for the contrasts; `notes` go with these rows.
    """

    n_classes: int
    items: Ints
    gold: Ranks
    classes: Ranks
    pairs: Ranks
    usable: Booleans
    notes: tuple[str, ...]

    @property
    def read(self) -> Booleans:
        """Mark what has a class: under the base view, and under both views of each contrast."""
        return np.concatenate([self.classes[None] > 0, self.pairs.min(axis=1) > 0])

    def take(self, places: Ints) -> MeasuredItems:
        """Return the side with only these of its items, in this order."""
        return replace(
            self,
            items=self.items[places],
            gold=self.gold[places],
            classes=self.classes[places],
            pairs=self.pairs[:, :, places],
            usable=self.usable[:, places],
        )

    def only(self, items: Ints) -> MeasuredItems:
        """Return the side with only those of its items that are among these."""
        return self.take(np.flatnonzero(np.isin(self.items, items)))

    def why(self, row: int, value: float) -> str:
        """Say why a row of metrics has no number, or what is said of the number it has."""
        if self.notes[row] or not np.isnan(value) or not self.usable[row].any():
            return self.notes[row]
        if (self.usable[row] & self.read[row]).any():
            return "undefined: gold or answers are constant"
        return "undefined: nothing was read"


def read_sides(
    decisions: pl.DataFrame, contrasts: Sequence[Contrast], mode: Mode
) -> tuple[pl.DataFrame, list[MeasuredItems]]:
    """Return the key of each group and the group itself; repeats of a view are left out."""
    frame = checked(decisions).filter(repeat=0)
    panel = read_panel(frame)
    asked = frame.select(*KEY, "item").unique().sort(*KEY, "item")  # the panel's order of items
    items = asked["item"].rank("dense").cast(pl.Int64).to_numpy()
    found = [contrasted(panel, contrast, mode) for contrast in contrasts]
    reference = (reference_of(frame), 0)
    classes = panel.classes(reference)
    graded = panel.asked(reference) & (panel.gold > 0)
    pairs = np.array([pair for pair, _, _ in found], dtype=np.int64)
    pairs = pairs.reshape(len(contrasts), 2, len(items))
    usable = np.stack([graded, *(items for _, items, _ in found)])
    ends = np.cumsum(panel.groups.count())
    sides = []
    for group, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        own = slice(start, end)
        ungraded = "" if graded[own].any() else "no gold classes"
        sides.append(
            MeasuredItems(
                n_classes=int(panel.n_classes[group]),
                items=items[own],
                gold=panel.gold[own],
                classes=classes[own],
                pairs=pairs[:, :, own],
                usable=usable[:, own],
                notes=(ungraded, *(notes[group] for _, _, notes in found)),
            )
        )
    return panel.keys, sides


def contrasted(
    panel: Panel, contrast: Contrast, mode: Mode
) -> tuple[list[Ranks], Booleans, list[str]]:
    """Return the classes under both views, the items that count, and a note for each group.

    In paper mode the labels that are words are read by position, as the paper does.
    """
    found = compared(panel, contrast)
    first, second = (panel.classes((view, 0)) for view in contrast.views)
    usable, notes = found.items & found.measured[panel.groups.of], list(found.note)
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
    taken = [side.take(_places_of(items, side.items)) for side in sides]
    usable = np.logical_and.reduce([side.usable for side in taken])
    return [replace(side, usable=usable) for side in taken]


def _places_of(wanted: Ints, items: Ints) -> Ints:
    order = np.argsort(items)
    return order[np.searchsorted(items, wanted, sorter=order)]


def merged(base: MeasuredItems, level: MeasuredItems) -> MeasuredItems | None:
    """Return the base's answers with its classes merged as the level's gold classes are.

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


def weights(n_items: int, dataset: str) -> Weights:
    """Return how often each item is drawn, in every resample; the first row is the items as is.

    The draw depends on the dataset and the number of items alone: two sides of a residual, and all
    seeds, are resampled together, and two datasets apart.
    """
    chance = np.random.default_rng([SEED, zlib.crc32(dataset.encode())])
    drawn = chance.integers(n_items, size=(RESAMPLES, n_items))
    places = drawn + np.arange(RESAMPLES)[:, None] * n_items
    counts = np.bincount(places.ravel(), minlength=RESAMPLES * n_items)
    return np.concatenate([as_is(n_items), counts.reshape(RESAMPLES, n_items).astype(np.float32)])


def as_is(n_items: int) -> Weights:
    """Return the one sample in which every item stands once."""
    return np.ones((1, n_items), dtype=np.float32)


def metrics(side: MeasuredItems, weighted: Weights, names: Sequence[str]) -> Floats:
    """Return every score named and every flip rate (rows) in every sample of items (columns)."""
    counted = side.usable & side.read
    n_contrasts, shape = len(side.pairs), (side.n_classes, side.n_classes + 1)
    flipped = counted[1:] & (side.pairs[:, 0] != side.pairs[:, 1])
    # One product for all: what an item adds to each count, by how often it is drawn.
    adds = np.zeros((len(side.items), 2 * n_contrasts + math.prod(shape)), dtype=np.float32)
    adds[:, :n_contrasts], adds[:, n_contrasts : 2 * n_contrasts] = flipped.T, counted[1:].T
    scored = np.flatnonzero(counted[0])
    cells = (side.gold[scored] - 1) * shape[1] + side.classes[scored]
    adds[scored, 2 * n_contrasts + cells] = 1
    counts = (weighted @ adds).astype(np.float64)
    flips = ratio(counts[:, :n_contrasts], counts[:, n_contrasts : 2 * n_contrasts])
    tables = counts[:, 2 * n_contrasts :].reshape(len(weighted), *shape)
    found = scores(tables, names=[name for name in names if name != RANKED])
    if RANKED in names:
        found |= scores(with_strays(tables, side.classes), names=[RANKED])
    return np.concatenate([np.stack([found[name] for name in names]), flips.T])


def with_strays(tables: Floats, classes: Ranks) -> Floats:
    """Add about two items to every resample whose answers have nothing to do with their class.

    A few answers far out move a correlation more than all others, and a small sample may hold none
    of them: no resample of it could know. Wilson's interval of a share adds as much (z² / 2 items
    of either kind). The first table, of the items as they are, stays as it is. Sides that answer
    alike are drawn alike.
    """
    chance = np.random.default_rng([SEED, zlib.crc32(classes.tobytes())])
    n_strays = np.concatenate([[0.0], chance.gamma(STRAYS, size=len(tables) - 1)])
    read = tables[:, :, 1:]
    gold, answers = read.sum(axis=2, keepdims=True), read.sum(axis=1, keepdims=True)
    strays = ratio(gold * answers, gold.sum(axis=1, keepdims=True) ** 2)
    added = np.nan_to_num(strays) * n_strays[:, None, None]
    return np.concatenate([tables[:, :, :1], read + added], axis=2)


@dataclass(frozen=True)
class Resampler:
    """Measures sides as they are and in every resample; what many are held against, once."""

    mode: Mode
    contrasts: Sequence[str]
    nominal: bool = False
    _known: dict[tuple[object, ...], Floats] = field(default_factory=dict)
    _drawn: dict[tuple[str, int], Weights] = field(default_factory=dict)

    @property
    def scores(self) -> tuple[str, ...]:
        """The scores of a mode; a dataset whose classes have no order leaves those without one."""
        return tuple(n for n in SCORES[self.mode] if not (self.nominal and n in ORDINAL))

    @property
    def names(self) -> list[str]:
        return [*self.scores, *self.contrasts]

    @property
    def n_drawn(self) -> int:
        return RESAMPLES if self.mode == "recommended" else 0

    def measure(self, dataset: str, side: MeasuredItems, *, is_drawn: bool) -> Floats:
        """Return every metric (rows) of the side as it is, then in the resamples, if any."""
        return metrics(side, self._weights(dataset, len(side.items), is_drawn), self.scores)

    def remember(self, dataset: str, side: MeasuredItems, group: int, *, is_drawn: bool) -> Floats:
        """Measure a side of a group, and keep that for the next time."""
        which = (group, is_drawn, side.items.tobytes(), side.usable.tobytes())
        if which not in self._known:
            self._known[which] = self.measure(dataset, side, is_drawn=is_drawn)
        return self._known[which]

    def by_metric(self, rows: Ints) -> Ints:
        """Repeat the row of the scores for each score."""
        return np.concatenate([np.repeat(rows[:1], len(self.scores)), rows[1:]])

    def notes(self, sides: Mapping[str, tuple[MeasuredItems, Floats]], note: str) -> list[str]:
        """Say for each metric why it has no number, with the side's name in front, and a note."""
        return [joined(*self._whys(sides, metric), note) for metric in range(len(self.names))]

    def _whys(self, sides: Mapping[str, tuple[MeasuredItems, Floats]], metric: int) -> list[str]:
        row = max(0, metric - len(self.scores) + 1)
        whys = {name: side.why(row, values[metric]) for name, (side, values) in sides.items()}
        found = [name + why for name, why in whys.items() if why]
        is_shared = all(side.usable[row].any() for side, _ in sides.values())
        return found if found or is_shared else ["not applicable: no item in common"]

    def nothing(self) -> Floats:
        """Return resamples without a number, for all metrics."""
        return np.full((len(self.names), self.n_drawn), np.nan)

    def _weights(self, dataset: str, n_items: int, is_drawn: bool) -> Weights:
        if not is_drawn:
            return as_is(n_items)
        if (dataset, n_items) not in self._drawn:
            self._drawn[dataset, n_items] = weights(n_items, dataset)
        return self._drawn[dataset, n_items]
