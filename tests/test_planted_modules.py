"""A study in a folder full of modules that a stranger planted: no verb runs one of them.

Every name is planted that the standard library or an installed package has. The caches are empty
and no index is reachable, so that pip is started and fails.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import packages_distributions
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import yaml

import flipmeter
from flipmeter.cli import VERBS, Verbs
from flipmeter.show.view.folders import SMALL
from report_runs import simulated
from test_trust import commands

pytestmark = pytest.mark.long

PLANTED = """
with open({marker!r}, "a") as marker:
    marker.write(__name__ + " ")
raise ImportError("planted")
"""
MODULES = {
    *sys.stdlib_module_names,
    *packages_distributions(),
    *("flipmeter", "pip", "setuptools", "wheel", "sitecustomize", "usercustomize", "keyring"),
}
COMMAND = str(Path(sys.executable).with_name("flipmeter"))

LOCAL = "local/smollm2-135m"
STUDY = {
    "name": "received",
    "models": [LOCAL],
    "datasets": ["reviews"],
    "test_size": 5,
    "probes": ["label_order"],
    "repeats": 1,
}
STUDIES = {
    "study.yaml": STUDY,
    "tweets.yaml": STUDY | {"datasets": ["vader-tweets"], "models": ["sim/first-slot"]},
    "http.yaml": STUDY | {"models": ["openai/gpt-4o"]},
}

ARGUMENTS: Mapping[str, str] = {
    "demo": "",
    "list": "datasets",
    "init": "texts.csv --text text --label label --scale bad,good",
    "try --dry": "tweets.yaml",
    "try": "study.yaml",
    "plan": "tweets.yaml --offline",
    "run": "study.yaml --out new",
    "measure": "runs/a",
    "report": "runs/a --out report.html",
    "view": "--help",  # it does not end: it has a test of its own
    "compare": "runs/a runs/a",
    "effects": "runs/a",
    "paper --phase0": "--run phase0b=runs/a",
    "select": "runs/a",
    "confirm": "card.yaml --items 2",
    "check": "runs/a",
    "classify": "card.yaml texts.csv",
    "paper": f"--model {LOCAL} --limit 2 --only neutral-ids-help",
    "batch export": "http.yaml --out batch",
    "batch import": "texts.csv",
    "import": "log.json",
    "try --anew": LOCAL,
    "cache export": "runs/a --out replies.jsonl",
    "cache merge": "replies.sqlite --into merged.sqlite",
    "cache convert": "--store replies.sqlite",
    "cache prune": "--keep runs/a --store replies.sqlite",
    "list --out": "products.csv datasets vader-products",
}
FETCHING = {
    *("demo", "try --dry", "try", "plan", "run", "confirm", "classify", "try --anew"),
    *("list --out", "paper"),
}
"""Verbs that look for weights or data here that nobody has: each starts pip."""
LEAVES = [name for verb in VERBS for name, _ in commands(Verbs().get_command(None, verb), verb)]


@pytest.fixture(scope="module")
def received(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs, studies and a table, and beside them a file for every module's name."""
    folder = tmp_path_factory.mktemp("received")
    run = simulated(folder / "runs" / "a", test_size=100, seeds=[*range(8)])
    for k in range(SMALL // len(run.decisions) + 1):
        shutil.copytree(run.folder, folder / "many" / f"copy{k}")
    select = [COMMAND, "select", str(run.folder), "--out", str(folder / "card.yaml")]
    subprocess.run(select, check=True, capture_output=True)
    card = yaml.safe_load((folder / "card.yaml").read_text(encoding="utf-8"))
    for name, content in {**STUDIES, "card.yaml": card | {"model": LOCAL}}.items():
        (folder / name).write_text(yaml.safe_dump(content), encoding="utf-8")
    rows = [f"It went {how}.,{label}" for how, label in (("ill", "bad"), ("well", "good"))]
    (folder / "texts.csv").write_text("\n".join(["text,label", *rows * 20]), encoding="utf-8")
    (folder / "log.json").write_text("{}", encoding="utf-8")
    plant(folder, MODULES)
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An own home without caches, and pip without an index."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    kept.pop("PYTHONSAFEPATH", None)
    changed = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "OPENAI_API_KEY": "none"}
    places = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "FLIPMETER_CACHE", "FLIPMETER_CONFIG")
    return kept | changed | {name: str(tmp_path / name.lower()) for name in places}


def plant(folder: Path, names: Iterable[str]) -> None:
    code = PLANTED.format(marker=str(folder / "marker"))
    for name in filter(str.isidentifier, names):
        (folder / f"{name}.py").write_text(code, encoding="utf-8")


