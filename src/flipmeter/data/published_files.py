"""Files as published -> rows: one reader for each format, which names a row it cannot read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from flipmeter.data.labels import shorten
from flipmeter.data.tables import quoted_rows, read_text
from flipmeter.errors import Problem
from flipmeter.types import Rank

Row = tuple[str, Rank]
FieldsRow = tuple[Mapping[str, str], Rank]
"""The fields of an item by name, and its class."""
Reader = Callable[[Sequence[Path]], Sequence[Row | FieldsRow]]
_LLMBAR_FIELDS = {"text": "input", "a": "output_1", "b": "output_2"}

_TOKEN = re.compile(r"\(\d ([^()]+)\)")
_BRACKETS = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
}


def read_trees(paths: Sequence[Path]) -> list[Row]:
    """Read Penn-Treebank-style trees, one a line: the root's digit is the class."""
    (path,) = paths
    rows = []
    for number, line in _numbered_lines(path):
        # Split by brackets, not by white space: some tokens hold a no-break space.
        tokens = _TOKEN.findall(line)
        if not re.match(r"\([0-4] ", line) or not tokens or line.count("(") != line.count(")"):
            raise Problem(
                f"{path}, row {number}: {shorten(line)} is not a tree; download the file again"
            )
        rows.append((" ".join(map(_unescape_brackets, tokens)), int(line[1]) + 1))
    return rows


@lru_cache(maxsize=1 << 16)
def _unescape_brackets(token: str) -> str:
    for escape, character in _BRACKETS.items():
        token = token.replace(escape, character)
    return token.replace("\\/", "/").replace("\\*", "*")


@dataclass(frozen=True)
class Fields:
    """A reader of separated fields: the places of the text and the class, and its spellings.

    Commas separate quoted fields; tabs those of a line without quoting, cut at most `n_cuts`
    times, from the right where the class comes last. A file has at least `n_fields`, after the
    `header` that it begins with. In an escaped text new lines and quotes have a backslash.
    """

    ranks: Mapping[str, Rank]
    text: int
    label: int
    separator: str = ","
    header: tuple[str, ...] = ()
    n_fields: int = 3
    n_cuts: int = -1
    is_escaped: bool = False

    def __call__(self, paths: Sequence[Path]) -> list[Row]:
        """The rows of the files, one after the other."""
        rows = []
        for path in paths:
            for number, fields in self.fields(path):
                text = fields[self.text]
                if self.is_escaped:
                    text = text.replace("\\n", "\n").replace('\\"', '"')
                label = fields[self.label]
                rows.append((text.strip(), read_rank(path, number, label, self.ranks)))
        return rows

    def fields(self, path: Path) -> Iterator[tuple[int, list[str]]]:
        """The numbered rows of a file behind its header."""
        rows = quoted_rows(path, ",") if self.separator == "," else self._cut(path)
        for number, fields in rows:
            if number == 1 and self.header:
                if (*fields[: len(self.header)],) != self.header:
                    expected = ", ".join(self.header)
                    raise Problem(f"{path}: the header is {fields}, expected {expected}")
                continue
            if len(fields) < self.n_fields:
                what = f"{len(fields)} fields where there should be {self.n_fields}"
                if self.header:
                    what += f"; a row is not '{', '.join(self.header)}'"
                raise Problem(f"{path}, row {number}: {what}")
            yield number, fields

    def _cut(self, path: Path) -> Iterator[tuple[int, list[str]]]:
        cut = str.rsplit if self.label < 0 else str.split
        return ((number, cut(line, "\t", self.n_cuts)) for number, line in _numbered_lines(path))


def counted(low: int, high: int, first: Rank = 1) -> dict[str, Rank]:
    """Classes that are written as numbers."""
    return {str(number): first + number - low for number in range(low, high + 1)}


def read_rank(path: Path, number: int, label: str, ranks: Mapping[str, Rank]) -> Rank:
    """The class of a row, by its spelling."""
    if label.strip() not in ranks:
        names = [*ranks]
        known = " or ".join(names) if not names[0].isdigit() else f"{names[0]}..{names[-1]}"
        raise Problem(f"{path}, row {number}: the label {shorten(label)} is not {known}")
    return ranks[label.strip()]


