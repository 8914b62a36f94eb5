"""Aspects, certificates and comparisons of runs as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl
from rich.table import Table
from rich.text import Text

from flipmeter.metrics import is_share, is_whole, metrics, title_of
from flipmeter.report.estimate_tables import KEYS, Record, interval, p_value
from flipmeter.types import LEVEL

BINNED = ("margin:", "entropy:")
"""Rates whose note is the range that they are about."""

WORD_STYLE = {"stable": "bold green", "flips": "bold red", "higher": "bold", "lower": "bold"}


def aspect_table(rows: pl.DataFrame, title: str) -> Table:
    """One aspect of a run: what was measured down, contrasts across, n under both."""
    contrasts = rows["view"].unique(maintain_order=True).to_list()
    table = Table(title=title, title_justify="left")
    for head in ("", *contrasts):
        table.add_column(head)
    for group in rows.partition_by(list(KEYS), maintain_order=True):
        table.add_row(Text(_where(group.row(0, named=True)), style="bold"))
        for metric in sorted(group["metric"].unique(maintain_order=True), key=_place):
            cells = {row["view"]: row for row in group.filter(metric=metric).to_dicts()}
            shown = (_cell(cells[view]) if view in cells else "" for view in contrasts)
            table.add_row(title_of(metric), *shown)
        counts = group.group_by("view").agg(pl.col("n").max())
        sizes = dict(counts.iter_rows())
        table.add_row("n", *(str(sizes.get(view, "")) for view in contrasts), end_section=True)
    return table


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
    shown = interval(row, percent=is_share(name), whole=is_whole(name))
    value, bracket, ends = shown.partition(" [")
    if row["metric"].startswith(BINNED):
        ends += f"\n{row['note']}, n = {row['n']}"
    return f"{value}\n[{ends}" if bracket else value


def aspect_notes(rows: pl.DataFrame) -> list[str]:
    """Every note of an aspect once, with the titles of what it is about."""
    noted = rows.filter((pl.col("note") != "") & pl.col("value").is_not_null())
    noted = noted.filter(~pl.col("metric").str.contains("^(margin|entropy):"))
    noted = noted.filter(~pl.col("note").str.contains("df |sign test|signed ranks"))
    about = noted.group_by("note", maintain_order=True).agg(pl.col("metric").unique())
    return [f"{', '.join(map(title_of, sorted(own)))}: {note}" for note, own in about.iter_rows()]


OUTCOME_STYLE = {"shown": "bold green", "refuted": "bold red", "unreadable": "bold red"}


def certificate_table(certificates: pl.DataFrame, level: float = LEVEL) -> Table:
    """The outcome of each claim, with its one-sided bounds and the items needed."""
    title = f"Claims, {100 * level:.0f} % one-sided bounds over items"
    table = Table(title=title, title_justify="left")
    for name in ("rater", "claim", "observed", "at most", "items", "items needed", "outcome"):
        table.add_column(name)
    for row in certificates.to_dicts():
        told = Text(row["outcome"], style=OUTCOME_STYLE.get(row["outcome"], "yellow"))
        beside = (note for note in row["notes"] if note not in row["reason"])
        told.append(f" ({'; '.join([row['reason'], *beside])})")
        needed = row["n_needed"]
        table.add_row(
            *(Text(_where(row)), row["claim"], _percent(row["size"]), _percent(row["upper"])),
            str(row["n_clusters"]),
            *("" if needed is None else f"{needed:,}", told),
        )
    return table


def _percent(x: float | None) -> str:
    return "" if x is None else f"{100 * x:.1f} %"


def comparison_table(comparison: pl.DataFrame, names: Sequence[str]) -> Table:
    """The second run minus the first in points, with McNemar's counts and a word."""
    title = f"{names[1]} minus {names[0]}, x 100 [95 % over items, given the datasets]"
    table = Table(title=title, title_justify="left")
    for name in ("rater", "level", "dataset", "metric", "difference", "only 2nd, only 1st"):
        table.add_column(name)
    for name in ("p, McNemar", "Holm", "BH", "n", ""):
        table.add_column(name)
    for row in comparison.to_dicts():
        table.add_row(*_compared(row))
    return table


def _compared(row: Record) -> Iterator[str | Text]:
    yield from (Text(str(row[name])) for name in ("rater", "level"))
    yield Text(row["dataset"] or "all")
    yield row["metric"]
    points = "" if row["value"] is None else f"{row['value']:+.1f}"
    yield points if row["low"] is None else f"{points} [{row['low']:+.1f}, {row['high']:+.1f}]"
    yield "" if row["b"] is None else f"{row['b']}, {row['c']}"
    yield from (p_value(row[name]) for name in ("p", "p_holm", "p_bh"))
    yield str(row["n"])
    word = Text(row["word"], style=WORD_STYLE.get(row["word"], ""))
    yield word.append(f" ({row['note']})") if row["value"] is None and row["note"] else word
