"""`init` on a file with answers or options writes the study that moves them."""

from __future__ import annotations

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
        ("A>>B|A>B|A=B|B>A|B>>A", None),
    ],
)
def test_answer_columns_become_a_judge_study(
    write: Write, cli: Cli, tmp_path: Path, labels: str, scale: list[str] | None
) -> None:
    write("pairs.csv", pairs(labels))
    code, _, err = cli("init", "pairs.csv")
    assert code == 0, err
    study = read_study(tmp_path / "pairs.yaml")
    (dataset,) = study.load()
    assert dataset.task.places is not None
    assert dataset.task.places.fields == ("answer_1", "answer_2")
    assert scale is None or list(dataset.task.scale.names) == scale
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
