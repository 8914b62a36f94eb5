"""The levels of the prompt factors, one function each.

The wording is experimental material: it is the paper's, byte for byte, and what the paper does not
print is fixed in docs/method.md. A changed character is another experiment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flipmeter.registry import Registry
from flipmeter.types import Label, Problem, Scale, Slot, Task

RETURN_ONLY = "Return label only without any other text."
REASON_FIRST = (
    "Explain your reasoning first. Then write the label in a last line that begins with 'Label: '."
)


@dataclass(frozen=True)
class HeaderParts:
    """The input of a header: the task, the labels by slot, and the list as shown."""

    task: Task
    answers: tuple[str, ...]
    ranks: tuple[int, ...]
    listing: str
    is_words: bool


def listed_labels(shown: HeaderParts) -> tuple[Label, ...]:
    """The labels as they are offered, each with the class it stands for."""
    return tuple(
        Label(slot, text, shown.task.scale.name(rank), rank)
        for slot, (text, rank) in enumerate(zip(shown.answers, shown.ranks, strict=True), 1)
    )


@dataclass(frozen=True)
class LabelFormat:
    """The form of a slot's label. Words carry their own meaning; identifiers get it from the list.

    A format of `values` uses the values in the data: 0, 1, 2 for wrong, partly, right.
    """

    write: Callable[[Slot, str], str]
    is_words: bool = False
    is_values: bool = False

    def answers(self, scale: Scale, ranks: tuple[int, ...]) -> tuple[str, ...]:
        word = scale.value if self.is_values else scale.name
        return tuple(self.write(slot, word(rank)) for slot, rank in enumerate(ranks, 1))

    def listing(self, scale: Scale, ranks: tuple[int, ...]) -> str:
        answers = self.answers(scale, ranks)
        names = [scale.name(rank) for rank in ranks]
        if self.is_words and (not self.is_values or answers == tuple(names)):
            return ", ".join(answers)
        return ", ".join(f"{answer}: {name}" for answer, name in zip(answers, names, strict=True))


@dataclass(frozen=True)
class Mood:
    """The grammatical form of the instruction, for each clarity."""

    title: Callable[[Task], str]
    ask: Callable[[HeaderParts], str]
    minimal: Callable[[Task], str]
    ordered: Callable[[Task, str], str]


Header = Callable[[HeaderParts, Mood], tuple[str, ...]]

label_formats: Registry[LabelFormat] = Registry("label format")
clarities: Registry[Header] = Registry("clarity")
moods: Registry[Mood] = Registry("mood")
separators: Registry[str] = Registry("separator")
connectors: Registry[str] = Registry("connector")

factors: Mapping[str, Registry[Any]] = {
    "label_format": label_formats,
    "clarity": clarities,
    "mood": moods,
    "separator": separators,
    "connector": connectors,
}


def _letter(slot: Slot, name: str) -> str:
    if slot > 26:
        raise Problem(f"letters name at most 26 classes; class {slot} ({name!r}) needs numbers")
    return chr(ord("A") + slot - 1)


label_formats.add("numeric", LabelFormat(lambda slot, name: str(slot)))
label_formats.add("letter", LabelFormat(_letter))
label_formats.add("natural_language", LabelFormat(lambda slot, name: name, is_words=True))
label_formats.add("neutral_id", LabelFormat(lambda slot, name: f"Option_{slot}"))
label_formats.add("from_zero", LabelFormat(lambda slot, name: str(slot - 1)))
label_formats.add("values", LabelFormat(lambda slot, name: name, is_words=True, is_values=True))

separators.add("colon", ": ")
separators.add("space", " ")
separators.add("tab", "\t")

connectors.add("newline", "\n")
connectors.add("space", " ")
connectors.add("newline_tab", "\n\t")

moods.add(
    "imperative",
    Mood(
        title=lambda task: f"Please perform {task.title} task.",
        ask=lambda shown: f"Given the {_noun(shown.task)}, assign a label from [{shown.listing}].",
        minimal=lambda task: f"Classify the {task.aspect}:",
        ordered=lambda task, which: (
            f"Classify the {task.aspect} into one of the following ordered categories, {which}:"
        ),
    ),
)
moods.add(
    "interrogative",
    Mood(
        title=lambda task: f"What is the {task.aspect} of the following {_noun(task)}?",
        ask=lambda shown: f"Which label from [{shown.listing}] do you assign?",
        minimal=lambda task: f"What is the {task.aspect}?",
        ordered=lambda task, which: (
            f"Which of the following ordered categories, {which}, is the {task.aspect}?"
        ),
    ),
)
moods.add(
    "indicative",
    Mood(
        title=lambda task: f"You are performing {task.title} task.",
        ask=lambda shown: (
            f"Given the {_noun(shown.task)}, you assign a label from [{shown.listing}]."
        ),
        minimal=lambda task: f"You are classifying the {task.aspect}:",
        ordered=lambda task, which: (
            f"You are classifying the {task.aspect} into one of the following "
            f"ordered categories, {which}:"
        ),
    ),
)


@clarities.register("minimal")
def minimal(shown: HeaderParts, mood: Mood) -> tuple[str, ...]:
    """Name the task only: what a label means, the demonstrations must tell."""
    return (mood.minimal(shown.task),)


@clarities.register("explicit")
def explicit(shown: HeaderParts, mood: Mood) -> tuple[str, ...]:
    """Name the task, the label space and the form of the answer."""
    return mood.title(shown.task), mood.ask(shown), RETURN_ONLY


@clarities.register("ordinal_explicit")
def ordinal_explicit(shown: HeaderParts, mood: Mood) -> tuple[str, ...]:
    """Say in the first line that the labels are ordered, and which way they run as shown."""
    return mood.ordered(shown.task, _direction(shown)), mood.ask(shown), RETURN_ONLY


@clarities.register("reasoned")
def reasoned(shown: HeaderParts, mood: Mood) -> tuple[str, ...]:
    """Name the task and the label space, and ask for reasons before the label."""
    return mood.title(shown.task), mood.ask(shown), REASON_FIRST


def _direction(shown: HeaderParts) -> str:
    scale = shown.task.scale
    if scale.span is not None:
        low, high = f"{scale.span.low:g}", f"{scale.span.high:g}"
        return f"where {low} is most {scale.low} and {high} is most {scale.high}"
    ends = [(shown.ranks.index(rank), rank) for rank in (1, len(scale))]
    (first, first_rank), (last, last_rank) = sorted(ends)
    if shown.is_words:
        return f"ordered from {shown.answers[first]} to {shown.answers[last]}"
    pole = {1: scale.low, len(scale): scale.high}
    return (
        f"where {shown.answers[first]} is most {pole[first_rank]} "
        f"and {shown.answers[last]} is most {pole[last_rank]}"
    )


def _noun(task: Task) -> str:
    return task.noun.lower()
