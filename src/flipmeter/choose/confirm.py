"""Card -> Confirmation: its rater on unseen items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import RenderableType

from flipmeter.ask.store import Store
from flipmeter.choose.card import (
    BESIDE,
    Card,
    ConfirmedContrast,
    ConfirmedOn,
    EstimateEntry,
    SelectedOn,
)
from flipmeter.data.labels import item_digest, unit_digests
from flipmeter.data.sampling import Balance, largest_test_size
from flipmeter.errors import Problem
from flipmeter.printed import Printed
from flipmeter.removed import without_defaults
from flipmeter.run.folder import Run
from flipmeter.run.perform import perform
from flipmeter.run.progress import Terms
from flipmeter.show.format import count, interval, number, percent
from flipmeter.show.table import Column, Table
from flipmeter.stats.front import read_field, standings
from flipmeter.stats.judge import judge
from flipmeter.stats.verdict import Verdict, Word, overall
from flipmeter.study.entries import PanelEntry
from flipmeter.study.file import Study
from flipmeter.study.grid import conditions, contrasts_in
from flipmeter.types import Dataset

PROMPT = "card.md"
"""Name of a card's prompt file in the study of its confirmation."""


@dataclass(frozen=True, repr=False)
class Confirmation(Printed):
    """Verdicts on the limits of a card, on items that the choice did not see.

    `card` has them in its section `confirmed`. An incomplete run confirms nothing: `missing` says
    what it lacks, and the card stays as it was.
    """

    card: Card
    run: Run
    verdicts: Mapping[str, Verdict]
    missing: str = ""

    @property
    def word(self) -> Word:
        return overall(found.word for found in self.verdicts.values())

    def tables(self) -> Iterator[RenderableType]:
        name = self.card.jury.name if self.card.jury else self.card.rater.name
        limits = _selected_section(self.card).limits
        columns = (
            *("contrast", "verdict"),
            Column("flips [95 %]", lambda row: interval(row, absent="-")),
            Column("limit", lambda row: number(limits[row["contrast"]], "g")),
            Column("items", lambda row: count(row["n_clusters"])),
            Column("unreadable", lambda row: percent(row["unreadable"]) or "-"),
            "why",
        )
        rows = (
            {**vars(one), "contrast": name, "verdict": one.word, "why": one.why}
            for name, one in self.verdicts.items()
        )
        yield Table.of(f"{name}: {self.word}", columns, rows)
        told = self.card.confirmed
        if told is not None and told.attempt > 1:
            yield f"confirmation {told.attempt} of this rater: each has its own 5 % error rate"


def confirm(
    card: Card,
    n_items: int,
    folder: Path,
    store: Store,
    terms: Terms | None = None,
    *,
    beside: Path = Path(),
    data_dir: Path | None = None,
) -> Confirmation:
    """Ask the rater of a card about items of its dataset that the choice did not see.

    They are asked under the probes that its limits are about, with the demonstrations of the card;
    every limit is tested by its own bound, as one rater was chosen beforehand. `beside`
    is the folder of the card, which the paths in it count from.
    """
    limits = _limits_to_confirm(card)
    asked = card.beside(beside)
    dataset = unseen(card, beside, data_dir)
    _refuse_too_few(dataset, n_items, _selected_section(card).balance)
    study = _confirmation_study(asked, n_items)
    own = {one.rater.name: one for one in asked.conditions()}
    grid = [  # exactly the rater that the card describes
        replace(one, rater=mine.rater, demos=mine.demos, calibration=mine.calibration)
        for one in conditions(study, [dataset])
        for mine in [own[one.rater.name]]
    ]
    views = {condition.view.name for condition in grid}
    known = [one for one in contrasts_in(study, grid) if one.name in limits]
    if not any(views.issuperset(one.views) for one in known):
        raise Problem(
            f"{', '.join(limits)} cannot vary with this rater ({grid[0].rater.pipeline}), so "
            "there is nothing to confirm"
        )
    run = perform(study, folder, store, terms, laid_out=([dataset], grid))
    found = _limit_verdicts(run, limits, _selected_section(card).max_unreadable)
    failed = int(run.tally["error"].sum())
    if missing := run.stopped or (f"{failed} decisions failed after retries" if failed else ""):
        return Confirmation(card, run, found, missing)
    section = _confirmed_section(card, run, found, len(grid[0].items))
    return Confirmation(card.model_copy(update={"confirmed": section}), run, found)


def _selected_section(card: Card) -> SelectedOn:
    if card.selected is None:
        raise Problem(
            "the card does not say what it was selected on, so there is no choice to confirm; "
            "write one: flipmeter select RUN --out CARD"
        )
    return card.selected


def _limits_to_confirm(card: Card) -> Mapping[str, float]:
    """The limits of a card, or why it cannot be confirmed."""
    selected = _selected_section(card)
    if not selected.seen or not selected.limits:
        raise Problem(
            "the card does not say which items its choice saw; write it again: "
            f"flipmeter select {selected.run} --out CARD"
        )
    if card.average:
        raise Problem(
            f"the card averages over {', '.join(card.average)}, which was not selected; remove "
            "`average` to confirm the selected rater"
        )
    return selected.limits


# --- items ------------------------------------------------------------------------------------


