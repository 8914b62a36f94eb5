"""Replies as they come -> progress, not a verdict: how many pairs differ so far, and a bar."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from flipmeter.ask.limits import Budget
from flipmeter.ask.pool import Ledger
from flipmeter.printed import PATIENCE, about_time, plain_console, unfailing, without_controls
from flipmeter.prompt.parsing import parse
from flipmeter.types import Call, Condition, Contrast, Reply, Request

FEWEST = 5
"""Pairs before a rate is worth a word."""


@dataclass(frozen=True)
class InterimRate:
    """k of n items differ so far, each counted once; the 95 % interval holds at any time."""

    rater: str
    dataset: str
    level: str
    contrast: str
    k: int
    n: int
    low: float
    high: float


@dataclass
class Interim:
    """Counts the pairs of answers that differ, of raters that ask once for each answer.

    `known` are replies, by key, that came before anything was expected.
    """

    contrasts: Sequence[Contrast] = ()
    known: Mapping[str, Reply] = field(default_factory=dict)
    _lot: Sequence[Condition] = ()
    _waiting: dict[str, list[tuple[Condition, Call]]] = field(default_factory=dict)
    _ranks: dict[tuple[str, ...], int] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    _compared: dict[tuple[str, str, str], dict[str, int]] = field(default_factory=dict)
    _firsts: dict[tuple[str, str, str, str], list[int]] = field(default_factory=dict)

    def expect(self, conditions: Sequence[Condition], calls: Iterable[Call]) -> None:
        """Note what will be asked next; both answers of a pair are asked in one lot."""
        if conditions is not self._lot:
            self._lot = conditions
            self._waiting.clear()
            self._ranks.clear()
        for call in calls:
            condition, ask = conditions[call.condition], call.ask
            is_answer = condition.rater.pipeline == "pointwise" and not call.draw and not ask.part
            if is_answer and not ask.view.repeat and ask.item.role == "test":
                self._waiting.setdefault(call.request.key, []).append((condition, call))
                if call.request.key in self.known:
                    self.hear(call.request, self.known[call.request.key])

    def hear(self, request: Request, reply: Reply) -> None:
        """Count the pairs that a reply completes."""
        for condition, call in self._waiting.pop(request.key, ()):
            answer = parse(reply, call.prompt, condition.rater.extract)
            if answer.fault:
                self.faults[answer.fault] += 1
            if answer.rank:
                self._count(condition, call, answer.rank)

    def _count(self, condition: Condition, call: Call, rank: int) -> None:
        view, item = call.ask.view.name, call.ask.item
        whose = condition.rater.name, condition.dataset, condition.level
        where = (*whose, str(condition.seed), item.id)
        self._ranks[*where, view] = rank
        for number, contrast in enumerate(self.contrasts):
            if not contrast.is_pair or view not in contrast.views:
                continue
            (other,) = (name for name in contrast.views if name != view)
            before = self._ranks.get((*where, other))
            # An item counts once for a contrast; a bit for each contrast remembers that.
            compared, unit = self._compared.setdefault(whose, {}), item.cluster or item.id
            if before is None or compared.get(unit, 0) >> number & 1:
                continue
            compared[unit] = compared.get(unit, 0) | 1 << number
            count = self._firsts.setdefault((*whose, contrast.name), [0, 0])
            count[1] += 1  # before the other: a thread reads both
            count[0] += before != rank

    def _highest_first(self) -> list[tuple[tuple[str, str, str, str], int, int]]:
        known = [(whose, k, n) for whose, (k, n) in [*self._firsts.items()] if n >= FEWEST]
        return sorted(known, key=lambda one: -one[1] / one[2])

    def rates(self, most: int) -> list[InterimRate]:
        """The interim rates of every contrast, the highest first, at most so many.

        An item counts once, with the seed that was answered first: intervals need independence.
        """
        from flipmeter.stats.sequential import share_bounds  # takes a while

        counts = self._highest_first()[:most]
        return [InterimRate(*whose, k, n, *share_bounds(k, n)) for whose, k, n in counts]

    @property
    def text(self) -> str:
        """The contrast that differs most so far, "" while too little is known."""
        known = self._highest_first()
        if not known:
            return ""
        worst, k, n = known[0]
        most = "up to " if len({whose[:3] for whose, _, _ in known}) > 1 else ""
        return f"{worst[-1]}: {most}{k:,} of {n:,} differ so far"


class Listener:
    """Hears what happens while models are asked; this one keeps what is planned, and is silent."""

    planned = 0
    """Number of distinct requests that are needed, as far as is known."""

    def __init__(self) -> None:
        self.interim = Interim()

    def on_plan(self, n_requests: int) -> None:
        self.planned = n_requests

    def on_calls(self, conditions: Sequence[Condition], calls: Sequence[Call]) -> None:
        """The calls of the next round; a listener that shows interim rates expects them."""

    def on_reply(self, request: Request, reply: Reply) -> None:
        self.interim.hear(request, reply)

    def on_fetch(self, so_far: int, in_all: int) -> None:
        """Bytes of weights that are here."""

    def on_test(self, so_far: int, in_all: int) -> None:
        """Requests of the test of an engine."""

    def on_note(self, text: str) -> None:
        """A note for the user while the run goes on."""


@dataclass(frozen=True)
class Terms:
    """The terms on which models are asked: what is counted, what it may cost, who listens, where.

    `on` names a Ray cluster whose actors answer; nothing that is measured depends on it. A rater
    whose first replies make no sense is stopped there, unless all are asked `anyway`.
    """

    ledger: Ledger = field(default_factory=Ledger)
    budget: Budget | None = None
    listener: Listener = field(default_factory=Listener)
    on: str | None = None
    anyway: bool = False


QUIET_SECONDS = 30.0
"""Interval between lines if there is no terminal."""
FIRST = 5
"""Replies before the time left can be told: the first may have waited for a model to load."""


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:.1f}/s" if speed else "-/s")


class _Flips(ProgressColumn):
    def __init__(self, interim: Interim) -> None:
        super().__init__()
        self._interim = interim

    def render(self, task: Task) -> Text:
        return Text(without_controls(self._interim.text))


class Meter(Listener):
    """Show on stderr what a ledger counts."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger
        ledger.on_wait = self.on_note
        self._stream = unfailing(sys.stderr, PATIENCE)
        self._is_terminal = self._stream.isatty()
        self._last_line = self._started = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            _Speed(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            _Flips(self.interim),
            console=plain_console(file=self._stream),
            refresh_per_second=2,
            disable=not self._is_terminal,
        )
        self._asking = self._bar.add_task("asking", total=None, visible=False)
        self._fetching = self._bar.add_task("fetching weights", total=None, visible=False)
        self._testing = self._bar.add_task("testing the engine", total=None, visible=False)

    def on_plan(self, n_requests: int) -> None:
        super().on_plan(n_requests)
        self._bar.update(self._asking, total=n_requests, visible=True)

    def on_calls(self, conditions: Sequence[Condition], calls: Sequence[Call]) -> None:
        self.interim.expect(conditions, calls)

    def on_fetch(self, so_far: int, in_all: int) -> None:
        self._started = time.monotonic()  # the speed is that of asking alone
        self._bar.update(self._fetching, completed=so_far, total=in_all, visible=so_far < in_all)
        self._line(f"fetching weights: {so_far / 1e6:.0f} of {in_all / 1e6:.0f} MB")

    def on_test(self, so_far: int, in_all: int) -> None:
        self._started = time.monotonic()
        self._bar.update(self._testing, completed=so_far, total=in_all, visible=so_far < in_all)
        self._line(f"testing whether replies are reproducible: {so_far} of {in_all}")

    def on_reply(self, request: Request, reply: Reply) -> None:
        super().on_reply(request, reply)
        done = self._ledger.stored + self._ledger.asked
        self._bar.update(self._asking, completed=done)
        if self._is_line_due:
            self._line("; ".join(filter(None, (self._progress(done), self.interim.text))))

    def _progress(self, done: int) -> str:
        """Progress of the run, and its estimated end."""
        in_all = max(self.planned, self._ledger.wanted)
        speed = self._ledger.asked / max(time.monotonic() - self._started, 1e-9)
        told = f"asking: {done:,} of {in_all:,}, {speed:.1f}/s"
        if self._ledger.asked < FIRST:
            return told
        return f"{told}, about {about_time(max(in_all - done, 0) / speed)} left"

    def on_note(self, text: str) -> None:
        said = f"flipmeter: {without_controls(text)}"
        self._bar.console.print(said, soft_wrap=True)

    @property
    def _is_line_due(self) -> bool:
        return not self._is_terminal and time.monotonic() - self._last_line > QUIET_SECONDS

    def _line(self, text: str) -> None:
        if self._is_line_due:
            self._last_line = time.monotonic()
            print(f"flipmeter: {without_controls(text)}", file=self._stream, flush=True)

    def __enter__(self) -> Meter:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()
