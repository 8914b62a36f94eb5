"""The runner over a real server that fails, dies and comes back: nothing is lost or asked twice."""

from __future__ import annotations

import asyncio
import random
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from flipmeter.ask.engine import Engine
from flipmeter.ask.family import Backend
from flipmeter.ask.limits import FIRST_PERMITS, Budget, Limiter, worst_case
from flipmeter.ask.pool import Ledger, Persistence
from flipmeter.ask.store import Store
from flipmeter.errors import OutOfBudget, Problem, Retry
from flipmeter.types import Reply, Request, Usage
from misbehaving import (
    KEY,
    QUICK,
    Behaviour,
    Server,
    answer,
    breaks_off,
    client,
    echo,
    fails,
    good,
    misbehaving,
    never_ends,
    question,
    resets,
    run_at_once,
    says,
)
from misbehaving import tidy as tidy

pytestmark = pytest.mark.usefixtures("tidy")

TIRELESS = replace(QUICK, attempts=1_000)


async def ask_all(
    requests: Sequence[Request], backends: Mapping[str, Backend], store: Store, **options: Any
) -> dict[str, Reply]:
    return await Engine(backends, store, **options).ask(requests)


def questions(n: int) -> list[Request]:
    return [question(f"question {k}") for k in range(n)]


async def ask(
    server: Server | str, requests: Sequence[Request], store: Store, **options: Any
) -> dict[str, Reply]:
    """Ask everything over HTTP; `concurrency` and `timeout` are the model's, the rest the run's."""
    fields = {name: options.pop(name) for name in ("concurrency", "timeout") if name in options}
    options.setdefault("persistence", QUICK)
    url = server if isinstance(server, str) else server.url
    async with client(url, **fields) as backend:
        return await ask_all(requests, {"acme": backend}, store, **options)


def asked_of(
    *script: Behaviour, requests: Sequence[Request], rule: Any = echo, **options: Any
) -> tuple[list[Reply], Server]:
    """Ask a server that behaves by the script, then by the rule."""

    async def run() -> tuple[list[Reply], Server]:
        async with misbehaving(*script, rule=rule) as server:
            with Store() as store:
                replies = await ask(server, requests, store, **options)
                return [replies[request.key] for request in requests], server

    return asyncio.run(run())


def texts(replies: Sequence[Reply]) -> list[str]:
    return [reply.text for reply in replies]


# One request


@pytest.mark.parametrize(
    "fault",
    [
        fails(429),
        fails(429, Retry_After="0.01"),
        fails(500),
        fails(502),
        fails(503),
        resets,
        breaks_off,
        says(b'{"choices": [{"mess'),
        says({"choices": []}),
        says({"error": {"code": 502, "message": "upstream"}}),
    ],
)
def test_what_passes_is_asked_again_and_answered(fault: Behaviour) -> None:
    ledger = Ledger()
    replies, server = asked_of(fault, fault, requests=questions(1), ledger=ledger)
    assert texts(replies) == ["question 0"]
    assert (len(server.bodies), ledger.retried, ledger.asked, ledger.failed) == (3, 2, 1, 0)


def test_an_answer_that_never_ends_is_asked_again() -> None:
    replies, server = asked_of(never_ends, requests=questions(1), timeout=0.5)
    assert texts(replies) == ["question 0"]
    assert len(server.bodies) >= 2


def test_what_does_not_pass_is_an_error_with_a_name() -> None:
    replies, server = asked_of(requests=questions(1), rule=lambda _: fails(503, "overloaded"))
    assert replies[0].error.endswith("overloaded (given up after 4 attempts)")
    assert len(server.bodies) == QUICK.attempts


def test_what_is_final_is_not_asked_again() -> None:
    replies, server = asked_of(fails(400, "maximum context length"), requests=questions(1))
    assert replies[0].error.endswith("maximum context length")
    assert len(server.bodies) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
