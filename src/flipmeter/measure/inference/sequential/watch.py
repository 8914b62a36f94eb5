"""Decisions so far -> whether a claim is settled, by boundaries that were fixed before the run.

The largest number of items is known, so the looks are: exact group-sequential boundaries (E4). A
claim beyond noise is settled by betting, which needs no plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import polars as pl

from flipmeter.measure.inference.blocks import Blocks, count_pairs, read_blocks
from flipmeter.measure.inference.bounds import LOWEST_EXCESS
from flipmeter.measure.inference.claims import Claim
from flipmeter.measure.inference.judge import ContrastRow, contrast_rows
from flipmeter.measure.inference.sequential import boundaries
from flipmeter.measure.inference.sequential.bets import mean_bounds, mean_evidence
from flipmeter.measure.inference.sizes import block_excess
from flipmeter.measure.inference.words import percent
from flipmeter.measure.panel.panel import read_panel
from flipmeter.types import ALPHA, Contrast

StopWord = Literal["below", "above", "futile", "undecided", "not identified"]


@dataclass(frozen=True)
class Watched:
    """What is known of a claim about one rater, dataset and level: k of n readable pairs differ.

    `low` and `high` each hold at 95 % at this stop; they agree with the word.
    """

    key: tuple[str, str, str]
    word: StopWord
    k: int
    n: int
    low: float
    high: float

    @property
    def is_final(self) -> bool:
        return self.word != "undecided"

    def __str__(self) -> str:
        name = " · ".join(part for part in self.key if part)
        if self.word == "not identified":
            return f"{name}: not identified (the prompts are byte-equal)"
        counted = f"{self.k} of {self.n} pairs differ" if self.n else "no readable pair"
        return f"{name}: {self.word} ({counted}, {percent(self.low)} to {percent(self.high)})"


@dataclass
class Watch:
    """Looks at a claim after every block of items; `looks` are the items asked by each look."""

    claim: Claim
    contrast: Contrast
    looks: tuple[int, ...]
    reproducible: Sequence[str] = ()
    alpha: float = ALPHA
    _counts: dict[tuple[str, str, str], list[tuple[int, int]]] = field(default_factory=dict)

    def look(self, decisions: pl.DataFrame) -> list[Watched]:
        """Look once more, at all decisions so far."""
        rows = contrast_rows(read_panel(decisions, self.reproducible), self.contrast)
        return [self._watched(row) for row in rows]

    def _watched(self, row: ContrastRow) -> Watched:
        if row.row is None:
            return Watched(row.key, "not identified", 0, 0, 0.0, 1.0)
        blocks = read_blocks(row.row)
        if self.claim.beyond_noise:
            return self._beyond(row, blocks)
        k, n = _one_each(blocks)
        seen = self._counts.setdefault(row.key, [])
        seen.append((k, n))
        stop = boundaries.watch(
            [k for k, _ in seen],
            [n for _, n in seen],
            looks=self.looks,
            margin=self.claim.margin,
            alpha=self.alpha,
        )
        return Watched(row.key, stop.word, stop.k, stop.n, stop.low, stop.high)

    def _beyond(self, row: ContrastRow, blocks: Blocks) -> Watched:
        values, counted = block_excess(blocks)
        means = blocks.means(values, counted)
        if not len(means):
            return Watched(row.key, "undecided", 0, 0, LOWEST_EXCESS, 1.0)
        low, high = mean_bounds(means, alpha=self.alpha)
        enough = 1 / self.alpha
        below = mean_evidence(means, self.claim.margin, "below").max() >= enough
        above = mean_evidence(means, self.claim.margin, "above").max() >= enough
        word: StopWord = "below" if below else "above" if above else "undecided"
        counts = count_pairs(blocks)
        return Watched(row.key, word, int(counts.differ.sum()), int(counts.read.sum()), low, high)


def _one_each(blocks: Blocks) -> tuple[int, int]:
    """Flips and readable pairs with one pair of every cluster: its first that can be read.

    The same pair counts at every look, whatever comes later.
    """
    first = blocks.replies[:, :, 0]
    kept = np.flatnonzero((first > 0).all(axis=1))
    chosen = kept[np.unique(blocks.cluster[kept], return_index=True)[1]]
    return int((first[chosen, 0] != first[chosen, 1]).sum()), len(chosen)
