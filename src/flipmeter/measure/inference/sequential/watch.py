"""Decisions so far -> whether a claim is settled, by boundaries that were fixed before the run.

The largest number of items is known, so the looks are: exact group-sequential boundaries (E4). A
claim beyond noise is settled by betting, which needs no plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
import polars as pl

from flipmeter.base.chance import draw
from flipmeter.measure.inference.blocks import UNREADABLE, Blocks, count_pairs, read_blocks
from flipmeter.measure.inference.bounds import LOWEST_EXCESS, bounded_share
from flipmeter.measure.inference.claims import Claim
from flipmeter.measure.inference.judge import UNREADABLE_LIMIT, ContrastRow, contrast_rows
from flipmeter.measure.inference.sequential import boundaries
from flipmeter.measure.inference.sequential.bets import mean_bounds, mean_evidence
from flipmeter.measure.inference.sizes import block_excess, noise
from flipmeter.measure.inference.words import percent
from flipmeter.measure.panel.reading import read_panel
from flipmeter.types import ALPHA, Contrast

StopWord = Literal["below", "above", "futile", "undecided", "unreadable", "not identified"]
Key = tuple[str, str, str]
"""Rater, dataset and level."""


@dataclass(frozen=True)
class Watched:
    """The state of a claim about one rater, dataset and level: k of n readable pairs differ.

    `low` and `high` each hold at 95 % at this stop; they agree with the word. `is_last` says that
    all items have been looked at.
    """

    key: Key
    word: StopWord
    k: int
    n: int
    low: float
    high: float
    unreadable: float = 0.0
    is_last: bool = False
    note: str = ""

    @property
    def is_decided(self) -> bool:
        """Whether the claim is shown or refuted."""
        return self.word in ("below", "above")

    @property
    def is_final(self) -> bool:
        return self.word != "undecided" or self.is_last

    def record(self) -> dict[str, Any]:
        """Every field by name, the key taken apart."""
        of = dict(zip(("rater", "dataset", "level"), self.key, strict=True))
        return of | {name: x for name, x in asdict(self).items() if name != "key"}

    def __str__(self) -> str:
        name = " · ".join(part for part in self.key if part)
        if self.word == "not identified":
            return f"{name}: not identified ({self.note})"
        if self.word == "unreadable":
            return f"{name}: unreadable ({percent(self.unreadable)} of pairs)"
        counted = f"{self.k} of {self.n} pairs differ" if self.n else "no readable pair"
        return f"{name}: {self.word} ({counted}, {percent(self.low)} to {percent(self.high)})"


@dataclass
class Watch:
    """Looks at a claim after every block of items.

    `looks` are, by dataset, the independent items asked by each look.
    """

    claim: Claim
    contrast: Contrast
    looks: Mapping[str, tuple[int, ...]]
    reproducible: Sequence[str] = ()
    alpha: float = ALPHA
    unreadable_limit: float = UNREADABLE_LIMIT
    _counts: dict[Key, list[tuple[int, int]]] = field(default_factory=dict)
    _drawn: dict[Key, dict[str, bool]] = field(default_factory=dict)

    def look(self, decisions: pl.DataFrame) -> list[Watched]:
        """Look once more, at all decisions so far."""
        panel = read_panel(decisions, self.reproducible)
        rows = contrast_rows(panel, self.contrast)
        names = panel.cluster_names
        return [self._watched(row, names) for row in rows if row.status != "not applicable"]

    def _watched(self, row: ContrastRow, names: Sequence[str]) -> Watched:
        if row.row is None:
            return Watched(row.key, "not identified", 0, 0, 0.0, 1.0, note=row.note)
        looks, blocks = self.looks[row.key[1]], read_blocks(row.row)
        seen = self._counts.setdefault(row.key, [])
        if len(seen) < len(looks):
            seen.append(self._one_each(row, blocks, names))
        why = row.row.by_construction
        if why and seen[-1][1]:
            found = Watched(row.key, "below", 0, seen[-1][1], 0.0, 0.0, note=why)
        elif self.claim.beyond_noise and (
            not row.row.reproducible or noise(blocks, ALPHA).value > 0
        ):  # otherwise all flips are beyond noise
            found = self._beyond(row, blocks)
        else:
            counts = ([k for k, _ in seen], [n for _, n in seen])
            margin, alpha = self.claim.margin, self.alpha
            stop = boundaries.watch(*counts, looks=looks, margin=margin, alpha=alpha)
            found = Watched(row.key, stop.word, stop.k, stop.n, stop.low, stop.high)
        return self._readable(replace(found, is_last=len(seen) == len(looks)), blocks, len(looks))

    def _one_each(self, row: ContrastRow, blocks: Blocks, names: Sequence[str]) -> tuple[int, int]:
        """Flips and readable pairs with one pair of every cluster, drawn by the cluster's name.

        What was drawn counts at every look, whatever comes later: boundaries are exact for one
        Bernoulli a cluster.
        """
        assert row.row is not None
        drawn = self._drawn.setdefault(row.key, {})
        for cluster, replies in zip(
            np.asarray(row.row.clusters).tolist(), blocks.replies[:, :, 0], strict=True
        ):
            read = replies[replies > UNREADABLE]
            if len(read) > 1 and names[cluster] not in drawn:
                # Every two of the views that could be read are as likely as any other.
                pairs = list(combinations(range(len(read)), 2))
                one, other = pairs[int(draw("pair of views", names[cluster]) * len(pairs))]
                drawn[names[cluster]] = bool(blocks.differ(read[one], read[other]))
        return sum(drawn.values()), len(drawn)

    def _readable(self, found: Watched, blocks: Blocks, n_looks: int) -> Watched:
        """Keep a claim open while too many pairs cannot be read, as a verdict does."""
        counts = count_pairs(blocks)
        share = bounded_share(counts.asked - counts.read, counts.asked, self.alpha / n_looks)
        found = replace(found, unreadable=share.value)
        if share.lower > self.unreadable_limit:
            return replace(found, word="unreadable")
        is_open = found.word == "below" and share.value > self.unreadable_limit
        return replace(found, word="undecided") if is_open else found

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
