"""Run -> Selection: the Pareto front and the configuration to ship; each factor chosen alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import yaml

from flipmeter.checks import share
from flipmeter.choose.card import BESIDE, Card, CardPanel, EstimateEntry, SelectedOn, items_as_rows
from flipmeter.consent import trusting
from flipmeter.data.labels import unit_digests
from flipmeter.errors import Problem
from flipmeter.files import named
from flipmeter.pipelines.pipeline import Traits, open_pipeline
from flipmeter.printed import Printed
from flipmeter.registry import suggestion
from flipmeter.run.conditions import declares
from flipmeter.run.folder import Run
from flipmeter.run.generation import MANIFEST
from flipmeter.run.rows import read_item
from flipmeter.stats.frame import distinct
from flipmeter.stats.front import (
    NOBODY,
    By,
    Candidate,
    Cost,
    Field,
    Standing,
    chosen_in,
    limits_of,
    read_field,
    standings,
)
from flipmeter.stats.held_out import (
    PROMPT_FACTORS,
    HeldOut,
    LevelChoice,
    held_out,
    objectives,
    select_greedy,
)
from flipmeter.stats.judge import UNREADABLE_LIMIT, judge
from flipmeter.stats.resampling import as_is
from flipmeter.stats.residuals import residuals
from flipmeter.study.entries import DecodingEntry, ModelEntry, TaskEntry
from flipmeter.types import Contrast, Estimate, Item, Role, Task

if TYPE_CHECKING:
    from rich.console import RenderableType

    from flipmeter.choose.classifier import OrdinalClassifier
    from flipmeter.choose.confirm import Confirmation


@dataclass(frozen=True, repr=False, kw_only=True)
class Choice:
    """The configurations on a dataset, with the choice among them.

    `limits` are the limits on flips; `trouble` is the reason why there is nothing to choose from.
    `costs` by unit begin with the one that is weighed, `others` are numbers to look at, and
    `factors` the levels: each has an entry for every standing, in their order.
    """

    dataset: str
    by: By = "accuracy"
    limits: Mapping[str, float] = field(default_factory=dict)
    standings: Sequence[Standing] = ()
    chosen: Standing | None = None
    held_out: HeldOut | None = None
    trouble: str = ""
    costs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    others: Mapping[str, Sequence[Estimate]] = field(default_factory=dict)
    factors: Sequence[Mapping[str, str]] = ()

    @property
    def front(self) -> list[Standing]:
        """The Pareto front, best first."""
        sign = -1 if self.by == "accuracy" else 1
        found = [one for one in self.standings if one.is_on_front]
        return sorted(found, key=lambda one: sign * one.score.value)

    @property
    def instead_of(self) -> Standing | None:
        """The base of the chosen rater, where that is another configuration."""
        used = self.chosen
        if used is None or not used.level:
            return None
        bases = (one for one in self.standings if one.rater == used.rater and not one.level)
        return next(bases, None)


@dataclass(frozen=True)
class NextStep:
    """Something worth doing now: why, and the command that does it."""

    text: str
    command: str


def worst_flips(flips: Mapping[str, Estimate]) -> tuple[str, Estimate] | None:
    """The contrast that flips most often, of those that can."""
    known = [(name, one) for name, one in flips.items() if one.n]
    return max(known, key=lambda pair: pair[1].value, default=None)


def shown_configuration(one: Standing, *, several_raters: bool) -> str:
    """The name of a configuration in a list of several."""
    parts = [one.rater, one.level] if several_raters else [one.level or "base"]
    return " · ".join(part for part in parts if part)


ALL = "*"
"""Stands for every contrast in limits on flips."""


@dataclass(frozen=True, repr=False, kw_only=True)
class Selection(Choice, Printed):
    """The configurations of a run on one dataset, with the choice among them.

    Where flips of the contrasts in `flip_proof` must be ruled out, `can_flip` are the candidates
    that were left out because they are not.
    """

    run: Run
    cost: Cost
    field: Field
    left_out: tuple[str, ...] = ()
    unreadable_limit: float = UNREADABLE_LIMIT
    flip_proof: tuple[str, ...] = ()
    can_flip: tuple[str, ...] = ()

    def card(self) -> Card:
        """The chosen rater with its demonstrations and the evidence for it."""
        run, chosen = self.run, self.chosen
        if chosen is None:
            raise Problem(
                f"no configuration is shown to have {shown_limits(self.limits)}; raise the limit, "
                "ask more items, compare fewer configurations, or choose a level with --level"
            )
        study = run.study
        name, level = chosen.candidate
        jury = next((one for one in study.juries if one.name == name), None)
        asked = [name] if jury is None else jury.members
        levels = study.levels()
        if level not in levels:
            raise Problem(f"a factor of '{level}' was removed; choose another level with --level")
        rater = next(one for one in study.raters(levels[level]) if one.name == asked[0])
        entries = {one.name or one.model: one for one in study.entries}
        task = run.tasks[self.dataset]
        demos, calibration = _shown_with(run, name, self.dataset, level)
        return Card(
            model=entries[name] if jury is None else ModelEntry(model=f"panel/{name}", name=name),
            panel=jury and CardPanel(of=[entries[one] for one in asked], by=jury.by),
            identity=BESIDE.join(run.environment["models"][one] for one in asked),
            pipeline=rater.pipeline,
            style={
                name: level for name, level in vars(rater.style).items() if level not in (None, "")
            },
            decoding=DecodingEntry(**asdict(rater.decoding)),
            scores=rater.is_scored,
            score_samples=rater.n_draws,
            answer=study.answer,
            min_interval=study.min_interval,
            seed=study.seeds[0],
            task=TaskEntry.of(task),
            demos=items_as_rows(demos, task.scale),
            calibration=items_as_rows(calibration, task.scale),
            selected=_selection_evidence(self, chosen),
        )

    def classifier(self, **options: Any) -> OrdinalClassifier:
        """The chosen rater as a scikit-learn estimator, ready to predict."""
        from flipmeter.choose.classifier import OrdinalClassifier

        return OrdinalClassifier.of(self.card(), **options)

    def confirm(
        self,
        items: int,
        folder: str | os.PathLike[str] | None = None,
        *,
        store: str | os.PathLike[str] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        trust: bool = False,
        trust_hosts: Sequence[str] = (),
    ) -> Confirmation:
        """Test the chosen rater on unseen items; the result is in its card.

        `folder` is that of the new run, beside this one unless named; replies are kept in `store`.
        """
        from flipmeter.ask.store import Store
        from flipmeter.choose.confirm import confirm

        where = self.run.folder.with_name(f"{self.run.folder.name}-confirm")
        place = ":memory:" if store is None else named(Path(store))
        with trusting(trust, trust_hosts), Store(place) as replies:
            return confirm(
                self.card(),
                items,
                where if folder is None else named(Path(folder)),
                replies,
                data_dir=None if data_dir is None else Path(data_dir),
            )

    def tables(self) -> Iterator[RenderableType]:
        from flipmeter.choose.tables import selection_tables

        return selection_tables(self)


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
    max_unreadable: float = UNREADABLE_LIMIT,
    flip_proof: Sequence[str] = (),
    seed: int = 0,
) -> Selection:
    """Compare all raters and levels of a run on one of its datasets.

    The choice is the best candidate whose flip rates are shown to be below `max_flip` by
    simultaneous bounds (`*` is every contrast) and whose share of unreadable pairs is at most
    `max_unreadable`; or the `level` that is named. The axes are `contrasts`, by default all with a
    verdict. Flips of `flip_proof` contrasts must be ruled out by construction; "P2" is all pairs
    of its probe. `seed` draws the held-out halves.
    """
    name = _choose_dataset(run, dataset)
    asked, own = run.tally, on_dataset(run, name)
    if rater is not None:
        _check_run_name(rater, run.named("rater"), "model")
        asked, own = asked.filter(rater=rater), own.filter(rater=rater)
    here = asked.filter(dataset=name)["level"].unique().to_list()
    left_out = [one for one in asked["level"].unique(maintain_order=True) if one not in here]
    proof = ruled_out(run, flip_proof)
    own, can_flip = _flip_proof(run, own, proof) if proof else (own, ())
    judged = {one.name: one for one in run.contrasts if one.is_judged}
    for one in contrasts or ():
        _check_run_name(one, list(judged), "contrast with a verdict")
    axes = [judged[one] for one in judged if contrasts is None or one in contrasts]
    field = read_field(own, axes, by=by, cost=cost)
    limits = dict(max_flip or {})
    if (for_all := limits.pop(ALL, None)) is not None:
        limits = {**dict.fromkeys(field.contrasts, for_all), **limits}
    for one, limit in limits.items():
        share(limit, f"the limit on the flips of {one}", can_be_all=True)
    share(max_unreadable, "max_unreadable", can_be_all=True)
    held = limits_of(field, limits, max_unreadable)
    place = int(chosen_in(field, as_is(field.n_clusters), held)[0])
    found = tuple(standings(field, limits, dataset=name, unreadable_limit=max_unreadable))
    if level is not None:
        place = _find_candidate(field, rater, level)
    kept = None
    if level is None:
        kept = held_out(field, limits, seed=seed, dataset=name, unreadable_limit=max_unreadable)
    return Selection(
        run=run,
        dataset=name,
        by=by,
        cost=cost,
        limits=limits,
        field=field,
        standings=found,
        chosen=None if place == NOBODY else found[place],
        held_out=kept,
        left_out=tuple(left_out),
        unreadable_limit=max_unreadable,
        flip_proof=tuple(one.name for one in proof),
        can_flip=can_flip,
    )


def on_dataset(run: Run, name: str) -> pl.LazyFrame:
    """The decisions on a dataset; those of a run with no other are read where they stand."""
    every = run.parts.decisions
    return every if run.named("dataset") == [name] else every.filter(dataset=name)


def _choose_dataset(run: Run, dataset: str | None) -> str:
    names = run.named("dataset")
    if dataset is not None:
        _check_run_name(dataset, names, "dataset")
        return dataset
    at_base = run.tally.filter(level="")["dataset"].unique(maintain_order=True).to_list()
    if len(at_base) != 1:
        raise Problem(
            f"this run has several datasets ({', '.join(at_base)}), but a rater is shipped for one "
            "task; choose one with --dataset"
        )
    return str(at_base[0])


def _check_run_name(name: str, names: Sequence[str], what: str) -> None:
    if name not in names:
        raise Problem(f"no {what} named '{name}' in this run{suggestion(name, list(names))}")


def ruled_out(run: Run, names: Sequence[str]) -> list[Contrast]:
    """The contrasts with a verdict that some names stand for; an aggregate is its probe's pairs."""
    known = {one.name: one for one in run.contrasts}
    found: dict[str, Contrast] = {}
    for name in names:
        _check_run_name(name, list(known), "contrast")
        own = (one for one in run.contrasts if one.probe == known[name].probe and one.is_judged)
        pairs = [known[name]] if known[name].is_judged else list(own)
        found |= {one.name: one for one in pairs}
    return list(found.values())


