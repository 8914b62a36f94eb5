"""Preview -> tables: requests, tokens, price and time of a study."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from rich.console import RenderableType

from flipmeter.printed import about_time
from flipmeter.show.format import CENT, count, dollars, number, percent
from flipmeter.show.table import Column, Table, groups_of
from flipmeter.study.forecast import Duration, Forecast, Preview

if TYPE_CHECKING:
    from flipmeter.stats.watch import PowerPlan

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
