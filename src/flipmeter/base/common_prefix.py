"""The common prefix of two texts, or of two lists of tokens."""

from __future__ import annotations

from collections.abc import Sequence


def n_shared(a: Sequence[object], b: Sequence[object]) -> int:
    """The length of the common prefix of two sequences, by bisection on slices."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
