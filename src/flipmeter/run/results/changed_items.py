"""Two runs -> the items that flip in one of them only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from flipmeter.base.files.parquet import collected
from flipmeter.measure import Parts
from flipmeter.measure.effects.compare import same_raters
from flipmeter.measure.panel.frame import distinct
from flipmeter.report.pairs import CONTRAST, IS_FLIP, SAME, numbered_pairs
from flipmeter.run.record.folder import Run
from flipmeter.run.record.rows import PLACE
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
    frames = same_raters(first.parts.decisions, second.parts.decisions)
    found = pl.concat(_changed(frames, contrasts), how="vertical_relaxed")
    own = [own_names(run, renamed) for run, renamed in zip((first, second), frames, strict=True)]
    return (
        found.sort(CONTRAST, PLACE)
        .with_columns(
            change=pl.when("is_flip").then(pl.lit(FIRST)).otherwise(pl.lit(SECOND)),
            rater_first=pl.col("rater").replace(own[0]),
            rater_second=pl.col("rater").replace(own[1]),
        )
        .drop("is_flip", "is_flip_second", CONTRAST, PLACE)
    )


def _changed(
    frames: Sequence[pl.LazyFrame], contrasts: Sequence[Contrast]
) -> Iterator[pl.DataFrame]:
    """The pairs that flip in one run only, one part and one pair of views after the other."""
    parts = Parts(frames[0])
    for part, is_mine in zip(parts, parts.filters, strict=True):
        sides = (numbered_pairs(one, contrasts) for one in (part, frames[1].filter(is_mine)))
        for (_, one), (_, other) in zip(*sides, strict=True):
            read = [
                pairs.filter(pl.col("rank") > 0, pl.col("rank_b") > 0).select(
                    *KEY, CONTRAST, PLACE, "rank", "rank_b", is_flip=IS_FLIP
                )
                for pairs in (one, other)
            ]
            both = read[0].join(read[1].drop(CONTRAST, PLACE), on=KEY, suffix="_second")
            changed = both.filter(pl.col("is_flip") != pl.col("is_flip_second"))
            yield changed.pipe(collected, "streaming")


def own_names(run: Run, renamed: pl.LazyFrame) -> dict[str, str]:
    """The names of a run's raters by those that they have in a comparison."""
    names = [name for (name,) in distinct(renamed, "rater")]
    return dict(zip(names, run.named("rater"), strict=True))
