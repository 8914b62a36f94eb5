"""Estimates as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from flipmeter.types import Contrast

WORD_STYLE = {"flips": "bold red", "stable": "bold green", "inconclusive": "yellow"}
KEYS = ("rater", "dataset", "level", "seed")
Record = Mapping[str, Any]


def interval(row: Record, *, percent: bool = True) -> str:
    """Return "21.0 % [16.2, 26.9]", or why there is no number."""
    if row["value"] is None:
        return str(row["note"] or "undefined")
    scale, form = (100.0, ".1f") if percent else (1.0, ".3f")
    value = f"{scale * row['value']:{form}}" + (" %" if percent else "")
    if row["low"] is None:
        return value
    return f"{value} [{scale * row['low']:{form}}, {scale * row['high']:{form}}]"


def flip_table(
    estimates: pl.DataFrame, verdicts: pl.DataFrame, contrasts: Sequence[Contrast]
) -> Table:
    """Return flip rates on complete pairs beside the noise floor, with n, failures and verdict."""
    title = f"How often the answer changes when only positions change{_about(estimates)}"
    table = Table(title=title, title_justify="left")
    keys = varying(estimates)
    for name in (*keys, "what moves", "flips [95 %]", "noise floor", "n", "faults", "p > noise"):
        table.add_column(name, justify="right" if name in ("n", "faults") else "left")
    table.add_column("verdict")
    words = {(*_key(row, KEYS[:3]), row["contrast"]): row["word"] for row in verdicts.to_dicts()}
    for group in _groups(estimates):
        for contrast in contrasts:
            table.add_row(*_flip_cells(group, keys, contrast, words))
        if len(contrasts) > 1:
            table.add_section()
    return table


def _flip_cells(
    group: pl.DataFrame,
    keys: Sequence[str],
    contrast: Contrast,
    words: Mapping[tuple[Any, ...], str],
) -> list[str | Text]:
    row = group.filter(metric=contrast.name, policy="complete").to_dicts()[0]
    test = group.filter(metric="mcnemar_p", view=contrast.name, policy="complete").to_dicts()
    noise = group.filter(metric="noise", policy="complete").to_dicts()
    word = words.get((*_key(row, KEYS[:3]), contrast.name), "")
    is_measured = not str(row["note"]).startswith(("not applicable", "not identified"))
    return [
        *(Text(str(row[key])) for key in keys),
        f"{contrast.name}{_reading(row)}  {contrast.about}",
        interval(row),
        _noise(noise[0]) if noise and contrast.is_pair else "",
        str(row["n"]) if is_measured else "",
        str(row["failed"]) if is_measured else "",
        p_value(test[0]["p"]) if test and contrast.is_pair else "",
        Text(word, style=WORD_STYLE[word]) if is_measured and word else "",
    ]


def _reading(row: Record) -> str:
    """Mark a rate that is another thing than the others under its name."""
    note = str(row["note"])
    return f" {note.partition(':')[0]}" if note.startswith("by ") else ""


def _noise(row: Record) -> str:
    return "0 by construction" if "by construction" in str(row["note"]) else interval(row)


def performance_table(estimates: pl.DataFrame, views: Sequence[str]) -> Table:
    """Return accuracy and the ordinal scores of every view."""
    table = Table(
        title=f"How good the answers are, view by view{_about(estimates)}", title_justify="left"
    )
    keys = varying(estimates)
    metrics = ("accuracy", "macro_f1", "spearman", "mae", "parse_failure")
    for name in (*keys, "view", "accuracy [95 %]", "macro F1", "Spearman", "MAE", "parse failures"):
        table.add_column(name)
    for group in _groups(estimates):
        scores = group.filter(pl.col("metric").is_in(metrics), policy="complete")
        for view in views:
            rows = {row["metric"]: row for row in scores.filter(view=view).to_dicts()}
            if not rows:
                continue
            first = rows["accuracy"]
            plain = (_plain(rows[metric]) for metric in metrics[1:4])
            fails = rows["parse_failure"]
            table.add_row(
                *(Text(str(first[key])) for key in keys),
                view,
                interval(first),
                *plain,
                f"{fails['k']} of {fails['n']}" if fails["k"] is not None else interval(fails),
            )
        table.add_section()
    return table


def accuracy_tests_table(estimates: pl.DataFrame) -> Table | None:
    """Return whether accuracy itself moves: McNemar for a pair of views, Cochran's Q for more."""
    tests = {"accuracy_mcnemar": "McNemar, two-sided", "accuracy_cochran": "Cochran's Q"}
    chosen = estimates.filter(pl.col("metric").is_in(list(tests)), policy="complete")
    rows = chosen.filter(pl.col("p").is_not_null()).to_dicts()
    if not rows:
        return None
    table = Table(title=f"Does accuracy move too?{_about(estimates)}", title_justify="left")
    keys = varying(estimates)
    for name in (*keys, "contrast", "test", "statistic", "p", "n"):
        table.add_column(name)
    for row in rows:
        statistic = "" if row["statistic"] is None else f"{row['statistic']:.2f}"
        counts = f"b = {row['b']}, c = {row['c']}" if row["b"] is not None else statistic
        cells = (row["view"], tests[row["metric"]], counts, p_value(row["p"]), str(row["n"]))
        table.add_row(*(Text(str(row[key])) for key in keys), *cells)
    return table


