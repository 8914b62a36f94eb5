"""Tables that come one after the other -> one in order: what is many waits on disk."""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import polars as pl

from flipmeter.errors import Incomplete
from flipmeter.files import discard, make_folder
from flipmeter.parquet import scan_file, scan_files, without_secrets
from flipmeter.process import is_running

MANY = 10000
"""Rows that are held in memory; a small run never waits for a disk."""

GROUP = 128
"""Rows of a file that are read together, for each of its columns. Of smaller groups a stretch is
read at less cost, but what a file says of each column of a group is held for all files at once
while they are merged."""
BIN = "bin "
"""The column that sorts rows; no table of ours has one of that name."""

SCRATCH = ".spill."


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Name a folder of this process inside another; whatever is made there is gone at the end.

    What a process of this machine that was killed has left is removed first; what another machine
    has on a shared disk may be in use.
    """
    mine = f"{SCRATCH}{platform.node()}."
    for left in folder.iterdir() if folder.is_dir() else ():
        pid = left.suffix[1:]
        if left.name.startswith(mine) and pid.isdecimal() and not is_running(int(pid)):
            discard(left)
    inner = folder / f"{mine}{secrets.token_hex(4)}.{os.getpid()}"
    try:
        yield inner
    finally:
        discard(inner)
        with suppress(OSError):
            folder.rmdir()  # not if there is anything in it


@contextmanager
def room_for(path: Path) -> Iterator[None]:
    """Say what is lost, which is nothing, when a table cannot be written."""
    try:
        yield
    except (OSError, pl.exceptions.PolarsError) as error:
        raise Incomplete(
            f"cannot write {path} ({error}); free some space or use another folder with "
            f"--out, and run "
            "again: every reply so far is in the store"
        ) from error


class Spill:
    """Rows by the bin that `bins` puts each into, in sorted files of a folder once they are many.

    Bins are whole numbers; rows of one bin keep the order in which they came. With `distinct`, bins
    follow that column, and of rows that are equal in it the first is kept. The same rows come back
    in the same order, whenever they came and however many at a time.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        empty: pl.DataFrame,
        bins: Callable[[pl.DataFrame], pl.Series],
        distinct: str = "",
    ) -> None:
        self._folder = folder
        self._name = name
        self._bins = bins
        self._distinct = distinct
        self._near = [self._binned(empty)]
        self._far: list[tuple[Path, pl.Series]] = []
        self._n_files = 0
        self.n_rows = 0

    def add(self, rows: pl.DataFrame) -> None:
        self.n_rows += len(rows)
        self._near.append(self._binned(rows))
        if sum(map(len, self._near)) >= MANY:
            self._far.append(self._put_away(self._in_order(pl.concat(self._near))))
            self._near = [self._near[0].clear()]

    def rows(self) -> pl.LazyFrame:
        """All rows in their order, those in files unread."""
        near = self._in_order(pl.concat(self._near))
        # Files are opened here: what is known of one that is open takes room.
        far = [_Sorted(scan_file(path), runs) for path, runs in self._far]
        sources = [*far, _Sorted(near.lazy(), near[BIN].rle())]
        sources = [one for one in sources if one.n_rows]
        if len(sources) < 2:
            return (sources[0].rows if sources else near.lazy()).drop(BIN)
        if self._distinct:
            # One scan of many files reads one after the other; many scans read ahead in each.
            files = [self._sorted_part(sources, *ends) for ends in _iter_bin_stretches(sources)]
            return scan_files(files).drop(BIN)
        if any(one.bins[-1] > other.bins[0] for one, other in pairwise(sources)):
            parts = [self._part(sources, *ends) for ends in _iter_bin_stretches(sources)]
        else:
            parts = [one.rows for one in sources]
        return pl.concat(parts).drop(BIN)

    def _binned(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.with_columns(self._bins(rows).cast(pl.Int64).alias(BIN))

    def _in_order(self, rows: pl.DataFrame) -> pl.DataFrame:
        if self._distinct:
            rows = rows.unique(self._distinct, keep="first", maintain_order=True)
        return rows.sort([BIN, *([self._distinct] if self._distinct else [])], maintain_order=True)

    def _part(self, sources: Sequence[_Sorted], first: int, last: int) -> pl.LazyFrame:
        """The rows of some bins; those of a single one are in order as they stand."""
        if first == last:
            return pl.concat(_rows_between(sources, first, last))
        return scan_file(self._sorted_part(sources, first, last))

    def _sorted_part(self, sources: Sequence[_Sorted], first: int, last: int) -> Path:
        """A file with the rows of some bins."""
        rows = pl.concat(_rows_between(sources, first, last)).collect()
        return self._put_away(self._in_order(rows))[0]

    def _put_away(self, rows: pl.DataFrame) -> tuple[Path, pl.Series]:
        """Write sorted rows; the file, and how many rows there are of each bin."""
        path = self._folder / f"{self._name}-{self._n_files}.parquet"
        self._n_files += 1
        with room_for(path):
            make_folder(self._folder)
            rows = without_secrets(rows.lazy()).collect()
            rows.write_parquet(path.absolute(), row_group_size=GROUP * rows.width, statistics=False)
        return path, rows[BIN].rle()


@dataclass(frozen=True)
class _Sorted:
    """Rows sorted by bin, and how many there are of each bin."""

    rows: pl.LazyFrame
    runs: pl.Series

    @cached_property
    def bins(self) -> pl.Series:
        return self.runs.struct.field("value")

    @cached_property
    def ends(self) -> pl.Series:
        """The number of rows up to each bin and with it."""
        return self.runs.struct.field("len").cast(pl.Int64).cum_sum()

    @property
    def n_rows(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def between(self, first: int, last: int) -> pl.LazyFrame | None:
        """The rows of some bins, None if there are none."""
        start, end = (
            int(self.ends[place - 1]) if place else 0
            for place in (
                int(self.bins.search_sorted(first, "left")),
                int(self.bins.search_sorted(last, "right")),
            )
        )
        return self.rows.slice(start, end - start) if end > start else None


def _rows_between(sources: Sequence[_Sorted], first: int, last: int) -> list[pl.LazyFrame]:
    return [rows for one in sources if (rows := one.between(first, last)) is not None]


def _iter_bin_stretches(sources: Sequence[_Sorted]) -> Iterator[tuple[int, int]]:
    """Cut the bins of all sources into stretches of rows that fit into memory, where they can."""
    counts = pl.concat([one.runs.struct.unnest() for one in sources])
    counts = counts.group_by("value").agg(pl.col("len").sum()).sort("value")
    first: int | None = None
    last, n_rows = 0, 0
    for value, length in counts.iter_rows():
        if first is not None and n_rows + length > MANY:
            yield first, last
            first, n_rows = None, 0
        first, last, n_rows = value if first is None else first, value, n_rows + length
    if first is not None:
        yield first, last
