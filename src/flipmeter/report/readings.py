"""The readings of reversed word labels, in sentences: they are never averaged together."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from flipmeter.report.estimate_tables import KEYS
from flipmeter.report.format import Record, interval

OVERRIDE = {"follows": "follow the flipped words", "keeps": "keep the meaning", "other": "neither"}


def reading_lines(estimates: pl.DataFrame) -> list[str]:
    """One sentence for every rater with word labels on a dataset, level and seed."""
    is_reading = pl.col("metric").str.contains("_semantic$|_position$|_position:|_override:")
    rows = estimates.filter(is_reading, policy="complete")
    lines = []
    for key, group in rows.group_by(*KEYS, maintain_order=True):
        by_metric = {row["metric"]: row for row in group.to_dicts()}
        names = [name.removesuffix("_semantic") for name in by_metric if "_semantic" in name]
        where = " · ".join(str(part) for part in key[:3] if part)
        lines += [f"{where} · seed {key[3]} · {_sentence(name, by_metric)}" for name in names]
    return lines


def _sentence(name: str, rows: Mapping[str, Record]) -> str:
    meaning, position = rows[f"{name}_semantic"], rows[f"{name}_position"]
    unmoved = rows.get(f"{name}_position:unmoved")
    parts = [
        f"{name} of words: by meaning {interval(meaning)}",
        f"by position {interval(position)}",
    ]
    if unmoved is not None:
        parts[1] += f", where a model that ignores the order gets {interval(unmoved)}"
    parts.append("by position is not comparable with identifier formats")
    if meaning["mode"] == "paper":
        parts.append("the tables show the one by position, tests and verdicts are by meaning")
    shares = {end: rows.get(f"{name}_override:{end}") for end in OVERRIDE}
    told = [f"{interval(row)} {OVERRIDE[end]}" for end, row in shares.items() if row]
    return "; ".join([*parts, ", ".join(told)] if told else parts)
