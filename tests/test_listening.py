"""A time limit that counts time in which the loop could hear."""

from __future__ import annotations

import asyncio
import time

import pytest

from flipmeter import loops as listening_module
from flipmeter.loops import listening


def stand_still() -> None:
    time.sleep(1.2)


def test_time_in_which_a_loop_stands_still_hardly_counts() -> None:
    async def slow() -> str:
        async with listening(0.8):
            stand_still()
            await asyncio.sleep(0.2)  # as an answer of many parts takes after that
            return "heard"

    assert asyncio.run(slow()) == "heard"


def test_what_was_there_before_the_time_is_up_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening_module, "PARTS", 1)

    async def late() -> str:
        async with listening(0.1):
            stand_still()
            for _ in range(10):  # a loop takes some turns to hand on what it reads
                await asyncio.sleep(0)
            return "heard"

    assert asyncio.run(late()) == "heard"


def test_a_limit_ends_what_does_not_come() -> None:
    async def never() -> None:
        async with listening(0.1):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        asyncio.run(never())
