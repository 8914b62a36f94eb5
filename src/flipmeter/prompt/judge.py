"""A judge's task in words: fields that may change places, and ranges of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from flipmeter.prompt.levels import HeaderParts, Mood, label_formats
from flipmeter.types import Item, Places, Rank, Task, joined

T = TypeVar("T")


def offer(
    task: Task, label_format: str, ranks: tuple[Rank, ...], size: int | None = None
) -> HeaderParts:
    """The labels of some classes as a prompt offers them, in the order of their slots.

    A class that names a place is written with the word for that place ("A", "B>>A"); words are
    those of the scale. Of the classes an item has those that its number of filled places allows.
    """
    form, places, scale = label_formats[label_format], task.places, task.scale
    if places is not None and size is not None:
        known = places.offered(size)
        ranks = tuple(rank for rank in ranks if rank in known)
    if scale.span is not None:
        ends = f"{scale.span.low:g} to {scale.span.high:g}"
        return HeaderParts(task, (), (), ends, is_words=True)
    if places is None:
        answers = form.answers(scale, ranks)
        return HeaderParts(task, answers, ranks, form.listing(scale, ranks), form.is_words)
    words = place_words(places, label_format)
    answers = tuple(
        scale.name(rank) if form.is_words else places.written(rank, words) for rank in ranks
    )
    return HeaderParts(task, answers, ranks, ", ".join(answers), is_words=True)


def place_words(places: Places, label_format: str) -> tuple[str, ...]:
    """The name of each place in a label format; letters if the answer is a number."""
    form = label_formats[label_format]
    if not places.forms:
        return places.words
    return tuple(form.write(slot, word) for slot, word in enumerate(places.words, 1))


def by_size(places: Places | None, make: Callable[[int | None], T]) -> Callable[[Item], T]:
    """Make one for each number of places that items fill, when the first such item comes."""
    made: dict[int | None, T] = {}

    def find(item: Item) -> T:
        size = None if places is None else places.n_filled(item)
        if size not in made:
            made[size] = make(size)
        return made[size]

    return find


def shown_fields(task: Task, label_format: str, item: Item) -> Iterator[tuple[str, str]]:
    """The part of an item in a prompt: the heading and the text of each field."""
    places = task.places
    if places is None or ("text" in item.fields and not _is_joined(item)):
        yield task.noun, item.text
    if places is None:
        return
    for name, value in item.fields.items():
        if name != "text" and name not in places.fields:
            yield name.replace("_", " ").capitalize(), value
    yield from placed(places, label_format, item.fields, item.fields.get("text", ""))


def placed(
    places: Places, label_format: str, fields: Mapping[str, str], otherwise: str = ""
) -> Iterator[tuple[str, str]]:
    """The fields that may change places, in the order of the places, headed by their words.

    A text without content has no such fields and stands in every place.
    """
    known = {name: fields.get(name, otherwise) for name in places.fields}
    words = place_words(places, label_format)
    for word, value in zip(words, known.values(), strict=True):
        if value:
            yield f"{places.noun} {word}".strip(), value


def _is_joined(item: Item) -> bool:
    others = {name: value for name, value in item.fields.items() if name != "text"}
    return bool(others) and item.text == joined(others)


# --- the header -------------------------------------------------------------------------------


def mood_of(task: Task, mood: Mood, name: str) -> Mood:
    """A mood in the words of a judge, of a question with options, or of a range of numbers."""
    if task.places is not None:
        mood = (_CHOOSING if task.places.kind == "options" else _JUDGING).get(name, mood)
    if task.scale.span is None:
        return mood
    given, compared, ordered = _NUMBERS.get(name, _NUMBERS["imperative"])
    return replace(mood, ask=compared if task.places else given, ordered=ordered)


_JUDGING = {
    "imperative": Mood(
        title="Compare the {aspect} of the {all} and decide which one is {better}.",
        ask="Choose a label from [{listing}].",
        minimal="Choose the {better} {each}:",
        ordered="Choose the {better} {each} by one of the following ordered labels, {which}:",
    ),
    "interrogative": Mood(
        title="Which of the {all} has the {better} {aspect}?",
        ask="Which label from [{listing}] do you choose?",
        minimal="Which {each} is {better}?",
        ordered="Which of the following ordered labels, {which}, says which {each} is {better}?",
    ),
    "indicative": Mood(
        title="You are comparing the {aspect} of {all} to decide which one is {better}.",
        ask="You choose a label from [{listing}].",
        minimal="You are choosing the {better} {each}:",
        ordered="You are choosing the {better} {each} by one of the following ordered labels, "
        "{which}:",
    ),
}
# Questions may differ in their number of options, so that the header lists no labels.
_CHOOSING = {
    "imperative": Mood(
        title="Answer the question with one of its options.",
        ask="Choose the label of the right option.",
        minimal="Choose the right option:",
        ordered="Choose the right option:",
    ),
    "interrogative": Mood(
        title="Which of its options answers the question?",
        ask="Which label has the right option?",
        minimal="Which option is right?",
        ordered="Which option is right?",
    ),
    "indicative": Mood(
        title="You are answering a question with one of its options.",
        ask="You choose the label of the right option.",
        minimal="You are choosing the right option:",
        ordered="You are choosing the right option:",
    ),
}
_NUMBERS = {
    "imperative": (
        "Given the {noun}, assign a label: {numbers}.",
        "Assign a label: {numbers}.",
        "Rate the {aspect} on a scale of numbers, {which}:",
    ),
    "interrogative": (
        "Which label do you assign: {numbers}?",
        "Which label do you assign: {numbers}?",
        "Where on a scale of numbers, {which}, is the {aspect}?",
    ),
    "indicative": (
        "Given the {noun}, you assign a label: {numbers}.",
        "You assign a label: {numbers}.",
        "You are rating the {aspect} on a scale of numbers, {which}:",
    ),
}
"""Sentences of each mood that ask for a number: about an item, a comparison, an ordered scale."""
