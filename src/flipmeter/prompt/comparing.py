"""Prompts with one demonstration, or one of each class: pairwise, listwise, windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from flipmeter.prompt.levels import label_formats
from flipmeter.prompt.pointwise import BREAK, FIELD, Write, paradigms, pointwise
from flipmeter.types import BACKWARD, Head, Item, Prompt, Rank, Script, Style, Task, View


def pairwise(task: Task, style: Style, view: View, demos: Sequence[Item]) -> Write:
    """Ask which of two passages is further up the scale, or further down if labels are reversed.

    A part is the id of a demonstration and which of the two comes first, as in `17 forward`.
    """
    scale = task.scale
    names = "[" + ", ".join(f"'{name}'" for name in scale.names) + "]"
    header = (
        f"Please perform {task.title} task.\n"
        f"Given two Passages, compare their {plural(task.aspect)} with labels from {names}."
    )
    question = (
        f"Which Passage is more {scale.high if view.is_natural else scale.low} "
        f"in terms of its {task.aspect}?\nOutput Passage A or Passage B:"
    )
    by_id = {demo.id: demo for demo in demos}

    def write(item: Item, part: str) -> Prompt:
        name, _, order = part.rpartition(" ")
        texts = [item.text, by_id[name].text]
        first, second = texts[::-1] if order == BACKWARD else texts
        head = Head(start=f"{header}\nPassage A: {first}")
        rest = f"\nPassage B: {second}\n{question}"
        return Prompt(Script(head, rest), ("Passage A", "Passage B"), (1, 2), "passages")

    return write


def plural(noun: str) -> str:
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def class_groups(demos: Sequence[Item]) -> list[dict[Rank, Item]]:
    """Groups with one demonstration of every class, the same for every order of them."""
    by_rank: dict[Rank, list[Item]] = {}
    for demo in sorted(demos, key=lambda demo: demo.text):
        by_rank.setdefault(demo.rank, []).append(demo)
    n_groups = min(map(len, by_rank.values()), default=0)
    return [{rank: some[place] for rank, some in by_rank.items()} for place in range(n_groups)]


def as_shown(demos: Sequence[Item]) -> list[list[Item]]:
    """Groups with one demonstration of every class, each in the order of the demonstrations."""
    places = {demo.id: place for place, demo in enumerate(demos)}
    return [
        sorted(group.values(), key=lambda demo: places[demo.id]) for group in class_groups(demos)
    ]


def listwise(task: Task, style: Style, view: View, demos: Sequence[Item]) -> Write:
    """Ask for the place of an item among one demonstration of each class, in the paper's words."""
    poles = task.scale.low, task.scale.high
    low, high = poles if view.is_natural else poles[::-1]
    noun, n_places = task.noun.lower(), len(task.scale)
    header = (
        f"Please perform {task.title} task.\n"
        f"Below are {plural(noun)} ordered by {task.aspect} from most {low} to most {high}.\n"
        f"Insert the new {noun} into this ordered scale and return only its position "
        f"(1-{n_places})."
    )
    answers = tuple(str(place) for place in range(1, n_places + 1))

    def head(group: dict[Rank, Item]) -> Head:
        shown = "\n".join(f"{task.noun}: {group[rank].text}" for rank in view.label_order)
        return Head(start=f"{header}{BREAK}{shown}")

    def rest(item: Item) -> str:
        return f"{BREAK}{task.noun}: {item.text}\nPosition:"

    return _by_group(class_groups(demos), head, rest, answers, view.label_order)


def listwise_compare(
    task: Task, style: Style, view: View, demos: Sequence[Item], *, turns: bool = True
) -> Write:
    """Ask which labelled reference is closest; a reversed list turns the references with it.

    One that does not turn only renames them.
    """
    shown = view.label_order if turns else tuple(sorted(view.label_order))
    scale, form = task.scale, label_formats["numeric"]
    answers = form.answers(scale, view.label_order)
    n = len(scale)
    first, last = scale.name(shown[0]), scale.name(shown[-1])
    header = (
        f"Please perform a {task.title} task. Given the {task.noun.lower()}, assign a label from "
        f"[{form.listing(scale, view.label_order)}]."
        f"{BREAK}Given {n} reference passages ordered by {task.aspect} from {first} to {last}:"
    )
    question = (
        f"Which reference (1-{n}) is closest in {task.aspect} to the new passage?\n"
        f"Answer with ONLY a single number ({listed(answers)}). No explanation."
    )

    def head(group: dict[Rank, Item]) -> Head:
        blocks = (
            f"{task.noun}: {group[rank].text}\n{FIELD}: {answers[view.slot_of(rank) - 1]}"
            for rank in shown
        )
        return Head(start=f"{header}{BREAK}" + "\n".join(blocks))

    def rest(item: Item) -> str:
        return f"{BREAK}New passage: {item.text}{BREAK}{question}"

    return _by_group(class_groups(demos), head, rest, answers, view.label_order)


def listed(words: Sequence[str]) -> str:
    """Words as a sentence offers them: "1 or 2", "1, 2, or 3"."""
    *most, last = words
    return f"{most[0]} or {last}" if len(most) == 1 else f"{', '.join(most)}, or {last}"


def _by_group(
    groups: Sequence[dict[Rank, Item]],
    head: Callable[[dict[Rank, Item]], Head],
    rest: Callable[[Item], str],
    answers: tuple[str, ...],
    ranks: tuple[Rank, ...],
) -> Write:
    """The renderer of comparisons with a group; a part is the number of the group."""
    heads = [head(group) for group in groups]

    def write(item: Item, part: str) -> Prompt:
        return Prompt(Script(heads[int(part)], rest(item)), answers, ranks)

    return write


def windows(task: Task, style: Style, view: View, demos: Sequence[Item]) -> Write:
    """Ask the pointwise question behind a group of demonstrations; a part is its number."""
    writes = [pointwise(task, style, view, group) for group in as_shown(demos)]
    return lambda item, part: writes[int(part)](item, "")


for _paradigm in (pairwise, listwise, listwise_compare):
    paradigms.add(_paradigm.__name__, _paradigm)
paradigms.add("listwise_relabel", partial(listwise_compare, turns=False))
paradigms.add("windows", windows)