def planted_that_ran(folder: Path) -> str:
    marker = folder / "marker"
    ran = marker.read_text(encoding="utf-8") if marker.exists() else ""
    marker.unlink(missing_ok=True)
    return ran


def test_every_verb_is_tried() -> None:
    """A new verb fails here until it has arguments with which it comes far."""
    assert set(LEAVES) == {name.partition(" --")[0] for name in ARGUMENTS}


VERB_BY_VERB = """
import json, sys
from flipmeter.__main__ import main

for words in json.loads(sys.argv[1]):
    sys.argv = ["flipmeter", *words]
    try:
        main()
    except SystemExit:
        pass
    sys.stderr.flush()
    print("=" * 20, flush=True)
"""
"""Every verb in one process: a module is imported by the first that needs it."""


def words_of(verb: str) -> list[str]:
    return [*verb.split(), *ARGUMENTS[verb].split()]


def test_no_verb_runs_what_lies_in_the_working_folder(
    received: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "verbs.py").write_text(VERB_BY_VERB)
    done = subprocess.run(
        [sys.executable, tmp_path / "verbs.py", json.dumps([*map(words_of, ARGUMENTS)])],
        cwd=received,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = dict(zip(ARGUMENTS, done.stdout.split("=" * 20), strict=False))
    assert planted_that_ran(received) == "", said
    assert {verb for verb in said if "pip could not fetch" in said[verb]} == FETCHING, said


@pytest.mark.parametrize("verb", ["run", "measure"])
def test_the_console_script_runs_nothing_that_lies_there(
    verb: str, received: Path, environment: dict[str, str]
) -> None:
    command = [COMMAND, *words_of(verb)]
    done = subprocess.run(command, cwd=received, env=environment, capture_output=True, text=True)
    assert planted_that_ran(received) == "", done.stderr
    assert ("pip could not fetch" in done.stderr) == (verb in FETCHING), done.stderr


@contextmanager
def viewer(received: Path, environment: dict[str, str]) -> Iterator[str]:
    command = [COMMAND, "view", "many", "--port", "0"]
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(
        command, cwd=received, env=environment, stdout=subprocess.PIPE, stderr=nowhere, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def test_no_page_that_is_made_apart_runs_what_lies_in_the_working_folder(
    received: Path, environment: dict[str, str]
) -> None:
    """A page of more decisions than the viewer reads itself is made by a process of its own."""
    many = ",".join(path.name for path in (received / "many").iterdir())
    body = "Preparing the report"
    with viewer(received, environment) as address:
        while "Preparing the report" in body:
            time.sleep(0.2)
            try:
                body = urlopen(f"{address}run/{many}", timeout=600).read().decode()
            except HTTPError as error:
                body = error.read().decode()
            assert planted_that_ran(received) == ""
    assert "Read as one run" in body


def test_python_m_takes_the_working_folder_off_the_path(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """Python itself imports some modules of the standard library before that."""
    plant(tmp_path, MODULES - {*sys.stdlib_module_names, "flipmeter"})
    command = [
        sys.executable,
        "-m",
        "flipmeter",
        "list",
        "datasets",
        "vader-tweets",
        "--out",
        "x.csv",
    ]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert planted_that_ran(tmp_path) == "", done.stderr
    assert "pip could not fetch" in done.stderr


@pytest.mark.parametrize("places", [os.pathsep, f".{os.pathsep}{os.sep}nowhere"])
def test_an_entry_of_the_path_that_is_no_folder_is_not_the_working_folder(
    places: str, environment: dict[str, str], tmp_path: Path
) -> None:
    """As in `PYTHONPATH=$PYTHONPATH:...`; the interpreter itself has imported some by then."""
    by_site = {"_distutils_hack", "sitecustomize", "usercustomize"}
    plant(tmp_path, MODULES - {*sys.stdlib_module_names, *by_site, "flipmeter"})
    command = [COMMAND, "list", "datasets", "vader-tweets", "--out", "x.csv"]
    env = environment | {"PYTHONPATH": places}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert planted_that_ran(tmp_path) == "", done.stderr
    assert "pip could not fetch" in done.stderr


def test_one_function_starts_processes() -> None:
    """Anything else that starts one fails here: it would not know about the working folder."""
    starts = r"\b(Popen\(|multiprocessing|ProcessPool|create_subprocess|subprocess\.(run|c\w+)\()"
    starts += r"|\bos\.(exec|spawn|posix_spawn|system|popen|fork)"
    source = Path(flipmeter.__file__).parent
    found = [path for path in source.rglob("*.py") if re.search(starts, path.read_text("utf-8"))]
    assert [path.relative_to(source).as_posix() for path in found] == ["process.py"]
