"""Study -> Preview, Trial: what it would ask and cost; a few items asked, to see replies read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flipmeter.ask.export import observe
from flipmeter.ask.family import Capability
from flipmeter.ask.limits import Spent, worst_case
from flipmeter.ask.names import caching_of, former_identity_of, identity_of
from flipmeter.ask.plan import Cost, Plan, price
from flipmeter.ask.prices import PriceList, Quote, find_prices
from flipmeter.ask.store import Store
from flipmeter.loops import wait_for
from flipmeter.printed import Printed
from flipmeter.run.conditions import Tested, adapted, lay_out, learn, recall, recall_settled
from flipmeter.run.first_look import Heard, Whose, doubts, hear, short, whose
from flipmeter.run.perform import open_engine
from flipmeter.run.progress import Terms
from flipmeter.run.rate import DRAWS_APART, Seat, first_round, jury_identity, seat
from flipmeter.study.file import Study
from flipmeter.study.forecast import Forecast, Preview, Speed, timed
from flipmeter.study.grid import conditions, unmoved_notes, worlds
from flipmeter.study.sizes import fit_note, fitted
from flipmeter.types import Condition, Model

if TYPE_CHECKING:
    from rich.console import RenderableType

    from flipmeter.stats.watch import PowerPlan


@dataclass(frozen=True)
class FirstRound:
    """The first requests of a grid, and the models for them."""

    grid: Sequence[Condition]
    identities: Mapping[Seat, str]
    plan: Plan
    tested: Tested
    notes: tuple[str, ...] = ()

    @property
    def sharers(self) -> dict[tuple[Model, ...], list[str]]:
        """Identities by the models behind them.

        A simulated rater has one on each dataset, and two entries of a study may be one model.
        """
        models: dict[str, dict[Model, None]] = {}
        for (model, _), identity in self.identities.items():
            models.setdefault(identity, {})[model] = None
        found: dict[tuple[Model, ...], list[str]] = {}
        for identity, some in models.items():
            found.setdefault(tuple(some), []).append(identity)
        return found


def plan_first_round(study: Study, store: Store, tested: Tested | None = None) -> FirstRound:
    """The first requests of a study; nothing is sent.

    A model that is known to lack something is not asked for it, as in a run. An engine that no
    self-test has shown to be reproducible counts as one that is not, unless `tested` lists it.
    """
    datasets = study.load()
    tested = recall_settled(study.raters(), store) if tested is None else tested
    grid = lay_out(study, datasets, tested).grid
    known = worlds(study, datasets, grid)
    grid, _ = adapted(grid, recall(grid, store))
    # Once for each seat: to know a weights file is to hash it.
    seats = dict.fromkeys(seat(condition) for condition in grid)
    identities = {(m, dataset): identity_of(m, known.get(dataset)) for m, dataset in seats}
    sized = fitted(study, datasets)
    fit = ((one.name, fit_note(study, sized, one)) for one in datasets)
    notes = tuple(f"{name}: {note}" for name, note in fit if note)
    return FirstRound(grid, identities, first_round(grid, identities), tested, notes)


def preview(
    study: Study,
    store: Store,
    *,
    listed: PriceList | None = None,
    is_offline: bool = False,
    speed: Speed | None = None,
    power: str | None = None,
) -> Preview:
    """The cost of a study. No model is asked; at most a provider, for its prices.

    `power` is a claim such as P1<0.10, to plan when it is looked at.
    """
    first = plan_first_round(study, store)
    plans: tuple[PowerPlan, ...] = ()
    if power is not None:
        from flipmeter.run.until import power_plans  # what is measured takes a while to import

        plans = tuple(power_plans(study, power, first.grid))
    stored = store.among([request.key for request in first.plan.requests])
    caches = {
        identity: caching
        for (model, _), identity in first.identities.items()
        if (caching := caching_of(model)) is not None
    }
    costs, worst = price(first.plan, stored, caches), dict[str, Spent]()
    for request in first.plan.requests:
        if request.key not in stored:
            worst.setdefault(request.model, Spent()).add(worst_case(request))
    sharers, engines = first.sharers, _Notes(study, store, first, stored)
    asked = [m for models, some in sharers.items() if any(i in worst for i in some) for m in models]
    quotes = wait_for(find_prices(asked, study.prices, listed, is_offline=is_offline))
    forecasts = []
    for models, identities in sharers.items():
        most = Spent()
        for identity in identities:
            most.add(worst.get(identity, Spent()))
        forecast = Forecast(
            ", ".join(model.title for model in models),
            sum((costs[identity] for identity in identities if identity in costs), Cost()),
            most,
            observe(store, identities),
            _dearest_quote([quotes[model.title] for model in models if model.title in quotes]),
            notes=tuple(dict.fromkeys(engines.of(models, identities))),
            caching=next((caches[identity] for identity in identities if identity in caches), None),
        )
        forecasts.append(timed(forecast, models, speed or Speed()))
    panels = [
        f"panel {one.name}: {jury_identity(one)}; sends no further requests" for one in study.juries
    ]
    notes = (*first.notes, *panels, *unmoved_notes(study, first.grid))
    n_repeats = sum(request.repeat % DRAWS_APART > 0 for request in first.plan.requests)
    return Preview(len(first.grid), tuple(forecasts), study.name, plans, notes, n_repeats)


@dataclass(frozen=True)
class _Notes:
    """Notes on an engine's repeats and its stored replies."""

    study: Study
    store: Store
    first: FirstRound
    stored: Collection[str]

    def of(self, models: Sequence[Model], identities: Sequence[str]) -> Iterator[str]:
        for model in models:
            found = self.first.tested.get(model)
            if found is not None:
                yield self._repeats(found, identities)
            if former := former_identity_of(model):
                yield from self._outdated(former, identities)

    def _repeats(self, found: Capability, identities: Sequence[str]) -> str:
        if found.is_there:
            return f"replies are reproducible ({found.how}), so few items are repeated"
        if found.is_there is False:
            return f"replies are not reproducible ({found.how}), so every view is repeated"
        passed = replace(found, is_there=True)
        best = plan_first_round(self.study, self.store, dict.fromkeys(self.first.tested, passed))
        asked = [
            [request.key for request in one.plan.requests if request.model in identities]
            for one in (self.first, best)
        ]
        now, then = (len(keys) - len(self.store.among(keys)) for keys in asked)
        n_fewer = now - then
        fewer = f" and, if they are, sends {n_fewer:,} fewer requests" if n_fewer else ""
        return (
            f"whether replies are reproducible is {found.how}, so every view counts as "
            f"repeated; `flipmeter run` tests it first{fewer}"
        )

    def _outdated(self, former: str, identities: Sequence[str]) -> Iterator[str]:
        missing = (r for r in self.first.plan.requests if r.key not in self.stored)
        old = [replace(r, model=former).key for r in missing if r.model in identities]
        if n := len(self.store.among(old)):
            yield f"{n:,} stored replies have other settings ({former}); they are requested again"


