"""Verdicts -> a table that fits the terminal: worst first, columns dropped in a stated order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from flipmeter.report.estimate_tables import (
    WEIGHTED,
    WORD_STYLE,
    Record,
    items_text,
    noise_text,
    p_value,
    rate_text,
    weighted_interval,
)
from flipmeter.report.sentences import lean
from flipmeter.types import JUDGED, Contrast

MOST_ROWS = 20
"""Rows on the first screen; the rest is one command away."""
KEYS = ("rater", "dataset", "level")
RATE, ABOUT, TOWARDS = "flips [95 %]", "what moves", "towards"
DROPPED = ("p", "accuracy", "items", "noise", ABOUT, "note", WEIGHTED, TOWARDS, "unreadable")
"""Columns that a narrow terminal leaves out, in this order."""
COLUMNS = (
    *("verdict", *KEYS, "contrast", ABOUT, RATE, TOWARDS, WEIGHTED, "noise"),
    *("items", "unreadable", "p", "accuracy", "note"),
)
GAP = 2

Cells = Mapping[str, str]


@dataclass(frozen=True)
class VerdictTable:
    """Rows of cells by column, laid out for the width at hand; no number is ever cut."""

    rows: Sequence[Cells]
    n_rows: int

    @property
    def columns(self) -> list[str]:
        """The columns that say something: a key that is the same in all rows does not."""
        return [name for name in COLUMNS if any(row.get(name) for row in self.rows)]

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        if not self.rows:
            return
        fitting, dropped = self._fitting(options.max_width)
        if fitting:
            yield self._table(fitting)
        else:
            has_way = max(map(len, map(_stacked, self.rows))) + GAP <= options.max_width
            yield self._stack(has_way=has_way)
            dropped = [name for name in dropped if name != TOWARDS or not has_way]
        left_out = [name for name in self.columns if name in dropped]
        if left_out:
            yield Text(f"left out at this width: {', '.join(left_out)}", style="dim")
        if len(self.rows) < self.n_rows:
            yield Text(f"{len(self.rows)} of {self.n_rows:,} rows, worst first")

    def _fitting(self, width: int) -> tuple[list[str], list[str]]:
        """The columns that fit and those dropped for it; no columns if rows must be stacked."""
        columns = self.columns
        for n in range(len(DROPPED) + 1):
            shown = [name for name in columns if name not in DROPPED[:n]]
            if sum(map(self._width, shown)) + GAP * (len(shown) - 1) <= width:
                return shown, list(DROPPED[:n])
        return [], list(DROPPED)

    def _width(self, name: str) -> int:
        return max(len(name), *(len(row.get(name, "")) for row in self.rows))

    def _table(self, columns: Sequence[str]) -> Table:
        table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
        for name in columns:
            table.add_column(name, no_wrap=True, justify="right" if name == "items" else "left")
        for row in self.rows:
            table.add_row(*(_styled(name, row.get(name, "")) for name in columns))
        return table

    def _stack(self, *, has_way: bool) -> Group:
        """A line of names for each row, and its verdict under it, with the direction of flips."""
        lines: list[RenderableType] = []
        names = [name for name in KEYS if name in self.columns]
        before = ""
        for row in self.rows:
            whose = " · ".join(row[name] for name in names if row.get(name))
            if whose != before:
                lines.append(Text(whose, overflow="fold"))
                before = whose
            indent = " " * GAP * bool(whose)
            word = _styled("verdict", row["verdict"])
            rest = _stacked(row) if has_way else _stacked({**row, TOWARDS: ""})
            lines.append(Text.assemble(indent, word, rest.removeprefix(row["verdict"])))
        return Group(*lines)


def _stacked(row: Cells) -> str:
    """A row without its names, as one line."""
    way = f"  towards the {row[TOWARDS]}" if row.get(TOWARDS) else ""
    return f"{row['verdict']}  {row['contrast']}  {row[RATE]}{way}"


def _styled(name: str, text: str) -> Text:
    return Text(text, style=WORD_STYLE.get(text, "") if name == "verdict" else "")


def verdict_table(
    verdicts: pl.DataFrame,
    contrasts: Sequence[Contrast],
    *,
    accuracy: Mapping[tuple[str, ...], str],
) -> VerdictTable:
    """The first rows of `verdicts`, worst first; `accuracy` is by rater, dataset and level."""
    measured = verdicts.filter(pl.col("status").is_in(JUDGED))
    keys = [key for key in KEYS if measured[key].n_unique() > 1]
    own = {contrast.name: contrast for contrast in contrasts}
    rows = [
        {
            **_cells(row, keys),
            ABOUT: own[row["contrast"]].about,
            TOWARDS: lean(row, own[row["contrast"]]),
            "accuracy": accuracy.get(tuple(row[key] for key in KEYS), ""),
        }
        for row in measured.head(MOST_ROWS).to_dicts()
    ]
    return VerdictTable(rows, len(measured))


def _cells(row: Record, keys: Sequence[str]) -> Cells:
    return {
        "verdict": row["word"],
        **{key: str(row[key]) or "base" for key in keys},
        "contrast": row["contrast"],
        RATE: _rate(row),
        WEIGHTED: weighted_interval(row),
        "noise": noise_text(row),
        "items": items_text(row),
        "unreadable": _unreadable(row),
        "p": p_value(row["p"]),
        "note": ", ".join(row["findings"]),
    }


def _rate(row: Record) -> str:
    """The flip rate; of an unreadable row the share that makes it so, which stays at any width."""
    if row["word"] == "unreadable":
        return f"{100 * (row['unreadable'] or 0):.1f} % unreadable"
    if row["value"] is None:
        return f"no {'answered' if row['unreadable'] is None else 'readable'} pair"
    return rate_text(row)


def _unreadable(row: Record) -> str:
    """The unreadable share, "" where the row says it in place of its rate."""
    is_said = row["word"] == "unreadable" or not row["unreadable"]
    return "" if is_said else f"{100 * row['unreadable']:.1f} %"


def unmeasured_lines(verdicts: pl.DataFrame) -> list[str]:
    """Reasons why contrasts have no verdict, one line each."""
    found: dict[str, dict[str, None]] = {}
    for row in verdicts.filter(~pl.col("status").is_in(JUDGED)).to_dicts():
        found.setdefault(row["reason"], {})[row["contrast"]] = None
    return [f"not measured: {', '.join(names)} ({reason})" for reason, names in found.items()]
