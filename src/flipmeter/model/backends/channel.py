"""HTTP to one endpoint: its key goes nowhere else, and stands in nothing that comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp

from flipmeter.base.listening import listening
from flipmeter.base.redaction import PLACEHOLDER, masked, masked_bytes
from flipmeter.errors import Retry, Silent, Unreachable
from flipmeter.model.backends.response import Trouble, shortened
from flipmeter.types import Problem

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
