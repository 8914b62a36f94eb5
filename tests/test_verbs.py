"""Laws over all verbs: JSON, exit codes, options with one meaning, next commands that parse."""

from __future__ import annotations

import ast
import json
import os
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, Cli
from flipmeter.cli import REPLACED, VERBS, main, open_verb
from flipmeter.cli.consoles import EXIT_CODES

CLI = ROOT / "src" / "flipmeter" / "cli"


def _reference() -> Any:
    path = ROOT / "docs" / "cli_reference.py"
    spec = util.spec_from_file_location("cli_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REFERENCE = _reference()
COMMANDS: dict[str, Any] = dict(REFERENCE.commands())


def options(command: Any) -> Iterator[Any]:
    return (one for one in command.params if one.param_type_name == "option" and one.name != "help")


# Options


@pytest.mark.parametrize("name", COMMANDS)
def test_every_verb_prints_json(name: str) -> None:
    (found,) = (one for one in options(COMMANDS[name]) if "--json" in one.opts)
    assert found.is_flag


def test_an_option_means_the_same_with_every_verb() -> None:
    """The kind of its value says what it means; a name with two kinds needs another name."""
    meanings = defaultdict(set)
    for name, command in COMMANDS.items():
        for one in options(command):
            kind = (one.is_flag, one.metavar or "", tuple(one.opts[1:]))
            meanings[one.opts[0]].add(kind)
            if not one.is_flag and one.name != "interface":
                assert one.metavar, f"{name} {one.opts[0]} needs a metavar: what is its value?"
    assert {name: kinds for name, kinds in meanings.items() if len(kinds) > 1} == {}


@pytest.mark.parametrize("name", COMMANDS)
def test_arguments_are_read_and_out_is_written(name: str) -> None:
    """A verb that writes takes the path as --out: the last argument is never overwritten."""
    told = {one.name for one in COMMANDS[name].params if one.param_type_name == "argument"}
    assert not told & {"out", "output", "target", "into"}


def test_a_short_option_stands_for_one_long_one() -> None:
    long = defaultdict(set)
    for command in COMMANDS.values():
        for one in options(command):
            for short in one.opts[1:]:
                long[short].add(one.opts[0])
    assert {short: sorted(names) for short, names in long.items()} == {
        "-d": ["--dataset"],
        "-m": ["--model"],
        "-o": ["--out"],
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_every_verb_and_option_is_explained_in_a_sentence(name: str) -> None:
    assert COMMANDS[name].help.strip().split("\n")[0].endswith(".")
    for one in options(COMMANDS[name]):
        assert one.help[0].isupper() or one.help.startswith(("promptfoo", "lm-eval")), one.opts
        assert one.help.endswith("."), one.opts


# Exit codes


def test_exit_codes_stand_in_one_place() -> None:
    for path in CLI.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("sys.exit", "fail"):
                given = [*node.args, *(one.value for one in node.keywords)]
                assert not any(
                    isinstance(one, ast.Constant) and isinstance(one.value, int) for one in given
                ), f"{path.name}: {ast.unparse(node)}"


def test_the_help_and_the_reference_list_all_exit_codes(cli: Cli) -> None:
    told = " ".join(cli("--help")[1].split())
    page = REFERENCE.reference()
    for code, meaning in EXIT_CODES.items():
        assert f"{code} {meaning}" in told
        assert f"| {code} | {meaning} |" in page


# Every verb with --json

TICKETS = "text,severity\n" + "".join(
    f'"ticket {k}, about thing {k * 7 % 11}",{("low", "medium", "high")[k % 3]}\n'
    for k in range(60)
)
STUDY = """
name: my tickets
models: [sim/first-slot]
datasets: [{file: my tickets.csv, label: severity, scale: [low, medium, high]}]
test_size: 24
probes: [label_order]
base: {shots: 1}
vary: {label_format: [letter, natural_language]}
"""
PROMPTFOO = {
    "results": {
        "results": [
            {
                "vars": {"id": f"t{k}", "order": order, "gold": "low"},
                "prompt": {"raw": "p", "label": "p"},
                "provider": {"id": "m"},
                "response": {"output": "low" if k + len(order) > 9 else "high"},
            }
            for k in range(6)
            for order in ("given", "reversed")
        ]
    }
}
RUN = "runs/my tickets"
CALLS = {
    "list": ["list", "probes"],
    "init": ["init", "my tickets.csv", "--label", "severity", "--scale", "low,medium,high"],
    "try --dry": ["try", "my study.yaml", "--dry", "--view", "reversed"],
    "try": ["try", "my study.yaml", "--limit", "1"],
    "plan": ["plan", "my study.yaml", "--set", "test_size=12"],
    "run": ["run", "my study.yaml"],
    "measure": ["measure", RUN],
    "report": ["report", RUN],
    "compare": ["compare", RUN, RUN],
    "check claims": ["check", RUN, "P1<0.10"],
    "effects": ["effects", RUN],
    "effects --reference": ["effects", "two", "--reference", "sim/honest"],
    "paper --phase0": ["paper", "--phase0", "--run", f"phase0b={RUN}"],
    "select": ["select", RUN, "--out", "my rater.yaml"],
    "confirm": ["confirm", "my rater.yaml", "--items", "12"],
    "check": ["check", RUN],
    "classify": ["classify", "my rater.yaml", "my tickets.csv", "--limit", "5"],
    "batch export": ["batch", "export", "remote.yaml", "--out", "my batch"],
    "batch import": ["batch", "import", "my batch"],
    "import": ["import", "out.json", "--item-var", "id", "--condition-var", "order"],
    "try MODEL": ["try", "sim/honest"],
    "cache export": ["cache", "export", RUN, "--out", "replies.jsonl"],
    "cache merge": ["cache", "merge", ".flipmeter/replies.sqlite", "--into", "all.sqlite"],
    "cache prune": ["cache", "prune", "--keep", RUN],
    "cache convert": ["cache", "convert"],
    "list --out": ["list", "datasets", "reviews", "--out", "my reviews.csv"],
    "paper": ["paper", "--errata", "--only", "first-seen-majority"],
}
LAST = {
    *("list", "compare", "paper --phase0", "try MODEL", "paper"),
    *("batch import", "cache export", "cache merge", "cache convert"),
}
"""The verbs that end without a next step in these calls."""
SERVERS = {"view": ["view", RUN]}
SLOW = {"demo"}
"""The demo is `run` on a study of its own; the tutorial and the real tests run it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with spaces in every name, in which the verbs can do their work in this order."""
    path = tmp_path_factory.mktemp("all verbs")
    (path / "my tickets.csv").write_text(TICKETS, encoding="utf-8")
    (path / "my study.yaml").write_text(STUDY, encoding="utf-8")
    remote = STUDY.replace("sim/first-slot", "{model: http/m, base_url: 'http://127.0.0.1:9/v1'}")
    (path / "remote.yaml").write_text(remote, encoding="utf-8")
    (path / "out.json").write_text(json.dumps(PROMPTFOO), encoding="utf-8")
    two = STUDY.replace("vary:", "vary_models: []\nvary:").replace("shots: 1", "shots: 2")
    (path / "two.yaml").write_text(two.replace("[sim/first-slot]", "[sim/honest, sim/noisy]"))
    return path


@pytest.fixture
def call(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.chdir(folder)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["flipmeter", *arguments])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capsys.readouterr()

    return run


def test_every_verb_is_called_below() -> None:
    called = {name.partition(" -")[0].removesuffix(" MODEL") for name in CALLS}
    assert {*called, *SERVERS, *SLOW} - {"check claims"} == set(COMMANDS)


@pytest.mark.parametrize("verb", REPLACED)
def test_a_verb_that_is_gone_names_what_does_its_work(call: Cli, verb: str) -> None:
    code, out, err = call(*verb.split(), "x", "--json")
    assert (code, out) == (2, "")
    assert f"no verb '{verb}'" in err
    assert REPLACED[verb].split()[0] in {*VERBS, "http/NAME", "the"}


def test_stdout_is_one_json_document_with_next_commands_that_parse(call: Cli) -> None:
    """In the order of a user's day: what one verb writes, the next one reads."""
    assert (
        call("run", "two.yaml", "--out", "two", "--set", "configs={P1: {mood: indicative}}")[0] == 0
    )
    last = set()
    for name, arguments in CALLS.items():
        if name == "batch import":
            answer_batch(Path("my batch"))
        code, out, err = call(*arguments, "--json")
        assert code in (0, 1, 3), f"{name}: {err}"
        content = json.loads(out)
        assert isinstance(content, dict), name
        for command in content.get("next", []):
            assert_parses(command)
        again = [one.replace("my batch", "my other batch") for one in arguments]
        _, people, _ = call(*again, *(["--force"] if name == "init" else []))
        said = [line for line in people.splitlines() if line.startswith("next")]
        assert len(said) == len(content.get("next", [])), name
        if not said:
            last.add(name)
    assert last == LAST


def answer_batch(folder: Path) -> None:
    """Put the results of a vendor beside the requests."""
    (requests,) = folder.glob("m-*.jsonl")
    message = {"choices": [{"message": {"content": "1"}, "finish_reason": "stop"}]}
    answers = (
        {
            "custom_id": json.loads(line)["custom_id"],
            "response": {"status_code": 200, "body": message},
        }
        for line in requests.read_text(encoding="utf-8").splitlines()
    )
    text = "".join(json.dumps(one) + "\n" for one in answers)
    (folder / "results_output.jsonl").write_text(text, encoding="utf-8")


def assert_parses(command: str) -> None:
    program, verb, *rest = shlex.split(command)
    assert program == "flipmeter"
    opened = open_verb(verb)
    if hasattr(opened, "commands"):
        opened, rest = opened.commands[rest[0]], rest[1:]
    opened.make_context(verb, rest)


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_tells_its_address_in_json(name: str, folder: Path) -> None:
    (folder / "runs").mkdir(exist_ok=True)
    arguments = ["view", "runs"] if name == "view" else SERVERS[name]
    with subprocess.Popen(
        [sys.executable, "-m", "flipmeter", *arguments, "--json"],
        cwd=folder,
        env=os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as served:
        assert served.stdout is not None
        content = json.loads(served.stdout.readline())
        served.terminate()
    assert content["address"].startswith("http://127.0.0.1:")
