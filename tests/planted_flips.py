"""Tilt -> the share of flips that it must give, by numeric integration: what a run must measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from flipmeter.ask.tilts import SPREAD, SimSpec
from flipmeter.errors import Problem
from flipmeter.types import Rank

FloatArray = npt.NDArray[np.float64]
GRID = 20_001
"""Points of the numeric integral over the latent scores."""


@dataclass(frozen=True)
class Positions:
    """The content of a view: the rank of each slot, and the last demonstration's class, if any."""

    label_order: tuple[Rank, ...]
    last_demo: Rank | None = None


def predict_flip_rate(
    spec: SimSpec,
    n_classes: int,
    a: Positions,
    b: Positions,
    *,
    spread: float = SPREAD,
    gold_shares: Sequence[float] | None = None,
) -> float:
    """The share of texts whose class differs between two views, by numeric integration.

    The integral runs over the latent scores that `latents` draws: a normal around each gold rank,
    clipped at half a rank beyond the scale. With noise the two views are drawn independently, so
    `a == b` gives the flips between two repeats of one prompt. Refusals do not depend on the latent
    score: this is the rate among texts that are answered.
    """
    shares = np.array([1.0] * n_classes if gold_shares is None else gold_shares, dtype=np.float64)
    if len(shares) != n_classes or sorted(a.label_order) != sorted(b.label_order):
        raise Problem(f"both views and the gold shares must cover the {n_classes} classes")
    normal = NormalDist()
    z = np.array([normal.inv_cdf((k + 0.5) / GRID) for k in range(GRID)])
    total = 0.0
    for gold, share in enumerate(shares / shares.sum(), start=1):
        latent = np.clip(gold + spread * z, 0.5, n_classes + 0.5)
        agree = (_class_shares(spec, latent, a) * _class_shares(spec, latent, b)).sum(axis=0)
        total += float(share * (1 - agree).mean())
    return max(total, 0.0)


def _class_shares(spec: SimSpec, latent: FloatArray, shown: Positions) -> FloatArray:
    """The probability of each class (rows) at each latent score (columns)."""
    order = shown.label_order
    demo_slot = order.index(shown.last_demo) + 1 if shown.last_demo else 0
    tilt = spec.tilt(len(order), demo_slot)
    by_slot = np.stack(
        [
            bonus - spec.sharpness * (latent - rank) ** 2
            for rank, bonus in zip(order, tilt, strict=True)
        ]
    )
    odds = by_slot[np.argsort(order)]
    if not spec.noise:
        best: FloatArray = np.eye(len(order))[odds.argmax(axis=0)].T
        return best
    weights = np.exp((odds - odds.max(axis=0)) / spec.noise)
    shares: FloatArray = weights / weights.sum(axis=0)
    return shares