def test_a_server_that_was_never_there_stops_the_run_with_its_address(host: str) -> None:
    url = f"http://{host}:{free_port()}/v1"
    twice, ledger = replace(QUICK, attempts=2), Ledger()
    with Store() as store, pytest.raises(Problem) as caught:
        asyncio.run(ask(url, questions(300), store, persistence=twice, ledger=ledger))
    said = str(caught.value)
    assert said.startswith(url)
    assert said.endswith("(2 attempts); is the server running?")
    assert ledger.spent.calls <= 2 * FIRST_PERMITS


def test_a_server_that_goes_away_for_good_stops_the_run_with_all_answers_kept() -> None:
    async def run() -> None:
        async with misbehaving() as server, client(server.url) as backend:
            engine = Engine({"acme": backend}, store, persistence=QUICK)
            await engine.ask(questions(1))
            await server.stop()
            await engine.ask(questions(300))

    with Store() as store:
        with pytest.raises(Problem, match="gone away: run again when it is back"):
            asyncio.run(run())
        assert len(store) == 1


def test_a_request_whose_sender_gave_up_is_sent_by_who_waits_for_it() -> None:
    async def run() -> dict[str, Reply]:
        async with misbehaving(never_ends) as server, client(server.url) as backend:
            engine = Engine({"acme": backend}, store, persistence=QUICK)
            first = asyncio.create_task(engine.ask(questions(1)))
            await asyncio.sleep(0.2)
            second = asyncio.create_task(engine.ask(questions(1)))
            await asyncio.sleep(0.05)
            first.cancel()
            return await second

    with Store() as store:
        assert texts([*asyncio.run(run()).values()]) == ["question 0"]


def test_the_first_requests_refused_one_and_all_stop_the_run() -> None:
    ledger = Ledger()
    with pytest.raises(Problem, match=r"refused the first 3 requests.*decoding"):
        asked_of(requests=questions(300), rule=lambda _: fails(400, "no top_k"), ledger=ledger)
    assert ledger.spent.calls <= FIRST_PERMITS + 3


@pytest.mark.parametrize("limits", [(3, None), (None, 3)])
def test_models_behind_one_local_server_share_what_it_takes(limits: Sequence[int | None]) -> None:
    most, n_now = 0, 0

    async def counted(_: web.Request) -> web.StreamResponse:
        nonlocal most, n_now
        n_now += 1
        most = max(most, n_now)
        await asyncio.sleep(0.01)
        n_now -= 1
        return web.json_response(answer())

    async def run() -> None:
        async with (
            misbehaving(rule=lambda _: counted) as server,
            client(server.url, concurrency=limits[0]) as one,
            client(server.url, concurrency=limits[1]) as other,
        ):
            both = [*questions(10), *(replace(r, model="other") for r in questions(10))]
            await ask_all(both, {"acme": one, "other": other}, store)

    with Store() as store:
        asyncio.run(run())
    assert most == 3


