"""Table of predictions or paths -> Run: existing answers, measured without a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any

import polars as pl
import yaml

from flipmeter.data.labels import read_span, span_spec
from flipmeter.data.tables import read_table
from flipmeter.errors import Problem
from flipmeter.prompt.probes import contrasts_of, expand, probes, shown_in
from flipmeter.run.folder import Run
from flipmeter.run.generation import DECISIONS, ITEMS
from flipmeter.run.prediction_rows import PredictionRows, unfolded
from flipmeter.run.rows import ITEM, SCHEMAS
from flipmeter.study.file import Study
from flipmeter.types import Contrast, Scale, Span

BASE = "base"
NOMINAL = "nominal"
NEEDS = "item, condition and label"


@dataclass(frozen=True)
class Predictions(Run):
    """A table of answers, measured as the run that they might come from."""

    scale: tuple[str, ...] = ()
    span: Span | None = None

    @property
    def where(self) -> str:
        """The name of this table in commands: its file, and its classes if given."""
        first, *others = self.scale or ("",)
        if not first:
            return super().where
        is_nominal = first == NOMINAL and bool(others)
        listed = f"{NOMINAL}:{','.join(others)}" if is_nominal else ",".join(self.scale)
        return f"{super().where} --scale {quote(listed)}"

    @cached_property
    def _reading(self) -> PredictionRows:
        table = unfolded(read_table(self.folder, needs=NEEDS))
        return PredictionRows(table, self.scale, self.folder.stem, self.span)

    @cached_property
    def decisions(self) -> pl.DataFrame:
        return self._reading.decisions

    def _check(self, decisions: pl.LazyFrame) -> None:
        """A table is checked as it is read."""

    @cached_property
    def items(self) -> pl.DataFrame:
        whose = self.decisions.select("dataset", pl.col("item").alias("id"), "gold")
        told = [(*place, text) for place, text in self._reading.texts.items()]
        texts = pl.DataFrame(told, schema={"dataset": str, "id": str, "text": str}, orient="row")
        found = whose.unique(["dataset", "id"], maintain_order=True)
        found = found.join(texts, on=["dataset", "id"], how="left", maintain_order="left")
        known = found.with_columns(pl.col("text").fill_null(""), role=pl.lit("test"))
        blank = known.with_columns(pl.lit("").alias(n) for n in ("fields", "cluster", "columns"))
        return blank.select(ITEM.kinds.names())

    def scan(self, name: str) -> pl.LazyFrame:
        if name == DECISIONS:
            return self.decisions.lazy()
        return self.items.lazy() if name == ITEMS else SCHEMAS[name].table().lazy()

    @cached_property
    def contrasts(self) -> tuple[Contrast, ...]:
        return contrasts_between(self.views)

    @cached_property
    def study(self) -> Study:
        names: dict[str, list[Any]] = {one: self.named(one) for one in ("rater", "dataset", "seed")}
        study = Study(
            models=names["rater"],
            datasets=names["dataset"],
            seeds=names["seed"],
            probes=list(dict.fromkeys(c.probe for c in self.contrasts if c.probe)),
        )
        return study.model_copy(update={"name": self.folder.stem})  # shown, and no file's name

    @property
    def recipe(self) -> str:
        scales = {
            name: list(scale.names) if scale.span is None else span_spec(scale.span)
            for name, scale in self.scales.items()
        }
        told = {"predictions": str(self.folder), "conditions": self.views, "scales": scales}
        return yaml.safe_dump(told, sort_keys=False, allow_unicode=True)

    @cached_property
    def environment(self) -> Mapping[str, Any]:
        return {
            "reproducible": [],
            "datasets": {
                name: {
                    "source": str(self.folder),
                    "n_items": self.decisions.filter(dataset=name)["item"].n_unique(),
                    "notes": [*self._reading.notes, *_absence_notes(self.decisions, name)],
                }
                for name in self.named("dataset")
            },
        }

    @property
    def scales(self) -> dict[str, Scale]:
        return {name: labels.task.scale for name, labels in self._reading.labels.items()}

    @property
    def is_settled(self) -> bool:
        return False

    @property
    def _greedy(self) -> list[str]:
        return []


TableScale = Sequence[str] | Mapping[str, float]
"""The classes of a table, lowest first, or `{from: 0, to: 10, within: 0.5}`."""


def read_predictions(path: str | Path, scale: TableScale = ()) -> Predictions:
    """Read a table of predictions: CSV, JSON lines or Parquet, one answer a row.

    It needs the columns item, condition and label, and may have gold, model, dataset, level, seed,
    repeat, slot, fault, text and `p_CLASS`. `scale` names the classes, lowest first; `nominal`
    alone, or before them, says that they have no order. Decimal scores have a range instead:
    `{from: 0, to: 10, within: 0.5}`.
    """
    if isinstance(scale, Mapping):
        if (span := read_span(scale)) is None:
            raise Problem("the scale of a table is a list of classes, or {from: 0, to: 10}")
        found = Predictions(Path(path), span=span)
    else:
        found = Predictions(Path(path), (scale,) if isinstance(scale, str) else tuple(scale))
    found.decisions  # noqa: B018 - what is wrong with a table is said when it is read
    return found


def contrasts_between(conditions: Sequence[str]) -> tuple[Contrast, ...]:
    """The built-in contrasts for built-in views; any other condition is compared with the first."""
    known = {view.name for view in expand(list(probes), 2)}
    made = shown_in(contrasts_of(list(probes)), conditions)
    ours = [contrast for contrast in made if set(contrast.views) <= {*conditions}]
    first = BASE if BASE in conditions else conditions[0]
    theirs = [
        Contrast(name, (first, name), f"{first} / {name}")
        for name in conditions
        if name != first and not (name in known and ours)
    ]
    taken = {contrast.name for contrast in contrasts_of(list(probes))}
    for contrast in theirs:
        if contrast.name in taken:
            raise Problem(
                f"a condition is called '{contrast.name}', which is the name of a built-in "
                f"contrast; rename it"
            )
    return (*ours, *theirs)


def _absence_notes(decisions: pl.DataFrame, dataset: str) -> Iterator[str]:
    """Yield which conditions lack items that others have: what is paired is what both have."""
    mine = decisions.filter(pl.col("dataset") == dataset, pl.col("repeat") == 0)
    whose = ["rater", "level", "seed"]
    items = mine.select(*whose, "item").unique()
    for view in mine["view"].unique(maintain_order=True):
        has = mine.filter(pl.col("view") == view).select(*whose, "item")
        n_absent = items.join(has, on=[*whose, "item"], how="anti").height
        if n_absent:
            yield (
                f"'{view}' lacks {n_absent:,} of {items.height:,} answers that other conditions "
                "have; only items with both answers form pairs"
            )
