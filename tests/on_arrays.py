"""Statistics of the panel on plain arrays: one group of items, for tests of their mathematics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import numpy.typing as npt
from scipy import special

from flipmeter.checks import interval_level
from flipmeter.errors import Problem
from flipmeter.stats.confidence import (
    area_under,
    confidence_bins,
    confidence_estimates,
    consensus,
    trends,
)
from flipmeter.stats.direction import (
    Test,
    bowker_tests,
    flip_matrices,
    homogeneity_tests,
    moves,
    outcomes,
    signed_ranks,
)
from flipmeter.stats.estimates import Tokens, _tokens, hidden_estimates
from flipmeter.stats.excess import excess_estimates
from flipmeter.stats.flips import (
    count_discordant,
    estimate_flips,
    find_flips,
    flip_rate,
    silent_noise,
)
from flipmeter.stats.formulas import METHODS, _check_count, exact_ends, mcnemar
from flipmeter.stats.frame import ScaleUnits
from flipmeter.stats.groups import (
    Floats,
    Ints,
    Ranks,
    _shaped,
    booleans,
    joined,
    one_group,
    ranks,
    ratio,
    same_length,
)
from flipmeter.stats.preference import slot_estimates
from flipmeter.stats.scores import ScorePolicy, _scored, confusions, scores
from flipmeter.stats.severity import (
    Costs,
    coincidences,
    cost_matrix,
    ordinal_alpha,
    severity_estimates,
    worst_estimates,
)
from flipmeter.stats.sizes import grouped_excess
from flipmeter.stats.systems import Played, system_estimates
from flipmeter.types import LEVEL, Estimate, Policy

CLASSES = ScaleUnits([None])


def rank_table(values: npt.ArrayLike, what: str = "ranks", n_classes: int | None = None) -> Ranks:
    """Items x conditions, at least two conditions."""
    table = _shaped(values, what, 2)
    checked = ranks(table.ravel(), what, n_classes)
    if table.shape[1] < 2:
        raise Problem(f"{what} has {table.shape[1]} condition; there is nothing to compare it with")
    return checked.reshape(table.shape)


def confidence_trend(flipped: npt.ArrayLike, confidence: npt.ArrayLike) -> tuple[float, float]:
    """Spearman's rho between confidence and flips, and its p by Mantel's (n - 1) rho².

    This is Cochran and Armitage's test for a trend with ranks for scores. Both are NaN where all
    flip, none does, or all are equally sure.
    """
    flips, score = booleans(flipped, "flipped", 1), np.asarray(confidence, dtype=np.float64)
    same_length(flipped=flips, confidence=score)
    if np.isnan(score).any():
        raise Problem("every item needs a confidence; leave out those without probabilities")
    rho, p = trends(flips, score, one_group(len(score)))
    return float(rho[0]), float(p[0])


def flips_by_confidence(
    flipped: npt.ArrayLike, confidence: npt.ArrayLike, *, n_bins: int = 5
) -> list[Estimate]:
    """Flip rate from the least to the most confident items, in bins of about equal size.

    Items of one confidence stay together, so there may be fewer bins. The note says its range.
    """
    flips, score = booleans(flipped, "flipped", 1), np.asarray(confidence, dtype=np.float64)
    same_length(flipped=flips, confidence=score)
    if np.isnan(score).any() or n_bins < 1:
        raise Problem("every item needs a confidence, and at least one bin is needed")
    place, found = confidence_bins(score, n_bins), []
    for own in (place == bin_ for bin_ in range(place.max() + 1)):
        k, n = int(flips[own].sum()), int(own.sum())
        note = f"{score[own].min():.3f} to {score[own].max():.3f}"
        found.append(Estimate(k / n, *_exact(k, n), n, k=k, metric="flips", note=note))
    return found


def _exact(k: int, n: int) -> tuple[float, float]:
    low, high = exact_ends(np.array([k]), np.array([n]))
    return float(low[0]), float(high[0])


@dataclass(frozen=True)
class Abstention:
    """Coverage and accuracy if only items with enough agreement are answered, from strict to lax.

    `agreement` is the share of conditions that must give the same class; `coverage` the share of
    items that have it, `accuracy` how many of these are right; `area` lies under accuracy along
    coverage, and is what `accuracy` would be on average over how much one answers.
    """

    agreement: Floats
    coverage: Floats
    accuracy: Floats
    area: float


def abstention_curve(gold: npt.ArrayLike, matrix: npt.ArrayLike, n_classes: int) -> Abstention:
    """Trade coverage for accuracy by how many conditions agree (items x conditions).

    The answer is the class of most conditions; of several, the one nearest their mean. A failure
    agrees with nothing.
    """
    truth, table = ranks(gold, "gold", n_classes), rank_table(matrix, "matrix", n_classes)
    same_length(gold=truth, matrix=table)
    winner, votes = consensus(table, n_classes)
    n_views = table.shape[1]
    steps = np.arange(n_views, -1, -1)
    asked = np.array([(votes == step).sum() for step in steps], dtype=np.float64)
    right = np.array([((votes == step) & (winner == truth)).sum() for step in steps], float)
    answered = np.cumsum(asked)
    area = float(area_under(np.concatenate([asked, right]))[0])
    used = asked > 0
    return Abstention(
        (steps / n_views)[used],
        (answered / len(truth))[used],
        ratio(np.cumsum(right), answered)[used],
        area,
    )


def agreement(gold: npt.ArrayLike, matrix: npt.ArrayLike, n_classes: int) -> dict[str, Estimate]:
    """Say what answering only where all conditions agree gains (items x conditions).

    `coverage` is the share of such items, `selective_accuracy` how many of them are right,
    `abstention_area` lies under the whole curve.
    """
    truth, table = ranks(gold, "gold", n_classes), rank_table(matrix, "matrix", n_classes)
    same_length(gold=truth, matrix=table)
    if truth.min() < 1:
        raise Problem("gold contains 0; leave out the items that have no gold class")
    found = confidence_estimates(truth, table, n_classes, one_group(len(truth)))
    return {name: one.only() for name, one in found.items()}


def direction(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    n_classes: int,
    *,
    gold: npt.ArrayLike | None = None,
    reverses_labels: bool = False,
) -> dict[str, Estimate]:
    """Say which way classes move from the first view to the second, on items read in both.

    `up` and `down` are the shares that move to a higher and a lower class, `shift` the mean step,
    `preference` up minus down. Where the second view reverses the label list, moving up means
    that the first slots were preferred: the same numbers are then `primacy`, `recency`,
    `slot_bias` (half the mean step, below 0 for the first slots) and `preference` (recency minus
    primacy). With gold: `semantic_bias`, the mean of both views minus gold; the shares
    `right_to_wrong`, `wrong_to_right` and `wrong_to_wrong`; and `net`, the change of accuracy.
    """
    a, b = ranks(first, "first", n_classes), ranks(second, "second", n_classes)
    truth = np.zeros_like(a) if gold is None else ranks(gold, "gold", n_classes)
    same_length(first=a, second=b, gold=truth)
    groups = one_group(len(a))
    scale = np.array([n_classes]), CLASSES
    found = moves(a, b, groups, reverses_labels, *scale) | outcomes(a, b, truth, groups, *scale)
    return {name: one.only() for name, one in found.items() if one.n[0]}


def flip_matrix(first: npt.ArrayLike, second: npt.ArrayLike, n_classes: int) -> Ints:
    """Count the items by class under the first view (rows) and under the second (columns)."""
    a, b = ranks(first, "first", n_classes), ranks(second, "second", n_classes)
    same_length(first=a, second=b)
    return np.asarray(flip_matrices(a, b, n_classes, one_group(len(a)))[0])


def bowker(table: npt.ArrayLike) -> tuple[float, int, float]:
    """Bowker's test of symmetry: is i -> j as frequent as j -> i? Statistic, df and p."""
    return _only(bowker_tests(_square(table)[None]))


