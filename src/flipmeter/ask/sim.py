"""Request -> Reply: simulated raters with a planted tilt, the instrument's calibration weights.

A rater is given the question in a request beside its words: labels by slot, demonstrations in their
order, texts in their places. It looks up what it knows of the texts, and answers with the label of
a slot. Draws depend on the words too: they are the request.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

from flipmeter.ask.label_scores import log_sum
from flipmeter.ask.tilts import SPREAD, SimSpec
from flipmeter.checks import read_number
from flipmeter.errors import Problem
from flipmeter.types import (
    Example,
    Item,
    Places,
    Posed,
    Rank,
    Reply,
    Request,
    Scale,
    Slot,
    Span,
    Style,
    Task,
    Usage,
    canonical_json,
)

REFUSAL = "I'm sorry, but I cannot rate this text."
CONTENT_FREE = math.nan
"""The latent score of a text that says nothing ("N/A"): only the tilt decides."""

WANTS_REASONS = "Explain your reasoning first."
CLEAR = 3.0
"""Squared ranks by which another order must fit the demonstrations better than the usual two."""
SD = 0.05
"""A `noise` of 1, and a rank of spread, as a share of the range of decimal scores."""
PULL = 0.1
"""Pull of a decimal score to that of the last demonstration with a `recency` of 1."""


# ---------------------------------------------------------------------- what raters know


def latents(
    items: Iterable[Item], scale: Scale, seed: int = 0, spread: float = SPREAD
) -> dict[str, float]:
    """The latent score of each text: its gold rank plus `spread` times a normal quantile.

    The quantile comes from the SHA-256 of the text, so it is the same everywhere. Scores stay
    within half a rank of the scale. Copies of a text share the mean of their golds; null items have
    no content.
    """
    golds: dict[str, list[float]] = defaultdict(list)
    for item in items:
        gold = CONTENT_FREE if item.role == "null" else item.gold
        if gold is None or (gold not in scale.ranks and not math.isnan(gold)):
            raise Problem(
                f"item '{item.id}' has gold {gold}; a simulated rater needs 1 to {len(scale)}"
            )
        golds[item.text].append(gold)
    return {text: _latent(text, fmean(found), scale, seed, spread) for text, found in golds.items()}


def _latent(text: str, gold: float, scale: Scale, seed: int, spread: float) -> float:
    if math.isnan(gold):
        return CONTENT_FREE
    z = NormalDist().inv_cdf(uniform("latent", seed, text))
    # Rounded, so that the last bit of another machine's logarithm cannot change the table's digest.
    return min(max(round(gold + spread * z, 9), 0.5), len(scale) + 0.5)


def uniform(*content: object) -> float:
    """A number in (0, 1) that depends on the content only."""
    digest = hashlib.sha256("\x1f".join(map(str, content)).encode("utf-8", "surrogatepass"))
    return ((int.from_bytes(digest.digest()[:8], "big") >> 11) + 0.5) / 2**53


Key = tuple[str, ...]
"""The choices, sorted: the same in every order."""


@dataclass(frozen=True)
class Worth:
    """The knowledge of a simulated judge: the quality of each text, by the set of choices.

    `leans[rank - 1]` says how much a class of a pair favours the answer in the first place, from -1
    to 1.
    """

    places: Places
    by_key: Mapping[Key, Mapping[str, float]]

    @property
    def leans(self) -> tuple[float, ...]:
        return leans(self.places)


def leans(places: Places) -> tuple[float, ...]:
    """The preference of each class of a pair for the first answer, from -1 to 1."""
    mirrored = places.meanings((1, 0))
    steps = max(len(mirrored) - 1, 1)
    signs = (1 if places.named(rank)[:1] == (0,) else -1 for rank in range(1, len(mirrored) + 1))
    apart = (abs(other - rank) for rank, other in enumerate(mirrored, 1))
    return tuple(sign * far / steps for sign, far in zip(signs, apart, strict=True))


def worth_of(items: Iterable[Item], task: Task) -> Worth:
    """Say how good every answer or option is, from the item's class and the hash of its texts.

    A text without content stands in every place and is as good as itself.
    """
    assert task.places is not None
    places = task.places
    known: dict[Key, Mapping[str, float]] = {}
    for item in items:
        if item.role == "null":
            known[(squeeze(item.text),) * len(places.fields)] = {squeeze(item.text): 0.0}
            continue
        texts = [squeeze(item.fields[name]) for name in places.fields if item.fields.get(name)]
        key = tuple(sorted(texts))
        known[key] = _option_values(key, texts, item.gold or 0, places)
    return Worth(places, known)


def _option_values(key: Key, texts: Sequence[str], gold: Rank, places: Places) -> dict[str, float]:
    named = places.named(gold) if gold else ()
    if places.kind == "pair" and len(texts) == 2:
        # In units of a lean: two classes of a scale of M are 2 / (M - 1) apart.
        step = 2 / max(len(places.forms) - 1, 1)
        lean = leans(places)[gold - 1] if gold else 0.0
        far = lean + SPREAD * step * _normal_variate("pair", 0, *key)
        return {texts[0]: far / 2, texts[1]: -far / 2}
    return {
        text: (0.5 if place in named else -0.5) + SPREAD * _normal_variate("option", 0, text, *key)
        for place, text in enumerate(texts)
    }


def _normal_variate(*content: object) -> float:
    return round(NormalDist().inv_cdf(uniform(*content)), 9)


def squeeze(text: str) -> str:
    """A text with its white space made plain, for prompts that tidy it."""
    return " ".join(text.split())


def length_lean(texts: Sequence[str]) -> list[float]:
    """Log ratio of each text's length to the longest other one, at most 1."""
    found = []
    for place, text in enumerate(texts):
        others = [len(other) for at, other in enumerate(texts) if at != place]
        ratio = math.log(max(len(text), 1) / max(*others, 1))
        found.append(min(max(ratio, -1.0), 1.0))
    return found


