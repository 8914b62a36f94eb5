"""Word labels: by meaning, by position, and against flipped words; and prompts that say nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipmeter.ask.store import Store
from flipmeter.run.folder import Run
from flipmeter.run.perform import perform
from flipmeter.run.progress import Terms
from flipmeter.show.sentences import reading_lines
from flipmeter.stats.estimates import measure
from flipmeter.stats.judge import verdicts
from flipmeter.study.file import read_study
from flipmeter.types import Contrast, Mode

P1 = Contrast("P1", ("base", "reversed"), probe="label_order")
MODES: tuple[Mode, ...] = ("paper", "recommended")
NOWHERE = "not applicable: the prompt does not state the meaning of the labels"


def frame(
    base: Sequence[int],
    turned: Sequence[int],
    labels: str | None = "words",
    *,
    n_classes: int = 5,
    are_equal: bool = False,
) -> pl.DataFrame:
    rows = [
        {"rater": "r", "dataset": "d", "level": "", "seed": 0, "view": view, "repeat": 0}
        | {"item": f"i{i}", "rank": rank, "n_classes": n_classes, "labels": labels}
        | {"prompt": str(i) if are_equal else f"{view} {i}"}
        for view, ranks in (("base", base), ("reversed", turned))
        for i, rank in enumerate(ranks)
    ]
    table = pl.DataFrame(rows, schema_overrides={"labels": pl.String})
    return table.drop("labels") if labels is None else table


def complete(table: pl.DataFrame) -> dict[str, dict[str, Any]]:
    return {row["metric"]: row for row in table.filter(policy="complete").to_dicts()}


def test_an_unmoved_model_flips_by_position_wherever_it_is_not_in_the_middle() -> None:
    answers = [1, 2, 3, 3, 5]
    found = complete(measure(frame(answers, answers), [P1]))
    assert found["P1"]["value"] == found["P1_semantic"]["value"] == 0
    assert found["P1_position"]["value"] == found["P1_position:unmoved"]["value"] == 3 / 5
    assert "a model that ignores the order gets 0.600" in found["P1_position"]["note"]
    assert "not comparable with identifier formats" in found["P1_position"]["note"]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=9), st.data())
def test_on_an_even_scale_an_unmoved_model_always_flips_by_position(
    answers: list[int], data: st.DataObject
) -> None:
    others = data.draw(st.lists(st.integers(1, 4), min_size=len(answers), max_size=len(answers)))
    found = complete(measure(frame(answers, others, n_classes=4), [P1]))
    assert found["P1_position:unmoved"]["value"] == 1.0
    mirrored = [a != 5 - b for a, b in zip(answers, others, strict=True)]
    assert found["P1_position"]["k"] == sum(mirrored)


def test_a_failure_is_no_class_by_position_either() -> None:
    table = measure(frame([1, 0, 3, 2], [5, 2, 0, 2]), [P1]).filter(metric="P1_position")
    counts = {row["policy"]: (row["k"], row["n"], row["failed"]) for row in table.to_dicts()}
    assert counts == {"complete": (1, 2, 2), "strict": (3, 4, 2), "bounds": (1, 4, 2)}
    unmoved = complete(measure(frame([1, 0, 3, 2], [5, 2, 0, 2]), [P1]))["P1_position:unmoved"]
    assert (unmoved["k"], unmoved["n"]) == (2, 2)


def test_paper_mode_reads_words_by_position_and_marks_it() -> None:
    table = frame([1, 2, 3], [1, 2, 1])
    paper, ours = (complete(measure(table, [P1], mode=mode)) for mode in MODES)
    assert paper["P1"]["value"] == paper["P1_position"]["value"] == 1.0
    assert paper["P1"]["note"].startswith("by position: a model that ignores the order gets 0.667")
    assert ours["P1"]["value"] == ours["P1_semantic"]["value"] == paper["P1_semantic"]["value"]
    assert ours["P1"]["k"] == 1


def test_equal_prompts_of_words_are_not_identified_but_read_by_position_as_the_paper_does() -> None:
    table = frame([1, 2, 3, 5], [1, 2, 3, 5], are_equal=True)
    ours, paper = complete(measure(table, [P1])), complete(measure(table, [P1], mode="paper"))
    for row in (ours["P1"], ours["P1_semantic"], paper["P1_semantic"]):
        assert row["value"] is None
        assert row["note"].startswith("not identified; equals the noise floor")
    assert paper["P1"]["value"] == ours["P1_position"]["value"] == 0.75
    assert verdicts(table, [P1])["status"].to_list() == ["not identified"]


def test_identifiers_whose_meaning_is_nowhere_in_the_prompt_have_no_p1() -> None:
    table = frame([1, 2, 3], [5, 4, 3], "identifiers", are_equal=True)
    for mode in MODES:
        rows = measure(table, [P1], mode=mode).filter(metric="P1")
        assert rows.select("value", "note").unique().rows() == [(None, NOWHERE)]
    assert verdicts(table, [P1]).select("word", "status").rows() == [
        ("not identified", "not applicable")
    ]


def test_identifiers_have_one_reading() -> None:
    metrics = measure(frame([1, 2], [1, 3], "identifiers"), [P1])["metric"].to_list()
    assert not [metric for metric in metrics if metric.startswith("P1_")]


def test_a_run_that_does_not_say_what_its_labels_are_is_read_as_before() -> None:
    old = measure(frame([1, 2], [1, 3], None), [P1])
    assert complete(old)["P1"]["k"] == 1
    assert not [metric for metric in old["metric"].to_list() if metric.startswith("P1_")]
    equal = measure(frame([1], [1], None, are_equal=True), [P1])
    assert complete(equal)["P1"]["note"] == "not identified: the prompts are byte-equal"


def test_flipped_words_are_followed_kept_or_neither() -> None:
    #        follows, keeps, neither, keeps (the middle has no other side), failed twice
    table = frame([1, 2, 5, 3, 4, 0], [5, 2, 4, 3, 0, 1], "flipped words")
    found = complete(measure(table, [P1]))
    shares = {end: found[f"P1_override:{end}"] for end in ("follows", "keeps", "other")}
    assert {end: (row["k"], row["n"]) for end, row in shares.items()} == {
        "follows": (1, 4),
        "keeps": (2, 4),
        "other": (1, 4),
    }
    assert sum(row["value"] for row in shares.values()) == 1
    assert {row["failed"] for row in shares.values()} == {2}
    assert "P1_override:follows" not in complete(measure(frame([1], [5]), [P1]))


def test_only_the_label_list_is_read_by_position() -> None:
    other = Contrast("P3a", ("base", "reversed"), probe="placement")
    metrics = measure(frame([1, 2], [1, 3]), [other])["metric"].to_list()
    assert not [metric for metric in metrics if "_position" in metric]


# --- through a whole run ----------------------------------------------------------------------


def run_of(folder: Path, **changes: Any) -> Run:
    content = {"models": ["sim/honest"], "datasets": ["reviews"], "test_size": 30, "repeats": 1}
    study = read_study({**content, "probes": ["label_order"], **changes})
    with Store() as store:
        return perform(study, folder, store, Terms(anyway=True))


WORDS = "label_format=natural_language"


def test_a_run_tells_what_its_labels_are(tmp_path: Path) -> None:
    run = run_of(tmp_path, vary={"label_format": ["natural_language", "letter"]})
    told = run.decisions.select("level", "labels").unique().sort("level").rows()
    assert told == [("", "identifiers"), ("label_format=letter", "identifiers"), (WORDS, "words")]
    found = complete(run.estimates.filter(level=WORDS))
    assert found["P1"]["value"] == 0
    share = (run.decisions.filter(level=WORDS, view="base")["rank"] != 3).mean()
    assert found["P1_position"]["value"] == found["P1_position:unmoved"]["value"] == share
    (line,) = reading_lines(run.estimates)
    assert line.startswith(f"sim/honest · reviews · {WORDS} · seed 0 · P1 of words: by meaning 0.0")
    assert "where a model that ignores the order gets" in line


@pytest.mark.parametrize(
    ("base", "note"),
    [
        ({"clarity": "minimal", "label_format": "natural_language"}, "equals the noise floor"),
        ({"clarity": "minimal", "shots": 0}, NOWHERE),
    ],
)
def test_what_a_minimal_header_hides_is_said(
    tmp_path: Path, base: dict[str, Any], note: str
) -> None:
    row = complete(run_of(tmp_path, base=base).estimates)["P1"]
    assert row["value"] is None
    assert note in row["note"]


def test_minimal_words_are_a_number_in_paper_mode(tmp_path: Path) -> None:
    base = {"clarity": "minimal", "label_format": "natural_language", "cardinality": 2}
    run = run_of(tmp_path, base=base, mode="paper")
    row = complete(run.estimates)["P1"]
    assert row["value"] == 1.0
    assert "a model that ignores the order gets 1.000; not comparable" in row["note"]
    assert "the tables show the one by position" in reading_lines(run.estimates)[0]


def test_an_honest_rater_keeps_the_meaning_of_flipped_words(tmp_path: Path) -> None:
    base = {"label_format": "natural_language", "word_reversal": "flipped"}
    run = run_of(tmp_path, base=base)
    assert run.decisions["labels"].unique().to_list() == ["flipped words"]
    assert complete(run.estimates)["P1_override:keeps"]["value"] == 1.0
    assert "keep the meaning" in reading_lines(run.estimates)[0]
