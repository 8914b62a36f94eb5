"""Parts by name: built-in parts and those of plug-ins are registered in the same way.

A plug-in names a module in the entry-point group `flipmeter`; importing it registers its parts.
Plug-ins are loaded once, when a name is not found or a registry is listed. They run because they
are installed: a study cannot name one that is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from traceback import walk_tb
from typing import Generic, TypeVar

from flipmeter.errors import Problem
from flipmeter.removed import refusal

T = TypeVar("T")
ENTRY_POINTS = "flipmeter"
OURS = "flipmeter"

_adding: ContextVar[str] = ContextVar("adding", default=OURS)
"""The package whose parts are being registered."""
_loaded: set[EntryPoint] = set()


class Registry(Generic[T]):
    """Parts of one kind by name; an unknown name is refused with the nearest known one."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._parts: dict[str, T] = {}
        self._packages: dict[str, str] = {}
        self._followers: list[Callable[[str, T], object]] = []

    def add(self, name: str, part: T) -> T:
        """Register a part. A name can be used once."""
        if name in self._parts:
            raise Problem(f"there is already a {self.kind} named '{name}'; choose another name")
        for follow in self._followers:  # before it is kept: a follower may refuse it
            follow(name, part)
        self._parts[name] = part
        self._packages[name] = _adding.get()
        return part

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator form of `add`."""
        return lambda part: self.add(name, part)

    def follow(self, then: Callable[[str, T], object]) -> None:
        """Call a function with the name and value of every part, present and future."""
        for name, part in self._parts.items():  # not `items()`, which would load plug-ins
            then(name, part)
        self._followers.append(then)

    @property
    def so_far(self) -> tuple[str, ...]:
        """The names registered so far; unlike iterating, this loads no plug-in."""
        return tuple(self._parts)

    def package(self, name: str) -> str:
        """The package that registered a part, `flipmeter` for built-in parts."""
        self[name]
        return self._packages[name]

    @contextmanager
    def using(self, name: str) -> Iterator[None]:
        """Name the part and its package in an error that the code inside raises."""
        try:
            yield
        except Problem:
            raise
        except Exception as error:
            package = self.package(name)
            where = "" if package == OURS else f" of the plug-in '{package}'"
            raise Problem(
                f"the {self.kind} '{name}'{where} failed: {type(error).__name__}: {error}; fix or "
                "uninstall the plug-in"
            ) from error

    def __getitem__(self, name: str) -> T:
        if name not in self._parts and name not in self:
            unknown = f"no {self.kind} named '{name}'{suggestion(name, list(self._parts))}"
            raise Problem(refusal(self.kind, name) or unknown)
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


def about(part: object) -> str:
    """One line about a part: its `about`, else the first line of its docstring."""
    said = getattr(part, "about", None) or getattr(part, "__doc__", None) or ""
    return str(said).strip().partition("\n")[0]


def nearest(name: str, known: list[str]) -> str:
    """The end of a message about an unknown name: the nearest known name, "" if none is near."""
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""


def suggestion(name: str, known: list[str], *, with_known: bool = False) -> str:
    """The end of a message about an unknown name: the nearest known name, or (and) all of them."""
    near, every = nearest(name, known), f"known: {', '.join(known)}"
    return f"{near} ({every})" if near and with_known else near or f"; {every}"


def load_extensions() -> None:
    """Import the modules that plug-ins name, each once."""
    for point in _plugin_entry_points():
        if point not in _loaded:
            _loaded.add(point)  # before it is imported: it may look a name up itself
            _load_entry_point(point)


def registered_modules() -> frozenset[str]:
    """The modules that installed plug-ins name; none of them is imported."""
    return frozenset(point.module for point in _plugin_entry_points())


def blame(error: BaseException) -> Problem | None:
    """The error of a plug-in's own code as a message that names it; None for any other error."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(blame, error.exceptions)), None)
    packages = {
        point.module.partition(".")[0]: _package_of(point) for point in _plugin_entry_points()
    }
    for frame, line in reversed([*walk_tb(error.__traceback__)]):
        module = str(frame.f_globals.get("__name__", ""))
        package = packages.get(module.partition(".")[0], OURS)
        if package != OURS:
            return Problem(
                f"the plug-in '{package}' failed: {type(error).__name__}: {error} "
                f"({frame.f_code.co_filename}, line {line}); fix or uninstall it"
            )
    return None


@cache
def _plugin_entry_points() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=ENTRY_POINTS))


def _package_of(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.module


def _load_entry_point(point: EntryPoint) -> None:
    package = _package_of(point)
    token = _adding.set(package)
    try:
        point.load()
    except Exception as error:
        _loaded.discard(point)
        raise Problem(
            f"the plug-in '{package}' ({point.name} = {point.value}) cannot be loaded: "
            f"{type(error).__name__}: {error}; fix or uninstall it"
        ) from error
    finally:
        _adding.reset(token)
