"""Verdicts -> sentences: what a reader should take away, one for a rater on a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from flipmeter.report.pairs import ALPHA, Lean, Where
from flipmeter.types import Contrast

Record = Mapping[str, Any]
WHEN = {
    "P1": "when the label list is reversed",
    "P2a": "between demos in random and in ascending order",
    "P2b": "between demos in random and in descending order",
    "P2c": "when the demos are shuffled anew",
    "P3a": "when the demos stand after the query",
    "P3b": "when the demos stand around the query",
    "P4a": "when the criteria are reversed",
    "P4b": "when the first criterion comes last",
    "P5": "when the instructions stand in the user's message",
}
POLARITY, TURNED = "by polarity", "when the question is turned round"
MOST_UNREAD = 0.2
"""With more faults than this the verdict is inconclusive, and a flip rate is no news."""


@dataclass(frozen=True)
class Sentence:
    """The verdict on a rater, at the base of its study; `word` is that of all its contrasts."""

    rater: str
    dataset: str
    word: str
    text: str

    def __str__(self) -> str:
        return f"{self.rater} on {self.dataset} {self.text}."


def verdict_sentences(
    verdicts: pl.DataFrame,
    noise: pl.DataFrame,
    contrasts: Sequence[Contrast],
    leans: Mapping[Where, Lean],
) -> list[Sentence]:
    """Return a sentence for every rater on every dataset, under the strict policy, seeds pooled.

    `noise` has the noise floor of each rater and dataset (value, note) where there is one.
    """
    abouts = {contrast.name: contrast.about for contrast in contrasts}
    floors = {(row["rater"], row["dataset"]): row for row in noise.to_dicts()}
    return [
        _sentence(rows.to_dicts(), abouts, floors.get((str(rater), str(dataset))), leans)
        for (rater, dataset), rows in verdicts.filter(level="").group_by(
            "rater", "dataset", maintain_order=True
        )
    ]


def _sentence(
    rows: Sequence[Record],
    abouts: Mapping[str, str],
    floor: Record | None,
    leans: Mapping[Where, Lean],
) -> Sentence:
    rater, dataset = rows[0]["rater"], rows[0]["dataset"]
    measured = [row for row in rows if row["status"] == "measured"]
    if not measured:
        reasons = dict.fromkeys(str(row["reason"]) for row in rows)
        return Sentence(
            rater, dataset, "inconclusive", f"could not be measured: {'; '.join(reasons)}"
        )
    head = measured[0]
    clauses = list(_clauses(head, measured, abouts, floor, leans))
    return Sentence(rater, dataset, _word(measured), "; ".join(clauses))


def _word(measured: Sequence[Record]) -> str:
    """Return `flips` if one contrast does, `stable` if all are.

    The first contrast speaks for itself; of the others one must flip for sure, given their number.
    """
    first, *others = measured
    flips = [row for row in others if row["word"] == "flips"]
    sure = [row for row in flips if row["p"] is None or row["p"] * len(others) < ALPHA]
    if first["word"] == "flips" or sure:
        return "flips"
    return "stable" if {row["word"] for row in measured} == {"stable"} else "inconclusive"


def _clauses(
    head: Record,
    measured: Sequence[Record],
    abouts: Mapping[str, str],
    floor: Record | None,
    leans: Mapping[Where, Lean],
) -> Iterator[str]:
    moved = TURNED if POLARITY in str(head["reason"]) else when(head["contrast"], abouts)
    unread = f"{head['failed']} of {head['n']} pairs have an answer that could not be read"
    if head["failed"] > MOST_UNREAD * head["n"]:
        yield f"cannot be judged {moved}: {unread}"
        yield f"of all pairs {_rate(head)} flip"
        yield from _worst(measured, 0.0, abouts)
        return
    yield f"flips {_rate(head)} of its answers {moved}"
    yield _noise(floor)
    lean = leans.get((head["rater"], head["dataset"], "", head["contrast"]))
    if lean is not None and str(lean):
        yield str(lean)
    if head["failed"]:
        yield unread
    yield from _worst(measured, head["value"], abouts)


def _worst(measured: Sequence[Record], above: float, abouts: Mapping[str, str]) -> Iterator[str]:
    """Name the contrast that flips most, of those that were read."""
    read = [row for row in measured if row["failed"] <= MOST_UNREAD * row["n"]]
    worst = max(read, key=lambda row: float(row["value"]), default=None)
    if worst is not None and worst["value"] > above:
        yield f"most of all, {_rate(worst)}, {when(worst['contrast'], abouts)}"


def when(contrast: str, abouts: Mapping[str, str]) -> str:
    """Say what a contrast moves, as the end of a sentence."""
    return WHEN.get(contrast) or f"under {contrast} ({abouts.get(contrast, 'a contrast')})"


def _noise(floor: Record | None) -> str:
    if floor is None or floor["value"] is None:
        return "its own noise was not measured"
    if "by construction" in str(floor["note"]):
        return "its own noise is 0 by construction"
    return f"its own noise is {short_percent(floor['value'])} %"


def _rate(row: Record) -> str:
    ends = f"[{short_percent(row['low'])}, {short_percent(row['high'])}]"
    return f"{short_percent(row['value'])} % {ends}"


def short_percent(share: float) -> str:
    """Return whole percents, with a digit more where that would read as none or as all."""
    is_edge = 0 < share < 0.01 or 0.99 < share < 1
    return f"{100 * share:.{1 if is_edge else 0}f}"
