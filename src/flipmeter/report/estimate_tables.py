"""Estimates as tables for a terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from flipmeter.metrics import added_scores, title_of
from flipmeter.types import (
    FAULTS,
    JUDGED,
    Contrast,
)

WORD_STYLE = {
    "flips": "bold red",
    "unreadable": "bold red",
    "stable": "bold green",
    "inconclusive": "yellow",
    "not identified": "dim",
}
KEYS = ("rater", "dataset", "level", "seed")
Record = Mapping[str, Any]
COUNTED = re.compile(r"([\d,]+ of [\d,]+ |)(.*)", re.DOTALL)
"""A text, with the count that it begins with."""


def intervals_of(mode: str) -> str:
    """The name of the intervals of rates by seed: the paper's are Wilson's."""
    return "Wilson 95 % intervals" if mode == "paper" else "95 % intervals"


def interval(row: Record, *, percent: bool = True, whole: bool = False) -> str:
    """ "21.0 % [16.2, 26.9]", or the reason why there is no number."""
    if row["value"] is None:
        return str(row["note"] or "undefined")
    scale, form = (100.0, ".1f") if percent else (1.0, ".0f" if whole else ".3f")
    value = f"{scale * row['value']:{form}}" + (" %" if percent else "")
    if row["low"] is None:
        return value
    return f"{value} [{scale * row['low']:{form}}, {scale * row['high']:{form}}]"


def flip_table(
    estimates: pl.DataFrame, verdicts: pl.DataFrame, contrasts: Sequence[Contrast]
) -> Table:
    """The verdict on every contrast with its rate, noise, items and unreadable share.

    Seeds are pooled. An aggregate has no verdict: its rate is the mean over seeds.
    """
    title = f"How often the answer changes when only positions change{_about(estimates)}"
    table = Table(title=title, title_justify="left")
    keys = [key for key in KEYS[:3] if verdicts[key].n_unique() > 1]
    has_weights = verdicts["weighted"].count() > 0
    rates = ("flips [95 %]", *([WEIGHTED] if has_weights else []), "noise")
    for name in (*keys, "what moves", *rates, "items", "unreadable", "p"):
        table.add_column(name, justify="right" if name in ("items", "unreadable") else "left")
    table.add_column("verdict")
    rows = {(*_key(row, KEYS[:3]), row["contrast"]): row for row in verdicts.to_dicts()}
    groups = dict.fromkeys(_key(row, KEYS[:3]) for row in estimates.iter_rows(named=True))
    for group in groups:
        parts = dict(zip(KEYS[:3], group, strict=True))
        own = estimates.filter(**parts)
        for contrast in contrasts:
            cells = (
                _verdict_cells(own, contrast, rows[*group, contrast.name])
                if contrast.is_judged
                else _aggregate_cells(own, contrast)
            )
            if has_weights:
                row = rows.get((*group, contrast.name))
                cells.insert(2, weighted_interval(row) if row else "")
            table.add_row(*(Text(str(parts[key])) for key in keys), *cells)
        if len(contrasts) > 1:
            table.add_section()
    return table


WEIGHTED = "in production [95 %]"


def weighted_interval(row: Record) -> str:
    """The flip rate with classes at their frequency in production, "" if that is not known."""
    if row["weighted"] is None:
        return ""
    ends = {"value": row["weighted"], "low": row["weighted_low"], "high": row["weighted_high"]}
    return interval(ends)


def _verdict_cells(own: pl.DataFrame, contrast: Contrast, row: Record) -> list[str | Text]:
    about = f"{contrast.name}{_reading(own, contrast)}  {contrast.about}"
    if row["status"] not in JUDGED or row["value"] is None:
        return [about, row["reason"], "", "", "", "", ""]
    return [
        about,
        rate_text(row),
        noise_text(row),
        items_text(row),
        f"{100 * row['unreadable']:.1f} %" if row["unreadable"] else "",
        p_value(row["p"]),
        Text(row["word"], style=WORD_STYLE[row["word"]]),
    ]


def rate_text(row: Record) -> str:
    """A flip rate with its interval; one that is 0 by construction says so instead."""
    return str(row["reason"]) if row["status"] == "by construction" else interval(row)


def _aggregate_cells(own: pl.DataFrame, contrast: Contrast) -> list[str | Text]:
    rows = own.filter(metric=contrast.name, policy="complete")
    about = f"{contrast.name}  {contrast.about}"
    if len(rows) == 1 or rows["value"].null_count():
        return [about, interval(rows.row(0, named=True)), "", str(rows["n"].max()), "", "", ""]
    mean = float(rows["value"].to_numpy().mean())
    return [about, f"{100 * mean:.1f} %", "", str(rows["n"].max()), "", "", ""]


def _reading(own: pl.DataFrame, contrast: Contrast) -> str:
    """Mark a rate that is another thing than the others under its name."""
    notes = own.filter(metric=contrast.name, policy="complete")["note"]
    note = str(notes[0]) if len(notes) else ""
    return f" {note.partition(':')[0]}" if note.startswith("by ") else ""


def items_text(row: Record) -> str:
    """The items of a verdict, which pools their seeds: "120", or "150 in 104 clusters"."""
    items = row["n_pairs"] // max(len(row["seeds"]), 1)
    clusters = row["n_clusters"]
    return f"{clusters:,}" if items <= clusters else f"{items:,} in {clusters:,} clusters"


def beyond_text(row: Record) -> str:
    """The size beyond noise, which rows are sorted by; it is no difference of two shown rates."""
    is_beyond = row["noise"] and row["excess"] is not None and row["bound_on"] != "rate"
    return f"{100 * row['size']:.1f} % beyond" if is_beyond else ""


def noise_text(row: Record) -> str:
    """The noise of the views of a contrast with its interval, or why there is none."""
    if row["is_reproducible"]:
        return "reproducible"
    if row["noise"] is None:
        return "not measured"
    ends = {"value": row["noise"], "low": row["noise_low"], "high": row["noise_high"]}
    return interval(ends)


def performance_table(estimates: pl.DataFrame, views: Sequence[str]) -> Table:
    """Accuracy and the ordinal scores of every view."""
    table = Table(title=f"Scores by view{_about(estimates)}", title_justify="left")
    keys = varying(estimates)
    shown = score_titles(estimates)
    metrics = ("accuracy", *shown, "parse_failure", "weighted:accuracy")
    has_weights = _is_in(estimates, metrics[-1])
    accuracy = (accuracy_title(estimates), *([WEIGHTED] if has_weights else []))
    for name in (*keys, "view", *accuracy, *shown.values(), "parse failures"):
        table.add_column(name)
    for group in _groups(estimates):
        scored = group.filter(pl.col("metric").is_in(metrics), policy="complete")
        for view in views:
            rows = {row["metric"]: row for row in scored.filter(view=view).to_dicts()}
            if not rows:
                continue
            first = rows["accuracy"]
            plain = (_plain(rows.get(metric)) for metric in shown)
            fails = rows["parse_failure"]
            table.add_row(
                *(Text(str(first[key])) for key in keys),
                view,
                interval(first),
                *([_if_there(rows.get(metrics[-1]))] if has_weights else []),
                *plain,
                f"{fails['k']} of {fails['n']}" if fails["k"] is not None else interval(fails),
            )
        table.add_section()
    return table


SCORES = ("macro_f1", "pearson", "spearman", "mae")
"""The built-in scores shown beside accuracy, where a run has them."""


def score_titles(estimates: pl.DataFrame) -> dict[str, str]:
    """Titles of the scores shown beside accuracy, by name: those that a run has."""
    measured = {*estimates["metric"]}
    return {name: title_of(name) for name in (*SCORES, *added_scores()) if name in measured}


def accuracy_title(estimates: pl.DataFrame) -> str:
    """The title of accuracy, with the tolerance of decimal scores."""
    about = estimates.filter(metric="accuracy", policy="complete")["note"].unique()
    near = [note for note in about if note.startswith("within ")]
    return f"accuracy, {near[0]} [95 %]" if len(near) == len(about) == 1 else "accuracy [95 %]"


def _if_there(row: Record | None) -> str:
    return "" if row is None else interval(row)


def accuracy_tests_table(estimates: pl.DataFrame) -> Table | None:
    """Tests of whether accuracy changes: McNemar for two views, Cochran's Q for more."""
    tests = {"accuracy_mcnemar": "McNemar, two-sided", "accuracy_cochran": "Cochran's Q"}
    chosen = estimates.filter(pl.col("metric").is_in(list(tests)), policy="complete")
    rows = chosen.filter(pl.col("p").is_not_null()).to_dicts()
    if not rows:
        return None
    table = Table(title=f"Does accuracy change too?{_about(estimates)}", title_justify="left")
    keys = varying(estimates)
    for name in (*keys, "contrast", "test", "statistic", "p", "n"):
        table.add_column(name)
    for row in rows:
        statistic = "" if row["statistic"] is None else f"{row['statistic']:.2f}"
        counts = f"b = {row['b']}, c = {row['c']}" if row["b"] is not None else statistic
        cells = (row["view"], tests[row["metric"]], counts, p_value(row["p"]), str(row["n"]))
        table.add_row(*(Text(str(row[key])) for key in keys), *cells)
    return table


