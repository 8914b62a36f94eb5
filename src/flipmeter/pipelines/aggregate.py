"""Outcomes of comparisons -> one class: votes, bins of scores, and the registry of such rules.

An outcome is +1 where the item is higher than the demonstration, -1 where it is lower, and 0 where
they tie, where the two orders of asking disagree, or where the caller counts a lost answer so.

The paper has the item's games alone: a star, where a demonstration that won its one game has no
finite strength. The recommended form adds the games that the labels imply (a higher label beats a
lower one, equal labels tie) and a small Gaussian prior, so that the strengths exist.

Demonstrations of one class with one outcome have one strength, in both. So items with the same
counts share a solution, and a table of 25 demonstrations on five classes has at most 16 unknowns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from flipmeter.errors import Problem
from flipmeter.registry import Registry, suggestion
from flipmeter.types import Mode, Rank

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
Preference = Literal["lowest", "highest", "central"]


@dataclass(frozen=True, eq=False)
class Aggregated:
    """A class per item, and what must be known about it.

    `tie_decided`: classes were level and a tie rule chose. `last_resort`: that rule had nothing
    left but a convention (the lower class, the upper bin, the vote seen first), so that mirrored
    comparisons need not give the mirrored class. `degenerate`: the strengths that the class rests
    on have no finite estimate.
    """

    ranks: Ints
    tie_decided: Booleans
    last_resort: Booleans
    degenerate: Booleans

    @classmethod
    def of(cls, ranks: Ints) -> Aggregated:
        """Classes that no tie rule had to decide."""
        no = np.zeros(len(ranks), dtype=np.bool_)
        return cls(ranks, no, no, no)

    def at(self, places: Ints) -> Aggregated:
        """The items at these places."""
        return Aggregated(*(of[places] for of in vars(self).values()))


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Outcomes (items x demonstrations) and labels, and wins, ties and losses by class."""

    outcomes: Ints
    labels: Ints
    n_classes: int

    @classmethod
    def of(cls, outcomes: npt.ArrayLike, labels: npt.ArrayLike, n_classes: int) -> Comparisons:
        """Check what a caller gives; one row of outcomes is one item."""
        if n_classes < 2:
            raise Problem(f"n_classes is {n_classes}; a scale has at least two classes")
        shown = _check_whole_numbers(labels, "labels", 1, n_classes)
        if shown.ndim != 1:
            raise Problem(f"labels must be one class per demonstration; got shape {shown.shape}")
        table = np.atleast_2d(_check_whole_numbers(outcomes, "outcomes", -1, 1))
        if table.ndim != 2 or table.shape[1] != len(shown):
            raise Problem(
                f"outcomes must be items x demonstrations with one column for each of the "
                f"{len(shown)} labels; got shape {table.shape}"
            )
        return cls(table, shown, n_classes)

    @cached_property
    def classes(self) -> Ints:
        return np.arange(1, self.n_classes + 1)

    @cached_property
    def sizes(self) -> Ints:
        """Demonstrations of each class."""
        return np.bincount(self.labels, minlength=self.n_classes + 1)[1:]

    @cached_property
    def wins(self) -> Ints:
        """Demonstrations of each class that the item is higher than (items x classes)."""
        return self._counted(self.outcomes == 1)

    @cached_property
    def losses(self) -> Ints:
        return self._counted(self.outcomes == -1)

    @cached_property
    def ties(self) -> Ints:
        return self.sizes - self.wins - self.losses

    @cached_property
    def _shown(self) -> Booleans:
        """Say which demonstration is of which class (demonstrations x classes)."""
        return np.equal(self.labels[:, None], self.classes)

    def _counted(self, chosen: Booleans) -> Ints:
        # numpy multiplies whole numbers without BLAS; these are small, so floats are exact.
        return (chosen.astype(np.float64) @ self._shown).astype(np.int64)


def is_paper(mode: Mode) -> bool:
    """Whether a mode is the paper's; refuse one that does not exist."""
    if mode not in get_args(Mode):
        raise Problem(f"no mode named '{mode}'{suggestion(str(mode), list(get_args(Mode)))}")
    return mode == "paper"


