"""A user's file -> a study that runs as it is, or an error that names the option."""

from __future__ import annotations

import json
import os
import pty
import random
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flipmeter.ask.store import Store
from flipmeter.data.guess import guess_label, guess_order, guess_text
from flipmeter.data.tables import read_table
from flipmeter.errors import Problem
from flipmeter.run.perform import perform
from flipmeter.study.draft import draft_study
from flipmeter.study.file import read_study
from flipmeter.study.grid import conditions

Write = Callable[[str, str], Path]
Cli = Callable[..., tuple[int, str, str]]

LADDERS = [
    ["low", "medium", "high", "critical"],
    ["negative", "neutral", "positive"],
    ["very negative", "negative", "neutral", "positive", "very positive"],
    ["very_dissatisfied", "dissatisfied", "satisfied", "very_satisfied"],
    ["Strongly disagree", "Disagree", "Neither agree nor disagree", "Agree", "Strongly agree"],
    ["never", "rarely", "sometimes", "often", "always"],
    ["F", "D", "C", "B", "A"],
    ["1 star", "2 stars", "3 stars", "4 stars", "5 stars"],
    ["★", "★★", "★★★"],
    [-2, -1, 0, 1, 2],
    ["2", "9", "10"],
    ["0.5", "1", "1.5"],
    ["non-hate", "hate"],
    ["not toxic", "toxic"],
    ["no", "yes"],
    [False, True],
    ["bad", "okay", "good", "very good"],
    ["slightly positive", "positive", "extremely positive"],
]


@pytest.mark.parametrize("ladder", LADDERS, ids=str)
@given(seed=st.integers(0, 99))
def test_a_known_ladder_is_climbed_whatever_order_it_comes_in(ladder: list[Any], seed: int) -> None:
    mixed = random.Random(seed).sample(ladder, len(ladder))
    assert guess_order(mixed) == ladder


@pytest.mark.parametrize(
    "classes",
    [
        ["red", "green", "blue"],
        ["A", "B", "C", "D"],  # options of a question have no order
        ["often", "frequently"],  # two words for one rung
        ["negative", "agree"],
        ["low", "7"],
        ["neutral", "mixed"],
    ],
    ids=str,
)
def test_an_order_that_the_words_do_not_tell_is_not_guessed(classes: list[str]) -> None:
    assert guess_order(classes) == []


def rows(n: int = 60, labels: tuple[Any, ...] = ("low", "medium", "high")) -> list[dict[str, Any]]:
    return [
        {
            "id": f"t-{k:04}",
            "body": f"ticket {k} about thing {k * 7 % 11}",
            "severity": labels[k % len(labels)],
        }
        for k in range(n)
    ]


def csv(records: list[dict[str, Any]], separator: str = ",") -> str:
    lines = [separator.join(records[0])]
    lines += [separator.join(f'"{value}"' for value in row.values()) for row in records]
    return "\n".join(lines) + "\n"


def drafted(path: Path, **options: Any) -> dict[str, Any]:
    """Draft a study beside a file and return its content, once it is known to make a grid."""
    out = path.with_suffix(".yaml")
    out.write_text(draft_study(path, out, **options).text, encoding="utf-8")
    study = read_study(out)
    assert conditions(study.model_copy(update={"models": ["sim/honest"]}))
    content: dict[str, Any] = yaml.safe_load(out.read_text(encoding="utf-8"))
    return content


def source(path: Path, **options: Any) -> dict[str, Any]:
    (entry,) = drafted(path, **options)["datasets"]
    assert isinstance(entry, dict)
    return entry


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_the_columns_are_found_in_any_kind_of_file(tmp_path: Path, suffix: str) -> None:
    table, path = pl.DataFrame(rows()), tmp_path / f"tickets.{suffix}"
    {"csv": table.write_csv, "jsonl": table.write_ndjson, "parquet": table.write_parquet}[suffix](
        path  # type: ignore[operator]
    )
    found = source(path)
    assert (found["file"], found["text"], found["label"]) == (path.name, "body", "severity")
    assert found["scale"] == ["low", "medium", "high"]


