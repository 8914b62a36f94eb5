"""The pointwise prompt: a header, the demonstrations, and one query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from flipmeter.prompt.levels import (
    Shown,
    clarities,
    connectors,
    label_formats,
    moods,
    separators,
)
from flipmeter.registry import Registry
from flipmeter.types import Head, Item, Prompt, Script, Style, Task, View

Render = Callable[[Task, Style, View, Sequence[Item], Item, str], Prompt]

paradigms: Registry[Render] = Registry("paradigm")

FIELD = "Label"
BREAK = "\n\n"


@dataclass(frozen=True)
class Frame:
    """What all items under one view share: the text before the query and the blocks after it."""

    answers: tuple[str, ...]
    head: Head
    after: tuple[str, ...]


def render(
    task: Task, style: Style, view: View, demos: Sequence[Item], item: Item, part: str = ""
) -> Prompt:
    """Put one item under one view into words; `demos` come in the order to be shown."""
    frame = _frame(task, style, view, tuple(demos))
    query = _block(task, style, item.text, "")
    rest = [query, *frame.after]
    if frame.after and style.layout == "cued":
        rest.append(query)  # asked again, so that the prompt ends where an answer belongs
    # The head ends before the blank line, never after it: a tokenizer that joins the blank line
    # with what follows would end the shared part in other tokens than the whole prompt has there.
    script = Script(frame.head, BREAK + BREAK.join(rest))
    return Prompt(script, frame.answers, view.label_order)


@lru_cache(maxsize=256)
def _frame(task: Task, style: Style, view: View, demos: tuple[Item, ...]) -> Frame:
    form, ranks = label_formats[style.label_format], view.label_order
    answers = form.answers(task.scale, ranks)
    shown = Shown(task, answers, ranks, form.listing(task.scale, ranks), form.is_words)
    header = "\n".join(clarities[style.clarity](shown, moods[style.mood]))
    labels = (_label(task, style, view, answers, demo) for demo in demos)
    blocks = tuple(
        _block(task, style, demo.text, label) for demo, label in zip(demos, labels, strict=True)
    )
    n_before = {"before": len(blocks), "after": 0, "split": len(blocks) // 2}[view.placement]
    head = Head(start=BREAK.join([header, *blocks[:n_before]]))
    return Frame(answers, head, blocks[n_before:])


paradigms.add("pointwise", render)


def _block(task: Task, style: Style, text: str, label: str) -> str:
    separator, connector = separators[style.separator], connectors[style.connector]
    block = f"{task.noun}{separator}{text}{connector}{FIELD}{separator}{label}"
    return block if label else block.rstrip()


def _label(task: Task, style: Style, view: View, answers: tuple[str, ...], demo: Item) -> str:
    assert demo.gold is not None, f"demonstration {demo.id} has no class"
    if label_formats[style.label_format].is_words and style.word_reversal == "flipped":
        return task.scale.name(view.label_order[demo.gold - 1])
    return answers[view.slot_of(demo.gold) - 1]
