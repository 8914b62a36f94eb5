"""Rated -> Rated: what a panel of judges decides, from what its members did in the same lot."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from flipmeter.decide import settle_jury
from flipmeter.run.rate import Rated
from flipmeter.types import Condition, Item, Jury, Model

Place = tuple[str, str, int, str]
"""Dataset, level, seed and view."""

Turn = tuple[str, int]
"""A member, and which repeat."""

T = TypeVar("T")
Heard = dict[Place, dict[Turn, dict[str, T]]]
"""The decisions on every item, by condition and member."""


@dataclass(frozen=True)
class Seating:
    """The juries of a study, and the raters whose replies are reproducible.

    A reproducible member repeats a few items only; for the others its first decision stands for its
    repeat, so that the panel has the noise of those that do vary.
    """

    juries: Sequence[Jury]
    reproducible: Collection[str] = ()

    @property
    def steady(self) -> list[str]:
        """The juries of which all members are reproducible."""
        return [one.name for one in self.juries if {*one.members} <= {*self.reproducible}]

    def rated(self, lot: Sequence[Rated]) -> list[Rated]:
        """The decisions of a lot with those of the juries behind them."""
        if not self.juries:
            return list(lot)
        heard: Heard[Rated] = {}
        for one in lot:
            by_turn = heard.setdefault(_place(one.condition), {})
            by_turn.setdefault(_turn(one.condition), {})[one.item.id] = one
        found = [
            one
            for jury, repeat, together in self._sittings(heard)
            for one in seated(together, jury, repeat)
        ]
        hidden = self._hidden
        return [*(one for one in lot if one.condition.rater.name not in hidden), *found]

    def grid(self, grid: Sequence[Condition]) -> list[Condition]:
        """The conditions of a record: those that were asked, with those of the juries."""
        heard: Heard[tuple[Condition, Item]] = {}
        for one in grid if self.juries else ():
            by_turn = heard.setdefault(_place(one), {})
            by_turn[_turn(one)] = {item.id: (one, item) for item in one.items}
        hidden = self._hidden
        return [
            *(one for one in grid if one.rater.name not in hidden),
            *(
                replace(_sat(both[0][0][0], jury, repeat), items=tuple(one[0][1] for one in both))
                for jury, repeat, both in self._sittings(heard)
            ),
        ]

    @property
    def _hidden(self) -> set[str]:
        """Members of juries that are shown alone."""
        return {name for one in self.juries if not one.shows_members for name in one.members}

    def _sittings(self, heard: Heard[T]) -> Iterator[tuple[Jury, int, list[list[T]]]]:
        """Every jury at every place and repeat, with what its members have there, item by item."""
        for jury in self.juries:
            for by_turn in heard.values():
                for repeat in sorted({again for _, again in by_turn}):
                    together = self._together(by_turn, jury, repeat)
                    if together:
                        yield jury, repeat, together

    def _together(
        self, by_turn: Mapping[Turn, Mapping[str, T]], jury: Jury, repeat: int
    ) -> list[list[T]]:
        """The decisions of all members, for items that at least one was asked at this repeat."""
        own = [by_turn.get((member, repeat), {}) for member in jury.members]
        sides = [
            {**by_turn.get((member, 0), {}), **mine} if member in self.reproducible else mine
            for member, mine in zip(jury.members, own, strict=True)
        ]
        asked = dict.fromkeys(name for mine in own for name in mine)
        return [
            [side[name] for side in sides] for name in asked if all(name in side for side in sides)
        ]


def seated(together: Sequence[Sequence[Rated]], jury: Jury, repeat: int = 0) -> list[Rated]:
    """The decisions of a jury on some items, each from those of its members.

    They rest on all that the members' decisions rest on: nothing is asked for a jury alone.
    """
    if not together:
        return []
    condition = _sat(together[0][0].condition, jury, repeat)
    shared = tuple(evidence for one in together[0] for evidence in one.shared)
    return [
        Rated(
            condition,
            members[0].item,
            settle_jury([one.decision for one in members], jury.by, condition.task),
            tuple(evidence for one in members for evidence in one.evidence),
            shared,
        )
        for members in together
    ]


def _sat(member: Condition, jury: Jury, repeat: int) -> Condition:
    """The condition of a jury, from that of a member."""
    view = replace(member.view, repeat=repeat)
    rater = replace(member.rater, model=Model(f"panel/{jury.name}", jury.name))
    return replace(member, rater=rater, view=view)


def jury_identity(jury: Jury) -> str:
    return f"{jury.by} of {', '.join(jury.members)}"


def _place(condition: Condition) -> Place:
    return condition.dataset, condition.level, condition.seed, condition.view.name


def _turn(condition: Condition) -> Turn:
    return condition.rater.name, condition.view.repeat
