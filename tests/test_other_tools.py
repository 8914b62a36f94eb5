"""Outputs of promptfoo and samples of lm-eval -> a table of predictions, or what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from conftest import Cli
from flipmeter.bridge.other_tools import Named, predictions_of
from flipmeter.errors import Problem
from flipmeter.run.predictions import read_predictions

Write = Callable[[str, str], Path]
SCALE = ["low", "medium", "high"]
LOGS = Path(__file__).parent / "cases" / "other_tools"


def result(test: int, prompt: str, output: Any, **more: Any) -> dict[str, Any]:
    return {
        "promptIdx": 0,
        "testIdx": test,
        "testCase": {"assert": [{"type": "equals", "value": SCALE[test % 3]}]},
        "provider": {"id": "openai:chat:gpt", "label": "ours"},
        "prompt": {"raw": "as asked", "label": prompt},
        "vars": {"body": f"ticket {test}", "__evalId": f"eval-{test}-{prompt}"},
        "response": {"output": output},
        "failureReason": 0,
        **more,
    }


def promptfoo(*results: dict[str, Any]) -> str:
    return json.dumps({"evalId": "eval-x", "results": {"version": 3, "results": results}})


def sample(doc: int, said: list[Any], target: object, **more: Any) -> dict[str, Any]:
    return {"doc_id": doc, "target": str(target), "filtered_resps": said, "filter": "none", **more}


def lines(*samples: dict[str, Any]) -> str:
    return "".join(json.dumps(one) + "\n" for one in samples)


def weighed(doc: int, weights: list[float], target: object, texts: list[str]) -> dict[str, Any]:
    arguments = {f"gen_args_{k}": {"arg_0": "Q", "arg_1": f" {t}"} for k, t in enumerate(texts)}
    # lm-eval writes the numbers of its replies as texts
    said = [[str(weight), "False"] for weight in weights]
    return sample(doc, said, target, arguments=arguments)


# promptfoo


def test_verdicts_by_place_are_warned_of(write: Write, cli: Cli) -> None:
    """A judge that always says A prefers a place; read as the name of an answer it never flips."""
    orders = [result(k, order, "A") for k in range(3) for order in ("as given", "swapped")]
    path = write("out.json", promptfoo(*orders))
    code, _, err = cli("import", str(path))
    assert (code, "must name the answer, not its place" in err) == (0, True)


def test_prompts_are_conditions_and_equal_variables_are_one_item(write: Write) -> None:
    path = write(
        "out.json",
        promptfoo(
            result(0, "ascending", "low"),
            result(0, "descending", "The label is: **Medium**."),
            result(1, "ascending", "medium or high"),
            result(1, "descending", None, failureReason=2, error="timeout"),
        ),
    )
    table = predictions_of([path], scale=SCALE)
    assert table["item"].to_list() == ["test 1", "test 1", "test 2", "test 2"]
    assert table["condition"].to_list() == ["ascending", "descending"] * 2
    assert table["label"].to_list() == ["low", "medium", "", ""]
    assert table["fault"].to_list() == ["", "", "ambiguous", "error"]
    assert table["gold"].to_list() == ["low", "low", "medium", "medium"]
    assert set(table["model"]) == {"ours"}


def test_a_prompt_called_by_its_text_gets_a_number(write: Write) -> None:
    path = write("o.json", promptfoo(result(0, "Rate {{body}}", "low"), result(0, "B\nC", "low")))
    assert predictions_of([path])["condition"].to_list() == ["prompt 1", "prompt 2"]


def test_a_variable_may_be_what_is_moved(write: Write) -> None:
    rows = [
        result(k, "p", "low", vars={"id": f"t{n}", "order": order, "truth": "low"})
        for k, (n, order) in enumerate([(1, "base"), (1, "reversed"), (2, "base")])
    ]
    path = write("o.json", promptfoo(*rows))
    table = predictions_of([path], Named(condition="order", gold="truth"))
    assert table["condition"].to_list() == ["base", "reversed", "base"]
    assert table["item"].to_list() == ["test 1", "test 1", "test 2"]
    named = predictions_of([path], Named(item="id", condition="order"))
    assert named["item"].to_list() == ["t1", "t1", "t2"]
    with pytest.raises(Problem, match="no variable 'ordr'; did you mean 'order'"):
        predictions_of([path], Named(condition="ordr"))


def test_the_same_again_is_a_repeat(write: Write) -> None:
    path = write("o.json", promptfoo(*[result(0, "p", said) for said in ("low", "high")]))
    assert predictions_of([path])["repeat"].to_list() == [0, 1]


def test_structured_outputs_and_numbers_are_texts(write: Write) -> None:
    path = write("o.json", promptfoo(result(0, "p", {"label": "high"}), result(1, "p", 7)))
    assert predictions_of([path])["label"].to_list() == ['{"label":"high"}', "7"]
    assert predictions_of([path], scale=SCALE)["label"].to_list() == ["high", ""]


# lm-eval


def test_choices_are_told_by_their_texts(write: Write) -> None:
    path = write(
        "samples_severity_2026-01-02T03-04-05.6.jsonl",
        lines(weighed(0, [-3, -1, -2], 1, SCALE), weighed(1, [-9.5, -8, -0.1], "low", SCALE)),
    )
    table = predictions_of([path])
    assert table["label"].to_list() == ["medium", "high"]
    assert table["gold"].to_list() == ["medium", "low"]
    assert set(table["condition"]) == {"severity"}


def test_options_of_a_question_are_told_by_their_places(write: Write) -> None:
    path = write(
        "mcq.jsonl",
        lines(weighed(0, [-3, -1], 1, ["Paris", "Rome"]), weighed(1, [-1, -2], 1, ["4", "5"])),
    )
    table = predictions_of([path])
    assert table["label"].to_list() == ["2", "1"]
    assert table["gold"].to_list() == ["2", "2"]


def test_generated_replies_are_read_and_no_match_is_a_fault(write: Write) -> None:
    path = write("g.jsonl", lines(sample(0, ["high"], "high"), sample(1, ["[invalid]"], "low")))
    table = predictions_of([path])
    assert table["label"].to_list() == ["high", ""]
    assert table["fault"].to_list() == ["", "unparsed"]


def test_one_of_several_filters_is_chosen(write: Write) -> None:
    both = [sample(0, [said], "low") | {"filter": f} for f, said in [("a", "low"), ("b", "high")]]
    path = write("g.jsonl", lines(*both))
    assert predictions_of([path], Named(filter="b"))["label"].to_list() == ["high"]
    with pytest.raises(Problem, match="has the filters a, b; choose one with --filter"):
        predictions_of([path])
    with pytest.raises(Problem, match="has no filter 'c'"):
        predictions_of([path], Named(filter="c"))


# Logs that the tools wrote (tests/cases/other_tools/README.md says how)


def test_an_output_of_promptfoo_is_read_with_repeats_errors_and_names_of_prompts() -> None:
    table = predictions_of([LOGS / "promptfoo_tickets.json"], scale=SCALE)
    assert set(table["model"]) == {"lean"}
    rows = table["item", "repeat", "condition", "label", "gold", "fault"].rows()
    assert rows == [
        ("test 1", 0, "base", "low", "medium", ""),
        ("test 1", 0, "reversed", "high", "medium", ""),
        ("test 1", 1, "base", "low", "medium", ""),
        ("test 1", 1, "reversed", "medium", "medium", ""),
        ("test 2", 0, "base", "high", "high", ""),
        ("test 2", 0, "reversed", "high", "high", ""),
        ("test 2", 1, "base", "medium", "high", ""),
        ("test 2", 1, "reversed", "high", "high", ""),
        ("test 3", 0, "base", "", "", "error"),
        ("test 3", 0, "reversed", "", "", "error"),
        ("test 3", 1, "base", "", "", "error"),
        ("test 3", 1, "reversed", "", "", "error"),
    ]


def test_the_order_in_which_results_came_in_does_not_matter(write: Write) -> None:
    log = json.loads((LOGS / "promptfoo_prompts.json").read_text(encoding="utf-8"))
    log["results"]["results"].reverse()
    turned = predictions_of([write("turned.json", json.dumps(log))])
    assert turned.equals(predictions_of([LOGS / "promptfoo_prompts.json"]))


def test_prompts_of_promptfoo_keep_the_names_that_people_gave_them() -> None:
    table = predictions_of([LOGS / "promptfoo_prompts.json"], scale=SCALE)
    assert table["condition"].to_list() == [
        *("base.txt", "reversed", "many.txt", "many.txt 4"),
        *("chat.json", "my chat", "prompt 7", "polite"),
    ]
    assert set(table["model"]) == {"openai:chat:lean"}
    assert [name for name, fault in table["condition", "fault"].rows() if fault] == [
        *("many.txt", "many.txt 4", "prompt 7", "polite"),
    ]


def test_generated_samples_of_lm_eval_are_read() -> None:
    logs = sorted(LOGS.glob("lean/*.jsonl"))
    with pytest.raises(Problem, match="has the filters first-word, number"):
        predictions_of(logs)
    table = predictions_of(logs, Named(filter="first-word"), SCALE)
    assert table["condition"].unique(maintain_order=True).to_list() == [
        *("severity_base", "severity_reversed"),
    ]
    assert table["gold"].to_list() == ["low", "medium", "high"] * 4
    said = {name: part["label"].to_list() for (name,), part in table.group_by("condition")}
    assert said["severity_base"] == ["low", "low", "high", "low", "high", "high"]
    assert said["severity_reversed"] == ["low", "medium", "high", "low", "high", "high"]
    unread = predictions_of(logs, Named(filter="number"), SCALE)
    assert set(unread["fault"]) == {"unparsed"}


@pytest.mark.parametrize("task", ["severity_choices", "stars_place", "stars_word", "quiz"])
def test_weighed_samples_of_lm_eval_give_its_own_accuracy(task: str) -> None:
    (path,) = LOGS.glob(f"dummy/samples_{task}_2026*.jsonl")
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    table = predictions_of([path])
    is_right = (table["label"] == table["gold"]).cast(int).to_list()
    assert is_right == [record["acc"] for record in records]


def test_targets_among_numbers_are_read_as_lm_eval_reads_them() -> None:
    for task in ("stars_place", "stars_word"):
        (path,) = LOGS.glob(f"dummy/samples_{task}_*.jsonl")
        assert predictions_of([path])["gold"].to_list() == ["1", "3", "5", "2"]


@pytest.mark.parametrize(("accurate", "golds"), [((1, 0), ["3", "2"]), ((0, 1), ["2", "1"])])
def test_where_targets_may_be_places_or_words_the_accuracy_decides(
    write: Write, accurate: tuple[int, int], golds: list[str]
) -> None:
    numbers = ["1", "2", "3"]
    samples = [weighed(0, [-9, -8, -1], 2, numbers), weighed(1, [-1, -8, -9], 1, numbers)]
    told = [one | {"acc": float(acc)} for one, acc in zip(samples, accurate, strict=True)]
    assert predictions_of([write("stars.jsonl", lines(*told))])["gold"].to_list() == golds


def test_turned_options_are_named_by_their_places_in_the_first_log() -> None:
    logs = sorted(LOGS.glob("dummy/samples_quiz*.jsonl"))
    table = predictions_of(logs)
    golds = {name: part["gold"].to_list() for (name,), part in table.group_by("condition")}
    assert golds == {"quiz": ["2", "1", "2"], "quiz_reversed": ["2", "1", "2"]}


# From a log to numbers


def test_two_logs_are_two_conditions_that_measure_reads(cli: Cli, write: Write) -> None:
    for task, shift in [("base", 0), ("reversed", 1)]:
        rows = [sample(k, [SCALE[(k + shift) % 3]], SCALE[k % 3]) for k in range(30)]
        write(f"samples_{task}_2026-01-02T03-04-05.6.jsonl", lines(*rows))
    logs = [str(path) for path in sorted(Path().glob("samples_*.jsonl"))]
    code, out, _ = cli("import", *logs, "--out", "t.csv", "--scale", "low,medium,high")
    assert code == 0
    assert "60 answers, 0 without a label; conditions: base, reversed" in out
    assert "next: flipmeter measure t.csv --scale low,medium,high" in out
    found = read_predictions("t.csv", SCALE).estimates.filter(metric="P1", policy="complete")
    assert found["value"].to_list() == [1.0]
    assert cli("measure", "t.csv", "--scale", "low,medium,high")[0] == 0


def test_classes_without_an_order_are_found_in_replies_too(cli: Cli, write: Write) -> None:
    write("o.json", promptfoo(result(0, "a", "It is red."), result(0, "b", "Green!")))
    code, out, _ = cli("import", "o.json", "-o", "t.csv", "--scale", "nominal:red,green")
    assert (code, "--scale nominal:red,green" in out) == (0, True)
    assert pl.read_csv("t.csv")["label"].to_list() == ["red", "green"]
    assert cli("import", "o.json", "-o", "t.csv", "--scale", "nominal")[0] == 0
    assert pl.read_csv("t.csv")["label"].to_list() == ["It is red.", "Green!"]


def test_a_table_may_be_parquet(cli: Cli, write: Write) -> None:
    write("o.json", promptfoo(result(0, "a", "low"), result(0, "b", "high")))
    assert cli("import", "o.json", "-o", "t.parquet")[0] == 0
    assert pl.read_parquet("t.parquet")["label"].to_list() == ["low", "high"]


WRONG = {
    "empty.json": ("", "is not JSON"),
    "list.json": ("[1, 2]", "no list at results.results"),
    "other.json": ('{"results": {"results": 3}}', "no list at results.results"),
    "none.json": (promptfoo(), "has no results"),
    "no_vars.json": ('{"results": {"results": [{}]}}', "result 1 has no vars"),
    "deep.json": ("[" * 100_000, "is not JSON"),
    "empty.jsonl": ("", "has no rows"),
    "cut.jsonl": ('{"doc_id": 1', "row 1: malformed JSON"),
    "other.jsonl": ('{"a": 1}', "has no 'doc_id', so it is not an lm-eval sample"),
    "odd.jsonl": (
        lines(weighed(0, [1, 2], 0, ["a", "b"]) | {"filtered_resps": [["x"], ["y"]]}),
        "a choice needs log-probabilities",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_log_is_refused(cli: Cli, write: Write, name: str) -> None:
    content, message = WRONG[name]
    write(name, content)
    code, _, err = cli("import", name, "--out", "t.csv")
    assert code == 2
    assert message in " ".join(err.split())
    assert not Path("t.csv").exists()


def test_a_log_is_never_written_over(cli: Cli, write: Write) -> None:
    path = write("o.json", promptfoo(result(0, "a", "low")))
    before = path.read_bytes()
    assert cli("import", "o.json", "--out", "o.json")[0] == 2
    assert path.read_bytes() == before


def test_logs_of_different_kinds_are_imported_one_by_one(cli: Cli, write: Write) -> None:
    write("o.json", promptfoo(result(0, "a", "low")))
    code, _, err = cli("import", "o.json", "x.eval")
    assert (code, "one by one" in err) == (2, True)
    assert cli("import", "none.json")[0] == 2
