"""Any OpenAI-compatible endpoint, chat or completions."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from flipmeter.model.backend import Retry
from flipmeter.model.limiter import Limiter
from flipmeter.types import Head, Problem, Reply, Request, Usage

BREAK = "\n\n"
PATHS = {"chat": "/chat/completions", "completions": "/completions"}
MENDABLE = {301, 302, 303, 307, 308, 401, 402, 403, 404}
PASSING = {408, 409, 425, 429}
CROWDED = 429
LOOPBACK = {"127.0.0.1", "localhost", "::1"}
NO_CREDIT = {"insufficient_quota", "billing_hard_limit_reached"}
NO_MODEL = {"model_not_found"}
MODERATED = {"content_filter", "content_policy_violation", "refusal"}
PATIENCE = 3
"""How many requests may be refused at the beginning before all are taken to be."""
LARGEST_ANSWER = 16 * 2**20
SHORTEST_SECRET = 8
"""Servers without accounts take any key ("EMPTY", "1"); hiding such a word would change replies."""


@dataclass(frozen=True)
class Endpoint:
    """Where to ask and with which key. The key is in no representation, message or request key."""

    base_url: str
    model: str
    key: str | None = None
    key_variable: str = ""
    timeout: float = 120.0

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url!r}, {self.model!r})"


@dataclass(frozen=True)
class Trouble:
    """What an endpoint says instead of an answer."""

    status: int
    message: str
    kinds: frozenset[str] = frozenset()


class Unreachable(Retry):
    """No connection: a wrong address, a server not started, or one that has gone away."""


class HttpBackend:
    """A client of one model behind one base URL."""

    is_reproducible = False

    def __init__(
        self, endpoint: Endpoint, identity: str, *, concurrency: int = 8, is_adaptive: bool = True
    ) -> None:
        self.identity = identity
        self.concurrency = concurrency
        self.limiter = Limiter(concurrency, is_adaptive)
        # A server of one's own has one queue for all its models; a vendor has one for each.
        is_own = urlsplit(endpoint.base_url).hostname in LOOPBACK
        self.server = endpoint.base_url if is_own else identity
        self._endpoint = endpoint
        self._key = (endpoint.key or "").strip()
        self._session: aiohttp.ClientSession | None = None
        self._n_refused: int | None = 0  # None once anything was answered

    async def ask(self, request: Request) -> Reply:
        interface, body = self._body(request)
        start = time.perf_counter()
        status, headers, content = await self._post(PATHS[interface], body)
        answer = _decoded(content)
        trouble = _trouble(status, answer, content)
        if trouble is not None:
            return self._refused(trouble, headers)
        self._n_refused = None
        return _reply(answer, time.perf_counter() - start)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _post(self, path: str, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        """Send a body and return the whole answer, without the key wherever it is echoed."""
        base_url = self._endpoint.base_url
        failure: Exception
        session = self._open()
        try:
            # A redirect would turn the POST into a GET, or take the prompts to another host.
            async with session.post(
                base_url.rstrip("/") + path, data=body, allow_redirects=False
            ) as response:
                content = await _read(response)
                return response.status, response.headers, self._hidden(content)
        except TimeoutError:
            failure = Retry(f"no answer from {base_url} within {self._endpoint.timeout:g} s")
        except (aiohttp.InvalidURL, UnicodeError):
            failure = Problem(f"the base URL {base_url!r} is not an address; write http(s)://host")
        except aiohttp.ClientConnectorCertificateError as error:
            failure = Problem(f"{base_url} has a certificate that is not trusted: {error}")
        except (aiohttp.ClientError, OSError) as error:
            said = self._without_key(str(error)) or type(error).__name__
            kind = Unreachable if isinstance(error, aiohttp.ClientConnectorError) else Retry
            failure = kind(f"{base_url}: {_start(said)}")
        # Not inside the handler: the errors of aiohttp hold the request's headers, and so the key.
        raise failure

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            headers = {"Content-Type": "application/json"}
            if not (self._key.isascii() and self._key.isprintable()):
                variable = self._endpoint.key_variable
                raise Problem(f"the key in {variable} holds a line break or the like; set it anew")
            if self._key:
                headers["Authorization"] = f"Bearer {self._key}"
            self._session = aiohttp.ClientSession(
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=self._endpoint.timeout),
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _hidden(self, content: bytes) -> bytes:
        if len(self._key) < SHORTEST_SECRET:
            return content
        for echoed in (self._key, self._key.replace("/", "\\/")):
            content = content.replace(echoed.encode(), b"[key]")
        return content

    def _without_key(self, text: str) -> str:
        return self._hidden(text.encode("utf-8", "replace")).decode()

    def _body(self, request: Request) -> tuple[str, bytes]:
        interface, fields = _fields(self._endpoint.model, request.params)
        start = _start_of(interface, request.script.head)
        end = '"}]}' if interface == "chat" else '"}'
        return interface, f"{fields}, {start}{_inside(request.script.rest)}{end}".encode()

    def _refused(self, trouble: Trouble, headers: Mapping[str, str]) -> Reply:
        """Sort a failure: what the user must mend, what may pass, what is the reply for good."""
        status = trouble.status
        said = f"HTTP {status} from {self._endpoint.base_url}: {trouble.message}"
        if trouble.kinds & MODERATED:
            # This prompt is refused, whoever asks: the others may be answered.
            return Reply(trouble.message, "content_filter")
        if status in MENDABLE or trouble.kinds & (NO_CREDIT | NO_MODEL):
            raise Problem(f"{said}; {self._remedy(trouble, headers)}")
        if status in PASSING or status >= 500 or status < 300:
            told = _told(headers)
            raise Retry(said, 0.0 if told is None and status == CROWDED else told)
        if self._n_refused is not None:
            self._n_refused += 1
            if self._n_refused >= PATIENCE:
                raise Problem(
                    f"{said}; the endpoint refused the first {PATIENCE} requests and answered "
                    "none: check `decoding`, `max_tokens` and `extra_body` in the study"
                )
        return Reply(error=said)

    def _remedy(self, trouble: Trouble, headers: Mapping[str, str]) -> str:
        status, variable = trouble.status, self._endpoint.key_variable or "with the key"
        if status < 400:
            to = self._without_key(headers.get("Location", "another address"))
            return f"it has moved to {to}: set base_url"
        if status == 404 or trouble.kinds & NO_MODEL:
            return f"is '{self._endpoint.model}' the name the endpoint knows?"
        if status == 402 or trouble.kinds & NO_CREDIT:
            return f"top up the account of the key in {variable} and run again: all is kept"
        state = "is set but not accepted" if self._key else "is not set"
        return f"the variable {variable} {state}"


@lru_cache(maxsize=1024)
def _fields(model: str, params: str) -> tuple[str, str]:
    """Return the interface and the start of a body: all that the requests of a run share."""
    fields = json.loads(params)
    interface = fields.pop("interface", "chat")
    return interface, json.dumps({"model": model, **fields}).removesuffix("}")


@lru_cache(maxsize=256)
def _start_of(interface: str, head: Head) -> str:
    """Return the JSON of a head, up to where the rest of the last message goes on."""
    if interface == "chat":
        before = "".join(f"{json.dumps(vars(message))}, " for message in head.before)
        last = f'{{"role": "{head.role}", "content": "{_inside(head.start)}'
        return f'"messages": [{before}{last}'
    texts = [*(message.content for message in head.before), head.start]
    return f'"prompt": "{_inside(BREAK.join(texts))}'


def _inside(text: str) -> str:
    """Return a text as it stands inside the quotes of a JSON string."""
    return json.dumps(text)[1:-1]


async def _read(response: aiohttp.ClientResponse) -> bytes:
    content = b""
    while chunk := await response.content.readany():
        content += chunk
        if len(content) > LARGEST_ANSWER:
            raise Retry(f"the answer is longer than {LARGEST_ANSWER} bytes")
    return content


def _decoded(content: bytes) -> dict[str, Any]:
    """Return the answer as an object, an empty one if it is anything else."""
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _trouble(status: int, answer: Mapping[str, Any], content: bytes) -> Trouble | None:
    """Return what went wrong, None if this is an answer."""
    # OpenRouter reports an upstream failure inside an answer of status 200, or inside its choice.
    error = answer.get("error") or _first(answer.get("choices")).get("error")
    whole = content.decode("utf-8", "replace")
    if status // 100 == 2 and error:
        return Trouble(_status_in(error), _words(error), _kinds(error))
    if status // 100 == 2:
        flaw = _flaw(answer)
        return Trouble(status, f"{flaw}: {_start(whole)}") if flaw else None
    error = error or answer.get("message") or answer.get("detail") or whole
    return Trouble(status, _words(error), _kinds(error))


def _first(choices: object) -> dict[str, Any]:
    choice = choices[0] if isinstance(choices, list) and choices else None
    return choice if isinstance(choice, dict) else {}


def _status_in(error: object) -> int:
    """Return the status that an error inside a good answer has by its code, 200 if by none."""
    code = error.get("code") if isinstance(error, dict) else None
    text = str(code)
    return int(text) if len(text) == 3 and text.isdecimal() and text >= "400" else 200


def _kinds(error: object) -> frozenset[str]:
    """Return the names an endpoint has for an error."""
    if not isinstance(error, dict):
        return frozenset()
    about = error.get("metadata")
    about = about if isinstance(about, dict) else {}
    names = {str(x) for x in (error.get("code"), error.get("type"), about.get("error_type"))}
    if about.get("flagged_input"):
        names.add("content_filter")
    if "not a valid model" in str(error.get("message")):
        names.add("model_not_found")
    return frozenset(names)


def _words(error: object) -> str:
    return _start(str(error.get("message") or error if isinstance(error, dict) else error))


def _flaw(answer: Mapping[str, Any]) -> str:
    """Say why an answer holds no reply, "" if it does; a reply is stored for good."""
    choice = _first(answer.get("choices"))
    if not choice:
        return "the answer has no choices" if answer else "the answer is not a JSON object"
    message = _message(choice)
    if message is None:
        return "the choice has no message"
    if choice.get("finish_reason") == "error":
        return "the answer broke off with an error"
    return "" if isinstance(message.get("content"), str | list | None) else "the content is no text"


def _start(said: str) -> str:
    return " ".join(_plain(said).split())[:200] or "an empty answer"


def _reply(answer: Mapping[str, Any], seconds: float) -> Reply:
    choice = _first(answer["choices"])
    message = _message(choice) or {}
    text, refusal = _text(message.get("content")), _text(message.get("refusal"))
    is_refusal = bool(refusal) and not text
    return Reply(
        text=text or refusal,
        finish="refusal" if is_refusal else _name(choice.get("finish_reason")),
        usage=_usage(answer.get("usage")),
        seconds=seconds,
        model=_name(answer.get("model")),
        provider=_name(answer.get("provider")),
        fingerprint=_name(answer.get("system_fingerprint")),
    )


def _message(choice: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the message of a choice; the completions interface has only its text."""
    message = choice.get("message")
    if isinstance(message, dict):
        return message
    return {"content": choice["text"]} if "text" in choice else None


