"""Scores of the next token -> a token: greedy, or drawn with a seed of the request's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flipmeter.types import Decoding, Problem, Request

FIELDS = frozenset(vars(Decoding()))


def decoding_in(body: Mapping[str, Any]) -> Decoding:
    """The decoding of a request; fields that it does not set are off.

    The model's own generation settings are not used: a reply depends on the request alone.
    """
    unknown = sorted(set(body) - FIELDS)
    if unknown:
        raise Problem(f"transformers does not support {unknown}; known: {sorted(FIELDS)}")
    fields: dict[str, Any] = {"temperature": None, **body, "stop": tuple(body.get("stop", ()))}
    return Decoding(**fields)


class Sampler:
    """Picks the tokens of one reply. Its chance is its own: no other request can disturb it."""

    def __init__(self, decoding: Decoding, request: Request) -> None:
        import torch

        self._is_greedy = decoding.is_greedy
        self._processors = _processors(decoding)
        # What is scored beside a reply must not change its words.
        own = replace(request, answers=()).key
        seed = decoding.seed if decoding.seed is not None else int(own[:15], 16)
        self._generator = torch.Generator().manual_seed(seed)

    def pick(self, context: Sequence[int], scores: Any) -> int:
        """The next token after a context, given the scores of all tokens."""
        import torch

        scores = scores.float().cpu()[None]
        if self._processors:
            scores = self._processors(torch.tensor([[*context]]), scores)
        if self._is_greedy:
            return int(scores[0].argmax())
        shares = torch.softmax(scores[0], dim=-1)
        return int(torch.multinomial(shares, 1, generator=self._generator))


def _processors(decoding: Decoding) -> Any:
    """The logits processors, in the order of transformers."""
    import transformers as hf

    parts: list[Any] = []
    if decoding.repetition_penalty not in (None, 1.0):
        parts.append(hf.RepetitionPenaltyLogitsProcessor(float(decoding.repetition_penalty or 1)))
    if decoding.is_greedy:
        return hf.LogitsProcessorList(parts)
    if decoding.temperature not in (None, 1.0):
        parts.append(hf.TemperatureLogitsWarper(float(decoding.temperature or 1)))
    if decoding.top_k:
        parts.append(hf.TopKLogitsWarper(decoding.top_k))
    if decoding.top_p is not None and decoding.top_p < 1:
        parts.append(hf.TopPLogitsWarper(decoding.top_p))
    if decoding.min_p:
        parts.append(hf.MinPLogitsWarper(decoding.min_p))
    return hf.LogitsProcessorList(parts)
