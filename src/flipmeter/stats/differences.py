"""Contributions of clusters -> differences, what they assert, and slices of items.

Student's interval from leaving each cluster out, for each end with one more cluster unlike those
seen: without it, raters that agree on all of 20 items would differ by exactly 0. docs/log.md lists
the methods that were tried.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from scipy import special

from flipmeter.chance import draw
from flipmeter.stats.blocks import count_pairs, read_blocks
from flipmeter.stats.bounds import Bounded, bounded_share, is_shown
from flipmeter.stats.formulas import holm
from flipmeter.stats.groups import Booleans, Floats, Ints, ratio
from flipmeter.stats.judge import contrast_rows
from flipmeter.stats.panel import Panel
from flipmeter.stats.reading import read_panel
from flipmeter.stats.verdict import Word
from flipmeter.types import ALPHA, Contrast

FEWEST_CLUSTERS = 5
DECISIVE = "no interval: undefined without one of the items"

Ends = tuple[Floats, Floats]
"""Low and high ends, NaN where there is no interval."""


@dataclass(frozen=True)
class Influences:
    """Contributions of clusters (columns) to some numbers (rows).

    `moves` is how much a number falls when the cluster is left out, NaN where it is undefined then;
    `counted` marks the clusters that a number rests on. `unseen` is how far from the number one
    more cluster may lie, below and above; `reach` are the ends of what is possible.
    """

    clusters: Ints
    moves: Floats
    counted: Booleans
    unseen: Floats
    reach: Floats


def influence_ends(value: Floats, found: Influences) -> Ends:
    """95 % interval of every number, NaN where there is none."""
    n = found.counted.sum(axis=-1)
    low, high = student_ends(value, squares_of(found.moves, found.counted), n, found.unseen)
    return np.maximum(low, found.reach[..., 0]), np.minimum(high, found.reach[..., 1])


def squares_of(moves: Floats, counted: Booleans) -> Floats:
    """Sum of squared influences around their mean, from what leaving out clusters changes."""
    n = counted.sum(axis=-1, keepdims=True)
    influence = np.where(counted, moves, 0.0) * (n - 1)
    away = np.where(counted, influence - ratio(influence.sum(axis=-1, keepdims=True), n), 0.0)
    return np.asarray((away**2).sum(axis=-1))


def student_ends(
    value: Floats, squares: Floats, n: Ints, unseen: Floats, alpha: float = ALPHA
) -> Ends:
    """Student's interval with one more cluster beyond each end; NaN with too few clusters."""
    size = np.maximum(n, 1)
    t = special.stdtrit(size, 1 - alpha / 2)
    ends = []
    for place, side in enumerate((-1.0, 1.0)):
        away = unseen[..., place]
        spread = np.sqrt((squares + away**2 * size / (size + 1)) / size / (size + 1))
        end = value + away / (size + 1) + side * t * spread
        ends.append(
            np.where(n >= FEWEST_CLUSTERS, side * np.maximum(side * end, side * value), np.nan)
        )
    return ends[0], ends[1]


def reasons(value: Floats, found: Influences, low: Floats) -> list[str]:
    """Reason why a number has no interval; empty if it has one, or if there is no number."""
    n = found.counted.sum(axis=-1).tolist()
    return [
        "" if np.isnan(number) or not np.isnan(end) else too_few(size) or DECISIVE
        for number, end, size in zip(value, low, n, strict=True)
    ]


def too_few(n: int) -> str:
    """Say that so many clusters are too few for an interval; empty if they are not."""
    few = f"no interval: {n} items; at least {FEWEST_CLUSTERS} are needed"
    return few if n < FEWEST_CLUSTERS else ""


# --- seeds and datasets -----------------------------------------------------------------------


def mean_influences(parts: Sequence[Influences], defined: Booleans) -> Influences:
    """Influences on the mean of numbers over the same clusters, as those of several seeds.

    `defined` (parts x rows) says which numbers the mean is of.
    """
    clusters = np.unique(np.concatenate([part.clusters for part in parts]))
    shape = len(parts[0].moves), len(clusters)
    moves, counted = np.zeros(shape), np.zeros(shape, dtype=np.bool_)
    for part, has in zip(parts, defined, strict=True):
        places = np.searchsorted(clusters, part.clusters)
        moves[:, places] += np.where(has[:, None], part.moves, 0.0)
        counted[:, places] |= part.counted & has[:, None]
    n = defined.sum(axis=0)[:, None]
    unseen, reach = (
        ratio(np.where(defined[..., None], np.stack(of), 0.0).sum(axis=0), n)
        for of in ([part.unseen for part in parts], [part.reach for part in parts])
    )
    return Influences(clusters, ratio(moves, n), counted, unseen, reach)


