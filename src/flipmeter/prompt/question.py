"""View -> Question: what a callable is asked, as JSON instead of words."""

from __future__ import annotations

from collections.abc import Sequence

from flipmeter.prompt.levels import label_formats
from flipmeter.prompt.pointwise import Write, kind_of, label_of, paradigms
from flipmeter.types import (
    Example,
    Item,
    Label,
    Prompt,
    Question,
    Style,
    Task,
    View,
)


def question(task: Task, style: Style, view: View, demos: Sequence[Item]) -> Write:
    """Return what puts an item under a view: its fields, the labels and the demonstrations."""
    ranks = view.label_order
    answers = label_formats[style.label_format].answers(task.scale, ranks)
    labels = tuple(
        Label(slot, text, task.scale.name(rank), rank)
        for slot, (text, rank) in enumerate(zip(answers, ranks, strict=True), 1)
    )
    shown = tuple(
        Example(dict(demo.fields), label_of(task, style, view, answers, demo)) for demo in demos
    )
    kind = kind_of(style, has_demos=bool(demos))
    shared = Question({}, labels, shown, view.placement)

    def write(item: Item, part: str) -> Prompt:
        return Prompt(shared.script(item.fields), answers, ranks, kind)

    return write


paradigms.add("question", question)
