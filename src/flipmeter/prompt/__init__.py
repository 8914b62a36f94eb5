"""View -> Prompt: put a view of an item into words."""

from flipmeter.prompt import comparing, question  # noqa: F401 - add paradigms
from flipmeter.prompt.levels import (
    LabelFormat,
    clarities,
    connectors,
    factors,
    label_formats,
    moods,
    separators,
)
from flipmeter.prompt.pointwise import Write, paradigms, shows_places, unshown
from flipmeter.prompt.question import posing
from flipmeter.prompt.template import Template, read_template

__all__ = [
    "LabelFormat",
    "Template",
    "Write",
    "clarities",
    "connectors",
    "factors",
    "label_formats",
    "moods",
    "paradigms",
    "posing",
    "read_template",
    "separators",
    "shows_places",
    "unshown",
]
