"""Reading a run folder, store or table that a stranger sent: no code, no network, no links."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import polars as pl
import pytest
import yaml

from conftest import Cli
from flipmeter import Problem, Run, Study, read_predictions
from flipmeter.ask.store import Store
from flipmeter.consent import trusting
from flipmeter.run.generation import MANIFEST, _sweep
from flipmeter.run.heartbeat import PROGRESS, read_beat
from flipmeter.show.residuals import residuals_markdown
from flipmeter.show.view.folders import RunFolders
from flipmeter.show.view.server import open_view
from flipmeter.types import canonical_json

EVIL = """
from pathlib import Path
import sys
Path(__file__).with_name("marker").write_text("was here")
def rate(question): return 1 + len(question.text) % len(question.labels)
"""
VICTIM = "precious\n"


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a callable, a card and a store, as they arrive from somebody else."""
    folder = tmp_path_factory.mktemp("sent")
    (folder / "evil.py").write_text(EVIL)
    address = f"python/{folder / 'evil.py'}:rate"
    study = Study(
        name="sent",
        models=[{"model": address, "name": "theirs"}],
        datasets=["reviews"],
        test_size=20,
        probes=["label_order"],
        vary={"label_format": ["letter"]},
    )
    with trusting(code=True):
        study.run(folder / "run", store=folder / "replies.sqlite")
    (folder / "marker").unlink()
    return folder


