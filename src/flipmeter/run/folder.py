"""An untrusted run folder: its manifest and files, checked before they are used."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any

import polars as pl
import yaml
from pydantic import BaseModel, FiniteFloat, NonNegativeInt, ValidationError

from flipmeter.documents import RUN_FACTOR, TABLE_FACTOR
from flipmeter.parquet import check_parquet, collected, scan_file
from flipmeter.pipelines.pipeline import open_pipeline
from flipmeter.removed import is_removed
from flipmeter.run.generation import (
    CALLS,
    CONDITIONS,
    DECISIONS,
    ITEMS,
    MANIFEST,
    PROMPTS,
    STUDY,
    Manifest,
    checked,
    damaged,
    hold,
    read_schema,
)
from flipmeter.run.rows import (
    DECISION,
    PLACE,
    SCHEMAS,
    changes_of_model,
    in_order,
    prompt_text,
    tally,
)
from flipmeter.stats.estimates import measure
from flipmeter.stats.excess import noise_warnings
from flipmeter.stats.judge import verdicts
from flipmeter.stats.reading import Panels, Parts
from flipmeter.study.entries import TaskEntry
from flipmeter.study.file import Study, read_held
from flipmeter.types import STOPPED, UNFINISHED, Contrast, Remark, Scale, Task

MOST_CLASSES = 10_000


class _Data(BaseModel, strict=True):
    """The keys that readers use of a dataset."""

    digest: str = ""
    source: str = ""
    licence: str = ""
    n_items: NonNegativeInt
    n_available: NonNegativeInt | None = None
    weights: list[FiniteFloat] = []
    left_out: dict[str, int] = {}
    notes: list[str]


class _Facts(BaseModel):
    """The keys that readers use in a manifest; there may be more."""

    flipmeter: str
    models: dict[str, str]
    greedy: list[str] | None = None
    reproducible: list[str]
    contrasts: list[Contrast]
    tasks: dict[str, TaskEntry]
    datasets: dict[str, _Data]
    stopped: str = ""
    fallbacks: dict[str, list[str]] = {}


def check_facts(path: Path, facts: Mapping[str, Any]) -> None:
    """Refuse a manifest that lacks what readers need."""
    known = {field.name for field in fields(Contrast)}
    try:
        found = _Facts(**facts)
        strange = [name for one in facts["contrasts"] for name in one if name not in known]
        if strange or not all(contrast.views for contrast in found.contrasts):
            raise damaged(path, ValueError("a contrast of another version"))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise damaged(path, ValueError(f"{place}: {first['msg']}")) from error


def check_table(path: Path, format: int) -> Path:
    """Refuse a table that unpacks to too much or has other columns than a run of its format."""
    is_read_in_parts = path.name in (DECISIONS, CALLS)
    check_parquet(path, RUN_FACTOR if is_read_in_parts else TABLE_FACTOR)
    if fault := SCHEMAS[path.name].fault(read_schema(path), format):
        raise damaged(path, ValueError(fault))
    return path


def check_decisions(path: Path, decisions: pl.LazyFrame) -> None:
    """Refuse decisions that no rater can make: a class beyond the scale, an item without a name."""
    n = pl.col("n_classes")
    wrong = {
        "an empty key": pl.any_horizontal(pl.col(*DECISION.key, "rank", "slot", "fault").is_null()),
        "no number of classes": n.is_null()
        | ~n.is_between(2, MOST_CLASSES) & pl.col("scale_from").is_null(),
        "a class beyond the scale": ~pl.col("rank").is_between(0, n),
        "a slot beyond the list": ~pl.col("slot").is_between(0, n),
        "a gold class beyond the scale": ~pl.col("gold").is_between(1, n),
        "a negative seed or repeat": (pl.col("seed") < 0) | (pl.col("repeat") < 0),
        "a number of probabilities other than the number of classes": pl.col(
            "probabilities"
        ).list.len()
        != n,
        "invalid probabilities": ~pl.col("probabilities")
        .list.eval(pl.element().is_between(0, 1))
        .list.all(),
    }
    rules = (rule.any().alias(what) for what, rule in wrong.items())
    found = decisions.select(pl.len().alias("rows"), *rules).pipe(collected, "streaming")
    told = found.row(0, named=True)
    n_rows = told.pop("rows")
    for what, is_so in told.items():
        if is_so:
            raise damaged(path, ValueError(f"a row has {what}"))
    if not n_rows:
        raise damaged(path, ValueError("it has no rows"))


HALF = 0.5
"""Below this share of the probability on labels, what is said of them rests on little."""


def _read_remarks(told: Mapping[str, Sequence[str]]) -> dict[str, list[Remark]]:
    return {rater: [*map(Remark, lines)] for rater, lines in told.items()}


def _is_in_sample(pipeline: str) -> bool:
    """Whether a pipeline learns from test items; none of the removed ones did."""
    if is_removed("pipeline", pipeline):
        return False
    return open_pipeline(pipeline).traits.calibration == "test"


@dataclass(frozen=True)
class Run:
    """A run folder. Estimates are computed from the decisions, so they are never out of date."""

    folder: Path

    @property
    def where(self) -> str:
        """The name of this run in commands."""
        return quote(str(self.folder))

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest of the folder; the sizes of its files are checked.

        From here on the generation is locked: it stays readable when another run replaces it.
        """
        manifest, handle = hold(self.folder)
        weakref.finalize(self, os.close, handle)
        for name in manifest.files:
            checked(self.folder, manifest, name, is_whole=False)
        check_facts(self.folder / MANIFEST, manifest.facts)
        return manifest

    @cached_property
    def study(self) -> Study:
        return read_held(self.path(STUDY))

    @cached_property
    def decisions(self) -> pl.DataFrame:
        """All decisions, held; what is measured reads only `parts`."""
        return self.parts.decisions.drop(PLACE).pipe(collected)

    @cached_property
    def parts(self) -> Parts:
        """The decisions, checked and numbered, to be read a part at a time."""
        scan = self.scan(DECISIONS)
        self._check(scan)
        return Parts(scan.with_row_index(PLACE))

    def _check(self, decisions: pl.LazyFrame) -> None:
        check_decisions(self.folder / DECISIONS, decisions)

    @cached_property
    def tally(self) -> pl.DataFrame:
        """Every condition that was decided, in its order, with what it took."""
        return tally(self.parts.decisions)

    def named(self, column: str) -> list[str]:
        """The raters, datasets, levels or views, in the order of the study."""
        return self.tally[column].unique(maintain_order=True).to_list()

    @cached_property
    def calls(self) -> pl.DataFrame:
        return self.scan(CALLS).pipe(collected)

    @cached_property
    def items(self) -> pl.DataFrame:
        """Every item that was rated, shown or asked beside them, with its fields and gold."""
        return self.scan(ITEMS).pipe(collected)

    @cached_property
    def conditions(self) -> pl.DataFrame:
        """The conditions of the run: a row for every rater, dataset, level, seed and view."""
        return self.scan(CONDITIONS).pipe(collected)

    def scan(self, name: str) -> pl.LazyFrame:
        """A table by the name of its file, not yet read."""
        path = check_table(self.path(name), self.manifest.format)
        return SCHEMAS[name].whole(scan_file(path))

    def prompts(self, digests: Sequence[str]) -> dict[str, str]:
        """Prompts as they were sent, as one text each, by digest; only these are read."""
        table = self.scan(PROMPTS)
        asked = table.filter(pl.col("digest").is_in(digests), pl.col("head") != "")
        own = asked.pipe(collected)
        wanted = own["head"].unique().to_list()
        shared = table.filter(pl.col("digest").is_in(wanted), pl.col("head") == "")
        heads = dict(shared.select("digest", "text").pipe(collected).iter_rows())
        return {d: prompt_text(heads[head], rest) for d, head, rest in own.iter_rows()}

    @property
    def environment(self) -> Mapping[str, Any]:
        """The provenance of the run, to trust or repeat it."""
        return self.manifest.facts

    @cached_property
    def panels(self) -> Panels:
        """The decisions laid out by item and view, for all that is measured."""
        reproducible = self.environment["reproducible"]
        names = {name: scale.names for name, scale in self.scales.items()}
        available = self._about_datasets("n_available")
        return Panels(self.parts, reproducible, self.weights, names, available=available)

    def _about_datasets(self, key: str) -> dict[str, Any]:
        """The facts under a key by dataset, for those that have it."""
        told = self.environment["datasets"].items()
        return {name: about[key] for name, about in told if about.get(key)}

    @property
    def weights(self) -> dict[str, list[float]]:
        """Frequencies of the classes in production by dataset, where the study names them."""
        return self._about_datasets("weights")

    @cached_property
    def estimates(self) -> pl.DataFrame:
        measured = measure(self.panels, self.contrasts, mode=self.study.mode)
        return in_order(measured, self.tally).with_columns(
            warning=pl.col("rater").replace_strict(
                self.warnings, default="", return_dtype=pl.String
            )
        )

    @cached_property
    def contrasts(self) -> tuple[Contrast, ...]:
        """The contrasts as the run had them, whatever is registered here."""
        told = self.environment["contrasts"]
        return tuple(Contrast(**{**one, "views": tuple(one["views"])}) for one in told)

    @property
    def recipe(self) -> str:
        """The study of the run, as YAML."""
        content = self.study.model_dump(mode="json")
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)

    @cached_property
    def tasks(self) -> dict[str, Task]:
        """The vocabulary of the prompts by dataset."""
        return {name: TaskEntry(**told).task for name, told in self.environment["tasks"].items()}

    @property
    def scales(self) -> dict[str, Scale]:
        """The classes, or the range of scores, by dataset."""
        return {name: task.scale for name, task in self.tasks.items()}

    @property
    def stopped(self) -> str:
        """The reason why the run ended before all items were rated, "" if it did not."""
        return str(self.environment.get("stopped", ""))

    @property
    def is_settled(self) -> bool:
        """Say whether the run ended early because the claim it was made for was settled."""
        return self.manifest.state == "settled"

    @property
    def unrated(self) -> list[str]:
        """The raters of the study that have no decision because the run stopped early."""
        if not self.stopped:
            return []
        juries = self.study.juries
        hidden = {name for jury in juries if not jury.shows_members for name in jury.members}
        known = {*self.named("rater"), *hidden}
        return [name for name in self.environment.get("models", {}) if name not in known]

    @cached_property
    def remarks(self) -> dict[str, list[Remark]]:
        """Remarks on the decisions, by rater, without the raters that have nothing."""
        found: dict[str, list[Remark]] = {}
        for told in (
            _read_remarks(self.environment.get("fallbacks", {})),
            _read_remarks(changes_of_model(self._calls_of_one())),
            self._noise_warnings(),
            _read_remarks(self._in_sample()),
            _read_remarks(self._little_mass()),
        ):
            for rater, remarks in told.items():
                found.setdefault(rater, []).extend(remarks)
        if self.stopped:
            remark = Remark(f"incomplete, {UNFINISHED}: {self.stopped}", code=STOPPED)
            for rater in self.named("rater"):
                found.setdefault(rater, []).append(remark)
        return found

    @property
    def warnings(self) -> dict[str, str]:
        """The remarks as texts."""
        return {rater: "; ".join(map(str, told)) for rater, told in self.remarks.items()}

    def _calls_of_one(self) -> pl.LazyFrame:
        """The answering models of raters with one model; the members of a panel differ rightly."""
        juries = [jury.name for jury in self.study.juries]
        return self.scan(CALLS).filter(~pl.col("rater").is_in(juries))

    def _noise_warnings(self) -> Mapping[str, list[Remark]]:
        """Say by rater when repeats look wrong; where draws are counted, some differ rightly."""
        if self.study.n_draws:
            return {}
        return noise_warnings(self.panels, self._greedy, self.environment["reproducible"])

    def _in_sample(self) -> dict[str, list[str]]:
        """Say by rater which levels learn a bias from items that they are tested on."""
        levels = self.study.levels()
        told = {
            name or "the base"
            for name in self.named("level")
            if name in levels
            and not is_removed("pipeline", levels[name].pipeline)  # none of those did
            and open_pipeline(levels[name].pipeline).traits.calibration == "test"
        }
        if not told:
            return {}
        line = f"in sample: {', '.join(sorted(told))} learn their correction from test items"
        return {rater: [line] for rater in self.named("rater")}

    def _little_mass(self) -> dict[str, list[str]]:
        """Say by rater where labels have less than half of the probability, if that is used."""
        is_used = self.study.is_scored or self.study.n_draws
        decisions = self.parts.decisions
        if not is_used or "label_mass" not in decisions.collect_schema():
            return {}
        known = decisions.filter(pl.col("label_mass").is_not_null()).group_by("rater")
        table = known.agg(pl.col(PLACE).min(), k=(pl.col("label_mass") < HALF).sum(), n=pl.len())
        counts = table.sort(PLACE).drop(PLACE).pipe(collected, "streaming")
        return {
            rater: [
                f"in {k:,} of {n:,} decisions the labels together have a probability below {HALF}"
            ]
            for rater, k, n in counts.iter_rows()
            if k
        }

    @property
    def greedy_models(self) -> list[str]:
        """The models that were asked without drawing, told by the run: some may be unknown here."""
        told = self.environment.get("greedy")
        return self.study.greedy_raters() if told is None else told

    @property
    def _greedy(self) -> list[str]:
        greedy = self.greedy_models
        juries = [one.name for one in self.study.juries if {*one.members} <= {*greedy}]
        return [*greedy, *juries]

    @cached_property
    def verdicts(self) -> pl.DataFrame:
        contrasts = [contrast for contrast in self.contrasts if contrast.is_judged]
        judged = verdicts(self.panels, contrasts, margin=self.study.margin)
        return in_order(judged, self.tally)

    @property
    def views(self) -> list[str]:
        """The views in the order in which the study shows them."""
        return self.named("view")

    def path(self, name: str) -> Path:
        """The path of a file of the run, verified to be unchanged."""
        return checked(self.folder, self.manifest, name)
