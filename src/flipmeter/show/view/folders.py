"""Folders -> RunEntry, ChosenRuns: the runs there are, by names that may stand in an address."""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, lru_cache
from math import inf
from pathlib import Path
from typing import Any

import polars as pl

from flipmeter.errors import Problem
from flipmeter.parquet import collected
from flipmeter.printed import about_time
from flipmeter.run.folder import Run
from flipmeter.run.generation import DECISIONS, MANIFEST, OLD
from flipmeter.run.heartbeat import PROGRESS, Beat, Door, read_beat
from flipmeter.run.joined import joined
from flipmeter.run.progress import InterimRate
from flipmeter.show.format import interval
from flipmeter.show.headline import whose
from flipmeter.stats.verdict import WORST_FIRST, headlines, worst_first

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
        return _summarize_run(Run(folder))
    except Exception as error:  # one bad folder must not hide the others, whatever is wrong with it
        return Summary(folder.name, trouble=said(error))


def _summarize_run(run: Run) -> Summary:
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
        folders = dict.fromkeys(
            folder for root in self.roots for folder in _find_run_folders(root.resolve())
        )
        slugs = {one: re.sub(r"[^A-Za-z0-9_-]+", "-", one.name).strip("-") for one in folders}
        names = Counter(slugs.values())
        return [
            RunEntry(slug if slug and names[slug] == 1 else _unique_slug(folder, slug), folder)
            for folder, slug in slugs.items()
        ]


def _unique_slug(folder: Path, slug: str) -> str:
    return f"{slug}-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}".lstrip("-")


def _find_run_folders(folder: Path, depth: int = DEPTH) -> Iterator[Path]:
    if any((folder / name).is_file() for name in TELLING):
        yield folder
        return
    if depth:
        for path in sorted(folder.iterdir()):
            if path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
                yield from _find_run_folders(path, depth - 1)


NOTHING_YET = ("no pair of answers yet", "", "", "")


def describe(beat: Beat) -> dict[str, Any]:
    """Put a beat into words; `facts` are (id, title, text)."""
    done = beat.stored + beat.asked
    return {
        "is_alive": beat.is_alive,
        "state": _run_state(beat),
        "done": done,
        "planned": max(beat.planned, done, 1),
        "facts": [
            ("replies", "Replies", f"{done:,} of {beat.planned:,}, {beat.stored:,} were stored"),
            ("rate", "Rate", _reply_rate(beat, done)),
            ("cost", "Cost", _live_cost(beat)),
            ("errors", "Errors", f"{beat.failed:,} after retries, {beat.retried:,} retried"),
            ("decided", "Decided", f"{beat.decided:,} decisions, batch by batch"),
            ("faults", "Faults", _live_faults(beat)),
        ],
        "doors": [_door_row(door) for door in beat.doors],
        "rates": [_interim_row(one) for one in beat.rates] or [NOTHING_YET] * beat.is_alive,
    }


def _run_state(beat: Beat) -> str:
    if beat.is_alive:
        return f"running since {clock(beat.started)}"
    return (
        f"killed: last heartbeat at {clock(beat.seen)}; replies so far are stored; run it again "
        f"to continue"
    )


def _reply_rate(beat: Beat, done: int) -> str:
    if not beat.is_alive:
        return "–"
    if not beat.per_second:
        return "no reply in the last seconds"
    left = max(beat.planned - done, 0) / beat.per_second
    return f"{beat.per_second:,.1f} per second, {about_time(left)} left"


def _live_cost(beat: Beat) -> str:
    tokens = f"{beat.prompt_tokens:,} + {beat.completion_tokens:,} tokens"
    if beat.usd is None:
        return f"{tokens}; no price set"
    most = "at most " if beat.is_dearest else ""
    left = max(beat.planned - beat.stored - beat.asked, 0)
    if not beat.is_alive or not beat.asked or not left:
        return f"{tokens}; {most}${beat.usd:,.4f}"
    at_end = beat.usd * (1 + left / beat.asked)
    return f"{tokens}; {most}${beat.usd:,.4f} so far, {most or 'about '}${at_end:,.4f} at the end"


def _live_faults(beat: Beat) -> str:
    decided, heard = Counter(beat.faults), Counter(beat.unread)
    known = heard if heard.total() > decided.total() else decided
    kinds = ", ".join(f"{n:,} {fault}" for fault, n in sorted(known.items()))
    return kinds or "none so far"


def _interim_row(rate: InterimRate) -> tuple[str, ...]:
    whose = " · ".join(part for part in (rate.rater, rate.level, rate.dataset) if part)
    share = {"value": rate.k / rate.n, "low": rate.low, "high": rate.high}
    return whose, rate.contrast, interval(share), f"{rate.k:,} of {rate.n:,}"


def _door_row(door: Door) -> tuple[str, ...]:
    held = f"pauses {door.pause:.0f} s" if door.pause >= 1 else ""
    crowded = "throttled" if door.was_crowded else ""
    reading = "; ".join(part for part in (held, crowded) if part) or "open"
    return door.server, f"{door.in_use:,}", f"{door.permits:,}", f"{door.limit:,}", reading


def clock(seconds: float) -> str:
    """A moment in local time, with the date unless it is today."""
    moment = datetime.fromtimestamp(seconds).astimezone()
    is_today = moment.date() == datetime.fromtimestamp(time.time()).astimezone().date()
    return f"{moment:%H:%M:%S}" if is_today else f"{moment:%Y-%m-%d %H:%M}"
