"""Links that came with a folder: nothing is written, replaced or removed where they lead."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
import yaml

import flipmeter
import forked
from conftest import Cli
from flipmeter import Problem, Run, Study, read_study
from flipmeter.choose.card import write_card
from flipmeter.fetch import in_cache

STUDY = {
    "name": "theirs",
    "models": ["sim/honest"],
    "datasets": ["reviews"],
    "test_size": 12,
    "probes": ["label_order"],
}
REMOTE = STUDY | {"models": [{"model": "http/x", "base_url": "http://127.0.0.1:9/v1"}]}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's store and runs, one of them of a part of the items, and a card."""
    folder = tmp_path_factory.mktemp("made")
    store = folder / ".flipmeter" / "replies.sqlite"
    for name, size in (("part", 6), ("theirs", 12)):
        Study(**STUDY | {"test_size": size}).run(folder / "runs" / name, store=store)
    write_card(Run(folder / "runs" / "part").select().card(), folder / "rater.yaml")
    return folder


@pytest.fixture
def mine(made: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder; the working folder is a clone of somebody else's beside it."""
    shutil.copytree(made, tmp_path / "mine")
    (tmp_path / "mine" / "texts.csv").write_text("text\ngood\nbad\n")
    (tmp_path / "mine" / "victim").write_text("precious")
    clone = tmp_path / "clone"
    clone.mkdir()
    monkeypatch.chdir(clone)
    shutil.copytree(made / "runs" / "part", clone / "part")
    shutil.copy(made / ".flipmeter" / "replies.sqlite", clone / "own.sqlite")
    for name, content in (("study", STUDY), ("remote", REMOTE)):
        (clone / f"{name}.yaml").write_text(yaml.safe_dump(content))
    shutil.copy(made / "rater.yaml", clone)
    return tmp_path / "mine"


def content_of(folder: Path) -> Mapping[str, object]:
    """Every path below a folder, with its bytes or where it leads."""
    return {
        str(path.relative_to(folder)): path.readlink()
        if path.is_symlink()
        else path.read_bytes() * path.is_file()
        if not path.is_dir()
        else None
        for path in sorted(folder.rglob("*"))
    }


def link(place: str, target: str) -> None:
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    Path(place).symlink_to(target)


STORE = {".flipmeter": "../mine/.flipmeter"}
NO_STORE = {".flipmeter": "../mine/none"}
RUN = {"runs/theirs": "../../mine/runs/theirs"}
RUNS = {"runs": "../mine/runs"}
FLIPMETER = ".flipmeter is a symbolic link to ../mine"
SENT = ["--store", "own.sqlite"]
LINKS: dict[str, tuple[Mapping[str, str], Sequence[str], str]] = {
    "prune": (STORE, ["cache", "prune", "--keep", "part", "--yes"], FLIPMETER),
    "prune, reported": (STORE, ["cache", "prune", "--keep", "part"], FLIPMETER),
    "convert": (STORE, ["cache", "convert"], FLIPMETER),
    "export": (STORE, ["cache", "export", "part", "--out", "out.jsonl"], FLIPMETER),
    "a store that is used": (STORE, ["run", "study.yaml", "--set", "test_size=9"], FLIPMETER),
    "a store that is made": (NO_STORE, ["run", "study.yaml"], FLIPMETER),
    "a store of a batch": (NO_STORE, ["batch", "export", "remote.yaml", "--out", "b"], FLIPMETER),
    "a store of a trial": (NO_STORE, ["try", "study.yaml"], FLIPMETER),
    "a store of labels": (
        NO_STORE,
        ["classify", "rater.yaml", "../mine/texts.csv", "--out", "labels.csv"],
        FLIPMETER,
    ),
    "a loop": ({".flipmeter": ".flipmeter"}, ["run", "study.yaml"], "link to .flipmeter"),
    "a link to a link": (
        {".flipmeter": "x", "x": "../mine/.flipmeter"},
        ["cache", "prune", "--keep", "part", "--yes"],
        ".flipmeter is a symbolic link to x",
    ),
    **{
        f"the {ending} of a store": (
            {f".flipmeter/replies.sqlite{ending}": "../../mine/victim"},
            ["run", "study.yaml"],
            f".flipmeter/replies.sqlite{ending} is a symbolic link",
        )
        for ending in ("", "-wal", "-shm", "-journal")
    },
    "a run": (RUN, ["run", "study.yaml", *SENT], "runs/theirs is a symbolic link to ../../mine"),
    "the folder of runs": (
        RUNS,
        ["run", "study.yaml", *SENT],
        "runs is a symbolic link to ../mine",
    ),
    "the manifest of a run": (
        {"runs/theirs/run.json": "../../../mine/victim"},
        ["run", "study.yaml", *SENT],
        "runs/theirs/run.json is a symbolic link",
    ),
    "the heartbeat of a run": (
        {"runs/theirs/progress.json": "../../../mine/victim"},
        ["run", "study.yaml", *SENT],
        "runs/theirs/progress.json is a symbolic link",
    ),
    "the manifest of a named run": (
        {"given/run.json": "../../mine/victim"},
        ["run", "study.yaml", *SENT, "--out", "given"],
        "given/run.json is a symbolic link",
    ),
    "a report": (RUN, ["report", "runs/theirs"], "runs/theirs is a symbolic link"),
    "a report of a folder of runs": (RUNS, ["report", "runs/theirs"], "runs is a symbolic link"),
    "several reports": (
        {"report.html": "../mine/victim"},
        ["report", "part", "part"],
        "report.html is a symbolic link",
    ),
    "labels": (
        {"data": "../mine"},
        ["classify", "rater.yaml", "data/texts.csv", *SENT],
        "data is a symbolic link to ../mine",
    ),
    "a batch": (
        {"b/requests.jsonl": "../../mine/new"},
        ["batch", "export", "remote.yaml", "--out", "b"],
        "b/requests.jsonl is a symbolic link",
    ),
    "a confirmation": (
        {"runs/rater-confirm": "../../mine/runs/theirs"},
        ["confirm", "rater.yaml", "--items", "4", *SENT],
        "runs/rater-confirm is a symbolic link",
    ),
    "a demo": ({"runs/demo": "../../mine/runs/theirs"}, ["demo", *SENT], "runs/demo is a"),
    "an answer to the paper": (
        {"runs/paper": "../../mine/runs"},
        ["paper", "--run", "phase1=part"],
        "runs/paper is a symbolic link",
    ),
    "the tables of an answer": (
        {"given/tables": "../../mine/runs"},
        ["paper", "--run", "phase1=part", "--out", "given"],
        "given/tables is a symbolic link",
    ),
}


@pytest.mark.parametrize(("links", "words", "told"), LINKS.values(), ids=LINKS)
def test_a_link_of_the_folder_is_refused_by_name(
    mine: Path, cli: Cli, links: Mapping[str, str], words: Sequence[str], told: str
) -> None:
    before = content_of(mine)
    for place, target in links.items():
        link(place, target)
    code, _, err = cli(*words)
    assert content_of(mine) == before
    assert code == 2
    assert told in " ".join(err.split())


@pytest.mark.parametrize("name", ["prune", "a run", "a report", "a store of a batch"])
def test_the_console_script_refuses_it_too(mine: Path, name: str) -> None:
    links, words, told = LINKS[name]
    before = content_of(mine)
    for place, target in links.items():
        link(place, target)
    done = forked.run(*words)
    assert content_of(mine) == before
    assert (done.returncode, told in " ".join(done.stderr.split())) == (2, True)


def test_a_phase_of_the_paper_is_not_run_through_a_link(mine: Path, cli: Cli) -> None:
    before = content_of(mine)
    link("given/runs", "../../mine/runs")
    words = ["--model", "sim/honest", "--limit", "4", *SENT, "--out", "given"]
    _, out, _ = cli("paper", *words)
    assert content_of(mine) == before
    assert "given/runs is a symbolic link" in " ".join(out.split())


HIS: dict[str, tuple[Sequence[str], str]] = {
    "a run": (["run", "study.yaml", *SENT, "--out", "link"], "run.json"),
    "a run below it": (["run", "study.yaml", *SENT, "--out", "link/a/b"], "a/b/run.json"),
    "a store": (["run", "study.yaml", "--store", "link/r.sqlite"], "r.sqlite"),
    "a report": (["report", "part", "--out", "link/r.html"], "r.html"),
    "a table": (["measure", "part", "--out", "link/t.csv"], "t.csv"),
    "a card": (["select", "part", "--out", "link/c.yaml"], "c.yaml"),
    "a gate": (["check", "part", "--junit", "link/g.xml"], "g.xml"),
    "a summary": (["check", "part", "--markdown", "link/g.md"], "g.md"),
    "a study": (["init", "../mine/texts.csv", "--unlabelled", "--text", "text", "--scale", "a,b",
                 "--out", "link/s.yaml"], "s.yaml"),
    "data": (["list", "datasets", "reviews", "--out", "link/d.csv"], "d.csv"),
    "an export": (["cache", "export", "own.sqlite", "--out", "link/e.jsonl"], "e.jsonl"),
    "a merged store": (["cache", "merge", "own.sqlite", "--into", "link/m.sqlite"], "m.sqlite"),
    "a store to read": (["cache", "merge", "link/theirs.sqlite", "--into", "m.sqlite"], ""),
    "a store to export": (["cache", "export", "link/theirs.sqlite", "--out", "e.jsonl"], ""),
    "a batch": (["batch", "export", "remote.yaml", "--out", "link"], "manifest.json"),
    "labels": (["classify", "rater.yaml", "../mine/texts.csv", *SENT, "--out", "link/l.csv"],
               "l.csv"),
    "an answer": (["paper", "--run", "phase1=part", "--out", "link"], "tables"),
}  # fmt: skip


@pytest.mark.parametrize(("words", "name"), HIS.values(), ids=HIS)
def test_a_link_that_the_user_names_to_be_written_is_followed(
    mine: Path, cli: Cli, words: Sequence[str], name: str
) -> None:
    (mine / "new").mkdir()
    shutil.copy("own.sqlite", mine / "new" / "theirs.sqlite")
    link("link", "../mine/new")
    code, _, err = cli(*words)
    assert code in (0, 1, 3, 4), err  # the rater knows none of the texts
    assert (mine / "new" / name).exists()


def test_the_default_is_the_users_too_if_it_is_named(mine: Path, cli: Cli) -> None:
    link(".flipmeter", "../mine/.flipmeter")
    words = ["cache", "prune", "--keep", "part", "--yes"]
    assert cli(*words, "--store", ".flipmeter/replies.sqlite")[0] == 0
    assert cli(*words)[0] == 2


@pytest.mark.parametrize("name", ["loop/x", "loop", "study.yaml/x"])
def test_a_path_that_cannot_be_written_is_said_to_be_so(mine: Path, cli: Cli, name: str) -> None:
    link("loop", "loop")
    for words in (
        ["run", "study.yaml", *SENT, "--out", name],
        ["run", "study.yaml", "--store", name],
        ["report", "part", "--out", f"{name}.html"],
        ["batch", "export", "remote.yaml", "--out", name],
        ["cache", "export", "own.sqlite", "--out", f"{name}.jsonl"],
        ["classify", "rater.yaml", "../mine/texts.csv", *SENT, "--out", f"{name}.csv"],
    ):
        code, _, err = cli(*words)
        assert (code, bool(err)) in ((2, True), (4, True), (0, False)), words


@pytest.mark.parametrize("verb", ["select", "measure", "check"])
def test_a_run_in_a_loop_of_links_is_said_to_be_no_run(mine: Path, cli: Cli, verb: str) -> None:
    link("loop", "loop")
    code, _, err = cli(verb, "loop/x")
    assert (code, "loop/x" in err) == (2, True)


def test_a_link_above_the_working_folder_does_not_matter(
    mine: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link("../way", "clone")
    monkeypatch.chdir(tmp_path / "way")
    assert cli("run", "study.yaml")[0] == 0
    assert cli("report", str(tmp_path / "way" / "runs" / "theirs"))[0] == 0


def test_a_run_is_read_through_a_link(mine: Path, cli: Cli) -> None:
    link("run", "../mine/runs/theirs")
    for words in (["measure", "run"], ["check", "run"], ["check", "run", "P1<0.9"]):
        assert cli(*words)[0] in (0, 1, 3)


def test_a_cache_behind_a_link_is_the_users(
    mine: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mine / "config").mkdir()
    link("config", "../mine/config")
    monkeypatch.setenv("FLIPMETER_CONFIG", "config")
    Path("own.py").write_text("def rate(question): return 1\n")
    assert cli("run", "own.py", "--trust", "--remember")[0] == 0
    assert (mine / "config" / "trust.json").is_file()


def test_a_link_in_a_cache_is_not_written_through(
    mine: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("cache", str(Path("cache").absolute())):
        monkeypatch.setenv("FLIPMETER_CACHE", place)
        shutil.rmtree("cache", ignore_errors=True)
        link("cache/models", "../../mine")
        with pytest.raises(Problem, match="cache/models is a symbolic link"):
            in_cache("models/new", "0" * 64, lambda path: None, "", "")
        assert sorted(mine.glob("new*")) == []


def test_nothing_is_asked_for_a_run_that_cannot_be_written(mine: Path, cli: Cli) -> None:
    link("runs/theirs", "../../mine/runs/theirs")
    assert cli("run", "study.yaml")[0] == 2
    assert not Path(".flipmeter").exists()


def test_in_python_an_argument_is_the_users_and_a_default_is_not(mine: Path) -> None:
    link("runs/theirs", "../../mine/runs/theirs")
    study, before = read_study("study.yaml"), content_of(mine)
    with pytest.raises(Problem, match="runs/theirs is a symbolic link"):
        study.run(store="own.sqlite")
    assert content_of(mine) == before
    with pytest.raises(Problem, match="runs/theirs is a symbolic link"):
        Run("runs/theirs").report()
    assert content_of(mine) == before
    study.run("runs/theirs", store="own.sqlite")
    assert content_of(mine) != before


def test_what_is_left_of_a_dead_process_is_removed_but_not_through_a_link(
    mine: Path, cli: Cli
) -> None:
    before = content_of(mine)
    link("runs/theirs/g-0123456789ab", "../../../mine/runs")
    assert cli("run", "study.yaml", *SENT)[0] == 0
    assert content_of(mine) == before


# What writes, by the source

SOURCE = Path(flipmeter.__file__).parent
MAKING = {
    *("write_text", "write_bytes", "mkdir", "makedirs", "touch", "truncate", "mkdtemp"),
    *("unlink", "rmdir", "removedirs", "rmtree", "symlink_to", "hardlink_to"),
    *("copyfile", "copy2", "copytree", "move", "extractall", "write_parquet", "write_ndjson"),
    *("sink_parquet", "sink_csv", "sink_ndjson"),
    *("TemporaryDirectory", "TemporaryFile", "NamedTemporaryFile"),
    *("os.open", "os.remove", "sqlite3.connect"),
}
OURS = {"write_text"}
"""Of the one module."""
MODE = re.compile(r"[rwaxbt+]*[wax+][rwaxbt+]*")
DOORS = {
    ("ask/store.py", "sqlite3.connect"): "the door of SQLite, by the name of a file",
    ("documents.py", "os.open"): "reads",
    # In a folder that this process has just made under a name that nobody can know.
    ("fetch.py", "TemporaryDirectory"): "that folder",
    ("fetch.py", "mkdir"): "in it",
    ("fetch.py", "touch"): "in it",
    ("fetch.py", "write_text"): "in it",
    ("fetch.py", "open"): "in it",
    ("ask/merge.py", "TemporaryDirectory"): "that folder",
    ("paper/evidence.py", "TemporaryDirectory"): "that folder",
    ("pytest_plugin.py", "mkdtemp"): "that folder",
    ("pytest_plugin.py", "mkdir"): "pytest's own, which names its cache",
    ("run/perform.py", "sink_parquet"): "in it",
    ("run/spill.py", "write_parquet"): "in it",
    ("ask/export.py", "sink_parquet"): "beside what `fresh` gave",
    ("ask/rescue.py", "os.open"): "the new file that `fresh` gave",
    # Without a name, in a folder that was looked at.
    ("run/perform.py", "TemporaryFile"): "no name",
    ("ask/rescue.py", "TemporaryFile"): "no name",
    # What is open already, or an empty folder.
    ("printed.py", "os.open"): "the system's own /dev/null",
    ("choose/classify.py", "truncate"): "an open file",
    ("show/table.py", "write_parquet"): "an open file",
    ("run/spill.py", "rmdir"): "an empty folder",
    ("run/heartbeat.py", "rmdir"): "an empty folder",
}
"""Calls that write elsewhere than in the one module, and why they may."""


def writers_of(tree: ast.AST) -> Iterator[str]:
    """The calls by which a module may write a file, or make or remove one, by what is called.

    What renames is left out: it follows no link in the place of the new name.
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or (whole := ast.unparse(node.func)) in OURS:
            continue
        name = whole.rpartition(".")[2]
        given = [*node.args, *(word.value for word in node.keywords)]
        modes = [one.value for one in given if isinstance(one, ast.Constant)]
        is_opened = name == "open" and any(MODE.fullmatch(str(mode)) for mode in modes)
        if is_opened or {whole, name} & MAKING:
            yield whole if whole in MAKING else name


def test_one_module_opens_for_writing() -> None:
    found = {
        (str(path.relative_to(SOURCE)), name)
        for path in SOURCE.rglob("*.py")
        for name in writers_of(ast.parse(path.read_text(encoding="utf-8")))
        if path != SOURCE / "files.py"
    }
    assert found - DOORS.keys() == set(), "use files.py, which refuses links"
    assert DOORS.keys() - found == set()


@pytest.mark.parametrize(
    "line",
    [
        'open(path, "w")', 'path.open("ab")', 'path.open(mode="r+")', "path.write_text(text)",
        "path.mkdir()", "shutil.rmtree(path)", "sqlite3.connect(path)", "os.open(path, flags)",
        "os.remove(path)", "table.sink_parquet(path)", "TemporaryDirectory()",
    ],
)  # fmt: skip
def test_the_law_knows_what_writes(line: str) -> None:
    assert [*writers_of(ast.parse(line))] != []
