"""Claims of a gate -> a table for people, Markdown for a pull request, JUnit XML for a machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

import polars as pl

from flipmeter.metrics import is_better_high, is_share
from flipmeter.report.format import Record, counted, number, p_value, percent
from flipmeter.report.table import Column, Table, escape_markdown, markdown, word

GOOD, BAD = ("stable", "met"), ("flips", "unreadable", "missed")
BEYOND_XML = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def claim_of(row: Record) -> str:
    """The claim in short."""
    name = row["metric"] if row["where"] == "base" else f"{row['metric']} {row['where']}"
    if row["is_drift"]:
        return f"{name} worse by less than {_number(row, row['limit'])}"
    return f"{name} {'>' if is_better_high(row['metric']) else '<'} {_number(row, row['limit'])}"


def claims_table(claims: pl.DataFrame, title: str, notes: Sequence[str] = ()) -> Table:
    """Every claim with its bounds, its p-values and its verdict."""
    return Table.of(title, COLUMNS, claims.to_dicts(), notes=notes)


def claims_markdown(claims: pl.DataFrame, title: str, notes: Sequence[str]) -> str:
    """The claims as a summary for a pull request, the failed and the undecided first."""
    order = pl.col("word").replace_strict(
        {**dict.fromkeys(GOOD, 2), **dict.fromkeys(BAD, 0)}, default=1
    )
    table = claims_table(claims.sort(order, maintain_order=True), title, notes)
    return f"### {escape_markdown(title)}\n\n{markdown(table)}".rstrip() + "\n"


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
    for row in claims.to_dicts():
        about = {"classname": _clean(f"flipmeter.{_whose(row)}"), "name": _clean(claim_of(row))}
        case = ET.SubElement(suite, "testcase", about | {"time": "0"})
        verdict = _clean(_verdict(row))
        if row["word"] in GOOD and row["notes"]:
            ET.SubElement(case, "system-out").text = verdict
        if row["word"] not in GOOD:
            kind = "failure" if row["word"] in BAD else "error"
            told = ET.SubElement(case, kind, {"message": verdict, "type": row["word"]})
            cells = ((column.title, column.cell(row).text) for column in COLUMNS)
            told.text = _clean("\n".join(f"{head}: {text}" for head, text in cells if text))
    ET.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suites, "unicode") + "\n"


def _verdict(row: Record) -> str:
    """The verdict with its reason, and the items still needed."""
    reason = [row["note"]] if row["note"] else []
    why = reason + [note for note in row["notes"] if note not in "".join(reason)]
    is_told = row["metric"] in ("flips", "excess")  # its reason says so already
    if row["n_more"] and not is_told:
        why.append(f"about {counted(row['n_more'], 'more item')} would settle it")
    return f"{row['word']} ({'; '.join(why)})" if why else str(row["word"])


def _bounds(row: Record) -> str:
    low, high = (_number(row, row[end]) for end in ("low", "high"))
    return f"{low} to {high}" if low else f"at most {high}" if high else ""


def _whose(row: Record) -> str:
    return " · ".join(part for part in (row["rater"], row["dataset"], row["level"]) if part)


def _number(row: Record, value: float | None) -> str:
    return percent(value) if is_share(row["metric"]) else number(value)


COLUMNS = (
    Column("rater", _whose),
    Column("claim", claim_of),
    Column("observed", lambda row: _number(row, row["value"])),
    Column("95 % bounds", _bounds),
    Column("items", lambda row: str(row["n"])),
    Column("p", lambda row: p_value(row["p"])),
    Column("verdict", lambda row: word(row["word"], _verdict(row))),
)


def _clean(text: str) -> str:
    """A text without characters that XML forbids."""
    return BEYOND_XML.sub("\ufffd", text)
