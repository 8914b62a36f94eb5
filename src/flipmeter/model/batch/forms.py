"""Vendor -> BatchForm: how requests are sent together, and how their results come back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from flipmeter.model.backends.http import OPENAI_WIRES, Wires, moderated
from flipmeter.model.backends.response import shortened
from flipmeter.model.wires.anthropic_wire import AnthropicWire
from flipmeter.model.wires.gemini_wire import GeminiWire
from flipmeter.model.wires.vendor_wires import AZURE_WIRES, CHAT_WIRES, TOGETHER_WIRES
from flipmeter.model.wires.wire import Wire, interface_in
from flipmeter.types import Caching, Problem, Reply, Request

Shape = Literal["openai", "anthropic", "gemini"]
"""The shape of a line of results."""
SHAPES: Mapping[Shape, str] = {
    "openai": "OpenAI's (also Azure's, Mistral's, Groq's, Together's and vLLM's)",
    "anthropic": "Anthropic's",
    "gemini": "Gemini's",
}
MEGABYTE = 10**6
COMPATIBLE = "compatible"
ENDED_WITHOUT = {"canceled": "canceled before it was asked", "expired": "expired before its turn"}


@dataclass(frozen=True)
class BatchForm:
    """Files of requests as a vendor takes them, at most so many requests and bytes in each.

    Results are in one of three shapes. A file of Anthropic's is the one body to send; others have
    a request a line.
    """

    vendor: str
    shape: Shape
    wires: Wires
    most_requests: int
    most_bytes: int
    has_address: bool = False

    @property
    def suffix(self) -> str:
        return ".json" if self.shape == "anthropic" else ".jsonl"

    def wire_of(self, request: Request) -> Wire:
        return self.wires[interface_in(request.params)]

    def url(self, model: str, request: Request) -> str:
        """The path that the requests of a file are sent to."""
        return f"/v1{self.wire_of(request).path(model)}"

    def line(
        self, model: str, request: Request, caching: Caching | None = None, is_shared: bool = False
    ) -> bytes:
        """A request as it stands in a file."""
        body = self.wire_of(request).body(model, request, caching, is_shared).decode()
        named = {"key" if self.shape == "gemini" else "custom_id": request.key}
        if self.has_address:
            named |= {"method": "POST", "url": self.url(model, request)}
        inner = {"openai": "body", "anthropic": "params", "gemini": "request"}[self.shape]
        return f'{json.dumps(named).removesuffix("}")}, "{inner}": {body}}}\n'.encode()

    def file(self, lines: Sequence[bytes]) -> bytes:
        """The file that holds some requests."""
        if self.shape != "anthropic":
            return b"".join(lines)
        return b'{"requests": [\n' + b",\n".join(line.rstrip() for line in lines) + b"\n]}\n"

    def reply(self, row: Mapping[str, Any], request: Request) -> Reply:
        """The reply in a line of results, or one with an error, which is never stored."""
        status, answer, said = self._answer(row)
        if said:
            return Reply(error=shortened(said))
        wire = self.wire_of(request)
        trouble = wire.trouble(status, answer, json.dumps(answer).encode())
        if trouble is None:
            return wire.reply(answer, 0.0, request.answers)
        return moderated(trouble) or Reply(
            error=f"HTTP {trouble.status} in the batch: {trouble.message}"
        )

    def _answer(self, row: Mapping[str, Any]) -> tuple[int, dict[str, Any], str]:
        """The status and the answer in a line of results, or what it says instead of one."""
        if self.shape == "anthropic":
            return _anthropic_answer(row)
        response, error = row.get("response"), row.get("error")
        if not isinstance(response, Mapping):
            said = (
                error.get("message") or error.get("code") if isinstance(error, Mapping) else error
            )
            return 200, {}, str(said or "the result has neither response nor error")
        if self.shape == "gemini":
            return 200, dict(response), ""
        body, status = response.get("body"), response.get("status_code", 200)
        answer = body if isinstance(body, dict) else {}
        return status if isinstance(status, int) else 200, answer, ""


def _anthropic_answer(row: Mapping[str, Any]) -> tuple[int, dict[str, Any], str]:
    result = row.get("result")
    result = result if isinstance(result, Mapping) else {}
    kind, message, error = result.get("type"), result.get("message"), result.get("error")
    if kind == "succeeded" and isinstance(message, dict):
        return 200, message, ""
    if kind == "errored" and isinstance(error, dict):
        # The error of an answer, wrapped once more or not.
        return 400, error if isinstance(error.get("error"), dict) else {"error": error}, ""
    return 200, {}, ENDED_WITHOUT.get(str(kind), "the result has no message")


def shape_of(row: Mapping[str, Any], where: str) -> Shape:
    """The shape of a line of results; what is none is a problem."""
    if "response" not in row and any(name in row for name in ("body", "params", "request")):
        raise Problem(f"{where} is a request, not a result; use the vendor's output file")
    if "result" in row:
        return "anthropic"
    return "gemini" if "key" in row and "custom_id" not in row else "openai"


OPENAI_FORM = BatchForm("OpenAI", "openai", OPENAI_WIRES, 50_000, 200 * MEGABYTE, has_address=True)
FORMS: Mapping[str, BatchForm] = {
    "openai": OPENAI_FORM,
    COMPATIBLE: replace(OPENAI_FORM, vendor="an OpenAI-compatible endpoint"),
    "azure": BatchForm("Azure", "openai", AZURE_WIRES, 50_000, 200 * MEGABYTE, has_address=True),
    "groq": BatchForm("Groq", "openai", CHAT_WIRES, 50_000, 200 * MEGABYTE, has_address=True),
    "vllm": BatchForm("vLLM", "openai", OPENAI_WIRES, 50_000, 200 * MEGABYTE, has_address=True),
    "mistral": BatchForm("Mistral", "openai", CHAT_WIRES, 50_000, 500 * MEGABYTE),
    "together": BatchForm("Together", "openai", TOGETHER_WIRES, 50_000, 100 * MEGABYTE),
    "anthropic": BatchForm(
        "Anthropic", "anthropic", {"chat": AnthropicWire()}, 50_000, 250 * MEGABYTE
    ),
    "gemini": BatchForm("Gemini", "gemini", {"chat": GeminiWire()}, 50_000, 500 * MEGABYTE),
}
"""By family; any other endpoint is taken to speak as OpenAI does."""


def form_for(family: str) -> str:
    """The name of the form of a family."""
    return family if family in FORMS else COMPATIBLE
