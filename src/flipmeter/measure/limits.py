"""Numbers -> whether each stays within its limit: for sure, surely not, or not known yet.

Two one-sided tests stand behind every word. To pass, all limits must be shown to be kept, so each
is tested at alpha alone; to fail, one broken limit suffices, so those p-values are Holm's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import special

from flipmeter.measure.certificates import Claim, certificates, items_needed
from flipmeter.measure.effects.compare import same_raters
from flipmeter.measure.judge import ENOUGH_COMPLETE
from flipmeter.measure.panel.frame import checked
from flipmeter.measure.statistics.formulas import clopper_upper, holm
from flipmeter.measure.statistics.paired import tango, tango_p
from flipmeter.types import NO_CLASS, Contrast

Metric = Literal["flips", "excess", "accuracy", "mae", "faults"]
METRICS: tuple[Metric, ...] = get_args(Metric)
ABOUT_FLIPS = ("flips", "excess")
POWER = 0.8
CLOSE = 1e-3
"""Nearer to its limit than this, a number is not worth the items that would settle it."""

KEY = ("rater", "dataset", "level", "seed")
Key = tuple[str, str, str]
"""Rater, dataset and level; every seed is held to its limits alone, since seeds share items."""

SCHEMA: dict[str, type[pl.DataType]] = {
    "rater": pl.String,
    "dataset": pl.String,
    "level": pl.String,
    "seed": pl.Int64,
    "metric": pl.String,
    "where": pl.String,
    "is_drift": pl.Boolean,
    "limit": pl.Float64,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
    "failed": pl.Int64,
    "p_kept": pl.Float64,
    "p_broken": pl.Float64,
    "n_more": pl.Int64,
    "note": pl.String,
}


@dataclass(frozen=True)
class Limit:
    """The most that a number may be, or the least for accuracy; of a contrast, or of a view.

    With `is_drift` the number is what got worse since another run.
    """

    metric: Metric
    where: str
    bound: float
    is_drift: bool = False


@dataclass(frozen=True)
class Held:
    """A number held against the most that it may be, with its one-sided bounds.

    `p_kept` is small where it is surely below, `p_broken` where it is surely above. `n_more` is how
    many items more would settle it four times in five; None where no number would.
    """

    value: float
    low: float
    high: float
    p_kept: float
    p_broken: float
    n_more: int | None = None


NOTHING = "nothing to hold it against: no such items"


@dataclass(frozen=True)
class Sure:
    """How sure a word must be, and of how many claims one may be the broken one by chance."""

    alpha: float = 0.05
    n_claims: int = 1


ALONE = Sure()
UNKNOWN = Held(math.nan, math.nan, math.nan, math.nan, math.nan)


# --- one number -------------------------------------------------------------------------------


def hold_share(k: int, n: int, limit: float, sure: Sure = ALONE) -> Held:
    """Hold a share k of n against a limit, by Clopper and Pearson's bounds."""
    if not n:
        return UNKNOWN
    low, high = 1 - clopper_upper(n - k, n, 1 - sure.alpha), clopper_upper(k, n, 1 - sure.alpha)
    p_kept = float(special.bdtr(k, n, limit))
    p_broken = float(special.bdtrc(k - 1, n, limit)) if k else 1.0
    return Held(k / n, low, high, p_kept, p_broken, _more_for_share(k, n, limit, sure))


def _more_for_share(k: int, n: int, limit: float, sure: Sure) -> int | None:
    rate = k / n
    if abs(rate - limit) < CLOSE:
        return None
    if rate < limit:
        needed, _ = items_needed(limit, rate, power=POWER, level=1 - sure.alpha)
    else:  # to show a share above its limit is to show the rest below what is left
        needed, _ = items_needed(
            1 - limit, 1 - rate, power=POWER, level=1 - sure.alpha / sure.n_claims
        )
    return max(1, needed - n)


def hold_difference(b: int, c: int, n: int, limit: float, sure: Sure = ALONE) -> Held:
    """Hold (b - c) / n, a difference of two shares of the same items, by Tango's score."""
    if not n:
        return UNKNOWN
    low, high = (float(end) for end in tango(b, c, n, 1 - 2 * sure.alpha))
    value = (b - c) / n
    spread = max(b + c, 1) / n - value**2
    p_kept, p_broken = float(tango_p(b, c, n, limit)), float(tango_p(c, b, n, -limit))
    n_more = _more(limit - value, spread, n, sure)
    return Held(value, low, high, p_kept, p_broken, n_more)


def hold_mean(
    values: npt.ArrayLike,
    reach: tuple[float, float],
    limit: float,
    sure: Sure = ALONE,
) -> Held:
    """Hold the mean of numbers between two ends, by Student's t with one item more at each end.

    The item at the far end keeps equal numbers from being taken for certainty.
    """
    found = np.asarray(values, dtype=np.float64)
    if not found.size:
        return UNKNOWN
    (lowest, error_low), (highest, error_high) = (_with_one_more(found, end) for end in reach)
    t = float(special.stdtrit(found.size, 1 - sure.alpha))
    mean, spread = float(found.mean()), error_high**2 * (found.size + 1)
    return Held(
        mean,
        max(reach[0], lowest - t * error_low),
        min(reach[1], highest + t * error_high),
        float(special.stdtr(found.size, _over(highest - limit, error_high))),
        float(special.stdtr(found.size, _over(limit - lowest, error_low))),
        _more(limit - mean, spread, found.size, sure),
    )