def test_a_drafted_study_runs_as_it_is(write: Write, tmp_path: Path) -> None:
    path = write("tickets.csv", csv(rows()))
    out = tmp_path / "tickets.yaml"
    out.write_text(draft_study(path, out, model="sim/first-slot").text, encoding="utf-8")
    run = perform(read_study(out), tmp_path / "run", Store())
    assert (
        run.decisions.filter(view="base", repeat=0).height
        == yaml.safe_load(out.read_text())["test_size"]
    )
    assert set(run.verdicts["contrast"]) == {"P1", "P2a", "P2b", "P2c", "P3a", "P3b"}


def test_the_study_may_lie_in_another_folder(write: Write, tmp_path: Path) -> None:
    path = write("tickets.csv", csv(rows()))
    out = tmp_path / "studies" / "mine.yaml"
    assert "file: ../tickets.csv" in draft_study(path, out).text


def test_names_decide_between_columns_that_could_both_be_it(write: Write) -> None:
    records = [
        {
            "title": f"A word on {k}",
            "comment": f"It was thing {k}",
            "region": "NSEW"[k % 4],
            "rating": k % 5,
        }
        for k in range(40)
    ]
    table = read_table(write("t.csv", csv(records)))
    assert guess_text(table) == ["comment"]
    assert guess_label(table, "comment") == ["rating"]


def test_numbers_stay_numbers_and_are_their_own_labels(write: Write) -> None:
    rated = rows(labels=(1, 2, 3, 4, 5))
    study = drafted(write("a.csv", csv(rated)))
    assert study["datasets"][0]["scale"] == [1, 2, 3, 4, 5]
    assert study["base"]["label_format"] == "values"
    ten = drafted(write("c.csv", csv(rows(220, tuple(range(11))))))
    assert ten["datasets"][0]["scale"] == list(range(11))
    assert ten["base"]["label_format"] == "values"


def test_stars_stay_as_they_are_written(write: Write) -> None:
    study = drafted(write("b.csv", csv(rows(labels=("1 star", "2 stars", "3 stars")))))
    assert study["datasets"][0]["scale"] == ["1 star", "2 stars", "3 stars"]
    assert "label_format" not in study["base"]


def test_the_words_of_the_prompt_are_those_of_the_columns(write: Write) -> None:
    records = [
        {"Kommentar": f"Das ist Nummer {k}", "Zufriedenheit": ["gering", "mittel", "hoch"][k % 3]}
        for k in range(30)
    ]
    found = source(write("t.csv", csv(records)), scale=["gering", "mittel", "hoch"])
    assert found["task"] == {
        "title": "Zufriedenheit",
        "noun": "Kommentar",
        "aspect": "Zufriedenheit",
        "low": "gering",
        "high": "hoch",
    }


# Ids


def test_the_ids_are_those_of_the_file(write: Write) -> None:
    assert source(write("t.csv", csv(rows())))["id"] == "id"
    keyed = [{"ticket_key": k, "author_id": k % 5, **row} for k, row in enumerate(rows())]
    for row in keyed:
        del row["id"]
    assert source(write("k.csv", csv(keyed)))["id"] == "ticket_key"


@pytest.mark.parametrize("repeated", ["t-0001", ""])
def test_ids_that_are_empty_or_come_twice_are_not_taken(write: Write, repeated: str) -> None:
    records = rows()
    records[7]["id"] = repeated
    assert "id" not in source(write("t.csv", csv(records)))


# Odd labels


@pytest.mark.parametrize(
    ("labels", "odd", "near"),
    [
        (("low", "medium", "high"), "hgih", "; did you mean 'high'?"),
        (("low", "medium", "high"), "n/a", "; known: low, medium, high"),
        (("negative", "neutral", "positive"), "postive", "; did you mean 'positive'?"),
        ((1, 2, 3), "two", "; known: 1, 2, 3"),
    ],
)
def test_an_odd_label_is_named_with_its_row(
    write: Write, labels: tuple[Any, ...], odd: str, near: str
) -> None:
    records = rows(90, labels)
    records[12]["severity"] = odd
    path = write("t.csv", csv(records))
    draft = draft_study(path, path.with_suffix(".yaml"))
    assert f"'{odd}' in row 14{near}" in draft.notes
    (found,) = yaml.safe_load(draft.text)["datasets"]
    assert (found["scale"], found["on_bad"]) == ([*labels], "drop")


