"""View -> Prompt: put a view of an item into words."""

from flipmeter.prompt.comparing import class_groups, listed, plural
from flipmeter.prompt.levels import (
    LabelFormat,
    Mood,
    Shown,
    clarities,
    connectors,
    factors,
    label_formats,
    moods,
    separators,
)
from flipmeter.prompt.pointwise import Write, paradigms, render, unshown
from flipmeter.prompt.question import question
from flipmeter.prompt.template import Template, read_template

__all__ = [
    "LabelFormat",
    "Mood",
    "Shown",
    "Template",
    "Write",
    "clarities",
    "class_groups",
    "connectors",
    "factors",
    "label_formats",
    "listed",
    "moods",
    "paradigms",
    "plural",
    "question",
    "read_template",
    "render",
    "separators",
    "unshown",
]
