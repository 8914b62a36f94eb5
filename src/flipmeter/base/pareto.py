"""Numbers of which less is better -> the Pareto front."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def non_dominated(losses: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Mark the Pareto front: (..., candidates, axes), less is better on all axes.

    One beats another if it is nowhere worse and somewhere better; equals do not beat each other.
    """
    table = np.asarray(losses, dtype=np.float64)
    beaten = np.zeros(table.shape[:-1], dtype=np.bool_)
    for place in range(table.shape[-2]):
        one = table[..., place, None, :]
        beaten |= (one <= table).all(axis=-1) & (one < table).any(axis=-1)
    return ~beaten
