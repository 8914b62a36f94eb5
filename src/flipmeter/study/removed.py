"""Parts of a study that were removed: what replaces them, and how a stored study is read.

A new study may not name them. The study in a run folder may: its decisions are measured as they
are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

KEYS = {"cells": "`design: factorial` asks every cell"}
VALUES = {("design", "fractional"): "use `design: factorial`"}

_is_stored: ContextVar[bool] = ContextVar("is_stored", default=False)


@contextmanager
def reading_stored() -> Iterator[None]:
    """Accept removed parts meanwhile."""
    token = _is_stored.set(True)
    try:
        yield
    finally:
        _is_stored.reset(token)


def is_stored() -> bool:
    """Whether a stored study is being read."""
    return _is_stored.get()


def without_removed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a stored study that there still are; a fraction is read as part of the whole."""
    kept = {name: value for name, value in content.items() if name not in KEYS}
    return kept | ({"design": "factorial"} if kept.get("design") == "fractional" else {})
