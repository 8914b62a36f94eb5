"""Model -> Price: what the study, a file, or the provider's own list says that tokens cost."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flipmeter.ask.endpoints import endpoint_of, has_endpoint
from flipmeter.ask.http import Channel, Endpoint
from flipmeter.ask.limits import Price
from flipmeter.ask.names import is_in_process
from flipmeter.ask.response import as_dict, as_list, decoded
from flipmeter.ask.wires import ChatWire
from flipmeter.documents import JSON_BYTES, read_json, read_limited, read_yaml
from flipmeter.errors import Problem, Retry, Silent, Unreachable
from flipmeter.registry import suggestion
from flipmeter.types import Model

PATIENCE = 3.0
"""Seconds for a provider's list: a plan must not hang on a nicety."""
MILLION = 1e6
KEYS = ("prompt", "completion", "cached", "written")
FREE = Price(0.0, 0.0)
REFUSED = (401, 403)


@dataclass(frozen=True)
class Quote:
    """The price of a model and its source; without a price, `note` gives the reason."""

    price: Price | None = None
    source: str = ""
    note: str = ""


@dataclass(frozen=True)
class PriceList:
    """The price list of a file or a provider; an empty list has the reason in `note`."""

    source: str
    quotes: Mapping[str, Quote] = field(default_factory=dict)
    note: str = ""

    def of(self, model: Model) -> Quote | None:
        """The quote in the list by the model's address, or by its name at the provider."""
        return self.quotes.get(model.address) or self.quotes.get(model.own_name)

    def answer(self, model: Model) -> Quote:
        """The provider's word on its own model, or why there is none."""
        missing = self.note or f"{self.source} does not list '{model.own_name}'"
        return self.quotes.get(model.own_name) or Quote(note=missing)


async def find_prices(
    models: Sequence[Model],
    own: Mapping[str, Price],
    listed: PriceList | None = None,
    *,
    is_offline: bool = False,
) -> dict[str, Quote]:
    """The price of each model by title: from the study, else a file, else its provider.

    `own` holds the study's prices by title. An unavailable list of a provider is not an error.
    """
    quotes: dict[str, Quote] = {}
    for model in models:
        if model.title in own:
            quotes[model.title] = Quote(own[model.title], "the study")
        elif listed is not None and (quote := listed.of(model)) and quote.price is not None:
            quotes[model.title] = quote
        elif is_in_process(model):
            quotes[model.title] = Quote(FREE, "runs in this process")
    unknown = [model for model in models if model.title not in quotes]
    if is_offline:
        return quotes | {m.title: Quote(note="its provider was not queried") for m in unknown}
    unlisted = [model for model in unknown if not has_endpoint(model)]
    quotes |= {m.title: Quote(note=f"{m.family} models have no price list") for m in unlisted}
    endpoints = {m: endpoint_of(m) for m in unknown if has_endpoint(m)}
    places = {(one.base_url, one.key): one for one in endpoints.values()}
    lists = await asyncio.gather(*map(fetch_prices, places.values()))
    found = dict(zip(places, lists, strict=True))
    return quotes | {
        m.title: found[one.base_url, one.key].answer(m) for m, one in endpoints.items()
    }


# --- a provider's own list --------------------------------------------------------------------


async def fetch_prices(endpoint: Endpoint, patience: float = PATIENCE) -> PriceList:
    """Read the list of models at an endpoint; servers of one's own have no prices in it."""
    url = f"{endpoint.base_url}/models"
    channel = Channel(replace(endpoint, timeout=patience), ChatWire().auth)
    try:
        status, _, body = await channel.send("GET", "/models")
    except Unreachable:
        return PriceList(url, note=f"{url} cannot be reached")
    except Silent:
        return PriceList(url, note=f"{url} gave no answer within {patience:g} s")
    except Retry:
        return PriceList(url, note=f"{url} gave an invalid answer")
    except Problem as problem:
        return PriceList(url, note=str(problem))
    finally:
        await channel.close()
    if status in REFUSED:
        return PriceList(url, note=f"{url} answers HTTP {status}: check {endpoint.key_variable}")
    if status != 200:
        return PriceList(url, note=f"{url} answers HTTP {status}")
    quotes = _provider_quotes(decoded(body), url)
    if not _has_any_price(quotes):
        return PriceList(url, note=f"{url} lists no prices")
    return PriceList(url, quotes)