def test_strays_are_told_from_classes_of_very_different_size(write: Write) -> None:
    records = rows(60, ("low",) * 9 + ("high",))
    records[3]["severity"] = "n/a"
    path = write("t.csv", csv(records))
    assert source(path)["scale"] == ["low", "high"]
    small = rows(40, (0, 1, 2, 3))
    small[3]["severity"] = "tres"
    path = write("s.csv", csv(small))
    draft = draft_study(path, path.with_suffix(".yaml"))
    assert "'tres' in row 5; known: 0, 1, 2, 3" in draft.notes


def test_a_rare_class_is_no_odd_label(write: Write) -> None:
    records = rows(100, ("low", "medium", "high"))
    records[12]["severity"] = "critical"
    path = write("t.csv", csv(records))
    assert source(path)["scale"] == ["low", "medium", "high", "critical"]


def test_many_odd_labels_are_counted(write: Write) -> None:
    records = rows(90)
    for k in range(9):
        records[k]["severity"] = f"other {k}"
    path = write("t.csv", csv(records))
    draft = draft_study(path, path.with_suffix(".yaml"), label="severity", scale=["low", "high"])
    assert "'other 0' in row 2; known: low, high" in draft.notes
    assert "5 more values of 'severity' are not on the scale" in draft.notes


# Files without labels


def unlabelled(n: int = 40) -> list[dict[str, Any]]:
    return [{"id": k + 1, "body": f"ticket {k} about a thing"} for k in range(n)]


@pytest.mark.parametrize("scale", [["low", "medium", "high"], ["1", "2", "3", "4", "5"]], ids=str)
def test_a_file_without_labels_gives_a_study_that_runs(
    write: Write, tmp_path: Path, scale: list[str]
) -> None:
    path = write("tickets.csv", csv(unlabelled()))
    out = tmp_path / "tickets.yaml"
    draft = draft_study(path, out, model="sim/first-slot", scale=scale)
    out.write_text(draft.text, encoding="utf-8")
    study = yaml.safe_load(draft.text)
    assert study["datasets"][0]["label"] is None
    assert [str(value) for value in study["datasets"][0]["scale"]] == scale
    assert (study["test_size"], study["base"]["shots"]) == (40, 0)
    assert study["probes"] == ["label_order"]
    run = perform(read_study(out), tmp_path / "run", Store())
    assert set(run.verdicts["contrast"]) == {"P1"}
    assert any("no accuracy" in note for note in draft.notes)


def test_one_column_of_texts_is_enough(cli: Cli, write: Write) -> None:
    write("data.csv", "text\n" + "".join(f"a thing {k}\n" for k in range(9)))
    assert cli("init", "data.csv", "--scale", "bad,good")[0] == 0
    assert "label: null" in Path("data.yaml").read_text()


def test_an_empty_column_of_labels_is_none(write: Write) -> None:
    path = write("t.csv", csv([row | {"severity": ""} for row in unlabelled()]))
    assert source(path, scale=["low", "high"])["label"] is None


def test_a_column_that_does_not_use_the_scale_is_not_the_label(write: Write) -> None:
    records = [row | {"region": "NSEW"[row["id"] % 4]} for row in unlabelled()]
    path = write("t.csv", csv(records))
    assert source(path, scale=["low", "high"])["label"] is None
    rated = [row | {"urgent": ("low", "high")[row["id"] % 2]} for row in records]
    assert source(write("r.csv", csv(rated)), scale=["low", "high"])["label"] == "urgent"


def test_labels_may_be_declared_absent(cli: Cli, write: Write) -> None:
    write("data.csv", csv(rows()))
    assert cli("init", "data.csv", "--unlabelled", "--scale", "low,high")[0] == 0
    assert "label: null" in Path("data.yaml").read_text()
    code, _, err = cli("init", "data.csv", "--unlabelled", "--label", "severity", "--force")
    assert (code, "contradict" in err) == (2, True)


