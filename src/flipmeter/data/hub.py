"""Hugging Face -> Dataset: a dataset of the hub, or a folder in one of its formats.

Needs the optional package `datasets` (pip install 'flipmeter[datasets]').
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from string import ascii_lowercase
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from flipmeter.data.files import Description, describe
from flipmeter.data.labels import NOMINAL, Labels, label_key, read_labels
from flipmeter.data.tables import Record, Table
from flipmeter.registry import suggestion
from flipmeter.types import Dataset, Problem


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
    splits = _open(where, config, revision)
    if not isinstance(splits, Mapping):
        splits, split_demos = {split_test: splits}, None
    test = _split(where, splits, split_test)
    table, demos = _table(where, split_test, test, told), None
    if split_demos is not None:
        demos = _table(where, split_demos, _split(where, splits, split_demos), told)
    return told.dataset(table, demos, lambda told, *_: _labels(where, test, told), Path(where).name)


def _open(where: str, config: str | None, revision: str | None) -> Any:
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


def _split(where: str, splits: Mapping[str, Any], name: str) -> Any:
    if name not in splits:
        there = ", ".join(splits)
        raise Problem(
            f"{where} has no split '{name}'{suggestion(name, list(splits))} (splits: {there}); "
            "choose with split_test and split_demos"
        )
    return splits[name]


def _table(where: str, split: str, rows: Any, told: Description) -> Table:
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


def _labels(where: str, rows: Any, told: Description) -> Labels:
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
