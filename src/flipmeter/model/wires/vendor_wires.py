"""Vendors that speak OpenAI's chat completions with something of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flipmeter.model.wires.chat_wire import ChatWire, CompletionsWire
from flipmeter.model.wires.responses_wire import ResponsesWire
from flipmeter.model.wires.wire import Wire


class TogetherWire(ChatWire):
    """Together: log-probabilities are asked for by their number."""

    vendor = "Together"

    def fields(self, body: Mapping[str, Any]) -> dict[str, Any]:
        told = dict(body)
        n_shown = told.pop("top_logprobs", None)
        if told.get("logprobs") is True:
            told["logprobs"] = n_shown or 1
        return told


class _KeyHeader:
    """Azure: the key has a header of its own."""

    vendor = "Azure"

    def auth(self, key: str) -> dict[str, str]:
        return {"api-key": key}


class AzureChatWire(_KeyHeader, ChatWire):
    """Azure's chat completions, version 1 of its API."""


class AzureResponsesWire(_KeyHeader, ResponsesWire):
    """Azure's Responses API."""


TOGETHER_WIRES: Mapping[str, Wire] = {"chat": TogetherWire(), "completions": CompletionsWire()}
AZURE_WIRES: Mapping[str, Wire] = {"chat": AzureChatWire(), "responses": AzureResponsesWire()}
CHAT_WIRES: Mapping[str, Wire] = {"chat": ChatWire()}
