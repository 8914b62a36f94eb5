"""Study -> Run: ask what is missing, decide, and write the folder."""

from __future__ import annotations

import gc
import platform
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import polars as pl
import yaml

from flipmeter.base.files.atomic import inside, write_text
from flipmeter.base.files.lock import writing
from flipmeter.base.files.parquet import without_secrets
from flipmeter.base.run_sync import wait_for
from flipmeter.errors import OutOfBudget
from flipmeter.model import (
    Asked,
    Backend,
    Budget,
    Engine,
    Ledger,
    RayBackend,
    Store,
    World,
    identity_of,
    is_on_cluster,
    open_backend,
    ray_cluster,
)
from flipmeter.model.backends.weights import Fetched
from flipmeter.run.fallbacks import Known, adapted, learn, learned_since
from flipmeter.run.first_look import doubts, first_replies, told, without
from flipmeter.run.interim import Interim
from flipmeter.run.juries import Seating, jury_identity
from flipmeter.run.rate import Rated, Seat, rate, seat
from flipmeter.run.record.folder import Run
from flipmeter.run.record.generation import (
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
from flipmeter.run.record.heartbeat import PROGRESS, Heartbeat, read_beat
from flipmeter.run.record.rows import (
    EvidenceOnce,
    ItemTable,
    call_table,
    condition_table,
    decision_table,
    digest_bins,
    grid_places,
    prompt_table,
)
from flipmeter.run.record.spill import Spill, room_for, scratch
from flipmeter.run.settled import LaidOut, Tested, lay_out, learn_settled, recall_settled
from flipmeter.run.until import Until, watch_claim
from flipmeter.study.draws import draw_sample, merged_for
from flipmeter.study.entries import TaskEntry
from flipmeter.study.file import Study
from flipmeter.study.fit import fit_note, fitted
from flipmeter.study.grid import contrasts_in, worlds
from flipmeter.types import Condition, Dataset, Model, Problem, Rater, Reply, Request

ROW_GROUP = 10000
"""Rows of a table that are written together."""


def perform(
    study: Study,
    folder: Path,
    store: Store,
    *,
    ledger: Ledger | None = None,
    on_reply: Asked | None = None,
    on_fetch: Fetched | None = None,
    on_test: Fetched | None = None,
    on_plan: Callable[[int], None] | None = None,
    on_note: Callable[[str], None] | None = None,
    interim: Interim | None = None,
    origin: Mapping[str, Any] | None = None,
    on: str | None = None,
    laid_out: tuple[Sequence[Dataset], Sequence[Condition]] | None = None,
    anyway: bool = False,
) -> Run:
    """Ask what is missing, decide, measure, and write the run folder.

    A run that its budget or its claim (`until`) stops holds the blocks of items that were finished,
    and says so in `stopped`; if a budget allows none, it raises OutOfBudget. `origin` says who got
    the replies, if it was not flipmeter. `on` names a Ray cluster whose actors answer; nothing that
    is measured depends on it. `laid_out` are datasets and a grid instead of those that the study
    would load and lay out itself. While another process writes the folder, this one waits, and
    `on_note` is called. A rater whose first replies make no sense is stopped there, and the others
    continue, unless all are asked `anyway`, as the paper did.
    """
    ledger = ledger or Ledger()
    datasets = study.load() if laid_out is None else laid_out[0]
    _claim(folder)
    test = partial(learn_settled, store=store, on_fetch=on_fetch, on_test=on_test)
    layout = _lay_out(study, datasets, laid_out[1] if laid_out else (), store, test)
    bench = Seating(study.juries, layout.reproducible)
    reproducible = [*layout.reproducible, *bench.steady]
    until = watch_claim(study, bench.grid(layout.grid), reproducible)
    known = wait_for(learn(layout.grid, store, ledger=ledger, budget=study.allowance))
    grid, fallbacks = adapted(layout.grid, known)
    pulse = Heartbeat(folder, study.name, ledger, study.prices.values())

    def planned(n_requests: int) -> None:
        pulse.planned = n_requests
        if on_plan is not None:
            on_plan(n_requests)

    interim = interim or Interim()
    interim.contrasts = contrasts_in(study, grid)
    pulse.interim = interim

    def heard(request: Request, reply: Reply) -> None:
        interim.hear(request, reply)
        if on_reply is not None:
            on_reply(request, reply)

    async def ask() -> _Harvest:
        async with opened(grid, worlds(study, datasets, grid), on_fetch, on) as backends:
            engine = engine_for(backends, store, ledger, study.allowance, heard)
            pulse.gates = engine.gates
            identities = {seat: backend.identity for seat, backend in backends.items()}
            planned(sum(len(condition.items) for condition in grid))  # until lots are planned
            is_asked_anyway = anyway or study.mode == "paper"
            first = [] if is_asked_anyway else await first_replies(grid, engine, identities)
            reasons = doubts(first)
            kept = without(grid, reasons)
            watch = watch_claim(study, bench.grid(kept)) if reasons else until
            replies = {one.evidence.call.request.key: one.evidence.reply for one in first}
            interim.known = replies
            lots = rate(
                *(kept, engine, identities),
                block=study.block,
                on_plan=planned,
                on_calls=interim.expect if on_reply else None,
                heard=replies,
            )
            recorded = bench.grid(kept)
            heaps = _heaps(spills, recorded, identities)
            found = await _gather(lots, heaps, watch, pulse, bench)
            unread = told(reasons, study.juries) if reasons else ""
            return replace(found, grid=recorded, until=watch, unread=unread)

    with (
        writing(folder, partial(_tell_who_writes, folder, on_note)),
        pulse,
        scratch(folder) as spills,
    ):
        with _collecting_seldom():
            found = wait_for(ask())
        grid, until = [*found.grid], found.until
        facts = describe(study, datasets, grid, found.identities, ledger, found.stopped)
        facts |= {
            "reproducible": reproducible,
            "capabilities": _listed(known, layout.tested),
            "fallbacks": _joined(
                fallbacks, layout.warnings, learned_since(layout.grid, known, store)
            ),
        }
        if until is not None:
            facts["claim"] = until.record()
        if origin is not None:
            facts["origin"] = dict(origin)
        _record(folder, spills, fitted(study, datasets), grid, found, facts)
    return Run(folder)


def _tell_who_writes(folder: Path, on_note: Callable[[str], None] | None) -> None:
    beat = read_beat(folder)
    who = f"process {beat.pid} on {beat.host}" if beat is not None else "another process"
    if on_note is not None:
        on_note(f"{folder} is being written by {who}; waiting for it to finish")


def _lay_out(
    study: Study,
    datasets: Sequence[Dataset],
    given: Sequence[Condition],
    store: Store,
    test: Callable[[Sequence[Rater]], Coroutine[Any, Any, Tested]],
) -> LaidOut:
    """Test engines that were not tested yet, once it is known that the study can be asked."""
    raters = [one.rater for one in given] or study.raters()
    known = lay_out(study, datasets, recall_settled(raters, store), given)
    watch_claim(study, known.grid, known.reproducible)
    if not known.untested:
        return known
    return lay_out(study, datasets, wait_for(test(raters)), given)


def _joined(*told: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Notes of several sources, by rater."""
    names = dict.fromkeys(name for one in told for name in one)
    return {name: [line for one in told for line in one.get(name, ())] for name in names}


def _record(
    folder: Path,
    spills: Path,
    study: Study,
    grid: Sequence[Condition],
    found: _Harvest,
    facts: Mapping[str, Any],
) -> None:
    """Write a run folder, all at once: a run that fails leaves the results of the last alone."""
    found.items.add_grid(grid)
    recipe = yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False)
    tables: dict[str, Callable[[], pl.LazyFrame]] = {
        ITEMS: lambda: found.items.table().lazy(),
        CONDITIONS: lambda: condition_table(grid).lazy(),
        PROMPTS: found.prompts.rows,
        CALLS: found.calls.rows,
        DECISIONS: found.decisions.rows,
    }
    # A table is made when it is written, so that none is held beside another.
    writers = {STUDY: lambda path: write_text(path, recipe)} | {
        name: partial(_write_made, make) for name, make in tables.items()
    }
    with room_for(folder):
        commit(folder, spills, writers, study=study.name, state=found.state, facts=facts)


@dataclass
class _Harvest:
    """The outcome of a run, lot by lot: rows, answering models, and the reason of an early end."""

    decisions: Spill
    calls: Spill
    prompts: Spill
    items: ItemTable
    identities: Mapping[Seat, str]
    ended: str = ""
    is_settled: bool = False
    grid: Sequence[Condition] = ()
    until: Until | None = None
    unread: str = ""

    @property
    def stopped(self) -> str:
        """Reason why the run is incomplete: unreadable raters, then the cause of its end."""
        return "; ".join(part for part in (self.unread, self.ended) if part)

    @property
    def state(self) -> State:
        if not self.stopped:
            return "complete"
        return "settled" if self.is_settled and not self.unread else "stopped"


def _heaps(folder: Path, grid: Sequence[Condition], identities: Mapping[Seat, str]) -> _Harvest:
    """The sink of a run's rows, in the order of its grid, however it is split."""
    places = grid_places(grid)
    return _Harvest(
        Spill(folder, "decisions", decision_table([]), places),
        Spill(folder, "calls", call_table([]), places),
        Spill(folder, "prompts", prompt_table([]), digest_bins, distinct="digest"),
        ItemTable(),
        identities,
    )


async def _gather(
    lots: AsyncIterator[list[Rated]],
    found: _Harvest,
    until: Until | None,
    pulse: Heartbeat,
    bench: Seating,
) -> _Harvest:
    """Turn lots into rows as they come, until there are no more or what was asked is known.

    A budget that ends before the first is an error.
    """
    once = EvidenceOnce()
    try:
        async for lot in lots:
            rated = bench.rated(lot)
            table = decision_table(rated)
            evidence = once.of(rated)
            found.decisions.add(table)
            found.calls.add(call_table(evidence))
            found.prompts.add(prompt_table(one.call.prompt.script for _, one in evidence))
            found.items.add_asked(evidence)
            pulse.settle(table)
            if until is not None and (stopped := until.look(table)):
                found.ended, found.is_settled = stopped, True
                break
    except OutOfBudget as stop:
        if not found.decisions.n_rows:
            raise
        found.ended = str(stop)
    return found


def _refuse_other_limits(model: Model, backends: Mapping[Seat, Backend], mine: Backend) -> None:
    """Refuse a second model behind one endpoint whose limits differ: one client serves both."""
    for (other, _), backend in backends.items():
        limits = [(m.timeout, m.concurrency, m.min_interval, m.actors) for m in (model, other)]
        if backend is mine and limits[0] != limits[1]:
            raise Problem(
                f"'{model.title}' and '{other.title}' are the same model behind one endpoint; "
                "give both the same timeout, concurrency and ray"
            )


@asynccontextmanager
async def opened(
    grid: Sequence[Condition],
    known: Mapping[str, World],
    on_fetch: Fetched | None = None,
    on: str | None = None,
) -> AsyncIterator[dict[Seat, Backend]]:
    """Open what answers for a grid, each engine once, here or on Ray, and close it at the end."""
    backends: dict[Seat, Backend] = {}
    by_identity: dict[str, Backend] = {}
    with ray_cluster(on) if on else nullcontext():
        try:
            for model, dataset in dict.fromkeys(map(seat, grid)):
                world = known.get(dataset)
                identity = identity_of(model, world)
                if identity in by_identity:
                    _refuse_other_limits(model, backends, by_identity[identity])
                elif on and not is_on_cluster(model):
                    by_identity[identity] = RayBackend(model, world)
                else:
                    by_identity[identity] = open_backend(model, world, progress=on_fetch)
                backends[model, dataset] = by_identity[identity]
            yield backends
        finally:
            for backend in by_identity.values():
                await backend.close()


def engine_for(
    backends: Mapping[Seat, Backend],
    store: Store,
    ledger: Ledger,
    budget: Budget | None = None,
    on_reply: Asked | None = None,
) -> Engine:
    """The engine for open backends, each at the rate set for its model."""
    by_identity = {backend.identity: backend for backend in backends.values()}
    pace = {backend.identity: model.min_interval for (model, _), backend in backends.items()}
    return Engine(by_identity, store, ledger, budget, pace, on_reply)


def describe(
    study: Study,
    datasets: Sequence[Dataset],
    grid: Sequence[Condition],
    identities: Mapping[Seat, str],
    ledger: Ledger,
    stopped: str,
) -> dict[str, Any]:
    """The provenance of a run, to trust or repeat it, without secrets."""
    sized = fitted(study, datasets)
    return {
        "flipmeter": _version("flipmeter"),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in ("numpy", "scipy", "polars", "xllamacpp")},
        "models": {model.title: identity for (model, _), identity in identities.items()}
        | {jury.name: jury_identity(jury) for jury in study.juries},
        "contrasts": [asdict(contrast) for contrast in contrasts_in(study, grid)],
        "tasks": {one.dataset: TaskEntry.of(one.task).model_dump() for one in grid},
        "datasets": {
            name: {"spec": spec, **about}
            for dataset, spec in zip(datasets, study.datasets, strict=True)
            for name, about in _described(sized, dataset, fit_note(study, sized, dataset))
        },
        "greedy": study.greedy_raters(),
        "asked": ledger.counts,
        "stopped": stopped,
    }


def _listed(known: Known, tested: Tested) -> dict[str, dict[str, Any]]:
    """The findings on each model, as far as the run needed them."""
    found: dict[str, dict[str, Any]] = {model.title: {} for model in (*known, *tested)}
    parts = [(model, one) for model, some in known.items() for one in some.values()]
    for model, one in [*parts, *tested.items()]:
        found[model.title][one.name] = {"is_there": one.is_there, "how": one.how}
    return found


def _described(study: Study, dataset: Dataset, note: str) -> Iterator[tuple[str, dict[str, Any]]]:
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


def _version(package: str) -> str:
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


def _claim(folder: Path) -> None:
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


def _write_made(make: Callable[[], pl.LazyFrame], path: Path) -> None:
    _write_table(make(), path)


def _write_table(table: pl.LazyFrame, path: Path) -> None:
    # Row groups of a fixed size: how the rows came in does not show in the file.
    without_secrets(table).sink_parquet(path.absolute(), row_group_size=ROW_GROUP)
