"""Findings -> the filters over flipped items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flipmeter.report.content import Findings


@dataclass(frozen=True)
class Choice:
    """A filter over the flipped items: the name of its attribute and the values there are."""

    title: str
    attribute: str
    values: Sequence[str]


def choices(found: Findings) -> list[Choice]:
    """Return the filters that would leave something out, with what each may be set to."""
    flips = found.browser.flips
    columns: list[tuple[str, str, list[str]]] = [
        ("Model", "rater", [flip.rater for flip in flips]),
        ("Dataset", "dataset", [flip.dataset for flip in flips]),
        ("Level", "level", [flip.level or "base" for flip in flips]),
        ("Contrast", "contrast", [flip.contrast for flip in flips]),
        ("Direction", "towards", [flip.towards for flip in flips]),
        ("Distance", "distance", [str(flip.distance or "") for flip in flips]),
        ("Fault", "fault", [flip.fault or "none" for flip in flips]),
    ]
    found_choices = []
    for title, attribute, values in columns:
        distinct = [value for value in dict.fromkeys(values) if value]
        if attribute == "distance":
            distinct.sort(key=int)
        found_choices.append(Choice(title, attribute, distinct))
    return found_choices
