"""Decisions -> Field: all candidates on the same clusters, item by item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from flipmeter.measure.inference.blocks import pairs_in
from flipmeter.measure.inference.chosen import PairCounts
from flipmeter.measure.inference.judge import replies_under
from flipmeter.measure.panel.checked import Booleans, Floats, Ints, Ranks
from flipmeter.measure.panel.frame import Decisions, distinct, refuse_mae
from flipmeter.measure.panel.panel import Panel, compared
from flipmeter.measure.panel.reading import read_panel
from flipmeter.measure.panel.units import differ
from flipmeter.registry import suggestion
from flipmeter.types import Contrast, Problem

Candidate = tuple[str, str]
"""A rater and a level."""

By = Literal["accuracy", "mae"]
Cost = Literal["calls", "tokens", "none"]
BY: tuple[By, ...] = ("accuracy", "mae")
COSTS: tuple[Cost, ...] = ("calls", "tokens", "none")


@dataclass(frozen=True)
class Field:
    """Candidates on the same clusters: how good each is, where it flips and what it costs an item.

    `good` (candidates x clusters) is 1 for right and 0 for wrong, or 1 minus the distance as a
    share of the scale, whose `length` is in ranks or units; a fault is as bad as can be. It is a
    mean over `rated` decisions: seeds, and items of the cluster. `gold` is the class of the first
    item of each cluster.
    """

    candidates: tuple[Candidate, ...]
    contrasts: tuple[str, ...]
    gold: Ranks
    length: float
    n_seeds: int
    n_items: int
    good: Floats
    rated: Floats
    pairs: PairCounts
    cost: Floats
    by: By = "accuracy"

    @property
    def n_clusters(self) -> int:
        return len(self.gold)

    def on(self, clusters: Booleans) -> Field:
        """The field with only these clusters."""
        return replace(
            self,
            gold=self.gold[clusters],
            good=self.good[:, clusters],
            rated=self.rated[:, clusters],
            pairs=self.pairs.on(clusters),
        )


# --- reading ----------------------------------------------------------------------------------


def read_field(
    decisions: Decisions,
    contrasts: Sequence[Contrast],
    *,
    by: By = "accuracy",
    cost: Cost = "calls",
) -> Field:
    """Lay the decisions on one dataset out by candidate, on the items that all of them rated.

    Every contrast with a verdict is an axis of its own; other aggregates are left out.
    """
    _known(by, BY, "score")
    _known(cost, COSTS, "cost")
    if by == "mae":
        refuse_mae(decisions, "by mae")
    axes = [contrast for contrast in contrasts if contrast.is_judged]
    panel = read_panel(decisions.filter(repeat=0))
    if panel.keys["dataset"].n_unique() > 1:
        raise Problem("candidates are compared on one dataset; choose one")
    sizes = sorted(set(panel.n_classes.tolist()))
    if len(sizes) > 1:
        raise Problem(f"candidates with {sizes} classes cannot be compared; leave some out")
    base, items = (panel.reference, 0), panel.item
    shared = _shared(panel, items, panel.asked(base) & (panel.gold > 0))
    order = distinct(decisions, "rater", "level")
    who = [order.index(key) for key in panel.keys.select("rater", "level").iter_rows()]
    _, first, cluster = np.unique(panel.cluster[shared], return_index=True, return_inverse=True)
    table = _Table(np.array(who)[panel.groups.of[shared]], cluster, (len(order), len(first)))
    rated = table.sums(np.ones(len(cluster)))
    classes, gold = panel.classes(base)[shared], panel.gold[shared]
    return Field(
        candidates=tuple(order),
        contrasts=tuple(contrast.name for contrast in axes),
        gold=gold[first],
        length=float((sizes[0] - 1) * panel.units.step[0]),
        n_seeds=panel.keys["seed"].n_unique(),
        n_items=len(np.unique(items[shared])),
        good=table.sums(_good(classes, gold, sizes[0], by, panel.tolerance[shared])) / rated,
        rated=rated,
        pairs=_pairs(panel, axes, shared, table),
        cost=_costs(decisions, order, cost, panel.reference),
        by=by,
    )


@dataclass(frozen=True)
class _Table:
    """Index of each decision among candidates x clusters."""

    candidate: Ints
    cluster: Ints
    shape: tuple[int, int]

    def sums(self, values: npt.NDArray[np.generic]) -> Floats:
        place = np.ravel_multi_index((self.candidate, self.cluster), self.shape)
        weights = np.asarray(values, dtype=np.float64)
        summed = np.bincount(place, weights, int(np.prod(self.shape))).astype(np.float64)
        return summed.reshape(self.shape)


def _shared(panel: Panel, items: Ints, usable: Booleans) -> Ints:
    """Places of the items that are usable in every group."""
    groups = range(panel.groups.n)
    found = reduce(np.intersect1d, [items[usable & (panel.groups.of == one)] for one in groups])
    if not len(found):
        raise Problem("no item with a gold class was rated by all candidates")
    return np.flatnonzero(np.isin(items, found))


def _known(name: str, names: Sequence[str], what: str) -> None:
    if name not in names:
        raise Problem(f"no {what} named '{name}'{suggestion(name, list(names))}")


def _good(classes: Ranks, gold: Ranks, n_classes: int, by: By, tolerance: Ints) -> Floats:
    if by == "accuracy":
        right = (classes > 0) & ~differ(classes, gold, tolerance)
        return np.asarray(right, dtype=np.float64)
    farthest = np.maximum(gold - 1, n_classes - gold)
    away = np.where(classes > 0, np.abs(classes - gold), farthest)
    return np.asarray(1 - away / (n_classes - 1))


def _pairs(panel: Panel, axes: Sequence[Contrast], shared: Ints, table: _Table) -> PairCounts:
    """Count pairs of views by candidate, contrast and cluster.

    A reply that never came is not asked; one that cannot be read is no flip.
    """
    shape = (table.shape[0], len(axes), table.shape[1])
    asked, read, differ = np.zeros((3, *shape))
    varies = np.zeros(shape[:2], dtype=np.bool_)
    for at, contrast in enumerate(axes):
        found = compared(panel, contrast)
        counts = ((found.items & found.measured[panel.groups.of]) | found.proved)[shared]
        pairs = pairs_in(replies_under(panel, contrast)[shared], panel.tolerance[shared])
        asked[:, at], read[:, at], differ[:, at] = (table.sums(n * counts) for n in pairs)
        varies[table.candidate[found.measured[panel.groups.of[shared]]], at] = True
    return PairCounts(asked, read, differ, varies)


def _costs(decisions: Decisions, order: Sequence[Candidate], cost: Cost, reference: str) -> Floats:
    """Mean cost of an item under the base view."""
    if cost == "none":
        return np.zeros(len(order))
    tokens = pl.col("prompt_tokens") + pl.col("completion_tokens")
    each = {"calls": pl.col("n_calls"), "tokens": tokens}[cost]
    first = decisions.lazy().filter(view=reference, repeat=0)
    asked = first.group_by("rater", "level").agg(each.mean()).collect(engine="streaming")
    known = {(rater, level): value for rater, level, value in asked.iter_rows()}
    missing = [level or "the base" for rater, level in order if known.get((rater, level)) is None]
    if missing:
        raise Problem(f"the {cost} of {missing[0]} are unknown; use --cost calls or none")
    return np.array([known[one] for one in order], dtype=np.float64)
