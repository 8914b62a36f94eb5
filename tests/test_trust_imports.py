"""What runs with a rater is what was consented to: every way to change it is refused."""

from __future__ import annotations

import importlib.util
import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
import yaml

import forked
from conftest import Cli
from flipmeter import OrdinalClassifier, Problem

EVIL = "from pathlib import Path\nPath('marker').write_text('was here')\n"
HEAD = "import os, sys\nfrom pathlib import Path\nHERE = Path(__file__).parent\n"
JUDGE = (
    HEAD
    + """
sys.path.insert(0, str(HERE))
import helper
def rate(question):
    import later
    return helper.rank(question) + later.ZERO
"""
)
HELPER = "def rank(question): return 1 + len(question.text) % len(question.labels)\n"
STUDY = {
    "name": "received",
    "models": ["python/judge.py:rate"],
    "datasets": ["reviews"],
    "test_size": 3,
    "probes": ["label_order"],
    "repeats": 1,
}

Console = Callable[..., subprocess.CompletedProcess[str]]
Change = Callable[[Path], object]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A rater with two neighbours, of which one is imported when it is called."""
    monkeypatch.setenv("FLIPMETER_CONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "500")
    inner = tmp_path / "received"
    inner.mkdir()
    (inner / "judge.py").write_text(JUDGE)
    (inner / "helper.py").write_text(HELPER)
    (inner / "later.py").write_text("ZERO = 0\n")
    (inner / "study.yaml").write_text(yaml.safe_dump(STUDY))
    return inner


@pytest.fixture
def console(folder: Path) -> Console:
    """The console script in the folder of the rater."""

    def call(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return forked.run(*words, cwd=folder, env=os.environ | more)

    return call


@pytest.fixture
def remember(folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Consent to the rater as it is now."""

    def call() -> None:
        monkeypatch.chdir(folder)
        assert cli("run", "judge.py", "--trust", "--remember")[0] == 0

    return call


def has_run(folder: Path) -> bool:
    return (folder / "marker").exists()


def rate_by(folder: Path, code: str) -> None:
    (folder / "judge.py").write_text(HEAD + code)


# What is changed between the consent and the run


def edit(folder: Path) -> None:
    (folder / "helper.py").write_text(HELPER + EVIL)


def edit_lazy(folder: Path) -> None:
    (folder / "later.py").write_text("ZERO = 0\n" + EVIL)


def shadow_by_package(folder: Path) -> None:
    (folder / "helper").mkdir()
    (folder / "helper" / "__init__.py").write_text(HELPER + EVIL)


def shadow_by_bytecode(folder: Path) -> None:
    (folder / "helper").mkdir()
    (folder / "evil.py").write_text(HELPER + EVIL)
    py_compile.compile(str(folder / "evil.py"), str(folder / "helper" / "__init__.pyc"))
    (folder / "evil.py").unlink()


def shadow_standard(folder: Path) -> None:
    (folder / "json.py").write_text(EVIL)


def shadow_by_extension(folder: Path) -> None:
    (folder / f"helper{EXTENSION_SUFFIXES[0]}").write_bytes(b"")


def replace_target(folder: Path) -> None:
    """The rater is a link, and another folder takes the place of its own."""
    target = folder.parent / "elsewhere"
    (target / "judge.py").write_text(JUDGE + EVIL)


def replace_neighbour_of_target(folder: Path) -> None:
    (folder.parent / "elsewhere" / "helper.py").write_text(HELPER + EVIL)


def put_behind_link(folder: Path) -> None:
    target = folder.parent / "elsewhere"
    target.mkdir()
    for name in ("judge.py", "helper.py", "later.py"):
        (folder / name).rename(target / name)
    (folder / "judge.py").symlink_to(target / "judge.py")


CHANGES = {
    "a neighbour": (None, edit),
    "a neighbour that is imported late": (None, edit_lazy),
    "a package in the place of a neighbour": (None, shadow_by_package),
    "bytecode of a package in the place of a neighbour": (None, shadow_by_bytecode),
    "a standard module": (None, shadow_standard),
    "an extension module in the place of a neighbour": (None, shadow_by_extension),
    "the file behind a link": (put_behind_link, replace_target),
    "a neighbour of the file behind a link": (put_behind_link, replace_neighbour_of_target),
}


@pytest.mark.parametrize(("before", "change"), CHANGES.values(), ids=CHANGES)
def test_what_changes_after_consent_does_not_run(
    folder: Path,
    console: Console,
    remember: Callable[[], None],
    before: Change | None,
    change: Change,
) -> None:
    if before:
        before(folder)
    remember()
    change(folder)
    done = console("run", "study.yaml")
    assert done.returncode == 2
    assert "judge.py is Python code" in done.stderr
    assert not has_run(folder)


# Bytecode beside a file


