"""Decisions -> Estimates: one long table, a row for each number."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from flipmeter.checks import error_rate
from flipmeter.errors import Problem
from flipmeter.registry import suggestion
from flipmeter.stats.blocks import Strata
from flipmeter.stats.bounds import shown, weighted_estimate, weighted_mean
from flipmeter.stats.flips import (
    POLICIES,
    count_discordant,
    estimate_flips,
    find_flips,
    silent_noise,
)
from flipmeter.stats.formulas import (
    METHODS,
    cochran_p,
    holm,
    mcnemar_p,
    mcnemar_statistic,
    share_estimates,
)
from flipmeter.stats.frame import Decisions, differ
from flipmeter.stats.groups import (
    Booleans,
    Column,
    Estimates,
    Floats,
    Groups,
    Rows,
    as_frame,
    estimates,
    joined_each,
    mean_estimates,
    ratio,
    rows_of,
    same_length,
    undefined,
)
from flipmeter.stats.metrics import added_scores
from flipmeter.stats.panel import (
    ABSENT,
    KEY,
    Compared,
    Panel,
    by_construction,
    compared,
    conditions,
    noise_runs,
)
from flipmeter.stats.reading import Panels, panels_of
from flipmeter.stats.readings import flip_rows, worded
from flipmeter.stats.scores import (
    DECIMAL_ONLY,
    SCORES,
    ScorePolicy,
    decimal_rows,
    graded,
    is_scored,
    score_estimates,
)
from flipmeter.stats.sizes import grouped_excess
from flipmeter.types import ALPHA, NO_LABELS, Contrast, Mode, Policy

Tokens = npt.ArrayLike | Sequence[int | None]
"""A number per reply; None or NaN where the endpoint does not say."""


def output_tokens(completion: Tokens, groups: Groups) -> Estimates:
    """Mean tokens per reply as the endpoint counts them, seen and hidden."""
    written = _tokens(completion, "completion")
    is_known = ~np.isnan(written)
    return mean_estimates(written[is_known], groups.among(is_known), "output_tokens")


def calls_made(calls: Tokens, groups: Groups) -> Estimates:
    """Mean calls per decision, with its part of those that all items of a condition share."""
    made = _tokens(calls, "calls")
    is_known = ~np.isnan(made)
    n = groups.among(is_known).count()
    mean = ratio(groups.among(is_known).total(made[is_known]), n)
    return estimates("calls", mean, n=n, note="per decision, with its part of the shared calls")


def hidden_estimates(completion: Tokens, reasoning: Tokens, groups: Groups) -> Estimates:
    """Compute `hidden_tokens` of every group."""
    written, thought = _tokens(completion, "completion"), _tokens(reasoning, "reasoning")
    same_length(completion=written, reasoning=thought)
    n_reported = groups.count(~np.isnan(thought))
    is_reported = (n_reported > 0)[groups.of]
    hidden = np.where(is_reported, thought, np.maximum(written - 1, 0))
    is_known = ~np.isnan(hidden)
    known = groups.among(is_known)
    counts = zip(
        *(each.tolist() for each in (n_reported, known.count(), groups.count())), strict=True
    )
    note = [_token_note(*each) for each in counts]
    return mean_estimates(hidden[is_known], known, "hidden_tokens", note=note)


def _token_note(n_reported: int, n_known: int, n_replies: int) -> str:
    if not n_reported:
        return "overhead: completion tokens minus one" if n_known else "no token was reported"
    missing = n_replies - n_reported
    return "reasoning tokens as reported" + (f"; {missing} replies report none" if missing else "")


def _tokens(counts: Tokens, what: str) -> Floats:
    try:
        array = np.asarray(counts, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise Problem(f"{what} tokens must be numbers or None; got {counts!r}") from error
    if array.ndim != 1 or not array.size:
        raise Problem(f"{what} tokens must be one number per reply; got shape {array.shape}")
    if (array < 0).any():
        raise Problem(f"{what} tokens cannot be negative; got {np.nanmin(array):.0f}")
    return array


def phase0_table(
    greedy: pl.DataFrame,
    stochastic: pl.DataFrame | None = None,
    *,
    policy: Policy = "complete",
    alpha: float = ALPHA,
) -> pl.DataFrame:
    """Lay estimates out as the paper's first table, one row per model.

    P1, P2 and P3 come from the greedy run; noise, total (P1 again) and the test from the
    stochastic one, or from the same run if there is only one. Dataset, level and seed become
    columns where they vary. `sig` follows p in paper mode, p after Holm over the rows otherwise.
    """
    error_rate(alpha)
    runs = greedy if stochastic is None else stochastic
    varies = (name for name in KEY[1:] if any(of[name].n_unique() > 1 for of in (greedy, runs)))
    keys = ["rater", *varies]
    cells = [_metric_columns(greedy, name, name, policy, keys) for name in ("P1", "P2", "P3")]
    cells += [
        _metric_columns(runs, "noise", "noise", policy, keys),
        _metric_columns(runs, "P1", "total", policy, keys),
    ]
    tests = runs.filter(metric="mcnemar_p", view="P1", policy=policy)
    table = cells[0]
    for more in (*cells[1:], tests.select(*keys, "p", "b", "c")):
        table = table.join(more, on=keys, how="full", coalesce=True, maintain_order="left_right")
    p = table["p"].fill_null(math.nan).to_numpy()
    adjusted = pl.Series("p_holm", holm(p) if len(p) else p).fill_nan(None)
    deciding = table["p"] if "paper" in runs["mode"].to_list() else adjusted
    table = table.with_columns(adjusted, shown(deciding, alpha).cast(pl.Int64).alias("sig"))
    last = ("p", "sig", "b", "c", "p_holm")
    return table.select(pl.exclude(last), *last).rename({"rater": "model"})


def _metric_columns(
    frame: pl.DataFrame, metric: str, name: str, policy: Policy, keys: Sequence[str]
) -> pl.DataFrame:
    chosen = frame.filter(metric=metric, policy=policy)
    ends = {"value": name, "low": f"{name}_lo", "high": f"{name}_hi"}
    return chosen.select(*keys, *(pl.col(old).alias(new) for old, new in ends.items()))


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
        as_frame(list(_estimate_rows(panel, contrasts, mode)), panel.keys, mode, panel.nominal)
        for panel in panels_of(decisions, reproducible)
    )


def _estimate_rows(panel: Panel, contrasts: Sequence[Contrast], mode: Mode) -> Iterator[Rows]:
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
