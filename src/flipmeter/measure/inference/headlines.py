"""Verdicts -> headlines: words that hold over all the rows that they speak of (Holm)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from flipmeter.measure.inference.significance import is_shown, shown
from flipmeter.measure.inference.words import WORST_FIRST, Word
from flipmeter.measure.statistics.formulas import holm
from flipmeter.types import ALPHA, JUDGED

Record = Mapping[str, Any]
WHOSE = ("rater", "dataset")
WORDS: dict[str, pl.DataType | type[pl.DataType]] = {
    "word": pl.String,
    "word_among": pl.String,
    "alone": pl.List(pl.String),
}


def headlines(
    verdicts: pl.DataFrame, alpha: float = ALPHA, *, whose: Sequence[str] = WHOSE
) -> pl.DataFrame:
    """A word for every rater on every dataset at the base, or for whatever `whose` tells apart.

    `word` speaks of one of them: it flips if one of its contrasts does, by Holm over them, and is
    stable only if all are. `word_among` is for counts such as "3 of 10 raters are stable": Holm
    over the rows of all. `alone` are the contrasts that flip by themselves where `word_among` is
    another word: a count that leaves them out must say so. Levels count where `whose` names them.
    """
    rows = verdicts if "level" in whose else verdicts.filter(level="")
    groups = rows.partition_by(whose, maintain_order=True)
    each = [[row for row in group.to_dicts() if row["status"] in JUDGED] for group in groups]
    own = [_word(rows, _adjusted(rows), _least_sure(rows), alpha) for rows in each]
    every = iter(_adjusted([row for rows in each for row in rows]))
    flips = [[next(every) for _ in rows] for rows in each]
    stable = holm([_least_sure(rows) for rows in each]).tolist() if each else []
    among = [_word(*one, alpha) for one in zip(each, flips, stable, strict=True)]
    records = []
    for group, rows_of, word, word_among in zip(groups, each, own, among, strict=True):
        flipping = [row["contrast"] for row in rows_of if row["word"] == "flips"]
        alone = [] if word_among == "flips" else list(dict.fromkeys(flipping))
        records.append((*group.select(whose).row(0), word, word_among, alone))
    schema = WORDS | dict.fromkeys(whose, pl.String)
    return pl.DataFrame(
        records, schema={name: schema[name] for name in (*whose, *WORDS)}, orient="row"
    )


def worst_first(verdicts: pl.DataFrame, alpha: float = ALPHA) -> pl.DataFrame:
    """The rows by severity: by word, then by how large the effect beyond noise is.

    Flips that are shown over all these rows (Holm) come before those that are not, and effects that
    are real before those that may be none.
    """
    order = {word: place for place, word in enumerate((*WORST_FIRST[:3], "stable"))}
    p = pl.Series("p", _adjusted(verdicts.select("p_flips").to_dicts()), dtype=pl.Float64)
    is_unread = pl.col("word") == "unreadable"
    is_real = pl.col("findings").list.contains("size not settled")
    return verdicts.sort(
        pl.col("word").replace_strict(order, default=len(order)),
        pl.lit(shown(p, alpha)) | is_real,
        pl.when(is_unread).then("unreadable").otherwise("size"),
        pl.col("value"),
        descending=[False, True, True, True],
        nulls_last=True,
        maintain_order=True,
    )


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
