"""Name -> Dataset: the paper's five datasets and LLMBar, read from the files as published.

No row of them is in this package: get the files from the address an entry names, under its terms.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from flipmeter.data.digest import dataset_digest
from flipmeter.data.labels import shorten
from flipmeter.data.tables import quoted_rows, read_text
from flipmeter.registry import Registry, suggestion
from flipmeter.types import Dataset, Item, Places, Problem, Rank, Role, Scale, Task

DATA_VARIABLE = "FLIPMETER_DATA"

Row = tuple[str, Rank]
FieldsRow = tuple[Mapping[str, str], Rank]
"""The fields of an item by name, and its class."""
Reader = Callable[[Sequence[Path]], Sequence[Row | FieldsRow]]


@dataclass(frozen=True)
class Split:
    """Files (or patterns of them) in a dataset's folder, and what reads them together."""

    files: tuple[str, ...]
    read: Reader

    def find(self, folder: Path) -> list[Path] | None:
        """Return the files there are, or None if one is missing."""
        found = [sorted(folder.glob(pattern)) for pattern in self.files]
        return [path for paths in found for path in paths] if all(found) else None


@dataclass(frozen=True)
class CatalogEntry:
    """A dataset by name: where it comes from, under which terms, and how its files are read.

    `splits` has "test" and the pools of demonstrations, the preferred first. `find` returns the
    folder of an entry that brings its own files; the others look in `folders` of the user's.
    """

    name: str
    title: str
    task: Task
    splits: Mapping[str, Split]
    address: str
    terms: str
    citation: str
    folders: tuple[str, ...] = ()
    find: Callable[[], Path] | None = None

    @property
    def about(self) -> str:
        return self.title

    @property
    def pools(self) -> list[str]:
        return [name for name in self.splits if name != "test"]


datasets: Registry[CatalogEntry] = Registry("dataset")


def load_entry(
    entry: CatalogEntry,
    data_dir: str | Path | None = None,
    *,
    test: str = "test",
    pool: str | None = None,
) -> Dataset:
    """Load all rows of a catalog dataset; `test` and `pool` choose other splits than the usual."""
    for name in filter(None, (test, pool)):
        if name not in entry.splits:
            raise Problem(f"{entry.name} has no split '{name}'{suggestion(name, [*entry.splits])}")
    folder = entry.find() if entry.find else _folder(entry, data_dir)
    test_items = _items(entry, folder, test, "test")
    pool = pool or _first_pool(entry, folder, test)
    pool_items = _items(entry, folder, pool, "demo") if pool else ()
    return Dataset(
        name=entry.name,
        task=entry.task,
        pool=pool_items,
        test=test_items,
        source=f"{entry.address} ({test}; demonstrations: {pool or 'set aside'})",
        licence=entry.terms,
        digest=dataset_digest(entry.task.scale, pool_items, test_items),
    )


def _folder(entry: CatalogEntry, data_dir: str | Path | None) -> Path:
    root = data_dir or os.environ.get(DATA_VARIABLE)
    if not root:
        raise Problem(_missing(entry, f"{entry.name} needs its files, and no folder is named"))
    candidates = [Path(root).expanduser() / name for name in entry.folders or (entry.name,)]
    there = [folder for folder in candidates if folder.is_dir()]
    for folder in there:
        if entry.splits["test"].find(folder):
            return folder
    if there:
        return there[0]
    raise Problem(_missing(entry, f"{entry.name}: there is no folder {candidates[0]}"))


def _first_pool(entry: CatalogEntry, folder: Path, test: str) -> str | None:
    """Return the preferred pool that is there; a dataset that has none sets items aside."""
    if not entry.pools:
        return None
    for name in entry.pools:
        if name != test and entry.splits[name].find(folder):
            return name
    wanted = ", ".join(entry.splits[entry.pools[0]].files)
    raise Problem(_missing(entry, f"{entry.name}: {wanted} not found in {folder}"))


