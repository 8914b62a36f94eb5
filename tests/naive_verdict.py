"""The verdict of a contrast written out from its definition, loop by loop: no code of the core."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, permutations, product
from statistics import fmean

from scipy.stats import beta, norm, t

UNREADABLE, NOT_ASKED = 0, -1
View = tuple[int, ...]
Block = tuple[View, ...]
"""Replies of one row: for every view its first reply and its repeat."""

Places = Sequence[Sequence[int]]
"""Views x classes: the place of every class in every view, from 1."""


@dataclass(frozen=True)
class Table:
    """Rows of replies with their clusters, and how they are to be judged.

    Decimal scores are the same if they lie at most `within` apart; None for classes.
    """

    blocks: Sequence[Block]
    clusters: Sequence[int]
    reproducible: bool = False
    nominal: bool = False
    places: Sequence[Places] | None = None
    margin: float = 0.10
    alpha: float = 0.05
    limit: float = 0.05
    within: int | None = None

    def apart(self, a: int, b: int) -> bool:
        return abs(a - b) > (self.within or 0)

    @property
    def by_cluster(self) -> list[list[int]]:
        names = sorted(set(self.clusters))
        return [[i for i, c in enumerate(self.clusters) if c == name] for name in names]

    @property
    def every_view_repeated(self) -> bool:
        return any(
            all(r != NOT_ASKED for view in asked for r in view)
            for block in self.blocks
            if (asked := [view for view in block if view[0] != NOT_ASKED])
        )

    @property
    def any_repeated(self) -> bool:
        return any(view[0] != NOT_ASKED and view[1] != NOT_ASKED for b in self.blocks for view in b)


@dataclass(frozen=True)
class Naive:
    """What the definition comes to; `p` is None where there are too many assignments to list."""

    word: str
    value: float
    low: float
    high: float
    unreadable: float
    unreadable_low: float
    unreadable_high: float
    noise: float | None
    excess: float | None
    excess_upper: float | None
    shift_upper: float
    p: float | None


# --- bounds (E3) ------------------------------------------------------------------------------


def share_upper(x: Sequence[float], trials: Sequence[int], alpha: float) -> float:
    """Clopper-Pearson for one trial per cluster, else Korn-Graubard with one more that hits."""
    n, mean = len(x), fmean(x)
    size = float(n)
    if n > 1 and any(k != 1 for k in trials):
        more = [*x, 1.0]
        centre = fmean(more)
        variance = sum((one - centre) ** 2 for one in more) / n / n
        size = mean * (1 - mean) / variance if variance else 0.0
        size = min(max(size, n), n * fmean(trials))
        size /= (t.ppf(1 - alpha, n - 1) / norm.ppf(1 - alpha)) ** 2
    if mean > 1 - 1e-12:
        return 1.0
    return float(beta.ppf(1 - alpha, mean * size + 1, (1 - mean) * size))


def mean_upper(x: Sequence[float], alpha: float) -> float:
    """Student's t with one more cluster at 1, never below Clopper-Pearson for so many hits."""
    more, n = [*x, 1.0], len(x)
    centre = fmean(more)
    spread = math.sqrt(sum((one - centre) ** 2 for one in more) / n / (n + 1))
    upper = centre + float(t.ppf(1 - alpha, n)) * spread
    hits = sum(x)
    if hits > -1:
        whole = min(max(hits, 0.0), n - 1e-9)
        upper = max(upper, float(beta.ppf(1 - alpha, whole + 1, n - whole)))
    return min(upper, 1.0)


# --- what a block says (E1, E2) ---------------------------------------------------------------


def read(view: View) -> list[int]:
    return [reply for reply in view if reply > UNREADABLE]


def excess_of(table: Table, block: Block, every: bool) -> Fraction | None:
    """Disagreement across views minus that of views with themselves; None where undefined."""
    views = [read(view) for view in block]
    twice = [view for view in views if len(view) == 2]
    held = twice if every else [view for view in views if view]
    if not twice or len(held) < 2:
        return None
    across = [table.apart(a, b) for one, other in combinations(held, 2) for a in one for b in other]
    within = [table.apart(a, b) for a, b in twice]
    return Fraction(sum(across), len(across)) - Fraction(sum(within), len(within))


def lean_of(block: Block) -> list[Fraction]:
    """Mean rank of the second view minus the first; of more views, of each beside the mean."""
    views = [read(view) for view in block]
    if len(block) == 2:
        if not all(views):
            return [Fraction(0)]
        first, second = (Fraction(sum(view), len(view)) for view in views)
        return [second - first]
    everything = [reply for view in views for reply in view]
    centre = Fraction(sum(everything), len(everything)) if everything else Fraction(0)
    return [sum(view) - len(view) * centre for view in views]


