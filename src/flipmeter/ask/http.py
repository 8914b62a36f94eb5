"""A client of any endpoint over HTTP; its key goes nowhere else."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp

from flipmeter.ask.dialect import corrected_request, correction_in, spoken_as, with_correction
from flipmeter.ask.limits import Limiter
from flipmeter.ask.plan import PrefixCache
from flipmeter.ask.response import (
    Trouble,
    decoded,
    moment_after,
    shortened,
    told_pause,
    without_secrets,
)
from flipmeter.ask.wires import ChatWire, CompletionsWire, ResponsesWire, Wire, interface_in
from flipmeter.errors import Incomplete, Problem, Retry, Silent, Unreachable
from flipmeter.loops import listening
from flipmeter.redaction import PLACEHOLDER, filled, masked, masked_bytes
from flipmeter.types import Caching, Corrections, Reply, Request, canonical_json

NO_CREDIT = {"insufficient_quota", "billing_hard_limit_reached"}
NO_MODEL = {"model_not_found"}
LARGEST_ANSWER = 16 * 2**20


@dataclass(frozen=True)
class Endpoint:
    """The address of an endpoint and its key. The key is in no repr, message or request key.

    `is_withheld` means that it is set, but for another host. `secrets` are the values of the
    variables that fill a part of the address, or fields of a body.
    """

    base_url: str
    model: str
    key: str | None = None
    key_variable: str = ""
    timeout: float = 120.0
    is_withheld: bool = False
    secrets: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def url(self) -> str:
        """The address with its secrets, to which requests are sent."""
        return PLACEHOLDER.sub(lambda named: quote(self.secrets[named[1]], ""), self.base_url)

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url!r}, {self.model!r})"


class Channel:
    """Requests to one endpoint; `auth` makes headers of its key."""

    def __init__(self, endpoint: Endpoint, auth: Callable[[str], dict[str, str]]) -> None:
        self.endpoint = endpoint
        self._auth = auth
        self._key = (endpoint.key or "").strip()
        self._session: aiohttp.ClientSession | None = None

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send a body and return the whole answer, without the key wherever it is echoed."""
        async with self._answer(method, path, body, headers) as response:
            content = b""
            while chunk := await response.content.readany():
                content += chunk
                if len(content) > LARGEST_ANSWER:
                    raise Retry(f"the answer is longer than {LARGEST_ANSWER} bytes")
            return response.status, response.headers, masked_bytes(content, self._key)

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        base_url, timeout = self.endpoint.base_url, self.endpoint.timeout
        failure: Exception
        session = self._open()
        try:
            # A redirect would turn the POST into a GET, or take the prompts to another host.
            async with (
                listening(timeout),
                session.request(
                    *(method, self.endpoint.url.rstrip("/") + path),
                    data=body,
                    headers={"Content-Type": "application/json", **(headers or {})},
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(),
                ) as response,
            ):
                yield response
                return
        except TimeoutError:
            failure = Silent(f"no answer from {base_url} within {timeout:g} s")
        except (aiohttp.InvalidURL, UnicodeError):
            failure = Problem(f"the base URL {base_url!r} is not an address; write http(s)://host")
        except aiohttp.ClientConnectorCertificateError as error:
            failure = Problem(f"{base_url} has a certificate that is not trusted: {error}")
        except (aiohttp.ClientError, OSError) as error:
            said = self.without_key(str(error)) or type(error).__name__
            is_down = isinstance(error, aiohttp.ClientConnectorError)
            kind_of = Unreachable if is_down else Retry
            failure = kind_of(f"{base_url}: {shortened(said)}", is_free=is_down)
        # Not inside the handler: the errors of aiohttp hold the request's headers, and so the key.
        raise failure

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            if not (self._key.isascii() and self._key.isprintable()):
                variable = self.endpoint.key_variable
                raise Problem(
                    f"the key in {variable} contains a line break or another character that a "
                    "header cannot contain; set it again"
                )
            self._session = aiohttp.ClientSession(
                headers=self._auth(self._key) if self._key else {},
                connector=_Connector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def without_key(self, text: str) -> str:
        return masked(text, self._key)

    def said(self, trouble: Trouble) -> str:
        return f"HTTP {trouble.status} from {self.endpoint.base_url}: {trouble.message}"

    def remedy(self, trouble: Trouble, headers: Mapping[str, str]) -> str:
        """The remedy for a refusal."""
        status, variable = trouble.status, self.endpoint.key_variable or "with the key"
        if status < 400:
            to = self.without_key(headers.get("Location", "another address"))
            return f"it has moved to {to}: set base_url"
        if status == 404 or trouble.kinds & NO_MODEL:
            return f"is '{self.endpoint.model}' the name the endpoint knows?"
        if is_without_credit(trouble):
            return f"top up the account of the key in {variable} and run again: nothing is lost"
        if self.endpoint.is_withheld:
            host = urlsplit(self.endpoint.base_url).hostname
            return (
                f"the variable {variable} is set but not sent to {host}, because the "
                f"study chose that host; if you trust it: --trust-host {host}"
            )
        state = "is set but not accepted" if self._key else "is not set"
        return f"the variable {variable} {state}"


def is_without_credit(trouble: Trouble) -> bool:
    return trouble.status == 402 or bool(trouble.kinds & NO_CREDIT)


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


Wires = Mapping[str, Wire]
"""The wire of each interface."""
OPENAI_WIRES: Wires = {
    "chat": ChatWire(),
    "completions": CompletionsWire(),
    "responses": ResponsesWire(),
}
MENDABLE = {301, 302, 303, 307, 308, 401, 402, 403, 404}
PASSING = {408, 409, 425, 429}
ACCOUNT = {401, 402}
NOT_THERE = {403, 404, 501}
"""Error texts of endpoints for an unsupported field or interface."""
CROWDED = 429
LOOPBACK = {"127.0.0.1", "localhost", "::1"}
MODERATED = {"content_filter", "content_policy_violation", "refusal"}
PATIENCE = 3
"""Number of refusals at the start after which all requests count as refused."""


@dataclass(frozen=True)
class Tried:
    """The outcome of one request: a reply with the alternatives to its first token, or a refusal.

    `problem` is what asking in earnest would raise for this refusal, if it would; a refusal
    that `is_passing` may be gone another time, and one with a `correction` if a field is changed.
    """

    reply: Reply = field(default_factory=Reply)
    n_alternatives: int | None = None
    refusal: str = ""
    problem: Problem | None = None
    is_passing: bool = False
    correction: tuple[str, str | None] | None = None


class HttpBackend:
    """A client of one model behind one base URL."""

    is_reproducible = False

    def __init__(
        self,
        endpoint: Endpoint,
        identity: str,
        *,
        wires: Wires = OPENAI_WIRES,
        caching: Caching | None = None,
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
        self.cache = None if caching is None else PrefixCache(caching)
        self._taught: dict[str, Corrections] = {}  # by the other fields, on which they may depend
        self._channel = Channel(endpoint, wires["chat"].auth)
        self._n_refused: int | None = 0  # None once anything was answered

    async def ask(self, request: Request) -> Reply:
        start = time.perf_counter()
        sent = self._as_taught(request)
        found = await self._exchange(sent)
        while found.trouble is not None and self._learn(request, sent, found):
            sent = self._as_taught(request)
            found = await self._exchange(sent)
        if found.trouble is not None:
            return self._refused(found.trouble, found.headers)
        self._n_refused = None
        if self.cache is not None:
            self.cache.answered(request.script.head)
        seconds = time.perf_counter() - start
        reply = self._wire(sent).reply(found.answer, seconds, request.answers)
        is_changed = sent.params != request.params
        return replace(reply, corrections=self._corrections(request)) if is_changed else reply

    def _corrections(self, request: Request) -> Corrections:
        return self._taught.get(spoken_as(request.params), ())

    def _as_taught(self, request: Request) -> Request:
        """A request as the endpoint wants it, by what it said about others."""
        return corrected_request(request, self._corrections(request)) if self._taught else request

    def _learn(self, request: Request, sent: Request, found: Exchanged) -> bool:
        """Learn from a refusal what to change, and say whether that changes what is sent."""
        if found.trouble is None:
            return False
        if found.is_marked and self.cache is not None and self.cache.is_refused_by(found.trouble):
            return True
        correction = correction_in(found.trouble, json.loads(sent.params))
        if correction is None:
            return False
        known = self._corrections(request)
        self._taught[spoken_as(request.params)] = with_correction(known, correction)
        return self._as_taught(request).params != sent.params

    def _wire(self, request: Request) -> Wire:
        return self._wires[interface_in(request.params)]

    async def try_out(self, request: Request) -> Tried:
        """Ask once and return refusals too; raise only errors that every request would meet."""
        start = time.perf_counter()
        found = await self._exchange(request)
        trouble, headers = found.trouble, found.headers
        if trouble is None:
            wire, seconds = self._wire(request), time.perf_counter() - start
            reply = without_secrets(wire.reply(found.answer, seconds))
            return Tried(reply, wire.n_alternatives(found.answer))
        # Whether this request is refused, and another might not be.
        is_general = trouble.kinds & NO_CREDIT or trouble.status in PASSING | ACCOUNT
        is_refused = 400 <= trouble.status < 500 or trouble.status in NOT_THERE
        if is_general or not (is_refused or trouble.kinds & MODERATED):
            self._raise(trouble, headers)
        said, problem = f"HTTP {trouble.status}: {trouble.message}", None
        if trouble.status in MENDABLE or trouble.kinds & NO_MODEL:
            problem = Problem(
                f"{self._channel.said(trouble)}; {self._channel.remedy(trouble, headers)}"
            )
        correction = correction_in(trouble, json.loads(request.params))
        return Tried(refusal=said, problem=problem, correction=correction)

    async def listing(self) -> dict[str, Any]:
        """The entry of this model in the endpoint's list of models, {} if there is none."""
        try:
            headers = self._wires["chat"].headers("{}")
            status, _, content = await self._channel.send("GET", "/models", headers=headers)
        except Retry:
            return {}
        rows = decoded(content).get("data") if status == 200 else None
        known = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        return next((row for row in known if row.get("id") == self._endpoint.model), {})

    async def close(self) -> None:
        await self._channel.close()

    async def _exchange(self, request: Request) -> Exchanged:
        wire, model = self._wire(request), self._endpoint.model
        caching = None if self.cache is None else self.cache.told
        is_shared = self.cache is not None and self.cache.is_shared(request.script.head)
        secrets, sent = self._endpoint.secrets, request
        if secrets:
            params = canonical_json(filled(json.loads(request.params), secrets))
            sent = replace(request, params=params)
        body = wire.body(model, sent, caching, is_shared)
        status, headers, content = await self._channel.send(
            "POST", wire.path(model), body, wire.headers(request.params)
        )
        answer = decoded(content)
        trouble = wire.trouble(status, answer, content)
        if trouble is not None:
            trouble = replace(trouble, message=self._channel.without_key(trouble.message))
        return Exchanged(answer, trouble, headers, is_marked=caching is not None)

    def _refused(self, trouble: Trouble, headers: Mapping[str, str]) -> Reply:
        """Sort a failure: user-fixable, transient, or a permanent error reply."""
        if (reply := moderated(trouble)) is not None:
            return reply
        self._raise(trouble, headers)
        if self._n_refused is not None:
            self._n_refused += 1
            if self._n_refused >= PATIENCE:
                raise Problem(
                    f"{self._channel.said(trouble)}; the endpoint refused the first {PATIENCE} "
                    "requests and answered none: check `decoding`, `max_tokens` and `extra_body` "
                    "in the study"
                )
        return Reply(error=self._channel.said(trouble))

    def _raise(self, trouble: Trouble, headers: Mapping[str, str]) -> None:
        """Raise user-fixable and transient errors."""
        status = trouble.status
        told = told_pause(headers)
        if status in MENDABLE or trouble.kinds & (NO_CREDIT | NO_MODEL):
            said = f"{self._channel.said(trouble)}; {self._channel.remedy(trouble, headers)}"
            if told:
                raise Incomplete(f"{said}; run again {moment_after(told)}: nothing is lost")
            raise Incomplete(said) if is_without_credit(trouble) else Problem(said)
        if status in PASSING or status >= 500 or status < 300:
            pause = 0.0 if told is None and status == CROWDED else told
            raise Retry(self._channel.said(trouble), pause, is_free=status >= 400)


@dataclass(frozen=True)
class Exchanged:
    """An answer, or what went wrong, with the headers it came with.

    The body of one that `is_marked` may have held marks for a prefix cache.
    """

    answer: dict[str, Any]
    trouble: Trouble | None
    headers: Mapping[str, str]
    is_marked: bool = False


def moderated(trouble: Trouble) -> Reply | None:
    """The reply to a prompt that is always refused; others may be answered."""
    return Reply(trouble.message, "content_filter") if trouble.kinds & MODERATED else None
