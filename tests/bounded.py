"""What a hostile file may cost: seconds of CPU and megabytes of memory, in this process."""

from __future__ import annotations

import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

CPU_SECONDS = 20.0
MEGABYTES = 200


def peak() -> float:
    """The most memory that this process ever had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _late(_: int, __: FrameType | None) -> None:
    pytest.fail(f"took more than {CPU_SECONDS:g} s of CPU")


@contextmanager
def bounded() -> Iterator[None]:
    """Fail if what is done inside takes too long, or more memory than this process ever had."""
    before, is_main = peak(), threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGVTALRM, _late) if is_main else None
    if is_main:
        signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
    try:
        yield
    finally:
        if is_main:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, handler)
    assert peak() - before < MEGABYTES
