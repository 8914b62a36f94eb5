"""Run -> Selection: the configurations that nobody beats, the one to ship, and what to try next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl

from flipmeter.design import cell_name, levels_of
from flipmeter.measure import (
    PROMPT_FACTORS,
    Field,
    HeldOut,
    Proposal,
    Standing,
    choose,
    held_out,
    objectives,
    propose,
    read_field,
    residuals,
    select_greedy,
    standings,
)
from flipmeter.measure.front import NOBODY, By, Candidate, Cost
from flipmeter.measure.statistics.resample import as_is
from flipmeter.registry import suggestion
from flipmeter.run.perform import DECISIONS, Run
from flipmeter.ship.card import Card, EstimateEntry, Evidence, TaskEntry, items_as_rows, style_entry
from flipmeter.shown import Shown
from flipmeter.study.entries import DecodingEntry
from flipmeter.study.file import BUILT_IN, CONFIG, Study, has_meaning
from flipmeter.types import Contrast, Problem

T = TypeVar("T")


@dataclass(frozen=True)
class Selection:
    """What a run says about its configurations on one dataset, and the one that is chosen."""

    dataset: str
    by: By
    cost: Cost
    limits: Mapping[str, float]
    field: Field
    standings: tuple[Standing, ...]
    chosen: Standing | None
    held_out: HeldOut | None
    left_out: tuple[str, ...] = ()

    @property
    def front(self) -> list[Standing]:
        """Return what nobody beats, the best first."""
        sign = -1 if self.by == "accuracy" else 1
        found = [one for one in self.standings if one.is_on_front]
        return sorted(found, key=lambda one: sign * one.score.value)


def select(
    run: Run,
    *,
    dataset: str | None = None,
    by: By = "accuracy",
    cost: Cost = "calls",
    max_flip: Mapping[str, float] | None = None,
    contrasts: Sequence[str] | None = None,
    rater: str | None = None,
    level: str | None = None,
    seed: int = 0,
) -> Selection:
    """Hold all raters and levels of a run against each other, on one of its datasets.

    Chosen is the best whose flips are surely below `max_flip`, or the `level` that is named. The
    axes are `contrasts`, all pairs unless said. `seed` draws the halves that are held out.
    """
    name = _dataset(run, dataset)
    asked = run.decisions
    if rater is not None:
        _known(rater, asked["rater"].unique(maintain_order=True).to_list(), "model")
        asked = asked.filter(rater=rater)
    own = asked.filter(dataset=name)
    left_out = [
        one
        for one in asked["level"].unique(maintain_order=True)
        if one not in own["level"].unique()
    ]
    field = read_field(own, _axes(run, contrasts), by=by, cost=cost)
    limits = dict(max_flip or {})
    place = int(choose(field, as_is(field.n_items), limits)[0])
    found = tuple(standings(field, limits, dataset=name))
    if level is not None:
        place = _named(field, rater, level)
    chosen = None if place == NOBODY else found[place]
    kept = held_out(field, limits, seed=seed) if level is None else None
    return Selection(name, by, cost, limits, field, found, chosen, kept, tuple(left_out))


def _dataset(run: Run, dataset: str | None) -> str:
    names = run.decisions["dataset"].unique(maintain_order=True).to_list()
    if dataset is not None:
        _known(dataset, names, "dataset")
        return dataset
    at_base = run.decisions.filter(level="")["dataset"].unique(maintain_order=True).to_list()
    if len(at_base) != 1:
        raise Problem(
            f"this run has several datasets ({', '.join(at_base)}), and a rater is shipped for one "
            "task; name it with --dataset"
        )
    return str(at_base[0])


def _known(name: str, names: Sequence[str], what: str) -> None:
    if name not in names:
        raise Problem(f"no {what} named '{name}' in this run{suggestion(name, list(names))}")


def _axes(run: Run, names: Sequence[str] | None) -> list[Contrast]:
    pairs = [contrast for contrast in run.study.contrasts if contrast.is_pair]
    for name in names or ():
        _known(name, [pair.name for pair in pairs], "pair of views")
    return [pair for pair in pairs if names is None or pair.name in names]


def _named(field: Field, rater: str | None, level: str) -> int:
    level = "" if level == "base" else level
    found = [place for place, one in enumerate(field.candidates) if one[1] == level]
    if not found:
        levels = list(dict.fromkeys(one[1] or "base" for one in field.candidates))
        raise Problem(f"no level named '{level}'{suggestion(level, levels)}")
    if len(found) > 1:
        raise Problem(f"several models were asked at '{level or 'base'}'; name one with --rater")
    return found[0]


# --- the card ---------------------------------------------------------------------------------


def card_of(run: Run, selection: Selection, data_dir: Path | None = None) -> Card:
    """Return the chosen rater with its demonstrations and the evidence for it."""
    chosen = selection.chosen
    if chosen is None:
        raise Problem(
            f"no configuration has flips surely below {_shown(selection.limits)}; raise the limit, "
            "ask more items, or name a level with --level"
        )
    study, shown = run.study, Shown(run, None, data_dir)
    rater, level = chosen.candidate
    where = (rater, selection.dataset, level, study.seeds[0], "base")
    if where not in shown.grid:
        why = "; ".join(shown.trouble) or "the study does not have it any more"
        raise Problem(f"the demonstrations of '{level or 'base'}' cannot be found: {why}")
    condition = shown.grid[where]
    entry = next(one for one in study.entries if (one.name or one.model) == rater)
    decoding = asdict(condition.rater.decoding)
    return Card(
        model=entry,
        identity=run.environment["models"][rater],
        pipeline=condition.rater.pipeline,
        style=style_entry(condition.rater.style),
        decoding=DecodingEntry(**decoding),
        scores=condition.rater.is_scored,
        score_samples=condition.rater.n_draws,
        answer=study.answer,
        min_interval=study.min_interval,
        seed=condition.seed,
        task=TaskEntry.of(condition.task),
        demos=items_as_rows(condition.demos, condition.task.scale),
        calibration=items_as_rows(condition.calibration, condition.task.scale),
        selected=_evidence(run, selection, chosen, _source(shown.study, selection.dataset)),
    )


def _evidence(
    run: Run, selection: Selection, chosen: Standing, source: str | dict[str, Any]
) -> Evidence:
    study = run.study
    about = _of(run.environment["datasets"], selection.dataset)
    kept = selection.held_out
    written = (run.folder / DECISIONS).stat().st_mtime
    return Evidence(
        run=str(run.folder),
        study=study.name,
        date=datetime.fromtimestamp(written, UTC).date().isoformat(),
        flipmeter=run.environment["flipmeter"],
        dataset=selection.dataset,
        source=source,
        digest=about["digest"],
        level=chosen.candidate[1],
        seeds=list(study.seeds),
        n_items=selection.field.n_items,
        n_candidates=len(selection.standings),
        by=selection.by,
        max_flip=dict(selection.limits),
        estimates=_entries(selection.by, chosen),
        held_out=_entries(selection.by, kept) if kept else {},
        held_out_chosen=[shown_candidate(one) for one in kept.chosen] if kept else [],
        cost_per_item=chosen.cost,
        cost_unit=selection.cost,
        is_on_front=chosen.is_on_front,
        chance_on_front=chosen.chance_on_front,
        chance_chosen=chosen.chance_chosen,
        warning=run.warnings.get(chosen.candidate[0], ""),
    )


def _entries(by: By, one: Standing | HeldOut) -> dict[str, EstimateEntry]:
    return {by: EstimateEntry.of(one.score)} | {
        name: EstimateEntry.of(flip) for name, flip in one.flips.items()
    }


def _source(study: Study, dataset: str) -> str | dict[str, Any]:
    """Return how a study names a dataset."""
    known = {one.name: spec for one, spec in zip(study.load(), study.datasets, strict=True)}
    return _of(known, dataset)


def _of(known: Mapping[str, T], dataset: str) -> T:
    """Look a dataset up, which merging classes renames: "reviews/3" is of "reviews"."""
    return known[dataset] if dataset in known else known[dataset.rpartition("/")[0]]


def shown_candidate(candidate: Candidate) -> str:
    rater, level = candidate
    return f"{rater}, {level or 'base'}"


def _shown(limits: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={limit:g}" for name, limit in limits.items())


# --- what to try next -------------------------------------------------------------------------


@dataclass(frozen=True)
class Next:
    """Configurations that were not asked, by name, each with why one would ask it."""

    configs: Mapping[str, Mapping[str, Any]]
    why: Mapping[str, str]


def propose_next(run: Run, selection: Selection, rater: str) -> Next:
    """Return what the best levels alone, and a model in which factors add up, would ask next."""
    configs: dict[str, dict[str, Any]] = {}
    why: dict[str, str] = {}
    at_base = _settings(run, "")
    asked = [_settings(run, name) for name in run.study.levels()]
    for metric, levels in _greedy(run, rater).items():
        if levels and {**at_base, **levels} not in asked:
            configs[f"greedy-{metric}"] = levels
            why[f"greedy-{metric}"] = f"the best level of each factor alone, for {metric}"
    for one in _factorial(run, selection, rater, at_base):
        changed = {name: value for name, value in one.cell.items() if value != at_base[name]}
        name = f"additive-{cell_name(at_base, one.cell)}".replace("=", "-").replace(",", "+")
        if changed not in configs.values():
            configs[name] = changed
            why[name] = f"{selection.by} {_expected(selection, one):.3f} expected; {one.note}"
    return Next(configs, why)


def _settings(run: Run, name: str) -> dict[str, Any]:
    """Return what a level sets, a prompt file by its name."""
    level = run.study.levels()[name]
    template = run.study.template_of(level.style)
    prompt = template.name if template else BUILT_IN
    return asdict(level.style) | {"prompt": prompt, "pipeline": level.pipeline}


def _greedy(run: Run, rater: str) -> dict[str, dict[str, Any]]:
    own = run.decisions.filter(rater=rater)
    if own["level"].n_unique() < 2:
        return {}
    table = residuals(own, run.study.contrasts, mode=run.study.mode)
    varied = table.filter(pl.col("factor").is_in(PROMPT_FACTORS))
    found = {}
    for metric in objectives(varied) if len(varied) else ():
        choice = select_greedy(varied, baseline=run.study.style, metric=metric)
        found[metric] = dict(choice.levels)
    return found


def _factorial(
    run: Run, selection: Selection, rater: str, at_base: Mapping[str, Any]
) -> list[Proposal]:
    """Fit the cells of the study that were compared; configs and other scales are no cells."""
    places = [
        place
        for place, (who, level) in enumerate(selection.field.candidates)
        if who == rater and not level.startswith(CONFIG) and level in run.study.levels()
    ]
    cells = [_settings(run, selection.field.candidates[place][1]) for place in places]
    values = {name: list(dict.fromkeys(cell[name] for cell in cells)) for name in at_base if cells}
    levels = levels_of(at_base, {name: some for name, some in values.items() if len(some) > 1})
    good = selection.field.good[places].mean(axis=1)
    flips = {
        name: np.array([selection.standings[place].flips[name].value for place in places])
        for name in selection.field.contrasts
    }
    return propose(
        levels,
        cells,
        good,
        {name: np.nan_to_num(rates) for name, rates in flips.items()},
        limits=selection.limits,
        allowed=lambda cell: has_meaning({**at_base, **cell}),
    )


def _expected(selection: Selection, one: Proposal) -> float:
    if selection.by == "accuracy":
        return one.score
    return (1 - one.score) * (selection.field.n_classes - 1)
