"""Spec -> Dataset: a catalog name, a file, or a dataset of the hub, with its options checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import flipmeter.data.bundled  # noqa: F401 - registers its datasets
from flipmeter.data.catalog import CatalogEntry, datasets, load_entry
from flipmeter.data.files import Description, load_file
from flipmeter.data.hub import load_hub
from flipmeter.data.labels import read_weights
from flipmeter.data.number_scales import WITHIN, with_tolerance
from flipmeter.data.tables import ENDINGS
from flipmeter.registry import suggestion
from flipmeter.types import Dataset, Problem, Scale, Task

Spec = str | Mapping[str, Any] | Dataset


def load(
    spec: Spec, *, data_dir: str | Path | None = None, folder: str | Path | None = None
) -> Dataset:
    """Load a dataset by its name in the catalog, or as a study file describes it.

    A description has one of `file`, `hub` or `catalog`, and the options of `load_file`, `load_hub`
    or `load_entry`; `weights` are the frequencies of the classes in production, by their names,
    and `within` is how far decimal scores may lie apart and count as the same.
    Relative paths count from `folder`, which is the study file's.
    """
    if isinstance(spec, Dataset):
        return spec
    if isinstance(spec, str):
        spec = {"catalog": spec}
    if not isinstance(spec, Mapping):
        raise Problem(
            f"{spec!r} does not describe a dataset; give a name or one of {', '.join(_LOADERS)}"
        )
    options = dict(spec)
    kinds = [kind for kind in _LOADERS if kind in options]
    if len(kinds) != 1:
        raise Problem(
            f"a dataset is a name or has one of {', '.join(_LOADERS)}; got {sorted(map(str, spec))}"
        )
    (kind,) = kinds
    source = options.pop(kind)
    if not isinstance(source, str | Path) or not str(source):
        raise Problem(f"{kind}: {source!r} is not a name; write {kind}: followed by one")
    weights, within = options.pop("weights", None), options.pop(WITHIN, None)
    if within is not None:
        options["scale"] = with_tolerance(options.get("scale"), within)
    _check_options(kind, source, options)
    source, here = str(source), Path(folder or "")
    if kind == "catalog":
        found = load_entry(_entry(source), data_dir, **options)
    elif kind == "file":
        own = {"demos": here / options["demos"]} if options.get("demos") else {}
        found = load_file(here / source, **{**options, **own})
    else:
        found = load_hub(here / source if (here / source).exists() else source, **options)
    if weights is None:
        return found
    return replace(found, weights=read_weights(weights, found.task.scale, str(source)))


def _entry(name: str) -> CatalogEntry:
    if Path(name).suffix in ENDINGS:
        raise Problem(
            f"no dataset named '{name}'; a file needs a scale too: "
            f"{{file: {name}, text: ..., label: ..., scale: [lowest, ..., highest]}}"
        )
    return datasets[name]


def _check_options(kind: str, source: str | Path, options: Mapping[str, Any]) -> None:
    known = [*inspect.signature(_LOADERS[kind]).parameters, "weights", WITHIN][1:]
    unnamed = "data_dir" if kind == "catalog" else "options"
    known.remove(unnamed)
    known += [] if kind == "catalog" else [field.name for field in fields(Description)]
    for name, value in options.items():
        if name not in known:
            raise Problem(f"a dataset from a {kind} has no '{name}'{suggestion(str(name), known)}")
        expected, words = _TYPES.get(name, (str, "a text"))
        if value is not None and not isinstance(value, expected):
            raise Problem(f"{name} is {value!r} in the dataset {source}; it must be {words}")


_TYPES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "scale": ((list, tuple, Mapping, Scale, str), "a list of classes, lowest first"),
    "labels": (Mapping, "a mapping {value: class}"),
    "fields": (Mapping, "a mapping {field: column}"),
    "options": ((str, list, tuple), "a list of columns, or one column with lists"),
    "systems": ((list, tuple), "a list of columns"),
    "slices": ((list, tuple), "a list of columns"),
    "exchange": ((list, tuple, Mapping), "a list of fields that may change places"),
    "task": ((Mapping, Task), "a mapping with title, noun, aspect, low, high"),
    "demos": ((str, Path), "the path of a file"),
    "quotes": (bool, "true or false"),
}
_LOADERS: dict[str, Callable[..., Dataset]] = {
    "file": load_file,
    "hub": load_hub,
    "catalog": load_entry,
}
