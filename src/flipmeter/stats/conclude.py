"""Sizes and evidence -> one verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy.typing as npt

from flipmeter.checks import error_rate, share
from flipmeter.errors import Problem
from flipmeter.stats.blocks import Blocks, Row, as_ranks, read_blocks
from flipmeter.stats.bounds import (
    Bounded,
    needed_above,
    needed_below,
    needed_mean_below,
    needed_real,
)
from flipmeter.stats.randomise import EffectTest, evidence
from flipmeter.stats.sizes import (
    Shift,
    Sizes,
    excess_p,
    lowest_excess,
    measure_sizes,
    rate_p,
    readability_p,
    shift_p,
)
from flipmeter.stats.verdict import (
    BoundOn,
    Finding,
    Verdict,
    Word,
    not_reproducible,
    p_text,
    percent,
)
from flipmeter.types import ALPHA

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
        is_settled = self.reproducible or bool(self.by_construction)
        if self.limits.on == "rate" or is_settled or not self.all_repeated or self.is_thin:
            return None
        return excess if excess is not None and excess.n else None

    @property
    def is_open(self) -> bool:
        """Whether a claim beyond noise lacks the repeats that would show noise."""
        if self.by_construction or self.reproducible:
            return False
        # The rate bounds an excess that was measured on few items.
        is_bounded = self.all_repeated and self.is_thin
        return self.limits.on == "excess" and self.floor is None and not is_bounded

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
    return _conclude_row(row, limits, draws=draws, seed=seed, enough=0.0)


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
    return _conclude_row(row, limits, draws=draws, seed=seed, enough=limits.alpha / among)


def _conclude_row(row: Row, limits: Margins, *, draws: int, seed: int, enough: float) -> Verdict:
    if draws < 1:
        raise Problem(f"draws must be 1 or more; got {draws}")
    blocks = read_blocks(row)
    sizes = measure_sizes(blocks, limits.alpha)
    holds = row.reproducible and not (sizes.noise is not None and sizes.noise.value > 0)
    found = evidence(blocks, draws=draws, seed=seed, enough=enough)
    if row.by_construction:  # no answer can differ: rate and shift are 0, whatever n is
        rate = Bounded(0.0, 0.0, 0.0, 0.0, 0.0, sizes.rate.n)
        sizes = replace(sizes, rate=rate, excess=None, shift=Shift(0.0, 0.0))
    all_repeated, n = blocks.repeated == "every view", blocks.n_clusters
    case = Case(sizes, found, holds, limits, n, all_repeated, row.by_construction)
    word = decide(case)
    reason, needed = explain(case, word)
    reason = f"{ABOUT[limits.on]}: {reason}" if limits.on else reason
    findings = tuple(find(blocks, case, word, row.reproducible))
    told = _fill_verdict(case, word, reason, findings, needed, len(blocks.replies))
    return replace(
        told, p_flips=_p_flips(blocks, case, word), p_stable=_p_stable(blocks, case, word)
    )


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
    unreadable, limits = case.sizes.unreadable, case.limits
    if word == "unreadable":
        shares = f"{percent(unreadable.value)} of pairs are unreadable, at least"
        limit = f"the limit is {percent(limits.unreadable)}"
        return f"{shares} {percent(unreadable.lower)}; {limit}", None
    if word == "flips":
        return _flips_clause(case), None
    if word == "stable":
        margin = f", below the margin of {percent(limits.margin)}"
        return f"{_stability_clause(case)}{'' if case.by_construction else margin}", None
    if not case.sizes.rate.n:
        return f"no {'readable' if unreadable.n else 'answered'} pair to compare", None
    if case.is_open:
        return "noise was not measured in both views: repeat them", None
    return _open_case_reason(case)


def _flips_clause(case: Case) -> str:
    noise, rate = case.sizes.noise, case.sizes.rate
    margin = f"above the margin of {percent(case.limits.margin)}"
    told, at_least = f"{percent(rate.value)} of pairs differ", f"at least {percent(rate.lower)}"
    if case.limits.on == "rate":
        # A claim about all flips counts noise too, which a verdict does not.
        is_noisy = not case.reproducible and noise is not None and noise.n
        share = percent(noise.value) if noise is not None else ""
        too = f"; noise counts too: {share} of repeats differ" if is_noisy else ""
        return f"{told}, {at_least}, {margin}{too}"
    if case.limits.on and case.claimed is not None:
        return f"{percent(case.claimed.value)}, at least {percent(case.claimed.lower)}, {margin}"
    if case.reproducible:
        return f"{told} and replies are reproducible; {margin}"
    if case.sizes.excess is not None:
        return f"{_beyond_noise_clause(case)} ({p_text(case.found.p)}), {margin}"
    if rate.lower > case.limits.margin:
        return f"{told}, {at_least}, {margin}; no noise floor"
    return f"{told}, more in one direction ({p_text(case.found.p)}), {margin}; no noise floor"


def _beyond_noise_clause(case: Case) -> str:
    assert case.sizes.excess is not None
    if case.sizes.excess.value >= case.sizes.shift.value:
        return f"{percent(case.sizes.excess.value)} of pairs differ beyond noise"
    return case.sizes.shift.estimate


def _stability_clause(case: Case) -> str:
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


def _open_case_reason(case: Case) -> tuple[str, int | None]:
    limits, needed = case.limits, _clusters_needed(case)
    cost = "" if needed is None else f"; about {needed} items would settle it"
    if _lacks_repeats(case):
        cost = "; too few items were repeated to tell flips from noise: repeat all of them"
    if case.upper < limits.margin:
        share = percent(case.sizes.unreadable.value)
        why = f"{_stability_clause(case)}, but {share} of pairs are unreadable"
        return f"{why}, above the limit of {percent(limits.unreadable)}{cost}", needed
    margin = f"the margin of {percent(limits.margin)}"
    if case.is_real:
        return (
            f"a real effect, size not settled: {_stability_clause(case)}, not below {margin}{cost}",
            needed,
        )
    shown = f"; no effect beyond noise shown ({p_text(case.found.p)})"
    real = "" if case.reproducible or case.limits.on else shown
    return f"{_stability_clause(case)}, not below {margin}{real}{cost}", needed


def _lacks_repeats(case: Case) -> bool:
    """Whether no number of items would do, but more repeats of these."""
    is_about_noise = case.limits.on != "rate" and not case.reproducible
    return is_about_noise and case.is_thin and case.sizes.rate.value >= case.limits.margin


def _clusters_needed(case: Case) -> int | None:
    """Clusters that would settle an open case if its estimates are true; at the margin, none do."""
    limits, sizes = case.limits, case.sizes
    if _lacks_repeats(case) or math.isclose(case.size, limits.margin):
        return None
    if case.upper < limits.margin:
        needed = needed_above(sizes.unreadable.value, limits.unreadable, limits.alpha)
    elif case.floor is None:
        toward = needed_below if sizes.rate.value < limits.margin else needed_above
        needed = toward(sizes.rate.value, limits.margin, limits.alpha)
    elif case.size < limits.margin:
        needed = _needed_excess(case, case.floor)
    else:
        needed = needed_real(case.found.p, case.n_clusters, limits.alpha)
    return None if needed is None else max(needed, case.n_clusters + 1)


def _needed_excess(case: Case, excess: Bounded) -> int | None:
    """Clusters for both bounds; their spread is read off the bounds that were found."""
    found: list[int] = []
    for size in (excess, case.sizes.shift):
        n = excess.n
        spread = max(0.0, (size.upper - size.value - 1 / (n + 1)) * math.sqrt(n) / 1.7)
        limits = case.limits.margin, case.limits.alpha
        needed = needed_mean_below(max(size.value, 0.0), spread, *limits)
        if needed is None:
            return None
        found.append(needed)
    return math.ceil(max(found) / (excess.n / case.n_clusters))


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
        small = f"{percent(max(case.size, 0.0))} beyond noise, {p_text(case.found.p)}"
        if case.reproducible:
            small = f"{percent(case.size)} of pairs differ and replies are reproducible"
        yield Finding("a small effect is real", small)
    if word == "inconclusive" and sizes.rate.n and case.is_real:
        yield Finding("size not settled", "a real effect, size not settled")
    if word == "unreadable" and sizes.rate.n and case.is_real and case.size > limits.margin:
        yield Finding("flips where readable", _flips_clause(case))
    if readability_p(blocks) < limits.alpha:
        shares = ", ".join(percent(share) for share in sizes.unreadable_by_view)
        yield Finding("readability differs between views", f"unreadable by view: {shares}")
    yield from _production_findings(blocks, case, word)
    if claimed and not case.reproducible:
        twice = blocks.replies[(blocks.replies > 0).all(axis=2)]
        yield not_reproducible(int(blocks.differ(*twice.T).sum()), len(twice))


def _production_findings(blocks: Blocks, case: Case, word: Word) -> Iterator[Finding]:
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


# --- record -----------------------------------------------------------------------------------


def _fill_verdict(
    case: Case,
    word: Word,
    reason: str,
    findings: tuple[Finding, ...],
    needed: int | None,
    n_pairs: int,
) -> Verdict:
    sizes, found, rate = case.sizes, case.found, case.sizes.rate
    up, down = sizes.moves or (None, None)
    noise = sizes.noise if sizes.noise is not None and sizes.noise.n else None
    # Of a reproducible rater the excess is its whole rate; it is bounded only over a whole floor.
    is_settled = case.reproducible or bool(case.by_construction)
    excess = rate if is_settled else sizes.excess
    excess = excess if excess is not None and excess.n else None
    bounded = excess if is_settled or case.floor is not None else None
    beyond = None if case.floor is None else sizes.weighted_excess
    step = (sizes.direction or 0.0) if found.p_direction < case.limits.alpha else 0.0
    p_excess = None if sizes.excess is None else found.p_excess
    return Verdict(
        *(word, reason, findings),
        *(_none_if_nan(rate.value), rate.low, rate.high),
        p=None if case.reproducible else found.p,
        noise=0.0 if noise is None and case.reproducible else _bound_or_none(noise, "value"),
        excess=_bound_or_none(excess, "value"),
        excess_upper=_bound_or_none(bounded, "upper"),
        shift_upper=sizes.shift.upper,
        bound_on=case.bound_on,
        direction=sizes.direction,
        n_clusters=case.n_clusters,
        n_needed=needed,
        unreadable=_none_if_nan(sizes.unreadable.value),
        unreadable_low=sizes.unreadable.low,
        unreadable_high=sizes.unreadable.high,
        size=_none_if_nan(case.size),
        upper=case.upper,
        lower=rate.lower,
        rate_upper=rate.upper,
        shift=_none_if_nan(sizes.shift.value),
        excess_low=None if bounded is None else lowest_excess(bounded),
        excess_high=_bound_or_none(bounded, "high"),
        noise_low=_bound_or_none(noise, "low"),
        noise_high=_bound_or_none(noise, "high"),
        if_same=_none_if_nan(sizes.if_same),
        if_different=_none_if_nan(sizes.if_different),
        unreadable_by_view=sizes.unreadable_by_view,
        p_excess=None if case.reproducible else p_excess,
        p_direction=found.p_direction,
        moved_up=up,
        moved_down=down,
        is_reproducible=case.reproducible,
        leans="up" if step > 0 else "down" if step < 0 else "",
        n_pairs=n_pairs,
        margin=case.limits.margin,
        alpha=case.limits.alpha,
        weighted=_bound_or_none(sizes.weighted, "value"),
        weighted_low=_bound_or_none(sizes.weighted, "low"),
        weighted_high=_bound_or_none(sizes.weighted, "high"),
        weighted_upper=_bound_or_none(sizes.weighted, "upper"),
        weighted_excess=_bound_or_none(beyond, "value"),
        weighted_excess_upper=_bound_or_none(beyond, "upper"),
    )


def _bound_or_none(
    found: Bounded | None, name: Literal["value", "low", "high", "upper"]
) -> float | None:
    return None if found is None else float(getattr(found, name))


def _none_if_nan(x: float) -> float | None:
    return None if math.isnan(x) else x
