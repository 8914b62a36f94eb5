"""Effects as a table: factors with their levels, then interactions, metrics across."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from flipmeter.report.estimate_tables import p_value
from flipmeter.report.residuals import factor_title, level_title, metric_title, plain_points, points
from flipmeter.report.table_files import escape_markdown, write_table
from flipmeter.types import ALPHA

Record = Mapping[str, Any]
CANNOT_SEE = (
    "! one factor at a time: this run cannot see interactions, and the sum of single effects may "
    "mislead; use `design: fractional` or `design: factorial`"
)
ABOUT = (
    "a term: its share of the variance between cells, in brackets the share expected from "
    "sampling items alone; p of a score test over items (GEE)",
    "a level: level minus base, x 100 [95 %]; of an interaction, the joint effect of two levels "
    "beyond the sum of their single effects; given these cells, datasets and seeds",
    f"** below {ALPHA} by Holm over all tests of a rater, * by Benjamini and Hochberg only",
)
REMAINDERS = {
    "(rest)": "residual (other interactions)",
    "(datasets)": "differs between datasets",
}


@dataclass(frozen=True)
class EffectLine:
    """A line of the table: a term, one of its levels, or a part that no term explains."""

    kind: Literal["rater", "term", "level"]
    title: str
    cells: tuple[str, ...] = ()


@dataclass(frozen=True)
class EffectTable:
    """The lines of a table, its metrics and what is said under it."""

    metrics: tuple[str, ...]
    lines: tuple[EffectLine, ...]
    notes: tuple[str, ...]


def lay_out(effects: pl.DataFrame) -> EffectTable:
    """Arrange effects in lines; the levels of an interaction are shown where it was found."""
    metrics = tuple(effects["metric"].unique(maintain_order=True))
    return EffectTable(metrics, tuple(_lines(effects, metrics)), tuple(_notes(effects)))


def sees_interactions(effects: pl.DataFrame) -> bool:
    """Say whether any interaction could be estimated."""
    return not effects.filter(_is_pair() & (pl.col("df") > 0)).is_empty()


def _is_pair() -> pl.Expr:
    return pl.col("term").str.contains(":", literal=True)


def _lines(effects: pl.DataFrame, metrics: Sequence[str]) -> Iterator[EffectLine]:
    n_raters = effects["rater"].n_unique()
    for (rater,), own in effects.group_by("rater", maintain_order=True):
        if n_raters > 1:
            yield EffectLine("rater", str(rater))
        for (term,), rows in own.group_by("term", maintain_order=True):
            yield from _term_lines(str(term), rows, metrics)


def _term_lines(term: str, rows: pl.DataFrame, metrics: Sequence[str]) -> Iterator[EffectLine]:
    is_pair = ":" in term
    tests = rows.filter(level="")
    if is_pair and not (tests["df"].fill_null(0) > 0).any():
        return
    yield EffectLine("term", term_title(term), _cells(tests, metrics, term_text))
    if is_pair and not tests["in_model"].any():
        return
    for (level,), own in rows.filter(pl.col("level") != "").group_by("level", maintain_order=True):
        title = " × ".join(
            level_title(*each) for each in zip(term.split(":"), str(level).split(","), strict=True)
        )
        yield EffectLine("level", title, _cells(own, metrics, level_text))


def _cells(rows: pl.DataFrame, metrics: Sequence[str], text: Any) -> tuple[str, ...]:
    found = {row["metric"]: row for row in rows.to_dicts()}
    return tuple(text(found[metric]) if metric in found else "" for metric in metrics)


def term_title(term: str) -> str:
    """A term in words: "Label format × Demo count"."""
    return REMAINDERS.get(term) or " × ".join(factor_title(name) for name in term.split(":"))


def term_text(row: Record) -> str:
    """ "41 % (2) p 0.003 **", or a dash where there is no test."""
    parts = []
    if row["share"] is not None:
        parts.append(f"{100 * row['share']:.0f} % ({100 * row['share_by_chance']:.0f})")
    if row["p"] is not None:
        text = p_value(row["p"])
        parts.append(f"p {text}" + _stars(row))
    return " ".join(parts) or "-"


def _stars(row: Record) -> str:
    return {"holm": " **", "bh": " *"}.get(row["found_by"], "")


def level_text(row: Record) -> str:
    """ "+2.2 [-1.0, 5.3]", or a dash."""
    if row["value"] is None:
        return "-"
    ends = f"[{plain_points(row['low'])}, {plain_points(row['high'])}]"
    return f"{points(row['value'])} {ends}"


def _notes(effects: pl.DataFrame) -> Iterator[str]:
    yield f"mode: {effects['mode'][0]}; " + _sizes(effects)
    yield from ABOUT
    if not sees_interactions(effects):
        yield CANNOT_SEE
    else:
        yield from _standing_notes(effects.filter(_is_pair(), level=""))
    known = effects.filter(pl.col("note") != "", level="")
    if not sees_interactions(effects):
        known = known.filter(~_is_pair())
    for (note,), rows in known.group_by("note", maintain_order=True):
        where = rows.group_by("metric", maintain_order=True).agg("term").rows()
        yield "; ".join(f"{metric} ({', '.join(terms)})" for metric, terms in where) + f": {note}"


def _sizes(effects: pl.DataFrame) -> str:
    sizes = effects.group_by("metric", maintain_order=True).agg(
        pl.col("n_cells").max(), pl.col("n_items").max()
    )
    if sizes.select("n_cells", "n_items").n_unique() == 1:
        return f"{sizes['n_cells'][0]} cells, {sizes['n_items'][0]} items"
    return ", ".join(f"{m}: {cells} cells, {items} items" for m, cells, items in sizes.rows())


def _standing_notes(pairs: pl.DataFrame) -> Iterator[str]:
    """Say how many interactions may stand in for another, and which were found."""
    for (metrics, n_shared, n_all), _ in _by_standing(pairs).group_by(
        "metrics", "shared", "all", maintain_order=True
    ):
        if n_shared:
            yield (
                f"{metrics}: {n_shared:,} of {n_all:,} interactions are aliased with others; main "
                f"effects may be too"
            )
    for (rater, metric), rows in pairs.filter("in_model").group_by(
        "rater", "metric", maintain_order=True
    ):
        names = ", ".join(term_title(term) for term in rows["term"])
        yield f"{rater} · {metric}: found {names}; every other test is adjusted for it"


def _by_standing(pairs: pl.DataFrame) -> pl.DataFrame:
    counts = pairs.group_by("rater", "metric", maintain_order=True).agg(
        (pl.col("standing") == "shared").sum().alias("shared"), pl.len().alias("all")
    )
    return (
        counts.unique(["metric", "shared", "all"], maintain_order=True)
        .group_by("shared", "all", maintain_order=True)
        .agg(pl.col("metric").unique(maintain_order=True).str.join(", ").alias("metrics"))
    )


# --- where it is shown --------------------------------------------------------------------------


def effect_table(effects: pl.DataFrame) -> Table:
    """Effects for a terminal; `effect_notes` belong under them."""
    layout = lay_out(effects)
    table = Table(
        title="Effects of each factor, alone and in pairs",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("", no_wrap=True)
    for metric in layout.metrics:
        table.add_column(metric_title(metric), no_wrap=True)
    for line in layout.lines:
        if line.kind == "rater":
            table.add_section()
        title = Text(
            ("  " if line.kind == "level" else "") + line.title,
            style="" if line.kind == "level" else "bold",
        )
        table.add_row(title, *(Text(text) for text in line.cells))
    return table


def effect_notes(effects: pl.DataFrame) -> list[str]:
    """The notes of the table."""
    return list(lay_out(effects).notes)


def effects_markdown(effects: pl.DataFrame) -> str:
    """The table in Markdown, with its notes as a list."""
    layout = lay_out(effects)
    titles = [escape_markdown(metric_title(metric)) for metric in layout.metrics]
    rows = [["term", "level", *titles], ["---"] * (2 + len(titles))]
    for line in layout.lines:
        names = ("", line.title) if line.kind == "level" else (line.title, "")
        cells = line.cells or ("",) * len(titles)
        rows.append([escape_markdown(text) for text in (*names, *cells)])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{table}\n\n" + "".join(f"- {escape_markdown(note)}\n" for note in layout.notes)


def write_effects(effects: pl.DataFrame, path: Path) -> None:
    """Write effects to a file: all rows as .csv or .parquet, the table as .md."""
    write_table(effects, path, {".md": effects_markdown})
