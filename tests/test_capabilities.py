"""What an endpoint has is examined once, recorded, and nothing is asked that is not there."""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fake_endpoint import open_for_words, serve
from flipmeter.ask.capabilities import (
    CAPABILITIES,
    Examination,
    check_scored,
    examine,
    needs,
    stated,
)
from flipmeter.ask.family import Capability
from flipmeter.ask.http import HttpBackend
from flipmeter.ask.limits import Budget
from flipmeter.ask.names import open_backend
from flipmeter.ask.pool import Ledger
from flipmeter.ask.store import Store
from flipmeter.errors import OutOfBudget, Problem
from flipmeter.run.conditions import adapted, recall
from flipmeter.run.folder import Run
from flipmeter.run.perform import perform
from flipmeter.run.preview import preview
from flipmeter.study.file import Study, read_study
from flipmeter.study.grid import conditions
from flipmeter.types import Decoding, Message, Model, Request, Script
from misbehaving import (
    KEY,
    MODEL,
    QUICK,
    Behaviour,
    Rule,
    Server,
    answer,
    fails,
    misbehaving,
    says,
    serving,
)
from misbehaving import tidy as tidy
from old_stores import BY_KEY

pytestmark = pytest.mark.usefixtures("tidy")

SAMPLED = {"temperature": 0.7, "seed": 7}
LOW = {"reasoning": {"effort": "low"}}
CHAT = {"content": [{"token": "a", "logprob": -0.1, "top_logprobs": [{}, {}, {}]}]}
RAW = {"tokens": ["a"], "token_logprobs": [-0.1], "top_logprobs": [{"a": -0.1, "b": -2.0}]}


def endpoint(**changes: Behaviour) -> Rule:
    """Return the rule of a server that has everything but what behaves otherwise, by name.

    With `ignored`, what would be there is accepted and does nothing.
    """
    n_asked = itertools.count()

    def rule(body: Any) -> Behaviour:
        asked = {
            "completions": "prompt" in body,
            "reasoning": "reasoning" in body or "reasoning_effort" in body,
            "logprobs": "logprobs" in body,
            "seed": "seed" in body,
        }
        lacking = [name for name, is_asked in asked.items() if is_asked and name in changes]
        for name in lacking:
            if changes[name] is not ignored:
                return changes[name]
        chance = body.get("seed", "") if "seed" not in changes else next(n_asked)
        return says(_answer(body, str(chance), asked, lacking))

    return rule


def _answer(body: Any, chance: str, asked: Mapping[str, bool], lacking: list[str]) -> Any:
    is_chat = "messages" in body
    prompt = body["messages"][-1]["content"] if is_chat else body["prompt"]
    text = str(1 + len(prompt) % 5) if "Label:" in prompt else f"word {chance}"
    choice: dict[str, Any] = {"message": {"content": text}} if is_chat else {"text": text}
    if asked["logprobs"]:
        choice["logprobs"] = None if "logprobs" in lacking else CHAT if is_chat else RAW
    n_spent = 9 if asked["reasoning"] and "reasoning" not in lacking else None
    usage = {"completion_tokens_details": {"reasoning_tokens": n_spent}}
    return answer(choices=[choice], usage=usage, provider="Acme", system_fingerprint="fp_7")


async def ignored(_: Any) -> Any:
    raise AssertionError("a mark, never called")


async def _examined(server: Server, model: Model, names: Any, **options: Any) -> Examination:
    backend = open_backend(model)
    assert isinstance(backend, HttpBackend)
    try:
        return await examine(model, backend, names, persistence=QUICK, **options)
    finally:
        await backend.close()


def found(
    rule: Rule,
    *names: str,
    declared: list[str] | None = None,
    server_seen: Callable[[Server], None] = lambda _: None,
    options: Mapping[str, Any] | None = None,
    **fields: Any,
) -> dict[str, tuple[bool | None, str]]:
    """Examine a server that follows a rule."""

    async def go() -> Examination:
        async with misbehaving(rule=rule) as server:
            if declared is not None:
                server.models = [{"id": MODEL, "supported_parameters": declared}]
            model = Model(f"http/{MODEL}", base_url=server.url, **fields)
            seen = await _examined(server, model, names or CAPABILITIES, **(options or {}))
            server_seen(server)
            return seen

    return {name: (one.is_there, one.how) for name, one in asyncio.run(go()).found.items()}


