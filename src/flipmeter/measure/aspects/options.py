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
from flipmeter.measure.panel.panel import Panel, compared, conditions
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


Found = dict[str, tuple[Estimate, float]]
"""Estimates, each with the statistic of a test, NaN for the others."""


def option_estimates(choices: Choices) -> Found:
    """Estimate the preference for places of one rater."""
    read: Booleans = np.asarray((choices.classes > 0).all(axis=1))
    found = _shares(choices.among(read), int((~read).sum())) if read.any() else {}
    graded: Booleans = np.asarray((choices.gold > 0) & (choices.right > 0).all(axis=1))
    return found | (_recalls(choices.among(graded)) if graded.any() else {})


# --- shares -----------------------------------------------------------------------------------


def _shares(choices: Choices, failed: int) -> Found:
    width = int(choices.n_places.max())
    numbers = np.arange(1, width + 1)
    seen = (choices.places[:, :, None] == numbers).mean(axis=1)
    dealt = _dealt(choices, numbers)
    seen, dealt, n = (by_cluster(choices, of) for of in (seen, dealt, np.ones(len(seen))))
    total = n.sum()
    share, wanted = seen.sum(axis=0) / total, dealt.sum(axis=0) / total
    found: Found = {}
    for at, number in enumerate(numbers.tolist()):
        bounded = bounded_share(seen[:, at], n, ALPHA)
        found[f"slot:{number}"] = plain(as_estimate(f"slot:{number}", bounded, failed))
    away = share - wanted
    for at, number in enumerate(numbers.tolist()):
        name = f"slot_excess:{number}"
        lean = bounded_mean((seen - dealt)[:, at] / n, ALPHA)
        found[name] = plain(as_estimate(name, lean, failed))
    found["cramers_v"] = plain(_cramers_v(seen - dealt, wanted, n, failed))
    found["slot_test"] = _tested(choices, away, wanted, failed)
    return found


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


def _cramers_v(away: Floats, wanted: Floats, n: Floats, failed: int) -> Estimate:
    """Cramér's V of shares against those wanted, its interval over clusters."""
    used = wanted > 0
    scale = np.sqrt(wanted[used] * max(int(used.sum()) - 1, 1))
    moved, total = away[:, used] / scale, n.sum()
    mean = moved.sum(axis=0) / total
    adds = (moved - n[:, None] * mean) / total
    reach = float(np.sqrt((1 / wanted[used] - 1).max() / max(int(used.sum()) - 1, 1))) / len(n)
    return _length("cramers_v", length_of(mean, adds, reach=reach), failed)


def _tested(choices: Choices, away: Floats, wanted: Floats, failed: int) -> tuple[Estimate, float]:
    """The randomisation test on counts of places; its statistic is Pearson's chi-square."""
    blocks = read_blocks(Row(choices.classes, None, choices.cluster, False, True, choices.table))
    p = evidence(blocks, draws=DRAWS, seed=0).p_direction
    used, n_answers = wanted > 0, choices.classes.size
    statistic = float((away[used] ** 2 / wanted[used]).sum() * n_answers)
    note = f"{EXPECTED}; chi-square, df {max(int(used.sum()) - 1, 1)}"
    tested = Estimate(p, n=len(choices.classes), failed=failed, metric="slot_test", note=note)
    return tested, statistic


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
        bounded = bounded_share(hits[:, at], trials[:, at], ALPHA)
        found[f"recall:{number}"] = plain(as_estimate(f"recall:{number}", bounded, failed))
    sums = trials.sum(axis=0)
    if (sums == 0).any():
        note = "undefined: the right option is never in some place"
        found["recall_sd"] = plain(Estimate(np.nan, metric="recall_sd", note=note))
        return found
    recall = hits.sum(axis=0) / sums
    adds = (hits - trials * recall) / sums
    adds, away = (of - of.mean(axis=-1, keepdims=True) for of in (adds, recall))
    width = np.sqrt(len(numbers))
    length = length_of(away / width, adds / width, reach=0.5 / len(hits))
    found["recall_sd"] = plain(_length("recall_sd", length, failed))
    return found


