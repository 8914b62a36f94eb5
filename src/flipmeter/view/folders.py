"""Folders -> RunEntry, ChosenRuns: the runs there are, by names that may stand in an address."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from math import inf
from pathlib import Path
from typing import Any

import polars as pl

from flipmeter.base.files.parquet import collected
from flipmeter.measure import headlines, worst_first
from flipmeter.measure.inference.words import WORST_FIRST
from flipmeter.report.headline import whose
from flipmeter.run.record.folder import Run
from flipmeter.run.record.generation import DECISIONS, MANIFEST, OLD
from flipmeter.run.record.heartbeat import PROGRESS, Beat, read_beat
from flipmeter.run.record.joined import joined
from flipmeter.types import Problem

DEPTH = 3
"""Depth below a folder to which runs are searched."""
SMALL = 50_000
"""A run of so many decisions may be read whole: it takes less than a second."""
TELLING = (MANIFEST, *OLD, PROGRESS)
"""A folder with one of these is a run folder, if perhaps a damaged one."""
AND = ","
"""Separator between the names of joined runs; no name contains it."""

Stamp = tuple[tuple[int, int], ...]
"""Modification times and sizes of a run's files: equal stamps, equal results."""


class NotHere(Problem):
    """An address of something that is not there."""


@dataclass(frozen=True)
class RunEntry:
    """A run folder under the name that it has in addresses."""

    name: str
    folder: Path

    @cached_property
    def beat(self) -> Beat | None:
        """The last progress report of a run that is going on or was killed."""
        return read_beat(self.folder)

    @property
    def stamp(self) -> Stamp:
        paths = [self.folder / name for name in (MANIFEST, *OLD)]
        paths += sorted(self.folder.glob("g-*/*"))
        stats = [path.lstat() for path in paths if path.is_file()]
        return tuple((stat.st_mtime_ns, stat.st_size) for stat in stats)

    @property
    def has_results(self) -> bool:
        return (self.folder / MANIFEST).is_file()

    @property
    def summary(self) -> Summary:
        return summarise(self.folder, self.stamp)


@dataclass(frozen=True)
class ChosenRuns:
    """Runs of a shelf that are looked at as one, as `measure` takes several; mostly just one."""

    entries: tuple[RunEntry, ...]

    @property
    def name(self) -> str:
        return AND.join(entry.name for entry in self.entries)

    @property
    def run(self) -> Run:
        """The run opened again, with nothing read so far."""
        return joined([Run(entry.folder) for entry in self.entries])

    @property
    def stamp(self) -> Stamp:
        return tuple(pair for entry in self.entries for pair in entry.stamp)

    @property
    def has_results(self) -> bool:
        return all(entry.has_results for entry in self.entries)

    @property
    def n_decisions(self) -> int:
        """The number of decisions to read; one that is in two runs counts twice."""
        return sum(entry.summary.n_decisions for entry in self.entries)

    @property
    def is_small(self) -> bool:
        return self.n_decisions <= SMALL


@dataclass(frozen=True)
class Summary:
    """The row of a run in the list; `words` are verdicts, None if they take too long.

    `worst` is the worst of its verdicts at any level.
    """

    title: str
    raters: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    n_decisions: int = 0
    when: float | None = None
    words: Mapping[str, int] | None = field(default=None, hash=False)
    worst: Mapping[str, Any] | None = field(default=None, hash=False)
    stopped: str = ""
    trouble: str = ""


@lru_cache(maxsize=1024)
def summarise(folder: Path, stamp: Stamp) -> Summary:
    """Read what a list says of a run, once for every stamp; a damaged one says what is wrong."""
    if not stamp:
        return Summary(folder.name)
    try:
        return _summary(Run(folder))
    except Exception as error:  # one bad folder must not hide the others, whatever is wrong with it
        return Summary(folder.name, trouble=said(error))


def _summary(run: Run) -> Summary:
    scan = run.scan(DECISIONS)
    n_decisions = int(scan.select(pl.len()).pipe(collected).item())
    names = ("rater", "dataset")
    found = scan.select(names).unique(maintain_order=True).pipe(collected, "streaming")
    raters, datasets = (tuple(found[name].unique(maintain_order=True)) for name in names)
    when = (run.folder / MANIFEST).stat().st_mtime
    summary = Summary(run.manifest.study, raters, datasets, n_decisions, when, stopped=run.stopped)
    if n_decisions > SMALL:
        return summary
    counts = Counter(headlines(run.verdicts, whose=whose(run.verdicts))["word_among"])
    words: dict[str, int] = {
        word: counts[word] for word in (*WORST_FIRST, "stable") if counts[word]
    }
    is_told = pl.col("value").is_not_null() | (pl.col("word") == "unreadable")
    judged = worst_first(run.verdicts.filter(is_told))
    worst = judged.row(0, named=True) if len(judged) else None
    return replace(summary, words=words, worst=worst)


def said(error: BaseException) -> str:
    """The error in one line: our own message, or the type of a foreign error before its text."""
    text = str(error) if isinstance(error, Problem) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:500]


@dataclass(frozen=True)
class RunFolders:
    """Folders of runs, listed again every time: runs come and go."""

    roots: Sequence[Path]

    def __post_init__(self) -> None:
        for root in self.roots:
            if not root.is_dir():
                raise Problem(
                    f"no folder {root}; pass a run folder or a folder of runs, or make a "
                    "first run with `flipmeter demo`"
                )

    def entries(self) -> dict[str, RunEntry]:
        """Every run by its name, the latest first."""
        newest = {entry: max((at for at, _ in entry.stamp), default=inf) for entry in self._found()}
        found = sorted(newest, key=lambda entry: (-newest[entry], entry.name))
        return {entry.name: entry for entry in found}

    @property
    def whole(self) -> ChosenRuns:
        """All runs as one, in the order in which their folders were named."""
        found = self._found()
        if not found:
            places = ", ".join(map(str, self.roots))
            raise Problem(f"there is no run in {places} to open; make one with `flipmeter demo`")
        return ChosenRuns(tuple(found))

    def _found(self) -> list[RunEntry]:
        folders = dict.fromkeys(folder for root in self.roots for folder in _runs(root.resolve()))
        slugs = {one: re.sub(r"[^A-Za-z0-9_-]+", "-", one.name).strip("-") for one in folders}
        names = Counter(slugs.values())
        return [
            RunEntry(slug if slug and names[slug] == 1 else _unique(folder, slug), folder)
            for folder, slug in slugs.items()
        ]


def _unique(folder: Path, slug: str) -> str:
    return f"{slug}-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}".lstrip("-")


def _runs(folder: Path, depth: int = DEPTH) -> Iterator[Path]:
    if any((folder / name).is_file() for name in TELLING):
        yield folder
        return
    if depth:
        for path in sorted(folder.iterdir()):
            if path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
                yield from _runs(path, depth - 1)
