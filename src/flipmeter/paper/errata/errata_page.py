"""Errata -> tables for a terminal, and a page in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import fill

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from flipmeter.paper.errata.erratum import ShownErratum
from flipmeter.report.table_files import markdown_table

HEAD = ("number", "in the paper", "an honest rater, by the paper's rule", "by the right rule")
WIDTH = 100
INTRODUCTION = """# Errata of the paper

What we think is wrong in "Are LLMs Positionally Consistent Ordinal Classifiers? A Systematic
Evaluation", each error with a small study that shows it. The raters are simulated, so their
preferences are known: unless a row says otherwise they prefer no position, and whatever the paper's
rule finds in them is the rule's own doing. This page is written by

    flipmeter paper --errata --out docs/errata.md

which needs no network, no model and less than a minute. What we do instead is described in
[method.md](method.md).
"""


def errata_tables(shown: ShownErratum) -> Iterator[RenderableType]:
    """One erratum for a terminal: its title, the rule, the numbers and the remedy."""
    about = shown.erratum
    yield Text(f"\n{about.title}", style="bold")
    yield Text(f"{shown.name} · {about.where}", style="dim")
    yield Text(about.rule)
    table = Table(*HEAD)
    for row in shown.rows:
        table.add_row(*map(Text, row.texts()))
    yield table
    yield Text(f"Instead: {about.remedy}")


def errata_markdown(errata: Iterable[ShownErratum]) -> str:
    """All errata as one page."""
    return "\n".join([INTRODUCTION, *(_section(one) for one in errata)])


def _section(shown: ShownErratum) -> str:
    about = shown.erratum
    table = markdown_table([HEAD, *(row.texts() for row in shown.rows)])
    rule, remedy = fill(about.rule, WIDTH), fill(f"**Instead**: {about.remedy}", WIDTH)
    return f"## {about.title}\n\n`{shown.name}` · {about.where}\n\n{rule}\n\n{table}\n\n{remedy}\n"
