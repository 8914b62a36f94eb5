"""Scores of the cuts of a scale -> probabilities that never rise along it, and the class they mean.

`above[k]` is how probable a class above cut k is; a scale of M classes has M - 1 cuts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from flipmeter.decide.debiasers.averaging import TIED
from flipmeter.types import Rank

Middle = Literal["median", "expected"]


def falling(above: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The nearest values that never rise: neighbours in the wrong order share their mean."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(above, weights, strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-1][0] > blocks[-2][0]:
            (a, wa, na), (b, wb, nb) = blocks[-2:]
            blocks[-2:] = [((a * wa + b * wb) / (wa + wb), wa + wb, na + nb)]
    return [value for value, _, n in blocks for _ in range(n)]


def class_shares(above: Sequence[float]) -> tuple[float, ...]:
    """The probability of every class, from those of being above each cut."""
    ends = [1.0, *above, 0.0]
    shares = [max(low - high, 0.0) for low, high in pairwise(ends)]
    total = math.fsum(shares)
    return tuple(share / total for share in shares)


def middle_classes(above: Sequence[float], middle: Middle) -> list[Rank]:
    """The class in the middle, by the median or by the expected rank; several if they are tied.

    Of several medians only those nearest to the expected rank are left.
    """
    expected = 1 + math.fsum(above)
    if middle == "median":
        low = 1 + sum(p > 0.5 + TIED for p in above)
        among = range(low, 2 + sum(p >= 0.5 - TIED for p in above))
    else:
        among = range(1, len(above) + 2)
    least = min(abs(rank - expected) for rank in among)
    return [rank for rank in among if abs(rank - expected) <= least + TIED]
