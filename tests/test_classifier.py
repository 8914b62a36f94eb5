"""A rater as a scikit-learn estimator."""

from __future__ import annotations

import asyncio
import math
import pickle
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

import flipmeter
from flipmeter import OrdinalClassifier
from flipmeter.ask.store import Store
from flipmeter.choose.card import read_card, write_card
from flipmeter.choose.select import select
from flipmeter.data.load import load
from flipmeter.errors import OutOfBudget, Problem
from flipmeter.study.grid import world
from misbehaving import Behaviour, answer, fails, says, serving
from report_runs import simulated

REVIEWS = load("reviews")
WORLD = world(REVIEWS)
SCALE = list(REVIEWS.task.scale.names)
ITEMS = [item for item in (*REVIEWS.pool, *REVIEWS.test) if item.gold]
TEXTS = [item.text for item in ITEMS]
LABELS = [SCALE[(item.gold or 1) - 1] for item in ITEMS]


def rater(model: Any = "sim/honest", **options: Any) -> OrdinalClassifier:
    usual: dict[str, Any] = {"scale": SCALE, "shots": 1, "store": None, "world": WORLD}
    return OrdinalClassifier(model, **usual | options)


# Predicting


def test_the_right_classes_come_out() -> None:
    found = rater("sim/honest?sharpness=50").fit(TEXTS[:200], LABELS[:200])
    assert found.scale_.tolist() == SCALE
    given = found.predict(TEXTS[200:260])
    assert (given == LABELS[200:260]).mean() > 0.6
    assert found.score(TEXTS[200:260], LABELS[200:260]) == (given == LABELS[200:260]).mean()


def test_averaging_label_orders_undoes_a_tilt_along_the_list() -> None:
    """What is odd in the slots cancels in the mean of the log-odds of both orders."""
    tilted = "sim/honest?slope=1"
    honest = rater().fit(TEXTS[:50], LABELS[:50]).predict(TEXTS[200:260])
    plain = rater(tilted).fit(TEXTS[:50], LABELS[:50]).predict(TEXTS[200:260])
    averaged = rater(tilted, average="label_order", scores=True).fit(TEXTS[:50], LABELS[:50])
    assert (plain != honest).mean() > 0.1
    assert averaged.predict(TEXTS[200:260]).tolist() == honest.tolist()


def test_agreement_is_the_share_of_positions_that_give_the_class() -> None:
    found = rater("sim/first-slot?strength=3", average="label_order").fit(TEXTS[:50], LABELS[:50])
    given = found.predict(TEXTS[200:230])
    for one, label in zip(found.rate(TEXTS[200:230]), given, strict=True):
        assert len(one.votes) == 2
        rank = SCALE.index(label) + 1
        assert one.agreement == sum(vote == rank for vote in one.votes) / 2
    assert set(found.agreement_) == {0.0, 0.5, 1.0} or set(found.agreement_) == {0.5, 1.0}


def test_of_one_position_there_is_no_agreement() -> None:
    found = rater().fit(TEXTS[:50], LABELS[:50])
    found.predict(TEXTS[200:203])
    assert all(math.isnan(share) for share in found.agreement_)
    with pytest.raises(Problem, match="abstaining needs several views"):
        rater(abstain_below=0.8).fit(TEXTS[:50], LABELS[:50])


@pytest.mark.parametrize("unanswered", [None, "?"])
def test_below_the_threshold_the_declared_value_is_given(unanswered: Any) -> None:
    options = {"average": ["label_order"], "unanswered": unanswered}
    tilted = rater("sim/first-slot?strength=3", abstain_below=0.9, **options)
    given = tilted.fit(TEXTS[:50], LABELS[:50]).predict(TEXTS[200:260])
    unsure = tilted.agreement_ < 0.9
    assert 0 < unsure.sum() < 60
    assert [one == unanswered for one in given.tolist()] == unsure.tolist()
    gold = LABELS[200:260]
    right = [one == other for one, other in zip(given.tolist(), gold, strict=True)]
    assert tilted.score(TEXTS[200:260], gold) == np.mean(right)


