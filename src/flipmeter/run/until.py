"""Study, claim -> when to look at it, what power that has, and when a run may stop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from flipmeter.errors import Problem
from flipmeter.stats.judge import Claim, claimed, read_claim
from flipmeter.stats.sequential import looks_of
from flipmeter.stats.watch import PowerPlan, Watch, Watched, plan_power, refuse_unreachable
from flipmeter.study.file import Study
from flipmeter.study.grid import contrasts_in
from flipmeter.types import Condition, Contrast, Item


@dataclass
class Until:
    """A claim that is looked at lot by lot while a run goes on."""

    claim: Claim
    watch: Watch
    block: int
    n_items: int
    n_decisions: int
    seen: list[pl.DataFrame] = field(default_factory=list)
    found: list[Watched] = field(default_factory=list)

    @property
    def is_decided(self) -> bool:
        """Whether the claim is shown or refuted for every rater, dataset and level."""
        return bool(self.found) and all(one.is_decided for one in self.found)

    def look(self, lot: pl.DataFrame) -> str:
        """Look at the claim after one more lot; why no more decisions are needed, "" if they are.

        A run that has asked everything does not stop early.
        """
        self.seen.append(lot)
        decisions = pl.concat(self.seen)
        self.found = self.watch.look(decisions)
        n_left = self.n_decisions - len(decisions)
        if not n_left or not all(one.is_final for one in self.found):
            return ""
        return (
            f"{self}; {n_left:,} of {self.n_decisions:,} decisions were not needed; other "
            f"intervals do not allow for stopping"
        )

    def __str__(self) -> str:
        n = min(self.block * len(self.seen), self.n_items)
        end = "settled" if self.is_decided else "not settled"
        how = "anytime-valid" if self.claim.beyond_noise else "group-sequential"
        rows = "; ".join(map(str, self.found))
        return f"{self.claim} was {end} after {n:,} of {self.n_items:,} items ({how}, 95 %): {rows}"

    def record(self) -> dict[str, Any]:
        """The outcome as the run folder keeps it."""
        return {
            "claim": str(self.claim),
            "is_decided": self.is_decided,
            "text": str(self) if self.found else "",
            "rows": [one.record() for one in self.found],
        }


def watch_claim(
    study: Study, grid: Sequence[Condition], reproducible: Sequence[str] = ()
) -> Until | None:
    """The watcher of a study's claim; a claim that cannot be shown is refused."""
    if study.until is None:
        return None
    claim = read_claim(study.until)
    contrast = claimed(claim.contrast, contrasts_in(study, grid))
    shared = _shared_items(claim, contrast, grid)
    looks = {name: _clusters_by_look(items, study.block_size) for name, items in shared.items()}
    for name, sizes in looks.items():
        refuse_unreachable(claim, sizes[-1], name if len(looks) > 1 else "")
    return Until(
        claim,
        Watch(claim, contrast, looks, reproducible),
        study.block_size,
        max(map(len, shared.values())),
        sum(len(condition.items) for condition in grid),
    )


def power_plans(study: Study, text: str, grid: Sequence[Condition]) -> Iterator[PowerPlan]:
    """Plan a claim on every dataset of a study."""
    claim = read_claim(text)
    contrast = claimed(claim.contrast, contrasts_in(study, grid))
    for name, items in _shared_items(claim, contrast, grid).items():
        looks = _clusters_by_look(items, study.block_size)
        notes = tuple(_stopping_notes(study, claim, contrast, items, looks))
        yield plan_power(claim, looks, block=study.block_size, dataset=name, notes=notes)


def _shared_items(
    claim: Claim, contrast: Contrast, grid: Sequence[Condition]
) -> dict[str, tuple[Item, ...]]:
    """The items of every dataset that are asked under all views of a contrast."""
    shared = {}
    for name in dict.fromkeys(condition.dataset for condition in grid):
        here = [condition for condition in grid if condition.dataset == name]
        asked = [
            max((c.items for c in here if c.view.name == view), key=len, default=())
            for view in contrast.views
        ]
        shared[name] = min(asked, key=len)
    if not any(shared.values()):
        raise Problem(
            f"no item is asked under all views of {contrast.name}, so '{claim}' cannot be "
            "settled; the pipeline cannot express it, or there are no demonstrations"
        )
    return {name: items for name, items in shared.items() if items}


def _clusters_by_look(items: Sequence[Item], block: int) -> tuple[int, ...]:
    """Number of clusters by the end of each block."""
    clusters = [item.cluster or item.id for item in items]
    return tuple(len(set(clusters[:end])) for end in looks_of(block, len(items)))


def _stopping_notes(
    study: Study, claim: Claim, contrast: Contrast, items: Sequence[Item], looks: Sequence[int]
) -> Iterator[str]:
    if not contrast.is_pair:
        yield f"two of the {len(contrast.views)} views count for each item, drawn by its name"
    if len(items) < study.block_size:
        yield f"{len(items)} items are fewer than a block of {study.block_size}: one look at all"
    if looks[-1] < len(items):
        yield f"{len(items)} items in {looks[-1]} clusters: one pair of each cluster counts"
    if len(study.seeds) > 1:
        yield "one pair of each item counts, so more seeds add no power"
    if claim.beyond_noise:
        yield "power beyond noise assumes a rater without noise; a noisy one needs more items"
