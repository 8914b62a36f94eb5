"""A scale that is a range of numbers -> Span: `{from: 0, to: 10, within: 0.5}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flipmeter.base.numbers import read_number
from flipmeter.registry import suggestion
from flipmeter.types import Problem, Scale, Span

FROM, TO, WITHIN = "from", "to", "within"
_KEYS = [FROM, TO, WITHIN]


def read_span(scale: object) -> Span | None:
    """The range of a scale that is one, None for a scale of classes."""
    if isinstance(scale, Scale):
        return scale.span
    if not isinstance(scale, Mapping) or FROM not in scale:
        return None
    for key in scale:
        if key not in _KEYS:
            raise Problem(f"a scale with `from` has no '{key}'{suggestion(str(key), _KEYS)}")
    if TO not in scale:
        raise Problem(f"the scale begins at {scale[FROM]!r} and has no end; add `to:`")
    return Span(_end(scale, FROM), _end(scale, TO), _end(scale, WITHIN))


def _end(scale: Mapping[Any, Any], key: str) -> float:
    found = read_number(scale.get(key) or 0)
    if found is None:
        raise Problem(f"scale: {key} is {scale[key]!r:.60}; it must be a number")
    return found


def with_tolerance(scale: object, within: object) -> dict[Any, Any]:
    """A range with what counts as the same, where a dataset names that beside its scale."""
    span = read_span(scale)
    if span is None:
        raise Problem(
            "`within` is a tolerance for scores, but the scale has classes; write "
            "scale: {from: 0, to: 10}"
        )
    return {**span_spec(span), WITHIN: within}


def span_spec(span: Span) -> dict[Any, Any]:
    """A range as a study file writes it."""
    return {FROM: span.low, TO: span.high, WITHIN: span.within}


def parse_span(text: str) -> dict[str, float] | None:
    """The range that "0..10" on a command line means, None for names of classes."""
    low, dots, high = text.partition("..")
    ends = read_number(low), read_number(high.strip("."))
    if not dots or ends[0] is None or ends[1] is None:
        return None
    return {FROM: ends[0], TO: ends[1]}
