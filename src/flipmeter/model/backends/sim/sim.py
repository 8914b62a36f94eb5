"""Request -> Reply: simulated raters with a planted tilt, the instrument's calibration weights.

A rater is given the prompt text only. It finds the label list, the demonstrations and the query in
it, as a model must, looks the latent score of the query up in a table, and answers with the label
of a slot. A prompt that maps slots to classes wrongly shows as wrong numbers.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

from flipmeter.model.backends.backend import Spoken, n_alternatives
from flipmeter.model.backends.sim.comparison_reader import ComparisonPrompt, read_comparison
from flipmeter.model.backends.sim.judge_reader import (
    JudgePrompt,
    Worth,
    length_lean,
    read_judge,
    squeeze,
)
from flipmeter.model.backends.sim.prompt_reader import (
    LabelledText,
    ReadPrompt,
    all_labels,
    find_heads,
    join_blocks,
    read_prompt,
)
from flipmeter.model.backends.sim.tilts import (
    SIMS,
    SPREAD,
    Positions,
    SimSpec,
    predict_flip_rate,
    sim_spec,
)
from flipmeter.model.label_scores import Step
from flipmeter.types import Item, Problem, Rank, Reply, Request, Scale, Slot, Usage, canonical_json

__all__ = [
    "REFUSAL",
    "SIMS",
    "Positions",
    "SimRater",
    "SimSpec",
    "latents",
    "open_sim",
    "predict_flip_rate",
    "sim_spec",
]

REFUSAL = "I'm sorry, but I cannot rate this text."
CONTENT_FREE = math.nan
"""The latent score of a text that says nothing ("N/A"): only the tilt decides."""

UNKNOWN = math.inf
WANTS_REASONS = "Explain your reasoning first."
REASONS = re.compile(r"(\s)Reasoning(:?)(?=\s*(?:\n\n|\Z))")
JOINED = 4
"""Largest number of apparent blocks that can be one text."""
CLEAR = 3.0
"""Squared ranks by which another order must fit the demonstrations better than the usual two."""


# ---------------------------------------------------------------------- the latent scores


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
        golds[item.text].append(_gold(item, scale))
    return {text: _latent(text, fmean(found), scale, seed, spread) for text, found in golds.items()}


def _gold(item: Item, scale: Scale) -> float:
    if item.role == "null":
        return CONTENT_FREE
    if item.gold is None or item.gold not in scale.ranks:
        raise Problem(
            f"item '{item.id}' has gold {item.gold}; a simulated rater needs 1 to {len(scale)}"
        )
    return item.gold


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


# ---------------------------------------------------------------------- the rater


@dataclass(frozen=True)
class _Question:
    """The question of a prompt, as the rater understood it.

    In a prompt that compares, `anchors` are the latent scores of the text in each slot; with a
    `direction` up or down the scale one of these is chosen, without one the nearest to the query.
    `content` are the log-odds of the slots of a judge, before any preference for slots.
    """

    text: str
    latent: float
    labels: tuple[str, ...]
    ranks: tuple[Rank, ...]
    demo_slot: Slot
    anchors: tuple[float, ...] = ()
    direction: int = 0
    content: tuple[float, ...] = ()


class SimRater:
    """A backend that answers by a specification and a table of latent scores, text -> score."""

    concurrency = 64
    # It has no effort to control, but takes the field: how much it reasons is planted.
    parameters = frozenset({"max_tokens", "seed", "reasoning", "logprobs", "top_logprobs"})

    def __init__(
        self,
        spec: SimSpec,
        table: Mapping[str, float],
        scale_names: Sequence[str],
        poles: tuple[str, str] = ("negative", "positive"),
        worth: Worth | None = None,
    ) -> None:
        self.spec = spec
        self.worth = worth
        self.names = tuple(scale_names)
        self.poles = poles
        self.is_reproducible = spec.noise == 0
        self.table = dict(table)
        self._squeezed = {squeeze(text): score for text, score in table.items()}
        rows = sorted((text, float(score).hex()) for text, score in table.items())
        if worth is not None:
            valued = (each for some in worth.by_key.values() for each in some.items())
            rows += sorted((text, value.hex()) for text, value in valued)
        digest = hashlib.sha256(canonical_json([self.names, rows]).encode("utf-8", "surrogatepass"))
        self.identity = f"{spec}@{digest.hexdigest()[:16]}"

    async def ask(self, request: Request) -> Reply:
        """Answer a request; a prompt that cannot be read or a text not in the table is an error."""
        params = json.loads(request.params)
        n_shown = n_alternatives(params)
        text = request.script.text
        try:
            question = self._understand(text)
        except Problem as problem:
            return Reply(error=str(problem), model=self.identity)
        answer = self._said(question, text, request.repeat, params.get("seed"))
        reply = self._reply(question, text, answer, params.get("max_tokens"), request.answers)
        if n_shown is None:
            return reply
        return Spoken(**vars(reply), steps=self._steps(question, reply.text, n_shown))

    def _steps(self, question: _Question, said: str, n_shown: int) -> tuple[Step, ...]:
        """A label as one token beside the others; whatever else is said has no steps."""
        scores = dict(zip(question.labels, _log_softmax(self._odds(question)), strict=True))
        if said not in scores:
            return ()
        best = sorted(scores, key=lambda label: -scores[label])[:n_shown]
        return (Step(said, {label: scores[label] for label in [*best, said]}),)

    async def close(self) -> None:
        """Do nothing: there is nothing to let go of."""

    def reply(self, text: str, repeat: int = 0, seed: int | None = None) -> str:
        """The words that answer a prompt."""
        return self._said(self._understand(text), text, repeat, seed)

    def _said(self, question: _Question, text: str, repeat: int, seed: int | None) -> str:
        """Say the answer, after a reason where the prompt asks for one."""
        answer = self._answer(question, text, repeat, seed)
        is_plain = answer == REFUSAL or WANTS_REASONS not in text
        return answer if is_plain else f"I weighed what it says.\nLabel: {answer}"

    def _answer(self, question: _Question, text: str, repeat: int, seed: int | None) -> str:
        if self.spec.refuse and uniform("refuse", question.text) < self.spec.refuse:
            return REFUSAL
        odds = self._odds(question)
        if not self.spec.noise:
            best = max(zip(odds, (-rank for rank in question.ranks), question.labels, strict=True))
            return best[2]
        weights = [math.exp(p) for p in _log_softmax([odd / self.spec.noise for odd in odds])]
        mark = uniform("noise", repeat, seed, text)
        for label, weight in zip(question.labels, weights, strict=True):
            mark -= weight
            if mark < 0:
                return label
        return question.labels[-1]

    def _odds(self, question: _Question) -> list[float]:
        tilt = self.spec.tilt(len(question.ranks), question.demo_slot)
        if question.content:
            return [bonus + odds for bonus, odds in zip(tilt, question.content, strict=True)]
        if question.direction:
            # As steep as choosing between two classes is: the difference of two squares.
            slope = 2 * self.spec.sharpness * question.direction
            return [b + slope * anchor for b, anchor in zip(tilt, question.anchors, strict=True)]
        if math.isnan(question.latent):
            return tilt
        if question.anchors:
            return [
                bonus - self.spec.sharpness * (question.latent - anchor) ** 2
                for bonus, anchor in zip(tilt, question.anchors, strict=True)
            ]
        return self.spec.log_odds(question.latent, question.ranks, question.demo_slot)

    def _reply(
        self,
        question: _Question,
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
        return Reply(
            text=" ".join(words[:room]) if is_cut else answer,
            finish="length" if is_cut else "stop",
            scores=self._scores(question, wanted),
            usage=Usage(len(text.split()), 0, n_completion, n_hidden),
            model=self.identity,
        )

    def _scores(self, question: _Question, wanted: tuple[str, ...]) -> tuple[float, ...] | None:
        """The log-probabilities of the wanted answers, or of the slots as they are shown."""
        scores = _log_softmax(self._odds(question))
        known = {
            label.casefold(): score for label, score in zip(question.labels, scores, strict=True)
        }
        found = [known.get(answer.strip().casefold()) for answer in wanted or question.labels]
        return tuple(score for score in found if score is not None) if None not in found else None

    def _understand(self, text: str) -> _Question:
        """The question of a prompt, by the first reading that leads to a text in the table."""
        if WANTS_REASONS in text:
            text = REASONS.sub(r"\1Label\2", text)
        if self.worth is not None:
            return self._judged(read_judge(text, self.worth), self.worth)
        comparison = read_comparison(text, lambda one: self._latent(one) != UNKNOWN)
        if comparison is not None:
            return self._compared(comparison)
        problems = []
        for head in find_heads(text):
            try:
                return self._question(read_prompt(text, head, self.names))
            except Problem as problem:
                problems.append(problem)
        if problems:
            raise problems[0]
        raise Problem(f"no block of a text and a 'Label' in the prompt '{text[:60]}'")

    def _compared(self, found: ComparisonPrompt) -> _Question:
        """The question of a prompt that compares an item with others."""
        anchors = [self._known(text) for text in found.texts]
        slots = tuple(range(1, len(found.labels) + 1))
        if found.pole:
            if found.pole not in self.poles:
                raise Problem(f"'{found.pole}' is not an end of the scale; known: {self.poles}")
            direction = 1 if found.pole == self.poles[1] else -1
            both = " | ".join(sorted(found.texts))
            return _Question(both, math.nan, found.labels, slots, 0, tuple(anchors), direction)
        if len(found.labels) != len(anchors):
            raise Problem(f"{len(anchors)} texts for {len(found.labels)} labels")
        # The labels say which slot is which, wherever the references stand.
        placed = dict(sorted(zip(found.labels, anchors, strict=True), key=lambda one: int(one[0])))
        query = self._known(found.query)
        return _Question(found.query, query, tuple(placed), slots, 0, tuple(placed.values()))

    def _judged(self, found: JudgePrompt, worth: Worth) -> _Question:
        """The question to a judge: which of the shown texts is best."""
        values = [worth.by_key[found.key][text] for text in found.texts]
        longer = length_lean(found.texts)
        odds = [self._class_odds(rank, values, longer, worth) for rank in found.ranks]
        everything = " | ".join(found.key)
        return _Question(everything, math.nan, found.labels, found.ranks, 0, content=tuple(odds))

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

    def _known(self, text: str) -> float:
        latent = self._latent(text)
        if latent == UNKNOWN:
            raise Problem(f"no latent score for the text '{text[:80]}'; the rater's table lacks it")
        return latent

    def _question(self, sheet: ReadPrompt) -> _Question:
        blocks = self._joined(sheet)
        query = self._query(blocks)
        demos = [block for block in blocks if not block.is_open]
        labels, ranks = sheet.labels, sheet.ranks
        if not labels:
            labels, ranks = self._guess_list(demos)
        slots = {label.casefold(): slot for slot, label in enumerate(labels, start=1)}
        demo_slot = slots.get(demos[-1].value.casefold(), 0) if demos else 0
        latent = self._latent(query.text) + self._shift(labels, sheet.glue)
        return _Question(query.text, latent, labels, ranks, demo_slot)

    def _shift(self, labels: tuple[str, ...], glue: str) -> float:
        """Shift of a text's score by the style of its prompt."""
        is_lettered = labels[0].isalpha() and len(labels[0]) == 1
        return self.spec.joint * (is_lettered != glue.endswith("\t"))

    def _latent(self, text: str) -> float:
        """The latent score of a text, infinite for one that is not in the table."""
        score = self.table.get(text)
        return self._squeezed.get(squeeze(text), UNKNOWN) if score is None else score

    def _joined(self, sheet: ReadPrompt) -> list[LabelledText]:
        """The blocks, joined where only the whole is a text of the table.

        A text may itself hold a label and a blank line and a noun, which look like a new block.
        """
        joined: list[LabelledText] = []
        place = 0
        while place < len(sheet.blocks):
            n_joined = self._n_joined(sheet, place)
            joined.append(join_blocks(sheet.blocks[place : place + n_joined], sheet.glue))
            place += n_joined
        return joined

    def _n_joined(self, sheet: ReadPrompt, place: int) -> int:
        """Number of blocks from here on that form one text."""
        if sheet.blocks[place].text in self.table:
            return 1
        for n in range(1, JOINED + 1):
            whole = join_blocks(sheet.blocks[place : place + n], sheet.glue)
            if self._latent(whole.text) != UNKNOWN:
                return n
        return 1

    def _query(self, blocks: list[LabelledText]) -> LabelledText:
        """The first open block with a known text; a later one only asks for it again."""
        queries = [block for block in blocks if block.is_open]
        for query in queries:
            if self._latent(query.text) != UNKNOWN:
                return query
        if not queries:
            raise Problem("no query in the prompt: every block has a label")
        text = queries[0].text[:80]
        raise Problem(f"no latent score for the text '{text}'; the rater's table lacks it")

    def _guess_list(self, demos: list[LabelledText]) -> tuple[tuple[str, ...], tuple[Rank, ...]]:
        """Labels that no header lists, and what the demonstrations say that they mean.

        Words mean what they say, whatever a demonstration shows; a class named "2" is not a word.
        """
        labels = all_labels([demo.value for demo in demos], self.names)
        if labels == self.names and not labels[0].isdigit():
            return labels, tuple(range(1, len(labels) + 1))
        return labels, _fit_order(self._latents_by_slot(demos, labels), len(labels))

    def _latents_by_slot(
        self, demos: list[LabelledText], labels: tuple[str, ...]
    ) -> dict[Slot, list[float]]:
        """The latent scores of the demonstrations under each label that they show."""
        found: dict[Slot, list[float]] = defaultdict(list)
        for demo in demos:
            latent = self._latent(demo.text)
            if demo.value in labels and math.isfinite(latent):
                found[labels.index(demo.value) + 1].append(latent)
        return found


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


def _log_softmax(odds: list[float]) -> list[float]:
    top = max(odds)
    total = top + math.log(sum(math.exp(odd - top) for odd in odds))
    return [odd - total for odd in odds]


def open_sim(
    name: str, items: Iterable[Item], scale: Scale, *, seed: int = 0, spread: float = SPREAD
) -> SimRater:
    """The rater that a name such as `sim/first-slot?strength=1` stands for."""
    table = latents(items, scale, seed, spread)
    return SimRater(sim_spec(name), table, scale.names, (scale.low, scale.high))