def test_a_pipeline_that_asks_two_orders_has_their_agreement() -> None:
    found = rater("sim/first-slot?strength=3", pipeline="pointwise+label_average", abstain_below=1)
    found.fit(TEXTS[:50], LABELS[:50]).predict(TEXTS[200:220])
    assert set(found.agreement_) <= {0.0, 0.5, 1.0}


def test_a_refusal_is_a_fault_and_never_a_class() -> None:
    found = rater("sim/refusing?strength=0.5").fit(TEXTS[:50], LABELS[:50])
    given = found.predict(TEXTS[200:240])
    assert 5 < found.faults_.count("refused") < 35
    assert [label is None for label in given] == [fault == "refused" for fault in found.faults_]


@pytest.mark.parametrize(
    "pipeline",
    ["orbit(labels:rotations)", "pointwise+pride", "pointwise+contextual", "pairwise+copeland"],
)
def test_any_pipeline_stands_behind_it(pipeline: str) -> None:
    found = rater("sim/honest?sharpness=20", pipeline=pipeline, calibration_size=5)
    found.fit(TEXTS[:60], LABELS[:60])
    assert found.score(TEXTS[200:215], LABELS[200:215]) > 0.4


@pytest.mark.parametrize("pipeline", ["pointwise+batch", "orbit(batch)"])
def test_a_pipeline_that_learns_from_a_batch_refuses_a_single_text(pipeline: str) -> None:
    found = rater(pipeline=pipeline).fit(TEXTS[:50], LABELS[:50])
    with pytest.raises(
        Problem, match=r"at least 10 of mixed classes; got 1; .*orbit\(calibrated\)"
    ):
        found.predict(TEXTS[:1])
    assert len(found.predict(TEXTS[:12])) == 12


def test_a_pipeline_that_learns_from_the_batch_is_not_cut() -> None:
    found = rater(pipeline="pointwise+batch", batch_size=12).fit(TEXTS[:50], LABELS[:50])
    found.predict(TEXTS[200:212])
    with pytest.raises(Problem, match="learns from all items at once"):
        found.predict(TEXTS[200:213])


def test_batches_change_nothing() -> None:
    whole = rater(average="label_order").fit(TEXTS[:50], LABELS[:50])
    cut = rater(average="label_order", batch_size=7).fit(TEXTS[:50], LABELS[:50])
    assert whole.predict(TEXTS[200:230]).tolist() == cut.predict(TEXTS[200:230]).tolist()


def test_who_waits_gets_the_same() -> None:
    found = rater().fit(TEXTS[:50], LABELS[:50])
    assert asyncio.run(found.apredict(TEXTS[200:210])).tolist() == (
        found.predict(TEXTS[200:210]).tolist()
    )


# Probabilities and sets


def test_probabilities_are_by_class_and_agree_with_the_prediction() -> None:
    found = rater("sim/first-slot", scores=True).fit(TEXTS[:50], LABELS[:50])
    p = found.predict_proba(TEXTS[200:230])
    assert p.sum(axis=1) == pytest.approx(1)
    assert found.classes_[p.argmax(axis=1)].tolist() == found.predict(TEXTS[200:230]).tolist()


def test_without_probabilities_it_says_how_to_get_them() -> None:
    found = rater().fit(TEXTS[:50], LABELS[:50])
    assert not hasattr(found, "predict_proba")
    with pytest.raises(AttributeError) as told:
        found.predict_proba(TEXTS[:2])
    assert "scores=True" in str(told.value.__cause__ or told.value)


# Fitting


def test_demonstrations_depend_on_the_seed_and_not_on_the_order_of_rows() -> None:
    one = rater(shots=2).fit(TEXTS[:60], LABELS[:60]).card_.demos
    turned = rater(shots=2).fit(TEXTS[:60][::-1], LABELS[:60][::-1]).card_.demos
    other = rater(shots=2, seed=1).fit(TEXTS[:60], LABELS[:60]).card_.demos
    assert one == turned != other
    assert sorted(demo["label"] for demo in one) == sorted(SCALE * 2)


def test_numbers_need_no_scale_and_words_do() -> None:
    numbers = [SCALE.index(label) + 1 for label in LABELS]
    found = OrdinalClassifier("sim/honest", store=None, world=WORLD, shots=1)
    assert found.fit(TEXTS[:50], numbers[:50]).classes_.tolist() == [1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match=r"scale=\[\.\.\.\]"):
        found.fit(TEXTS[:50], LABELS[:50])


