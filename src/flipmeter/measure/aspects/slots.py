"""Classes under a label list and its reverse -> which slots are preferred."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy import special

from flipmeter.measure.aspects.options import option_rows
from flipmeter.measure.estimates.long_table import Rows, rows_of
from flipmeter.measure.panel.checked import Booleans, Floats, Ints, Ranks, ratio
from flipmeter.measure.panel.graded import by_size, viewed
from flipmeter.measure.panel.groups import Estimates, Groups, estimates
from flipmeter.measure.panel.panel import Panel
from flipmeter.measure.statistics.jackknife import jackknife
from flipmeter.types import Contrast

Tested = tuple[Estimates, Floats | None]
"""Estimates, and the statistic where they are a test."""


def slot_estimates(
    first: Ranks, second: Ranks, gold: Ranks, n_classes: int, groups: Groups
) -> dict[str, Tested]:
    """Estimate the preference for slots in every group of one scale, over both label orders.

    A class stands in slot r of the natural list and in M + 1 - r of the reversed one. Expected is
    the gold classes' own share of the slots; without gold only their mirror symmetry, which any
    rater without a slot preference has. A preference for a class moves all but `slot_test`:
    Hotelling's p that every slot is chosen as often as its mirror image (an item counts once).
    """
    read = (first > 0) & (second > 0)
    n, failed = groups.count(read), groups.count(~read)
    chosen = (_in_slots(first, n_classes) + _in_slots(second, n_classes)[:, ::-1]) / 2
    chosen *= read[:, None]
    has_gold = groups.count(read & (gold > 0)) == n
    known = _in_slots(gold, n_classes)
    wanted = np.where(has_gold[groups.of, None], (known + known[:, ::-1]) / 2, _even(chosen))
    wanted *= read[:, None]
    names = [f"slot:{slot}" for slot in range(1, n_classes + 1)]
    beyond = [f"slot_excess:{slot}" for slot in range(1, n_classes + 1)]
    drawn = jackknife(
        [*names, *beyond],
        [*chosen.T, *(chosen - wanted).T, read],
        groups,
        reach=[(0.0, 1.0)] * n_classes + [(-1.0, 1.0)] * n_classes,
        n=n,
        failed=failed,
    )
    found: dict[str, Tested] = {name: (one, None) for name, one in drawn.items()}
    shares = np.stack([drawn[name].value for name in names], axis=-1)
    away = np.stack([drawn[name].value for name in beyond], axis=-1)
    note = np.where(has_gold, "against gold", "against its mirror image: no gold").tolist()
    for name, value in (
        ("entropy_deficit", np.log(n_classes) - special.entr(shares).sum(axis=-1)),
        ("slot_distance", np.abs(away).sum(axis=-1) / 2),
        ("recall_sd", _recall_sd(first, second, gold, n_classes, groups.among(read), read)),
    ):
        found[name] = estimates(name, value, n=n, failed=failed, note=note), None
    # A preference for a class fills its two slots alike; only what is not alike is one for slots.
    statistic, p = hotelling(chosen - _even(chosen), read, groups)
    mirrored = "against its mirror image"
    found["slot_test"] = estimates("slot_test", p, n=n, failed=failed, note=mirrored), statistic
    return found


def _in_slots(classes: Ranks, n_classes: int) -> Floats:
    places = np.arange(1, n_classes + 1)
    return np.asarray(classes[:, None] == places, dtype=np.float64)


def _even(chosen: Floats) -> Floats:
    """The part of each item's choices shared with its mirror image."""
    return np.asarray((chosen + chosen[:, ::-1]) / 2)


def hotelling(away: Floats, read: Booleans, groups: Groups) -> tuple[Floats, Floats]:
    """Test that the mean vector of items is 0 in every group: Hotelling's T² and its p.

    Squares are taken from 0, not from the mean: items that all lean the same way have no variance
    and are still evidence, though never more than so many equal tosses of a coin.
    """
    kept = groups.among(read)
    vectors, n, width = away[read], kept.count(), away.shape[1]
    mean = np.stack([ratio(kept.total(column), n) for column in vectors.T], axis=-1)
    products = (vectors[:, :, None] * vectors[:, None, :]).reshape(len(vectors), width**2)
    moments = np.stack([ratio(kept.total(column), n) for column in products.T], axis=-1)
    values, axes = np.linalg.eigh(np.nan_to_num(moments).reshape(-1, width, width))
    varies = values > 1e-9
    along = np.einsum("gi,gij->gj", np.nan_to_num(mean), axes)
    pulled = np.where(varies, along**2 / np.where(varies, values, 1), 0).sum(axis=-1)
    squared = (n - 1) * pulled / np.maximum(1 - pulled, 1e-12)
    rank = varies.sum(axis=-1)
    free = np.maximum(n - rank, 1)
    scaled = squared * free / (np.maximum(rank, 1) * np.maximum(n - 1, 1))
    p = np.where(rank > 0, special.fdtrc(np.maximum(rank, 1), free, scaled), 1.0)
    p = np.maximum(p, 2.0 ** (1 - np.minimum(n, 1000)))
    return squared, np.where(n > width, np.minimum(p, 1), np.nan)


def _recall_sd(
    first: Ranks, second: Ranks, gold: Ranks, n_classes: int, groups: Groups, read: Booleans
) -> Floats:
    """The SD over slots of the recall of the class shown there, over both orders."""
    first, second, gold = first[read], second[read], gold[read]
    recalls = []
    for slot in range(1, n_classes + 1):
        across = n_classes + 1 - slot
        there: Ints = groups.count(gold == slot) + groups.count(gold == across)
        found = groups.count((gold == slot) & (first == gold))
        found = found + groups.count((gold == across) & (second == gold))
        recalls.append(ratio(found, there))
    return np.asarray(np.std(np.stack(recalls), axis=0))


def slot_rows(panel: Panel, contrasts: Sequence[Contrast]) -> Iterator[Rows]:
    """Yield the preference for slots from every contrast that reverses the label list.

    Where options change places, the slots are their places.
    """
    yield from option_rows(panel, contrasts)
    for found in viewed(panel, [one for one in contrasts if one.reverses_labels]):
        gold = panel.gold[found.items]
        for n_classes, own, kept in by_size(panel, found, panel.has_list):
            first, second = found.table[kept].T
            some = slot_estimates(first, second, gold[kept], n_classes, found.groups.among(kept))
            for one, statistic in some.values():
                test = {} if statistic is None else {"p": one.value, "statistic": statistic}
                yield rows_of(own & (one.n > 0), one, found.contrast.name, "complete", **test)
