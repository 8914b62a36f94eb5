"""Classes under the views of a contrast -> its flip rate; of words, each of the ways to read it.

A label that is a word is its class. Reversed, it can be read by meaning, which is the primary
reading, or by position, as the paper has one formula for all formats. The readings answer different
questions and are never averaged together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flipmeter.measure.estimates.flips import (
    POLICIES,
    FlipPairs,
    estimate_flips,
    find_flips,
    find_pair_flips,
)
from flipmeter.measure.estimates.long_table import Rows, rows_of
from flipmeter.measure.panel.checked import Booleans, Ints, Ranks, ratio
from flipmeter.measure.panel.groups import estimates, joined, joined_each, undefined
from flipmeter.measure.panel.panel import Compared, Panel, conditions, shown_once
from flipmeter.measure.statistics.shares import share_estimates
from flipmeter.types import Contrast, Mode

NOT_COMPARABLE = "not comparable with identifier formats"
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
    flips = find_flips(conditions(panel, contrast, items), among, tolerance)
    if contrast.is_judged and not contrast.is_pair:
        pairs = find_pair_flips(shown_once(panel, contrast)[items], among, tolerance)
        yield from _rates(contrast.name, ~by_position, pairs, found, mode, OF_PAIRS)
        yield from _rates(f"{contrast.name}:any", words | True, flips, found, mode, OF_ANY)
    else:
        yield from _rates(contrast.name, ~by_position, flips, found, mode)
    if words.any():
        pair = _Pair.of(panel, contrast)
        position = pair.position()
        note = _position_notes(pair, found)
        yield from _known_rates(contrast.name, by_position, position, note, pair.asked, mode)
        yield from _rates(f"{contrast.name}_semantic", words, flips, found, mode)
        name = f"{contrast.name}_position"
        yield from _known_rates(name, words, position, note, pair.asked, mode)
        yield from _unmoved_rows(pair, f"{contrast.name}_position:unmoved", words)
        flipped = words & np.array([labels == "flipped words" for labels in panel.labels])
        yield from _override_rows(pair, f"{contrast.name}_override", flipped, mode)


def worded(panel: Panel, contrast: Contrast) -> Booleans:
    """Mark the groups with word labels, if the contrast reverses the label list."""
    is_word = np.array([labels.endswith("words") for labels in panel.labels], dtype=np.bool_)
    return is_word & panel.has(*((view, 0) for view in contrast.views)) & contrast.reverses_labels


def _rates(
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
    """The classes of all items asked under both views, equal prompts included."""

    panel: Panel
    items: Booleans
    first: Ranks
    second: Ranks

    @classmethod
    def of(cls, panel: Panel, contrast: Contrast) -> _Pair:
        items = panel.asked(*((view, 0) for view in contrast.views))
        return cls(panel, items, *conditions(panel, contrast, items))

    @property
    def asked(self) -> Booleans:
        return np.asarray(self.panel.groups.count(self.items) > 0)

    def mirrored(self, classes: Ranks) -> Ranks:
        """The mirrored class of each item on its scale; no class stays none."""
        n_classes = self.panel.n_classes[self.panel.groups.of[self.items]]
        return np.where(classes > 0, n_classes + 1 - classes, classes)

    def position(self) -> FlipPairs:
        """Count an item as flipped unless its second class is the mirror image of its first."""
        sides = [self.first, self.mirrored(self.second)]
        return find_flips(sides, self.panel.groups.among(self.items))

    def unmoved(self) -> FlipPairs:
        """Count the same for a model that gives its first answer again, wherever one was read."""
        again = np.where(self.second > 0, self.first, 0)
        return find_flips([self.first, self.mirrored(again)], self.panel.groups.among(self.items))


def _position_notes(pair: _Pair, found: Compared) -> list[str]:
    """Mark the reading with what it is worth; where no item was asked twice, say that."""
    unmoved = pair.unmoved()
    expected = ratio(_n_flipped(unmoved), unmoved.n_complete).tolist()
    columns = zip(pair.asked.tolist(), unmoved.n_complete.tolist(), expected, strict=True)
    marks = [
        (
            asked,
            f"by position: a model that ignores the order gets {value:.3f}" if n else "by position",
        )
        for asked, n, value in columns
    ]
    return [
        joined(mark, NOT_COMPARABLE) if asked else note
        for (asked, mark), note in zip(marks, found.note, strict=True)
    ]


def _unmoved_rows(pair: _Pair, metric: str, groups: Booleans) -> Iterator[Rows]:
    """Yield the value for a model that ignores the order: 1 minus the share of the middle class."""
    counts = pair.unmoved()
    k, n = _n_flipped(counts), counts.n_complete
    note = "1 - share of the middle class: the reading of the same answers given twice"
    expected = estimates(metric, ratio(k, n), n=n, k=k, failed=counts.n - n, note=note)
    yield rows_of(groups & (n > 0), expected, policy="complete")


def _n_flipped(found: FlipPairs) -> Ints:
    return found.groups.count(found.differ > 0)


def _override_rows(pair: _Pair, metric: str, groups: Booleans, mode: Mode) -> Iterator[Rows]:
    """Yield the shares that follow flipped demonstrations, keep to the meaning, or do neither."""
    complete = (pair.first > 0) & (pair.second > 0)
    keeps = complete & (pair.first == pair.second)
    follows = complete & ~keeps & (pair.second == pair.mirrored(pair.first))
    shares = {"follows": follows, "keeps": keeps, "other": complete & ~keeps & ~follows}
    for name, marked in shares.items():
        among = pair.panel.groups.among(pair.items)
        share = share_estimates(
            f"{metric}:{name}",
            marked,
            complete,
            among,
            failed=among.count(~complete),
            note="demonstrations carry the words of the mirrored class",
            mode=mode,
        )
        yield rows_of(groups & (share.n > 0), share, policy="complete")
