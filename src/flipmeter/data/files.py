"""File -> Dataset: labelled texts of the user's own, by a field mapping and an ordered scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_lowercase

from flipmeter.data.digest import content_key, dataset_digest
from flipmeter.data.exchangeable import (
    Exchange,
    Options,
    counted_from_0,
    option_places,
    read_exchange,
    spread_options,
    with_places,
)
from flipmeter.data.items import (
    LABEL,
    Columns,
    OnBad,
    ReadItems,
    check_classes,
    read_items,
    settle_bad,
    without_leaks,
)
from flipmeter.data.labels import NOMINAL, Labels, ScaleSpec, TaskSpec, read_labels
from flipmeter.data.tables import Table, read_table
from flipmeter.types import Dataset, Problem, Task


def load_file(
    path: str | Path,
    *,
    text: str = "text",
    label: str | None = "label",
    scale: ScaleSpec | None = None,
    labels: Mapping[object, object] | None = None,
    id: str | None = None,
    fields: Mapping[str, str] | None = None,
    cluster: str | None = None,
    exchange: Exchange | None = None,
    options: Options | None = None,
    systems: Sequence[str] | None = None,
    slices: Sequence[str] = (),
    demos: str | Path | None = None,
    task: TaskSpec | None = None,
    on_bad: OnBad = "error",
    quotes: bool | None = None,
    name: str = "",
    licence: str = "",
) -> Dataset:
    """Load a CSV, TSV, JSON-lines or Parquet file; `demos` is a second one for the demonstrations.

    Without `demos` the pool is empty and the sampler sets part of the file aside. `fields` maps
    further fields of an item to columns; without a column `text` these are its text. Rows with the
    same value in the column `cluster` are not independent (many pairs of one question).
    `exchange` names fields that may change places: the answers that a judge compares; `systems` the
    columns that say who wrote them (`system_a` and `system_b` where there are such). `options`
    names the columns with the options of a question, or one with a list of them. Outer white space
    of a text is cut. `slices` names columns to slice results by, which no rater sees. Without
    labels (`label: null`) everything but accuracy is measured; a file of
    `demos` has labels regardless, in its column `label`.
    """
    path = Path(path)
    column = label or LABEL
    if options is None and scale not in (None, NOMINAL):
        read_labels(scale, labels, task, column)  # report a bad scale before a bad file
    test = read_table(path, quotes, is_held=False)
    if scale is None and options is None and not isinstance(task, Task):
        scale = test.orders.get(column)
    pool = read_table(Path(demos), quotes, is_held=False) if demos else None
    moved = Moved(exchange, options, systems)
    names, test, pool = moved.spread(test, pool)
    if names and scale is None:
        scale = {NOMINAL: list(names)}
    if names and labels is None:
        labels = counted_from_0(names, _labels_in(column, test, pool))
    found = _labels_in(column, test, pool) if scale == NOMINAL else ()
    reader = read_labels(scale, labels, task, column, found)
    columns = Columns(text, label, id, fields or {}, cluster, slices=tuple(slices))
    columns, reader = moved.placed(names, columns, reader, test, task)
    return dataset_of(
        test, pool, columns, reader, on_bad=on_bad, name=name or path.stem, licence=licence
    )


@dataclass(frozen=True)
class Moved:
    """The declaration of exchangeable fields of a dataset, in a file or on the hub."""

    exchange: Exchange | None = None
    options: Options | None = None
    systems: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.exchange is not None and self.options is not None:
            raise Problem("a dataset has `exchange` or `options`, not both")

    @property
    def columns(self) -> list[str]:
        """The columns that it names itself, or that are looked for."""
        options = [self.options] if isinstance(self.options, str) else self.options or []
        usual = [f"system_{letter}" for letter in ascii_lowercase]
        return [*map(str, options), *map(str, usual if self.systems is None else self.systems)]

    def spread(
        self, test: Table, pool: Table | None
    ) -> tuple[tuple[str, ...], Table, Table | None]:
        """The columns of the options, and the tables with a column for each."""
        if self.options is None:
            return (), test, pool
        if not isinstance(self.options, str):
            names = tuple(map(str, self.options))
            if len(names) < 2 or len(set(names)) < len(names):
                raise Problem(f"options lists {[*names]}; it needs two or more columns, each once")
            return names, test, pool
        tables = [table for table in (test, pool) if table is not None]
        names, spread = spread_options(tables, self.options)
        return names, spread[0], spread[1] if pool is not None else None

    def placed(
        self,
        names: Sequence[str],
        columns: Columns,
        reader: Labels,
        table: Table,
        task: TaskSpec | None,
    ) -> tuple[Columns, Labels]:
        """Columns with the fields that change places, and a reader that knows these."""
        own = {**columns.fields, **dict(zip(names, names, strict=True))}
        columns = replace(columns, fields=own).of(table)
        if names:
            return columns, with_places(reader, option_places(names, reader.task.scale), task)
        if self.exchange is None:
            return columns, reader
        places = read_exchange(self.exchange, reader.task.scale, columns.texts)
        systems = self.systems
        if systems is None:
            usual = [f"system_{letter}" for letter in ascii_lowercase[: len(places.fields)]]
            systems = usual if {*usual} <= {*table.columns} else ()
        elif len(systems) != len(places.fields):
            told = f"systems lists {list(systems)}"
            raise Problem(f"{told}; list one column for each of {places.fields}")
        columns = replace(columns, systems=tuple(map(str, systems)))
        return columns, with_places(reader, places, task)


def _labels_in(column: str, *tables: Table | None) -> list[object]:
    """Every label of some tables."""
    return [record.values.get(column) for table in tables if table for record in table.records]


def with_demos(
    dataset: Dataset,
    path: str | Path,
    *,
    text: str = "text",
    label: str = "label",
    labels: Mapping[object, object] | None = None,
    fields: Mapping[str, str] | None = None,
    quotes: bool | None = None,
) -> Dataset:
    """A dataset whose demonstrations are those of a file, in its order.

    Test items that are shown there must not be tested: they are left out, and counted.
    """
    reader = read_labels(None, labels, dataset.task, label)
    table = read_table(Path(path), quotes)
    columns = Columns(text, label, None, fields or {}).of(table)
    shown = read_items(table, columns, reader, "demo")
    settle_bad([shown], "error")
    demos = tuple(item for _, item in shown.items)
    keys = {content_key(demo) for demo in demos}
    test, pool = (
        tuple(item for item in items if content_key(item) not in keys)
        for items in (dataset.test, dataset.pool)
    )
    n_shown = len(dataset.test) - len(test)
    return replace(
        dataset,
        test=test,
        pool=pool,
        demos=demos,
        digest=dataset_digest(dataset.task.scale, (*pool, *demos), test),
        left_out={**dataset.left_out, **({"shown as demonstrations": n_shown} if n_shown else {})},
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
    shown = ReadItems("", ())
    if pool is not None:
        alone = replace(columns, cluster=None, slices=(), label=columns.label or LABEL)
        shown = without_leaks(read_items(pool, alone, labels, "demo"), tested)
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
