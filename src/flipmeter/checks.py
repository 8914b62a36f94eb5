"""Checks of numbers and names, one function each; numbers as people write them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from flipmeter.errors import Problem


def share(value: float, what: str, *, can_be_all: bool = False) -> float:
    """A number strictly between 0 and 1; one that may be all of them can be 1."""
    if not (0 < value < 1 or (can_be_all and value == 1)):
        end = "at most 1" if can_be_all else "below 1"
        raise Problem(f"{what} must lie above 0 and {end}; got {value}")
    return float(value)


def error_rate(value: float, what: str = "alpha") -> float:
    """The error that a test or a bound allows itself: above 0, at most 0.5.

    A confidence given as alpha would let everything pass.
    """
    if 0 < value <= 0.5:
        return float(value)
    meant = f"; did you mean {1 - value:.4g}?" if 0.5 < value < 1 else ""
    raise Problem(
        f"{what} is {value}: it is the chance of an error, above 0 and at most 0.5, and not the "
        f"confidence{meant or ', as in 0.05'}"
    )


def interval_level(value: float, what: str = "level") -> float:
    """The confidence of an interval: at least 0.5, below 1."""
    if 0.5 <= value < 1:
        return float(value)
    meant = f"; did you mean {1 - value:.4g}?" if 0 < value < 0.5 else ", as in 0.95"
    raise Problem(f"{what} is {value}: it is a confidence, at least 0.5 and below 1{meant}")


def at_least(value: float, least: float, what: str) -> float:
    """A finite number that is not below another."""
    if not (math.isfinite(value) and value >= least):
        raise Problem(f"{what} must be a finite number, {least:g} or more; got {value}")
    return value


def above(value: float, least: float, what: str) -> float:
    """A finite number above another."""
    if not (math.isfinite(value) and value > least):
        raise Problem(f"{what} must be a finite number above {least:g}; got {value}")
    return value


def ordered(low: float | None, value: float | None, high: float | None, what: str) -> None:
    """Refuse an interval whose ends are the wrong way round, or that its value lies outside of."""
    known = [number for number in (low, value, high) if number is not None]
    if known != sorted(known):
        raise Problem(f"{what} is {value} with bounds {low} and {high}; they must be in order")


NAME_BYTES = 200
"""File systems take 255, and a name gets endings."""


def file_name(name: str, what: str = "name") -> str:
    """A name that can be that of a file or folder, and leads nowhere else."""
    n_bytes = len(name.encode("utf-8", "surrogatepass"))
    is_plain = re.fullmatch(r"(?![.~ -])[^/\\:\x00-\x1f\x7f-\x9f\ud800-\udfff]+(?<! )", name)
    if not is_plain or n_bytes > NAME_BYTES:
        raise Problem(
            f"{what} is {name!r:.60}; a name is 1 to {NAME_BYTES} bytes without / \\ : and control "
            "characters, and does not begin with . ~ - or a space"
        )
    return name


NUMBER = r"[+-]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?|\.\d+)(?:[eE][+-]?\d{1,3})?"
"""A decimal number; a comma before three digits parts thousands, any other is a decimal comma."""

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?:\D|$))")
_WHOLE = re.compile(NUMBER)


def read_number(value: object) -> float | None:
    """The finite number that a value is or says, None for anything else."""
    if isinstance(value, str):
        text = value.strip().replace("\u2212", "-")
        if not _WHOLE.fullmatch(text):
            return None
        value = float(_THOUSANDS.sub("", text).replace(",", "."))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


T = TypeVar("T")


class once(Generic[T]):  # noqa: N801 - used as a decorator
    """For values that a study has by the million; two threads may both compute one."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> once[T]: ...
    @overload
    def __get__(self, owner: object, kind: type) -> T: ...
    def __get__(self, owner: object | None, kind: type) -> once[T] | T:
        if owner is None:
            return self
        value = owner.__dict__[self._name] = self._make(owner)
        return value
