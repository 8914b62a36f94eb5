"""One model behind several base URLs: groups keep together, a dead replica's groups move."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipmeter.ask.engine import Engine
from flipmeter.ask.names import identity_of, open_backend
from flipmeter.ask.pool import PERSISTENCE, Ledger
from flipmeter.ask.replicas import WORTH_HALVING, Fleet, Rota
from flipmeter.ask.store import Store
from flipmeter.errors import Problem, Unreachable
from flipmeter.run.folder import Run
from flipmeter.run.perform import perform
from flipmeter.run.progress import Terms
from flipmeter.study.file import Study, read_study
from flipmeter.types import Head, Message, Model, Reply, Request, Script
from misbehaving import MODEL, QUICK, Process, Server, fails, rates, serving
from misbehaving import tidy as tidy

pytestmark = pytest.mark.usefixtures("tidy")

NOWHERE = "http://127.0.0.1:9/v1"
CONCURRENCY = 4


def fleet_at(*urls: str, **fields: Any) -> Model:
    return Model(f"http/{MODEL}", base_url=urls, concurrency=CONCURRENCY, **fields)


def group(number: int, n_requests: int) -> list[Request]:
    """Return requests behind one head."""
    head = f"Head {number}. "
    texts = [f"{head}Item {n}" for n in range(n_requests)]
    scripts = [Script.of([Message("user", text)], len(head)) for text in texts]
    return [Request(identity_of(fleet_at("http://a", "http://b")), one) for one in scripts]


def groups(n_heads: int, n_each: int) -> list[Request]:
    """Return requests behind some heads, those behind one together."""
    return [one for number in range(n_heads) for one in group(number, n_each)]


@contextmanager
def two_servers() -> Iterator[tuple[Server, Server]]:
    with ExitStack() as stack:
        yield stack.enter_context(serving(rates)), stack.enter_context(serving(rates))


def ask(fleet: Fleet, *rounds: list[Request], **options: Any) -> dict[str, Reply]:
    async def go() -> dict[str, Reply]:
        engine = Engine({fleet.identity: fleet}, Store(), persistence=QUICK, **options)
        replies: dict[str, Reply] = {}
        try:
            for requests in rounds:
                replies |= await engine.ask(requests)
        finally:
            await fleet.close()
        return replies

    return asyncio.run(go())


def opened(*urls: str) -> Fleet:
    fleet = open_backend(fleet_at(*urls))
    assert isinstance(fleet, Fleet)
    return fleet


def heads(server: Server) -> set[str]:
    return {text.partition("Item")[0] for text in server.asked}


# Who they are


def test_a_key_knows_neither_the_replicas_nor_their_number() -> None:
    fleets = [("http://a", "http://b"), ("http://c", "http://b", "http://d"), ("http://e",)]
    assert len({identity_of(fleet_at(*urls)) for urls in fleets}) == 1
    alone = Model(f"http/{MODEL}", base_url="http://a")
    assert identity_of(alone) != identity_of(fleet_at("http://a"))


def test_a_study_names_replicas_in_a_list() -> None:
    entry = {"model": f"http/{MODEL}", "base_url": ["http://a/v1", "http://b/v1"]}
    study = read_study({"models": [entry], "datasets": ["reviews"]})
    (rater,) = study.raters()
    assert rater.model.base_url == ("http://a/v1", "http://b/v1")
    assert read_study(study.model_dump(mode="json")).raters() == [rater]


@pytest.mark.parametrize(
    ("urls", "named"),
    [
        (("http://a/v1", "http://b/v1", "http://a/v1/"), "lists http://a/v1 twice"),
        ((), "lists nothing"),
        (("http://a/v1", "ftp://b"), "must be http"),
    ],
)
def test_a_list_that_cannot_be_meant_is_refused(urls: tuple[str, ...], named: str) -> None:
    with pytest.raises(Problem, match=named):
        open_backend(fleet_at(*urls))


# Who is asked what


def test_what_shares_a_head_keeps_to_one_replica_and_all_have_work() -> None:
    with two_servers() as (a, b):
        replies = ask(opened(a.url, b.url), groups(16, 6))  # too few in each to be halved
    assert len(replies) == 96
    assert not heads(a) & heads(b)
    assert heads(a)
    assert heads(b)
    assert Counter([*a.asked, *b.asked]).most_common(1)[0][1] == 1


def test_a_replica_takes_first_what_it_knows_then_what_nobody_does_then_the_rest() -> None:
    requests = groups(4, 2)
    first, second, third, fourth = dict.fromkeys(request.script.head for request in requests)
    fleet = opened("http://a", "http://b")
    fleet.homes |= {first: 0, second: 0, fourth: 1}
    rota = Rota(requests, fleet)
    order = [one.script.head for one in (rota.next(1) for _ in requests) if one]
    assert list(dict.fromkeys(order)) == [fourth, third, second, first]
    assert set(fleet.homes.values()) == {1}


def test_one_head_alone_is_shared_so_that_nobody_is_idle() -> None:
    with two_servers() as (a, b):
        ask(opened(a.url, b.url), groups(1, 60))
    assert len(a.asked) + len(b.asked) == 60
    assert min(len(a.asked), len(b.asked)) >= 20


# Who is gone


def test_a_replica_that_is_not_there_is_done_without() -> None:
    ledger = Ledger()
    with serving(rates) as server:
        replies = ask(opened(NOWHERE, server.url), groups(5, 9), ledger=ledger)
        assert len(server.asked) == len(set(server.asked)) == len(replies) == 45
    assert (ledger.asked, ledger.failed) == (45, 0)


def test_when_all_are_gone_the_last_is_named() -> None:
    with pytest.raises(Problem, match=r"127\.0\.0\.1.*is the server running"):
        ask(opened(NOWHERE, "http://127.0.0.1:19/v1"), groups(3, 4))


def test_a_problem_at_one_replica_ends_the_run_for_all() -> None:
    with serving(rates) as good, serving(lambda _: fails(401)) as bad:
        with pytest.raises(Problem, match="HTTP_API_KEY is set but not accepted"):
            ask(opened(good.url, bad.url), groups(6, 50))
        assert len(good.asked) < 300


# The laws of a rota


@dataclass
class Play:
    """Replicas that take, answer, go away and come back by chance, and what was seen of it."""

    requests: list[Request]
    rota: Rota
    chance: random.Random
    share_lost: float
    under_way: list[tuple[int, Request]] = field(default_factory=list)
    answered: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, sizes: list[int], n_replicas: int, seed: int, share_lost: float = 0.0) -> Play:
        requests = [one for n, size in enumerate(sizes) for one in group(n, size)]
        fleet = opened(*(f"http://r{n}" for n in range(n_replicas)))
        return cls(requests, Rota(requests, fleet), random.Random(seed), share_lost)

    @property
    def there(self) -> set[int]:
        return self.rota.fleet.there

    def taken(self) -> Iterator[tuple[int, Request | None]]:
        """Yield who finds what, or nothing, until everything is answered."""
        while self.rota.n_open:
            place, luck = self.chance.choice(range(len(self.rota.fleet.replicas))), self.chance
            if luck.random() < self.share_lost:
                self.leave(place)
            elif luck.random() < self.share_lost:
                self.there.add(place)
            elif self.under_way and luck.random() < 0.5:
                self._answer()
            elif place in self.there:
                request = self.rota.next(place)
                yield place, request
                self.under_way += [(place, request)] if request else []

    def leave(self, place: int) -> None:
        if self.rota.fleet.lose(place, Unreachable("gone")):
            for one in [one for one in self.under_way if one[0] == place]:
                self.under_way.remove(one)
                self.rota.put_back(one[1])

    def _answer(self) -> None:
        _, request = self.under_way.pop(self.chance.randrange(len(self.under_way)))
        self.answered[request.key] += 1
        self.rota.done(request)

    def sizes(self) -> Counter[Head]:
        return Counter(one.script.head for one in self.requests)

    def n_left(self) -> Counter[Head]:
        """Return what nobody was asked yet, by head."""
        asked = {*self.answered, *(request.key for _, request in self.under_way)}
        return Counter(one.script.head for one in self.requests if one.key not in asked)


SIZES, REPLICAS, SEEDS = st.lists(st.integers(1, 40), max_size=8), st.integers(1, 4), st.integers()


@given(SIZES, REPLICAS, SEEDS, st.sampled_from([0.0, 0.02, 0.2]))
def test_every_request_is_answered_once_and_under_way_at_one_who_is_there(
    sizes: list[int], n_replicas: int, seed: int, share_lost: float
) -> None:
    play = Play.of(sizes, n_replicas, seed, share_lost)
    for _, request in play.taken():
        assert request not in [other for _, other in play.under_way]
        assert play.there >= {place for place, _ in play.under_way}
    assert play.answered == Counter(one.key for one in play.requests)


@given(SIZES, REPLICAS, SEEDS)
def test_a_group_stays_where_it_was_while_any_is_not_begun(
    sizes: list[int], n_replicas: int, seed: int
) -> None:
    play = Play.of(sizes, n_replicas, seed)
    begun: dict[Head, int] = {}
    for place, request in play.taken():
        if request and begun.setdefault(request.script.head, place) != place:
            assert set(begun) == set(play.sizes())


@given(SIZES, REPLICAS, SEEDS, st.sampled_from([0.0, 0.02, 0.2]))
def test_nobody_is_idle_while_a_group_is_not_begun_or_one_has_much_left(
    sizes: list[int], n_replicas: int, seed: int, share_lost: float
) -> None:
    play = Play.of(sizes, n_replicas, seed, share_lost)
    for _, request in play.taken():
        if request is None:
            left = play.n_left()
            assert left.total() <= (WORTH_HALVING - 1) * (len(play.there) - 1)
            assert share_lost or all(left[head] < n for head, n in play.sizes().items())


@given(SIZES, st.integers(2, 4), SEEDS, st.integers(0, 60))
def test_one_that_is_gone_is_asked_nothing_more_and_others_answer_its_groups(
    sizes: list[int], n_replicas: int, seed: int, n_before: int
) -> None:
    play = Play.of(sizes, n_replicas, seed)
    for n_seen, (place, _) in enumerate(play.taken()):
        assert n_seen <= n_before or place != 0
        if n_seen == n_before:
            play.leave(0)
    assert play.answered == Counter(one.key for one in play.requests)


@given(SIZES, SEEDS)
def test_one_replica_alone_is_asked_in_the_order_given(sizes: list[int], seed: int) -> None:
    play = Play.of(sizes, 1, seed)
    assert [request for _, request in play.taken() if request] == play.requests


def test_what_is_returned_joins_the_rest_of_its_group() -> None:
    requests, fleet = groups(2, 3), opened("http://a", "http://b")
    rota = Rota(requests, fleet)
    first = rota.next(0)
    assert first
    assert fleet.lose(0, Unreachable("gone"))
    rota.put_back(first)
    assert [rota.next(1) for _ in requests] == requests


def test_heads_that_are_forgotten_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flipmeter.ask.replicas.MOST_HOMES", 2)
    rota = Rota(groups(5, 1), opened("http://a", "http://b"))
    for _ in range(5):
        rota.next(0)
        assert len(rota.fleet.homes) <= 2


# Whole runs


def study_at(urls: str | list[str], size: int = 60) -> Study:
    limits = {"concurrency": CONCURRENCY, "timeout": 5.0}
    model = {"model": f"http/{MODEL}", "name": "rater", "base_url": urls, **limits}
    fixed = {"datasets": ["reviews"], "repeats": 1, "base": {"shots": 1}, "test_size": size}
    return read_study({"models": [model], **fixed})


def table(run: Run) -> list[tuple[object, ...]]:
    return run.decisions.drop("seconds").rows()


def test_two_replicas_give_the_table_of_one(tmp_path: Path) -> None:
    with two_servers() as (a, b), Store() as store:
        run = perform(study_at([a.url, b.url]), tmp_path / "two", store)
        n_asked = len(a.asked) + len(b.asked)
        again = Ledger()
        perform(study_at([b.url]), tmp_path / "again", store, Terms(again))
        alone = perform(study_at(a.url), tmp_path / "one", Store())
    assert n_asked == 420
    assert again.asked == 0
    assert table(run) == table(alone)
    assert run.estimates.equals(alone.estimates)


def test_a_replica_killed_in_the_middle_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"first_pause": 0.01, "longest_pause": 0.05}.items():
        monkeypatch.setitem(vars(PERSISTENCE), name, value)
    logs = [tmp_path / "a", tmp_path / "b"]
    for log in logs:
        log.touch()
    ledger = Ledger()
    with Process(logs[0], latency=0.005) as a, Process(logs[1], latency=0.005) as b:

        def kill_later() -> None:
            while len(a.lines()) < 60:
                time.sleep(0.005)
            a.kill()

        killer = threading.Thread(target=kill_later)
        killer.start()
        with Store(tmp_path / "replies.sqlite") as store:
            run = perform(study_at([a.url, b.url]), tmp_path / "run", store, Terms(ledger))
            stored = [n for (n,) in store.read("SELECT prompt_tokens FROM replies")]
        killer.join()
        answers = Counter(number for one in (a, b) for is_good, number in one.lines() if is_good)
        alone = perform(study_at(b.url), tmp_path / "one", Store())
    assert (ledger.asked, ledger.failed, len(stored)) == (420, 0, 420)
    assert set(stored) == set(answers)
    # Only what the dead one had under way, or had written and not yet sent, is asked again.
    assert sum(n - 1 for n in answers.values()) <= 2 * CONCURRENCY
    assert len(a.lines()) < 150
    assert table(run) == table(alone)
