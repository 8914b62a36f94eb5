"""Verdicts -> headlines: words that hold over all the rows that they speak of (Holm)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from flipmeter.measure.inference.significance import is_shown
from flipmeter.measure.inference.words import Word
from flipmeter.measure.statistics.formulas import holm
from flipmeter.types import ALPHA, JUDGED

Record = Mapping[str, Any]
SCHEMA = {"rater": pl.String, "dataset": pl.String, "word": pl.String, "word_among": pl.String}


def headlines(verdicts: pl.DataFrame, alpha: float = ALPHA) -> pl.DataFrame:
    """A word for every rater on every dataset at the base.

    `word` speaks of one rater: it flips if one of its contrasts does, by Holm over them, and is
    stable only if all are. `word_among` is for counts such as "3 of 10 raters are stable": Holm
    over the rows of all raters.
    """
    groups = verdicts.filter(level="").partition_by("rater", "dataset", maintain_order=True)
    raters = [[row for row in group.to_dicts() if row["status"] in JUDGED] for group in groups]
    alone = [_word(rows, _adjusted(rows), _least_sure(rows), alpha) for rows in raters]
    every = iter(_adjusted([row for rows in raters for row in rows]))
    flips = [[next(every) for _ in rows] for rows in raters]
    stable = holm([_least_sure(rows) for rows in raters]).tolist() if raters else []
    among = [_word(*one, alpha) for one in zip(raters, flips, stable, strict=True)]
    records = [
        (group["rater"][0], group["dataset"][0], *words)
        for group, *words in zip(groups, alone, among, strict=True)
    ]
    return pl.DataFrame(records, schema=SCHEMA, orient="row")


def _adjusted(rows: Sequence[Record]) -> list[float]:
    return [float(p) for p in holm([row["p_flips"] for row in rows])] if rows else []


def _least_sure(rows: Sequence[Record]) -> float:
    """p of all contrasts of a rater being stable: as sure as the least sure of them."""
    return max((float(row["p_stable"]) for row in rows), default=1.0)


def _word(rows: Sequence[Record], flips: Sequence[float], stable: float, alpha: float) -> Word:
    if not rows:
        return "not identified"
    if any(is_shown(p, alpha) for p in flips):
        return "flips"
    if any(row["word"] == "unreadable" for row in rows):
        return "unreadable"
    return "stable" if is_shown(stable, alpha) else "inconclusive"
