"""Forecasts as a table: what levels add up to alone, and what they do together."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from flipmeter.report.residuals import GAPS, Record, metric_title

IN_MODE = {
    "paper": "mode: paper; means over datasets",
    "recommended": "mode: recommended; means over datasets [95 % over items, given "
    "these datasets and seeds]",
}
ADDITIVE = (
    "forecast: the base plus the change of each level alone; it may leave the range of a metric; "
    "interaction: measured minus forecast"
)
NUMBERS = ("baseline", "forecast", "measured", "interaction")


def forecast_table(forecasts: pl.DataFrame) -> Table:
    """Forecasts for a terminal, means over datasets; `forecast_notes` belong under them.

    A config without any forecast has no lines: its note says why.
    """
    table = Table(
        title="Sum of single effects, and the measured joint effect",
        title_justify="left",
        box=SIMPLE_HEAD,
    )
    for name in ("", *NUMBERS):
        table.add_column(name, no_wrap=True)
    means = forecasts.filter(dataset="")
    for (config, rater), rows in means.group_by("config", "rater", maintain_order=True):
        if rows["forecast"].null_count() == rows.height:
            continue
        table.add_section()
        table.add_row(Text(f"{config} · {rater}", style="bold"))
        for row in rows.to_dicts():
            cells = (Text(number_text(row, name)) for name in NUMBERS)
            table.add_row(f"  {metric_title(row['metric'])}", *cells)
    return table


def number_text(row: Record, name: str) -> str:
    """ "0.604 [0.551, 0.655]", or a word for why there is no number."""
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    if value is None:
        return next((word for reason, word in GAPS.items() if reason in str(row["note"])), "-")
    sign = "+" if name == "interaction" else ""
    shown = f"{round(value, 3) + 0.0:{sign}.3f}"  # never "-0.000"
    return shown if low is None else f"{shown} [{low:.3f}, {high:.3f}]"


def forecast_notes(forecasts: pl.DataFrame) -> list[str]:
    """The notes of the table: its mode, the sum behind a forecast, and the rest."""
    levels = forecasts.select("config", "levels").unique(maintain_order=True).iter_rows()
    added = (f"{config}: {names}" for config, names in levels)
    return [IN_MODE[forecasts["mode"][0]], ADDITIVE, *added, *_notes(forecasts)]


def _notes(forecasts: pl.DataFrame) -> Iterator[str]:
    """Yield every note about a mean, once; the metrics are named where others have it not."""
    means = forecasts.filter(dataset="")
    n_metrics = means["metric"].n_unique()
    noted = means.filter(pl.col("note") != "")
    for (note,), rows in noted.group_by("note", maintain_order=True):
        about = (
            f"{config} · {rater}"
            + (f" ({', '.join(own['metric'])})" if own.height < n_metrics else "")
            for (config, rater), own in rows.group_by("config", "rater", maintain_order=True)
        )
        yield f"{'; '.join(about)}: {note}"
