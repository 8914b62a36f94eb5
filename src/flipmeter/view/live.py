"""Beat -> texts: a run in progress in words, the same for a page and for the script in it."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime
from typing import Any

from flipmeter.base.printed import about_time
from flipmeter.report.format import interval
from flipmeter.run.interim import InterimRate
from flipmeter.run.record.heartbeat import Beat, Door

NOTHING_YET = ("no pair of answers yet", "", "", "")


def describe(beat: Beat) -> dict[str, Any]:
    """Put a beat into words; `facts` are (id, title, text)."""
    done = beat.stored + beat.asked
    return {
        "is_alive": beat.is_alive,
        "state": _state(beat),
        "done": done,
        "planned": max(beat.planned, done, 1),
        "facts": [
            ("replies", "Replies", f"{done:,} of {beat.planned:,}, {beat.stored:,} were stored"),
            ("rate", "Rate", _rate(beat, done)),
            ("cost", "Cost", _cost(beat)),
            ("errors", "Errors", f"{beat.failed:,} after retries, {beat.retried:,} retried"),
            ("decided", "Decided", f"{beat.decided:,} decisions, batch by batch"),
            ("faults", "Faults", _faults(beat)),
        ],
        "doors": [_door(door) for door in beat.doors],
        "rates": [_interim(one) for one in beat.rates] or [NOTHING_YET] * beat.is_alive,
    }


def _state(beat: Beat) -> str:
    if beat.is_alive:
        return f"running since {clock(beat.started)}"
    return (
        f"killed: last heartbeat at {clock(beat.seen)}; replies so far are stored; run it again "
        f"to continue"
    )


def _rate(beat: Beat, done: int) -> str:
    if not beat.is_alive:
        return "–"
    if not beat.per_second:
        return "no reply in the last seconds"
    left = max(beat.planned - done, 0) / beat.per_second
    return f"{beat.per_second:,.1f} per second, {about_time(left)} left"


def _cost(beat: Beat) -> str:
    tokens = f"{beat.prompt_tokens:,} + {beat.completion_tokens:,} tokens"
    if beat.usd is None:
        return f"{tokens}; no price set"
    most = "at most " if beat.is_dearest else ""
    left = max(beat.planned - beat.stored - beat.asked, 0)
    if not beat.is_alive or not beat.asked or not left:
        return f"{tokens}; {most}${beat.usd:,.4f}"
    at_end = beat.usd * (1 + left / beat.asked)
    return f"{tokens}; {most}${beat.usd:,.4f} so far, {most or 'about '}${at_end:,.4f} at the end"


def _faults(beat: Beat) -> str:
    decided, heard = Counter(beat.faults), Counter(beat.unread)
    known = heard if heard.total() > decided.total() else decided
    kinds = ", ".join(f"{n:,} {fault}" for fault, n in sorted(known.items()))
    return kinds or "none so far"


def _interim(rate: InterimRate) -> tuple[str, ...]:
    whose = " · ".join(part for part in (rate.rater, rate.level, rate.dataset) if part)
    share = {"value": rate.k / rate.n, "low": rate.low, "high": rate.high}
    return whose, rate.contrast, interval(share), f"{rate.k:,} of {rate.n:,}"


def _door(door: Door) -> tuple[str, ...]:
    held = f"pauses {door.pause:.0f} s" if door.pause >= 1 else ""
    crowded = "throttled" if door.was_crowded else ""
    reading = "; ".join(part for part in (held, crowded) if part) or "open"
    return door.server, f"{door.in_use:,}", f"{door.permits:,}", f"{door.limit:,}", reading


def clock(seconds: float) -> str:
    """A moment in local time, with the date unless it is today."""
    moment = datetime.fromtimestamp(seconds).astimezone()
    is_today = moment.date() == datetime.fromtimestamp(time.time()).astimezone().date()
    return f"{moment:%H:%M:%S}" if is_today else f"{moment:%Y-%m-%d %H:%M}"