def compiled(folder: Path, mode: py_compile.PycInvalidationMode) -> None:
    """Bytecode of other code, which Python takes for that of each neighbour."""
    for name in ("helper", "later"):
        source = folder / f"{name}.py"
        before, whole = source.stat(), source.read_text()
        evil = f"ZERO = 0\n{HELPER}{EVIL}"
        source.write_text(whole.ljust(len(evil)) if mode.name == "UNCHECKED_HASH" else whole)
        os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
        other = folder / "other.txt"
        other.write_text(evil)
        os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
        cached = importlib.util.cache_from_source(str(source))
        py_compile.compile(str(other), cached, invalidation_mode=mode)
        if mode is py_compile.PycInvalidationMode.TIMESTAMP:
            content = bytearray(Path(cached).read_bytes())
            content[12:16] = len(source.read_bytes()).to_bytes(4, "little")
            Path(cached).write_bytes(content)
        other.unlink()


@pytest.mark.parametrize("trust", [[], ["--trust"]], ids=["remembered", "for one command"])
@pytest.mark.parametrize("mode", ["TIMESTAMP", "UNCHECKED_HASH"])
def test_bytecode_beside_a_neighbour_does_not_run(
    folder: Path, console: Console, remember: Callable[[], None], mode: str, trust: list[str]
) -> None:
    compiled(folder, py_compile.PycInvalidationMode[mode])
    remember()
    compiled(folder, py_compile.PycInvalidationMode[mode])
    done = console("run", "study.yaml", *trust)
    assert (done.returncode, has_run(folder)) == (0, False), done.stderr


# What consent does not cover, by module


def from_hidden(folder: Path) -> str:
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "extra.py").write_text(EVIL)
    return "sys.path.insert(0, str(HERE / '.hidden'))\n"


def from_cache(folder: Path) -> str:
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "extra.py").write_text(EVIL)
    return "sys.path.insert(0, str(HERE / '__pycache__'))\n"


def from_zip(folder: Path) -> str:
    with zipfile.ZipFile(folder / "more.zip", "w") as file:
        file.writestr("extra.py", EVIL)
    return "sys.path.insert(0, str(HERE / 'more.zip'))\n"


def from_zipped_package(folder: Path) -> str:
    with zipfile.ZipFile(folder / "more.whl", "w") as file:
        file.writestr("extra/__init__.py", EVIL)
    return "sys.path.insert(0, str(HERE / 'more.whl'))\n"


def from_bytecode(folder: Path) -> str:
    (folder / "evil.py").write_text(EVIL)
    py_compile.compile(str(folder / "evil.py"), str(folder / "extra.pyc"))
    (folder / "evil.py").unlink()
    return "sys.path.insert(0, str(HERE))\n"


def from_extension(folder: Path) -> str:
    (folder / f"extra{EXTENSION_SUFFIXES[0]}").write_bytes(b"")
    return "sys.path.insert(0, str(HERE))\n"


def from_elsewhere(folder: Path) -> str:
    (folder.parent / "extra.py").write_text(EVIL)
    return "sys.path.insert(0, str(HERE.parent))\n"


def from_namespace_elsewhere(folder: Path) -> str:
    (folder.parent / "more" / "space").mkdir(parents=True)
    (folder.parent / "more" / "space" / "extra.py").write_text(EVIL)
    return "sys.path.insert(0, str(HERE.parent / 'more'))\nimport space.extra\n"


def from_beside_a_link(folder: Path) -> str:
    """The rater is a link; what lies beside the link is not what its own folder has."""
    (folder / "extra.py").write_text(EVIL)
    (folder.parent / "elsewhere").mkdir()
    (folder / "judge.py").unlink()
    (folder / "judge.py").symlink_to(folder.parent / "elsewhere" / "judge.py")
    return "sys.path.insert(0, os.getcwd())\n"


PLACES = (
    from_hidden,
    from_cache,
    from_zip,
    from_zipped_package,
    from_bytecode,
    from_extension,
    from_elsewhere,
    from_namespace_elsewhere,
    from_beside_a_link,
)
AT_ONCE = "import extra\ndef rate(question): return 1\n"
WHEN_CALLED = "def rate(question):\n    import extra\n    return 1\n"


@pytest.mark.parametrize("place", PLACES)
def test_a_module_that_consent_does_not_cover_is_refused_by_name(
    folder: Path,
    console: Console,
    remember: Callable[[], None],
    place: Callable[[Path], str],
) -> None:
    rate_by(folder, place(folder) + WHEN_CALLED)
    remember()
    refused(folder, console("run", "study.yaml"), "extra")


@pytest.mark.parametrize(
    "place", [from_hidden, from_zip, from_bytecode, from_extension, from_beside_a_link]
)
def test_trust_for_one_command_covers_no_more(
    folder: Path, console: Console, place: Callable[[Path], str]
) -> None:
    rate_by(folder, place(folder) + AT_ONCE)
    refused(folder, console("run", "study.yaml", "--trust"), "extra")


