"""Name -> Dataset: texts that come with the package or from the package index, free to use.

`reviews` is in the package. The two `vader` sets lie in the source archive of `vaderSentiment`,
which is fetched once, through pip, and not installed. Their ratings are means of at least 20 raters
on -4..+4, cut at -2, -0.5, 0.5 and 2; a mean that falls on a cut goes to the outer class, so that
the cuts are the same seen from either end.
"""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from flipmeter.base.files.fetch import fetch_from_index
from flipmeter.data.catalog import SENTIMENT_5, CatalogEntry, Split, datasets
from flipmeter.data.labels import shorten
from flipmeter.data.published_files import STARS, Fields, Reader, Row
from flipmeter.types import Problem, Rank

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


def _vader(name: str, title: str, member: str) -> CatalogEntry:
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


for _entry in (
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
    _vader("vader-tweets", "4,200 tweets rated by 20 people or more", "tweets"),
    _vader(
        "vader-products",
        "3,708 sentences of product reviews rated by 20 people or more",
        "amazonReviewSnippets",
    ),
):
    datasets.add(_entry.name, _entry)
