"""Findings -> the filters over flipped items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flipmeter.report.findings import Findings

TITLES = {
    "rater": "Model",
    "dataset": "Dataset",
    "level": "Level",
    "contrast": "Contrast",
    "towards": "Direction",
    "distance": "Distance",
    "fault": "Fault",
}
NAMELESS = {"level": "base", "fault": "none"}
"""How what has no name is called."""


@dataclass(frozen=True)
class FilterMenu:
    """A filter over the flipped items: the name of its attribute and the values there are."""

    title: str
    attribute: str
    values: Sequence[str]


def choices(found: Findings) -> list[FilterMenu]:
    """Return the filters that would leave something out, with what each may be set to."""
    flips = found.browser.flips
    return [choice(name, [getattr(flip, name) for flip in flips]) for name in TITLES]


def choice(attribute: str, values: Iterable[object]) -> FilterMenu:
    """Return the filter over some values; an empty one that has no name is left out."""
    called = (str(value or NAMELESS.get(attribute, "")) for value in values)
    distinct = [value for value in dict.fromkeys(called) if value]
    if attribute == "distance":
        distinct.sort(key=int)
    return FilterMenu(TITLES[attribute], attribute, distinct)
