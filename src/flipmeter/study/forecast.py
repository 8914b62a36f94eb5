"""Cost, Quote -> Forecast: tokens, dollars and time of what is left to ask, and their tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING

from rich.console import RenderableType

from flipmeter.ask.export import Observed
from flipmeter.ask.limits import Spent
from flipmeter.ask.names import is_in_process
from flipmeter.ask.plan import Cost
from flipmeter.ask.prices import Quote
from flipmeter.checks import above
from flipmeter.printed import Printed, about_time
from flipmeter.show.format import CENT, count, dollars, number, percent
from flipmeter.show.table import Column, Table, groups_of
from flipmeter.types import CHARS_PER_TOKEN, Caching, Model

if TYPE_CHECKING:
    from flipmeter.stats.watch import PowerPlan

MOST_CHARS_PER_TOKEN = 4.5
"""Long tokens, for the least that a study can cost."""
MILLION = 1e6


@dataclass(frozen=True)
class Speed:
    """Speed of a model as the user states it, per second; None is unknown."""

    requests: float | None = None
    prompt_tokens: float | None = None

    def __post_init__(self) -> None:
        for name, speed in asdict(self).items():
            if speed is not None:
                above(speed, 0, f"{name.replace('_', ' ')} per second")

    @property
    def is_known(self) -> bool:
        return self.requests is not None or self.prompt_tokens is not None


@dataclass(frozen=True)
class Duration:
    """A duration and its source; a floor is a lower bound."""

    seconds: float
    source: str
    is_floor: bool = False


@dataclass(frozen=True)
class Forecast:
    """Requests left for a model, with their tokens, price and time."""

    model: str
    cost: Cost
    worst: Spent = field(default_factory=Spent)
    observed: Observed = field(default_factory=Observed)
    quote: Quote = field(default_factory=Quote)
    duration: Duration | None = None
    is_in_process: bool = False
    notes: tuple[str, ...] = ()
    caching: Caching | None = None

    @property
    def characters_per_token(self) -> float:
        return self.observed.characters_per_token or CHARS_PER_TOKEN

    @property
    def prompt_tokens(self) -> int:
        return round(self.cost.characters / self.characters_per_token)

    @property
    def prompt_tokens_new(self) -> int:
        """Prompt tokens that remain with a prefix cache."""
        return round(self.cost.characters_new / self.characters_per_token)

    @property
    def prompt_tokens_cached(self) -> int:
        """The prompt tokens that the vendor's prefix cache is expected to hold."""
        return round(self.cost.characters_cached / self.characters_per_token)

    @property
    def usd_saved_by_cache(self) -> float | None:
        """The expected saving by the vendor's prefix cache, less the cost of filling it."""
        price, caching, cost = self.quote.price, self.caching, self.cost
        if price is None or caching is None:
            return None
        read, write = price.cached, price.written
        if read is None and caching.read is not None:
            read = caching.read * price.prompt
        if read is None:
            return None
        write = caching.write * price.prompt if write is None else write
        saved = cost.characters_cached * (price.prompt - read)
        premium = cost.characters_written * (write - price.prompt)
        return (saved - premium) / self.characters_per_token / MILLION

    @property
    def prompt_tokens_at_most(self) -> int:
        return max(self.worst.prompt_tokens, self.prompt_tokens)

    @property
    def usd_low(self) -> float | None:
        """The least: long tokens, a prefix cache that never misses, replies of one token."""
        price, cost = self.quote.price, self.cost
        if price is None:
            return None if cost.to_ask else 0.0
        cached = price.prompt if price.cached is None else min(price.cached, price.prompt)
        shared = cost.characters - cost.characters_new
        dollars = (cost.characters_new * price.prompt + shared * cached) / MILLION
        per_token = self.observed.characters_per_token or MOST_CHARS_PER_TOKEN
        return dollars / per_token + price.of(0, cost.to_ask)

    @property
    def usd_high(self) -> float | None:
        """The most, as a budget sets it aside: short tokens, no cache, longest replies."""
        if self.quote.price is None:
            return None if self.cost.to_ask else 0.0
        return self.quote.price.of(self.prompt_tokens_at_most, self.worst.completion_tokens)

    def as_dict(self) -> dict[str, object]:
        return {
            "model": self.model,
            **_forecast_record(self),
            "prompt_tokens_cached": self.prompt_tokens_cached,
            "usd_saved_by_cache": self.usd_saved_by_cache,
            "characters_per_token": self.characters_per_token,
            "measured_on_replies": self.observed.n_counted,
            "price": asdict(self.quote.price) if self.quote.price else None,
            "price_source": self.quote.source,
            "price_note": self.quote.note,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, repr=False)
