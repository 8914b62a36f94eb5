"""Run -> Browser: the flipped items that a page has room for, with what was shown and replied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import polars as pl
from markupsafe import escape

from flipmeter.base.files.parquet import collected
from flipmeter.report.findings import GAP, Browser, Findings, Flip, Frame, Side, class_name
from flipmeter.report.format import visible
from flipmeter.report.page.texts import clipped, hollowed
from flipmeter.report.pairs import AT_ONCE, CONTRAST, MOST, PLACE, SAME, WHOSE
from flipmeter.run.record.folder import Run
from flipmeter.run.record.generation import CALLS, DECISIONS, ITEMS
from flipmeter.types import Contrast, Scale

ROOM = 1_800_000
"""Number of bytes for flipped items on a page; the tables take the rest of three megabytes."""
ROW = 1_300
"""About what the markup around one flipped item takes."""
MOST_PARTS = 5
"""Number of replies shown per decision."""
TELLING = 8
"""A text shorter than this may stand in a prompt by chance, and is not taken out of it."""
NO_PROMPTS = "a table of predictions contains no prompts"
NO_GAP = visible(GAP)
"""The replacement for the gap mark inside a prompt."""

ASKED = ("rater", "dataset", "level", "seed", "view", "item")
"""The columns that tell what was asked from all else, repeats left out."""

Row = Mapping[str, Any]
Asked = tuple[object, ...]


def flipped_items(found: Findings, run: Run, room: int = ROOM) -> Browser:
    """Pick flipped items while there is room: some of every contrast, of the worst first."""
    every = found.pairs.flips.drop(CONTRAST, PLACE).with_row_index("nth")
    rows = _taking_turns(every, found).head(MOST)
    opener = Opener.of(rows, run)
    picker = _Picker(opener, room)
    chosen: dict[int, Flip] = {}
    for row in rows.iter_rows(named=True):
        flip = picker.pick(row)
        if flip is None:
            break
        chosen[row["nth"]] = flip
    flips = [chosen[nth] for nth in sorted(chosen)]
    n_flips = found.pairs.n_flips
    return Browser(flips, picker.frames, n_flips, list(picker.notes(n_flips, len(flips))))


def _taking_turns(flips: pl.DataFrame, found: Findings) -> pl.DataFrame:
    """Order flips so that contrasts take turns, the worst first, with some items each time."""
    groups = flips.select(WHOSE).unique(maintain_order=True)
    severity = [found.severity(where) for where in groups.iter_rows()]
    turns = flips.with_columns((pl.int_range(pl.len()).over(WHOSE) // AT_ONCE).alias("turn"))
    placed = groups.with_columns(pl.Series("severity", severity, dtype=pl.Int64))
    return turns.join(placed, on=WHOSE, maintain_order="left").sort(
        "turn", "severity", maintain_order=True
    )


# --- one flip ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Opener:
    """Opens rows of pairs: both answers with their replies and probabilities, both prompts.

    `calls` are digests of prompts, with replies, and `shares` probabilities by class.
    """

    contrasts: Sequence[Contrast]
    scales: Mapping[str, Scale]
    items: Mapping[tuple[str, str], str]
    calls: Mapping[Asked, Sequence[tuple[str, str]]] = field(default_factory=dict)
    shares: Mapping[Asked, Sequence[float]] = field(default_factory=dict)
    prompts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_texts(cls, rows: pl.DataFrame, run: Run) -> Opener:
        """Read the texts behind some pairs, without replies and prompts."""
        tested = pl.col("role") == "test", pl.col("id").is_in(rows["item"].unique().to_list())
        found = run.scan(ITEMS).filter(tested).select("dataset", "id", "text").pipe(collected)
        texts = {(dataset, item): text for dataset, item, text in found.iter_rows()}
        return cls(run.contrasts, run.scales, texts)

    @classmethod
    def of(cls, rows: pl.DataFrame, run: Run) -> Opener:
        """Read what stands behind some pairs, and nothing else of a run."""
        calls: dict[Asked, list[tuple[str, str]]] = {}
        asked = run.scan(CALLS).filter(pl.col("role") == "test")
        for *at, prompt, reply, error in _behind(rows, asked, "prompt", "reply", "error"):
            text = reply or (f"error: {error}" if error else "")
            calls.setdefault(tuple(at), []).append((prompt, text))
        decisions, shares = run.scan(DECISIONS), {}
        if "probabilities" in decisions.collect_schema():
            known = decisions.filter(pl.col("probabilities").is_not_null())
            shares = {tuple(at): own for *at, own in _behind(rows, known, "probabilities")}
        digests = {found[0][0] for found in calls.values()}
        prompts = run.prompts(sorted(digests)) if digests else {}
        return replace(cls.of_texts(rows, run), calls=calls, shares=shares, prompts=prompts)

    def contrast(self, row: Row) -> Contrast:
        pairs = chain.from_iterable(contrast.pairs for contrast in self.contrasts)
        return next(pair for pair in pairs if pair.name == row["contrast"])

    def labels(self, dataset: str) -> tuple[str, ...]:
        """The names and values of a dataset's classes, as prompts have them."""
        scale = self.scales.get(dataset)
        return () if scale is None else (*scale.names, *scale.values)

    def flip(self, row: Row, text: str) -> Flip:
        """A row for display, without its prompts."""
        a, b = self.contrast(row).views
        distance = row["distance"]
        is_whole = distance is not None and float(distance).is_integer()
        return Flip(
            **{name: row[name] for name in (*WHOSE, "seed", "item", "towards")},
            distance=int(distance) if is_whole else distance,  # 2, and not 2.0
            text=text,
            gold=self._class(row, row["gold"]) if row["gold"] else "unknown",
            sides=(self._side(row, a, ""), self._side(row, b, "_b")),
            fault=row["fault"] or row["fault_b"],
        )

    def _class(self, row: Row, rank: int) -> str:
        return class_name(self.scales, row["dataset"], rank)

    def _side(self, row: Row, view: str, end: str) -> Side:
        rank, fault = row[f"rank{end}"], row[f"fault{end}"]
        answer = self._class(row, rank) if rank else f"no class ({fault})"
        known = self.calls.get(_asked(row, view), [])
        replies = [reply for _, reply in known[:MOST_PARTS]]
        if len(known) > MOST_PARTS:
            replies.append(f"… {len(known) - MOST_PARTS} more replies")
        shares = self.shares.get(_asked(row, view))
        named = ((self._class(row, rank), share) for rank, share in enumerate(shares or (), 1))
        return Side(view, answer, tuple(replies), None if shares is None else tuple(named))

    def texts(self, row: Row) -> tuple[str, str | None, str | None]:
        """The text of an item and its two prompts, the first of each where there are several."""
        known = (self.calls.get(_asked(row, view)) for view in self.contrast(row).views)
        first, second = (self.prompts.get(found[0][0]) if found else None for found in known)
        return self.items.get((row["dataset"], row["item"]), ""), first, second


