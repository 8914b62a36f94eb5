"""Aspects, certificates and comparisons of runs as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl
from rich.table import Table
from rich.text import Text

from flipmeter.report.estimate_tables import KEYS, Record, interval, p_value
from flipmeter.types import LEVEL

TITLES = {
    "excess": "Do views disagree beyond their own noise?",
    "direction": "Which way do answers move?",
    "matrix": "Where do the items of each class go? (first view > second view)",
    "severity": "How far apart are the answers?",
    "slots": "Are some slots preferred, whatever stands there?",
    "pairs": "Does the judge prefer a place?",
    "systems": "Does the ranking of systems change with the order?",
    "worst": "What does the worst position cost?",
    "confidence": "Can agreement over positions be relied on?",
    "certainty": "Do the answers flip that were least sure? (fifths, by probabilities under base)",
}
METRICS = {
    "excess": "excess U",
    "excess_ordinal": "excess U, in ranks",
    "across": "differ across views",
    "within": "differ within a view (noise)",
    "signal_ratio": "across / within",
    "up": "move up",
    "down": "move down",
    "shift": "mean step, in ranks",
    "primacy": "primacy: pulled to the first slots",
    "recency": "recency: pulled to the last slots",
    "preference": "preference",
    "slot_bias": "slot bias, in ranks",
    "semantic_bias": "semantic bias, in ranks",
    "right_to_wrong": "right to wrong",
    "wrong_to_right": "wrong to right",
    "wrong_to_wrong": "wrong to wrong",
    "net": "net: change of accuracy",
    "bowker": "symmetry (Bowker), p",
    "stuart_maxwell": "homogeneity (Stuart-Maxwell), p",
    "wilcoxon": "signed ranks (Wilcoxon), p",
    "distance": "mean distance / (M - 1)",
    "disagreement": "pairs of views that differ",
    "far": "two ranks apart or more",
    "polar": "on both sides of the middle",
    "kappa": "kappa",
    "qwk": "quadratic kappa",
    "alpha": "ordinal alpha",
    "entropy_deficit": "entropy deficit, nats",
    "slot_distance": "distance from expectation",
    "slot_test": "no preference for a slot, p",
    "cramers_v": "Cramér's V of slots",
    "recall_sd": "SD of recall over slots (RStD)",
    "first_share": "the answer shown first wins (ties apart)",
    "first_test": "no place is preferred, p",
    "consistency": "same verdict in both orders",
    "accuracy_both": "right in both orders",
    "order_effect": "order effect, log-odds for what is shown first",
    "robust_accuracy": "right in every view",
    "worst_accuracy": "accuracy of the worst view",
    "expected_accuracy": "accuracy, mean over views",
    "spread": "best minus worst view",
    "cost": "mean cost",
    "instability_cost": "mean cost between views",
    "coverage": "all views agree",
    "selective_accuracy": "accuracy where they do",
    "abstention_area": "area under accuracy by coverage",
    "set_coverage": "sets that hold the gold class",
    "set_size": "classes in a set",
    "margin_rho": "margin and flips, Spearman's rho",
    "margin_trend": "no trend with the margin, p",
    "entropy_rho": "entropy and flips, Spearman's rho",
    "entropy_trend": "no trend with the entropy, p",
}
NUMBERED = {
    "slot": "share of slot",
    "recall": "accuracy when the right option is in slot",
    "ties": "ties, order",
    "win_rate": "win rate of",
    "strength": "strength of",
    "rank": "rank of",
    "accuracy": "accuracy, order",
    "slot_excess": "beyond expectation, slot",
    "margin": "flips, smallest margins first,",
    "entropy": "flips, smallest entropies first,",
}
BINNED = ("margin:", "entropy:")
"""Rates whose note is the range that they are about."""

IN_RANKS = {
    *("excess_ordinal", "signal_ratio", "shift", "slot_bias", "semantic_bias", "kappa", "qwk"),
    *("alpha", "entropy_deficit", "cost", "instability_cost", "set_size", "abstention_area"),
    *("cramers_v", "order_effect"),
    *("margin_rho", "entropy_rho"),
}
"""Numbers that are no shares."""

WORD_STYLE = {"stable": "bold green", "flips": "bold red", "higher": "bold", "lower": "bold"}


def aspect_table(rows: pl.DataFrame, name: str) -> Table:
    """Return one aspect of a run: what was measured down, contrasts across, n under both."""
    contrasts = rows["view"].unique(maintain_order=True).to_list()
    table = Table(title=TITLES[name], title_justify="left")
    for title in ("", *contrasts):
        table.add_column(title)
    for group in rows.partition_by(list(KEYS), maintain_order=True):
        table.add_row(Text(_where(group.row(0, named=True)), style="bold"))
        for metric in sorted(group["metric"].unique(maintain_order=True), key=_place):
            cells = {row["view"]: row for row in group.filter(metric=metric).to_dicts()}
            shown = (_cell(cells[view]) if view in cells else "" for view in contrasts)
            table.add_row(_title(metric), *shown)
        counts = group.group_by("view").agg(pl.col("n").max())
        sizes = dict(counts.iter_rows())
        table.add_row("n", *(str(sizes.get(view, "")) for view in contrasts), end_section=True)
    return table


def _where(row: Record) -> str:
    seed = [f"seed {row['seed']}"] if "seed" in row else []
    return " · ".join([*(str(row[key]) for key in KEYS[:3] if row[key]), *seed])


def _place(metric: str) -> int:
    """Keep to the order above; what is not there, such as slots, comes first."""
    return list(METRICS).index(metric) if metric in METRICS else -1


def _title(metric: str) -> str:
    kind, colon, slot = metric.partition(":")
    return f"{NUMBERED[kind]} {slot}" if colon else METRICS.get(metric, metric)


def _cell(row: Record) -> str:
    if row["p"] is not None:
        return f"{p_value(row['p'])}\nHolm {p_value(row['p_holm'])}, BH {p_value(row['p_bh'])}"
    value, bracket, ends = interval(row, percent=not _is_plain(row["metric"])).partition(" [")
    if row["metric"].startswith(BINNED):
        ends += f"\n{row['note']}, n = {row['n']}"
    return f"{value}\n[{ends}" if bracket else value


def _is_plain(metric: str) -> bool:
    """Whether a number is no share."""
    return metric in IN_RANKS or metric.startswith(("strength:", "rank:"))


def aspect_notes(rows: pl.DataFrame) -> list[str]:
    """Return every note of an aspect once, with the metrics it is about."""
    noted = rows.filter((pl.col("note") != "") & pl.col("value").is_not_null())
    noted = noted.filter(~pl.col("metric").str.contains("^(margin|entropy):"))
    noted = noted.filter(~pl.col("note").str.contains("df |sign test|signed ranks"))
    about = noted.group_by("note", maintain_order=True).agg(pl.col("metric").unique())
    return [f"{', '.join(sorted(metrics))}: {note}" for note, metrics in about.iter_rows()]


def certificate_table(certificates: pl.DataFrame, level: float = LEVEL) -> Table:
    """What could be shown of each claim, with its one-sided bounds and the items needed."""
    title = f"Claims, {100 * level:.0f} % one-sided bounds over items"
    table = Table(title=title, title_justify="left")
    for name in ("rater", "claim", "observed", "at most", "items", "items needed", "verdict"):
        table.add_column(name)
    for row in certificates.to_dicts():
        word = Text(row["word"], style=WORD_STYLE.get(row["word"], "yellow"))
        word.append(f" ({'; '.join([row['reason'], *row['notes']])})")
        needed = row["n_needed"]
        table.add_row(
            *(Text(_where(row)), row["claim"], _percent(row["size"]), _percent(row["upper"])),
            str(row["n_clusters"]),
            *("" if needed is None else f"{needed:,}", word),
        )
    return table


def _percent(x: float | None) -> str:
    return "" if x is None else f"{100 * x:.1f} %"


def comparison_table(comparison: pl.DataFrame, names: Sequence[str]) -> Table:
    """Return the second run minus the first in points, with McNemar's counts and a word."""
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
