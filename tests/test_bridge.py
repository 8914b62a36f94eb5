"""Inspect and back: its tasks ask our prompts, its logs become runs with the same estimates."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from conftest import Cli
from flipmeter.ask.pool import Ledger
from flipmeter.ask.store import Store
from flipmeter.bridge.logs import import_log, open_log
from flipmeter.bridge.samples import ANYBODY, extract_of, figures, offered, questions
from flipmeter.errors import Problem
from flipmeter.prompt.parsing import parse
from flipmeter.run.folder import Run
from flipmeter.run.perform import perform
from flipmeter.run.rate import writer
from flipmeter.stats.estimates import measure
from flipmeter.study.file import Study, read_study
from flipmeter.study.grid import conditions
from flipmeter.types import Ask, Reply
from misbehaving import Behaviour, Server, answer, receipt, says, serving
from test_decimals import essays
from test_option_order import questions as option_questions
from test_pair_order import rows as pair_rows

has_inspect = importlib.util.find_spec("inspect_ai") is not None
needs_inspect = pytest.mark.skipif(
    not has_inspect, reason="needs the extra: pip install 'flipmeter[inspect]' openai"
)

SIZE, SHOTS = 12, 1
VIEWS, REPEATS = 7, 2
N_SAMPLES = SIZE * VIEWS * REPEATS


def study(models: Any = ANYBODY, **changes: Any) -> Study:
    fixed = {"name": "positions", "datasets": ["reviews"], "test_size": SIZE}
    return read_study({"models": models, **fixed, "base": {"shots": SHOTS}, **changes})


# What is asked


def test_how_a_reply_is_read_goes_along_as_plain_values() -> None:
    reasoned = study(base={"shots": 0}, vary={"clarity": ["reasoned"]})
    for question in questions(reasoned):
        told = json.loads(json.dumps(question.metadata))
        assert extract_of(told) == question.condition.rater.extract
    assert {extract_of(one.metadata) is None for one in questions(reasoned)} == {True, False}


def test_a_question_for_every_item_under_every_view_and_repeat() -> None:
    asked = questions(study())
    grid = conditions(study())
    assert len(asked) == len({question.id for question in asked}) == N_SAMPLES
    assert len(asked) == sum(len(condition.items) for condition in grid)


def test_any_beginning_holds_whole_pairs() -> None:
    seen: dict[str, list[str]] = {}
    for question in questions(study()):
        seen.setdefault(question.metadata["item"], []).append(question.metadata["view"])
    runs = list(seen.values())
    assert {tuple(views) for views in runs} == {tuple(runs[0])}
    items = [question.metadata["item"] for question in questions(study())]
    assert items == sorted(items, key=list(dict.fromkeys(items)).index)


def test_a_question_is_the_prompt_of_its_condition() -> None:
    for question in questions(study(seeds=[0, 1], vary={"label_format": ["letter"]})):
        item = question.call.ask.item
        written = writer(question.condition)(Ask(item, question.condition.view))
        assert question.call.prompt == written
        assert question.metadata["prompt"] == written.digest


def test_a_label_is_read_from_metadata_as_from_the_prompt_itself() -> None:
    for question in questions(study(base={"label_format": "natural_language", "shots": 1})):
        plain = json.loads(json.dumps(question.metadata))
        for label in (*question.call.prompt.answers, "neither"):
            reply = Reply(f"Label: {label}", "stop")
            assert parse(reply, offered(plain)) == parse(reply, question.call.prompt)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"pipeline": "pairwise"}, "the study has the pipeline 'pairwise'"),
        ({"vary": {"pipeline": ["listwise"]}}, "level pipeline=listwise"),
        ({"scores": True}, "`scores: true`"),
    ],
)
def test_what_is_more_than_a_prompt_and_a_label_is_refused(
    changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(Problem, match=named):
        questions(study(**changes))


# What is measured


def test_figures_are_the_estimates_by_name(tmp_path: Path) -> None:
    run = perform(study("sim/first-slot?strength=2"), tmp_path / "run", Store())
    found = figures(run.estimates, run.study.contrasts)
    (row,) = run.estimates.filter(metric="P1", policy="complete").to_dicts()
    assert [found[f"P1{end}"] for end in ("", " low", " high", " k", " n", " failed")] == [
        row[name] for name in ("value", "low", "high", "k", "n", "failed")
    ]
    assert {"P2", "P3", "noise", "accuracy"} < set(found)


def test_figures_of_several_groups_say_whose_they_are(tmp_path: Path) -> None:
    several = study("sim/first-slot?strength=2", seeds=[0, 7], vary={"shots": [0]})
    run = perform(several, tmp_path / "run", Store())
    found = figures(run.estimates, run.study.contrasts)
    assert "reviews seed 7 P1" in found
    assert "reviews shots=0 seed 0 P1" in found
    assert "P1" not in found


# What is imported


@pytest.mark.skipif(has_inspect, reason="the extra is here")
def test_without_the_package_a_log_cannot_be_read_and_the_way_out_is_named(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "some.eval").touch()
    code, _, err = cli("import", "some.eval")
    assert code == 2
    assert "pip install 'flipmeter[inspect]'" in err


def test_a_log_that_is_not_there_is_named(cli: Cli) -> None:
    code, _, err = cli("import", "logs/none.eval")
    assert code == 2
    assert "no log logs/none.eval" in err


def moody(body: Any) -> Behaviour:
    """Answer with a class by the whole prompt; some replies name none, are cut or are blocked."""
    number = receipt(body)
    usage: dict[str, Any] = {
        "prompt_tokens": 50 + number % 90,
        "completion_tokens": 1,
        "total_tokens": 1,
    }
    usage |= {"prompt_tokens_details": {"cached_tokens": number % 40}}
    text, finish = str(1 + number % 5), "stop"
    if number % 11 == 0:
        text = "It depends."
    elif number % 13 == 0:
        text, finish = "Well, the", "length"
    elif number % 17 == 0:
        text, finish = "", "content_filter"
    choice = {"index": 0, "message": {"role": "assistant", "content": text}}
    whole = {"id": "x", "object": "chat.completion", "created": 1, "usage": usage}
    return says(answer(choices=[{**choice, "finish_reason": finish}], **whole))


Evaluate = Callable[..., Path]


@dataclass(frozen=True)
class Bench:
    """A server, what asks it with Inspect's own command, and the log of a whole study."""

    server: Server
    evaluate: Evaluate
    log: Path


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with serving(moody) as server:

        def evaluate(task: str, *options: str, size: int = SIZE) -> Path:
            folder = tmp_path_factory.mktemp("logs")
            return evaluated(folder, server.url, task, f"-Ttest_size={size}", *options)

        yield Bench(server, evaluate, evaluate("flipmeter/positions", f"-Tshots={SHOTS}"))


