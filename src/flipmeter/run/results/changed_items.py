"""Two runs -> the items that flip in one of them only."""

from __future__ import annotations

import polars as pl

from flipmeter.measure.effects.compare import same_raters
from flipmeter.report.pairs import IS_FLIP, SAME, pair_up
from flipmeter.run.record.folder import Run
from flipmeter.types import Contrast

KEY = (*SAME, "contrast")
FIRST, SECOND = "only the first flips", "only the second flips"


def shared_contrasts(first: Run, second: Run) -> list[Contrast]:
    """The contrasts that are the same in both runs."""
    known = {contrast.name: contrast for contrast in first.contrasts}
    return [contrast for contrast in second.contrasts if known.get(contrast.name) == contrast]


def changed_items(first: Run, second: Run) -> pl.DataFrame:
    """Pairs of answers that were read in both runs and flip in one: which, and the answers.

    Raters are paired as `compare` pairs them; `rater_first` and `rater_second` are their own names.
    """
    contrasts = shared_contrasts(first, second)
    given = first.decisions, second.decisions
    renamed = same_raters(*given)
    sides = [
        pair_up(decisions, contrasts)
        .filter(pl.col("rank") > 0, pl.col("rank_b") > 0)
        .select(*KEY, "rank", "rank_b", is_flip=IS_FLIP)
        for decisions in renamed
    ]
    both = sides[0].join(sides[1], on=KEY, suffix="_second", maintain_order="left")
    own = [_own_names(*pair) for pair in zip(given, renamed, strict=True)]
    return (
        both.filter(pl.col("is_flip") != pl.col("is_flip_second"))
        .with_columns(
            change=pl.when("is_flip").then(pl.lit(FIRST)).otherwise(pl.lit(SECOND)),
            rater_first=pl.col("rater").replace(own[0]),
            rater_second=pl.col("rater").replace(own[1]),
        )
        .drop("is_flip", "is_flip_second")
    )


def _own_names(given: pl.DataFrame, renamed: pl.DataFrame) -> dict[str, str]:
    pairs = zip(
        renamed["rater"].unique(maintain_order=True),
        given["rater"].unique(maintain_order=True),
        strict=True,
    )
    return dict(pairs)
