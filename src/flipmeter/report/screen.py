"""Verdicts -> a table that fits the terminal: worst first, columns dropped in a stated order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import polars as pl
from rich.console import Group, RenderableType
from rich.text import Text

from flipmeter.report.estimate_tables import (
    WEIGHTED,
    items_text,
    noise_text,
    rate_text,
    weighted_interval,
)
from flipmeter.report.format import Record, count, p_value, percent
from flipmeter.report.sentences import lean
from flipmeter.report.table import GAP, Cell, Column, Table, left_out, word
from flipmeter.types import JUDGED, Contrast

MOST_ROWS = 20
"""Rows on the first screen; the rest is one command away."""
KEYS = ("rater", "dataset", "level")
RATE, ABOUT, TOWARDS = "flips [95 %]", "what moves", "towards"
DROPPED = ("p", "accuracy", "items", "noise", ABOUT, "note", WEIGHTED, TOWARDS, "unreadable")
"""Columns that a narrow terminal leaves out, in this order."""
COLUMNS = (
    *("verdict", *KEYS, "contrast", ABOUT, RATE, TOWARDS, WEIGHTED, "noise"),
    *("items", "unreadable", "p", "accuracy", "note"),
)

Cells = Mapping[str, str]


def verdict_table(
    verdicts: pl.DataFrame,
    contrasts: Sequence[Contrast],
    *,
    accuracy: Mapping[tuple[str, ...], str],
) -> Table:
    """The first rows of `verdicts`, worst first; `accuracy` is by rater, dataset and level.

    Columns that say nothing are left out, as is a key that is the same in all rows.
    """
    measured = _measured(verdicts)
    keys = [key for key in KEYS if measured[key].n_unique() > 1]
    own = {contrast.name: contrast for contrast in contrasts}
    rows: list[Cells] = [
        {
            **_cells(row, keys),
            ABOUT: own[row["contrast"]].about,
            TOWARDS: lean(row, own[row["contrast"]]),
            "accuracy": accuracy.get(tuple(row[key] for key in KEYS), ""),
        }
        for row in measured.head(MOST_ROWS).to_dicts()
    ]
    columns = [
        Column(
            name,
            partial(_cell, name=name),
            align="right" if name == "items" else "left",
            priority=DROPPED.index(name) + 1 if name in DROPPED else 0,
        )
        for name in COLUMNS
        if any(row.get(name) for row in rows)
    ]
    return Table.of("", columns, rows, lines="bare", stack=partial(_stack, rows))


def more_rows(verdicts: pl.DataFrame) -> Iterator[str]:
    """A line under the table where it has not all rows."""
    n = len(_measured(verdicts))
    if n > MOST_ROWS:
        yield f"{MOST_ROWS} of {count(n)} rows, worst first"


def _measured(verdicts: pl.DataFrame) -> pl.DataFrame:
    return verdicts.filter(pl.col("status").is_in(JUDGED))


def _cell(row: Cells, name: str) -> Cell:
    text = row.get(name, "")
    return word(text) if name == "verdict" else Cell(text)


def _stack(rows: Sequence[Cells], width: int) -> Group:
    """A line of names for each row, and its verdict under it, with the direction of flips."""
    has_way = max(map(len, map(_stacked, rows))) + GAP <= width
    lines: list[RenderableType] = []
    before = ""
    for row in rows:
        whose = " · ".join(row[name] for name in KEYS if row.get(name))
        if whose != before:
            lines.append(Text(whose, overflow="fold"))
            before = whose
        verdict = word(row["verdict"])
        rest = _stacked(row if has_way else {**row, TOWARDS: ""}).removeprefix(row["verdict"])
        indent = " " * GAP * bool(whose)
        lines.append(Text.assemble(indent, (row["verdict"], verdict.style), rest))
    absent = [
        name
        for name in COLUMNS
        if name in DROPPED and any(row.get(name) for row in rows)
        if not (has_way and name == TOWARDS)
    ]
    return Group(*lines, *left_out(absent))


def _stacked(row: Cells) -> str:
    """A row without its names, as one line."""
    way = f"  towards the {row[TOWARDS]}" if row.get(TOWARDS) else ""
    return f"{row['verdict']}  {row['contrast']}  {row[RATE]}{way}"


def _cells(row: Record, keys: Sequence[str]) -> Cells:
    return {
        "verdict": row["word"],
        **{key: str(row[key]) or "base" for key in keys},
        "contrast": row["contrast"],
        RATE: _rate(row),
        WEIGHTED: weighted_interval(row),
        "noise": noise_text(row),
        "items": items_text(row),
        "unreadable": _unreadable(row),
        "p": p_value(row["p"]),
        "note": ", ".join(row["findings"]),
    }


def _rate(row: Record) -> str:
    """The flip rate; of an unreadable row the share that makes it so, which stays at any width."""
    if row["word"] == "unreadable":
        return f"{percent(row['unreadable'] or 0)} unreadable"
    if row["value"] is None:
        return f"no {'answered' if row['unreadable'] is None else 'readable'} pair"
    return rate_text(row)


def _unreadable(row: Record) -> str:
    """The unreadable share, "" where the row says it in place of its rate."""
    is_said = row["word"] == "unreadable" or not row["unreadable"]
    return "" if is_said else percent(row["unreadable"])


def unmeasured_lines(verdicts: pl.DataFrame) -> list[str]:
    """Reasons why contrasts have no verdict, one line each."""
    found: dict[str, dict[str, None]] = {}
    for row in verdicts.filter(~pl.col("status").is_in(JUDGED)).to_dicts():
        found.setdefault(row["reason"], {})[row["contrast"]] = None
    return [f"not measured: {', '.join(names)} ({reason})" for reason, names in found.items()]