# What an examination finds


def test_an_endpoint_that_has_everything_is_found_out_by_six_small_requests() -> None:
    sent: list[Any] = []
    seen = found(endpoint(), server_seen=lambda server: sent.extend(server.bodies))
    assert {name: there for name, (there, _) in seen.items()} == dict.fromkeys(CAPABILITIES, True)
    assert len(sent) == 6
    assert all(body["max_tokens"] <= 16 for body in sent if "reasoning" not in body)
    assert all(how.startswith("shown by a request") for _, how in seen.values())


def test_log_probabilities_promised_and_absent_are_not_there() -> None:
    rule = endpoint(logprobs=ignored)
    how = "declared by the models endpoint, absent from the answer"
    assert found(rule, "logprobs", declared=["logprobs"]) == {"logprobs": (False, how)}
    assert found(rule, "logprobs") == {"logprobs": (False, "accepted, absent from the answer")}


def test_log_probabilities_of_raw_text_are_found_too() -> None:
    is_there, how = found(endpoint(), "logprobs", interface="completions")["logprobs"]
    assert (is_there, how) == (True, "shown by a request: 2 alternatives of a token")


def test_what_is_declared_absent_is_not_asked_for() -> None:
    def nothing_sent(server: Server) -> None:
        assert server.bodies == []

    names = ("reasoning", "logprobs", "seed")
    seen = found(endpoint(), *names, declared=["temperature"], server_seen=nothing_sent)
    how = "declared by the models endpoint: not among its parameters"
    assert seen == dict.fromkeys(names, (False, how))


@pytest.mark.parametrize("name", CAPABILITIES)
@pytest.mark.parametrize("status", [400, 403, 404, 422, 501])
def test_what_is_refused_is_not_there(name: str, status: int) -> None:
    seen = found(endpoint(**{name: fails(status, f"no {name} here")}), name)
    assert seen[name] == (False, f"refused: HTTP {status}: no {name} here")


def test_a_seed_that_is_accepted_and_not_honoured_is_not_there() -> None:
    how = "accepted but not honoured: two answers with the same seed differ"
    assert found(endpoint(seed=ignored), "seed") == {"seed": (False, how)}


def test_equal_answers_to_two_seeds_tell_nothing() -> None:
    seen = found(lambda body: says(answer("always")), "seed")
    assert seen["seed"] == (None, "three answers with two seeds are equal")


def test_without_completions_the_rest_is_examined_by_chat() -> None:
    rule = endpoint(completions=fails(404, "no such path"))
    seen = found(rule, interface="completions")
    assert {name: there for name, (there, _) in seen.items()} == {
        "completions": False,
        "reasoning": True,
        "logprobs": True,
        "seed": True,
    }


@pytest.mark.parametrize("name", CAPABILITIES)
def test_a_server_that_refuses_everything_tells_nothing(name: str) -> None:
    is_there, how = found(lambda body: fails(400, "unsupported: max_tokens"), name)[name]
    assert is_there is None
    assert how == "a plain request gets no answer either: HTTP 400: unsupported: max_tokens"


def test_what_is_declared_and_cannot_be_shown_counts_as_there() -> None:
    is_there, how = found(lambda body: fails(400), "seed", declared=["seed"])["seed"]
    assert is_there
    assert how.startswith("declared by the models endpoint, not shown: a plain request")


