"""Findings -> sections: the parts of a report by name; those of plug-ins are tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import polars as pl

from flipmeter.registry import Registry
from flipmeter.show.findings import Findings
from flipmeter.show.format import number
from flipmeter.show.table import Cell, Group, Table, escape_markdown, markdown

Show = Callable[[Findings], pl.DataFrame | None]


@dataclass(frozen=True)
class Section:
    """A part of a report; `about` says in a line what it shows and how its numbers are made.

    `table` returns a frame whose columns are the heads, or None where there is nothing to show. It
    appears on the page, in Markdown and in the terminal. Sections without one are laid out by the
    page itself, where `is_shown`.
    """

    title: str
    about: str
    table: Show | None = None
    is_shown: Callable[[Findings], bool] = lambda found: True


sections: Registry[Section] = Registry("report section")
sections.add("verdict", Section("Verdict", "the answer, every verdict, and what to do next"))
sections.add("flips", Section("Flips against noise", "every contrast with its interval and noise"))
sections.add("accuracy", Section("Accuracy and stability", "scores of every view"))
sections.add(
    "levels",
    Section(
        "Change by level",
        "levels and models minus the base, in points",
        is_shown=lambda found: found.residuals is not None,
    ),
)
sections.add("where", Section("Where flips go", "classes exchanged, and slots preferred"))
sections.add("faults", Section("Faults and tokens", "unreadable replies and tokens by condition"))
sections.add("items", Section("Flipped items", "single items with their prompts and replies"))
sections.add("method", Section("Method", "how each kind of number is computed"))
sections.add("origin", Section("Provenance", "models, data, versions and the study"))
sections.add(
    "table",
    Section(
        "In the paper's form",
        "flip rates by seed with McNemar's test against noise",
        is_shown=lambda found: found.has_phase0,
    ),
)
LAST = ("method", "origin", "table")
"""Sections that come after those of plug-ins."""


@dataclass(frozen=True)
class FilledSection:
    """A section of a plug-in, filled."""

    name: str
    section: Section
    frame: pl.DataFrame

    @property
    def table(self) -> Table:
        rows = [[Cell(_section_value(value), value) for value in row] for row in self.frame.rows()]
        about = self.section.about
        return Table(self.section.title, self.frame.columns, [Group(rows)], [about])

    @property
    def markdown(self) -> str:
        title, about = escape_markdown(self.section.title), escape_markdown(self.section.about)
        return f"\n### {title}\n\n{markdown(replace(self.table, notes=()))}\n\n{about}"

    @property
    def text(self) -> Table:
        """The section as a table of the terminal."""
        return replace(self.table, caption=self.section.about)


def contents(found: Findings) -> list[tuple[str, str]]:
    """The sections of a page in their order: the id of each and its title."""
    own = [(name, one) for name, one in sections.items() if one.table is None]
    names = [(name, one.title) for name, one in own if one.is_shown(found)]
    added = [(one.name, one.section.title) for one in added_sections(found)]
    last = [pair for pair in names if pair[0] in LAST]
    return [pair for pair in names if pair not in last] + added + last


def has_added() -> bool:
    """Whether a plug-in adds a section."""
    return any(one.table is not None for _, one in sections.items())


def added_sections(found: Findings) -> Iterator[FilledSection]:
    """The sections of plug-ins that have something to show."""
    for name, section in sections.items():
        if (
            section.table is not None
            and (frame := _fill_section(name, section.table, found)) is not None
        ):
            yield FilledSection(name, section, frame)


def _fill_section(name: str, table: Show, found: Findings) -> pl.DataFrame | None:
    with sections.using(name):
        return table(found)


def _section_value(value: object) -> str:
    if value is None:
        return ""
    return number(value) if isinstance(value, float) else str(value)
