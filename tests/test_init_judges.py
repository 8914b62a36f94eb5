"""`init` on a file with answers or options writes the study that moves them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Cli
from flipmeter.study.file import read_study
from flipmeter.study.grid import conditions

Write = Callable[[str, str], Path]


def pairs(labels: str, header: str = "prompt,answer_1,answer_2,preferred") -> str:
    kinds = labels.split("|")
    rows = [
        f"What is thing {k}?,It is a {k} sort of thing.,Nobody knows what {k} is.,"
        f"{kinds[k % len(kinds)]}"
        for k in range(24)
    ]
    return header + "\n" + "\n".join(rows) + "\n"


@pytest.mark.parametrize(
    ("labels", "scale"),
    [
        ("a|b|tie", ["b", "tie", "a"]),
        ("1|2", ["2", "1"]),
        ("answer_1|answer_2", ["answer_2", "answer_1"]),
        ("A>B|A>>B|A=B|B>A|B>>A", ["B>>A", "B>A", "A=B", "A>B", "A>>B"]),
        (
            "1 slightly better|1 much better|tie|2 much better|2 slightly better",
            ["2 much better", "2 slightly better", "tie", "1 slightly better", "1 much better"],
        ),
        ("both bad|a|b|tie", ["b", "both bad", "tie", "a"]),
    ],
)
def test_answer_columns_become_a_judge_study(
    write: Write, cli: Cli, tmp_path: Path, labels: str, scale: list[str]
) -> None:
    write("pairs.csv", pairs(labels))
    code, _, err = cli("init", "pairs.csv")
    assert code == 0, err
    study = read_study(tmp_path / "pairs.yaml")
    (dataset,) = study.load()
    assert dataset.task.places is not None
    assert dataset.task.places.fields == ("answer_1", "answer_2")
    assert list(dataset.task.scale.names) == scale
    views = {one.view.name for one in conditions(study)}
    assert views == {"base", "swapped"}
    gold = [item.gold for item in dataset.test]
    assert None not in gold


def test_answers_without_a_preference_are_measured_without_accuracy(
    write: Write, cli: Cli, tmp_path: Path
) -> None:
    rows = [f"Why {k}?,Because it is {k}.,For no reason at all {k}." for k in range(24)]
    write("pairs.csv", "prompt,response_a,response_b\n" + "\n".join(rows) + "\n")
    code, _, err = cli("init", "pairs.csv")
    assert code == 0, err
    assert "everything but accuracy" in err
    (dataset,) = read_study(tmp_path / "pairs.yaml").load()
    assert dataset.test[0].gold is None


@pytest.mark.parametrize("labels", ["A|B|C|D", "1|2|3|4", "option_a|option_b|option_c|option_d"])
def test_option_columns_become_a_study_of_options(
    write: Write, cli: Cli, tmp_path: Path, labels: str
) -> None:
    kinds = labels.split("|")
    rows = [
        f"Which of these is {k}?,the first one {k},a second one {k},some third {k},the last {k},"
        f"{kinds[k % 4]}"
        for k in range(24)
    ]
    header = "question,option_a,option_b,option_c,option_d,correct\n"
    write("mcq.csv", header + "\n".join(rows) + "\n")
    code, _, err = cli("init", "mcq.csv")
    assert code == 0, err
    study = read_study(tmp_path / "mcq.yaml")
    (dataset,) = study.load()
    assert dataset.task.places is not None
    assert dataset.task.places.kind == "options"
    assert study.probes == ["option_order"]
    assert [item.gold for item in dataset.test[:4]] == [1, 2, 3, 4]


def test_a_text_that_is_named_is_rated_by_itself(write: Write, cli: Cli, tmp_path: Path) -> None:
    write("pairs.csv", pairs("low|high"))
    code, _, err = cli("init", "pairs.csv", "--text", "answer_1", "--label", "preferred")
    assert code == 0, err
    assert "exchange: [answer_1, answer_2]" in err
    (dataset,) = read_study(tmp_path / "pairs.yaml").load()
    assert dataset.task.places is None


def test_options_of_one_word_and_of_different_numbers_are_found(
    write: Write, cli: Cli, tmp_path: Path
) -> None:
    words = ["bread", "tide", "lamp", "river", "moon", "tax", "tea", "wheel", "glass", "paper"]
    rows = [
        ",".join(
            [
                f"Which word is number {k}?",
                *(words[(k + i) % 10] if i < 2 + k % 4 else "" for i in range(5)),
                "ABCDE"[k % (2 + k % 4)],
            ]
        )
        for k in range(40)
    ]
    write("mcq.csv", "question,a,b,c,d,e,answer\n" + "\n".join(rows) + "\n")
    code, _, err = cli("init", "mcq.csv")
    assert code == 0, err
    (dataset,) = read_study(tmp_path / "mcq.yaml").load()
    assert dataset.task.places is not None
    assert dataset.task.places.fields == ("a", "b", "c", "d", "e")
    assert len(dataset.test) == 40


def test_grades_that_cannot_be_ordered_are_named(write: Write, cli: Cli) -> None:
    write("pairs.csv", pairs("1 wins|1 wow wins|tie|2 wins|2 wow wins"))
    code, _, err = cli("init", "pairs.csv")
    assert code == 0
    assert "order of '2 wins', '2 wow wins' is a guess" in " ".join(err.split())


def test_a_draft_tells_to_try_before_it_is_run(write: Write, cli: Cli) -> None:
    rows = [f"This is thing {k} of many,{['low', 'high'][k % 2]}" for k in range(40)]
    path = write("tickets.csv", "text,severity\n" + "\n".join(rows) + "\n")
    assert cli("init", "tickets.csv")[0] == 0
    assert "flipmeter try tickets.yaml" in path.with_suffix(".yaml").read_text()


@pytest.mark.parametrize(
    ("columns", "labels", "probe"),
    [
        (("ours", "theirs"), "ours|theirs|tie", "pair_order"),
        (("rome", "oslo", "lima"), "lima|rome|oslo", "option_order"),
    ],
)
def test_columns_that_the_labels_name_are_compared(
    write: Write, cli: Cli, tmp_path: Path, columns: tuple[str, ...], labels: str, probe: str
) -> None:
    kinds = labels.split("|")
    rows = [
        ",".join([f"What is {k}?", *(f"{c} says {k} here" for c in columns), kinds[k % len(kinds)]])
        for k in range(24)
    ]
    header = ",".join(["question", *columns, "verdict"])
    write("named.csv", "\n".join([header, *rows]) + "\n")
    for more in ([], ["--text", "question"]):
        code, _, err = cli("init", "named.csv", "--force", *more)
        assert code == 0, err
        study = read_study(tmp_path / "named.yaml")
        assert study.probes == [probe]
        (dataset,) = study.load()
        assert dataset.task.places is not None
        assert dataset.task.places.fields == columns
        assert all(item.gold for item in dataset.test)


def test_a_range_of_scores_becomes_a_study_of_decimals(
    write: Write, cli: Cli, tmp_path: Path
) -> None:
    rows = [f"Essay number {k} is about the sea,{k % 21 / 2}" for k in range(60)]
    write("essays.csv", "essay,score\n" + "\n".join(rows) + "\n")
    code, _, err = cli("init", "essays.csv", "--label", "score")
    assert code == 2
    assert "pass the range of scores (--scale 0..10)" in err
    assert cli("init", "essays.csv", "--scale", "0..10")[0] == 0
    study = read_study(tmp_path / "essays.yaml")
    assert study.probes == ["demo_order", "placement"]
    (dataset,) = study.load()
    assert dataset.task.scale.span is not None
    assert {one.view.name for one in conditions(study)} >= {"base", "ascending", "after"}


@pytest.mark.parametrize("answers", ["ABC", (0, 1, 2), (1, 2, 3), None])
def test_a_list_of_options_is_a_question_with_options(
    write: Write, cli: Cli, answers: str | tuple[int, ...] | None
) -> None:
    rows = [
        {"question": f"Which thing is thing {k}?", "choices": [f"x {k}", f"y {k}", f"z {k}"]}
        | ({} if answers is None else {"answer": answers[k % 3]})
        for k in range(12)
    ]
    path = write("mcq.jsonl", "\n".join(json.dumps(row) for row in rows))
    code, _, err = cli("init", str(path))
    assert (code, "names the right option" in err) == (0, answers is None)
    study = read_study(path.with_suffix(".yaml"))
    assert study.probes == ["option_order"]
    (dataset,) = study.load()
    golds = [item.gold for item in dataset.test[:3]]
    assert golds == ([None] * 3 if answers is None else [1, 2, 3])
    assert {len(one.items) for one in conditions(study)} == {12}


@pytest.mark.parametrize("named", [("model_a", "model_b"), ("system_a", "system_b")])
def test_the_systems_behind_the_answers_are_found(
    write: Write, cli: Cli, named: tuple[str, str]
) -> None:
    table = pairs("model_a|model_b|tie", "prompt,response_a,response_b,winner").splitlines()
    rows = [f"{row},{'ant' if k % 2 else 'bee'},cat" for k, row in enumerate(table[1:])]
    path = write("arena.csv", "\n".join([f"{table[0]},{','.join(named)}", *rows]))
    assert cli("init", str(path))[0] == 0
    (dataset,) = read_study(path.with_suffix(".yaml")).load()
    assert dataset.task.scale.names == ("model_b", "tie", "model_a")
    assert [item.systems for item in dataset.test[:2]] == [("bee", "cat"), ("ant", "cat")]
