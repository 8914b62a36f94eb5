"""Decisions so far -> whether a claim is settled, however often one looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from flipmeter.measure.certificates import Claim, anytime_interval, e_above, e_below
from flipmeter.types import NO_CLASS, Contrast, Problem

ALPHA = 0.05
GROUP = ("rater", "dataset", "level", "seed")


@dataclass(frozen=True)
class Watched:
    """What is known of a claim about one group: `below`, `above` or `undecided`, k of n flips.

    `low` and `high` hold at any time, so also at the one at which a run stops.
    """

    group: tuple[object, ...]
    word: str
    k: int
    n: int
    low: float
    high: float

    def __str__(self) -> str:
        name = " · ".join(str(part) for part in self.group[:3] if part)
        share = f"{self.k} of {self.n} flip, {100 * self.low:.1f} to {100 * self.high:.1f} %"
        return f"{name}: {self.word} ({share})"


def watch(decisions: pl.DataFrame, claim: Claim, contrast: Contrast) -> list[Watched]:
    """Hold a claim against every group that shows both views; what failed counts as a flip."""
    a, b = contrast.views
    sides = [
        decisions.filter(view=view, repeat=0).select(*GROUP, "item", pl.col("rank").alias(view))
        for view in (a, b)
    ]
    both = sides[0].join(sides[1], on=[*GROUP, "item"], how="inner", maintain_order="left")
    is_flip = (pl.col(a) != pl.col(b)) | (pl.col(a) == NO_CLASS) | (pl.col(b) == NO_CLASS)
    counts = both.group_by(GROUP, maintain_order=True).agg(k=is_flip.sum(), n=pl.len())
    return [_watched(tuple(group), k, n, claim.margin) for *group, k, n in counts.iter_rows()]


def _watched(group: tuple[object, ...], k: int, n: int, margin: float) -> Watched:
    is_below = float(e_below(k, n, margin)) >= 1 / ALPHA
    is_above = float(e_above(k, n, margin)) >= 1 / ALPHA
    word = "below" if is_below else "above" if is_above else "undecided"
    low, high = (float(end) for end in anytime_interval(k, n))
    return Watched(group, word, k, n, low, high)


def claimed_contrast(claim: Claim, contrasts: Sequence[Contrast]) -> Contrast:
    """Return the contrast of a claim that a run can stop by."""
    if claim.beyond_noise:
        raise Problem(
            f"a run cannot stop by '{claim}'; it can by flips as such, as in "
            f"'{claim.contrast}<{claim.margin:g}', and measure --certify looks beyond noise"
        )
    for contrast in contrasts:
        if contrast.name == claim.contrast and contrast.is_pair:
            return contrast
    known = ", ".join(contrast.name for contrast in contrasts if contrast.is_pair) or "none"
    raise Problem(f"no contrast '{claim.contrast}' in the study to stop by; there are: {known}")
