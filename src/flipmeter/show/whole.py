"""Findings -> a file: the page, Markdown for a pull request, LaTeX, or all estimates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from flipmeter.errors import Problem
from flipmeter.show.estimate_tables import (
    WEIGHTED,
    intervals_of,
    items_text,
    phase0_latex,
    phase0_markdown,
    rate_text,
    shared_warnings,
    weighted_interval,
)
from flipmeter.show.findings import Findings
from flipmeter.show.format import Record, p_value, percent
from flipmeter.show.page import render_page
from flipmeter.show.residuals import residuals_latex, residuals_markdown
from flipmeter.show.section import added_sections
from flipmeter.show.sentences import reading_lines
from flipmeter.show.table import Column, Table, escape_markdown, markdown, write_table
from flipmeter.types import JUDGED, UNFINISHED

ENDINGS = (".html", ".md", ".tex", ".csv", ".parquet")


def write_report(found: Findings, path: Path) -> None:
    """Write a report, in the form that the file's ending names."""
    check_ending(path)
    texts = {
        ".html": lambda _: render_page(found),
        ".md": lambda _: report_markdown(found),
        ".tex": lambda _: report_latex(found),
    }
    write_table(found.estimates, path, texts, "use another file with --out")


def check_ending(path: Path) -> None:
    """Refuse a file whose form is not known, before anything is computed."""
    if path.suffix not in ENDINGS:
        known = f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
        raise Problem(f"cannot write {path}: the name must end in {known}")


# --- Markdown ---------------------------------------------------------------------------------


def report_markdown(found: Findings) -> str:
    """Verdicts, warnings and the tables, short enough for a pull request."""
    return "\n".join(_markdown(found)) + "\n"


def _markdown(found: Findings) -> Iterator[str]:
    yield f"## {escape_markdown(found.name)}\n"
    if found.stopped:
        yield f"**Incomplete, {UNFINISHED}:** {escape_markdown(found.stopped)}\n"
    for sentence in found.sentences:
        yield f"- **{sentence.word}**: {escape_markdown(str(sentence))}"
    yield ""
    for line in found.beside:
        yield f"> {escape_markdown(line)}\n"
    for names, warning in shared_warnings(found.warnings).items():
        yield f"> {escape_markdown(names)}: {escape_markdown(warning)}\n"
    for line in (*found.notes, *reading_lines(found.estimates.filter(level=""))):
        yield f"- {escape_markdown(line)}"
    yield ""
    yield markdown(_contrast_table(found))
    yield ""
    yield phase0_markdown(found.phase0)
    yield (
        f"\nMode {found.mode}. First table: readable pairs, an item counts once with its "
        "seeds and repeats; p: exact randomisation test. Second table: complete pairs of every "
        f"seed, {intervals_of(found.mode)}; p is McNemar's against the noise floor."
    )
    if found.residuals is not None:
        yield f"\n{residuals_markdown(found.residuals)}"
    for section in added_sections(found):
        yield section.markdown


def _contrast_table(found: Findings) -> Table:
    abouts = {contrast.name: contrast.about for contrast in found.contrasts}
    has_weights = found.verdicts["weighted"].count() > 0

    def rate(row: Record) -> str:
        return rate_text(row) if row["value"] is not None else row["reason"]

    def if_measured(show: Callable[[Record], str]) -> Callable[[Record], str]:
        return lambda row: show(row) if row["status"] in JUDGED else ""

    columns: tuple[Column | str, ...] = (
        Column("model", lambda row: row["rater"]),
        "dataset",
        Column("contrast", lambda row: f"{row['contrast']} {abouts.get(row['contrast'], '')}"),
        Column("flips [95 %]", rate),
        *([Column(WEIGHTED, weighted_interval)] if has_weights else []),
        Column("items", if_measured(items_text)),
        Column("unreadable", if_measured(lambda row: percent(row["unreadable"] or 0))),
        Column("p", lambda row: p_value(row["p"])),
        Column("verdict", if_measured(lambda row: row["word"])),
    )
    return Table.of("", columns, found.verdicts.filter(level="").to_dicts())


# --- LaTeX ------------------------------------------------------------------------------------


def report_latex(found: Findings) -> str:
    """The first table with booktabs, flip rates shaded by size; residuals after it."""
    lines = [f"% {' '.join(str(sentence).split())}" for sentence in found.sentences]
    lines += [f"% {' '.join(line.split())}" for line in found.beside]
    warnings = {who: "; ".join(map(str, told)) for who, told in found.warnings.items()}
    lines += [f"% {' '.join(f'{who}: {what}'.split())}" for who, what in warnings.items()]
    lines += (
        [f"% Incomplete, {UNFINISHED}: {' '.join(found.stopped.split())}"] if found.stopped else []
    )
    lines += [
        phase0_latex(found.phase0),
        f"% mode: {found.mode}; complete pairs, {intervals_of(found.mode)}; p: McNemar's",
        "",
    ]
    if found.residuals is not None:
        lines += [r"\medskip", residuals_latex(found.residuals)]
    return "\n".join(lines)
