"""Hugging Face datasets, built on the spot: saved to disk, as plain files, or out of reach."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from flipmeter.data.load import load, load_hub
from flipmeter.errors import Problem

NAMES = ["low", "medium", "high"]


@pytest.fixture
def hf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return datasets


def rows(hf: Any, texts: str, label: list[Any], kind: Any = None) -> Any:
    features = hf.Features({"text": hf.Value("string"), "label": kind}) if kind else None
    return hf.Dataset.from_dict({"text": list(texts), "label": label}, features=features)


def saved(hf: Any, folder: Path, kind: Any = None, label: tuple[Any, ...] = (2, 0, 1)) -> Path:
    splits = {
        "train": rows(hf, "abc", list(label), kind),
        "test": rows(hf, "xyz", list(label), kind),
    }
    hf.DatasetDict(splits).save_to_disk(folder)
    return folder


def test_class_labels_bring_their_scale(hf: Any, tmp_path: Path) -> None:
    dataset = load_hub(saved(hf, tmp_path / "d", hf.ClassLabel(names=NAMES)))
    assert dataset.task.scale.names == tuple(NAMES)
    assert [item.gold for item in dataset.test] == [3, 1, 2]
    assert [item.text for item in dataset.pool] == ["a", "b", "c"]


def test_class_labels_are_taken_by_name_where_they_can_be(hf: Any, tmp_path: Path) -> None:
    folder = saved(hf, tmp_path / "d", hf.ClassLabel(names=["high", "low", "medium"]))
    assert [item.gold for item in load_hub(folder, scale=NAMES).test] == [2, 3, 1]


def test_class_labels_with_other_names_are_taken_by_place(hf: Any, tmp_path: Path) -> None:
    folder = saved(hf, tmp_path / "d", hf.ClassLabel(names=["1 star", "3 star", "5 star"]))
    assert [item.gold for item in load_hub(folder, scale=["bad", "fair", "good"]).test] == [3, 1, 2]


def test_class_labels_that_do_not_fit_the_scale_need_a_mapping(hf: Any, tmp_path: Path) -> None:
    folder = saved(hf, tmp_path / "d", hf.ClassLabel(names=["a", "b", "c"]))
    with pytest.raises(Problem, match=r"the scale has 2 classes .* map them"):
        load_hub(folder, scale=["bad", "good"])


def test_plain_labels_are_read_like_those_of_a_file(hf: Any, tmp_path: Path) -> None:
    folder = saved(hf, tmp_path / "d", label=("high", "low", "medium"))
    assert [item.gold for item in load_hub(folder, scale=NAMES).test] == [3, 1, 2]
    with pytest.raises(Problem, match="no scale given"):
        load_hub(folder)


def test_a_lone_split_is_the_test_set(hf: Any, tmp_path: Path) -> None:
    rows(hf, "xyz", [1, 2, 3]).save_to_disk(tmp_path / "d")
    dataset = load({"hub": "d", "scale": NAMES}, folder=tmp_path)
    assert (len(dataset.test), dataset.pool) == (3, ())


def test_a_folder_of_csv_files_is_a_dataset(hf: Any, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for split, texts in (("train", "abc"), ("test", "xyz")):
        body = "".join(f"{text},{rank}\n" for rank, text in enumerate(texts, start=1))
        (tmp_path / "d" / f"{split}.csv").write_text("text,label\n" + body)
    assert [item.gold for item in load_hub(tmp_path / "d", scale=NAMES).test] == [1, 2, 3]


def test_a_missing_split_or_column_lists_what_there_is(hf: Any, tmp_path: Path) -> None:
    folder = saved(hf, tmp_path / "d", hf.ClassLabel(names=NAMES))
    with pytest.raises(
        Problem, match=r"no split 'tset'; did you mean 'test'\? \(splits: train, tes"
    ):
        load_hub(folder, split_test="tset")
    with pytest.raises(Problem, match=r"no column 'txt'; did you mean 'text'\? \(known: text, l"):
        load_hub(folder, text="txt")


def test_a_dataset_out_of_reach_is_said_quickly(
    hf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "http_proxy",
        "https_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(Problem, match="no/such-dataset is not in the local cache and could not"):
        load_hub("no/such-dataset", scale=NAMES)


def test_a_missing_folder_is_said_to_be_missing(hf: Any) -> None:
    with pytest.raises(Problem, match=r"no folder \./nowhere; check the path"):
        load_hub("./nowhere", scale=NAMES)


def test_without_the_package_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(Problem, match=r"pip install 'flipmeter\[datasets\]'"):
        load({"hub": "no/such-dataset", "scale": NAMES})


def test_answers_that_change_places_are_declared_as_for_a_file(hf: Any, tmp_path: Path) -> None:
    columns = {
        "prompt": ["p", "q"],
        "one": ["x", "y"],
        "two": ["z", "w"],
        "label": ["b", "tie"],
        "system_a": ["m", "n"],
        "system_b": ["n", "m"],
    }
    hf.Dataset.from_dict(columns).save_to_disk(tmp_path / "d")
    spec = {
        "hub": str(tmp_path / "d"),
        "fields": {"question": "prompt", "a": "one", "b": "two"},
        "exchange": ["a", "b"],
        "scale": ["b", "tie", "a"],
    }
    dataset = load(spec)
    assert dataset.task.places is not None
    assert dataset.task.places.kind == "pair"
    assert {"question": "p", "a": "x", "b": "z"}.items() <= dataset.test[0].fields.items()
    assert [item.gold for item in dataset.test] == [1, 2]
    assert dataset.test[0].systems == ("m", "n")


@pytest.mark.parametrize("kind", ["columns", "list"])
def test_options_are_declared_as_for_a_file(hf: Any, tmp_path: Path, kind: str) -> None:
    table: dict[str, Any] = {"question": ["p?", "q?"]}
    if kind == "list":
        table |= {"choices": [["x", "y", "z"], ["u", "v"]], "answer": [2, 0]}
    else:
        table |= {"a": ["x", "u"], "b": ["y", "v"], "c": ["z", ""], "answer": [2, 0]}
    own = hf.ClassLabel(names=["A", "B", "C"])
    hf.Dataset.from_dict(table).cast_column("answer", own).save_to_disk(tmp_path / "d")
    options = "choices" if kind == "list" else ["a", "b", "c"]
    dataset = load_hub(tmp_path / "d", text="question", options=options, label="answer")
    assert dataset.task.scale.nominal
    assert dataset.task.places is not None
    assert dataset.task.places.kind == "options"
    assert [item.gold for item in dataset.test] == [3, 1]
    assert dataset.test[0].fields == {"text": "p?", "a": "x", "b": "y", "c": "z"}


def test_a_dataset_has_one_kind_of_places(hf: Any, tmp_path: Path) -> None:
    with pytest.raises(Problem, match="not both"):
        load_hub(saved(hf, tmp_path / "d"), exchange=["a", "b"], options=["a", "b"])
