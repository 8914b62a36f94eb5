"""Findings -> tables of flip rates: the paper's first table, the forest, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

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
from flipmeter.report.format import Record, interval, percent
from flipmeter.report.page.draw import axis_for, drawn
from flipmeter.report.page.markup import (
    MOST_ROWS,
    beside,
    counts,
    keyed,
    left_out,
    p_values,
    page_table,
    rate,
    texts,
)
from flipmeter.report.table import Cell, Column, Group, Table, word
from flipmeter.types import JUDGED

IN_PRODUCTION = (
    "In production: every class at its frequency in the study (`weights:`); a mean over "
    "items with weights, with bounded-mean 95 % intervals. The verdict is on the test set."
)
RATES = ("P1", "P2", "P3", "noise", "total")


def phase0_grid(found: Findings) -> Table:
    """The paper's first table."""
    table = found.phase0
    if len(table) > MOST_ROWS:
        table = table.sort("P1", descending=True, nulls_last=True, maintain_order=True)
    columns = [
        *(texts(name) for name in table.columns if name in ("model", *KEYS[1:])),
        *(Column(name[0].upper() + name[1:], partial(_phase0_cell, name)) for name in RATES),
        p_values("p", "McNemar p"),
        Column("Sig.", lambda row: Cell({1: "yes", 0: "no", None: ""}[row["sig"]], row["sig"])),
    ]
    is_paper = found.mode == "paper"
    decided = "the p-value" if is_paper else "p after Holm over the rows"
    method = "corrected chi-square" if is_paper else "mid-p"
    how = (
        f"Flip rates on complete pairs with {intervals_of(found.mode)}, each seed separately. "
        f"P2 and P3: any of the probe's views differs. Total is P1 again, beside the noise of two "
        f"runs; p is McNemar's, one-sided ({method}); Sig. follows {decided}."
    )
    title, more = "Flip rates in the form of the paper's first table", "paper --phase0 --run"
    more = f"flipmeter {more} phase0b=RUN"
    return page_table(title, columns, table.to_dicts(), [how], more, kind="plain rates")


def _phase0_cell(name: str, row: Record) -> Cell:
    value = row.get(name)
    if value is None:
        return Cell("–", None, "num")
    low, high = row[f"{name}_lo"], row[f"{name}_hi"]
    if low is None:  # ruled out by construction
        return Cell(f"{value:.3f}", value, "num")
    return beside(f"{value:.3f}", f"[{low:.3f}, {high:.3f}]", value)


def forest_grid(found: Findings) -> Table:
    """Every contrast beside its noise floor, drawn and in numbers; the worst where it is cut."""
    rows = found.verdicts.filter(pl.col("status") != "not applicable").to_dicts()
    shown = rows[:MOST_ROWS]
    has_weights = any(row["weighted"] is not None for row in rows)
    has_tests = any(row["p"] is not None for row in shown)
    abouts = {contrast.name: contrast.about for contrast in found.contrasts}
    known = [row[name] for row in shown for name in ("high", "noise_high") if row[name] is not None]
    axis = axis_for([0.0, *known], low=0.0)
    moved = Markup('<span class="code">{}</span> {}')
    columns = [
        Column(
            "what moves",
            lambda row: Cell(
                moved.format(row["contrast"], abouts.get(row["contrast"], "")), row["contrast"]
            ),
        ),
        drawn(axis, lambda row: str(row["word"]), _band),
        Column("flips [95 %]", _rate_cell),
        *([Column(WEIGHTED, _weighted_cell)] if has_weights else []),
        *([p_values("p", "p")] if has_tests else []),
        Column("verdict", lambda row: word(row["word"])),
    ]
    groups: dict[str, list[Sequence[Cell]]] = {}
    for row in shown:
        is_judged = row["status"] in JUDGED and row["value"] is not None
        wide = [columns[0].cell(row), Cell(row["reason"], None, "why wide")]
        cells = [column.cell(row) for column in columns] if is_judged else wide
        groups.setdefault(_whose(row), []).append(cells)
    has_noise = any(row["noise"] and not row["is_reproducible"] for row in shown)
    band = " The band is the noise of the same two views, asked twice." if has_noise else ""
    tested = " p: exact randomisation test of an effect beyond noise." if has_tests else ""
    notes = [
        "Readable pairs; an item counts once, with its seeds, repeats and copies; 95 % intervals "
        f"over items.{band}{tested} A full dot flips, a ring is stable (below "
        f"{100 * found.margin:.0f} %, one-sided 95 %), a cross is unreadable, a grey dot is "
        "inconclusive.",
        *([IN_PRODUCTION] if has_weights else []),
        *left_out(len(rows) - MOST_ROWS, "rows", "flipmeter measure RUN --csv"),
    ]
    title = "Flip rates with 95 % intervals against the noise floor"
    listed = [Group(cells, title) for title, cells in groups.items()]
    return Table(title, columns, listed, notes, "forest")


def _whose(row: Record) -> str:
    parts = (row["rater"], row["level"], row["dataset"])
    n, is_in, clusters = items_text(row).partition(" in ")
    counted = f"{n} items{is_in}{clusters}" if row["n_clusters"] else ""
    return " · ".join(part for part in (*parts, counted) if part)


def _rate_cell(row: Record) -> Cell:
    """The flip rate, and beside it what it must be read with: noise, and what is unreadable."""
    noise = f"noise {interval(row, 'noise', absent='not measured')}"
    parts = [
        "" if row["is_reproducible"] else noise,
        f"{percent(row['unreadable'])} unreadable" if row["unreadable"] else "",
    ]
    return beside(rate_text(row), ", ".join(filter(None, parts)), row["value"])


def _weighted_cell(row: Record) -> Cell:
    told = "" if row["weighted"] is None else interval(row, "weighted")
    return Cell(told, row["weighted"], "num")


def _band(row: Record) -> tuple[float, float, float] | None:
    """The noise of the views with its interval; that of reproducible replies has none."""
    if row["is_reproducible"]:
        return 0.0, 0.0, 0.0
    if row["noise"] is None:
        return None
    return row["noise"], row["noise_low"], row["noise_high"]


def seeds_grid(found: Findings) -> Table:
    """Flip rates on complete pairs, seed by seed and level by level."""
    names = [contrast.name for contrast in found.contrasts]
    chosen = found.estimates.filter(pl.col("metric").is_in(names), policy="complete")
    if len(chosen) > MOST_ROWS:
        chosen = chosen.sort("value", descending=True, nulls_last=True, maintain_order=True)
    columns = [
        texts("metric", "contrast", "code"),
        *keyed(varying(found.estimates)),
        Column("flips [95 %]", rate),
        counts("n"),
        counts("failed", "faults"),
    ]
    how = (
        "Pairs with a fault on either side are left out and counted; "
        f"{intervals_of(found.mode)}; mode {found.mode}."
    )
    title, more = "Flip rates on complete pairs, by seed and level", "flipmeter measure RUN --csv"
    return page_table(title, columns, chosen.to_dicts(), [how], more, is_detail=True)