def _provider_quotes(content: Mapping[str, Any], source: str) -> dict[str, Quote]:
    """Read a list of models in OpenRouter's form: US dollars per token, as texts."""
    entries = [as_dict(entry) for entry in as_list(content.get("data"))]
    named = [entry for entry in entries if isinstance(entry.get("id"), str)]
    return {
        one["id"]: _provider_quote(one["id"], as_dict(one.get("pricing")), source) for one in named
    }


def _provider_quote(name: str, told: Mapping[str, Any], source: str) -> Quote:
    prompt, completion = _price_amount(told.get("prompt")), _price_amount(told.get("completion"))
    if prompt is None or completion is None:
        # A router has -1 here: it depends on the model that it picks.
        return Quote(note=f"{source} lists no price for '{name}'")
    if fee := _price_amount(told.get("request")):
        note = f"'{name}' also charges ${fee:g} a request, so tokens alone underestimate the price"
        return Quote(note=note)
    cache = (_price_amount(told.get(f"input_cache_{name}")) for name in ("read", "write"))
    cached, written = (None if amount is None else amount * MILLION for amount in cache)
    return Quote(Price(prompt * MILLION, completion * MILLION, cached, written), source)


def _has_any_price(quotes: Mapping[str, Quote]) -> bool:
    return any(quote.price is not None for quote in quotes.values())


def _price_amount(value: object) -> float | None:
    """A number that can be a price, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 else None


# --- a price file -----------------------------------------------------------------------------


def read_prices(path: Path) -> PriceList:
    """Read a price file: addresses with dollars per million tokens, or a saved list of a provider.

    Addresses that a study does not use are fine: one file serves many studies.
    """
    content = _read_price_file(path)
    if isinstance(content.get("data"), list):
        quotes = _provider_quotes(content, str(path))
        if not _has_any_price(quotes):
            raise Problem(
                f"{path} lists {len(quotes)} models without prices; use the list of a provider "
                "that has them, or write `address: {prompt: …, completion: …}`"
            )
        return PriceList(str(path), quotes)
    return PriceList(
        str(path),
        {
            str(a): Quote(_read_price(path, str(a), entry), str(path))
            for a, entry in content.items()
        },
    )


def _read_price_file(path: Path) -> dict[Any, Any]:
    if not path.is_file():
        raise Problem(f"no price file {path}; use an existing YAML or JSON file")
    try:
        text = read_limited(path, JSON_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise Problem(f"the price file {path} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise Problem(f"the price file {path} is not UTF-8 ({error}); save it as UTF-8") from error
    try:
        content = read_json(text, str(path))  # a provider's list is long, and YAML is slow
    except Problem:
        try:
            content = read_yaml(text, str(path))
        except Problem as problem:
            raise Problem(f"the price file {path} is neither YAML nor JSON: {problem}") from problem
    if not isinstance(content, dict):
        raise Problem(
            f"the price file {path} contains no prices; write "
            "`address: {prompt: 2.5, completion: 10}`, in dollars per million tokens"
        )
    return content


def _read_price(path: Path, address: str, entry: object) -> Price:
    if not isinstance(entry, dict):
        raise Problem(
            f"{path}: the price of '{address}' is {entry!r:.80}; write {{prompt: 2.5, "
            "completion: 10}, in dollars per million tokens"
        )
    for key in entry:
        if key not in KEYS:
            raise Problem(f"{path}: no key named '{key}' in a price{suggestion(str(key), [*KEYS])}")
    for key in ("prompt", "completion"):
        if key not in entry:
            raise Problem(f"{path}: the price of '{address}' has no `{key}`; add it, 0 if free")
    told: dict[str, float] = {}
    for key in (key for key in KEYS if entry.get(key) is not None):
        amount = _price_amount(entry[key])
        if amount is None:
            raise Problem(
                f"{path}: the {key} price of '{address}' is {entry[key]!r:.80}; it is a number of "
                "dollars per million tokens, 0 or more"
            )
        told[key] = amount
    return Price(**told)
