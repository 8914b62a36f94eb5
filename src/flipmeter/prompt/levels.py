"""The levels of the prompt factors, one function each.

The wording is experimental material: it is the paper's, byte for byte, and what the paper does not
print is fixed in docs/method.md. A changed character is another experiment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flipmeter.errors import Problem
from flipmeter.registry import Registry
from flipmeter.types import Label, Scale, Slot, Task

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
    """The grammatical form of the instruction, for each clarity; `said` fills in the braces."""

    title: str
    ask: str
    minimal: str
    ordered: str


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
        title="Please perform {title} task.",
        ask="Given the {noun}, assign a label from [{listing}].",
        minimal="Classify the {aspect}:",
        ordered="Classify the {aspect} into one of the following ordered categories, {which}:",
    ),
)
moods.add(
    "interrogative",
    Mood(
        title="What is the {aspect} of the following {noun}?",
        ask="Which label from [{listing}] do you assign?",
        minimal="What is the {aspect}?",
        ordered="Which of the following ordered categories, {which}, is the {aspect}?",
    ),
)
moods.add(
    "indicative",
    Mood(
        title="You are performing {title} task.",
        ask="Given the {noun}, you assign a label from [{listing}].",
        minimal="You are classifying the {aspect}:",
        ordered="You are classifying the {aspect} into one of the following ordered categories, "
        "{which}:",
    ),
)


def said(text: str, shown: HeaderParts, which: str = "") -> str:
    """A sentence of a mood about a task: what is asked, and `which` way its labels run."""
    task, places, span = shown.task, shown.task.places, shown.task.scale.span
    words = {
        "title": task.title,
        "aspect": task.aspect,
        "noun": task.noun.lower(),
        "listing": shown.listing,
        "which": which,
    }
    poles = task.scale.low, task.scale.high
    if places is not None:
        n, noun = len(places.fields), places.noun.lower()
        better = "better" if n == 2 else "best"
        words |= {"all": f"{'two' if n == 2 else n} {noun}s", "each": noun, "better": better}
        first, second, *_ = (f"{places.noun} {word} is better" for word in places.words)
        poles = second, first
    if span is not None:
        ends = f"from {span.low:g} ({poles[0]}) to {span.high:g} ({poles[1]})"
        words["numbers"] = f"a number {ends}, decimals allowed"
    return text.format_map(words)


@clarities.register("minimal")
def minimal(shown: HeaderParts, mood: Mood) -> tuple[str, ...]:
    """Name the task only: what a label means, the demonstrations must tell."""
    return (said(mood.minimal, shown),)


@clarities.register("explicit")
def explicit(shown: HeaderParts, mood: Mood) -> tuple[str, ...]:
    """Name the task, the label space and the form of the answer."""
    return said(mood.title, shown), said(mood.ask, shown), RETURN_ONLY


@clarities.register("ordinal_explicit")
def ordinal_explicit(shown: HeaderParts, mood: Mood) -> tuple[str, ...]:
    """Say in the first line that the labels are ordered, and which way they run as shown."""
    return said(mood.ordered, shown, _direction_phrase(shown)), said(mood.ask, shown), RETURN_ONLY


@clarities.register("reasoned")
def reasoned(shown: HeaderParts, mood: Mood) -> tuple[str, ...]:
    """Name the task and the label space, and ask for reasons before the label."""
    return said(mood.title, shown), said(mood.ask, shown), REASON_FIRST


def _direction_phrase(shown: HeaderParts) -> str:
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
