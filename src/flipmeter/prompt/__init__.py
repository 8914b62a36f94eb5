"""View -> Prompt: put a view of an item into words."""

from flipmeter.prompt.levels import (
    clarities,
    connectors,
    factors,
    label_formats,
    moods,
    separators,
)
from flipmeter.prompt.pointwise import Write, paradigms, render

__all__ = [
    "Write",
    "clarities",
    "connectors",
    "factors",
    "label_formats",
    "moods",
    "paradigms",
    "render",
    "separators",
]
