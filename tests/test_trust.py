"""Whose code runs, where keys go, what is written where: studies and runs of strangers."""

from __future__ import annotations

import asyncio
import importlib.util
import py_compile
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import Cli
from flipmeter import OrdinalClassifier, Problem, Question, Study
from flipmeter.ask import user_code
from flipmeter.ask.names import identity_of, open_backend
from flipmeter.ask.ray import Holder
from flipmeter.ask.user_code import find_callable
from flipmeter.choose.card import Card
from flipmeter.cli import VERBS, Verbs
from flipmeter.consent import Code, Trust, consented, given, remembered, trusting
from flipmeter.types import Model

pytest_plugins = ["pytester"]

Write = Callable[[str, str], Path]

EVIL = """
from pathlib import Path
Path("marker").write_text("was here")
def rate(question): return 1
"""
STUDY = {
    "name": "received",
    "models": ["python/evil.py:rate"],
    "datasets": ["reviews"],
    "test_size": 5,
    "probes": ["label_order"],
    "repeats": 1,
}
CARD = {
    "model": "python/evil.py:rate",
    "task": {
        "scale": ["bad", "good"],
        "title": "Rating",
        "noun": "Text",
        "aspect": "mood",
        "low": "bad",
        "high": "good",
    },
    "style": {"shots": 0},
}


@pytest.fixture
def received(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a stranger may send it: code that leaves a mark, and a study and a card."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLIPMETER_CONFIG", str(tmp_path / "config"))
    write("evil.py", EVIL)
    write("study.yaml", yaml.safe_dump(STUDY))
    write("card.yaml", yaml.safe_dump(CARD))
    write("texts.csv", "text\nFine.\n")
    return tmp_path


def has_run(folder: Path) -> bool:
    return (folder / "marker").exists()


# Code runs by consent

ASKING = {
    "run": ["run", "study.yaml"],
    "plan": ["plan", "study.yaml", "--offline"],
    "try --dry": ["try", "study.yaml", "--dry"],
    "try": ["try", "study.yaml"],
    "classify": ["classify", "card.yaml", "texts.csv"],
    "confirm": ["confirm", "card.yaml", "--items", "5"],
    "paper": ["paper", "--model", "python/evil.py:rate", "--limit", "2", "--plan"],
    "--model": ["run", "study.yaml", "--model", "python/evil.py:rate"],
}


@pytest.mark.parametrize("words", ASKING.values(), ids=ASKING)
def test_a_verb_that_asks_runs_no_code_without_consent(
    received: Path, cli: Cli, words: list[str]
) -> None:
    code, _, err = cli(*words)
    told = " ".join(err.split())
    assert code == 2
    assert not has_run(received)
    assert "evil.py is Python code" in told
    for way in (
        "--trust",
        "FLIPMETER_TRUST=1",
        "trust=True",
        "flipmeter run evil.py --trust --remember",
    ):
        assert way in told


@pytest.mark.parametrize("words", [["batch", "export", "study.yaml", "-o", "b"], ["try", "X"]])
def test_verbs_for_endpoints_do_not_run_code_either(
    received: Path, cli: Cli, words: list[str]
) -> None:
    cli(*["python/evil.py:rate" if word == "X" else word for word in words])
    assert not has_run(received)


def test_consent_is_for_one_command(received: Path, cli: Cli) -> None:
    assert cli("run", "study.yaml", "--trust")[0] == 0
    assert has_run(received)
    assert not given().code
    assert cli("run", "study.yaml")[0] == 2


@pytest.mark.parametrize(("value", "code"), [("1", 0), ("true", 0), ("0", 2), ("", 2), ("no", 2)])
def test_the_environment_consents_in_ci(
    received: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, value: str, code: int
) -> None:
    monkeypatch.setenv("FLIPMETER_TRUST", value)
    assert cli("plan", "study.yaml", "--offline")[0] == code
    assert has_run(received) == (code == 0)