def test_the_classes_of_a_file_without_labels_are_asked(write: Write) -> None:
    path = write("t.csv", csv(unlabelled()))
    assert source(path, ask=lambda question, proposed: "cold,warm")["scale"] == ["cold", "warm"]


# Files that nobody wants


def test_a_mark_semicolons_and_emoji_are_read(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    records = [
        {"text": f"{'😀' * (k + 1)}", "label": ("☹ bad", "good 👍")[k % 2]} for k in range(30)
    ]
    path.write_bytes(b"\xef\xbb\xbf" + csv(records, ";").encode())
    found = source(path, scale=["☹ bad", "good 👍"])
    assert (found["text"], found["label"]) == ("text", "label")
    assert found["scale"] == ["☹ bad", "good 👍"]


def test_bad_rows_are_left_out_and_counted(write: Write) -> None:
    records = rows()
    records[3]["severity"] = ""
    records[4]["body"] = records[7]["body"]  # the same text, with the same label
    path = write("tickets.csv", csv(records))
    assert source(path)["on_bad"] == "drop"
    text = draft_study(path, path.with_suffix(".yaml")).text
    assert "on_bad: drop  # leaves out 1 duplicate, 1 no label" in text
    assert "58 usable rows of 60" in text


def test_a_text_of_a_hundred_thousand_characters_is_not_shown_as_a_demonstration(
    write: Write,
) -> None:
    records = rows(12)
    for row in records:
        row["body"] += " on and on" * (10_000 if row["severity"] == "high" else 1)
    path = write("tickets.csv", csv(records))
    draft = draft_study(path, path.with_suffix(".yaml"))
    assert yaml.safe_load(draft.text)["base"]["shots"] == 0
    assert any("100,0" in note and "cannot read it" in note for note in draft.notes)


def test_a_small_file_gets_a_small_plan(write: Write) -> None:
    small = drafted(write("tickets.csv", csv(rows(9))))
    assert 3 <= small["test_size"] <= 6
    assert 1 <= small["base"]["shots"] <= 2


def test_classes_of_very_different_size_are_tested_in_proportion(write: Write) -> None:
    records = rows(90, ("low", "low", "low", "low", "low", "low", "low", "low", "low", "high"))
    assert drafted(write("tickets.csv", csv(records)))["balance"] == "proportional"


UNUSABLE = {
    "empty": ("", "has no rows"),
    "no labels": ("text\na b\nc d\n", "as in --scale low,medium,high"),
    "one class": (csv(rows(labels=("low",))), "cannot tell which column of"),
    "200 classes": (csv(rows(400, tuple(f"class {k}" for k in range(200)))), "--label COLUMN"),
    "no order": (csv(rows(labels=("red", "green", "blue"))), "classes found: red,green,blue"),
    "two texts": (
        csv([{"q": f"why so {k}?", "r": f"thus it is {k}", "label": k % 2} for k in range(20)]),
        "--text COLUMN",
    ),
}


@pytest.mark.parametrize(("content", "message"), UNUSABLE.values(), ids=list(UNUSABLE))
def test_without_a_terminal_the_error_names_the_way_out(
    cli: Cli, write: Write, content: str, message: str
) -> None:
    write("data.csv", content)
    code, _, err = cli("init", "data.csv")
    assert code == 2
    assert message in err
    assert not Path("data.yaml").exists()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (tuple(range(200)), "has 200 different values ('0', '1', '2', …); a scale has a few"),
        (("low",), "has only the value 'low'; a scale needs two classes"),
    ],
)
def test_a_column_that_is_no_scale_is_refused_also_when_it_is_named(
    write: Write, labels: tuple[Any, ...], message: str
) -> None:
    path = write("data.csv", csv(rows(400, labels)))
    with pytest.raises(Problem, match="severity") as raised:
        draft_study(path, path.with_suffix(".yaml"), label="severity")
    assert message in str(raised.value)


# Questions


