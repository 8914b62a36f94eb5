"""The selection among a run's configurations, and the next steps: nouns of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flipmeter.types import Estimate


@dataclass(frozen=True)
class Configuration:
    """A rater at a level among all that were compared; shares are of resamples of the items.

    `score` is what the selection goes by, `flips` are by contrast and `costs` by unit, the one that
    is weighed first. Contrasts that `cannot_flip` have no rate and count as 0. `others` are further
    numbers to look at, which the selection does not weigh.
    """

    rater: str
    level: str
    score: Estimate
    flips: Mapping[str, Estimate]
    costs: Mapping[str, float]
    is_on_front: bool
    is_allowed: bool
    on_front: float
    chosen: float
    others: Mapping[str, Estimate] = field(default_factory=dict)
    factors: Mapping[str, str] = field(default_factory=dict)
    cannot_flip: frozenset[str] = frozenset()


@dataclass(frozen=True)
class HeldOutNumbers:
    """The choice evaluated on items that it was not made on."""

    score: Estimate
    flips: Mapping[str, Estimate]


@dataclass(frozen=True)
class Choice:
    """The recommendation for a dataset: the selection among its configurations.

    `limits` are the limits on flips, `chosen` the index of the choice, None if there is none.
    `trouble` is the reason why there is no selection at all.
    """

    dataset: str
    by: str = "accuracy"
    limits: Mapping[str, float] = field(default_factory=dict)
    configurations: Sequence[Configuration] = ()
    chosen: int | None = None
    held_out: HeldOutNumbers | None = None
    trouble: str = ""

    @property
    def used(self) -> Configuration | None:
        return None if self.chosen is None else self.configurations[self.chosen]

    @property
    def instead_of(self) -> Configuration | None:
        """The base of the chosen rater, where that is another configuration."""
        used = self.used
        if used is None or not used.level:
            return None
        bases = [one for one in self.configurations if one.rater == used.rater and not one.level]
        return bases[0] if bases else None


@dataclass(frozen=True)
class NextStep:
    """Something worth doing now: why, and the command that does it."""

    text: str
    command: str


def worst_flips(flips: Mapping[str, Estimate]) -> tuple[str, Estimate] | None:
    """The contrast that flips most often, of those that can."""
    known = [(name, one) for name, one in flips.items() if one.n]
    return max(known, key=lambda pair: pair[1].value, default=None)


def shown_configuration(one: Configuration, *, several_raters: bool) -> str:
    """The name of a configuration in a list of several."""
    parts = [one.rater, one.level] if several_raters else [one.level or "base"]
    return " · ".join(part for part in parts if part)
