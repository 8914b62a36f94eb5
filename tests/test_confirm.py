"""A selected rater is asked about items that the choice did not see."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import Cli
from flipmeter.ask.store import Store
from flipmeter.choose.card import Card, read_card, write_card
from flipmeter.choose.confirm import confirm, unseen
from flipmeter.choose.select import select
from flipmeter.data.labels import item_digest
from flipmeter.errors import Problem
from flipmeter.run.folder import Run
from flipmeter.run.perform import perform
from flipmeter.run.rows import read_item
from flipmeter.stats.verdict import Word, overall
from flipmeter.study.file import read_study

TILTED = "sim/first-slot?strength=3"
CLASSES = ("low", "mid", "high")
SPEC = {"text": "body", "label": "grade", "scale": list(CLASSES)}


def tickets(folder: Path, n: int = 360) -> dict[str, Any]:
    """Write a file of tickets and return how a study names it."""
    path = folder / "tickets.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["body", "grade"])
        rows.writerows(
            [f"ticket {k} is about thing {k * k % 97}", CLASSES[k % 3]] for k in range(n)
        )
    return {"file": str(path), **SPEC}


def studied(folder: Path, **changes: Any) -> Run:
    content: dict[str, Any] = {
        "name": "tickets",
        "models": ["sim/honest", TILTED],
        "datasets": [tickets(folder)],
        "probes": ["label_order", "demo_order"],
        "test_size": 60,
        "base": {"shots": 1},
    }
    return perform(read_study({**content, **changes}), folder / "run", Store())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return studied(tmp_path_factory.mktemp("confirm"))


def asked(run: Run) -> set[str]:
    """Digests of the items that a run rated."""
    rows = run.items.filter(role="test").iter_rows(named=True)
    return {item_digest(read_item(row)) for row in rows}


def card_for(run: Run, rater: str = "sim/honest", limit: float = 0.2) -> Card:
    return select(run, rater=rater, level="base", max_flip={"P1": limit}).card()


def test_items_that_the_choice_saw_are_not_asked_again(run: Run, tmp_path: Path) -> None:
    card = card_for(run)
    assert card.selected is not None
    seen = set(card.selected.seen.split())
    assert seen >= asked(run)
    done = confirm(card, 90, tmp_path / "confirm", Store())
    assert len(asked(done.run)) == 90
    assert not asked(done.run) & seen


def test_the_very_rater_of_the_card_is_asked_under_the_probes_of_its_limits(
    run: Run, tmp_path: Path
) -> None:
    card = card_for(run)
    done = confirm(card, 30, tmp_path / "confirm", Store())
    assert done.run.decisions["view"].unique().sort().to_list() == ["base", "reversed"]
    shown = done.run.items.filter(role="demo")["text"].to_list()
    assert sorted(shown) == sorted(demo["text"] for demo in card.demos)
    assert done.run.study.raters() == [card.rater]


def test_a_card_is_confirmed_only_by_what_was_asked_of_this_very_rater(
    run: Run, tmp_path: Path
) -> None:
    card, path = card_for(run), tmp_path / "rater.yaml"
    assert not card.is_confirmed
    write_card(card, path)
    assert "confirmed:" not in path.read_text()
    assert "# Not confirmed" in path.read_text()
    done = confirm(card, 90, tmp_path / "confirm", Store())
    assert (done.word, done.card.is_confirmed) == ("stable", True)
    write_card(done.card, path)
    assert "# Confirmed on 90 unseen items" in path.read_text()
    read = read_card(path)
    assert read == done.card
    assert read.confirmed is not None
    assert read.confirmed.contrasts["P1"].n == read.confirmed.estimates["accuracy"].n == 90
    assert not read.with_model("sim/recency").is_confirmed
    assert read.digest == card.digest


def test_another_number_of_items_is_another_attempt(run: Run, tmp_path: Path) -> None:
    card = card_for(run)
    for n_items, attempt in ((30, 1), (30, 1), (60, 2)):
        card = confirm(card, n_items, tmp_path / "confirm", Store()).card
        assert card.confirmed is not None
        assert card.confirmed.attempt == attempt


def test_a_selection_confirms_itself(run: Run, tmp_path: Path) -> None:
    found = select(run, rater="sim/honest", max_flip={"P1": 0.3})
    done = found.confirm(items=45, folder=tmp_path / "own")
    assert done.card.is_confirmed
    assert done.run.folder == tmp_path / "own"
    assert "stable" in str(done)


def test_without_limits_every_pair_is_held_to_the_margin(run: Run, tmp_path: Path) -> None:
    card = select(run, rater="sim/honest", level="base").card()
    done = confirm(card, 90, tmp_path / "confirm", Store())
    pairs = [contrast.name for contrast in run.study.contrasts if contrast.is_pair]
    assert list(done.verdicts) == pairs
    assert {found.margin for found in done.verdicts.values()} == {0.1}


def test_what_calibrates_is_that_of_the_card(tmp_path: Path) -> None:
    run = studied(tmp_path, models=["sim/honest"], pipeline="pointwise+domain_context")
    card = card_for(run)
    assert card.calibration
    done = confirm(card, 30, tmp_path / "confirm", Store())
    texts = {row["text"] for row in card.calibration}
    assert set(done.run.items.filter(role="calibration")["text"]) <= texts
    assert not texts & set(done.run.items.filter(role="test")["text"])


def test_merged_classes_are_merged_again(tmp_path: Path) -> None:
    run = studied(tmp_path, models=["sim/honest"], base={"shots": 1, "cardinality": 2})
    done = confirm(card_for(run), 30, tmp_path / "confirm", Store())
    assert done.run.decisions["n_classes"].unique().to_list() == [2]
    assert len(asked(done.run)) == 30


def test_rows_that_were_added_can_be_asked(tmp_path: Path) -> None:
    run = studied(tmp_path, models=["sim/honest"])
    card = card_for(run)
    before = len(unseen(card).test)
    tickets(tmp_path, 420)
    assert len(unseen(card).test) == before + 60


def test_items_of_a_cluster_that_the_choice_saw_are_not_asked(tmp_path: Path) -> None:
    with (tmp_path / "threads.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["body", "grade", "thread"])
        rows.writerows([f"note {k}", CLASSES[k % 3], f"thread {k // 6}"] for k in range(360))
    spec = {"file": str(tmp_path / "threads.csv"), **SPEC, "cluster": "thread"}
    run = studied(tmp_path, models=["sim/honest"], datasets=[spec], test_size=12)
    seen = set(run.items.filter(role="test")["cluster"])
    left = {item.cluster for item in unseen(card_for(run)).test}
    assert left
    assert not left & seen


def test_one_flip_decides_for_all_and_all_must_be_stable() -> None:
    words: list[tuple[list[Word], Word]] = [
        (["stable", "stable"], "stable"),
        (["stable", "inconclusive"], "inconclusive"),
        (["inconclusive", "unreadable"], "unreadable"),
        (["unreadable", "flips"], "flips"),
        ([], "inconclusive"),
    ]
    for given, word in words:
        assert overall(given) == word


# The verb


@pytest.mark.parametrize(
    ("rater", "limit", "n_items", "code", "word"),
    [
        ("sim/honest", 0.2, 90, 0, "stable"),
        (TILTED, 0.05, 90, 1, "flips"),
        ("sim/honest", 0.01, 30, 3, "inconclusive"),
    ],
)
def test_the_exit_code_is_the_word(
    cli: Cli, run: Run, rater: str, limit: float, n_items: int, code: int, word: str
) -> None:
    path = Path("rater.yaml")
    write_card(card_for(run, rater, limit), path)
    found, out, _ = cli("confirm", str(path), "--items", str(n_items), "--json")
    assert found == code
    told = json.loads(out)
    assert (told["word"], told["confirmed"]["word"]) == (word, word)
    after = "classify rater.yaml FILE.csv --text COLUMN" if code == 0 else f"report {told['run']}"
    assert told["next"] == [f"flipmeter {after}"]
    section = yaml.safe_load(path.read_text())["confirmed"]
    assert section["contrasts"]["P1"]["word"] == word
    assert read_card(path).is_confirmed == (code == 0)
    assert Path(section["run"]).is_dir()


def test_a_rater_in_use_is_to_be_confirmed_once(cli: Cli, run: Run) -> None:
    write_card(card_for(run), Path("rater.yaml"))
    Path("new.csv").write_text("text\nticket 1 is about thing 1\n", encoding="utf-8")
    use = ("classify", "rater.yaml", "new.csv", "--json")
    assert json.loads(cli(*use)[1])["next"] == ["flipmeter confirm rater.yaml --items 60"]
    assert "next" not in json.loads(cli(*use, "-m", "sim/recency", "--out", "other.csv")[1])
    assert cli("confirm", "rater.yaml", "--items", "90")[0] == 0
    assert "next" not in json.loads(cli(*use)[1])


UNSURE = """
def rate(question):
    if "7" in question.text:
        raise ValueError("out of order")
    return 1
