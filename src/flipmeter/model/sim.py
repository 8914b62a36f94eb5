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
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from statistics import NormalDist, fmean
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from flipmeter.registry import Registry, suggestion
from flipmeter.types import Item, Problem, Rank, Reply, Request, Scale, Slot, Usage, canonical_json

FloatArray = npt.NDArray[np.float64]
Latent = TypeVar("Latent", float, FloatArray)

REFUSAL = "I'm sorry, but I cannot rate this text."
CONTENT_FREE = math.nan
"""The latent score of a text that says nothing ("N/A"): only the tilt decides."""

UNKNOWN = math.inf
SPREAD = 0.6
GRID = 20_001


# ---------------------------------------------------------------------- what is planted


@dataclass(frozen=True)
class SimSpec:
    """The tilt of a simulated rater; everything is in log-odds and 0 switches it off.

    The log-odds of slot s, which stands for rank r, are
    `-sharpness * (latent - r)**2 + first*[s = 1] + last*[s = M] + slope*(s - 1) + recency*[s = d]`,
    where d is the slot that the last demonstration of the prompt shows. The answer is the best slot
    (ties go to the lower class) or, with noise, a draw from their softmax at temperature `noise`,
    which is the argmax under Gumbel noise of that size.
    """

    name: str = "custom"
    sharpness: float = 2.0
    """How fast log-odds fall with the squared distance between a class and the latent score."""
    first: float = 0.0
    """Bonus for the first slot."""
    last: float = 0.0
    """Bonus for the last slot."""
    slope: float = 0.0
    """Bonus per slot from the second on: positive prefers late slots, negative early ones."""
    recency: float = 0.0
    """Bonus for the label shown on the last demonstration."""
    noise: float = 0.0
    """Temperature of a fresh draw for each prompt, repeat and seed; the request's is ignored."""
    refuse: float = 0.0
    """Share of texts, picked by their hash, that are answered with `REFUSAL`."""
    hidden: int = 0
    """Reasoning tokens that are counted in the usage and against max_tokens, but not shown."""

    def __post_init__(self) -> None:
        numbers = self.numbers()
        bad = [name for name, value in numbers.items() if not math.isfinite(value)]
        bad += [name for name in ("sharpness", "noise", "refuse", "hidden") if numbers[name] < 0]
        bad += ["refuse"] if self.refuse > 1 else []
        if bad:
            raise Problem(
                f"'sim/{self.name}' cannot have {bad[0]}={numbers[bad[0]]:g}; sharpness, noise and "
                "hidden are at least 0, refuse is a share, all are finite"
            )

    def numbers(self) -> dict[str, float]:
        """Return the fields that a name may set."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "name"}

    def tilt(self, n_slots: int, demo_slot: Slot) -> list[float]:
        """Return the bonus of each slot; a `demo_slot` of 0 says that there is no demonstration."""
        bonus = [self.slope * k for k in range(n_slots)]
        bonus[0] += self.first
        bonus[-1] += self.last
        if demo_slot:
            bonus[demo_slot - 1] += self.recency
        return bonus

    def log_odds(self, latent: Latent, ranks: Sequence[Rank], demo_slot: Slot) -> list[Latent]:
        """Return the log-odds of the slots, up to a constant."""
        tilt = self.tilt(len(ranks), demo_slot)
        pairs = zip(ranks, tilt, strict=True)
        return [bonus - self.sharpness * (latent - rank) ** 2 for rank, bonus in pairs]

    def __str__(self) -> str:
        """Return the name with every setting that is not off."""
        on = [(key, f"{value!r}") for key, value in self.numbers().items() if value]
        return f"sim/{self.name}?" + "&".join(
            f"{key}={text.removesuffix('.0')}" for key, text in on
        )


@dataclass(frozen=True)
class Preset:
    """A named tilt, and the field that `strength` sets."""

    spec: SimSpec
    strength: str
    about: str


SIMS: Registry[Preset] = Registry("simulated rater")


def _preset(name: str, strength: str, about: str, **numbers: float) -> None:
    SIMS.add(name, Preset(_set(SimSpec(name), numbers), strength, about))


def _set(spec: SimSpec, numbers: Mapping[str, float]) -> SimSpec:
    """Return the specification with some numbers changed; `hidden` is a whole number."""
    whole = {"hidden": int(numbers["hidden"])} if "hidden" in numbers else {}
    return replace(spec, **{**numbers, **whole})  # type: ignore[arg-type]


_preset("honest", "", "no tilt and no noise: whatever flips is the instrument's fault")
_preset("first-slot", "first", "1.5 log-odds for whatever stands first in the list", first=1.5)
_preset("last-slot", "last", "1.5 log-odds for whatever stands last in the list", last=1.5)
_preset("recency", "recency", "2 log-odds for the label of the last demonstration", recency=2.0)
_preset("noisy", "noise", "no tilt; every request draws at temperature 1", noise=1.0)
_preset("refusing", "refuse", "no tilt; one text in five is refused, whatever the view", refuse=0.2)
_preset("biased-noisy", "first", "1.5 log-odds for slot 1, temperature 0.5", first=1.5, noise=0.5)


def sim_spec(name: str) -> SimSpec:
    """Read `sim/NAME?field=number&...`; `strength` sets what the preset is named for."""
    stem, _, query = name.removeprefix("sim/").partition("?")
    preset = SIMS[stem]
    settings: dict[str, float] = {}
    for part in filter(None, query.split("&")):
        key, _, value = part.partition("=")
        field = _field(key, preset)
        if field in settings:
            raise Problem(f"'{name}' sets {field} twice; keep one")
        settings[field] = _number(field, value, name)
    return _set(preset.spec, settings)


def _field(key: str, preset: Preset) -> str:
    field = preset.strength if key == "strength" else key
    known = list(preset.spec.numbers())
    if not field:
        raise Problem(f"'sim/{preset.spec.name}' has no strength; set one of: {', '.join(known)}")
    if field not in known:
        raise Problem(f"a simulated rater has no '{key}'{suggestion(key, [*known, 'strength'])}")
    return field


def _number(field: str, value: str, name: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise Problem(f"{field}='{value}' in '{name}' is not a number") from None
    if field == "hidden" and not number.is_integer():
        raise Problem(f"hidden={value} in '{name}' is not a whole number of tokens")
    return number


# ---------------------------------------------------------------------- the latent scores


def latents(
    items: Iterable[Item], scale: Scale, seed: int = 0, spread: float = SPREAD
) -> dict[str, float]:
    """Return the latent score of each text: its gold rank plus `spread` times a normal quantile.

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
    z = NormalDist().inv_cdf(_uniform("latent", seed, text))
    # Rounded, so that the last bit of another machine's logarithm cannot change the table's digest.
    return min(max(round(gold + spread * z, 9), 0.5), len(scale) + 0.5)


