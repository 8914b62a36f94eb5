"""Classes under two views -> which way they move, and what that does to right and wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
from scipy import special

from flipmeter.measure.estimates.long_table import Column, Rows, rows_of
from flipmeter.measure.inference.judge import up_is_first
from flipmeter.measure.panel.checked import Booleans, Floats, Ints, Ranks, ratio
from flipmeter.measure.panel.groups import Estimates, Groups, estimates, joined_each
from flipmeter.measure.panel.panel import Panel, compared, conditions
from flipmeter.measure.panel.units import ScaleUnits, differ
from flipmeter.measure.statistics.formulas import mcnemar_p
from flipmeter.measure.statistics.jackknife import jackknife
from flipmeter.measure.statistics.shares import exact_ends, share_estimates
from flipmeter.types import Contrast

Test = tuple[Floats, Ints, Floats]
"""Statistic, degrees of freedom and p of every group."""

OUTCOMES = ("right_to_wrong", "wrong_to_right", "wrong_to_wrong")


def flip_matrices(first: Ranks, second: Ranks, n_classes: int, groups: Groups) -> Ints:
    """Count `flip_matrix` in every group."""
    read = (first > 0) & (second > 0)
    cells = (groups.of * n_classes + first - 1) * n_classes + second - 1
    counts = np.bincount(cells[read], minlength=groups.n * n_classes**2)
    return counts.reshape(groups.n, n_classes, n_classes)


# --- tests ------------------------------------------------------------------------------------


def bowker_tests(tables: Floats) -> Test:
    """Compute `bowker` of every table of a stack; pairs that no item moves between take no part."""
    n_classes = tables.shape[-1]
    rows, columns = np.triu_indices(n_classes, 1)
    up, down = tables[:, rows, columns], tables[:, columns, rows]
    statistic = ((up - down) ** 2 / np.maximum(up + down, 1)).sum(axis=-1)
    df = (up + down > 0).sum(axis=-1)
    return statistic, df, np.where(df > 0, special.chdtrc(np.maximum(df, 1), statistic), 1.0)


def homogeneity_tests(tables: Floats) -> Test:
    """Compute `stuart_maxwell` of every table; classes that never move take no part."""
    both = tables + tables.transpose(0, 2, 1)
    spread = -both
    places = np.arange(tables.shape[-1])
    spread[:, places, places] = both.sum(axis=-1) - 2 * tables[:, places, places]
    away = tables.sum(axis=-1) - tables.sum(axis=-2)
    statistic = np.einsum("gi,gij,gj->g", away, np.linalg.pinv(spread, hermitian=True), away)
    df = np.linalg.matrix_rank(spread, hermitian=True)
    p = np.where(df > 0, special.chdtrc(np.maximum(df, 1), statistic), 1.0)
    return statistic, np.asarray(df, dtype=np.int64), p


def signed_ranks(tables: Floats) -> tuple[Floats, Floats]:
    """Compute `wilcoxon` of every table of a stack."""
    n_classes = tables.shape[-1]
    steps = range(1, n_classes)
    up, down = (
        np.stack([np.trace(tables, sign * step, 1, 2) for step in steps], axis=-1)
        for sign in (1, -1)
    )
    sizes = up + down
    midranks = np.cumsum(sizes, axis=-1) - (sizes - 1) / 2
    difference = ((up - down) * midranks).sum(axis=-1) / 2
    n = sizes.sum(axis=-1)
    ties = (sizes**3 - sizes).sum(axis=-1)
    variance = (n * (n + 1) * (2 * n + 1) - ties / 2) / 24
    z = np.where(n > 0, difference / np.sqrt(np.where(n > 0, variance, 1)), 0.0)
    return z, np.where(n > 0, 2 * special.stdtr(np.maximum(n - 1, 1), -np.abs(z)), 1.0)


# --- estimates --------------------------------------------------------------------------------


def moves(
    first: Ranks,
    second: Ranks,
    groups: Groups,
    reverses_labels: bool,
    n_classes: int | Ints,
    units: ScaleUnits | None = None,
) -> dict[str, Estimates]:
    """Estimate the direction of moves in every group, named by what a move up means."""
    read = (first > 0) & (second > 0)
    step, tolerance, unit = np.where(read, second - first, 0), *_ruler(units, groups)
    sign = np.where(np.abs(step) > tolerance, np.sign(step), 0)
    n, failed = groups.count(read), groups.count(~read)
    up, down = groups.count(sign > 0), groups.count(sign < 0)
    p = mcnemar_p(up, down, alternative="two-sided")
    found = {
        name: share_estimates(name, mark, read, groups, failed=failed)
        for name, mark in (("up", sign > 0), ("down", sign < 0))
    }
    note = [f"up minus down, sign test p {value:.4f}" for value in p.tolist()]
    columns, reach = [sign, step * unit, read], _reach(groups.n, 1, _length(n_classes, units))
    found |= jackknife(["preference", "shift"], columns, groups, reach=reach, n=n, failed=failed)
    preference = found["preference"]
    found["preference"] = replace(preference, note=joined_each(note, preference.note))
    return _turned(found) if reverses_labels else found


def _turned(found: Mapping[str, Estimates]) -> dict[str, Estimates]:
    """Name moves by slots: up means that the slots at the front of both lists were preferred."""
    preference, shift = found["preference"], found["shift"]
    note = [text.replace("up minus down", "recency minus primacy") for text in preference.note]
    return {
        "primacy": replace(found["up"], metric="primacy"),
        "recency": replace(found["down"], metric="recency"),
        "preference": _scaled(preference, "preference", -1.0, note),
        "slot_bias": _scaled(shift, "slot_bias", -0.5, shift.note),
    }


def _scaled(one: Estimates, name: str, by: float, note: Sequence[str]) -> Estimates:
    """Multiply by a number below 0, which turns the interval round."""
    ends = by * one.high, by * one.low
    return estimates(name, by * one.value, ends, n=one.n, failed=one.failed, note=note)


def _ruler(units: ScaleUnits | None, groups: Groups) -> tuple[Ints | int, Floats | float]:
    """By how many ranks an item may move and stay the same, and what a rank is in units."""
    if units is None:
        return 0, 1.0
    return units.tolerance[groups.of], units.step[groups.of]


def _length(n_classes: int | Ints, units: ScaleUnits | None) -> Floats:
    """Largest possible move of an item, in ranks or in units."""
    return (np.asarray(n_classes) - 1.0) * (1.0 if units is None else units.step)


def _reach(n_groups: int, *most: int | Floats) -> Floats:
    """Largest distance of an item from 0 in either direction: groups x metrics x 2."""
    ends = np.stack([np.broadcast_to(one, (n_groups,)) for one in most], axis=-1)
    return np.stack([-1.0 * ends, 1.0 * ends], axis=-1)


def outcomes(
    first: Ranks,
    second: Ranks,
    gold: Ranks,
    groups: Groups,
    n_classes: int | Ints,
    units: ScaleUnits | None = None,
) -> dict[str, Estimates]:
    """Estimate in every group what moving does to right and wrong, on items with gold."""
    graded = gold > 0
    first, second, gold, groups = first[graded], second[graded], gold[graded], groups.among(graded)
    read = (first > 0) & (second > 0)
    n, failed = groups.count(read), groups.count(~read)
    tolerance, unit = _ruler(units, groups)
    was, now = (~differ(of, gold, tolerance) for of in (first, second))
    moved = read & differ(first, second, tolerance)
    marks = (moved & was, moved & now, moved & ~was & ~now)
    found = {
        name: share_estimates(name, mark, read, groups, failed=failed)
        for name, mark in zip(OUTCOMES, marks, strict=True)
    }
    net = np.where(read, now.astype(np.int64) - was, 0)
    away = np.where(read, (first + second) / 2 - gold, 0.0) * unit
    reach = _reach(groups.n, 1, _length(n_classes, units))
    columns = [net, away, read]
    return found | jackknife(
        ["net", "semantic_bias"], columns, groups, reach=reach, n=n, failed=failed
    )


# --- all groups -------------------------------------------------------------------------------


def direction_rows(panel: Panel, contrasts: Sequence[Contrast]) -> Iterator[Rows]:
    """Yield direction, tests of it and consequences of every pair of views."""
    for contrast in contrasts:
        found = compared(panel, contrast)
        if not contrast.is_pair or not found.items.any():
            continue
        first, second = conditions(panel, contrast, found.items)
        groups = panel.groups.among(found.items)
        gold, units = panel.gold[found.items], panel.units
        changed = outcomes(first, second, gold, groups, panel.n_classes, units)
        for one in changed.values():
            yield rows_of(found.measured & (one.n > 0), one, contrast.name, "complete")
        # Where two passages are compared, no list is reversed: there is no slot to lean to.
        has_list = panel.has_list
        to_first = _to_first(panel, contrast, found.items) if contrast.swaps_answers else None
        for own, is_turned in ((has_list, contrast.reverses_labels), (~has_list, False)):
            told = own & found.measured if to_first is None else own & np.isnan(to_first)
            for one in moves(first, second, groups, is_turned, panel.n_classes, units).values():
                yield rows_of(told & found.measured & (one.n > 0), one, contrast.name, "complete")
        for is_up, (a, b) in ((1.0, (first, second)), (0.0, (second, first))):
            if to_first is None or not (own := (to_first == is_up) & found.measured).any():
                continue
            for one in _placed(moves(a, b, groups, False, panel.n_classes, units)):
                yield rows_of(own & (one.n > 0), one, contrast.name, "complete")
        for n_classes in panel.class_sizes:
            own = found.measured & panel.of_size(n_classes)
            yield from _test_rows(first, second, groups, own, contrast.name, n_classes)


def _to_first(panel: Panel, contrast: Contrast, items: Booleans) -> Floats:
    """By group, 1 if up is towards the answer shown first, 0 if down is, NaN if unknown."""
    found = (
        up_is_first(panel, contrast, items & (panel.groups.of == group))
        for group in range(panel.groups.n)
    )
    return np.array([np.nan if one is None else float(one) for one in found])


def _placed(found: Mapping[str, Estimates]) -> Iterator[Estimates]:
    """Name moves by the place of the answer that they favour; up is towards the first."""
    names = {
        "up": "to_first",
        "down": "to_second",
        "preference": "first_minus_second",
        "shift": "step_to_first",
    }
    for name, one in found.items():
        note = [text.replace("up minus down", "first minus second") for text in one.note]
        yield replace(one, metric=names[name], note=note)


def _test_rows(
    first: Ranks, second: Ranks, groups: Groups, own: Booleans, name: str, n_classes: int
) -> Iterator[Rows]:
    """Yield the tests on the flip matrices of one scale."""
    kept = own[groups.of]
    tables = flip_matrices(first[kept], second[kept], n_classes, groups.among(kept))
    n, counts = tables.sum(axis=(1, 2)), tables.astype(np.float64)
    symmetry, homogeneity = bowker_tests(counts), homogeneity_tests(counts)
    z, p = signed_ranks(counts)
    notes = {
        "bowker": [f"symmetry, df {df}" for df in symmetry[1].tolist()],
        "stuart_maxwell": [f"homogeneity, df {df}" for df in homogeneity[1].tolist()],
        "wilcoxon": ["signed ranks, z"] * len(n),
    }
    tests: dict[str, tuple[Column, Column]] = {
        "bowker": (symmetry[0], symmetry[2]),
        "stuart_maxwell": (homogeneity[0], homogeneity[2]),
        "wilcoxon": (z, p),
    }
    for metric, (statistic, p_value) in tests.items():
        tested = estimates(metric, p_value, n=n, note=notes[metric])
        yield rows_of(own & (n > 0), tested, name, "complete", p=p_value, statistic=statistic)


def matrix_rows(panel: Panel, contrasts: Sequence[Contrast]) -> Iterator[Rows]:
    """Yield the flip matrix of every pair: of the items with a class first, the share moving on."""
    for contrast in chain.from_iterable(one.pairs for one in contrasts):
        found = compared(panel, contrast)
        if not found.items.any():
            continue
        views = conditions(panel, contrast, found.items)
        groups = panel.groups.among(found.items)
        for n_classes in panel.class_sizes:
            own = found.measured & panel.of_size(n_classes)
            kept = own[groups.of]
            first, second = (view[kept] for view in views)
            tables = flip_matrices(first, second, n_classes, groups.among(kept))
            for here, there in np.ndindex(n_classes, n_classes):
                k, n = tables[:, here, there], tables[:, here].sum(axis=-1)
                name = f"{here + 1}>{there + 1}"
                share = estimates(name, ratio(k, n), exact_ends(k, n), n=n, k=k)
                yield rows_of(own & (n > 0), share, contrast.name, "complete")
