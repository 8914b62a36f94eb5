"""Choices -> preferred places: slots of a label list, options, answers of a pair.

Both orders of a pair are one cluster, with its seeds and copies. A tie chooses no place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from flipmeter.stats.blocks import Row, read_blocks
from flipmeter.stats.bounds import Bounded, bounded_mean, bounded_share
from flipmeter.stats.formulas import Length, length_of
from flipmeter.stats.frame import differ
from flipmeter.stats.groups import (
    Booleans,
    Estimates,
    Floats,
    Groups,
    Ints,
    Ranks,
    Rows,
    estimates,
    ratio,
    rows_of,
)
from flipmeter.stats.judge import DRAWS, class_places
from flipmeter.stats.panel import Compared, Panel, compared, conditions
from flipmeter.stats.randomise import evidence
from flipmeter.stats.readings import by_size, viewed
from flipmeter.stats.resampling import jackknife
from flipmeter.types import ALPHA, Contrast, Estimate, Policy, Span

EXPECTED = "against the same answers under all orders"


@dataclass(frozen=True)
class Choices:
    """Answers under several orders: items x orders, with their places and those of the right ones.

    `table` has the place of every class in every order (items x orders x classes), 0 if unknown.
    `n_places` counts the places of each item. Decimal scores have a `span`, and no table.
    """

    classes: Ranks
    places: Ints
    gold: Ranks
    right: Ints
    table: Ints
    n_places: Ints
    cluster: Ints
    span: Span | None = None

    @property
    def tolerance(self) -> int:
        return 0 if self.span is None else self.span.tolerance

    def among(self, items: Booleans) -> Choices:
        parts = {name: of[items] for name, of in vars(self).items() if name != "span"}
        return Choices(**parts, span=self.span)


Found = dict[str, Estimate]


def option_estimates(choices: Choices) -> tuple[Found, float]:
    """Estimate the preference for places of one rater; the statistic is that of `slot_test`.

    `slot:s` are shares of answers, `slot_excess:s` what they are beyond the same answers dealt to
    all orders, `slot_test` the p of the randomisation test on them (its statistic is Pearson's
    chi-square) and `cramers_v` their size, 0 to 1. `recall:s` is the accuracy when the right
    option stands in place s, and `recall_sd` their SD over places (RStD).
    """
    read: Booleans = np.asarray((choices.classes > 0).all(axis=1))
    found: Found = {}
    statistic = float("nan")
    if read.any():
        found, statistic = _slot_shares(choices.among(read), int((~read).sum()))
    graded: Booleans = np.asarray((choices.gold > 0) & (choices.right > 0).all(axis=1))
    return found | (_recall_by_place(choices.among(graded)) if graded.any() else {}), statistic


# --- shares -----------------------------------------------------------------------------------


def _slot_shares(choices: Choices, failed: int) -> tuple[Found, float]:
    numbers = np.arange(1, int(choices.n_places.max()) + 1)
    seen = (choices.places[:, :, None] == numbers).mean(axis=1)
    dealt = _expected_place_shares(choices, numbers)
    seen, dealt, n = (by_cluster(choices, of) for of in (seen, dealt, np.ones(len(seen))))
    total = n.sum()
    share, wanted = seen.sum(axis=0) / total, dealt.sum(axis=0) / total
    found: Found = {}
    for at, number in enumerate(numbers.tolist()):
        name = f"slot:{number}"
        found[name] = as_estimate(name, bounded_share(seen[:, at], n, ALPHA), failed)
    for at, number in enumerate(numbers.tolist()):
        name, lean = f"slot_excess:{number}", (seen - dealt)[:, at] / n
        found[name] = as_estimate(name, bounded_mean(lean, ALPHA), failed)
    used = wanted > 0
    df = max(int(used.sum()) - 1, 1)
    moved = (seen - dealt)[:, used] / np.sqrt(wanted[used] * df)
    mean = moved.sum(axis=0) / total
    reach = float(np.sqrt((1 / wanted[used] - 1).max() / df)) / len(n)
    length = length_of(mean, (moved - n[:, None] * mean) / total, reach=reach)
    found["cramers_v"] = as_estimate("cramers_v", length, failed)
    row = Row(choices.classes, None, choices.cluster, False, True, choices.table)
    p, note = p_of_direction(row), f"{EXPECTED}; chi-square, df {df}"
    n_items, name = len(choices.classes), "slot_test"
    found[name] = Estimate(p, n=n_items, failed=failed, metric=name, note=note)
    chi_square = ((share - wanted)[used] ** 2 / wanted[used]).sum() * choices.classes.size
    return found, float(chi_square)


def p_of_direction(row: Row) -> float:
    """p of the exact randomisation test that answers do not lean to a place."""
    return evidence(read_blocks(row), draws=DRAWS, seed=0).p_direction


def _expected_place_shares(choices: Choices, numbers: Ints) -> Floats:
    """Shares of places if the answers of an item are dealt to its orders in every way.

    An item of which not all places are known is taken to have been shown in all orders alike.
    """
    n_orders = choices.classes.shape[1]
    total = np.zeros((len(choices.classes), len(numbers)))
    known = np.ones(len(total), dtype=np.bool_)
    for given in choices.classes.T:
        there = choices.table[np.arange(len(given)), :, given - 1]
        known &= (there > 0).all(axis=1)
        total += (there[:, :, None] == numbers).sum(axis=1)
    even = (numbers <= choices.n_places[:, None]) / choices.n_places[:, None]
    return np.where(known[:, None], total / n_orders**2, even)


# --- recalls ----------------------------------------------------------------------------------


def _recall_by_place(choices: Choices) -> Found:
    """Accuracy by the place of the right option, and its SD over places; unreadable is wrong."""
    numbers = np.arange(1, int(choices.n_places.max()) + 1)
    stands = choices.right[:, :, None] == numbers
    correct = choices.classes == choices.gold[:, None]
    trials = by_cluster(choices, stands.sum(axis=1).astype(np.float64))
    hits = by_cluster(choices, (stands & correct[:, :, None]).sum(axis=1).astype(np.float64))
    failed = int((choices.classes < 1).any(axis=1).sum())
    found: Found = {}
    for at, number in enumerate(numbers.tolist()):
        name = f"recall:{number}"
        found[name] = as_estimate(name, bounded_share(hits[:, at], trials[:, at], ALPHA), failed)
    sums, name = trials.sum(axis=0), "recall_sd"
    if (sums == 0).any():
        note = "undefined: the right option is never in some place"
        return found | {name: Estimate(np.nan, metric=name, note=note)}
    recall = hits.sum(axis=0) / sums
    adds = (hits - trials * recall) / sums
    adds, away = (of - of.mean(axis=-1, keepdims=True) for of in (adds, recall))
    width = np.sqrt(len(numbers))
    length = length_of(away / width, adds / width, reach=0.5 / len(hits))
    return found | {name: as_estimate(name, length, failed)}


# --- forms ------------------------------------------------------------------------------------


def by_cluster(choices: Choices, values: Floats) -> Floats:
    """Sums of a number, or of several, over the items of each cluster."""
    _, cluster = np.unique(choices.cluster, return_inverse=True)
    sums = np.zeros((int(cluster.max()) + 1, *values.shape[1:]))
    np.add.at(sums, cluster, values)
    return sums


def as_estimate(name: str, found: Bounded | Length, failed: int) -> Estimate:
    ends = found.low, found.high
    return Estimate(found.value, *ends, n=found.n, failed=failed, metric=name)


# --- all groups -------------------------------------------------------------------------------


def choices_of(panel: Panel, contrast: Contrast, items: Booleans) -> Choices:
    """The answers of some items under the orders of a contrast."""
    chosen, right = (of[items] for of in _chosen_and_right_places(panel, contrast))
    classes = np.stack(conditions(panel, contrast, items), axis=1)
    span = panel.units.spans[int(panel.groups.of[items][0])]
    table = class_places(panel, contrast, items) if span is None else None
    if table is None:
        size = int(panel.n_classes.max()) if span is None else 0
        table = np.zeros((*classes.shape, size), dtype=np.int64)
    counts, cluster = panel.places.n[items], panel.cluster[items]
    return Choices(classes, chosen, panel.gold[items], right, table, counts, cluster, span)


def _chosen_and_right_places(panel: Panel, contrast: Contrast) -> Iterator[Ints]:
    """Places of the chosen and of the right option of every item under the orders of a contrast."""
    nowhere = np.zeros(len(panel.gold), dtype=np.int64)
    for of in (panel.places.chosen, panel.places.right):
        yield np.stack([of.get((view, 0), nowhere) for view in contrast.views], axis=1)


def chosen_among(
    panel: Panel, found: Compared, contrast: Contrast, items: Booleans
) -> Iterator[tuple[int, Booleans, Choices]]:
    """Yield the measured groups with some of these items, the items and their answers."""
    kept = found.items & items
    for group in np.flatnonzero(found.measured & (panel.groups.count(kept) > 0)).tolist():
        mine = kept & (panel.groups.of == group)
        yield group, mine, choices_of(panel, contrast, mine)


def option_rows(panel: Panel, contrasts: Sequence[Contrast]) -> Iterator[Rows]:
    """Yield the preference for places from every contrast that moves options.

    An item counts if its rater is shown an option, right or chosen twice, in two places. Another
    place alone is none of this: another option was chosen, and nothing need have moved.
    """
    listed = (panel.places.n > 0) & ~panel.units.decimal[panel.groups.of]
    for contrast in contrasts:
        if contrast.swaps_answers:
            continue
        chosen, right = _chosen_and_right_places(panel, contrast)
        classes = np.stack([panel.classes((view, 0)) for view in contrast.views], axis=1)
        is_again = (classes == classes[:, :1]) & (classes > 0)
        marks = (is_again & (chosen != chosen[:, :1])) | (right != right[:, :1])
        moves = (panel.groups.count(marks.any(axis=1)) > 0)[panel.groups.of]
        found = compared(panel, contrast)
        for group, _, choices in chosen_among(panel, found, contrast, listed & moves):
            yield from estimate_rows(group, *option_estimates(choices), contrast.name)


def estimate_rows(group: int, some: Found, statistic: float, view: str) -> Iterator[Rows]:
    """Rows of one group from its estimates, with the statistic of its test."""
    for name, one in some.items():
        policy: Policy = "strict" if name.startswith(("recall", "accuracy")) else "complete"
        value, low, high = (np.array([x]) for x in (one.value, one.low, one.high))
        counts = {"n": np.array([one.n]), "failed": np.array([one.failed])}
        columns = estimates(name, value, (low, high), note=[one.note], **counts)
        is_test = name.endswith("_test")
        test = {"p": value, "statistic": np.array([statistic])} if is_test else {}
        yield Rows(np.array([group]), columns, view, policy, test)


HALF = 0.5
ACCURACIES = ("accuracy:1", "accuracy:2", "accuracy_both")


def pair_estimates(choices: Choices) -> Found:
    """Estimate the preference of one judge for a place, and its accuracy by order.

    `first_share` is the share of wins of the answer shown first, over both orders and without
    ties: 1/2 for a judge without a preference. `consistency` is the share of items with the same
    verdict in both orders. `ties:1` and `ties:2` are shares by order, and with gold `accuracy:1`,
    `accuracy:2` and `accuracy_both`, where what was not read is wrong.
    """
    read = choices.classes > 0
    complete: Booleans = np.asarray(read.all(axis=1))
    found: Found = {}
    if complete.any():
        mine, failed = choices.among(complete), int((~complete).sum())
        found["first_share"] = as_estimate("first_share", _first_share(mine), failed)
        p = p_of_direction(Row(mine.classes, None, mine.cluster, span=mine.span))
        n, note = len(mine.classes), "randomisation test of direction"
        found["first_test"] = Estimate(p, n=n, failed=failed, metric="first_test", note=note)
        same = ~differ(mine.classes[:, 0], mine.classes[:, 1], mine.tolerance)
        found["consistency"] = _bounded_choice_share("consistency", mine, same, failed)
    for order, name in enumerate(("ties:1", "ties:2")):
        own = choices.among(read[:, order])
        if read[:, order].any():
            tied, failed = own.places[:, order] == 0, int((~read[:, order]).sum())
            found[name] = _bounded_choice_share(name, own, tied, failed)
    if not (choices.gold > 0).any():
        return found
    graded = choices.among(choices.gold > 0)
    read = graded.classes > 0
    right = read & ~differ(graded.classes, graded.gold[:, None], graded.tolerance)
    failed = int((~read).any(axis=1).sum())
    marks = (right[:, 0], right[:, 1], np.asarray(right.all(axis=1)))
    for name, mark in zip(ACCURACIES, marks, strict=True):
        found[name] = _bounded_choice_share(name, graded, mark, failed)
    return found


def _first_share(choices: Choices) -> Bounded:
    """Share of wins of what stood first; an item whose orders agree adds exactly one half."""
    wins = by_cluster(choices, (choices.places == 1).sum(axis=1).astype(np.float64))
    decided = by_cluster(choices, (choices.places > 0).sum(axis=1).astype(np.float64))
    some = decided > 0
    lean = bounded_mean(wins[some] / decided[some] - HALF, ALPHA, bottom=-HALF, top=HALF)
    low, high, lower, upper = (end + HALF for end in (lean.low, lean.high, lean.lower, lean.upper))
    return Bounded(lean.value + HALF, low, high, lower, upper, lean.n)


def _bounded_choice_share(name: str, choices: Choices, marks: Booleans, failed: int) -> Estimate:
    hits, trials = (
        by_cluster(choices, marks.astype(np.float64)),
        by_cluster(choices, np.ones(len(marks))),
    )
    return as_estimate(name, bounded_share(hits, trials, ALPHA), failed)


def pair_rows(panel: Panel, contrasts: Sequence[Contrast]) -> Iterator[Rows]:
    """Yield the preference for a place from every contrast that swaps two answers."""
    for contrast in (one for one in contrasts if one.swaps_answers):
        found = compared(panel, contrast)
        for group, _, choices in chosen_among(panel, found, contrast, panel.places.n == 2):
            yield from estimate_rows(group, pair_estimates(choices), np.nan, contrast.name)


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
    wanted = np.where(
        has_gold[groups.of, None], (known + known[:, ::-1]) / 2, _symmetrize_choices(chosen)
    )
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
    statistic, p = hotelling(chosen - _symmetrize_choices(chosen), read, groups)
    mirrored = "against its mirror image"
    found["slot_test"] = estimates("slot_test", p, n=n, failed=failed, note=mirrored), statistic
    return found


def _in_slots(classes: Ranks, n_classes: int) -> Floats:
    places = np.arange(1, n_classes + 1)
    return np.asarray(classes[:, None] == places, dtype=np.float64)


def _symmetrize_choices(chosen: Floats) -> Floats:
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
