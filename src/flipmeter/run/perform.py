"""Study -> Run: ask what is missing, decide, and write the folder."""

from __future__ import annotations

import gc
import platform
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import polars as pl
import yaml

from flipmeter.ask.engine import Engine
from flipmeter.ask.family import Backend, World
from flipmeter.ask.names import identity_of, is_on_cluster, open_backend
from flipmeter.ask.ray import RayBackend, ray_cluster
from flipmeter.ask.store import Store
from flipmeter.errors import OutOfBudget, Problem
from flipmeter.files import inside, write_text, writing
from flipmeter.loops import wait_for
from flipmeter.parquet import without_secrets
from flipmeter.run.conditions import (
    Known,
    LaidOut,
    Tested,
    adapted,
    lay_out,
    learn,
    learn_settled,
    learned_since,
    recall_settled,
)
from flipmeter.run.first_look import doubts, first_replies, told, without
from flipmeter.run.folder import Run
from flipmeter.run.generation import (
    CALLS,
    CONDITIONS,
    DECISIONS,
    ITEMS,
    MANIFEST,
    PROMPTS,
    STUDY,
    State,
    commit,
)
from flipmeter.run.heartbeat import PROGRESS, Heartbeat, read_beat
from flipmeter.run.progress import Listener, Terms
from flipmeter.run.rate import Rated, Seat, Seating, jury_identity, rate, seat
from flipmeter.run.rows import (
    CALL,
    DECISION,
    PROMPT,
    EvidenceOnce,
    ItemTable,
    call_table,
    condition_table,
    decision_table,
    digest_bins,
    grid_places,
    prompt_table,
)
from flipmeter.run.spill import Spill, room_for, scratch
from flipmeter.run.until import watch_claim
from flipmeter.study.entries import TaskEntry
from flipmeter.study.file import Study
from flipmeter.study.grid import contrasts_in, worlds
from flipmeter.study.sizes import draw_sample, fit_note, fitted, merged_for
from flipmeter.types import Condition, Dataset, Model

ROW_GROUP = 10000
"""Rows of a table that are written together."""


def perform(
    study: Study,
    folder: Path,
    store: Store,
    terms: Terms | None = None,
    *,
    origin: Mapping[str, Any] | None = None,
    laid_out: tuple[Sequence[Dataset], Sequence[Condition]] | None = None,
) -> Run:
    """Ask what is missing, decide, measure, and write the run folder.

    A run that its budget (that of the study) or its claim (`until`) stops holds the blocks of items
    that were finished, and says so in `stopped`; if a budget allows none, it raises OutOfBudget.
    `origin` says who got the replies, if it was not flipmeter. `laid_out` are datasets and a grid
    instead of those that the study would load and lay out itself. While another process writes the
    folder, this one waits and tells the listener. A rater whose first replies make no sense stops
    there, and the others continue, unless all are asked anyway, as the paper did.
    """
    terms = terms or Terms()
    terms = replace(terms, budget=study.allowance, anyway=terms.anyway or study.mode == "paper")
    datasets, given = (study.load(), ()) if laid_out is None else laid_out
    _check_folder_writable(folder)
    layout = _lay_out(study, datasets, given, store, terms.listener)
    harvest = Harvest(study, Seating(study.juries, layout.reproducible))
    harvest.watch(layout.grid)
    known = wait_for(learn(layout.grid, store, terms))
    grid, fallbacks = adapted(layout.grid, known)
    terms.listener.interim.contrasts = contrasts_in(study, grid)
    pulse = Heartbeat(folder, study.name, terms.ledger, study.prices.values(), terms.listener)

    async def ask() -> None:
        async with open_engine(grid, worlds(study, datasets, grid), store, terms) as opened:
            await harvest.ask(grid, *opened, terms, pulse)

    def tell_who_writes() -> None:
        beat = read_beat(folder)
        who = f"process {beat.pid} on {beat.host}" if beat is not None else "another process"
        terms.listener.on_note(f"{folder} is being written by {who}; waiting for it to finish")

    with writing(folder, tell_who_writes), pulse, scratch(folder) as spills:
        harvest.open(spills, grid)
        with _collecting_seldom():
            wait_for(ask())
        sized = fitted(study, datasets)
        notes = [fallbacks, layout.warnings, learned_since(layout.grid, known, store)]
        facts = harvest.facts(sized, datasets) | {
            "asked": terms.ledger.counts,
            "capabilities": _findings_by_model(known, layout.tested),
            "fallbacks": {
                name: [line for one in notes for line in one.get(name, ())]
                for one in notes
                for name in one
            },
            **({} if origin is None else {"origin": dict(origin)}),
        }
        harvest.write(folder, spills, sized, facts)
    return Run(folder)


def _lay_out(
    study: Study,
    datasets: Sequence[Dataset],
    given: Sequence[Condition],
    store: Store,
    listener: Listener,
) -> LaidOut:
    """Test engines that were not tested yet, once it is known that the study can be asked."""
    raters = [one.rater for one in given] or study.raters()
    known = lay_out(study, datasets, recall_settled(raters, store), given)
    if not any(found.is_there is None for found in known.tested.values()):
        return known
    watch_claim(study, known.grid, known.reproducible)
    return lay_out(study, datasets, wait_for(learn_settled(raters, store, listener)), given)