def evaluated(
    folder: Path, url: str, task: str, *options: str, model: str = "openai-api/local/rater"
) -> Path:
    """Run `inspect eval` and return its log."""
    inspected(folder, "eval", task, *options, "--model", model, "--model-base-url", url)
    (log,) = folder.glob("*.eval")
    return log


def inspected(folder: Path, *arguments: str) -> str:
    """Run a command of Inspect in a folder that takes its logs, and return what it says."""
    program = str(Path(sys.executable).with_name("inspect"))
    command = [program, *arguments, "--log-dir", str(folder), "--display", "plain"]
    keys = {"LOCAL_API_KEY": "none", "OPENAI_API_KEY": "none"}
    variables = {**os.environ, **keys, "NO_PROXY": "127.0.0.1"}
    ended = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def imported(log: Path, folder: Path, ledger: Ledger | None = None, **options: Any) -> Run:
    with Store(folder / "replies.sqlite") as store:
        return import_log(open_log(log), folder / "run", store, ledger=ledger, **options)


def plain(table: pl.DataFrame) -> pl.DataFrame:
    """Leave out who was asked and how long it took."""
    return table.drop("rater", "seconds", "warning", strict=False)


@needs_inspect
def test_both_ways_agree_exactly_on_the_same_replies(bench: Bench, tmp_path: Path) -> None:
    run, ledger = imported(bench.log, tmp_path, ledger := Ledger()), ledger
    ours = study({"model": "http/rater", "base_url": bench.server.url})
    asked = perform(ours, tmp_path / "asked", Store())
    assert (ledger.wanted, ledger.stored, ledger.asked) == (N_SAMPLES, N_SAMPLES, 0)
    assert plain(run.decisions).equals(plain(asked.decisions))
    assert plain(run.estimates).equals(plain(asked.estimates))
    assert {"unparsed", "truncated", "refused", ""} == set(run.decisions["fault"])


@needs_inspect
def test_the_metrics_in_the_log_are_the_estimates_of_its_run(bench: Bench, tmp_path: Path) -> None:
    run, log = imported(bench.log, tmp_path), open_log(bench.log)
    (scores,) = log.header.results.scores
    assert {name: one.value for name, one in scores.metrics.items()} == figures(
        run.estimates, run.study.contrasts
    )


@needs_inspect
def test_a_run_says_where_it_comes_from(bench: Bench, tmp_path: Path) -> None:
    run = imported(bench.log, tmp_path)
    assert run.environment["origin"]["log"] == bench.log.name
    assert run.environment["origin"]["model"] == "openai-api/local/rater"
    assert run.study.raters()[0].decoding.is_greedy
    assert set(run.decisions["rater"]) == {"openai-api/local/rater"}
    assert measure(run.decisions, run.study.contrasts).height == run.estimates.height