def _uniform(*content: object) -> float:
    """Return a number in (0, 1) that depends on the content only."""
    digest = hashlib.sha256("\x1f".join(map(str, content)).encode("utf-8", "surrogatepass"))
    return ((int.from_bytes(digest.digest()[:8], "big") >> 11) + 0.5) / 2**53


# ---------------------------------------------------------------------- reading a prompt

BREAK = "\n\n"
TAIL = re.compile(r".*\sLabel(:?)(?:([ \t])[ \t]*[^\n]{1,60})?", re.DOTALL)
HEADS = {
    ":": (re.compile(r"[^\n:]{1,40}: "),),
    "\t": (re.compile(r"[^\n\t]{1,40}\t"),),
    " ": tuple(re.compile(rf"(?:\S+ ){{{n_words}}}") for n_words in (1, 2, 3)),
}
JOINED = 4
"""How many apparent blocks may turn out to be one text."""
CLEAR = 3.0
"""Squared ranks by which another order must fit the demonstrations better than the usual two."""


@dataclass(frozen=True)
class Block:
    """A text with its label; the open one has none."""

    raw: str
    text: str
    value: str

    @property
    def is_open(self) -> bool:
        return not self.value


@dataclass(frozen=True)
class Sheet:
    """A prompt taken apart: the list, the blocks, and what stands before each of them."""

    labels: tuple[str, ...]
    ranks: tuple[Rank, ...]
    blocks: tuple[Block, ...]
    glue: str


