"""File -> Dataset: labelled texts of the user's own, by a field mapping and an ordered scale."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flipmeter.data.content import dataset_digest
from flipmeter.data.items import (
    Columns,
    OnBad,
    Reading,
    check_classes,
    read_items,
    settle_bad,
    without_leaks,
)
from flipmeter.data.labels import Labels, ScaleSpec, TaskSpec, read_labels
from flipmeter.data.records import Table, read_table
from flipmeter.types import Dataset


def load_file(
    path: str | Path,
    *,
    text: str = "text",
    label: str = "label",
    scale: ScaleSpec | None = None,
    labels: Mapping[object, object] | None = None,
    id: str | None = None,
    fields: Mapping[str, str] | None = None,
    demos: str | Path | None = None,
    task: TaskSpec | None = None,
    on_bad: OnBad = "error",
    quotes: bool | None = None,
    name: str = "",
    licence: str = "",
) -> Dataset:
    """Load a CSV, TSV, JSON-lines or Parquet file; `demos` is a second one for the demonstrations.

    Without `demos` the pool is empty and the sampler sets part of the file aside. `fields` maps
    further fields of an item to columns. Outer white space of a text is cut.
    """
    path = Path(path)
    columns = Columns(text, label, id, fields or {})
    reader = read_labels(scale, labels, task, label)
    test = read_table(path, quotes)
    pool = read_table(Path(demos), quotes) if demos else None
    return dataset_of(
        test, pool, columns, reader, on_bad=on_bad, name=name or path.stem, licence=licence
    )


def dataset_of(
    test: Table,
    pool: Table | None,
    columns: Columns,
    labels: Labels,
    *,
    on_bad: OnBad = "error",
    name: str,
    licence: str = "",
) -> Dataset:
    """Check two tables against each other and make a dataset of them."""
    tested = read_items(test, columns, labels, "test")
    shown = Reading("", ())
    if pool is not None:
        shown = without_leaks(read_items(pool, columns, labels, "demo"), tested)
    left_out = settle_bad([tested, shown], on_bad)
    check_classes(tested, labels)
    if pool is not None:
        check_classes(shown, labels)
    test_items = tuple(item for _, item in tested.items)
    pool_items = tuple(item for _, item in shown.items)
    return Dataset(
        name=name,
        task=labels.task,
        pool=pool_items,
        test=test_items,
        source=test.file,
        licence=licence,
        digest=dataset_digest(labels.task.scale, pool_items, test_items),
        left_out=left_out,
    )