def _with_one_more(values: npt.NDArray[np.float64], end: float) -> tuple[float, float]:
    """Return the mean of numbers and one more, and its standard error."""
    extended = np.append(values, end)
    return float(extended.mean()), float(extended.std(ddof=1)) / math.sqrt(extended.size)


def _over(gap: float, error: float) -> float:
    return gap / error if error else math.copysign(math.inf, gap) if gap else 0.0


def _more(gap: float, variance: float, n: int, sure: Sure) -> int | None:
    if abs(gap) < CLOSE:
        return None
    alpha = sure.alpha if gap > 0 else sure.alpha / sure.n_claims
    z = float(special.ndtri(1 - alpha) + special.ndtri(POWER))
    return max(1, math.ceil(z**2 * variance / gap**2) - n)


# --- all numbers of a run ---------------------------------------------------------------------

Row = dict[str, Any]


def hold_limits(
    decisions: pl.DataFrame,
    contrasts: Sequence[Contrast],
    limits: Mapping[Key, Sequence[Limit]],
    *,
    reproducible: Sequence[str] = (),
    reference: pl.DataFrame | None = None,
    alpha: float = 0.05,
) -> pl.DataFrame:
    """Hold every rater, dataset, level and seed to its limits, failures being flips and errors.

    `reference` are the decisions of an earlier run, which limits on drift are held against, item
    by item. `word` is `stable` or `flips`, of scores `met` or `missed`, else `inconclusive`.
    """
    known = {contrast.name: contrast for contrast in contrasts}
    wanted = dict.fromkeys(limit for some in limits.values() for limit in some)
    sure = Sure(alpha, sum(map(len, limits.values())))
    rows: list[Row] = []
    for limit in wanted:
        keys = [key for key, some in limits.items() if limit in some]
        if limit.is_drift:
            found = _drifts(reference, decisions, known, limit, sure)
        elif limit.metric in ABOUT_FLIPS:
            found = _flips(decisions, known[limit.where], limit, reproducible, sure)
        else:
            found = _scores(decisions, limit, sure)
        mine = [row for row in found if (row["rater"], row["dataset"], row["level"]) in keys]
        seen = {(row["rater"], row["dataset"], row["level"]) for row in mine}
        rows += mine
        rows += [
            _row((*key, None), limit, UNKNOWN, 0, 0, NOTHING) for key in keys if key not in seen
        ]
    table = pl.DataFrame(rows, schema=SCHEMA, orient="row").with_columns(
        pl.col(pl.Float64).fill_nan(None)
    )
    return _judged(table, alpha)


def _row(key: Sequence[object], limit: Limit, held: Held, n: int, failed: int, note: str) -> Row:
    about = {"metric": limit.metric, "where": limit.where, "is_drift": limit.is_drift}
    counts = {"limit": limit.bound, "n": n, "failed": failed, "note": note}
    return dict(zip(KEY, key, strict=True)) | about | counts | vars(held)


def _flips(
    decisions: pl.DataFrame,
    contrast: Contrast,
    limit: Limit,
    reproducible: Sequence[str],
    sure: Sure,
) -> Iterator[Row]:
    claim = Claim(contrast.name, limit.bound, beyond_noise=limit.metric == "excess")
    for row in certificates(decisions, [contrast], [claim], reproducible=reproducible).iter_rows(
        named=True
    ):
        key, n, failed = [row[name] for name in KEY], row["n"] or 0, row["failed"] or 0
        held = (
            hold_difference(row["b"], row["c"], n, limit.bound, sure)
            if claim.beyond_noise and n
            else hold_share(row["k"] or 0, n, limit.bound, sure)
        )
        yield _row(key, limit, held, n, failed, row["note"])


def _scores(decisions: pl.DataFrame, limit: Limit, sure: Sure) -> Iterator[Row]:
    """Yield a score of a view in every group; what was not read is wrong, as far off as can be."""
    frame = checked(decisions).filter(view=limit.where, repeat=0)
    for key, group in frame.group_by(KEY, maintain_order=True):
        graded = group if limit.metric == "faults" else group.drop_nulls("gold")
        failed = int((graded["rank"] == NO_CLASS).sum())
        note = "" if len(graded) else "no gold classes"
        yield _row(key, limit, _score(graded, limit, sure), len(graded), failed, note)


