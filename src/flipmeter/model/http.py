"""Any OpenAI-compatible endpoint, chat or completions."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from flipmeter.model.backend import Retry
from flipmeter.types import Problem, Reply, Request, Usage

PATHS = {"chat": "/chat/completions", "completions": "/completions"}
MENDABLE = {401, 402, 403, 404}
PASSING = {408, 409, 425, 429}


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


class HttpBackend:
    """A client of one model behind one base URL."""

    is_reproducible = False

    def __init__(self, endpoint: Endpoint, identity: str, *, concurrency: int = 8) -> None:
        self.identity = identity
        self.concurrency = concurrency
        self._endpoint = endpoint
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, request: Request) -> Reply:
        interface, body = self._body(request)
        start = time.perf_counter()
        url = self._endpoint.base_url.rstrip("/") + PATHS[interface]
        try:
            async with self._open().post(url, data=body) as response:
                status, headers, content = response.status, response.headers, await response.read()
        except TimeoutError as error:
            raise Retry(f"no answer within {self._endpoint.timeout:g} s") from error
        except aiohttp.ClientError as error:
            raise Retry(f"{self._endpoint.base_url}: {error or type(error).__name__}") from error
        if status != 200:
            return self._refused(status, headers, content)
        return _reply(_decoded(content), time.perf_counter() - start)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            headers = {"Content-Type": "application/json"}
            if self._endpoint.key:
                headers["Authorization"] = f"Bearer {self._endpoint.key}"
            self._session = aiohttp.ClientSession(
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=self._endpoint.timeout),
                connector=aiohttp.TCPConnector(limit=0),
            )
        return self._session

    def _body(self, request: Request) -> tuple[str, bytes]:
        fields = json.loads(request.params)
        interface = fields.pop("interface", "chat")
        messages = [{"role": m.role, "content": m.content} for m in request.messages]
        if interface == "chat":
            fields["messages"] = messages
        else:
            fields["prompt"] = "\n\n".join(message["content"] for message in messages)
        return interface, json.dumps({"model": self._endpoint.model, **fields}).encode()

    def _refused(self, status: int, headers: Mapping[str, str], content: bytes) -> Reply:
        said = f"HTTP {status} from {self._endpoint.base_url}: {_message(content)}"
        if status in MENDABLE:
            raise Problem(self._remedy(status, said))
        if status in PASSING or status >= 500:
            raise Retry(said, _seconds(headers.get("Retry-After")))
        return Reply(error=said)

    def _remedy(self, status: int, said: str) -> str:
        if status == 404:
            return f"{said}; is '{self._endpoint.model}' the name the endpoint knows?"
        variable = self._endpoint.key_variable
        state = "is set but not accepted" if self._endpoint.key else "is not set"
        return f"{said}; the variable {variable} {state}"


def _decoded(content: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(content)
    except ValueError as error:
        raise Retry(f"the answer is not JSON: {content[:80]!r}") from error
    if isinstance(answer, dict) and answer.get("choices"):
        return answer
    # OpenRouter reports an upstream failure inside an answer of status 200.
    raise Retry(f"the answer has no choices: {_message(content)}")


def _reply(answer: Mapping[str, Any], seconds: float) -> Reply:
    choice = answer["choices"][0]
    message = choice.get("message") or {}
    text = message.get("content") if message else choice.get("text")
    is_refusal = bool(message.get("refusal")) and not text
    return Reply(
        text=_joined(text),
        finish="refusal" if is_refusal else choice.get("finish_reason") or "",
        usage=_usage(answer.get("usage") or {}),
        seconds=seconds,
        model=str(answer.get("model") or ""),
        provider=str(answer.get("provider") or ""),
        fingerprint=str(answer.get("system_fingerprint") or ""),
    )


def _joined(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content or ""


def _usage(usage: Mapping[str, Any]) -> Usage:
    spent = usage.get("completion_tokens_details") or {}
    given = usage.get("prompt_tokens_details") or {}
    return Usage(
        prompt=usage.get("prompt_tokens"),
        cached=given.get("cached_tokens"),
        completion=usage.get("completion_tokens"),
        reasoning=spent.get("reasoning_tokens"),
    )


def _message(content: bytes) -> str:
    text = content.decode("utf-8", "replace").strip()
    try:
        error = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        return text[:200] or "an empty answer"
    return str(error.get("message", error) if isinstance(error, dict) else error)[:300]


def _seconds(retry_after: str | None) -> float | None:
    try:
        return max(0.0, float(retry_after)) if retry_after else None
    except ValueError:
        return None
