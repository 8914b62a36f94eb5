"""Estimates as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl
from rich.text import Text

from flipmeter.metrics import added_scores, title_of
from flipmeter.report.format import Record, count, interval, number, p_value, percent
from flipmeter.report.table import Cell, Column, Group, Table, groups_of, word
from flipmeter.types import (
    FAULTS,
    JUDGED,
    Contrast,
    Remark,
)

KEYS = ("rater", "dataset", "level", "seed")


def intervals_of(mode: str) -> str:
    """The name of the intervals of rates by seed: the paper's are Wilson's."""
    return "Wilson 95 % intervals" if mode == "paper" else "95 % intervals"


def flip_table(
    estimates: pl.DataFrame, verdicts: pl.DataFrame, contrasts: Sequence[Contrast]
) -> Table:
    """The verdict on every contrast with its rate, noise, items and unreadable share.

    Seeds are pooled. An aggregate has no verdict: its rate is the mean over seeds.
    """
    keys = [key for key in KEYS[:3] if verdicts[key].n_unique() > 1]
    has_weights = verdicts["weighted"].count() > 0
    columns: list[Column | str] = [
        *(*keys, "what moves", "flips [95 %]", *([WEIGHTED] if has_weights else []), "noise"),
        *(Column("items", align="right"), Column("unreadable", align="right"), "p", "verdict"),
    ]
    rows = {(*_key(row, KEYS[:3]), row["contrast"]): row for row in verdicts.to_dicts()}
    groups: list[list[list[str | Cell]]] = [[]]
    for whose in dict.fromkeys(_key(row, KEYS[:3]) for row in estimates.iter_rows(named=True)):
        parts = dict(zip(KEYS[:3], whose, strict=True))
        own = estimates.filter(**parts)
        if len(contrasts) > 1:
            groups.append([])
        for contrast in contrasts:
            row = rows.get((*whose, contrast.name))
            weighted = [weighted_interval(row) if row else ""] * has_weights
            about, rate, *rest = (
                _verdict_cells(own, contrast, row)
                if row is not None and contrast.is_judged
                else _aggregate_cells(own, contrast)
            )
            names = (str(parts[key]) for key in keys)
            groups[-1].append([*names, about, rate, *weighted, *rest])
    title = f"How often the answer changes when only positions change{_about(estimates)}"
    return Table(title, columns, groups_of(*groups))


WEIGHTED = "in production [95 %]"


def weighted_interval(row: Record) -> str:
    """The flip rate with classes at their frequency in production, "" if that is not known."""
    return "" if row["weighted"] is None else interval(row, "weighted")


def _verdict_cells(own: pl.DataFrame, contrast: Contrast, row: Record) -> list[str | Cell]:
    about = f"{contrast.name}{_reading(own, contrast)}  {contrast.about}"
    if row["status"] not in JUDGED or row["value"] is None:
        return [about, row["reason"], "", "", "", "", ""]
    unreadable = percent(row["unreadable"] or None)
    counts = (rate_text(row), noise_text(row), items_text(row), unreadable)
    return [about, *counts, p_value(row["p"]), word(row["word"])]


def rate_text(row: Record) -> str:
    """A flip rate with its interval; one that is 0 by construction says so instead."""
    return str(row["reason"]) if row["status"] == "by construction" else interval(row)


def _aggregate_cells(own: pl.DataFrame, contrast: Contrast) -> list[str | Cell]:
    rows = own.filter(metric=contrast.name, policy="complete")
    about = f"{contrast.name}  {contrast.about}"
    if len(rows) == 1 or rows["value"].null_count():
        rate = interval(rows.row(0, named=True))
    else:
        rate = percent(float(rows["value"].to_numpy().mean()))
    return [about, rate, "", str(rows["n"].max()), "", "", ""]


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
    return f"{percent(row['size'])} beyond" if is_beyond else ""


def noise_text(row: Record) -> str:
    """The noise of the views of a contrast with its interval, or why there is none."""
    if row["is_reproducible"]:
        return "reproducible"
    return interval(row, "noise", absent="not measured")


def performance_table(estimates: pl.DataFrame, views: Sequence[str]) -> Table:
    """Accuracy and the ordinal scores of every view."""
    keys, scores = varying(estimates), score_titles(estimates)
    columns: list[Column | str] = [
        *keys,
        "view",
        Column(accuracy_title(estimates), lambda row: interval(row["accuracy"])),
    ]
    if not estimates.filter(metric=WEIGHTS).is_empty():  # nominal scales have no Spearman either
        columns.append(
            Column(WEIGHTED, lambda row: interval(row[WEIGHTS]) if WEIGHTS in row else "")
        )
    columns += [Column(title, partial(_score, name=name)) for name, title in scores.items()]
    columns.append(Column("parse failures", _failures))
    wanted = pl.col("metric").is_in(["accuracy", *scores, "parse_failure", WEIGHTS])
    groups: list[Group] = []
    for own in estimates.partition_by(list(KEYS), maintain_order=True):
        scored = own.filter(wanted, policy="complete")
        by_view = {view: scored.filter(view=view).to_dicts() for view in views}
        records = [
            {**rows[0], "view": view, **{row["metric"]: row for row in rows}}
            for view, rows in by_view.items()
            if rows
        ]
        groups += Table.of("", columns, records).groups
    return Table(f"Scores by view{_about(estimates)}", columns, groups)


WEIGHTS = "weighted:accuracy"


def _score(rows: Record, name: str) -> str:
    row = rows.get(name)
    if row is None:
        return ""
    return "undefined" if row["value"] is None else number(row["value"])


def _failures(rows: Record) -> str:
    row = rows["parse_failure"]
    return interval(row) if row["k"] is None else f"{row['k']} of {row['n']}"


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


def accuracy_tests_table(estimates: pl.DataFrame) -> Table | None:
    """Tests of whether accuracy changes: McNemar for two views, Cochran's Q for more."""
    tests = {"accuracy_mcnemar": "McNemar, two-sided", "accuracy_cochran": "Cochran's Q"}
    chosen = estimates.filter(pl.col("metric").is_in(list(tests)), policy="complete")
    rows = chosen.filter(pl.col("p").is_not_null()).to_dicts()
    if not rows:
        return None
    columns: tuple[Column | str, ...] = (
        *varying(estimates),
        Column("contrast", lambda row: row["view"]),
        Column("test", lambda row: tests[row["metric"]]),
        Column("statistic", _statistic),
        Column("p", lambda row: p_value(row["p"])),
        "n",
    )
    return Table.of(f"Does accuracy change too?{_about(estimates)}", columns, rows)


