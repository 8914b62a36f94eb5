"""Name -> callable: the one door through which code that a study or card names comes in.

Nothing is imported before `permitted` has found consent. A file is read once: what is hashed is
what runs, and bytecode that lies beside it is not looked at.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from shlex import quote
from types import CodeType, ModuleType
from typing import Any

from flipmeter.base.consent import TRUST_VARIABLE, is_code_trusted, is_remembered
from flipmeter.base.files.fetch import cache_folder
from flipmeter.registry import registered_modules, suggestion
from flipmeter.types import Problem

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
    source = permitted(place)
    found = _callable(place, path, _module(place, source, Path.cwd()))
    if not is_code_trusted() and source is None:
        _refuse_borrowed(place, path, found)
    return found


def permitted(place: str) -> bytes | None:
    """Decide whether a file or module may be imported; the code of a file, None for a module.

    A file needs `--trust` or a remembered consent to its code, a module `--trust` or an entry
    point of its own package.
    """
    if not place.endswith(".py"):
        if is_code_trusted() or place in registered_modules():
            return None
        raise Problem(
            f"the module '{place}' would be imported, but nothing declares it as a rater; if you "
            f"trust it: --trust, {TRUST_VARIABLE}=1, or trust=True in Python"
        )
    source = _read(Path(place))
    if is_code_trusted() or is_remembered(Path(place), source):
        return source
    raise Problem(
        f"{place} is Python code and would run with your full permissions; read it, and if "
        f"you trust "
        f"it: "
        f"--trust, {TRUST_VARIABLE}=1, trust=True in Python, or permanently: "
        f"flipmeter trust {quote(place)}"
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Problem(f"no file {path} (looked in {Path.cwd()}); check the path") from error


def _refuse_borrowed(place: str, path: str, found: Any) -> None:
    """Refuse what a registered module only imports, as in `raters:subprocess.run`."""
    while isinstance(found, partial):
        found = found.func
    home = getattr(found, "__module__", None) or type(found).__module__
    if str(home).partition(".")[0] != place.partition(".")[0]:
        raise Problem(f"{place} has '{path}' from {home}, not its own; --trust allows it")


def _callable(place: str, path: str, module: ModuleType) -> Any:
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
def _module(place: str, source: bytes | None, here: Path) -> ModuleType:
    """Import a module by its name, from where we are too, or run the code of a file."""
    try:
        with _own_bytecode():
            return _by_name(place, here) if source is None else _from_file(here / place, source)
    except Problem:
        raise
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}"
        raise Problem(f"cannot import {place}: {why}; correct it, or use another") from error


@contextmanager
def _own_bytecode() -> Iterator[None]:
    """Keep bytecode in the user's cache: that beside a file may be of other code."""
    before = sys.pycache_prefix
    sys.pycache_prefix = str(cache_folder() / "bytecode")
    try:
        yield
    finally:
        sys.pycache_prefix = before


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


class _ReadBefore(importlib.machinery.SourceFileLoader):
    """Runs the code that was hashed, whatever the file holds by then."""

    source: bytes

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.source, self.path)


def _from_file(path: Path, source: bytes) -> ModuleType:
    loader = _ReadBefore(path.stem, str(path))
    loader.source = source
    spec = importlib.util.spec_from_file_location(path.stem, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # dataclasses and pickles look their module up
    loader.exec_module(module)
    return module
