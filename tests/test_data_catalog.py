"""The paper's datasets are read whole from official files; an error says where to get them."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest

from flipmeter.data.catalog import class_of_mean, datasets
from flipmeter.data.load import load
from flipmeter.data.sampling import sample
from flipmeter.errors import Problem

PAPER = ("sst5", "yelp5", "twitter", "hate", "offensive")
SPLITS = {
    ("sst5", "test"): [279, 633, 389, 510, 399],
    ("sst5", "train"): [1092, 2218, 1624, 2322, 1288],
    ("sst5", "dev"): [139, 289, 229, 279, 165],
    ("yelp5", "test"): [127, 128, 127, 128, 126],
    ("yelp5", "train"): [32] * 5,
    ("yelp5", "open-dataset"): [722, 419, 545, 1073, 2241],
    ("yelp5", "rl-prompt"): [160] * 5,
    ("twitter", "test"): [3972, 5937, 2375],
    ("twitter", "val"): [312, 869, 819],
    ("twitter", "semeval2017"): [863 + 1458, 2043 + 4586, 3094 + 3640],
    ("hate", "test"): [1718, 1252],
    ("hate", "train"): [5217, 3783],
    ("hate", "val"): [573, 427],
    ("offensive", "test"): [620, 240],
    ("offensive", "train"): [7975, 3941],
    ("offensive", "val"): [865, 459],
}


@pytest.fixture(scope="module")
def shared() -> Path:
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("FLIPMETER_DATA", beside))
    if not folder.is_dir():
        pytest.skip("the real datasets are not here; name their folder with FLIPMETER_DATA")
    return folder


def put(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        stem, _, suffix = name.rpartition("_")
        (folder / f"{stem}.{suffix}").write_bytes(content.encode())
    return folder


def tweets(folder: Path, text: str, labels: str, mapping: str = "0\tnot-hate\n1\thate") -> Path:
    files = {f"{split}_text_txt": text for split in ("train", "test")}
    files |= {f"{split}_labels_txt": labels for split in ("train", "test")}
    put(folder / "hate", **files, mapping_txt=mapping)
    return folder


@pytest.mark.shared
@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_every_row_of_the_official_files_is_read(shared: Path, name: str, split: str) -> None:
    dataset = load({"catalog": name, "test": split}, data_dir=shared)
    counts = Counter(item.gold for item in dataset.test)
    assert [counts[rank] for rank in dataset.task.scale.ranks] == SPLITS[name, split]


@pytest.mark.shared
@pytest.mark.parametrize("name", PAPER)
def test_the_paper_sample_can_be_drawn(shared: Path, name: str) -> None:
    dataset = load(name, data_dir=shared)
    drawn = sample(dataset, test_size=200, shots=5, seed=42)
    assert (len(drawn.test), len(drawn.demos)) == (200, 5 * len(dataset.task.scale))
    assert not {item.text.casefold() for item in drawn.test} & {
        d.text.casefold() for d in drawn.demos
    }


@pytest.mark.shared
def test_sst5_tokens_are_restored(shared: Path) -> None:
    dataset = load("sst5", data_dir=shared)
    texts = [item.text for item in (*dataset.pool, *dataset.test)]
    assert not [text for text in texts if re.search(r"-[LR][RSC]B-|\\[/*]", text)]
    assert sum("(" in text for text in texts) > 300
    assert sum("\u00a0" in text for text in texts) == 3


@pytest.mark.shared
def test_yelp_reviews_have_real_new_lines_and_quotes(shared: Path) -> None:
    texts = [item.text for item in load("yelp5", data_dir=shared).test]
    assert not [text for text in texts if "\\n" in text or '\\"' in text]
    assert any("\n" in text for text in texts)


@pytest.mark.shared
def test_twitter_takes_its_demonstrations_from_val_where_train_is_missing(shared: Path) -> None:
    has_train = (shared / "twitter" / "train_text.txt").exists()
    expected = "train" if has_train else "val"
    assert f"demonstrations: {expected})" in load("twitter", data_dir=shared).source


@pytest.mark.shared
def test_what_the_sampler_leaves_out_of_hate_is_counted(shared: Path) -> None:
    drawn = sample(load("hate", data_dir=shared), seed=0)
    assert drawn.left_out["empty"] == 7
    assert drawn.left_out["leak"] >= 230
    assert any("is also in the test set" in note for note in drawn.notes)


def test_a_tree_gives_its_tokens_and_its_root_label(tmp_path: Path) -> None:
    tree = "(3 (2 (2 -LRB-) (2 and\\/or)) (4 (2 x\u00a0y) (2 -RRB-)) (1 \\*))\n"
    put(tmp_path / "sst5", train_txt=tree, test_txt=tree)
    item = load("sst5", data_dir=tmp_path).test[0]
    assert (item.text, item.gold, item.id) == ("( and/or x\u00a0y ) *", 4, "sst5-test-1")


@pytest.mark.parametrize("line", ["", "(5 (2 a))", "(3 (2 a)", "plain text", "3"])
def test_a_line_that_is_no_tree_is_named(tmp_path: Path, line: str) -> None:
    put(tmp_path / "sst5", train_txt="(3 (2 a) (2 b))\n", test_txt=f"(3 (2 a) (2 b))\n{line}\n")
    with pytest.raises(Problem, match=r"test\.txt, row 2: .* is not a tree"):
        load("sst5", data_dir=tmp_path)


def test_yelp_escapes_are_undone(tmp_path: Path) -> None:
    row = '"4","He said \\""wow\\"".\\nTwice"\n'
    put(tmp_path / "yelp5", train_csv=row, test_csv=row)
    item = load("yelp5", data_dir=tmp_path).test[0]
    assert (item.text, item.gold) == ('He said "wow".\nTwice', 4)


@pytest.mark.parametrize(("row", "message"), [('"6","x"', "'6' is not 1..5"), ('"1"', "1 fields")])
def test_a_bad_yelp_row_is_named(tmp_path: Path, row: str, message: str) -> None:
    put(tmp_path / "yelp5", train_csv=row, test_csv=row)
    with pytest.raises(Problem, match=re.escape(f"test.csv, row 1: {message}") + "|the label"):
        load("yelp5", data_dir=tmp_path)


def test_an_empty_tweet_keeps_its_place(tmp_path: Path) -> None:
    folder = tweets(tmp_path, 'one \n\n"two\u2028lines" \n', "0\n1\n1\n")
    items = load("hate", data_dir=folder).test
    assert [(item.text, item.gold) for item in items] == [
        ("one", 1),
        ("", 2),
        ('"two\u2028lines"', 2),
    ]


def test_tweets_and_labels_must_agree_in_number(tmp_path: Path) -> None:
    folder = tweets(tmp_path, "one \ntwo \n", "0\n1\n1\n")
    with pytest.raises(Problem, match=r"test_text\.txt has 2 lines, test_labels\.txt 3"):
        load("hate", data_dir=folder)


def test_another_order_of_classes_is_noticed(tmp_path: Path) -> None:
    folder = tweets(tmp_path, "one \n", "0\n", mapping="0\thate\n1\tnot-hate\n")
    with pytest.raises(Problem, match=r"mapping\.txt maps .* expected"):
        load("hate", data_dir=folder)


def test_a_tweet_label_off_the_scale_is_named(tmp_path: Path) -> None:
    with pytest.raises(Problem, match=r"test_labels\.txt, row 2: the label '2' is not 0\.\.1"):
        load("hate", data_dir=tweets(tmp_path, "one \ntwo \n", "0\n2\n"))


@pytest.mark.parametrize("name", PAPER)
def test_missing_files_come_with_address_terms_and_names(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLIPMETER_DATA", raising=False)
    entry = datasets[name]
    for data_dir in (None, tmp_path, tmp_path / name):
        (tmp_path / name / name).mkdir(parents=True, exist_ok=data_dir is not None)
        with pytest.raises(Problem) as raised:
            load(name, data_dir=data_dir)
        for part in (entry.address, entry.terms, *entry.splits["test"].files, "--data-dir"):
            assert part in str(raised.value)


def test_a_split_that_is_not_there_is_suggested() -> None:
    with pytest.raises(Problem, match="twitter has no split 'semeval'; did you mean 'semeval2017'"):
        load({"catalog": "twitter", "pool": "semeval"}, data_dir=".")


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLIPMETER_DATA", str(tweets(tmp_path, "a \nb \n", "0\n1\n")))
    assert len(load("hate").test) == 2


def test_every_entry_says_where_it_comes_from() -> None:
    for name, entry in datasets.items():
        assert entry.name == name
        assert all((entry.title, entry.address, entry.terms, entry.citation))
        assert "test" in entry.splits


def test_reviews_come_with_the_package() -> None:
    dataset = load("reviews")
    counts = Counter(item.gold for item in dataset.test)
    assert (dataset.licence, dataset.pool) == ("CC0", ())
    assert min(counts[rank] for rank in dataset.task.scale.ranks) >= 65
    assert len(sample(dataset, test_size=200, shots=5, seed=0).test) == 200


def test_a_mean_on_a_cut_goes_to_the_outer_class() -> None:
    means = [-4, -2, -1.99, -0.5, -0.49, 0, 0.49, 0.5, 1.99, 2, 4]
    assert [class_of_mean(mean) for mean in means] == [1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 5]


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "counts"),
    [("vader-tweets", [316, 771, 768, 1624, 721]), ("vader-products", [283, 952, 723, 963, 787])],
)
def test_vader_comes_from_the_package_index(name: str, counts: list[int]) -> None:
    dataset = load(name)
    found = Counter(item.gold for item in dataset.test)
    assert [found[rank] for rank in dataset.task.scale.ranks] == counts


def test_llmbar_is_read_as_its_repository_has_it(tmp_path: Path) -> None:
    """A clone of the repository is the data folder; Adversarial has subsets."""
    for subset, label in (("Natural", 1), ("Adversarial/Manual", 2)):
        folder = tmp_path / "LLMBar" / "Dataset" / "LLMBar" / subset
        folder.mkdir(parents=True)
        pair = {"input": f"Say {subset}.", "output_1": "one", "output_2": "two", "label": label}
        (folder / "dataset.json").write_text(json.dumps([pair]), encoding="utf-8")
    whole, natural = (load(name, data_dir=tmp_path) for name in ("llmbar", "llmbar-natural"))
    assert [item.gold for item in whole.test] == [2, 1]
    assert natural.test[0].fields == {"text": "Say Natural.", "a": "one", "b": "two"}
    assert natural.task.places is not None
    assert natural.task.places.favoured(2) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "not valid JSON"),
        ("{}", "does not contain a list of pairs"),
        ('[{"input": "x", "output_1": "a", "output_2": 3, "label": 1}]', "pair 1: 'output_2' is 3"),
        ('[{"input": "x", "output_1": "a", "output_2": "b", "label": 0}]', "label 0 is not 1 or 2"),
    ],
)
def test_a_broken_file_of_llmbar_names_the_pair(tmp_path: Path, text: str, message: str) -> None:
    folder = tmp_path / "llmbar" / "Natural"
    folder.mkdir(parents=True)
    (folder / "dataset.json").write_text(text, encoding="utf-8")
    with pytest.raises(Problem, match=re.escape(message)):
        load("llmbar-natural", data_dir=tmp_path)


# --- the files of the shared tasks themselves -----------------------------------------------------


def hateval(folder: Path, *rows: str, header: str = "id,text,HS,TR,AG") -> Path:
    text = "\n".join([header, *rows]) + "\n"
    put(folder / "hateval2019", hateval2019_en_test_csv=text, hateval2019_en_train_csv=text)
    return folder


def test_hateval_is_read_as_the_task_released_it(tmp_path: Path) -> None:
    folder = hateval(tmp_path, '7,"A calm, quiet ""day""",0,0,0', "8,You people again,1,0,1")
    test = load("hate", data_dir=folder).test
    assert [(item.text, item.gold) for item in test] == [
        ('A calm, quiet "day"', 1),
        ("You people again", 2),
    ]


