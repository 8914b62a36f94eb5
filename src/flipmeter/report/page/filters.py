"""Findings -> the filters over flipped items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flipmeter.report.findings import Findings
from flipmeter.report.format import visible

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
class Menu:
    """A choice over a list: its name in addresses, and the values with what they are called."""

    name: str
    title: str
    options: Sequence[tuple[str, str]]
    chosen: str = ""
    every: str = "all"

    @classmethod
    def of(cls, name: str, values: Iterable[str], chosen: str = "", **more: str) -> Menu:
        """A menu of a filter, whose values are their own names."""
        return cls(name, TITLES[name], [(one, one) for one in values], chosen, **more)

    @property
    def is_shown(self) -> bool:
        """Whether a choice would hide something, or has."""
        return len(self.options) > 1 or bool(self.chosen)


def choices(found: Findings) -> list[Menu]:
    """The filters over the flips of a page that would hide something."""
    flips = found.browser.flips
    named = ((name, values_of(name, (getattr(flip, name) for flip in flips))) for name in TITLES)
    menus = [Menu.of(name, map(visible, every)) for name, every in named]
    return [menu for menu in menus if menu.is_shown]


def values_of(attribute: str, every: Iterable[object]) -> list[str]:
    """The values to filter by, each once; an empty one that has no name is left out."""
    called = (str(value or NAMELESS.get(attribute, "")) for value in every)
    distinct = [value for value in dict.fromkeys(called) if value]
    if attribute == "contrast":
        # Pairs of views of one contrast ("P7:rotated-1") can be asked for together.
        distinct = list(dict.fromkeys(part for name in distinct for part in (whole(name), name)))
    if attribute == "distance":
        distinct.sort(key=float)
    return distinct
