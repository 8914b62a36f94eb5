"""Decisions -> pairs: what one item was called under the two views of a contrast."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import polars as pl

from flipmeter.parquet import collected
from flipmeter.run.rows import PLACE
from flipmeter.types import Contrast

SAME = ("rater", "dataset", "level", "seed", "item")
WHOSE = ("rater", "dataset", "level", "contrast")
SIDE = ("rank", "slot", "fault", "prompt", "place", "score")
OF_SCORES = ("scale_from", "scale_to", "tolerance")
"""Columns of decisions with decimal scores that describe their scale."""
SHOWN_FIRST, SHOWN_SECOND = "answer shown first", "answer shown second"
FIRST, LAST, LOWER, HIGHER = "first label", "last label", "lower classes", "higher classes"
LOWER_SCORES, HIGHER_SCORES = "lower scores", "higher scores"

"""The number of the first decision of a pair, where decisions are numbered."""

NOTHING = Contrast("", ("", ""))
"""A contrast of no views: it pairs nothing."""

Where = tuple[str, str, str, str]
"""Rater, dataset, level and contrast."""

Table = TypeVar("Table", pl.DataFrame, pl.LazyFrame)


def pair_up(decisions: pl.DataFrame, contrasts: Sequence[Contrast]) -> pl.DataFrame:
    """A row for each item and pair of views, the second view's columns ending in `_b`.

    Byte-equal prompts are left out, unknown ones are not. `distance` counts the classes between two
    that were read (none where classes have no order), of decimal scores the units, and `towards`
    says where the second went: for a reversed label list, which end of the list drew both answers;
    for two answers that are swapped, which place did.
    """
    return lazy_pairs(decisions.lazy(), contrasts).pipe(collected)


def lazy_pairs(decisions: pl.LazyFrame, contrasts: Sequence[Contrast]) -> pl.LazyFrame:
    """The lazy form of `pair_up`, to be filtered before anything is read."""
    there = decisions.collect_schema()
    if "labels" not in there:
        decisions = decisions.with_columns(labels=pl.lit(""))
    if "nominal" not in there:
        decisions = decisions.with_columns(nominal=pl.lit(False))
    if "place" not in there:
        decisions = decisions.with_columns(place=pl.lit(0))
    absent = [name for name in ("score", *OF_SCORES) if name not in there]
    decisions = decisions.with_columns(pl.lit(None, pl.Float64).alias(name) for name in absent)
    has_scores = "scale_from" not in absent and _has_scores(decisions)
    first = decisions.filter(pl.col("repeat") == 0)
    pairs = (pair for contrast in contrasts for pair in contrast.pairs)
    found = [_pair_views(first, pair, has_scores=has_scores) for pair in pairs]
    return pl.concat(found) if found else _pair_views(first.clear(), NOTHING, has_scores=has_scores)


def _has_scores(decisions: pl.LazyFrame) -> bool:
    """Whether some answers are decimal scores: their distances are no whole numbers."""
    return bool(decisions.select(pl.col("scale_from").is_not_null().any()).pipe(collected).item())


def _pair_views(decisions: pl.LazyFrame, contrast: Contrast, *, has_scores: bool) -> pl.LazyFrame:
    a, b = (decisions.filter(view=view) for view in contrast.views)
    place = [PLACE] if PLACE in decisions.collect_schema() else []
    both = a.select(
        *SAME, *place, "gold", "n_classes", "labels", "nominal", *OF_SCORES, *SIDE
    ).join(b.select(*SAME, *SIDE), on=SAME, suffix="_b", maintain_order="left")
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
    low, high = (_end_name(end) for end in ends)
    towards = pl.when(lean < 0).then(low).when(lean > 0).then(high)
    may_differ = (pl.col("prompt") == "") | (pl.col("prompt") != pl.col("prompt_b"))
    return both.filter(may_differ).with_columns(
        pl.lit(contrast.name).alias("contrast"),
        pl.when(is_read & is_ordered)
        .then(_answer_distance(moved.abs(), has_scores))
        .alias("distance"),
        pl.when(is_read & has_ends).then(towards).fill_null("").alias("towards"),
    )


def _end_name(end: str) -> pl.Expr:
    """An end of a scale; that of decimal scores is not a class."""
    of_scores = {LOWER: LOWER_SCORES, HIGHER: HIGHER_SCORES}.get(end, end)
    return pl.when(pl.col("scale_from").is_null()).then(pl.lit(end)).otherwise(pl.lit(of_scores))


def _answer_distance(ranks: pl.Expr, has_scores: bool) -> pl.Expr:
    """Distance between two answers: in classes, or in units of decimal scores."""
    if not has_scores:
        return ranks
    step = (pl.col("scale_to") - pl.col("scale_from")) / (pl.col("n_classes") - 1)
    return (ranks * step.fill_null(1.0)).round_sig_figs(2)


IS_FLIP = ((pl.col("rank") == 0) != (pl.col("rank_b") == 0)) | (
    (pl.col("rank") - pl.col("rank_b")).abs() > pl.col("tolerance").fill_null(0)
)
"""Whether the answers of a pair differ; a fault on one side counts, one on both does not."""


def flipped(pairs: Table) -> Table:
    """The pairs whose answers differ."""
    return pairs.filter(IS_FLIP)


DISTANCE = pl.col("distance").cast(pl.String).str.strip_suffix(".0").fill_null("")
"""The distance as people read it: 2, 0.65."""


@dataclass(frozen=True)
class Matrix:
    """Counts of moves from each class of the first view to each of the second; 0 is "no class"."""

    where: Where
    n_classes: int
    counts: Mapping[tuple[int, int], int]

    @property
    def n_pairs(self) -> int:
        return sum(self.counts.values())

    @property
    def n_flipped(self) -> int:
        return sum(n for (a, b), n in self.counts.items() if a != b)

    @property
    def has_faults(self) -> bool:
        return any(0 in cell for cell in self.counts)


def matrices(pairs: pl.DataFrame) -> Iterator[Matrix]:
    """Yield the table of both answers for each contrast, seeds together."""
    for where, rows in _in_classes(pairs).group_by(*WHOSE, maintain_order=True):
        counts = rows.group_by("rank", "rank_b").len()
        rater, dataset, level, contrast = (str(part) for part in where)
        yield Matrix(
            (rater, dataset, level, contrast),
            int(rows["n_classes"][0]),
            {(a, b): n for a, b, n in counts.iter_rows()},
        )


def _in_classes(pairs: pl.DataFrame) -> pl.DataFrame:
    return pairs.filter(pl.col("scale_from").is_null())  # decimal scores have no classes


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
    for (rater, dataset), rows in _in_slots(pairs, contrasts).group_by(
        "rater", "dataset", maintain_order=True
    ):
        n_classes = int(rows["n_classes"][0])
        slots = pl.concat([rows["slot"], rows["slot_b"].alias("slot")])
        gold = rows["gold"].drop_nulls()
        by_gold = _chosen_place_shares(pl.concat([gold, n_classes + 1 - gold]), n_classes)
        expected = by_gold if len(gold) == len(rows) else None
        yield SlotShares(
            str(rater), str(dataset), _chosen_place_shares(slots, n_classes), expected, len(slots)
        )


def _in_slots(pairs: pl.DataFrame, contrasts: Sequence[Contrast]) -> pl.DataFrame:
    reversing = [contrast.name for contrast in contrasts if contrast.reverses_labels]
    is_read = (pl.col("slot") > 0) & (pl.col("slot_b") > 0)
    return pairs.filter(is_read, pl.col("contrast").is_in(reversing), level="")


def _chosen_place_shares(places: pl.Series, n_places: int) -> tuple[float, ...]:
    return tuple(
        float((places == place).sum()) / max(len(places), 1) for place in range(1, n_places + 1)
    )


# --- all pairs of a run -----------------------------------------------------------------------


@dataclass(frozen=True)
class PairTables:
    """The counts of all pairs at the base, and the flips to show first.

    `flips` are in the order of contrasts and decisions. Those left out come later than `MOST` of
    others where contrasts take turns, with `AT_ONCE` flips each time; `n_flips` counts them, too.
    """

    matrices: Sequence[Matrix]
    slots: Sequence[SlotShares]
    flips: pl.DataFrame
    n_flips: int


AT_ONCE = 5
"""Number of flips of one contrast before the next contrast."""
MOST = 4_000
"""More flips than a page ever has room for."""
CONTRAST = "nth"
COUNTED = (
    *(*WHOSE, CONTRAST, PLACE, "gold", "n_classes", "scale_from"),
    *("rank", "rank_b", "slot", "slot_b"),
)
"""The columns of a pair that are counted."""
AT = (CONTRAST, PLACE)
"""The columns that tell a pair from all others of a run."""
TURNS = (*WHOSE, *AT)


def numbered_pairs(
    part: pl.LazyFrame, contrasts: Sequence[Contrast]
) -> Iterator[tuple[Contrast, pl.LazyFrame]]:
    """The pairs of numbered decisions, one pair of views after the other; `nth` counts them."""
    pairs = [pair for contrast in contrasts for pair in contrast.pairs]
    for nth, pair in enumerate(pairs or [NOTHING]):
        yield pair, lazy_pairs(part, [pair]).with_columns(pl.lit(nth).alias(CONTRAST))


def count_pairs(parts: Iterable[pl.LazyFrame], contrasts: Sequence[Contrast]) -> PairTables:
    """Pair up numbered decisions, one part and one contrast after the other."""
    shown = [pair for contrast in contrasts for pair in contrast.pairs]
    squares: dict[tuple[int, int], Matrix] = {}
    slots: dict[tuple[int, int], SlotShares] = {}
    flips = _ShownFlips()
    for part in parts:
        turned = []
        for pair, found_pairs in numbered_pairs(part, contrasts):
            narrow = found_pairs.select(*COUNTED, is_flip=IS_FLIP)
            pairs = narrow.pipe(collected, "streaming").sort(PLACE)
            base = pairs.filter(level="")
            found = matrices(base), _group_starts(_in_classes(base), WHOSE)
            squares |= {start: one for one, start in zip(*found, strict=True)}
            turned += [base] if pair.reverses_labels else []
            flips.add(pairs.filter("is_flip").select(TURNS), found_pairs)
        if turned:
            whole = pl.concat(turned)
            shares = slot_shares(whole, shown), _group_starts(_in_slots(whole, shown), WHOSE[:2])
            slots |= {start: one for one, start in zip(*shares, strict=True)}
    return PairTables(_sort_counted(squares), _sort_counted(slots), flips.rows(), flips.n)


class _ShownFlips:
    """The flips to show first among those added so far: their places, and all their columns."""

    def __init__(self) -> None:
        self.n = 0
        self._first: list[pl.DataFrame] = []
        self._rows: list[pl.DataFrame] = []

    def add(self, flips: pl.DataFrame, pairs: pl.LazyFrame) -> None:
        """Add the flips of some pairs, of which only those are read whole that are shown."""
        self.n += len(flips)
        self._first = [_first_turns(pl.concat([*self._first, flips]))]
        mine = self._first[0].join(flips, on=AT, how="semi")[PLACE]
        self._rows.append(
            pairs.filter(pl.col(PLACE).is_in(mine.implode())).pipe(collected, "streaming")
        )

    def rows(self) -> pl.DataFrame:
        rows = pl.concat(self._rows, how="vertical_relaxed")
        return rows.join(self._first[0], on=AT, how="semi").sort(AT)


def _group_starts(pairs: pl.DataFrame, whose: Sequence[str]) -> list[tuple[int, int]]:
    """The contrast and decision with which each group begins."""
    begins = pairs.group_by(whose, maintain_order=True).agg(pl.col(CONTRAST, PLACE).first())
    return begins.select(CONTRAST, PLACE).rows()


def _first_turns(flips: pl.DataFrame) -> pl.DataFrame:
    """Leave out flips (`TURNS`) whose turn comes after `MOST` others, whoever begins."""
    turns = flips.with_columns((pl.int_range(pl.len()).over(WHOSE) // AT_ONCE).alias("turn"))
    by_turn = turns.group_by("turn").len().sort("turn").with_columns(pl.col("len").cum_sum())
    enough = by_turn.filter(pl.col("len") >= MOST)["turn"]
    kept = turns if enough.is_empty() else turns.filter(pl.col("turn") <= enough[0])
    return kept.drop("turn")


Counted = TypeVar("Counted")


def _sort_counted(found: Mapping[tuple[int, int], Counted]) -> list[Counted]:
    return [one for _, one in sorted(found.items(), key=lambda each: each[0])]
