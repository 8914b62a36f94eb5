"""Scorers and meta-estimators of scikit-learn on a rater whose probabilities are known."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, get_scorer, get_scorer_names
from sklearn.model_selection import (
    GridSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
    learning_curve,
)
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

from flipmeter import OrdinalClassifier
from flipmeter.ask.family import World
from flipmeter.errors import Problem

SHARPNESS = 1.3
THREE = ("low", "medium", "high")
"""Not in the order of the alphabet, which is high, low, medium."""
SCALES = {
    "words": THREE,
    "two words": ("mild", "grave"),
    "sorted words": ("bad", "fair", "good"),
    "numbers": (1, 2, 3),
    "numbers downwards": (3, 2, 1),
}
N_TEXTS = 24


def latent(place: int, n_classes: int) -> float:
    """Where a text stands on the scale: near its class, and for every fifth nearer to another."""
    gold = place % n_classes + 1
    return gold + (0.9 if place % 5 == 0 else 0.2) * (1 if gold == 1 else -1)


def texts(n: int = N_TEXTS) -> list[str]:
    return [f"text number {place}" for place in range(n)]


def labels(scale: tuple[Any, ...], n: int = N_TEXTS) -> list[Any]:
    return [scale[place % len(scale)] for place in range(n)]


def rater(classes: Any, model: str = f"sim/honest?sharpness={SHARPNESS}", **options: Any) -> Any:
    names = [f"{one:g}" if isinstance(one, float) else str(one) for one in _shown(classes)]
    table = {text: latent(place, len(names)) for place, text in enumerate(texts(60))}
    style = {"label_format": "numeric"}
    usual = {"scale": classes, "scores": True, "shots": 1, "store": None, "style": style}
    known = World(table, tuple(names))
    return OrdinalClassifier(model, **{**usual, "world": known} | options)


def _shown(classes: Any) -> Any:
    return classes.values() if isinstance(classes, dict) else classes


class Twin(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The same probabilities by the formula of the simulated rater, with columns sorted by hand."""

    def __init__(self, scale: tuple[Any, ...] = THREE) -> None:
        self.scale = scale

    def fit(self, X: Any, y: Any) -> Twin:  # noqa: N803
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        ranks = np.arange(1, len(self.scale) + 1)
        places = [int(str(text).split()[-1]) for text in X]
        away = np.array([[latent(one, len(ranks)) - rank for rank in ranks] for one in places])
        odds = np.exp(-SHARPNESS * away**2)
        return (odds / odds.sum(axis=1, keepdims=True))[:, np.argsort(self.scale)]

    def predict(self, X: Any) -> Any:  # noqa: N803
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


@pytest.fixture(params=SCALES, ids=str)
def scale(request: pytest.FixtureRequest) -> tuple[Any, ...]:
    return SCALES[request.param]


def outcome(name: str, estimator: Any, X: Any, y: Any) -> Any:  # noqa: N803
    """A score, or the words with which scikit-learn refuses."""
    try:
        return float(get_scorer(name)(estimator, X, y))
    except ValueError as error:
        return str(error)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::UserWarning:sklearn")
def test_every_scorer_there_is_gives_what_the_known_probabilities_give(
    scale: tuple[Any, ...],
) -> None:
    X, y = texts(), labels(scale)  # noqa: N806
    found, expected = rater(scale).fit(X, y), Twin(scale).fit(X, y)
    scored = set()
    for name in get_scorer_names():
        told = outcome(name, expected, X, y)
        assert outcome(name, found, X, y) == (
            told if isinstance(told, str) else pytest.approx(told, rel=1e-6, nan_ok=True)
        ), name
        scored |= set() if isinstance(told, str) else {name}
    assert {"accuracy", "f1_macro", "neg_log_loss", "roc_auc_ovr", "matthews_corrcoef"} <= scored


def test_a_rater_that_puts_every_text_right_has_an_area_of_one() -> None:
    scale = SCALES["two words"]
    X, y = texts(), labels(scale)  # noqa: N806
    names = tuple(map(str, scale))
    known = World({text: 1.1 + place % 2 * 0.8 for place, text in enumerate(X)}, names)
    found = rater(scale, world=known).fit(X, y)
    assert get_scorer("roc_auc")(found, X, y) == 1.0


@pytest.mark.parametrize("scoring", ["accuracy", "neg_log_loss", "roc_auc_ovr"])
def test_cross_validation_scores_as_the_known_probabilities_do(
    scoring: str, scale: tuple[Any, ...]
) -> None:
    X, y = texts(), labels(scale)  # noqa: N806
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = cross_val_score(rater(scale), X, y, cv=3, scoring=scoring)
    assert found == pytest.approx(cross_val_score(Twin(scale), X, y, cv=3, scoring=scoring))