class Harvest:
    """The outcome of a run, lot by lot: rows, answering models, and the reason of an early end."""

    def __init__(self, study: Study, bench: Seating) -> None:
        self._study = study
        self._bench = bench
        self._reproducible = [*bench.reproducible, *bench.steady]
        self._items = ItemTable()
        self._identities: Mapping[Seat, str] = {}
        self._unread = self._ended = ""
        self._is_settled = False

    @property
    def stopped(self) -> str:
        """Reason why the run is incomplete: unreadable raters, then the cause of its end."""
        return "; ".join(part for part in (self._unread, self._ended) if part)

    def watch(self, grid: Sequence[Condition]) -> None:
        """The grid that is asked, and the claim that may stop it early."""
        self._grid = self._bench.grid(grid)
        self._until = watch_claim(self._study, self._grid, self._reproducible)

    def open(self, spills: Path, grid: Sequence[Condition]) -> None:
        """Make room for rows, in the order of a grid, however it is split."""
        places = grid_places(self._bench.grid(grid))
        self._decisions = Spill(spills, "decisions", DECISION.table(), places)
        self._calls = Spill(spills, "calls", CALL.table(), places)
        self._prompts = Spill(spills, "prompts", PROMPT.table(), digest_bins, distinct="digest")

    async def ask(
        self,
        grid: Sequence[Condition],
        engine: Engine,
        identities: Mapping[Seat, str],
        terms: Terms,
        pulse: Heartbeat,
    ) -> None:
        """Ask until there is no more, or what was asked is known; no lot in a budget is an error.

        Raters are left out whose first replies cannot be read.
        """
        pulse.gates, self._identities = engine.gates, identities
        listener = terms.listener
        listener.on_plan(sum(len(one.items) for one in grid))  # until lots are planned
        first = [] if terms.anyway else await first_replies(grid, engine, identities)
        reasons = doubts(first)
        grid = without(grid, reasons)
        self._unread = told(reasons, self._study.juries) if reasons else ""
        self.watch(grid)
        known = {one.evidence.call.request.key: one.evidence.reply for one in first}
        listener.interim.known = known
        lots = rate(
            *(grid, engine, identities),
            block=self._study.block,
            on_plan=listener.on_plan,
            on_calls=listener.on_calls,
            heard=known,
        )
        once = EvidenceOnce()
        try:
            async for lot in lots:
                table = self._add(lot, once)
                pulse.settle(table)
                if self._until is not None and (stopped := self._until.look(table)):
                    self._ended, self._is_settled = stopped, True
                    break
        except OutOfBudget as stop:
            if not self._decisions.n_rows:
                raise
            self._ended = str(stop)

    def _add(self, lot: Sequence[Rated], once: EvidenceOnce) -> pl.DataFrame:
        """Turn a lot into rows; the decisions among them."""
        rated = self._bench.rated(lot)
        table = decision_table(rated)
        evidence = once.of(rated)
        self._decisions.add(table)
        self._calls.add(call_table(evidence))
        self._prompts.add(prompt_table(one.call.prompt.script for _, one in evidence))
        for condition, one in evidence:  # null texts are in no condition
            if (item := one.call.ask.item).role != "test":
                self._items.add(condition.dataset, [item])
        return table

    def facts(self, sized: Study, datasets: Sequence[Dataset]) -> dict[str, Any]:
        """The provenance of a run, to trust or repeat it, without secrets."""
        study = self._study
        packages = ("numpy", "scipy", "polars", "xllamacpp")
        return {
            "flipmeter": _package_version("flipmeter"),
            "python": sys.version.split()[0],
            "platform": platform.platform(),
            "packages": {name: _package_version(name) for name in packages},
            "models": {model.title: one for (model, _), one in self._identities.items()}
            | {jury.name: jury_identity(jury) for jury in study.juries},
            "contrasts": [asdict(contrast) for contrast in contrasts_in(study, self._grid)],
            "tasks": {one.dataset: TaskEntry.of(one.task).model_dump() for one in self._grid},
            "datasets": {
                name: {"spec": spec, **about}
                for dataset, spec in zip(datasets, study.datasets, strict=True)
                for name, about in _sampling_records(
                    sized, dataset, fit_note(study, sized, dataset)
                )
            },
            "greedy": study.greedy_raters(),
            "stopped": self.stopped,
            "reproducible": self._reproducible,
            **({} if self._until is None else {"claim": self._until.record()}),
        }

    def write(self, folder: Path, spills: Path, sized: Study, facts: Mapping[str, Any]) -> None:
        """Write a run folder, all at once: a run that fails leaves that of the last alone."""
        for one in self._grid:
            self._items.add(one.dataset, (*one.demos, *one.calibration, *one.items))
        recipe = yaml.safe_dump(sized.model_dump(mode="json"), sort_keys=False)
        tables: dict[str, Callable[[], pl.LazyFrame]] = {
            ITEMS: lambda: self._items.table().lazy(),
            CONDITIONS: lambda: condition_table(self._grid).lazy(),
            PROMPTS: self._prompts.rows,
            CALLS: self._calls.rows,
            DECISIONS: self._decisions.rows,
        }

        def write(make: Callable[[], pl.LazyFrame], path: Path) -> None:
            write_table(make(), path)

        # A table is made when it is written, so that none is held beside another.
        writers = {STUDY: lambda path: write_text(path, recipe)} | {
            name: partial(write, make) for name, make in tables.items()
        }
        state: State = "stopped" if self.stopped else "complete"
        if self._is_settled and not self._unread:
            state = "settled"
        with room_for(folder):
            commit(folder, spills, writers, study=sized.name, state=state, facts=facts)


