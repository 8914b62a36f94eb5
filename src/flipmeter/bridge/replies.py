"""Inspect's output -> Reply, and its configuration -> decoding."""

from __future__ import annotations

from typing import Any

from flipmeter.types import Problem, Reply, Usage

FINISHED = {
    "stop": "stop",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "tool_calls": "tool_calls",
}
"""Finish reasons in Inspect's terms and in those of an endpoint."""


def reply_of(output: Any) -> Reply:
    """The reply in a `ModelOutput`, without the reasoning that Inspect keeps apart."""
    if not output.choices:
        return Reply(error=output.error or "the output has no choices")
    finish, content = FINISHED.get(output.stop_reason, ""), output.message.content
    parts = () if isinstance(content, str) else content
    is_refusal = any(getattr(part, "refusal", None) for part in parts)
    return Reply(
        text=output.completion,
        finish="refusal" if is_refusal else finish,
        usage=_usage(output.usage),
        seconds=output.time or 0.0,
        model=output.model,
    )


def _usage(usage: Any) -> Usage:
    if usage is None:
        return Usage()
    cached, written = usage.input_tokens_cache_read, usage.input_tokens_cache_write
    # Inspect counts what a cache holds apart; an endpoint counts it among the prompt's tokens.
    prompt = usage.input_tokens + (cached or 0) + (written or 0)
    return Usage(prompt, cached, usage.output_tokens, usage.reasoning_tokens)


def decoding_of(config: Any) -> dict[str, Any]:
    """The `decoding` of a study from a `GenerateConfig`; no option may change the prompt."""
    if config.system_message:
        raise Problem(
            "the log was made with its own system message, which flipmeter's prompts do "
            "not have; run the task without --system-message"
        )
    if config.cache:
        raise Problem(
            "the log was made with Inspect's cache, which answers repeats with the same reply; "
            "run the task without it"
        )
    sent = {
        "temperature": config.temperature,
        "top_k": config.top_k,
        "top_p": config.top_p,
        "seed": config.seed,
        "stop": config.stop_seqs or None,
    }
    return sent | ({"max_tokens": config.max_tokens} if config.max_tokens else {})