def read_prompt(text: str, head: str, names: tuple[str, ...]) -> Sheet:
    """Take a prompt apart at its heads; without a list the labels and ranks are empty."""
    glue = BREAK + head
    header, *chunks = (BREAK + text.rstrip()).split(glue)
    labels, ranks = _read_list(header, names)
    blocks = _read_blocks(chunks, glue, labels or names, not labels)
    return Sheet(labels, ranks, tuple(blocks), glue)


def find_heads(text: str) -> Iterator[str]:
    """Give what blocks may start with, a noun and a separator like "Sentence: ", best first."""
    segments = text.rstrip().split(BREAK)
    tails = [_tail(segment) for segment in segments]
    # A block starts where one has just ended; segments inside a text say nothing.
    after = [segment for segment, tail in zip(segments[1:], tails, strict=False) if tail]
    starts = after or segments[1:] or segments
    usual = _separators([tail for tail in tails if tail])
    for separator in usual:
        yield from _heads(separator, starts)
    # Texts full of blank lines and labels can outvote the blocks, but not the first of them.
    for separator in HEADS if usual else ():
        yield from _heads(separator, segments[1:2])


def _heads(separator: str, starts: list[str]) -> Iterator[str]:
    """Give the heads with this separator, the most frequent first, those of one word before two."""
    for pattern in HEADS[separator]:
        found = [match[0] for start in starts if (match := pattern.match(start))]
        yield from (head for head, _ in Counter(found).most_common(3))


@lru_cache(maxsize=1 << 14)
def _tail(segment: str) -> str:
    """Return what follows the last "Label" of a segment, with "?" when nothing does; "" if none."""
    found = TAIL.fullmatch(segment)
    if not found:
        return ""
    return (found[1] or found[2]) if found[2] else found[1] + "?"


def _separators(tails: list[str]) -> str:
    """Return the separators to try: the usual one, or those that an open label leaves possible."""
    if not tails:
        return ""
    closed = [tail for tail in tails if "?" not in tail]
    if closed:
        return Counter(closed).most_common(1)[0][0]
    return ":\t " if ":?" in tails else "\t "


@lru_cache(maxsize=1 << 10)
def _read_list(header: str, names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[Rank, ...]]:
    """Return the labels of the list in a header with the ranks they stand for, by slot."""
    lists = re.findall(r"\[(.*)\]", header)
    for content in lists:
        entries = list(_entry(names).finditer(content))
        if sum(len(entry[0]) for entry in entries) + 2 * (len(entries) - 1) == len(content):
            folded = [name.casefold() for name in names]
            ranks = tuple(folded.index(entry[2].casefold()) + 1 for entry in entries)
            if sorted(ranks) == list(range(1, len(names) + 1)):
                return tuple(entry[1] or entry[2] for entry in entries), ranks
    if lists:
        raise Problem(f"the list '[{lists[-1]}]' does not show the classes {', '.join(names)} once")
    return (), ()


@lru_cache(maxsize=64)
def _entry(names: tuple[str, ...]) -> re.Pattern[str]:
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.compile(rf"(?:(\w+): )?({known})(?=, |$)", re.IGNORECASE)


def _read_blocks(
    chunks: list[str], glue: str, values: tuple[str, ...], is_guess: bool
) -> list[Block]:
    """Return the blocks; a chunk without a label at its end goes on in the next one."""
    blocks: list[Block] = []
    pending = ""
    for chunk in chunks:
        block = _read_block(pending + chunk, values, is_guess)
        pending = "" if block else pending + chunk + glue
        blocks += [block] if block else []
    if blocks and blocks[-1].is_open and any(block.is_open for block in blocks[:-1]):
        pending = blocks[-1].raw + glue
    # What follows the last demonstration asks again for the query above and shows no text.
    rest = pending.removesuffix(glue).rpartition(BREAK)[0]
    demo = _read_block(rest, values, is_guess)
    return [*blocks, demo] if demo and not demo.is_open else blocks