def refused(folder: Path, done: subprocess.CompletedProcess[str], name: str) -> None:
    """Check that a command ended with the name of a module, which has not run."""
    assert not has_run(folder), done.stdout
    assert done.returncode == 2
    assert re.search(rf"your consent does not cover the module '([\w.]+\.)?{name}'", done.stderr)


WAYS = {
    "in a thread of its own": """
from threading import Thread
def load(): import extra
def rate(question):
    (thread := Thread(target=load)).start()
    thread.join()
    return 1
""",
    "by name in a worker": """
import asyncio, importlib
async def rate(question):
    await asyncio.to_thread(importlib.import_module, "extra")
    return 1
""",
    "by name in a pool": """
import importlib
from concurrent.futures import ThreadPoolExecutor
def rate(question):
    ThreadPoolExecutor().submit(importlib.import_module, "extra").result()
    return 1
""",
    "in a constructor": """
class rate:
    def __init__(self): import extra
    def __call__(self, question): return 1
""",
    "caught": """
def rate(question):
    try:
        import extra
    except Exception:
        pass
    return 1
""",
    "by an attribute of the module": """
def __getattr__(name):
    import extra
    return lambda question: 1
""",
}


@pytest.mark.parametrize("code", WAYS.values(), ids=WAYS)
def test_a_module_is_refused_whoever_imports_it(
    folder: Path, console: Console, remember: Callable[[], None], code: str
) -> None:
    rate_by(folder, from_hidden(folder) + code)
    remember()
    refused(folder, console("run", "study.yaml"), "extra")


SWAPS = {
    "while it is loaded": """
(HERE / "helper.py").write_text(EVIL)
import helper
def rate(question): return 1
""",
    "while it runs": """
def rate(question):
    (HERE / "helper.py").write_text(EVIL)
    import helper
    return 1
""",
    "by a new folder": """
def rate(question):
    (HERE / "helper").mkdir(exist_ok=True)
    (HERE / "helper" / "__init__.py").write_text(EVIL)
    import helper
    return 1
""",
    "by a link": """
def rate(question):
    (HERE.parent / "evil.py").write_text(EVIL)
    (HERE / "helper.py").unlink()
    (HERE / "helper.py").symlink_to(HERE.parent / "evil.py")
    import helper
    return 1
""",
    "and imported again": """
import helper, importlib
def rate(question):
    (HERE / "helper.py").write_text(EVIL)
    importlib.reload(helper)
    return 1
""",
}


@pytest.mark.parametrize(
    ("moment", "trust"),
    [
        *((moment, []) for moment in SWAPS),
        ("while it runs", ["--trust"]),
        ("by a new folder", ["--trust"]),
    ],
)
def test_a_neighbour_that_is_replaced_after_the_file_was_read_is_refused(
    folder: Path, console: Console, remember: Callable[[], None], moment: str, trust: list[str]
) -> None:
    code = f"EVIL = {EVIL!r}\nsys.path.insert(0, str(HERE))\n{SWAPS[moment]}"
    rate_by(folder, code)
    if not trust:
        remember()
    refused(folder, console("run", "study.yaml", *trust), "helper")


# Normal use


RICH = """
sys.path.insert(0, str(HERE))
import dataclasses, helper, colorsys, linked
from pack import inner
import space.part
def rate(question):
    import later, pack.deep.last
    return helper.rank(question) + inner.ZERO + pack.deep.last.ZERO + space.part.ZERO + linked.ZERO
"""


