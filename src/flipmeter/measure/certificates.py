"""Counts -> a certificate: the flips are fewer than a margin, for sure; and what that takes."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import special

from flipmeter.measure.estimates.flips import count_flips
from flipmeter.measure.judge import ENOUGH_COMPLETE
from flipmeter.measure.panel.checked import Floats, Ints, booleans, share
from flipmeter.measure.panel.panel import (
    Panel,
    compared,
    conditions,
    discordant,
    noise_runs,
    read_panel,
)
from flipmeter.measure.statistics.formulas import clopper_upper, holm
from flipmeter.measure.statistics.paired import tango, tango_p
from flipmeter.registry import suggestion
from flipmeter.types import Contrast, Problem

CLAIM = re.compile(r"\s*([\w.]+?)\s*(-\s*noise)?\s*<\s*([\d.]+)\s*(%?)\s*")
JEFFREYS = 0.5
"""Both parameters of the beta prior that e-values bet with: it has no opinion and is quick."""

SCHEMA: dict[str, type[pl.DataType]] = {
    "rater": pl.String,
    "dataset": pl.String,
    "level": pl.String,
    "seed": pl.Int64,
    "claim": pl.String,
    "word": pl.String,
    "value": pl.Float64,
    "upper": pl.Float64,
    "margin": pl.Float64,
    "p": pl.Float64,
    "n": pl.Int64,
    "k": pl.Int64,
    "failed": pl.Int64,
    "b": pl.Int64,
    "c": pl.Int64,
    "n_needed": pl.Int64,
    "note": pl.String,
}


@dataclass(frozen=True)
class Certificate:
    """Whether a rate is shown to be below a margin; `upper` is its one-sided bound."""

    is_certified: bool
    value: float
    upper: float
    margin: float
    p: float


@dataclass(frozen=True)
class Claim:
    """A contrast whose flips, or flips beyond noise, are said to stay below a margin."""

    contrast: str
    margin: float
    beyond_noise: bool = False

    def __str__(self) -> str:
        noise = "-noise" if self.beyond_noise else ""
        return f"{self.contrast}{noise}<{self.margin:g}"


# --- fixed number of items --------------------------------------------------------------------


def certify(k: int, n: int, margin: float, level: float = 0.95) -> Certificate:
    """Certify that fewer than a margin flip: k of n, by the one-sided Clopper-Pearson bound."""
    share(margin, "margin")
    upper = clopper_upper(k, n, level)
    p = float(special.bdtr(k, n, margin)) if n else 1.0
    return Certificate(upper < margin, k / n if n else math.nan, upper, margin, p)


def certify_excess(b: int, c: int, n: int, margin: float, level: float = 0.95) -> Certificate:
    """Certify that flips exceed noise by less than a margin, from McNemar's b and c of n items.

    One-sided paired score test (Tango).
    """
    share(margin, "margin")
    upper = float(tango(b, c, n, 2 * share(level, "level") - 1)[1])
    p = float(tango_p(b, c, n, margin))
    return Certificate(upper < margin, (b - c) / n if n else math.nan, upper, margin, p)


def items_needed(
    margin: float, rate: float = 0.0, *, power: float = 0.8, level: float = 0.95
) -> tuple[int, int]:
    """Fewest items with which `certify` succeeds at this power, and the flips they may have.

    `rate` is the true flip rate, below the margin.
    """
    share(margin, "margin")
    share(power, "power")
    if not 0 <= rate < margin:
        raise Problem(f"a rate of {rate} cannot be certified below {margin}; name a smaller one")
    alpha, last = 1 - share(level, "level"), 1
    while not _suffices(last, margin, rate, alpha, power):
        last *= 2
    low, high = -1, last
    while high - low > 1:
        middle = (low + high) // 2
        is_enough = _suffices(middle, margin, rate, alpha, power)
        low, high = (low, middle) if is_enough else (middle, high)
    return _first_with(high, margin, alpha), high


def _suffices(k: int, margin: float, rate: float, alpha: float, power: float) -> bool:
    """Say whether at most k flips are likely enough among the fewest items that allow them."""
    return bool(special.bdtr(k, _first_with(k, margin, alpha), rate) >= power)


def _first_with(k: int, margin: float, alpha: float) -> int:
    """Return the fewest items among which k flips certify the margin."""
    # The chance of k or fewer flips falls with n; the normal guess brackets where it is alpha.
    low, high = k, max(8, math.ceil(4 * (k + 8) / margin))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if special.bdtr(k, middle, margin) < alpha else (middle, high)
    return high


def certifiable_rate(n: int, margin: float, *, power: float = 0.8, level: float = 0.95) -> float:
    """Highest true flip rate that n items certify at this power; NaN if even 0 flips would not."""
    share(power, "power")
    allowed = [k for k in range(n) if clopper_upper(k, n, level) < share(margin, "margin")]
    return float(special.bdtri(allowed[-1], n, power)) if allowed else math.nan


def items_for_excess(
    excess: float, discordant: float, *, power: float = 0.8, alpha: float = 0.05
) -> int:
    """Items with which McNemar's one-sided test finds an excess over noise at this power.

    `discordant` is the share of items that flip in only one of the two ways, b + c over n.
    """
    if not 0 < excess <= share(discordant, "discordant"):
        raise Problem(f"an excess lies between 0 and the discordant share; got {excess}")
    z = [float(special.ndtri(x)) for x in (1 - share(alpha, "alpha"), share(power, "power"))]
    reach = z[0] * math.sqrt(discordant) + z[1] * math.sqrt(discordant - excess**2)
    return math.ceil((reach / excess) ** 2)


def detectable_excess(
    n: int, discordant: float, *, power: float = 0.8, alpha: float = 0.05
) -> float:
    """Smallest excess over noise that n items show at this power; NaN if none that can be."""
    low, high = 0.0, share(discordant, "discordant")
    if items_for_excess(high, discordant, power=power, alpha=alpha) > n:
        return math.nan
    for _ in range(60):
        middle = (low + high) / 2
        needed = items_for_excess(middle, discordant, power=power, alpha=alpha)
        low, high = (low, middle) if needed <= n else (middle, high)
    return high


# --- any number of items ----------------------------------------------------------------------


def e_value(k: npt.ArrayLike, n: npt.ArrayLike, rate: float) -> Floats:
    """Evidence against a flip rate after k of n, valid whenever one stops to look.

    A bet that stays below 1 / alpha at all n with chance 1 - alpha if the rate is true: stop when
    it reaches 1 / alpha. It bets on both sides; `e_below` and `e_above` bet on one.
    """
    return np.exp(_log_bet(*_counted(k, n), share(rate, "rate")))


def e_below(k: npt.ArrayLike, n: npt.ArrayLike, margin: float) -> Floats:
    """Evidence that the flip rate is below a margin: 1 / alpha certifies it, at any n."""
    return _one_sided(k, n, margin, below=True)


def e_above(k: npt.ArrayLike, n: npt.ArrayLike, margin: float) -> Floats:
    """Evidence that the flip rate is above a margin, at any n.

    With McNemar's b of b + c and a margin of a half: that a view flips more than noise does.
    """
    return _one_sided(k, n, margin, below=False)


def _one_sided(k: npt.ArrayLike, n: npt.ArrayLike, margin: float, *, below: bool) -> Floats:
    """Bet only with rates on one side: then every rate on the other side is refuted at once."""
    hits, size = _counted(k, n)
    after, before = (JEFFREYS + hits, JEFFREYS + size - hits), (JEFFREYS, JEFFREYS)
    part = special.betainc if below else special.betaincc
    with np.errstate(divide="ignore"):
        side = np.log(part(*after, share(margin, "margin"))) - np.log(part(*before, margin))
    return np.asarray(np.exp(_log_bet(hits, size, margin) + side))


def _log_bet(hits: Floats, size: Floats, rate: float | Floats) -> Floats:
    seen = special.betaln(JEFFREYS + hits, JEFFREYS + size - hits)
    null = special.xlogy(hits, rate) + special.xlog1py(size - hits, -np.asarray(rate))
    return np.asarray(seen - special.betaln(JEFFREYS, JEFFREYS) - null)


def anytime_interval(
    k: npt.ArrayLike, n: npt.ArrayLike, level: float = 0.95
) -> tuple[Floats, Floats]:
    """Interval of a flip rate that covers it at all n at once, however often one looks."""
    hits, size = _counted(k, n)
    limit = -math.log(1 - share(level, "level"))
    centre = np.where(size > 0, hits / np.maximum(size, 1), 0.5)
    return _bet_end(hits, size, centre, 0.0, limit), _bet_end(hits, size, centre, 1.0, limit)


def _bet_end(hits: Floats, size: Floats, inside: Floats, outside: float, limit: float) -> Floats:
    kept, left = inside.copy(), np.full(inside.shape, outside)
    for _ in range(50):
        middle = (kept + left) / 2
        with np.errstate(divide="ignore"):
            is_in = _log_bet(hits, size, middle) < limit
        kept, left = np.where(is_in, middle, kept), np.where(is_in, left, middle)
    return np.where(np.abs(kept - outside) < 1e-12, outside, kept)


def first_stop(flips: npt.ArrayLike, margin: float, *, alpha: float = 0.05) -> tuple[str, int]:
    """Watch items one by one; return "below" or "above" the margin and after how many it was sure.

    "undecided" and the number of items if the evidence never sufficed.
    """
    seen = booleans(flips, "flips", 1)
    k, n = np.cumsum(seen), np.arange(1, len(seen) + 1)
    sure = {"below": e_below(k, n, margin), "above": e_above(k, n, margin)}
    ends = {
        word: int(np.argmax(e >= 1 / share(alpha, "alpha"))) + 1
        for word, e in sure.items()
        if (e >= 1 / alpha).any()
    }
    return min(ends.items(), key=lambda end: end[1]) if ends else ("undecided", len(seen))


def _counted(k: npt.ArrayLike, n: npt.ArrayLike) -> tuple[Floats, Floats]:
    hits, size = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (k, n)))
    if not ((hits >= 0) & (hits <= size)).all():
        raise Problem("a count k must lie between 0 and n")
    return hits, size


# --- all groups -------------------------------------------------------------------------------


def read_claim(text: str) -> Claim:
    """Read "P1<0.10", "P1 < 10 %" or "P1-noise<0.05"."""
    found = CLAIM.fullmatch(text)
    if not found:
        raise Problem(f"cannot read the claim '{text}'; write P1<0.10, or P1-noise<0.05")
    name, noise, number, percent = found.groups()
    margin = float(number) / (100 if percent else 1)
    share(margin, f"the margin of '{text}'")
    return Claim(name, margin, beyond_noise=noise is not None)


def certificates(
    decisions: pl.DataFrame,
    contrasts: Sequence[Contrast],
    claims: Sequence[Claim],
    *,
    reproducible: Collection[str] = (),
    level: float = 0.95,
) -> pl.DataFrame:
    """Hold claims against every rater, dataset, level and seed, failures being flips (strict).

    Each row is one seed: seeds share their items and cannot be pooled for a certificate. All
    claims of the table are one family: `p_holm` decides the word, `certified` or `not shown`.
    """
    known = {contrast.name: contrast for contrast in contrasts}
    if not claims:
        raise Problem("there is no claim to certify; write P1<0.10")
    for claim in claims:
        if claim.contrast not in known:
            raise Problem(
                f"no contrast named '{claim.contrast}'{suggestion(claim.contrast, list(known))}"
            )
    panel = read_panel(decisions, reproducible)
    rows = [row for one in claims for row in _claimed(panel, known[one.contrast], one, level)]
    table = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    p_holm = pl.Series("p_holm", holm(table["p"].fill_null(float("nan")).to_numpy()))
    is_sure = (p_holm < 1 - level) & (table["failed"] <= (1 - ENOUGH_COMPLETE) * table["n"])
    word = pl.when(is_sure.fill_null(False)).then(pl.lit("certified")).otherwise("word")
    table = table.with_columns(word.alias("word")).hstack([p_holm])
    return table.with_columns(pl.col(pl.Float64).fill_nan(None))


def _claimed(
    panel: Panel, contrast: Contrast, claim: Claim, level: float
) -> Iterator[tuple[object, ...]]:
    """Yield a row for every group; the word is still open."""
    found = compared(panel, contrast)
    counted = _beyond_noise(panel, contrast, claim) if claim.beyond_noise else None
    groups = panel.groups.among(found.items)
    counts = count_flips(conditions(panel, contrast, found.items), groups)
    for group, key in enumerate(panel.keys.iter_rows()):
        names = (*key, str(claim))
        n, failed = int(counts.n[group]), int(counts.n[group] - counts.n_complete[group])
        if counted is not None:
            n, failed, b, c = (int(count[group]) for count in counted)
        if not found.measured[group] or not n:
            why = found.note[group] or "no view was run twice"
            yield (*names, "not measured", None, None, claim.margin, *(None,) * 7, why)
        elif counted is not None:
            sure = certify_excess(b, c, n, claim.margin, level)
            why = _why(failed, n, found.note[group])
            yield (*names, *_shown(sure), n, None, failed, b, c, None, why)
        else:
            k = int(counts.strict[group])
            sure = certify(k, n, claim.margin, level)
            why, needed = _why(failed, n, found.note[group]), _needed(k / n, claim.margin, level)
            yield (*names, *_shown(sure), n, k, failed, None, None, needed, why)


def _beyond_noise(panel: Panel, contrast: Contrast, claim: Claim) -> tuple[Ints, ...]:
    """Count in every group the items held against noise, those that failed in a run, b and c."""
    if not contrast.is_pair:
        raise Problem(f"'{claim}': noise is held against pairs of views, and this is an aggregate")
    items = compared(panel, contrast).items
    noise = noise_runs(panel, contrast)
    n, b, c = discordant(panel, contrast, items, noise, "strict")
    return n, n - discordant(panel, contrast, items, noise, "complete")[0], b, c


def _shown(sure: Certificate) -> tuple[object, ...]:
    return "not shown", sure.value, sure.upper, sure.margin, sure.p


def _needed(rate: float, margin: float, level: float) -> int | None:
    return items_needed(margin, rate, level=level)[0] if rate < margin else None


def _why(failed: int, n: int, note: str) -> str:
    too_few = failed > (1 - ENOUGH_COMPLETE) * n
    return f"only {100 * (1 - failed / n):.0f} % of items complete" if too_few else note