def _flip_proof(
    run: Run, decisions: pl.LazyFrame, proof: Sequence[Contrast]
) -> tuple[pl.LazyFrame, tuple[str, ...]]:
    """The decisions of the candidates on which some contrasts cannot flip, and the other names."""
    rows = [row for row, _ in judge(decisions, proof)]
    ways = {(row.key[0], row.key[2]) for row in rows}
    able = {(row.key[0], row.key[2]) for row in rows if row.status != "by construction"}
    named = ", ".join(one.name for one in proof)
    if not ways - able:
        raise Problem(
            f"no configuration of this run rules out flips of {named}; add pipelines that do "
            "(docs/flip-proof.md): orbit for P1"
        )
    order = distinct(decisions, "rater", "level")
    kept = pl.DataFrame([one for one in order if one not in able], ["rater", "level"], orient="row")
    shown = tuple(shown_candidate((r, lev)) for r, lev in order if (r, lev) in able)
    return decisions.join(
        kept.lazy(), on=["rater", "level"], how="semi", maintain_order="left"
    ), shown


def _find_candidate(field: Field, rater: str | None, level: str) -> int:
    level = "" if level == "base" else level
    found = [place for place, one in enumerate(field.candidates) if one[1] == level]
    if not found:
        levels = list(dict.fromkeys(one[1] or "base" for one in field.candidates))
        raise Problem(f"no level named '{level}'{suggestion(level, levels)}")
    if len(found) > 1:
        raise Problem(f"several models have the level '{level or 'base'}'; choose one with --rater")
    return found[0]