def latent_scores(items: Iterable[Item], span: Span) -> dict[str, float]:
    """The latent score of each text: its gold score and a little, which depends on the text."""
    golds: dict[str, list[float]] = {}
    for item in items:
        if item.gold:
            golds.setdefault(item.text, []).append(span.score(item.gold))
    wide = SPREAD * SD * (span.high - span.low)
    return {
        text: fmean(found) + wide * NormalDist().inv_cdf(uniform("latent", 0, text))
        for text, found in golds.items()
    }


# ---------------------------------------------------------------------- the raters


@dataclass(frozen=True)
class Understood:
    """A question to a rater that knows the texts: the log-odds of the slots, and what it is about.

    `about` decides on a refusal.
    """

    about: str
    labels: tuple[str, ...]
    ranks: tuple[Rank, ...]
    odds: tuple[float, ...]
    wants_reasons: bool = False


class SimRater:
    """A backend that answers by a specification and a table of latent scores, text -> score."""

    concurrency = 64
    # It has no effort to control, but takes the field: how much it reasons is planted.
    parameters = frozenset({"max_tokens", "seed", "reasoning"})

    def __init__(
        self,
        spec: SimSpec,
        table: Mapping[str, float],
        scale_names: Sequence[str],
        worth: Worth | None = None,
    ) -> None:
        self.spec = spec
        self.worth = worth
        self.names = tuple(scale_names)
        self.is_reproducible = spec.noise == 0
        self.table = dict(table)
        self._squeezed = {squeeze(text): score for text, score in table.items()}
        rows = sorted((text, float(score).hex()) for text, score in table.items())
        if worth is not None:
            valued = (each for some in worth.by_key.values() for each in some.items())
            rows += sorted((text, value.hex()) for text, value in valued)
        self.identity = _sim_identity(spec, [self.names, rows])

    async def ask(self, request: Request) -> Reply:
        """Answer a request; a text that is not in the table is an error."""
        params = json.loads(request.params)
        try:
            case = self.understand(_posed_question(request))
        except Problem as problem:
            return Reply(error=str(problem), model=self.identity)
        text = request.script.text
        answer = self._answer(case, text, request.repeat, params.get("seed"))
        if case.wants_reasons and answer != REFUSAL:
            answer = f"I weighed what it says.\nLabel: {answer}"
        return self._reply(case, text, answer, params.get("max_tokens"), request.answers)

    async def close(self) -> None:
        """Do nothing: there is nothing to let go of."""

    def understand(self, question: Posed) -> Understood:
        """The log-odds of a question's slots, by what the rater knows of its texts."""
        if self.worth is not None:
            return self._judged(question, self.worth)
        return self._compared(question) if question.beside else self._rated(question)

    def _rated(self, question: Posed) -> Understood:
        labels, ranks = _label_texts_and_ranks(question)
        if not question.is_listed:
            labels, ranks = self._guess_list(labels, question.demos)
        slots = {label.casefold(): slot for slot, label in enumerate(labels, start=1)}
        demos = question.demos
        demo_slot = slots.get(demos[-1].label.casefold(), 0) if demos else 0
        is_lettered = labels[0].isalpha() and len(labels[0]) == 1
        is_joint = is_lettered != (question.style.separator == "tab")
        latent = self._known(question.text) + self.spec.joint * is_joint
        if math.isnan(latent):
            odds = self.spec.tilt(len(ranks), demo_slot)
        else:
            odds = self.spec.log_odds(latent, ranks, demo_slot)
        wants = _wants_reasons(question.style)
        return Understood(question.text.strip(), labels, ranks, tuple(odds), wants)

    def _compared(self, question: Posed) -> Understood:
        """The texts in the slots by their scores, or by how near they are to the item's."""
        beside, sharpness = question.beside, self.spec.sharpness
        anchors = [self._known(text) for text in beside]
        tilt = self.spec.tilt(len(anchors), 0)
        about = question.text
        if question.toward:
            about = " | ".join(sorted(beside))
            # As steep as choosing between two classes is: the difference of two squares.
            content = [2 * sharpness * question.toward * anchor for anchor in anchors]
        elif math.isnan(query := self._known(question.text)):
            content = [0.0] * len(anchors)
        else:
            content = [-sharpness * (query - anchor) ** 2 for anchor in anchors]
        odds = tuple(bonus + own for bonus, own in zip(tilt, content, strict=True))
        labels, slots = _label_texts_and_ranks(question)[0], tuple(range(1, len(anchors) + 1))
        return Understood(about, labels, slots, odds)

    def _judged(self, question: Posed, worth: Worth) -> Understood:
        """The question to a judge: which of the texts is best."""
        fields, names = question.fields, worth.places.fields
        filled = [fields[name] for name in names if fields.get(name)]
        texts = [squeeze(text) for text in filled or [question.text] * len(names)]
        key = tuple(sorted(texts))
        if key not in worth.by_key:
            raise Problem(f"no known choice in '{' | '.join(texts)[:80]}'")
        values, longer = [worth.by_key[key][text] for text in texts], length_lean(texts)
        labels, ranks = _label_texts_and_ranks(question)
        tilt = self.spec.tilt(len(ranks), 0)
        content = [self._class_odds(rank, values, longer, worth) for rank in ranks]
        odds = tuple(bonus + own for bonus, own in zip(tilt, content, strict=True))
        return Understood(" | ".join(key), labels, ranks, odds, _wants_reasons(question.style))

    def _class_odds(
        self, rank: Rank, values: Sequence[float], longer: Sequence[float], worth: Worth
    ) -> float:
        """The log-odds of a class: the better text, and what the rater likes besides."""
        spec, named = self.spec, worth.places.named(rank)
        if worth.places.kind == "pair":
            lean = worth.leans[rank - 1]
            n_steps = (len(worth.places.forms) - 1) / 2
            far = n_steps * (values[0] - values[1] - lean)
            return lean * (spec.place + spec.length * longer[0]) - spec.sharpness * far**2
        return sum(
            2 * spec.sharpness * values[place]
            + spec.place * (place == 0)
            + spec.length * longer[place]
            for place in named
        )

    def _latent(self, text: str) -> float | None:
        """The latent score of a text, None for one that is not in the table."""
        score = self.table.get(text)
        return self._squeezed.get(squeeze(text)) if score is None else score

    def _known(self, text: str) -> float:
        score = self._latent(text)
        if score is None:
            raise Problem(f"no latent score for the text '{text[:80]}'; the rater's table lacks it")
        return score

    def _guess_list(
        self, labels: tuple[str, ...], demos: Sequence[Example]
    ) -> tuple[tuple[str, ...], tuple[Rank, ...]]:
        """Labels that no header lists, and what the demonstrations say that they mean.

        Words mean what they say, whatever a demonstration shows; a class named "2" is not a word.
        Without demonstrations there are the names of the classes alone.
        """
        labels = labels if demos else self.names
        if labels == self.names and not labels[0].isdigit():
            return labels, tuple(range(1, len(labels) + 1))
        found: dict[Slot, list[float]] = defaultdict(list)
        for demo in demos:
            latent = self._latent(demo.text)
            if latent is not None and demo.label in labels and math.isfinite(latent):
                found[labels.index(demo.label) + 1].append(latent)
        return labels, _fit_order(found, len(labels))

    def _answer(self, case: Understood, text: str, repeat: int, seed: int | None) -> str:
        if self.spec.refuse and uniform("refuse", case.about) < self.spec.refuse:
            return REFUSAL
        if not self.spec.noise:
            best = max(zip(case.odds, (-rank for rank in case.ranks), case.labels, strict=True))
            return best[2]
        weights = [math.exp(p) for p in _log_softmax([odd / self.spec.noise for odd in case.odds])]
        mark = uniform("noise", repeat, seed, text)
        for label, weight in zip(case.labels, weights, strict=True):
            mark -= weight
            if mark < 0:
                return label
        return case.labels[-1]

    def _reply(
        self,
        case: Understood,
        text: str,
        answer: str,
        max_tokens: int | None,
        wanted: tuple[str, ...],
    ) -> Reply:
        """The reply with a word counted as a token; the scores are before any noise."""
        words = answer.split()
        room = len(words) if max_tokens is None else max(max_tokens - self.spec.hidden, 0)
        is_cut = room < len(words)
        n_said = self.spec.hidden + min(room, len(words))
        n_completion = min(n_said, max_tokens) if max_tokens is not None else n_said
        n_hidden = min(self.spec.hidden, n_completion)
        shares = zip(case.labels, _log_softmax(case.odds), strict=True)
        known = {label.casefold(): share for label, share in shares}
        found = [known.get(answer.strip().casefold()) for answer in wanted or case.labels]
        is_known = None not in found
        scores = tuple(one for one in found if one is not None) if is_known else None
        return Reply(
            text=" ".join(words[:room]) if is_cut else answer,
            finish="length" if is_cut else "stop",
            scores=scores,
            usage=Usage(len(text.split()), 0, n_completion, n_hidden),
            model=self.identity,
        )