def places_of(block: Block, where: Places, n_places: int) -> list[Fraction]:
    """How many replies lie at each place."""
    counts = [Fraction(0)] * n_places
    for view, places in zip(block, where, strict=True):
        for reply in read(view):
            counts[places[reply - 1] - 1] += 1
    return counts


def assignments(block: Block) -> list[Block]:
    """Every way to deal the readable replies of a block to its views, each hand in its order."""
    spots = [(v, r) for v, view in enumerate(block) for r, x in enumerate(view) if x > UNREADABLE]
    dealt: dict[tuple[tuple[int, ...], ...], Block] = {}
    for order in permutations(range(len(spots))):
        hands = tuple(
            tuple(sorted(order[i] for i, (v, _) in enumerate(spots) if v == view))
            for view in range(len(block))
        )
        if hands not in dealt:
            new = [list(view) for view in block]
            for (v, r), i in zip(spots, order, strict=True):
                new[v][r] = block[spots[i][0]][spots[i][1]]
            dealt[hands] = tuple(map(tuple, new))
    return list(dealt.values())


def p_value(table: Table, most: int) -> float | None:
    """p of the smaller of the two p-values by listing every joint assignment (E2)."""
    every = table.every_view_repeated
    two_sided = table.any_repeated and not every
    n_places = max((p for w in table.places or () for v in w for p in v), default=0)
    units: dict[tuple[object, ...], list[int]] = {}
    for i, (block, cluster) in enumerate(zip(table.blocks, table.clusters, strict=True)):
        pattern = tuple(tuple(r > UNREADABLE for r in view) for view in block)
        if sum(any(view) for view in pattern) > 1:
            units.setdefault((cluster, pattern), []).append(i)
    outcomes = []
    for rows in units.values():
        listed = [_outcomes(table, i, every, n_places) for i in rows]
        sums = [_added(joint) for joint in zip(*listed, strict=True)]
        if len(set(sums)) > 1:
            outcomes.append(sums)
    if math.prod(map(len, outcomes)) > most:
        return None
    if not outcomes:
        return 1.0
    totals = [_added(joint) for joint in product(*outcomes)]
    apart = [abs(x[0]) if two_sided else x[0] for x in totals]
    lean = [sum((part * part for part in x[1:]), Fraction(0)) for x in totals]
    least = [min(pair) for pair in zip(_tails(apart), _tails(lean), strict=True)]
    return sum(one <= least[0] for one in least) / len(least)


def _outcomes(table: Table, i: int, every: bool, n_places: int) -> list[tuple[Fraction, ...]]:
    """Excess and direction of a row under every assignment, the observed one first."""
    dealt = assignments(table.blocks[i])
    apart = [excess_of(table, block, every) or Fraction(0) for block in dealt]
    if not table.nominal:
        return [(x, *lean_of(block)) for x, block in zip(apart, dealt, strict=True)]
    assert table.places is not None
    counts = [places_of(block, table.places[i], n_places) for block in dealt]
    expected = [sum(column) / len(counts) for column in zip(*counts, strict=True)]
    return [
        (x, *(k - e for k, e in zip(count, expected, strict=True)))
        for x, count in zip(apart, counts, strict=True)
    ]


def _added(rows: Sequence[tuple[Fraction, ...]]) -> tuple[Fraction, ...]:
    return tuple(sum(column, Fraction(0)) for column in zip(*rows, strict=True))


def _tails(statistic: Sequence[Fraction]) -> list[float]:
    """Share of assignments at least as extreme as each."""
    known = {x: sum(y >= x for y in statistic) / len(statistic) for x in set(statistic)}
    return [known[x] for x in statistic]


# --- the verdict (E6) -------------------------------------------------------------------------


@dataclass(frozen=True)
class Share:
    """A mean of cluster shares with what is needed for its bounds."""

    x: list[float]
    trials: list[int]

    @property
    def value(self) -> float:
        return fmean(self.x) if self.x else math.nan

    def upper(self, alpha: float) -> float:
        return share_upper(self.x, self.trials, alpha) if self.x else 1.0

    def lower(self, alpha: float) -> float:
        mirrored = [1 - x for x in self.x]
        return 1 - share_upper(mirrored, self.trials, alpha) if self.x else 0.0


def share_of(table: Table, hit: list[int], asked: list[int]) -> Share:
    """Share of hits in every cluster in which anything was asked."""
    sums = [(sum(hit[i] for i in own), sum(asked[i] for i in own)) for own in table.by_cluster]
    return Share([k / n for k, n in sums if n], [n for _, n in sums if n])


def cluster_means(table: Table, values: Sequence[float | None]) -> list[float]:
    """Mean of what is known in every cluster that knows something."""
    known = [[v for i in own if (v := values[i]) is not None] for own in table.by_cluster]
    return [fmean(own) for own in known if own]


