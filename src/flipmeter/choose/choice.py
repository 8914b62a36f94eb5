"""The selection among a run's configurations, and the next steps: nouns of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flipmeter.types import Estimate

if TYPE_CHECKING:
    from flipmeter.stats.front import By, Standing
    from flipmeter.stats.held_out import HeldOut


@dataclass(frozen=True, repr=False, kw_only=True)
class Choice:
    """The configurations on a dataset, with the choice among them.

    `limits` are the limits on flips; `trouble` is the reason why there is nothing to choose from.
    `costs` by unit begin with the one that is weighed, `others` are numbers to look at, and
    `factors` the levels: each has an entry for every standing, in their order.
    """

    dataset: str
    by: By = "accuracy"
    limits: Mapping[str, float] = field(default_factory=dict)
    standings: Sequence[Standing] = ()
    chosen: Standing | None = None
    held_out: HeldOut | None = None
    trouble: str = ""
    costs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    others: Mapping[str, Sequence[Estimate]] = field(default_factory=dict)
    factors: Sequence[Mapping[str, str]] = ()

    @property
    def front(self) -> list[Standing]:
        """The Pareto front, best first."""
        sign = -1 if self.by == "accuracy" else 1
        found = [one for one in self.standings if one.is_on_front]
        return sorted(found, key=lambda one: sign * one.score.value)

    @property
    def instead_of(self) -> Standing | None:
        """The base of the chosen rater, where that is another configuration."""
        used = self.chosen
        if used is None or not used.level:
            return None
        bases = (one for one in self.standings if one.rater == used.rater and not one.level)
        return next(bases, None)


@dataclass(frozen=True)
class NextStep:
    """Something worth doing now: why, and the command that does it."""

    text: str
    command: str


def worst_flips(flips: Mapping[str, Estimate]) -> tuple[str, Estimate] | None:
    """The contrast that flips most often, of those that can."""
    known = [(name, one) for name, one in flips.items() if one.n]
    return max(known, key=lambda pair: pair[1].value, default=None)


def shown_configuration(one: Standing, *, several_raters: bool) -> str:
    """The name of a configuration in a list of several."""
    parts = [one.rater, one.level] if several_raters else [one.level or "base"]
    return " · ".join(part for part in parts if part)
