"""Classes under the views of a contrast -> its flip rate in each way to read it; graded items.

A label that is a word is its class. Reversed, it can be read by meaning, which is the primary
reading, or by position, as the paper has one formula for all formats. The readings answer different
questions and are never averaged together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flipmeter.stats.flips import POLICIES, FlipPairs, estimate_flips, find_flips
from flipmeter.stats.formulas import share_estimates
from flipmeter.stats.groups import (
    Booleans,
    Groups,
    Ints,
    Ranks,
    Rows,
    estimates,
    joined,
    joined_each,
    ratio,
    rows_of,
    undefined,
)
from flipmeter.stats.panel import Compared, Panel, compared, conditions, shown_once
from flipmeter.types import Contrast, Mode, Span

NOT_COMPARABLE = "not comparable with identifier formats"
OF_UNMOVED = "1 - share of the middle class: the reading of the same answers given twice"
OF_PAIRS = "share of pairs of orders that differ"
OF_ANY = "items on which any two orders differ; grows with the number of orders"


def flip_rows(panel: Panel, contrast: Contrast, found: Compared, mode: Mode) -> Iterator[Rows]:
    """Yield the flip rates of a contrast under all policies, and the other readings of words.

    In paper mode the rate of words that bears the contrast's name is the one by position.
    """
    words = worded(panel, contrast)
    by_position = words if mode == "paper" else np.zeros_like(words)
    items = found.items | found.proved
    among, tolerance = panel.groups.among(items), panel.tolerance[items]
    replies = np.stack(conditions(panel, contrast, items), axis=1)
    flips = find_flips(replies, among, tolerance, of_any=True)
    if contrast.is_judged and not contrast.is_pair:
        pairs = find_flips(shown_once(panel, contrast)[items], among, tolerance)
        yield from _iter_rate_estimates(contrast.name, ~by_position, pairs, found, mode, OF_PAIRS)
        yield from _iter_rate_estimates(
            f"{contrast.name}:any", words | True, flips, found, mode, OF_ANY
        )
    else:
        yield from _iter_rate_estimates(contrast.name, ~by_position, flips, found, mode)
    if words.any():
        pair = _Pair.of(panel, contrast)
        rates = pair.position, _position_notes(pair, found), pair.asked, mode
        yield from _known_rates(contrast.name, by_position, *rates)
        yield from _iter_rate_estimates(f"{contrast.name}_semantic", words, flips, found, mode)
        name = f"{contrast.name}_position"
        yield from _known_rates(name, words, *rates)
        k, n, note = pair.n_unmoved, pair.unmoved.n_complete, OF_UNMOVED
        failed = pair.unmoved.n - n
        expected = estimates(f"{name}:unmoved", ratio(k, n), n=n, k=k, failed=failed, note=note)
        yield rows_of(words & (n > 0), expected, policy="complete")
        flipped = words & np.array([labels == "flipped words" for labels in panel.labels])
        yield from _override_rows(pair, f"{contrast.name}_override", flipped, mode)


def worded(panel: Panel, contrast: Contrast) -> Booleans:
    """Mark the groups with word labels, if the contrast reverses the label list."""
    is_word = np.array([labels.endswith("words") for labels in panel.labels], dtype=np.bool_)
    return is_word & panel.has(*((view, 0) for view in contrast.views)) & contrast.reverses_labels


def _iter_rate_estimates(
    metric: str, groups: Booleans, flips: FlipPairs, found: Compared, mode: Mode, what: str = ""
) -> Iterator[Rows]:
    """Yield measured rates with their intervals; one that is 0 by construction has none."""
    constructed = np.array([status == "by construction" for status in found.status])
    n, zero = flips.n, np.zeros(len(flips.n))
    sure = estimates(metric, zero, n=n, k=np.zeros_like(n), note=list(found.note))
    for policy in POLICIES:
        yield rows_of(groups & constructed, sure, policy=policy)
    note = joined_each(found.note, [what] * len(n))
    yield from _known_rates(metric, groups & ~constructed, flips, note, found.measured, mode)


def _known_rates(
    metric: str,
    groups: Booleans,
    flips: FlipPairs,
    note: Sequence[str],
    measured: Booleans,
    mode: Mode,
) -> Iterator[Rows]:
    for policy in POLICIES:
        rate = estimate_flips(flips, policy, metric, mode=mode)
        rate = replace(rate, note=joined_each(note, rate.note))
        yield rows_of(groups & measured, rate, policy=policy)
        yield rows_of(groups & ~measured, undefined(metric, note), policy=policy)


# --- word labels ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pair:
    """The classes of all items asked under both views, equal prompts included.

    `position` counts an item as flipped unless its second class is the mirror image of its first,
    `unmoved` the same for a model that gives its first answer again, wherever one was read.
    """

    groups: Groups
    first: Ranks
    second: Ranks
    mirrored: Ranks
    position: FlipPairs
    unmoved: FlipPairs

    @classmethod
    def of(cls, panel: Panel, contrast: Contrast) -> _Pair:
        items = panel.asked(*((view, 0) for view in contrast.views))
        first, second = conditions(panel, contrast, items)
        groups = panel.groups.among(items)
        n_classes = panel.n_classes[groups.of]
        mirrored, again = (
            np.where(of > 0, n_classes + 1 - of, of)
            for of in (second, np.where(second > 0, first, 0))
        )
        position, unmoved = (
            find_flips(np.stack([first, of], axis=1), groups) for of in (mirrored, again)
        )
        return cls(groups, first, second, mirrored, position, unmoved)

    @property
    def asked(self) -> Booleans:
        return np.asarray(self.groups.count() > 0)

    @property
    def n_unmoved(self) -> Ints:
        """Items that flip for a model that ignores the order."""
        return self.groups.count(self.unmoved.differ > 0)


def _position_notes(pair: _Pair, found: Compared) -> list[str]:
    """Mark the reading with what it is worth; where no item was asked twice, say that."""
    n = pair.unmoved.n_complete
    columns = (pair.asked.tolist(), n.tolist(), ratio(pair.n_unmoved, n).tolist(), found.note)
    notes = []
    for asked, size, value, note in zip(*columns, strict=True):
        ignored = f": a model that ignores the order gets {value:.3f}" if size else ""
        notes.append(joined(f"by position{ignored}", NOT_COMPARABLE) if asked else note)
    return notes


def _override_rows(pair: _Pair, metric: str, groups: Booleans, mode: Mode) -> Iterator[Rows]:
    """Yield the shares that follow flipped demonstrations, keep to the meaning, or do neither."""
    complete = (pair.first > 0) & (pair.second > 0)
    keeps = complete & (pair.first == pair.second)
    follows = complete & ~keeps & (pair.first == pair.mirrored)
    shares = {"follows": follows, "keeps": keeps, "other": complete & ~keeps & ~follows}
    for name, marked in shares.items():
        share = share_estimates(
            f"{metric}:{name}",
            marked,
            complete,
            pair.groups,
            failed=pair.groups.count(~complete),
            note="demonstrations carry the words of the mirrored class",
            mode=mode,
        )
        yield rows_of(groups & (share.n > 0), share, policy="complete")


ALL = "all"
"""The contrast of all views of a run."""


@dataclass(frozen=True)
class Viewed:
    """Classes of the items of a contrast (items x views), and the groups that are measured."""

    contrast: Contrast
    items: Booleans
    table: Ranks
    groups: Groups
    measured: Booleans


def viewed(
    panel: Panel, contrasts: Sequence[Contrast], items: Booleans | None = None
) -> Iterator[Viewed]:
    """Yield every contrast that has items, or some of these items."""
    for contrast in contrasts:
        found = compared(panel, contrast)
        kept = found.items if items is None else found.items & items
        if kept.any():
            table = np.stack(conditions(panel, contrast, kept), axis=1)
            yield Viewed(contrast, kept, table, panel.groups.among(kept), found.measured)


def by_size(
    panel: Panel, found: Viewed, marked: Booleans | bool = True
) -> Iterator[tuple[int, Booleans, Booleans]]:
    """Yield each number of classes, the marked groups that have it, and their items."""
    for n_classes in panel.class_sizes:
        own = found.measured & panel.of_size(n_classes) & marked
        kept = own[found.groups.of]
        if kept.any():
            yield n_classes, own, kept


@dataclass(frozen=True)
class Graded:
    """Gold and classes (items x views) of one scale; `own` marks the groups that have it.

    Decimal scores have a `span`, and ranks in the place of classes.
    """

    contrast: str
    n_classes: int
    gold: Ranks
    table: Ranks
    groups: Groups
    own: Booleans
    nominal: bool
    span: Span | None = None


def graded(panel: Panel, contrasts: Sequence[Contrast]) -> Iterator[Graded]:
    """Yield the answers to compare with gold: under every contrast, and under all views."""
    if len(panel.all_views) < 2:
        return
    everything = Contrast(ALL, panel.all_views, "all views")
    sizes, kinds = panel.n_classes.tolist(), panel.nominal.tolist()
    scales = list(zip(sizes, kinds, panel.units.spans, strict=True))
    for found in viewed(panel, (*contrasts, everything), panel.gold > 0):
        gold, name = panel.gold[found.items], found.contrast.name
        for scale in sorted({*scales}, key=lambda scale: scale[:2]):
            n_classes, nominal, span = scale
            own = found.measured & np.array([one == scale for one in scales])
            kept = own[found.groups.of]
            if kept.any():
                scored = gold[kept], found.table[kept], found.groups.among(kept), own
                yield Graded(name, n_classes, *scored, nominal, span)