class NumberRater:
    """A backend that answers with the decimal score of a text."""

    concurrency = 64
    parameters = frozenset({"max_tokens", "seed"})

    def __init__(self, spec: SimSpec, table: Mapping[str, float], span: Span) -> None:
        self.spec, self.table, self.span = spec, dict(table), span
        self.is_reproducible = spec.noise == 0
        rows = sorted((text, score.hex()) for text, score in self.table.items())
        self.identity = _sim_identity(spec, [[span.low, span.high], rows])

    async def ask(self, request: Request) -> Reply:
        """Answer a request; a text that is not in the table is an error."""
        text, seed = request.script.text, json.loads(request.params).get("seed")
        try:
            said = self._said(_posed_question(request), text, request.repeat, seed)
        except Problem as problem:
            return Reply(error=str(problem), model=self.identity)
        usage = Usage(len(text.split()), 0, len(said.split()), 0)
        return Reply(said, "stop", usage=usage, model=self.identity)

    async def close(self) -> None:
        """Do nothing: there is nothing to let go of."""

    def _said(self, question: Posed, text: str, repeat: int, seed: int | None) -> str:
        query = question.text
        if query not in self.table:
            raise Problem(f"no score for the text '{query[:80]}'; the rater's table lacks it")
        if self.spec.refuse and uniform("refuse", query) < self.spec.refuse:
            return REFUSAL
        score, length = self.table[query], self.span.high - self.span.low
        last = read_number(question.demos[-1].label) if question.demos else None
        if last is not None:
            score += min(self.spec.recency * PULL, 1.0) * (last - score)
        z = NormalDist().inv_cdf(uniform("noise", repeat, seed, text))
        score += self.spec.noise * SD * length * z
        return f"{min(max(score, self.span.low), self.span.high):.4g}"


