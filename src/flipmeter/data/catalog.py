"""Name -> Dataset: the paper's five datasets and LLMBar as published, and texts that come along.

No row of them is in this package: get the files from the address an entry names, under its terms.

`reviews` is in the package. The two `vader` sets lie in the source archive of `vaderSentiment`,
which is fetched once, through pip, and not installed. Their ratings are means of at least 20 raters
on -4..+4, cut at -2, -0.5, 0.5 and 2; a mean that falls on a cut goes to the outer class, so that
the cuts are the same seen from either end.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path

from flipmeter.data.labels import dataset_digest, shorten
from flipmeter.data.published_files import (
    STARS,
    Fields,
    FieldsRow,
    Reader,
    Row,
    read_hateval,
    read_llmbar,
    read_olid_test,
    read_olid_train,
    read_rl_prompt,
    read_semeval,
    read_trees,
    read_tweets,
    read_yelp_full,
    read_yelp_open,
)
from flipmeter.errors import Problem
from flipmeter.fetch import fetch_from_index
from flipmeter.registry import Registry, suggestion
from flipmeter.types import Dataset, Item, Places, Rank, Role, Scale, Task

DATA_VARIABLE = "FLIPMETER_DATA"


@dataclass(frozen=True)
class Split:
    """Files (or patterns of them) in a dataset's folder, and what reads them together.

    `or_else` are the files of another release of the same rows, which are read where these are
    missing.
    """

    files: tuple[str, ...]
    read: Reader
    or_else: Split | None = None

    def find(self, folder: Path) -> Callable[[], Sequence[Row | FieldsRow]] | None:
        """A reader of the first release that is whole, None if there is none."""
        found = [sorted(folder.glob(pattern)) for pattern in self.files]
        if all(found):
            return partial(self.read, [path for paths in found for path in paths])
        return self.or_else.find(folder) if self.or_else else None

    @property
    def wanted(self) -> str:
        """The files as a message names them."""
        own = ", ".join(self.files)
        return f"{own} (or {self.or_else.wanted})" if self.or_else else own


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
    folder = entry.find() if entry.find else _find_dataset_folder(entry, data_dir)
    test_items = _read_split_items(entry, folder, test, "test")
    if pool is None and entry.pools:
        there = (name for name in entry.pools if name != test and entry.splits[name].find(folder))
        pool = next(there, None)
        if pool is None:
            raise _missing_files_message(
                entry, f": {entry.splits[entry.pools[0]].wanted} not found in {folder}"
            )
    pool_items = _read_split_items(entry, folder, pool, "demo") if pool else ()
    return Dataset(
        name=entry.name,
        task=entry.task,
        pool=pool_items,
        test=test_items,
        source=f"{entry.address} ({test}; demonstrations: {pool or 'set aside'})",
        licence=entry.terms,
        digest=dataset_digest(entry.task.scale, pool_items, test_items),
    )


def _find_dataset_folder(entry: CatalogEntry, data_dir: str | Path | None) -> Path:
    root = data_dir or os.environ.get(DATA_VARIABLE)
    if not root:
        raise _missing_files_message(entry, " needs its files, but no folder is set")
    candidates = [Path(root).expanduser() / name for name in entry.folders or (entry.name,)]
    there = [folder for folder in candidates if folder.is_dir()]
    for folder in there:
        if entry.splits["test"].find(folder):
            return folder
    if there:
        return there[0]
    raise _missing_files_message(entry, f": no folder {candidates[0]}")


def _read_split_items(
    entry: CatalogEntry, folder: Path, split: str, role: Role
) -> tuple[Item, ...]:
    read = entry.splits[split].find(folder)
    if read is None:
        raise _missing_files_message(entry, f": {entry.splits[split].wanted} not found in {folder}")
    return tuple(
        Item(
            f"{entry.name}-{split}-{number}",
            {"text": shown} if isinstance(shown, str) else shown,
            rank,
            role,
        )
        for number, (shown, rank) in enumerate(read(), start=1)
    )


def _missing_files_message(entry: CatalogEntry, what: str) -> Problem:
    splits = ["test", *entry.pools[:1]]
    files = dict.fromkeys(entry.splits[name].wanted for name in splits)
    return Problem(
        f"{entry.name}{what}. Get the dataset from {entry.address} (terms: {entry.terms}), put "
        f"{', '.join(files)} into a "
        f"folder '{entry.name}' and pass its parent folder with --data-dir or {DATA_VARIABLE}"
    )


def _sentiment_task(*names: str) -> Task:
    return Task(Scale(names), "Sentiment Classification", "Sentence", "sentiment")


SENTIMENT_5 = _sentiment_task("very negative", "negative", "neutral", "positive", "very positive")
SENTIMENT_3 = _sentiment_task("negative", "neutral", "positive")
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


def _tweet_splits(*names: str, releases: Mapping[str, Split] | None = None) -> dict[str, Split]:
    """TweetEval's splits; `releases` are the files in which the task itself published them."""
    read, others = read_tweets(*names), releases or {}
    return {
        split: Split(
            (f"{split}_text.txt", f"{split}_labels.txt", "mapping.txt"), read, others.get(split)
        )
        for split in ("test", "train", "val")
    }


