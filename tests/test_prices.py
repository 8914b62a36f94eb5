"""Model -> Price, and what a plan makes of it; the provider is a real server on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from flipmeter.ask.capabilities import asked_as
from flipmeter.ask.endpoints import endpoint_of
from flipmeter.ask.export import Observed
from flipmeter.ask.family import Capability
from flipmeter.ask.limits import Price, Spent
from flipmeter.ask.names import identity_of
from flipmeter.ask.plan import Cost
from flipmeter.ask.prices import Quote, fetch_prices, find_prices, read_prices
from flipmeter.ask.store import KeptRequest, Store
from flipmeter.consent import trusting
from flipmeter.errors import Problem
from flipmeter.run.preview import plan_first_round, preview
from flipmeter.study.file import Study, read_study
from flipmeter.study.forecast import Forecast, Preview, Speed, timed
from flipmeter.types import Message, Model, Reply, Request, Script, Usage
from misbehaving import KEY, Behaviour, breaks_off, garbles, never_ends, resets, says

Write = Callable[[str, str], Path]
Cli = Callable[..., tuple[int, str, str]]

PRICING = {"prompt": "0.000003", "completion": "0.000015", "input_cache_read": "0.0000003"}
LIST = {
    "data": [
        {"id": "acme/rater", "pricing": PRICING},
        {"id": "acme/router", "pricing": {"prompt": "-1", "completion": "-1"}},
        {"id": "acme/searcher", "pricing": {**PRICING, "request": "0.005"}},
        {"id": "acme/own"},
    ]
}
ACME = Price(pytest.approx(3.0), pytest.approx(15.0), pytest.approx(0.3))  # type: ignore[arg-type]
SMALL: dict[str, Any] = {"datasets": ["reviews"], "test_size": 10, "base": {"shots": 1}}
COST = Cost(
    calls=12,
    distinct=10,
    stored=0,
    characters=9000,
    characters_new=4500,
    completion_tokens_at_most=80,
)


@dataclass
class Provider:
    """A list of models at an address, and the keys that it was asked with."""

    url: str = ""
    keys: list[str | None] = field(default_factory=list)


@asynccontextmanager
async def provider(behaviour: Behaviour) -> AsyncIterator[Provider]:
    served = Provider()

    async def models(request: web.Request) -> web.StreamResponse:
        served.keys.append(request.headers.get("Authorization"))
        return await behaviour(request)

    app = web.Application()
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    served.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield served
    finally:
        await runner.cleanup()


def asked(
    behaviour: Behaviour, act: Callable[[Provider], Awaitable[dict[str, Quote]]]
) -> tuple[dict[str, Quote], Provider]:
    async def go() -> tuple[dict[str, Quote], Provider]:
        async with provider(behaviour) as served:
            return await act(served), served

    return asyncio.run(go())


def model(name: str = "acme/rater", url: str = "http://127.0.0.1:9/v1", **fields: Any) -> Model:
    return Model(f"http/{name}", base_url=url, **fields)


def quoted(behaviour: Behaviour, name: str = "acme/rater") -> tuple[Quote, Provider]:
    async def act(served: Provider) -> dict[str, Quote]:
        return await find_prices([model(name, served.url)], {})

    quotes, served = asked(behaviour, act)
    return quotes[f"http/{name}"], served


# The provider's own list


def test_a_provider_says_what_its_model_costs() -> None:
    quote, served = quoted(says(LIST))
    assert (quote.price, quote.source) == (ACME, f"{served.url}/models")


def test_the_key_is_sent_only_if_set_and_to_trusted_hosts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HTTP_API_KEY", raising=False)
    assert quoted(says(LIST))[1].keys == [None]
    monkeypatch.setenv("HTTP_API_KEY", KEY)
    assert quoted(says(LIST))[1].keys == [None]
    with trusting(hosts=["127.0.0.1"]):
        assert quoted(says(LIST))[1].keys == [f"Bearer {KEY}"]


def test_models_of_one_provider_are_looked_up_together() -> None:
    async def act(served: Provider) -> dict[str, Quote]:
        models = [model(f"acme/{name}", served.url) for name in ("rater", "router", "none")]
        return await find_prices(models, {})

    quotes, served = asked(says(LIST), act)
    assert len(served.keys) == 1
    assert [quote.price for quote in quotes.values()] == [ACME, None, None]


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("acme/router", "lists no price for 'acme/router'"),
        ("acme/own", "lists no price for 'acme/own'"),
        ("acme/searcher", "also charges $0.005 a request"),
        ("acme/none", "does not list 'acme/none'"),
    ],
)
def test_a_model_without_a_price_says_why(name: str, note: str) -> None:
    quote, _ = quoted(says(LIST), name)
    assert quote.price is None
    assert note in quote.note


@pytest.mark.parametrize(
    ("behaviour", "note"),
    [
        (
            says({"data": [{"id": "acme/rater", "owned_by": "me"}]}),
            "lists no prices",
        ),
        (says({"models": []}), "lists no prices"),
        (says([1, None]), "lists no prices"),
        (says({"data": [None, {"id": 3}, {"id": "x", "pricing": [1]}]}), "lists no prices"),
        (says(b"<html>"), "lists no prices"),
        (says({}, 401), "HTTP 401: check HTTP_API_KEY"),
        (says({}, 404), "HTTP 404"),
        (says(b"", 302, Location="http://127.0.0.1:9/elsewhere"), "HTTP 302"),
        (resets, "an invalid answer"),
        (breaks_off, "an invalid answer"),
        (garbles, "an invalid answer"),
    ],
)
def test_a_provider_that_gives_no_prices_is_no_failure(
    behaviour: Behaviour, note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_API_KEY", KEY)
    quote, _ = quoted(behaviour)
    assert quote.price is None
    assert note in quote.note
    assert KEY not in quote.note


def test_nobody_there_is_no_failure() -> None:
    quotes = asyncio.run(find_prices([model()], {}))
    assert "cannot be reached" in quotes["http/acme/rater"].note


def test_a_provider_that_does_not_end_is_given_up() -> None:
    async def go() -> str:
        async with provider(never_ends) as served:
            return (await fetch_prices(endpoint_of(model(url=served.url)), patience=0.1)).note

    assert "gave no answer within 0.1 s" in asyncio.run(go())


# Who is believed


def test_the_study_is_believed_before_a_file_and_a_file_before_the_provider(write: Write) -> None:
    listed = read_prices(write("p.yaml", "http/acme/rater: {prompt: 2, completion: 2}"))
    own = {"http/acme/rater": Price(1, 1)}

    async def price(served: Provider, own: dict[str, Price], listed: Any) -> Quote:
        (quote,) = (await find_prices([model(url=served.url)], own, listed)).values()
        return quote

    async def go() -> list[Quote]:
        async with provider(says(LIST)) as served:
            said = [await price(served, own, listed), await price(served, {}, listed)]
            assert served.keys == []
            return [*said, await price(served, {}, None)]

    by_study, by_file, by_provider = asyncio.run(go())
    assert (by_study.price, by_study.source) == (Price(1, 1), "the study")
    assert (by_file.price, by_file.source) == (Price(2, 2), listed.source)
    assert by_provider.price == ACME


def test_offline_asks_nobody() -> None:
    async def act(served: Provider) -> dict[str, Quote]:
        return await find_prices([model(url=served.url)], {}, is_offline=True)

    quotes, served = asked(says(LIST), act)
    assert (quotes["http/acme/rater"].price, served.keys) == (None, [])


@pytest.mark.parametrize("address", ["sim/honest", "local/smollm2-135m", "llamacpp/x.gguf"])
def test_what_runs_in_this_process_costs_nothing(address: str) -> None:
    (quote,) = asyncio.run(find_prices([Model(address)], {})).values()
    assert quote.price == Price(0, 0)


# A price file


def test_a_price_file_may_name_models_that_the_study_does_not_use(write: Write) -> None:
    text = "openai/a: {prompt: 1, completion: 2, cached: 0.1}\nopenai/b: {prompt: 0, completion: 0}"
    listed = read_prices(write("p.yaml", text))
    quote = listed.of(Model("openai/a"))
    assert quote is not None
    assert quote.price == Price(1, 2, 0.1)
    assert listed.of(Model("openai/c")) is None


def test_a_saved_list_of_a_provider_is_a_price_file(write: Write) -> None:
    quote = read_prices(write("models.json", json.dumps(LIST))).of(model())
    assert quote is not None
    assert quote.price == ACME


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m: {prompt: -1, completion: 2}", "the prompt price of 'm' is -1; .* 0 or more"),
        ("m: {prompt: cheap, completion: 2}", "the prompt price of 'm' is 'cheap'"),
        ("m: {prompt: 1, completion: .nan}", "m.completion is nan"),
        ("m: {prompt: 1, completion: true}", "the completion price of 'm' is True"),
        ("m: {prompt: 1, completion: 1, cached: []}", r"the cached price of 'm' is \[\]"),
        ("m: {prompt: 1}", "'m' has no `completion`; add it"),
        ("m: {promt: 1, completion: 2}", "no key named 'promt'.*did you mean 'prompt'"),
        ("m: 3", "the price of 'm' is 3; write {prompt"),
        ("[1, 2]", "contains no prices; write `address"),
        ("", "contains no prices"),
        ("m: [", "neither YAML nor JSON"),
        ('{"data": [{"id": "a"}]}', "lists 1 models without prices"),
    ],
)
def test_a_wrong_price_file_is_refused_with_a_way_out(
    write: Write, text: str, message: str
) -> None:
    with pytest.raises(Problem, match=rf"p\.yaml.*{message}"):
        read_prices(write("p.yaml", text))


def test_a_price_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(Problem, match=r"no price file nowhere\.yaml"):
        read_prices(Path("nowhere.yaml"))


# The study's own prices


def priced(**fields: Any) -> dict[str, Any]:
    return {"model": "openai/a", "price": {"prompt": 1, "completion": 2, **fields}}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": -1}, r"models\.0\.price\.prompt: .*greater than or equal to 0; got -1"),
        ({"cached": "cheap"}, r"models\.0\.price\.cached: .*number.*got 'cheap'"),
        ({"completion": float("inf")}, r"models\.0\.price\.completion .*finite"),
        ({"promt": 1}, r"no key named 'models\.0\.price\.promt'; did you mean 'prompt'"),
    ],
)
def test_a_wrong_price_in_a_study_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(Problem, match=message) as problem:
        read_study({**SMALL, "models": [priced(**fields)]})
    assert "valid string" not in str(problem.value)


def allowed(models: list[Any], **budget: Any) -> Price | None:
    allowance = read_study({**SMALL, "models": models, "budget": {"usd": 5, **budget}}).allowance
    assert allowance is not None
    return allowance.price


def test_a_budget_in_dollars_takes_the_dearest_of_the_models() -> None:
    dear = {"model": "openai/b", "price": {"prompt": 0.5, "completion": 9}}
    assert allowed([priced(cached=0.1), dear, "sim/honest"]) == Price(1, 9)


def test_the_budgets_own_price_wins() -> None:
    assert allowed([priced()], price={"prompt": 7, "completion": 8}) == Price(7, 8)


def test_a_budget_in_dollars_needs_the_price_of_every_model_that_charges() -> None:
    with pytest.raises(Problem, match=r"\$5 needs the price of 'openai/b'; add `price"):
        allowed([priced(), "openai/b"])


# The arithmetic


def forecast(price: Price | None, **fields: Any) -> Forecast:
    return Forecast("m", COST, Spent(10, 4000, 80), quote=Quote(price), **fields)


def test_the_range_goes_from_a_perfect_cache_to_what_a_budget_sets_aside() -> None:
    line = forecast(Price(1.0, 10.0, 0.1))
    assert line.usd_low == pytest.approx((1000 * 1.0 + 1000 * 0.1 + 10 * 10.0) / 1e6)
    assert line.usd_high == pytest.approx((4000 * 1.0 + 80 * 10.0) / 1e6)


def test_without_a_price_for_cached_tokens_all_cost_the_same() -> None:
    assert forecast(Price(1.0, 0.0)).usd_low == pytest.approx(2000 / 1e6)


def test_measured_tokens_replace_the_rule_of_thumb() -> None:
    assert forecast(None).prompt_tokens == 9000 / 4
    line = forecast(Price(1.0, 0.0), observed=Observed(5, 5, 1000, 500))
    assert (line.prompt_tokens, line.prompt_tokens_new) == (4500, 2250)
    assert line.usd_low == line.usd_high == pytest.approx(4500 / 1e6)


def test_one_model_without_a_price_leaves_the_total_open() -> None:
    seen = Preview(1, (forecast(Price(1, 1)), forecast(None)))
    assert (seen.usd_low, seen.usd_high) == (None, None)


def test_what_is_stored_costs_nothing_whatever_the_price() -> None:
    line = Forecast("m", Cost(calls=3, distinct=3, stored=3))
    assert (line.usd_low, line.usd_high) == (0, 0)


@pytest.mark.parametrize(
    ("address", "interval", "speed", "seconds"),
    [
        ("openai/a", 0.0, Speed(), None),
        ("openai/a", 0.0, Speed(requests=4), 10 / 4),
        ("openai/a", 0.0, Speed(prompt_tokens=100), 1125 / 100),
        ("openai/a", 0.0, Speed(4, 100), 1125 / 100),
        ("openai/a", 0.5, Speed(), 5.0),
        ("openai/a", 0.5, Speed(requests=1), 10.0),
        ("local/smollm2-135m", 0.0, Speed(), 7.0),
        ("local/smollm2-135m", 0.0, Speed(requests=20), 0.5),
    ],
)
def test_time_is_the_longest_of_what_is_said_set_or_observed(
    address: str, interval: float, speed: Speed, seconds: float | None
) -> None:
    line = forecast(None, observed=Observed(n_replies=3, median_seconds=0.7))
    duration = timed(line, [Model(address, min_interval=interval)], speed).duration
    assert (duration and duration.seconds) == seconds


def test_models_run_side_by_side() -> None:
    slow, fast = (
        timed(forecast(None), [Model("openai/a", min_interval=interval)], Speed())
        for interval in (2.0, 1.0)
    )
    both, one_unknown = Preview(1, (fast, slow)), Preview(1, (fast, forecast(None)))
    assert both.duration is not None
    assert both.duration.seconds == 20
    assert one_unknown.duration is not None
    assert one_unknown.duration.is_floor


def test_models_of_one_process_share_its_cores() -> None:
    speed = Speed(requests=4)
    here, too, apart = (
        timed(forecast(None), [Model(address)], speed)
        for address in ("local/smollm2-135m", "local/smollm2-135m-q4_1", "openai/a")
    )
    all_of_them = Preview(1, (here, too, apart)).duration
    assert all_of_them is not None
    assert all_of_them.seconds == 2 * 10 / 4


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan")])
def test_a_speed_that_never_ends_is_refused(speed: float) -> None:
    with pytest.raises(Problem, match="prompt tokens per second must be a finite number above 0"):
        Speed(prompt_tokens=speed)


# The whole


def study_of(*models: Any, **fields: Any) -> Study:
    return read_study({**SMALL, "probes": ["label_order"], "models": list(models), **fields})


def test_a_preview_has_a_line_for_each_model() -> None:
    study = study_of(priced(), "sim/honest")
    with Store() as store:
        charged, free = preview(study, store, is_offline=True).forecasts
    assert charged.usd_low is not None
    assert charged.usd_high is not None
    assert 0 < charged.usd_low < charged.usd_high
    assert (free.usd_low, free.usd_high) == (0, 0)


def test_entries_that_are_one_model_share_a_line_at_the_dearest_price() -> None:
    cheap = {**priced(), "name": "cheap"}
    dear = {**priced(prompt=4), "name": "dear", "extra_body": {"user": "x"}}
    with Store() as store:
        (line,) = preview(study_of(cheap, dear), store, is_offline=True).forecasts
    assert line.model == "cheap, dear"
    assert line.quote.price == Price(4, 2)


def test_a_simulated_rater_on_two_datasets_is_one_line(write: Write) -> None:
    rows = "".join(f"text number {k},{k % 2 + 1}\n" for k in range(40))
    other = {"file": str(write("d.csv", "text,label\n" + rows)), "scale": ["1", "2"]}
    with Store() as store:
        seen = preview(study_of("sim/honest", datasets=["reviews", other]), store)
    assert [line.model for line in seen.forecasts] == ["sim/honest"]


def test_stored_prompts_say_how_long_a_token_is() -> None:
    script = Script.of([Message("user", "x" * 300)])
    with Store() as store:
        for repeat, tokens in enumerate([100, 50, None]):
            request = Request("openai/a", script, repeat=repeat)
            store.put(request, Reply("1", usage=Usage(prompt=tokens), seconds=repeat))
        bare = KeptRequest("ab" * 32, "openai/a", "", "", "")  # exported without its prompt
        store.put_kept([(bare, Reply("1", usage=Usage(prompt=900), seconds=1))])
        (line,) = preview(study_of(priced()), store).forecasts
    assert (line.observed.n_counted, line.characters_per_token) == (2, 4.0)
    assert line.observed.median_seconds == 1


def test_a_plan_leaves_out_what_the_endpoint_was_found_to_lack() -> None:
    study = study_of("openai/a", decoding={"temperature": 0.7, "seed": 3})
    asked = Model("openai/a")
    with Store() as store:
        assert '"seed"' in plan_first_round(study, store).plan.requests[0].params
        lacking = Capability("seed", False, "two replies differ", "2026-01-01")
        store.note_capabilities(identity_of(asked), asked_as(asked), [lacking])
        assert '"seed"' not in plan_first_round(study, store).plan.requests[0].params


# The verb


@pytest.fixture
def cli(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Return a function that plans the demo with some options."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    return partial(cli, "plan", "demo")


def test_plan_prints_the_range_and_who_says_so(cli: Cli, write: Write) -> None:
    write("p.yaml", "openai/a: {prompt: 100, completion: 100}")
    models = ["-m", "openai/a", "-m", "openai/b", "-m", "sim/honest"]
    options = [*models, "--prices", "p.yaml", "--rate", "2"]
    line = json.loads(cli(*options, "--json")[1])["models"][0]
    code, out, _ = cli(*options)
    assert code == 0
    assert f"${line['usd_low']:.2f} to ${line['usd_high']:.2f}" in out
    assert f"at least ${line['usd_low']:.2f}" in out
    assert "p.yaml" in out
    assert "no price known: http://127.0.0.1:9/v1/models cannot be reached (openai/b)" in out
    assert "4 characters each" in out
    assert "time: 2 requests per second" in out


def test_plan_tells_a_machine_everything(cli: Cli) -> None:
    said = json.loads(cli("-m", "openai/a", "-m", "sim/honest", "--offline", "--json")[1])
    first, second = said["models"]
    sums = ("calls", "distinct", "stored", "to_ask", "prompt_tokens", "prompt_tokens_new")
    for name in (*sums, "completion_tokens_at_most"):
        assert said[name] == first[name] + second[name]
    assert said["usd_low"] is first["usd_low"] is first["price"] is None
    assert first["price_note"] == "its provider was not queried"
    assert second["usd_high"] == 0
    assert (said["conditions"], said["seconds"]) == (23, None)


def test_plan_refuses_a_rate_of_nothing(cli: Cli) -> None:
    code, out, err = cli("--rate", "0")
    assert (code, out) == (2, "")
    assert "requests per second must be a finite number above 0; got 0" in err
