"""A client of any endpoint over HTTP; the wire says how its API is spoken."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from flipmeter.model.backends.backend import Retry
from flipmeter.model.backends.masking import masked, masked_bytes
from flipmeter.model.backends.response import (
    Trouble,
    decoded,
    shortened,
    told_pause,
)
from flipmeter.model.engine.limiter import Limiter
from flipmeter.model.wires.chat_wire import ChatWire, CompletionsWire
from flipmeter.model.wires.corrections import corrected_request, correction_in
from flipmeter.model.wires.responses_wire import ResponsesWire
from flipmeter.model.wires.wire import Wire, interface_in
from flipmeter.types import Problem, Reply, Request

Wires = Mapping[str, Wire]
"""How an endpoint is spoken to, by interface."""
OPENAI_WIRES: Wires = {
    "chat": ChatWire(),
    "completions": CompletionsWire(),
    "responses": ResponsesWire(),
}
MENDABLE = {301, 302, 303, 307, 308, 401, 402, 403, 404}
PASSING = {408, 409, 425, 429}
ACCOUNT = {401, 402}
NOT_THERE = {403, 404, 501}
"""What some endpoints say to a field or an interface that they do not have."""
CROWDED = 429
LOOPBACK = {"127.0.0.1", "localhost", "::1"}
NO_CREDIT = {"insufficient_quota", "billing_hard_limit_reached"}
NO_MODEL = {"model_not_found"}
MODERATED = {"content_filter", "content_policy_violation", "refusal"}
PATIENCE = 3
"""How many requests may be refused at the beginning before all are taken to be."""
LARGEST_ANSWER = 16 * 2**20
REPLY_TEXTS = ("text", "finish", "model", "provider", "fingerprint", "error")


@dataclass(frozen=True)
class Endpoint:
    """Where to ask and with which key. The key is in no representation, message or request key.

    One that `is_withheld` is set, and is for another host.
    """

    base_url: str
    model: str
    key: str | None = None
    key_variable: str = ""
    timeout: float = 120.0
    is_withheld: bool = False

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url!r}, {self.model!r})"


@dataclass(frozen=True)
class Tried:
    """What one request brought: an answer with its reply, or a refusal.

    `problem` is what asking in earnest would raise for this refusal, if it would; a refusal
    that `is_passing` may be gone another time, and one with a `correction` if a field is changed.
    """

    answer: Mapping[str, Any] = field(default_factory=dict)
    reply: Reply = field(default_factory=Reply)
    refusal: str = ""
    problem: Problem | None = None
    is_passing: bool = False
    correction: tuple[str, str | None] | None = None


class Unreachable(Retry):
    """No connection: a wrong address, a server not started, or one that has gone away."""


class HttpBackend:
    """A client of one model behind one base URL."""

    is_reproducible = False

    def __init__(
        self,
        endpoint: Endpoint,
        identity: str,
        *,
        wires: Wires = OPENAI_WIRES,
        concurrency: int = 8,
        is_adaptive: bool = True,
        is_replica: bool = False,
    ) -> None:
        self.identity = identity
        self.concurrency = concurrency
        self.limiter = Limiter(concurrency, is_adaptive)
        # A server of one's own has one queue for all its models; a vendor has one for each.
        is_own = is_replica or urlsplit(endpoint.base_url).hostname in LOOPBACK
        self.server = endpoint.base_url if is_own else identity
        self._endpoint = endpoint
        self._wires = wires
        self._taught: dict[str, str | None] = {}
        self._key = (endpoint.key or "").strip()
        self._session: aiohttp.ClientSession | None = None
        self._n_refused: int | None = 0  # None once anything was answered

    async def ask(self, request: Request) -> Reply:
        start = time.perf_counter()
        sent = self._as_taught(request)
        found = await self._exchange(sent)
        while found.trouble is not None and self._learn(sent, found.trouble):
            sent = self._as_taught(request)
            found = await self._exchange(sent)
        if found.trouble is not None:
            return self._refused(found.trouble, found.headers)
        self._n_refused = None
        seconds = time.perf_counter() - start
        reply = self._clean(self._wire(sent).reply(found.answer, seconds, request.answers))
        is_changed = sent.params != request.params
        return replace(reply, corrections=tuple(self._taught.items())) if is_changed else reply

    def _as_taught(self, request: Request) -> Request:
        """A request as the endpoint wants it, by what it said about others."""
        if not self._taught:
            return request
        return corrected_request(request, tuple(self._taught.items()))

    def _learn(self, sent: Request, trouble: Trouble) -> bool:
        """Learn from a refusal which field to change, and say whether that changes the request."""
        found = correction_in(trouble, json.loads(sent.params))
        if found is None:
            return False
        self._taught.setdefault(*found)
        return self._as_taught(sent).params != sent.params

    def _wire(self, request: Request) -> Wire:
        return self._wires[interface_in(request.params)]

    async def try_out(self, request: Request) -> Tried:
        """Ask once and return refusals too; raise only errors that every request would meet."""
        start = time.perf_counter()
        found = await self._exchange(request)
        trouble, headers = found.trouble, found.headers
        if trouble is None:
            seconds = time.perf_counter() - start
            reply = self._clean(self._wire(request).reply(found.answer, seconds))
            return Tried(found.answer, reply)
        if not _is_refusal(trouble):
            self._raise(trouble, headers)
        said, problem = f"HTTP {trouble.status}: {trouble.message}", None
        if trouble.status in MENDABLE or trouble.kinds & NO_MODEL:
            problem = Problem(f"{self._said(trouble)}; {self._remedy(trouble, headers)}")
        correction = correction_in(trouble, json.loads(request.params))
        return Tried(refusal=said, problem=problem, correction=correction)

    def n_alternatives(self, request: Request, answer: Mapping[str, Any]) -> int | None:
        """How many tokens an answer shows beside its first, None without log-probabilities."""
        return self._wire(request).n_alternatives(answer)

    async def listing(self) -> dict[str, Any]:
        """What the endpoint's list of models says about this one, {} if nothing."""
        try:
            headers = self._wires["chat"].headers("{}")
            status, _, content = await self._send("GET", "/models", more=headers)
        except Retry:
            return {}
        rows = decoded(content).get("data") if status == 200 else None
        known = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        return next((row for row in known if row.get("id") == self._endpoint.model), {})

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _exchange(self, request: Request) -> Exchanged:
        wire, model = self._wire(request), self._endpoint.model
        body = wire.body(model, request)
        status, headers, content = await self._send(
            "POST", wire.path(model), body, wire.headers(request.params)
        )
        answer = decoded(content)
        trouble = wire.trouble(status, answer, content)
        if trouble is not None:
            trouble = replace(trouble, message=self._without_key(trouble.message))
        return Exchanged(answer, trouble, headers)

    async def _send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        more: Mapping[str, str] | None = None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send a body and return the whole answer, without the key wherever it is echoed."""
        base_url = self._endpoint.base_url
        failure: Exception
        session = self._open()
        try:
            # A redirect would turn the POST into a GET, or take the prompts to another host.
            async with session.request(
                *(method, base_url.rstrip("/") + path),
                data=body,
                headers=more,
                allow_redirects=False,
            ) as response:
                content = await _read(response)
                return response.status, response.headers, masked_bytes(content, self._key)
        except TimeoutError:
            failure = Retry(f"no answer from {base_url} within {self._endpoint.timeout:g} s")
        except (aiohttp.InvalidURL, UnicodeError):
            failure = Problem(f"the base URL {base_url!r} is not an address; write http(s)://host")
        except aiohttp.ClientConnectorCertificateError as error:
            failure = Problem(f"{base_url} has a certificate that is not trusted: {error}")
        except (aiohttp.ClientError, OSError) as error:
            said = self._without_key(str(error)) or type(error).__name__
            is_down = isinstance(error, aiohttp.ClientConnectorError)
            kind = Unreachable if is_down else Retry
            failure = kind(f"{base_url}: {shortened(said)}", is_free=is_down)
        # Not inside the handler: the errors of aiohttp hold the request's headers, and so the key.
        raise failure

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            headers = {"Content-Type": "application/json"}
            if not (self._key.isascii() and self._key.isprintable()):
                variable = self._endpoint.key_variable
                raise Problem(
                    f"the key in {variable} contains a line break or another character that a "
                    "header cannot hold; set it again"
                )
            if self._key:
                headers |= self._wires["chat"].auth(self._key)
            self._session = aiohttp.ClientSession(
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=self._endpoint.timeout),
                connector=_Connector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _without_key(self, text: str) -> str:
        return masked(text, self._key)

    def _clean(self, reply: Reply) -> Reply:
        """Take the key out of a reply: put together from parts, it may be there again."""
        texts: dict[str, Any] = {
            name: self._without_key(getattr(reply, name)) for name in REPLY_TEXTS
        }
        return replace(reply, **texts)

    def _refused(self, trouble: Trouble, headers: Mapping[str, str]) -> Reply:
        """Sort a failure: user-fixable, transient, or a permanent error reply."""
        if (reply := moderated(trouble)) is not None:
            return reply
        self._raise(trouble, headers)
        if self._n_refused is not None:
            self._n_refused += 1
            if self._n_refused >= PATIENCE:
                raise Problem(
                    f"{self._said(trouble)}; the endpoint refused the first {PATIENCE} requests "
                    "and answered none: check `decoding`, `max_tokens` and `extra_body` in the "
                    "study"
                )
        return Reply(error=self._said(trouble))

    def _raise(self, trouble: Trouble, headers: Mapping[str, str]) -> None:
        """Raise user-fixable and transient errors."""
        status = trouble.status
        if status in MENDABLE or trouble.kinds & (NO_CREDIT | NO_MODEL):
            raise Problem(f"{self._said(trouble)}; {self._remedy(trouble, headers)}")
        if status in PASSING or status >= 500 or status < 300:
            told = told_pause(headers)
            pause = 0.0 if told is None and status == CROWDED else told
            raise Retry(self._said(trouble), pause, is_free=status >= 400)

    def _said(self, trouble: Trouble) -> str:
        return f"HTTP {trouble.status} from {self._endpoint.base_url}: {trouble.message}"

    def _remedy(self, trouble: Trouble, headers: Mapping[str, str]) -> str:
        status, variable = trouble.status, self._endpoint.key_variable or "with the key"
        if status < 400:
            to = self._without_key(headers.get("Location", "another address"))
            return f"it has moved to {to}: set base_url"
        if status == 404 or trouble.kinds & NO_MODEL:
            return f"is '{self._endpoint.model}' the name the endpoint knows?"
        if status == 402 or trouble.kinds & NO_CREDIT:
            return f"top up the account of the key in {variable} and run again: all is kept"
        if self._endpoint.is_withheld:
            host = urlsplit(self._endpoint.base_url).hostname
            return (
                f"the variable {variable} is set, and {host} is not given it: a study names that "
                f"host; if you trust it: --trust-host {host}"
            )
        state = "is set but not accepted" if self._key else "is not set"
        return f"the variable {variable} {state}"


@dataclass(frozen=True)
class Exchanged:
    """An answer, or what went wrong, with the headers it came with."""

    answer: dict[str, Any]
    trouble: Trouble | None
    headers: Mapping[str, str]


def moderated(trouble: Trouble) -> Reply | None:
    """The reply to a prompt that is refused whoever asks; others may be answered."""
    return Reply(trouble.message, "content_filter") if trouble.kinds & MODERATED else None


def _is_refusal(trouble: Trouble) -> bool:
    """Whether an endpoint refuses this request, and might not refuse another."""
    if trouble.kinds & NO_CREDIT or trouble.status in PASSING | ACCOUNT:
        return False
    is_refused = 400 <= trouble.status < 500 or trouble.status in NOT_THERE
    return is_refused or bool(trouble.kinds & MODERATED)


class _Connector(aiohttp.TCPConnector):
    """A pool that gives out no connection on which something came without being asked for.

    aiohttp would take a late second response to one request for the answer to the next.
    """

    async def _get(self, *place: Any) -> Any:
        while (connection := await super()._get(*place)) is not None:
            if connection.protocol is None or not connection.protocol.should_close:
                return connection
            connection.close()
        return None


async def _read(response: aiohttp.ClientResponse) -> bytes:
    content = b""
    while chunk := await response.content.readany():
        content += chunk
        if len(content) > LARGEST_ANSWER:
            raise Retry(f"the answer is longer than {LARGEST_ANSWER} bytes")
    return content
