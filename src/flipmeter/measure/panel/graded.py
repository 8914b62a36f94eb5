"""Panel -> the items of each contrast that have a gold class, one scale at a time."""

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
    everything = Contrast(ALL, panel.all_views, "all views")
    for contrast in (*contrasts, everything) if len(panel.all_views) > 1 else ():
        found = compared(panel, contrast)
        items = found.items & (panel.gold > 0)
        if not items.any():
            continue
        table = np.stack(conditions(panel, contrast, items), axis=1)
        groups, gold = panel.groups.among(items), panel.gold[items]
        for scale in sorted({*_scales(panel)}, key=lambda scale: scale[:2]):
            n_classes, nominal, span = scale
            own = found.measured & np.array([one == scale for one in _scales(panel)])
            kept = own[groups.of]
            if kept.any():
                among = groups.among(kept)
                scored = gold[kept], table[kept], among, own
                yield Graded(contrast.name, n_classes, *scored, nominal, span)


def _scales(panel: Panel) -> list[tuple[int, bool, Span | None]]:
    """The scale of every group: number of ranks, whether nominal, and range."""
    sizes, kinds = panel.n_classes.tolist(), panel.nominal.tolist()
    return list(zip(sizes, kinds, panel.units.spans, strict=True))
