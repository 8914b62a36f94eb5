"""An endpoint that only fails ends a run after a few attempts; one that fails now and then not."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import Cli
from flipmeter.ask.engine import Engine
from flipmeter.ask.family import Backend
from flipmeter.ask.pool import PROBES, ROW, Ledger
from flipmeter.ask.store import Store
from flipmeter.choose.card import write_card
from flipmeter.choose.select import select
from flipmeter.errors import Outage, Retry
from flipmeter.run.folder import Run
from flipmeter.types import Reply, Request
from misbehaving import Behaviour, fails, rates, receipt, resets, run_at_once, says, serving
from misbehaving import tidy as tidy
from test_faults import study_at
from test_model_run import Scripted, asked_of, questions

pytestmark = pytest.mark.usefixtures("tidy")


class Sick(Scripted):
    """A backend that fails by a rule: the number of the attempt, and the prompt."""

    def __init__(self, is_sick: Any, **options: Any) -> None:
        super().__init__(**options)
        self._is_sick = is_sick

    async def ask(self, request: Request) -> Reply:
        number = len(self.asked)
        reply = await super().ask(request)
        if self._is_sick(number, request.script.messages[-1].content):
            raise Retry("HTTP 503: no")
        return reply


def ask(backend: Scripted, n: int, store: Store | None = None) -> dict[str, Reply]:
    backends: dict[str, Backend] = {"acme": backend}
    engine = Engine(backends, Store() if store is None else store, Ledger())
    return run_at_once(engine.ask(questions(n)))


@pytest.mark.parametrize(
    "fault", [fails(500), fails(503), resets, says(b"<html>"), says({"choices": []})]
)
def test_an_endpoint_that_only_fails_stops_the_run_with_what_was_seen(fault: Any) -> None:
    with pytest.raises(Outage, match=r"\d+ attempts in a row failed.*\d+ x .*127\.0\.0\.1"):
        asked_of(requests=questions(100), rule=lambda _: fault, concurrency=4)


def test_ten_requests_that_only_fail_are_sent_a_bounded_number_of_times() -> None:
    backend = Sick(lambda *_: True)
    with pytest.raises(Outage, match="is the server running"):
        ask(backend, 10)
    assert len(backend.asked) <= ROW + backend.concurrency + PROBES
    assert backend.starts[-1] - backend.starts[0] < 30


def test_an_endpoint_that_dies_for_good_is_probed_one_at_a_time() -> None:
    backend = Sick(lambda n, _: n >= 50, concurrency=64, seconds=0.1)
    with Store() as store:
        with pytest.raises(Outage, match="run again when the endpoint answers"):
            ask(backend, 1_000, store)
        assert len(store) == 50
    assert len(backend.asked) <= 50 + 64 + ROW + 10
    assert backend.starts[-1] - backend.starts[0] > 20


def test_an_outage_of_twenty_seconds_costs_nothing() -> None:
    class Away(Sick):
        """A backend that is away from the first second to the twenty-first."""

        def __init__(self) -> None:
            super().__init__(self._is_away, concurrency=64, seconds=0.1)

        def _is_away(self, *_: object) -> bool:
            return 1 < self.starts[-1] - self.starts[0] < 21

    assert ask(Away(), 2_000) == ask(Scripted(concurrency=64, seconds=0.1), 2_000)


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_an_endpoint_that_fails_often_but_not_always_goes_on(share: float) -> None:
    chance = random.Random(3)
    found = ask(Sick(lambda *_: chance.random() < share), 500)
    assert sum(not reply.error for reply in found.values()) >= 490


def test_prompts_that_always_fail_do_not_stop_the_others() -> None:
    backend = Sick(lambda _, prompt: prompt.endswith("7"))
    found = ask(backend, 500)
    assert sum(bool(reply.error) for reply in found.values()) == 50
    assert len(backend.asked) <= 450 + 50 * 10
    assert backend.starts[-1] - backend.starts[0] < 3_600


def test_prompts_that_always_fail_are_errors_of_a_run_that_has_nearly_all() -> None:
    def is_sick(_: int, prompt: str) -> bool:
        return prompt.endswith("7")

    with Store() as store:
        ask(Sick(lambda *_: False), 1_000, store)
        found = ask(Sick(is_sick), 1_080, store)
        assert sum(bool(reply.error) for reply in found.values()) == 8
        again = ask(Sick(is_sick), 1_080, store)
        assert {k for k in found if found[k].error} == {k for k in again if again[k].error}


# A vendor that stops a run


IN_TWO_HOURS = format_datetime(datetime.now(UTC) + timedelta(hours=2, minutes=55), usegmt=True)
VENDOR_STOPS: dict[str, tuple[Behaviour, str]] = {
    "limit": (fails(429, "daily limit", Retry_After="3600"), "(in 60.0 min)"),
    "limit until a moment": (fails(429, Retry_After=IN_TWO_HOURS), "(in 2."),
    "limit of centuries": (fails(429, Retry_After="1e300"), "in more than a year"),
    "maintenance": (fails(503, Retry_After="10800"), "(in 3.0 h)"),
    "no credit": (fails(402), "top up the account"),
    "no quota": (fails(429, code="insufficient_quota"), "top up the account"),
    "forbidden for now": (fails(403, "quota", Retry_After="7200"), "(in 2.0 h)"),
}
"""Whenever they come, the run was set up well."""
ENDS: dict[str, tuple[Behaviour, str]] = {
    "key revoked": (fails(401, "no such key"), "is set but not accepted"),
    "key at its limit": (fails(403, "Key limit exceeded"), "Key limit exceeded"),
    "model withdrawn": (fails(404, "no such model"), "the name the endpoint knows?"),
    "moved": (fails(302, Location="https://example.org"), "it has moved to"),
}
"""At the first request they say that the run was set up wrongly."""


class Stopping:
    """A rule that answers so many requests and then ends; `paid` counts the answers by prompt."""

    def __init__(self, n_answers: int, end: Behaviour) -> None:
        self.n_left, self.end = n_answers, end
        self.paid = Counter[int]()

    def __call__(self, body: Any) -> Behaviour:
        if self.n_left <= 0:
            return self.end
        self.n_left -= 1
        self.paid[receipt(body)] += 1
        return rates(body)


def write_study(url: str) -> None:
    study = study_at(url, {"seeds": [0], "test_size": 20}).model_dump(mode="json")
    study["models"][0]["timeout"] = 60
    Path("study.yaml").write_text(yaml.safe_dump(study))


@pytest.mark.parametrize("how", [*VENDOR_STOPS, *ENDS])
def test_a_run_that_the_vendor_stops_is_incomplete_until_it_is_through(cli: Cli, how: str) -> None:
    end, told = (VENDOR_STOPS | ENDS)[how]
    rule = Stopping(60, end)
    with serving(rule) as server:
        write_study(server.url)
        for _ in range(2):  # the second time it has answers by the store alone
            code, _, said = cli("run", "study.yaml", "--anyway")
            assert (code, told in said, "stored" in said or "lost" in said) == (4, True, True), said
        rule.n_left = 1000
        assert cli("run", "study.yaml", "--anyway")[0] == 0
    assert set(rule.paid.values()) == {1}


@pytest.mark.parametrize(
    ("how", "code"), [*((how, 4) for how in VENDOR_STOPS), *((how, 2) for how in ENDS)]
)
def test_a_run_without_answers_tells_a_wrong_setup_from_a_vendor_that_stops(
    cli: Cli, how: str, code: int
) -> None:
    end, told = (VENDOR_STOPS | ENDS)[how]
    with serving(Stopping(0, end)) as server:
        write_study(server.url)
        found, _, said = cli("run", "study.yaml", "--anyway")
    assert (found, told in said) == (code, True), said


@pytest.mark.parametrize("how", ["limit", "no credit", "key revoked"])
@pytest.mark.parametrize(
    "command",
    [
        ("try", "study.yaml", "--limit", "9"),
        ("classify", "rater.yaml", "texts.csv"),
        ("confirm", "rater.yaml", "--items", "40"),
    ],
    ids=lambda command: command[0],
)
def test_every_verb_that_asks_says_that_it_is_incomplete(
    cli: Cli, how: str, command: tuple[str, ...]
) -> None:
    end, told = (VENDOR_STOPS | ENDS)[how]
    rule = Stopping(1000, end)
    with serving(rule) as server:
        write_study(server.url)
        assert cli("run", "study.yaml", "--anyway")[0] == 0
        rater = select(Run(Path("runs/study")))
        write_card(rater.card(), Path("rater.yaml"))
        Path("texts.csv").write_text("text\n" + "".join(f"It rains {k}.\n" for k in range(40)))
        rule.n_left = 10
        code, _, said = cli(*command, "--store", "another.sqlite")
    assert (code, told in said) == (4, True), said
