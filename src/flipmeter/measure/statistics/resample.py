"""Items -> seeded resamples of them."""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

Weights = npt.NDArray[np.float32]
"""Count of each item (column) in each sample (row); whole numbers, so sums are exact."""

RESAMPLES = 2000
SEED = 20260731
"""Every resample is drawn with this seed: the same decisions give the same numbers."""


def weights(n_items: int, dataset: str) -> Weights:
    """The number of times each item is drawn, by resample; the first row is the sample itself.

    The draw depends on the dataset and the number of items alone: two sides of a residual, and all
    seeds, are resampled together, and two datasets apart.
    """
    chance = np.random.default_rng([SEED, zlib.crc32(dataset.encode())])
    drawn = chance.integers(n_items, size=(RESAMPLES, n_items))
    places = drawn + np.arange(RESAMPLES)[:, None] * n_items
    counts = np.bincount(places.ravel(), minlength=RESAMPLES * n_items)
    return np.concatenate([as_is(n_items), counts.reshape(RESAMPLES, n_items).astype(np.float32)])


def as_is(n_items: int) -> Weights:
    """The one sample in which every item appears once."""
    return np.ones((1, n_items), dtype=np.float32)