def place(scores: Ints | Floats, cuts: Ints | Floats, prefer: Preference) -> Aggregated:
    """The class between two cuts; a score on a cut belongs to the classes on both sides."""
    low = np.searchsorted(cuts, scores, side="left")
    high = np.searchsorted(cuts, scores, side="right")
    classes = np.arange(len(cuts) + 1)
    return settle((low[:, None] <= classes) & (classes <= high[:, None]), prefer)


def settle(candidates: Booleans, prefer: Preference) -> Aggregated:
    """Choose one class of the candidates (items x classes).

    `central` is the one nearest the middle of the scale, and the lower of two that are as near.
    """
    n_items, n_classes = candidates.shape
    is_tied = candidates.sum(axis=1) > 1
    left = candidates
    if prefer == "central":
        from_middle = np.abs(2 * np.arange(n_classes) - (n_classes - 1))
        distance = np.where(candidates, from_middle, n_classes)
        left = distance == distance.min(axis=1, keepdims=True)
    first = n_classes - 1 - left[:, ::-1].argmax(axis=1) if prefer == "highest" else left.argmax(1)
    return Aggregated(
        ranks=first + 1,
        tie_decided=is_tied,
        last_resort=left.sum(axis=1) > 1,
        degenerate=np.zeros(n_items, dtype=np.bool_),
    )


def _check_whole_numbers(values: npt.ArrayLike, what: str, low: int, high: int) -> Ints:
    try:
        array: npt.NDArray[Any] = np.asarray(values)
    except ValueError as error:
        raise Problem(f"{what} is ragged: every item needs the same demonstrations") from error
    if array.size == 0:
        raise Problem(f"{what} is empty; there is nothing to aggregate")
    if array.dtype.kind not in "iuf":
        raise Problem(f"{what} must be whole numbers; got values such as {array.flat[0]!r}")
    outside = array[~((array >= low) & (array <= high) & (array == np.floor(array)))]
    if outside.size:
        raise Problem(f"{what} must be whole numbers from {low} to {high}; got {outside.flat[0]}")
    return array.astype(np.int64)


def majority_vote(
    outcomes: npt.ArrayLike,
    labels: npt.ArrayLike,
    n_classes: int,
    *,
    mode: Mode = "recommended",
) -> Ints:
    """The class with most votes.

    Level classes: the one nearest the mean of all votes, then nearest their median, then the lower.
    Paper mode takes the one whose vote stands first, which depends on the demonstrations' order.
    """
    return most_voted(Comparisons.of(outcomes, labels, n_classes), mode).ranks


def mean_score(
    outcomes: npt.ArrayLike,
    labels: npt.ArrayLike,
    n_classes: int,
    *,
    mode: Mode = "recommended",
) -> Ints:
    """The rounded mean of the votes; a half goes towards the middle of the scale.

    Paper mode rounds a half up. In both, far demonstrations pull every item to the middle, even
    under a perfect comparator: `recommended` fixes the rounding and no more.
    """
    return mean_voted(Comparisons.of(outcomes, labels, n_classes), mode).ranks


def most_voted(compared: Comparisons, mode: Mode) -> Aggregated:
    """Take the class with most votes."""
    votes = _votes_by_class(compared)
    if not is_paper(mode):
        return favourite(votes)
    is_level = votes == votes.max(axis=1, keepdims=True)
    return replace(settle(is_level, "lowest"), ranks=_first_seen(compared, is_level))


def favourite(votes: Ints) -> Aggregated:
    """The class with most votes (items x classes); see `majority_vote` for level ones."""
    n_classes = votes.shape[1]
    classes = np.arange(1, n_classes + 1)
    n_votes, total = votes.sum(axis=1, keepdims=True), (votes @ classes)[:, None]
    is_level = votes == votes.max(axis=1, keepdims=True)
    from_mean = np.abs(n_votes * classes - total)
    from_median = np.abs(2 * classes - _twice_the_median(votes)[:, None])
    # One whole number per class: distance from the mean first, from the median second.
    distance = from_mean * (2 * n_classes + 1) + from_median
    distance[~is_level] = np.iinfo(np.int64).max
    nearest = settle(distance == distance.min(axis=1, keepdims=True), "lowest")
    return replace(nearest, tie_decided=is_level.sum(axis=1) > 1)