@pytest.mark.parametrize(
    ("header", "row", "message"),
    [
        ("id,text,HS,TR,AG", "7,text,2,0,0", "row 2: the label '2' is not 0..1"),
        ("id,text,HS,TR,AG", "7,text", "row 2: 2 fields"),
        ("text,HS", "text,1", "expected id, text, HS"),
    ],
)
def test_a_bad_row_of_hateval_is_named(tmp_path: Path, header: str, row: str, message: str) -> None:
    with pytest.raises(Problem, match=re.escape(message)):
        load("hate", data_dir=hateval(tmp_path, row, header=header))


def olid(folder: Path, test: str, labels: str, train: str = "NOT\tNULL\tNULL") -> Path:
    inside = folder / "OLIDv1.0"
    put(inside, **{"testset-levela_tsv": f"id\ttweet\n{test}", "labels-levela_csv": labels})
    header = "id\ttweet\tsubtask_a\tsubtask_b\tsubtask_c"
    (inside / "olid-training-v1.0.tsv").write_text(f"{header}\n1\tNice out\t{train}\n")
    return folder


def test_olid_labels_find_their_tweets_by_id(tmp_path: Path) -> None:
    folder = olid(tmp_path, '15\t@USER "Shut up\n16\tWell said\n', "16,NOT\n15,OFF\n")
    dataset = load("offensive", data_dir=folder)
    assert [(item.text, item.gold) for item in dataset.test] == [
        ('@USER "Shut up', 2),
        ("Well said", 1),
    ]
    assert [(item.text, item.gold) for item in dataset.pool] == [("Nice out", 1)]


