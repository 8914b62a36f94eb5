"""Findings -> grids of flip rates: the paper's first table, the forest, seed by seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl
from markupsafe import Markup

from flipmeter.report.estimate_tables import (
    KEYS,
    WEIGHTED,
    intervals_of,
    items_text,
    rate_text,
    varying,
)
from flipmeter.report.findings import Findings
from flipmeter.report.format import interval, p_value
from flipmeter.report.page.draw import Axis, axis_for, scale, span
from flipmeter.report.page.markup import (
    MOST_ROWS,
    Cell,
    Grid,
    Record,
    RowGroup,
    capped,
    count,
    heads,
    left_out,
    rate,
    word,
)
from flipmeter.types import JUDGED

IN_PRODUCTION = (
    "In production: every class at its frequency in the study (`weights:`); a mean over "
    "items with weights, with bounded-mean 95 % intervals. The verdict is on the test set."
)
RATES = ("P1", "P2", "P3", "noise", "total")


def phase0_grid(found: Findings) -> Grid:
    """The paper's first table."""
    table = found.phase0
    if len(table) > MOST_ROWS:
        table = table.sort("P1", descending=True, nulls_last=True, maintain_order=True)
    keys = [name for name in table.columns if name in ("model", *KEYS[1:])]
    titles = [*keys, *(name[0].upper() + name[1:] for name in RATES)]
    rows = [
        [
            *(Cell(str(row[key]), row[key]) for key in keys),
            *(_phase0_cell(row, name) for name in RATES),
            Cell(p_value(row["p"]), row["p"], "num"),
            Cell({1: "yes", 0: "no", None: ""}[row["sig"]], row["sig"]),
        ]
        for row in table.to_dicts()
    ]
    rows_shown, more = capped(rows, "flipmeter paper --phase0 --run phase0b=RUN")
    is_paper = found.mode == "paper"
    decided = "the p-value" if is_paper else "p after Holm over the rows"
    method = "corrected chi-square" if is_paper else "mid-p"
    how = (
        f"Flip rates on complete pairs with {intervals_of(found.mode)}, each seed separately. "
        f"P2 and P3: any of the probe's views differs. Total is P1 again, beside the noise of two "
        f"runs; p is McNemar's, one-sided ({method}); Sig. follows {decided}."
    )
    return Grid(
        "Flip rates in the form of the paper's first table",
        [*titles, "McNemar p", "Sig."],
        [RowGroup(rows_shown)],
        [how, *more],
        "plain rates",
    )


def _phase0_cell(row: Record, name: str) -> Cell:
    value = row.get(name)
    if value is None:
        return Cell("–", None, "num")
    low, high = row[f"{name}_lo"], row[f"{name}_hi"]
    if low is None:  # ruled out by construction
        return Cell(f"{value:.3f}", value, "num")
    shown = Markup('{} <small class="ends">[{}, {}]</small>')
    return Cell(shown.format(f"{value:.3f}", f"{low:.3f}", f"{high:.3f}"), value, "num")


def forest_grid(found: Findings) -> Grid:
    """Every contrast beside its noise floor, drawn and in numbers; the worst where it is cut."""
    rows = found.verdicts.filter(pl.col("status") != "not applicable").to_dicts()
    shown = rows[:MOST_ROWS]
    axis = _forest_axis(shown)
    abouts = {contrast.name: contrast.about for contrast in found.contrasts}
    groups: dict[str, list[Sequence[Cell]]] = {}
    has_weights = any(row["weighted"] is not None for row in rows)
    has_tests = any(row["p"] is not None for row in shown)
    for row in shown:
        cells = _forest_row(row, abouts, axis, has_tests=has_tests)
        if has_weights and len(cells) > 2:
            cells.insert(3, _weighted_cell(row))
        groups.setdefault(_whose(row), []).append(cells)
    has_noise = any(row["noise"] and not row["is_reproducible"] for row in shown)
    band = " The band is the noise of the same two views, asked twice." if has_noise else ""
    tested = " p: exact randomisation test of an effect beyond noise." if has_tests else ""
    notes = [
        "Readable pairs; an item counts once, with its seeds, repeats and copies; 95 % intervals "
        f"over items.{band}{tested} A full dot flips, a ring is stable (below "
        f"{100 * found.margin:.0f} %, one-sided 95 %), a cross is unreadable, a grey dot is "
        "inconclusive."
    ]
    if has_weights:
        notes.append(IN_PRODUCTION)
    if len(rows) > MOST_ROWS:
        notes.append(left_out(len(rows) - MOST_ROWS, "rows", "flipmeter measure RUN --csv"))
    return Grid(
        "Flip rates with 95 % intervals against the noise floor",
        [
            *("what moves", scale(axis), "flips [95 %]", *([WEIGHTED] if has_weights else [])),
            *(("p", "verdict") if has_tests else ("verdict",)),
        ],
        [RowGroup(cells, title) for title, cells in groups.items()],
        notes,
        "forest",
    )


