"""Choices among fields that change places -> which places are preferred, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from flipmeter.measure.estimates.long_table import Rows
from flipmeter.measure.inference.blocks import Row, read_blocks
from flipmeter.measure.inference.bounds import Bounded, bounded_mean, bounded_share
from flipmeter.measure.inference.judge import DRAWS, class_places
from flipmeter.measure.inference.randomisation.randomise import evidence
from flipmeter.measure.panel.checked import Booleans, Floats, Ints, Ranks
from flipmeter.measure.panel.groups import estimates
from flipmeter.measure.panel.panel import Compared, Panel, compared, conditions
from flipmeter.measure.statistics.lengths import Length, length_of
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
        found, statistic = _shares(choices.among(read), int((~read).sum()))
    graded: Booleans = np.asarray((choices.gold > 0) & (choices.right > 0).all(axis=1))
    return found | (_recalls(choices.among(graded)) if graded.any() else {}), statistic


# --- shares -----------------------------------------------------------------------------------


def _shares(choices: Choices, failed: int) -> tuple[Found, float]:
    numbers = np.arange(1, int(choices.n_places.max()) + 1)
    seen = (choices.places[:, :, None] == numbers).mean(axis=1)
    dealt = _dealt(choices, numbers)
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


def _dealt(choices: Choices, numbers: Ints) -> Floats:
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


def _recalls(choices: Choices) -> Found:
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
    chosen, right = (of[items] for of in _places(panel, contrast))
    classes = np.stack(conditions(panel, contrast, items), axis=1)
    span = panel.units.spans[int(panel.groups.of[items][0])]
    table = class_places(panel, contrast, items) if span is None else None
    if table is None:
        size = int(panel.n_classes.max()) if span is None else 0
        table = np.zeros((*classes.shape, size), dtype=np.int64)
    counts, cluster = panel.places.n[items], panel.cluster[items]
    return Choices(classes, chosen, panel.gold[items], right, table, counts, cluster, span)


def _places(panel: Panel, contrast: Contrast) -> Iterator[Ints]:
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
        chosen, right = _places(panel, contrast)
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