@pytest.mark.parametrize("key", ["trust", "trust_hosts"])
def test_a_study_cannot_consent_to_itself(received: Path, write: Write, cli: Cli, key: str) -> None:
    write("study.yaml", yaml.safe_dump(STUDY | {key: True}))
    assert cli("run", "study.yaml")[0] == 2
    write(
        "study.yaml", yaml.safe_dump(STUDY | {"models": [{"model": "python/evil.py:rate", key: 1}]})
    )
    assert cli("run", "study.yaml")[0] == 2
    assert not has_run(received)


def test_in_python_consent_is_an_argument(received: Path) -> None:
    study = Study(**STUDY)
    for ask in (study.plan, study.run, study.show):
        with pytest.raises(Problem, match="is Python code"):
            ask()
    assert not has_run(received)
    study.plan(trust=True, is_offline=True)
    study.show(trust=True)
    assert study.run("run", trust=True).decisions["rank"].unique().to_list() == [1]


@pytest.mark.parametrize("trust", ["no", 1, [True]])
def test_only_true_is_consent(received: Path, trust: Any) -> None:
    with pytest.raises(Problem, match="is Python code"):
        Study(**STUDY).plan(trust=trust)
    assert not has_run(received)


def test_the_classifier_needs_consent(received: Path) -> None:
    texts, labels = ["Good.", "Bad."], ["good", "bad"]
    options: dict[str, Any] = {"scale": ["bad", "good"], "shots": 1, "store": None}
    fitted = OrdinalClassifier("python/evil.py:rate", **options).fit(texts, labels)
    with pytest.raises(Problem, match="is Python code"):
        fitted.predict(texts)
    with pytest.raises(Problem, match="is Python code"):
        OrdinalClassifier.load("card.yaml", store=None)
    with pytest.raises(Problem, match="is Python code"):
        OrdinalClassifier.of(Card.model_validate(CARD), store=None)
    assert not has_run(received)
    assert OrdinalClassifier.load("card.yaml", store=None, trust=True).predict(texts).tolist() == [
        "bad",
        "bad",
    ]


def test_the_pytest_plugin_needs_consent(received: Path, pytester: pytest.Pytester) -> None:
    for name in ("evil.py", "study.yaml"):
        (pytester.path / name).write_text((received / name).read_text())
    pytester.makepyfile(
        "def test_it(flipmeter_run): flipmeter_run('study.yaml')\n"
        "def test_by_name(flipmeter_run): flipmeter_run('study.yaml', trust=True)\n"
    )
    pytester.runpytest_inprocess("-p", "no:xdist", "-k", "test_it").assert_outcomes(failed=1)
    assert not has_run(pytester.path)
    pytester.runpytest_inprocess("-p", "no:xdist", "-k", "by_name").assert_outcomes(passed=1)
    pytester.runpytest_inprocess("-p", "no:xdist", "--flip-trust").assert_outcomes(passed=2)


def by_length(question: Question) -> int:
    return 1 + len(question.text) % len(question.labels)


class Judge:
    """An object that is called, with a version of its own."""

    version = "3"

    def __call__(self, question: Question) -> int:
        return 2


@pytest.mark.parametrize("rater", [by_length, Judge(), Judge, partial(by_length)])
def test_a_callable_that_is_handed_over_needs_no_consent(tmp_path: Path, rater: Any) -> None:
    keys = {key: value for key, value in STUDY.items() if key != "models"}
    run = Study(rater=rater, **keys).run(tmp_path / "one", store=":memory:")
    same = Study(models=[{"model": rater, "name": "me"}, rater], **keys)
    again = same.run(tmp_path / "two", store=":memory:")
    assert set(run.decisions["fault"]) == {""}
    assert again.decisions["rater"].unique().to_list().count("me") == 1
    options: dict[str, Any] = {"scale": ["bad", "good"], "shots": 1, "store": None}
    fitted = OrdinalClassifier(rater, **options).fit(["Good.", "Bad."], ["good", "bad"])
    assert set(fitted.predict(["Good."]).tolist()) <= {"bad", "good"}