def write_table(table: pl.LazyFrame, path: Path) -> None:
    """Write a table in row groups of a fixed size: how rows came in does not show in the file."""
    without_secrets(table).sink_parquet(path.absolute(), row_group_size=ROW_GROUP)


@asynccontextmanager
async def open_engine(
    grid: Sequence[Condition], known: Mapping[str, World], store: Store, terms: Terms
) -> AsyncIterator[tuple[Engine, dict[Seat, str]]]:
    """Open what answers for a grid, each engine once, here or on Ray, and close it at the end.

    Each is asked at the rate set for its model. Identities are by seat.
    """
    backends: dict[str, Backend] = {}
    models: dict[str, Model] = {}
    identities: dict[Seat, str] = {}
    with ray_cluster(terms.on) if terms.on else nullcontext():
        try:
            for model, dataset in dict.fromkeys(map(seat, grid)):
                world = known.get(dataset)
                identity = identity_of(model, world)
                if identity in backends:
                    _refuse_other_limits(model, models[identity])
                elif terms.on and not is_on_cluster(model):
                    backends[identity] = RayBackend(model, world)
                else:
                    progress = terms.listener.on_fetch
                    backends[identity] = open_backend(model, world, progress=progress)
                models[identity] = model
                identities[model, dataset] = backends[identity].identity
            yield (
                Engine(
                    {backend.identity: backend for backend in backends.values()},
                    store,
                    terms.ledger,
                    terms.budget,
                    {backends[name].identity: one.min_interval for name, one in models.items()},
                    terms.listener.on_reply,
                ),
                identities,
            )
        finally:
            for backend in backends.values():
                await backend.close()


def _refuse_other_limits(model: Model, other: Model) -> None:
    """Refuse a second model behind one endpoint whose limits differ: one client serves both."""
    limits = [(m.timeout, m.concurrency, m.min_interval, m.actors) for m in (model, other)]
    if limits[0] != limits[1]:
        raise Problem(
            f"'{model.title}' and '{other.title}' are the same model behind one endpoint; "
            "give both the same timeout, concurrency and ray"
        )


def _findings_by_model(known: Known, tested: Tested) -> dict[str, dict[str, Any]]:
    """The findings on each model, as far as the run needed them."""
    found: dict[str, dict[str, Any]] = {model.title: {} for model in (*known, *tested)}
    parts = [(model, one) for model, some in known.items() for one in some.values()]
    for model, one in [*parts, *tested.items()]:
        found[model.title][one.name] = {"is_there": one.is_there, "how": one.how}
    return found


def _sampling_records(
    study: Study, dataset: Dataset, note: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what was sampled from a dataset, and from it with fewer classes where a level has."""
    styles = {study.style.cardinality: study.style}
    for level in study.levels_on(dataset.name).values():
        styles.setdefault(level.style.cardinality, level.style)
    said: list[str] = [""]
    for place, style in enumerate(styles.values()):
        merged = merged_for(study, dataset, style)
        drawn = draw_sample(study, dataset, style, study.seeds[0])
        source = dataset if study.is_remapped else merged
        about = {
            "digest": dataset.digest,
            "source": dataset.source,
            "licence": dataset.licence,
            "n_items": len(drawn.test),
            "n_available": drawn.n_available,
            **({"weights": list(merged.weights)} if merged.weights else {}),
            "left_out": dict(source.left_out) | dict(drawn.left_out),
            "notes": [one for one in (note, *drawn.notes) if one not in said],
        }
        said += [note, *drawn.notes]
        yield (merged.name if place else dataset.name), about


def _package_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


@contextmanager
def _collecting_seldom() -> Iterator[None]:
    """Look for cyclic garbage seldom: a run makes many objects that stay, and hardly a cycle."""
    usual = gc.get_threshold()
    gc.set_threshold(50_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def _check_folder_writable(folder: Path) -> None:
    """Say that a run folder cannot be written to before anything is paid for."""
    ways = (folder, *folder.absolute().parents)
    try:
        for name in (MANIFEST, PROGRESS):
            inside(folder / name)
        nearest = next(path for path in ways if path.exists() or path.is_symlink())
        with TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise Problem(
            f"cannot write to the run folder {folder} ({error.strerror}); use another with --out"
        ) from error
