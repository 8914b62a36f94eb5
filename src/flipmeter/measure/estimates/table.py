"""Decisions -> Estimates: one long table, a row for each number."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from flipmeter.measure.estimates.decimal_scores import (
    DECIMAL_ONLY,
    decimal_rows,
    graded,
    is_scored,
)
from flipmeter.measure.estimates.flips import (
    POLICIES,
    count_discordant,
    estimate_flips,
    find_flips,
    silent_noise,
)
from flipmeter.measure.estimates.long_table import Column, Rows, as_frame, rows_of
from flipmeter.measure.estimates.readings import flip_rows, worded
from flipmeter.measure.estimates.scored import score_estimates
from flipmeter.measure.estimates.scores import SCORES, ScorePolicy
from flipmeter.measure.estimates.tokens import calls_made, hidden_estimates, output_tokens
from flipmeter.measure.inference.blocks import Strata
from flipmeter.measure.inference.sizes import grouped_excess
from flipmeter.measure.inference.weighted import weighted_estimate, weighted_mean
from flipmeter.measure.panel.checked import Booleans, Floats
from flipmeter.measure.panel.frame import Decisions
from flipmeter.measure.panel.groups import Estimates, Groups, estimates, joined_each, undefined
from flipmeter.measure.panel.panel import (
    ABSENT,
    Compared,
    Panel,
    by_construction,
    compared,
    conditions,
    noise_runs,
)
from flipmeter.measure.panel.reading import Panels, panels_of
from flipmeter.measure.panel.units import differ
from flipmeter.measure.statistics.formulas import (
    METHODS,
    cochran_p,
    mcnemar_p,
    mcnemar_statistic,
)
from flipmeter.measure.statistics.shares import share_estimates
from flipmeter.metrics import added_scores
from flipmeter.registry import suggestion
from flipmeter.types import ALPHA, NO_LABELS, Contrast, Mode, Problem

TESTED: tuple[ScorePolicy, ...] = ("complete", "strict")
GRADED = tuple(name for name in SCORES if name != "parse_failure")


def measure(
    decisions: Decisions | Panel | Panels,
    contrasts: Sequence[Contrast],
    *,
    mode: Mode = "recommended",
    reproducible: Collection[str] = (),
) -> pl.DataFrame:
    """Measure every rater on every dataset, level and seed.

    `mode` decides the tests: mid-p, complete and strict; or as the paper did, corrected chi-square
    on complete cases. Flip rates come in all three policies either way. `reproducible` names the
    raters whose few repeated items stand for all of them. An undefined number is null, and its
    note says why.
    """
    if mode not in ("recommended", "paper"):
        raise Problem(f"no mode named '{mode}'{suggestion(mode, ['recommended', 'paper'])}")
    return pl.concat(
        as_frame(list(_rows(panel, contrasts, mode)), panel.keys, mode, panel.nominal)
        for panel in panels_of(decisions, reproducible)
    )


def _rows(panel: Panel, contrasts: Sequence[Contrast], mode: Mode) -> Iterator[Rows]:
    """Yield the rows of all groups at once; each group's own rows come in the order it has them."""
    yield from _score_rows(panel, mode)
    for contrast in contrasts:
        found = compared(panel, contrast)
        yield from flip_rows(panel, contrast, found, mode)
        if contrast.is_pair:
            first, second = (panel.classes((view, 0)) for view in contrast.views)
            differs = differ(first, second, panel.tolerance).astype(np.float64)
            both = differs, found.items & (first > 0) & (second > 0)
            yield from _weighted_rows(panel, contrast.name, found.measured, both)
            yield from _noise_test_rows(panel, contrast, found, mode)
            yield from _excess_rows(panel, contrast, found)
        yield from _accuracy_test_rows(panel, contrast, found, mode)
    for view in panel.views:
        yield from _noise_rows(panel, view, mode)
    for tokens in (
        calls_made(panel.calls, panel.replies),
        output_tokens(panel.completion, panel.replies),
        hidden_estimates(panel.completion, panel.reasoning, panel.replies),
    ):
        yield rows_of(~np.isnan(tokens.value), tokens)


def _test_policies(mode: Mode) -> tuple[ScorePolicy, ...]:
    return ("complete",) if mode == "paper" else TESTED


# --- scores -----------------------------------------------------------------------------------


