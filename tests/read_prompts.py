"""Prompt text -> the question in it: what a simulated rater would have to find in the words.

A simulated rater is given the question beside the prompt. A reader here finds it in the words
alone, as a model must: the label list, the demonstrations, the query, what a judge chooses from and
what an item is compared with. That both understand the same shows that a prompt says what it means.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import islice
from typing import Literal, cast

from flipmeter.ask.family import World
from flipmeter.ask.sim import WANTS_REASONS, Key, NumberRater, SimRater, Worth, squeeze
from flipmeter.ask.tilts import sim_spec
from flipmeter.checks import NUMBER
from flipmeter.errors import Problem
from flipmeter.types import (
    Example,
    Label,
    Message,
    Places,
    Posed,
    Rank,
    Reply,
    Request,
    Script,
    Style,
    canonical_json,
)

REASONS = re.compile(r"(\s)Reasoning(:?)(?=\s*(?:\n\n|\Z))")
JOINED = 4
"""Largest number of apparent blocks that can be one text."""


# --- the question, for one who knows the texts -------------------------------------------------


@dataclass(frozen=True)
class Reader:
    """One who knows the texts of a dataset, the names of its classes and both ends of the scale."""

    world: World
    poles: tuple[str, str] = ("negative", "positive")

    def read(self, text: str) -> Posed:
        """The question of a prompt, by the first reading that leads to a text that is known."""
        wants = WANTS_REASONS in text
        if wants:
            text = REASONS.sub(r"\1Label\2", text)
        question = self._read(text)
        style = replace(question.style, clarity="reasoned" if wants else "explicit")
        return replace(question, style=style)

    def _read(self, text: str) -> Posed:
        if self.world.span is not None:
            return read_number_prompt(text, self.world.latents)
        if self.world.worth is not None:
            return _judging(read_judge(text, self.world.worth), self.world)
        comparison = read_comparison(text, self._is_known)
        if comparison is not None:
            return self._compared(comparison)
        problems = []
        for head in find_heads(text):
            try:
                return self._rated(read_prompt(text, head, self.world.names))
            except Problem as problem:
                problems.append(problem)
        if problems:
            raise problems[0]
        raise Problem(f"no block of a text and a 'Label' in the prompt '{text[:60]}'")

    def _compared(self, found: ComparisonPrompt) -> Posed:
        """The question of a prompt that compares an item with others."""
        if found.pole:
            if found.pole not in self.poles:
                raise Problem(f"'{found.pole}' is not an end of the scale; known: {self.poles}")
            toward: Literal[-1, 1] = 1 if found.pole == self.poles[1] else -1
            query = found.texts[0]
            return Posed({"text": query}, _listed(found.labels), beside=found.texts, toward=toward)
        if len(found.labels) != len(found.texts):
            raise Problem(f"{len(found.texts)} texts for {len(found.labels)} labels")
        # The labels say which slot is which, wherever the references stand.
        placed = dict(sorted(zip(found.labels, found.texts, strict=True), key=lambda p: int(p[0])))
        return Posed({"text": found.query}, _listed(placed), beside=tuple(placed.values()))

    def _rated(self, sheet: ReadPrompt) -> Posed:
        blocks = self._joined(sheet)
        query = self._query(blocks)
        demos = [block for block in blocks if not block.is_open]
        labels = sheet.labels or all_labels([demo.value for demo in demos], self.world.names)
        return Posed(
            {"text": query.text},
            _listed(labels, sheet.ranks),
            tuple(Example({"text": demo.text}, demo.value) for demo in demos),
            style=Style(separator="tab" if sheet.glue.endswith("\t") else "colon"),
            is_listed=bool(sheet.labels),
        )

    def _is_known(self, text: str) -> bool:
        return text in self.world.latents or squeeze(text) in self._squeezed

    @cached_property
    def _squeezed(self) -> frozenset[str]:
        return frozenset(map(squeeze, self.world.latents))

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
        if sheet.blocks[place].text in self.world.latents:
            return 1
        for n in range(1, JOINED + 1):
            whole = join_blocks(sheet.blocks[place : place + n], sheet.glue)
            if self._is_known(whole.text):
                return n
        return 1

    def _query(self, blocks: list[LabelledText]) -> LabelledText:
        """The first open block with a known text; a later one only asks for it again."""
        queries = [block for block in blocks if block.is_open]
        for query in queries:
            if self._is_known(query.text):
                return query
        if not queries:
            raise Problem("no query in the prompt: every block has a label")
        text = queries[0].text[:80]
        raise Problem(f"no text that is known, but '{text}'")


def _listed(texts: Iterable[str], ranks: Sequence[Rank] = ()) -> tuple[Label, ...]:
    """The labels in the slots; where nothing says what they mean, they have ranks all the same."""
    return tuple(
        Label(slot, text, text, ranks[slot - 1] if ranks else slot)
        for slot, text in enumerate(texts, 1)
    )


def _judging(found: JudgePrompt, world: World) -> Posed:
    assert world.worth is not None
    fields = dict(zip(world.worth.places.fields, found.texts, strict=False))
    return Posed(fields, _listed(found.labels, found.ranks))


def at_once(asked: Coroutine[None, None, Reply]) -> Reply:
    """The reply of a rater that waits for nothing, without a loop of events for each request."""
    try:
        asked.send(None)
    except StopIteration as ended:
        return cast("Reply", ended.value)
    raise AssertionError("a simulated rater waits for nothing")


class ReadingRater:
    """A simulated rater that is given the words alone."""

    def __init__(self, rater: SimRater | NumberRater, reader: Reader) -> None:
        self.rater, self.reader = rater, reader
        self.identity, self.is_reproducible = rater.identity, rater.is_reproducible
        self.concurrency, self.parameters = rater.concurrency, rater.parameters

    async def ask(self, request: Request) -> Reply:
        try:
            question = self.reader.read(request.script.text)
        except Problem as problem:
            return Reply(error=str(problem), model=self.identity)
        return await self.rater.ask(replace(request, question=question))

    async def close(self) -> None:
        await self.rater.close()

    def reply(self, text: str, repeat: int = 0, seed: int | None = None) -> str:
        """The words that answer a prompt."""
        params = canonical_json({} if seed is None else {"seed": seed})
        request = Request(self.identity, Script.of([Message("user", text)]), params, repeat=repeat)
        reply = at_once(self.ask(request))
        if reply.error:
            raise Problem(reply.error)
        return reply.text


def reading(
    name: str, world: World, poles: tuple[str, str] = ("negative", "positive")
) -> ReadingRater:
    """The simulated rater of a name, which reads the prompts that it is given."""
    spec = sim_spec(name)
    if world.span is not None:
        return ReadingRater(NumberRater(spec, world.latents, world.span), Reader(world, poles))
    rater = SimRater(spec, world.latents, world.names, world.worth)
    return ReadingRater(rater, Reader(world, poles))


# --- pointwise: the label list, the demonstrations and the query -------------------------------

BREAK = "\n\n"
TAIL = re.compile(r".*\sLabel(:?)(?:([ \t])[ \t]*[^\n]{1,60})?", re.DOTALL)
HEADS = {
    ":": (re.compile(r"[^\n:]{1,40}: "),),
    "\t": (re.compile(r"[^\n\t]{1,40}\t"),),
    " ": tuple(re.compile(rf"(?:\S+ ){{{n_words}}}") for n_words in (1, 2, 3)),
}


@dataclass(frozen=True)
class LabelledText:
    """A text with its label; the open one has none."""

    raw: str
    text: str
    value: str

    @property
    def is_open(self) -> bool:
        return not self.value


@dataclass(frozen=True)
class ReadPrompt:
    """A prompt taken apart: the list, the blocks, and what stands before each of them."""

    labels: tuple[str, ...]
    ranks: tuple[Rank, ...]
    blocks: tuple[LabelledText, ...]
    glue: str


def read_prompt(text: str, head: str, names: tuple[str, ...]) -> ReadPrompt:
    """Take a prompt apart at its heads; without a list the labels and ranks are empty."""
    glue = BREAK + head
    header, *chunks = (BREAK + text.rstrip()).split(glue)
    labels, ranks = _read_list(header, names)
    blocks = _read_blocks(chunks, glue, labels or names, not labels)
    return ReadPrompt(labels, ranks, tuple(blocks), glue)


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
    """The text after the last "Label" of a segment, "?" if that is empty; "" without a label."""
    found = TAIL.fullmatch(segment)
    if not found:
        return ""
    return (found[1] or found[2]) if found[2] else found[1] + "?"


def _separators(tails: list[str]) -> str:
    """The separators to try: the usual one, or those that an open label leaves possible."""
    if not tails:
        return ""
    closed = [tail for tail in tails if "?" not in tail]
    if closed:
        return Counter(closed).most_common(1)[0][0]
    return ":\t " if ":?" in tails else "\t "


@lru_cache(maxsize=1 << 10)
def _read_list(header: str, names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[Rank, ...]]:
    """The labels of the list in a header with the ranks they stand for, by slot."""
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
) -> list[LabelledText]:
    """The blocks; a chunk without a label at its end goes on in the next one."""
    blocks: list[LabelledText] = []
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
def _read_block(chunk: str, values: tuple[str, ...], is_guess: bool) -> LabelledText | None:
    """The text and the label at the end of a chunk; without a list any word is a label."""
    found = _block_pattern(values, is_guess).fullmatch(chunk)
    return LabelledText(chunk, found[1].strip(), found[2] or "") if found else None


@lru_cache(maxsize=64)
def _block_pattern(values: tuple[str, ...], is_guess: bool) -> re.Pattern[str]:
    known = [re.escape(value) for value in sorted(values, key=len, reverse=True)]
    value = "|".join([*known, r"\w+"] if is_guess else known)
    return re.compile(rf"(.*)\sLabel(?:(?::[ \t]*|[ \t]+)({value})|:?)\s*", re.DOTALL)


def join_blocks(blocks: Sequence[LabelledText], glue: str) -> LabelledText:
    """The one block that has been taken for several."""
    *parts, last = blocks
    if not parts:
        return last
    text = glue.join([*(part.raw for part in parts), last.text])
    return LabelledText(
        glue.join([*(part.raw for part in parts), last.raw]), text.strip(), last.value
    )


def all_labels(values: list[str], names: tuple[str, ...]) -> tuple[str, ...]:
    """All labels of a format from some: 1..M, 0.., A.., Option_1.., or the class names."""
    folded = {name.casefold() for name in names}
    if all(value.casefold() in folded for value in values):
        return names
    for value in values:
        stem = value.rstrip("0123456789")
        if stem != value:
            first = 0 if f"{stem}0" in values else 1
            return tuple(f"{stem}{slot}" for slot in range(first, len(names) + first))
        if len(stem) == 1:
            return tuple(chr(ord("A") + slot) for slot in range(len(names)))
    raise Problem(f"the label '{values[0]}' is neither an identifier nor one of {', '.join(names)}")


# --- comparisons of an item with others --------------------------------------------------------

PAIR = re.compile(
    r"\nPassage ([AB]): (?P<both>.*)\nWhich Passage is more (?P<pole>[^\n]+) in terms of its "
    r"[^\n]+\?\nOutput Passage A or Passage B:\s*\Z",
    re.DOTALL,
)
SECOND = re.compile(r"\nPassage [AB]: ")
PLACE = re.compile(
    r"return only its position \(1-(?P<n>\d+)[^\n]*\)\.\n\n(?P<shown>.*)\n\n"
    r"(?P<noun>[^\n:]+): (?P<query>.*)\nPosition:\s*\Z",
    re.DOTALL,
)
CLOSEST = re.compile(
    r"\n\nGiven (?P<n>\d+) reference passages [^\n]+:\n\n(?P<shown>.*)"
    r"\n\nNew passage: (?P<query>.*)"
    r"\n\nWhich reference \(1-\d+\) is closest [^\n]+\nAnswer with ONLY [^\n]+\s*\Z",
    re.DOTALL,
)
REFERENCE = re.compile(r"(?:\A|\n)[^\n:]+: (.*?)\nLabel: (\w+)(?=\n|\Z)", re.DOTALL)

Known = Callable[[str], bool]
"""Whether a text is one that the reader knows."""


@dataclass(frozen=True)
class ComparisonPrompt:
    """The choices of a prompt by slot: a label and its text.

    Two passages are asked about by a `pole`, anything longer by a `query`. Where it offers gaps
    there is one slot more than there are texts.
    """

    labels: tuple[str, ...]
    texts: tuple[str, ...]
    query: str = ""
    pole: str = ""


def read_comparison(text: str, is_known: Known) -> ComparisonPrompt | None:
    """The comparison in a prompt, None for any other prompt."""
    for found in (_pair(text, is_known), _place(text), _closest(text)):
        if found is not None:
            return found
    return None


def _pair(text: str, is_known: Known) -> ComparisonPrompt | None:
    found = PAIR.search(text)
    if not found:
        return None
    both, letters = found["both"], (found[1], "B" if found[1] == "A" else "A")
    splits = list(_splits(both))
    texts = next((pair for pair in splits if all(map(is_known, pair))), splits[0] if splits else ())
    by_letter = dict(zip(letters, texts, strict=False))
    if len(by_letter) < 2:
        return None
    return ComparisonPrompt(
        ("Passage A", "Passage B"), (by_letter["A"], by_letter["B"]), pole=found["pole"]
    )


def _splits(both: str) -> Iterator[tuple[str, str]]:
    """Yield the ways to cut in two; a text may itself hold what looks like the next passage."""
    for cut in SECOND.finditer(both):
        yield both[: cut.start()], both[cut.end() :]


def _place(text: str) -> ComparisonPrompt | None:
    found = PLACE.search(text)
    if not found:
        return None
    noun = f"{found['noun']}: "
    shown = found["shown"].removeprefix(noun).split(f"\n{noun}")
    labels = tuple(str(place) for place in range(1, int(found["n"]) + 1))
    return ComparisonPrompt(labels, tuple(shown), found["query"])


def _closest(text: str) -> ComparisonPrompt | None:
    found = CLOSEST.search(text)
    if not found:
        return None
    shown = REFERENCE.findall(found["shown"])
    return ComparisonPrompt(
        tuple(label for _, label in shown), tuple(each for each, _ in shown), found["query"]
    )


# --- what a judge chooses from ------------------------------------------------------------------

MOST_SPLITS = 2_000
SEPARATORS = (": ", "\t", " ")
_END = re.compile(r"\s*Label:?\s*\Z")
_LIST = re.compile(r"\[([^\[\]]*)\]")


@dataclass(frozen=True)
class JudgePrompt:
    """The texts that a prompt shows, by place, and its labels with the classes as shown."""

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    ranks: tuple[Rank, ...]

    @property
    def key(self) -> Key:
        return tuple(sorted(self.texts))


def read_judge(text: str, known: Worth) -> JudgePrompt:
    """Find what a prompt lets choose from; its last block is the query."""
    for words in _families(known.places):
        for separator in SEPARATORS:
            found = _by_heads(text, known, words, separator)
            if found:
                return JudgePrompt(found, *_labels_in(text, known.places, words, len(found)))
    found = _by_texts(text, known)
    for words in _families(known.places):
        labels = _listed_in(text, known.places, words)
        if labels:
            return JudgePrompt(found, *labels)
    letters = next(iter(_families(known.places)))
    return JudgePrompt(found, *_labels_in(text, known.places, letters, len(found)))


def _families(places: Places) -> Iterator[tuple[str, ...]]:
    """Yield what a prompt may call its places, in the formats of labels."""
    n = len(places.fields)
    yield tuple(chr(ord("A") + place) for place in range(min(n, 26)))
    yield tuple(str(place + 1) for place in range(n))
    yield tuple(f"Option_{place + 1}" for place in range(n))
    yield tuple(str(place) for place in range(n))
    yield places.words


def _by_heads(
    text: str, known: Worth, words: Sequence[str], separator: str
) -> tuple[str, ...] | None:
    """Cut the last block at the headings of its places, the nearest to the end first."""
    noun = known.places.noun
    heads = [f"{noun} {word}".strip() + separator for word in words]
    body = _END.sub("", text)
    for n in range(len(heads), 1, -1):
        for texts in islice(_cuts(body, heads[:n]), MOST_SPLITS):
            if tuple(sorted(texts)) in known.by_key:
                return texts
    return None


def _cuts(text: str, heads: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the ways to cut a text; what is cut may itself hold what looks like a heading."""
    if not heads:
        yield ()
        return
    end = len(text)
    while (at := text.rfind(heads[-1], 0, end)) >= 0:
        if at == 0 or text[at - 1].isspace():
            last = squeeze(text[at + len(heads[-1]) :])
            yield from ((*before, last) for before in _cuts(text[:at], heads[:-1]))
        end = at + len(heads[-1]) - 1