"""


def test_a_confirmation_that_is_not_whole_confirms_nothing(
    cli: Cli, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text(UNSURE, encoding="utf-8")
    card = card_for(run).with_model("python/broken.py:rate")
    write_card(card, Path("rater.yaml"))
    before = Path("rater.yaml").read_text()
    code, _, err = cli("confirm", "rater.yaml", "--items", "30", "--trust")
    assert code == 4
    assert "nothing is confirmed" in " ".join(err.split())
    assert Path("rater.yaml").read_text() == before


@pytest.mark.parametrize(
    ("change", "n_items", "says"),
    [
        (
            {},
            600,
            r"has 297 labelled items that were not used for the selection .* use "
            r"--items 29\d",
        ),
        ({}, 0, "at least 1 item"),
        ({"selected": None}, 30, "does not say what it was selected on"),
        ({"average": ["label_order"]}, 30, "averages over label_order"),
        ({"pipeline": "pointwise+label_average"}, 30, "P1 cannot vary with this rater"),
    ],
)
def test_what_cannot_be_confirmed_says_why(
    run: Run, tmp_path: Path, change: dict[str, Any], n_items: int, says: str
) -> None:
    card = card_for(run).model_copy(update=change)
    with pytest.raises(Problem, match=says):
        confirm(card, n_items, tmp_path / "confirm", Store())
    assert not (tmp_path / "confirm").exists()


def test_a_card_that_does_not_say_what_was_seen_is_written_anew(run: Run, tmp_path: Path) -> None:
    card = card_for(run)
    assert card.selected is not None
    old = card.model_copy(update={"selected": card.selected.model_copy(update={"seen": ""})})
    with pytest.raises(Problem, match="flipmeter select"):
        confirm(old, 30, tmp_path / "confirm", Store())
