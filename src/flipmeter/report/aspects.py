"""Aspects, certificates and comparisons of runs as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from flipmeter.metrics import is_share, is_whole, metrics, title_of
from flipmeter.report.estimate_tables import KEYS
from flipmeter.report.format import WHOLE, Record, bounds, count, interval, p_value, percent
from flipmeter.report.table import Cell, Column, Group, Table, word
from flipmeter.types import LEVEL

BINNED = ("margin:", "entropy:")
"""Rates whose note is the range that they are about."""


TESTS = ("preference", "first_minus_second", "bowker", "stuart_maxwell", "wilcoxon")
"""Metrics whose notes have a number of their own, of the test that their cells show."""


def aspect_table(rows: pl.DataFrame, title: str) -> Table:
    """One aspect of a run: what was measured down, contrasts across, n under both."""
    contrasts = rows["view"].unique(maintain_order=True).to_list()
    groups = []
    for own in rows.partition_by(list(KEYS), maintain_order=True):
        counts = dict(own.group_by("view").agg(pl.col("n").max()).iter_rows())
        shown = []
        for metric in sorted(own["metric"].unique(maintain_order=True), key=_place):
            cells = {row["view"]: row for row in own.filter(metric=metric).to_dicts()}
            texts = (_cell(cells[view]) if view in cells else "" for view in contrasts)
            shown.append(map(Cell, (title_of(metric), *texts)))
        shown.append(map(Cell, ("n", *(str(counts.get(view, "")) for view in contrasts))))
        groups.append(Group([[*cells] for cells in shown], _where(own.row(0, named=True))))
    return Table(title, ["", *contrasts], groups)


def _where(row: Record) -> str:
    seed = [f"seed {row['seed']}"] if "seed" in row else []
    return " · ".join([*(str(row[key]) for key in KEYS[:3] if row[key]), *seed])


def _place(metric: str) -> int:
    """The position of a metric in the registry; numbers of several things come first."""
    return [*metrics].index(metric) if metric in metrics else -1


def _cell(row: Record) -> str:
    if row["p"] is not None:
        return f"{p_value(row['p'])}\nHolm {p_value(row['p_holm'])}, BH {p_value(row['p_bh'])}"
    name = row["metric"]
    shown = interval(row, is_percent=is_share(name), form=WHOLE if is_whole(name) else "")
    value, bracket, ends = shown.partition(" [")
    if row["metric"].startswith(BINNED):
        ends += f"\n{row['note']}, n = {row['n']}"
    return f"{value}\n[{ends}" if bracket else value


def aspect_notes(rows: pl.DataFrame) -> list[str]:
    """Every note of an aspect once, with the titles of what it is about."""
    noted = rows.filter((pl.col("note") != "") & pl.col("value").is_not_null())
    noted = noted.filter(~pl.col("metric").str.contains("^(margin|entropy):"))
    noted = noted.filter(~pl.col("metric").is_in(TESTS))
    about = noted.group_by("note", maintain_order=True).agg(pl.col("metric").unique())
    return [f"{', '.join(map(title_of, sorted(own)))}: {note}" for note, own in about.iter_rows()]


def certificate_table(certificates: pl.DataFrame, level: float = LEVEL) -> Table:
    """The outcome of each claim, with its one-sided bounds and the items needed."""
    columns = (
        Column("rater", _where),
        "claim",
        Column("observed", lambda row: percent(row["size"])),
        Column("at most", lambda row: percent(row["upper"])),
        Column("items", lambda row: str(row["n_clusters"])),
        Column("items needed", lambda row: count(row["n_needed"])),
        Column("outcome", _outcome),
    )
    title = f"Claims, {percent(level, 0)} one-sided bounds over items"
    return Table.of(title, columns, certificates.to_dicts())


def _outcome(row: Record) -> Cell:
    beside = (note for note in row["notes"] if note not in row["reason"])
    return word(row["outcome"], f"{row['outcome']} ({'; '.join([row['reason'], *beside])})")


def comparison_table(comparison: pl.DataFrame, names: Sequence[str]) -> Table:
    """The second run minus the first in points, with McNemar's counts and a word."""
    columns = (
        *("rater", "level", Column("dataset", lambda row: row["dataset"] or "all"), "metric"),
        Column("difference", _points),
        Column(
            "only 2nd, only 1st", lambda row: "" if row["b"] is None else f"{row['b']}, {row['c']}"
        ),
        Column("p, McNemar", lambda row: p_value(row["p"])),
        Column("Holm", lambda row: p_value(row["p_holm"])),
        Column("BH", lambda row: p_value(row["p_bh"])),
        "n",
        Column("", _comparison),
    )
    title = f"{names[1]} minus {names[0]}, x 100 [95 % over items, given the datasets]"
    return Table.of(title, columns, comparison.to_dicts())


def _points(row: Record) -> str:
    return bounds(row["value"], row["low"], row["high"], "+.1f")


def _comparison(row: Record) -> Cell:
    note = f" ({row['note']})" if row["value"] is None and row["note"] else ""
    return word(row["word"], f"{row['word']}{note}")
