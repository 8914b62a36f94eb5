"""A signal to end -> a drain: nothing more is sent, and what is under way is still heard."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import FrameType
from typing import Any

from flipmeter.errors import Stopped

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE = 120.0
"""Seconds for which what is under way is waited for."""
SAME = 1.0
"""Signals within so many seconds are one: a terminal that is closed sends SIGHUP twice."""


class Drain:
    """Tells those who send to stop sending."""

    def __init__(self, *, is_for_a_command: bool = False) -> None:
        self.is_for_a_command = is_for_a_command
        self.begun = 0.0
        self._senders: dict[object, Callable[[], object]] = {}

    @property
    def is_begun(self) -> bool:
        return self.begun > 0

    @property
    def is_sending(self) -> bool:
        return bool(self._senders)

    def begin(self) -> None:
        self.begun = self.begun or time.monotonic()
        for tell in list(self._senders.values()):
            tell()

    @contextmanager
    def telling(self, tell: Callable[[], object]) -> Iterator[None]:
        """Call a function when the drain begins, at once if it has begun."""
        place = object()
        self._senders[place] = tell
        try:
            if self.is_begun:
                tell()
            yield
        finally:
            del self._senders[place]


_CURRENT: ContextVar[Drain | None] = ContextVar("drain", default=None)
_LISTENING: list[Drain] = []
_BEFORE: dict[signal.Signals, Any] = {}


def current_drain() -> Drain:
    """The drain of whoever called us; one that never begins if there is none."""
    return _CURRENT.get() or Drain()


@contextmanager
def draining(*, is_for_a_command: bool = False) -> Iterator[Drain]:
    """Let a signal that would end this process drain it first; a second one ends it.

    Whoever is inside shares the drain. Handlers that the program has set itself stay as they are.
    """
    if (outer := _CURRENT.get()) is not None:
        yield outer
        return
    drain = Drain(is_for_a_command=is_for_a_command)
    token = _CURRENT.set(drain)
    _LISTENING.append(drain)
    try:
        _set_signal_handlers()
        yield drain
    finally:
        _LISTENING.remove(drain)
        if not _LISTENING:
            _listen_no_more()
        _CURRENT.reset(token)


def _set_signal_handlers() -> None:
    """Set handlers where Python or the system have theirs; only the main thread may."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in SIGNALS:
        known = signal.getsignal(number)
        if known in (signal.SIG_DFL, signal.default_int_handler):
            _BEFORE[number] = known
            signal.signal(number, _on_signal)


def _listen_no_more() -> None:
    if threading.current_thread() is threading.main_thread():
        while _BEFORE:
            number, handler = _BEFORE.popitem()
            if signal.getsignal(number) is _on_signal:
                signal.signal(number, handler)


def _on_signal(number: int, frame: FrameType | None) -> None:
    name = signal.Signals(number).name
    drains = list(_LISTENING)
    if began := max((drain.begun for drain in drains), default=0.0):
        if time.monotonic() - began > SAME:
            _end_process(number, any(drain.is_for_a_command for drain in drains))
        return
    if not any(drain.is_sending for drain in drains):
        raise Stopped(name)
    for drain in drains:
        drain.begin()
    _print_prefixed(
        f"{name}: no more requests are sent; waiting for open ones, at most {GRACE:g} s (press "
        f"again to stop immediately)"
    )


def _end_process(number: int, is_command: bool) -> None:
    """End now: a command leaves as the signal would have it, a program gets an interrupt."""
    if not is_command:
        raise Stopped(signal.Signals(number).name)
    if sys.stderr is not None and sys.stderr.isatty():
        _print_stderr("\x1b[?25h")  # the cursor that a progress bar hides
    _print_prefixed("stopped immediately: open requests are lost, everything stored is kept")
    os._exit(128 + number)


def _print_prefixed(text: str) -> None:
    _print_stderr(f"flipmeter: {text}")


def _print_stderr(text: str) -> None:
    if sys.stderr is not None:
        with suppress(OSError):  # of a program whose terminal is gone
            print(text, file=sys.stderr, flush=True)
