"""Name -> callable: the one door through which code that a study or card names comes in.

Nothing is imported before `permitted` has found consent. While such code is loaded and runs, every
module that is not installed is read once from its source, through its real path: what is hashed is
what runs. What consent does not cover is refused with its name, and bytecode, extension modules and
archives beside a file are never loaded.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.metadata import distributions
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from shlex import quote
from threading import current_thread, main_thread
from types import CodeType, FrameType, ModuleType
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from flipmeter.consent import TRUST_VARIABLE, consented, is_code_trusted, read_code
from flipmeter.errors import Problem
from flipmeter.registry import registered_modules, suggestion

FAMILY = "python"
_handed_over: dict[str, Any] = {}
"""Callables that this program itself gave us, by the name that they have in addresses."""


def addressed(model: Any) -> Any:
    """A model with an address instead of a callable object; what has an address stays as it is.

    Passing an object is consent: the program that has it could call it itself.
    """
    if isinstance(model, Mapping):
        found = addressed(model.get("model"))
        return model if found is model.get("model") else {**model, "model": found}
    if not callable(model):
        return model
    about = model if hasattr(model, "__qualname__") else type(model)
    name = f"{about.__module__}:{about.__qualname__}"
    _handed_over[name] = model
    return f"{FAMILY}/{name}"


def beside(address: str, folder: Path) -> str:
    """A callable's address with the path of its file, if that stands in a folder.

    Any other is left as it is. A module of a package is left to be imported by its name.
    """
    place, _, path = address.removeprefix(f"{FAMILY}/").rpartition(":")
    if not address.startswith(f"{FAMILY}/") or not place:
        return address
    is_file = place.endswith(".py")
    file = folder / (place if is_file else f"{place.replace('.', '/')}.py")
    is_packed = not is_file and "." in place and (file.parent / "__init__.py").is_file()
    return f"{FAMILY}/{file}:{path}" if file.is_file() and not is_packed else address


def find_callable(name: str) -> Any:
    """The callable that `package.module:function` or `file.py:function` names, by consent."""
    if name in _handed_over:
        return _handed_over[name]
    place, colon, path = name.rpartition(":")
    if not (colon and place and path):
        raise Problem(f"'{name}' is not a callable; write {FAMILY}/package.module:function")
    consent = permitted(place)
    _consents[name] = consent
    with running(name):
        found = _find_callable(
            place, path, _import_user_module(place, consent and consent.source, Path.cwd())
        )
    if consent is None:
        _refuse_borrowed(place, path, found)
    return found


def permitted(place: str) -> Consent | None:
    """The consent with which a file or module may be imported; None for a registered module.

    A file needs `--trust` or a remembered consent to its code, a module `--trust` or an entry
    point of its own package.
    """
    searched = _initial_search_path()  # as it was before any of this code ran
    if not place.endswith(".py"):
        if is_code_trusted():
            return _renew_consent(place, None, folders=(os.path.realpath(""), *searched))
        if place in registered_modules():
            return None
        raise Problem(
            f"the module '{place}' would be imported, but nothing declares it as a rater; if you "
            f"trust it: --trust, {TRUST_VARIABLE}=1, or trust=True in Python"
        )
    try:
        source = Path(place).read_bytes()
    except OSError as error:
        raise Problem(f"no file {place} (looked in {Path.cwd()}); check the path") from error
    path = Path(place).resolve()
    if is_code_trusted():
        return _renew_consent(str(path), source, folders=searched)
    if code := consented(path, source):
        return _renew_consent(str(path), source, files=code.files)
    raise Problem(
        f"{place} is Python code and would run with your full permissions; read it, and if "
        f"you trust "
        f"it: "
        f"--trust, {TRUST_VARIABLE}=1, trust=True in Python, or permanently: "
        f"flipmeter run {quote(place)} --trust --remember"
    )


def _refuse_borrowed(place: str, path: str, found: Any) -> None:
    """Refuse what a registered module only imports, as in `raters:subprocess.run`."""
    while isinstance(found, partial):
        found = found.func
    home = getattr(found, "__module__", None) or type(found).__module__
    if str(home).partition(".")[0] != place.partition(".")[0]:
        raise Problem(f"{place} has '{path}' from {home}, not its own; --trust allows it")


def _find_callable(place: str, path: str, module: ModuleType) -> Any:
    found: Any = module
    for part in path.split("."):
        if not hasattr(found, part):
            there = [one for one in vars(found) if not one.startswith("_")]
            raise Problem(f"{place} has nothing named '{part}'{suggestion(part, there)}")
        found = getattr(found, part)
    if not callable(found):
        name = f"{place}:{path}"
        raise Problem(f"'{name}' is {type(found).__name__}, which cannot be called with a question")
    return found


@lru_cache(maxsize=64)
def _import_user_module(place: str, source: bytes | None, here: Path) -> ModuleType:
    """Import a module by its name, from where we are too, or run the code of a file."""
    try:
        return _by_name(place, here) if source is None else _from_file(Path(place).stem)
    except Problem:
        raise
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}"
        raise Problem(f"cannot import {place}: {why}; correct it, or use another") from error


def _by_name(name: str, here: Path) -> ModuleType:
    if is_code_trusted() and str(here) not in sys.path:
        sys.path.insert(0, str(here))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise Problem(
            f"no module named '{error.name}' (looked in {here} and on the path of Python); "
            "install it, set PYTHONPATH, or use a file: python/folder/file.py:function"
        ) from error


def _from_file(name: str) -> ModuleType:
    consent = _now.get()
    assert consent is not None
    spec = _module_spec(name, consent.path, consent)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules.setdefault(name, module)  # dataclasses and pickles look their module up
    spec.loader.exec_module(module)
    return module


# --- what it imports ---------------------------------------------------------------------------


@dataclass
class Consent:
    """The code that may run with a rater: its file as read, and modules by digest or folder."""

    path: str
    source: bytes | None = None
    files: Mapping[str, str] | None = None
    """The SHA-256 of every file beside it; None with `--trust`, until it is asked (`settle`)."""
    folders: tuple[str, ...] = ()
    refused: Problem | None = None

    @property
    def home(self) -> tuple[str, ...]:
        """The folder of a file; a module has none."""
        return () if self.source is None else (str(Path(self.path).parent),)

    def read(self, name: str, path: str) -> bytes:
        """The source of a module that this consent covers; a file is read once."""
        real = Path(path).resolve()
        if self.source is not None and str(real) == self.path:
            return self.source
        way = "outside of installed packages only Python source is run: install its package"
        if path.endswith(".py") and real.is_file():
            source = real.read_bytes()
            if self._covers(Path(os.path.normpath(path)), real, source):
                return source
            way = (
                f"read it, and if you trust it: flipmeter run {quote(str(real))} --trust --remember"
            )
        self.refused = Problem(f"your consent does not cover the module '{name}' ({real}); {way}")
        raise self.refused

    def _covers(self, path: Path, real: Path, source: bytes) -> bool:
        files, folders = self.files or {}, self.folders
        if files.get(str(real)) == hashlib.sha256(source).hexdigest():
            return True
        if self.files is None:
            folders = (*self.home, *folders)
        elif _is_below(real, self.home):  # whatever else it is in: all of it was read
            folders = ()
        if any(_is_below(one, folders, is_shown=True) for one in (path, real)):
            return True
        code = consented(real, source)
        if code:
            self.files = {**files, **code.files}
        return code is not None


_consent_to = cache(Consent)
"""The one consent to a file or module, shared with the threads of its code."""


def _renew_consent(
    path: str,
    source: bytes | None,
    files: Mapping[str, str] | None = None,
    folders: tuple[str, ...] = (),
) -> Consent:
    found = _consent_to(path)
    found.source, found.files, found.folders, found.refused = source, files, folders, None
    return found


_consents: dict[str, Consent | None] = {}
"""The consents by the names of their callables, None for an installed one."""
_now: ContextVar[Consent | None] = ContextVar("now", default=None)


@contextmanager
def running(name: str) -> Iterator[None]:
    """Run the code of a callable inside: its imports are compared with the consent (`_Guard`).

    A refusal is raised again at the end, should the code have caught it.
    """
    consent = _consents.get(name)
    if consent and sys.meta_path[0] is not _Guard:
        sys.meta_path[:] = [_Guard, *(one for one in sys.meta_path if one is not _Guard)]
    before = _now.get()
    _now.set(consent)
    try:
        yield
    finally:
        _now.set(before)  # no token: a task that ends with its loop is closed elsewhere
        if consent and consent.refused:
            raise consent.refused


def settle(name: str) -> None:
    """Limit `--trust` to the code beside a file as it is now, before the first question."""
    consent = _consents.get(name)
    if consent and consent.source is not None and consent.files is None:
        with suppress(Problem):  # so much code is not read: it runs as it is when it is imported
            consent.files = read_code(Path(consent.path), consent.source).files


class _Guard:
    """Finds modules as Python does; user code gets those that are not installed by consent."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        consent = _now.get() or _consent_on_stack()
        if consent is None and current_thread() is main_thread():
            return None
        finders = (one for one in sys.meta_path if one is not _Guard and hasattr(one, "find_spec"))
        found = (one.find_spec(name, path, target) for one in finders)
        spec = next((one for one in found if one is not None), None)
        if spec is None or spec.origin is None or not spec.has_location:
            return spec  # of the interpreter, made by code that runs, or a folder without code
        if _is_installed(name, spec.origin, consent.home if consent else ()):
            return spec
        consent = consent or _consent_near(Path(os.path.realpath(spec.origin)))
        if consent is None:
            return spec
        return _module_spec(name, spec.origin, consent, spec.submodule_search_locations)