def stuart_maxwell(table: npt.ArrayLike) -> tuple[float, int, float]:
    """Stuart and Maxwell's test of homogeneity: is every class as frequent under both views?"""
    return _only(homogeneity_tests(_square(table)[None]))


def wilcoxon(table: npt.ArrayLike) -> tuple[float, float]:
    """Signed-rank test of the steps from row to column: z, above 0 for upward, and p.

    Ties share their mean rank and items that stay are left out. p is two-sided, from t with one
    degree of freedom less than items move: the normal approximation claims a little too often.
    """
    z, p = signed_ranks(_square(table)[None])
    return float(z[0]), float(p[0])


def _square(table: npt.ArrayLike) -> Floats:
    counts = np.asarray(table, dtype=np.float64)
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or len(counts) < 2:
        raise Problem(f"a flip matrix is M x M with M of 2 or more; got shape {counts.shape}")
    if (counts < 0).any():
        raise Problem(f"a flip matrix must contain counts; got {counts.min()}")
    return counts


def _only(test: Test) -> tuple[float, int, float]:
    statistic, df, p = test
    return float(statistic[0]), int(df[0]), float(p[0])


def excess_over_noise(*views: npt.ArrayLike, n_classes: int) -> dict[str, Estimate]:
    """Disagreement between views beyond that between repeats of each view.

    Each view is items x repeats, two repeats or more. `excess` is U = P(a != b) - mean noise,
    averaged over the pairs of views; its expectation is half the sum of (p - q)^2, 0 only if the
    views give the same answers with the same chances. `excess_ordinal` counts distances instead.
    `across` and `within` are the two sides of U, `signal_ratio` is one over the other. An item
    counts if every view was read at least twice. The ratio has no interval: its parts have.
    """
    tables = [rank_table(view, f"view {place}", n_classes) for place, view in enumerate(views, 1)]
    same_length(**{f"view {place}": table for place, table in enumerate(tables, 1)})
    found = excess_estimates(tables, np.array([n_classes]), one_group(len(tables[0])), CLASSES)
    return {name: one.only() for name, one in found.items()}