def commands(verb: Any, name: str) -> Iterator[tuple[str, Any]]:
    inner = getattr(verb, "commands", None)
    for word, command in inner.items() if inner else ():
        yield from commands(command, f"{name} {word}")
    if not inner:
        yield name, verb


READING = {
    *("demo", "list", "init", "measure", "report", "view", "compare", "select", "check"),
    *("batch import", "import", "cache export", "cache merge", "cache prune"),
    *("cache convert", "effects"),
}
"""Verbs that import nothing that a file names; any other takes --trust and --trust-host."""


def test_every_verb_that_may_run_code_takes_consent() -> None:
    """A new verb fails here until it is sorted: does it only read, or may it run code?"""
    for verb in VERBS:
        for name, command in commands(Verbs().get_command(None, verb), verb):
            options = {option for param in command.params for option in param.opts}
            asked = {"--trust", "--trust-host"}
            told = options & {"--trust", "--trust-host"}
            assert told == (set() if name in READING else asked), name


@pytest.mark.parametrize(
    "address", ["os:system", "subprocess:getoutput", "subprocess:Popen", "flipmeter.cli:main"]
)
def test_a_module_that_nobody_registered_is_refused(address: str) -> None:
    with pytest.raises(Problem, match=r"would be imported.*--trust"):
        identity_of(Model(f"python/{address}"))