@lru_cache(maxsize=1 << 14)
def _read_block(chunk: str, values: tuple[str, ...], is_guess: bool) -> Block | None:
    """Return the text and the label at the end of a chunk; without a list any word is a label."""
    found = _block_pattern(values, is_guess).fullmatch(chunk)
    return Block(chunk, found[1].strip(), found[2] or "") if found else None


@lru_cache(maxsize=64)
def _block_pattern(values: tuple[str, ...], is_guess: bool) -> re.Pattern[str]:
    known = [re.escape(value) for value in sorted(values, key=len, reverse=True)]
    value = "|".join([*known, r"\w+"] if is_guess else known)
    return re.compile(rf"(.*)\sLabel(?:(?::[ \t]*|[ \t]+)({value})|:?)\s*", re.DOTALL)


# ---------------------------------------------------------------------- the rater


@dataclass(frozen=True)
class _Question:
    """What a prompt asks, as the rater understood it."""

    text: str
    latent: float
    labels: tuple[str, ...]
    ranks: tuple[Rank, ...]
    demo_slot: Slot


class SimRater:
    """A backend that answers by a specification and a table of latent scores, text -> score."""

    concurrency = 64

    def __init__(
        self, spec: SimSpec, table: Mapping[str, float], scale_names: Sequence[str]
    ) -> None:
        self.spec = spec
        self.names = tuple(scale_names)
        self.is_reproducible = spec.noise == 0
        self.table = dict(table)
        self._squeezed = {_squeeze(text): score for text, score in table.items()}
        rows = sorted((text, float(score).hex()) for text, score in table.items())
        digest = hashlib.sha256(canonical_json([self.names, rows]).encode("utf-8", "surrogatepass"))
        self.identity = f"{spec}@{digest.hexdigest()[:16]}"

    async def ask(self, request: Request) -> Reply:
        """Answer a request; a prompt that cannot be read or a text not in the table is an error."""
        params = json.loads(request.params)
        text = BREAK.join(message.content for message in request.messages)
        try:
            question = self._understand(text)
        except Problem as problem:
            return Reply(error=str(problem), model=self.identity)
        answer = self._answer(question, text, request.repeat, params.get("seed"))
        return self._reply(question, text, answer, params.get("max_tokens"), request.answers)

    async def close(self) -> None:
        """Do nothing: there is nothing to let go of."""

    def reply(self, text: str, repeat: int = 0, seed: int | None = None) -> str:
        """Return the words that answer a prompt."""
        return self._answer(self._understand(text), text, repeat, seed)

    def _answer(self, question: _Question, text: str, repeat: int, seed: int | None) -> str:
        if self.spec.refuse and _uniform("refuse", question.text) < self.spec.refuse:
            return REFUSAL
        odds = self._odds(question)
        if not self.spec.noise:
            best = max(zip(odds, (-rank for rank in question.ranks), question.labels, strict=True))
            return best[2]
        weights = [math.exp(p) for p in _log_softmax([odd / self.spec.noise for odd in odds])]
        mark = _uniform("noise", repeat, seed, text)
        for label, weight in zip(question.labels, weights, strict=True):
            mark -= weight
            if mark < 0:
                return label
        return question.labels[-1]

    def _odds(self, question: _Question) -> list[float]:
        if math.isnan(question.latent):
            return self.spec.tilt(len(question.ranks), question.demo_slot)
        return self.spec.log_odds(question.latent, question.ranks, question.demo_slot)

    def _reply(
        self,
        question: _Question,
        text: str,
        answer: str,
        max_tokens: int | None,
        wanted: tuple[str, ...],
    ) -> Reply:
        """Return the reply with a word counted as a token; the scores are before any noise."""
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
        """Return the log-probabilities of the wanted answers, or of the slots as they are shown."""
        scores = _log_softmax(self._odds(question))
        known = {
            label.casefold(): score for label, score in zip(question.labels, scores, strict=True)
        }
        found = [known.get(answer.strip().casefold()) for answer in wanted or question.labels]
        return tuple(score for score in found if score is not None) if None not in found else None

    def _understand(self, text: str) -> _Question:
        """Return what a prompt asks, read in the first way that leads to a text in the table."""
        problems = []
        for head in find_heads(text):
            try:
                return self._question(read_prompt(text, head, self.names))
            except Problem as problem:
                problems.append(problem)
        if problems:
            raise problems[0]
        raise Problem(f"no block of a text and a 'Label' in the prompt '{text[:60]}'")

    def _question(self, sheet: Sheet) -> _Question:
        blocks = self._mended(sheet)
        query = self._query(blocks)
        demos = [block for block in blocks if not block.is_open]
        labels, ranks = sheet.labels, sheet.ranks
        if not labels:
            labels, ranks = self._guess_list(demos)
        slots = {label.casefold(): slot for slot, label in enumerate(labels, start=1)}
        demo_slot = slots.get(demos[-1].value.casefold(), 0) if demos else 0
        return _Question(query.text, self._latent(query.text), labels, ranks, demo_slot)

    def _latent(self, text: str) -> float:
        """Return the latent score of a text, infinite for one that is not in the table."""
        score = self.table.get(text)
        return self._squeezed.get(_squeeze(text), UNKNOWN) if score is None else score

    def _mended(self, sheet: Sheet) -> list[Block]:
        """Return the blocks, joined where only the whole is a text of the table.

        A text may itself hold a label and a blank line and a noun, which look like a new block.
        """
        mended: list[Block] = []
        place = 0
        while place < len(sheet.blocks):
            n_joined = self._n_joined(sheet, place)
            mended.append(_joined(sheet.blocks[place : place + n_joined], sheet.glue))
            place += n_joined
        return mended

    def _n_joined(self, sheet: Sheet, place: int) -> int:
        """Return how many blocks from here on are one text."""
        if sheet.blocks[place].text in self.table:
            return 1
        for n in range(1, JOINED + 1):
            whole = _joined(sheet.blocks[place : place + n], sheet.glue)
            if self._latent(whole.text) != UNKNOWN:
                return n
        return 1

    def _query(self, blocks: list[Block]) -> Block:
        """Return the first open block with a known text; a later one only asks for it again."""
        queries = [block for block in blocks if block.is_open]
        for query in queries:
            if self._latent(query.text) != UNKNOWN:
                return query
        if not queries:
            raise Problem("no query in the prompt: every block has a label")
        text = queries[0].text[:80]
        raise Problem(f"no latent score for the text '{text}'; the rater's table lacks it")

    def _guess_list(self, demos: list[Block]) -> tuple[tuple[str, ...], tuple[Rank, ...]]:
        """Return labels that no header lists, and what the demonstrations say that they mean.

        Words mean what they say, whatever a demonstration shows; a class named "2" is no word.
        """
        labels = _identifiers([demo.value for demo in demos], self.names)
        if labels == self.names and not labels[0].isdigit():
            return labels, tuple(range(1, len(labels) + 1))
        return labels, _fit_order(self._latents_by_slot(demos, labels), len(labels))

    def _latents_by_slot(
        self, demos: list[Block], labels: tuple[str, ...]
    ) -> dict[Slot, list[float]]:
        """Return the latent scores of the demonstrations under each label that they show."""
        found: dict[Slot, list[float]] = defaultdict(list)
        for demo in demos:
            latent = self._latent(demo.text)
            if demo.value in labels and math.isfinite(latent):
                found[labels.index(demo.value) + 1].append(latent)
        return found