def _text(content: object) -> str:
    """Return a content that is a string, a list of parts, or nothing."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "".join(part for part in parts if isinstance(part, str))
    return _plain(content) if isinstance(content, str) else ""


def _plain(text: str) -> str:
    """Replace halves of surrogate pairs: JSON can hold them, no file can."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _name(value: object) -> str:
    """Return a name on one line; the store keeps several names apart by a control character."""
    return "".join(filter(str.isprintable, value)) if isinstance(value, str) else ""


def _usage(usage: object) -> Usage:
    return Usage(
        prompt=_count(usage, "prompt_tokens"),
        cached=_count(usage, "prompt_tokens_details", "cached_tokens"),
        completion=_count(usage, "completion_tokens"),
        reasoning=_count(usage, "completion_tokens_details", "reasoning_tokens"),
    )


def _count(found: object, *path: str) -> int | None:
    """Return the number of tokens at a place, None where there is no such number."""
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return int(found) if 0 <= found < 2**53 else None


def _told(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that an endpoint asks to wait, as a number or as a date."""
    for name, unit in (("Retry-After-Ms", 1e-3), ("Retry-After", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    until = _moment(headers.get("Retry-After"))
    # Against the endpoint's own clock, which may differ from ours.
    now = _moment(headers.get("Date")) or datetime.now(UTC)
    return None if until is None else max(0.0, (until - now).total_seconds())


def _moment(date: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(date or "")
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