def shift_of(table: Table, alpha: float) -> tuple[float, float]:
    """Largest difference of a class's share between two views, and its bound."""
    if table.within is not None:
        return drift_of(table, alpha)
    values, bounds = [], []
    top = max(2, *(reply for block in table.blocks for view in block for reply in view))
    for a, b in combinations(range(len(table.blocks[0])), 2):
        for of_class in range(1, top + 1):
            moved: list[float | None] = []
            for block in table.blocks:
                one, other = read(block[a]), read(block[b])
                both = one and other
                share = (
                    other.count(of_class) / len(other) - one.count(of_class) / len(one)
                    if both
                    else None
                )
                moved.append(share)
            means = cluster_means(table, moved)
            if means:
                values.append(abs(fmean(means)))
                bounds += [mean_upper(means, alpha), mean_upper([-x for x in means], alpha)]
    return max(values, default=math.nan), max(bounds, default=1.0)


def drift_of(table: Table, alpha: float) -> tuple[float, float]:
    """Pairs of replies that rise minus those that fall, the largest over pairs of views."""
    values, bounds = [], []
    for a, b in combinations(range(len(table.blocks[0])), 2):
        moved: list[float | None] = []
        for block in table.blocks:
            pairs = [(x, y) for x in read(block[a]) for y in read(block[b])]
            signs = [(y > x) - (y < x) if table.apart(x, y) else 0 for x, y in pairs]
            moved.append(fmean(signs) if pairs else None)
        means = cluster_means(table, moved)
        if means:
            values.append(abs(fmean(means)))
            bounds += [mean_upper(means, alpha), mean_upper([-x for x in means], alpha)]
    return max(values, default=math.nan), max(bounds, default=1.0)


def naive_verdict(table: Table, *, most: int = 20_000) -> Naive:
    """Judge a table by the definitions of E1 to E3 and E6."""
    pairs = [
        [(a[0], b[0]) for a, b in combinations(block, 2) if NOT_ASKED not in (a[0], b[0])]
        for block in table.blocks
    ]
    readable = [[pair for pair in some if min(pair) > UNREADABLE] for some in pairs]
    differ = [sum(table.apart(a, b) for a, b in some) for some in readable]
    rate = share_of(table, differ, [len(some) for some in readable])
    unread = [len(some) - len(good) for some, good in zip(pairs, readable, strict=True)]
    failed = share_of(table, unread, [len(some) for some in pairs])
    twice = [[view for view in block if min(view) > UNREADABLE] for block in table.blocks]
    noise = share_of(
        table,
        [sum(table.apart(a, b) for a, b in some) for some in twice],
        [len(some) for some in twice],
    )
    every = table.every_view_repeated
    apart = [excess_of(table, block, every) for block in table.blocks if table.any_repeated]
    excess = cluster_means(table, [None if x is None else float(x) for x in apart]) if apart else []
    shift, shift_upper = shift_of(table, table.alpha)
    reproducible = table.reproducible and not (noise.x and noise.value > 0)
    p = p_value(table, most)
    is_whole = every and 2 * len(excess) >= len(rate.x)
    floor = mean_upper(excess, table.alpha) if excess and is_whole and not reproducible else None
    word = _word(table, rate, failed, excess, (shift, shift_upper), floor, p, reproducible)
    return Naive(
        word,
        *(rate.value, rate.lower(table.alpha / 2), rate.upper(table.alpha / 2)),
        *(failed.value, failed.lower(table.alpha / 2), failed.upper(table.alpha / 2)),
        noise.value if noise.x else 0.0 if reproducible else None,
        rate.value
        if reproducible and rate.x
        else fmean(excess)
        if excess and not reproducible
        else None,
        rate.upper(table.alpha) if reproducible and rate.x else floor,
        shift_upper,
        p,
    )


def _word(
    table: Table,
    rate: Share,
    failed: Share,
    excess: list[float],
    shift: tuple[float, float],
    floor: float | None,
    p: float | None,
    reproducible: bool,
) -> str:
    if failed.x and failed.lower(table.alpha) > table.limit:
        return "unreadable"
    if not rate.x:
        return "inconclusive"
    margin, size = table.margin, rate.value
    if reproducible:
        is_real = size > 0
    else:
        if excess:
            size = max(fmean(excess), shift[0])
        is_real = p is not None and p < table.alpha
        if not table.any_repeated:
            is_real = is_real or rate.lower(table.alpha) > margin
    if p is None and not reproducible and not is_real and size > margin:
        return ""  # whether the effect is real is not known here
    if is_real and size > margin:
        return "flips"
    upper = rate.upper(table.alpha) if floor is None else max(floor, shift[1])
    return "stable" if upper < margin and failed.value <= table.limit else "inconclusive"
