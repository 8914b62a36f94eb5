"""Yes-no prompts: is an item above a cut of the scale, does a label fit it, is an option right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from itertools import zip_longest

from flipmeter.prompt.levels import connectors, separators, wordings
from flipmeter.prompt.placed_fields import shown_fields, unmoved_fields
from flipmeter.prompt.pointwise import BREAK, Write, paradigms
from flipmeter.types import Head, Item, Places, Prompt, Rank, Script, Style, Task, View

FIELD = "Answer"
YES, NO = "yes", "no"
IS, IS_NOT = 2, 1
"""Meanings of an answer, as ranks: the item is above the cut (or the label fits), or not."""

Put = Callable[[Rank, bool], str]
"""The question about a cut or a class, put upwards or downwards."""


def cumulative(task: Task, style: Style, view: View, demos: Sequence[Item]) -> Write:
    """Ask whether an item is above the cut below a class, without demonstrations."""
    return _yes_no(task, style, (), _about_cut(task, style), lambda rank, demo: demo >= rank)


def cumulative_shown(task: Task, style: Style, view: View, demos: Sequence[Item]) -> Write:
    """Ask about a cut behind demonstrations, each with its own answer, as many yes as no."""
    return _yes_no(task, style, demos, _about_cut(task, style), lambda rank, demo: demo >= rank)


def labelwise(task: Task, style: Style, view: View, demos: Sequence[Item]) -> Write:
    """Ask whether a label fits an item, or whether an option or answer that stands alone is right.

    Of what may change places a prompt shows one thing, so that there is no order to show it in.
    """
    if task.places is not None:
        return _alone(task, task.places, style)
    return _yes_no(task, style, (), _about_label(task), lambda rank, demo: demo == rank)


def labelwise_shown(task: Task, style: Style, view: View, demos: Sequence[Item]) -> Write:
    """Ask whether a label fits behind demonstrations, each with its own answer, balanced."""
    return _yes_no(task, style, demos, _about_label(task), lambda rank, demo: demo == rank)


for _paradigm in (cumulative, cumulative_shown, labelwise, labelwise_shown):
    paradigms.add(_paradigm.__name__, _paradigm)


def _about_cut(task: Task, style: Style) -> Put:
    wording, scale = wordings[style.wording], task.scale

    def put(rank: Rank, is_up: bool) -> str:
        ask = wording.up if is_up else wording.down
        return ask(task, scale.name(rank - 1), scale.name(rank))

    return put


def _about_label(task: Task) -> Put:
    def put(rank: Rank, is_up: bool) -> str:
        return f"Is '{task.scale.name(rank)}' the {'right' if is_up else 'wrong'} label?"

    return put


# --- the prompt -------------------------------------------------------------------------------


def _yes_no(
    task: Task,
    style: Style,
    demos: Sequence[Item],
    put: Put,
    is_yes: Callable[[Rank, Rank], bool],
) -> Write:
    """Put a question about an item; a part is such as `cut 2 up yes_first`."""
    header = f"Please perform {task.title} task."

    def text(item: Item) -> str:
        return _text(style, shown_fields(task, style.label_format, item))

    @cache
    def prepared(part: str) -> tuple[str, str]:
        """The text before and after an item."""
        rank, is_up, answers = read_part(part)
        ending = partial(_ending, style, put(rank, is_up), answers)
        shown = balanced(demos, lambda demo: is_yes(rank, demo.rank))
        said = (YES if is_yes(rank, demo.rank) == is_up else NO for demo in shown)
        blocks = [text(demo) + ending(answer) for demo, answer in zip(shown, said, strict=True)]
        return BREAK.join([header, *blocks, ""]), ending()

    def write(item: Item, part: str) -> Prompt:
        before, after = prepared(part)
        # The text stands in the head: the questions about an item share it.
        return _prompt(Head(start=before + text(item)), after, part)

    return write


def _prompt(head: Head, ending: str, part: str) -> Prompt:
    _, is_up, answers = read_part(part)
    ranks = tuple(IS if (answer == YES) == is_up else IS_NOT for answer in answers)
    return Prompt(Script(head, ending), answers, ranks, "yes or no")


def _text(style: Style, fields: Iterable[tuple[str, str]]) -> str:
    separator = separators[style.separator]
    return connectors[style.connector].join(f"{head}{separator}{text}" for head, text in fields)


def _ending(style: Style, question: str, answers: Sequence[str], answer: str = "") -> str:
    separator, connector = separators[style.separator], connectors[style.connector]
    asked = f"{question} {FIELD} {' or '.join(answers)}."
    return f"{connector}{asked}{connector}{FIELD}{separator}{answer}".rstrip()


def read_part(part: str) -> tuple[Rank, bool, tuple[str, str]]:
    """The class, whether the question is put upwards, and the answers in the order they have."""
    _, rank, polarity, order = part.split()
    return int(rank), polarity == "up", (YES, NO) if order == "yes_first" else (NO, YES)


def balanced(demos: Sequence[Item], is_yes: Callable[[Item], bool]) -> list[Item]:
    """As many demonstrations of either answer, in the order in which they come.

    Classes take turns, those next to the cut first, and texts of a class are sorted: which ones are
    shown depends neither on their order nor on the direction of the scale.
    """
    sides = [demo for demo in demos if is_yes(demo)], [demo for demo in demos if not is_yes(demo)]
    size = min(map(len, sides))
    chosen = (*_in_turn(*sides)[:size], *_in_turn(*sides[::-1])[:size])
    kept = {demo.id for demo in chosen}
    return [demo for demo in demos if demo.id in kept]


def _in_turn(side: Sequence[Item], other: Sequence[Item]) -> list[Item]:
    """One demonstration of each class at a time, the classes nearest to the other side first."""
    by_rank: dict[Rank, list[Item]] = {}
    for demo in sorted(side, key=lambda demo: demo.text):
        by_rank.setdefault(demo.rank, []).append(demo)
    apart = {rank: min((abs(rank - o.rank) for o in other), default=0) for rank in by_rank}
    near = sorted(by_rank, key=lambda rank: (apart[rank], by_rank[rank][0].text))
    rounds = zip_longest(*(by_rank[rank] for rank in near))
    return [demo for one in rounds for demo in one if demo is not None]


# --- one option or answer at a time -----------------------------------------------------------


def _alone(task: Task, places: Places, style: Style) -> Write:
    """Show one of the fields that may change places, and ask whether it is right, or good."""
    noun = places.noun.lower()
    is_option = places.kind == "options"
    header = (
        f"Judge one {noun} by itself." if is_option else f"Judge the {task.aspect} of one {noun}."
    )
    ask = ("the right", "the wrong") if is_option else ("a good", "a bad")

    def write(item: Item, part: str) -> Prompt:
        rank, is_up, answers = read_part(part)
        value = item.fields[places.fields[places.named(rank)[0]]]
        text = _text(style, [*unmoved_fields(task, item), (places.noun, value)])
        question = f"Is this {ask[0] if is_up else ask[1]} {noun}?"
        head = Head(start=f"{header}{BREAK}{text}")
        return _prompt(head, _ending(style, question, answers), part)

    return write
