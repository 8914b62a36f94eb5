"""Gates and selections -> tables for people, Markdown for pull requests, JUnit for machines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree as ET

import polars as pl
from rich.console import RenderableType

from flipmeter.choose.select import Selection, shown_candidate, shown_limits
from flipmeter.show.format import (
    Record,
    count,
    counted,
    interval,
    number,
    p_value,
    percent,
    whole_percent,
)
from flipmeter.show.table import Column, Table, escape_markdown, groups_of, markdown, word
from flipmeter.stats.front import Standing
from flipmeter.stats.held_out import HeldOut
from flipmeter.stats.metrics import is_better_high, is_share
from flipmeter.stats.resampling import RESAMPLES

GOOD, BAD = ("stable", "met"), ("flips", "unreadable", "missed")
BEYOND_XML = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def claim_of(row: Record) -> str:
    """The claim in short."""
    name = row["metric"] if row["where"] == "base" else f"{row['metric']} {row['where']}"
    if row["is_drift"]:
        return f"{name} worse by less than {_claim_number(row, row['limit'])}"
    return (
        f"{name} {'>' if is_better_high(row['metric']) else '<'} {_claim_number(row, row['limit'])}"
    )


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
    suite = ET.SubElement(
        suites, "testsuite", {"name": _strip_xml_forbidden(name), **counts, "skipped": "0"}
    )
    for row in claims.to_dicts():
        about = {
            "classname": _strip_xml_forbidden(f"flipmeter.{_claim_group_title(row)}"),
            "name": _strip_xml_forbidden(claim_of(row)),
        }
        case = ET.SubElement(suite, "testcase", about | {"time": "0"})
        verdict = _strip_xml_forbidden(_claim_verdict(row))
        if row["word"] in GOOD and row["notes"]:
            ET.SubElement(case, "system-out").text = verdict
        if row["word"] not in GOOD:
            kind = "failure" if row["word"] in BAD else "error"
            told = ET.SubElement(case, kind, {"message": verdict, "type": row["word"]})
            cells = ((column.title, column.cell(row).text) for column in COLUMNS)
            told.text = _strip_xml_forbidden(
                "\n".join(f"{head}: {text}" for head, text in cells if text)
            )
    ET.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suites, "unicode") + "\n"


def _claim_verdict(row: Record) -> str:
    """The verdict with its reason, and the items still needed."""
    reason = [row["note"]] if row["note"] else []
    why = reason + [note for note in row["notes"] if note not in "".join(reason)]
    is_told = row["metric"] in ("flips", "excess")  # its reason says so already
    if row["n_more"] and not is_told:
        why.append(f"about {counted(row['n_more'], 'more item')} would settle it")
    return f"{row['word']} ({'; '.join(why)})" if why else str(row["word"])


def _claim_bounds(row: Record) -> str:
    low, high = (_claim_number(row, row[end]) for end in ("low", "high"))
    return f"{low} to {high}" if low else f"at most {high}" if high else ""


def _claim_group_title(row: Record) -> str:
    return " · ".join(part for part in (row["rater"], row["dataset"], row["level"]) if part)


def _claim_number(row: Record, value: float | None) -> str:
    return percent(value) if is_share(row["metric"]) else number(value)


COLUMNS = (
    Column("rater", _claim_group_title),
    Column("claim", claim_of),
    Column("observed", lambda row: _claim_number(row, row["value"])),
    Column("95 % bounds", _claim_bounds),
    Column("items", lambda row: str(row["n"])),
    Column("p", lambda row: p_value(row["p"])),
    Column("verdict", lambda row: word(row["word"], _claim_verdict(row))),
)


def _strip_xml_forbidden(text: str) -> str:
    """A text without characters that XML forbids."""
    return BEYOND_XML.sub("\ufffd", text)


NOTHING = "-"


def selection_tables(found: Selection, *, show_all: bool = False) -> Iterator[RenderableType]:
    """The configurations on the front, or all of them, and what is chosen."""
    yield _selection_table(found, show_all=show_all)
    yield from _selection_lines(found)


def _selection_table(found: Selection, *, show_all: bool) -> Table:
    shown = found.standings if show_all else found.front
    if found.chosen is not None and found.chosen not in shown:
        shown = [*shown, found.chosen]
    costs = found.cost if found.cost != "none" else "cost"
    numbers = [*(f"{name} flips" for name in found.field.contrasts), costs, "on front", "chosen"]
    columns = ["", "configuration", f"{found.by} [95 %]"]
    n = f"{len(found.front)} of {len(found.standings)} configurations"
    return Table(
        f"{found.dataset}, {found.field.n_items} items; Pareto front: {n}",
        [*columns, *(Column(name, align="right") for name in numbers)],
        groups_of([*_standing_cells(found, one)] for one in shown),
    )


def _standing_cells(found: Selection, one: Standing) -> Iterator[str]:
    yield "→" if one is found.chosen else ("" if one.is_on_front else "dominated")
    yield shown_candidate(one.candidate)
    yield str(one.score)
    yield from (percent(one.flips[name].value) or NOTHING for name in found.field.contrasts)
    yield number(one.cost, ".3g") if found.cost != "none" else NOTHING
    yield percent(one.chance_on_front, 0)
    yield percent(one.chance_chosen, 0)


def _selection_lines(found: Selection) -> Iterator[str]:
    """Yield what is chosen and what that is worth beside the naive numbers, and what to know."""
    n, limits = len(found.standings), shown_limits(found.limits)
    if found.chosen is None:
        yield f"no configuration is shown to have {limits} (95 %, over all {n} compared)"
        yield "  ask more items, compare fewer configurations, or raise the limit"
    else:
        yield f"chosen{f' ({limits})' if limits else ''}: {shown_candidate(found.chosen.candidate)}"
        yield f"  on all items, the best of {n}: {_score_and_flips(found, found.chosen)}"
    if found.held_out is not None:
        yield f"  on held-out items: {_score_and_flips(found, found.held_out)}"
        chosen = dict.fromkeys(shown_candidate(one) for one in found.held_out.chosen)
        yield f"  chosen on each half of the items: {'; '.join(chosen)}"
    elif found.limits and found.chosen is not None:
        yield "  half of the items is too few to show the limit: no held-out estimate"
    if n > 1:
        yield f"95 % intervals and limits hold for all {n} configurations together (simultaneous)"
    yield f"faults count as errors, not flips; chances are shares of {count(RESAMPLES)} resamples"
    yield from _unreadable_exclusions(found)
    if any(one.cannot_flip for one in found.standings):
        yield f"{NOTHING}: positions cannot vary there, so nothing can flip; counts as 0"
    if found.flip_proof:
        yield f"ruled out by construction in all of these: flips of {', '.join(found.flip_proof)}"
    if found.can_flip:
        yield f"left out, because they can flip: {', '.join(found.can_flip)}"
    if found.left_out:
        yield f"left out, on another scale or dataset: {', '.join(found.left_out)}"


def _unreadable_exclusions(found: Selection) -> Iterator[str]:
    """Yield the configurations that a limit leaves out because of what cannot be read."""
    for name in found.limits:
        failed = [one for one in found.standings if name in one.unreadable_in]
        if failed:
            shown = "; ".join(
                f"{shown_candidate(one.candidate)} {percent(one.unreadable[name])}"
                for one in failed
            )
            most = whole_percent(found.unreadable_limit)
            yield f"excluded, more than {most} of the pairs of {name} unreadable: {shown}"


def _score_and_flips(found: Selection, one: Standing | HeldOut) -> str:
    is_shown = isinstance(one, Standing) and one.is_allowed
    limits = found.limits if is_shown else {}
    flips = (
        f"{name} {interval(vars(flip), absent=NOTHING)}"
        + (f" (shown below {limits[name]:g})" if name in limits else "")
        for name, flip in one.flips.items()
    )
    return ", ".join([f"{found.by} {one.score}", *flips])
