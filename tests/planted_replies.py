"""Replies of simulated raters with a planted noise, effect and correlation over seeds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def replies(
    rng: np.random.Generator,
    *,
    n: int,
    noise: tuple[float, float] = (0.0, 0.0),
    moved: float = 0.0,
    step: int = 2,
    n_classes: int = 5,
) -> tuple[Ints, Ints]:
    """Pairs and repeats of a rater that slips by one class and moves some items in view two."""
    true = rng.integers(1, n_classes - step + 1, n)
    target = np.where(rng.random(n) < moved, true + step, true)
    views = [(true, noise[0]), (target, noise[1])]
    first, again = (
        np.stack([_slipped(rng, at, slip, n_classes) for at, slip in views], axis=1)
        for _ in range(2)
    )
    return first, again


def _slipped(rng: np.random.Generator, at: Ints, slip: float, n_classes: int) -> Ints:
    step = rng.choice([-1, 1], len(at))
    return np.clip(np.where(rng.random(len(at)) < slip, at + step, at), 1, n_classes)


def flips(rng: np.random.Generator, *, n: int, seeds: int, rate: float, icc: float) -> Floats:
    """Items x seeds of flips whose rate varies over items (beta), correlated by icc within them."""
    if icc == 0:
        own = np.full(n, rate)
    else:
        spread = (1 - icc) / icc
        own = rng.beta(rate * spread, (1 - rate) * spread, n)
    return (rng.random((n, seeds)) < own[:, None]).astype(np.float64)


def pairs_of(flipped: Floats) -> tuple[Ints, Ints]:
    """Pairs of classes 1 and 2 that differ where flipped, and the item of each."""
    n, seeds = flipped.shape
    second = np.where(flipped.ravel() > 0, 2, 1)
    return np.stack([np.ones_like(second), second], axis=1), np.repeat(np.arange(n), seeds)
