"""A report section: how often each class was given, by rater and view."""

import polars as pl

from flipmeter.show.findings import Findings
from flipmeter.show.section import Section, sections


def classes_given(found: Findings) -> pl.DataFrame:
    """Counts of the classes given, unreadable answers left out."""
    read = found.decisions.filter(pl.col("rank") > 0)
    counts = read.group_by("rater", "view", "rank", maintain_order=True).len("items")
    return counts.sort("rater", "view", "rank")


sections.add(
    "classes_given",
    Section(
        "Classes given", "items of every class by view; unreadable ones left out", classes_given
    ),
)
