"""Store -> why a request is new: which field differs from what is stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from flipmeter.base.common_prefix import n_shared
from flipmeter.model.store.export import RequestFields, as_json, read_params
from flipmeter.model.store.store import Store
from flipmeter.types import Request

SHORT = 60
"""Number of characters shown of a value or a prompt."""


@dataclass(frozen=True)
class Reason:
    """Reason why some requests are not stored: their difference from the nearest stored one."""

    why: str
    n_requests: int
    example: str


@dataclass(frozen=True)
class Explanation:
    """The stored part of a plan, and the reasons why the rest is new, the most frequent first."""

    n_requests: int
    n_stored: int
    n_replies: int
    reasons: tuple[Reason, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield the explanation as text, one example for each reason."""
        if not self.n_replies:
            yield f"nothing stored: all {_count(self.n_requests)} are new"
        elif self.n_stored == self.n_requests:
            yield f"everything is stored: {_count(self.n_requests)}"
        else:
            yield f"{self.n_stored:,} of {_count(self.n_requests)} are stored"
        for reason in self.reasons:
            verb = "is" if reason.n_requests == 1 else "are"
            yield f"{_count(reason.n_requests)} {verb} new because {reason.why}"
            yield f"    for example {reason.example}"


def _count(n_requests: int) -> str:
    return f"{n_requests:,} request{'' if n_requests == 1 else 's'}"


class _Shown(NamedTuple):
    """The prompt of a stored request; its shared part stays in the store."""

    prefix: int
    rest: str
    anchor: int


Place = tuple[object, ...]
"""Parts that requests can share: a whole prompt, its rest, a prefix, a model."""

Near = tuple[RequestFields, _Shown]


def explain(requests: Sequence[Request], store: Store) -> Explanation:
    """Compare the requests that are not stored with the nearest that are.

    The nearest has the same prompt, else the same query, else the same model; among those the
    fewest other differences. The store is read once.
    """
    stored = store.among(request.key for request in requests)
    missing = [request for request in requests if request.key not in stored]
    n_replies = len(store)
    if not n_replies or not missing:
        return Explanation(len(requests), len(stored), n_replies)
    index = _Index(store, missing)
    found: dict[tuple[str, ...], list[Request]] = {}
    nearest: dict[tuple[str, ...], Near] = {}
    for request in missing:
        near = index.nearest(request)
        why = index.differences(request, near)
        found.setdefault(why, []).append(request)
        nearest.setdefault(why, near)
    reasons = [
        Reason(" and ".join(why), len(new), index.example(new[0], nearest[why]))
        for why, new in found.items()
    ]
    ranked = sorted(reasons, key=lambda reason: -reason.n_requests)
    return Explanation(len(requests), len(requests) - len(missing), n_replies, tuple(ranked))


