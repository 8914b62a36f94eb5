"""Study -> PromptSample: every prompt of a study, and what reads its reply elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from flipmeter.ask.names import identity_of
from flipmeter.errors import Problem
from flipmeter.run.rate import Rating, seat
from flipmeter.study.file import Study
from flipmeter.study.grid import conditions
from flipmeter.types import Call, Condition, Contrast, Extract, Message, Prompt, Script, Span

METADATA = "flipmeter"
"""The metadata key with the study of a task."""
ANYBODY = "inspect/anybody"
"""The model of a study while it is not known who will answer."""
PIPELINE = "pointwise"
SINGLE = (PIPELINE, "pair")
"""The pipelines that ask one prompt for each item and view."""
READING = ("answers", "ranks", "extract", "within", "is_mirrored")
"""Metadata used only to read a reply."""
NOISE, ACCURACY = "noise", "accuracy"
SHOWN = ("low", "high", "k", "n", "failed")


@dataclass(frozen=True)
class PromptSample:
    """One prompt of a study: an item under a condition."""

    condition: Condition
    call: Call

    @property
    def id(self) -> str:
        """A unique name for a question of the study."""
        where = self.metadata
        names = ("dataset", "level", "seed", "item", "view", "repeat")
        return "|".join(str(where[name]) for name in names)

    @property
    def metadata(self) -> dict[str, Any]:
        """The place of a reply and the way to read it, as plain values."""
        condition, prompt, item = self.condition, self.call.prompt, self.call.ask.item
        of_span: dict[str, Any] = {}
        if (span := prompt.span) is not None:
            of_span = {"scale_from": span.low, "scale_to": span.high, "tolerance": span.tolerance}
            of_span |= {"within": span.within, "is_mirrored": prompt.is_mirrored}
        return {
            "dataset": condition.dataset,
            "level": condition.level,
            "seed": condition.seed,
            "view": condition.view.name,
            "repeat": condition.view.repeat,
            "item": item.id,
            "gold": item.gold,
            "n_classes": condition.task.scale.n_ranks,
            "nominal": condition.task.scale.nominal,
            **of_span,
            "prompt": prompt.digest,
            "labels": prompt.labels,
            "answers": list(prompt.answers),
            "ranks": list(prompt.ranks),
            "extract": None if (how := condition.rater.extract) is None else asdict(how),
        }


def questions(study: Study) -> list[PromptSample]:
    """The prompts of a study item by item, so that a truncated run still has whole pairs."""
    _refuse_others(study)
    grid = conditions(study)
    identities = {seat(condition): identity_of(condition.rater.model) for condition in grid}
    together: dict[tuple[str, str, int, str], list[PromptSample]] = {}
    for call in Rating(grid, identities).calls():
        condition = grid[call.condition]
        place = condition.dataset, condition.level, condition.seed, call.ask.item.id
        together.setdefault(place, []).append(PromptSample(condition, call))
    return [question for some in together.values() for question in some]


def _refuse_others(study: Study) -> None:
    """Refuse what is more than a prompt and a label for every item and view."""
    for name, level in study.levels().items():
        if level.pipeline.partition("@")[0] not in SINGLE:
            where = f"level {name}" if name else "the study"
            raise Problem(
                f"{where} has the pipeline '{level.pipeline}', but an Inspect task asks one "
                f"prompt per item and view; use {PIPELINE}, or flipmeter run"
            )
    if study.panels:
        raise Problem("an Inspect task asks one model; leave out `panels`, or use flipmeter run")
    if study.is_scored:
        raise Problem("`scores: true` is not carried over from Inspect; leave it out")


def offered(metadata: Mapping[str, Any]) -> Prompt:
    """The labels of a prompt, without its text, to parse a reply with."""
    nothing = Script.of([Message("user", "")])
    answers, ranks = tuple(metadata["answers"]), tuple(metadata["ranks"])
    is_mirrored = bool(metadata.get("is_mirrored"))
    return Prompt(nothing, answers, ranks, metadata["labels"], span_of(metadata), is_mirrored)


def span_of(metadata: Mapping[str, Any]) -> Span | None:
    """The range of decimal scores of a sample, None where there are classes."""
    if metadata.get("scale_from") is None:
        return None
    return Span(metadata["scale_from"], metadata["scale_to"], metadata["within"])


def extract_of(metadata: Mapping[str, Any]) -> Extract | None:
    """The place of the label in a reply, None for anywhere."""
    how = metadata.get("extract")
    return None if how is None else Extract(**how)


def figures(estimates: pl.DataFrame, contrasts: Sequence[Contrast]) -> dict[str, float]:
    """The flip rates, the noise and the accuracy with their intervals, by name.

    Where there are several datasets, levels or seeds, their names stand before. A rate that is
    undefined is left out; its n and its failures are not.
    """
    readings = tuple(f"{contrast.name}_" for contrast in contrasts)
    names = [NOISE, *(contrast.name for contrast in contrasts)]
    metric = pl.col("metric")
    is_rate = pl.any_horizontal(metric.is_in(names), *map(metric.str.starts_with, readings))
    is_score = (metric == ACCURACY) & (pl.col("view") == "base")
    rows = estimates.filter(is_rate | is_score, policy="complete")
    groups = ["dataset", "level", "seed"]
    is_one = rows.select(groups).n_unique() <= 1
    found: dict[str, float] = {}
    for row in rows.iter_rows(named=True):
        where = [] if is_one else [row["dataset"], row["level"], f"seed {row['seed']}"]
        name = " ".join(filter(None, [*where, row["metric"]]))
        parts = {name: row["value"], **{f"{name} {part}": row[part] for part in SHOWN}}
        found |= {name: value for name, value in parts.items() if value is not None}
    return found