class Preview(Printed):
    """A study before it runs: its size, and a forecast for each model.

    `n_repeats` of the distinct requests are second ones, which measure noise.
    """

    n_conditions: int
    forecasts: tuple[Forecast, ...]
    name: str = "study"
    power: tuple[PowerPlan, ...] = ()
    notes: tuple[str, ...] = ()
    n_repeats: int = 0

    def tables(self) -> Iterator[RenderableType]:

        return plan_tables(self)

    @property
    def cost(self) -> Cost:
        return sum((forecast.cost for forecast in self.forecasts), Cost())

    @property
    def saved_by_dedupe(self) -> float | None:
        """The share of the prompts that need no request of their own."""
        return 1 - self.cost.distinct / self.cost.calls if self.cost.calls else None

    @property
    def saved_by_prefix_order(self) -> float | None:
        """The share of the tokens to be sent that stand at the start of the one before."""
        tokens = self.prompt_tokens
        return 1 - self.prompt_tokens_new / tokens if tokens else None

    @property
    def prompt_tokens(self) -> int:
        return sum(forecast.prompt_tokens for forecast in self.forecasts)

    @property
    def prompt_tokens_new(self) -> int:
        return sum(forecast.prompt_tokens_new for forecast in self.forecasts)

    @property
    def prompt_tokens_at_most(self) -> int:
        return sum(forecast.prompt_tokens_at_most for forecast in self.forecasts)

    @property
    def usd_low(self) -> float | None:
        """The least for all models, None if the price of one is not known."""
        return _sum_if_all_known(forecast.usd_low for forecast in self.forecasts)

    @property
    def usd_high(self) -> float | None:
        return _sum_if_all_known(forecast.usd_high for forecast in self.forecasts)

    @property
    def duration(self) -> Duration | None:
        """The longest of the models, which run side by side; a floor if one is not known.

        Those that run in this process share its cores: their times add up.
        """
        asked = [forecast for forecast in self.forecasts if forecast.cost.to_ask]
        known = [(one.is_in_process, one.duration) for one in asked if one.duration is not None]
        here = [duration for is_here, duration in known if is_here]
        apart = [duration for is_here, duration in known if not is_here]
        if here:
            longest = max(here, key=attrgetter("seconds"))
            apart.append(replace(longest, seconds=sum(one.seconds for one in here)))
        if not apart:
            return None
        longest = max(apart, key=attrgetter("seconds"))
        is_floor = longest.is_floor or len(known) < len(asked)
        return replace(longest, is_floor=is_floor)

    def as_dict(self) -> dict[str, object]:
        return {
            "conditions": self.n_conditions,
            **_forecast_record(self),
            "repeats": self.n_repeats,
            "saved_by_dedupe": self.saved_by_dedupe,
            "saved_by_prefix_order": self.saved_by_prefix_order,
            "models": [forecast.as_dict() for forecast in self.forecasts],
            **({"power": [plan.as_dict() for plan in self.power]} if self.power else {}),
        }


def _forecast_record(one: Forecast | Preview) -> dict[str, object]:
    """Requests, tokens, price and time of a model, or of all."""
    duration = one.duration or Duration(0.0, "")
    return {
        **asdict(one.cost),
        "to_ask": one.cost.to_ask,
        "prompt_tokens": one.prompt_tokens,
        "prompt_tokens_new": one.prompt_tokens_new,
        "prompt_tokens_at_most": one.prompt_tokens_at_most,
        "usd_low": one.usd_low,
        "usd_high": one.usd_high,
        "seconds": duration.seconds if one.duration else None,
        "seconds_source": duration.source,
        "seconds_at_least": duration.is_floor,
    }


