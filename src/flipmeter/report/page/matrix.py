"""Verdicts -> a matrix of raters x contrasts, worst first: the first screen of a report."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from urllib.parse import urlencode

import polars as pl
from markupsafe import Markup

from flipmeter.report.estimate_tables import beyond_text, rate_text
from flipmeter.report.findings import Findings
from flipmeter.report.format import Record, percent
from flipmeter.report.page.markup import breakable, page_table
from flipmeter.report.pairs import (
    FIRST,
    HIGHER,
    HIGHER_SCORES,
    LAST,
    LOWER,
    LOWER_SCORES,
    SHOWN_FIRST,
    SHOWN_SECOND,
)
from flipmeter.report.sentences import lean
from flipmeter.report.table import Cell, Column, Table
from flipmeter.types import JUDGED, Contrast

WHOSE = ("rater", "level", "dataset")
ARROWS = {
    **dict.fromkeys((FIRST, SHOWN_FIRST), "←"),
    **dict.fromkeys((LAST, SHOWN_SECOND), "→"),
    **dict.fromkeys((HIGHER, HIGHER_SCORES), "↑"),
    **dict.fromkeys((LOWER, LOWER_SCORES), "↓"),
}
LEGEND = (
    "Worst first: by verdict, then by size beyond noise. Each cell has its own verdict, the flip "
    "rate with its 95 % interval, and where repeats differ the noise of the same views with the "
    "size beyond it: the excess of flips over all repeats, or the shift of the classes chosen if "
    "that is larger. Stable: "
    "the positions change less than {margin:g} % of the answers, beyond noise where there is any. "
    "Arrows show the direction of flips, if they have one: ← → to the first or last place in the "
    "list, ↑ ↓ to higher or lower classes or scores. A cell opens its items."
)


def matrix_grid(found: Findings) -> Table:
    """Every rater, level and dataset with its verdict under each contrast."""
    rows = found.verdicts.filter(pl.col("status") != "not applicable")
    moved = [contrast for contrast in found.contrasts if contrast.name in set(rows["contrast"])]
    keys = [key for key in WHOSE if rows[key].n_unique() > 1] or ["rater"]
    head = " · ".join("configuration" if key == "level" else key for key in keys)
    columns = [Column(head, partial(_name, keys)), *map(_column, moved)]
    parts = rows.partition_by(WHOSE, maintain_order=True)
    listed = [
        part.row(0, named=True) | {"by_name": {row["contrast"]: row for row in part.to_dicts()}}
        for part in parts
    ]
    legend, more = LEGEND.format(margin=100 * found.margin), "flipmeter measure RUN --csv"
    return page_table("Verdicts, worst first", columns, listed, [legend], more, kind="matrix")


def _column(contrast: Contrast) -> Column:
    head = Markup('<span class="code">{}</span> <small>{}</small>')
    return Column(
        head.format(contrast.name, contrast.about),
        lambda row: _cell(row["by_name"].get(contrast.name), contrast),
    )


def _name(keys: Sequence[str], row: Record) -> Cell:
    first, *others = (str(row[key]) or "base" for key in keys)
    more = Markup("").join(Markup("<small>{}</small>").format(breakable(text)) for text in others)
    return Cell(Markup("<strong>{}</strong> {}").format(breakable(first), more), first)


def _cell(row: Record | None, contrast: Contrast) -> Cell:
    if row is None:
        return Cell(Markup("<small>not applicable</small>"), None, "why")
    if row["status"] not in JUDGED:
        return Cell(Markup("<small>{}</small>").format(row["reason"]), None, "why")
    rate, bracket, ends = ("" if row["value"] is None else rate_text(row)).partition("[")
    numbers = Markup('{}<span class="said">{}{}</span>').format(rate, bracket, ends)
    content = Markup('<span class="said">{}{}</span> <small>{}</small>{}{}').format(
        row["word"], _arrow(row, contrast), numbers, _noise(row), _unread(row)
    )
    query = {key: str(row[key]) or "base" for key in WHOSE} | {"contrast": contrast.name}
    return Cell(content, row["size"], f"verdict {row['word']}", urlencode(query))


def _arrow(row: Record, contrast: Contrast) -> Markup:
    towards = lean(row, contrast)
    if not towards:
        return Markup("")
    return Markup(' <abbr title="mostly towards the {}">{}</abbr>').format(towards, ARROWS[towards])


def _noise(row: Record) -> Markup:
    if row["is_reproducible"] or row["noise"] == 0 or not row["value"]:
        return Markup("")
    said = "not measured"
    if row["noise"] is not None:
        # Lines break behind the comma, never in a number.
        parts = filter(None, [percent(row["noise"]), beyond_text(row)])
        said = ", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)
    return Markup(' <small class="ends">noise {}</small>').format(said)


def _unread(row: Record) -> Markup:
    if not row["unreadable"]:
        return Markup("")
    share = percent(row["unreadable"])
    return Markup(' <small class="unread">{} unreadable</small>').format(share)
