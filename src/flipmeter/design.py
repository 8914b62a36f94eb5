"""Levels -> cells: one level of every factor; a cell's name says what differs from the base."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import product
from typing import Any

from flipmeter.errors import Problem
from flipmeter.types import Style

Cell = Mapping[str, Any]
Levels = Mapping[str, Sequence[Any]]
"""The levels of every factor; the first one is the base's."""
Allowed = Callable[[Cell], bool]
"""Says whether a cell may be asked: some combinations have no meaning."""

STYLE_ORDER = tuple(field.name for field in fields(Style))
MOST_CELLS = 100_000


def factorial(levels: Levels, *, allowed: Allowed | None = None) -> list[Cell]:
    """Every allowed combination of levels, the base first."""
    if not levels:
        raise Problem("a design needs a factor; add one to `vary:`")
    for name, values in levels.items():
        if not values:
            raise Problem(f"factor '{name}' has no levels; list its base level and others")
        for value in values:
            if list(values).count(value) > 1:
                raise Problem(f"factor '{name}' lists the level {value!r} more than once")
    base = {name: values[0] for name, values in levels.items()}
    if allowed is not None and not allowed(base):
        raise Problem(f"the base {base} is not allowed; a design needs it to compare with")
    n_cells = math.prod(len(values) for values in levels.values())
    if n_cells > MOST_CELLS:
        raise Problem(f"all combinations are {n_cells:,} cells; vary fewer factors or levels")
    cells = (dict(zip(levels, values, strict=True)) for values in product(*levels.values()))
    return [cell for cell in cells if allowed is None or allowed(cell)]


def cell_name(base: Mapping[str, Any], cell: Cell) -> str:
    """Write what differs from the base, in the order of Style: "label_format=letter,shots=1"."""
    changed = [factor for factor, value in cell.items() if value != base[factor]]
    for factor in changed:
        if any(mark in str(cell[factor]) for mark in ",="):
            raise Problem(
                f"level {cell[factor]!r} of '{factor}' contains a comma or an equals sign, which "
                "separate the parts of a cell's name; give the level another name"
            )
    return ",".join(f"{factor}={cell[factor]}" for factor in in_style_order(changed))


def parse_cell(name: str) -> dict[str, str]:
    """Read the factors that differ from the base, and their levels; the base itself is {}."""
    found: dict[str, str] = {}
    for part in name.split(",") if name else ():
        factor, equals, value = part.partition("=")
        if not equals or not factor or factor in found or "=" in value:
            raise Problem(
                f"level '{name}' is not a cell of a design; cells are named 'factor=value', joined "
                "by commas, with each factor once"
            )
        found[factor] = value
    return found


def in_style_order(factors: Iterable[str]) -> list[str]:
    """Sort factors as Style has them; what it does not know comes after, as given."""
    return sorted(
        factors,
        key=lambda name: STYLE_ORDER.index(name) if name in STYLE_ORDER else len(STYLE_ORDER),
    )


def levels_of(base: Mapping[str, Any], vary: Levels) -> dict[str, tuple[Any, ...]]:
    """The levels of the factors that vary, the base's first."""
    found = {name: tuple(dict.fromkeys([base[name], *values])) for name, values in vary.items()}
    return {name: found[name] for name in in_style_order(found) if len(found[name]) > 1}