STARS = counted(1, 5)
HATEFUL = counted(0, 1)
SENTIMENTS = {"negative": 1, "neutral": 2, "positive": 3}
OFFENCES = {"NOT": 1, "OFF": 2}
read_yelp_full = Fields(STARS, text=1, label=0, n_fields=2, is_escaped=True)
_YELP_STARS = {f"Review Stars: {n}.0": int(n) for n in STARS}
read_yelp_open = Fields(_YELP_STARS, text=0, label=-1, header=("text", "label1", "label2"))
read_rl_prompt = Fields(
    *(counted(0, 4), 0, -1, "\t", ("sentence", "label")), n_fields=2, n_cuts=1, is_escaped=True
)
read_semeval = Fields(SENTIMENTS, text=2, label=1, separator="\t", n_cuts=2)
read_hateval = Fields(HATEFUL, text=1, label=2, header=("id", "text", "HS"))
read_olid_train = Fields(OFFENCES, 1, 2, "\t", ("id", "tweet", "subtask_a"))
_OLID_TWEETS = Fields({}, 1, 0, "\t", ("id", "tweet"), n_fields=2)


def read_tweets(*names: str) -> Reader:
    """A reader of TweetEval's aligned lines that checks `mapping.txt` for these names."""

    def read(paths: Sequence[Path]) -> list[Row]:
        texts_path, labels_path, mapping_path = paths
        mapping = [line.split("\t") for _, line in _numbered_lines(mapping_path)]
        if mapping != [[str(place), name] for place, name in enumerate(names)]:
            raise Problem(f"{mapping_path} maps {mapping}, expected {list(enumerate(names))}")
        # An empty line is an empty tweet: dropping it here would shift every label after it.
        texts, labels = _numbered_lines(texts_path), _numbered_lines(labels_path)
        if len(texts) != len(labels):
            raise Problem(
                f"{texts_path} has {len(texts)} lines, {labels_path.name} {len(labels)}; "
                "they must agree: download both again"
            )
        ranks = counted(0, len(names) - 1)
        return [
            (text.strip(), read_rank(labels_path, number, label, ranks))
            for (_, text), (number, label) in zip(texts, labels, strict=True)
        ]

    return read


def read_olid_test(paths: Sequence[Path]) -> list[Row]:
    """Read OLID's test tweets (id, tweet) with their labels from a CSV of their own (id, label)."""
    texts_path, labels_path = paths
    labels = {}
    for number, line in _numbered_lines(labels_path):
        name, _, label = line.partition(",")
        labels[name] = read_rank(labels_path, number, label, OFFENCES)
    rows = []
    for number, (name, text, *_) in _OLID_TWEETS.fields(texts_path):
        if name not in labels:
            raise Problem(f"{texts_path}, row {number}: no label for {name} in {labels_path.name}")
        rows.append((text.strip(), labels[name]))
    return rows


def _numbered_lines(path: Path) -> list[tuple[int, str]]:
    """Numbered lines; only a newline ends one, because texts contain U+2028 and the like."""
    lines = read_text(path).split("\n")
    if lines[-1] == "":
        lines.pop()
    return [(number, line.removesuffix("\r")) for number, line in enumerate(lines, start=1)]


def read_llmbar(paths: Sequence[Path]) -> list[FieldsRow]:
    """Read LLMBar's JSON: an instruction, two outputs and which of them people call better."""
    rows: list[FieldsRow] = []
    for path in paths:
        try:
            pairs = json.loads(read_text(path))
        except (ValueError, RecursionError) as error:
            raise Problem(f"{path} is not valid JSON: {error}") from error
        if not isinstance(pairs, list):
            raise Problem(f"{path} does not contain a list of pairs; download the file again")
        rows += [_llmbar_row(path, number, pair) for number, pair in enumerate(pairs, start=1)]
    return rows


def _llmbar_row(path: Path, number: int, pair: object) -> FieldsRow:
    told = pair if isinstance(pair, dict) else {}
    texts = {name: told.get(key) for name, key in _LLMBAR_FIELDS.items()}
    for name, text in texts.items():
        if not isinstance(text, str):
            key = _LLMBAR_FIELDS[name]
            raise Problem(f"{path}, pair {number}: '{key}' is {shorten(text)}; it must be text")
    if told.get("label") not in (1, 2):
        raise Problem(f"{path}, pair {number}: label {shorten(told.get('label'))} is not 1 or 2")
    return {name: str(text) for name, text in texts.items()}, 2 if told["label"] == 1 else 1