def test_a_package_below_the_working_folder_is_not_imported_unasked(
    received: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    (received / "pack").mkdir()
    write("pack/__init__.py", EVIL)
    path = list(sys.path)
    with pytest.raises(Problem, match="would be imported"):
        open_backend(Model("python/pack.mine:rate"))
    assert not has_run(received)
    assert sys.path == path


def test_a_registered_module_offers_its_own_callables_only(
    received: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        "offered_here.py",
        "import subprocess\nfrom functools import partial\n"
        "def rate(question): return 1\nmade = partial(rate)\nlent = partial(subprocess.run)\n",
    )
    monkeypatch.syspath_prepend(str(received))
    monkeypatch.setattr(user_code, "registered_modules", lambda: frozenset({"offered_here"}))
    assert find_callable("offered_here:rate")
    assert find_callable("offered_here:made")
    for borrowed in ("subprocess.run", "subprocess.Popen", "lent"):
        with pytest.raises(Problem, match="not its own"):
            find_callable(f"offered_here:{borrowed}")


@pytest.mark.parametrize("trust", [Trust(), Trust(code=True)])
def test_an_actor_on_another_node_has_the_consent_of_who_started_it(
    received: Path, trust: Trust
) -> None:
    model = Model("python/evil.py:rate")
    held = asyncio.run(Holder().open(model, None, open_backend, trust))
    assert isinstance(held, Problem) != trust.code
    assert has_run(received) == trust.code


def test_an_actor_on_another_node_runs_the_file_that_was_remembered(
    received: Path, cli: Cli, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("run", "evil.py", "--trust", "--remember")
    trust = Trust(digests=frozenset(remembered().code))
    monkeypatch.setenv("FLIPMETER_CONFIG", str(received / "another"))
    write("evil.py", EVIL + "# changed")
    opened = Holder().open(Model("python/evil.py:rate"), None, open_backend, trust)
    assert isinstance(asyncio.run(opened), Problem)
    assert not has_run(received)
    write("evil.py", EVIL)
    opened = Holder().open(Model("python/evil.py:rate"), None, open_backend, trust)
    assert not isinstance(asyncio.run(opened), Problem)
    assert has_run(received)


# Consent that is remembered


def test_consent_is_remembered_for_this_very_code(received: Path, cli: Cli, write: Write) -> None:
    assert cli("run", "evil.py", "--trust", "--remember")[0] == 0
    assert not has_run(received)
    assert cli("plan", "study.yaml", "--offline")[0] == 0
    assert has_run(received)
    write("evil.py", EVIL + "# changed")
    assert cli("plan", "study.yaml", "--offline")[0] == 2


def test_consent_ends_when_code_beside_the_file_changes(
    received: Path, cli: Cli, write: Write
) -> None:
    write("helper.py", "")
    cli("run", "evil.py", "--trust", "--remember")
    assert cli("plan", "study.yaml", "--offline")[0] == 0
    write("helper.py", "import os")
    assert cli("plan", "study.yaml", "--offline")[0] == 2
    write("helper.py", "")
    assert cli("plan", "study.yaml", "--offline")[0] == 0
    (received / "pack").mkdir()
    write("pack/__init__.py", "")
    assert cli("plan", "study.yaml", "--offline")[0] == 2


def test_consent_ends_when_code_behind_a_link_changes(
    received: Path, cli: Cli, write: Write
) -> None:
    (received / ".hidden").mkdir()
    write(".hidden/__init__.py", "")
    (received / "helper").symlink_to(".hidden")
    (received / ".hidden" / "again").symlink_to(".")
    cli("run", "evil.py", "--trust", "--remember")
    assert cli("plan", "study.yaml", "--offline")[0] == 0
    write(".hidden/__init__.py", "import os")
    assert cli("plan", "study.yaml", "--offline")[0] == 2


def test_consent_is_withdrawn(received: Path, cli: Cli) -> None:
    _, out, _ = cli("run", "evil.py", "--trust", "--remember", "--trust-host", "llm.example.org")
    assert "evil.py" in out
    assert "llm.example.org" in out
    _, out, _ = cli("run", "--forget", "evil.py", "--forget", "llm.example.org")
    assert "trusts nothing" in out
    assert cli("plan", "study.yaml", "--offline")[0] == 2


def test_what_is_no_python_file_cannot_be_trusted(received: Path, cli: Cli) -> None:
    assert cli("run", "nowhere.py", "--trust", "--remember")[0] == 2


@pytest.mark.parametrize("content", ["[]", "{", '{"code": 1}', '{"hosts": 1}'])
def test_a_configuration_that_cannot_be_read_trusts_nothing(
    received: Path, cli: Cli, content: str
) -> None:
    (received / "config").mkdir()
    (received / "config" / "trust.json").write_text(content)
    code, _, err = cli("plan", "study.yaml", "--offline")
    assert (code, has_run(received)) == (2, False)
    assert "trust.json" in err


def test_what_was_hashed_is_what_runs(received: Path, cli: Cli, write: Write) -> None:
    """Bytecode that lies beside a file, and counts as its own, may be of other code."""
    write("evil.py", "def rate(question): return 1\n" + "#" * 200)
    cli("run", "evil.py", "--trust", "--remember")
    write("other.py", EVIL)
    cached = importlib.util.cache_from_source(str(received / "evil.py"))
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(received / "other.py"), cached, invalidation_mode=unchecked)
    (received / "other.py").unlink()
    assert cli("plan", "study.yaml", "--offline")[0] == 0
    assert not has_run(received)


def test_a_file_that_changes_after_it_was_read_runs_as_it_was_read(
    received: Path, cli: Cli, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("evil.py", "def rate(question): return 1\n")
    cli("run", "evil.py", "--trust", "--remember")

    def swapped(path: Path, source: bytes) -> Code | None:
        found = consented(path, source)
        write("evil.py", EVIL)
        return found

    monkeypatch.setattr(user_code, "consented", swapped)
    find_callable("evil.py:rate")
    assert not has_run(received)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("LLM.example.org", "llm.example.org"),
        ("https://llm.example.org/v1", "llm.example.org"),
        ("http://127.0.0.1:8000/v1", "127.0.0.1:8000"),
        ("::1", "::1"),
    ],
)
def test_a_host_is_named_alone_or_by_an_address(text: str, host: str) -> None:
    with trusting(hosts=[text]):
        assert given().hosts == {host}


