"""Findings -> tables of flip rates and scores: the matrix, the forest, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from urllib.parse import urlencode

import polars as pl
from markupsafe import Markup

from flipmeter.show.estimate_tables import (
    KEYS,
    WEIGHTED,
    accuracy_title,
    beyond_text,
    intervals_of,
    items_text,
    rate_text,
    score_titles,
    varying,
)
from flipmeter.show.findings import Findings
from flipmeter.show.format import Record, interval, percent
from flipmeter.show.page.draw import axis_for, drawn
from flipmeter.show.page.markup import (
    MOST_ROWS,
    beside,
    breakable,
    counts,
    keyed,
    left_out,
    number,
    p_values,
    page_table,
    rate,
    texts,
)
from flipmeter.show.pairs import (
    FIRST,
    HIGHER,
    HIGHER_SCORES,
    LAST,
    LOWER,
    LOWER_SCORES,
    SHOWN_FIRST,
    SHOWN_SECOND,
)
from flipmeter.show.sentences import lean
from flipmeter.show.table import Cell, Column, Group, Table, word
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
    columns = [Column(head, partial(_configuration_cell, keys)), *map(_contrast_column, moved)]
    parts = rows.partition_by(WHOSE, maintain_order=True)
    listed = [
        part.row(0, named=True) | {"by_name": {row["contrast"]: row for row in part.to_dicts()}}
        for part in parts
    ]
    legend, more = LEGEND.format(margin=100 * found.margin), "flipmeter measure RUN --csv"
    return page_table("Verdicts, worst first", columns, listed, [legend], more, kind="matrix")


def _contrast_column(contrast: Contrast) -> Column:
    head = Markup('<span class="code">{}</span> <small>{}</small>')
    return Column(
        head.format(contrast.name, contrast.about),
        lambda row: _contrast_cell(row["by_name"].get(contrast.name), contrast),
    )


def _configuration_cell(keys: Sequence[str], row: Record) -> Cell:
    first, *others = (str(row[key]) or "base" for key in keys)
    more = Markup("").join(Markup("<small>{}</small>").format(breakable(text)) for text in others)
    return Cell(Markup("<strong>{}</strong> {}").format(breakable(first), more), first)


def _contrast_cell(row: Record | None, contrast: Contrast) -> Cell:
    if row is None:
        return Cell(Markup("<small>not applicable</small>"), None, "why")
    if row["status"] not in JUDGED:
        return Cell(Markup("<small>{}</small>").format(row["reason"]), None, "why")
    rate, bracket, ends = ("" if row["value"] is None else rate_text(row)).partition("[")
    numbers = Markup('{}<span class="said">{}{}</span>').format(rate, bracket, ends)
    content = Markup('<span class="said">{}{}</span> <small>{}</small>{}{}').format(
        row["word"], _lean_arrow(row, contrast), numbers, _noise_markup(row), _unread_markup(row)
    )
    query = {key: str(row[key]) or "base" for key in WHOSE} | {"contrast": contrast.name}
    return Cell(content, row["size"], f"verdict {row['word']}", urlencode(query))


def _lean_arrow(row: Record, contrast: Contrast) -> Markup:
    towards = lean(row, contrast)
    if not towards:
        return Markup("")
    return Markup(' <abbr title="mostly towards the {}">{}</abbr>').format(towards, ARROWS[towards])


def _noise_markup(row: Record) -> Markup:
    if row["is_reproducible"] or row["noise"] == 0 or not row["value"]:
        return Markup("")
    said = "not measured"
    if row["noise"] is not None:
        # Lines break behind the comma, never in a number.
        parts = filter(None, [percent(row["noise"]), beyond_text(row)])
        said = ", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)
    return Markup(' <small class="ends">noise {}</small>').format(said)


def _unread_markup(row: Record) -> Markup:
    if not row["unreadable"]:
        return Markup("")
    share = percent(row["unreadable"])
    return Markup(' <small class="unread">{} unreadable</small>').format(share)


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
        drawn(axis, lambda row: str(row["word"]), _noise_band),
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
        groups.setdefault(_rate_group_title(row), []).append(cells)
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


def _rate_group_title(row: Record) -> str:
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


def _noise_band(row: Record) -> tuple[float, float, float] | None:
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


def performance_grid(found: Findings, views: Sequence[str]) -> Table:
    """Accuracy and the ordinal scores of every view, at the base."""
    estimates = found.estimates.filter(level="")
    titles = score_titles(estimates)
    wanted = pl.col("metric").is_in(["accuracy", *titles, "parse_failure"])
    scores = estimates.filter(wanted, policy="complete")
    rows = []
    for group in scores.partition_by(list(KEYS), maintain_order=True):
        keys = {key: group[key][0] for key in KEYS}
        for view in views:
            by_metric = {row["metric"]: row for row in group.filter(view=view).to_dicts()}
            rows += [{**keys, "view": view, "scores": by_metric}] if by_metric else []
    if len(rows) > MOST_ROWS:  # the least accurate stay
        rows.sort(key=lambda row: float(row["scores"].get("accuracy", {}).get("value") or 1.0))
    columns = [
        texts("view"),
        *keyed(varying(estimates)),
        Column(accuracy_title(estimates), _accuracy_key),
        *(Column(title, partial(_score_cell, name)) for name, title in titles.items()),
        Column("no class", _failures_cell),
    ]
    how = f"On readable answers; {intervals_of(found.mode)}; mode {found.mode}."
    return page_table("Scores by view", columns, rows, [how], "flipmeter measure RUN")


def _accuracy_key(row: Record) -> Cell:
    own = row["scores"].get("accuracy")
    return Cell("no gold", None, "why") if own is None else rate(own)


def _score_cell(name: str, row: Record) -> Cell:
    return number(row["scores"].get(name, {}).get("value"))


def _failures_cell(row: Record) -> Cell:
    fails = row["scores"].get("parse_failure")
    return Cell(f"{fails['k']} of {fails['n']}", fails["k"], "num") if fails else Cell()
