"""The bundled review set is balanced, varied, and neither trivial nor unlearnable."""

from __future__ import annotations

import csv
import re
from collections import Counter
from functools import cache
from importlib.resources import files

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline

DOMAINS = {"films", "food", "gadgets", "travel", "services"}
FIVE = {star: star for star in range(1, 6)}
THREE = {1: -1, 2: -1, 3: 0, 4: 1, 5: 1}
TWO = {1: -1, 2: -1, 4: 1, 5: 1}


@cache
def reviews() -> tuple[dict[str, str], ...]:
    source = files("flipmeter.data") / "reviews.csv"
    return tuple(csv.DictReader(source.read_text(encoding="utf-8").splitlines()))


def words(text: str) -> list[str]:
    return re.sub(r"[^\w\s]", "", text.lower()).split()


def accuracy(classes: dict[int, int]) -> float:
    """Five-fold accuracy of TF-IDF and logistic regression; stars not in classes are left out."""
    kept = [row for row in reviews() if int(row["stars"]) in classes]
    texts = [row["text"] for row in kept]
    labels = [classes[int(row["stars"])] for row in kept]
    model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(max_iter=1000))
    folds = StratifiedKFold(n_splits=5, shuffle=True, random_state=0)
    return float(cross_val_score(model, texts, labels, cv=folds).mean())


def test_there_are_325_rows_with_the_expected_columns_and_unique_ids() -> None:
    assert len(reviews()) == 325
    assert all(list(row) == ["id", "domain", "text", "stars"] for row in reviews())
    assert [row["id"] for row in reviews()] == [f"r{n:03d}" for n in range(1, 326)]


def test_every_star_has_65_items_and_every_domain_13_of_them() -> None:
    assert Counter(row["stars"] for row in reviews()) == {str(star): 65 for star in FIVE}
    cells = Counter((row["stars"], row["domain"]) for row in reviews())
    assert cells == {(str(star), domain): 13 for star in FIVE for domain in DOMAINS}


def test_no_text_occurs_twice() -> None:
    assert len({" ".join(words(row["text"])) for row in reviews()}) == len(reviews())


def test_no_two_texts_open_with_the_same_four_words() -> None:
    assert len({tuple(words(row["text"])[:4]) for row in reviews()}) == len(reviews())


def test_no_run_of_five_words_occurs_in_more_than_three_items() -> None:
    runs: Counter[tuple[str, ...]] = Counter()
    for row in reviews():
        tokens = words(row["text"])
        runs.update({tuple(tokens[i : i + 5]) for i in range(len(tokens) - 4)})
    assert max(runs.values()) <= 3


def test_lengths_vary_from_a_few_words_to_a_paragraph() -> None:
    lengths = [len(words(row["text"])) for row in reviews()]
    assert 4 <= min(lengths) <= 6
    assert 45 <= max(lengths) <= 65


def test_five_classes_are_learnable_but_not_trivial() -> None:
    assert 0.35 <= accuracy(FIVE) <= 0.75


def test_fewer_and_wider_classes_are_easier() -> None:
    assert accuracy(FIVE) < accuracy(THREE) < accuracy(TWO)