@pytest.mark.parametrize(
    ("texts", "labels", "says_"),
    [
        (TEXTS[:3], LABELS[:2], "3 texts but 2 labels"),
        ([1.5, 2.5], LABELS[:2], "text 0: .* must be text"),
        (["good", "  "], LABELS[:2], "text 1: .* is empty"),
        (["good", "half \ud83d"], LABELS[:2], "text 1: .* surrogate"),
        ("good", ["positive"], "give a list of texts"),
        ([["a", "b"]], LABELS[:1], r"got shape \(1, 2\)"),
        (["good", "bad"], ["positive", "negativ"], "did you mean 'negative'"),
    ],
)
def test_what_cannot_be_fitted_says_why(texts: Any, labels: Any, says_: str) -> None:
    with pytest.raises(ValueError, match=says_):
        rater().fit(texts, labels)


@pytest.mark.parametrize(
    ("labels", "says_"),
    [
        ([1.0, float("inf"), 2.0], "label 1 is inf"),
        ([1.0, float("nan"), 2.0], "label 1 is nan"),
        (["positive", None, "x"], "label 1 is None"),
    ],
)
def test_a_text_without_a_label_is_named(labels: Any, says_: str) -> None:
    for scale in (None, SCALE):
        with pytest.raises(ValueError, match=says_):
            rater(scale=scale).fit(TEXTS[:3], labels)


@pytest.mark.parametrize(
    ("options", "says_"),
    [
        ({"model": {"modell": "sim/honest"}}, "no key named 'model.modell'; did you mean 'model'"),
        ({"decoding": {"max_token": 5}}, "no key named 'decoding.max_token'"),
        ({"answer": {"jsn": "$.x"}}, "answer.jsn"),
        ({"criteria": "kind"}, "criteria is the text 'kind'; give a list"),
        ({"scale": "abc"}, "scale is the text 'abc'; give a list"),
        ({"shots": 1.5}, "shots is 1.5; it must be a whole number"),
        ({"seed": None}, "seed is None; it must be a whole number"),
        ({"draws": -1}, "score_samples: .*; got -1"),
    ],
    ids=str,
)
def test_a_parameter_that_cannot_be_is_named(options: dict[str, Any], says_: str) -> None:
    with pytest.raises(ValueError, match=says_):
        rater(**options).fit(TEXTS[:60], LABELS[:60])


def test_numbers_of_numpy_are_whole_numbers_too() -> None:
    found = rater(shots=np.int64(2), seed=np.int32(3), draws=np.int8(0))
    plain = rater(shots=2, seed=3).fit(TEXTS[:50], LABELS[:50])
    assert found.fit(TEXTS[:50], LABELS[:50]).card_.digest == plain.card_.digest


def test_a_structured_answer_has_no_probabilities() -> None:
    with pytest.raises(Problem, match="does not begin with its label"):
        rater(answer={"json": "$.label"}, scores=True).fit(TEXTS[:50], LABELS[:50])


def test_nothing_to_predict_is_nothing_predicted() -> None:
    found = rater(average="label_order").fit(TEXTS[:50], LABELS[:50])
    assert found.predict([]).tolist() == []