@pytest.mark.parametrize(
    ("extra", "usage", "is_there"),
    [
        ({"reasoning": {"effort": "low"}}, 12, True),
        ({"reasoning": {"effort": "low"}}, 0, None),
        ({"reasoning": {"effort": "low"}}, None, None),
        ({"reasoning": {"effort": "none"}}, 0, True),
        ({"reasoning": {"enabled": False}}, 12, False),
        ({"reasoning_effort": "none"}, 12, False),
    ],
)
def test_reasoning_is_there_if_its_tokens_follow_the_field(
    extra: dict[str, Any], usage: int | None, is_there: bool | None
) -> None:
    def rule(body: Any) -> Behaviour:
        assert extra.items() <= body.items()
        return says(answer(usage={"completion_tokens_details": {"reasoning_tokens": usage}}))

    assert found(rule, "reasoning", extra=extra)["reasoning"][0] is is_there


def test_a_failure_that_passes_is_tried_again() -> None:
    chance = itertools.count()
    good = endpoint()

    def rule(body: Any) -> Behaviour:
        return good(body) if next(chance) % 2 else fails(503)

    assert all(there for there, _ in found(rule).values())


def test_a_failure_that_does_not_pass_is_no_absence() -> None:
    is_there, how = found(endpoint(logprobs=fails(500, "oops")), "logprobs")["logprobs"]
    assert is_there is None
    assert "oops (given up after 4 attempts)" in how


def test_a_wrong_key_is_the_same_problem_as_when_asking() -> None:
    async def asked() -> None:
        async with misbehaving(rule=lambda body: fails(401, f"bad key {KEY}")) as server:
            backend = open_backend(Model(f"http/{MODEL}", base_url=server.url))
            try:
                await backend.ask(Request("m", Script.of([Message("user", "?")])))
            finally:
                await backend.close()

    with pytest.raises(Problem) as by_asking:
        asyncio.run(asked())
    with pytest.raises(Problem) as by_examining:
        found(lambda body: fails(401, f"bad key {KEY}"))
    ends = [str(error.value).partition("/v1")[2] for error in (by_asking, by_examining)]
    assert (
        ends[0] == ends[1] == ": bad key [key]; the variable HTTP_API_KEY is set but not accepted"
    )


def test_an_unknown_model_is_a_problem_and_no_absence() -> None:
    with pytest.raises(Problem, match="is 'acme/rater' the name the endpoint knows"):
        found(lambda body: fails(404, "no such model", "model_not_found"))


def test_no_server_is_a_problem() -> None:
    with pytest.raises(Problem, match="is the server running"):
        asyncio.run(
            _examined(
                Server((), endpoint()), Model("http/x", base_url="http://127.0.0.1:9/v1"), ["seed"]
            )
        )


def test_requests_of_an_examination_count_against_the_budget() -> None:
    ledger = Ledger()
    with pytest.raises(OutOfBudget):
        found(endpoint(), options={"ledger": ledger, "budget": Budget(calls=2)})
    assert ledger.spent.calls == 2


def test_the_fields_of_a_study_are_sent_with_every_request() -> None:
    pinned = {"provider": {"only": ["acme"]}, "max_completion_tokens": 4000, "logprobs": True}

    def is_as_asked(server: Server) -> None:
        assert all(body["provider"] == pinned["provider"] for body in server.bodies)
        assert all("max_tokens" not in body for body in server.bodies)
        assert max(body["max_completion_tokens"] for body in server.bodies) < 4000
        assert sum("logprobs" in body for body in server.bodies) == 1

    found(endpoint(), server_seen=is_as_asked, extra=pinned)


# What is needed, and what engines in this process state


def test_only_what_a_model_is_asked_for_is_needed() -> None:
    plain = Model("http/x", base_url="http://h")
    assert needs(plain, Decoding()) == needs(plain, Decoding(seed=1)) == ()
    assert needs(plain, Decoding(temperature=0.7, seed=1)) == ("seed",)
    assert needs(Model("http/x", interface="completions"), Decoding()) == ("completions",)
    both = Model("http/x", extra={"logprobs": True, "reasoning_effort": "low"})
    assert needs(both, Decoding()) == ("reasoning", "logprobs")
    assert needs(plain, Decoding(), scored=True) == ("logprobs",)


@pytest.mark.parametrize("address", ["local/smollm2-135m", "llamacpp/a.gguf", "sim/honest"])
def test_an_engine_in_this_process_states_what_it_has(address: str) -> None:
    known = stated(Model(address)) or {}
    assert set(known) == set(CAPABILITIES)
    assert known["seed"].is_there
    assert known["completions"].is_there
    assert known["logprobs"].is_there