def _fit_order(latents_by_slot: Mapping[Slot, list[float]], n_slots: int) -> tuple[Rank, ...]:
    """Return the rank of each slot that fits the demonstrations best.

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


def _joined(blocks: Sequence[Block], glue: str) -> Block:
    """Return the one block that has been taken for several."""
    *parts, last = blocks
    if not parts:
        return last
    text = glue.join([*(part.raw for part in parts), last.text])
    return Block(glue.join([*(part.raw for part in parts), last.raw]), text.strip(), last.value)


def _identifiers(values: list[str], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return all labels of a format from some: 1..M, A.., Option_1.., or the class names."""
    folded = {name.casefold() for name in names}
    if all(value.casefold() in folded for value in values):
        return names
    for value in values:
        stem = value.rstrip("0123456789")
        if stem != value:
            return tuple(f"{stem}{slot}" for slot in range(1, len(names) + 1))
        if len(stem) == 1:
            return tuple(chr(ord("A") + slot) for slot in range(len(names)))
    raise Problem(f"the label '{values[0]}' is neither an identifier nor one of {', '.join(names)}")


def _squeeze(text: str) -> str:
    """Return the text with its white space made plain, for prompts that tidy it."""
    return " ".join(text.split())


def _log_softmax(odds: list[float]) -> list[float]:
    top = max(odds)
    total = top + math.log(sum(math.exp(odd - top) for odd in odds))
    return [odd - total for odd in odds]


