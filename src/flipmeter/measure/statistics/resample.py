"""Items -> seeded resamples of them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Weights = npt.NDArray[np.float32]
"""Count of each item (column) in each sample (row); whole numbers, so sums are exact."""

RESAMPLES = 2000
HELD = 1 << 22
"""Number of counts in memory at once: all resamples of up to 2,097 items."""
SEED = 20260731
"""Every resample is drawn with this seed: the same decisions give the same numbers."""


def resamples(n_items: int, dataset: str) -> Iterator[Weights]:
    """Yield the number of times each item is drawn, some resamples at a time.

    The first row of all is the sample itself. The draw depends on the dataset and the number of
    items alone: two sides of a residual, and all seeds, are resampled together, and two datasets
    apart.
    """
    chance = np.random.default_rng([SEED, zlib.crc32(dataset.encode())])
    size = max(1, HELD // n_items)
    for start in range(0, RESAMPLES, size):
        n = min(size, RESAMPLES - start)
        places = chance.integers(n_items, size=(n, n_items))
        places += np.arange(n)[:, None] * n_items
        counts = np.bincount(places.ravel(), minlength=n * n_items)
        drawn = counts.reshape(n, n_items).astype(np.float32)
        yield drawn if start else np.concatenate([as_is(n_items), drawn])


def as_is(n_items: int) -> Weights:
    """The one sample in which every item appears once."""
    return np.ones((1, n_items), dtype=np.float32)
