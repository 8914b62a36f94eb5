"""PaperAnswer, errata -> terminal, page and files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import fill

from markupsafe import Markup
from rich.console import RenderableType
from rich.text import Text

from flipmeter import __version__
from flipmeter.files import inside, make_folder, write_output
from flipmeter.paper.answer import PaperAnswer
from flipmeter.paper.claims import paper_claims
from flipmeter.paper.errata import ShownErratum
from flipmeter.paper.sheets import sheet_table, write_sheets
from flipmeter.show.page import asset, content_policy, environment
from flipmeter.show.table import (
    Cell,
    Group,
    Table,
    escape_markdown,
    groups_of,
    markdown,
    markdown_table,
    word,
)

HEADS = ("claim", "rater", "here", "why")


def claims_tables(answer: PaperAnswer) -> Iterator[RenderableType]:
    """Every claim with its word for every rater, for a terminal."""
    rows: Iterator[list[list[str | Cell]]] = (
        [[f"{name}\n{paper_claims[name].says}", rater, word(one.word, one.told), one.reason]]
        for name, rater, one in answer.decided
    )
    yield Table("The paper's claims, and the findings here", HEADS, groups_of(*rows))
    yield from map(Text, answer.summaries)
    yield from (Text(f"! {note}") for note in answer.notes)


def words_markdown(answer: PaperAnswer) -> str:
    """A claim in each row and a rater in each column, in Markdown."""
    rows = [[f"{name}: {paper_claims[name].says}", *told] for name, told in answer.words.items()]
    return markdown_table([["claim", *answer.evidence.raters], *rows])


def claims_markdown(answer: PaperAnswer) -> str:
    """The claims as tables in Markdown: the words, and the reasons."""
    reasons = [[name, rater, one.told, one.reason] for name, rater, one in answer.decided]
    notes = "".join(f"- {escape_markdown(note)}\n" for note in answer.notes)
    return "\n\n".join([words_markdown(answer), markdown_table([HEADS, *reasons]), notes])


def claims_grid(answer: PaperAnswer) -> Table:
    """A claim in each row and a rater in each column, for a page."""
    rows = [
        [
            Cell(f"{paper_claims[name].says} ({name}; {paper_claims[name].where})", name),
            *map(word, told),
        ]
        for name, told in answer.words.items()
    ]
    return Table("Claims", ["claim", *answer.evidence.raters], [Group(rows)])


def reasons_grid(answer: PaperAnswer) -> Table:
    """The numbers behind every word, for a page."""
    rows = [
        [
            Cell(name, name),
            Cell(rater, rater),
            word(decided.told),
            Cell(decided.reason, kind="why"),
        ]
        for name, rater, decided in answer.decided
    ]
    notes = ["5 points are the least that counts as a change; intervals are 95 %"]
    return Table("Reasons", HEADS, [Group(rows)], notes, is_detail=True)


def answer_page(answer: PaperAnswer) -> str:
    """One self-contained page: claims, every table, and what is missing."""
    style, script = asset("page.css"), asset("page.js")
    tables = map(sheet_table, answer.sheets)
    grids = [claims_grid(answer), reasons_grid(answer), *tables]
    filled = environment(__package__).get_template("answer.html")
    return filled.render(
        policy=content_policy([style], [script]),
        style=Markup(style),
        scripts=[Markup(script)],
        raters=", ".join(answer.evidence.raters) or "no rater",
        summaries=list(answer.summaries),
        notes=answer.notes,
        grids=grids,
        version=__version__,
    )


def write_answer(answer: PaperAnswer, folder: Path) -> Path:
    """Write the page, the claims and the folder of tables; the path of the page."""
    make_folder(folder)
    write_sheets(answer.sheets, inside(folder / "tables", folder))
    write_output(folder / "claims.md", claims_markdown(answer))
    write_output(folder / "claims.json", json.dumps(answer.records(), ensure_ascii=False, indent=1))
    page = folder / "paper.html"
    write_output(page, answer_page(answer))
    return page


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
    yield _erratum_table(shown)
    yield Text(f"Instead: {about.remedy}")


def errata_markdown(errata: Iterable[ShownErratum]) -> str:
    """All errata as one page."""
    return "\n".join([INTRODUCTION, *(_erratum_section(one) for one in errata)])


def _erratum_section(shown: ShownErratum) -> str:
    about = shown.erratum
    rule, remedy = fill(about.rule, WIDTH), fill(f"**Instead**: {about.remedy}", WIDTH)
    table = markdown(_erratum_table(shown))
    return f"## {about.title}\n\n`{shown.name}` · {about.where}\n\n{rule}\n\n{table}\n\n{remedy}\n"


def _erratum_table(shown: ShownErratum) -> Table:
    return Table("", HEAD, groups_of(row.texts() for row in shown.rows))
