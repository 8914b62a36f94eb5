"""Decisions -> panels: one rater on one dataset, level and seed, as items x runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from flipmeter.measure.arrays import Booleans, Floats, Ranks
from flipmeter.types import Contrast, Problem

Key = tuple[str, str, str, int]
Run = tuple[str, int]
"""A view and which repeat of it."""

KEY = ("rater", "dataset", "level", "seed")
ABSENT = -1
UNKNOWN = -1

NEEDED = {
    "rater": pl.String,
    "dataset": pl.String,
    "level": pl.String,
    "seed": pl.Int64,
    "view": pl.String,
    "repeat": pl.Int64,
    "item": pl.String,
    "rank": pl.Int64,
    "n_classes": pl.Int64,
}
OPTIONAL = {
    "gold": pl.Int64,
    "prompt": pl.String,
    "completion_tokens": pl.Int64,
    "reasoning_tokens": pl.Int64,
}

Status = Literal["measured", "not identified", "not applicable"]


@dataclass(frozen=True)
class Panel:
    """Classes and prompts of the same items under every run; -1 where an item was not asked.

    `gold` is 0 where there is none. Prompts are numbers: equal numbers are equal prompts.
    """

    key: Key
    n_classes: int
    gold: Ranks
    ranks: dict[Run, Ranks]
    prompts: dict[Run, npt.NDArray[np.int64]]
    completion: Floats
    reasoning: Floats

    @property
    def views(self) -> list[str]:
        return [view for view, repeat in self.ranks if repeat == 0]

    def asked(self, *runs: Run) -> Booleans:
        """Mark the items that were asked in all of these runs."""
        return np.asarray(np.min([self.ranks[run] for run in runs], axis=0) != ABSENT)


@dataclass(frozen=True)
class Compared:
    """The items of a panel that a contrast can speak about, as a mask, or why there are none."""

    status: Status
    note: str
    items: Booleans


def panels(decisions: pl.DataFrame) -> Iterator[Panel]:
    """Split a frame of decisions into panels, sorted by rater, dataset, level and seed."""
    frame = _checked(decisions).sort(KEY, maintain_order=True)
    sizes = frame.group_by(KEY, maintain_order=True).agg(pl.len().alias("n_rows"))
    columns = _columns(frame)
    views = frame["view"].unique().sort().to_list()
    start = 0
    for *key, n_rows in sizes.iter_rows():
        part = {name: column[start : start + n_rows] for name, column in columns.items()}
        yield _panel((key[0], key[1], key[2], key[3]), part, views)
        start += n_rows


def compared(panel: Panel, contrast: Contrast) -> Compared:
    """Find the items asked under all views of a contrast, whose prompts are not all one prompt."""
    if len(contrast.views) < 2:
        raise Problem(f"contrast '{contrast.name}' names {len(contrast.views)} view; it needs two")
    nobody = np.zeros(len(panel.gold), dtype=np.bool_)
    missing = [view for view in contrast.views if (view, 0) not in panel.ranks]
    if missing:
        return Compared("not applicable", f"not applicable: no view {_quoted(missing)}", nobody)
    runs = [(view, 0) for view in contrast.views]
    asked, equal = panel.asked(*runs), _equal_prompts(panel, runs)
    if not asked.any():
        return Compared("not applicable", "not applicable: the views share no item", nobody)
    n_equal = int((asked & equal).sum())
    if n_equal == asked.sum():
        return Compared("not identified", "not identified: the prompts are byte-equal", nobody)
    note = f"{n_equal} items left out: their prompts are byte-equal" if n_equal else ""
    return Compared("measured", note, asked & ~equal)


def noise_runs(
    panel: Panel, contrast: Contrast, reproducible: Collection[str] = ()
) -> tuple[Run, Run] | None:
    """Find two runs of one view to hold a contrast against: of its own views, else of base.

    A rater known to be reproducible repeats a few items only; where these agree, the run itself
    stands for its repeat, which is noise 0 on every item.
    """
    for view in (*contrast.views, "base"):
        if (view, 0) in panel.ranks and (view, 1) in panel.ranks:
            if by_construction(panel, view, reproducible):
                return (view, 0), (view, 0)
            return (view, 0), (view, 1)
    return None


def by_construction(panel: Panel, view: str, reproducible: Collection[str]) -> bool:
    """A rater called reproducible gave every repeated item the same class again."""
    both = panel.asked((view, 0), (view, 1))
    same = panel.ranks[view, 0][both] == panel.ranks[view, 1][both]
    return panel.key[0] in reproducible and bool(both.any()) and bool(same.all())


def _equal_prompts(panel: Panel, runs: Sequence[Run]) -> Booleans:
    """Mark the items whose prompts are known and the same in all runs."""
    prompts = np.array([panel.prompts[run] for run in runs])
    return np.asarray((prompts == prompts[0]).all(axis=0) & (prompts[0] != UNKNOWN))


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _panel(key: Key, part: dict[str, npt.NDArray[np.float64]], views: Sequence[str]) -> Panel:
    _, row = _dense(part["item"])
    names, column = _dense(part["repeat"] * len(views) + part["view"])
    shape = (len(names), int(row.max()) + 1)
    cell = column * shape[1] + row
    if np.bincount(cell).max() > 1:
        raise Problem(f"{_where(key)} decides an item twice in one view and repeat; keep one")
    runs = [(views[name % len(views)], name // len(views)) for name in names.tolist()]
    gold = np.zeros(shape[1], dtype=np.int64)
    np.maximum.at(gold, row, part["gold"].astype(np.int64))
    ranks = _filled(shape, cell, part["rank"], ABSENT)
    prompts = _filled(shape, cell, part["prompt"], UNKNOWN)
    return Panel(
        key,
        _n_classes(key, part["n_classes"]),
        gold,
        dict(zip(runs, ranks, strict=True)),
        dict(zip(runs, prompts, strict=True)),
        part["completion_tokens"],
        part["reasoning_tokens"],
    )


def _dense(codes: Floats) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the distinct codes in order and each code's place among them, without a sort."""
    whole = codes.astype(np.int64)
    lowest = int(whole.min())
    seen = np.bincount(whole - lowest) > 0
    places = np.cumsum(seen) - 1
    return np.flatnonzero(seen) + lowest, places[whole - lowest]


