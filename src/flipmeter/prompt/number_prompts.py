"""A range of numbers, in words: what a header asks for where there is no list of labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from flipmeter.prompt.levels import HeaderParts, Mood
from flipmeter.types import Span, Task


def ends(span: Span) -> str:
    """The range as a prompt file shows it in the place of labels."""
    return f"{span.low:g} to {span.high:g}"


def asking_for_number(mood: Mood, name: str, task: Task) -> Mood:
    """A mood that asks for a number instead of a label from a list."""
    ask, ordered = _ASKED[name if name in _ASKED else "imperative"]
    about = _compared if task.places else _given
    return replace(
        mood,
        ask=lambda shown: ask(about(shown.task), _numbers(shown)),
        ordered=lambda own, which: ordered(own.aspect, which),
    )


def _given(task: Task) -> str:
    return f"Given the {task.noun.lower()}, "


def _compared(task: Task) -> str:
    return ""


def _numbers(shown: HeaderParts) -> str:
    scale, places = shown.task.scale, shown.task.places
    assert scale.span is not None
    low, high = f"{scale.span.low:g}", f"{scale.span.high:g}"
    if places is None:
        return f"a number from {low} ({scale.low}) to {high} ({scale.high}), decimals allowed"
    first, second = (f"{places.noun} {word} is better" for word in places.words)
    return f"a number from {low} ({second}) to {high} ({first}), decimals allowed"


_Said = Callable[[str, str], str]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


_ASKED: dict[str, tuple[_Said, _Said]] = {
    "imperative": (
        lambda given, numbers: _sentence(f"{given}assign a label: {numbers}."),
        lambda aspect, which: f"Rate the {aspect} on a scale of numbers, {which}:",
    ),
    "interrogative": (
        lambda given, numbers: f"Which label do you assign: {numbers}?",
        lambda aspect, which: f"Where on a scale of numbers, {which}, is the {aspect}?",
    ),
    "indicative": (
        lambda given, numbers: _sentence(f"{given}you assign a label: {numbers}."),
        lambda aspect, which: f"You are rating the {aspect} on a scale of numbers, {which}:",
    ),
}
