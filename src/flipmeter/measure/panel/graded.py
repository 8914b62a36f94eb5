"""Panel -> the items of each contrast with all their classes, and with gold one scale at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from flipmeter.measure.panel.checked import Booleans, Ranks
from flipmeter.measure.panel.groups import Groups
from flipmeter.measure.panel.panel import Panel, compared, conditions
from flipmeter.types import Contrast, Span

ALL = "all"
"""The contrast of all views of a run."""


@dataclass(frozen=True)
class Viewed:
    """Classes of the items of a contrast (items x views), and the groups that are measured."""

    contrast: Contrast
    items: Booleans
    table: Ranks
    groups: Groups
    measured: Booleans


def viewed(
    panel: Panel, contrasts: Sequence[Contrast], items: Booleans | None = None
) -> Iterator[Viewed]:
    """Yield every contrast that has items, or some of these items."""
    for contrast in contrasts:
        found = compared(panel, contrast)
        kept = found.items if items is None else found.items & items
        if kept.any():
            table = np.stack(conditions(panel, contrast, kept), axis=1)
            yield Viewed(contrast, kept, table, panel.groups.among(kept), found.measured)


def by_size(
    panel: Panel, found: Viewed, marked: Booleans | bool = True
) -> Iterator[tuple[int, Booleans, Booleans]]:
    """Yield each number of classes, the marked groups that have it, and their items."""
    for n_classes in panel.class_sizes:
        own = found.measured & panel.of_size(n_classes) & marked
        kept = own[found.groups.of]
        if kept.any():
            yield n_classes, own, kept


@dataclass(frozen=True)
class Graded:
    """Gold and classes (items x views) of one scale; `own` marks the groups that have it.

    Decimal scores have a `span`, and ranks in the place of classes.
    """

    contrast: str
    n_classes: int
    gold: Ranks
    table: Ranks
    groups: Groups
    own: Booleans
    nominal: bool
    span: Span | None = None


def graded(panel: Panel, contrasts: Sequence[Contrast]) -> Iterator[Graded]:
    """Yield the answers to compare with gold: under every contrast, and under all views."""
    if len(panel.all_views) < 2:
        return
    everything = Contrast(ALL, panel.all_views, "all views")
    sizes, kinds = panel.n_classes.tolist(), panel.nominal.tolist()
    scales = list(zip(sizes, kinds, panel.units.spans, strict=True))
    for found in viewed(panel, (*contrasts, everything), panel.gold > 0):
        gold, name = panel.gold[found.items], found.contrast.name
        for scale in sorted({*scales}, key=lambda scale: scale[:2]):
            n_classes, nominal, span = scale
            own = found.measured & np.array([one == scale for one in scales])
            kept = own[found.groups.of]
            if kept.any():
                scored = gold[kept], found.table[kept], found.groups.among(kept), own
                yield Graded(name, n_classes, *scored, nominal, span)
