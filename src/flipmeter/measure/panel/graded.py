"""Panel -> the items of each contrast that have a gold class, one scale at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from flipmeter.measure.panel.checked import Booleans, Ranks
from flipmeter.measure.panel.groups import Groups
from flipmeter.measure.panel.panel import Panel, compared, conditions
from flipmeter.types import Contrast

ALL = "all"
"""The contrast of all views of a run."""


@dataclass(frozen=True)
class Graded:
    """Gold and classes (items x views) of one scale; `own` marks the groups that have it."""

    contrast: str
    n_classes: int
    gold: Ranks
    table: Ranks
    groups: Groups
    own: Booleans
    nominal: bool


def graded(panel: Panel, contrasts: Sequence[Contrast]) -> Iterator[Graded]:
    """Yield what can be held against gold: under every contrast, and under all views together."""
    everything = Contrast(ALL, tuple(panel.views), "all views")
    for contrast in (*contrasts, everything) if len(panel.views) > 1 else ():
        found = compared(panel, contrast)
        items = found.items & (panel.gold > 0)
        if not items.any():
            continue
        table = np.stack(conditions(panel, contrast, items), axis=1)
        groups, gold = panel.groups.among(items), panel.gold[items]
        scales = np.unique(np.stack([panel.n_classes, panel.nominal]), axis=1).T.tolist()
        for n_classes, nominal in scales:
            same_kind = panel.nominal == bool(nominal)
            own = found.measured & (panel.n_classes == n_classes) & same_kind
            kept = own[groups.of]
            if kept.any():
                among = groups.among(kept)
                scored = gold[kept], table[kept], among, own
                yield Graded(contrast.name, n_classes, *scored, bool(nominal))
