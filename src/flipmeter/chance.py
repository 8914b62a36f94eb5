"""Seeded choice that is the same on every machine, in every version of Python and numpy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from flipmeter.types import canonical_json

T = TypeVar("T")


def draw(*key: object) -> float:
    """A number in [0, 1) that depends on the key alone."""
    digest = hashlib.sha256(canonical_json(key).encode()).digest()
    return (int.from_bytes(digest[:7]) >> 3) / 2**53


def shuffled(things: Sequence[T], *key: object, name: Callable[[T], object]) -> tuple[T, ...]:
    """The things in an order that depends on the key and their names alone."""
    drawn = [draw(*key, name(thing)) for thing in things]
    order = sorted(range(len(drawn)), key=drawn.__getitem__)
    if len({*drawn}) < len(drawn):  # names are looked at only here: those of many take much room
        order.sort(key=lambda at: (drawn[at], str(name(things[at]))))
    return tuple(things[at] for at in order)


def n_shared(a: Sequence[object], b: Sequence[object]) -> int:
    """The length of the common prefix of two sequences, by bisection on slices."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