@pytest.mark.filterwarnings("ignore:labels 0 to .* are read as scikit-learn encodes:UserWarning")
@pytest.mark.parametrize("method", ["predict", "predict_proba"])
def test_cross_validation_predicts_as_the_known_probabilities_do(
    method: str, scale: tuple[Any, ...]
) -> None:
    X, y = texts(), labels(scale)  # noqa: N806
    found = cross_val_predict(rater(scale), X, y, cv=3, method=method)
    expected = cross_val_predict(Twin(scale), X, y, cv=3, method=method)
    if method == "predict":
        assert found.tolist() == expected.tolist()
    else:
        assert found == pytest.approx(expected)


def test_a_grid_search_finds_the_better_rater_by_log_loss() -> None:
    X, y = texts(), labels(THREE)  # noqa: N806
    models = ["sim/first-slot?strength=4", f"sim/honest?sharpness={SHARPNESS}"]
    search = GridSearchCV(rater(THREE), {"model": models}, cv=2, scoring="neg_log_loss")
    search.fit(X, y)
    assert search.best_params_["model"] == models[1]
    twin = cross_val_score(Twin(), X, y, cv=2, scoring="neg_log_loss").mean()
    assert search.best_score_ == pytest.approx(twin)


def test_a_random_search_and_a_learning_curve_take_it() -> None:
    X, y = texts(), labels(THREE)  # noqa: N806
    models = ["sim/first-slot?strength=4", f"sim/honest?sharpness={SHARPNESS}"]
    search = RandomizedSearchCV(rater(THREE), {"model": models}, n_iter=2, cv=2, random_state=0)
    assert search.fit(X, y).best_params_["model"] == models[1]
    usual = {"train_sizes": [0.5, 1.0], "cv": 2, "scoring": "neg_log_loss"}
    found, expected = (learning_curve(one, X, y, **usual)[2] for one in (rater(THREE), Twin()))
    assert found == pytest.approx(expected)


def test_a_threshold_is_tuned_as_on_the_known_probabilities() -> None:
    scale = SCALES["two words"]
    X, y = texts(), labels(scale)  # noqa: N806
    found, expected = (
        TunedThresholdClassifierCV(one, cv=2, random_state=0).fit(X, y)
        for one in (rater(scale), Twin(scale))
    )
    assert found.predict(X).tolist() == expected.predict(X).tolist()
    assert found.best_threshold_ == pytest.approx(expected.best_threshold_, rel=1e-4)


META = {
    "calibrated": lambda one: CalibratedClassifierCV(one, cv=2),
    "calibrated without an ensemble": lambda one: CalibratedClassifierCV(one, cv=2, ensemble=False),
    "soft votes": lambda one: VotingClassifier([("a", one), ("b", one)], voting="soft"),
    "hard votes": lambda one: VotingClassifier([("a", one), ("b", one)]),
    "stacked": lambda one: StackingClassifier([("a", one)], LogisticRegression(), cv=2),
    "pipeline": lambda one: Pipeline([("same", FunctionTransformer()), ("rate", one)]),
}


@pytest.mark.filterwarnings("ignore:labels 0 to .* are read as scikit-learn encodes:UserWarning")
@pytest.mark.parametrize("name", META)
def test_a_meta_estimator_makes_the_same_of_it_as_of_the_known_probabilities(
    name: str, scale: tuple[Any, ...]
) -> None:
    X, y = texts(), labels(scale)  # noqa: N806
    found, expected = (META[name](one).fit(X, y) for one in (rater(scale), Twin(scale)))
    assert found.predict(X).tolist() == expected.predict(X).tolist()
    assert found.classes_.tolist() == expected.classes_.tolist()
    if name != "hard votes":
        assert found.predict_proba(X) == pytest.approx(expected.predict_proba(X), rel=1e-4)


# Codes: what scikit-learn makes of class names


def test_codes_of_sorted_names_are_told_apart_from_ranks() -> None:
    X, codes = texts(), [sorted(THREE).index(name) for name in labels(THREE)]  # noqa: N806
    with pytest.warns(
        UserWarning, match=r"0 is 'high'\); if they are ranks, pass scale=\{0: 'low'"
    ):
        found = rater(THREE).fit(X, codes)
    assert found.classes_.tolist() == [0, 1, 2]
    assert found.scale_.tolist() == [1, 2, 0]
    words = rater(THREE).fit(X, labels(THREE))
    assert found.predict(X).tolist() == [sorted(THREE).index(one) for one in words.predict(X)]


