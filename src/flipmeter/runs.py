"""Study -> Run: a folder that holds what was asked, decided and measured."""

from __future__ import annotations

import asyncio
import json
import platform
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from flipmeter.data import merge
from flipmeter.measure import measure, verdicts
from flipmeter.model import (
    Backend,
    Ledger,
    Store,
    World,
    identity_of,
    is_reproducible,
    open_backend,
    stored_among,
)
from flipmeter.model.llama import Fetched
from flipmeter.model.run import Asked
from flipmeter.plan import Cost, Plan, price
from flipmeter.rate import Rated, Seat, first_round, rate, seat
from flipmeter.study import Study, conditions, draw_sample, read_study, worlds
from flipmeter.types import Condition, Dataset, Model, Problem, Usage

STUDY, DECISIONS, CALLS = "study.yaml", "decisions.parquet", "calls.parquet"
ESTIMATES, ENVIRONMENT = "estimates.parquet", "environment.json"

SCHEMA: dict[str, type[pl.DataType]] = {
    "rater": pl.String,
    "dataset": pl.String,
    "level": pl.String,
    "seed": pl.Int64,
    "view": pl.String,
    "repeat": pl.Int64,
    "item": pl.String,
    "gold": pl.Int64,
    "rank": pl.Int64,
    "slot": pl.Int64,
    "fault": pl.String,
    "tie_decided": pl.Boolean,
    "prompt": pl.String,
    "n_classes": pl.Int64,
    "n_calls": pl.Int64,
    "prompt_tokens": pl.Int64,
    "cached_tokens": pl.Int64,
    "completion_tokens": pl.Int64,
    "reasoning_tokens": pl.Int64,
    "seconds": pl.Float64,
}
CALL_SCHEMA: dict[str, type[pl.DataType]] = {
    **{name: SCHEMA[name] for name in ("rater", "dataset", "level", "seed", "view", "repeat")},
    "item": pl.String,
    "part": pl.String,
    "key": pl.String,
    "reply": pl.String,
    "finish": pl.String,
    "answered_by": pl.String,
    "provider": pl.String,
    "error": pl.String,
}


@dataclass(frozen=True)
class Run:
    """A run folder. Estimates are computed from the decisions, so they are never out of date."""

    folder: Path

    @cached_property
    def study(self) -> Study:
        return read_study(self._file(STUDY))

    @cached_property
    def decisions(self) -> pl.DataFrame:
        return pl.read_parquet(self._file(DECISIONS))

    @cached_property
    def calls(self) -> pl.DataFrame:
        return pl.read_parquet(self._file(CALLS))

    @cached_property
    def environment(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self._file(ENVIRONMENT).read_text(encoding="utf-8"))
        return content

    @cached_property
    def estimates(self) -> pl.DataFrame:
        study = self.study
        measured = measure(
            self.decisions,
            study.contrasts,
            mode=study.mode,
            reproducible=self.environment["reproducible"],
        )
        return in_order(measured, self.decisions)

    @cached_property
    def verdicts(self) -> pl.DataFrame:
        # "Any view differs" grows with the number of views and with noise: it gets no verdict.
        judged = verdicts(
            self.decisions,
            [contrast for contrast in self.study.contrasts if contrast.is_pair],
            reproducible=self.environment["reproducible"],
            margin=self.study.margin,
        )
        return in_order(judged, self.decisions)

    @property
    def views(self) -> list[str]:
        """Return the views in the order in which the study shows them."""
        return self.decisions["view"].unique(maintain_order=True).to_list()

    def _file(self, name: str) -> Path:
        path = self.folder / name
        if not path.is_file():
            raise Problem(
                f"{self.folder} has no {name}: it is not a run folder, or its run was stopped "
                "before the end; run the study again, nothing is asked twice"
            )
        return path


def perform(
    study: Study,
    folder: Path,
    store: Store,
    *,
    ledger: Ledger | None = None,
    on_reply: Asked | None = None,
    on_fetch: Fetched | None = None,
    on_plan: Callable[[int], None] | None = None,
) -> Run:
    """Ask what is missing, decide, measure, and write the run folder."""
    datasets = study.load()
    grid = conditions(study, datasets)
    ledger = ledger or Ledger()

    async def ask() -> tuple[list[Rated], dict[str, str]]:
        async with opened(grid, worlds(study, datasets), on_fetch) as backends:
            rated = await rate(
                grid,
                backends,
                store,
                ledger=ledger,
                on_reply=on_reply,
                on_plan=on_plan,
                budget=study.allowance,
            )
            identities = {model.title: b.identity for (model, _), b in backends.items()}
            return rated, identities

    rated, identities = asyncio.run(ask())
    # Written together and only now: a run that fails leaves the results of the last one alone.
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / STUDY, yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False))
    _write_table(folder / DECISIONS, decision_table(rated))
    _write_table(folder / CALLS, call_table(rated))
    environment = describe(study, datasets, grid, identities, ledger)
    _write(folder / ENVIRONMENT, json.dumps(environment, indent=2, ensure_ascii=False))
    run = Run(folder)
    _write_table(folder / ESTIMATES, run.estimates)
    return run


def _refuse_other_limits(model: Model, backends: Mapping[Seat, Backend], mine: Backend) -> None:
    """Refuse a second model behind one endpoint whose limits differ: one client serves both."""
    for (other, _), backend in backends.items():
        limits = [(m.timeout, m.concurrency, m.min_interval) for m in (model, other)]
        if backend is mine and limits[0] != limits[1]:
            raise Problem(
                f"'{model.title}' and '{other.title}' are the same model behind one endpoint; "
                "give both the same timeout and concurrency"
            )


