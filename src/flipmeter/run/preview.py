"""Study -> Preview: what it would ask and what that takes, before anything is sent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flipmeter.base.run_sync import wait_for
from flipmeter.model import (
    PriceList,
    Quote,
    Spent,
    Store,
    find_prices,
    identity_of,
    observe,
    stored_among,
    worst_case,
)
from flipmeter.plan import Cost, Plan, price
from flipmeter.run.fallbacks import adapted, recall
from flipmeter.run.rate import DRAWS_APART, Seat, first_round, seat
from flipmeter.study.file import Study
from flipmeter.study.forecast import Forecast, Preview, Speed, timed
from flipmeter.study.grid import conditions, unmoved_notes, worlds
from flipmeter.types import Condition, Model

if TYPE_CHECKING:
    from flipmeter.measure import PowerPlan

Sharers = dict[tuple[Model, ...], list[str]]
"""Identities by the models behind them.

A simulated rater has one on each dataset, and two entries of a study may be one model.
"""


@dataclass(frozen=True)
class FirstRound:
    """What a grid asks before anything is known, and who answers it."""

    grid: Sequence[Condition]
    identities: Mapping[Seat, str]
    plan: Plan

    @property
    def sharers(self) -> Sharers:
        models: dict[str, dict[Model, None]] = {}
        for (model, _), identity in self.identities.items():
            models.setdefault(identity, {})[model] = None
        found: Sharers = {}
        for identity, some in models.items():
            found.setdefault(tuple(some), []).append(identity)
        return found


def plan_first_round(study: Study, store: Store) -> FirstRound:
    """Return what a study asks before anything is known; nothing is sent.

    A model that is known to lack something is not asked for it, as in a run.
    """
    datasets = study.load()
    grid = conditions(study, datasets)
    known = worlds(study, datasets, grid)
    grid, _ = adapted(grid, recall(grid, store))
    # Once for each seat: to know a weights file is to hash it.
    seats = dict.fromkeys(seat(condition) for condition in grid)
    identities = {(m, dataset): identity_of(m, known.get(dataset)) for m, dataset in seats}
    return FirstRound(grid, identities, first_round(grid, identities))


def preview(
    study: Study,
    store: Store,
    *,
    listed: PriceList | None = None,
    is_offline: bool = False,
    speed: Speed | None = None,
    power: str | None = None,
) -> Preview:
    """Return what a study would take. No model is asked; at most a provider, for its prices.

    `power` is a claim such as P1<0.10, to plan when it is looked at.
    """
    first = plan_first_round(study, store)
    plans = () if power is None else tuple(_power(study, power, first.grid))
    stored = stored_among(store, [request.key for request in first.plan.requests])
    costs, worst = price(first.plan, stored), _worst(first.plan, stored)
    sharers = first.sharers
    asked = [m for models, some in sharers.items() if any(i in worst for i in some) for m in models]
    quotes = wait_for(find_prices(asked, study.prices, listed, is_offline=is_offline))
    forecasts = []
    for models, identities in sharers.items():
        forecast = Forecast(
            ", ".join(model.title for model in models),
            sum((costs[identity] for identity in identities if identity in costs), Cost()),
            _added(worst[identity] for identity in identities if identity in worst),
            observe(store, identities),
            _dearest([quotes[model.title] for model in models if model.title in quotes]),
        )
        forecasts.append(timed(forecast, models, speed or Speed()))
    notes = tuple(unmoved_notes(study, first.grid))
    n_repeats = sum(request.repeat % DRAWS_APART > 0 for request in first.plan.requests)
    return Preview(len(first.grid), tuple(forecasts), study.name, plans, notes, n_repeats)


def _power(study: Study, claim: str, grid: Sequence[Condition]) -> Iterator[PowerPlan]:
    from flipmeter.run.until import power_plans  # what is measured takes a while to import

    return power_plans(study, claim, grid)


def _worst(plan: Plan, stored: Collection[str]) -> dict[str, Spent]:
    """Return by identity the most that a budget would set aside for what is not stored."""
    worst: dict[str, Spent] = {}
    for request in plan.requests:
        if request.key not in stored:
            worst.setdefault(request.model, Spent()).add(worst_case(request))
    return worst


def _added(parts: Iterable[Spent]) -> Spent:
    total = Spent()
    for part in parts:
        total.add(part)
    return total


def _dearest(quotes: Sequence[Quote]) -> Quote:
    """Return one quote for entries that are one model: the dearest, if they differ."""
    priced = [quote for quote in quotes if quote.price is not None]
    return max(priced or quotes, key=_level, default=Quote(note="nothing is left to ask"))


def _level(quote: Quote) -> tuple[float, float]:
    return (quote.price.prompt, quote.price.completion) if quote.price else (0.0, 0.0)