def _score(graded: pl.DataFrame, limit: Limit, sure: Sure) -> Held:
    if not len(graded):
        return UNKNOWN
    if limit.metric == "mae":
        reach = (0.0, float(graded["n_classes"][0] - 1))
        return hold_mean(
            graded.select(_distance()).to_series().to_numpy(), reach, limit.bound, sure
        )
    k = int(graded.select(_is_wrong(limit.metric)).to_series().sum())
    if limit.metric == "faults":
        return hold_share(k, len(graded), limit.bound, sure)
    wrong = hold_share(k, len(graded), 1 - limit.bound, sure)
    ends = 1 - wrong.value, 1 - wrong.high, 1 - wrong.low
    return Held(*ends, wrong.p_kept, wrong.p_broken, wrong.n_more)


def _distance() -> pl.Expr:
    gold, rank, m = pl.col("gold"), pl.col("rank"), pl.col("n_classes")
    farthest = pl.max_horizontal(gold - 1, m - gold)
    return pl.when(rank == NO_CLASS).then(farthest).otherwise((gold - rank).abs())


def _is_wrong(metric: str) -> pl.Expr:
    return pl.col("rank") == NO_CLASS if metric == "faults" else pl.col("rank") != pl.col("gold")


# --- drift ------------------------------------------------------------------------------------


def _drifts(
    reference: pl.DataFrame | None,
    decisions: pl.DataFrame,
    known: Mapping[str, Contrast],
    limit: Limit,
    sure: Sure,
) -> Iterator[Row]:
    """Yield by how much a number got worse, on the items that both runs have."""
    if reference is None:
        return
    frames = same_raters(checked(reference), checked(decisions))
    before, now = (_worse(frame, known, limit) for frame in frames)
    names = checked(decisions)["rater"].unique(maintain_order=True)
    both = before.join(now, on=[*KEY, "item"], suffix="_now", maintain_order="right")
    for (rater, *rest), group in both.group_by(KEY, maintain_order=True):
        key = (names[0] if len(names) == 1 else rater, *rest)
        failed = int(group["failed_now"].sum())
        yield _row(key, limit, _drift(group, limit, sure), len(group), failed, "")


def _worse(frame: pl.DataFrame, known: Mapping[str, Contrast], limit: Limit) -> pl.DataFrame:
    """Return for every item how bad it is: flipped, wrong, not read, or how far off."""
    if limit.metric == "flips":
        views = known[limit.where].views
        runs = frame.filter(pl.col("view").is_in(views), repeat=0)
        found = runs.group_by(*KEY, "item", maintain_order=True).agg(
            bad=(pl.col("rank").n_unique() > 1).cast(pl.Int64),
            failed=(pl.col("rank") == NO_CLASS).any(),
            n_views=pl.len(),
            is_same=(pl.col("prompt").n_unique() == 1) & (pl.col("prompt").first() != ""),
            n_classes=pl.col("n_classes").first(),
        )
        usable = found.filter(n_views=len(views)).filter(~pl.col("is_same").fill_null(False))
        return usable.drop("n_views", "is_same")
    runs = frame.filter(view=limit.where, repeat=0)
    if limit.metric != "faults":
        runs = runs.drop_nulls("gold")
    bad = _distance() if limit.metric == "mae" else _is_wrong(limit.metric)
    failed = pl.col("rank") == NO_CLASS
    return runs.select(*KEY, "item", "n_classes", bad=bad.cast(pl.Int64), failed=failed)


def _drift(group: pl.DataFrame, limit: Limit, sure: Sure) -> Held:
    change = (group["bad_now"] - group["bad"]).to_numpy()
    if limit.metric == "mae":
        far = float(group["n_classes"][0] - 1)
        return hold_mean(change, (-far, far), limit.bound, sure)
    b, c = int((change > 0).sum()), int((change < 0).sum())
    return hold_difference(b, c, len(group), limit.bound, sure)


# --- words ------------------------------------------------------------------------------------


def _judged(table: pl.DataFrame, alpha: float) -> pl.DataFrame:
    """Add Holm's p of what is broken, and the word."""
    p_holm = pl.Series("p_holm", holm(table["p_broken"].fill_null(math.nan).to_numpy()))
    table = table.hstack([p_holm.fill_nan(None)])
    about_flips = pl.col("metric").is_in(ABOUT_FLIPS)
    too_few = about_flips & (pl.col("failed") > (1 - ENOUGH_COMPLETE) * pl.col("n"))
    kept = (pl.col("p_kept") < alpha).fill_null(False) & ~too_few
    broken = (pl.col("p_holm") < alpha).fill_null(False) & ~too_few
    word = (
        pl.when(kept)
        .then(pl.when(about_flips).then(pl.lit("stable")).otherwise(pl.lit("met")))
        .when(broken)
        .then(pl.when(about_flips).then(pl.lit("flips")).otherwise(pl.lit("missed")))
        .otherwise(pl.lit("inconclusive"))
    )
    few = pl.lit("too many failures: less than 80 % of items complete")
    return table.with_columns(
        word=word,
        note=pl.when(too_few).then(few).otherwise("note"),
        n_more=pl.when(kept | broken | too_few).then(None).otherwise("n_more"),
    )
