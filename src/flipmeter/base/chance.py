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
    return tuple(sorted(things, key=lambda thing: (draw(*key, name(thing)), str(name(thing)))))
