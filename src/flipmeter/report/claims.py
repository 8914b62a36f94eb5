"""Claims of a gate -> a table for people, Markdown for a pull request, JUnit XML for a machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

import polars as pl
from rich.table import Table
from rich.text import Text

from flipmeter.metrics import is_better_high, is_share
from flipmeter.report.estimate_tables import Record, p_value
from flipmeter.report.table_files import escape_markdown

GOOD, BAD = ("stable", "met"), ("flips", "unreadable", "missed")
STYLE = {**dict.fromkeys(GOOD, "bold green"), **dict.fromkeys(BAD, "bold red")}
HEAD = ("rater", "claim", "observed", "95 % bounds", "items", "p", "verdict")
BEYOND_XML = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def claim_of(row: Record) -> str:
    """The claim in short."""
    name = row["metric"] if row["where"] == "base" else f"{row['metric']} {row['where']}"
    if row["is_drift"]:
        return f"{name} worse by less than {_number(row, row['limit'])}"
    return f"{name} {'>' if is_better_high(row['metric']) else '<'} {_number(row, row['limit'])}"


def claims_table(claims: pl.DataFrame, title: str) -> Table:
    """Every claim with its bounds, its p-values and its verdict."""
    table = Table(title=Text(title), title_justify="left")
    for name in HEAD:
        table.add_column(name)
    for row in claims.iter_rows(named=True):
        *cells, word = _cells(row)
        table.add_row(*map(Text, cells), Text(word, style=STYLE.get(row["word"], "yellow")))
    return table


def claims_markdown(claims: pl.DataFrame, title: str, notes: Sequence[str]) -> str:
    """The claims as a summary for a pull request, the failed and the undecided first."""
    order = pl.col("word").replace_strict(
        {**dict.fromkeys(GOOD, 2), **dict.fromkeys(BAD, 0)}, default=1
    )
    lines = [f"### {escape_markdown(title)}", "", _row(HEAD), _row(["---"] * len(HEAD))]
    rows = claims.sort(order, maintain_order=True).iter_rows(named=True)
    lines += [_row([escape_markdown(cell) for cell in _cells(row)]) for row in rows]
    lines += ["", *(f"- {escape_markdown(note)}" for note in notes)]
    return "\n".join(lines).rstrip() + "\n"


def claims_junit(claims: pl.DataFrame, name: str) -> str:
    """The claims as test cases: broken is a failure, not settled an error."""
    words = claims["word"].to_list()
    counts = {
        "tests": str(len(words)),
        "failures": str(sum(word in BAD for word in words)),
        "errors": str(sum(word not in (*GOOD, *BAD) for word in words)),
    }
    suites = ET.Element("testsuites", counts)
    suite = ET.SubElement(suites, "testsuite", {"name": _clean(name), **counts, "skipped": "0"})
    for row in claims.iter_rows(named=True):
        about = {"classname": _clean(f"flipmeter.{_whose(row)}"), "name": _clean(claim_of(row))}
        case = ET.SubElement(suite, "testcase", about | {"time": "0"})
        *_, word = cells = _cells(row)
        if row["word"] in GOOD and row["notes"]:
            ET.SubElement(case, "system-out").text = _clean(word)
        if row["word"] not in GOOD:
            kind = "failure" if row["word"] in BAD else "error"
            told = ET.SubElement(case, kind, {"message": _clean(word), "type": row["word"]})
            shown = zip(HEAD, cells, strict=True)
            told.text = _clean("\n".join(f"{head}: {cell}" for head, cell in shown if cell))
    ET.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suites, "unicode") + "\n"


def _cells(row: Record) -> list[str]:
    """The cells of a claim; the last is its verdict and the items still needed."""
    span = ""
    if row["low"] is not None:
        span = f"{_number(row, row['low'])} to {_number(row, row['high'])}"
    elif row["high"] is not None:
        span = f"at most {_number(row, row['high'])}"
    more = row["n_more"]
    reason = [row["note"]] if row["note"] else []
    why = reason + [note for note in row["notes"] if note not in "".join(reason)]
    is_told = row["metric"] in ("flips", "excess")  # its reason says so already
    if more and not is_told:
        why.append(f"about {more:,} more item{'s' * (more > 1)} would settle it")
    return [
        _whose(row),
        claim_of(row),
        _number(row, row["value"]),
        span,
        str(row["n"]),
        p_value(row["p"]),
        row["word"] + (f" ({'; '.join(why)})" if why else ""),
    ]


def _whose(row: Record) -> str:
    return " · ".join(part for part in (row["rater"], row["dataset"], row["level"]) if part)


def _number(row: Record, value: float | None) -> str:
    if value is None:
        return ""
    return f"{100 * value:.1f} %" if is_share(row["metric"]) else f"{value:.3f}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _clean(text: str) -> str:
    """A text without characters that XML forbids."""
    return BEYOND_XML.sub("\ufffd", text)