def test_nothing_is_asked_twice_and_a_budget_holds(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    found = rater(store=path, budget={"calls": 12}).fit(TEXTS[:50], LABELS[:50])
    first = found.predict(TEXTS[200:210])
    assert found.ledger_.asked == 10
    assert found.predict(TEXTS[200:210]).tolist() == first.tolist()
    assert found.ledger_.asked == 10
    with pytest.raises(OutOfBudget):
        found.predict(TEXTS[200:220])
    with Store(path) as store:
        assert len(store) == 12


def test_a_class_that_is_not_shown_can_still_be_given() -> None:
    few = [place for place, label in enumerate(LABELS) if label != "neutral"][:40]
    found = rater().fit([TEXTS[k] for k in few], [LABELS[k] for k in few])
    assert found.scale_.tolist() == SCALE
    assert "neutral" in found.predict(TEXTS[200:]).tolist()


# The conventions of scikit-learn


def test_it_clones_pickles_and_searches() -> None:
    found = rater(average=["label_order"]).fit(TEXTS[:50], LABELS[:50])
    copied = clone(found)
    assert copied.get_params().keys() == found.get_params().keys()
    with pytest.raises(NotFittedError):
        copied.predict(TEXTS[:2])
    again = pickle.loads(pickle.dumps(found))
    assert again.predict(TEXTS[200:205]).tolist() == found.predict(TEXTS[200:205]).tolist()
    assert len(cross_val_score(rater(), TEXTS[:60], LABELS[:60], cv=3)) == 3
    search = GridSearchCV(rater(), {"shots": [0, 1]}, cv=2).fit(TEXTS[:40], LABELS[:40])
    assert search.best_params_["shots"] in (0, 1)


def test_importing_the_package_does_not_load_scikit_learn() -> None:
    code = "import sys, flipmeter; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert flipmeter.OrdinalClassifier is OrdinalClassifier


class OfNumbers(OrdinalClassifier):
    """Rows of numbers as texts, so that scikit-learn can check what is not about texts."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        tags.input_tags.one_d_array = tags.input_tags.string = False
        return tags

    def fit(self, X: Any, y: Any) -> OrdinalClassifier:  # noqa: N803
        numbers, labels = validate_data(self, X, y)
        check_classification_targets(labels)
        return super().fit([_written(row) for row in numbers], labels)

    async def arate(self, X: Any) -> Any:  # noqa: N803
        check_is_fitted(self, "card_")
        return await super().arate([_written(row) for row in validate_data(self, X, reset=False)])


def _written(row: Any) -> str:
    return " ".join(f"{number:.6g}" for number in row)


def nearest(body: Any) -> Behaviour:
    """Answer with the label of the demonstration whose numbers are nearest to those asked for."""
    prompt = body["messages"][-1]["content"]
    blocks = re.findall(r"Text: ([^\n]*)\nLabel:(?: (\S+))?", prompt)
    query = np.array(blocks[-1][0].split(), dtype=float)
    shown = [(np.array(text.split(), dtype=float), label) for text, label in blocks if label]
    away = [float(np.abs(numbers - query).sum()) for numbers, _ in shown]
    return says(answer(shown[int(np.argmin(away))][1]))


EXPECTED_FAILED_CHECKS = {
    "check_classifiers_classes": "words are not in the order of a scale: it must be given",
}


BARE_NUMBERS = pytest.mark.filterwarnings("ignore:labels 0 to:UserWarning")


@pytest.fixture
def endpoint() -> Iterator[str]:
    with serving(nearest) as server:
        yield server.url


@BARE_NUMBERS
def test_it_keeps_the_conventions_as_far_as_texts_allow(endpoint: str) -> None:
    model = {"model": "http/nearest", "base_url": endpoint}
    estimator = OfNumbers(model, store=None, task={"noun": "Text"})
    results = check_estimator(
        estimator, expected_failed_checks=EXPECTED_FAILED_CHECKS, on_fail=None, on_skip=None
    )
    failed = {
        one["check_name"]: str(one["exception"]) for one in results if one["status"] == "failed"
    }
    assert failed == {}
    assert sum(one["status"] == "passed" for one in results) > 30


@BARE_NUMBERS
def test_numbers_are_their_own_labels_and_have_no_point(endpoint: str) -> None:
    """A rater that says what its nearest demonstration has: "1: 0, 2: 1" would turn it round."""
    texts = [f"{k} {k}" for k in range(11)]
    model = {"model": "http/nearest", "base_url": endpoint}
    for form in (float, int):
        grades = [form(k) for k in range(11)]
        found = OrdinalClassifier(model, store=None, average="label_order", task={"noun": "Text"})
        found.fit(texts, grades)
        assert found.card_.task.scale == [str(k) for k in range(11)]
        given = found.predict(texts).tolist()
        assert given == grades
        assert {type(one) for one in given} == {form}
    lettered = OrdinalClassifier(model, store=None, style={"label_format": "letter"})
    assert lettered.fit(texts, grades).card_.style["label_format"] == "letter"


def test_texts_that_failed_are_warned_of_with_the_reason() -> None:
    with serving(lambda body: fails(400, "no such model")) as server:
        model = {"model": "http/none", "base_url": server.url}
        found = OrdinalClassifier(model, store=None).fit(["bad", "good"], [1, 2])
        with pytest.warns(UserWarning, match=r"2 of 2 texts failed \(text-1: .*no such model"):
            assert found.predict(["so", "so so"]).tolist() == [None, None]
    assert found.faults_ == ["error", "error"]


# Cards


def test_a_selected_rater_is_loaded_and_answers_as_in_the_study(tmp_path: Path) -> None:
    run = simulated(tmp_path / "run", vary={"label_format": ["letter"]}, probes=["label_order"])
    write_card(select(run).card(), tmp_path / "rater.yaml")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = OrdinalClassifier.load(tmp_path / "rater.yaml", store=None)
    evidence = found.card_.selected
    assert evidence is not None
    asked = run.decisions.filter(level=evidence.level, view="base", repeat=0)
    texts = {item.id: item.text for item in ITEMS}
    given = found.predict([texts[name] for name in asked["item"]])
    assert given.tolist() == [SCALE[rank - 1] for rank in asked["rank"]]


def test_another_model_is_warned_of(tmp_path: Path) -> None:
    run = simulated(tmp_path / "run", probes=["label_order"])
    write_card(select(run).card(), tmp_path / "rater.yaml")
    with pytest.warns(UserWarning, match="does not transfer"):
        OrdinalClassifier.load(tmp_path / "rater.yaml", model="sim/recency", store=None)


def test_a_fitted_rater_is_saved_and_loaded(tmp_path: Path) -> None:
    found = rater(average="label_order", shots=2).fit(TEXTS[:50], LABELS[:50])
    found.save(tmp_path / "rater.yaml")
    again = OrdinalClassifier.load(tmp_path / "rater.yaml", store=None, world=WORLD)
    assert read_card(tmp_path / "rater.yaml").demos == found.card_.demos
    assert again.predict(TEXTS[200:210]).tolist() == found.predict(TEXTS[200:210]).tolist()


def test_a_loaded_rater_that_is_fitted_again_keeps_what_its_card_says(tmp_path: Path) -> None:
    first = rater(
        shots=2,
        average=["label_order"],
        criteria=["It is short.", "It is kind."],
        answer={"json": "$.label"},
        min_interval=0.5,
        decoding={"max_tokens": 7},
        style={"label_format": "letter", "prompt": "{{ criteria }} [{{ labels }}] {{ text }}"},
        task={"noun": "Note"},
        seed=3,
    ).fit(TEXTS[:50], LABELS[:50])
    first.save(tmp_path / "rater.yaml")
    loaded = OrdinalClassifier.load(tmp_path / "rater.yaml", store=None, world=WORLD)
    again = clone(loaded).fit(TEXTS[:50], LABELS[:50])
    assert again.card_.digest == first.card_.digest
    other = clone(loaded).fit(TEXTS[50:100], LABELS[50:100]).card_
    assert other.demos != first.card_.demos
    assert other.model_copy(update={"demos": first.card_.demos}) == first.card_


def test_a_card_of_numbers_without_a_label_format_keeps_the_usual_one(
    endpoint: str, tmp_path: Path
) -> None:
    texts, path = [f"{k} {k}" for k in range(3)], tmp_path / "rater.yaml"
    model = {"model": "http/nearest", "base_url": endpoint}
    OrdinalClassifier(model, scale=[0, 1, 2], store=None).fit(texts, [0, 1, 2]).save(path)
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    del content["style"]["label_format"]
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    loaded = OrdinalClassifier.load(path, store=None)
    before = loaded.card_.condition().rater
    assert loaded.fit(texts, ["0", "1", "2"]).card_.condition().rater == before


def test_a_card_that_counts_draws_has_probabilities_when_it_is_loaded(tmp_path: Path) -> None:
    drawing = rater("sim/first-slot?noise=1", draws=4).fit(TEXTS[:50], LABELS[:50])
    drawing.save(tmp_path / "rater.yaml")
    again = OrdinalClassifier.load(tmp_path / "rater.yaml", store=None, world=WORLD)
    again.fit(TEXTS[:50], LABELS[:50])
    p = again.predict_proba(TEXTS[200:210])
    assert p.sum(axis=1) == pytest.approx(1)
    assert again.ledger_.asked == 50


def test_a_loaded_rater_keeps_the_size_of_its_calibration(tmp_path: Path) -> None:
    first = rater(pipeline="pointwise+pride", calibration_size=4).fit(TEXTS[:60], LABELS[:60])
    first.save(tmp_path / "rater.yaml")
    again = OrdinalClassifier.load(tmp_path / "rater.yaml", store=None, world=WORLD)
    assert again.predict(TEXTS[200:205]).tolist() == first.predict(TEXTS[200:205]).tolist()
    assert len(again.fit(TEXTS[:60], LABELS[:60]).card_.calibration) == 4


def test_a_loaded_rater_takes_numbers_for_its_classes(endpoint: str, tmp_path: Path) -> None:
    texts, path = [f"{k} {k}" for k in range(3)], tmp_path / "rater.yaml"
    model = {"model": "http/nearest", "base_url": endpoint}
    known: dict[str, Any] = {"scale": [0, 1, 2], "store": None, "task": {"noun": "Text"}}
    OrdinalClassifier(model, **known).fit(texts, [0, 1, 2]).save(path)
    assert OrdinalClassifier.load(path, store=None).predict(texts).tolist() == ["0", "1", "2"]
    again = OrdinalClassifier.load(path, store=None, scale=[0, 1, 2])
    assert again.predict(texts).tolist() == [0, 1, 2]
    assert again.fit(texts, [0, 1, 2]).predict(texts).tolist() == [0, 1, 2]
    for options, said in (({"scale": [1, 2]}, "has the scale"), ({"seed": 1}, "says what seed")):
        with pytest.raises(Problem, match=said):
            OrdinalClassifier.load(path, **options)


@pytest.mark.real
def test_the_embedded_model_behind_an_estimator(tmp_path: Path) -> None:
    found = OrdinalClassifier(
        scale=["negative", "positive"], shots=1, average="label_order", store=tmp_path / "r.sqlite"
    )
    found.fit(["Awful, never again.", "A joy from start to end."], ["negative", "positive"])
    given = found.predict(["I loved every minute.", "It broke on the first day."])
    assert set(given.tolist()) <= {"negative", "positive", None}
    assert found.ledger_.asked == 4


# What a card knows of its classes beyond their names


PAIR = {
    "fields": ["a", "b"],
    "forms": ["{1}", "tie", "{0}"],
    "words": ["a", "b"],
    "kind": "pair",
    "noun": "Answer",
}


@pytest.mark.parametrize(
    ("scale", "beyond"),
    [
        (["red", "green", "blue"], {"nominal": True}),
        (["wrong", "partly", "right"], {"values": ["0", "1", "2"]}),
        (["b", "tie", "a"], {"places": PAIR}),
    ],
)
def test_a_card_that_is_fitted_again_keeps_what_it_knows_of_its_classes(
    scale: list[str], beyond: dict[str, Any], tmp_path: Path
) -> None:
    first = OrdinalClassifier("sim/honest", scale=scale, task=beyond, store=None, world=WORLD)
    first.shots = 1
    pairs = [{"question": f"Q{k}", "a": f"one {k}", "b": f"two {k}"} for k in range(9)]
    X: Any = pairs if "places" in beyond else TEXTS[:9]  # noqa: N806
    first.fit(X, scale * 3).save(tmp_path / "card.yaml")
    again = clone(OrdinalClassifier.load(tmp_path / "card.yaml", store=None, world=WORLD))
    again.fit(X, scale * 3).save(tmp_path / "again.yaml")
    for path in ("card.yaml", "again.yaml"):
        kept = read_card(tmp_path / path).task.model_dump()
        assert {name: kept[name] for name in beyond} == beyond
    assert again.card_.digest == first.card_.digest


def test_what_is_said_of_classes_must_fit_them() -> None:
    with pytest.raises(Problem, match="3 names and 2 values"):
        rater(scale=[1, 2, 3], task={"values": ["x", "y"]}).fit(TEXTS[:3], [1, 2, 3])
    with pytest.raises(Problem, match=r"task.*nominal"):
        rater(task={"nominal": "perhaps"}).fit(TEXTS[:200], LABELS[:200])