_HATEVAL = {
    split: Split((f"hateval2019_en_{file}.csv",), read_hateval)
    for split, file in (("test", "test"), ("train", "train"), ("val", "dev"))
}
_OLID = {
    "test": Split(("testset-levela.tsv", "labels-levela.csv"), read_olid_test),
    "train": Split(("olid-training-v1.0.tsv",), read_olid_train),
}


_PAPER = (
    CatalogEntry(
        name="sst5",
        title="Stanford Sentiment Treebank, five classes (film reviews)",
        task=SENTIMENT_5,
        splits={split: Split((f"{split}.txt",), read_trees) for split in ("test", "train", "dev")},
        address="https://nlp.stanford.edu/sentiment/code.html",
        terms="public download; its page states no licence, so keep the citation and check "
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
        splits=_tweet_splits("not-hate", "hate", releases=_HATEVAL),
        address="https://hatespeech.di.unito.it/hateval.html",
        terms="CC BY-NC 4.0, and Twitter's platform terms",
        citation="Basile et al. 2019, SemEval-2019 Task 5: Multilingual Detection of Hate Speech "
        "Against Immigrants and Women in Twitter; Barbieri et al. 2020, TweetEval",
        folders=("hate", "hateval2019", "hateval"),
    ),
    CatalogEntry(
        name="offensive",
        title="OLID, SemEval-2019 task 6, two classes (TweetEval 'offensive')",
        task=OFFENSIVE,
        splits=_tweet_splits("not-offensive", "offensive", releases=_OLID),
        address="https://sites.google.com/site/offensevalsharedtask/olid",
        terms="released for the shared task without a stated licence; Twitter's platform terms",
        citation="Zampieri et al. 2019, SemEval-2019 Task 6: Identifying and Categorizing "
        "Offensive Language in Social Media (OffensEval); Barbieri et al. 2020, TweetEval",
        folders=("offensive", "OLIDv1.0", "OLID"),
    ),
)

_JUDGED = (
    CatalogEntry(
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
    for name, (what, files) in _LLMBAR.items()
)
for _entry in (*_PAPER, *_JUDGED):
    datasets.add(_entry.name, _entry)


VADER_ARCHIVE = "hutto-icwsm-2014.tar.gz"
VADER_ARCHIVE_SHA256 = "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9"
VADER_SHA256 = "d5bb07d87474b3eb8d30b4deccbc23f19d742a6c5718fbacc65485b70b95c5fa"


read_reviews = Fields(STARS, text=2, label=3, header=("id", "domain", "text", "stars"), n_fields=4)


def fetch_vader() -> Path:
    """The cache folder with VADER's ground truth, downloaded if missing."""
    return fetch_from_index(
        "vaderSentiment==3.3.2",
        VADER_ARCHIVE_SHA256,
        "additional_resources/hutto_ICWSM_2014.tar.gz",
        VADER_SHA256,
        VADER_ARCHIVE,
        binary=False,
    ).parent


def read_vader(member: str) -> Reader:
    """A reader of one ground-truth file: lines of id, mean rating and text by tabs."""

    def read(paths: Sequence[Path]) -> list[Row]:
        (path,) = paths
        with tarfile.open(path) as archive:
            content = archive.extractfile(f"hutto_ICWSM_2014/{member}_GroundTruth.txt")
            lines = content.read().decode().split("\n") if content else []
        rows = []
        for number, line in enumerate(lines, start=1):
            fields = line.split("\t")
            if line and len(fields) != 3:
                raise Problem(f"{path}, row {number}: {shorten(line)} is not 'id, mean, text'")
            if line:
                rows.append((fields[2].strip(), class_of_mean(float(fields[1]))))
        return rows

    return read


def class_of_mean(mean: float) -> Rank:
    """Cut a mean rating on -4..+4 into five classes; a value on a cut goes outwards."""
    strength = (abs(mean) >= 0.5) + (abs(mean) >= 2)
    return 3 + (strength if mean > 0 else -strength)


def _vader_entry(name: str, title: str, member: str) -> CatalogEntry:
    return CatalogEntry(
        name=name,
        title=title,
        task=SENTIMENT_5,
        splits={"test": Split((VADER_ARCHIVE,), read_vader(member))},
        address="https://pypi.org/project/vaderSentiment/3.3.2/",
        terms="MIT",
        citation="Hutto and Gilbert 2014, VADER: A Parsimonious Rule-based Model for Sentiment "
        "Analysis of Social Media Text, ICWSM",
        find=fetch_vader,
    )


for _bundled_entry in (
    CatalogEntry(
        name="reviews",
        title="Invented reviews, one to five stars, that come with flipmeter",
        task=SENTIMENT_5,
        splits={"test": Split(("reviews.csv",), read_reviews)},
        address="flipmeter",
        terms="CC0",
        citation="the flipmeter authors",
        find=lambda: Path(str(resources.files("flipmeter.data"))),
    ),
    _vader_entry("vader-tweets", "4,200 tweets rated by 20 people or more", "tweets"),
    _vader_entry(
        "vader-products",
        "3,708 sentences of product reviews rated by 20 people or more",
        "amazonReviewSnippets",
    ),
):
    datasets.add(_bundled_entry.name, _bundled_entry)
