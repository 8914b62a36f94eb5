"""Decisions -> Estimates: one long table, a row for each number."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from flipmeter.measure.arrays import Booleans, Floats, Ranks
from flipmeter.measure.flips import (
    POLICIES,
    FlipCounts,
    count_discordant,
    count_flips,
    estimate_flips,
    excess_disagreement,
    joined,
    silent_noise,
)
from flipmeter.measure.inference import (
    METHODS,
    cochran_q,
    mcnemar,
    mcnemar_counts,
    mcnemar_statistic,
    wilson,
)
from flipmeter.measure.panel import (
    Compared,
    Panel,
    Run,
    by_construction,
    compared,
    noise_runs,
    panels,
)
from flipmeter.measure.scores import (
    SCORES,
    STRICT_SCORES,
    ScorePolicy,
    confusion,
    score_estimates,
)
from flipmeter.measure.tokens import hidden_tokens, output_tokens
from flipmeter.registry import suggestion
from flipmeter.types import Contrast, Estimate, Mode, Policy, Problem

SCHEMA = {
    "rater": pl.String,
    "dataset": pl.String,
    "level": pl.String,
    "seed": pl.Int64,
    "metric": pl.String,
    "view": pl.String,
    "policy": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
    "k": pl.Int64,
    "failed": pl.Int64,
    "p": pl.Float64,
    "b": pl.Int64,
    "c": pl.Int64,
    "statistic": pl.Float64,
    "note": pl.String,
    "mode": pl.String,
}

TESTED: tuple[ScorePolicy, ...] = ("complete", "strict")
GRADED = tuple(name for name in SCORES if name != "parse_failure")


@dataclass(frozen=True)
class Row:
    """An estimate, what it is about, and the test that came with it.

    `view` names the view of a score and the contrast of a test.
    """

    estimate: Estimate
    view: str = ""
    policy: Policy | None = None
    p: float = math.nan
    b: int | None = None
    c: int | None = None
    statistic: float = math.nan


def measure(
    decisions: pl.DataFrame,
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
    records = [
        (*panel.key, *_record(row), mode)
        for panel in panels(decisions)
        for row in _rows(panel, contrasts, mode, frozenset(reproducible))
    ]
    table = pl.DataFrame(records, schema=SCHEMA, orient="row")
    return table.with_columns(pl.col(pl.Float64).fill_nan(None))


def _record(row: Row) -> tuple[object, ...]:
    of = row.estimate
    numbers = (of.value, of.low, of.high, of.n, of.k, of.failed)
    return (
        *(of.metric, row.view, row.policy, *numbers),
        *(row.p, row.b, row.c, row.statistic, of.note),
    )


def _rows(
    panel: Panel, contrasts: Sequence[Contrast], mode: Mode, reproducible: Collection[str]
) -> Iterator[Row]:
    yield from _score_rows(panel, mode)
    for contrast in contrasts:
        found = compared(panel, contrast)
        yield from _flip_rows(panel, contrast, found)
        if found.status == "measured":
            yield from _noise_test_rows(panel, contrast, found, mode, reproducible)
            yield from _excess_rows(panel, contrast, found, reproducible)
            yield from _accuracy_test_rows(panel, contrast, found, mode)
    for view in panel.views:
        yield from _noise_rows(panel, view, reproducible)
    yield from _token_rows(panel)


def _test_policies(mode: Mode) -> tuple[ScorePolicy, ...]:
    return ("complete",) if mode == "paper" else TESTED


# --- scores -----------------------------------------------------------------------------------


def _score_rows(panel: Panel, mode: Mode) -> Iterator[Row]:
    graded = {view: panel.asked((view, 0)) & (panel.gold > 0) for view in panel.views}
    views = [view for view in panel.views if graded[view].any()]
    for view in panel.views:
        yield Row(_parse_failure(panel, view), view, "complete")
        if view not in views:
            missing = Estimate(math.nan, note="no gold classes")
            yield from (Row(replace(missing, metric=name), view, "complete") for name in GRADED)
    if not views:
        return
    tables = np.stack([_confusion(panel, view, graded[view]) for view in views])
    for policy in _test_policies(mode):
        names = STRICT_SCORES if policy == "strict" else GRADED
        for view, estimates in zip(views, score_estimates(tables, policy), strict=True):
            yield from (Row(one, view, policy) for one in estimates if one.metric in names)


def _confusion(panel: Panel, view: str, items: Booleans) -> Floats:
    return confusion(panel.gold[items], panel.ranks[view, 0][items], panel.n_classes)


def _parse_failure(panel: Panel, view: str) -> Estimate:
    """Share of failures among all items that were asked, with or without gold."""
    failed, n = int((panel.ranks[view, 0] == 0).sum()), int(panel.asked((view, 0)).sum())
    low, high = wilson(failed, n)
    return Estimate(failed / n, low, high, n, failed, failed, "parse_failure")


# --- flips ------------------------------------------------------------------------------------


def _flip_rows(panel: Panel, contrast: Contrast, found: Compared) -> Iterator[Row]:
    if found.status != "measured":
        nothing = Estimate(math.nan, metric=contrast.name, note=found.note)
        yield from (Row(nothing, policy=policy) for policy in POLICIES)
        return
    counts = count_flips(conditions(panel, contrast, found.items))
    for policy in POLICIES:
        rate = estimate_flips(counts, policy, contrast.name)
        yield Row(replace(rate, note=joined(rate.note, found.note)), policy=policy)


def conditions(panel: Panel, contrast: Contrast, items: Booleans) -> list[Ranks]:
    """Return the classes of some items under each view of a contrast."""
    return [panel.ranks[view, 0][items] for view in contrast.views]


# --- noise ------------------------------------------------------------------------------------


def _noise_rows(panel: Panel, view: str, reproducible: Collection[str]) -> Iterator[Row]:
    if (view, 1) not in panel.ranks:
        return
    both = panel.asked((view, 0), (view, 1))
    if not both.any():
        return
    counts = count_flips([panel.ranks[view, 0][both], panel.ranks[view, 1][both]])
    metric = "noise" if view == "base" else f"noise:{view}"
    note = _noise_note(panel, view, counts, reproducible)
    for policy in POLICIES:
        rate = estimate_flips(counts, policy, metric)
        yield Row(replace(rate, note=joined(rate.note, note)), policy=policy)


def _noise_note(panel: Panel, view: str, counts: FlipCounts, reproducible: Collection[str]) -> str:
    if panel.key[0] not in reproducible:
        return silent_noise(counts)
    if by_construction(panel, view, reproducible):
        return f"0 by construction ({counts.n} items repeated)"
    return f"called reproducible, but {counts.strict} of {counts.n} repeated items differ"


def _noise_test_rows(
    panel: Panel, contrast: Contrast, found: Compared, mode: Mode, reproducible: Collection[str]
) -> Iterator[Row]:
    runs = noise_runs(panel, contrast, reproducible) if contrast.is_pair else None
    if runs is None:
        return
    counts = {policy: discordant(panel, contrast, found.items, runs, policy) for policy in TESTED}
    failed = counts["strict"][0] - counts["complete"][0]
    for policy in _test_policies(mode):
        row = _noise_test_row(counts[policy], contrast, runs[0][0], policy, mode)
        yield replace(row, estimate=replace(row.estimate, failed=failed))


def discordant(
    panel: Panel, contrast: Contrast, items: Booleans, runs: tuple[Run, Run], policy: Policy
) -> tuple[int, int, int]:
    """Hold a pair of views against two runs of one view: items compared, McNemar's b and c."""
    kept = items & panel.asked(*runs)
    first, second = conditions(panel, contrast, kept)
    repeated = panel.ranks[runs[0]][kept], panel.ranks[runs[1]][kept]
    return count_discordant((first, second), repeated, policy)