def average_ends(values: Floats, lows: Floats, highs: Floats) -> Ends:
    """Interval of the mean of independent numbers (rows), as those of several datasets.

    The distances of the ends add up like standard errors (MOVER). None where one has none.
    """
    defined = ~np.isnan(values)
    n = defined.sum(axis=0)
    mean = ratio(np.where(defined, values, 0.0).sum(axis=0), n)
    below, above = (
        ratio(np.sqrt(np.where(defined, (end - values) ** 2, 0.0).sum(axis=0)), n)
        for end in (lows, highs)
    )
    return mean - below, mean + above


Asserted = Literal["holds", "fails", "not settled", "not measurable"]
Relation = Literal["up", "down", "same", "not up", "not down"]

NEGATED: dict[Asserted, Asserted] = {
    "holds": "fails",
    "fails": "holds",
    "not settled": "not settled",
    "not measurable": "not measurable",
}
RELEVANT = 5.0
"""Points below which a change is no change worth a claim."""


def asserted(
    low: float | None, high: float | None, relation: Relation, *, margin: float = RELEVANT
) -> Asserted:
    """Whether a difference with this interval is as asserted.

    `up` holds where the interval is above 0 and fails where it is below the margin, `not up` is its
    negation; `down` and `not down` are their mirror images. `same` holds inside the margins and
    fails beyond one of them.
    """
    if low is None or high is None:
        return "not measurable"
    if relation == "same":
        is_within, is_beyond = -margin < low and high < margin, low > margin or high < -margin
        return "holds" if is_within else "fails" if is_beyond else "not settled"
    if relation.startswith("not "):
        return NEGATED[asserted(low, high, "up" if relation == "not up" else "down", margin=margin)]
    if relation == "down":
        low, high = -high, -low
    return "holds" if low > 0 else "fails" if high < margin else "not settled"


def all_asserted(words: Iterable[Asserted]) -> Asserted:
    """The word for assertions that must all hold: one that fails decides."""
    found = list(words)
    for word in ("fails", "not measurable", "not settled"):
        if word in found:
            return word
    return "holds" if found else "not measurable"


def some_asserted(words: Iterable[Asserted]) -> Asserted:
    """The word for assertions of which one must hold: one that holds decides."""
    found = list(words)
    for word in ("holds", "not settled", "not measurable"):
        if word in found:
            return word
    return "fails" if found else "not measurable"


def every_flips(words: Collection[Word]) -> Asserted:
    """Whether all raters flip: one that is stable refutes it."""
    if not words or "not identified" in words:
        return "not measurable"
    if "stable" in words:
        return "fails"
    return "holds" if set(words) == {"flips"} else "not settled"


def correlated(tau: float, p: float) -> Asserted:
    """Whether a rank correlation is shown to be above 0."""
    if not is_shown(p):
        return "not settled"
    return "holds" if tau > 0 else "fails"


DRAWS = 20_000
APART = "\x1f"
"""Stands between a dataset and its slice: a slice is measured as a dataset of its own."""
SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("rater", "dataset", "level", "contrast", "slice"), pl.String),
    **dict.fromkeys(("value", "low", "high", "rest", "p", "p_holm"), pl.Float64),
    **dict.fromkeys(("n_clusters", "n_unreadable", "n_pairs"), pl.Int64),
    "word": pl.String,
}
"""`rest` is the rate of all other slices together; p is that the slice is like them."""


@dataclass(frozen=True)
class _Slice:
    """One slice under one contrast: the share of pairs that differ in each of its clusters."""

    whose: tuple[str, str, str, str]
    name: str
    shares: Floats
    clusters: frozenset[str]
    rate: Bounded
    n_pairs: int
    n_unreadable: int


