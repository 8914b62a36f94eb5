"""Grid -> the first replies: how each is read, and which raters make no sense."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from flipmeter.ask.engine import Engine
from flipmeter.ask.plan import plan
from flipmeter.errors import Unreadable
from flipmeter.run.rate import Evidence, Rating, Seat
from flipmeter.types import LISTLESS, Condition, Jury, Rank, Scale, fold_label

FIRST = 10
"""Items that a run looks at before it asks the others."""
FEWEST = 5
"""Replies below which nothing is doubted."""
LONGEST = 100
AT_FIRST = "stopped after the first replies"
"""Beginning of the reason for which unreadable raters are left out of a run."""
WAYS_OUT = {"truncated": "; raise `max_tokens` in the model's entry, which includes reasoning"}
"""Remedies by kind of fault."""

Whose = tuple[str, str, str]
"""A rater on a dataset at a level."""


@dataclass(frozen=True)
class Heard:
    """One reply and how it was read."""

    condition: Condition
    evidence: Evidence

    @property
    def scale(self) -> Scale:
        return self.condition.task.scale

    @property
    def is_about_an_item(self) -> bool:
        """Whether it answers for a test item: no calibration text, not one of many draws."""
        call = self.evidence.call
        return not call.draw and call.ask.item.role == "test"

    @property
    def label(self) -> str:
        """The label as read, "" for none."""
        answer, prompt = self.evidence.answer, self.evidence.call.prompt
        return prompt.label(answer.slot) if answer.slot else ""

    @property
    def outcome(self) -> str:
        """The class as meant, or the fault; yes and no mean no class by themselves."""
        answer = self.evidence.answer
        if answer.rank and self.evidence.call.prompt.labels in LISTLESS:
            return self.label
        return self.scale.name(answer.rank) if answer.rank else str(answer.fault)

    @property
    def other(self) -> Rank:
        """The class that the label is the name of, where it stands for another; 0 for none.

        Only of labels in their natural order: a reversed list of numbers renames them on purpose.
        """
        answer = self.evidence.answer
        if self.evidence.call.prompt.labels in LISTLESS:
            return 0
        if not (answer.rank and self.condition.view.is_natural and not self.condition.task.places):
            return 0
        said, scale = fold_label(self.label), self.scale
        named = [
            rank
            for rank in scale.ranks
            if said in map(fold_label, (scale.name(rank), scale.value(rank)))
        ]
        return named[0] if named and answer.rank not in named else 0


def doubt(heard: Sequence[Heard], fewest: int = FEWEST) -> str:
    """The problem with the replies of one rater, "" if there is none; server errors do not count.

    Most of `fewest` or more replies have no label, or one is the name of another class than it
    stands for.
    """
    some = [one for one in heard if one.evidence.answer.fault != "error"]
    unread = [one for one in some if one.evidence.answer.fault]
    if len(some) >= fewest and 2 * len(unread) > len(some):
        fault, _ = Counter(one.outcome for one in unread).most_common(1)[0]
        example = next(one for one in unread if one.outcome == fault)
        return (
            f"{len(unread)} of its first {len(some)} replies have no label that can be read "
            f"({fault}: {short(example.evidence.reply.text)!r}){WAYS_OUT.get(fault, '')}"
        )
    for one in some:
        if one.other:
            return (
                f"the label '{one.label}' means '{one.outcome}' but is the name of another "
                f"class, '{one.scale.name(one.other)}'; set base: {{label_format: values}}"
            )
    return ""


def short(text: str) -> str:
    said = " ".join(text.split())
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 1]}…"


async def hear(
    grid: Sequence[Condition], engine: Engine, identities: Mapping[Seat, str]
) -> list[Heard]:
    """Ask the first round of a grid."""
    rating = Rating(grid, identities)
    calls = list(rating.calls())
    rating.hear(calls, await engine.ask(plan(calls).requests))
    return [
        Heard(grid[number], evidence)
        for number, found in rating.evidence.items()
        for some in found.values()
        for evidence in some
    ]


def whose(condition: Condition) -> Whose:
    return condition.rater.name, condition.dataset, condition.level


async def first_replies(
    grid: Sequence[Condition], engine: Engine, identities: Mapping[Seat, str]
) -> list[Heard]:
    """The replies to the first items under the base view, which a run asks anyway."""
    first: dict[Whose, Condition] = {}
    for condition in grid:
        if not condition.view.repeat and condition.view.name == "base":
            first.setdefault(whose(condition), replace(condition, items=condition.items[:FIRST]))
    return await hear([*first.values()], engine, identities)


def doubts(heard: Iterable[Heard], fewest: int = FEWEST) -> dict[Whose, str]:
    """The unreadable raters, with reasons; fewer replies than `fewest` do not count."""
    by_rater: dict[Whose, list[Heard]] = {}
    for one in heard:
        if one.is_about_an_item:
            by_rater.setdefault(whose(one.condition), []).append(one)
    return {key: reason for key, some in by_rater.items() if (reason := doubt(some, fewest))}


def without(grid: Sequence[Condition], reasons: Mapping[Whose, str]) -> list[Condition]:
    """The grid without what cannot be read; with nothing left there is no run.

    A rater that cannot be read at its base has nothing to compare its other levels with.
    """
    kept = [
        condition
        for condition in grid
        if whose(condition) not in reasons and (*whose(condition)[:2], "") not in reasons
    ]
    if not kept:
        raise Unreadable(told(reasons))
    return kept


def told(reasons: Mapping[Whose, str], juries: Iterable[Jury] = ()) -> str:
    """The reasons in one sentence, and the way out."""
    named = [
        f"{rater} on {dataset}{f' ({level})' if level else ''}: {reason}"
        for (rater, dataset, level), reason in reasons.items()
    ]
    lost = [one.name for one in juries if {*one.members} & {rater for rater, _, _ in reasons}]
    named += [f"panel {name} lacks a member there" for name in lost]
    return (
        f"{AT_FIRST}: {'; '.join(named)}. "
        "`flipmeter try STUDY` shows how replies are read; --anyway continues regardless"
    )