@needs_inspect
def test_a_log_twice_is_a_log_once_and_an_imported_study_runs_from_the_store(
    bench: Bench, tmp_path: Path
) -> None:
    first = imported(bench.log, tmp_path).decisions
    again = imported(bench.log, tmp_path)
    with Store(tmp_path / "replies.sqlite") as store:
        performed = perform(again.study, tmp_path / "again", store)
        assert len(store) == N_SAMPLES
    assert first.equals(again.decisions)
    assert first.equals(performed.decisions)


@needs_inspect
def test_an_unfinished_log_is_refused_or_counted(bench: Bench, tmp_path: Path, cli: Cli) -> None:
    log = bench.evaluate("flipmeter/label_order", "--limit", "10", size=4)
    with pytest.raises(Problem, match="no reply to 6 of 16 prompts"):
        imported(log, tmp_path)
    assert not (tmp_path / "run").exists()
    code, out, err = cli("import", str(log), "--partial")
    assert code == 4
    assert "lacks 6 of 16 replies" in err
    assert "run folder: runs/label_order" in out
    assert Run(tmp_path / "runs" / "label_order").decisions["fault"].to_list().count("error") == 6


@needs_inspect
def test_what_the_command_changed_is_in_the_study(bench: Bench, tmp_path: Path) -> None:
    options = ("--temperature", "0.7", "--seed", "3", "--max-tokens", "9")
    run = imported(bench.evaluate("flipmeter/demo_order", *options, size=2), tmp_path)
    (rater,) = run.study.raters()
    decoding = rater.decoding
    assert (decoding.temperature, decoding.seed, decoding.max_tokens) == (0.7, 3, 9)
    assert run.study.probes == ["demo_order"]


@needs_inspect
@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--epochs", "2"), "2 epochs"),
        (("--system-message", "Be kind."), "system message"),
        (("--solver", str(Path(__file__).with_name("kind_solver.py"))), "a different prompt"),
    ],
)
def test_a_log_that_was_asked_otherwise_is_refused(
    bench: Bench, tmp_path: Path, options: tuple[str, ...], named: str
) -> None:
    with pytest.raises(Problem, match=named):
        imported(bench.evaluate("flipmeter/placement", *options, size=1), tmp_path)


@needs_inspect
def test_a_log_of_another_task_is_refused(bench: Bench, tmp_path: Path) -> None:
    task = tmp_path / "other.py"
    task.write_text(
        "from inspect_ai import Task, task\n"
        "from inspect_ai.dataset import Sample\n"
        "@task\n"
        "def other(): return Task(dataset=[Sample(input='3?')])\n"
    )
    log = evaluated(tmp_path, bench.server.url, "other.py")
    with pytest.raises(Problem, match="'other', which is not one of flipmeter's"):
        imported(log, tmp_path)
    task.write_text("")
    with pytest.raises(Problem, match=r"other\.py is not an Inspect log"):
        open_log(task)


@needs_inspect
def test_a_study_file_gives_a_task_its_levels(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: mine\nmodels: [sim/honest]\ndatasets: [reviews]\nrepeats: 1\n"
        "base: {shots: 0}\nvary: {label_format: [letter]}\n"
    )
    log = bench.evaluate("flipmeter/label_order", f"-Tstudy={file}", "-Tseed=4,5", size=2)
    run = imported(log, tmp_path)
    assert set(run.decisions["level"]) == {"", "label_format=letter"}
    assert set(run.decisions["seed"]) == {4, 5}
    (scores,) = open_log(log).header.results.scores
    in_letters = "reviews label_format=letter seed 4 P1"  # and the server knows digits only
    assert scores.metrics[f"{in_letters} n"].value == 0
    assert scores.metrics[f"{in_letters} failed"].value == 2


@contextmanager
def served(model: str) -> Iterator[str]:
    """A model behind HTTP in a process of its own, and its address."""
    command = [sys.executable, str(Path(__file__).with_name("fake_endpoint.py")), model]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.kill()


@needs_inspect
@pytest.mark.parametrize(
    ("model", "options", "path"),
    [
        ("openai/gpt-5.4", (), "responses"),
        ("openai/gpt-4o", ("-M", "responses_api=true"), "responses"),
        ("openai/gpt-4o", (), "chat"),
    ],
)
def test_the_openai_provider_of_inspect_asks_a_served_rater(
    tmp_path: Path, model: str, options: tuple[str, ...], path: str
) -> None:
    with served("sim/first-slot?strength=2") as url:
        size = ("-Ttest_size=6", "-Tshots=1")
        log = evaluated(tmp_path, url, "flipmeter/label_order", *size, *options, model=model)
        run = imported(log, tmp_path)
        there = {"model": f"http/{model.partition('/')[2]}", "base_url": url}
        ours = study(there, probes=["label_order"], test_size=6)
        asked = perform(ours, tmp_path / "asked", Store())
    assert set(run.decisions["fault"]) == {""}
    told = ("view", "item", "rank", "slot")
    assert run.decisions.select(told).equals(asked.decisions.select(told))
    assert run.decisions["rater"].unique().to_list() == [model]
    text = json.dumps([str(one) for one in open_log(log).samples()])
    assert ("resp_" in text) == (path == "responses")


