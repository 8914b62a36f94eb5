"""Python callables as raters: behind the same store, budgets and faults as any model."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import Cli
from flipmeter import Question
from flipmeter.ask.names import identity_of, open_backend
from flipmeter.ask.pool import Ledger
from flipmeter.ask.store import Store
from flipmeter.ask.user_code import find_callable
from flipmeter.errors import OutOfBudget, Problem
from flipmeter.prompt.levels import label_formats
from flipmeter.prompt.probes import natural, reversed_order
from flipmeter.prompt.question import question
from flipmeter.run.folder import Run
from flipmeter.run.perform import perform
from flipmeter.run.progress import Terms
from flipmeter.study.file import read_study
from flipmeter.study.grid import conditions
from flipmeter.types import Example, Item, Label, Model, Scale, Style, Task, View

Write = Callable[[str, str], Path]

pytestmark = pytest.mark.usefixtures("trusted")

RATERS = '''
import asyncio
from dataclasses import dataclass
from functools import partial

CALLS = []

def by_class(question):
    """Answer by the length of a text: the class, wherever it stands."""
    CALLS.append(question.text)
    return 1 + len(question.text) % len(question.labels)

def by_slot(question):
    return question.labels[0]

def by_name(question):
    return {label.rank: label.name for label in question.labels}[1 + len(question.text) % 5]

async def patient(question):
    await asyncio.sleep(0)
    return {"label": question.labels[1].text, "probabilities": [0.1, 0.6, 0.1, 0.1, 0.1]}

def shares(question):
    return {"probabilities": {rank: 0.6 if rank == 2 else 0.1 for rank in range(1, 6)}}

def short(question):
    return {"probabilities": [0.5, 0.3, 0.2]}

def without(question):
    return {"probabilities": {1: 0.5, 2: 0.5, "six": 0.0}}

def below(question):
    return {"probabilities": [1.2, -0.2, 0, 0, 0]}

def unknown(question):
    return {"probabilities": [float("nan"), 0.25, 0.25, 0.25, 0.25]}

def generous(question):
    return {"probabilities": [0.4] * 5}

def alone(question):
    return {"probabilities": 0.7}

def fails(question):
    raise ValueError(f"no idea about {len(question.fields)} field")

def leaves(question):
    raise SystemExit("bye")

def beyond(question):
    return 9

def odd(question):
    return 2.5

def talks(question):
    return f"I think that it is {question.labels[2]}."

def silent(question):
    return None

async def gives_up(question):
    raise asyncio.CancelledError

def halved(question):
    return "\\ud83d"

def halves(question):
    raise ValueError("\\ud83d")

async def _add(question, bonus):
    return 1 + bonus

prepared = partial(_add, bonus=2)

@dataclass
class Judge:
    bonus: int = 0
    version = "1.2"
    is_reproducible = True
    MADE = []

    def __post_init__(self):
        self.MADE.append(self.bonus)

    def __call__(self, question):
        return min(5, 1 + len(question.demos) // 5 + self.bonus)

NUMBER = 5
'''
FIVE = Task(Scale(("awful", "bad", "fair", "good", "great")))


@pytest.fixture
def raters(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the path of a file with callables, which no other test has imported."""
    monkeypatch.chdir(tmp_path)
    return f"python/{write('raters.py', RATERS).name}"


def performed(tmp_path: Path, model: Any, **keys: Any) -> Run:
    content = {"models": [model], "datasets": ["reviews"], "test_size": 10, "repeats": 1, **keys}
    with Store(tmp_path / "replies.sqlite") as store:
        return perform(read_study(content), tmp_path / "run", store, Terms(anyway=True))


def rate_of(run: Run, contrast: str) -> float:
    (row,) = run.estimates.filter(metric=contrast, policy="strict").to_dicts()
    return float(row["value"])


