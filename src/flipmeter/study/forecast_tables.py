"""Preview -> tables: requests, tokens, price and time of a study."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from flipmeter.base.printed import about_time
from flipmeter.study.forecast import Duration, Forecast, Preview

if TYPE_CHECKING:
    from flipmeter.measure import PowerPlan

CENT = 0.01
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
    table = Table(title=Text(f"Plan of {seen.name}: nothing has been sent"), title_justify="left")
    table.add_column("what")
    table.add_column("number", justify="right")
    for what, number in (
        ("conditions (rater x dataset x seed x level x view)", seen.n_conditions),
        ("prompts", seen.cost.calls),
        ("distinct requests", seen.cost.distinct),
        ("of these, repeats to measure noise", seen.n_repeats),
        ("of these, already stored", seen.cost.stored),
    ):
        table.add_row(what, f"{number:,}")
    for what, share in (
        ("prompts saved by sending each distinct request once", seen.saved_by_dedupe),
        ("prompt tokens saved by prefix order", seen.saved_by_prefix_order),
    ):
        table.add_row(what, "-" if share is None else f"{100 * share:.1f} %")
    yield table
    models = Table(show_footer=len(seen.forecasts) > 1)
    models.add_column("model", "all")
    for name, cell in zip(COLUMNS, _cells(seen), strict=True):
        models.add_column(name, cell, justify="right")
    models.add_column("price from")
    if seen.duration is not None:
        models.add_column("time", _time(seen.duration), justify="right")
    for forecast in seen.forecasts:
        cells = [*_cells(forecast), forecast.quote.source or "-", _time(forecast.duration)]
        # Names may hold brackets, which would be markup.
        models.add_row(Text(forecast.model), *map(Text, cells[: len(models.columns) - 1]))
    yield models
    for what, words_of in SOURCES.items():
        yield from (f"{what}: {words}" for words in _by_words(seen, words_of))
    if seen.usd_low is None:
        yield "  add a `price` to the model in the study, or pass --prices FILE"
    yield from (f"! {note}" for note in seen.notes)
    for plan in seen.power:
        yield from power_tables(plan)


def _cells(taken: Forecast | Preview) -> list[str]:
    low, high = taken.usd_low, taken.usd_high
    if low is not None and high is not None:
        price = " to ".join(dict.fromkeys([_dollars(low), _dollars(high)]))
    else:
        models = taken.forecasts if isinstance(taken, Preview) else ()
        known = sum(one.usd_low or 0.0 for one in models)
        price = f"at least {_dollars(known)}" if known >= CENT else "not known"
    counts = (
        taken.cost.distinct,
        taken.cost.to_ask,
        taken.prompt_tokens,
        taken.prompt_tokens_new,
        taken.cost.completion_tokens_at_most,
    )
    return [*(f"{count:,}" for count in counts), price]


def _dollars(amount: float) -> str:
    if 0 < amount < CENT:
        return "< $0.01"
    return f"${amount:,.2f}" if amount else "$0"


def _time(duration: Duration | None) -> str:
    if duration is None:
        return "not known"
    return f"{'at least' if duration.is_floor else 'about'} {about_time(duration.seconds)}"


def _by_words(seen: Preview, say_of: Callable[[Forecast], str]) -> Iterator[str]:
    """Notes with the models they apply to, omitted if one applies to all."""
    found: dict[str, list[str]] = {}
    for forecast in seen.forecasts:
        if forecast.cost.to_ask:
            found.setdefault(say_of(forecast), []).append(forecast.model)
    for words, models in found.items():
        if words:
            yield f"{words} ({', '.join(models)})" if len(found) > 1 else words


def _cache_words(forecast: Forecast) -> str:
    """The expected effect of the vendor's prefix cache, "" if it is not known to have one."""
    caching, n_cached = forecast.caching, forecast.prompt_tokens_cached
    if caching is None:
        return ""
    if not n_cached:
        return f"nothing; the vendor caches only prefixes of {caching.least:,} tokens or more"
    share = f"{100 * n_cached / forecast.prompt_tokens:.0f} % of the prompt tokens expected from it"
    saved = forecast.usd_saved_by_cache
    if saved is None:
        return f"{share}; add `cached` to the price to see what that saves"
    return f"{share}, saves about {_dollars(saved)}"


SOURCES: dict[str, Callable[[Forecast], str]] = {
    "prompt tokens": lambda one: (
        f"{one.characters_per_token:.3g} characters each"
        + (f", measured on {n:,} stored replies" if (n := one.observed.n_counted) else "")
    ),
    "prefix cache": _cache_words,
    "time": lambda forecast: forecast.duration.source if forecast.duration else "",
    "engine": lambda forecast: "; ".join(forecast.notes),
    "! no price known": lambda one: one.quote.note if one.quote.price is None else "",
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
    title = Text(f"{plan.claim} on {plan.dataset}: looks, each side wrong in at most 5 %")
    looks, rates = Table(title=title, title_justify="left"), Table()
    for name in ("items asked", "shown if flips are\nat most", "refuted if flips are\nat least"):
        looks.add_column(name, justify="right")
    for n, below, above in zip(plan.looks, plan.below, plan.above, strict=True):
        ends = (str(below) if below >= 0 else "-", str(above) if above <= n else "-")
        looks.add_row(f"{n:,}", *ends)
    headers = ("true rate", "shown", "refuted", "not settled", "items asked\non average")
    needed = ("items for\n80 % power", "items for\n90 % power")
    for name in (*headers, *needed):
        rates.add_column(name, justify="right")
    for at in plan.rates:
        shares = (at.rate, at.below, at.above, at.not_settled)
        most = ("-" if n is None else f"{n:,}" for n in at.needed)
        rates.add_row(*(f"{100 * x:.1f} %" for x in shares), f"{at.mean_n:,.0f}", *most)
    yield looks
    yield rates
    yield (
        "settled: shown if the true rate is below the margin, refuted if above; all items taken to "
        "be readable; a run with several raters or levels stops when all are settled"
    )
    yield from (f"! {note}" for note in plan.notes)