# --- forms ------------------------------------------------------------------------------------


def by_cluster(choices: Choices, values: Floats) -> Floats:
    """Sums of a number, or of several, over the items of each cluster."""
    _, cluster = np.unique(choices.cluster, return_inverse=True)
    sums = np.zeros((int(cluster.max()) + 1, *values.shape[1:]))
    np.add.at(sums, cluster, values)
    return sums


def plain(one: Estimate) -> tuple[Estimate, float]:
    return one, float("nan")


def as_estimate(name: str, found: Bounded, failed: int) -> Estimate:
    ends = found.low, found.high
    return Estimate(found.value, *ends, n=found.n, failed=failed, metric=name)


def _length(name: str, found: Length, failed: int) -> Estimate:
    ends = found.low, found.high
    return Estimate(found.value, *ends, n=found.n, failed=failed, metric=name)


# --- all groups -------------------------------------------------------------------------------


def choices_of(panel: Panel, contrast: Contrast, items: Booleans) -> Choices:
    """The answers of some items under the orders of a contrast."""
    runs = [(view, 0) for view in contrast.views]
    nowhere = np.zeros(len(panel.gold), dtype=np.int64)
    chosen, right = (
        np.stack([of.get(run, nowhere)[items] for run in runs], axis=1)
        for of in (panel.places.chosen, panel.places.right)
    )
    classes = np.stack(conditions(panel, contrast, items), axis=1)
    span = panel.units.spans[int(panel.groups.of[items][0])]
    table = class_places(panel, contrast, items) if span is None else None
    if table is None:
        size = int(panel.n_classes.max()) if span is None else 0
        table = np.zeros((*classes.shape, size), dtype=np.int64)
    counts, cluster = panel.places.n[items], panel.cluster[items]
    return Choices(classes, chosen, panel.gold[items], right, table, counts, cluster, span)


def option_rows(panel: Panel, contrasts: Sequence[Contrast]) -> Iterator[Rows]:
    """Yield the preference for places from every contrast that moves options."""
    for contrast in contrasts:
        if contrast.swaps_answers:
            continue
        found = compared(panel, contrast)
        listed = ~panel.units.decimal[panel.groups.of]
        moved = found.items & (panel.places.n > 0) & listed & _moves(panel, contrast)
        for group in np.flatnonzero(found.measured & (panel.groups.count(moved) > 0)).tolist():
            mine = moved & (panel.groups.of == group)
            some = option_estimates(choices_of(panel, contrast, mine))
            yield from estimate_rows(group, some, contrast.name)


def _moves(panel: Panel, contrast: Contrast) -> Booleans:
    """Items of raters to whom an option, right or chosen twice, is shown in two places.

    Another place alone is none of this: another option was chosen, and nothing need have moved.
    """
    runs = [(view, 0) for view in contrast.views]
    nowhere = np.zeros(len(panel.gold), dtype=np.int64)
    chosen, right = (
        np.stack([of.get(run, nowhere) for run in runs])
        for of in (panel.places.chosen, panel.places.right)
    )
    classes = np.stack([panel.classes(run) for run in runs])
    is_again = (classes == classes[0]) & (classes > 0)
    marks = (is_again & (chosen != chosen[0])) | (right != right[0])
    return np.asarray((panel.groups.count(marks.any(axis=0)) > 0)[panel.groups.of])


def estimate_rows(group: int, some: Found, view: str) -> Iterator[Rows]:
    """Rows of one group from its estimates."""
    for name, (one, statistic) in some.items():
        policy: Policy = "strict" if name.startswith(("recall", "accuracy")) else "complete"
        columns = estimates(
            name,
            np.array([one.value]),
            (np.array([one.low]), np.array([one.high])),
            n=np.array([one.n]),
            failed=np.array([one.failed]),
            note=[one.note],
        )
        is_test = name.endswith("_test")
        test = {"p": columns.value, "statistic": np.array([statistic])} if is_test else {}
        yield Rows(np.array([group]), columns, view, policy, test)
