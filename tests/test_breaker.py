"""An endpoint that only fails ends a run after a few attempts; one that fails now and then not."""

from __future__ import annotations

import random
from typing import Any

import pytest

from flipmeter.base.drain import Drained
from flipmeter.cli import _end
from flipmeter.cli.exits import INCOMPLETE
from flipmeter.model import Backend, Engine, Ledger, OutOfBudget, Store
from flipmeter.model.backends.backend import Retry
from flipmeter.model.engine.breaker import PROBES, ROW, Outage
from flipmeter.types import Problem, Reply, Request
from misbehaving import fails, resets, run_at_once, says
from misbehaving import tidy as tidy
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


@pytest.mark.parametrize("kind", [Outage, Drained, OutOfBudget])
def test_what_stops_before_its_end_is_incomplete(kind: type[Problem]) -> None:
    with pytest.raises(SystemExit) as ended:
        _end(kind("no more"))
    assert ended.value.code == INCOMPLETE == 4


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
