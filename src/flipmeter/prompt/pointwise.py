"""The pointwise prompt: a header, the demonstrations, and one query."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
BREAK = "\n\n"


def pointwise(task: Task, style: Style, view: View, demos: Sequence[Item]) -> Write:
    """Return what puts an item under a view: the header, the demonstrations and one query."""
    form, ranks = label_formats[style.label_format], view.label_order
    answers = form.answers(task.scale, ranks)
    shown = HeaderParts(task, answers, ranks, form.listing(task.scale, ranks), form.is_words)
    labels = [label_of(task, style, view, answers, demo) for demo in demos]
    kind = kind_of(style, has_demos=bool(demos))
    if style.prompt:
        own = fill(read_template(style.prompt), shown, view, demos, labels)
        return lambda item, part: Prompt(own.script(item), answers, ranks, kind)
    header = "\n".join(clarities[style.clarity](shown, moods[style.mood]))
    blocks = [
        _block(task, style, demo.text, label) for demo, label in zip(demos, labels, strict=True)
    ]
    n_before = {"before": len(blocks), "after": 0, "split": len(blocks) // 2}[view.placement]
    # The head ends before the blank line, never after it: a tokenizer that joins the blank line
    # with what follows would end the shared part in other tokens than the whole prompt has there.
    head = Head(start=BREAK.join([header, *blocks[:n_before]]))
    after = blocks[n_before:]

    def write(item: Item, part: str = "") -> Prompt:
        query = _block(task, style, item.text, "")
        rest = [query, *after]
        if after and style.layout == "cued":
            rest.append(query)  # asked again, so that the prompt ends where an answer belongs
        return Prompt(Script(head, BREAK + BREAK.join(rest)), answers, ranks, kind)

    return write


paradigms.add("pointwise", pointwise)


def render(task: Task, style: Style, view: View, demos: Sequence[Item], item: Item) -> Prompt:
    """Put one item under one view into words."""
    return pointwise(task, style, view, demos)(item, "")


def unshown(style: Style) -> frozenset[str]:
    """Return the probes that prompts of a style have no place for."""
    if not style.prompt:
        return frozenset({"criterion_order", "system_user"})
    return read_template(style.prompt).unshown


def _block(task: Task, style: Style, text: str, label: str) -> str:
    separator, connector = separators[style.separator], connectors[style.connector]
    block = f"{task.noun}{separator}{text}{connector}{FIELD}{separator}{label}"
    return block if label else block.rstrip()


def kind_of(style: Style, *, has_demos: bool) -> LabelKind:
    """Say what the labels are; without demonstrations there is no word to flip."""
    if not label_formats[style.label_format].is_words:
        return "identifiers"
    return "flipped words" if style.word_reversal == "flipped" and has_demos else "words"


def label_of(task: Task, style: Style, view: View, answers: tuple[str, ...], demo: Item) -> str:
    if label_formats[style.label_format].is_words and style.word_reversal == "flipped":
        return task.scale.name(view.label_order[demo.rank - 1])
    return answers[view.slot_of(demo.rank) - 1]
