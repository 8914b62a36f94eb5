"""Numbers of a run -> whether each stays within its limit: shown, shown not to, or open.

Flips go through the verdict itself. Of scores, the one-sided bounds over clusters are compared with
the limit. Seeds, repeats and copies of an item are one cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from flipmeter.checks import error_rate
from flipmeter.parquet import collected
from flipmeter.registry import Registry
from flipmeter.stats.blocks import pairs_in, read_blocks, repeated_pairs
from flipmeter.stats.bounds import (
    Bounded,
    bounded_mean,
    bounded_share,
    needed_above,
    needed_below,
    needed_mean_below,
)
from flipmeter.stats.conclude import Margins
from flipmeter.stats.frame import IS_OTHER, STEP, Decisions, distinct, refuse_mae, scanned, typed
from flipmeter.stats.groups import Floats
from flipmeter.stats.judge import UNREADABLE_LIMIT, contrast_rows, judged, n_judged, replies_under
from flipmeter.stats.metrics import is_better_high, needs_order
from flipmeter.stats.panel import Panel, compared
from flipmeter.stats.reading import CLUSTER, Panels, Parts, read_panel
from flipmeter.stats.residuals import same_raters
from flipmeter.types import ALPHA, NO_CLASS, NO_LABELS, Contrast

CLOSE = 1e-3
"""Nearer to its limit than this, a number is not worth the items that would settle it."""

KEY = ("rater", "dataset", "level")
Key = tuple[str, str, str]
"""Rater, dataset and level."""

SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "rater": pl.String,
    "dataset": pl.String,
    "level": pl.String,
    "metric": pl.String,
    "where": pl.String,
    "is_drift": pl.Boolean,
    "limit": pl.Float64,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
    "failed": pl.Int64,
    "p": pl.Float64,
    "n_more": pl.Int64,
    "word": pl.String,
    "note": pl.String,
    "findings": pl.List(pl.String),
    "notes": pl.List(pl.String),
}
"""`note` is the reason of a word, `notes` are the sentences of the findings beside it."""

Row = dict[str, Any]
NOTHING = "nothing to compare it with: no such items"


@dataclass(frozen=True)
class Limit:
    """The most that a number may be, or the least for accuracy; of a contrast, or of a view.

    With `is_drift` the number is what got worse since another run.
    """

    metric: str
    where: str
    bound: float
    is_drift: bool = False

    @property
    def is_verdict(self) -> bool:
        """Whether the verdict decides, and not the number itself."""
        is_number = self.metric == "noise" or gate_limits[self.metric].bad is not None
        return not (self.is_drift or is_number)


@dataclass(frozen=True)
class GateLimit:
    """A number that a gate can limit: how bad every decision is, 0 at best.

    `bad` is an expression over decisions with `gold`, `rank` (0 where nothing was read) and
    `n_classes`. It is true or false, or a number up to `reach` of the number of classes: what was
    not read must be worst. Those of flips have no `bad`: the verdict decides. Whether the number
    is limited from below (`is_better_high`) and needs an order stands with the words of its metric.
    """

    about: str
    bad: pl.Expr | None = None
    reach: Callable[[float], float] | None = None
    needs_gold: bool = True


_RANK, _GOLD, _M = pl.col("rank"), pl.col("gold"), pl.col("n_classes")
_FARTHEST = pl.max_horizontal(_GOLD - 1, _M - _GOLD)

gate_limits: Registry[GateLimit] = Registry("gate limit")
gate_limits.add("flips", GateLimit("the maximum share of items that flip, by contrast"))
gate_limits.add("excess", GateLimit("the maximum share of flips beyond noise, by contrast"))
gate_limits.add("noise", GateLimit("the maximum share of repeats that differ, by contrast"))
gate_limits.add(
    "accuracy", GateLimit("the minimum accuracy of a view", (_RANK == NO_CLASS) | IS_OTHER)
)
gate_limits.add(
    "mae",
    GateLimit(
        "the maximum mean distance from gold, in ranks or in units of decimal scores",
        pl.when(_RANK == NO_CLASS).then(_FARTHEST).otherwise((_GOLD - _RANK).abs()) * STEP,
        reach=lambda n_classes: n_classes - 1.0,
    ),
)
gate_limits.add(
    "faults",
    GateLimit("the maximum share of unreadable answers", _RANK == NO_CLASS, needs_gold=False),
)


@dataclass(frozen=True)
class Held:
    """A number with its one-sided bounds, the word for it and the items that would settle it."""

    word: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n_more: int | None = None


UNKNOWN = Held("inconclusive")


def hold(found: Bounded, limit: float, *, needed: int | None = None) -> Held:
    """Test a number against its upper limit, by its one-sided bounds."""
    if not found.n:
        return UNKNOWN
    ends = found.value, found.lower, found.upper
    if found.upper < limit:
        return Held("met", *ends)
    if found.lower > limit:
        return Held("missed", *ends)
    more = None if needed is None or abs(found.value - limit) < CLOSE else needed - found.n
    return Held("inconclusive", *ends, None if more is None else max(1, more))


def hold_share(hits: Floats, trials: Floats, limit: float, alpha: float = ALPHA) -> Held:
    """Test a share over clusters against its upper limit."""
    found = bounded_share(hits, trials, alpha)
    if not found.n:
        return UNKNOWN
    toward = needed_below if found.value < limit else needed_above
    return hold(found, limit, needed=toward(found.value, limit, alpha))


def hold_mean(
    values: Floats, reach: tuple[float, float], limit: float, alpha: float = ALPHA
) -> Held:
    """Test the mean of cluster values between two ends against its upper limit."""
    found = bounded_mean(values, alpha, bottom=reach[0], top=reach[1])
    spread = float(values.std()) if len(values) else 0.0
    span = reach[1] - reach[0]
    scaled = [(x - reach[0]) / span for x in (found.value, limit)]
    needed = needed_mean_below(scaled[0], spread / span, scaled[1], alpha)
    return hold(found, limit, needed=needed)


# --- all numbers of a run ---------------------------------------------------------------------


def hold_limits(
    decisions: Decisions | Panels,
    contrasts: Sequence[Contrast],
    limits: Mapping[Key, Sequence[Limit]],
    *,
    reproducible: Sequence[str] = (),
    reference: Decisions | None = None,
    alpha: float = ALPHA,
) -> pl.DataFrame:
    """Test every rater, dataset and level against its limits, a part of the decisions at a time.

    `reference` are the decisions of an earlier run, which limits on drift are compared with, item
    by item. `word` is that of the verdict for flips, and `met`, `missed` or `inconclusive` for
    scores.
    """
    error_rate(alpha)
    panels = decisions
    if not isinstance(panels, Panels):
        panels = Panels(Parts(panels.lazy()), reproducible)
    every = scanned(panels.parts.decisions).table
    wanted = list(dict.fromkeys(limit for some in limits.values() for limit in some))
    for limit in wanted:
        _refuse_distances(every, limit, [key for key, some in limits.items() if limit in some])
    before = None if reference is None else _align_only_rater(scanned(reference).table, every)
    known = {contrast.name: contrast for contrast in contrasts}
    judges = {limit: known[limit.where] for limit in wanted if limit.is_verdict}
    n_rows = dict.fromkeys(judges, 0)
    for panel in panels if judges else ():
        for limit, contrast in judges.items():
            n_rows[limit] += n_judged(panel, [contrast])
    rows: Iterable[Row]
    found: dict[Limit, dict[Key, Row]] = {limit: {} for limit in wanted}
    parts = panels.parts
    for panel, part, is_mine in zip(panels, parts, parts.filters, strict=True):
        now = _Side(typed(part), panel)
        then = None if before is None else _Side(before.filter(is_mine))
        for limit in wanted:
            if limit.is_drift:
                rows = _iter_drift_rows(then, now, known, limit, alpha)
            elif limit.metric == "noise":
                rows = _iter_noise_rows(panel, known[limit.where], limit, alpha)
            elif limit in judges:
                rows = _iter_flip_limit_rows(panel, judges[limit], limit, alpha, n_rows[limit])
            else:
                with gate_limits.using(limit.metric):
                    rows = [*_iter_score_rows(now.rows, limit, alpha)]
            found[limit] |= {(row["rater"], row["dataset"], row["level"]): row for row in rows}
    table = pl.DataFrame(
        [
            found[limit].get(key) or _limit_row(key, limit, UNKNOWN, 0, 0, NOTHING)
            for limit in wanted
            for key, some in limits.items()
            if limit in some
        ],
        schema=SCHEMA,
        orient="row",
    )
    return table.with_columns(pl.col(pl.Float64).fill_nan(None))


def _refuse_distances(decisions: pl.LazyFrame, limit: Limit, keys: Sequence[Key]) -> None:
    if needs_order(limit.metric):
        asked = pl.col("dataset").is_in([dataset for _, dataset, _ in keys])
        refuse_mae(decisions.filter(asked), f"a limit on {limit.metric}")


@dataclass(frozen=True)
class _Side:
    """A part of the decisions of one run, and its panel, read when it is needed."""

    rows: pl.LazyFrame
    known: Panel | None = None

    @cached_property
    def panel(self) -> Panel:
        return self.known or read_panel(self.rows)

    @cached_property
    def is_empty(self) -> bool:
        return self.rows.head(1).pipe(collected).is_empty()


def _limit_row(
    key: Sequence[object], limit: Limit, held: Held, n: int, failed: int, note: str
) -> Row:
    about = {"metric": limit.metric, "where": limit.where, "is_drift": limit.is_drift}
    counts = {"limit": limit.bound, "n": n, "failed": failed, "note": note, "p": None}
    beside: Row = {"findings": [], "notes": []}
    return dict(zip(KEY, key, strict=True)) | about | counts | beside | vars(held)


def _iter_flip_limit_rows(
    panel: Panel, contrast: Contrast, limit: Limit, alpha: float, n_rows: int
) -> Iterator[Row]:
    """Yield verdicts as rows of the gate; a contrast that was not measured has no number."""
    is_beyond = limit.metric == "excess"
    on = Margins(limit.bound, alpha, UNREADABLE_LIMIT, "excess" if is_beyond else "")
    for row, found in judged(panel, contrast, on, n_rows):
        if row.row is None:
            yield _limit_row(row.key, limit, UNKNOWN, 0, 0, found.reason)
            continue
        of_rate = found.value, found.lower, found.rate_upper
        ends = (found.excess, None, found.excess_upper) if is_beyond else of_rate
        more = None if found.n_needed is None else max(1, found.n_needed - found.n_clusters)
        held = Held(found.word, *ends, more)
        failed = round((found.unreadable or 0.0) * found.n_pairs)
        names, notes = ([getattr(one, of) for one in found.findings] for of in ("name", "text"))
        beside = {"p": found.p, "findings": names, "notes": notes}
        yield _limit_row(row.key, limit, held, found.n_clusters, failed, found.reason) | beside


def _iter_noise_rows(panel: Panel, contrast: Contrast, limit: Limit, alpha: float) -> Iterator[Row]:
    """Yield how often the views of a contrast disagree with their own repeats."""
    for row in contrast_rows(panel, contrast):
        if row.row is None:
            yield _limit_row(row.key, limit, UNKNOWN, 0, 0, row.note)
            continue
        twice = repeated_pairs(read_blocks(row.row))
        if row.row.reproducible and not twice.differ.any():
            sure = Held("met", 0.0, 0.0, 0.0)
            yield _limit_row(row.key, limit, sure, len(twice.differ), 0, "replies are reproducible")
            continue
        held = hold_share(twice.differ, twice.read, limit.bound, alpha)
        n = int((twice.read > 0).sum())
        note = "" if n else "noise was not measured: ask the views twice (repeats: 2)"
        yield _limit_row(row.key, limit, held, n, 0, note)


# --- scores -----------------------------------------------------------------------------------


def _iter_score_rows(rows: pl.LazyFrame, limit: Limit, alpha: float) -> Iterator[Row]:
    """Yield a score of a view in every group; what was not read is wrong, as far off as can be."""
    asked = rows.filter(view=limit.where, repeat=0).pipe(collected)
    for key, group in asked.group_by(KEY, maintain_order=True):
        graded = group.drop_nulls("gold") if gate_limits[limit.metric].needs_gold else group
        failed = int((graded["rank"] == NO_CLASS).sum())
        bad = graded.select(CLUSTER.alias("cluster"), bad=_badness(limit).cast(pl.Float64))
        sums = bad.group_by("cluster", maintain_order=True).agg(pl.col("bad").sum(), n=pl.len())
        held = _score_limit(graded, sums, limit, alpha) if len(graded) else UNKNOWN
        yield _limit_row(key, limit, held, sums.height, failed, "" if len(graded) else NO_LABELS)


def _score_limit(graded: pl.DataFrame, sums: pl.DataFrame, limit: Limit, alpha: float) -> Held:
    reach = gate_limits[limit.metric].reach
    hits, trials = sums["bad"].to_numpy(), sums["n"].cast(pl.Float64).to_numpy()
    if reach is not None:
        ends = (0.0, reach(_n_units(graded)))
        return hold_mean(hits / trials, ends, limit.bound, alpha)
    if not is_better_high(limit.metric):
        return hold_share(hits, trials, limit.bound, alpha)
    wrong = hold_share(hits, trials, 1 - limit.bound, alpha)
    value, low, high = (None if x is None else 1 - x for x in (wrong.value, wrong.high, wrong.low))
    return Held(wrong.word, value, low, high, wrong.n_more)


def _badness(limit: Limit) -> pl.Expr:
    bad = gate_limits[limit.metric].bad
    assert bad is not None, "flips have no score"
    return bad


def _n_units(frame: pl.DataFrame) -> float:
    """Number of classes; for decimal scores, one more than the units of their scale."""
    return float(frame.select((_M - 1) * STEP + 1).item(0, 0))


# --- drift ------------------------------------------------------------------------------------

GROUP = (*KEY, "seed")


def _align_only_rater(before: pl.LazyFrame, now: pl.LazyFrame) -> pl.LazyFrame:
    """The earlier decisions; the only rater of each run has the name that it has now."""
    renamed, _ = same_raters(before, now)
    if renamed is before:
        return before
    ((name,),) = distinct(now, "rater")
    return before.with_columns(rater=pl.lit(name))


def _iter_drift_rows(
    then: _Side | None, now: _Side, known: Mapping[str, Contrast], limit: Limit, alpha: float
) -> Iterator[Row]:
    """Yield by how much a number got worse, on the items that both runs have."""
    if then is None or then.is_empty:
        return
    sides = [_item_losses(side, known, limit) for side in (then, now)]
    both = sides[0].join(sides[1], on=[*GROUP, "item"], suffix="_now", maintain_order="right")
    for key, group in both.group_by(KEY, maintain_order=True):
        change = group.group_by("cluster", maintain_order=True).agg(
            (pl.col("bad_now") - pl.col("bad")).mean().alias("change")
        )["change"]
        reach = gate_limits[limit.metric].reach
        far = reach(_n_units(group)) if reach is not None else 1.0
        held = hold_mean(change.to_numpy(), (-far, far), limit.bound, alpha)
        failed = int(group["failed_now"].sum())
        yield _limit_row(key, limit, held, len(change), failed, "")


def _item_losses(side: _Side, known: Mapping[str, Contrast], limit: Limit) -> pl.DataFrame:
    """Loss of every item: flipped, wrong, unreadable, or its distance."""
    if limit.metric == "flips":
        return _flipped_pair_shares(side.panel, known[limit.where])
    runs = side.rows.filter(view=limit.where, repeat=0)
    if gate_limits[limit.metric].needs_gold:
        runs = runs.drop_nulls("gold")
    bad, failed = _badness(limit).cast(pl.Float64), pl.col("rank") == NO_CLASS
    kept = *GROUP, "item", CLUSTER.alias("cluster"), "n_classes", "scale_from", "scale_to"
    return runs.select(*kept, bad=bad, failed=failed).pipe(collected)


def _flipped_pair_shares(panel: Panel, contrast: Contrast) -> pl.DataFrame:
    """Share of the readable pairs of views of every item that differ."""
    asked, read, differ = pairs_in(replies_under(panel, contrast), panel.tolerance)
    found = panel.keys[panel.groups.of].with_columns(
        item=panel.item_names[panel.item],
        cluster=pl.Series(panel.cluster_names, dtype=pl.String)[panel.cluster],
        n_classes=panel.n_classes[panel.groups.of],
        bad=differ / np.maximum(read, 1),
        failed=asked > read,
    )
    return found.filter(compared(panel, contrast).items & (read > 0))