@pytest.mark.parametrize("name", ["by_class", "by_name", "shares"])
def test_a_callable_that_answers_by_class_never_flips(
    raters: str, tmp_path: Path, name: str
) -> None:
    run = performed(tmp_path, f"{raters}:{name}")
    assert [rate_of(run, contrast) for contrast in ("P1", "P2", "P3")] == [0, 0, 0]
    assert set(run.decisions["fault"]) == {""}


def test_one_that_answers_by_slot_always_flips(raters: str, tmp_path: Path) -> None:
    run = performed(tmp_path, f"{raters}:by_slot")
    assert rate_of(run, "P1") == 1
    assert set(run.decisions["slot"]) == {1}
    assert [rate_of(run, contrast) for contrast in ("P2", "P3")] == [0, 0]


def test_a_coroutine_is_awaited_and_its_probabilities_are_kept(raters: str, tmp_path: Path) -> None:
    run = performed(tmp_path, f"{raters}:patient", probes=["label_order"])
    base = run.decisions.filter(view="base", repeat=0)
    assert base["rank"].to_list() == [2] * 10
    assert base["probabilities"][0].to_list() == pytest.approx([0.1, 0.6, 0.1, 0.1, 0.1])
    turned = run.decisions.filter(view="reversed", repeat=0)
    assert turned["probabilities"][0].to_list() == pytest.approx([0.1, 0.1, 0.1, 0.6, 0.1])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fails", "ValueError: no idea about 1 field"),
        ("leaves", "SystemExit: bye"),
        ("beyond", "ValueError: it returned the rank 9; ranks are 1 to 5"),
        ("odd", "TypeError: it returned 2.5; return a label, a rank or a mapping"),
        ("gives_up", "CancelledError"),
        (
            "short",
            "ValueError: it returned 3 probabilities, but there are 5 labels (1, 2, 3, 4, 5); "
            "return one for each, in this order",
        ),
        (
            "without",
            "ValueError: it returned 3 probabilities by label, but there are 5 labels "
            "(1, 2, 3, 4, 5); these are not in both: 3, 4, 5, six",
        ),
        ("below", "ValueError: it returned 1.2 as the probability of '1'; use 0 to 1"),
        ("unknown", "ValueError: it returned nan as the probability of '1'; use 0 to 1"),
        (
            "generous",
            "ValueError: it returned probabilities that add up to 2; they must add up to 1",
        ),
        ("alone", "TypeError: it returned 0.7 as probabilities; return a list or a mapping"),
        ("halves", "ValueError: \ufffd"),
    ],
)
def test_what_a_callable_raises_is_a_fault_with_its_message(
    raters: str, tmp_path: Path, name: str, message: str
) -> None:
    run = performed(tmp_path, f"{raters}:{name}", probes=["label_order"], test_size=5)
    assert set(run.decisions["fault"]) == {"error"}
    assert set(run.calls.filter(view="base")["error"]) == {message}


def test_words_are_read_like_any_reply(raters: str, tmp_path: Path) -> None:
    run = performed(tmp_path, f"{raters}:talks", probes=["label_order"])
    assert set(run.decisions["slot"]) == {3}
    for name in ("silent", "halved"):
        run = performed(tmp_path, f"{raters}:{name}", probes=["label_order"])
        assert set(run.decisions["fault"]) == {"unparsed"}


def test_a_partial_is_what_it_was_made_of(raters: str, tmp_path: Path, write: Write) -> None:
    model = f"{raters}:prepared"
    run = performed(tmp_path, model, probes=["label_order"])
    assert set(run.decisions["rank"]) == {3}
    first = identity_of(Model(model))
    write("raters.py", RATERS + "\n# another version\n")
    assert identity_of(Model(model)) != first


def test_a_second_run_calls_nothing(raters: str, tmp_path: Path) -> None:
    study = read_study({"models": f"{raters}:by_class", "datasets": ["reviews"], "test_size": 10})
    calls = find_callable("raters.py:by_class").__globals__["CALLS"]
    with Store(tmp_path / "replies.sqlite") as store:
        perform(study, tmp_path / "run", store)
        n_calls = len(calls)
        perform(study, tmp_path / "run", store)
    assert len(calls) == n_calls > 0