def _module_spec(
    name: str, path: str, consent: Consent, inner: list[str] | None = None
) -> ModuleSpec | None:
    loader = _SourceLoader(name, path, consent)
    return spec_from_file_location(
        name, loader.path, loader=loader, submodule_search_locations=inner
    )


class _SourceLoader(SourceFileLoader):
    """Compiles what was compared with the consent, never bytecode or what the file holds later."""

    def __init__(self, name: str, path: str, consent: Consent) -> None:
        super().__init__(name, os.path.realpath(path))
        self.found, self.consent = path, consent

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.consent.read(fullname, self.found), self.path)


def _consent_on_stack() -> Consent | None:
    """The consent of user code that runs in a thread of its own."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if isinstance(loader := frame.f_globals.get("__loader__"), _SourceLoader):
            return loader.consent
        frame = frame.f_back
    return None


def _consent_near(path: Path) -> Consent | None:
    """The consent of code that lets a thread pool import a module which only it can find."""
    known = [] if _is_below(path, _initial_search_path()) else [*filter(None, _consents.values())]
    return next((one for one in known if _is_below(path, one.home)), known[-1] if known else None)


@cache
def _initial_search_path() -> tuple[str, ...]:
    """The path of Python before user code can change it."""
    return tuple(map(os.path.realpath, sys.path))


def _is_installed(name: str, origin: str, home: tuple[str, ...]) -> bool:
    """Whether a module, and bytecode beside it, is of the interpreter or an installed package.

    The folder of a rater is its own, also if that is in the folder of a package.
    """
    path = Path(origin).parent.resolve() / Path(origin).name  # bytecode is beside it
    if _is_below(path, home):
        return _is_below(
            path,
            [one for one in _installed_folders() if one not in home and _is_below(Path(one), home)],
        )
    if any(_is_below(one, _installed_folders()) for one in (Path(os.path.normpath(origin)), path)):
        return True
    # An editable package may be found by a hook of its own; what is on the path is not its.
    is_hooked = PathFinder.find_spec(name.partition(".")[0]) is None
    return is_hooked and _is_below(path, _editable_folders())


def _is_below(path: Path, folders: Iterable[str], *, is_shown: bool = False) -> bool:
    """Whether a file is in one of the folders; `is_shown` leaves out what is hidden in them."""
    for folder in folders:
        if path.is_relative_to(folder):
            inner = path.relative_to(folder).parts
            if not is_shown or not any(one[0] == "." or one == "__pycache__" for one in inner):
                return True
    return False


@cache
def _installed_folders() -> tuple[str, ...]:
    """The folders of the interpreter and of installed packages, with those that .pth files add."""
    sites = [*site.getsitepackages(), site.getusersitepackages()]
    sites += map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))
    # The user's own variable: `pip install --target` leaves a package's record there.
    chosen = filter(os.path.isabs, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sites += [folder for folder in chosen if any(Path(folder).glob("*.dist-info/RECORD"))]
    added = [
        os.path.normpath(Path(folder, line.strip()))
        for folder in sites
        for file in Path(folder).glob("*.pth")
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines()
        if line.strip() and not line.startswith(("#", "import ", "import\t"))
    ]
    own = [str(Path(os.__file__).parent), str(Path(__file__).parents[1])]
    found = [*sites, *added, *own]
    return tuple(dict.fromkeys([*found, *map(os.path.realpath, found)]))


@cache
def _editable_folders() -> tuple[str, ...]:
    """The folders of packages that are installed in place."""
    found = []
    for one in distributions(path=list(_installed_folders())):
        about = json.loads(one.read_text("direct_url.json") or "{}")
        if about.get("dir_info", {}).get("editable"):
            found.append(os.path.realpath(url2pathname(urlsplit(about["url"]).path)))
    return tuple(found)