@pytest.mark.parametrize("trust", [[], ["--trust"]], ids=["remembered", "for one command"])
@pytest.mark.parametrize("is_link", [False, True])
def test_an_unchanged_rater_imports_its_neighbours(
    folder: Path, console: Console, trust: list[str], is_link: bool
) -> None:
    rate_by(folder, RICH)
    for name, code in {
        "pack/__init__.py": "from . import inner",
        "pack/inner.py": "from .deep import ZERO",
        "pack/deep/__init__.py": "ZERO = 0",
        "pack/deep/last.py": "from .. import inner\nfrom . import ZERO",
        "space/part.py": "ZERO = 0",
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(code)
    (folder.parent / "shared.py").write_text("ZERO = 0")
    (folder / "linked.py").symlink_to(folder.parent / "shared.py")
    address = "judge.py"
    if is_link:
        (folder / "links").mkdir()
        (folder / "links" / "judge.py").symlink_to(folder / "judge.py")
        address = "links/judge.py"
        study = STUDY | {"models": [f"python/{address}:rate"]}
        (folder / "study.yaml").write_text(yaml.safe_dump(study))
    assert trust or console("run", address, "--trust", "--remember").returncode == 0
    for _ in range(2):
        done = console("run", "study.yaml", *trust)
        assert done.returncode == 0, done.stderr


def test_code_elsewhere_runs_once_it_is_consented_to(
    folder: Path, console: Console, remember: Callable[[], None]
) -> None:
    inner = folder.parent / "own"
    inner.mkdir()
    (inner / "__init__.py").write_text("from .part import ZERO")
    (inner / "part.py").write_text("ZERO = 0")
    rate_by(folder, "import own\ndef rate(question): return 1 + own.ZERO\n")
    path = str(folder.parent)
    remember()
    said = console("run", "study.yaml", PYTHONPATH=path)
    command = f"flipmeter run {inner / '__init__.py'} --trust --remember"
    assert said.returncode == 2
    assert command in said.stderr
    assert console(*command.split()[1:]).returncode == 0
    assert console("run", "study.yaml", PYTHONPATH=path).returncode == 0


def test_a_folder_that_the_user_put_on_the_path_is_read_by_trust(
    folder: Path, console: Console
) -> None:
    (folder.parent / "own.py").write_text("ZERO = 0")
    rate_by(folder, "import own\ndef rate(question): return 1 + own.ZERO\n")
    done = console("run", "study.yaml", "--trust", PYTHONPATH=str(folder.parent))
    assert done.returncode == 0, done.stderr


HOOK = """
import sys
from importlib.util import spec_from_file_location
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "mine":
            place = {place!r}
            return spec_from_file_location(
                name, place + "/__init__.py", submodule_search_locations=[place]
            )
def install(): sys.meta_path.append(Finder)
"""


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The folder of packages of an environment that has flipmeter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    (site,) = (tmp_path / "env").glob("**/site-packages")
    ours = [sysconfig.get_path("purelib"), str(Path(__file__).parents[1] / "src")]
    (site / "ours.pth").write_text("\n".join(ours))
    return site


def run_in(environment: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    scripts = os.pathsep.join(str(environment / name) for name in ("bin", "Scripts"))
    python = str(shutil.which("python", path=scripts))
    command = [python, "-P", "-m", "flipmeter", "run", "study.yaml"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("is_hooked", [False, True])
def test_a_package_that_is_installed_in_place_needs_no_consent(
    folder: Path,
    remember: Callable[[], None],
    environment: Path,
    tmp_path: Path,
    is_hooked: bool,
) -> None:
    project = tmp_path / "project"
    (project / "mine").mkdir(parents=True)
    (project / "mine" / "__init__.py").write_text("from .part import ZERO")
    (project / "mine" / "part.py").write_text("ZERO = 0")
    about = {"url": project.as_uri(), "dir_info": {"editable": True}}
    record = environment / "mine-1.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Name: mine\nVersion: 1\n")
    (record / "direct_url.json").write_text(json.dumps(about))
    (environment / "_mine.py").write_text(HOOK.format(place=str(project / "mine")))
    found = "import _mine; _mine.install()" if is_hooked else str(project)
    (environment / "mine.pth").write_text(found)
    rate_by(folder, "def rate(question):\n    import mine\n    return 1 + mine.ZERO\n")
    remember()
    done = run_in(tmp_path / "env", folder)
    assert done.returncode == 0, done.stderr


def test_a_rater_in_the_folder_of_an_installed_package_is_covered_as_any(
    folder: Path, remember: Callable[[], None], environment: Path, tmp_path: Path
) -> None:
    (environment / "mine.pth").write_text(str(tmp_path))
    compiled(folder, py_compile.PycInvalidationMode.UNCHECKED_HASH)
    remember()
    done = run_in(tmp_path / "env", folder)
    assert (done.returncode, has_run(folder)) == (0, False), done.stderr


CARD = {
    "model": "python/judge.py:rate",
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


@pytest.mark.parametrize(
    "words",
    [["try", "study.yaml"], ["classify", "card.yaml", "texts.csv"]],
    ids=["try", "classify"],
)
def test_every_verb_that_asks_is_refused_the_same(
    folder: Path, console: Console, remember: Callable[[], None], words: list[str]
) -> None:
    (folder / "card.yaml").write_text(yaml.safe_dump(CARD))
    (folder / "texts.csv").write_text("text\nFine.\n")
    rate_by(folder, from_hidden(folder) + WHEN_CALLED)
    remember()
    refused(folder, console(*words), "extra")


def test_the_classifier_is_refused_the_same(
    folder: Path, remember: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "card.yaml").write_text(yaml.safe_dump(CARD))
    rate_by(folder, from_hidden(folder) + WHEN_CALLED)
    monkeypatch.setattr(sys, "path", [*sys.path])
    remember()
    classifier = OrdinalClassifier.load("card.yaml", store=None)
    with pytest.raises(Problem, match="does not cover the module 'extra'"):
        classifier.predict(["Fine."])
    assert not has_run(folder)