def test_an_endpoint_states_nothing() -> None:
    assert stated(Model("http/x")) is None


def test_a_model_without_log_probabilities_is_refused_where_nothing_does_without() -> None:
    model, how = Model("http/x", name="ours"), "accepted, absent from the answer"
    with pytest.raises(Problem, match=f"'ours' shows no log-probabilities .{how}"):
        check_scored(model, {"logprobs": Capability("logprobs", False, how)})
    for is_there in (True, None):
        check_scored(model, {"logprobs": Capability("logprobs", is_there, how)})
    check_scored(model, {})


# What is recorded

SEED = Capability("seed", False, "refused: HTTP 400: no", "2026-01-05")
UNSURE = Capability("logprobs", None, "the answer is empty", "2026-01-05")


def test_capabilities_come_back_as_they_went_in(tmp_path: Path) -> None:
    with Store(tmp_path / "r.sqlite") as store:
        store.note_capabilities("m", "{}", [SEED, UNSURE])
    with Store(tmp_path / "r.sqlite") as store:
        assert store.capabilities("m", "{}") == {"seed": SEED, "logprobs": UNSURE}
        assert store.capabilities("m", '{"reasoning":1}') == store.capabilities("n", "{}") == {}


def test_the_last_examination_counts() -> None:
    with Store() as store:
        for one in (SEED, Capability("seed", True, "shown by a request", "2026-02-01")):
            store.note_capabilities("m", "{}", [one])
        assert store.capabilities("m", "{}")["seed"].is_there


def test_an_older_store_keeps_its_replies_and_learns_capabilities(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    request = Request("m", Script.of([Message("user", "a")]))
    with sqlite3.connect(path) as db:
        db.executescript(BY_KEY[0])
        db.execute("INSERT INTO texts VALUES (1, 'm'), (2, ?), (3, '[]')", ["m\x1f\x1f"])
        row = [bytes.fromhex(request.key), 1, 1, "a", 3, "1", "stop", *[None] * 5, 0.5, 2]
        db.execute(f"INSERT INTO replies VALUES ({','.join('?' * len(row))})", row)
        db.execute("PRAGMA user_version=1")
    db.close()
    with Store(path) as store:
        assert store.get([request.key])[request.key].text == "1"
        store.note_capabilities("m", "{}", [SEED])
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(BY_KEY),)
    db.close()


# What a run does with it


def study_at(url: str, decoding: Mapping[str, Any] = SAMPLED, **entry: Any) -> Study:
    model = {"name": "ours", "model": f"http/{MODEL}", "base_url": url, **entry}
    small = {"datasets": ["reviews"], "test_size": 5, "base": {"shots": 1}, "repeats": 1}
    return read_study({**small, "models": [model], "decoding": decoding, "probes": ["label_order"]})


def performed(study: Study, folder: Path) -> Run:
    with Store(folder / "replies.sqlite") as store:
        return perform(study, folder / "run", store)


def of_the_run(server: Server) -> list[dict[str, Any]]:
    """Return the bodies that show an item: the rest is examination."""
    return [body for body in server.bodies if "Label:" in json.dumps(body)]


def test_a_seed_that_is_not_honoured_is_not_sent_and_every_table_says_so(tmp_path: Path) -> None:
    with serving(endpoint(seed=ignored)) as server:
        run = performed(study_at(server.url), tmp_path)
        assert len(of_the_run(server)) == 10
        assert not any("seed" in body for body in of_the_run(server))
    sentence = (
        "the seed is not sent: accepted but not honoured: two answers with the same seed differ"
    )
    assert run.warnings == {"ours": sentence}
    assert set(run.estimates["warning"]) == {sentence}
    assert run.environment["fallbacks"] == {"ours": [sentence]}
    assert run.environment["capabilities"]["ours"]["seed"]["is_there"] is False


