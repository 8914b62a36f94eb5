"""Decisions -> Field: all candidates on the same clusters, item by item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from flipmeter.base.files.parquet import collected
from flipmeter.measure.inference.blocks import pairs_in
from flipmeter.measure.inference.chosen import PairCounts
from flipmeter.measure.inference.judge import replies_under
from flipmeter.measure.panel.checked import Booleans, Floats, Ints, Ranks
from flipmeter.measure.panel.frame import Decisions, distinct, refuse_mae
from flipmeter.measure.panel.panel import Panel, compared
from flipmeter.measure.panel.reading import first_panels
from flipmeter.measure.panel.units import differ
from flipmeter.measure.statistics.formulas import check_known
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

    @property
    def columns(self) -> list[Floats]:
        """Numbers of every cluster that tell how good candidates are and where they flip."""
        parts = self.good, self.pairs.asked, self.pairs.read, self.pairs.differ
        return [column for part in parts for column in part.reshape(-1, self.n_clusters)]

    def on(self, clusters: Booleans | Ints) -> Field:
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
    check_known(by, BY, "score")
    check_known(cost, COSTS, "cost")
    if by == "mae":
        refuse_mae(decisions, "by mae")
    axes = [contrast for contrast in contrasts if contrast.is_judged]
    panels = first_panels(decisions)
    about = [_About.of(panel) for panel in panels]
    if len({name for one in about for name in one.keys["dataset"]}) > 1:
        raise Problem("candidates are compared on one dataset; choose one")
    sizes = sorted({n for one in about for n in one.sizes})
    if len(sizes) > 1:
        raise Problem(f"candidates with {sizes} classes cannot be compared; leave some out")
    items = reduce(np.intersect1d, [one.usable for one in about])
    if not len(items):
        raise Problem("no item with a gold class was rated by all candidates")
    order = distinct(decisions, "rater", "level")
    shape = len(order), len(axes), about[0].n_clusters
    rated, good = np.zeros((2, shape[0], shape[2]))
    gold, varies = np.zeros(shape[2], dtype=np.int64), np.zeros(shape[:2], dtype=np.bool_)
    sums = _Sums(gold, rated, good, np.zeros((3, *shape)), varies)
    for panel in panels:
        _add(panel, items, order, axes, by, sums)
    kept = np.flatnonzero(sums.rated.any(axis=0))
    asked, read, differ = (of[:, :, kept] for of in sums.pairs)
    return Field(
        candidates=tuple(order),
        contrasts=tuple(contrast.name for contrast in axes),
        gold=sums.gold[kept],
        length=float((sizes[0] - 1) * about[0].step),
        n_seeds=len({seed for one in about for seed in one.keys["seed"]}),
        n_items=len(items),
        good=sums.good[:, kept] / sums.rated[:, kept],
        rated=sums.rated[:, kept],
        pairs=PairCounts(asked, read, differ, sums.varies),
        cost=_costs(decisions, order, cost, about[0].reference),
        by=by,
    )


@dataclass(frozen=True)
class _About:
    """Facts of a panel that must fit those of the others; `usable` are items in all its groups."""

    keys: pl.DataFrame
    sizes: list[int]
    step: float
    reference: str
    n_clusters: int
    usable: Ints

    @classmethod
    def of(cls, panel: Panel) -> _About:
        usable = panel.asked((panel.reference, 0)) & (panel.gold > 0)
        groups = (usable & (panel.groups.of == one) for one in range(panel.groups.n))
        return cls(
            panel.keys,
            panel.n_classes.tolist(),
            float(panel.units.step[0]),
            panel.reference,
            len(panel.cluster_names),
            reduce(np.intersect1d, [panel.item[own] for own in groups]),
        )


@dataclass(frozen=True)
class _Sums:
    """Sums by candidate and cluster (pairs also by contrast), and the first gold of a cluster."""

    gold: Ranks
    rated: Floats
    good: Floats
    pairs: Floats
    varies: Booleans


def _add(
    panel: Panel,
    items: Ints,
    order: Sequence[Candidate],
    axes: Sequence[Contrast],
    by: By,
    sums: _Sums,
) -> None:
    """Add the items of a panel that all candidates share.

    A reply that never came is not asked; one that cannot be read is not a flip.
    """
    shared = np.flatnonzero(np.isin(panel.item, items))
    places = [order.index(key) for key in panel.keys.select("rater", "level").iter_rows()]
    candidate, cluster = np.array(places)[panel.groups.of[shared]], panel.cluster[shared]
    here, of = np.unique(candidate, return_inverse=True)

    def add(values: npt.NDArray[np.generic], to: Floats) -> None:
        """Add up values by candidate and cluster; those of a candidate all come at once."""
        shape, weights = (len(here), to.shape[1]), np.asarray(values, dtype=np.float64)
        summed = np.bincount(of * shape[1] + cluster, weights, shape[0] * shape[1])
        to[here] += summed.reshape(shape)

    classes, gold = panel.classes((panel.reference, 0))[shared], panel.gold[shared]
    clusters, first = np.unique(cluster, return_index=True)
    sums.gold[clusters] = np.where(sums.gold[clusters] > 0, sums.gold[clusters], gold[first])
    if by == "accuracy":
        right = (classes > 0) & ~differ(classes, gold, panel.tolerance[shared])
        good = right.astype(np.float64)
    else:
        n_classes = int(panel.n_classes[0])
        farthest = np.maximum(gold - 1, n_classes - gold)
        away = np.where(classes > 0, np.abs(classes - gold), farthest)
        good = 1 - away / (n_classes - 1)
    add(np.ones(len(shared)), sums.rated)
    add(good, sums.good)
    for at, contrast in enumerate(axes):
        found = compared(panel, contrast)
        counts = ((found.items & found.measured[panel.groups.of]) | found.proved)[shared]
        pairs = pairs_in(replies_under(panel, contrast)[shared], panel.tolerance[shared])
        for n, to in zip(pairs, sums.pairs, strict=True):
            add(n * counts, to[:, at])
        sums.varies[candidate[found.measured[panel.groups.of[shared]]], at] = True


def _costs(decisions: Decisions, order: Sequence[Candidate], cost: Cost, reference: str) -> Floats:
    """Mean cost of an item under the base view."""
    if cost == "none":
        return np.zeros(len(order))
    tokens = pl.col("prompt_tokens") + pl.col("completion_tokens")
    each = {"calls": pl.col("n_calls"), "tokens": tokens}[cost]
    first = decisions.lazy().filter(view=reference, repeat=0)
    asked = first.group_by("rater", "level").agg(each.mean()).pipe(collected, "streaming")
    known = {(rater, level): value for rater, level, value in asked.iter_rows()}
    missing = [level or "the base" for rater, level in order if known.get((rater, level)) is None]
    if missing:
        raise Problem(f"the {cost} of {missing[0]} are unknown; use --cost calls or none")
    return np.array([known[one] for one in order], dtype=np.float64)
