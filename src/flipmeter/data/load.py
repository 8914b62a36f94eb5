"""Spec -> Dataset: a catalog name, a file, or a dataset of the hub, with its options checked.

A dataset of the hub needs the optional package `datasets` (pip install 'flipmeter[datasets]').
"""

from __future__ import annotations

import inspect
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from string import ascii_lowercase
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import flipmeter.data.catalog  # noqa: F401 - registers its datasets
from flipmeter.data.catalog import CatalogEntry, datasets, load_entry
from flipmeter.data.files import Description, describe, load_file
from flipmeter.data.labels import (
    NOMINAL,
    WITHIN,
    Labels,
    label_key,
    read_labels,
    read_weights,
    with_tolerance,
)
from flipmeter.data.tables import ENDINGS, Record, Table
from flipmeter.errors import Problem
from flipmeter.registry import suggestion
from flipmeter.types import Dataset, Scale, Task


def load_hub(
    name_or_path: str | Path,
    *,
    split_test: str = "test",
    split_demos: str | None = "train",
    revision: str | None = None,
    config: str | None = None,
    **options: Any,
) -> Dataset:
    """Load a dataset of the hub, one saved by `save_to_disk`, or a folder of Parquet or CSV files.

    Labels that the dataset itself names (a ClassLabel) count from 0 there: they are taken by name
    where the names are those of the scale, else by place. Without a `scale` theirs is used. A lone
    split saved to disk is the test set, and `split_demos: null` sets demonstrations aside from it.
    `options` are those of a description.
    """
    told, where = describe(options), str(name_or_path)
    splits = _open_hub_dataset(where, config, revision)
    if not isinstance(splits, Mapping):
        splits, split_demos = {split_test: splits}, None
    test = _choose_hub_split(where, splits, split_test)
    table, demos = _hub_table(where, split_test, test, told), None
    if split_demos is not None:
        demos = _hub_table(where, split_demos, _choose_hub_split(where, splits, split_demos), told)
    return told.dataset(
        table, demos, lambda told, *_: _hub_labels(where, test, told), Path(where).name
    )


def _open_hub_dataset(where: str, config: str | None, revision: str | None) -> Any:
    """A Dataset or a mapping of splits, as the `datasets` package gives it."""
    try:
        import datasets
    except ImportError as error:
        raise Problem(
            f"reading {where} needs the package 'datasets': pip install 'flipmeter[datasets]'"
        ) from error
    path = Path(where)
    try:
        if any((path / saved).is_file() for saved in ("dataset_dict.json", "state.json")):
            return datasets.load_from_disk(where)
        with _no_waiting(datasets):
            return datasets.load_dataset(where, config, revision=revision)
    except Exception as error:  # the hub, its cache and its readers raise all kinds
        lines = str(error).splitlines()
        reason = f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
        why = (
            f"the dataset {where} is not in the local cache and could not be downloaded from the "
            f"Hugging Face hub ({reason}); check the name, the network and HF_HUB_OFFLINE, or give "
            "a local folder"
        )
        if where.startswith((".", "/", "~")):
            why = f"no folder {where}; check the path"
        if path.exists():
            why = f"{where} cannot be read as a dataset ({reason}); save it again with save_to_disk"
        raise Problem(why) from error


@contextmanager
def _no_waiting(datasets: Any) -> Iterator[None]:
    """Look in the local cache only where the hub is out of reach: retries take half a minute."""
    from huggingface_hub import constants

    switches = [datasets.config, constants]
    before = [switch.HF_HUB_OFFLINE for switch in switches]
    try:
        parts = urlsplit(constants.ENDPOINT)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            if not getproxies().get(parts.scheme):  # behind a proxy only a request could tell
                socket.create_connection((parts.hostname or "", port), timeout=5).close()
        except OSError:
            for switch in switches:
                switch.HF_HUB_OFFLINE = True
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.HF_HUB_OFFLINE = value


def _choose_hub_split(where: str, splits: Mapping[str, Any], name: str) -> Any:
    if name not in splits:
        there = ", ".join(splits)
        raise Problem(
            f"{where} has no split '{name}'{suggestion(name, list(splits))} (splits: {there}); "
            "choose with split_test and split_demos"
        )
    return splits[name]


def _hub_table(where: str, split: str, rows: Any, told: Description) -> Table:
    there, options = tuple(rows.column_names), told.options or ()
    usual = [f"system_{letter}" for letter in ascii_lowercase]
    moved = [options] if isinstance(options, str) else options
    named = filter(None, (told.label, told.id, told.cluster))
    systems = usual if told.systems is None else told.systems
    wanted = [*told.texts.values(), *named, *map(str, (*moved, *systems, *told.slices))]
    # Only what is needed: other columns may hold images or sound, which would be decoded.
    chosen = rows.select_columns([name for name in dict.fromkeys(wanted) if name in there])
    records = tuple(Record(number, values) for number, values in enumerate(chosen, start=1))
    return Table(f"{where} ({split})", there, records)


def _hub_labels(where: str, rows: Any, told: Description) -> Labels:
    column, scale, task = told.column, told.scale, told.task
    named: list[str] | None = getattr(rows.features.get(column), "names", None)
    if not named:
        found = list(rows[column]) if scale == NOMINAL else ()
        return read_labels(scale, told.labels, task, column, found)
    if scale == NOMINAL:
        scale = {NOMINAL: named}
    if scale is None and task is None:
        scale = named
    reader = read_labels(scale, None, task, column)
    size = len(reader.task.scale)
    if all(label_key(name) in reader.ranks for name in named):
        places: dict[object, object] = dict(enumerate(named))
    elif len(named) == size:
        places = {place: reader.task.scale.names[place] for place in range(size)}
    else:
        raise Problem(
            f"{where} has the labels {named}, the scale has {size} classes "
            f"{list(reader.task.scale.names)}; map them: labels: {{0: class, 1: class}}"
        )
    return read_labels(scale, {**places, **(told.labels or {})}, task, column)


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
        found = load_entry(_catalog_entry(source), data_dir, **options)
    elif kind == "file":
        own = {"demos": here / options["demos"]} if options.get("demos") else {}
        found = load_file(here / source, **{**options, **own})
    else:
        found = load_hub(here / source if (here / source).exists() else source, **options)
    if weights is None:
        return found
    return replace(found, weights=read_weights(weights, found.task.scale, str(source)))


def _catalog_entry(name: str) -> CatalogEntry:
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