def slice_rates(
    decisions: pl.DataFrame,
    slices: pl.DataFrame,
    contrasts: Sequence[Contrast],
    *,
    alpha: float = ALPHA,
) -> pl.DataFrame:
    """Flip rates on readable pairs by slice, each with its interval, as verdicts have them.

    `slices` files every item (dataset, item) under one `slice`. A slice is compared with all others
    of its rater, dataset, level and contrast: p is from exchanging clusters of items between them,
    two-sided; `p_holm` and the word hold over all rows of the table.
    """
    if decisions.is_empty() or not contrasts:
        return pl.DataFrame(schema=SCHEMA)
    own = decisions.join(slices, on=["dataset", "item"], how="inner", maintain_order="left")
    named = own.with_columns(dataset=pl.concat_str("dataset", "slice", separator=APART))
    panel = read_panel(named.drop("slice"))
    found = [one for contrast in contrasts for one in _measure_slices(panel, contrast, alpha)]
    by_whose: dict[tuple[str, str, str, str], list[_Slice]] = {}
    for one in found:
        by_whose.setdefault(one.whose, []).append(one)
    against = [_against_rest(one, by_whose[one.whose]) for one in found]
    adjusted = holm([p for _, p in against]).tolist() if found else []
    rows = [
        (
            *one.whose,
            one.name,
            *(one.rate.value, one.rate.low, one.rate.high, rest),
            *(None if np.isnan(p) else p, None if np.isnan(by_holm) else by_holm),
            *(one.rate.n, one.n_unreadable, one.n_pairs),
            _slice_word(one.rate.value, rest, by_holm, alpha),
        )
        for one, (rest, p), by_holm in zip(found, against, adjusted, strict=True)
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _measure_slices(panel: Panel, contrast: Contrast, alpha: float) -> list[_Slice]:
    found = []
    for row in contrast_rows(panel, contrast):
        if row.row is None:
            continue
        counts = count_pairs(read_blocks(row.row))
        seen = counts.read > 0
        rater, dataset, level = row.key
        name, _, of = dataset.partition(APART)
        numbers = np.unique(np.asarray(row.row.clusters))
        found.append(
            _Slice(
                (rater, name, level, contrast.name),
                of,
                counts.differ[seen] / counts.read[seen],
                frozenset(panel.cluster_names[number] for number in numbers),
                bounded_share(counts.differ, counts.read, alpha),
                int(counts.asked.sum()),
                int((counts.asked - counts.read).sum()),
            )
        )
    return found


def _against_rest(one: _Slice, every: Sequence[_Slice]) -> tuple[float | None, float]:
    """The rate of the other slices, and p that this one is like them; NaN where it cannot be told.

    Items of one cluster that lie in two slices cannot be exchanged.
    """
    others = [other for other in every if other is not one]
    rest = np.concatenate([other.shares for other in others] or [np.zeros(0)])
    if not len(rest) or not len(one.shares):
        return None, float("nan")
    if any(one.clusters & other.clusters for other in others):
        return float(rest.mean()), float("nan")
    seed = int(draw("slice", *one.whose, one.name) * 2**32)
    return float(rest.mean()), exchange_p(one.shares, rest, seed=seed)


def exchange_p(inside: Floats, outside: Floats, *, seed: int = 0, draws: int = DRAWS) -> float:
    """Two-sided p of the same mean inside and outside, exchanging clusters between them.

    Clusters with equal shares are alike, so that counts of them are drawn, and not clusters.
    """
    both = np.concatenate([inside, outside])
    values, counts = np.unique(np.round(both, 12), return_counts=True)
    if len(values) == 1:
        return 1.0
    rng = np.random.default_rng(seed)
    drawn = rng.multivariate_hypergeometric(counts, len(inside), size=draws, method="marginals")
    expected = both.mean()
    off = np.abs(drawn @ values / len(inside) - expected)
    observed = abs(float(inside.mean()) - expected)
    return float((1 + (off >= observed - 1e-9).sum()) / (1 + draws))


def _slice_word(value: float, rest: float | None, p_holm: float, alpha: float) -> str:
    if rest is None or np.isnan(p_holm):
        return ""
    if not is_shown(p_holm, alpha):
        return "not distinguishable"
    return "higher" if value > rest else "lower"