@pytest.mark.parametrize(
    ("test", "labels", "message"),
    [
        ("15\tHello\n", "16,NOT\n", "row 2: no label for 15 in labels-levela.csv"),
        ("15\tHello\n", "15,UNT\n", "row 1: the label 'UNT' is not NOT or OFF"),
        ("15\n", "15,NOT\n", "is not 'id, tweet'"),
    ],
)
def test_a_bad_row_of_olid_is_named(tmp_path: Path, test: str, labels: str, message: str) -> None:
    with pytest.raises(Problem, match=re.escape(message)):
        load("offensive", data_dir=olid(tmp_path, test, labels))


def test_tweeteval_files_come_first_where_both_are_there(tmp_path: Path) -> None:
    tweets(tmp_path, "From TweetEval\n", "1\n")
    put(tmp_path / "hate", hateval2019_en_test_csv="id,text,HS,TR,AG\n1,From the task,0,0,0\n")
    assert [item.text for item in load("hate", data_dir=tmp_path).test] == ["From TweetEval"]


def test_a_missing_release_names_both_kinds_of_files(tmp_path: Path) -> None:
    (tmp_path / "offensive").mkdir()
    with pytest.raises(
        Problem, match=r"test_text\.txt.*or testset-levela\.tsv, labels-levela\.csv"
    ):
        load("offensive", data_dir=tmp_path)
