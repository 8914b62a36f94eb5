"""Decisions -> pairs: what one item was called under the two views of a contrast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import polars as pl

from flipmeter.types import Contrast

SAME = ("rater", "dataset", "level", "seed", "item")
WHOSE = ("rater", "dataset", "level", "contrast")
SIDE = ("rank", "slot", "fault", "prompt", "place")
SHOWN_FIRST, SHOWN_SECOND = "answer shown first", "answer shown second"
FIRST, LAST, LOWER, HIGHER = "first option", "last option", "lower classes", "higher classes"

Where = tuple[str, str, str, str]
"""Rater, dataset, level and contrast."""

Table = TypeVar("Table", pl.DataFrame, pl.LazyFrame)


def pair_up(decisions: pl.DataFrame, contrasts: Sequence[Contrast]) -> pl.DataFrame:
    """Return a row for each item and pair of views, the second view's columns ending in `_b`.

    Byte-equal prompts are left out, unknown ones are not. `distance` counts the classes between two
    that were read (none where classes have no order), and `towards` says where the second went: for
    a reversed label list, which end of the list drew both answers; for two answers that are
    swapped, which place did.
    """
    return lazy_pairs(decisions.lazy(), contrasts).collect()


def lazy_pairs(decisions: pl.LazyFrame, contrasts: Sequence[Contrast]) -> pl.LazyFrame:
    """Return what `pair_up` does, to be narrowed before anything is read."""
    there = decisions.collect_schema()
    if "labels" not in there:
        decisions = decisions.with_columns(labels=pl.lit(""))
    if "nominal" not in there:
        decisions = decisions.with_columns(nominal=pl.lit(False))
    if "place" not in there:
        decisions = decisions.with_columns(place=pl.lit(0))
    first = decisions.filter(pl.col("repeat") == 0)
    found = [_paired(first, pair) for contrast in contrasts for pair in contrast.pairs]
    return pl.concat(found) if found else _paired(first.clear(), Contrast("", ("", "")))


def _paired(decisions: pl.LazyFrame, contrast: Contrast) -> pl.LazyFrame:
    a, b = (decisions.filter(view=view) for view in contrast.views)
    both = a.select(*SAME, "gold", "n_classes", "labels", "nominal", *SIDE).join(
        b.select(*SAME, *SIDE), on=SAME, suffix="_b", maintain_order="left"
    )
    moved = pl.col("rank_b") - pl.col("rank")
    if contrast.reverses_labels:
        # A class stands at its own slot in one list and at the mirrored one in the other.
        lean = pl.col("rank") - pl.col("rank_b")
        ends = (FIRST, LAST)
    elif contrast.swaps_answers:
        # A place is 1, 2, or 0 for a tie: 2 - 1.5 is towards the second.
        sides = [pl.col(name).fill_null(0) for name in ("place", "place_b")]
        first, second = ((2 * at - 3) * (at > 0).cast(pl.Int64) for at in sides)
        lean, ends = first + second, (SHOWN_FIRST, SHOWN_SECOND)
    else:
        lean, ends = moved, (LOWER, HIGHER)
    is_read = (pl.col("rank") > 0) & (pl.col("rank_b") > 0)
    is_ordered = ~pl.col("nominal").fill_null(False)
    turned = pl.lit(contrast.reverses_labels)
    has_ends = pl.when(turned).then(pl.col("labels") != "passages").otherwise(is_ordered)
    towards = pl.when(lean < 0).then(pl.lit(ends[0])).when(lean > 0).then(pl.lit(ends[1]))
    may_differ = (pl.col("prompt") == "") | (pl.col("prompt") != pl.col("prompt_b"))
    return both.filter(may_differ).with_columns(
        pl.lit(contrast.name).alias("contrast"),
        pl.when(is_read & is_ordered).then(moved.abs()).alias("distance"),
        pl.when(is_read & has_ends).then(towards).fill_null("").alias("towards"),
    )


def flipped(pairs: Table) -> Table:
    """Return the pairs whose answers differ; a fault on one side counts, one on both does not."""
    return pairs.filter(pl.col("rank") != pl.col("rank_b"))


@dataclass(frozen=True)
class Matrix:
    """How often each class of the first view became each of the second; 0 is "no class"."""

    where: Where
    n_classes: int
    counts: Mapping[tuple[int, int], int]

    @property
    def n_flipped(self) -> int:
        return sum(n for (a, b), n in self.counts.items() if a != b)

    @property
    def has_faults(self) -> bool:
        return any(0 in cell for cell in self.counts)


def matrices(pairs: pl.DataFrame) -> Iterator[Matrix]:
    """Yield the table of both answers for each contrast, seeds together."""
    for where, rows in pairs.group_by(*WHOSE, maintain_order=True):
        counts = rows.group_by("rank", "rank_b").len()
        rater, dataset, level, contrast = (str(part) for part in where)
        yield Matrix(
            (rater, dataset, level, contrast),
            int(rows["n_classes"][0]),
            {(a, b): n for a, b, n in counts.iter_rows()},
        )


@dataclass(frozen=True)
class SlotShares:
    """The share of answers in each slot over both orders of the label list, n of them.

    `expected` is what the gold classes would give, None where there are none.
    """

    rater: str
    dataset: str
    shares: tuple[float, ...]
    expected: tuple[float, ...] | None
    n: int


def slot_shares(pairs: pl.DataFrame, contrasts: Sequence[Contrast]) -> Iterator[SlotShares]:
    """Yield slot shares at the base for every pair of views that reverses the label list."""
    reversing = [contrast.name for contrast in contrasts if contrast.reverses_labels]
    is_read = (pl.col("slot") > 0) & (pl.col("slot_b") > 0)
    chosen = pairs.filter(is_read, pl.col("contrast").is_in(reversing), level="")
    for (rater, dataset), rows in chosen.group_by("rater", "dataset", maintain_order=True):
        n_classes = int(rows["n_classes"][0])
        slots = pl.concat([rows["slot"], rows["slot_b"].alias("slot")])
        gold = rows["gold"].drop_nulls()
        by_gold = _shares(pl.concat([gold, n_classes + 1 - gold]), n_classes)
        expected = by_gold if len(gold) == len(rows) else None
        yield SlotShares(str(rater), str(dataset), _shares(slots, n_classes), expected, len(slots))


def _shares(places: pl.Series, n_places: int) -> tuple[float, ...]:
    return tuple(
        float((places == place).sum()) / max(len(places), 1) for place in range(1, n_places + 1)
    )