def test_a_budget_of_calls_holds(raters: str, tmp_path: Path) -> None:
    ledger = Ledger()
    keys: dict[str, Any] = {"budget": {"calls": 4}, "test_size": 10, "datasets": ["reviews"]}
    study = read_study({"models": f"{raters}:by_class", **keys})
    with Store(tmp_path / "replies.sqlite") as store, pytest.raises(OutOfBudget):
        perform(study, tmp_path / "run", store, Terms(ledger))
    assert len(find_callable("raters.py:by_class").__globals__["CALLS"]) == 4


def test_a_class_is_made_once_with_its_options(raters: str, tmp_path: Path) -> None:
    model = {"model": f"{raters}:Judge", "options": {"bonus": 1}}
    run = performed(tmp_path, model, base={"shots": 1})
    assert set(run.decisions["rank"]) == {3}
    assert find_callable("raters.py:Judge").MADE == [1]
    assert run.environment["reproducible"] == [f"{raters}:Judge"]
    assert identity_of(Model(f"{raters}:Judge")) == "python/raters:Judge@1.2"
    assert identity_of(Model(f"{raters}:Judge", options={"bonus": 1})).endswith('@1.2 {"bonus":1}')


def test_the_identity_changes_with_the_source(raters: str, write: Write) -> None:
    model = Model(f"{raters}:by_slot")
    first = identity_of(model)
    assert first.startswith("python/raters:by_slot@sha256:")
    write("raters.py", RATERS + "\n# another version\n")
    assert identity_of(model) != first


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        ("python/rate", "write python/package.module:function"),
        ("python/nowhere_at_all:rate", "no module named 'nowhere_at_all'"),
        ("python/none.py:rate", "no file none.py"),
        ("python/raters.py:by_clas", "has nothing named 'by_clas'; did you mean 'by_class'"),
        ("python/raters.py:NUMBER", "which cannot be called"),
        ("python/broken.py:rate", "cannot import broken.py: ZeroDivisionError"),
        ("python/needy.py:rate", "cannot import needy.py: ModuleNotFoundError"),
    ],
)
def test_a_missing_callable_is_a_problem(
    raters: str, write: Write, address: str, complaint: str
) -> None:
    write("broken.py", "1 / 0")
    write("needy.py", "import nowhere_at_all")
    with pytest.raises(Problem, match=complaint):
        open_backend(Model(address))


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"pipeline": "pairwise"}, "the pipeline 'pairwise'"),
        ({"prompt": "own.md"}, "a prompt file"),
    ],
)
def test_a_callable_takes_no_prompts(
    raters: str, write: Write, tmp_path: Path, keys: dict[str, Any], what: str
) -> None:
    write("own.md", "{{ labels }} {{ text }}")
    with pytest.raises(Problem, match=f"{what} is for prompts"):
        performed(tmp_path, f"{raters}:by_slot", **keys)


def test_a_study_names_a_rater_that_stands_beside_it(
    raters: str, write: Write, tmp_path: Path
) -> None:
    study = read_study(write("study.yaml", "{rater: raters.by_slot, datasets: reviews}"))
    (entry,) = study.entries
    assert entry.model == f"python/{tmp_path / 'raters.py'}:by_slot"
    assert entry.name == "python/raters:by_slot"
    both = read_study({"rater": "package.module:f", "models": "sim/honest", "datasets": "reviews"})
    assert both.models == ["python/package.module:f", "sim/honest"]


SPELLINGS = [
    {"rater": "nearby.rate"},
    {"rater": "nearby:rate"},
    {"rater": "nearby.py:rate"},
    {"models": "python/nearby.py:rate"},
    {"models": ["python/nearby:rate"]},
    {"models": [{"model": "python/nearby.py:rate", "name": "me"}]},
]


