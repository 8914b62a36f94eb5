"""View -> Question: what a callable is asked, as JSON instead of words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flipmeter.prompt.levels import listed_labels
from flipmeter.prompt.placed_fields import by_size, offer, offered
from flipmeter.prompt.pointwise import Write, kind_of, label_of, paradigms
from flipmeter.types import Example, Item, Prompt, Question, Style, Task, View


def question(task: Task, style: Style, view: View, demos: Sequence[Item]) -> Write:
    """The renderer of items under a view: fields, labels and demonstrations."""
    examples = tuple(
        Example(dict(demo.fields), label_of(task, style, view, demo)) for demo in demos
    )
    kind = kind_of(task, style, has_demos=bool(demos))

    def for_size(size: int | None) -> Callable[[Item], Prompt]:
        shown = offer(task, style.label_format, offered(task, view.label_order, size))
        span = task.scale.span
        ends = None if span is None else (span.low, span.high)
        shared = Question({}, listed_labels(shown), examples, view.placement, span=ends)
        return lambda item: Prompt(
            shared.script(item.fields), shown.answers, shown.ranks, kind, span
        )

    find = by_size(task.places, for_size)
    return lambda item, part: find(item)(item)


paradigms.add("question", question)
