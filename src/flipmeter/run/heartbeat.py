"""A run in progress -> progress.json: its state once a second, for any process to read."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import polars as pl
from pydantic import TypeAdapter, ValidationError

from flipmeter.ask.limits import Price
from flipmeter.ask.pool import Ledger, ServerGate
from flipmeter.documents import JSON_BYTES, read_plain
from flipmeter.errors import Problem
from flipmeter.files import discard, make_folder, write_text
from flipmeter.process import is_running
from flipmeter.run.progress import InterimRate, Listener
from flipmeter.types import canonical_json

PROGRESS = "progress.json"
EVERY = 1.0
"""Seconds between two beats. A run that is over before the first one leaves no trace."""
RECENT = 10
"""Number of beats for the rate."""
MOST_RATES = 40
"""Contrasts whose rate so far a beat tells."""
SILENT = 20.0
"""A process that has not been heard of for so many seconds is taken for dead."""


@dataclass(frozen=True)
class Door:
    """The way to one server: how many requests are under way and may be, and what holds them up."""

    server: str
    in_use: int
    permits: int
    limit: int
    was_crowded: bool
    pause: float


@dataclass(frozen=True)
class Beat:
    """The last status of a running process; `usd` is None if no model has a price.

    `planned` grows while a run finds out what it needs to ask. Decisions, and the faults among
    them, are counted lot by lot; `rates` and `unread` replies as they arrive, if the run is
    watched. Times are seconds since 1970.
    """

    study: str
    pid: int
    host: str
    started: float
    seen: float
    planned: int
    stored: int
    asked: int
    failed: int
    retried: int
    per_second: float
    prompt_tokens: int
    completion_tokens: int
    usd: float | None
    is_dearest: bool
    decided: int
    faults: dict[str, int]
    doors: list[Door]
    rates: list[InterimRate] = field(default_factory=list)
    unread: dict[str, int] = field(default_factory=dict)

    @property
    def is_alive(self) -> bool:
        """Say whether the process is there still, as far as one can tell from here."""
        if time.time() - self.seen > SILENT:
            return False
        return self.host != platform.node() or is_running(self.pid)


_BEAT = TypeAdapter(Beat)


def read_beat(folder: Path) -> Beat | None:
    """The last heartbeat of a run in progress, None if none is readable."""
    try:
        return _BEAT.validate_json(read_plain(folder / PROGRESS, JSON_BYTES))
    except (OSError, ValidationError, Problem):
        return None


@dataclass
class Heartbeat:
    """Leaves a beat in a run folder once a second while the run is on; only a kill leaves the last.

    It looks at what is counted anyway, from a thread of its own: a request costs nothing more.
    """

    folder: Path
    study: str
    ledger: Ledger
    prices: Collection[Price] = ()
    listener: Listener = field(default_factory=Listener)
    decided: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    gates: Mapping[str, ServerGate] = field(default_factory=dict)

    def settle(self, decisions: pl.DataFrame) -> None:
        """Count a lot of decisions and the faults among them."""
        self.decided += len(decisions)
        self.faults = self.faults + Counter(
            fault for fault in decisions["fault"] if fault
        )  # a new one: the thread reads it

    def __enter__(self) -> Heartbeat:
        self._started = time.time()
        self._recent: deque[tuple[float, int]] = deque(maxlen=RECENT)
        self._recent.append((time.monotonic(), self.ledger.asked))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="pulse", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        with suppress(OSError, Problem):
            discard(self.folder / PROGRESS)
            self.folder.rmdir()  # not if there is anything in it

    def _beat_on(self) -> None:
        while not self._ended.wait(EVERY):
            with suppress(OSError, Problem):  # a full disk is no reason to stop asking
                make_folder(self.folder)
                write_text(self.folder / PROGRESS, canonical_json(asdict(self._beat())))

    def _beat(self) -> Beat:
        ledger, rates = self.ledger, list[InterimRate]()
        with suppress(RuntimeError):  # what is counted grew meanwhile: the next beat tells
            rates = self.listener.interim.rates(MOST_RATES)
        now = time.monotonic()
        gates = [(name, one.limiter, one.next_start) for name, one in dict(self.gates).items()]
        self._recent.append((now, ledger.asked))
        (begin, before), (end, after) = self._recent[0], self._recent[-1]
        prices = [(price.prompt, price.completion) for price in self.prices]
        return Beat(
            study=self.study,
            pid=os.getpid(),
            host=platform.node(),
            started=self._started,
            seen=time.time(),
            planned=max(self.listener.planned, ledger.wanted),
            stored=ledger.stored,
            asked=ledger.asked,
            failed=ledger.failed,
            retried=ledger.retried,
            per_second=(after - before) / max(end - begin, 1e-9),
            prompt_tokens=ledger.prompt_tokens,
            completion_tokens=ledger.completion_tokens,
            usd=self._usd(),
            is_dearest=len(set(prices)) > 1,
            decided=self.decided,
            faults=dict(self.faults),
            doors=[
                Door(server, at.in_use, at.permits, at.limit, at.was_crowded, max(0.0, start - now))
                for server, at, start in gates
            ],
            rates=rates,
            unread=dict(self.listener.interim.faults),
        )

    def _usd(self) -> float | None:
        """The cost of the replies, all at the dearest price where models differ."""
        if not self.prices:
            return None
        dearest = Price(
            max(price.prompt for price in self.prices),
            max(price.completion for price in self.prices),
        )
        return dearest.of(self.ledger.prompt_tokens, self.ledger.completion_tokens)
