"""Consent: whether code that a file names may run, and which hosts may be given a key.

Consent is given for one call or command (`trusting`), for a process (FLIPMETER_TRUST), or once for
all in the user's own configuration (`remember`); nothing that comes with a study can give it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.machinery import all_suffixes
from pathlib import Path
from urllib.parse import urlsplit

from platformdirs import user_config_dir

from flipmeter.documents import file_sha256
from flipmeter.errors import Problem
from flipmeter.files import make_folder, named, write_text

TRUST_VARIABLE = "FLIPMETER_TRUST"
CONFIG_VARIABLE = "FLIPMETER_CONFIG"
YES = {"1", "true", "yes", "on"}
MOST_FILES = 1000
"""So much code may lie beside a file whose consent is remembered: all of it is hashed each time."""


@dataclass(frozen=True)
class Trust:
    """The consent given: to run code that is referred to, and to send keys to these hosts.

    `digests` is code that the user remembered where the command began: an actor on another node
    has no configuration of the user.
    """

    code: bool = False
    hosts: frozenset[str] = frozenset()
    digests: frozenset[str] = frozenset()


NOTHING = Trust()
_given: ContextVar[Trust] = ContextVar("given", default=NOTHING)


@contextmanager
def trusting(
    code: bool = False, hosts: Iterable[str] = (), digests: Iterable[str] = ()
) -> Iterator[None]:
    """Add to what is trusted, until the end of the block and in this context only."""
    before = _given.get()
    names = frozenset(map(host_name, [hosts] if isinstance(hosts, str) else hosts))
    known = before.digests.union(digests)
    token = _given.set(Trust(before.code or code is True, before.hosts | names, known))
    try:
        yield
    finally:
        _given.reset(token)


def host_name(text: str) -> str:
    """A host, or HOST:PORT, as it stands in an address; a whole address means its host."""
    place = urlsplit(text).netloc if "://" in text else text
    if not re.fullmatch(r"[\w.-]+(:\d{1,5})?|\[?[0-9a-fA-F:]+\]?", place):
        raise Problem(f"{text!r:.80} is not a host; write one as llm.example.org or 127.0.0.1:8000")
    return place.lower().strip("[]")


def given() -> Trust:
    """The consent given to this call or command."""
    return _given.get()


def is_code_trusted() -> bool:
    """Whether whatever code is named may run, by this call or by the environment."""
    return given().code or os.environ.get(TRUST_VARIABLE, "").strip().lower() in YES


def is_host_trusted(host: str, port: int | None) -> bool:
    """Whether a host may be given a key that is not bound to another; `HOST:PORT` is one port."""
    known = trusted_hosts()
    return host.lower() in known or f"{host.lower()}:{port}" in known


def trusted_hosts() -> frozenset[str]:
    """The hosts that this call, command or user trusts."""
    return given().hosts | frozenset(remembered().hosts)


# --- what is remembered ------------------------------------------------------------------------


@dataclass(frozen=True)
class Remembered:
    """The user's configuration: files by the digest of their code, and hosts."""

    code: Mapping[str, str]
    hosts: tuple[str, ...]


def config_file() -> Path:
    """The file with remembered consent, in the folder in FLIPMETER_CONFIG if that is set."""
    chosen = os.environ.get(CONFIG_VARIABLE)
    folder = Path(chosen).expanduser() if chosen else Path(user_config_dir("flipmeter"))
    return named(folder) / "trust.json"


def remembered() -> Remembered:
    """The permanent consent of the user; an unreadable file is a Problem."""
    path = config_file()
    try:
        found = json.loads(path.read_bytes())
        code, hosts = dict(found.get("code", {})), tuple(found.get("hosts", ()))
    except (FileNotFoundError, NotADirectoryError):
        return Remembered({}, ())
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Problem(f"cannot read {path} ({error}); correct or remove it") from error
    return Remembered(code, tuple(str(host).lower() for host in hosts))


def remember(files: Iterable[Path] = (), hosts: Iterable[str] = ()) -> None:
    """Consent to the code of files as they are now, and to hosts, permanently."""
    known = remembered()
    code = {read_code(path).digest: str(path.resolve()) for path in files}
    _write_consents(
        Remembered(
            {**known.code, **code}, tuple(dict.fromkeys([*known.hosts, *map(host_name, hosts)]))
        )
    )


def forget(files: Iterable[Path] = (), hosts: Iterable[str] = ()) -> None:
    """Withdraw what was remembered of files, whatever they held then, and of hosts."""
    known, gone = remembered(), {str(path.resolve()) for path in files}
    dropped = set(map(host_name, hosts))
    _write_consents(
        Remembered(
            {digest: path for digest, path in known.code.items() if path not in gone},
            tuple(host for host in known.hosts if host not in dropped),
        )
    )


def _write_consents(state: Remembered) -> None:
    path = config_file()
    content = json.dumps({"code": dict(state.code), "hosts": list(state.hosts)}, indent=2)
    try:
        make_folder(path.parent, mode=0o700)
        write_text(path, content)
    except OSError as error:
        raise Problem(
            f"cannot write {path} ({error.strerror}); set {CONFIG_VARIABLE} to a writable folder"
        ) from error


def consented_digests() -> frozenset[str]:
    """The digests of all code whose consent is remembered."""
    return given().digests | frozenset(remembered().code)


def consented(path: Path, source: bytes) -> Code | None:
    """A file's code with all code beside it, if the user consented to this very code.

    `source` is what will run: the file itself is not read again.
    """
    known = consented_digests()
    if not known:
        return None
    code = read_code(path, source)
    return code if code.digest in known else None


@dataclass(frozen=True)
class Code:
    """A file's code and every importable file in its folder and below, as they were read.

    A neighbour that changes withdraws the consent: the file may import it. `files` has the
    SHA-256 of each by its real path.
    """

    digest: str
    files: Mapping[str, str]


def read_code(path: Path, source: bytes | None = None) -> Code:
    """Read a file, unless its source is given, and hash it with the code beside it."""
    path = path.resolve()
    try:
        content = path.read_bytes() if source is None else source
        hashes = {other: file_sha256(other) for other in _neighbouring_code(path)}
    except OSError as error:
        raise Problem(f"cannot read {error.filename} ({error.strerror}); check the path") from error
    own = hashlib.sha256(content).hexdigest()
    others = sorted((str(other.relative_to(path.parent)), one) for other, one in hashes.items())
    digest = hashlib.sha256(json.dumps([[path.name, own], *others]).encode()).hexdigest()
    files = {os.path.realpath(other): one for other, one in hashes.items()}
    return Code(digest, {**files, str(path): own})


def _neighbouring_code(path: Path) -> list[Path]:
    suffixes, found, walked = tuple(all_suffixes()), list[Path](), set[str]()
    # Python imports from behind links too.
    for folder, folders, names in os.walk(path.parent, followlinks=True):
        walked.add(os.path.realpath(folder))
        folders[:] = [
            name
            for name in folders
            if name[0] != "."
            and name != "__pycache__"
            and os.path.realpath(Path(folder, name)) not in walked
        ]
        found += [Path(folder, name) for name in names if name.endswith(suffixes)]
        if len(found) > MOST_FILES:
            raise Problem(
                f"more than {MOST_FILES:,} Python files are next to {path}, too many to remember "
                "consent for; put it into a folder of its own, or use --trust"
            )
    return [other for other in found if other != path]
