"""Estimates as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from rich.text import Text

from flipmeter.show.format import WHOLE, Record, bounds, count, interval, number, p_value, percent
from flipmeter.show.table import (
    LATEX_HEAD,
    Cell,
    Column,
    Group,
    Table,
    groups_of,
    latex,
    markdown,
    word,
    write_table,
)
from flipmeter.stats.metrics import added_scores, is_share, is_whole, metrics, title_of
from flipmeter.types import FAULTS, JUDGED, LEVEL, Contrast, Remark

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
    rows = {(*_row_key(row, KEYS[:3]), row["contrast"]): row for row in verdicts.to_dicts()}
    groups: list[list[list[str | Cell]]] = [[]]
    for whose in dict.fromkeys(_row_key(row, KEYS[:3]) for row in estimates.iter_rows(named=True)):
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
    title = (
        f"How often the answer changes when only positions change{_shared_values_title(estimates)}"
    )
    return Table(title, columns, groups_of(*groups))


WEIGHTED = "in production [95 %]"


def weighted_interval(row: Record) -> str:
    """The flip rate with classes at their frequency in production, "" if that is not known."""
    return "" if row["weighted"] is None else interval(row, "weighted")


def _verdict_cells(own: pl.DataFrame, contrast: Contrast, row: Record) -> list[str | Cell]:
    about = f"{contrast.name}{_reading_mark(own, contrast)}  {contrast.about}"
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


def _reading_mark(own: pl.DataFrame, contrast: Contrast) -> str:
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
    columns += [Column(title, partial(_score_text, name=name)) for name, title in scores.items()]
    columns.append(Column("parse failures", _failures_text))
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
    return Table(f"Scores by view{_shared_values_title(estimates)}", columns, groups)


WEIGHTS = "weighted:accuracy"


def _score_text(rows: Record, name: str) -> str:
    row = rows.get(name)
    if row is None:
        return ""
    return "undefined" if row["value"] is None else number(row["value"])


def _failures_text(rows: Record) -> str:
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
        Column("statistic", _statistic_text),
        Column("p", lambda row: p_value(row["p"])),
        "n",
    )
    return Table.of(f"Does accuracy change too?{_shared_values_title(estimates)}", columns, rows)


def _statistic_text(row: Record) -> str:
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
        Column("output tokens", lambda row: _mean_text(row.get("output_tokens"))),
        Column("hidden tokens", lambda row: _mean_text(row.get("hidden_tokens"))),
        Column("the second number", lambda row: str(row.get("hidden_tokens", {}).get("note", ""))),
    )
    return Table.of("Output tokens per reply", columns, records)


def _mean_text(row: Record | None) -> str:
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
    parts = [
        f"{rater}: {_fault_counts_text(own)}" for (rater,), own in by_rater if own["n_faults"].sum()
    ]
    return f"no class in {n_faults:,} of {tally['n'].sum():,} decisions ({'; '.join(parts)})"


def _fault_counts_text(tally: pl.DataFrame) -> str:
    """The faults of one rater by kind, with the views where only some of them have any."""
    counts = {fault: int(tally[fault].sum()) for fault in FAULTS}
    kinds = ", ".join(f"{n:,} {fault}" for fault, n in counts.items() if n)
    some = tally.filter(pl.col("n_faults") > 0)["view"].unique(maintain_order=True)
    is_all = len(some) == tally["view"].n_unique()
    return kinds if is_all else f"{kinds} under {', '.join(some)}"


def varying(estimates: pl.DataFrame) -> list[str]:
    """The keys that differ between rows."""
    return [key for key in KEYS if estimates[key].n_unique() > 1]


def _shared_values_title(estimates: pl.DataFrame) -> str:
    """The values that are the same in all rows, for the title."""
    same = [key for key in KEYS[:3] if estimates[key].n_unique() == 1 and estimates[key][0]]
    return ": " + ", ".join(str(estimates[key][0]) for key in same) if same else ""


def _row_key(row: Record, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


NAMES = ("model", *KEYS[1:])
RATES = ("P1", "P2", "P3", "noise", "total")


def write_phase0(table: pl.DataFrame, path: Path) -> None:
    """Write the table to a file: all columns as .csv or .parquet, the paper's as .md or .tex."""
    write_table(
        table,
        path,
        {
            ".md": lambda rows: phase0_markdown(rows) + "\n",
            ".tex": lambda rows: phase0_latex(rows) + "\n",
        },
    )


