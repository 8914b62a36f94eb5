"""Residuals as a table: factors and levels down, metrics across, as the paper has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from flipmeter.show.format import Record, number, plain_points, points, points_between
from flipmeter.show.table import LATEX_HEAD, Cell, Column, Group, Table, latex, markdown

TRANSFER = "transfer"
"""The factor of a table that subtracts a model from the others, under the same config."""

AS_THEY_ARE = ("model", "joint", "config", TRANSFER)
"""Factors whose levels are names: they keep their underscores."""

TITLES = {
    "label_format": "Label format",
    "model": "Model",
    "cardinality": "Scale cardinality",
    "shots": "Demo count",
    "clarity": "Prompt clarity",
    "separator": "Separator",
    "connector": "Connector",
    "mood": "Mood",
    "joint": "Joint",
    "config": "Config",
}
METRICS = {
    "accuracy": "Acc.",
    "macro_f1": "F1",
    "spearman": "ρ",
    "pearson": "r",
    "mae": "MAE",
    "mae_normalised": "MAE/(M-1)",
}
BETTER_UP = ("accuracy", "macro_f1", "spearman", "pearson")
GAPS = {
    "not applicable": "n/a",
    "not identified": "n/i",
    "undefined": "undef.",
}
IN_MODE = {
    "paper": "mode: paper; {what}, x 100, mean ± population SD over datasets (a spread, not an "
    "uncertainty)",
    "recommended": "mode: recommended; {what}, x 100 with 95 % intervals over items, given these "
    "datasets and seeds; flip rates include noise",
}

SPREADS = {"seed_sd": "SD over seeds", "dataset_sd": "SD over datasets"}
ONE = 2
"""A level with one dataset has two sets of rows, which say the same."""

MOST_NAMED = 4
"""Levels that a note names before it only counts them."""
WIDE = 5
"""With more metrics than this an interval goes under its value."""


@dataclass(frozen=True)
class ResidualLine:
    """A line of the table: the title of a factor, a level, a dataset of a level, or a spread.

    `shows` is the column that its cells show; an SD is shown alone, a value with its interval.
    """

    kind: Literal["factor", "level", "dataset", "spread"]
    title: str
    cells: tuple[Record | None, ...] = ()
    shows: str = "value"

    def texts(self, between: str = " ") -> list[str]:
        """The cells as text."""
        if self.shows == "value":
            return [cell_text(row, between) for row in self.cells]
        found = [None if row is None else row[self.shows] for row in self.cells]
        return ["" if sd is None else plain_points(sd) for sd in found]

    def cell(self, text: str, row: Record | None) -> Cell:
        """One of its cells: a value is shaded by its size, a word for a missing one is not."""
        value = row["value"] if row is not None and self.shows == "value" else None
        return Cell(text, value, "why" if text and value is None and self.shows == "value" else "")


@dataclass(frozen=True)
class ResidualTable:
    """The lines of a table, its metrics, its title, what its first columns are, and its notes."""

    title: str
    columns: tuple[str, str]
    metrics: tuple[str, ...]
    lines: tuple[ResidualLine, ...]
    notes: tuple[str, ...]
    mode: str

    @property
    def blocks(self) -> list[tuple[str, list[ResidualLine]]]:
        """The lines of each factor, under its title."""
        found: list[tuple[str, list[ResidualLine]]] = []
        for line in self.lines:
            if line.kind == "factor":
                found.append((line.title, []))
            else:
                found[-1][1].append(line)
        return found


def lay_out(residuals: pl.DataFrame) -> ResidualTable:
    """Arrange residuals in lines; datasets get lines of their own unless the paper is followed."""
    residuals = _applicable_metrics(residuals)
    metrics = tuple(residuals["metric"].unique(maintain_order=True))
    mode = str(residuals["mode"][0])
    lines = tuple(_iter_residual_lines(residuals, metrics))
    what = IN_MODE[mode].format(what=_subtraction(residuals))
    used = {text for line in lines for text in line.texts()}
    gaps = "; ".join(f"{word}: {reason}" for reason, word in GAPS.items() if word in used)
    notes = (what, *([gaps] if gaps else []), *_residual_mean_notes(residuals))
    if _is_transfer(residuals):
        title = f"How models differ from {residuals['against'][0]} under the same config, in points"
        return ResidualTable(title, ("model", "config"), metrics, lines, notes, mode)
    title = "What a level changes: level minus base, in points"
    return ResidualTable(title, ("factor", "level"), metrics, lines, notes, mode)


def _applicable_metrics(residuals: pl.DataFrame) -> pl.DataFrame:
    """The rows without metrics that apply to no level: a question's options have no label order."""
    has_none = pl.col("value").is_null() & pl.col("note").str.contains("not applicable")
    kept = residuals.filter(~has_none.all().over("metric"))
    return kept if len(kept) else residuals


