"""Study -> Trial: ask a few items and show how each reply is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flipmeter.base.printed import Printed
from flipmeter.base.run_sync import wait_for
from flipmeter.model import Ledger, Store
from flipmeter.run.fallbacks import adapted, learn
from flipmeter.run.first_look import Heard, Whose, doubts, hear, short, whose
from flipmeter.run.perform import engine_for, opened
from flipmeter.run.rate import Evidence
from flipmeter.study.file import Study
from flipmeter.study.grid import conditions, worlds

if TYPE_CHECKING:
    from rich.console import RenderableType

TRIED = 3
"""Default number of items."""


@dataclass(frozen=True, repr=False)
class Trial(Printed):
    """A few replies of each rater under every view, and how they were read."""

    heard: tuple[Heard, ...]

    @property
    def doubts(self) -> dict[Whose, str]:
        """Doubts about most replies of a rater, however few were asked for."""
        return doubts(self.heard, fewest=1)

    def rows(self) -> Iterator[dict[str, str]]:
        """One row for each reply."""
        for one in self.heard:
            rater, dataset, level = whose(one.condition)
            reply = one.evidence.reply
            yield {
                "rater": rater,
                "dataset": dataset,
                "level": level,
                "item": one.evidence.call.ask.item.id,
                "view": _view(one.evidence),
                "reply": reply.error or reply.text,
                "label": one.label,
                "class": one.outcome,
            }

    def tables(self) -> Iterable[RenderableType]:
        from flipmeter.report.table import Column, Table

        columns = (
            *("item", "view", Column("reply", lambda row: short(row["reply"]))),
            Column("label as read", lambda row: row["label"]),
            Column("class as meant", lambda row: row["class"]),
        )
        groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
        for row in self.rows():
            groups.setdefault((row["rater"], row["dataset"], row["level"]), []).append(row)
        for named, rows in groups.items():
            yield Table.of(", ".join(part for part in named if part), columns, rows)
        yield from (
            f"! {rater} on {dataset}: {reason}"
            for (rater, dataset, _), reason in self.doubts.items()
        )


def _view(evidence: Evidence) -> str:
    view, part = evidence.call.ask.view, evidence.call.ask.part
    again = f" (repeat {view.repeat})" if view.repeat else ""
    return f"{view.name}{again}{f', {part}' if part else ''}"


def try_study(
    study: Study, store: Store, n_items: int = TRIED, *, ledger: Ledger | None = None
) -> Trial:
    """Ask the first items of a study under every view, once each, at its base and its levels."""
    ledger = ledger or Ledger()
    datasets = study.load()
    grid = [
        replace(condition, items=condition.items[:n_items])
        for condition in conditions(study, datasets)
        if not condition.view.repeat and condition.seed == study.seeds[0]
    ]
    grid, _ = adapted(grid, wait_for(learn(grid, store, ledger=ledger, budget=study.allowance)))

    async def ask() -> list[Heard]:
        async with opened(grid, worlds(study, datasets, grid)) as backends:
            engine = engine_for(backends, store, ledger, study.allowance)
            identities = {seat: backend.identity for seat, backend in backends.items()}
            return await hear(grid, engine, identities)

    return Trial(tuple(one for one in wait_for(ask()) if one.is_about_an_item))
