"""Run -> the best level of every prompt factor, each chosen alone, as configs of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import yaml

from flipmeter.choose.card import Card
from flipmeter.errors import Problem
from flipmeter.pipelines.pipeline import Traits, open_pipeline
from flipmeter.registry import suggestion
from flipmeter.run.conditions import declares
from flipmeter.run.folder import Run
from flipmeter.stats.held_out import PROMPT_FACTORS, LevelChoice, objectives, select_greedy
from flipmeter.stats.residuals import residuals
from flipmeter.types import Item, Task

Choices = Mapping[str, Sequence[LevelChoice]]


def select_by_factor(
    run: Run, by: str | None = None, *, rater: str | None = None
) -> dict[str, tuple[LevelChoice, ...]]:
    """Choose levels for every rater, or for the one that is named."""
    raters = run.named("rater")
    if rater is not None and rater not in raters:
        raise Problem(f"no model named '{rater}' in this run{suggestion(rater, raters)}")
    found = {name: levels_of_rater(run, name, by) for name in ([rater] if rater else raters)}
    chosen = {name: choices for name, choices in found.items() if choices}
    if not chosen:
        raise Problem("no prompt factor was varied alone in this run; add levels under `vary:`")
    return chosen


def levels_of_rater(run: Run, rater: str, by: str | None = None) -> tuple[LevelChoice, ...]:
    """Choose by one metric, or by accuracy and each flip rate; empty if no factor was varied."""
    if run.tally.filter(rater=rater)["level"].n_unique() < 2:
        return ()
    own = run.parts.decisions.filter(rater=rater)
    table = residuals(own, run.contrasts, mode=run.study.mode)
    varied = table.filter(pl.col("factor").is_in(PROMPT_FACTORS))
    if varied.is_empty():
        return ()
    metrics = [by] if by else objectives(varied)
    return tuple(
        select_greedy(varied, baseline=run.study.style, metric=metric) for metric in metrics
    )


def configs_of(choices: Sequence[LevelChoice]) -> dict[str, dict[str, object]]:
    """The chosen levels as configs of a study, by name."""
    return {f"greedy-{one.metric}": dict(one.levels) for one in choices if one.levels}


def configs_yaml(choices: Choices) -> str:
    """Choices as YAML to paste into a study, one document per rater."""
    documents = []
    for rater, chosen in choices.items():
        lines = [f"# chosen on {' '.join(rater.split())}; {chosen[0].warning}"]
        for choice in chosen:
            gains = (
                f"{factor}={choice.levels[factor]} {points:+.1f}"
                for factor, points in choice.residuals.items()
            )
            told = ", ".join(gains) or "no level is better than the base"
            lines.append(f"# {choice.metric}: {told}")
        lines.append(yaml.safe_dump({"configs": configs_of(chosen)}, sort_keys=False).rstrip())
        documents.append("\n".join(lines))
    return "\n---\n".join(documents) + "\n"


CHEAPEST = ("orbit", "orbit(places:reversal)", "orbit(places:rotations)")
"""Pipelines tried in turn: 2 calls, then as many as options."""


def flip_proof(card: Card, names: Sequence[str]) -> Card:
    """The card with a pipeline that rules out flips of some probes.

    The plain pipeline is replaced by the first that does; any other must do it itself.
    """
    if card.pipeline != "pointwise":
        if not _rules_out(card, names):
            raise Problem(
                f"the pipeline '{card.pipeline}' does not rule out flips of {', '.join(names)}; "
                "leave it out to use one that does, or list fewer probes in flip_proof"
            )
        return card
    for pipeline in CHEAPEST:
        found = card.model_copy(update={"pipeline": pipeline})
        if _pipeline_fits(open_pipeline(pipeline).traits, card.task.task) and _rules_out(
            found, names
        ):
            return found
    raise Problem(
        f"no pipeline rules out flips of {', '.join(names)} for this task; list fewer probes in "
        "flip_proof, or average over them instead"
    )


def _rules_out(card: Card, names: Sequence[str]) -> bool:
    condition = card.condition()
    places = condition.task.places
    filled = dict.fromkeys(places.fields if places else (), "something")
    item = Item("any", {"text": "something", **filled})
    return all(declares(condition, name, item) for name in names)


def _pipeline_fits(traits: Traits, task: Task) -> bool:
    """Whether a pipeline can be asked about a task at all."""
    places = task.places
    if places is None:
        is_ordered = not task.scale.nominal or not traits.needs_order
        return is_ordered and not (traits.turns and traits.turns.places)
    if traits.turns and traits.turns.labels:
        return places.kind != "options"
    return traits.paradigm == "pointwise"
