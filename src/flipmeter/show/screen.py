"""Verdicts and interactions as tables that fit the terminal, worst first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import polars as pl
from rich.console import Group, RenderableType
from rich.text import Text

from flipmeter.show.estimate_tables import (
    WEIGHTED,
    items_text,
    noise_text,
    rate_text,
    weighted_interval,
)
from flipmeter.show.format import Record, count, p_value, percent, points_between
from flipmeter.show.residuals import (
    factor_title,
    level_title,
    metric_title,
    residuals_latex,
    residuals_markdown,
)
from flipmeter.show.sentences import lean
from flipmeter.show.table import (
    GAP,
    Cell,
    Column,
    Table,
    groups_of,
    left_out,
    markdown,
    word,
    write_table,
)
from flipmeter.types import ALPHA, JUDGED, Contrast

MOST_ROWS = 20
"""Rows on the first screen; the rest is one command away."""
SCREEN_KEYS = ("rater", "dataset", "level")
RATE, ABOUT, TOWARDS = "flips [95 %]", "what moves", "towards"
DROPPED = ("p", "accuracy", "items", "noise", ABOUT, "note", WEIGHTED, TOWARDS, "unreadable")
"""Columns that a narrow terminal leaves out, in this order."""
COLUMNS = (
    *("verdict", *SCREEN_KEYS, "contrast", ABOUT, RATE, TOWARDS, WEIGHTED, "noise"),
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
    measured = _judged_verdicts(verdicts)
    keys = [key for key in SCREEN_KEYS if measured[key].n_unique() > 1]
    own = {contrast.name: contrast for contrast in contrasts}
    rows: list[Cells] = [
        {
            **_screen_cells(row, keys),
            ABOUT: own[row["contrast"]].about,
            TOWARDS: lean(row, own[row["contrast"]]),
            "accuracy": accuracy.get(tuple(row[key] for key in SCREEN_KEYS), ""),
        }
        for row in measured.head(MOST_ROWS).to_dicts()
    ]
    columns = [
        Column(
            name,
            partial(_screen_cell, name=name),
            align="right" if name == "items" else "left",
            priority=DROPPED.index(name) + 1 if name in DROPPED else 0,
        )
        for name in COLUMNS
        if any(row.get(name) for row in rows)
    ]
    return Table.of("", columns, rows, lines="bare", stack=partial(_stack_screen, rows))


def more_rows(verdicts: pl.DataFrame) -> Iterator[str]:
    """A line under the table where it has not all rows."""
    n = len(_judged_verdicts(verdicts))
    if n > MOST_ROWS:
        yield f"{MOST_ROWS} of {count(n)} rows, worst first"


def _judged_verdicts(verdicts: pl.DataFrame) -> pl.DataFrame:
    return verdicts.filter(pl.col("status").is_in(JUDGED))


def _screen_cell(row: Cells, name: str) -> Cell:
    text = row.get(name, "")
    return word(text) if name == "verdict" else Cell(text)


def _stack_screen(rows: Sequence[Cells], width: int) -> Group:
    """A line of names for each row, and its verdict under it, with the direction of flips."""
    has_way = max(map(len, map(_stack_screen_row, rows))) + GAP <= width
    lines: list[RenderableType] = []
    before = ""
    for row in rows:
        whose = " · ".join(row[name] for name in SCREEN_KEYS if row.get(name))
        if whose != before:
            lines.append(Text(whose, overflow="fold"))
            before = whose
        verdict = word(row["verdict"])
        rest = _stack_screen_row(row if has_way else {**row, TOWARDS: ""}).removeprefix(
            row["verdict"]
        )
        indent = " " * GAP * bool(whose)
        lines.append(Text.assemble(indent, (row["verdict"], verdict.style), rest))
    absent = [
        name
        for name in COLUMNS
        if name in DROPPED and any(row.get(name) for row in rows)
        if not (has_way and name == TOWARDS)
    ]
    return Group(*lines, *left_out(absent))


def _stack_screen_row(row: Cells) -> str:
    """A row without its names, as one line."""
    way = f"  towards the {row[TOWARDS]}" if row.get(TOWARDS) else ""
    return f"{row['verdict']}  {row['contrast']}  {row[RATE]}{way}"


def _screen_cells(row: Record, keys: Sequence[str]) -> Cells:
    return {
        "verdict": row["word"],
        **{key: str(row[key]) or "base" for key in keys},
        "contrast": row["contrast"],
        RATE: _screen_rate(row),
        WEIGHTED: weighted_interval(row),
        "noise": noise_text(row),
        "items": items_text(row),
        "unreadable": _unreadable_share_text(row),
        "p": p_value(row["p"]),
        "note": ", ".join(row["findings"]),
    }


def _screen_rate(row: Record) -> str:
    """The flip rate; of an unreadable row the share that makes it so, which stays at any width."""
    if row["word"] == "unreadable":
        return f"{percent(row['unreadable'] or 0)} unreadable"
    if row["value"] is None:
        return f"no {'answered' if row['unreadable'] is None else 'readable'} pair"
    return rate_text(row)


def _unreadable_share_text(row: Record) -> str:
    """The unreadable share, "" where the row says it in place of its rate."""
    is_said = row["word"] == "unreadable" or not row["unreadable"]
    return "" if is_said else percent(row["unreadable"])


def unmeasured_lines(verdicts: pl.DataFrame) -> list[str]:
    """Reasons why contrasts have no verdict, one line each."""
    found: dict[str, dict[str, None]] = {}
    for row in verdicts.filter(~pl.col("status").is_in(JUDGED)).to_dicts():
        found.setdefault(row["reason"], {})[row["contrast"]] = None
    return [f"not measured: {', '.join(names)} ({reason})" for reason, names in found.items()]


CANNOT_SEE = (
    "! one factor at a time: this run cannot see interactions, and the sum of single effects may "
    "mislead; use `design: factorial`"
)
EFFECTS_ABOUT = (
    "p: Wald test that a pair of factors only adds up, linear model, errors by item; "
    f"** below {ALPHA} by Holm over all tests of a rater, * by Benjamini and Hochberg only",
    "a level: what the two do together beyond the sum of each alone, x 100 [95 %]; given these "
    "cells, datasets and seeds",
)
INTERACTIONS = "interactions"


def interaction_table(table: pl.DataFrame) -> Table:
    """Interactions for a terminal; `interaction_notes` belong under them."""
    rows: list[list[str | Cell]] = [[name, *cells] for name, cells in _iter_effect_lines(table)]
    titles = map(metric_title, _metrics(table))
    return Table("Interactions of two factors", ["", *titles], groups_of(rows), lines="head")


def interaction_notes(table: pl.DataFrame) -> list[str]:
    """The notes of the table."""
    n_cells, n_items = table.select(pl.max("n_cells", "n_items")).row(0)
    notes = table.filter(pl.col("note") != "", level="")
    told = [
        f"{', '.join(dict.fromkeys(map(term_title, rows['term'])))}: {note}"
        for (note,), rows in notes.group_by("note", maintain_order=True)
    ]
    mode = f"mode: {table['mode'][0]}; {n_cells} cells, {n_items} items"
    return [mode, *EFFECTS_ABOUT, *told]


def interactions_markdown(table: pl.DataFrame) -> str:
    """The table in Markdown, with its notes as a list."""
    rows = [
        [name.text, "", *cells] if name.kind else ["", name.text.strip(), *cells]
        for name, cells in _iter_effect_lines(table)
    ]
    heads = ["factors", "levels", *map(metric_title, _metrics(table))]
    return markdown(Table("", heads, groups_of(rows), interaction_notes(table)))


def term_title(term: str) -> str:
    """A pair of factors in words: "Label format × Demo count"."""
    return " × ".join(map(factor_title, term.split(":")))


def _metrics(table: pl.DataFrame) -> list[str]:
    return table["metric"].unique(maintain_order=True).to_list()


def _iter_effect_lines(table: pl.DataFrame) -> Iterator[tuple[Cell, list[str]]]:
    """A test of two factors, by name, then each pair of their levels; a text for each metric."""
    metrics, n_raters = _metrics(table), table["rater"].n_unique()
    for (rater, term), rows in table.group_by("rater", "term", maintain_order=True):
        title = term_title(str(term))
        whose = " · ".join([str(rater)] * (n_raters > 1) + [title])
        yield Cell(whose, kind="name"), _effect_texts(rows.filter(level=""), metrics)
        levels = rows.filter(pl.col("level") != "")
        for (level,), own in levels.group_by("level", maintain_order=True):
            pair = zip(str(term).split(":"), str(level).split(","), strict=True)
            title = " × ".join(level_title(*each) for each in pair)
            yield Cell(f"  {title}"), _effect_texts(own, metrics)


def _effect_texts(rows: pl.DataFrame, metrics: list[str]) -> list[str]:
    found = {row["metric"]: row for row in rows.to_dicts()}
    return [_effect_text(found[metric]) if metric in found else "" for metric in metrics]


def _effect_text(row: Record) -> str:
    """The test of a pair of factors, or the points of a pair of levels."""
    if row["level"] and row["value"] is not None:
        return points_between(row["value"], row["low"], row["high"])
    if row["level"] or row["p"] is None:
        return "-"
    stars = {"holm": " **", "bh": " *"}.get(row["found_by"], "")
    return f"p {p_value(row['p'])}{stars}"


def write_effects(tables: Mapping[str, pl.DataFrame], rows: pl.DataFrame, path: Path) -> None:
    """Write residuals, transfer and interactions to a file: all `rows`, or the tables as text."""

    def markdown(_: pl.DataFrame) -> str:
        return "\n".join(
            interactions_markdown(table) if name == INTERACTIONS else residuals_markdown(table)
            for name, table in tables.items()
        )

    def latex(_: pl.DataFrame) -> str:
        known = (table for name, table in tables.items() if name != INTERACTIONS)
        return "\n".join(map(residuals_latex, known))

    write_table(rows, path, {".md": markdown, ".tex": latex})
