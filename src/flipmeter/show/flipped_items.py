"""Run -> flipped items: with what was shown and replied; those that flip in one run only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import polars as pl
from markupsafe import escape

from flipmeter.parquet import collected
from flipmeter.pipelines.pipeline import open_pipeline
from flipmeter.run.folder import Run
from flipmeter.run.generation import CALLS, DECISIONS, ITEMS
from flipmeter.run.rate import panel_of, writer
from flipmeter.run.rows import PLACE
from flipmeter.show.findings import GAP, Browser, Findings, Flip, Frame, Side, class_name
from flipmeter.show.format import visible
from flipmeter.show.page.markup import clipped, hollowed
from flipmeter.show.pairs import (
    AT_ONCE,
    CONTRAST,
    IS_FLIP,
    MOST,
    SAME,
    WHOSE,
    flipped,
    lazy_pairs,
    numbered_pairs,
)
from flipmeter.stats.frame import distinct
from flipmeter.stats.reading import Parts
from flipmeter.stats.residuals import same_raters
from flipmeter.types import Condition, Contrast, Item, Prompt, Scale

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
    found = pl.concat(_iter_changed_pairs(frames, contrasts), how="vertical_relaxed")
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


def _iter_changed_pairs(
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
        for *at, prompt, reply, error in _asks_behind(rows, asked, "prompt", "reply", "error"):
            text = reply or (f"error: {error}" if error else "")
            calls.setdefault(tuple(at), []).append((prompt, text))
        decisions, shares = run.scan(DECISIONS), {}
        if "probabilities" in decisions.collect_schema():
            known = decisions.filter(pl.col("probabilities").is_not_null())
            shares = {tuple(at): own for *at, own in _asks_behind(rows, known, "probabilities")}
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
        known = self.calls.get(_asked_key(row, view), [])
        replies = [reply for _, reply in known[:MOST_PARTS]]
        if len(known) > MOST_PARTS:
            replies.append(f"… {len(known) - MOST_PARTS} more replies")
        shares = self.shares.get(_asked_key(row, view))
        named = ((self._class(row, rank), share) for rank, share in enumerate(shares or (), 1))
        return Side(view, answer, tuple(replies), None if shares is None else tuple(named))

    def texts(self, row: Row) -> tuple[str, str | None, str | None]:
        """The text of an item and its two prompts, the first of each where there are several."""
        known = (self.calls.get(_asked_key(row, view)) for view in self.contrast(row).views)
        first, second = (self.prompts.get(found[0][0]) if found else None for found in known)
        return self.items.get((row["dataset"], row["item"]), ""), first, second


def _asks_behind(rows: pl.DataFrame, table: pl.LazyFrame, *names: str) -> Iterator[tuple[Any, ...]]:
    """Yield what was asked about the items of some rows, and some more columns."""
    wanted = rows.lazy().select(SAME).unique()
    first = table.filter(
        pl.col("repeat") == 0, pl.col("item").is_in(rows["item"].unique().to_list())
    )
    own = first.join(wanted, on=SAME, how="semi", maintain_order="left")
    return own.select(*ASKED, *names).pipe(collected).iter_rows()


def _asked_key(row: Row, view: str) -> Asked:
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
        cost = ROW + _page_bytes(clipped(part) for part in (text, *replies))
        is_new = frame is not None and frame.texts not in self._places
        if frame is not None and is_new:
            cost += _page_bytes(hollowed(part) for part in frame.texts)
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


def _page_bytes(texts: Iterable[str]) -> int:
    """The size of some texts on a page, in bytes."""
    return sum(len(str(escape(visible(text))).encode()) for text in texts)


def views_of_item(grid: Sequence[Condition], place: int) -> Iterator[tuple[str, Prompt]]:
    """Yield the prompt of one item under every view, repeats left out."""
    item = grid[0].items[place]
    for condition in grid:
        if not condition.view.repeat:
            yield condition.view.name, prompt_of(condition, item)


def prompt_of(condition: Condition, item: Item) -> Prompt:
    """The first prompt that a condition shows for an item."""
    alone = panel_of(replace(condition, items=(item,)))
    first = open_pipeline(condition.rater.pipeline).asks(alone, {})[0]
    return writer(condition)(first)


def flipped_pair(run: Run) -> tuple[Contrast, Flip, tuple[str, str]] | None:
    """The flipped item with the shortest text, of the first contrast that has one; its prompts."""
    read = pl.col("rank") > 0, pl.col("rank_b") > 0, pl.col("level") == ""
    flips = flipped(lazy_pairs(run.scan(DECISIONS), run.contrasts)).filter(read).pipe(collected)
    if flips.is_empty():
        return None
    own = flips.filter(contrast=flips["contrast"][0])
    opener = Opener.of(own, run)
    row = min(own.iter_rows(named=True), key=lambda one: len(opener.texts(one)[0]))
    _, a, b = opener.texts(row)
    return opener.contrast(row), opener.flip(row, ""), (a or "", b or "")
