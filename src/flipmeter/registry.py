"""Names a study may use. Built-in parts and other people's packages come in by the same door."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from flipmeter.types import Problem

T = TypeVar("T")
ENTRY_POINTS = "flipmeter"


class Registry(Generic[T]):
    """A kind of part, by name; an unknown name answers with the nearest known ones."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._parts: dict[str, T] = {}

    def add(self, name: str, part: T) -> T:
        if name in self._parts:
            raise Problem(f"there is already a {self.kind} named '{name}'; choose another name")
        self._parts[name] = part
        return part

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that adds what it decorates under this name."""
        return lambda part: self.add(name, part)

    def __getitem__(self, name: str) -> T:
        if name not in self._parts:
            raise Problem(f"no {self.kind} named '{name}'{suggestion(name, list(self._parts))}")
        return self._parts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def items(self) -> list[tuple[str, T]]:
        return list(self._parts.items())


def suggestion(name: str, known: list[str]) -> str:
    """Return "; did you mean 'x'?" or the list of what there is."""
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; there are: {', '.join(known)}"


def load_extensions() -> None:
    """Import what other packages offer under the entry-point group `flipmeter`."""
    for point in entry_points(group=ENTRY_POINTS):
        point.load()