def mean_voted(compared: Comparisons, mode: Mode) -> Aggregated:
    """Round the mean of the votes."""
    return nearest_class(
        _votes_by_class(compared) @ compared.classes, len(compared.labels), compared.n_classes, mode
    )


def nearest_class(total: Ints, n: int, n_classes: int, mode: Mode) -> Aggregated:
    """Round total / n to a class; a half goes towards the middle of the scale, in the paper up."""
    cuts = n * (2 * np.arange(1, n_classes) + 1)
    return place(2 * total, cuts, "highest" if is_paper(mode) else "central")


def _votes_by_class(compared: Comparisons) -> Ints:
    """Count the votes for each class (items x classes)."""
    votes = compared.ties.copy()
    votes[:, 1:] += compared.wins[:, :-1]
    votes[:, -1] += compared.wins[:, -1]
    votes[:, :-1] += compared.losses[:, 1:]
    votes[:, 0] += compared.losses[:, 0]
    return votes


def _twice_the_median(votes: Ints) -> Ints:
    """The sum of the two middle votes, which are one and the same if their number is odd."""
    up_to = votes.cumsum(axis=1)
    n_votes = up_to[:, -1:]
    below, above = ((up_to <= place).sum(axis=1) for place in ((n_votes - 1) // 2, n_votes // 2))
    twice: Ints = below + above + 2
    return twice


def _first_seen(compared: Comparisons, is_level: npt.NDArray[np.bool_]) -> Ints:
    """Of the level classes, the one that the first demonstration voted for."""
    votes = np.clip(compared.labels + compared.outcomes, 1, compared.n_classes)
    first = np.take_along_axis(is_level, votes - 1, axis=1).argmax(axis=1)
    return np.take_along_axis(votes, first[:, None], axis=1)[:, 0]


Thresholds = Literal["expected", "equal", "self"]


def weighted_sum(
    outcomes: npt.ArrayLike,
    labels: npt.ArrayLike,
    n_classes: int,
    *,
    mode: Mode = "recommended",
    thresholds: Thresholds | None = None,
    lam: float = 0.5,
    shares: Sequence[float] | None = None,
) -> Ints:
    """Cut the sum of outcome times label into classes.

    `expected` thresholds lie midway between the sums that a perfect comparator gives to
    neighbouring classes. `equal` are bins of one width, into which its sums do not fall one by one:
    paper mode has no others, and puts a sum on a cut into the upper bin, not towards the middle.

    `self` is a reconstruction of self-supervised thresholds, whose published formulas we could not
    read: `lam` parts of the expected ones, and the rest from the quantiles of the sums of *these*
    items at the assumed `shares` of the classes (equal ones unless given). A class then depends on
    what else is in the call.
    """
    compared = Comparisons.of(outcomes, labels, n_classes)
    return weighted(compared, mode, thresholds=thresholds, lam=lam, shares=shares).ranks


def copeland(
    outcomes: npt.ArrayLike,
    labels: npt.ArrayLike,
    n_classes: int,
    *,
    mode: Mode = "recommended",
) -> Ints:
    """Cut the net number of wins into bins of one width; the labels do not matter.

    Net wins on a cut go towards the middle of the scale, in paper mode into the upper bin.
    """
    return net_wins(Comparisons.of(outcomes, labels, n_classes), mode).ranks


def weighted(
    compared: Comparisons,
    mode: Mode,
    *,
    thresholds: Thresholds | None = None,
    lam: float = 0.5,
    shares: Sequence[float] | None = None,
) -> Aggregated:
    """Cut the sum of outcome times label."""
    labels, sums = compared.labels, compared.outcomes @ compared.labels
    kind = _threshold_kind(thresholds, mode)
    if kind == "equal":
        return _in_equal_bins(compared, sums, int(labels.sum()), mode)
    ideal = np.sign(compared.classes[:, None] - labels) @ labels
    expected: Ints = ideal[:-1] + ideal[1:]  # twice the threshold, to stay with whole numbers
    if kind == "expected":
        return place(2 * sums, expected, "central")
    learned = np.quantile(2 * sums, _cumulative_shares(shares, compared.n_classes))
    return place(2 * sums, _blend_thresholds(expected, learned, lam), "central")


def net_wins(compared: Comparisons, mode: Mode) -> Aggregated:
    """Cut the net number of wins."""
    net = compared.outcomes.sum(axis=1)
    return _in_equal_bins(compared, net, len(compared.labels), mode)


def _in_equal_bins(compared: Comparisons, scores: Ints, limit: int, mode: Mode) -> Aggregated:
    """Cut [-limit, limit] into M bins, in whole numbers."""
    n_classes = compared.n_classes
    cuts = limit * (2 * compared.classes[:-1] - n_classes)
    return place(n_classes * scores, cuts, "highest" if is_paper(mode) else "central")


def _threshold_kind(thresholds: Thresholds | None, mode: Mode) -> Thresholds:
    if thresholds is None:
        return "equal" if is_paper(mode) else "expected"
    if thresholds not in get_args(Thresholds):
        known = list(get_args(Thresholds))
        raise Problem(f"no thresholds named '{thresholds}'{suggestion(thresholds, known)}")
    if is_paper(mode) and thresholds != "equal":
        raise Problem(
            f"paper mode has equal thresholds; ask for '{thresholds}' in mode recommended"
        )
    return thresholds


def _blend_thresholds(expected: Ints, learned: Floats, lam: float) -> Floats:
    if not 0 <= lam <= 1:
        raise Problem(f"lam is the weight of the expected thresholds, from 0 to 1; got {lam}")
    return lam * expected + (1 - lam) * learned


def _cumulative_shares(shares: Sequence[float] | None, n_classes: int) -> Floats:
    """The share of items below each cut."""
    assumed = np.full(n_classes, 1 / n_classes) if shares is None else np.asarray(shares, float)
    if assumed.shape != (n_classes,) or not (assumed >= 0).all() or not np.isfinite(assumed).all():
        raise Problem(f"shares must be {n_classes} numbers, one per class, none negative")
    if not np.isclose(assumed.sum(), 1):
        raise Problem(f"shares must add up to 1; these add up to {assumed.sum():g}")
    below: Floats = np.minimum(assumed.cumsum()[:-1], 1)
    return below


MAX_ITERATIONS, TOLERANCE, FLOOR = 100, 1e-6, 1e-12
"""The paper's loop, and the strength of a player who never won."""
PRIOR = 0.01
"""Penalty of a squared log strength in log likelihood."""
LEVEL_STAR, LEVEL = 1e-9, 1e-6
"""Distances that differ by less are level: what is left of them is rounding."""
LONGEST_STEP, SMALLEST_STEP, MAX_STEPS = 2.0, 1e-5, 200
"""Of Newton's method, whose error after a small step is about the square of that step."""
CHUNK = 512
"""Tables that are solved at once: their matrices fit into the processor's cache."""


def bradley_terry(
    outcomes: npt.ArrayLike,
    labels: npt.ArrayLike,
    n_classes: int,
    *,
    mode: Mode = "recommended",
) -> Ints:
    """The class whose demonstrations' mean log strength is nearest the item's.

    Level classes: the one nearest the middle of the scale, then the lower. Paper mode has no games
    among demonstrations, compares strengths rather than their logarithms, and takes the lowest of
    level classes. A class without demonstrations is never the answer.
    """
    return nearest_in_strength(Comparisons.of(outcomes, labels, n_classes), mode).ranks


def nearest_in_strength(compared: Comparisons, mode: Mode) -> Aggregated:
    """Take the class that is nearest in Bradley-Terry strength."""
    return _star(compared) if is_paper(mode) else _aggregate_anchored(compared)


# The paper's star


def _star(compared: Comparisons) -> Aggregated:
    counts = _outcome_counts(compared)
    records, which = _distinct_rows(counts.sum(axis=1))
    demos, item = _star_strengths(records)
    means = _class_means(counts, demos[which][:, None, :])
    settled = settle(_nearest_classes(means, item[which], LEVEL_STAR), "lowest")
    # Only a tie is a game with a finite answer.
    return replace(settled, degenerate=(compared.outcomes != 0).any(axis=1))


def _star_strengths(records: Ints) -> tuple[Floats, Floats]:
    """The strengths of beaten, level and winning demonstrations, and of the item.

    A record is the item's wins, ties and losses. All are updated at once, floored, and divided by
    their mean, until none moves by the tolerance or the iterations are used up.
    """
    is_there = np.column_stack([records > 0, np.ones(len(records), dtype=np.bool_)])
    players = np.column_stack([records, np.ones(len(records), dtype=np.int64)])
    points = records @ np.array([1.0, 0.5, 0.0])
    strengths = np.ones((len(records), 4))
    is_moving = np.ones(len(records), dtype=np.bool_)
    for _ in range(MAX_ITERATIONS):
        together = strengths[:, :3] + strengths[:, 3:]
        demos = np.array([0.0, 0.5, 1.0]) * together
        item = points / (records / together).sum(axis=1)
        moved = np.maximum(np.column_stack([demos, item]), FLOOR)
        moved /= (players * moved).sum(axis=1, keepdims=True) / players.sum(axis=1, keepdims=True)
        change = np.where(is_there, np.abs(moved - strengths), 0).max(axis=1)
        strengths = np.where(is_moving[:, None], moved, strengths)
        is_moving &= change >= TOLERANCE
    return strengths[:, :3], strengths[:, 3]


# With the games that the labels imply


def _aggregate_anchored(compared: Comparisons) -> Aggregated:
    counts, which = _distinct_rows(_flatten_counts(_outcome_counts(compared)))
    candidates = []
    for start in range(0, len(counts), CHUNK):
        strengths = _solve_strengths(counts[start : start + CHUNK], compared.n_classes)
        by_class = counts[start : start + CHUNK].reshape(-1, compared.n_classes, 3)
        means = _class_means(by_class, strengths[:, :-1].reshape(by_class.shape))
        candidates.append(_nearest_classes(means, strengths[:, -1], LEVEL))
    return settle(np.concatenate(candidates), "central").at(which)


def anchored_strengths(compared: Comparisons) -> Floats:
    """Log strengths by class and outcome (wins, ties, losses), then of the item, per item.

    Where there is no such demonstration the strength is what one would have had.
    """
    return _solve_strengths(_flatten_counts(_outcome_counts(compared)), compared.n_classes)


def _solve_strengths(counts: Ints, n_classes: int) -> Floats:
    """Solve tables of counts by class and outcome, all from the solution of their mean."""
    players = np.column_stack([counts, np.ones(len(counts))])
    results = _game_results(n_classes)
    middle = players.mean(axis=0, keepdims=True)
    start = log_strengths(middle @ results.T, middle[:, None, :])
    return log_strengths(players @ results.T, players[:, None, :], start)


def _game_results(n_classes: int) -> Floats:
    """Points of a row's player from one game with a column's: 1, ½ or 0."""
    classes = np.repeat(np.arange(n_classes), 3)
    results = np.full((len(classes) + 1, len(classes) + 1), 0.5)
    results[:-1, :-1] += np.sign(classes[:, None] - classes) / 2
    results[-1, :-1] = np.tile([1, 0.5, 0], n_classes)
    results[:-1, -1] = 1 - results[-1, :-1]
    return results


def log_strengths(
    points: Floats, games: Floats, start: Floats | None = None, *, prior: float = PRIOR
) -> Floats:
    """The most probable log strengths of the players of many tables, by Newton's method.

    `points` (tables x players) is what each player got from all its games, half of one for a tie;
    `games` (tables x players x players, or what can be spread to that) how many there were.
    """
    logs = np.zeros_like(points) if start is None else start + np.zeros_like(points)
    diagonal = np.arange(points.shape[1])
    for _ in range(MAX_STEPS):
        strengths = np.exp(logs)
        chance = strengths[:, :, None] / (strengths[:, :, None] + strengths[:, None, :])
        expected = games * chance
        slope = points - expected.sum(axis=2) - 2 * prior * logs
        curve = expected * (chance - 1)
        curve[:, diagonal, diagonal] += 2 * prior - curve.sum(axis=2)
        step = np.linalg.solve(curve, slope[:, :, None])[:, :, 0]
        longest = np.abs(step).max(axis=1, keepdims=True)
        logs += step * np.minimum(1, LONGEST_STEP / np.maximum(longest, LONGEST_STEP))
        if longest.max() < SMALLEST_STEP:
            return logs
    raise Problem(
        f"Bradley-Terry strengths were not found in {MAX_STEPS} steps for {points.shape[1]} "
        f"players; use a prior above {prior:g} or another aggregator"
    )


# What both share


def _outcome_counts(compared: Comparisons) -> Ints:
    """Items x classes x (wins, ties, losses)."""
    return np.stack([compared.wins, compared.ties, compared.losses], axis=2)


def _flatten_counts(counts: Ints) -> Ints:
    return counts.reshape(len(counts), -1)


def _distinct_rows(rows: Ints) -> tuple[Ints, Ints]:
    """The rows that differ, and which of them each row is."""
    # As bytes they are compared ten times faster than number by number (np.unique with an axis).
    packed = np.ascontiguousarray(rows, dtype=np.min_scalar_type(rows.max()))
    keys = packed.view(np.dtype((np.void, packed.itemsize * packed.shape[1])))[:, 0]
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    return rows[first], which


def _class_means(counts: Ints, strengths: Floats) -> Floats:
    """The mean strength of each class's demonstrations, NaN where there are none."""
    sizes = counts.sum(axis=2)
    total = (counts * strengths).sum(axis=2)
    return np.where(sizes > 0, total / np.maximum(sizes, 1), np.nan)


def _nearest_classes(means: Floats, item: Floats, level: float) -> Booleans:
    """Say which classes are as near the item as any."""
    distance = np.abs(means - item[:, None])
    is_near: Booleans = distance <= np.nanmin(distance, axis=1, keepdims=True) + level
    return is_near


Rule = Callable[[Comparisons, Mode], Aggregated]
BOTH: frozenset[Mode] = frozenset({"recommended", "paper"})
PAPER: frozenset[Mode] = frozenset({"paper"})


@dataclass(frozen=True)
class Aggregator:
    """A rule from comparisons to classes, and the laws it does not keep, by mode.

    `order_dependent`: the order of the demonstrations can change a class.
    `lopsided`: mirroring the scale and all outcomes need not mirror the class, even where no last
    resort decided.
    `imperfect`: a perfect comparator does not always get the true class.
    """

    rule: Rule
    about: str
    order_dependent: frozenset[Mode] = frozenset()
    lopsided: frozenset[Mode] = frozenset()
    imperfect: frozenset[Mode] = frozenset()


aggregators: Registry[Aggregator] = Registry("aggregator")
aggregators.add(
    "majority_vote",
    Aggregator(most_voted, "the class with the most votes", order_dependent=PAPER),
)
aggregators.add("mean_score", Aggregator(mean_voted, "the mean vote, rounded", imperfect=BOTH))
aggregators.add(
    "weighted_sum",
    Aggregator(weighted, "the sum of outcome times label, cut", lopsided=BOTH, imperfect=PAPER),
)
aggregators.add("copeland", Aggregator(net_wins, "the net number of wins, cut"))
aggregators.add(
    "bradley_terry",
    Aggregator(nearest_in_strength, "the class nearest in strength", lopsided=PAPER),
)


def aggregate(
    name: str,
    outcomes: npt.ArrayLike,
    labels: npt.ArrayLike,
    n_classes: int,
    *,
    mode: Mode = "recommended",
) -> Aggregated:
    """The class of each item by a named aggregator, and how it came about."""
    return aggregators[name].rule(Comparisons.of(outcomes, labels, n_classes), mode)


def oracle_check(
    aggregator: str, n_classes: int = 5, shots: int = 5, *, mode: Mode = "recommended"
) -> tuple[Rank, ...]:
    """The class that each true class gets from a perfect comparator.

    It wins against lower classes, loses to higher ones and ties with its own: an aggregator that
    does not answer 1, 2, ..., M is wrong before any model is asked.
    """
    if shots < 1:
        raise Problem(f"shots is {shots}; a perfect comparator needs one demonstration per class")
    classes = np.arange(1, n_classes + 1)
    labels = np.repeat(classes, shots)
    outcomes = np.sign(classes[:, None] - labels)
    return tuple(aggregate(aggregator, outcomes, labels, n_classes, mode=mode).ranks.tolist())
