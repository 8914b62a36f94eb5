"""Decisions of several judges on one item -> the decision of their panel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flipmeter.decide.pipelines.both_orders import even_class, most_said
from flipmeter.decide.pipelines.comparison import mean_place, vote
from flipmeter.types import NO_CLASS, Decision, Fault, JuryRule, Rank, Task


def settle_jury(decisions: Sequence[Decision], by: JuryRule, task: Task) -> Decision:
    """Put the decisions of all members together: the class of most of them, or the mean.

    More than half of the members must have an answer. Where one was never answered there is no
    decision: it would be that of another panel.
    """
    if any(one.fault == "error" for one in decisions):
        return Decision(NO_CLASS, fault="error")
    ranks = [one.rank for one in decisions if one.rank]
    if 2 * len(ranks) <= len(decisions):
        return Decision(NO_CLASS, fault=_main_fault(decisions))
    masses = [mass for one in decisions if (mass := one.label_mass) is not None]
    return replace(
        _mean(ranks, task) if by == "mean" else _most(ranks, task),
        probabilities=_mean_probabilities(decisions),
        label_mass=min(masses, default=None),
    )


def _mean(ranks: Sequence[Rank], task: Task) -> Decision:
    if task.scale.span is None:
        return mean_place(ranks, len(task.scale), "recommended")
    return Decision((2 * sum(ranks) + len(ranks)) // (2 * len(ranks)))


def _most(ranks: Sequence[Rank], task: Task) -> Decision:
    """The class of most members; judges of pairs that are evenly split say that it is a tie."""
    places = task.places
    if places is not None and places.kind == "pair" and even_class(places):
        return most_said(ranks, places)
    return vote(ranks, len(task.scale), "recommended")


def _mean_probabilities(decisions: Sequence[Decision]) -> tuple[float, ...] | None:
    """The mean of what all members give each class, None if one gives nothing."""
    known = [one.probabilities for one in decisions if one.probabilities is not None]
    if len(known) < len(decisions):
        return None
    return tuple(np.mean(known, axis=0).tolist())


def _main_fault(decisions: Sequence[Decision]) -> Fault:
    faults = Counter(one.fault for one in decisions if one.fault)
    return faults.most_common(1)[0][0] if faults else "unparsed"