@pytest.mark.parametrize("text", ["*", "", "*.example.org", "a b", "evil.example/x", "a,b"])
def test_what_is_no_host_is_refused(received: Path, cli: Cli, text: str) -> None:
    assert cli("plan", "study.yaml", "--offline", "--trust-host", text)[0] == 2
    assert cli("run", "--remember", "--trust-host", text)[0] == 2


def test_consent_holds_where_a_loop_is_running_already(received: Path) -> None:
    async def in_a_notebook() -> list[int]:
        run = Study(**STUDY).run("run", trust=True, store=":memory:")
        other = await Study(**STUDY).arun("other", trust=True, store=":memory:")
        with pytest.raises(Problem, match="is Python code"):
            await Study(**STUDY).arun("third", store=":memory:")
        return [one.decisions.height for one in (run, other)]

    first, second = asyncio.run(in_a_notebook())
    assert first == second > 0


def test_consent_does_not_leak_out_of_its_block(received: Path) -> None:
    with trusting(code=True, hosts=["a.example"]), trusting(hosts=["B.example"]):
        assert given().code
        assert given().hosts == {"a.example", "b.example"}
    assert not given().code
    assert not given().hosts


# Links in the place of what is written

AT = "http://127.0.0.1:9/v1"
WRITTEN: dict[str, tuple[str, list[str]]] = {
    "run": ("runs/received/run.json", ["run", "study.yaml", "--trust"]),
    "progress": ("runs/received/progress.json", ["run", "study.yaml", "--trust"]),
    "labels": ("texts.labelled.csv", ["classify", "card.yaml", "texts.csv", "--trust"]),
    "labels anew": (
        "texts.labelled.csv",
        ["classify", "card.yaml", "texts.csv", "--trust", "--anew"],
    ),
    "about": ("texts.labelled.csv.about.jsonl", ["classify", "card.yaml", "texts.csv", "--trust"]),
    "part": ("texts.labelled.csv.part", ["classify", "card.yaml", "texts.csv", "--trust"]),
    "part anew": (
        "texts.labelled.csv.part",
        ["classify", "card.yaml", "texts.csv", "--trust", "--anew"],
    ),
    "batch": ("b/manifest.json", ["batch", "export", "remote.yaml", "--out", "b"]),
    "requests": ("b/requests.jsonl", ["batch", "export", "remote.yaml", "--out", "b"]),
    "init": ("made.yaml", ["init", "labelled.csv", "--out", "made.yaml", "--force"]),
    "store": (".flipmeter/replies.sqlite", ["run", "study.yaml", "--trust"]),
}


@pytest.mark.parametrize(("link", "words"), WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize("exists", [True, False])
def test_no_verb_writes_through_a_link_that_came_with_a_folder(
    received: Path, write: Write, cli: Cli, link: str, words: list[str], exists: bool
) -> None:
    with_more(write)
    target = received / "victim"
    if exists:
        target.write_text("precious")
    (received / link).parent.mkdir(parents=True, exist_ok=True)
    (received / link).symlink_to(target)
    cli(*words)
    assert target.exists() == exists
    assert not exists or target.read_text() == "precious"


@pytest.mark.parametrize("name", sorted({*WRITTEN} - {"progress", "part", "part anew"}))
def test_without_the_link_the_file_is_written(
    received: Path, write: Write, cli: Cli, name: str
) -> None:
    with_more(write)
    link, words = WRITTEN[name]
    assert cli(*words)[0] == 0
    assert (received / link).is_file()


def with_more(write: Write) -> None:
    remote = STUDY | {"models": [{"model": "http/x", "base_url": AT}]}
    write("remote.yaml", yaml.safe_dump(remote))
    write("labelled.csv", "text,label\n" + "".join(f"text {k},{k % 3}\n" for k in range(60)))
