"""Sizes and evidence -> one verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy.typing as npt

from flipmeter.base.checks import error_rate, share
from flipmeter.measure.inference.blocks import Blocks, Row, as_ranks, read_blocks
from flipmeter.measure.inference.bounds import Bounded
from flipmeter.measure.inference.needed import (
    needed_above,
    needed_below,
    needed_mean_below,
    needed_real,
)
from flipmeter.measure.inference.randomisation.randomise import EffectTest, evidence
from flipmeter.measure.inference.sizes import (
    Shift,
    Sizes,
    excess_p,
    lowest_excess,
    measure_sizes,
    rate_p,
    readability_p,
    shift_p,
)
from flipmeter.measure.inference.words import (
    BoundOn,
    Finding,
    Verdict,
    Word,
    not_reproducible,
    p_text,
    percent,
)
from flipmeter.types import ALPHA, Problem

On = Literal["", "rate", "excess"]
"""The subject of a claim: all flips, or those beyond noise; "" lets the evidence decide (E6)."""
ABOUT = {"rate": "all flips", "excess": "flips beyond noise"}


@dataclass(frozen=True)
class Margins:
    """The limits of a verdict."""

    margin: float = 0.10
    alpha: float = ALPHA
    unreadable: float = 0.05
    on: On = ""

    def __post_init__(self) -> None:
        share(self.margin, "margin")
        error_rate(self.alpha)
        if not 0 <= self.unreadable <= 1:
            raise Problem(f"unreadable_limit must lie between 0 and 1; got {self.unreadable}")


@dataclass(frozen=True)
class Case:
    """One contrast measured: what is bounded, by how much, and whether an effect is real.

    `by_construction` says why nothing can flip: its rate is 0 and needs no bound.
    """

    sizes: Sizes
    found: EffectTest
    reproducible: bool
    limits: Margins
    n_clusters: int
    all_repeated: bool
    by_construction: str = ""

    @property
    def is_thin(self) -> bool:
        """Whether fewer than half of the clusters were repeated, so that the rate says more.

        No excess is above its rate, so that a bound on the rate of all of them holds for it.
        """
        excess = self.sizes.excess
        return excess is not None and 0 < 2 * excess.n < self.sizes.rate.n

    @property
    def floor(self) -> Bounded | None:
        """Excess that decides with the shift: every view was repeated and repeats can differ."""
        excess = self.sizes.excess
        if self.limits.on == "rate" or self.reproducible or not self.all_repeated or self.is_thin:
            return None
        if self.by_construction:
            return None
        return excess if excess is not None and excess.n else None

    @property
    def is_open(self) -> bool:
        """Whether a claim beyond noise lacks the repeats that would show noise."""
        if self.by_construction or self.reproducible:
            return False
        return self.limits.on == "excess" and self.floor is None and not self._is_bounded

    @property
    def _is_bounded(self) -> bool:
        """Whether the rate bounds an excess that was measured on few items."""
        return self.all_repeated and self.is_thin

    @property
    def bound_on(self) -> BoundOn:
        if self.floor is None:
            return "rate"
        if self.limits.on == "excess" or self.floor.upper >= self.sizes.shift.upper:
            return "excess"
        return "drift" if self.sizes.shift.is_drift else "shift"

    @property
    def upper(self) -> float:
        if self.floor is None:
            return 1.0 if self.is_open else self.sizes.rate.upper
        if self.limits.on == "excess":
            return self.floor.upper
        return max(self.floor.upper, self.sizes.shift.upper)

    @property
    def size(self) -> float:
        """Estimate of what is bounded; where only some views were repeated, beyond their noise."""
        excess = None if self.by_construction else self.sizes.excess
        if self.limits.on == "rate" or self.reproducible or excess is None or not excess.n:
            return self.sizes.rate.value
        if self.limits.on == "excess":
            return excess.value
        return max(excess.value, self.sizes.shift.value)

    @property
    def claimed(self) -> Bounded | None:
        """The subject of a claim: all flips, or those beyond noise, which are all without noise."""
        return self.sizes.rate if self.limits.on == "rate" or self.reproducible else self.floor

    @property
    def is_real(self) -> bool:
        """Whether there is an effect beyond noise; of a claim, whether it is shown to be wrong."""
        if self.by_construction:
            return False
        if self.limits.on:
            return self.claimed is not None and self.claimed.lower > self.limits.margin
        if self.reproducible:
            return self.sizes.rate.value > 0
        if self.sizes.excess is None and self.sizes.rate.lower > self.limits.margin:
            return True
        return self.found.p < self.limits.alpha


def verdict(
    pairs: npt.ArrayLike,
    *,
    repeats: npt.ArrayLike | None = None,
    clusters: npt.ArrayLike | None = None,
    reproducible: bool = False,
    nominal: bool = False,
    slots: npt.ArrayLike | None = None,
    margin: float = 0.10,
    alpha: float = 0.05,
    unreadable_limit: float = 0.05,
    on: On = "",
    draws: int = 2000,
    seed: int = 0,
    gold: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    within: float | None = None,
) -> Verdict:
    """Say whether a rater changes its answers between views, beyond its noise and by how much.

    `pairs` holds items x views of classes from 1, with 0 for unreadable and -1 for a view that an
    item does not have; `repeats` second replies in the same shape (-1 = not repeated). Rows of one
    cluster (seeds, copies) are not independent. `slots` says where nominal answers lay, in the
    shape of pairs or as items x views x classes. `weights` are the frequencies of the classes in
    production, of which `gold` names one for each row of pairs. With `within` the replies are
    decimal scores, NaN for unreadable, and count as the same if they lie at most so far apart.
    """
    span = None
    if within is not None:
        (pairs, repeats), span = as_ranks(pairs, repeats, within)
    row = Row(pairs, repeats, clusters, reproducible, nominal, slots, gold, weights, span=span)
    limits = Margins(margin, alpha, unreadable_limit, on)
    return _verdict(row, limits, draws=draws, seed=seed, enough=0.0)


def verdicts(
    rows: Sequence[Row],
    *,
    margin: float = 0.10,
    alpha: float = 0.05,
    unreadable_limit: float = 0.05,
    on: On = "",
    draws: int = 2000,
    seed: int = 0,
) -> list[Verdict]:
    """Verdicts on many contrasts; p is resolved as far as Holm over all of them needs it."""
    limits = Margins(margin, alpha, unreadable_limit, on)
    return [conclude(row, limits, draws=draws, seed=seed, among=len(rows)) for row in rows]


def conclude(row: Row, limits: Margins, *, draws: int, among: int, seed: int = 0) -> Verdict:
    """The verdict on one row of so many."""
    return _verdict(row, limits, draws=draws, seed=seed, enough=limits.alpha / among)


def _verdict(row: Row, limits: Margins, *, draws: int, seed: int, enough: float) -> Verdict:
    if draws < 1:
        raise Problem(f"draws must be 1 or more; got {draws}")
    blocks = read_blocks(row)
    case = _case(blocks, row.reproducible, limits, draws=draws, seed=seed, enough=enough)
    case = _constructed(case, row.by_construction) if row.by_construction else case
    word = decide(case)
    reason, needed = explain(case, word)
    reason = f"{ABOUT[limits.on]}: {reason}" if limits.on else reason
    findings = tuple(find(blocks, case, word, row.reproducible))
    found = _filled(case, word, reason, findings, needed, len(blocks.replies))
    return replace(
        found, p_flips=_p_flips(blocks, case, word), p_stable=_p_stable(blocks, case, word)
    )


def _constructed(case: Case, why: str) -> Case:
    """A case in which no answer can differ: rate and shift are 0, whatever n is."""
    rate = Bounded(0.0, 0.0, 0.0, 0.0, 0.0, case.sizes.rate.n)
    sizes = replace(case.sizes, rate=rate, excess=None, shift=Shift(0.0, 0.0))
    return replace(case, sizes=sizes, by_construction=why)


def _p_flips(blocks: Blocks, case: Case, word: Word) -> float:
    """p-value of `flips`: every difference of a reproducible rater is real."""
    if word != "flips":
        return 1.0
    if not case.limits.on and (case.reproducible or case.sizes.excess is not None):
        return 0.0 if case.reproducible else case.found.p
    if case.limits.on == "excess" and case.floor is not None:
        return excess_p(blocks, case.limits.margin, above=True)
    above = rate_p(blocks, case.limits.margin, case.limits.alpha, above=True)
    return above if case.limits.on else min(case.found.p, above)


def _p_stable(blocks: Blocks, case: Case, word: Word) -> float:
    """p-value of `stable`: the largest of the bounds that apply."""
    if word != "stable" or case.by_construction:
        return 0.0 if case.by_construction and word == "stable" else 1.0
    margin = case.limits.margin
    if case.floor is None:
        return rate_p(blocks, margin, case.limits.alpha)
    of_excess = excess_p(blocks, margin)
    return of_excess if case.limits.on == "excess" else max(of_excess, shift_p(blocks, margin))


def _case(
    blocks: Blocks, reproducible: bool, limits: Margins, *, draws: int, seed: int, enough: float
) -> Case:
    sizes = measure_sizes(blocks, limits.alpha)
    if reproducible and sizes.noise is not None and sizes.noise.value > 0:
        reproducible = False
    found = evidence(blocks, draws=draws, seed=seed, enough=enough)
    all_repeated = blocks.repeated == "every view"
    return Case(sizes, found, reproducible, limits, blocks.n_clusters, all_repeated)


# --- word -------------------------------------------------------------------------------------


def decide(case: Case) -> Word:
    """The word of a contrast (METHODS E6); unreadable answers come first."""
    limits, sizes = case.limits, case.sizes
    if sizes.unreadable.n and sizes.unreadable.lower > limits.unreadable:
        return "unreadable"
    if not sizes.rate.n:
        return "inconclusive"
    if case.is_real and case.size > limits.margin:
        return "flips"
    if case.upper < limits.margin and sizes.unreadable.value <= limits.unreadable:
        return "stable"
    return "inconclusive"


def explain(case: Case, word: Word) -> tuple[str, int | None]:
    """A sentence for the word, and the items that would settle an open one."""
    if not case.sizes.rate.n and word == "inconclusive":
        what = "readable" if case.sizes.unreadable.n else "answered"
        return f"no {what} pair to compare", None
    if case.is_open and word == "inconclusive":
        return "noise was not measured in both views: repeat them", None
    if word == "unreadable":
        return _unreadable(case), None
    if word == "flips":
        return _flips(case), None
    if word == "stable" and case.by_construction:
        return _bounded(case), None
    if word == "stable":
        return f"{_bounded(case)}, below the margin of {percent(case.limits.margin)}", None
    return _open(case)


def _unreadable(case: Case) -> str:
    share = case.sizes.unreadable
    return (
        f"{percent(share.value)} of pairs are unreadable, at least {percent(share.lower)}; "
        f"the limit is {percent(case.limits.unreadable)}"
    )


def _flips(case: Case) -> str:
    margin = f"above the margin of {percent(case.limits.margin)}"
    rate = f"{percent(case.sizes.rate.value)} of pairs differ"
    if case.limits.on == "rate":
        return f"{rate}, at least {percent(case.sizes.rate.lower)}, {margin}{_own_noise(case)}"
    if case.limits.on and case.claimed is not None:
        return f"{percent(case.claimed.value)}, at least {percent(case.claimed.lower)}, {margin}"
    if case.reproducible:
        return f"{rate} and replies are reproducible; {margin}"
    if case.sizes.excess is not None:
        return f"{_beyond(case)} ({p_text(case.found.p)}), {margin}"
    if case.sizes.rate.lower > case.limits.margin:
        return f"{rate}, at least {percent(case.sizes.rate.lower)}, {margin}; no noise floor"
    return f"{rate}, more in one direction ({p_text(case.found.p)}), {margin}; no noise floor"


def _own_noise(case: Case) -> str:
    """Say that a claim about all flips counts noise too, which a verdict does not."""
    noise = case.sizes.noise
    if case.reproducible or noise is None or not noise.n:
        return ""
    return f"; noise counts too: {percent(noise.value)} of repeats differ"


def _beyond(case: Case) -> str:
    assert case.sizes.excess is not None
    if case.sizes.excess.value >= case.sizes.shift.value:
        return f"{percent(case.sizes.excess.value)} of pairs differ beyond noise"
    return case.sizes.shift.estimate


def _bounded(case: Case) -> str:
    if case.by_construction:
        return case.by_construction
    level = f"({percent(1 - case.limits.alpha)} bound)"
    if case.floor is None:
        what = "" if case.reproducible else " (noise included)"
        rate = f"{percent(case.sizes.rate.value)} of pairs differ{what}"
        return f"{rate}, at most {percent(case.upper)} {level}"
    if case.limits.on:
        return f"{percent(case.size)}, at most {percent(max(case.floor.upper, 0.0))} {level}"
    return (
        f"at most {percent(max(case.floor.upper, 0.0))} of pairs differ beyond noise and "
        f"{case.sizes.shift.bound} {level}"
    )


def _open(case: Case) -> tuple[str, int | None]:
    limits, needed = case.limits, _needed(case)
    cost = "" if needed is None else f"; about {needed} items would settle it"
    if _lacks_repeats(case):
        cost = "; too few items were repeated to tell flips from noise: repeat all of them"
    if case.upper < limits.margin:
        share = percent(case.sizes.unreadable.value)
        why = f"{_bounded(case)}, but {share} of pairs are unreadable"
        return f"{why}, above the limit of {percent(limits.unreadable)}{cost}", needed
    margin = f"the margin of {percent(limits.margin)}"
    if case.is_real:
        return (
            f"a real effect, size not settled: {_bounded(case)}, not below {margin}{cost}",
            needed,
        )
    shown = f"; no effect beyond noise shown ({p_text(case.found.p)})"
    real = "" if case.reproducible or case.limits.on else shown
    return f"{_bounded(case)}, not below {margin}{real}{cost}", needed


def _lacks_repeats(case: Case) -> bool:
    """Whether no number of items would do, but more repeats of these."""
    is_about_noise = case.limits.on != "rate" and not case.reproducible
    return is_about_noise and case.is_thin and case.sizes.rate.value >= case.limits.margin


def _needed(case: Case) -> int | None:
    """Clusters that would settle an open case if its estimates are true; at the margin, none do."""
    limits, sizes = case.limits, case.sizes
    if _lacks_repeats(case) or math.isclose(case.size, limits.margin):
        return None
    if case.upper < limits.margin:
        needed = needed_above(sizes.unreadable.value, limits.unreadable, limits.alpha)
    elif case.floor is None:
        needed = _needed_rate(case)
    elif case.size < limits.margin:
        needed = _needed_excess(case)
        repeated = case.floor.n / case.n_clusters
        needed = None if needed is None else math.ceil(needed / repeated)
    else:
        needed = needed_real(case.found.p, case.n_clusters, limits.alpha)
    return None if needed is None else max(needed, case.n_clusters + 1)


def _needed_rate(case: Case) -> int | None:
    rate, limits = case.sizes.rate, case.limits
    if rate.value < limits.margin:
        return needed_below(rate.value, limits.margin, limits.alpha)
    return needed_above(rate.value, limits.margin, limits.alpha)


def _needed_excess(case: Case) -> int | None:
    """Clusters for both bounds; their spread is read off the bounds that were found."""
    excess, shift, limits = case.sizes.excess, case.sizes.shift, case.limits
    assert excess is not None
    both = [
        needed_mean_below(max(value, 0.0), _spread(value, upper, excess.n), *_of(limits))
        for value, upper in ((excess.value, excess.upper), (shift.value, shift.upper))
    ]
    found = [n for n in both if n is not None]
    return max(found) if len(found) == 2 else None


def _of(limits: Margins) -> tuple[float, float]:
    return limits.margin, limits.alpha


def _spread(value: float, upper: float, n: int) -> float:
    """Standard deviation of a cluster that a one-sided bound over n of them stands for."""
    return max(0.0, (upper - value - 1 / (n + 1)) * math.sqrt(n) / 1.7)


# --- findings ---------------------------------------------------------------------------------


def find(blocks: Blocks, case: Case, word: Word, claimed: bool) -> Iterator[Finding]:
    """Findings that follow from the replies alone."""
    sizes, limits = case.sizes, case.limits
    read = blocks.replies[blocks.replies > 0]
    if len(read) > blocks.n_views and read.min() == read.max():
        yield Finding("constant answers", f"always answers {blocks.name(int(read[0]))}")
    if sizes.noise is not None and sizes.noise.lower > limits.margin:
        yield Finding("noisy", f"{percent(sizes.noise.value)} of repeats differ")
    if word == "stable" and case.is_real:
        yield Finding("a small effect is real", _small(case))
    if word == "inconclusive" and sizes.rate.n and case.is_real:
        yield Finding("size not settled", "a real effect, size not settled")
    if word == "unreadable" and sizes.rate.n and case.is_real and case.size > limits.margin:
        yield Finding("flips where readable", _flips(case))
    if readability_p(blocks) < limits.alpha:
        shares = ", ".join(percent(share) for share in sizes.unreadable_by_view)
        yield Finding("readability differs between views", f"unreadable by view: {shares}")
    yield from _weighted(blocks, case, word)
    if claimed and not case.reproducible:
        yield _failed(blocks)


def _weighted(blocks: Blocks, case: Case, word: Word) -> Iterator[Finding]:
    """Say where the frequencies of production would tell another story than the test set."""
    sizes, margin = case.sizes, case.limits.margin
    if blocks.strata is not None and sizes.uncovered:
        share = percent(float(blocks.strata.weights[sizes.uncovered - 1]))
        name = blocks.name(sizes.uncovered)
        yield Finding("not weighted", f"no readable pair of {name}, {share} of production")
    found = sizes.weighted if case.floor is None else sizes.weighted_excess
    if found is None:
        return
    unweighted, what = sizes.rate, "of pairs differ"
    if case.floor is not None:
        unweighted, what = case.floor, "of pairs differ beyond noise"
    share, bound = percent(max(found.value, 0.0)), percent(max(found.upper, 0.0))
    told = f"weighted to production, {share} {what}, at most {bound}"
    if word == "stable" and found.upper >= margin:
        yield Finding("not settled for production", told)
    if word == "flips" and found.value <= margin < unweighted.value:
        yield Finding("fewer flips in production", told)


def _small(case: Case) -> str:
    if case.reproducible:
        return f"{percent(case.size)} of pairs differ and replies are reproducible"
    return f"{percent(max(case.size, 0.0))} beyond noise, {p_text(case.found.p)}"


def _failed(blocks: Blocks) -> Finding:
    first, again = blocks.replies[:, :, 0], blocks.replies[:, :, 1]
    both = (first > 0) & (again > 0)
    n_differ = int((both & blocks.differ(first, again)).sum())
    return not_reproducible(n_differ, int(both.sum()))


# --- record -----------------------------------------------------------------------------------


def _filled(
    case: Case,
    word: Word,
    reason: str,
    findings: tuple[Finding, ...],
    needed: int | None,
    n_pairs: int,
) -> Verdict:
    sizes = case.sizes
    up, down = sizes.moves or (None, None)
    found = Verdict(
        *(word, reason, findings),
        *(_number(sizes.rate.value), sizes.rate.low, sizes.rate.high),
        rate_upper=sizes.rate.upper,
        shift_upper=sizes.shift.upper,
        bound_on=case.bound_on,
        direction=sizes.direction,
        n_clusters=case.n_clusters,
        n_needed=needed,
        unreadable=_number(sizes.unreadable.value),
        unreadable_low=sizes.unreadable.low,
        unreadable_high=sizes.unreadable.high,
        size=_number(case.size),
        upper=case.upper,
        lower=sizes.rate.lower,
        shift=_number(sizes.shift.value),
        if_same=_number(sizes.if_same),
        if_different=_number(sizes.if_different),
        unreadable_by_view=sizes.unreadable_by_view,
        moved_up=up,
        moved_down=down,
        n_pairs=n_pairs,
        margin=case.limits.margin,
        alpha=case.limits.alpha,
    )
    return _with_evidence(_with_excess(_with_noise(_with_weights(found, case), case), case), case)


def _with_weights(verdict: Verdict, case: Case) -> Verdict:
    rate, excess = case.sizes.weighted, case.sizes.weighted_excess
    if rate is not None:
        verdict = replace(
            verdict,
            weighted=rate.value,
            weighted_low=rate.low,
            weighted_high=rate.high,
            weighted_upper=rate.upper,
        )
    if excess is not None and case.floor is not None:
        verdict = replace(verdict, weighted_excess=excess.value, weighted_excess_upper=excess.upper)
    return verdict


def _with_noise(verdict: Verdict, case: Case) -> Verdict:
    noise = case.sizes.noise
    if noise is None or not noise.n:
        return replace(verdict, noise=0.0) if case.reproducible else verdict
    return replace(verdict, noise=noise.value, noise_low=noise.low, noise_high=noise.high)


def _with_excess(verdict: Verdict, case: Case) -> Verdict:
    """Add the excess: of a reproducible rater, its whole rate; bounded only over a whole floor."""
    settled = case.reproducible or bool(case.by_construction)
    excess = case.sizes.rate if settled else case.sizes.excess
    if excess is None or not excess.n:
        return verdict
    if not settled and case.floor is None:
        return replace(verdict, excess=excess.value)
    return replace(
        verdict,
        excess=excess.value,
        excess_upper=excess.upper,
        excess_low=lowest_excess(excess),
        excess_high=excess.high,
    )


def _with_evidence(verdict: Verdict, case: Case) -> Verdict:
    verdict = replace(verdict, p_direction=case.found.p_direction, leans=_leans(case))
    if case.reproducible:
        return replace(verdict, is_reproducible=True)
    p_excess = None if case.sizes.excess is None else case.found.p_excess
    return replace(verdict, p=case.found.p, p_excess=p_excess)


def _leans(case: Case) -> Literal["", "up", "down"]:
    """Direction of answers from the first view to the second, if beyond chance."""
    step = case.sizes.direction
    if not step or case.found.p_direction >= case.limits.alpha:
        return ""
    return "up" if step > 0 else "down"


def _number(x: float) -> float | None:
    return None if math.isnan(x) else x
