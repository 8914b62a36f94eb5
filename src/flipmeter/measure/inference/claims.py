"""A claim such as P1 < 0.10 -> the verdict on it, row by row."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from flipmeter.base.checks import share
from flipmeter.measure.inference.conclude import On
from flipmeter.measure.inference.judge import as_table, judge
from flipmeter.measure.panel.frame import Decisions
from flipmeter.measure.panel.panel import Panel
from flipmeter.measure.panel.reading import Panels, read_panel
from flipmeter.registry import suggestion
from flipmeter.types import ALPHA, Contrast, Problem

CLAIM = re.compile(r"\s*([\w.]+?)\s*(-\s*noise)?\s*<\s*([\d.]+)\s*(%?)\s*")


OUTCOMES = {"stable": "shown", "flips": "refuted", "inconclusive": "open"}
"""The outcome of a claim for each verdict: they answer different questions."""


def overall_outcome(outcomes: Iterable[str]) -> str:
    """The outcome of several claims: one that is refuted decides, and all must be shown."""
    found = set(outcomes)
    worst = ("refuted", "unreadable", "open", "not identified")
    return next((one for one in worst if one in found), "shown" if found else "open")


@dataclass(frozen=True)
class Claim:
    """The flips of a contrast are fewer than a margin; all of them, or those beyond noise."""

    contrast: str
    margin: float
    beyond_noise: bool = False

    @property
    def on(self) -> On:
        return "excess" if self.beyond_noise else "rate"

    def __str__(self) -> str:
        return f"{self.contrast}{'-noise' if self.beyond_noise else ''}<{self.margin:g}"


def read_claim(text: str) -> Claim:
    """Read "P1<0.10", "P1 < 10 %" or "P1-noise<0.05"."""
    found = CLAIM.fullmatch(text)
    if not found:
        raise Problem(f"cannot read the claim '{text}'; write P1<0.10, or P1-noise<0.05")
    name, noise, number, percent = found.groups()
    try:
        margin = float(number) / (100 if percent else 1)
    except ValueError:
        raise Problem(f"cannot read the margin '{number}' of '{text}'; write P1<0.10") from None
    share(margin, f"the margin of '{text}'")
    return Claim(name, margin, beyond_noise=noise is not None)


def claimed(contrast: str, contrasts: Sequence[Contrast]) -> Contrast:
    """The contrast that a claim names, which must be one that gets a verdict."""
    known = {one.name: one for one in contrasts if one.is_judged}
    if contrast in known:
        return known[contrast]
    near = (
        suggestion(contrast, list(known)) if known else "; the run has no contrast with a verdict"
    )
    if contrast in {one.name for one in contrasts}:
        raise Problem(
            f"{contrast} counts items on which any view differs, which grows with the number of "
            f"views, so no claim can be made about it{near}"
        )
    raise Problem(f"no contrast named '{contrast}'{near}")


def certify(
    decisions: Decisions | Panel | Panels,
    contrasts: Sequence[Contrast],
    claims: Sequence[Claim],
    *,
    reproducible: Collection[str] = (),
    alpha: float = ALPHA,
) -> pl.DataFrame:
    """Test claims on every rater, dataset and level by one-sided bounds.

    `outcome` is `shown`, `refuted`, `open`, `unreadable` or `not identified`.
    """
    if not claims:
        raise Problem("no claim to certify; write P1<0.10")
    named = {claim: claimed(claim.contrast, contrasts) for claim in claims}
    read = decisions if isinstance(decisions, Panels) else read_panel(decisions, reproducible)
    tables = [
        as_table(judge(read, [contrast], margin=claim.margin, alpha=alpha, on=claim.on)).select(
            pl.lit(str(claim)).alias("claim"),
            pl.col("word").replace(OUTCOMES).alias("outcome"),
            pl.exclude("word"),
        )
        for claim, contrast in named.items()
    ]
    return pl.concat(tables)