def _whose(row: Record) -> str:
    parts = (row["rater"], row["level"], row["dataset"])
    n, is_in, clusters = items_text(row).partition(" in ")
    counted = f"{n} items{is_in}{clusters}" if row["n_clusters"] else ""
    return " · ".join(part for part in (*parts, counted) if part)


def _forest_axis(rows: Iterable[Record]) -> Axis:
    known = [row[name] for row in rows for name in ("high", "noise_high") if row[name] is not None]
    return axis_for([0.0, *known], low=0.0)


def _forest_row(
    row: Record, abouts: Mapping[str, str], axis: Axis, *, has_tests: bool
) -> list[Cell]:
    name = Markup('<span class="code">{}</span> {}').format(
        row["contrast"], abouts.get(row["contrast"], "")
    )
    if row["status"] not in JUDGED or row["value"] is None:
        return [Cell(name, row["contrast"]), Cell(row["reason"], None, "why wide")]
    ends = (row["value"], row["low"], row["high"])
    return [
        Cell(name, row["contrast"]),
        Cell(span(axis, ends, _band(row), row["word"]), row["value"], "picture"),
        _rate_cell(row),
        *([Cell(p_value(row["p"]), row["p"], "num")] if has_tests else []),
        word(row["word"]),
    ]


def _rate_cell(row: Record) -> Cell:
    """The flip rate, and beside it what it must be read with: noise, and what is unreadable."""
    beside = [_noise_text(row)]
    beside += [f"{100 * row['unreadable']:.1f} % unreadable"] if row["unreadable"] else []
    small = Markup(' <small class="ends">{}</small>').format(", ".join(filter(None, beside)))
    return Cell(rate_text(row) + small, row["value"], "num")


def _weighted_cell(row: Record) -> Cell:
    if row["weighted"] is None:
        return Cell("", None, "num")
    ends = {"value": row["weighted"], "low": row["weighted_low"], "high": row["weighted_high"]}
    return rate(ends)


def _band(row: Record) -> tuple[float, float, float] | None:
    """The noise of the views with its interval; that of reproducible replies has none."""
    if row["is_reproducible"]:
        return 0.0, 0.0, 0.0
    if row["noise"] is None:
        return None
    return row["noise"], row["noise_low"], row["noise_high"]


def _noise_text(row: Record) -> str:
    if row["is_reproducible"]:
        return ""
    if row["noise"] is None:
        return "noise not measured"
    ends = {"value": row["noise"], "low": row["noise_low"], "high": row["noise_high"]}
    return f"noise {interval(ends)}"


def seeds_grid(found: Findings) -> Grid:
    """Flip rates on complete pairs, seed by seed and level by level."""
    names = [contrast.name for contrast in found.contrasts]
    chosen = found.estimates.filter(pl.col("metric").is_in(names), policy="complete")
    if len(chosen) > MOST_ROWS:
        chosen = chosen.sort("value", descending=True, nulls_last=True, maintain_order=True)
    keys = varying(found.estimates)
    rows = [
        [
            Cell(row["metric"], row["metric"], "code"),
            *(Cell(str(row[key]) or "base", row[key]) for key in keys),
            rate(row),
            count(row["n"]),
            count(row["failed"]),
        ]
        for row in chosen.to_dicts()
    ]
    shown, more = capped(rows, "flipmeter measure RUN --csv")
    how = (
        "Pairs with a fault on either side are left out and counted; "
        f"{intervals_of(found.mode)}; mode {found.mode}."
    )
    titles = ["contrast", *heads(keys), "flips [95 %]", "n", "faults"]
    title = "Flip rates on complete pairs, by seed and level"
    return Grid(title, titles, [RowGroup(shown)], [how, *more], is_detail=True)