def _score_rows(panel: Panel, mode: Mode) -> Iterator[Rows]:
    decimal, note = panel.units.decimal, [NO_LABELS] * panel.groups.n
    for view in panel.views:
        asked, ranks = panel.has((view, 0)), panel.classes((view, 0))
        # Failures are shares of all items that were asked, with or without gold.
        told: dict[str, Any] = {"failed": panel.groups.count(ranks == 0), "mode": mode}
        asked_of = panel.asked((view, 0))
        unread = share_estimates("parse_failure", ranks == 0, asked_of, panel.groups, **told)
        yield rows_of(asked, unread, view, "complete")
        ungraded = asked & ~graded(panel, view)
        for name in (*GRADED, *DECIMAL_ONLY, *added_scores()):
            own = ungraded & is_scored(name, decimal)
            yield rows_of(own, undefined(name, note), view, "complete")
        right = panel.is_right(ranks).astype(np.float64), ranks > 0
        yield from _weighted_rows(panel, "accuracy", asked, right, view)
    for n_classes in panel.class_sizes if panel.views else ():
        yield from _graded_rows(panel, n_classes, mode)
    yield from decimal_rows(panel, _test_policies(mode), mode)


def _graded_rows(panel: Panel, n_classes: int, mode: Mode) -> Iterator[Rows]:
    """Score the groups of one scale, view by view."""
    for policy in _test_policies(mode):
        for view in panel.views:
            known = panel.of_size(n_classes) & graded(panel, view)
            items = panel.asked((view, 0)) & (panel.gold > 0) & known[panel.groups.of]
            gold, predicted = panel.gold[items], panel.ranks[view, 0][items]
            among = panel.groups.among(items)
            for found in score_estimates(gold, predicted, n_classes, among, policy, mode).values():
                yield rows_of(known, found, view, policy)


# --- classes at their frequency in production ---------------------------------------------------

PerItem = tuple[Floats, Booleans]
"""A number of every item, and the items that have one."""


def _weighted_rows(
    panel: Panel, name: str, groups: Booleans, per_item: PerItem, view: str = ""
) -> Iterator[Rows]:
    """Yield a share over readable items with every class at its frequency in production."""
    for group in np.flatnonzero(groups).tolist():
        weights = panel.weights.get(panel.keys["dataset"][group])
        if weights is None:
            continue
        mine = panel.groups.of == group
        values, counted = (of[mine] for of in per_item)
        strata = Strata(panel.gold[mine], weights)
        mean = weighted_mean(values, counted, panel.cluster[mine], strata, ALPHA)
        failed = int((mine & (panel.classes((view, 0)) == 0)).sum()) if view else 0
        found = weighted_estimate(f"weighted:{name}", mean, failed)
        yield Rows(np.array([group]), found, view, "complete")


# --- noise ------------------------------------------------------------------------------------


def _noise_rows(panel: Panel, view: str, mode: Mode) -> Iterator[Rows]:
    both = panel.asked((view, 0), (view, 1))
    repeated = panel.groups.count(both) > 0
    runs = np.stack([panel.classes((view, repeat))[both] for repeat in (0, 1)], axis=1)
    flips = find_flips(runs, panel.groups.among(both), panel.tolerance[both])
    settled, name = by_construction(panel, view), "noise" if view == "base" else f"noise:{view}"
    columns = (panel.reproducible, settled, flips.n, flips.n_complete, flips.n_strict)
    note = []
    for called, agrees, n, n_complete, strict in zip(*(of.tolist() for of in columns), strict=True):
        if not called:
            note.append(silent_noise(n, n_complete, strict))
        elif agrees:
            note.append(f"0 by construction ({n} items repeated)")
        else:
            note.append(f"declared reproducible, but {strict:,} of {n:,} repeated items differ")
    for policy in POLICIES:
        rate = estimate_flips(flips, policy, name, mode=mode)
        yield rows_of(repeated, replace(rate, note=joined_each(note, rate.note)), policy=policy)