def phase0_view(table: pl.DataFrame, mode: str = "") -> Table:
    """The table, intervals under their rates."""
    columns = [
        *(Column(key, is_name=True) for key in table.columns if key in NAMES),
        *(Column(name, partial(_cell, of=name), shade=-0.5) for name in RATES),
        Column("McNemar p", lambda row: p_value(row["p"])),
        Column("Sig.", lambda row: {1: "yes", 0: "no"}.get(row["sig"], "")),
    ]
    return Table.of(f"Flip rates with {intervals_of(mode)}", columns, table.to_dicts())


def phase0_markdown(table: pl.DataFrame) -> str:
    """The table in Markdown."""
    return markdown(phase0_view(table))


def phase0_latex(table: pl.DataFrame) -> str:
    """The table in LaTeX with booktabs, flip rates shaded by size: black text stays readable."""
    return LATEX_HEAD + latex(phase0_view(table))


def _cell(row: Record, of: str) -> Cell:
    value, low, high = (row.get(name) for name in (of, f"{of}_lo", f"{of}_hi"))
    return Cell(bounds(value, low, high).replace(" [", "\n[") or "–", value)


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
        for metric in sorted(own["metric"].unique(maintain_order=True), key=_metric_position):
            cells = {row["view"]: row for row in own.filter(metric=metric).to_dicts()}
            texts = (_aspect_cell(cells[view]) if view in cells else "" for view in contrasts)
            shown.append(map(Cell, (title_of(metric), *texts)))
        shown.append(map(Cell, ("n", *(str(counts.get(view, "")) for view in contrasts))))
        groups.append(
            Group([[*cells] for cells in shown], _aspect_group_title(own.row(0, named=True)))
        )
    return Table(title, ["", *contrasts], groups)


def _aspect_group_title(row: Record) -> str:
    seed = [f"seed {row['seed']}"] if "seed" in row else []
    return " · ".join([*(str(row[key]) for key in KEYS[:3] if row[key]), *seed])


def _metric_position(metric: str) -> int:
    """The position of a metric in the registry; numbers of several things come first."""
    return [*metrics].index(metric) if metric in metrics else -1


def _aspect_cell(row: Record) -> str:
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
        Column("rater", _aspect_group_title),
        "claim",
        Column("observed", lambda row: percent(row["size"])),
        Column("at most", lambda row: percent(row["upper"])),
        Column("items", lambda row: str(row["n_clusters"])),
        Column("items needed", lambda row: count(row["n_needed"])),
        Column("outcome", _outcome_cell),
    )
    title = f"Claims, {percent(level, 0)} one-sided bounds over items"
    return Table.of(title, columns, certificates.to_dicts())


def _outcome_cell(row: Record) -> Cell:
    beside = (note for note in row["notes"] if note not in row["reason"])
    return word(row["outcome"], f"{row['outcome']} ({'; '.join([row['reason'], *beside])})")


def comparison_table(comparison: pl.DataFrame, names: Sequence[str]) -> Table:
    """The second run minus the first in points, with McNemar's counts and a word."""
    columns = (
        *("rater", "level", Column("dataset", lambda row: row["dataset"] or "all"), "metric"),
        Column("difference", _points_with_bounds),
        Column(
            "only 2nd, only 1st", lambda row: "" if row["b"] is None else f"{row['b']}, {row['c']}"
        ),
        Column("p, McNemar", lambda row: p_value(row["p"])),
        Column("Holm", lambda row: p_value(row["p_holm"])),
        Column("BH", lambda row: p_value(row["p_bh"])),
        "n",
        Column("", _comparison_word),
    )
    title = f"{names[1]} minus {names[0]}, x 100 [95 % over items, given the datasets]"
    return Table.of(title, columns, comparison.to_dicts())


def _points_with_bounds(row: Record) -> str:
    return bounds(row["value"], row["low"], row["high"], "+.1f")


def _comparison_word(row: Record) -> Cell:
    note = f" ({row['note']})" if row["value"] is None and row["note"] else ""
    return word(row["word"], f"{row['word']}{note}")