def timed(forecast: Forecast, models: Sequence[Model], speed: Speed) -> Forecast:
    """A forecast with its duration: the longest of what is said, set or observed."""
    n_left, observed = forecast.cost.to_ask, forecast.observed
    if not n_left:
        return forecast
    found: list[Duration] = []
    if (rate := speed.requests) is not None:
        found.append(Duration(n_left / rate, f"{rate:g} requests per second"))
    if (rate := speed.prompt_tokens) is not None:
        seconds = forecast.prompt_tokens_new / rate
        found.append(Duration(seconds, f"{rate:g} prompt tokens per second"))
    if interval := max(model.min_interval for model in models):
        found.append(Duration(n_left * interval, f"min_interval {interval:g} s", is_floor=True))
    is_ours = all(is_in_process(model) for model in models)
    if is_ours and not speed.is_known and (each := observed.median_seconds):
        source = f"median of {observed.n_replies:,} stored replies: {each:.2g} s"
        found.append(Duration(n_left * each, source))
    duration = max(found, key=attrgetter("seconds"), default=None)
    return replace(forecast, duration=duration, is_in_process=is_ours)


def _sum_if_all_known(amounts: Iterable[float | None]) -> float | None:
    known = list(amounts)
    return None if None in known else sum(amount or 0.0 for amount in known)


COLUMNS = (
    "distinct",
    "to ask",
    "prompt\ntokens",
    "after prefix\nsharing",
    "completion\nat most",
    "price",
)


def plan_tables(seen: Preview) -> Iterator[RenderableType]:
    """The size of a study, its cost model by model, and how that is known."""
    yield _size_table(seen.name, seen)
    yield _model_table(seen)
    yield from _forecast_notes(seen)
    yield from (f"! {note}" for note in seen.notes)
    for plan in seen.power:
        yield from power_tables(plan)


def _size_table(name: str, seen: Preview) -> Table:
    cost = seen.cost
    numbers = {
        "conditions (rater x dataset x seed x level x view)": count(seen.n_conditions),
        "prompts": count(cost.calls),
        "distinct requests": count(cost.distinct),
        "of these, repeats to measure noise": count(seen.n_repeats),
        "of these, already stored": count(cost.stored),
        "prompts saved by sending each distinct request once": percent(seen.saved_by_dedupe),
        "prompt tokens saved by prefix order": percent(seen.saved_by_prefix_order),
    }
    rows = [[what, number or "-"] for what, number in numbers.items()]
    columns = ("what", Column("number", align="right"))
    return Table(f"Plan of {name}: nothing has been sent", columns, groups_of(rows))


def _model_table(seen: Preview) -> Table:
    is_summed = len(seen.forecasts) > 1
    heads = [*zip(COLUMNS, _forecast_cells(seen), strict=True), ("price from", "")]
    heads += [("time", _duration_text(seen.duration))] if seen.duration is not None else []
    columns = [
        Column(
            *(head, None, "left" if head == "price from" else "right"),
            footer=footer if is_summed else "",
        )
        for head, footer in heads
    ]
    rows = [
        [one.model, *_forecast_cells(one), one.quote.source or "-", _duration_text(one.duration)][
            : 1 + len(heads)
        ]
        for one in seen.forecasts
    ]
    return Table("", [Column("model", footer="all" * is_summed), *columns], groups_of(rows))


def _forecast_cells(taken: Forecast | Preview) -> list[str]:
    counts = (
        taken.cost.distinct,
        taken.cost.to_ask,
        taken.prompt_tokens,
        taken.prompt_tokens_new,
        taken.cost.completion_tokens_at_most,
    )
    return [*map(count, counts), _price_range(taken)]


def _price_range(taken: Forecast | Preview) -> str:
    low, high = taken.usd_low, taken.usd_high
    if low is not None and high is not None:
        return " to ".join(dict.fromkeys([dollars(low), dollars(high)]))
    known = sum(f.usd_low or 0.0 for f in taken.forecasts) if isinstance(taken, Preview) else 0.0
    return f"at least {dollars(known)}" if known >= CENT else "not known"