@pytest.mark.parametrize("spelling", SPELLINGS, ids=str)
def test_a_callable_is_looked_for_beside_the_study_and_then_here(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: dict[str, Any]
) -> None:
    """However it is spelled; and what the tables call it is what the study says."""
    monkeypatch.delitem(sys.modules, "nearby", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "studies").mkdir()
    write("nearby.py", "def rate(question): return 1\nrate.version = 'here'\n")
    path = write("studies/study.yaml", yaml.safe_dump({**spelling, "datasets": ["reviews"]}))
    (here,) = read_study(path).raters()
    assert identity_of(here.model) == "python/nearby:rate@here"
    write("studies/nearby.py", "def rate(question): return 1\nrate.version = 'beside'\n")
    (beside,) = read_study(path).raters()
    assert identity_of(beside.model) == "python/nearby:rate@beside"
    assert beside.name == here.name


def test_a_module_of_a_package_is_imported_by_its_name(write: Write, tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    write("pack/mine.py", "from . import helper")
    content = "{models: 'python/pack.mine:rate', datasets: reviews}"
    (loose,) = read_study(write("study.yaml", content)).entries
    assert loose.model == f"python/{tmp_path / 'pack' / 'mine.py'}:rate"
    write("pack/__init__.py", "")
    (packed,) = read_study(tmp_path / "study.yaml").entries
    assert packed.model == "python/pack.mine:rate"


def test_a_file_beside_a_study_is_found_also_where_both_stand_in_a_package(
    write: Write, tmp_path: Path
) -> None:
    write("__init__.py", "")
    write("mine.py", "def rate(question): return 1")
    (entry,) = read_study(write("study.yaml", "{rater: mine.rate, datasets: reviews}")).entries
    assert entry.model == f"python/{tmp_path / 'mine.py'}:rate"


def test_a_run_that_failed_names_the_rater_and_the_item(
    raters: str, write: Write, cli: Cli
) -> None:
    content = {"models": [f"{raters}:short"], "datasets": ["reviews"], "test_size": 5}
    write("study.yaml", yaml.safe_dump(content | {"probes": ["label_order"], "repeats": 1}))
    code, _, err = cli("run", "study.yaml")
    assert code == 4
    assert f"({raters}:short, reviews-test-" in " ".join(err.split())
    assert "it returned 3 probabilities, but there are 5 labels" in " ".join(err.split())


@pytest.mark.parametrize("form", list(label_formats))
@pytest.mark.parametrize("order", [natural(5), reversed_order(5)])
def test_a_question_survives_being_written_and_read(form: str, order: tuple[int, ...]) -> None:
    demos = tuple(Item(f"d{r}", {"text": f"line\n{r}"}, r, role="demo") for r in (3, 1, 5))
    item = Item("q", {"text": "What?\n\u2028No.", "answer": '"}'})
    view = View("v", order, placement="split")
    prompt = question(FIVE, Style(label_format=form), view, demos)(item, "")
    read = Question.read(prompt.text, 1)
    assert (read.fields, read.placement, read.repeat) == (item.fields, "split", 1)
    assert tuple(label.text for label in read.labels) == prompt.answers
    assert tuple(label.rank for label in read.labels) == prompt.ranks == order
    assert [demo.text for demo in read.demos] == ["line\n3", "line\n1", "line\n5"]
    assert prompt.script.head.start == prompt.text.split("\n")[0]


def test_a_question_is_what_its_docstring_says() -> None:
    label = Label(1, "A", "good", 2)
    asked = Question({"text": "Fine."}, (label,), (Example({"text": "Bad."}, "B"),))
    assert (asked.text, str(asked.labels[0]), asked.demos[0].label) == ("Fine.", "A", "B")


def test_every_view_of_the_three_probes_reaches_a_callable(raters: str) -> None:
    content = {"models": f"{raters}:by_slot", "datasets": ["reviews"], "test_size": 10}
    grid = conditions(read_study(content))
    assert {condition.view.name for condition in grid} == {
        *("base", "reversed", "ascending", "descending", "random", "after", "split")
    }
