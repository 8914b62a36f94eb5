"""The numbers that tables show, by name: the title of each and how to read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flipmeter.errors import Problem
from flipmeter.registry import Registry

Floats = npt.NDArray[np.float64]
Score = Callable[[Floats], Floats]
"""Tables of counts, gold (rows) by predicted class (columns) -> one number for each table."""


@dataclass(frozen=True)
class Metric:
    """A number in tables; `about` is its title.

    A metric that is measured for several things is named `NAME:THING` in tables and titled
    `each` THING. One that `needs_order` has no value where classes have no order. One that is not
    a share (`is_share`) is not shown in percent, and an `is_whole` one without decimals. One with a
    `score` is computed for every view from its readable answers.
    """

    about: str
    each: str = ""
    is_share: bool = True
    needs_order: bool = False
    is_better_high: bool = False
    is_whole: bool = False
    score: Score | None = None

    def title(self, thing: str = "") -> str:
        return f"{self.each or self.about} {thing}" if thing else self.about


ORDERS = {"1": "as given", "2": "swapped"}
"""Names of the two orders of a pair, whose numbers are `ties:1` and `ties:2`."""
metrics: Registry[Metric] = Registry("metric")


def title_of(name: str) -> str:
    """The title of a metric; a number without words is shown under its own name."""
    stem, _, thing = name.partition(":")
    if stem in ("accuracy", "ties"):
        thing = ORDERS.get(thing, thing)
    return metrics[stem].title(thing) if stem in metrics else name


def is_share(name: str) -> bool:
    stem = name.partition(":")[0]
    return stem not in metrics or metrics[stem].is_share


def is_whole(name: str) -> bool:
    stem = name.partition(":")[0]
    return stem in metrics and metrics[stem].is_whole


def is_better_high(name: str) -> bool:
    return name in metrics and metrics[name].is_better_high


def needs_order(name: str) -> bool:
    return name in metrics and metrics[name].needs_order


def added_scores() -> tuple[str, ...]:
    """Names of the metrics with a `score` of their own."""
    return tuple(name for name, metric in metrics.items() if metric.score is not None)


def scored_by(name: str, tables: Floats) -> Floats:
    """The `score` of a metric for a stack of tables, checked."""
    score = metrics[name].score
    if score is None:
        raise Problem(f"the metric '{name}' has no score")
    with metrics.using(name):
        values = np.asarray(score(tables), dtype=np.float64)
    if values.shape != tables.shape[:-2]:
        raise Problem(
            f"the metric '{name}' has the shape {values.shape}; expected one number a table: "
            f"{tables.shape[:-2]}"
        )
    return values


# Scores of every view.
metrics.add("accuracy", Metric("accuracy", each="accuracy,", is_better_high=True))
metrics.add("macro_f1", Metric("macro F1", is_better_high=True))
metrics.add("macro_f1_present", Metric("macro F1 over the gold classes"))
metrics.add("pearson", Metric("Pearson", is_share=False, needs_order=True, is_better_high=True))
metrics.add("spearman", Metric("Spearman", is_share=False, needs_order=True, is_better_high=True))
metrics.add("kendall_tau_b", Metric("Kendall's tau-b", is_share=False, needs_order=True))
metrics.add("mae", Metric("MAE", is_share=False, needs_order=True))
metrics.add("mae_normalised", Metric("MAE / (M - 1)", is_share=False, needs_order=True))
metrics.add("parse_failure", Metric("no class"))
metrics.add("faults", Metric("unreadable"))
metrics.add("flips", Metric("flips"))
# Views that disagree, and by how much.
metrics.add("excess", Metric("excess U"))
metrics.add(
    "excess_ordinal", Metric("excess U, in ranks or units", is_share=False, needs_order=True)
)
metrics.add("across", Metric("differ across views"))
metrics.add("within", Metric("differ within a view (noise)"))
metrics.add("signal_ratio", Metric("across / within", is_share=False))
# Which way answers move.
metrics.add("up", Metric("move up", needs_order=True))
metrics.add("down", Metric("move down", needs_order=True))
metrics.add("to_first", Metric("towards the answer shown first", needs_order=True))
metrics.add("to_second", Metric("towards the answer shown second", needs_order=True))
metrics.add("first_minus_second", Metric("first minus second", needs_order=True))
metrics.add(
    "step_to_first",
    Metric("mean step towards the answer shown first", is_share=False, needs_order=True),
)
metrics.add("shift", Metric("mean step, in ranks or units", is_share=False, needs_order=True))
metrics.add("primacy", Metric("primacy: pulled to the first slots", needs_order=True))
metrics.add("recency", Metric("recency: pulled to the last slots", needs_order=True))
metrics.add("preference", Metric("preference", needs_order=True))
metrics.add("slot_bias", Metric("slot bias, in ranks", is_share=False, needs_order=True))
metrics.add(
    "semantic_bias", Metric("semantic bias, in ranks or units", is_share=False, needs_order=True)
)
metrics.add("right_to_wrong", Metric("right to wrong"))
metrics.add("wrong_to_right", Metric("wrong to right"))
metrics.add("wrong_to_wrong", Metric("wrong to wrong"))
metrics.add("net", Metric("net: change of accuracy"))
metrics.add("bowker", Metric("symmetry (Bowker), p"))
metrics.add("stuart_maxwell", Metric("homogeneity (Stuart-Maxwell), p"))
metrics.add("wilcoxon", Metric("signed ranks (Wilcoxon), p", needs_order=True))
# How far.
metrics.add("difference", Metric("mean difference, in units", is_share=False, needs_order=True))
metrics.add("distance", Metric("mean distance, as a share of the scale", needs_order=True))
metrics.add("disagreement", Metric("pairs of views that differ"))
metrics.add("far", Metric("two ranks apart or more", needs_order=True))
metrics.add("polar", Metric("on both sides of the middle", needs_order=True))
metrics.add("kappa", Metric("kappa", is_share=False))
metrics.add("qwk", Metric("quadratic kappa", is_share=False, needs_order=True))
metrics.add("alpha", Metric("ordinal alpha", is_share=False, needs_order=True))
# Slots and places.
metrics.add("entropy_deficit", Metric("entropy deficit, nats", is_share=False))
metrics.add("slot_distance", Metric("distance from expectation"))
metrics.add("slot_test", Metric("no preference for a slot, p"))
metrics.add("cramers_v", Metric("Cramér's V of slots", is_share=False))
metrics.add("recall_sd", Metric("SD of recall over slots (RStD)"))
metrics.add("first_share", Metric("the answer shown first wins (ties excluded)"))
metrics.add("first_test", Metric("no place is preferred, p"))
metrics.add("consistency", Metric("same verdict in both orders"))
metrics.add("accuracy_both", Metric("right in both orders"))
metrics.add(
    "order_effect", Metric("order effect, log-odds for the answer shown first", is_share=False)
)
# The worst view.
metrics.add("robust_accuracy", Metric("right in every view"))
metrics.add("worst_accuracy", Metric("accuracy of the worst view"))
metrics.add("expected_accuracy", Metric("accuracy, mean over views"))
metrics.add("spread", Metric("best minus worst view"))
metrics.add("cost", Metric("mean cost", is_share=False))
metrics.add("instability_cost", Metric("mean cost between views", is_share=False))
# Confidence.
metrics.add("coverage", Metric("all views agree"))
metrics.add("selective_accuracy", Metric("accuracy where they do"))
metrics.add(
    "abstention_area", Metric("area under accuracy by coverage", is_share=False, needs_order=True)
)
metrics.add("margin_rho", Metric("margin and flips, Spearman's rho", is_share=False))
metrics.add("margin_trend", Metric("no trend with the margin, p"))
metrics.add("entropy_rho", Metric("entropy and flips, Spearman's rho", is_share=False))
metrics.add("entropy_trend", Metric("no trend with the entropy, p"))
# One number for each of several things: NAME:THING.
metrics.add("slot", Metric("share of slot"))
metrics.add("recall", Metric("accuracy when the right option is in slot"))
metrics.add("ties", Metric("ties,"))
metrics.add("win_rate", Metric("win rate of"))
metrics.add("strength", Metric("strength of", is_share=False))
metrics.add("rank", Metric("rank of", is_share=False, is_whole=True))
metrics.add("slot_excess", Metric("beyond expectation, slot"))
metrics.add("margin", Metric("flips, smallest margins first,"))
metrics.add("entropy", Metric("flips, smallest entropies first,"))