def _plain(row: Record) -> str:
    return "undefined" if row["value"] is None else f"{row['value']:.3f}"


def phase0_view(table: pl.DataFrame) -> Table:
    """Return the paper's first table in its own form."""
    shown = Table(title="Flip rates with Wilson 95 % intervals", title_justify="left")
    names = ("Model", "P1", "P2", "P3", "Noise", "Total", "McNemar p", "Sig.")
    for name in names:
        shown.add_column(name)
    for row in table.to_dicts():
        cells = (_cell(row, name) for name in ("P1", "P2", "P3", "noise", "total"))
        sig = {1: "yes", 0: "no", None: ""}[row["sig"]]
        shown.add_row(Text(row["model"]), *cells, p_value(row["p"]), sig)
    return shown


def _cell(row: Record, name: str) -> str:
    if row.get(name) is None:
        return "–"
    return f"{row[name]:.3f}\n[{row[f'{name}_lo']:.3f}, {row[f'{name}_hi']:.3f}]"


def tokens_table(estimates: pl.DataFrame) -> Table | None:
    """Return output tokens and hidden tokens per model, where any model reports them."""
    rows = estimates.filter(pl.col("metric").is_in(["output_tokens", "hidden_tokens"]))
    if rows.is_empty():
        return None
    table = Table(title="Output tokens per reply", title_justify="left")
    for name in ("model", "output tokens", "hidden tokens", "what the second number is"):
        table.add_column(name)
    for (rater,), group in rows.group_by("rater", maintain_order=True):
        by_metric = {row["metric"]: row for row in group.to_dicts()}
        hidden = by_metric.get("hidden_tokens")
        output = by_metric.get("output_tokens")
        table.add_row(
            Text(str(rater)),
            f"{output['value']:.1f}" if output and output["value"] is not None else "",
            f"{hidden['value']:.1f}" if hidden and hidden["value"] is not None else "",
            str(hidden["note"]) if hidden else "",
        )
    return table


def calls_table(estimates: pl.DataFrame) -> Table | None:
    """Return the calls behind a decision, where any takes more than one."""
    rows = estimates.filter(pl.col("metric") == "calls").drop_nulls("value")
    if not (rows["value"] > 1).any():
        return None
    keys = ["rater", "level"]
    title = "Calls per decision, with a part of those that items share"
    table = Table(title=title, title_justify="left")
    for name in (*keys, "calls", "decisions"):
        table.add_column(name, justify="right" if name == "decisions" else "left")
    total = (pl.col("value") * pl.col("n")).sum()
    means = rows.group_by(keys, maintain_order=True).agg(
        total / pl.col("n").sum(), pl.col("n").sum()
    )
    for rater, level, value, n in means.iter_rows():
        table.add_row(Text(rater), Text(level or "base"), f"{value:.2f}", f"{n:,}")
    return table


def warned(table: Table, warnings: Mapping[str, str]) -> Table:
    """Put under a table what a reader of its numbers must know, by rater."""
    lines = [f"! {rater}: {warning}" for rater, warning in warnings.items()]
    if lines:
        table.caption, table.caption_justify = Text("\n".join(lines), style="yellow"), "left"
    return table


def verdict_lines(verdicts: pl.DataFrame) -> list[Text]:
    """Return one sentence for every pair of views that was measured."""
    lines = []
    for row in verdicts.filter(status="measured").to_dicts():
        where = " · ".join(str(row[key]) for key in KEYS[:3] if row[key])
        text = Text(f"{where} · {row['contrast']}: ")
        text.append(row["word"], style=WORD_STYLE[row["word"]])
        text.append(f" ({row['reason']})")
        lines.append(text)
    return lines


def failures_line(decisions: pl.DataFrame) -> str:
    """Return how many decisions have no class, by fault and view; empty when there are none."""
    faults = decisions.filter(pl.col("fault") != "")
    if faults.is_empty():
        return ""
    counts = faults.group_by("rater", "view", "fault").len().sort("rater", "view", "fault")
    parts = [f"{r['rater']} {r['view']}: {r['len']} {r['fault']}" for r in counts.to_dicts()]
    return f"no class in {len(faults)} of {len(decisions)} decisions ({'; '.join(parts)})"


def p_value(p: float | None) -> str:
    if p is None:
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def varying(estimates: pl.DataFrame) -> list[str]:
    """Return the keys that differ between rows."""
    return [key for key in KEYS if estimates[key].n_unique() > 1]


def _about(estimates: pl.DataFrame) -> str:
    """Return what is the same in all rows, for the title."""
    same = [key for key in KEYS[:3] if estimates[key].n_unique() == 1 and estimates[key][0]]
    return ": " + ", ".join(escape(str(estimates[key][0])) for key in same) if same else ""


def _groups(estimates: pl.DataFrame) -> list[pl.DataFrame]:
    return estimates.partition_by(list(KEYS), maintain_order=True)


def _key(row: Record, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)
