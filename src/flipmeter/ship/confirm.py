"""Card -> Confirmation: its rater on unseen items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import RenderableType

from flipmeter.base.printed import Printed
from flipmeter.data import Balance, item_digest, largest_test_size, unit_digests
from flipmeter.measure import Verdict, judge, read_field, standings
from flipmeter.measure.effects.field import By
from flipmeter.measure.inference.words import Word, overall
from flipmeter.model import Asked, Ledger, Store
from flipmeter.model.backends.weights import Fetched
from flipmeter.removed import without_defaults
from flipmeter.report.format import count, interval, number, percent
from flipmeter.report.table import Column, Table
from flipmeter.run.perform import perform
from flipmeter.run.record.folder import Run
from flipmeter.ship.card import (
    BESIDE,
    Card,
    ConfirmedContrast,
    ConfirmedOn,
    EstimateEntry,
    SelectedOn,
)
from flipmeter.study.entries import PanelEntry
from flipmeter.study.file import Study
from flipmeter.study.grid import conditions, contrasts_in
from flipmeter.types import Condition, Contrast, Dataset, Problem

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
        limits = _selected(self.card).limits
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
    *,
    beside: Path = Path(),
    data_dir: Path | None = None,
    ledger: Ledger | None = None,
    on_reply: Asked | None = None,
    on_fetch: Fetched | None = None,
    on_plan: Callable[[int], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> Confirmation:
    """Ask the rater of a card about items of its dataset that the choice did not see.

    They are asked under the probes that its limits are about, with the demonstrations of the card;
    every limit is tested by its own bound, as one rater was chosen beforehand. `beside`
    is the folder of the card, which the paths in it count from.
    """
    limits = _confirmable(card)
    asked = card.beside(beside)
    dataset = unseen(card, beside, data_dir)
    _refuse_too_few(dataset, n_items, _selected(card).balance)
    study = _study(asked, n_items)
    grid = _grid(asked, study, dataset)
    _refuse_fixed(grid, contrasts_in(study, grid), limits)
    run = perform(
        study,
        folder,
        store,
        ledger=ledger,
        on_reply=on_reply,
        on_fetch=on_fetch,
        on_plan=on_plan,
        on_note=on_note,
        laid_out=([dataset], grid),
    )
    found = _verdicts(run, limits, _selected(card).max_unreadable)
    if missing := _missing(run):
        return Confirmation(card, run, found, missing)
    section = _section(card, run, found, len(grid[0].items))
    return Confirmation(card.model_copy(update={"confirmed": section}), run, found)


def _selected(card: Card) -> SelectedOn:
    if card.selected is None:
        raise Problem(
            "the card does not say what it was selected on, so there is no choice to confirm; "
            "write one: flipmeter select RUN --out CARD"
        )
    return card.selected


def _confirmable(card: Card) -> Mapping[str, float]:
    """The limits of a card, or why it cannot be confirmed."""
    selected = _selected(card)
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
    selected, condition = _selected(card), card.condition()
    here = _relative_to(selected.source, folder)
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


def _relative_to(source: object, folder: Path) -> Path:
    """The folder that a dataset's file counts from: that of the card, or this one."""
    file = source.get("file") if isinstance(source, Mapping) else None
    return folder if file is None or (folder / file).exists() else Path()


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


def _study(card: Card, n_items: int) -> Study:
    """The card as a study; what is asked is laid out from the card itself."""
    selected = _selected(card)
    style = without_defaults(card.style)
    prompts = {PROMPT: style["prompt"]} if style.get("prompt") else {}
    return Study(
        name=f"{selected.study}-confirm",
        models=card.members,
        panels={} if card.panel is None else _panels(card),
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


def _panels(card: Card) -> dict[str, PanelEntry]:
    """The panel of a card, alone: its members were not chosen."""
    jury = card.jury
    assert jury is not None, "only a card of a panel has one"
    return {jury.name: PanelEntry(of=list(jury.members), by=jury.by, show_members=False)}


def _grid(card: Card, study: Study, dataset: Dataset) -> list[Condition]:
    """The views of the study, asked of exactly the rater that the card describes."""
    own = {one.rater.name: one for one in card.conditions()}
    return [
        replace(one, rater=mine.rater, demos=mine.demos, calibration=mine.calibration)
        for one in conditions(study, [dataset])
        for mine in [own[one.rater.name]]
    ]


def _refuse_fixed(
    grid: Sequence[Condition], contrasts: Sequence[Contrast], limits: Mapping[str, float]
) -> None:
    """Refuse to ask where no limited contrast can vary: there would be nothing to confirm."""
    views = {condition.view.name for condition in grid}
    known = [one for one in contrasts if one.name in limits]
    if not any(views.issuperset(one.views) for one in known):
        raise Problem(
            f"{', '.join(limits)} cannot vary with this rater ({grid[0].rater.pipeline}), so "
            "there is nothing to confirm"
        )


def _missing(run: Run) -> str:
    """The missing part of an incomplete run."""
    if run.stopped:
        return run.stopped
    failed = int(run.tally["error"].sum())
    return f"{failed} decisions failed after retries" if failed else ""


# --- judging ----------------------------------------------------------------------------------


def _verdicts(run: Run, limits: Mapping[str, float], unreadable_limit: float) -> dict[str, Verdict]:
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


def _section(card: Card, run: Run, found: Mapping[str, Verdict], n_items: int) -> ConfirmedOn:
    limits, before = _selected(card).limits, card.confirmed
    by = _selected(card).by
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
        identity=_identity(card, run),
        contrasts={name: _entry(limits[name], one) for name, one in found.items()},
        estimates={by: _score(run, by)},
    )


def _identity(card: Card, run: Run) -> str:
    models = run.environment["models"]
    return BESIDE.join(models[one.name or one.model] for one in card.members)


def _entry(limit: float, found: Verdict) -> ConfirmedContrast:
    numbers = {
        "value": found.value,
        "low": found.low,
        "high": found.high,
        "upper": found.upper,
        "unreadable": found.unreadable,
    }
    rounded = {name: None if x is None else round(x, 6) for name, x in numbers.items()}
    return ConfirmedContrast(
        limit=limit, word=found.word, reason=found.reason, n=found.n_clusters, **rounded
    )


def _score(run: Run, by: By) -> EstimateEntry:
    """The scores of the rater on these items."""
    (found,) = standings(read_field(run.parts.decisions, (), by=by, cost="none"))
    return EstimateEntry.of(found.score)