def severity(matrix: npt.ArrayLike, n_classes: int) -> dict[str, Estimate]:
    """Say how far the classes of items lie apart over conditions (items x conditions).

    `distance` is the mean over pairs of conditions of the distance in ranks, divided by M - 1;
    `disagreement` the share of pairs of conditions that differ, which, unlike "any differs", does
    not grow with their number; `far` the share of items that are two or more ranks apart, `polar`
    of those on both sides of the middle. `alpha` is Krippendorff's, ordinal. Two conditions also
    have Cohen's `kappa` (1 - flips / flips by chance) and the quadratic-weighted `qwk`. Items with
    a failure are left out, except that alpha keeps those with two classes or more.
    """
    table = _checked(matrix, n_classes)
    found = severity_estimates(table, n_classes, one_group(len(table)))
    return {name: one.only() for name, one in found.items()}


def krippendorff_alpha(matrix: npt.ArrayLike, n_classes: int) -> float:
    """Ordinal alpha of items x raters or conditions, 0 for "no class"; NaN if nothing varies."""
    table = _checked(matrix, n_classes)
    together = coincidences(table, n_classes).sum(axis=0)
    return float(ordinal_alpha(together))


def _checked(matrix: npt.ArrayLike, n_classes: int) -> Ranks:
    if n_classes < 2:
        raise Problem(f"a scale needs at least two classes; got n_classes = {n_classes}")
    return rank_table(matrix, "matrix", n_classes)