def _is_in(estimates: pl.DataFrame, metric: str) -> bool:
    """Whether a metric is in a table: nominal scales have no Spearman and no MAE."""
    return bool((estimates["metric"] == metric).any())


def _plain(row: Record | None) -> str:
    if row is None:
        return ""
    return "undefined" if row["value"] is None else f"{row['value']:.3f}"


def tokens_table(estimates: pl.DataFrame) -> Table | None:
    """Output tokens and hidden tokens per model, where any model reports them."""
    rows = estimates.filter(pl.col("metric").is_in(["output_tokens", "hidden_tokens"]))
    if rows.is_empty():
        return None
    table = Table(title="Output tokens per reply", title_justify="left")
    for name in ("model", "output tokens", "hidden tokens", "the second number"):
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
    """The calls behind a decision, where any takes more than one."""
    rows = estimates.filter(pl.col("metric") == "calls").drop_nulls("value")
    if not (rows["value"] > 1).any():
        return None
    keys = ["rater", "level"]
    title = "Calls per decision, shared calls included"
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


def shared_warnings(warnings: Mapping[str, str]) -> dict[str, str]:
    """Warnings by rater, with raters that have the same one, or the same but for a count, together.

    "53 of 300 repeats differ" of a and "4 of 300 repeats differ" of b are said once: "a (53 of
    300), b (4 of 300)".
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for rater, text in warnings.items():
        count, said = COUNTED.fullmatch(text).groups()  # type: ignore[union-attr]
        found.setdefault(said, []).append((rater, count))
    return dict(_shared(said, raters) for said, raters in found.items())


def _shared(said: str, raters: Sequence[tuple[str, str]]) -> tuple[str, str]:
    if len(raters) == 1:
        ((rater, count),) = raters
        return rater, count + said
    named = (f"{rater} ({count.strip()})" if count else rater for rater, count in raters)
    return ", ".join(named), said


def warned(table: Table, warnings: Mapping[str, str]) -> Table:
    """Put under a table what a reader of its numbers must know, by rater."""
    lines = [f"! {names}: {text}" for names, text in shared_warnings(warnings).items()]
    if lines:
        table.caption, table.caption_justify = Text("\n".join(lines), style="yellow"), "left"
    return table


def verdict_lines(verdicts: pl.DataFrame) -> list[Text]:
    """One sentence for every verdict; contrasts with the same word and reason share it."""
    same: dict[tuple[str, str, str], list[str]] = {}
    for row in verdicts.filter(pl.col("status").is_in(JUDGED)).to_dicts():
        where = " · ".join(str(row[key]) for key in KEYS[:3] if row[key])
        same.setdefault((where, row["word"], row["reason"]), []).append(row["contrast"])
    return [
        Text.assemble(f"{where} · {', '.join(names)}: ", (word, WORD_STYLE[word]), f" ({reason})")
        for (where, word, reason), names in same.items()
    ]


def failures_line(tally: pl.DataFrame) -> str:
    """The number of decisions without a class, by rater and fault; empty if there are none."""
    n_faults = int(tally["n_faults"].sum())
    if not n_faults:
        return ""
    by_rater = tally.group_by("rater", maintain_order=True)
    parts = [f"{rater}: {_faults(own)}" for (rater,), own in by_rater if own["n_faults"].sum()]
    return f"no class in {n_faults:,} of {tally['n'].sum():,} decisions ({'; '.join(parts)})"


def _faults(tally: pl.DataFrame) -> str:
    """The faults of one rater by kind, with the views where only some of them have any."""
    counts = {fault: int(tally[fault].sum()) for fault in FAULTS}
    kinds = ", ".join(f"{n:,} {fault}" for fault, n in counts.items() if n)
    some = tally.filter(pl.col("n_faults") > 0)["view"].unique(maintain_order=True)
    is_all = len(some) == tally["view"].n_unique()
    return kinds if is_all else f"{kinds} under {', '.join(some)}"


def p_value(p: float | None) -> str:
    if p is None:
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def varying(estimates: pl.DataFrame) -> list[str]:
    """The keys that differ between rows."""
    return [key for key in KEYS if estimates[key].n_unique() > 1]


def _about(estimates: pl.DataFrame) -> str:
    """The values that are the same in all rows, for the title."""
    same = [key for key in KEYS[:3] if estimates[key].n_unique() == 1 and estimates[key][0]]
    return ": " + ", ".join(escape(str(estimates[key][0])) for key in same) if same else ""


def _groups(estimates: pl.DataFrame) -> list[pl.DataFrame]:
    return estimates.partition_by(list(KEYS), maintain_order=True)


def _key(row: Record, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)