def _is_transfer(residuals: pl.DataFrame) -> bool:
    return bool((residuals["factor"] == TRANSFER).all())


def _subtraction(residuals: pl.DataFrame) -> str:
    """Say what is subtracted from what, and of whom."""
    if _is_transfer(residuals):
        return f"model minus {residuals['against'][0]}, both under the same config"
    raters, parts = _raters_with_levels(residuals), []
    if raters:
        parts.append("level minus base" + (f" of {raters[0]}" if len(raters) == 1 else ""))
    models = residuals.filter(factor="model")["against"].unique()
    parts.extend(f"model minus {first}, both at the base" for first in models)
    return "; ".join(parts)


def _raters_with_levels(residuals: pl.DataFrame) -> list[str]:
    """The raters whose own levels are in the table."""
    levels = residuals.filter(pl.col("factor") != "model")
    return levels["rater"].unique(maintain_order=True).to_list()


def _rater_suffix(factor: str, rater: str, raters: Sequence[str]) -> str:
    """ " · rater" where several raters have the same levels, and nothing for a model."""
    return f" · {rater}" if len(raters) > 1 and factor != "model" else ""


def _iter_residual_lines(residuals: pl.DataFrame, metrics: Sequence[str]) -> Iterator[ResidualLine]:
    raters = _raters_with_levels(residuals)
    # Raters that are themselves the levels stay together.
    own = pl.when(pl.col("factor") == "model").then(pl.lit("")).otherwise("rater").alias("of")
    for (factor, rater), block in residuals.group_by("factor", own, maintain_order=True):
        name, whose = str(factor), _rater_suffix(str(factor), str(rater), raters)
        yield ResidualLine("factor", str(rater) if name == TRANSFER else factor_title(name) + whose)
        for (level,), rows in block.group_by("level", maintain_order=True):
            yield from _level_lines(level_title(name, str(level)), rows, metrics)


def _level_lines(title: str, rows: pl.DataFrame, metrics: Sequence[str]) -> Iterator[ResidualLine]:
    """Yield the mean over datasets; unless the paper is followed, its spreads and its parts."""
    cells = {}
    for (dataset,), own in rows.group_by("dataset", maintain_order=True):
        found = {row["metric"]: row for row in own.to_dicts()}
        cells[str(dataset)] = tuple(found.get(metric) for metric in metrics)
    yield ResidualLine("level", title, cells[""])
    if rows["mode"][0] == "paper":
        return
    for column, words in SPREADS.items():
        if rows.filter(dataset="")[column].is_not_null().any():
            yield ResidualLine("spread", words, cells[""], shows=column)
    if len(cells) > ONE:
        yield from (
            ResidualLine("dataset", dataset, own) for dataset, own in cells.items() if dataset
        )


def _residual_mean_notes(residuals: pl.DataFrame) -> Iterator[str]:
    """Yield every note about a mean, once, with the levels and the raters it is about.

    The metrics are named where a level has others without that note.
    """
    raters = _raters_with_levels(residuals)
    means = residuals.filter(dataset="")
    of = ("factor", "level", "rater")
    n_metrics = {
        key: rows["metric"].n_unique() for key, rows in means.group_by(of, maintain_order=True)
    }
    for (text,), rows in means.filter(pl.col("note") != "").group_by("note", maintain_order=True):
        about = []
        for key, own in rows.group_by(of, maintain_order=True):
            factor, level, rater = (str(name) for name in key)
            metrics = own["metric"].unique(maintain_order=True)
            is_whole = len(metrics) == n_metrics[key]
            level = level if factor == TRANSFER else f"{factor}={level}"
            whose = _rater_suffix(factor, rater, raters)
            about.append(level + whose + ("" if is_whole else f" ({', '.join(metrics)})"))
        more = f"; and {len(about) - MOST_NAMED} more" if len(about) > MOST_NAMED else ""
        yield f"{'; '.join(about[:MOST_NAMED])}{more}: {text}"