# --- the card ---------------------------------------------------------------------------------


def _shown_with(
    run: Run, rater: str, dataset: str, level: str
) -> tuple[Sequence[Item], Sequence[Item]]:
    """The demonstrations and calibration items of a rater at a level, for the first seed."""
    seed = run.study.seeds[0]
    where = {"rater": rater, "dataset": dataset, "level": level, "seed": seed, "view": "base"}
    row = run.conditions.filter(**where, repeat=0).row(0, named=True)
    own = [read_item(one) for one in run.items.filter(dataset=dataset).iter_rows(named=True)]
    known = {(item.role, item.id): item for item in own}
    demos = [known["demo", name] for name in row["demos"]]
    apart: Role = "calibration" if ("calibration", *row["calibration"][:1]) in known else "test"
    return demos, [known[apart, name] for name in row["calibration"]]


def _selection_evidence(selection: Selection, chosen: Standing) -> SelectedOn:
    """The evidence for the choice, for its card."""
    run, study = selection.run, selection.run.study
    seen = run.items.filter(pl.col("role") != "null", dataset=selection.dataset)
    units = (unit_digests(read_item(row)) for row in seen.iter_rows(named=True))
    known = run.environment["datasets"]  # merging classes renames: "reviews/3" is of "reviews"
    about = known.get(selection.dataset) or known[selection.dataset.rpartition("/")[0]]
    kept = selection.held_out
    written = (run.folder / MANIFEST).stat().st_mtime
    limits = dict(selection.limits) or dict.fromkeys(selection.field.contrasts, study.margin)
    asked = {contrast.probe for contrast in run.contrasts if contrast.name in limits}
    return SelectedOn(
        run=str(run.folder),
        study=study.name,
        date=datetime.fromtimestamp(written, UTC).date().isoformat(),
        flipmeter=run.environment["flipmeter"],
        dataset=selection.dataset,
        source=about["spec"],
        digest=about["digest"],
        level=chosen.candidate[1],
        seeds=list(study.seeds),
        n_items=selection.field.n_items,
        n_candidates=len(selection.standings),
        by=selection.by,
        max_flip=dict(selection.limits),
        max_unreadable=selection.unreadable_limit,
        flip_proof=list(selection.flip_proof),
        limits=limits,
        probes=[name for name in study.probes if name in asked],
        balance=study.balance,
        merge=study.groups(study.levels()[chosen.candidate[1]].style),
        estimates=_estimate_entries(selection.by, chosen),
        held_out=_estimate_entries(selection.by, kept) if kept else {},
        held_out_chosen=[shown_candidate(one) for one in kept.chosen] if kept else [],
        cost_per_item=chosen.cost,
        cost_unit=selection.cost,
        is_on_front=chosen.is_on_front,
        chance_on_front=chosen.chance_on_front,
        chance_chosen=chosen.chance_chosen,
        warning=run.warnings.get(chosen.candidate[0], ""),
        seen=" ".join(sorted(set().union(*units))),
    )


def _estimate_entries(by: By, one: Standing | HeldOut) -> dict[str, EstimateEntry]:
    return {by: EstimateEntry.of(one.score)} | {
        name: EstimateEntry.of(flip) for name, flip in one.flips.items()
    }


def shown_candidate(candidate: Candidate) -> str:
    rater, level = candidate
    return f"{rater}, {level or 'base'}"


def shown_limits(limits: Mapping[str, float]) -> str:
    return ", ".join(f"{name} below {limit:g}" for name, limit in limits.items())


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
