"""The pointwise prompt: a header, the demonstrations, and one query."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flipmeter.prompt.judge import by_size, mood_of, offer, shown_fields
from flipmeter.prompt.levels import (
    HeaderParts,
    clarities,
    connectors,
    label_formats,
    moods,
    separators,
)
from flipmeter.prompt.template import fill, read_template
from flipmeter.registry import Registry
from flipmeter.types import Head, Item, LabelKind, Prompt, Script, Style, Task, View

Write = Callable[[Item, str], Prompt]
"""Put one part of one item into words."""

Paradigm = Callable[[Task, Style, View, Sequence[Item]], Write]
"""Prepare what all items of a condition share; demonstrations come in the order to be shown."""

paradigms: Registry[Paradigm] = Registry("paradigm")

FIELD = "Label"
REASONS = "Reasoning"
"""The end of a query that asks for reasoning before the label."""
BREAK = "\n\n"


def pointwise(task: Task, style: Style, view: View, demos: Sequence[Item]) -> Write:
    """The renderer of items under a view: header, demonstrations and one query."""
    labels = [label_of(task, style, view, demo) for demo in demos]
    return with_labels(
        task, style, view, demos, lambda shown: _script_writer(style, view, shown, demos, labels)
    )


def with_labels(
    task: Task,
    style: Style,
    view: View,
    demos: Sequence[Item],
    scripts: Callable[[HeaderParts], Callable[[Item], Script]],
) -> Write:
    """The renderer of items that are asked for a label, by the writer for the labels offered."""
    kind = kind_of(task, style, has_demos=bool(demos))

    def for_size(size: int | None) -> Callable[[Item], Prompt]:
        shown = offer(task, style.label_format, view.label_order, size)
        script = scripts(shown)
        return lambda item: Prompt(script(item), shown.answers, shown.ranks, kind, task.scale.span)

    find = by_size(task.places, for_size)
    return lambda item, part: find(item)(item)


def _script_writer(
    style: Style, view: View, shown: HeaderParts, demos: Sequence[Item], labels: Sequence[str]
) -> Callable[[Item], Script]:
    """The writer of the messages about an item: a prompt file's, or the built-in one."""
    if style.prompt:
        return fill(read_template(style.prompt), shown, style, view, demos, labels).script
    task = shown.task
    header = "\n".join(
        clarities[style.clarity](shown, mood_of(task, moods[style.mood], style.mood))
    )
    blocks = [
        _item_block(task, style, demo, label) for demo, label in zip(demos, labels, strict=True)
    ]
    n_before = {"before": len(blocks), "after": 0, "split": len(blocks) // 2}[view.placement]
    # The head ends before the blank line, never after it: a tokenizer that joins the blank line
    # with what follows would end the shared part in other tokens than the whole prompt has there.
    head = Head(start=BREAK.join([header, *blocks[:n_before]]))
    after = blocks[n_before:]

    def script(item: Item) -> Script:
        query = _item_block(task, style, item, "")
        rest = [query, *after]
        if after and style.layout == "cued":
            rest.append(query)  # asked again, so that the prompt ends where an answer belongs
        return Script(head, BREAK + BREAK.join(rest))

    return script


paradigms.add("pointwise", pointwise)


def render(task: Task, style: Style, view: View, demos: Sequence[Item], item: Item) -> Prompt:
    """Put one item under one view into words."""
    return pointwise(task, style, view, demos)(item, "")


def unshown(style: Style, task: Task) -> frozenset[str]:
    """The probes that have no place in the prompts of a style and task."""
    lists_nothing = task.scale.span is not None
    if style.prompt:
        unshown = read_template(style.prompt).unshown
    else:
        unshown = frozenset({"criterion_order", "system_user"})
        lists_nothing |= task.places is not None and task.places.kind == "options"
    return unshown | {"label_order"} if lists_nothing else unshown


def shows_places(style: Style, task: Task) -> bool:
    """Say whether prompts of a style show the fields of a task that may change places."""
    if task.places is None or not style.prompt:
        return task.places is not None
    return read_template(style.prompt).shows_places(task.places)


def _item_block(task: Task, style: Style, item: Item, label: str) -> str:
    separator, connector = separators[style.separator], connectors[style.connector]
    fields = shown_fields(task, style.label_format, item)
    shown = connector.join(f"{head}{separator}{text}" for head, text in fields)
    if label:
        return f"{shown}{connector}{FIELD}{separator}{label}"
    wanted = REASONS if style.clarity == "reasoned" else FIELD
    return f"{shown}{connector}{wanted}{separator}".rstrip()


def kind_of(task: Task, style: Style, *, has_demos: bool) -> LabelKind:
    """Say what the labels are; without demonstrations there is no word to flip.

    A label that names a place of the item keeps its meaning wherever it is listed, as a word does.
    """
    if task.scale.span is not None:
        return "numbers"
    if task.places is not None:
        return "words"
    if not label_formats[style.label_format].is_words:
        return "identifiers"
    return "flipped words" if style.word_reversal == "flipped" and has_demos else "words"


def label_of(task: Task, style: Style, view: View, demo: Item) -> str:
    """The label under a demonstration, whose own fields are never exchanged."""
    if task.scale.span is not None:
        return task.scale.name(demo.rank)
    form = label_formats[style.label_format]
    if form.is_words and style.word_reversal == "flipped" and task.places is None:
        return form.answers(task.scale, (view.label_order[demo.rank - 1],))[0]
    shown = offer(task, style.label_format, view.label_order)
    return shown.answers[view.slot_of(demo.rank) - 1]
