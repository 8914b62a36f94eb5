"""File -> Dataset: labelled texts of the user's own, by a field mapping and an ordered scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_lowercase
from typing import Any

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
from flipmeter.data.labels import (
    NOMINAL,
    Labels,
    ScaleSpec,
    TaskSpec,
    content_key,
    dataset_digest,
    is_blank,
    label_key,
    read_labels,
)
from flipmeter.data.places import (
    Exchange,
    Options,
    option_places,
    read_exchange,
    spread_options,
    with_places,
)
from flipmeter.data.tables import Table, read_table
from flipmeter.errors import Problem
from flipmeter.types import Dataset, Task


@dataclass(frozen=True, kw_only=True)
class Description(Columns):
    """Options of a dataset in a file or on the hub, by which rows of a table become items.

    `fields` maps further fields of an item to columns; without a column `text` these are its text.
    Rows with the same value in the column `cluster` are not independent (many pairs of one
    question). `exchange` names fields that may change places: the answers that a judge compares;
    `systems` the columns that say who wrote them (`system_a` and `system_b` where there are such).
    `options` names the columns with the options of a question, or one with a list of them. Outer
    white space of a text is cut. `slices` names columns to slice results by, which no rater sees.
    Without labels (`label: null`) everything but accuracy is measured.
    """

    scale: ScaleSpec | None = None
    labels: Mapping[object, object] | None = None
    exchange: Exchange | None = None
    options: Options | None = None
    task: TaskSpec | None = None
    on_bad: OnBad = "error"
    name: str = ""
    licence: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.exchange is not None and self.options is not None:
            raise Problem("a dataset has `exchange` or `options`, not both")

    @property
    def column(self) -> str:
        """The column of the labels, if there are any."""
        return self.label or LABEL

    def dataset(
        self,
        test: Table,
        pool: Table | None,
        read: Callable[[Description, Sequence[str], Table, Table | None], Labels],
        name: str,
    ) -> Dataset:
        """Check two tables against each other and make a dataset of them.

        `read` gives the reader of the labels, from the columns of the options among the others.
        """
        names, test, pool = self._spread(test, pool)
        is_open = names and self.scale is None
        told = replace(self, scale={NOMINAL: list(names)}) if is_open else self
        columns, labels = self._placed(names, read(told, names, test, pool), test)
        tested = read_items(test, columns, labels, "test")
        shown = ReadItems("", ())
        if pool is not None:
            alone = replace(columns, cluster=None, slices=(), label=self.column)
            shown = without_leaks(read_items(pool, alone, labels, "demo"), tested)
        left_out = settle_bad([tested, shown], self.on_bad)
        check_classes(tested, labels)
        if pool is not None:
            check_classes(shown, labels)
        test_items = tuple(item for _, item in tested.items)
        pool_items = tuple(item for _, item in shown.items)
        return Dataset(
            name=self.name or name,
            task=labels.task,
            pool=pool_items,
            test=test_items,
            source=test.file,
            licence=self.licence,
            digest=dataset_digest(labels.task.scale, pool_items, test_items),
            left_out=left_out,
        )

    def _spread(
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

    def _placed(self, names: Sequence[str], labels: Labels, table: Table) -> tuple[Columns, Labels]:
        """Columns with the fields that change places, and a reader that knows these."""
        own = {**self.fields, **dict(zip(names, names, strict=True))}
        columns = replace(self, fields=own, systems=()).of(table)
        if names:
            places = option_places(names, labels.task.scale)
            return columns, with_places(labels, places, self.task)
        if self.exchange is None:
            return columns, labels
        places = read_exchange(self.exchange, labels.task.scale, columns.texts)
        systems = self.systems
        if systems is None:
            usual = [f"system_{letter}" for letter in ascii_lowercase[: len(places.fields)]]
            systems = usual if {*usual} <= {*table.columns} else ()
        elif len(systems) != len(places.fields):
            told = f"systems lists {list(systems)}"
            raise Problem(f"{told}; list one column for each of {places.fields}")
        columns = replace(columns, systems=tuple(map(str, systems)))
        return columns, with_places(labels, places, self.task)


def describe(options: Mapping[str, Any]) -> Description:
    """The description that some options give; None leaves `fields` out, as it does a label."""
    return Description(**{**options, "fields": options.get("fields") or {}})


def load_file(
    path: str | Path,
    *,
    demos: str | Path | None = None,
    quotes: bool | None = None,
    **options: Any,
) -> Dataset:
    """Load a CSV, TSV, JSON-lines or Parquet file; `demos` is a second one for the demonstrations.

    Without `demos` the pool is empty and the sampler sets part of the file aside; a file of them
    has labels regardless. `options` are those of a description.
    """
    path, told = Path(path), describe(options)
    if told.options is None and told.scale not in (None, NOMINAL):
        # Report a bad scale before a bad file.
        read_labels(told.scale, told.labels, told.task, told.column)
    test = read_table(path, quotes, is_held=False)
    if told.scale is None and told.options is None and not isinstance(told.task, Task):
        told = replace(told, scale=test.orders.get(told.column))
    pool = read_table(Path(demos), quotes, is_held=False) if demos else None
    return told.dataset(test, pool, _described_labels, path.stem)


def _described_labels(
    told: Description, names: Sequence[str], test: Table, pool: Table | None
) -> Labels:
    is_counted = names and told.labels is None
    found: list[object] = []
    if is_counted or told.scale == NOMINAL:
        tables = [table for table in (test, pool) if table is not None]
        found = [record.values.get(told.column) for table in tables for record in table.records]
    spelled = told.labels
    if is_counted:  # the option that each number means, if labels are numbers and one of them is 0
        keys = {label_key(one) for one in found if one is not None and not is_blank(str(one))}
        numbers = {str(n) for n in range(len(names))}
        spelled = dict(enumerate(names)) if "0" in keys and keys <= numbers else None
    used = found if told.scale == NOMINAL else ()
    return read_labels(told.scale, spelled, told.task, told.column, used)


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