def _items(entry: CatalogEntry, folder: Path, split: str, role: Role) -> tuple[Item, ...]:
    paths = entry.splits[split].find(folder)
    if paths is None:
        wanted = ", ".join(entry.splits[split].files)
        raise Problem(_missing(entry, f"{entry.name}: {wanted} not found in {folder}"))
    rows = entry.splits[split].read(paths)
    return tuple(
        Item(
            f"{entry.name}-{split}-{number}",
            {"text": shown} if isinstance(shown, str) else shown,
            rank,
            role,
        )
        for number, (shown, rank) in enumerate(rows, start=1)
    )


def _missing(entry: CatalogEntry, what: str) -> str:
    splits = ["test", *entry.pools[:1]]
    files = dict.fromkeys(file for name in splits for file in entry.splits[name].files)
    return (
        f"{what}. Get the dataset from {entry.address} (terms: {entry.terms}), put "
        f"{', '.join(files)} into a "
        f"folder '{entry.name}' and name the folder above it with --data-dir or {DATA_VARIABLE}"
    )


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
        raise Problem(f"{path}, row {number}: {shorten(line)} is no tree; download the file again")
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
    ranks = {name: rank for rank, name in enumerate(SENTIMENT_3.scale.names, start=1)}
    rows = []
    for path in paths:
        for number, line in _lines(path):
            fields = line.split("\t", maxsplit=2)
            if len(fields) < 3 or fields[1] not in ranks:
                raise Problem(f"{path}, row {number}: {shorten(line)} is not 'id, class, text'")
            rows.append((fields[2].strip(), ranks[fields[1]]))
    return rows


def read_tweets(*names: str) -> Reader:
    """Return a reader of TweetEval's aligned lines that checks `mapping.txt` for these names."""

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


def _lines(path: Path) -> list[tuple[int, str]]:
    """Return numbered lines; only a new line ends one, as texts hold U+2028 and its kind."""
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
            raise Problem(f"{path} holds no list of pairs; get the file as it is published")
        rows += [_llmbar_row(path, number, pair) for number, pair in enumerate(pairs, start=1)]
    return rows


def _llmbar_row(path: Path, number: int, pair: object) -> FieldsRow:
    told = pair if isinstance(pair, dict) else {}
    texts = {name: told.get(key) for name, key in _LLMBAR_FIELDS.items()}
    for name, text in texts.items():
        if not isinstance(text, str):
            key = _LLMBAR_FIELDS[name]
            raise Problem(f"{path}, pair {number}: '{key}' is {shorten(text)}; it must be a text")
    if told.get("label") not in (1, 2):
        raise Problem(f"{path}, pair {number}: label {shorten(told.get('label'))} is not 1 or 2")
    return {name: str(text) for name, text in texts.items()}, 2 if told["label"] == 1 else 1


def _sentiment(*names: str) -> Task:
    return Task(Scale(names), "Sentiment Classification", "Sentence", "sentiment")


SENTIMENT_5 = _sentiment("very negative", "negative", "neutral", "positive", "very positive")
SENTIMENT_3 = _sentiment("negative", "neutral", "positive")
HATE = Task(
    Scale(("non-hate", "hate"), "non-hateful", "hateful"),
    "Hate Speech Detection",
    "Sentence",
    "hatefulness",
)
OFFENSIVE = Task(
    Scale(("non-offensive", "offensive"), "non-offensive", "offensive"),
    "Offensive Language Detection",
    "Sentence",
    "offensiveness",
)


_LLMBAR_FIELDS = {"text": "input", "a": "output_1", "b": "output_2"}
BETTER_OUTPUT = Task(
    Scale(("b", "a"), "b", "a"),
    "Pairwise Comparison",
    "Instruction",
    "quality",
    places=Places(("a", "b"), ("{1}", "{0}"), ("a", "b"), "pair", "Output"),
)
_LLMBAR = {
    "llmbar": ("all 419 pairs", ("Natural/dataset.json", "Adversarial/*/dataset.json")),
    "llmbar-natural": ("the 100 pairs of Natural", ("Natural/dataset.json",)),
    "llmbar-adversarial": ("the 319 adversarial pairs", ("Adversarial/*/dataset.json",)),
}