def _noise_test_row(
    counts: tuple[int, int, int], contrast: Contrast, view: str, policy: Policy, mode: Mode
) -> Row:
    n, b, c = counts
    if n == 0:
        nothing = Estimate(math.nan, metric="mcnemar_p", note="no item was read in all runs")
        return Row(nothing, contrast.name, policy)
    p = {method: mcnemar(b, c, method) for method in METHODS}
    chosen = p["paper" if mode == "paper" else "mid-p"]
    every = ", ".join(f"{method} {value:.4f}" for method, value in p.items())
    borrowed = "" if view == contrast.views[0] else f"noise of view '{view}'"
    about = Estimate(chosen, n=n, metric="mcnemar_p", note=joined(every, borrowed))
    return Row(about, contrast.name, policy, chosen, b, c, mcnemar_statistic(b, c))


def _excess_rows(
    panel: Panel, contrast: Contrast, found: Compared, reproducible: Collection[str]
) -> Iterator[Row]:
    """Yield the excess over noise; without noise it is the flip rate itself, which stands above."""
    runs = [(view, repeat) for view in contrast.views for repeat in (0, 1)]
    if not contrast.is_pair or not all(run in panel.ranks for run in runs):
        return
    kept = found.items & panel.asked(*runs)
    is_settled = any(by_construction(panel, view, reproducible) for view in contrast.views)
    if kept.any() and not is_settled:
        excess = excess_disagreement(*(panel.ranks[run][kept] for run in runs))
        yield Row(replace(excess, metric=f"excess:{contrast.name}"), policy="complete")


# --- accuracy ---------------------------------------------------------------------------------


def _accuracy_test_rows(
    panel: Panel, contrast: Contrast, found: Compared, mode: Mode
) -> Iterator[Row]:
    graded = found.items & (panel.gold > 0)
    if not graded.any():
        return
    ranks = np.stack(conditions(panel, contrast, graded))
    correct, complete = ranks == panel.gold[graded], ranks.min(axis=0) > 0
    for policy in _test_policies(mode):
        kept = correct[:, complete] if policy == "complete" else correct
        if kept.size:
            yield _accuracy_test(kept, contrast, policy, mode, int((~complete).sum()))


def _accuracy_test(
    correct: Booleans, contrast: Contrast, policy: Policy, mode: Mode, failed: int
) -> Row:
    if not contrast.is_pair:
        q, df, p = cochran_q(correct.T)
        about = Estimate(p, n=correct.shape[1], failed=failed, metric="accuracy_cochran")
        about = replace(about, note=f"Cochran's Q, df {df}")
        return Row(about, contrast.name, policy, p, statistic=q)
    b, c = mcnemar_counts(correct[0], correct[1])
    p = mcnemar(b, c, "paper" if mode == "paper" else "mid-p", "two-sided")
    about = Estimate(p, n=correct.shape[1], failed=failed, metric="accuracy_mcnemar")
    about = replace(about, note=f"two-sided; b: right only under '{contrast.views[0]}'")
    return Row(about, contrast.name, policy, p, b, c, mcnemar_statistic(b, c))


# --- tokens -----------------------------------------------------------------------------------


def _token_rows(panel: Panel) -> Iterator[Row]:
    for estimate in (
        output_tokens(panel.completion),
        hidden_tokens(panel.completion, panel.reasoning),
    ):
        if not math.isnan(estimate.value):
            yield Row(estimate)
