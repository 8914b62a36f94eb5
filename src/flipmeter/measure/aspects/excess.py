"""Repeated runs of several views -> how much the views disagree beyond their own noise."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import numpy.typing as npt

from flipmeter.measure.estimates.long_table import Rows, rows_of
from flipmeter.measure.inference.bounds import LOWEST_EXCESS
from flipmeter.measure.inference.sizes import grouped_excess
from flipmeter.measure.panel.checked import (
    Booleans,
    Floats,
    Ints,
    Ranks,
    rank_table,
    ratio,
    same_length,
)
from flipmeter.measure.panel.frame import Decisions
from flipmeter.measure.panel.groups import (
    Estimates,
    Groups,
    estimates,
    joined_each,
    one_group,
    undefined,
)
from flipmeter.measure.panel.panel import ABSENT, Panel, by_construction, compared
from flipmeter.measure.panel.reading import Panels, panels_of
from flipmeter.measure.panel.units import ScaleUnits, differ
from flipmeter.measure.statistics.jackknife import jackknife
from flipmeter.types import NO_CLASS, Contrast, Estimate, Remark

EXCESSES = ("excess", "excess_ordinal", "across", "within", "signal_ratio")
ENOUGH_REPEATED = 20
"""With fewer items a noise of exactly 0 is not surprising."""


def excess_over_noise(*views: npt.ArrayLike, n_classes: int) -> dict[str, Estimate]:
    """Disagreement between views beyond that between repeats of each view.

    Each view is items x repeats, two repeats or more. `excess` is U = P(a != b) - mean noise,
    averaged over the pairs of views; its expectation is half the sum of (p - q)^2, 0 only if the
    views give the same answers with the same chances. `excess_ordinal` counts distances instead.
    `across` and `within` are the two sides of U, `signal_ratio` is one over the other. An item
    counts if every view was read at least twice. The ratio has no interval: its parts have.
    """
    tables = [rank_table(view, f"view {place}", n_classes) for place, view in enumerate(views, 1)]
    same_length(**{f"view {place}": table for place, table in enumerate(tables, 1)})
    found = excess_estimates(tables, np.array([n_classes]), one_group(len(tables[0])))
    return {name: one.only() for name, one in found.items()}


def excess_estimates(
    tables: Sequence[Ranks], n_classes: Ints, groups: Groups, units: ScaleUnits | None = None
) -> dict[str, Estimates]:
    """Estimate `EXCESSES` in every group: items x repeats of each view, and the group's scale.

    The excess of two views that were asked twice has the interval of a verdict. Of decimal scores
    the ordinal one is in their units.
    """
    units = units or ScaleUnits([None] * groups.n)
    (across, within), (far, wide) = _both_apart(tables, groups, units)
    read = np.min([(table > 0).sum(axis=1) for table in tables], axis=0) >= 2
    asked = np.min([(table != ABSENT).sum(axis=1) for table in tables], axis=0) >= 2
    columns = [across - within, far - wide, across, within, np.ones_like(across)]
    adds = [np.where(read, column, 0.0) for column in columns]
    n, failed = groups.count(read), groups.count(asked & ~read)
    found = jackknife(
        EXCESSES[:-1],
        [column[asked] for column in adds],
        groups.among(asked),
        reach=_reach((n_classes - 1.0) * units.step, groups.n),
        n=n,
        failed=failed,
    )
    found["signal_ratio"] = estimates(
        "signal_ratio",
        ratio(found["across"].value, found["within"].value),
        n=n,
        failed=failed,
        note="no interval: a ratio of across and within, which have one",
    )
    if [table.shape[1] for table in tables] == [2, 2]:
        first, again = (np.stack([table[asked, k] for table in tables], axis=1) for k in (0, 1))
        among = groups.among(asked)
        whose = np.arange(len(among.of)) if among.cluster is None else among.cluster
        found["excess"] = grouped_excess(first, again, whose, among, "excess", units.spans)
    return found


def _reach(length: Floats, n_groups: int) -> Floats:
    """Ends of what an item can add to excess, ordinal excess, across and within."""
    far = np.broadcast_to(length, (n_groups,))
    ends = np.zeros((n_groups, 4, 2))
    ends[..., 1] = 1.0
    ends[:, 0, 0] = LOWEST_EXCESS
    ends[:, 1] = np.stack([LOWEST_EXCESS * far, far], axis=-1)
    return ends


Apart = tuple[Floats, Floats]
"""Disagreement of each item across views, and within them."""


def _both_apart(tables: Sequence[Ranks], groups: Groups, units: ScaleUnits) -> tuple[Apart, Apart]:
    """Share of differing runs of each item, and their mean distance."""
    of_scores = units.decimal[groups.of]
    found = np.zeros((4, len(groups.of)))
    if not of_scores.all():
        listed = [table[~of_scores] for table in tables]
        parts = *_apart(listed, ordinal=False), *_apart(listed, ordinal=True)
        found[:, ~of_scores] = np.stack(parts)
    if of_scores.any():
        own, among = [table[of_scores] for table in tables], groups.of[of_scores]
        found[:, of_scores] = _scores_apart(own, units.tolerance[among], units.step[among])
    return (found[0], found[1]), (found[2], found[3])


def _scores_apart(tables: Sequence[Ranks], tolerance: Ints, step: Floats) -> Floats:
    """The same of decimal scores, pair by pair of runs: rows are across, within, far and wide."""
    runs = [(view, run) for view, table in enumerate(tables) for run in table.T]
    counts, sums, widths = np.zeros((3, 2, len(step)))
    for (one, a), (other, b) in combinations(runs, 2):
        read, side = (a > 0) & (b > 0), int(one == other)
        counts[side] += read
        sums[side] += read & differ(a, b, tolerance)
        widths[side] += np.where(read, np.abs(a - b) * step, 0.0)
    n = np.maximum(counts, 1)
    return np.concatenate([sums / n, widths / n])


def _apart(tables: Sequence[Ranks], *, ordinal: bool) -> Apart:
    """By item the mean disagreement across views and within them.

    Shares of each class give how often two runs differ, shares up to each class how far they are
    apart: the same sum, in which every flip would count twice.
    """
    classes = np.arange(1, max(2, *(int(table.max()) + 1 for table in tables)))
    runs = [np.maximum((table > 0).sum(axis=1, keepdims=True), 1) for table in tables]
    counts = [_counts(table, classes, ordinal) for table in tables]
    shares = [count / n for count, n in zip(counts, runs, strict=True)]
    across = [(x * (1 - y) + y * (1 - x)).sum(axis=1) for x, y in combinations(shares, 2)]
    within = [
        2 * (count * (n - count)).sum(axis=1) / np.maximum(n * (n - 1), 1)[:, 0]
        for count, n in zip(counts, runs, strict=True)
    ]
    weight = 1.0 if ordinal else 0.5
    return weight * np.mean(across, axis=0), weight * np.mean(within, axis=0)


def _counts(table: Ranks, classes: Ints, ordinal: bool) -> Floats:
    """Count the runs with each class, or up to each class (items x classes)."""
    run = table[:, :, None]
    reach = (run <= classes) & (run > 0) if ordinal else run == classes
    return np.asarray(reach.sum(axis=1), dtype=np.float64)


# --- all groups -------------------------------------------------------------------------------


def excess_rows(panel: Panel, contrasts: Sequence[Contrast]) -> Iterator[Rows]:
    """Yield the excess of every contrast whose views were all repeated.

    A rater that is reproducible by construction stands for its own repeat, without noise.
    """
    for contrast in contrasts:
        found = compared(panel, contrast)
        if not found.items.any():
            continue
        settled = _settled(panel, contrast)
        tables = [_runs(panel, view, settled)[found.items] for view in contrast.views]
        groups = panel.groups.among(found.items)
        excess = excess_estimates(tables, panel.n_classes, groups, panel.units)
        repeated = excess["excess"].n + excess["excess"].failed > 0
        note = np.where(settled, "noise 0 by construction", "").tolist()
        for one in excess.values():
            about = joined_each(one.note, note)
            yield rows_of(
                found.measured & repeated, replace(one, note=about), contrast.name, "complete"
            )
        missing = found.measured & ~repeated
        why = ["not all views repeated: see repeat_views"]
        yield rows_of(missing, undefined("excess", why * panel.groups.n), contrast.name, "complete")


def _settled(panel: Panel, contrast: Contrast) -> Booleans:
    """Mark the groups whose rater is declared reproducible and never differed where repeated."""
    views = {"base", *contrast.views}
    agrees = np.stack([by_construction(panel, view) for view in views])
    repeated = np.stack([panel.has((view, 0), (view, 1)) for view in views])
    return np.asarray(agrees.any(axis=0) & (agrees | ~repeated).all(axis=0))


def _runs(panel: Panel, view: str, settled: Booleans) -> Ranks:
    """All runs of a view, items x repeats; a settled first run also counts as the second."""
    repeats = sorted({repeat for name, repeat in panel.ranks if name == view} | {0, 1})
    table = np.stack([panel.classes((view, repeat)) for repeat in repeats], axis=1)
    own = settled[panel.groups.of]
    table[own, 1] = table[own, 0]
    table[own, 2:] = ABSENT
    return table


# --- warnings ---------------------------------------------------------------------------------


def _repeated(panel: Panel) -> Iterator[tuple[str, int, int, int]]:
    """By group its rater, the items that a view asked again, and those moved and those all read.

    "No class" is a class of its own.
    """
    for view in dict.fromkeys(name for name, _ in panel.ranks):
        runs = [panel.ranks[name, repeat] for name, repeat in panel.ranks if name == view]
        again = [panel.asked(run) for run in panel.ranks if run[0] == view and run[1] > 0]
        if not again:
            continue
        highest = np.max(runs, axis=0)
        lowest = np.min([np.where(run == ABSENT, highest, run) for run in runs], axis=0)
        n_runs = np.sum([run != ABSENT for run in runs], axis=0)
        kept = np.any(again, axis=0) & (n_runs > 1)
        some_failed = (lowest == NO_CLASS) & (highest > NO_CLASS)
        moved = some_failed | (highest - lowest > panel.tolerance)
        counts = (kept, kept & moved, kept & (lowest > NO_CLASS))
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
        for rater, n, n_moved, n_read in _repeated(panel):
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