def slot_preference(
    natural: npt.ArrayLike,
    reversed_: npt.ArrayLike,
    n_classes: int,
    *,
    gold: npt.ArrayLike | None = None,
) -> dict[str, Estimate]:
    """Say how often each slot is chosen over both orders of the label list, against expectation.

    A class stands in slot r of the natural list and in M + 1 - r of the reversed one. `slot:1` to
    `slot:M` are the shares; `entropy_deficit` is log M minus their entropy. Expected is the
    gold classes' own share of the slots; without gold only their mirror symmetry, which any
    rater without a slot preference has. `slot_excess:s` is the share beyond it, `slot_distance`
    the total variation, `recall_sd` the SD over slots of the recall of the class there. A
    preference for a class moves these too, but not `slot_test`: Hotelling's p that every slot is
    chosen as often as its mirror image (an item counts once, not twice).
    """
    first, second = ranks(natural, "natural", n_classes), ranks(reversed_, "reversed", n_classes)
    truth = np.zeros_like(first) if gold is None else ranks(gold, "gold", n_classes)
    same_length(natural=first, reversed=second, gold=truth)
    found = slot_estimates(first, second, truth, n_classes, one_group(len(first)))
    return {name: one.only() for name, (one, _) in found.items()}


def chi_square(counts: npt.ArrayLike, expected: npt.ArrayLike) -> tuple[float, int, float]:
    """Pearson's test that slots are chosen with the expected shares: statistic, df and p.

    It takes every choice for independent: use it for one order of the list.
    """
    seen, share = np.asarray(counts, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    if seen.shape != share.shape or seen.ndim != 1 or len(seen) < 2:
        raise Problem(
            f"counts and expected need one number per slot; got {seen.shape} and {share.shape}"
        )
    if (share <= 0).any() or (seen < 0).any():
        raise Problem("every slot needs an expected share above 0 and a count of 0 or more")
    wanted = share / share.sum() * seen.sum()
    statistic = float(((seen - wanted) ** 2 / wanted).sum()) if seen.sum() else 0.0
    return statistic, len(seen) - 1, float(special.chdtrc(len(seen) - 1, statistic))


def rank_systems(
    first: Sequence[str],
    second: Sequence[str],
    result: npt.ArrayLike,
    *,
    order: npt.ArrayLike | None = None,
    clusters: npt.ArrayLike | None = None,
) -> dict[str, dict[str, Estimate]]:
    """Win rates and strengths of systems from games, as given, swapped and in both orders.

    A game shows `first` before `second`; `result` is 0 if the first won, 1 if the second did and
    2 for a tie. `win_rate:NAME` counts a tie as half a win. `strength:NAME` is that of
    Bradley and Terry with Davidson's ties, in log-odds with mean 0, and `rank:NAME` its place.
    Both orders together also have `order_effect`, above 0 if what is shown first is favoured. Where
    the likelihood has no maximum the strengths are undefined, and their note says why.
    """
    names = tuple(sorted({*first, *second}))
    number = {name: place for place, name in enumerate(names)}
    n = len(first)
    played = Played(
        names,
        np.array([number[name] for name in first], dtype=np.int64),
        np.array([number[name] for name in second], dtype=np.int64),
        np.asarray(result, dtype=np.int64),
        np.zeros(n, dtype=np.int64) if order is None else np.asarray(order, dtype=np.int64),
        np.arange(n) if clusters is None else np.unique(clusters, return_inverse=True)[1],
    )
    return dict(system_estimates(played))


def worst_case(
    gold: npt.ArrayLike,
    matrix: npt.ArrayLike,
    n_classes: int,
    *,
    costs: npt.ArrayLike | None = None,
) -> dict[str, Estimate]:
    """Say what positions can do to the answers (items x conditions), against gold.

    `robust_accuracy` is the share of items that are right under every condition; `worst_accuracy`
    the accuracy of the worst condition and `spread` the best minus the worst, with intervals that
    hold although the condition was picked by looking; `expected_accuracy` is the mean over
    conditions. A failure is wrong. On items without a
    failure: `cost` is the mean cost of the classes given, `instability_cost` the mean cost between
    two conditions. Costs are M x M, gold by given; by default the distance in ranks, and 1 for
    every wrong class where classes have no order.
    """
    truth, table = ranks(gold, "gold", n_classes), rank_table(matrix, "matrix", n_classes)
    same_length(gold=truth, matrix=table)
    if truth.min() < 1:
        raise Problem("gold contains 0; leave out the items that have no gold class")
    own = Costs.of_classes(cost_matrix(costs, n_classes))
    found = worst_estimates(truth, table, one_group(len(truth)), own)
    return {name: one.only() for name, one in found.items()}


@dataclass(frozen=True)
class NoiseTest:
    """Flips between views against flips between two runs of one view, on the same items.

    b counts the items that only the change of view flips, c those that only the repeat flips, n
    all that were compared. The p-values are one-sided: does the view flip more than the noise?
    """

    noise: Estimate
    total: Estimate
    n: int
    b: int
    c: int
    mid_p: float
    exact_p: float
    paper_p: float


def flip_rate_any(
    matrix: npt.ArrayLike,
    policy: Policy = "complete",
    *,
    n_classes: int | None = None,
    level: float = LEVEL,
) -> Estimate:
    """Share of items whose class is not the same in all conditions (items x conditions).

    It grows with the number of conditions: compare it only with itself. Two classes that were
    read differ whatever a third failure hides, so `complete` may lie below the lower bound.
    """
    table = rank_table(matrix, "matrix", n_classes)
    found = find_flips(table, one_group(len(table)), of_any=True)
    return estimate_flips(found, policy, level=level).only()


def noise_floor(a: npt.ArrayLike, a_prime: npt.ArrayLike, policy: Policy = "complete") -> Estimate:
    """Share of items whose class differs between two runs of the same prompts."""
    first, second = ranks(a, "a"), ranks(a_prime, "a_prime")
    same_length(a=first, a_prime=second)
    found = find_flips(np.stack([first, second], axis=1), one_group(len(first)))
    rate = estimate_flips(found, policy, "noise").only()
    silent = silent_noise(len(first), int(found.n_complete[0]), int(found.n_strict[0]))
    return replace(rate, note=joined(rate.note, silent))


def total_vs_noise(
    base: npt.ArrayLike, other: npt.ArrayLike, repeat: npt.ArrayLike, policy: Policy = "complete"
) -> NoiseTest:
    """Test whether going from base to other flips more items than running base again.

    `complete` tests the items read in all three runs; each rate keeps the pairs of its own.
    """
    return compare_with_noise((base, other), (base, repeat), policy)


def compare_with_noise(
    views: tuple[npt.ArrayLike, npt.ArrayLike],
    runs: tuple[npt.ArrayLike, npt.ArrayLike],
    policy: Policy = "complete",
) -> NoiseTest:
    """Test the flips between two views against those between two runs, of whichever view."""
    (x, y), (u, v) = [ranks(side, "views") for side in views], [ranks(run, "runs") for run in runs]
    same_length(base=x, other=y, run=u, repeat=v)
    counts = count_discordant(
        np.stack([x, y], axis=1), np.stack([u, v], axis=1), policy, one_group(len(x))
    )
    n, b, c = (int(count[0]) for count in counts)
    p = [mcnemar(b, c, method) if n else math.nan for method in METHODS]
    total = replace(flip_rate(x, y, policy), metric="total")
    return NoiseTest(noise_floor(u, v, policy), total, n, b, c, *p)


def excess_disagreement(
    a: npt.ArrayLike, a_prime: npt.ArrayLike, b: npt.ArrayLike, b_prime: npt.ArrayLike
) -> Estimate:
    """Disagreement between two views beyond that between two runs of each.

    Unbiased for half the sum of (p - q)^2, which is 0 only if both views give the same answers
    with the same chances. Single estimates may fall below 0. The interval is that of a verdict.
    """
    runs = [ranks(run, "runs") for run in (a, a_prime, b, b_prime)]
    same_length(a=runs[0], a_prime=runs[1], b=runs[2], b_prime=runs[3])
    one, n = one_group(len(runs[0])), len(runs[0])
    first, again = np.stack(runs[::2], axis=1), np.stack(runs[1::2], axis=1)
    return grouped_excess(first, again, np.arange(n), one, "excess", [None]).only()


@dataclass(frozen=True)
class Performance:
    """Agreement of predictions with the gold classes; NaN where a number is undefined.

    n counts the items that accuracy and F1 rest on; `support` is their gold classes, lowest first.
    The other scores always rest on the items that were read, `parse_failure` on all of them.
    """

    accuracy: float
    macro_f1: float
    spearman: float
    mae: float
    parse_failure: float
    n: int
    kendall_tau_b: float
    qwk: float
    mae_normalised: float
    macro_f1_present: float
    support: tuple[int, ...]


def performance(
    gold: npt.ArrayLike,
    predicted: npt.ArrayLike,
    n_classes: int,
    policy: ScorePolicy = "complete",
) -> Performance:
    """Score predictions against gold; `complete` leaves failures out, `strict` calls them wrong.

    Macro-F1 runs over all classes of the scale, with 0 for a class neither predicted nor gold;
    `macro_f1_present` runs over the gold classes. A constant side leaves the correlations NaN.
    """
    if n_classes < 2:
        raise Problem(f"a scale needs at least two classes; got n_classes = {n_classes}")
    truth, read = ranks(gold, "gold", n_classes), ranks(predicted, "predicted", n_classes)
    same_length(gold=truth, predicted=read)
    if truth.min() < 1:
        raise Problem("gold contains 0; leave out the items that have no gold class")
    table = confusion(truth, read, n_classes)
    scored = _scored(table, policy)
    values = {name: float(value) for name, value in scores(table, policy).items()}
    support = tuple(int(count) for count in scored.sum(axis=1))
    return Performance(**values, n=sum(support), support=support)


def confusion(gold: Ranks, predicted: Ranks, n_classes: int) -> Floats:
    """Count gold against predicted classes."""
    return np.asarray(confusions(gold, predicted, n_classes, one_group(len(gold)))[0])


def hidden_tokens(completion: Tokens, reasoning: Tokens | None = None) -> Estimate:
    """Mean hidden tokens per reply: the reported reasoning tokens, else completion minus one.

    The second is the paper's count and mostly stop and template tokens, so its note says
    "overhead". The two kinds are never averaged together.
    """
    written = _tokens(completion, "completion")
    thought = np.full_like(written, np.nan) if reasoning is None else reasoning
    return hidden_estimates(written, thought, one_group(len(written))).only()


def clopper_upper(k: int, n: int, level: float = LEVEL) -> float:
    """One-sided Clopper-Pearson bound: the rate is below it with at least this confidence."""
    _check_count(k, n)
    interval_level(level)
    return 1.0 if k == n else float(special.betaincinv(k + 1, n - k, level))


def mcnemar_counts(x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[int, int]:
    """Count the items where only x holds (b) and where only y holds (c)."""
    first, second = booleans(x, "x", 1), booleans(y, "y", 1)
    same_length(x=first, y=second)
    return int((first & ~second).sum()), int((second & ~first).sum())


def paper_round(x: float) -> float:
    """Round to 4 decimals and then half-up to 3, as the paper's tables do; for regression only."""
    once = Decimal(repr(round(float(x), 4)))
    return float(once.quantize(Decimal("0.001"), rounding=ROUND_HALF_UP))


def allowed_flips(n: int, margin: float, alpha: float) -> int:
    """Most flips among n with a Clopper-Pearson bound below the margin; -1 if none will do."""
    k = int(special.bdtrik(alpha, n, margin)) if special.bdtr(0, n, margin) < alpha else -1
    while k >= 0 and special.bdtr(k, n, margin) >= alpha:
        k -= 1
    while special.bdtr(k + 1, n, margin) < alpha:
        k += 1
    return k
