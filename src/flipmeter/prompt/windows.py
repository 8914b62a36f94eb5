"""The pointwise prompt with a few demonstrations at a time, and with none."""

from __future__ import annotations

from collections.abc import Sequence

from flipmeter.prompt.comparing import class_groups
from flipmeter.prompt.pointwise import Write, paradigms, pointwise
from flipmeter.types import Item, Prompt, Style, Task, View


def windows(task: Task, style: Style, view: View, demos: Sequence[Item]) -> Write:
    """Ask behind a group with one demonstration of each class; a part is its number, "" is none."""
    places = {demo.id: place for place, demo in enumerate(demos)}
    groups = class_groups(demos, view.grouping)
    ordered = [sorted(group.values(), key=lambda demo: places[demo.id]) for group in groups]
    return _parted(task, style, view, {str(at): some for at, some in enumerate(ordered)})


def single_windows(task: Task, style: Style, view: View, demos: Sequence[Item]) -> Write:
    """Ask behind one demonstration; a part is its id, "" is none."""
    return _parted(task, style, view, {demo.id: [demo] for demo in demos})


def _parted(task: Task, style: Style, view: View, shown: dict[str, list[Item]]) -> Write:
    writes = {part: pointwise(task, style, view, some) for part, some in shown.items()}
    writes[""] = pointwise(task, style, view, ())

    def write(item: Item, part: str) -> Prompt:
        return writes[part](item, "")

    return write


paradigms.add("windows", windows)
paradigms.add("single_windows", single_windows)