class _Index:
    """Stored requests by what they share with the wanted ones, one of each way of asking."""

    def __init__(self, store: Store, wanted: Sequence[Request]) -> None:
        self._store = store
        self._ids: dict[str, int] = {}
        self._texts: dict[int, str] = {}
        self._hashes: dict[int, Any] = {}
        self._near: dict[Place, dict[RequestFields, _Shown]] = {
            place: {} for request in wanted for place in self._places_of(request)
        }
        for row in store.read("SELECT model, prefix, rest, params FROM replies"):
            self._add(*row)

    def _places_of(self, request: Request) -> list[Place]:
        """Candidates for the nearest stored request, best first."""
        head, rest = request.script.head.text, request.script.rest
        model, prefix = self._id(request.model), self._id(head)
        return _places(model, prefix, rest, _digest(_hashed(head), rest))

    def _add(self, model: int, prefix: int, rest: str, params: int) -> None:
        ask, anchor = read_params(self._text(model), self._text(params))
        if prefix not in self._hashes:
            self._hashes[prefix] = _hashed(self._read_text(prefix))
        for place in _places(model, prefix, rest, _digest(self._hashes[prefix], rest)):
            if place in self._near:
                self._near[place].setdefault(ask, _Shown(prefix, rest, anchor))

    def nearest(self, request: Request) -> Near:
        """The stored request in the best place that differs least."""
        ask = _ask(request)
        candidates = next(filter(None, (self._near[p] for p in self._places_of(request))))
        old = min(candidates, key=lambda old: _distance(ask, old))
        return old, candidates[old]

    def differences(self, request: Request, near: Near) -> tuple[str, ...]:
        """The fields that differ, in words, equal for requests that differ alike."""
        old, shown = near
        told = [*self._prompt_differs(request, shown), *_differences(_ask(request), old)]
        if not told and request.script.anchor != shown.anchor:
            told = [f"anchor is {request.script.anchor}, stored: {shown.anchor}"]
        return tuple(told) or ("the role of a message differs",)

    def _prompt_differs(self, request: Request, shown: _Shown) -> list[str]:
        new, old = _prompt(request), self._prompt(shown)
        if new == old:
            return []
        if self._id(request.script.head.text) == shown.prefix:
            return ["the prompt differs after the shared part"]
        if request.script.rest == shown.rest:
            return ["the prompt differs in the shared part"]
        return ["the prompt differs"]

    def example(self, request: Request, near: Near) -> str:
        """The first difference from a stored prompt, or the end of the prompt."""
        new, old = _prompt(request), self._prompt(near[1])
        if new == old:
            return f"the prompt that ends {_quoted(new[-SHORT:])}"
        start = n_shared(new, old)
        return (
            f"from character {start + 1} on: {_quoted(new[start : start + SHORT])}, "
            f"stored: {_quoted(old[start : start + SHORT])}"
        )

    def _prompt(self, shown: _Shown) -> str:
        return self._text(shown.prefix) + shown.rest

    def _id(self, text: str) -> int:
        """The number of a text in the store, 0 for one that is not there."""
        if text not in self._ids:
            rows = self._store.read("SELECT id FROM texts WHERE text = ?", [text])
            self._ids[text] = next((int(row[0]) for row in rows), 0)
        return self._ids[text]

    def _text(self, number: int) -> str:
        if number not in self._texts:
            self._texts[number] = self._read_text(number)
        return self._texts[number]

    def _read_text(self, number: int) -> str:
        (row,) = self._store.read("SELECT text FROM texts WHERE id = ?", [number])
        return str(row[0])


def _places(model: int, prefix: int, rest: str, digest: bytes) -> list[Place]:
    return [
        ("prompt", digest),
        ("rest", rest),
        ("prefix", prefix, model),
        ("model", model),
        ("any",),
    ]


def _hashed(prefix: str) -> Any:
    return hashlib.blake2b(prefix.encode(), digest_size=16)


def _digest(prefix: Any, rest: str) -> bytes:
    """The hash of a prompt; a long shared part is hashed once only."""
    whole = prefix.copy()
    whole.update(rest.encode())
    return bytes(whole.digest())


def _prompt(request: Request) -> str:
    return request.script.head.text + request.script.rest


def _ask(request: Request) -> RequestFields:
    return RequestFields(request.model, request.params, tuple(request.answers), request.repeat)


@lru_cache(maxsize=1 << 14)
def _distance(new: RequestFields, old: RequestFields) -> tuple[int, bool, int]:
    """Distance between two requests: fewest differing fields first, then the same model."""
    n_fields = len(_differences(new, old))
    return n_fields, new.model != old.model, abs(new.repeat - old.repeat)


@lru_cache(maxsize=1 << 14)
def _differences(new: RequestFields, old: RequestFields) -> tuple[str, ...]:
    told = [("model", new.model, old.model)] if new.model != old.model else []
    told += _param_differences(json.loads(new.params), json.loads(old.params))
    if new.answers != old.answers:
        told.append(("answers", as_json(new.answers), as_json(old.answers)))
    if new.repeat != old.repeat:
        told.append(("repeat", str(new.repeat), str(old.repeat)))
    return tuple(f"{name} is {_short(a)}, stored: {_short(b)}" for name, a, b in told)


def _param_differences(
    new: Mapping[str, Any], old: Mapping[str, Any]
) -> list[tuple[str, str, str]]:
    def said(params: Mapping[str, Any], name: str) -> str:
        return as_json(params[name]) if name in params else "not set"

    names = sorted({*new, *old})
    pairs = [(f"params.{name}", said(new, name), said(old, name)) for name in names]
    return [(name, a, b) for name, a, b in pairs if a != b]


def _short(text: str) -> str:
    return text if len(text) <= 2 * SHORT else f"{text[:SHORT]}…{text[-SHORT:]}"


def _quoted(text: str) -> str:
    """A piece of a prompt on one line."""
    return as_json(text) if text else "nothing more"
