"""CalibraEval: one monotone map of probabilities under which judging two answers is fair.

Written from the objective in arXiv 2410.15393: with g the map, over pairs of answers,

    mean[(g(a) + g(c) - 1)^2 + (g(a) - g(b))^2] - spread * mean[(g(a) - g(c))^2]

where a is the probability of an answer as asked first, b that of the same answer with the option
ids swapped, and c that of its rival with the positions swapped, where the rival has the id and the
place of the first. The last term is to keep g from mapping everything to 1/2; its published weight,
.05, does so only for a judge that hardly contradicts itself: see `FairMap.is_flat`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flipmeter.decide.spaces import Floats
from flipmeter.types import Problem

SPREAD = 0.05
MOST_STEPS = 5_000
FLAT = 0.01


@dataclass(frozen=True)
class FairMap:
    """A monotone map of [0, 1] onto itself: straight between knots, which it maps to `values`.

    `apart` is how far from each other it maps the two answers of a typical pair.
    """

    knots: tuple[float, ...]
    values: tuple[float, ...]
    loss: float
    apart: float
    n_pairs: int
    converged: bool

    @property
    def is_flat(self) -> bool:
        """Say that most verdicts were mapped to a tie: fit again with more spread, such as .5."""
        return self.apart < FLAT

    def __call__(self, p: npt.ArrayLike) -> Floats:
        """Map probabilities of the first answer; NaN stays NaN."""
        p = np.asarray(p, dtype=np.float64)
        return np.asarray(np.interp(p, self.knots, self.values))


def fit_fair_map(
    original: npt.ArrayLike,
    ids_swapped: npt.ArrayLike,
    positions_swapped: npt.ArrayLike,
    *,
    spread: float = SPREAD,
) -> FairMap:
    """Fit the map on pairs that have all three probabilities, starting from even steps."""
    from scipy.optimize import minimize  # slow to import, and only needed here

    pairs = _pairs(original, ids_swapped, positions_swapped)
    knots, places = np.unique(np.concatenate([pairs.ravel(), [0.0, 1.0]]), return_inverse=True)
    where = places[: pairs.size].reshape(pairs.shape)
    found = minimize(
        loss_and_gradient,
        np.zeros(len(knots) - 1),
        args=(where, spread),
        jac=True,
        method="L-BFGS-B",
        # A step is about one over the number of knots high, and its slope as small.
        options={"maxiter": MOST_STEPS, "maxfun": 2 * MOST_STEPS, "gtol": 1e-7, "ftol": 1e-11},
    )
    values = _heights(np.asarray(found.x))[1]
    return FairMap(
        tuple(knots.tolist()),
        tuple(values.tolist()),
        float(found.fun),
        float(np.median(np.abs(values[where[0]] - values[where[2]]))),
        pairs.shape[1],
        bool(found.success),
    )


def loss_and_gradient(
    theta: Floats, where: npt.NDArray[np.int64], spread: float = SPREAD
) -> tuple[float, Floats]:
    """The objective and its slope along theta, the log heights of the steps between knots.

    `where` names the knot of each probability (3 x pairs: original, ids and positions swapped).
    """
    steps, values = _heights(theta)
    a, b, c = values[where]
    fair, same, apart = a + c - 1, a - b, a - c
    loss = float(np.mean(fair**2 + same**2 - spread * apart**2))
    slopes = 2 * np.stack([fair + same - spread * apart, -same, fair + spread * apart])
    by_knot = np.bincount(where.ravel(), slopes.ravel() / len(a), minlength=len(values))
    # A step lifts every knot after it; raising one step lowers the share of the others.
    by_step = np.cumsum(by_knot[::-1])[::-1][1:]
    return loss, steps * (by_step - steps @ by_step)


def _heights(theta: Floats) -> tuple[Floats, Floats]:
    """The heights of the steps, which sum to 1, and the map's values at the knots."""
    steps = np.exp(theta - theta.max())
    steps /= steps.sum()
    values = np.concatenate([[0.0], np.cumsum(steps)])
    return steps, np.minimum(values, 1.0)


def _pairs(*columns: npt.ArrayLike) -> Floats:
    arrays = [np.asarray(column, dtype=np.float64) for column in columns]
    if len({array.shape for array in arrays}) > 1 or arrays[0].ndim != 1:
        shown = ", ".join(str(array.shape) for array in arrays)
        raise Problem(f"a fair map needs three probabilities for each pair; got shapes {shown}")
    pairs = np.stack(arrays)
    pairs = pairs[:, ~np.isnan(pairs).any(axis=0)]
    if not pairs.size:
        raise Problem(f"none of {len(arrays[0])} pairs has all three probabilities")
    if pairs.min() < 0 or pairs.max() > 1:
        raise Problem(f"probabilities lie in [0, 1]; got {pairs.min()} to {pairs.max()}")
    return pairs