def _filled(
    shape: tuple[int, int], cell: npt.NDArray[np.int64], values: Floats, empty: int
) -> npt.NDArray[np.int64]:
    table = np.full(shape, empty, dtype=np.int64)
    table.flat[cell] = values.astype(np.int64)
    return table


def _n_classes(key: Key, counts: Floats) -> int:
    if counts.min() != counts.max():
        raise Problem(f"{_where(key)} mixes scales of {counts.min():.0f} and {counts.max():.0f}")
    return int(counts[0])


def _where(key: Key) -> str:
    rater, dataset, level, seed = key
    return f"rater '{rater}' on '{dataset}' (level '{level}', seed {seed})"


def _columns(frame: pl.DataFrame) -> dict[str, Floats]:
    """Return what a panel is made of as numbers; NaN for tokens that nobody reported."""
    codes = frame.select(
        pl.col("item", "view").rank("dense") - 1,
        (pl.col("prompt").replace("", None).rank("dense") - 1).fill_null(UNKNOWN),
        pl.col("gold").fill_null(0),
        pl.col("repeat", "rank", "n_classes", "completion_tokens", "reasoning_tokens"),
    )
    return {name: codes[name].cast(pl.Float64).to_numpy() for name in codes.columns}


def _checked(decisions: pl.DataFrame) -> pl.DataFrame:
    frame = _typed(decisions)
    if frame.is_empty():
        raise Problem("there are no decisions to measure")
    empty = [name for name in NEEDED if frame[name].null_count()]
    if empty:
        raise Problem(f"the decisions have empty cells in {_quoted(empty)}; 'no class' is rank 0")
    if frame.filter(pl.col("repeat") < 0).height:
        raise Problem("a repeat is counted from 0; the decisions hold a negative one")
    for column, lowest in (("rank", 0), ("gold", 1)):
        wrong = frame.filter((pl.col(column) < lowest) | (pl.col(column) > pl.col("n_classes")))
        if not wrong.is_empty():
            worst = wrong.row(0, named=True)
            raise Problem(
                f"item '{worst['item']}' has {column} {worst[column]}, outside {lowest} to "
                f"{worst['n_classes']}"
            )
    return frame


def _typed(decisions: pl.DataFrame) -> pl.DataFrame:
    missing = [name for name in NEEDED if name not in decisions.columns]
    if missing:
        raise Problem(f"the decisions lack the columns {_quoted(missing)}")
    absent = [pl.lit(None).alias(name) for name in OPTIONAL if name not in decisions.columns]
    wanted = {**NEEDED, **OPTIONAL}
    try:
        return decisions.with_columns(absent).select(
            pl.col(name).cast(dtype) for name, dtype in wanted.items()
        )
    except pl.exceptions.PolarsError as error:
        raise Problem(f"a column of the decisions has the wrong type: {error}") from error
