"""Repeated runs of several views -> how much the views disagree beyond their own noise."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, combinations_with_replacement, product

import numpy as np

from flipmeter.stats.bounds import LOWEST_EXCESS
from flipmeter.stats.flips import find_flips
from flipmeter.stats.frame import Decisions, ScaleUnits, differ
from flipmeter.stats.groups import (
    Booleans,
    Estimates,
    Floats,
    Groups,
    Ints,
    Ranks,
    Rows,
    estimates,
    joined_each,
    ratio,
    rows_of,
    undefined,
)
from flipmeter.stats.panel import ABSENT, Panel, by_construction
from flipmeter.stats.reading import Panels, panels_of
from flipmeter.stats.readings import viewed
from flipmeter.stats.resampling import jackknife
from flipmeter.stats.sizes import grouped_excess
from flipmeter.types import NO_CLASS, Contrast, Remark

EXCESSES = ("excess", "excess_ordinal", "across", "within", "signal_ratio")
ENOUGH_REPEATED = 20
"""With fewer items a noise of exactly 0 is not surprising."""


def excess_estimates(
    tables: Sequence[Ranks], n_classes: Ints, groups: Groups, units: ScaleUnits
) -> dict[str, Estimates]:
    """Estimate `EXCESSES` in every group: items x repeats of each view, and the group's scale.

    `excess` is U = P(a != b) - mean noise, averaged over the pairs of views; its expectation is
    half the sum of (p - q)^2, 0 only if the views give the same answers with the same chances.
    `excess_ordinal` counts distances instead. An item counts if every view was read at least twice.
    The excess of two views that were asked twice has the interval of a verdict. Of decimal scores
    the ordinal one is in their units.
    """
    (across, within), (far, wide) = _mean_disagreement(tables, groups, units)
    read = np.min([(table > 0).sum(axis=1) for table in tables], axis=0) >= 2
    asked = np.min([(table != ABSENT).sum(axis=1) for table in tables], axis=0) >= 2
    columns = [across - within, far - wide, across, within, np.ones_like(across)]
    adds = [np.where(read, column, 0.0)[asked] for column in columns]
    n, failed, among = groups.count(read), groups.count(asked & ~read), groups.among(asked)
    length = np.broadcast_to((n_classes - 1.0) * units.step, (groups.n,))
    reach = np.zeros((groups.n, 4, 2))
    reach[..., 1] = 1.0
    reach[:, 0, 0] = LOWEST_EXCESS
    reach[:, 1] = np.stack([LOWEST_EXCESS * length, length], axis=-1)
    found = jackknife(EXCESSES[:-1], adds, among, reach=reach, n=n, failed=failed)
    found["signal_ratio"] = estimates(
        "signal_ratio",
        ratio(found["across"].value, found["within"].value),
        n=n,
        failed=failed,
        note="no interval: a ratio of across and within, which have one",
    )
    if [table.shape[1] for table in tables] == [2, 2]:
        first, again = (np.stack([table[asked, k] for table in tables], axis=1) for k in (0, 1))
        whose = np.arange(len(among.of)) if among.cluster is None else among.cluster
        found["excess"] = grouped_excess(first, again, whose, among, "excess", units.spans)
    return found


def _mean_disagreement(tables: Sequence[Ranks], groups: Groups, units: ScaleUnits) -> Floats:
    """By item how often two runs differ, and how far apart they are: each across views and within.

    A mean over the pairs of views, and over the views.
    """
    tolerance, step = units.tolerance[groups.of], units.step[groups.of]
    found: list[list[Floats]] = [[], []]
    for one, other in combinations_with_replacement(range(len(tables)), 2):
        n = np.zeros(len(step))
        sums = np.zeros((2, len(step)))
        runs = tables[one].T, tables[other].T
        for a, b in combinations(runs[0], 2) if one == other else product(*runs):
            read = (a > 0) & (b > 0)
            n += read
            sums += read & differ(a, b, tolerance), np.where(read, np.abs(a - b) * step, 0.0)
        found[one == other].append(sums / np.maximum(n, 1))
    return np.stack([np.mean(side, axis=0) for side in found], axis=1)


# --- all groups -------------------------------------------------------------------------------


def excess_rows(panel: Panel, contrasts: Sequence[Contrast]) -> Iterator[Rows]:
    """Yield the excess of every contrast whose views were all repeated.

    A rater that is reproducible by construction stands for its own repeat, without noise.
    """
    for found in viewed(panel, contrasts):
        name, settled = found.contrast.name, _reproducible_groups(panel, found.contrast)
        tables = [
            _view_run_table(panel, view, settled)[found.items] for view in found.contrast.views
        ]
        excess = excess_estimates(tables, panel.n_classes, found.groups, panel.units)
        repeated = excess["excess"].n + excess["excess"].failed > 0
        note = np.where(settled, "noise 0 by construction", "").tolist()
        for one in excess.values():
            about = replace(one, note=joined_each(one.note, note))
            yield rows_of(found.measured & repeated, about, name, "complete")
        why = ["not all views repeated: see repeat_views"] * panel.groups.n
        missing = found.measured & ~repeated
        yield rows_of(missing, undefined("excess", why), name, "complete")


def _reproducible_groups(panel: Panel, contrast: Contrast) -> Booleans:
    """Mark the groups whose rater is declared reproducible and never differed where repeated."""
    views = {"base", *contrast.views}
    agrees = np.stack([by_construction(panel, view) for view in views])
    repeated = np.stack([panel.has((view, 0), (view, 1)) for view in views])
    return np.asarray(agrees.any(axis=0) & (agrees | ~repeated).all(axis=0))


def _view_run_table(panel: Panel, view: str, settled: Booleans) -> Ranks:
    """All runs of a view, items x repeats; a settled first run also counts as the second."""
    repeats = sorted({repeat for name, repeat in panel.ranks if name == view} | {0, 1})
    table = np.stack([panel.classes((view, repeat)) for repeat in repeats], axis=1)
    own = settled[panel.groups.of]
    table[own, 1] = table[own, 0]
    table[own, 2:] = ABSENT
    return table


# --- warnings ---------------------------------------------------------------------------------


def _count_repeated_items(panel: Panel) -> Iterator[tuple[str, int, int, int]]:
    """By group its rater, the items that a view asked again, and those moved and those all read.

    "No class" is a class of its own.
    """
    for view in dict.fromkeys(name for name, _ in panel.ranks):
        repeats = [repeat for name, repeat in panel.ranks if name == view]
        if not any(repeats):
            continue
        runs = np.stack([panel.ranks[view, repeat] for repeat in repeats], axis=1)
        asked = runs != ABSENT
        kept = asked[:, np.array(repeats) > 0].any(axis=1) & (asked.sum(axis=1) > 1)
        moved = find_flips(runs, panel.groups, panel.tolerance).strict > 0
        counts = (kept, kept & moved, kept & (runs != NO_CLASS).all(axis=1))
        each = (panel.groups.count(marked).tolist() for marked in counts)
        yield from zip(panel.keys["rater"], *each, strict=True)


def noise_warnings(
    decisions: Decisions | Panel | Panels,
    greedy: Collection[str],
    reproducible: Collection[str] = (),
) -> Mapping[str, list[Remark]]:
    """Say by rater when repeats look wrong: never different with sampling, different when greedy.

    `greedy` names the raters that do not sample; a reproducible one answers for itself elsewhere.
    """
    counts: dict[str, tuple[int, int, int]] = {}
    for panel in panels_of(decisions):
        for rater, n, n_moved, n_read in _count_repeated_items(panel):
            so_far = counts.get(rater, (0, 0, 0))
            counts[rater] = (so_far[0] + n, so_far[1] + n_moved, so_far[2] + n_read)
    found: dict[str, list[Remark]] = {}
    for rater, (n, n_moved, n_read) in sorted(counts.items()):
        # Replies without a class may differ: that all are cut off says nothing of the temperature.
        if rater not in greedy and not n_moved and n_read >= ENOUGH_REPEATED:
            text = (
                "repeats differ although it samples: the temperature was ignored, or replies were "
                "cached"
            )
            found[rater] = [Remark(text, f"0 of {n_read:,}")]
        elif rater in greedy and n_moved and rater not in reproducible:
            text = "repeats differ although decoding is greedy: the engine is not deterministic"
            found[rater] = [Remark(text, f"{n_moved:,} of {n:,}")]
    return found
