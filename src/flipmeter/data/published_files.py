"""Files as published -> rows: one reader for each format, which names a row it cannot read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from flipmeter.data.labels import shorten
from flipmeter.data.tables import quoted_rows, read_text
from flipmeter.types import Problem, Rank

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
    return [_tree(path, number, line) for number, line in _lines(path)]


def _tree(path: Path, number: int, line: str) -> Row:
    # Split by brackets, not by white space: some tokens hold a no-break space.
    tokens = _TOKEN.findall(line)
    if not re.match(r"\([0-4] ", line) or not tokens or line.count("(") != line.count(")"):
        raise Problem(
            f"{path}, row {number}: {shorten(line)} is not a tree; download the file again"
        )
    return " ".join(_restored(token) for token in tokens), int(line[1]) + 1


@lru_cache(maxsize=1 << 16)
def _restored(token: str) -> str:
    for escape, character in _BRACKETS.items():
        token = token.replace(escape, character)
    return token.replace("\\/", "/").replace("\\*", "*")


def read_yelp_full(paths: Sequence[Path]) -> list[Row]:
    r"""Read `yelp_review_full`: "stars","text" without a header; `\n` and `\"` are undone."""
    (path,) = paths
    rows = []
    for number, fields in quoted_rows(path, ","):
        if len(fields) != 2:
            raise Problem(f"{path}, row {number}: {len(fields)} fields where there should be 2")
        rows.append((_unescaped(fields[1]), _number(path, number, fields[0], 1, 5)))
    return rows


def read_yelp_open(paths: Sequence[Path]) -> list[Row]:
    """Read a CSV of the Yelp open dataset with `text` and `label2` ("Review Stars: 4.0")."""
    (path,) = paths
    rows = []
    for number, fields in quoted_rows(path, ","):
        if number == 1 and fields != ["text", "label1", "label2"]:
            raise Problem(f"{path}: the header is {fields}, expected text, label1, label2")
        if number > 1:
            stars = fields[-1].removeprefix("Review Stars: ").removesuffix(".0")
            rows.append((fields[0].strip(), _number(path, number, stars, 1, 5)))
    return rows


def read_rl_prompt(paths: Sequence[Path]) -> list[Row]:
    """Read TSVs of `yelp_review_full`, one after the other: sentence, label 0..4, no quoting."""
    rows = []
    for path in paths:
        for number, line in _lines(path):
            text, _, label = line.rpartition("\t")
            if (number, line) != (1, "sentence\tlabel"):
                rows.append((_unescaped(text), _number(path, number, label, 0, 4) + 1))
    return rows


def read_semeval(paths: Sequence[Path]) -> list[Row]:
    """Read the SemEval TSVs, one after the other: tweet id, class, text; no header, no quoting."""
    ranks = {"negative": 1, "neutral": 2, "positive": 3}
    rows = []
    for path in paths:
        for number, line in _lines(path):
            fields = line.split("\t", maxsplit=2)
            if len(fields) < 3 or fields[1] not in ranks:
                raise Problem(f"{path}, row {number}: {shorten(line)} is not 'id, class, text'")
            rows.append((fields[2].strip(), ranks[fields[1]]))
    return rows


def read_tweets(*names: str) -> Reader:
    """A reader of TweetEval's aligned lines that checks `mapping.txt` for these names."""

    def read(paths: Sequence[Path]) -> list[Row]:
        texts_path, labels_path, mapping_path = paths
        mapping = [line.split("\t") for _, line in _lines(mapping_path)]
        if mapping != [[str(place), name] for place, name in enumerate(names)]:
            raise Problem(f"{mapping_path} maps {mapping}, expected {list(enumerate(names))}")
        # An empty line is an empty tweet: dropping it here would shift every label after it.
        texts, labels = _lines(texts_path), _lines(labels_path)
        if len(texts) != len(labels):
            raise Problem(
                f"{texts_path} has {len(texts)} lines, {labels_path.name} {len(labels)}; "
                "they must agree: download both again"
            )
        top = len(names) - 1
        return [
            (text.strip(), _number(labels_path, number, label, 0, top) + 1)
            for (_, text), (number, label) in zip(texts, labels, strict=True)
        ]

    return read


def read_hateval(paths: Sequence[Path]) -> list[Row]:
    """Read HatEval's own CSV: id, text, HS (hate speech, 0 or 1), and two columns more."""
    (path,) = paths
    rows = []
    for number, fields in quoted_rows(path, ","):
        if number == 1:
            if fields[:3] != ["id", "text", "HS"]:
                raise Problem(f"{path}: the header is {fields}, expected id, text, HS, TR, AG")
        elif len(fields) < 3:
            raise Problem(f"{path}, row {number}: {len(fields)} fields where there should be 5")
        else:
            rows.append((fields[1].strip(), _number(path, number, fields[2], 0, 1) + 1))
    return rows


def read_olid_train(paths: Sequence[Path]) -> list[Row]:
    """Read OLID's training TSV: id, tweet, subtask_a (NOT or OFF), and two columns more."""
    (path,) = paths
    return [
        (fields[1].strip(), _olid_rank(path, number, fields[2]))
        for number, fields in _olid_rows(path, ["id", "tweet", "subtask_a"])
    ]


def read_olid_test(paths: Sequence[Path]) -> list[Row]:
    """Read OLID's test tweets (id, tweet) with their labels from a CSV of their own (id, label)."""
    texts_path, labels_path = paths
    labels = {}
    for number, line in _lines(labels_path):
        name, _, label = line.partition(",")
        labels[name] = _olid_rank(labels_path, number, label)
    rows = []
    for number, (name, text) in _olid_rows(texts_path, ["id", "tweet"]):
        if name not in labels:
            raise Problem(f"{texts_path}, row {number}: no label for {name} in {labels_path.name}")
        rows.append((text.strip(), labels[name]))
    return rows


def _olid_rows(path: Path, header: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a TSV without quoting, cut to the columns of its header."""
    for number, line in _lines(path):
        fields = line.split("\t")[: len(header)]
        if number == 1 and fields != [*header]:
            raise Problem(f"{path}: the header is {fields}, expected {', '.join(header)}")
        if len(fields) < len(header):
            raise Problem(f"{path}, row {number}: {shorten(line)} is not '{', '.join(header)}'")
        if number > 1:
            yield number, fields


def _olid_rank(path: Path, number: int, label: str) -> Rank:
    if label.strip() not in ("NOT", "OFF"):
        raise Problem(f"{path}, row {number}: the label {shorten(label)} is not NOT or OFF")
    return 1 + (label.strip() == "OFF")


def _lines(path: Path) -> list[tuple[int, str]]:
    """Numbered lines; only a newline ends one, because texts contain U+2028 and the like."""
    lines = read_text(path).split("\n")
    if lines[-1] == "":
        lines.pop()
    return [(number, line.removesuffix("\r")) for number, line in enumerate(lines, start=1)]


def _unescaped(text: str) -> str:
    return text.replace("\\n", "\n").replace('\\"', '"').strip()


def _number(path: Path, number: int, value: str, low: int, high: int) -> int:
    if value.strip() not in {str(label) for label in range(low, high + 1)}:
        raise Problem(f"{path}, row {number}: the label {shorten(value)} is not {low}..{high}")
    return int(value)


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