@asynccontextmanager
async def opened(
    grid: Sequence[Condition], known: Mapping[str, World], on_fetch: Fetched | None = None
) -> AsyncIterator[dict[Seat, Backend]]:
    """Open what answers for a grid, each engine once, and close it at the end."""
    backends: dict[Seat, Backend] = {}
    by_identity: dict[str, Backend] = {}
    try:
        for condition in grid:
            if seat(condition) not in backends:
                model, dataset = seat(condition)
                identity = identity_of(model, known.get(dataset))
                if identity in by_identity:
                    _refuse_other_limits(model, backends, by_identity[identity])
                else:
                    by_identity[identity] = open_backend(
                        model, known.get(dataset), progress=on_fetch
                    )
                backends[model, dataset] = by_identity[identity]
        yield backends
    finally:
        for backend in by_identity.values():
            await backend.close()


def plan_first_round(study: Study) -> tuple[list[Condition], Plan]:
    """Return the grid and what it asks before anything is known; nothing is sent."""
    datasets = study.load()
    grid, known = conditions(study, datasets), worlds(study, datasets)
    identities = {seat(c): identity_of(c.rater.model, known.get(c.dataset)) for c in grid}
    return grid, first_round(grid, identities)


def preview(study: Study, store: Store) -> tuple[list[Condition], Cost]:
    """Return the grid and what it would cost; nothing is sent."""
    grid, planned = plan_first_round(study)
    stored = stored_among(store, [request.key for request in planned.requests])
    return grid, price(planned, stored)


def in_order(table: pl.DataFrame, decisions: pl.DataFrame) -> pl.DataFrame:
    """Sort rows as the study names raters, datasets and levels, not by the alphabet."""
    places = {
        name: {
            value: place for place, value in enumerate(decisions[name].unique(maintain_order=True))
        }
        for name in ("rater", "dataset", "level")
    }
    keys = [
        pl.col(name).replace_strict(known, return_dtype=pl.Int64) for name, known in places.items()
    ]
    return table.sort(keys, maintain_order=True)


def decision_table(rated: Sequence[Rated]) -> pl.DataFrame:
    """Return one row per decision."""
    return pl.DataFrame([_decision_row(one) for one in rated], schema=SCHEMA, orient="row")


def _decision_row(one: Rated) -> tuple[object, ...]:
    condition, decision = one.condition, one.decision
    usage = _total([found.reply.usage for found in one.evidence])
    return (
        *_where(condition),
        one.item.id,
        one.item.gold,
        decision.rank,
        decision.slot,
        decision.fault or "",
        decision.tie_decided,
        "+".join(found.call.prompt.digest for found in one.evidence),
        len(condition.task.scale),
        len(one.evidence),
        usage.prompt,
        usage.cached,
        usage.completion,
        usage.reasoning,
        sum(found.reply.seconds for found in one.evidence),
    )


def _where(condition: Condition) -> tuple[object, ...]:
    view = condition.view
    name = condition.rater.name
    return name, condition.dataset, condition.level, condition.seed, view.name, view.repeat


def _total(usages: Sequence[Usage]) -> Usage:
    def total(name: str) -> int | None:
        known = [getattr(usage, name) for usage in usages if getattr(usage, name) is not None]
        return sum(known) if known else None

    return Usage(*(total(name) for name in ("prompt", "cached", "completion", "reasoning")))


def call_table(rated: Sequence[Rated]) -> pl.DataFrame:
    """Return one row per call: which stored reply each decision rests on."""
    return pl.DataFrame(list(_call_rows(rated)), schema=CALL_SCHEMA, orient="row")


def _call_rows(rated: Sequence[Rated]) -> Iterator[tuple[object, ...]]:
    for one in rated:
        for found in one.evidence:
            reply = found.reply
            yield (
                *_where(one.condition),
                one.item.id,
                found.call.part,
                found.call.request.key,
                reply.text,
                reply.finish,
                reply.model,
                reply.provider,
                reply.error,
            )


def describe(
    study: Study,
    datasets: Sequence[Dataset],
    grid: Sequence[Condition],
    identities: Mapping[str, str],
    ledger: Ledger,
) -> dict[str, Any]:
    """Return what a reader needs to trust or repeat a run; no secret is in it."""
    return {
        "flipmeter": _version("flipmeter"),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in ("numpy", "scipy", "polars", "xllamacpp")},
        "models": dict(identities),
        "reproducible": sorted(
            {c.rater.name for c in grid if is_reproducible(c.rater.model, c.rater.decoding)}
        ),
        "datasets": {d.name: _described(study, d) for d in datasets},
        "asked": {name: n for name, n in asdict(ledger).items() if name != "started"},
    }


def _described(study: Study, dataset: Dataset) -> dict[str, Any]:
    style = study.style
    merged = merge(dataset, style.cardinality or len(dataset.task.scale))
    drawn = draw_sample(study, merged, style, study.seeds[0])
    return {
        "digest": dataset.digest,
        "source": dataset.source,
        "licence": dataset.licence,
        "left_out": dict(merged.left_out) | dict(drawn.left_out),
        "notes": list(drawn.notes),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _write(path: Path, text: str) -> None:
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text + "\n", encoding="utf-8")
    fresh.replace(path)


def _write_table(path: Path, table: pl.DataFrame) -> None:
    fresh = path.with_name(path.name + ".new")
    table.write_parquet(fresh)
    fresh.replace(path)