def unseen(card: Card, folder: Path = Path(), data_dir: Path | None = None) -> Dataset:
    """The dataset of a card with only the test items that the choice did not see.

    Its demonstrations are those of the card, and its pool what the card calibrates on.
    """
    selected, condition = _selected_section(card), card.condition()
    file = selected.source.get("file") if isinstance(selected.source, Mapping) else None
    here = folder if file is None or (folder / file).exists() else Path()
    dataset = selected.load(here, data_dir, len(card.task.scale))
    shown = (unit_digests(item) for item in (*condition.demos, *condition.calibration))
    seen = set(selected.seen.split()).union(*shown)
    return replace(
        dataset,
        name=selected.dataset,
        task=condition.task,
        test=tuple(item for item in dataset.test if not unit_digests(item) & seen),
        pool=condition.calibration,
        demos=condition.demos,
    )


def _refuse_too_few(dataset: Dataset, n_items: int, balance: Balance) -> None:
    """Say how many items there are that the choice did not see, if they are too few."""
    if n_items < 1:
        raise Problem(f"--items is {n_items}; confirm on at least 1 item")
    by_class = Counter({item_digest(item): item.gold for item in dataset.test}.values())
    n_of = {rank: by_class[rank] for rank in dataset.task.scale.ranks}
    if dataset.task.scale.span is not None:
        balance, n_of = "proportional", {0: sum(n for rank, n in by_class.items() if rank)}
    most = largest_test_size(n_of, balance)
    unseen = f"{sum(n_of.values())} labelled items that were not used for the selection"
    told = f"{dataset.name} has {unseen}"
    if balance == "equal":
        shares = ", ".join(f"{dataset.task.scale.name(rank)} {n}" for rank, n in n_of.items())
        told += f" ({shares}), at most {most} of them in equal numbers by class"
    if n_items > most:
        way_out = f"use --items {most} or fewer, or add rows" if most else "add rows to the data"
        raise Problem(f"{told}, but --items is {n_items}; {way_out}")


# --- asking -----------------------------------------------------------------------------------


def _confirmation_study(card: Card, n_items: int) -> Study:
    """The card as a study; what is asked is laid out from the card itself."""
    selected = _selected_section(card)
    style = without_defaults(card.style)
    prompts = {PROMPT: style["prompt"]} if style.get("prompt") else {}
    panels = {}
    if jury := card.jury:
        own = PanelEntry(of=list(jury.members), by=jury.by, show_members=False)
        panels[jury.name] = own  # its members were not chosen
    return Study(
        name=f"{selected.study}-confirm",
        models=card.members,
        panels=panels,
        datasets=[selected.source],
        seeds=[card.seed],
        test_size=n_items,
        balance=selected.balance,
        probes=selected.probes,
        repeats=1,
        prompts=prompts,
        criteria=card.task.criteria,
        base=style | dict.fromkeys(("prompt",) if prompts else (), PROMPT),
        pipeline=card.pipeline,
        scores="sampled" if card.score_samples else card.scores,
        **({"score_samples": card.score_samples} if card.score_samples else {}),
        answer=card.answer,
        calibration_size=max(1, len(card.calibration)),
        decoding=card.decoding,
        min_interval=card.min_interval,
        margin=min(selected.limits.values()),
    )


# --- judging ----------------------------------------------------------------------------------


def _limit_verdicts(
    run: Run, limits: Mapping[str, float], unreadable_limit: float
) -> dict[str, Verdict]:
    """The verdict on every limit; contrasts that cannot vary with this rater are left out."""
    found = {}
    for contrast in run.contrasts:
        if contrast.name in limits:
            ((row, verdict),) = judge(
                run.panels,
                [contrast],
                margin=limits[contrast.name],
                unreadable_limit=unreadable_limit,
                on="rate",
            )
            if row.status != "not applicable":
                found[contrast.name] = verdict
    return found


def _confirmed_section(
    card: Card, run: Run, found: Mapping[str, Verdict], n_items: int
) -> ConfirmedOn:
    selected, before = _selected_section(card), card.confirmed
    limits, models = selected.limits, run.environment["models"]
    (standing,) = standings(read_field(run.parts.decisions, (), by=selected.by, cost="none"))
    attempt = 1
    if before is not None and before.rater == card.digest:
        attempt = before.attempt + (before.n_items != n_items)
    return ConfirmedOn(
        word=overall(one.word for one in found.values()),
        date=datetime.now(UTC).date().isoformat(),
        flipmeter=run.environment["flipmeter"],
        run=str(run.folder),
        n_items=n_items,
        attempt=attempt,
        rater=card.digest,
        identity=BESIDE.join(models[one.name or one.model] for one in card.members),
        contrasts={name: _confirmed_contrast(limits[name], one) for name, one in found.items()},
        estimates={selected.by: EstimateEntry.of(standing.score)},
    )


def _confirmed_contrast(limit: float, found: Verdict) -> ConfirmedContrast:
    numbers = {
        name: None if (x := getattr(found, name)) is None else round(x, 6)
        for name in ("value", "low", "high", "upper", "unreadable")
    }
    return ConfirmedContrast(
        limit=limit, word=found.word, reason=found.reason, n=found.n_clusters, **numbers
    )
