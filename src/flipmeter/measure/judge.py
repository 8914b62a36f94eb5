"""Decisions -> verdicts: a word one can act on for every contrast, and the reason for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from flipmeter.measure.estimates.flips import count_flips
from flipmeter.measure.panel.checked import share
from flipmeter.measure.panel.groups import joined
from flipmeter.measure.panel.panel import (
    Compared,
    Panel,
    Status,
    compared,
    conditions,
    discordant,
    noise_runs,
    read_panel,
)
from flipmeter.measure.statistics.formulas import clopper_upper, mcnemar, wilson
from flipmeter.types import Contrast, Problem

Word = Literal["flips", "stable", "inconclusive"]
ENOUGH_COMPLETE = 0.8
SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "rater": pl.String,
    "dataset": pl.String,
    "level": pl.String,
    "seeds": pl.List(pl.Int64),
    "contrast": pl.String,
    "word": pl.String,
    "reason": pl.String,
    "status": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
    "k": pl.Int64,
    "failed": pl.Int64,
    "b": pl.Int64,
    "c": pl.Int64,
    "p": pl.Float64,
}


@dataclass(frozen=True)
class Verdict:
    word: Word
    reason: str


def verdict(
    k: int,
    n: int,
    *,
    complete_share: float,
    noise: tuple[int, int] | None = None,
    margin: float = 0.10,
    alpha: float = 0.05,
) -> Verdict:
    """Say whether k strict flips of n are `flips`, `stable` or `inconclusive`.

    `noise` is McNemar's (b, c) of total against noise; with it, flipping means more than the
    model's own noise, however rarely. Without it, flipping means above the margin for sure.
    A rater that mostly refuses agrees with itself and is still not stable.
    """
    share(margin, "margin")
    share(alpha, "alpha")
    if not 0 <= complete_share <= 1:
        raise Problem(f"complete_share is a share of the pairs; got {complete_share}")
    if n == 0:
        return Verdict("inconclusive", "no pair to compare")
    if complete_share < ENOUGH_COMPLETE:
        return Verdict("inconclusive", f"only {100 * complete_share:.0f} % of pairs complete")
    if noise is None:
        return _without_noise(k, n, margin, alpha)
    return _with_noise(k, n, noise, margin, alpha)


@dataclass(frozen=True)
class Tally:
    """Strict counts of one contrast, which add up over seeds."""

    status: Status
    note: str
    k: int = 0
    n: int = 0
    failed: int = 0
    noise: tuple[int, int] | None = None


def verdicts(
    decisions: pl.DataFrame,
    contrasts: Sequence[Contrast],
    *,
    reproducible: Collection[str] = (),
    margin: float = 0.10,
    alpha: float = 0.05,
    pool: bool = True,
) -> pl.DataFrame:
    """Judge every contrast of every rater under the strict policy.

    Seeds are pooled: their pairs are counted together as if they were independent, and the reason
    says so; `pool=False` judges each seed alone. `status` tells a contrast that was measured from
    one that could not be; the word of the second is always `inconclusive`.
    """
    panel = read_panel(decisions, reproducible)
    counted = [tallies(panel, contrast) for contrast in contrasts]
    pools: dict[tuple[object, ...], list[int]] = {}
    for group, key in enumerate(panel.keys.iter_rows()):
        pools.setdefault(key[:3] if pool else key, []).append(group)
    seeds = panel.keys["seed"].to_list()
    records = [
        (
            *(*key[:3], [seeds[group] for group in groups], contrast.name),
            *_record(pooled([of[group] for group in groups]), margin, alpha),
        )
        for key, groups in pools.items()
        for contrast, of in zip(contrasts, counted, strict=True)
    ]
    return pl.DataFrame(records, schema=SCHEMA, orient="row")


def tallies(panel: Panel, contrast: Contrast) -> list[Tally]:
    """Count strict flips, failures and McNemar's discordant items of one contrast in each group."""
    found = compared(panel, contrast)
    views = conditions(panel, contrast, found.items)
    counts = count_flips(views, panel.groups.among(found.items))
    failed = counts.n - counts.n_complete
    numbers = zip(counts.strict.tolist(), counts.n.tolist(), failed.tolist(), strict=True)
    noises = _noises(panel, contrast, found)
    columns = zip(found.status, found.note, numbers, noises, strict=True)
    return [
        Tally(status, note, *each, noise) if status == "measured" else Tally(status, note)
        for status, note, each, noise in columns
    ]


