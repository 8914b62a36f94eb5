"""Token counts -> the share of hidden (reasoning) tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from flipmeter.measure.panel.checked import Floats, ratio, same_length
from flipmeter.measure.panel.groups import Estimates, Groups, estimates, mean_estimates
from flipmeter.types import Problem

Tokens = npt.ArrayLike | Sequence[int | None]
"""A number per reply; None or NaN where the endpoint does not say."""


def output_tokens(completion: Tokens, groups: Groups) -> Estimates:
    """Mean tokens per reply as the endpoint counts them, seen and hidden."""
    written = _tokens(completion, "completion")
    is_known = ~np.isnan(written)
    return mean_estimates(written[is_known], groups.among(is_known), "output_tokens")


def calls_made(calls: Tokens, groups: Groups) -> Estimates:
    """Mean calls per decision, with its part of those that all items of a condition share."""
    made = _tokens(calls, "calls")
    is_known = ~np.isnan(made)
    n = groups.among(is_known).count()
    mean = ratio(groups.among(is_known).total(made[is_known]), n)
    return estimates("calls", mean, n=n, note="per decision, with its part of the shared calls")


def hidden_estimates(completion: Tokens, reasoning: Tokens, groups: Groups) -> Estimates:
    """Compute `hidden_tokens` of every group."""
    written, thought = _tokens(completion, "completion"), _tokens(reasoning, "reasoning")
    same_length(completion=written, reasoning=thought)
    n_reported = groups.count(~np.isnan(thought))
    is_reported = (n_reported > 0)[groups.of]
    hidden = np.where(is_reported, thought, np.maximum(written - 1, 0))
    is_known = ~np.isnan(hidden)
    known = groups.among(is_known)
    counts = zip(
        *(each.tolist() for each in (n_reported, known.count(), groups.count())), strict=True
    )
    note = [_note(*each) for each in counts]
    return mean_estimates(hidden[is_known], known, "hidden_tokens", note=note)


def _note(n_reported: int, n_known: int, n_replies: int) -> str:
    if not n_reported:
        return "overhead: completion tokens minus one" if n_known else "no token was reported"
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