@needs_inspect
def test_a_log_is_scored_again_by_the_names_of_the_scorers(bench: Bench, tmp_path: Path) -> None:
    log = tmp_path / bench.log.name
    log.write_bytes(bench.log.read_bytes())
    inspected(
        tmp_path,
        "score",
        str(log),
        "--scorer",
        "flipmeter/label",
        "--action",
        "overwrite",
        "--overwrite",
    )
    first, again = (open_log(one).header.results.scores[0] for one in (bench.log, log))
    assert again.name == "label"
    assert {name: one.value for name, one in again.metrics.items()} == {
        name: one.value for name, one in first.metrics.items()
    }
    kept = {one.id: one.scores["label"].value for one in open_log(bench.log).samples()}
    assert {one.id: one.scores["label"].value for one in open_log(log).samples()} == kept


PAIRS = """
datasets:
- file: pairs.csv
  fields: {question: prompt, a: answer_1, b: answer_2}
  exchange: [a, b]
  label: preferred
  scale: [b, tie, a]
base: {shots: 0, label_format: letter, clarity: reasoned}
"""
OPTIONS = """
datasets: [{file: mcq.csv, text: question, options: [a, b, c, d], label: answer}]
base: {shots: 0, label_format: letter}
balance: proportional
answer: {json: verdict.letter}
"""


DECIMALS = """
datasets: [{file: essays.csv, text: essay, label: score, scale: {from: 0, to: 10}, within: 0.5}]
base: {shots: 2}
"""


def reasoning(body: Any) -> Behaviour:
    """Name every letter before the one that is meant, as the last label or as JSON."""
    letter = "AB"[receipt(body) % 2]
    text = f"Label: B looked good at first, and so did A and C.\nLabel: {letter}"
    if "What is" in str(body):
        text = json.dumps({"why": "A, B or C", "verdict": {"letter": letter}})
    if "essay" in str(body):
        text = f"{receipt(body) % 101 / 10}/10"
    usage = {"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 59}
    whole = {"id": "x", "object": "chat.completion", "created": 1, "usage": usage}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}}
    return says(answer(choices=[{**choice, "finish_reason": "stop"}], **whole))


@needs_inspect
@pytest.mark.parametrize(
    ("task", "content"),
    [("pair_order", PAIRS), ("option_order", OPTIONS), ("demo_order", DECIMALS)],
)
def test_places_are_moved_and_structured_replies_read(
    tmp_path: Path, task: str, content: str
) -> None:
    (tmp_path / "pairs.csv").write_text(pair_rows())
    (tmp_path / "mcq.csv").write_text(option_questions(40))
    (tmp_path / "essays.csv").write_text(essays())
    file = tmp_path / "mine.yaml"
    file.write_text(f"name: mine\nmodels: [sim/honest]\nrepeats: 1\ntest_size: 9\n{content}")
    with serving(reasoning) as server:
        log = evaluated(tmp_path, server.url, f"flipmeter/{task}", f"-Tstudy={file}")
        run = imported(log, tmp_path)
        models = [{"model": "http/rater", "base_url": server.url}]
        ours = read_study(file, {"models": models, "probes": [task]})
        asked = perform(ours, tmp_path / "asked", Store())
    assert plain(run.decisions).equals(plain(asked.decisions))
    assert set(run.decisions["fault"]) == {""}
    (scores,) = open_log(log).header.results.scores
    assert {name: one.value for name, one in scores.metrics.items()} == figures(
        run.estimates, run.contrasts
    )
    assert {"pair_order": "P6", "option_order": "P7", "demo_order": "P2a"}[task] in scores.metrics


@needs_inspect
@pytest.mark.real
def test_both_ways_agree_on_the_embedded_model(tmp_path: Path) -> None:
    with served("local/smollm2-135m") as url:
        short = ("-Ttest_size=2", "-Tshots=0", "--max-tokens", "4")
        log = evaluated(tmp_path, url, "flipmeter/label_order", *short)
        run = imported(log, tmp_path)
        ours = {"probes": ["label_order"], "test_size": 2, "base": {"shots": 0}}
        there = {"model": "http/rater", "base_url": url}
        asked = perform(
            study(there, **ours, decoding={"max_tokens": 4}), tmp_path / "asked", Store()
        )
    told = ("view", "repeat", "item", "rank", "slot", "fault", "prompt")
    assert run.decisions.select(told).equals(asked.decisions.select(told))