def _by_texts(text: str, known: Worth) -> tuple[str, ...]:
    """Find the known texts that stand together nearest to the end, in their order."""
    plain = squeeze(text)
    best: tuple[int, int, tuple[str, ...]] | None = None
    for key in known.by_key:
        at = [plain.rfind(one) for one in key]
        if min(at) >= 0 and len(set(at)) == len(at):
            shown = tuple(one for _, one in sorted(zip(at, key, strict=True)))
            best = max(best or (-1, 0, ()), (min(at), sum(map(len, key)), shown))
    if best is None:
        raise Problem(f"no known choice in the prompt '{text[:60]}'")
    return best[2]


def _labels_in(
    text: str, places: Places, words: Sequence[str], n_filled: int
) -> tuple[tuple[str, ...], tuple[Rank, ...]]:
    """The labels of a prompt: those it lists, else one for each class that it offers."""
    listed = _listed_in(text, places, words)
    if listed:
        return listed
    ranks = places.offered(n_filled)
    return tuple(places.written(rank, words) for rank in ranks), ranks


def _listed_in(
    text: str, places: Places, words: Sequence[str]
) -> tuple[tuple[str, ...], tuple[Rank, ...]] | None:
    ranks = {places.written(rank, words): rank for rank in range(1, len(places.forms) + 1)}
    for found in _LIST.finditer(text):
        labels = tuple(found[1].split(", "))
        if sorted(labels) == sorted(ranks):
            return labels, tuple(ranks[label] for label in labels)
    return None


# --- decimal scores -----------------------------------------------------------------------------

_LABEL = re.compile(rf"\W*(?:label|score|rating)\W*?({NUMBER})(?!\w)", re.IGNORECASE)


def read_number_prompt(text: str, known: Mapping[str, float]) -> Posed:
    """The text without a score, behind the scores that demonstrations show."""
    query, demos = "", []
    for match in _any_of(tuple(known)).finditer(text):
        label = _LABEL.match(text, match.end())
        if label is not None:
            demos.append(Example({"text": match[0]}, label[1]))
        elif not query:
            query = match[0]
    if not query:
        raise Problem(f"no text that is known in the prompt '{text[:60]}'")
    return Posed({"text": query}, (), tuple(demos))


@lru_cache(maxsize=64)
def _any_of(texts: tuple[str, ...]) -> re.Pattern[str]:
    """Every text, longer ones first: one may begin another."""
    ordered = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered)))