def test_a_mapping_gives_ranks_their_names_and_warns_of_nothing() -> None:
    X, y = texts(), [place % 3 for place in range(N_TEXTS)]  # noqa: N806
    found = rater({0: "low", 1: "medium", 2: "high"}).fit(X, y)
    assert found.card_.task.scale == list(THREE)
    assert found.card_.task.values == ["0", "1", "2"]
    assert found.predict(X).tolist() == [0 if p[0] else p[1] * 1 + p[2] * 2 for p in _top(found)]


def _top(found: Any) -> Any:
    p = found.predict_proba(texts())
    return (p == p.max(axis=1, keepdims=True)).astype(int)


def test_codes_that_do_not_reach_the_last_class_are_refused() -> None:
    with pytest.raises(ValueError, match=r"from 0 to 1, but the scale has 3 names; .*some class"):
        rater(THREE).fit(texts(4), [0, 1, 0, 1])


# The order of a scale


def test_classes_are_sorted_and_the_scale_keeps_its_order() -> None:
    found = rater(THREE).fit(texts(), labels(THREE))
    assert found.classes_.tolist() == ["high", "low", "medium"]
    assert found.scale_.tolist() == ["low", "medium", "high"]


@pytest.mark.parametrize(
    "ordered",
    [
        pd.Series(labels(THREE), dtype=pd.CategoricalDtype(THREE, ordered=True)),
        pd.Categorical(labels(THREE), categories=THREE, ordered=True),
        pl.Series(labels(THREE), dtype=pl.Enum(THREE)),
    ],
    ids=["pandas series", "pandas categorical", "polars enum"],
)
def test_labels_that_know_their_order_need_no_scale(ordered: Any) -> None:
    told = rater(THREE).fit(texts(), labels(THREE))
    found = rater(THREE, scale=None).fit(texts(), ordered)
    assert found.scale_.tolist() == list(THREE)
    assert found.card_.digest == told.card_.digest
    assert found.score(texts(), ordered) == told.score(texts(), labels(THREE))


def test_a_category_without_a_text_is_still_a_class() -> None:
    some = [place for place in range(N_TEXTS) if place % 3 != 1]
    y = pd.Series(labels(THREE), dtype=pd.CategoricalDtype(THREE, ordered=True)).iloc[some]
    found = rater(THREE, scale=None).fit([texts()[place] for place in some], y)
    assert found.scale_.tolist() == list(THREE)


@pytest.mark.parametrize("dtype", [pd.CategoricalDtype(THREE, ordered=True), pl.Enum(THREE)])
def test_a_dtype_is_a_scale(dtype: Any) -> None:
    found = rater(THREE, scale=dtype).fit(texts(), labels(THREE))
    assert found.scale_.tolist() == list(THREE)


def test_categories_without_an_order_are_no_scale() -> None:
    y = pd.Series(labels(THREE), dtype="category")
    with pytest.raises(ValueError, match=r"cannot infer the order.*pass scale=\[...\]"):
        rater(THREE, scale=None).fit(texts(), y)


# Texts without an answer


REFUSING = f"sim/refusing?sharpness={SHARPNESS}&refuse=0.4"


@pytest.mark.parametrize("unanswered", ["?", "medium"])
def test_metrics_take_a_value_for_what_is_unanswered(unanswered: str) -> None:
    X, y = texts(), labels(THREE)  # noqa: N806
    found = rater(THREE, REFUSING, unanswered=unanswered).fit(X, y)
    given = found.predict(X)
    refused = np.array([fault == "refused" for fault in found.faults_])
    assert 0 < refused.sum() < N_TEXTS
    assert given.dtype.kind == "U"
    assert accuracy_score(y, given) == found.score(X, y)
    assert set(given[refused]) == {unanswered}
    assert get_scorer("neg_log_loss")(found, X, y) > -5
    assert found.predict_proba(X)[refused] == pytest.approx(1 / 3)


def test_a_number_that_is_no_class_stands_among_numbers() -> None:
    scale = (0.0, 1.0, 2.0)
    found = rater(scale, REFUSING, unanswered=-1).fit(texts(), labels(scale))
    given = found.predict(texts())
    assert given.dtype.kind == "f"
    assert -1 in given.tolist()


