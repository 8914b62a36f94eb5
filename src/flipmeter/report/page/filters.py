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
"""The label of an empty value."""


def whole(contrast: str) -> str:
    """The contrast that a pair of views is of: P7 for "P7:rotated-1"."""
    return contrast.partition(":")[0]


def is_of(name: str, contrast: str) -> bool:
    """Whether a pair of views is what a filter by contrast names, or part of it."""
    return contrast in (name, whole(name))


@dataclass(frozen=True)
class FilterMenu:
    """A filter over the flipped items: the name of its attribute and the values there are."""

    title: str
    attribute: str
    values: Sequence[str]


def choices(found: Findings) -> list[FilterMenu]:
    """The filters that would hide something, with the choices of each."""
    flips = found.browser.flips
    return [choice(name, [getattr(flip, name) for flip in flips]) for name in TITLES]


def choice(attribute: str, values: Iterable[object]) -> FilterMenu:
    """The filter over some values; an empty one that has no name is left out."""
    called = (str(value or NAMELESS.get(attribute, "")) for value in values)
    distinct = [value for value in dict.fromkeys(called) if value]
    if attribute == "contrast":
        # Pairs of views of one contrast ("P7:rotated-1") can be asked for together.
        distinct = list(dict.fromkeys(part for name in distinct for part in (whole(name), name)))
    if attribute == "distance":
        distinct.sort(key=float)
    return FilterMenu(TITLES[attribute], attribute, distinct)
