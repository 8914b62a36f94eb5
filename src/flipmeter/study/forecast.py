"""Cost, Quote -> Forecast: tokens, dollars and time of what is left to ask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING

from flipmeter.ask.export import Observed
from flipmeter.ask.limits import Spent
from flipmeter.ask.names import is_in_process
from flipmeter.ask.plan import Cost
from flipmeter.ask.prices import Quote
from flipmeter.checks import above
from flipmeter.printed import Printed
from flipmeter.types import CHARS_PER_TOKEN, Caching, Model

if TYPE_CHECKING:
    from rich.console import RenderableType

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
        from flipmeter.study.forecast_tables import plan_tables

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
