"""Judges: several fields, a rubric, and the fixed demonstrations of a production prompt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flipmeter.ask.store import Store
from flipmeter.errors import Problem
from flipmeter.run.perform import perform
from flipmeter.run.rate import writer
from flipmeter.study.file import Study, read_study
from flipmeter.study.grid import conditions
from flipmeter.types import Ask

Write = Callable[[str, str], Path]
PAIRS = "q,a,grade\n" + "".join(
    f"What is {k} plus {k}?,It is {k + k + k % 3}.,{k % 3}\n" for k in range(30)
)
RUBRIC = """\
--- system
You grade answers. Criteria:
{{ criteria }}
Grades: {{ labels }}.
--- user
Question: {{ question }}
Answer: {{ answer }}
Grade:
"""
DEMOS = "text,label\n" + "".join(
    f"Shown {k}.,{name}\n"
    for k, name in enumerate(["positive", "very negative", "neutral", "very positive", "negative"])
)


def judged(write: Write, **keys: Any) -> Study:
    write("pairs.csv", PAIRS)
    write("rubric.md", RUBRIC)
    pairs = {"file": "pairs.csv", "label": "grade", "scale": {0: "no", 1: "partly", 2: "yes"}}
    content: dict[str, Any] = {
        "models": "sim/honest",
        "datasets": [{**pairs, "fields": {"question": "q", "answer": "a"}}],
        "prompt": "rubric.md",
        "criteria": ["correct", "complete", "short"],
        "probes": ["label_order", "demo_order", "criterion_order", "system_user"],
        "test_size": 9,
        "repeats": 1,
    }
    return read_study(write("study.yaml", "{}"), {**content, **keys})


def test_a_judge_has_fields_instead_of_a_text(write: Write) -> None:
    (dataset,) = judged(write).load()
    item = dataset.test[0]
    assert item.fields == {
        "question": "What is 0 plus 0?",
        "answer": "It is 0.",
        "text": "question: What is 0 plus 0?\n\nanswer: It is 0.",
    }


def test_a_judge_is_asked_under_the_views_of_its_rubric(write: Write) -> None:
    grid = conditions(judged(write))
    texts = {}
    for condition in grid:
        ask = Ask(grid[0].items[0], condition.view)
        texts[condition.view.name] = writer(condition)(ask).text
    assert list(texts) == ["base", "reversed", "criteria_reversed", "criteria_rotated", "in_user"]
    assert "1. correct\n2. complete\n3. short" in texts["base"]
    assert "1. short\n2. complete\n3. correct" in texts["criteria_reversed"]
    assert "1. complete\n2. short\n3. correct" in texts["criteria_rotated"]
    assert texts["in_user"] == texts["base"]  # word for word: only who says it differs
    (message,) = writer(grid[-1])(Ask(grid[0].items[0], grid[-1].view)).script.messages
    assert message.role == "user"


def test_a_rubric_without_criteria_is_a_problem(write: Write) -> None:
    with pytest.raises(Problem, match=r"rubric.md, line 3: no criteria to show"):
        conditions(judged(write, criteria=[]))


def test_the_built_in_prompt_has_no_rubric(write: Write, tmp_path: Path) -> None:
    study = judged(write, prompt="built-in", base={"shots": 1, "label_format": "values"})
    with Store(tmp_path / "replies.sqlite") as store:
        run = perform(study, tmp_path / "run", store)
    notes = run.estimates.filter(metric="P5", policy="complete")["note"].to_list()
    assert notes == ["not applicable: no view 'in_user'"]


def test_a_further_field_that_is_not_there_is_named(write: Write) -> None:
    pairs = {"file": "pairs.csv", "label": "grade", "scale": [0, 1, 2], "fields": {"x": "answr"}}
    with pytest.raises(Problem, match="no column 'answr'"):
        judged(write, datasets=[pairs]).load()


# --- fixed demonstrations ---------------------------------------------------------------------


def with_fixed(write: Write, shown: str = DEMOS, **keys: Any) -> Study:
    write("demos.csv", shown)
    content: dict[str, Any] = {
        "models": "sim/honest",
        "datasets": ["reviews"],
        "demos": {"file": "demos.csv"},
        "test_size": 10,
        "seeds": [0, 1],
    }
    return read_study(write("study.yaml", "{}"), {**content, **keys})


def test_fixed_demonstrations_are_shown_to_every_seed_in_their_order(write: Write) -> None:
    grid = conditions(with_fixed(write))
    assert {tuple(demo.gold for demo in condition.demos) for condition in grid} == {(4, 1, 3, 5, 2)}
    base = next(condition for condition in grid if condition.view.name == "base")
    text = writer(base)(Ask(base.items[0], base.view)).text
    assert [text.index(f"Shown {k}.") for k in range(5)] == sorted(
        text.index(f"Shown {k}.") for k in range(5)
    )
    assert {"ascending", "after"} <= {condition.view.name for condition in grid}


def test_what_is_shown_is_not_tested(write: Write) -> None:
    (dataset,) = with_fixed(write).load()
    text = dataset.test[0].text.replace('"', '""')
    (less,) = with_fixed(write, shown=f'{DEMOS}"{text}",neutral\n').load()
    assert [item.id for item in less.test] == [item.id for item in dataset.test[1:]]
    assert less.left_out["shown as demonstrations"] == 1
    assert less.digest != dataset.digest


def test_no_shots_shows_none_and_fewer_classes_relabel_them(write: Write) -> None:
    none = conditions(with_fixed(write, base={"shots": 0}))
    assert {condition.demos for condition in none} == {()}
    three = conditions(with_fixed(write, base={"cardinality": 3}))
    assert {tuple(demo.gold for demo in c.demos) for c in three} == {(3, 1, 2, 3, 1)}


@pytest.mark.parametrize(
    ("demos", "complaint"),
    [
        ({"file": "none.csv"}, "none.csv does not exist"),
        ({"file": "demos.csv", "label": "klass"}, "no column 'klass'"),
        ({"file": "demos.csv", "txt": "x"}, "no key named 'demos.txt'; did you mean 'text'"),
    ],
)
def test_what_is_wrong_with_fixed_demonstrations_is_said(
    write: Write, demos: dict[str, str], complaint: str
) -> None:
    with pytest.raises(Problem, match=complaint):
        with_fixed(write, demos=demos).load()


def test_a_demonstration_off_the_scale_names_its_row(write: Write) -> None:
    study = with_fixed(write, shown="text,label\nShown.,splendid\n")
    with pytest.raises(Problem, match=r"demos.csv, row 2: the label 'splendid'"):
        study.load()
