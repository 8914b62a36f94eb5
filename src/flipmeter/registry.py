"""Names a study may use. Built-in parts and other people's packages come in by the same door.

A package offers its parts by an entry point of the group `flipmeter`, which names a module: to
import it is to register them. That is done once, when a name is not found or all are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from flipmeter.types import Problem

T = TypeVar("T")
ENTRY_POINTS = "flipmeter"
OURS = "flipmeter"

_adding: ContextVar[str] = ContextVar("adding", default=OURS)
"""The package that is being imported."""
_loaded: set[EntryPoint] = set()


class Registry(Generic[T]):
    """A kind of part, by name; an unknown name answers with the nearest known ones."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._parts: dict[str, T] = {}
        self._packages: dict[str, str] = {}

    def add(self, name: str, part: T) -> T:
        if name in self._parts:
            raise Problem(f"there is already a {self.kind} named '{name}'; choose another name")
        self._parts[name] = part
        self._packages[name] = _adding.get()
        return part

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that adds what it decorates under this name."""
        return lambda part: self.add(name, part)

    def package(self, name: str) -> str:
        """Return the package that a part comes from, `flipmeter` for our own."""
        self[name]
        return self._packages[name]

    def __getitem__(self, name: str) -> T:
        if name not in self._parts and name not in self:
            raise Problem(f"no {self.kind} named '{name}'{suggestion(name, list(self._parts))}")
        return self._parts[name]

    def __contains__(self, name: object) -> bool:
        if name not in self._parts:
            load_extensions()
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        load_extensions()
        return iter(self._parts)

    def items(self) -> list[tuple[str, T]]:
        load_extensions()
        return list(self._parts.items())


def suggestion(name: str, known: list[str]) -> str:
    """Return "; did you mean 'x'?" or the list of what there is."""
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; there are: {', '.join(known)}"


def load_extensions() -> None:
    """Import what other packages offer, each once; one that fails is named."""
    for point in _points():
        if point not in _loaded:
            _loaded.add(point)  # before it is imported: it may look a name up itself
            _load(point)


def registered_modules() -> frozenset[str]:
    """The modules that installed packages offer; none of them is imported."""
    return frozenset(point.module for point in _points())


@cache
def _points() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=ENTRY_POINTS))


def _load(point: EntryPoint) -> None:
    package = point.dist.name if point.dist else point.module
    token = _adding.set(package)
    try:
        point.load()
    except Exception as error:
        _loaded.discard(point)
        raise Problem(
            f"the package '{package}' offers parts to flipmeter ({point.name} = {point.value}) and "
            f"cannot be loaded: {type(error).__name__}: {error}; mend or uninstall it"
        ) from error
    finally:
        _adding.reset(token)