def test_a_seed_that_is_honoured_is_sent_without_a_warning(tmp_path: Path) -> None:
    with serving(endpoint()) as server:
        run = performed(study_at(server.url), tmp_path)
        assert {body["seed"] for body in of_the_run(server)} == {7}
    assert run.warnings == {}


def test_a_second_run_examines_nothing_and_a_plan_knows_the_same(tmp_path: Path) -> None:
    with serving(endpoint(seed=ignored)) as server:
        study = study_at(server.url)
        first = performed(study, tmp_path)
        n_sent = len(server.bodies)
        assert performed(study, tmp_path).warnings == first.warnings
        with Store(tmp_path / "replies.sqlite") as store:
            (forecast,) = preview(study, store, is_offline=True).forecasts
            assert forecast.cost.stored == forecast.cost.distinct == 10
        assert len(server.bodies) == n_sent


def test_a_study_that_needs_nothing_special_examines_nothing(tmp_path: Path) -> None:
    with serving(endpoint()) as server:
        run = performed(study_at(server.url, {"temperature": 0, "seed": 7}), tmp_path)
        assert len(server.bodies) == 10
    assert run.environment["capabilities"] == {}


def test_log_probabilities_that_are_not_there_are_not_asked_for(tmp_path: Path) -> None:
    with serving(endpoint(logprobs=ignored)) as server:
        server.models = [{"id": MODEL, "supported_parameters": ["logprobs", "seed"]}]
        asked = {"logprobs": True, "top_logprobs": 5, "user": "me"}
        run = performed(study_at(server.url, {}, extra_body=asked), tmp_path)
        assert not any("logprobs" in body for body in of_the_run(server))
        assert all(body["user"] == "me" for body in of_the_run(server))
    assert run.warnings == {
        "ours": "log-probabilities are not asked for: "
        "declared by the models endpoint, absent from the answer"
    }


def test_what_could_not_be_told_is_sent_and_said(tmp_path: Path) -> None:
    with serving(endpoint(reasoning=ignored)) as server:
        run = performed(study_at(server.url, {}, **LOW), tmp_path)
        assert all(body["reasoning"] == LOW["reasoning"] for body in of_the_run(server))
    assert run.warnings == {
        "ours": "the control of reasoning could not be verified and is sent as it is: "
        "accepted, but the usage does not count reasoning tokens"
    }


@pytest.mark.parametrize(
    ("lacking", "entry", "message"),
    [
        ("completions", {"interface": "completions"}, "set `interface: chat` in its entry"),
        ("reasoning", LOW, r"change or remove `reasoning` \(or `reasoning_effort`\) in its entry"),
    ],
)
def test_what_cannot_be_left_out_is_a_problem(
    tmp_path: Path, lacking: str, entry: dict[str, Any], message: str
) -> None:
    with serving(endpoint(**{lacking: fails(400, "not here")})) as server:
        for _ in range(2):
            with pytest.raises(Problem, match=message) as caught:
                performed(study_at(server.url, {}, **entry), tmp_path)
        assert "'ours'" in str(caught.value)
        assert "refused: HTTP 400: not here" in str(caught.value)
        assert of_the_run(server) == []
    assert not (tmp_path / "run" / "decisions.parquet").exists()


def test_a_local_engine_refuses_what_it_has_not() -> None:
    study = read_study(
        {"models": [{"model": "local/smollm2-135m", **LOW}], "datasets": ["reviews"]}
    )
    grid = conditions(study)
    with Store() as store, pytest.raises(Problem, match="does not accept its control of reasoning"):
        adapted(grid, recall(grid, store))


def test_two_entries_of_one_model_are_examined_as_each_is_asked(tmp_path: Path) -> None:
    with serving(endpoint()) as server:
        both = [study_at(server.url, {}, reasoning={"effort": e}) for e in ("low", "high")]
        for study in both:
            performed(study, tmp_path)
        examined = [b for b in server.bodies if b not in of_the_run(server)]
        assert [body["reasoning"]["effort"] for body in examined] == ["low", "high"]


def test_a_grid_without_needs_stays_as_it_is() -> None:
    grid = conditions(read_study({"models": ["sim/honest"], "datasets": ["reviews"]}))
    with Store() as store:
        assert adapted(grid, recall(grid, store)) == (grid, {})