def _dearest_quote(quotes: Sequence[Quote]) -> Quote:
    """One quote for entries of the same model: the dearest, if they differ."""

    def level(quote: Quote) -> tuple[float, float]:
        return (quote.price.prompt, quote.price.completion) if quote.price else (-1.0, -1.0)

    return max(quotes, key=level, default=Quote(note="nothing is left to ask"))


@dataclass(frozen=True, repr=False)
class Trial(Printed):
    """A few replies of each rater under every view, and how they were read."""

    heard: tuple[Heard, ...]

    @property
    def doubts(self) -> dict[Whose, str]:
        """Doubts about most replies of a rater, however few were asked for."""
        return doubts(self.heard, fewest=1)

    def rows(self) -> Iterator[dict[str, str]]:
        """One row for each reply."""
        for one in self.heard:
            rater, dataset, level = whose(one.condition)
            reply, ask = one.evidence.reply, one.evidence.call.ask
            again = f" (repeat {ask.view.repeat})" if ask.view.repeat else ""
            yield {
                "rater": rater,
                "dataset": dataset,
                "level": level,
                "item": ask.item.id,
                "view": f"{ask.view.name}{again}{f', {ask.part}' if ask.part else ''}",
                "reply": reply.error or reply.text,
                "label": one.label,
                "class": one.outcome,
            }

    def tables(self) -> Iterable[RenderableType]:
        from flipmeter.show.table import Column, Table

        columns = (
            *("item", "view", Column("reply", lambda row: short(row["reply"]))),
            Column("label as read", lambda row: row["label"]),
            Column("class as meant", lambda row: row["class"]),
        )
        groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
        for row in self.rows():
            groups.setdefault((row["rater"], row["dataset"], row["level"]), []).append(row)
        for named, rows in groups.items():
            yield Table.of(", ".join(part for part in named if part), columns, rows)
        yield from (
            f"! {rater} on {dataset}: {reason}"
            for (rater, dataset, _), reason in self.doubts.items()
        )


def try_study(study: Study, store: Store, n_items: int) -> Trial:
    """Ask the first items of a study under every view, once each, at its base and its levels."""
    terms = Terms(budget=study.allowance)
    datasets = study.load()
    grid = [
        replace(condition, items=condition.items[:n_items])
        for condition in conditions(study, datasets)
        if not condition.view.repeat and condition.seed == study.seeds[0]
    ]
    grid, _ = adapted(grid, wait_for(learn(grid, store, terms)))

    async def ask() -> list[Heard]:
        async with open_engine(grid, worlds(study, datasets, grid), store, terms) as opened:
            engine, identities = opened
            return await hear(grid, engine, identities)

    return Trial(tuple(one for one in wait_for(ask()) if one.is_about_an_item))