def _duration_text(duration: Duration | None) -> str:
    if duration is None:
        return "not known"
    return f"{'at least' if duration.is_floor else 'about'} {about_time(duration.seconds)}"


def _forecast_notes(seen: Preview) -> Iterator[str]:
    """Yield how the numbers are known, and what is missing."""
    for title, words_of in NOTES.items():
        for words, models in _by_words(seen, words_of).items():
            yield f"{title}: {words}{models}"
    if seen.usd_low is None:
        yield "  add a `price` to the model in the study, or pass --prices FILE"


def _by_words(seen: Preview, say_of: Callable[[Forecast], str]) -> dict[str, str]:
    """A note with the models it applies to, omitted if it applies to all."""
    found: dict[str, list[str]] = {}
    for forecast in seen.forecasts:
        if forecast.cost.to_ask:
            found.setdefault(say_of(forecast), []).append(forecast.model)
    said = {words: models for words, models in found.items() if words}
    return {
        words: f" ({', '.join(models)})" if len(found) > 1 else "" for words, models in said.items()
    }


def _token_words(forecast: Forecast) -> str:
    each = f"{forecast.characters_per_token:.3g} characters each"
    if forecast.observed.n_counted:
        return f"{each}, measured on {forecast.observed.n_counted:,} stored replies"
    return each


def _cache_words(forecast: Forecast) -> str:
    """The expected effect of the vendor's prefix cache, "" if it is not known to have one."""
    caching, n_cached = forecast.caching, forecast.prompt_tokens_cached
    if caching is None:
        return ""
    if not n_cached:
        return f"nothing; the vendor caches only prefixes of {caching.least:,} tokens or more"
    share = f"{percent(n_cached / forecast.prompt_tokens, 0)} of the prompt tokens expected from it"
    saved = forecast.usd_saved_by_cache
    if saved is None:
        return f"{share}; add `cached` to the price to see what that saves"
    return f"{share}, saves about {dollars(saved)}"


NOTES: Mapping[str, Callable[[Forecast], str]] = {
    "prompt tokens": _token_words,
    "prefix cache": _cache_words,
    "time": lambda forecast: forecast.duration.source if forecast.duration else "",
    "engine": lambda forecast: "; ".join(forecast.notes),
    "! no price known": lambda forecast: (
        forecast.quote.note if forecast.quote.price is None else ""
    ),
}
"""Sources of the numbers, and what is missing, as notes by subject."""


# --- power of a claim -------------------------------------------------------------------------


def power_tables(plan: PowerPlan) -> Iterator[RenderableType]:
    """The looks at a claim on a dataset, their boundaries, and the power."""
    yield ""
    if not plan.is_reachable:
        yield (
            f"! '{plan.claim}' cannot be shown with the {plan.n_items} items of {plan.dataset}, "
            f"even if none flips; it takes at least {plan.fewest}: raise test_size, or the margin"
        )
    yield _looks_table(plan)
    yield _rates_table(plan)
    yield (
        "settled: shown if the true rate is below the margin, refuted if above; all items taken to "
        "be readable; a run with several raters or levels stops when all are settled"
    )
    yield from (f"! {note}" for note in plan.notes)


def _looks_table(plan: PowerPlan) -> Table:
    heads = ("items asked", "shown if flips are\nat most", "refuted if flips are\nat least")
    rows = [
        [count(n), str(below) if below >= 0 else "-", str(above) if above <= n else "-"]
        for n, below, above in zip(plan.looks, plan.below, plan.above, strict=True)
    ]
    title = f"{plan.claim} on {plan.dataset}: looks, each side wrong in at most 5 %"
    return Table(title, [Column(head, align="right") for head in heads], groups_of(rows))


def _rates_table(plan: PowerPlan) -> Table:
    heads = ("true rate", "shown", "refuted", "not settled", "items asked\non average")
    needed = ("items for\n80 % power", "items for\n90 % power")
    rows = [
        [
            *map(percent, (at.rate, at.below, at.above, at.not_settled)),
            number(at.mean_n, ",.0f"),
            *(count(n) or "-" for n in at.needed),
        ]
        for at in plan.rates
    ]
    columns = [Column(head, align="right") for head in (*heads, *needed)]
    return Table("", columns, groups_of(rows))