def factor_title(factor: str) -> str:
    return TITLES.get(factor, factor.replace("_", " "))


def level_title(factor: str, level: str) -> str:
    """A level as the paper writes it: "3-way", "0-shot", "natural language"."""
    number, _, rest = level.partition(" ")
    suffix = {"cardinality": "-way", "shots": "-shot"}.get(factor)
    if suffix and number.isdigit():
        return f"{number}{suffix} {rest}".strip()
    return level if factor in AS_THEY_ARE else level.replace("_", " ")


def metric_title(metric: str) -> str:
    """A metric with the direction that is better."""
    return METRICS.get(metric, metric) + ("↑" if metric in BETTER_UP else "↓")


def cell_text(row: Record | None, between: str = " ") -> str:
    """ "+2.2 ±2.7", "+2.2 [-1.0, 5.3]", or a word for why there is no number."""
    if row is None:
        return ""
    if row["value"] is None:
        note = str(row["note"])
        return next((word for reason, word in GAPS.items() if reason in note), "-")
    if row["mode"] == "paper":
        spread = number(row["dataset_sd"], ".1f")
        return points(row["value"]) + (f"{between}±{spread}" if spread else "")
    return points_between(row["value"], row["low"], row["high"], between)


def residual_table(residuals: pl.DataFrame) -> Table:
    """Residuals for a terminal; `residual_notes` belong under them."""
    layout = lay_out(residuals)
    is_wide = len(layout.metrics) > WIDE and layout.mode == "recommended"
    groups = [
        Group(
            [
                [
                    Cell(f"{'  ' if line.kind == 'level' else '    '}{line.title}"),
                    *map(Cell, line.texts("\n" if is_wide else " ")),
                ]
                for line in lines
            ],
            title,
        )
        for title, lines in layout.blocks
    ]
    titles = map(metric_title, layout.metrics)
    return Table(layout.title, ["", *titles], groups, layout.notes, lines="head")


def residuals_markdown(residuals: pl.DataFrame) -> str:
    """The table in Markdown, with its notes as a list."""
    return markdown(_flatten_residuals(residuals, has_datasets=True))


def residuals_latex(residuals: pl.DataFrame) -> str:
    """The table in LaTeX: booktabs, shaded by sign and size as in the paper."""
    layout = lay_out(residuals)
    has_datasets = any(line.kind != "level" for _, lines in layout.blocks for line in lines)
    gap = " " if layout.mode == "paper" else "\n"
    return LATEX_HEAD + latex(_flatten_residuals(residuals, gap, has_datasets=has_datasets)) + "\n"


def _flatten_residuals(residuals: pl.DataFrame, gap: str = " ", *, has_datasets: bool) -> Table:
    """A row for each level, spread and dataset; beside cells of two lines names stand once."""
    layout, rows = lay_out(residuals), list[list[Cell]]()
    for factor, lines in layout.blocks:
        level = ""
        for line in lines:
            is_level = line.kind == "level"
            level = line.title if is_level else level
            shown = level if is_level or gap == " " else ""
            names = [factor, shown, *(["" if is_level else line.title] * has_datasets)]
            rows.append([*map(Cell, names), *map(line.cell, line.texts(gap), line.cells)])
    heads = [*layout.columns, *(["dataset"] * has_datasets)]
    columns = [
        *(Column(head, is_name=True) for head in heads),
        *(
            Column(
                metric_title(metric),
                shade=1.0,
                over=f"{'Performance' if metric in METRICS else 'Position-sensitivity'} residuals",
            )
            for metric in layout.metrics
        ),
    ]
    return Table(layout.title, columns, [Group(rows)], layout.notes)


def residual_notes(residuals: pl.DataFrame) -> list[str]:
    """The notes of the table: its mode, the words for missing numbers, and the rest."""
    return list(lay_out(residuals).notes)