def test_equal_requests_under_way_are_one_call() -> None:
    async def run() -> tuple[list[dict[str, Reply]], int]:
        async with misbehaving() as server, client(server.url) as backend:
            engine = Engine({"acme": backend}, store, persistence=QUICK)
            found = await asyncio.gather(*(engine.ask(questions(n)) for n in (3, 5, 2)))
            return found, len(server.bodies)

    with Store() as store:
        found, n_sent = asyncio.run(run())
    assert n_sent == 5
    assert [len(replies) for replies in found] == [3, 5, 2]
    assert found[1] | found[0] | found[2] == found[1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# Many requests


def test_equal_requests_are_asked_once() -> None:
    replies, server = asked_of(requests=questions(3) * 4)
    assert texts(replies) == ["question 0", "question 1", "question 2"] * 4
    assert len(server.bodies) == 3


def test_repeats_are_asked_each() -> None:
    _, server = asked_of(requests=[question(repeat=k) for k in range(3)])
    assert len(server.bodies) == 3


def test_requests_are_sent_in_the_order_given() -> None:
    requests = questions(20)
    _, server = asked_of(requests=requests, concurrency=1)
    assert server.asked == [f"question {k}" for k in range(20)]


def test_the_ledger_counts_what_was_asked_and_what_it_took() -> None:
    cached = {"prompt_tokens_details": {"cached_tokens": 8}}
    good = says(answer(usage={"prompt_tokens": 9, "completion_tokens": 2, **cached}))
    ledger = Ledger()
    asked_of(fails(400), requests=questions(5), rule=lambda _: good, ledger=ledger)
    assert (ledger.wanted, ledger.stored, ledger.asked, ledger.failed) == (5, 0, 5, 1)
    assert (ledger.prompt_tokens, ledger.cached_tokens, ledger.completion_tokens) == (36, 32, 8)


def test_a_second_run_asks_nothing() -> None:
    async def run() -> tuple[list[str], Ledger]:
        ledger = Ledger()
        async with misbehaving() as server:
            with Store() as store:
                first = await ask(server, questions(30), store)
                assert await ask(server, questions(30), store, ledger=ledger) == first
                return server.asked, ledger

    asked, ledger = asyncio.run(run())
    assert len(asked) == len(set(asked)) == 30
    assert (ledger.stored, ledger.asked) == (30, 0)


def test_the_next_run_asks_only_what_failed() -> None:
    async def run() -> list[str]:
        async with misbehaving(good(), *[fails(400)] * 3) as server:
            with Store() as store:
                await ask(server, questions(10), store, concurrency=1)
                replies = await ask(server, questions(10), store)
                assert not any(reply.error for reply in replies.values())
                return server.asked[10:]

    assert sorted(asyncio.run(run())) == ["question 1", "question 2", "question 3"]


FAULTS: Sequence[Behaviour] = (
    fails(429),
    fails(500),
    fails(502),
    fails(503),
    resets,
    breaks_off,
    says(b"<html>"),
    says({"choices": []}),
    says({"error": {"code": 502, "message": "upstream"}}),
)


def chaos(seed: int) -> Callable[[Any], Behaviour]:
    """Return a rule by which every tenth request fails, and some prompts always do."""
    chance = random.Random(seed)

    def rule(body: Any) -> Behaviour:
        number = int(body["messages"][-1]["content"].split()[1])
        if number % 100 == 7:
            return fails(400, "maximum context length")
        if number % 100 == 8:
            return fails(500, "always")
        return chance.choice(FAULTS) if chance.random() < 0.1 else echo(body)

    return rule


def ask_a_thousand(rule: Callable[[Any], Behaviour], store: Store) -> tuple[dict[str, Reply], int]:
    """Return the replies, and how many requests it took."""

    async def run() -> tuple[dict[str, Reply], int]:
        async with misbehaving(rule=rule) as server:
            patient = replace(QUICK, attempts=12)
            replies = await ask(server, questions(1_000), store, persistence=patient)
            return replies, len(server.bodies)

    return asyncio.run(run())


def test_every_request_ends_as_one_stored_reply_or_one_named_fault() -> None:
    with Store() as store:
        replies, n_sent = ask_a_thousand(chaos(5), store)
        faults = Counter(r.error.split(": ")[1] for r in replies.values() if r.error)
        assert faults == {"maximum context length": 10, "always (given up after 12 attempts)": 10}
        assert set(store.get(replies)) == {key for key, r in replies.items() if not r.error}
        assert (len(replies), len(store)) == (1_000, 980)
        assert n_sent > 1_100 + 50


def test_a_thousand_replies_are_the_same_with_faults_and_without() -> None:
    with Store() as clean, Store() as store:
        wanted, _ = ask_a_thousand(echo, clean)
        ask_a_thousand(chaos(6), store)
        replies, n_asked_again = ask_a_thousand(echo, store)
        assert n_asked_again == 20
        assert [replies[key].text for key in wanted] == texts([*wanted.values()])


def test_a_server_that_dies_and_comes_back_costs_nothing() -> None:
    async def run() -> list[str]:
        async with misbehaving() as server:
            ledger, died = Ledger(), asyncio.Event()

            def watch(request: Request, reply: Reply) -> None:
                if ledger.asked == 10:
                    died.set()

            with Store() as store:
                options: dict[str, Any] = {"ledger": ledger, "on_reply": watch}
                running = asyncio.create_task(
                    ask(server, questions(60), store, persistence=TIRELESS, **options)
                )
                await died.wait()
                await server.stop()
                while not (ledger.retried or running.done()):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                await server.restart()
                return texts([*(await running).values()])

    assert sorted(asyncio.run(run())) == sorted(f"question {k}" for k in range(60))


# What stops a run


@pytest.mark.parametrize(("status", "named"), [(401, "HTTP_API_KEY"), (404, "acme/rater")])
def test_what_the_user_must_mend_stops_the_run_and_keeps_what_was_answered(
    status: int, named: str
) -> None:
    async def run() -> tuple[int, int]:
        script = [says(answer())] * 20 + [fails(status)] * 99
        async with misbehaving(*script) as server:
            with Store() as store:
                with pytest.raises(Problem) as caught:
                    await ask(server, questions(60), store, concurrency=4)
                assert named in str(caught.value)
                return len(store), len(server.bodies)

    n_stored, n_sent = asyncio.run(run())
    assert n_stored >= 17  # three of the twenty may be under way when the fourth worker stops
    assert n_sent <= 24


def test_a_problem_is_raised_as_it_is_said() -> None:
    with pytest.raises(Problem) as caught:
        asked_of(fails(401, "who?"), requests=questions(1))
    assert "HTTP_API_KEY is set but not accepted" in str(caught.value)


def test_a_run_that_is_cancelled_keeps_what_was_answered_and_asks_the_rest(tmp_path: Path) -> None:
    async def stop_after(n_answers: int, server: Server, store: Store) -> None:
        enough, ledger = asyncio.Event(), Ledger()

        def watch(request: Request, reply: Reply) -> None:
            if ledger.asked == n_answers:
                enough.set()

        running = asyncio.create_task(
            ask(server, questions(200), store, ledger=ledger, on_reply=watch)
        )
        await enough.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    async def run() -> tuple[int, list[str]]:
        async with misbehaving() as server:
            with Store(tmp_path / "r.sqlite") as store:
                await stop_after(50, server, store)
            with Store(tmp_path / "r.sqlite") as store:
                n_stored, n_sent = len(store), len(server.bodies)
                await ask(server, questions(200), store)
                return n_stored, server.asked[n_sent:]

    n_stored, rest = asyncio.run(run())
    assert 50 <= n_stored < 200
    assert len(rest) == len(set(rest)) == 200 - n_stored


def test_the_store_never_holds_the_key(tmp_path: Path) -> None:
    script = [fails(500, KEY), says(answer(f"my key is {KEY}", model=KEY)), fails(400, KEY)]

    async def run() -> dict[str, Reply]:
        async with misbehaving(*script) as server:
            with Store(tmp_path / "r.sqlite") as store:
                return await ask(server, questions(4), store, concurrency=1)

    assert KEY not in repr(asyncio.run(run()))
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"my key is [key]" in content
    assert KEY.encode() not in content


# Pace and pause, on a clock that jumps


class Scripted:
    """A backend that answers or raises by a script, and keeps when it was asked what."""

    identity = "acme"
    is_reproducible = False

    def __init__(self, *script: Exception, concurrency: int = 4, seconds: float = 0.0) -> None:
        self.concurrency = concurrency
        self.starts: list[float] = []
        self.asked: list[str] = []
        self._script = list(script)
        self._seconds = seconds

    async def ask(self, request: Request) -> Reply:
        self.starts.append(asyncio.get_running_loop().time())
        self.asked.append(request.script.messages[-1].content)
        failure = self._script.pop(0) if self._script else None
        await asyncio.sleep(self._seconds)
        if failure is not None:
            raise failure
        return Reply("2", "stop", usage=Usage(1, 0, 1, 0))

    async def close(self) -> None: ...


def starts(backend: Scripted, n: int, gap: float = 0.0, **options: Any) -> list[float]:
    """Return when each request was sent, the first at 0."""
    with Store() as store:
        backends: dict[str, Backend] = {"acme": backend}
        run_at_once(ask_all(questions(n), backends, store, min_interval={"acme": gap}, **options))
    return [round(start - backend.starts[0], 6) for start in backend.starts]


def test_requests_start_no_closer_than_the_interval() -> None:
    assert starts(Scripted(seconds=10, concurrency=4), 6, gap=3) == [0, 3, 6, 9, 12, 15]


def test_the_pace_keeps_the_order() -> None:
    backend = Scripted(seconds=10, concurrency=8)
    starts(backend, 40, gap=3)
    assert backend.asked == [f"question {k}" for k in range(40)]


def test_tries_are_paced_like_requests() -> None:
    backend = Scripted(Retry("busy"), Retry("busy"))
    assert starts(backend, 4, gap=5) == [0, 5, 10, 15, 20, 25]


def test_without_an_interval_all_workers_start_at_once() -> None:
    assert starts(Scripted(seconds=10, concurrency=3), 6) == [0, 0, 0, 10, 10, 10]


def test_pauses_double_up_to_the_longest() -> None:
    backend = Scripted(*[Retry("busy")] * 5)
    persistence = Persistence(attempts=6, first_pause=1, longest_pause=5)
    assert starts(backend, 1, persistence=persistence) == [0, 1, 3, 7, 12, 17]


def test_a_pause_that_is_told_is_not_cut_short() -> None:
    assert starts(Scripted(Retry("busy", after=300)), 1) == [0, 300]


def test_a_failure_of_one_request_does_not_hold_the_others() -> None:
    persistence = Persistence(first_pause=7)
    found = starts(Scripted(Retry("broken"), concurrency=2, seconds=1), 4, persistence=persistence)
    assert found == [0, 0, 1, 2, 8]


def test_what_one_worker_is_told_holds_for_all() -> None:
    backend = Scripted(Retry("slow down", after=30), concurrency=3, seconds=1)
    assert starts(backend, 6) == [0, 0, 0, 31, 31, 31, 32]


def test_a_crowded_endpoint_without_a_time_slows_all_workers_more_and_more() -> None:
    backend = Scripted(*[Retry("slow down", after=0)] * 6, concurrency=2)
    persistence = Persistence(attempts=6, crowded_pause=2)
    assert starts(backend, 2, persistence=persistence) == [0, 0, 2, 2, 6, 6, 14, 14]


class Staggered(Scripted):
    """A backend that takes a second longer for each request than for the one before."""

    async def ask(self, request: Request) -> Reply:
        self._seconds = len(self.starts)
        return await super().ask(request)


def test_a_pause_can_be_made_longer_while_it_is_waited_for() -> None:
    told = [Retry("slow down", after=pause) for pause in (10, 20)]
    assert starts(Staggered(*told, concurrency=2), 2) == [0, 0, 21, 21]


def test_a_short_pause_does_not_end_a_long_one() -> None:
    told = [Retry("slow down", after=pause) for pause in (5, 100, 1)]
    assert starts(Staggered(*told, concurrency=3), 3) == [0, 0, 0, 101, 101, 101]


def test_a_pause_beyond_all_patience_ends_the_run() -> None:
    with pytest.raises(Problem) as caught:
        starts(Scripted(Retry("daily limit", after=86_400)), 1)
    assert "daily limit; the endpoint requests a pause of 86400 s" in str(caught.value)


def test_a_pause_over_http_is_not_shorter_than_told() -> None:
    told, moments = 0.4, list[float]()

    def rule(body: Any) -> Behaviour:
        moments.append(asyncio.get_running_loop().time())
        return fails(429, Retry_After=str(told)) if len(moments) == 1 else echo(body)

    asked_of(requests=questions(1), rule=rule)
    assert moments[1] - moments[0] >= told


def test_two_backends_do_not_hold_each_other() -> None:
    slow, free = Scripted(Retry("slow down", after=30), concurrency=1), Scripted(concurrency=1)
    other = [replace(request, model="other") for request in questions(3)]
    with Store() as store:
        backends: dict[str, Backend] = {"acme": slow, "other": free}
        run_at_once(ask_all([*questions(1), *other], backends, store))
    assert [start - slow.starts[0] for start in free.starts] == [0, 0, 0]


# A limit that is learnt


class Crowded(Scripted):
    """A backend that refuses what exceeds its room, and keeps the most it had at a time."""

    def __init__(self, room: int, limit: int) -> None:
        super().__init__(concurrency=limit, seconds=1)
        self.limiter = Limiter(limit)
        self.room, self.n_inside, self.n_most, self.n_refused = room, 0, 0, 0

    async def ask(self, request: Request) -> Reply:
        self.n_inside += 1
        self.n_most = max(self.n_most, self.n_inside)
        try:
            if self.n_inside > self.room:
                self.n_refused += 1
                raise Retry("slow down", after=0)
            return await super().ask(request)
        finally:
            self.n_inside -= 1


def test_a_run_begins_small_and_reaches_the_limit() -> None:
    backend = Crowded(room=1_000, limit=32)
    at = starts(backend, 400)
    assert [at.count(second) for second in range(5)] == [4, 8, 16, 32, 32]


def test_a_run_settles_near_what_the_endpoint_takes() -> None:
    backend = Crowded(room=20, limit=256)
    assert len(starts(backend, 2_000, persistence=TIRELESS)) == 2_000
    assert 10 <= backend.limiter.permits <= 24
    assert backend.n_most <= 32
    assert backend.n_refused < 150


def test_what_was_learnt_about_an_endpoint_is_kept_for_the_next_round() -> None:
    backend = Crowded(room=1_000, limit=32)
    starts(backend, 100)
    backend.starts.clear()
    assert starts(backend, 100).count(0) == 32


def test_nothing_is_in_use_after_a_run_that_failed() -> None:
    backend = Crowded(room=0, limit=32)
    starts(backend, 9, persistence=replace(QUICK, attempts=2))
    assert (backend.limiter.in_use, backend.limiter.permits) == (0, 1)


# A budget


def spend(backend: Scripted, store: Store, n: int, **limits: Any) -> Ledger:
    """Ask within a budget until it is used up, and return what was counted."""
    ledger, backends = Ledger(), dict[str, Backend](acme=backend)
    with pytest.raises(OutOfBudget):
        run_at_once(ask_all(questions(n), backends, store, ledger=ledger, budget=Budget(**limits)))
    return ledger


def test_a_budget_of_calls_is_used_to_the_last_and_all_is_stored() -> None:
    with Store() as store:
        ledger = spend(Scripted(Retry("busy"), seconds=1), store, 20, calls=10)
        assert (ledger.spent.calls, ledger.asked, len(store)) == (10, 9, 9)


def test_a_budget_of_tokens_waits_for_what_is_under_way_before_it_gives_up() -> None:
    with Store() as store:
        worst = 12  # a question of 10 or 11 bytes, and what a template puts around it
        ledger = spend(Scripted(seconds=1), store, 100, tokens=2 * worst + 20)
        assert 30 < ledger.spent.tokens <= 2 * worst + 20
        assert ledger.asked == len(store) > 10


def test_a_larger_budget_asks_the_rest_and_what_is_stored_costs_nothing() -> None:
    with Store() as store:
        spend(Scripted(), store, 20, calls=12)
        again, ledger = Scripted(), Ledger()
        run_at_once(
            ask_all(questions(20), {"acme": again}, store, ledger=ledger, budget=Budget(calls=8))
        )
        assert (len(again.asked), ledger.spent.calls, len(store)) == (8, 8, 20)


def test_a_budget_holds_over_rounds_that_share_a_ledger() -> None:
    ledger, budget = Ledger(), Budget(calls=12)
    with Store() as store:
        for n in (10, 20):
            rounds = ask_all(
                questions(n), {"acme": Scripted()}, store, ledger=ledger, budget=budget
            )
            with nullcontext() if n == 10 else pytest.raises(OutOfBudget, match="12 calls"):
                run_at_once(rounds)


@pytest.mark.parametrize(
    ("failure", "n_billed"),
    [
        (Retry("reset in the middle of the body"), 4),
        (Retry("HTTP 503", is_free=True), 0),
    ],
)
def test_an_attempt_that_may_have_been_billed_counts_with_its_worst_case(
    failure: Retry, n_billed: int
) -> None:
    ledger = Ledger()
    with Store() as store:
        run_at_once(
            ask_all(
                questions(1),
                {"acme": Scripted(*[failure] * 4)},
                store,
                ledger=ledger,
                budget=Budget(tokens=1000),
                persistence=QUICK,
            )
        )
    assert ledger.spent.calls == 4
    assert ledger.spent.tokens == n_billed * worst_case(questions(1)[0]).tokens


def test_a_problem_of_one_model_loses_no_reply_that_is_under_way() -> None:
    other = [replace(request, model="other") for request in questions(1)]
    slow, broken = Scripted(seconds=5), Scripted(Problem("top up the account"))
    slow.concurrency = 5
    with Store() as store:
        with pytest.raises(Problem, match="top up"):
            run_at_once(ask_all([*questions(9), *other], {"acme": slow, "other": broken}, store))
        assert len(store) == len(slow.asked) == 5


def test_one_who_stops_waiting_for_a_shared_request_stops_nobody_else() -> None:
    async def run() -> tuple[dict[str, Reply], dict[str, Reply]]:
        engine = Engine({"acme": Scripted(seconds=3)}, store)
        sender = asyncio.create_task(engine.ask(questions(2)))
        await asyncio.sleep(0.5)
        waiters = [asyncio.create_task(engine.ask(questions(2))) for _ in range(2)]
        await asyncio.sleep(0.5)
        waiters[0].cancel()
        return await sender, await waiters[1]

    with Store() as store:
        first, second = run_at_once(run())
    assert first == second
    assert len(first) == 2


def test_a_store_that_fails_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> list[object]:
        engine = Engine({"acme": Scripted(seconds=3)}, store)
        both = (engine.ask(questions(2)), engine.ask(questions(2)))
        return list(await asyncio.gather(*both, return_exceptions=True))

    def full(_: object) -> None:
        raise Problem("the disk is full")

    with Store() as store:
        monkeypatch.setattr(store, "put_many", full)
        assert [str(end) for end in run_at_once(run())] == ["the disk is full"] * 2


def test_two_backends_share_a_budget() -> None:
    other = [replace(request, model="other") for request in questions(9)]
    backends: dict[str, Backend] = {"acme": Scripted(seconds=1), "other": Scripted(seconds=2)}
    with Store() as store:
        with pytest.raises(OutOfBudget, match="12 calls of 12"):
            run_at_once(ask_all([*questions(9), *other], backends, store, budget=Budget(calls=12)))
        assert len(store) == 12


# Replies that come together


def test_a_reply_is_stored_before_it_is_handed_on() -> None:
    with Store() as store:

        def watch(request: Request, reply: Reply) -> None:
            assert store.get([request.key])

        backends: dict[str, Backend] = {"acme": Scripted(seconds=1, concurrency=16)}
        run_at_once(ask_all(questions(100), backends, store, on_reply=watch))
        assert len(store) == 100