def test_no_secret_is_in_what_is_recorded(tmp_path: Path) -> None:
    with serving(endpoint(seed=fails(400, f"your key {KEY} may not"))) as server:
        performed(study_at(server.url), tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not any(KEY.encode() in path.read_bytes() for path in files)


# The verb

Cli = Callable[..., tuple[int, str, str]]


def test_examine_prints_what_there_is_and_who_answered(cli: Cli) -> None:
    with serving(endpoint(seed=fails(400, "no seeds"))) as server:
        code, out, _ = cli("try", f"http/{MODEL}", "--base-url", server.url)
    assert code == 0
    assert "shown by a request: 3 alternatives of a token" in out
    assert "refused: HTTP 400: no seeds" in out
    assert "the model that answered: acme/rater" in out
    assert "the provider that answered: Acme" in out
    assert "the system fingerprint that answered: fp_7" in out


def test_examine_asks_once_unless_told_to_look_again(cli: Cli) -> None:
    with serving(endpoint()) as server:
        command = ["try", f"http/{MODEL}", "--base-url", server.url, "--json"]
        first = json.loads(cli(*command)[1])
        n_sent = len(server.bodies)
        assert json.loads(cli(*command)[1])["capabilities"] == first["capabilities"]
        assert len(server.bodies) == n_sent
        server.rule = endpoint(seed=ignored)
        again = json.loads(cli(*command, "--anew")[1])
        assert len(server.bodies) > n_sent
    assert first["capabilities"]["seed"]["is_there"] is True
    assert again["capabilities"]["seed"]["is_there"] is False
    assert again["answered_by"]["provider"] == "Acme"


def test_what_examine_found_holds_for_a_run(cli: Cli, tmp_path: Path) -> None:
    with serving(endpoint(seed=ignored)) as server:
        cli("try", f"http/{MODEL}", "--base-url", server.url)
        n_sent = len(server.bodies)
        with Store(tmp_path / ".flipmeter" / "replies.sqlite") as store:
            run = perform(study_at(server.url), tmp_path / "run", store)
        assert len(server.bodies) == n_sent + 10
    assert "the seed is not sent" in run.warnings["ours"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["try", "opnai/gpt-9"], "did you mean 'openai'"),
        (["try", "openai/gpt-9"], "OPENAI_API_KEY"),
        (["try", "http/x"], "HTTP_BASE_URL"),
        (["try", "http/x", "--base-url", "nowhere"], "must be http(s)://host"),
    ],
)
def test_what_is_asked_wrongly_ends_with_2_and_a_way_out(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    for name in ("OPENAI_API_KEY", "HTTP_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert message in err.replace("\n", " ")


def test_examine_of_a_simulated_rater_sends_and_stores_nothing(cli: Cli) -> None:
    code, out, _ = cli("try", "sim/honest", "--json")
    assert code == 0
    assert json.loads(out)["capabilities"]["seed"]["is_there"] is True
    assert not Path(".flipmeter").exists()


# Our own server


def at_our_server(address: str) -> dict[str, Capability]:
    async def go() -> Examination:
        backend = open_for_words(address)
        try:
            async with serve({"ours": backend}) as url:
                model = Model("http/ours", base_url=url)
                return await _examined(Server((), endpoint()), model, CAPABILITIES)
        finally:
            await backend.close()

    return dict(asyncio.run(go()).found)


def test_our_server_declares_what_a_simulated_rater_takes() -> None:
    seen = at_our_server("sim/noisy")
    assert seen["logprobs"].is_there
    assert seen["seed"].is_there
    assert seen["reasoning"].is_there


@pytest.mark.real
def test_our_server_shows_what_the_embedded_model_has() -> None:
    seen = at_our_server("local/smollm2-135m")
    assert seen["completions"].how == "shown by a request"
    assert seen["seed"].how.startswith("shown by a request")
    assert seen["logprobs"].how.startswith("shown by a request: ")
    assert seen["reasoning"].is_there is False
