"""Classes under two views -> which way they move, and what that does to right and wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy import special

from flipmeter.stats.formulas import exact_ends, mcnemar_p, share_estimates
from flipmeter.stats.frame import ScaleUnits, differ
from flipmeter.stats.groups import (
    Column,
    Estimates,
    Floats,
    Groups,
    Ints,
    Ranks,
    Rows,
    counted_rows,
    estimates,
    joined_each,
    ratio,
    rows_of,
)
from flipmeter.stats.judge import up_is_first
from flipmeter.stats.panel import Panel
from flipmeter.stats.readings import Viewed, by_size, viewed
from flipmeter.stats.resampling import jackknife
from flipmeter.types import Contrast

Test = tuple[Floats, Ints, Floats]
"""Statistic, degrees of freedom and p of every group."""

BY_PLACE = {
    "up": "to_first",
    "down": "to_second",
    "preference": "first_minus_second",
    "shift": "step_to_first",
}
"""Names of moves by the place of the answer that they favour, where up is towards the first."""

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
    n_classes: Ints,
    units: ScaleUnits,
) -> dict[str, Estimates]:
    """Estimate the direction of moves in every group, named by what a move up means.

    `up` and `down` are the shares that move to a higher and a lower class, `shift` the mean step,
    `preference` up minus down. Where the second view reverses the label list, moving up means
    that the first slots were preferred: the same numbers are then `primacy`, `recency`,
    `slot_bias` (half the mean step, below 0 for the first slots) and `preference` (recency minus
    primacy).
    """
    read = (first > 0) & (second > 0)
    step = np.where(read, second - first, 0)
    sign = np.where(np.abs(step) > units.tolerance[groups.of], np.sign(step), 0)
    n, failed = groups.count(read), groups.count(~read)
    p = mcnemar_p(groups.count(sign > 0), groups.count(sign < 0), alternative="two-sided")
    up, down = (
        share_estimates(name, mark, read, groups, failed=failed)
        for name, mark in (("up", sign > 0), ("down", sign < 0))
    )
    columns = [sign, step * units.step[groups.of], read]
    names, reach = ("preference", "shift"), _symmetric_reach(n_classes, units)
    told = jackknife(names, columns, groups, reach=reach, n=n, failed=failed)
    about = [f"up minus down, sign test p {value:.4f}" for value in p.tolist()]
    preference = replace(told["preference"], note=joined_each(about, told["preference"].note))
    if not reverses_labels:
        return {"up": up, "down": down, "preference": preference, "shift": told["shift"]}
    return {
        "primacy": replace(up, metric="primacy"),
        "recency": replace(down, metric="recency"),
        "preference": _negate_estimates(
            _reword_notes(preference, "recency minus primacy"), "preference", -1.0
        ),
        "slot_bias": _negate_estimates(told["shift"], "slot_bias", -0.5),
    }


def _reword_notes(found: Estimates, what: str) -> Estimates:
    return replace(found, note=[text.replace("up minus down", what) for text in found.note])


def _negate_estimates(one: Estimates, name: str, by: float) -> Estimates:
    """Multiply by a number below 0, which turns the interval round."""
    ends = by * one.high, by * one.low
    return estimates(name, by * one.value, ends, n=one.n, failed=one.failed, note=one.note)


def _symmetric_reach(n_classes: Ints, units: ScaleUnits) -> Floats:
    """Ends of a sign and of a move, in ranks or in units: groups x 2 x 2."""
    length = (n_classes - 1.0) * units.step
    ends = np.stack([np.ones_like(length), length], axis=-1)
    return np.stack([-ends, ends], axis=-1)


def outcomes(
    first: Ranks, second: Ranks, gold: Ranks, groups: Groups, n_classes: Ints, units: ScaleUnits
) -> dict[str, Estimates]:
    """Estimate in every group what moving does to right and wrong, on items with gold.

    `semantic_bias` is the mean of both views minus gold, `net` the change of accuracy.
    """
    graded = gold > 0
    first, second, gold, groups = first[graded], second[graded], gold[graded], groups.among(graded)
    read, tolerance = (first > 0) & (second > 0), units.tolerance[groups.of]
    n, failed = groups.count(read), groups.count(~read)
    was, now = (~differ(of, gold, tolerance) for of in (first, second))
    moved = read & differ(first, second, tolerance)
    marks = (moved & was, moved & now, moved & ~was & ~now)
    found = {
        name: share_estimates(name, mark, read, groups, failed=failed)
        for name, mark in zip(OUTCOMES, marks, strict=True)
    }
    net = np.where(read, now.astype(np.int64) - was, 0)
    away = np.where(read, (first + second) / 2 - gold, 0.0) * units.step[groups.of]
    names, reach = ("net", "semantic_bias"), _symmetric_reach(n_classes, units)
    return found | jackknife(names, [net, away, read], groups, reach=reach, n=n, failed=failed)


# --- all groups -------------------------------------------------------------------------------


def direction_rows(panel: Panel, contrasts: Sequence[Contrast]) -> Iterator[Rows]:
    """Yield direction, tests of it and consequences of every pair of views."""
    scale = panel.n_classes, panel.units
    for found in viewed(panel, contrasts):
        contrast, groups = found.contrast, found.groups
        if not contrast.is_pair:
            continue
        first, second = found.table.T
        changed = outcomes(first, second, panel.gold[found.items], groups, *scale)
        yield from counted_rows(found.measured, changed.values(), contrast.name)
        to_first = _to_first(panel, found)
        plain, has_list = found.measured & np.isnan(to_first), panel.has_list
        # Where two passages are compared, no list is reversed: there is no slot to lean to.
        for own, is_turned in ((has_list, contrast.reverses_labels), (~has_list, False)):
            moved = moves(first, second, groups, is_turned, *scale)
            yield from counted_rows(plain & own, moved.values(), contrast.name)
        for is_up, (a, b) in ((1.0, (first, second)), (0.0, (second, first))):
            own = found.measured & (to_first == is_up)
            moved = moves(a, b, groups, False, *scale) if own.any() else {}
            named = (
                replace(_reword_notes(one, "first minus second"), metric=BY_PLACE[name])
                for name, one in moved.items()
            )
            yield from counted_rows(own, named, contrast.name)
        for n_classes, own, kept in by_size(panel, found):
            tables = flip_matrices(first[kept], second[kept], n_classes, groups.among(kept))
            for test, numbers in _flip_matrix_tests(tables.astype(np.float64)):
                yield rows_of(own & (test.n > 0), test, contrast.name, "complete", **numbers)


def _to_first(panel: Panel, found: Viewed) -> Floats:
    """By group, 1 if up is towards the answer shown first, 0 if down is, NaN if unknown."""
    towards = np.full(panel.groups.n, np.nan)
    for group in range(panel.groups.n) if found.contrast.swaps_answers else ():
        is_up = up_is_first(panel, found.contrast, found.items & (panel.groups.of == group))
        towards[group] = np.nan if is_up is None else is_up
    return towards


def _flip_matrix_tests(tables: Floats) -> Iterator[tuple[Estimates, dict[str, Column]]]:
    """The tests on the flip matrices of one scale, with the numbers of each."""
    n = tables.sum(axis=(1, 2)).astype(np.int64)
    z, p = signed_ranks(tables)
    for metric, about, (statistic, df, value) in (
        ("bowker", "symmetry", bowker_tests(tables)),
        ("stuart_maxwell", "homogeneity", homogeneity_tests(tables)),
        ("wilcoxon", "", (z, n, p)),
    ):
        note = [f"{about}, df {each}" if about else "signed ranks, z" for each in df.tolist()]
        yield estimates(metric, value, n=n, note=note), {"p": value, "statistic": statistic}


def matrix_rows(panel: Panel, contrasts: Sequence[Contrast]) -> Iterator[Rows]:
    """Yield the flip matrix of every pair: of the items with a class first, the share moving on."""
    pairs = [pair for contrast in contrasts for pair in contrast.pairs]
    for found in viewed(panel, pairs):
        for n_classes, own, kept in by_size(panel, found):
            first, second = found.table[kept].T
            tables = flip_matrices(first, second, n_classes, found.groups.among(kept))
            for here, there in np.ndindex(n_classes, n_classes):
                k, n = tables[:, here, there], tables[:, here].sum(axis=-1)
                name = f"{here + 1}>{there + 1}"
                share = estimates(name, ratio(k, n), exact_ends(k, n), n=n, k=k)
                yield rows_of(own & (n > 0), share, found.contrast.name, "complete")