@pytest.fixture
def received(sent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same in a folder of one's own, where nothing may be sent."""
    monkeypatch.chdir(tmp_path)
    for name in ("run", "replies.sqlite"):
        place = sent / name
        (shutil.copytree if place.is_dir() else shutil.copy)(place, tmp_path / name)
    (tmp_path / "victim").write_text(VICTIM)

    def refuse(*_: object, **__: object) -> Any:
        raise AssertionError("something was sent")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return tmp_path


def is_safe(sent: Path, received: Path) -> bool:
    """Whether no code has run, and nothing was written through a link."""
    return not (sent / "marker").exists() and (received / "victim").read_text() == VICTIM


READING: dict[str, list[str]] = {
    "measure": ["measure", "run"],
    "measure --show": ["measure", "run", "--show", "direction"],
    "report": ["report", "run"],
    "report .md": ["report", "run", "--out", "out.md"],
    "compare": ["compare", "run", "run"],
    "check": ["check", "run", "--markdown", "gate.md", "--junit", "gate.xml"],
    "select": ["select", "run", "--out", "card.yaml"],
    "cache export": ["cache", "export", "run", "--out", "out.jsonl", "--store", "replies.sqlite"],
    "cache prune": ["cache", "prune", "--keep", "run", "--store", "replies.sqlite", "--yes"],
    "cache merge": ["cache", "merge", "replies.sqlite", "--into", "merged.sqlite"],
    "cache convert": ["cache", "convert", "--store", "replies.sqlite"],
    "effects": ["effects", "run"],
}


@pytest.mark.parametrize("words", READING.values(), ids=READING)
def test_a_verb_that_reads_runs_no_code_and_sends_nothing(
    sent: Path, received: Path, cli: Cli, words: list[str]
) -> None:
    code, _, err = cli(*words)
    assert code in (0, 1, 3), err
    assert is_safe(sent, received)


def test_the_viewer_runs_no_code(sent: Path, received: Path) -> None:
    entries = RunFolders([received]).entries()
    assert [entry.summary.title for entry in entries.values()] == ["sent"]
    assert is_safe(sent, received)


def test_no_page_of_the_viewer_runs_code(sent: Path) -> None:
    async def visited() -> list[int]:
        async with open_view(RunFolders([sent])) as url, aiohttp.ClientSession() as browser:
            pages = ["", "run/run", "run/run/flips", "compare?first=run&second=run"]
            return [(await browser.get(url + page)).status for page in pages]

    assert asyncio.run(visited()) == [200] * 4
    assert not (sent / "marker").exists()


# Links

OUTPUTS: dict[str, tuple[str, list[str]]] = {
    "report": ("run/report.html", ["report", "run"]),
    **{
        f"report {ending}": (f"out{ending}", ["report", "run", "--out", f"out{ending}"])
        for ending in (".html", ".md", ".tex", ".csv", ".parquet")
    },
    **{
        f"measure {ending}": (
            f"out{ending}",
            ["measure", "run", "--show", "direction", "--out", f"out{ending}"],
        )
        for ending in (".csv", ".parquet")
    },
    "check --markdown": ("gate.md", ["check", "run", "--markdown", "gate.md"]),
    "check --junit": ("gate.xml", ["check", "run", "--junit", "gate.xml"]),
    "select": ("card.yaml", ["select", "run", "--out", "card.yaml"]),
    "compare": ("out.csv", ["compare", "run", "run", "--out", "out.csv"]),
    **{
        f"{verb} {ending}": (f"out{ending}", [verb, "run", *claim, "--out", f"out{ending}"])
        for verb, claim, endings in (
            ("check", ["P1<0.3"], (".csv", ".parquet")),
            ("effects", [], (".csv", ".md", ".tex")),
        )
        for ending in endings
    },
    "cache export": (
        "out.jsonl",
        ["cache", "export", "run", "--out", "out.jsonl", "--store", "replies.sqlite"],
    ),
    "cache export scratch": (
        "out.jsonl.lines",
        ["cache", "export", "run", "--out", "out.jsonl", "--store", "replies.sqlite"],
    ),
    "cache export scratch of Parquet": (
        "out.parquet.lines.new",
        ["cache", "export", "run", "--out", "out.parquet", "--store", "replies.sqlite"],
    ),
    "list": ("out.csv", ["list", "datasets", "reviews", "--out", "out.csv"]),
}


@pytest.mark.parametrize(("link", "words"), OUTPUTS.values(), ids=OUTPUTS)
@pytest.mark.parametrize("exists", [True, False])
def test_nothing_is_written_through_a_link(
    sent: Path, received: Path, cli: Cli, link: str, words: list[str], exists: bool
) -> None:
    target = received / ("victim" if exists else "absent")
    (received / link).symlink_to(target)
    code, _, err = cli(*words)
    assert is_safe(sent, received)
    assert not (received / "absent").exists()
    if ".lines" not in link:
        assert code == 2
        assert "is a symbolic link" in " ".join(err.split())


def test_a_store_behind_a_link_is_not_opened(received: Path, cli: Cli) -> None:
    (received / "link.sqlite").symlink_to(received / "replies.sqlite")
    before = (received / "replies.sqlite").read_bytes()
    for words in (
        ["cache", "prune", "--keep", "run", "--store", "link.sqlite", "--yes"],
        ["cache", "merge", "replies.sqlite", "--into", "link.sqlite"],
        ["cache", "export", "link.sqlite", "--out", "out.jsonl"],
    ):
        code, _, err = cli(*words)
        assert code == 2
        assert "is a symbolic link" in " ".join(err.split())
    assert (received / "replies.sqlite").read_bytes() == before


def generation(run: Path) -> Path:
    return run / str(json.loads((run / MANIFEST).read_text())["generation"])


def write_manifest(run: Path, told: dict[str, Any]) -> None:
    """Write a manifest as a stranger can: with a seal that fits."""
    content = {name: value for name, value in told.items() if name != "seal"}
    seal = hashlib.sha256(canonical_json(content).encode()).hexdigest()
    (run / MANIFEST).write_text(json.dumps(content | {"seal": seal}))


def linked(place: Path, elsewhere: Path) -> None:
    """Move something away and leave a link to it."""
    place.rename(elsewhere)
    place.symlink_to(elsewhere)


NAMES = ["study.yaml", "items.parquet", "conditions.parquet", "prompts.parquet", "calls.parquet"]


@pytest.mark.parametrize("name", [MANIFEST, "generation", "decisions.parquet", *NAMES])
def test_a_run_folder_that_leads_elsewhere_is_refused(received: Path, cli: Cli, name: str) -> None:
    place = received / "run"
    inner = generation(place)
    target = {MANIFEST: place / MANIFEST, "generation": inner}.get(name, inner / name)
    linked(target, received / "elsewhere")
    if target.parent == inner:  # the size of a link is the length of its target
        told = json.loads((place / MANIFEST).read_text())
        told["files"][name]["n_bytes"] = target.lstat().st_size
        write_manifest(place, told)
    for verb in ("measure", "report", "select", "check"):
        code, _, err = cli(verb, "run")
        assert code == 2
        assert "symbolic link" in " ".join(err.split())


@pytest.mark.parametrize("name", [MANIFEST, "calls.parquet"])
def test_a_pipe_in_a_run_folder_is_not_waited_for(received: Path, cli: Cli, name: str) -> None:
    place = received / "run"
    target = place / name if name == MANIFEST else generation(place) / name
    target.unlink()
    os.mkfifo(target)
    for verb in ("measure", "report", "select", "check"):
        code, _, err = cli(verb, "run")
        assert code == 2
        assert name in " ".join(err.split())


def test_pipes_and_links_that_look_like_generations_or_beats_are_left_alone(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "g-pipe")
    os.mkfifo(tmp_path / PROGRESS)
    (tmp_path / "g-link").symlink_to("nowhere")
    assert read_beat(tmp_path) is None
    _sweep(tmp_path)
    assert (tmp_path / "g-pipe").exists()


@pytest.mark.parametrize("name", ["../../victim", "/etc/passwd", "x", ""])
def test_a_manifest_names_files_of_a_run_only(received: Path, name: str) -> None:
    path = received / "run" / MANIFEST
    told = json.loads(path.read_text())
    told["files"][name] = {"n_bytes": 9, "sha256": ""}
    write_manifest(path.parent, told)
    with pytest.raises(Problem, match=r"run\.json is damaged"):
        Run("run").decisions  # noqa: B018


@pytest.mark.parametrize("name", ["g-../../x", "g-", "../g-1", "g-a/b", "/g-1"])
def test_a_manifest_names_a_generation_in_its_folder(received: Path, name: str) -> None:
    path = received / "run" / MANIFEST
    told = json.loads(path.read_text()) | {"generation": name}
    write_manifest(path.parent, told)
    with pytest.raises(Problem, match=r"run\.json is damaged"):
        Run("run").decisions  # noqa: B018


def test_the_study_of_a_run_reads_no_file_elsewhere(received: Path) -> None:
    """A run holds the text of its prompt files; one that only names them is no run."""
    place, secret = received / "run", received / "secret.md"
    secret.write_text("{{ labels }} {{ text }} secret")
    path = generation(place) / "study.yaml"
    content = yaml.safe_load(path.read_text())
    content["base"] = {"prompt": str(secret)}
    path.write_text(yaml.safe_dump(content))
    told = json.loads((place / MANIFEST).read_text())
    told["files"]["study.yaml"] = {
        "n_bytes": path.stat().st_size,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    write_manifest(place, told)
    with pytest.raises(Problem, match="no prompt file"):
        Run("run").study  # noqa: B018


def test_the_viewer_follows_no_link_to_other_runs(received: Path, tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    (shelf / "link").symlink_to(received / "run")
    assert RunFolders([shelf]).entries() == {}


# Names


BAD_NAMES = [
    "../../x", "..", ".", "", " ", "/abs", "a/b", "a\\b", "x\0y", "x" * 300, ".hidden", "a\nb",
    "C:x", "\u00e9" * 120, "~", "-rf",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_study_that_is_no_file_name_is_refused(received: Path, cli: Cli, name: str) -> None:
    content = {"name": name, "models": ["sim/honest"], "datasets": ["reviews"]}
    with pytest.raises(Problem, match="a name is 1 to"):
        Study(**content)
    (received / "study.yaml").write_text(yaml.safe_dump(content))
    code, _, err = cli("run", "study.yaml", "--limit", "5")
    assert code == 2
    assert "a name is 1 to" in " ".join(err.split())
    assert sorted(path.name for path in received.parent.iterdir() if path.name == "x") == []


@pytest.mark.parametrize("name", ["study", "My rater 2", "k=3, v=5", "\u00fcbung", "a.b", "x[1]*?"])
def test_other_names_are_fine(name: str) -> None:
    assert Study(name=name, models=["sim/honest"], datasets=["reviews"]).name == name


# Glob characters mean themselves


@pytest.mark.parametrize("name", ["a*", "x[1]", "a?", "{a,b}", "**", "~"])
def test_a_folder_or_file_with_glob_characters_is_itself(
    received: Path, cli: Cli, name: str
) -> None:
    for other in ("ab", "x1", "a", "b"):
        shutil.copytree(received / "run", received / other)
    run = received / name
    (received / "run").rename(run)
    assert cli("measure", f"./{name}")[0] in (0, 1, 3)
    expected = Run("ab").estimates
    assert Run(f"./{name}").estimates.equals(expected)
    assert cli("report", f"./{name}")[0] == 0
    code, _, err = cli(
        *("cache", "export", f"./{name}", "--out", f"./{name}.parquet", "--store", "replies.sqlite")
    )
    assert code == 0, err
    assert pl.read_parquet(f"./{name}.parquet", glob=False).height > 0
    for ending, write in (
        (".csv", pl.DataFrame.write_csv),
        (".jsonl", pl.DataFrame.write_ndjson),
        (".parquet", pl.DataFrame.write_parquet),
    ):
        write_as: Callable[..., Any] = write
        table = pl.DataFrame({"item": ["t"], "condition": ["a"], "label": [1]})
        write_as(table, received / f"a{ending}")
        rows = pl.DataFrame(
            {"item": ["t", "t"], "condition": ["base", "c"], "label": [1, 2], "gold": [1, 1]}
        )
        with (received / f"{name}{ending}").open("wb") as file:
            write_as(rows, file)
        assert Run(f"./{name}{ending}", scale=["1", "2"]).decisions.height == 2


def test_a_long_run_in_a_folder_with_glob_characters_reads_its_own_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flipmeter.run.spill.MANY", 20)
    monkeypatch.chdir(tmp_path)
    study = Study(models=["sim/honest"], datasets=["reviews"], test_size=30, repeats=1)
    plain = study.run("plain", store=":memory:")
    for name in ("x[1]", "./~"):
        assert study.run(name, store=":memory:").decisions.equals(plain.decisions)


# Markdown


def test_no_table_in_markdown_calls_anybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study = Study(
        name="@everyone",
        models=[
            {"model": "sim/honest", "name": "@torvalds"},
            {"model": "sim/first-slot?strength=4", "name": "a@octocat"},
        ],
        datasets=["reviews"],
        test_size=20,
        probes=["label_order"],
        configs={"@team": {"label_format": "letter"}},
        vary={"mood": ["indicative"]},
    )
    run = study.run("run", store=":memory:")
    run.report("report.md")
    texts = [Path("report.md").read_text(), residuals_markdown(run.residuals())]
    texts.append(residuals_markdown(run.transfer("@torvalds")))
    for text in texts:
        assert "@" not in text
    assert "&#64;torvalds" in texts[0]


def hot_journal(victim: Path, n_pages: int) -> bytes:
    """A journal of SQLite that is to be rolled back, and names a file that is deleted then."""
    magic, name = bytes.fromhex("d9d505f920a163d7"), str(victim).encode()
    head = magic + struct.pack(">IIIII", 0, 1, n_pages, 512, 4096)
    last = struct.pack(">II", len(name), sum(name)) + magic
    return head.ljust(512, b"\0") + struct.pack(">I", 2**30 // 4096 + 1) + name + last


def test_a_journal_beside_a_store_deletes_no_file(tmp_path: Path, cli: Cli) -> None:
    path, victim = tmp_path / "s.sqlite", tmp_path / "precious"
    Store(path).close()
    victim.write_text("mine")
    journal = hot_journal(victim, path.stat().st_size // 4096)
    (tmp_path / "s.sqlite-journal").write_bytes(journal)
    for command in (
        ["export", str(path), "--out", "out.jsonl"],
        ["merge", str(path), "--into", "a.sqlite"],
    ):
        code, _, said = cli("cache", *command)
        assert (code, victim.read_text()) == (2, "mine")
        assert "s.sqlite-journal next to it belongs to another file" in said


def test_a_journal_of_a_killed_prune_is_still_rolled_back(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    Store(path).close()
    whole = path.read_bytes()
    code = (
        "import os, sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "db.execute('PRAGMA journal_mode=DELETE'); db.execute('PRAGMA cache_size=1');"
        "db.execute('BEGIN'); db.execute('DROP TABLE replies');"
        "db.execute('CREATE TABLE big AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1"
        " FROM n LIMIT 90000) SELECT hex(zeroblob(50)) FROM n'); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    assert (tmp_path / "s.sqlite-journal").stat().st_size
    assert path.read_bytes()[4096:] != whole[4096:]
    with Store(path) as store:
        assert len(store) == 0


def test_no_name_or_text_commands_the_terminal(tmp_path: Path, cli: Cli) -> None:
    name = "\x1b]0;title\x07\x1b[2J\x9b31mevil"
    rows = [
        f"{name},i{k},{c},{1 + k % 2},{1 + k % 3 % 2}"
        for k in range(30)
        for c in ("base", "swapped")
    ]
    (tmp_path / "p.csv").write_text("\n".join(["rater,item,condition,label,prediction", *rows]))
    code, out, err = cli("measure", str(tmp_path / "p.csv"))
    assert code == 0
    assert "evil" in out
    assert not set("\x1b\x07\x9b") & {*out, *err}
    shown = str(read_predictions(tmp_path / "p.csv"))
    assert not set("\x1b\x07\x9b") & {*shown}
    code, out, err = cli("measure", str(tmp_path / f"{name}.csv"))
    assert code == 2
    assert not set("\x1b\x07\x9b") & {*out, *err}