def test_what_is_unanswered_is_none_and_nan_unless_told() -> None:
    found = rater(THREE, REFUSING).fit(texts(), labels(THREE))
    given = found.predict(texts())
    p = found.predict_proba(texts())
    assert np.isnan(p).all(axis=1).tolist() == [one is None for one in given.tolist()]


@pytest.mark.filterwarnings("ignore:labels 0 to .* are read as scikit-learn encodes:UserWarning")
def test_votes_are_counted_where_a_class_stands_for_what_is_unanswered() -> None:
    one = rater(THREE, REFUSING, unanswered="medium")
    voting = VotingClassifier([("a", one), ("b", one)]).fit(texts(), labels(THREE))
    alone = one.fit(texts(), labels(THREE)).predict(texts())
    assert voting.predict(texts()).tolist() == alone.tolist()


# None turns an option off


OPTIONS = {
    "average": (),
    "flip_proof": (),
    "criteria": (),
    "shots": 0,
    "draws": 0,
    "scores": False,
    "pipeline": "pointwise",
    "calibration_size": 0,
    "min_interval": 0.0,
    "trust_hosts": (),
}


def _only(name: str, value: Any) -> dict[str, Any]:
    return {name: value}


@pytest.mark.parametrize("name", OPTIONS)
def test_none_turns_an_option_off(name: str) -> None:
    off = rater(THREE, **_only(name, None)).fit(texts(), labels(THREE))
    plain = rater(THREE, **_only(name, OPTIONS[name])).fit(texts(), labels(THREE))
    assert off.card_.digest == plain.card_.digest
    assert off.predict(texts()).tolist() == plain.predict(texts()).tolist()


def test_none_turns_off_what_a_mapping_says() -> None:
    off = rater(THREE, style={"prompt": None, "label_format": "numeric"}, task={"noun": None})
    assert off.fit(texts(), labels(THREE)).card_.digest == (
        rater(THREE).fit(texts(), labels(THREE)).card_.digest
    )


def test_without_a_size_everything_is_one_batch() -> None:
    found = rater(THREE, batch_size=None, pipeline="pointwise+batch").fit(texts(), labels(THREE))
    with pytest.raises(Problem, match="learns from all items at once"):
        rater(THREE, batch_size=5, pipeline="pointwise+batch").fit(texts(), labels(THREE)).predict(
            texts()
        )
    assert len(found.predict(texts())) == N_TEXTS


# What cannot be told, and what is missing


@pytest.mark.filterwarnings("ignore:12 of 12 texts failed")
@pytest.mark.parametrize(
    "ordered",
    [
        pd.Series(pd.Categorical(labels(THREE), categories=THREE, ordered=True)),
        pl.Series(labels(THREE), dtype=pl.Enum(THREE)),
    ],
    ids=["pandas", "polars"],
)
def test_an_order_that_scikit_learn_encodes_away_is_warned_of(ordered: Any) -> None:
    X, y = np.array(texts()), np.array(labels(THREE))  # noqa: N806
    lost = rater(THREE).set_params(scale=None)
    with pytest.warns(UserWarning, match="labels 0 to 2 are shown to the model as numbers"):
        cross_val_predict(lost, X, ordered, cv=2, method="predict_proba")
    with pytest.warns(UserWarning, match="0 is 'high'"):
        kept = cross_val_predict(
            rater(THREE).set_params(scale=ordered.dtype), X, ordered, cv=2, method="predict_proba"
        )
    known = cross_val_predict(Twin(THREE), X, y, cv=2, method="predict_proba")
    assert kept == pytest.approx(known)


@pytest.mark.parametrize("kind", ["string", "object", "category"])
def test_a_label_that_pandas_calls_missing_is_named(kind: str) -> None:
    y = pd.Series([*labels(THREE)[:-1], None], dtype=kind)
    with pytest.raises(Problem, match=f"label {N_TEXTS - 1} is "):
        rater(THREE).fit(texts(), y)


def test_an_unordered_dtype_is_no_scale() -> None:
    with pytest.raises(Problem, match=r"scale is CategoricalDtype.*; give a list"):
        rater(THREE).set_params(scale=pd.CategoricalDtype(THREE)).fit(texts(), labels(THREE))


@pytest.mark.parametrize(("scale", "given"), [((1, 2, 3), "123"), (("1", "2", "3"), (1, 2, 3))])
def test_labels_and_a_scale_of_another_kind_are_told_apart(scale: Any, given: Any) -> None:
    with pytest.raises(
        Problem, match=f"label {given[0]!r} is not on the scale, which has {scale[0]!r}"
    ):
        rater(scale).fit(texts(), labels(tuple(given)))