def _noise_test_rows(
    panel: Panel, contrast: Contrast, found: Compared, mode: Mode
) -> Iterator[Rows]:
    """Test whether a pair of views flips more items than two runs of one view."""
    noise = noise_runs(panel, contrast)
    groups = found.measured & noise.known
    kept = found.items & (np.minimum(*noise.runs) != ABSENT)
    views = np.stack(conditions(panel, contrast, kept), axis=1)
    runs = np.stack([run[kept] for run in noise.runs], axis=1)
    among = panel.groups.among(kept), panel.tolerance[kept]
    counts = {policy: count_discordant(views, runs, policy, *among) for policy in TESTED}
    failed = counts["strict"][0] - counts["complete"][0]
    own = contrast.views[0]
    borrowed = ["" if view == own else f"noise of view '{view}'" for view in noise.view]
    read = ["by meaning" if is_word else "" for is_word in worded(panel, contrast).tolist()]
    for policy in _test_policies(mode):
        n, b, c = counts[policy]
        p = {method: mcnemar_p(b, c, method) for method in METHODS}
        chosen = p["paper" if mode == "paper" else "mid-p"]
        shown = [
            ", ".join(f"{method} {value:.4f}" for method, value in zip(p, values, strict=True))
            for values in zip(*(of.tolist() for of in p.values()), strict=True)
        ]
        note = joined_each(shown, borrowed, read)
        tested = estimates("mcnemar_p", chosen, n=n, failed=failed, note=note)
        test = {"p": chosen, "b": b, "c": c, "statistic": mcnemar_statistic(b, c)}
        yield rows_of(groups & (n > 0), tested, contrast.name, policy, **test)
        unread = undefined("mcnemar_p", ["no item was read in all runs"] * len(n))
        yield rows_of(groups & (n == 0), replace(unread, failed=failed), contrast.name, policy)


def _excess_rows(panel: Panel, contrast: Contrast, found: Compared) -> Iterator[Rows]:
    """Yield the excess over noise; without noise it is the flip rate itself, which stands above."""
    runs = [(view, repeat) for view in contrast.views for repeat in (0, 1)]
    settled = [by_construction(panel, view) for view in contrast.views]
    groups = found.measured & ~np.any(settled, axis=0)
    kept = found.items & panel.asked(*runs) & groups[panel.groups.of]
    among = panel.groups.among(kept)
    first, again = (
        np.stack([panel.classes((view, repeat))[kept] for view in contrast.views], axis=1)
        for repeat in (0, 1)
    )
    name, clusters, spans = f"excess:{contrast.name}", panel.cluster[kept], panel.units.spans
    excess = grouped_excess(first, again, clusters, among, name, spans)
    yield rows_of(among.count() > 0, excess, policy="complete")


# --- accuracy ---------------------------------------------------------------------------------


def _accuracy_test_rows(
    panel: Panel, contrast: Contrast, found: Compared, mode: Mode
) -> Iterator[Rows]:
    known = found.items & (panel.gold > 0)
    groups = panel.groups.among(known)
    ranks = np.stack(conditions(panel, contrast, known))
    correct, complete = panel.is_right(ranks, known), ranks.min(axis=0) > 0
    test = _accuracy_mcnemar if contrast.is_pair else _accuracy_cochran
    for policy in _test_policies(mode):
        kept = complete if policy == "complete" else np.ones_like(complete)
        tested, numbers = test(correct[:, kept], groups.among(kept), contrast, mode)
        tested = replace(tested, failed=groups.count(~complete))
        yield rows_of(tested.n > 0, tested, contrast.name, policy, **numbers)


def _accuracy_mcnemar(
    correct: Booleans, groups: Groups, contrast: Contrast, mode: Mode
) -> tuple[Estimates, dict[str, Column]]:
    first, second = correct
    b, c = groups.count(first & ~second), groups.count(second & ~first)
    p = mcnemar_p(b, c, "paper" if mode == "paper" else "mid-p", "two-sided")
    note = f"two-sided; b: right only under '{contrast.views[0]}'"
    tested = estimates("accuracy_mcnemar", p, n=groups.count(), note=note)
    return tested, {"p": p, "b": b, "c": c, "statistic": mcnemar_statistic(b, c)}


def _accuracy_cochran(
    correct: Booleans, groups: Groups, contrast: Contrast, mode: Mode
) -> tuple[Estimates, dict[str, Column]]:
    hits = np.stack([groups.count(condition) for condition in correct], axis=-1)
    n_right, n_views = correct.sum(axis=0), len(contrast.views)
    within = groups.total((n_right * (n_views - n_right)).astype(np.float64))
    q, p = cochran_p(hits.astype(np.float64), within)
    note = f"Cochran's Q, df {n_views - 1}"
    tested = estimates("accuracy_cochran", p, n=groups.count(), note=note)
    return tested, {"p": p, "statistic": q}
