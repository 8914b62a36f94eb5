"""Token counts -> how much a model wrote that nobody sees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from flipmeter.measure.arrays import Floats, same_length
from flipmeter.measure.flips import mean_estimate
from flipmeter.types import Estimate, Problem

Tokens = npt.ArrayLike | Sequence[int | None]
"""A number per reply; None or NaN where the endpoint does not say."""


def output_tokens(completion: Tokens) -> Estimate:
    """Mean tokens per reply as the endpoint counts them, seen and hidden."""
    written = _tokens(completion, "completion")
    return mean_estimate(written[~np.isnan(written)], "output_tokens")


def hidden_tokens(completion: Tokens, reasoning: Tokens | None = None) -> Estimate:
    """Mean hidden tokens per reply: the reported reasoning tokens, else completion minus one.

    The second is the paper's count and mostly stop and template tokens, so its note says
    "overhead". The two kinds are never averaged together.
    """
    written = _tokens(completion, "completion")
    thought = (
        np.full_like(written, np.nan) if reasoning is None else _tokens(reasoning, "reasoning")
    )
    same_length(completion=written, reasoning=thought)
    reported = thought[~np.isnan(thought)]
    if len(reported):
        return mean_estimate(reported, "hidden_tokens", note=_reported(len(reported), len(written)))
    overhead = np.maximum(written[~np.isnan(written)] - 1, 0)
    note = "overhead: completion tokens minus one" if len(overhead) else "no token was reported"
    return mean_estimate(overhead, "hidden_tokens", note=note)


def _reported(n_reported: int, n_replies: int) -> str:
    missing = n_replies - n_reported
    return "reasoning tokens as reported" + (f"; {missing} replies report none" if missing else "")


def _tokens(counts: Tokens, what: str) -> Floats:
    try:
        array = np.asarray(counts, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise Problem(f"{what} tokens must be numbers or None; got {counts!r}") from error
    if array.ndim != 1 or not array.size:
        raise Problem(f"{what} tokens must be one number per reply; got shape {array.shape}")
    if (array < 0).any():
        raise Problem(f"{what} tokens cannot be negative; got {np.nanmin(array):.0f}")
    return array