def _posed_question(request: Request) -> Posed:
    if request.question is None:
        raise Problem("a simulated rater reads no words; it must be given the question in them")
    return request.question


def _label_texts_and_ranks(question: Posed) -> tuple[tuple[str, ...], tuple[Rank, ...]]:
    """The labels by slot, and what they mean."""
    shown = question.labels
    return tuple(label.text for label in shown), tuple(label.rank for label in shown)


def _wants_reasons(style: Style) -> bool:
    return WANTS_REASONS in style.prompt if style.prompt else style.clarity == "reasoned"


def _sim_identity(spec: SimSpec, known: object) -> str:
    """The name of a rater with a digest of what it knows."""
    digest = hashlib.sha256(canonical_json(known).encode("utf-8", "surrogatepass"))
    return f"{spec}@{digest.hexdigest()[:16]}"


def _fit_order(latents_by_slot: Mapping[Slot, list[float]], n_slots: int) -> tuple[Rank, ...]:
    """The rank of each slot that fits the demonstrations best.

    It is the natural or the reversed order, unless they speak clearly for another: chance alone can
    put a single example of a class above one of the next.
    """
    natural = tuple(range(1, n_slots + 1))
    ascending = sorted(latents_by_slot, key=lambda slot: fmean(latents_by_slot[slot]))
    fitted = dict(zip(ascending, sorted(latents_by_slot), strict=True))
    free = tuple(fitted.get(slot, slot) for slot in natural)

    def misfit(order: tuple[Rank, ...]) -> float:
        pairs = ((order[slot - 1], latents) for slot, latents in latents_by_slot.items())
        return sum((latent - rank) ** 2 for rank, latents in pairs for latent in latents)

    usual = min(natural, natural[::-1], key=misfit)
    return free if misfit(free) + CLEAR < misfit(usual) else usual


def _log_softmax(odds: Sequence[float]) -> list[float]:
    total = log_sum(odds)
    return [odd - total for odd in odds]
