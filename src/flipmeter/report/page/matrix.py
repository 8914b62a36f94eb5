"""Verdicts -> a matrix of raters x contrasts, worst first: the first screen of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

import polars as pl
from markupsafe import Markup

from flipmeter.report.estimate_tables import beyond_text, rate_text
from flipmeter.report.findings import Findings
from flipmeter.report.page.markup import Cell, Grid, Record, RowGroup, breakable, capped
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


def matrix_grid(found: Findings) -> Grid:
    """Every rater, level and dataset with its verdict under each contrast."""
    rows = found.verdicts.filter(pl.col("status") != "not applicable")
    names = [c.name for c in found.contrasts if c.name in set(rows["contrast"])]
    known = {contrast.name: contrast for contrast in found.contrasts}
    keys = [key for key in WHOSE if rows[key].n_unique() > 1] or ["rater"]
    listed = [
        _row(part, names, known, keys) for _, part in rows.group_by(*WHOSE, maintain_order=True)
    ]
    shown, more = capped(listed, "flipmeter measure RUN --csv")
    head = " · ".join(_title(key) for key in keys)
    return Grid(
        "Verdicts, worst first",
        [head, *(_head(known[name]) for name in names)],
        [RowGroup(shown)],
        [LEGEND.format(margin=100 * found.margin), *more],
        "matrix",
    )


def _title(key: str) -> str:
    return {"level": "configuration"}.get(key, key)


def _head(contrast: Contrast) -> Markup:
    return Markup('<span class="code">{}</span> <small>{}</small>').format(
        contrast.name, contrast.about
    )


def _row(
    part: pl.DataFrame,
    names: Sequence[str],
    known: Mapping[str, Contrast],
    keys: Sequence[str],
) -> list[Cell]:
    by_name = {row["contrast"]: row for row in part.to_dicts()}
    first = part.row(0, named=True)
    cells = (_cell(by_name.get(name), known[name]) for name in names)
    return [_name(first, keys), *cells]


def _name(row: Record, keys: Sequence[str]) -> Cell:
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
        parts = filter(None, [f"{100 * row['noise']:.1f} %", beyond_text(row)])
        said = ", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)
    return Markup(' <small class="ends">noise {}</small>').format(said)


def _unread(row: Record) -> Markup:
    if not row["unreadable"]:
        return Markup("")
    share = f"{100 * row['unreadable']:.1f} %"
    return Markup(' <small class="unread">{} unreadable</small>').format(share)