def _behind(rows: pl.DataFrame, table: pl.LazyFrame, *names: str) -> Iterator[tuple[Any, ...]]:
    """Yield what was asked about the items of some rows, and some more columns."""
    wanted = rows.lazy().select(SAME).unique()
    first = table.filter(
        pl.col("repeat") == 0, pl.col("item").is_in(rows["item"].unique().to_list())
    )
    own = first.join(wanted, on=SAME, how="semi", maintain_order="left")
    return own.select(*ASKED, *names).pipe(collected).iter_rows()


def _asked(row: Row, view: str) -> Asked:
    return tuple(view if name == "view" else row[name] for name in ASKED)


# --- as many as there is room for -------------------------------------------------------------


@dataclass
class _Picker:
    """Makes flips of rows while there is room; prompts that many share are kept once."""

    opener: Opener
    room: int
    n_bare: int = 0
    frames: list[Frame] = field(default_factory=list)
    _places: dict[tuple[str, str], int] = field(default_factory=dict)

    def pick(self, row: Row) -> Flip | None:
        """The flip of a row, None if there is no more room."""
        text, a, b = self.opener.texts(row)
        frame = None if a is None or b is None else self._frame(row, cut_out(a, b, text))
        flip = self.opener.flip(row, text)
        replies = [reply for side in flip.sides for reply in side.replies]
        cost = ROW + _weight(clipped(part) for part in (text, *replies))
        is_new = frame is not None and frame.texts not in self._places
        if frame is not None and is_new:
            cost += _weight(hollowed(part) for part in frame.texts)
        if cost > self.room:
            return None
        self.room -= cost
        if frame is None:
            self.n_bare += 1
            return flip
        if is_new:
            self._places[frame.texts] = len(self.frames)
            self.frames.append(frame)
        return replace(flip, frame=self._places[frame.texts])

    def _frame(self, row: Row, texts: tuple[str, str]) -> Frame:
        contrast = self.opener.contrast(row)
        about = [row["dataset"], row["level"], f"seed {row['seed']}", contrast.name, contrast.about]
        first, second = contrast.views
        title = " · ".join(part for part in about if part)
        return Frame(title, (first, second), texts, self.opener.labels(row["dataset"]))

    def notes(self, n_flips: int, n_shown: int) -> Iterator[str]:
        """Yield what the page does not show, and why."""
        if n_shown < n_flips:
            yield (
                f"{n_flips - n_shown:,} of {n_flips:,} flips are left out to keep the page small: "
                "those of the worst verdicts are kept first. `flipmeter view RUN` shows all."
            )
        if self.n_bare:
            yield f"{self.n_bare:,} flips are without their prompts: {NO_PROMPTS}."


def cut_out(a: str, b: str, text: str) -> tuple[str, str]:
    """Take the text of an item out of its two prompts and leave a GAP."""
    plain = [prompt.replace(GAP, NO_GAP) for prompt in (a, b)]
    if len(text) < TELLING:
        return plain[0], plain[1]
    cut = [prompt.replace(text.replace(GAP, NO_GAP), GAP) for prompt in plain]
    return cut[0], cut[1]


def _weight(texts: Iterable[str]) -> int:
    """The size of some texts on a page, in bytes."""
    return sum(len(str(escape(visible(text))).encode()) for text in texts)