def open_sim(
    name: str, items: Iterable[Item], scale: Scale, *, seed: int = 0, spread: float = SPREAD
) -> SimRater:
    """Return the rater that a name such as `sim/first-slot?strength=1` stands for."""
    return SimRater(sim_spec(name), latents(items, scale, seed, spread), scale.names)


# ---------------------------------------------------------------------- the planted value


@dataclass(frozen=True)
class Shown:
    """What a view shows: the rank of each slot, and the class of the last demonstration, if any."""

    label_order: tuple[Rank, ...]
    last_demo: Rank | None = None


def predict_flip_rate(
    spec: SimSpec,
    n_classes: int,
    a: Shown,
    b: Shown,
    *,
    spread: float = SPREAD,
    gold_shares: Sequence[float] | None = None,
) -> float:
    """Return the share of texts whose class differs between two views, by numeric integration.

    The integral runs over the latent scores that `latents` draws: a normal around each gold rank,
    clipped at half a rank beyond the scale. With noise the two views are drawn independently, so
    `a == b` gives the flips between two repeats of one prompt. Refusals do not depend on the latent
    score: this is the rate among texts that are answered.
    """
    shares = np.array([1.0] * n_classes if gold_shares is None else gold_shares, dtype=np.float64)
    if len(shares) != n_classes or sorted(a.label_order) != sorted(b.label_order):
        raise Problem(f"both views and the gold shares must cover the {n_classes} classes")
    normal = NormalDist()
    z = np.array([normal.inv_cdf((k + 0.5) / GRID) for k in range(GRID)])
    total = 0.0
    for gold, share in enumerate(shares / shares.sum(), start=1):
        latent = np.clip(gold + spread * z, 0.5, n_classes + 0.5)
        agree = (_class_shares(spec, latent, a) * _class_shares(spec, latent, b)).sum(axis=0)
        total += float(share * (1 - agree).mean())
    return max(total, 0.0)


def _class_shares(spec: SimSpec, latent: FloatArray, shown: Shown) -> FloatArray:
    """Return the probability of each class (rows) at each latent score (columns)."""
    order = shown.label_order
    demo_slot = order.index(shown.last_demo) + 1 if shown.last_demo else 0
    by_slot = np.stack(spec.log_odds(latent, order, demo_slot))
    odds = by_slot[np.argsort(order)]
    if not spec.noise:
        best: FloatArray = np.eye(len(order))[odds.argmax(axis=0)].T
        return best
    weights = np.exp((odds - odds.max(axis=0)) / spec.noise)
    shares: FloatArray = weights / weights.sum(axis=0)
    return shares
