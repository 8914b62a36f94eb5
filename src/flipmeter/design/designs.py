"""Levels -> cells: all of them, one factor at a time, or the few that tell most."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

from flipmeter.base.chance import draw
from flipmeter.design.arrays import begin_with_base, orthogonal_array
from flipmeter.design.cells import Allowed, Cell, Levels
from flipmeter.design.coding import main_terms, n_columns, pair_terms
from flipmeter.design.exchange import choose
from flipmeter.design.quality import encode
from flipmeter.types import Problem

MOST_CELLS = 100_000
MOST_CANDIDATES = 2_048
"""Of more cells than this a fractional design is chosen among as many, drawn by its seed."""


def factorial(levels: Levels, *, allowed: Allowed | None = None) -> list[Cell]:
    """Every allowed combination of levels, the base first."""
    _check(levels, allowed)
    n_cells = _n_cells(levels)
    if n_cells > MOST_CELLS:
        raise Problem(f"all combinations are {n_cells:,} cells; use a fractional design")
    return [cell for cell in _cells(levels) if _may(allowed, cell)]


def one_at_a_time(levels: Levels, *, allowed: Allowed | None = None) -> list[Cell]:
    """The base, then every cell that differs from it in one factor."""
    base = _check(levels, allowed)
    changed = [{**base, name: value} for name, values in levels.items() for value in values[1:]]
    return [base, *(cell for cell in changed if _may(allowed, cell))]


def fractional(
    levels: Levels, n_runs: int | None = None, *, seed: int = 0, allowed: Allowed | None = None
) -> list[Cell]:
    """The most informative cells for main effects, then for two-way interactions.

    The base comes first and no cell twice. Too few cells to know all interactions are an orthogonal
    array where one of the size is found whose cells are allowed, so that main effects are known as
    well as can be; otherwise, and of more cells, they are found by exchange. `assess` says how
    close they came.
    """
    _check(levels, allowed)
    n_runs = default_runs(levels) if n_runs is None else n_runs
    candidates = _candidates(levels, seed, allowed)
    fewest = max(len(values) for values in levels.values())
    if n_runs < fewest:
        raise Problem(
            f"{n_runs} cells cannot cover a factor of {fewest} levels; ask for more cells"
        )
    if n_runs > len(candidates):
        raise Problem(
            f"a fraction of {n_runs} cells was requested, but there are {len(candidates)} to "
            f"choose "
            "from; ask for fewer, or use a factorial design"
        )
    if n_runs == len(candidates):
        return candidates
    sizes = [len(values) for values in levels.values()]
    n_terms = 1 + sum(n_columns(sizes, term) for term in (*main_terms(sizes), *pair_terms(sizes)))
    array = _array(levels, n_runs, seed, allowed) if n_runs < n_terms else None
    if array is not None:
        return array
    chosen = [candidates[at] for at in choose(encode(levels, candidates), sizes, n_runs, seed)]
    _check_present(levels, chosen)
    return chosen


def default_runs(levels: Levels) -> int:
    """Twice the number of parameters of the main effects, rounded up to balanced levels.

    The paper's six prompt factors get 36. It is never more than all cells.
    """
    sizes = [len(values) for values in levels.values()]
    wanted = 2 * (1 + sum(n_columns(sizes, term) for term in main_terms(sizes)))
    step = math.lcm(*sizes) if sizes else 1
    balanced = -(-wanted // step) * step
    return min(balanced if balanced <= 2 * wanted else wanted, _n_cells(levels))


def _array(levels: Levels, n_runs: int, seed: int, allowed: Allowed | None) -> list[Cell] | None:
    """An orthogonal array with the base in it and only allowed cells, if one is found."""
    found = orthogonal_array([len(values) for values in levels.values()], n_runs, seed)
    if found is None:
        return None
    for row in range(n_runs):
        codes = begin_with_base(found, row)
        cells = [_decoded(levels, own) for own in codes.tolist()]
        if all(_may(allowed, cell) for cell in cells):
            return cells
    return None


def _decoded(levels: Levels, codes: Sequence[int]) -> Cell:
    pairs = zip(levels.items(), codes, strict=True)
    return {name: values[at] for (name, values), at in pairs}


def _n_cells(levels: Levels) -> int:
    return math.prod(len(values) for values in levels.values())


def _cells(levels: Levels) -> Iterator[Cell]:
    for values in product(*levels.values()):
        yield dict(zip(levels, values, strict=True))


def _may(allowed: Allowed | None, cell: Cell) -> bool:
    return allowed is None or allowed(cell)


def _candidates(levels: Levels, seed: int, allowed: Allowed | None) -> list[Cell]:
    """The allowed cells, the base first; of very many a share that the seed draws."""
    if _n_cells(levels) <= MOST_CANDIDATES:
        return [cell for cell in _cells(levels) if _may(allowed, cell)]
    drawn = {tuple(values[0] for values in levels.values()): None}
    for attempt in range(MOST_CANDIDATES - 1):
        picked = (
            values[int(len(values) * draw("cell", seed, attempt, name))]
            for name, values in levels.items()
        )
        drawn[tuple(picked)] = None
    cells: list[Cell] = [dict(zip(levels, values, strict=True)) for values in drawn]
    return [cell for cell in cells if _may(allowed, cell)]


def _check(levels: Levels, allowed: Allowed | None) -> Cell:
    """The base cell; unknown levels and a base that is not allowed are refused."""
    if not levels:
        raise Problem("a design needs a factor; add one to `vary:`")
    for name, values in levels.items():
        if not values:
            raise Problem(f"factor '{name}' has no levels; list its base level and others")
        for value in values:
            if list(values).count(value) > 1:
                raise Problem(f"factor '{name}' lists the level {value!r} more than once")
    base = {name: values[0] for name, values in levels.items()}
    if not _may(allowed, base):
        raise Problem(f"the base {base} is not allowed; a design needs it to compare with")
    return base


def _check_present(levels: Levels, cells: list[Cell]) -> None:
    for name, values in levels.items():
        for value in values:
            if all(cell[name] != value for cell in cells):
                raise Problem(
                    f"no allowed cell with {name}={value!r} fits among {len(cells)}; ask for more "
                    "cells, or leave the level out"
                )