def _statistic(row: Record) -> str:
    if row["b"] is not None:
        return f"b = {row['b']}, c = {row['c']}"
    return number(row["statistic"], ".2f")


def tokens_table(estimates: pl.DataFrame) -> Table | None:
    """Output tokens and hidden tokens per model, where any model reports them."""
    rows = estimates.filter(pl.col("metric").is_in(["output_tokens", "hidden_tokens"]))
    if rows.is_empty():
        return None
    records = [
        {"model": str(rater), **{row["metric"]: row for row in own.to_dicts()}}
        for (rater,), own in rows.group_by("rater", maintain_order=True)
    ]
    columns = (
        "model",
        Column("output tokens", lambda row: _mean(row.get("output_tokens"))),
        Column("hidden tokens", lambda row: _mean(row.get("hidden_tokens"))),
        Column("the second number", lambda row: str(row.get("hidden_tokens", {}).get("note", ""))),
    )
    return Table.of("Output tokens per reply", columns, records)


def _mean(row: Record | None) -> str:
    return number(row["value"], ".1f") if row else ""


def calls_table(estimates: pl.DataFrame) -> Table | None:
    """The calls behind a decision, where any takes more than one."""
    rows = estimates.filter(pl.col("metric") == "calls").drop_nulls("value")
    if not (rows["value"] > 1).any():
        return None
    total = (pl.col("value") * pl.col("n")).sum()
    means = rows.group_by("rater", "level", maintain_order=True).agg(
        total / pl.col("n").sum(), pl.col("n").sum()
    )
    columns = (
        "rater",
        Column("level", lambda row: row["level"] or "base"),
        Column("calls", lambda row: number(row["value"], ".2f")),
        Column("decisions", lambda row: count(row["n"]), align="right"),
    )
    return Table.of("Calls per decision, shared calls included", columns, means.to_dicts())


Remarks = Mapping[str, Sequence[Remark]]


def shared_warnings(remarks: Remarks) -> dict[str, str]:
    """Remarks by rater, with raters that have the same, or the same but for a count, together.

    "53 of 300 repeats differ" of a and "4 of 300 repeats differ" of b are said once: "a (53 of
    300), b (4 of 300)".
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for rater, (first, *others) in remarks.items():
        said = "; ".join([first.text, *map(str, others)])
        found.setdefault(said, []).append((rater, first.count))
    shared = {}
    for said, raters in found.items():
        if len(raters) == 1:
            ((rater, count),) = raters
            shared[rater] = f"{count} {said}" if count else said
        else:
            named = (f"{rater} ({count})" if count else rater for rater, count in raters)
            shared[", ".join(named)] = said
    return shared


def warned(table: Table, remarks: Remarks) -> Table:
    """Put under a table what a reader of its numbers must know, by rater."""
    lines = [f"! {names}: {text}" for names, text in shared_warnings(remarks).items()]
    return replace(table, caption="\n".join(lines), caption_style="yellow")


def verdict_lines(verdicts: pl.DataFrame) -> list[Text]:
    """One sentence for every verdict; contrasts with the same word and reason share it."""
    same: dict[tuple[str, str, str], list[str]] = {}
    for row in verdicts.filter(pl.col("status").is_in(JUDGED)).to_dicts():
        where = " · ".join(str(row[key]) for key in KEYS[:3] if row[key])
        same.setdefault((where, row["word"], row["reason"]), []).append(row["contrast"])
    return [
        Text.assemble(
            *(f"{where} · {', '.join(names)}: ", (verdict, word(verdict).style), f" ({reason})")
        )
        for (where, verdict, reason), names in same.items()
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


def varying(estimates: pl.DataFrame) -> list[str]:
    """The keys that differ between rows."""
    return [key for key in KEYS if estimates[key].n_unique() > 1]


def _about(estimates: pl.DataFrame) -> str:
    """The values that are the same in all rows, for the title."""
    same = [key for key in KEYS[:3] if estimates[key].n_unique() == 1 and estimates[key][0]]
    return ": " + ", ".join(str(estimates[key][0]) for key in same) if same else ""


def _key(row: Record, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)
