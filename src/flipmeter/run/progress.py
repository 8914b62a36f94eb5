"""A progress bar with speed, time left and the flips so far, drawn twice a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

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

from flipmeter.base.printed import PATIENCE, about_time, plain_console, unfailing, without_controls
from flipmeter.model import Ledger
from flipmeter.run.interim import Interim, Listener
from flipmeter.types import Call, Condition, Reply, Request

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
