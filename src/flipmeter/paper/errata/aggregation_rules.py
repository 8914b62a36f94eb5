"""Aggregators that are wrong before a model is asked, and one that depends on the order."""

from __future__ import annotations

import numpy as np

from flipmeter.decide import aggregate, oracle_check
from flipmeter.paper.bench import Bench, residual_of, share_of_class
from flipmeter.paper.errata.erratum import ErratumRow, Rows, erratum
from flipmeter.paper.published import printed, published_cell
from flipmeter.types import Mode

TITLES = {
    "weighted_sum": "Weighted sum",
    "mean_score": "Mean score",
    "bradley_terry": "Bradley-Terry",
}
N_CLASSES, SHOTS, N_ITEMS, N_STUDIES = 5, 5, 100, 40
SPREAD = 0.6
"""Of texts around their class, as simulated raters have it."""


def _printed(method: str, metric: str) -> str:
    return printed("phase2_pipeline", metric, method=method, family="Aggregation method")


def _accuracy_row(bench: Bench, rule: str) -> ErratumRow:
    """Accuracy of an honest rater asked in pairs, minus its own pointwise accuracy."""
    paper, right = (
        residual_of(bench.comparisons, f"pairwise+{rule}@{mode}", "accuracy")
        for mode in ("paper", "recommended")
    )
    as_printed = _printed(TITLES[rule], "accuracy")
    return ErratumRow("accuracy minus pointwise accuracy", as_printed, paper or 0.0, right or 0.0)


def _oracle_row(rule: str) -> ErratumRow:
    """The results for a perfect comparator's classes 1 to 5."""
    given = (oracle_check(rule, mode=mode) for mode in ("paper", "recommended"))
    paper, right = (", ".join(map(str, classes)) for classes in given)
    return ErratumRow("classes 1, 2, 3, 4, 5 under a perfect comparator", "", paper, right)


@erratum(
    "weighted-sum-bins",
    title="The bins of the weighted sum are misplaced",
    where="Phase 2 pipeline table, pairwise and aggregation method",
    rule="The sum of outcome times label is cut into bins of equal width. The sums that a perfect "
    "comparator gives to the classes are not equally spaced, so most classes fall into the "
    "wrong bin: the loss of accuracy is the rule's, not the comparisons'.",
    remedy="Cut midway between the sums that a perfect comparator gives to neighbouring classes.",
)
def weighted_sum_bins(bench: Bench) -> Rows:
    """The default aggregator of the paper's pairwise pipeline."""
    return [_oracle_row("weighted_sum"), _accuracy_row(bench, "weighted_sum")]


@erratum(
    "mean-score",
    title="The mean score cannot reach the ends of the scale",
    where="Phase 2 pipeline table, aggregation method",
    rule="Every demonstration votes for its label moved by one step, and the votes are averaged: "
    "demonstrations far away pull every item to the middle.",
    remedy="No rounding helps; use the net number of wins (Copeland) or anchored strengths.",
)
def mean_score(bench: Bench) -> Rows:
    """The right column is Copeland's, on the same comparisons."""
    oracle, accuracy = _oracle_row("mean_score"), _accuracy_row(bench, "mean_score")
    copeland = residual_of(bench.comparisons, "pairwise+copeland@recommended", "accuracy")
    classes = ", ".join(map(str, oracle_check("copeland")))
    return [
        ErratumRow(oracle.what, "", oracle.honest, f"{classes} (Copeland)"),
        ErratumRow(accuracy.what, accuracy.paper, accuracy.honest, copeland or 0.0),
    ]


@erratum(
    "bradley-terry-star",
    title="Bradley-Terry on a star has no solution",
    where="Phase 2 pipeline table, aggregation method",
    rule="Strengths come from the item's own games alone. A demonstration with one game won or "
    "lost has no finite strength; the loop stops somewhere, and items without a tie "
    "get class 1.",
    remedy="Add the games that the labels imply (a higher label beats a lower one) and a small "
    "prior; no further call is needed.",
)
def bradley_terry_star(bench: Bench) -> Rows:
    """An honest rater whose comparisons are nearly free of ties."""
    forms = (f"pipeline=pairwise+bradley_terry@{mode}" for mode in ("paper", "recommended"))
    shares = [share_of_class(bench.comparisons, form, 1) for form in forms]
    share = ErratumRow("items that get class 1, of 20 %", "", *shares, unit="share")
    return [share, _accuracy_row(bench, "bradley_terry")]


@erratum(
    "first-seen-majority",
    title="Ties of the majority vote go to the vote seen first",
    where="Phase 2 pipeline table: P2a and P2b of majority vote against weighted sum",
    rule="Where two classes have the most votes, the one whose vote came first wins, so the "
    "order of the demonstrations decides although every comparison is the same.",
    remedy="Use the tied class nearest the mean of all votes: no order, no flip.",
)
def first_seen_majority(bench: Bench) -> Rows:
    """Comparisons without a preference for a position, aggregated in two orders."""
    rng = np.random.default_rng(0)
    studies = [_reordered(rng) for _ in range(N_STUDIES)]
    flips = [100 * float(np.mean(rates)) for rates in zip(*studies, strict=True)]
    excess = ", ".join(f"{_excess(metric):+.2f}" for metric in ("P2a", "P2b"))
    return [ErratumRow("flips by reordering alone", f"{excess} over weighted sum", *flips)]


def _reordered(rng: np.random.Generator) -> list[float]:
    """Share of items whose class changes with the order, in the paper's form and in ours.

    Items and demonstrations lie around their classes; two orders that disagree are a tie.
    """
    labels = np.repeat(np.arange(1, N_CLASSES + 1), SHOTS)
    true = np.repeat(np.arange(1, N_CLASSES + 1), N_ITEMS // N_CLASSES)
    items, demos = (ranks + SPREAD * rng.standard_normal(ranks.size) for ranks in (true, labels))
    chances = 1 / (1 + np.exp(demos - items[:, None]))
    wins = rng.random((2, *chances.shape)) < chances
    outcomes = np.where(wins[0] == wins[1], 2 * wins[0].astype(np.int64) - 1, 0)
    order = rng.permutation(labels.size)
    modes: tuple[Mode, ...] = ("paper", "recommended")
    found = [
        [
            aggregate("majority_vote", outcomes[:, by], labels[by], N_CLASSES, mode=mode).ranks
            for by in (np.arange(labels.size), order)
        ]
        for mode in modes
    ]
    return [float((first != again).mean()) for first, again in found]


def _excess(metric: str) -> float:
    family = "Aggregation method"
    cells = (
        published_cell("phase2_pipeline", metric, method=method, family=family)
        for method in ("Majority vote", "Weighted sum")
    )
    majority, weighted = (cell.value if cell else 0.0 for cell in cells)
    return majority - weighted