def _llmbar(name: str, what: str, files: tuple[str, ...]) -> CatalogEntry:
    return CatalogEntry(
        name=name,
        title=f"LLMBar, which of two outputs follows an instruction ({what})",
        task=BETTER_OUTPUT,
        splits={"test": Split(files, read_llmbar)},
        address="https://github.com/princeton-nlp/LLMBar",
        terms="MIT",
        citation="Zeng et al. 2024, Evaluating Large Language Models at Evaluating Instruction "
        "Following, ICLR",
        folders=("llmbar", "LLMBar", "LLMBar/Dataset/LLMBar", "Dataset/LLMBar"),
    )


def _tweet_splits(*names: str) -> dict[str, Split]:
    read = read_tweets(*names)
    return {
        split: Split((f"{split}_text.txt", f"{split}_labels.txt", "mapping.txt"), read)
        for split in ("test", "train", "val")
    }


_PAPER = (
    CatalogEntry(
        name="sst5",
        title="Stanford Sentiment Treebank, five classes (film reviews)",
        task=SENTIMENT_5,
        splits={split: Split((f"{split}.txt",), read_trees) for split in ("test", "train", "dev")},
        address="https://nlp.stanford.edu/sentiment/code.html",
        terms="public download; its page states no licence, so keep the citation and look at "
        "Stanford's current terms",
        citation="Socher et al. 2013, Recursive Deep Models for Semantic Compositionality Over a "
        "Sentiment Treebank, EMNLP",
    ),
    CatalogEntry(
        name="yelp5",
        title="Yelp reviews, one to five stars (yelp_review_full)",
        task=SENTIMENT_5,
        splits={
            "test": Split(("test.csv",), read_yelp_full),
            "train": Split(("train.csv",), read_yelp_full),
            "open-dataset": Split(("open-dataset/test.csv",), read_yelp_open),
            "rl-prompt": Split(("rl-prompt-16shot/*/*.tsv",), read_rl_prompt),
        },
        address="https://business.yelp.com/data/resources/open-dataset/",
        terms="Yelp's Dataset Terms of Use: academic purposes only",
        citation="Zhang, Zhao and LeCun 2015, Character-level Convolutional Networks for Text "
        "Classification, NeurIPS",
    ),
    CatalogEntry(
        name="twitter",
        title="SemEval-2017 task 4A, three classes (TweetEval 'sentiment')",
        task=SENTIMENT_3,
        splits={
            **_tweet_splits("negative", "neutral", "positive"),
            "semeval2017": Split(("semeval2017/*.tsv",), read_semeval),
        },
        address="https://alt.qcri.org/semeval2017/task4/",
        terms="Twitter's platform terms; tweets that are no longer public must be removed",
        citation="Rosenthal, Farra and Nakov 2017, SemEval-2017 Task 4: Sentiment Analysis in "
        "Twitter; Barbieri et al. 2020, TweetEval",
        folders=("twitter", "sentiment"),
    ),
    CatalogEntry(
        name="hate",
        title="HatEval, SemEval-2019 task 5, two classes (TweetEval 'hate')",
        task=HATE,
        splits=_tweet_splits("not-hate", "hate"),
        address="https://hatespeech.di.unito.it/hateval.html",
        terms="CC BY-NC 4.0, and Twitter's platform terms",
        citation="Basile et al. 2019, SemEval-2019 Task 5: Multilingual Detection of Hate Speech "
        "Against Immigrants and Women in Twitter; Barbieri et al. 2020, TweetEval",
    ),
    CatalogEntry(
        name="offensive",
        title="OLID, SemEval-2019 task 6, two classes (TweetEval 'offensive')",
        task=OFFENSIVE,
        splits=_tweet_splits("not-offensive", "offensive"),
        address="https://sites.google.com/site/offensevalsharedtask/olid",
        terms="released for the shared task without a stated licence; Twitter's platform terms",
        citation="Zampieri et al. 2019, SemEval-2019 Task 6: Identifying and Categorizing "
        "Offensive Language in Social Media (OffensEval); Barbieri et al. 2020, TweetEval",
    ),
)

for _entry in (*_PAPER, *(_llmbar(name, *told) for name, told in _LLMBAR.items())):
    datasets.add(_entry.name, _entry)