def _noises(panel: Panel, contrast: Contrast, found: Compared) -> list[tuple[int, int] | None]:
    """Return McNemar's (b, c) for each group; None where no view was run twice."""
    if not contrast.is_pair:
        return [None] * panel.groups.n
    noise = noise_runs(panel, contrast)
    counts = discordant(panel, contrast, found.items, noise, "strict")
    columns = zip(*(count.tolist() for count in counts), strict=True)
    return [(b, c) if n else None for n, b, c in columns]


def pooled(tallies: Sequence[Tally]) -> Tally:
    """Add up the tallies that were measured; noise from the seeds that were repeated."""
    measured = [one for one in tallies if one.status == "measured"]
    if not measured or len(tallies) == 1:
        return tallies[0]
    noises = [one.noise for one in measured if one.noise]
    return Tally(
        "measured",
        joined(_pooled(len(measured)), *sorted({one.note for one in measured})),
        sum(one.k for one in measured),
        sum(one.n for one in measured),
        sum(one.failed for one in measured),
        (sum(b for b, _ in noises), sum(c for _, c in noises)) if noises else None,
    )


def _pooled(n_seeds: int) -> str:
    return f"{n_seeds} seeds pooled" if n_seeds > 1 else ""


def _record(total: Tally, margin: float, alpha: float) -> tuple[object, ...]:
    judged = _judged(total, margin, alpha)
    return (judged.word, judged.reason, total.status, *_numbers(total))


def _judged(total: Tally, margin: float, alpha: float) -> Verdict:
    if total.status != "measured":
        return Verdict("inconclusive", total.note)
    complete_share = 1 - total.failed / total.n
    judged = verdict(
        *(total.k, total.n),
        complete_share=complete_share,
        noise=total.noise,
        margin=margin,
        alpha=alpha,
    )
    return Verdict(judged.word, joined(judged.reason, total.note))


def _numbers(total: Tally) -> tuple[object, ...]:
    if total.status != "measured":
        return (None,) * 9
    low, high = wilson(total.k, total.n)
    b, c = total.noise or (None, None)
    p = None if b is None or c is None else mcnemar(b, c)
    return (total.k / total.n, low, high, total.n, total.k, total.failed, b, c, p)


def _with_noise(k: int, n: int, noise: tuple[int, int], margin: float, alpha: float) -> Verdict:
    b, c = noise
    p, upper = mcnemar(b, c), clopper_upper(k, n, 1 - alpha)
    against = f"against noise b = {b}, c = {c}, mid-p {_p(p)}"
    below = f"at most {_percent(upper)}, below the margin of {_percent(margin)}"
    if p < alpha:
        rare = f"; {below}" if upper < margin else ""
        return Verdict("flips", f"{_rate(k, n)} flip, more than noise: {against}{rare}")
    if upper < margin:
        return Verdict("stable", f"{_rate(k, n)} flip, {below}; {against}")
    return Verdict(
        "inconclusive",
        f"{_rate(k, n)} flip, not shown to exceed noise ({against}) nor to stay below the "
        f"margin of {_percent(margin)} (at most {_percent(upper)})",
    )


def _without_noise(k: int, n: int, margin: float, alpha: float) -> Verdict:
    lower, upper = wilson(k, n, 1 - alpha)[0], clopper_upper(k, n, 1 - alpha)
    limit = f"the margin of {_percent(margin)}; no noise floor"
    if lower > margin:
        return Verdict("flips", f"{_rate(k, n)} flip, at least {_percent(lower)}, above {limit}")
    if upper < margin:
        return Verdict("stable", f"{_rate(k, n)} flip, at most {_percent(upper)}, below {limit}")
    span = f"{_percent(lower)} to {_percent(upper)}"
    return Verdict("inconclusive", f"{_rate(k, n)} flip, {span}, on both sides of {limit}")


def _rate(k: int, n: int) -> str:
    return f"{k} of {n} ({_percent(k / n)})"


def _percent(x: float) -> str:
    return f"{100 * x:.1f} %"


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
