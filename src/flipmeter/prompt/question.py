"""View -> Question: what a callable or a simulated rater is asked, instead of the words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from flipmeter.prompt.comparing import as_shown, class_groups
from flipmeter.prompt.judge import by_size, offer
from flipmeter.prompt.levels import HeaderParts, listed_labels
from flipmeter.prompt.pointwise import (
    Paradigm,
    Write,
    kind_of,
    label_of,
    paradigms,
    unshown,
    with_labels,
)
from flipmeter.types import (
    FORWARD,
    Example,
    Item,
    Label,
    Posed,
    Question,
    Script,
    Style,
    Task,
    View,
)

Pose = Callable[[Item, str], Posed]
"""Give what is asked about one part of one item."""


def question(task: Task, style: Style, view: View, demos: Sequence[Item]) -> Write:
    """The renderer of items under a view for a callable: fields, labels and demonstrations."""
    examples = _demo_examples(task, style, view, demos)
    span = task.scale.span
    ends = None if span is None else (span.low, span.high)

    def scripts(shown: HeaderParts) -> Callable[[Item], Script]:
        shared = Question({}, listed_labels(shown), examples, view.placement, span=ends)
        return lambda item: shared.script(item.fields)

    return with_labels(task, style, view, demos, scripts)


paradigms.add("question", question)


def _demo_examples(
    task: Task, style: Style, view: View, demos: Sequence[Item]
) -> tuple[Example, ...]:
    return tuple(Example(dict(demo.fields), label_of(task, style, view, demo)) for demo in demos)


# --- the question in a prompt -----------------------------------------------------------------


def posing(name: str) -> Paradigm:
    """A paradigm that gives every prompt its question, for raters that do not read."""

    def prepare(task: Task, style: Style, view: View, demos: Sequence[Item]) -> Write:
        write, prepare_pose = paradigms[name](task, style, view, demos), _poses.get(name)
        if prepare_pose is None:
            return write
        pose = prepare_pose(task, style, view, demos)
        return lambda item, part: replace(write(item, part), question=pose(item, part))

    return prepare


def _pointwise(task: Task, style: Style, view: View, demos: Sequence[Item]) -> Pose:
    hidden = unshown(style, task)
    examples = () if "demo_order" in hidden else _demo_examples(task, style, view, demos)
    is_listed = "label_order" not in hidden and (bool(style.prompt) or style.clarity != "minimal")
    # Words that no list shows have the order of their classes.
    is_by_slot = is_listed or kind_of(task, style, has_demos=bool(demos)) == "identifiers"

    def for_size(size: int | None) -> Posed:
        labels = listed_labels(offer(task, style.label_format, view.label_order, size))
        if not is_by_slot:
            labels = tuple(sorted(labels, key=lambda label: label.rank))
        return Posed({}, labels, examples, view.placement, style=style, is_listed=is_listed)

    find = by_size(task.places, for_size)
    return lambda item, part: replace(find(item), fields=item.fields)


def _windows(task: Task, style: Style, view: View, demos: Sequence[Item]) -> Pose:
    poses = [_pointwise(task, style, view, group) for group in as_shown(demos)]
    return lambda item, part: poses[int(part)](item, "")


def _pairwise(task: Task, style: Style, view: View, demos: Sequence[Item]) -> Pose:
    by_id = {demo.id: demo.text for demo in demos}
    names = ("Passage A", "Passage B")
    labels = tuple(Label(slot, name, name, slot) for slot, name in enumerate(names, 1))

    def pose(item: Item, part: str) -> Posed:
        name, _, order = part.rpartition(" ")
        texts = item.text, by_id[name]
        beside = texts if order == FORWARD else texts[::-1]
        return Posed(item.fields, labels, beside=beside, toward=1 if view.is_natural else -1)

    return pose


def _listwise(task: Task, style: Style, view: View, demos: Sequence[Item]) -> Pose:
    order = view.label_order
    groups = [tuple(group[rank].text for rank in order) for group in class_groups(demos)]
    labels = tuple(
        Label(slot, str(slot), task.scale.name(rank), rank) for slot, rank in enumerate(order, 1)
    )
    return lambda item, part: Posed(item.fields, labels, beside=groups[int(part)])


_poses: Mapping[str, Callable[[Task, Style, View, Sequence[Item]], Pose]] = {
    "pointwise": _pointwise,
    "windows": _windows,
    "pairwise": _pairwise,
    **dict.fromkeys(("listwise", "listwise_compare", "listwise_relabel"), _listwise),
}