def test_what_is_unsure_is_asked(write: Write) -> None:
    records = [
        {"q": f"why so {k}?", "r": f"thus it is {k}", "label": "abc"[k % 3]} for k in range(30)
    ]
    path, asked = write("t.csv", csv(records)), []

    def ask(question: str, proposed: str) -> str:
        asked.append((question, proposed))
        return "c,a,b" if "Order" in question else "q"

    found = source(path, ask=ask)
    assert (found["text"], found["scale"]) == ("q", ["c", "a", "b"])
    assert [proposed for _, proposed in asked] == ["r", "a,b,c"]


def test_an_answer_that_is_no_column_is_refused(write: Write) -> None:
    path = write("t.csv", csv([{"q": f"why {k}?", "r": f"so {k}", "y": k % 2} for k in range(20)]))
    with pytest.raises(Problem, match="no column 'qq'; did you mean 'q'"):
        draft_study(path, path.with_suffix(".yaml"), ask=lambda question, proposed: "qq")


def test_a_user_at_a_terminal_is_asked(write: Write, tmp_path: Path) -> None:
    write("data.csv", csv(rows(labels=("red", "green", "blue"))))
    user, terminal = pty.openpty()
    os.write(user, b"blue,green,red\n")
    done = subprocess.run(
        [sys.executable, "-c", "from flipmeter.cli import main; main()", "init", "data.csv"],
        cwd=tmp_path,
        stdin=terminal,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    os.close(terminal)
    os.close(user)
    assert "Order of the classes of 'severity', lowest first?" in done.stderr
    assert "next: flipmeter plan data.yaml" in done.stdout
    assert "scale: [blue, green, red]" in (tmp_path / "data.yaml").read_text()


# The verbs


def test_a_study_is_never_overwritten_unless_told(cli: Cli, write: Write) -> None:
    write("tickets.csv", csv(rows()))
    mine = write("tickets.yaml", "mine")
    code, _, err = cli("init", "tickets.csv")
    assert (code, mine.read_text()) == (2, "mine")
    assert "--force" in err
    assert cli("init", "tickets.csv", "--force")[0] == 0
    assert "severity" in mine.read_text()


def test_the_options_overrule_every_guess(cli: Cli, write: Write) -> None:
    write("tickets.csv", csv([row | {"rating": k % 2} for k, row in enumerate(rows())]))
    options = ("--text", "body", "--label", "severity", "--scale", "high, low", "-o", "s.yaml")
    assert cli("init", "tickets.csv", *options)[0] == 0
    (found,) = yaml.safe_load(Path("s.yaml").read_text())["datasets"]
    assert (found["label"], found["scale"]) == ("severity", ["high", "low"])
    assert found["on_bad"] == "drop"  # the class that the scale leaves out


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_bundled_dataset_becomes_a_file_that_init_understands(cli: Cli, suffix: str) -> None:
    file = f"reviews.{suffix}"
    assert (
        cli("list", "datasets", "reviews", "--out", file, "--text", "review", "--label", "mood")[0]
        == 0
    )
    assert cli("init", file)[0] == 0
    (found,) = yaml.safe_load(Path("reviews.yaml").read_text())["datasets"]
    assert found["text"] == "review"
    assert found["scale"][0] == "very negative"
    assert cli("list", "datasets", "reviews", "--out", "reviews.txt")[0] == 2


def test_a_json_file_with_other_things_in_it_is_no_trouble(write: Write) -> None:
    lines = [json.dumps({**row, "tags": ["a"], "about": {"x": 1}, "empty": None}) for row in rows()]
    assert source(write("t.jsonl", "\n".join(lines)))["label"] == "severity"


@pytest.mark.parametrize("name", ["weird name.csv", "it's; rm -rf.csv", "$HOME.csv"])
def test_the_next_command_can_be_pasted_whatever_the_file_is_called(
    cli: Cli, write: Write, name: str
) -> None:
    write(name, csv(rows()))
    code, out, _ = cli("init", name)
    assert code == 0
    (command,) = (line for line in out.splitlines() if line.startswith("next: "))
    study = name.replace(".csv", ".yaml")
    assert shlex.split(command) == ["next:", "flipmeter", "plan", study]
    assert f"flipmeter run {shlex.quote(study)}" in Path(study).read_text(encoding="utf-8")
    assert read_study(Path(study)).test_size > 0


def test_a_name_with_a_line_break_stays_in_its_comment(write: Write, tmp_path: Path) -> None:
    path = write("a\nname: bad.csv", csv(rows()))
    text = draft_study(path, path.with_suffix(".yaml")).text
    assert yaml.safe_load(text)["datasets"][0]["file"] == path.name


def test_a_scale_to_be_put_in_order_can_be_pasted(cli: Cli, write: Write) -> None:
    write("data.csv", csv(rows(labels=("deep red", "green", "pale blue"))))
    err = " ".join(cli("init", "data.csv")[2].split())
    assert "classes found: 'deep red,green,pale blue'" in err


def test_the_data_are_never_written_over(cli: Cli, write: Write) -> None:
    data = write("tickets.csv", csv(rows()))
    before = data.read_bytes()
    code, _, err = cli("init", "tickets.csv", "--out", "./tickets.csv", "--force")
    assert (code, data.read_bytes()) == (2, before)
    assert "tickets.csv is an input of this command" in err


def test_a_file_that_no_line_of_can_be_read_says_which(cli: Cli, write: Write) -> None:
    write("data.jsonl", json.dumps(rows()[:3], indent=1))
    code, _, err = cli("init", "data.jsonl")
    assert code == 2
    assert "data.jsonl, row 1: malformed JSON" in err


def test_a_bad_line_in_the_middle_and_nan_labels_are_counted(write: Write) -> None:
    lines = [json.dumps(row) for row in rows()]
    lines[5:7] = ['{"body": "cut', '{"body": "an odd one", "severity": NaN}']
    text = draft_study(write("t.jsonl", "\n".join(lines)), Path("t.yaml")).text
    assert "on_bad: drop  # leaves out 1 malformed, 1 no label" in text


def test_a_parquet_file_of_floats_and_nested_columns_is_understood(tmp_path: Path) -> None:
    table = pl.DataFrame(
        {
            "body": [f"ticket {k} about it" for k in range(40)],
            "rating": [None if k == 7 else float("nan") if k == 8 else k % 3 for k in range(40)],
            "meta": [{"x": k} for k in range(40)],
            "tags": [[str(k)] for k in range(40)],
        },
        strict=False,
    )
    table.write_parquet(tmp_path / "t.parquet")
    found = source(tmp_path / "t.parquet")
    assert (found["text"], found["label"]) == ("body", "rating")
    assert list(found["scale"]) == [0, 1, 2]
    assert found["on_bad"] == "drop"


def test_labels_as_a_spreadsheet_leaves_them_are_one_class_each(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = ["body;rating"] + [
        f"Straße {k};{(' 1', '1.0', '2 ', '2.0', '3')[k % 5]}" for k in range(50)
    ]
    path.write_bytes("\r\n".join(lines).encode("utf-8-sig"))
    assert list(source(path)["scale"]) == [1, 2, 3]
    path.write_bytes("\r\n".join(lines).encode("cp1252"))
    with pytest.raises(Problem, match=r"t\.csv, line 2 .*byte 0xdf is not UTF-8; save"):
        source(path)


def test_empty_columns_that_a_spreadsheet_leaves_are_no_trouble(write: Write) -> None:
    lines = csv(rows()).splitlines()
    found = source(write("t.csv", "\n".join(f"{line},,," for line in lines)))
    assert (found["text"], found["label"]) == ("body", "severity")


def test_a_class_with_a_comma_cannot_be_put_in_order_on_the_command_line(write: Write) -> None:
    path = write("t.csv", csv(rows(labels=("red, pale", "green"))))
    with pytest.raises(Problem, match=r"a name has a comma \(red, pale,green\); remove commas"):
        source(path)


def test_a_repeated_header_is_refused(write: Write) -> None:
    path = write("t.csv", "text,label,label\na b,1,2\n")
    with pytest.raises(Problem, match=r"t\.csv has more than one column named \['label'\]; rename"):
        source(path)
