"""Prompts -> replies by transformers: the head once, what follows it token by token."""

from __future__ import annotations

import copy
import inspect
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flipmeter.ask.hf_loading import Loaded, Prompted, Said, Wording
from flipmeter.ask.label_scores import Ids
from flipmeter.errors import Problem
from flipmeter.types import Decoding, Reply, Request, Usage

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


PLAIN_LAYERS = {"DynamicLayer", "DynamicSlidingWindowLayer"}
"""Caches that go on from where they end; a recurrent state may not, so it is never shared."""


@dataclass
class _State:
    """Several sequences so far: their cache, which places are padding, scores of what is next."""

    cache: Any
    mask: Any
    scores: Any
    n_cached: int = 0


class HfEngine:
    """Answers requests with one loaded model.

    Where a prompt is split depends on nothing but its head and its text, and every request starts
    from a copy of the head's cache: what was asked before cannot move a bit of a lone request. In
    a batch, its neighbours can.
    """

    def __init__(self, loaded: Loaded, name: str) -> None:
        self._model = loaded.model
        self._about = loaded.about
        self._wording = Wording(loaded.tokenizer, name)
        self._ends = _stop_tokens(loaded)
        self._limit = getattr(loaded.model.config.get_text_config(), "max_position_embeddings", 0)
        self._takes = set(inspect.signature(loaded.model.forward).parameters)
        self._shares = True
        self._head: tuple[tuple[int, ...], Any] = ((), None)

    def answer(self, requests: Sequence[Request]) -> list[Reply]:
        """Answer requests that differ in nothing but what follows their head."""
        import torch

        start = time.perf_counter()
        body = json.loads(requests[0].params)
        interface, template = body.pop("interface", "chat"), body.pop("chat_template_kwargs", None)
        decoding = decoding_in(body)
        prompts = [self._wording.prompted(request, interface, template) for request in requests]
        longest = max(len(prompt.ids) for prompt in prompts)
        if self._limit and longest >= self._limit:
            if len(requests) > 1:  # answer those that stand beside a prompt that does not fit
                return [self.answer([request])[0] for request in requests]
            said = f"the prompt has {longest} tokens, but the limit of the model is {self._limit}"
            return [Reply(error=f"transformers: {said}")]
        if self._limit:
            decoding = replace(decoding, max_tokens=min(decoding.max_tokens, self._limit - longest))
        try:
            with torch.inference_mode():
                replies = self._replies(requests, prompts, decoding)
        except (RuntimeError, ValueError, IndexError) as error:
            said = " ".join(str(error).split())[:200]
            return [Reply(error=f"transformers: {said}") for _ in requests]
        seconds = time.perf_counter() - start
        return [replace(reply, seconds=seconds, fingerprint=self._about) for reply in replies]

    def _replies(
        self, requests: Sequence[Request], prompts: Sequence[Prompted], decoding: Decoding
    ) -> list[Reply]:
        state = self._begin(prompts, decoding.max_tokens)
        if len(requests) > 1 and requests[0].answers and not _is_plain(state.cache):
            pairs = zip(requests, prompts, strict=True)
            return [self._replies([one], [prompt], decoding)[0] for one, prompt in pairs]
        scores = [
            self._label_scores(state, row, prompt, request.answers)
            for row, (request, prompt) in enumerate(zip(requests, prompts, strict=True))
        ]
        said = [Said(self._wording, prompt, decoding.stop) for prompt in prompts]
        self._generate(state, said, [Sampler(decoding, request) for request in requests], decoding)
        return [
            Reply(
                text=one.text,
                finish=one.finish or "length",
                scores=None if one.n_reasoning else by_slot,
                usage=Usage(len(one.prompt.ids), state.n_cached, len(one.ids), one.n_reasoning),
            )
            for one, by_slot in zip(said, scores, strict=True)
        ]

    def _begin(self, prompts: Sequence[Prompted], n_more: int) -> _State:
        """Compute the prompts: their head once, the rest together, padded on the left.

        The padding stands between head and rest. A sliding window counts places, not tokens: where
        it would be reached, whole prompts are padded instead.
        """
        import torch

        longest = max(len(prompt.ids) for prompt in prompts)
        cut = min(prompt.n_head for prompt in prompts)
        window = getattr(self._model.config.get_text_config(), "sliding_window", None)
        if len(prompts) > 1 and window and longest + n_more >= window:
            cut = 0
        cache, cut, n_cached = self._from_head(prompts[0].ids[:cut], len(prompts))
        width = longest - cut
        pads = [longest - len(prompt.ids) for prompt in prompts]
        rows = [[0] * pad + prompt.ids[cut:] for pad, prompt in zip(pads, prompts, strict=True)]
        mask = torch.ones(len(prompts), cut + width, dtype=torch.long)
        for row, pad in enumerate(pads):
            mask[row, cut : cut + pad] = 0
        return self._step(_State(cache, mask, None, n_cached), torch.tensor(rows))

    def _from_head(self, ids: Sequence[int], n: int) -> tuple[Any, int, int]:
        """A cache of a head for n prompts, its length, and how much of it was there."""
        import torch

        if not (ids and self._shares):
            return None, 0, 0
        known, n_cached = tuple(ids), len(ids)
        if self._head[0] != known:
            self._head, n_cached = ((), None), 0  # two heads need not fit into memory
            mask = torch.ones(1, len(ids), dtype=torch.long)
            cache = self._step(_State(None, mask, None), torch.tensor([ids])).cache
            self._shares = _is_plain(cache)
            if not self._shares:
                return None, 0, 0
            self._head = known, cache
        cache = copy.deepcopy(self._head[1])
        if n > 1:
            for layer in cache.layers:
                layer.batch_repeat_interleave(n)
        return cache, len(ids), n_cached

    def _step(self, state: _State, ids: Any) -> _State:
        """Compute some more tokens of every sequence; the mask covers them already."""
        out = self._compute(state, ids)
        return _State(out.past_key_values, state.mask, out.logits[:, -1], state.n_cached)

    def _compute(self, state: _State, ids: Any, n_last: int = 1) -> Any:
        """The model's output for more tokens, with the scores after the last ones."""
        device = self._model.device
        positions = (state.mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        given = {
            "attention_mask": state.mask.to(device),
            "position_ids": positions.to(device),
            "logits_to_keep": n_last,
        }
        return self._model(
            input_ids=ids.to(device),
            past_key_values=state.cache,
            use_cache=True,
            **{name: value for name, value in given.items() if name in self._takes},
        )

    def _generate(
        self, state: _State, said: Sequence[Said], samplers: Sequence[Sampler], decoding: Decoding
    ) -> None:
        """Let every sequence go on to its end, a stop or the limit."""
        import torch

        for n in range(decoding.max_tokens):
            picked = [
                0 if one.finish else sampler.pick(one.prompt.ids + one.ids, scores)
                for one, sampler, scores in zip(said, samplers, state.scores, strict=True)
            ]
            for one, token in zip(said, picked, strict=True):
                if not one.finish:
                    one.add(token)
                    if token in self._ends:
                        one.finish = "stop"
            if all(one.finish for one in said) or n + 1 == decoding.max_tokens:
                return
            more = torch.ones(len(said), 1, dtype=torch.long)
            state.mask = torch.cat([state.mask, more], dim=1)
            state = self._step(state, torch.tensor(picked)[:, None])

    def _label_scores(
        self, state: _State, row: int, prompt: Prompted, answers: tuple[str, ...]
    ) -> tuple[float, ...] | None:
        """The log-probability of each answer as what follows the prompt of a row."""
        import torch

        if not answers:
            return None
        tree = self._wording.written(prompt, answers)
        shares: dict[Ids, Any] = {(): torch.log_softmax(state.scores[row].float(), dim=-1)}
        forks = [fork for fork in tree.forks() if fork]
        begun = {fork[:n] for fork in forks for n in range(len(fork))}
        longest = [fork for fork in forks if fork not in begun]
        for some in [longest] if _is_plain(state.cache) else [[one] for one in longest]:
            shares |= self._behind(state, row, some)

        def shown_after(place: Ids) -> dict[int, float]:
            return {token: float(shares[place][token]) for token in tree.branches(place)}

        return tree.scores(shown_after)

    def _behind(self, state: _State, row: int, forks: Sequence[Ids]) -> dict[Ids, Any]:
        """The log-probabilities of all tokens behind each fork and each part of it.

        All forks are one batch, on copies of the row; padding at their end changes nothing before.
        """
        import torch

        if not forks:
            return {}
        width = max(map(len, forks))
        rows = torch.tensor([[*fork, *[0] * (width - len(fork))] for fork in forks])
        mask = torch.cat([state.mask[[row] * len(forks)], torch.ones_like(rows)], dim=1)
        there = _State(_copy_cache_row(state.cache, row, len(forks)), mask, None)
        scores = torch.log_softmax(self._compute(there, rows, width).logits.float(), dim=-1)
        return {
            fork[: k + 1]: scores[n, k - width]
            for n, fork in enumerate(forks)
            for k in range(len(fork))
        }


def _is_plain(cache: Any) -> bool:
    layers = {type(layer).__name__ for layer in getattr(cache, "layers", ())}
    return bool(layers) and layers <= PLAIN_LAYERS


def _copy_cache_row(cache: Any, row: int, n: int) -> Any:
    """A cache of n copies of a row; the other is left as it is."""
    import torch

    if not _is_plain(cache):
        return copy.deepcopy(cache)  # it has this row only
    copied = copy.copy(cache)
    copied.layers = [copy.copy(layer) for layer in cache.layers]
    for layer in copied.layers:
        layer.batch_select_indices(torch.full((n,), row))
    return copied


def _stop_tokens(loaded: Loaded) -> set[int]:
    """The tokens that end a reply: those of the model and that of the tokenizer."""
    named = getattr(loaded.model.generation_config, "eos_token_id", None)
    ends = named if isinstance(named, list) else [named]
    return {int(token) for token in [*ends, loaded.tokenizer.eos_token_id] if token is not None}
