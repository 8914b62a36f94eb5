"""Study -> Run: a folder that holds what was asked, decided and measured."""

from __future__ import annotations

import gc
import json
import platform
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shlex import quote
from tempfile import TemporaryFile
from typing import Any

import polars as pl
import yaml

from flipmeter.base.atomic import fresh, write_text
from flipmeter.base.run_sync import wait_for
from flipmeter.decide import open_pipeline
from flipmeter.measure import (
    claimed_contrast,
    measure,
    noise_warnings,
    read_claim,
    verdicts,
    watch,
)
from flipmeter.model import (
    Asked,
    Backend,
    Budget,
    Engine,
    Ledger,
    OutOfBudget,
    RayBackend,
    Store,
    World,
    identity_of,
    open_backend,
    ray_cluster,
)
from flipmeter.model.backends.weights import Fetched
from flipmeter.run.fallbacks import Known, adapted, learn
from flipmeter.run.heartbeat import Pulse
from flipmeter.run.rate import Rated, Seat, rate, seat
from flipmeter.run.rows import (
    ANSWERED,
    call_table,
    changes_of_model,
    decision_table,
    in_grid_order,
    in_order,
)
from flipmeter.run.spill import Pile, room_for, scratch
from flipmeter.study.file import Study, read_study
from flipmeter.study.grid import conditions, draw_sample, is_settled, merged_for, worlds
from flipmeter.types import Condition, Contrast, Dataset, Model, Problem

STUDY, DECISIONS, CALLS = "study.yaml", "decisions.parquet", "calls.parquet"
HALF = 0.5
"""Below this share of the probability on labels, what is said of them rests on little."""
ESTIMATES, ENVIRONMENT = "estimates.parquet", "environment.json"


@dataclass(frozen=True)
class Run:
    """A run folder. Estimates are computed from the decisions, so they are never out of date."""

    folder: Path

    @property
    def where(self) -> str:
        """Return what a command names to mean this run."""
        return quote(str(self.folder))

    @cached_property
    def study(self) -> Study:
        return read_study(self._file(STUDY))

    @cached_property
    def decisions(self) -> pl.DataFrame:
        return _table(self._file(DECISIONS))

    @cached_property
    def calls(self) -> pl.DataFrame:
        return _table(self._file(CALLS))

    def scan(self, name: str) -> pl.LazyFrame:
        """Return the decisions or the calls, by the name of their file, not yet read."""
        return pl.scan_parquet(self._file(name))

    def calls_with(self, *columns: str) -> pl.DataFrame:
        """Return some columns of the calls; the others are not read."""
        try:
            return self.scan(CALLS).select(columns).collect()
        except (pl.exceptions.PolarsError, OSError) as error:
            raise _damaged(self.folder / CALLS, error) from error

    @cached_property
    def environment(self) -> dict[str, Any]:
        path = self._file(ENVIRONMENT)
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise _damaged(path, error) from error
        return content

    @cached_property
    def estimates(self) -> pl.DataFrame:
        study = self.study
        measured = measure(
            self.decisions,
            self.contrasts,
            mode=study.mode,
            reproducible=self.environment["reproducible"],
        )
        return in_order(measured, self.decisions).with_columns(
            warning=pl.col("rater").replace_strict(
                self.warnings, default="", return_dtype=pl.String
            )
        )

    @cached_property
    def contrasts(self) -> tuple[Contrast, ...]:
        return self.study.contrasts

    @property
    def recipe(self) -> str:
        """Return what the run was made from, as YAML."""
        content = self.study.model_dump(mode="json")
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)

    @property
    def scales(self) -> dict[str, tuple[str, ...]]:
        """Return the class names by dataset, where they are known without reading its data."""
        return {}

    @property
    def texts(self) -> dict[tuple[str, str], str]:
        """Return texts by dataset and item, where they are known without reading its data."""
        return {}

    @property
    def stopped(self) -> str:
        """Return why the run ended before all items were rated, "" if it did not."""
        return str(self.environment.get("stopped", ""))

    @property
    def is_settled(self) -> bool:
        """Say whether the run ended early because the claim it was made for was settled."""
        return bool(self.environment.get("settled"))

    @cached_property
    def warnings(self) -> dict[str, str]:
        """Return by rater what a reader of its numbers must know, only those with a warning."""
        found: dict[str, list[str]] = {}
        told_by = (
            self.environment.get("fallbacks", {}),
            changes_of_model(self.calls_with("rater", *ANSWERED)),
            self._noise_warnings(),
        )
        for told in told_by:
            for rater, lines in told.items():
                found.setdefault(rater, []).extend(lines)
        for told in (self._in_sample(), self._little_mass()):
            for rater, lines in told.items():
                found.setdefault(rater, []).extend(lines)
        if self.stopped:
            for rater in self.decisions["rater"].unique(maintain_order=True):
                found.setdefault(rater, []).append(f"not all items are in: {self.stopped}")
        return {rater: "; ".join(lines) for rater, lines in found.items()}

    def _noise_warnings(self) -> Mapping[str, list[str]]:
        """Say by rater when repeats look wrong; where draws are counted, some differ rightly."""
        if self.study.n_draws:
            return {}
        return noise_warnings(self.decisions, self._greedy, self.environment["reproducible"])

    def _in_sample(self) -> dict[str, list[str]]:
        """Say by rater which levels learn a bias from items that they are tested on."""
        levels = self.study.levels()
        told = {
            name or "the base"
            for name in self.decisions["level"].unique()
            if name in levels and open_pipeline(levels[name].pipeline).traits.calibration == "test"
        }
        if not told:
            return {}
        line = f"in sample: {', '.join(sorted(told))} learn their correction from test items"
        return {rater: [line] for rater in self.decisions["rater"].unique(maintain_order=True)}

    def _little_mass(self) -> dict[str, list[str]]:
        """Say by rater where labels have less than half of the probability, if that is used."""
        is_used = self.study.is_scored or self.study.n_draws
        if not is_used or "label_mass" not in self.decisions.columns:
            return {}
        known = self.decisions.filter(pl.col("label_mass").is_not_null())
        counts = known.group_by("rater", maintain_order=True).agg(
            k=(pl.col("label_mass") < HALF).sum(), n=pl.len()
        )
        return {
            rater: [f"in {k} of {n} decisions the labels together have a probability below {HALF}"]
            for rater, k, n in counts.iter_rows()
            if k
        }

    @property
    def _greedy(self) -> list[str]:
        raters = self.study.raters()
        return [rater.name for rater in raters if rater.decoding.is_greedy]

    @cached_property
    def verdicts(self) -> pl.DataFrame:
        # "Any view differs" grows with the number of views and with noise: it gets no verdict.
        judged = verdicts(
            self.decisions,
            [contrast for contrast in self.contrasts if contrast.is_pair],
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
        if self.folder.is_file():
            raise Problem(
                f"{self.folder} is a file and this needs a run folder; tables of predictions are "
                "for measure, report, check and compare"
            )
        if not path.is_file():
            raise Problem(
                f"{self.folder} has no {name}: it is not a run folder, or its run was stopped "
                "before the end; run the study again, nothing is asked twice"
            )
        return path


def _table(path: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> Problem:
    reason = (str(error).splitlines() or [""])[0]
    return Problem(f"{path} is damaged ({reason}); run the study again, nothing is asked twice")


def perform(
    study: Study,
    folder: Path,
    store: Store,
    *,
    ledger: Ledger | None = None,
    on_reply: Asked | None = None,
    on_fetch: Fetched | None = None,
    on_plan: Callable[[int], None] | None = None,
    origin: Mapping[str, Any] | None = None,
    on: str | None = None,
) -> Run:
    """Ask what is missing, decide, measure, and write the run folder.

    A run that its budget or its claim (`until`) stops holds the blocks of items that were finished,
    and says so in `stopped`; if a budget allows none, it raises OutOfBudget. `origin` says who got
    the replies, if it was not flipmeter. `on` names a Ray cluster whose actors answer; nothing that
    is measured depends on it.
    """
    datasets = study.load()
    ledger = ledger or Ledger()
    grid = conditions(study, datasets)
    is_known = _until(study, grid)
    _claim(folder)
    known = wait_for(learn(grid, store, ledger=ledger, budget=study.allowance))
    grid, fallbacks = adapted(grid, known)
    pulse = Pulse(folder, study.name, ledger, study.prices.values())

    def planned(n_requests: int) -> None:
        pulse.planned = n_requests
        if on_plan is not None:
            on_plan(n_requests)

    async def ask() -> _Harvest:
        async with opened(grid, worlds(study, datasets, grid), on_fetch, on) as backends:
            engine = engine_for(backends, store, ledger, study.allowance, on_reply)
            pulse.gates = engine.gates
            identities = {seat: backend.identity for seat, backend in backends.items()}
            lots = rate(grid, engine, identities, block=study.block, on_plan=planned)
            return await _gather(lots, identities, is_known, pulse, piles)

    with pulse, scratch(folder) as piles:
        with _collecting_seldom():
            found = wait_for(ask())
        environment = describe(study, datasets, grid, found.identities, ledger, found.stopped)
        environment |= {"capabilities": _listed(known), "fallbacks": fallbacks}
        environment["settled"] = found.is_settled
        if origin is not None:
            environment["origin"] = dict(origin)
        return _record(folder, study, grid, found, environment)


def _record(
    folder: Path,
    study: Study,
    grid: Sequence[Condition],
    found: _Harvest,
    environment: Mapping[str, Any],
) -> Run:
    """Write a run folder, all at once: a run that fails leaves the results of the last alone."""
    with room_for(folder):
        folder.mkdir(parents=True, exist_ok=True)
    _write(folder / STUDY, yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False))
    decisions, calls = found.decisions.rows(), found.calls.rows()
    if study.block is not None:  # blocks have all conditions each, and share some calls
        decisions = in_grid_order(decisions, grid)
        calls = in_grid_order(calls.unique(maintain_order=True), grid)
    _write_table(folder / DECISIONS, decisions)
    _write_table(folder / CALLS, calls)
    _write(folder / ENVIRONMENT, json.dumps(environment, indent=2, ensure_ascii=False))
    run = Run(folder)
    _write_table(folder / ESTIMATES, run.estimates.lazy())
    return run


@dataclass
class _Harvest:
    """What a run brought in, lot by lot, who answered, and why it ended early, if it did."""

    decisions: Pile
    calls: Pile
    identities: Mapping[Seat, str]
    stopped: str = ""
    is_settled: bool = False


async def _gather(
    lots: AsyncIterator[list[Rated]],
    identities: Mapping[Seat, str],
    is_known: Callable[[pl.DataFrame], str],
    pulse: Pulse,
    folder: Path,
) -> _Harvest:
    """Turn lots into rows as they come, until there are no more or what was asked is known.

    A budget that ends before the first is an error.
    """
    decisions = Pile(folder, "decisions", decision_table([]))
    found = _Harvest(decisions, Pile(folder, "calls", call_table([])), identities)
    try:
        async for rated in lots:
            table = decision_table(rated)
            found.decisions.add(table)
            found.calls.add(call_table(rated).unique(maintain_order=True))
            pulse.settle(table)
            found.stopped = is_known(table)
            if found.stopped:
                found.is_settled = True
                break
    except OutOfBudget as stop:
        if not found.decisions.n_rows:
            raise
        found.stopped = str(stop)
    return found


def _until(study: Study, grid: Sequence[Condition]) -> Callable[[pl.DataFrame], str]:
    """Return what says, lot by lot, why no more decisions are needed, "" if they are."""
    if study.until is None:
        return lambda lot: ""
    claim = read_claim(study.until)
    contrast = claimed_contrast(claim, study.contrasts)
    n_decisions = sum(len(condition.items) for condition in grid)
    if not {condition.view.name for condition in grid}.issuperset(contrast.views):
        raise Problem(
            f"nobody is asked under both views of {contrast.name}, so that '{claim}' cannot be "
            "settled; the pipeline cannot express it, or there are no demonstrations"
        )

    seen: list[pl.DataFrame] = []

    def is_known(lot: pl.DataFrame) -> str:
        seen.append(lot)
        decisions = pl.concat(seen)
        found = watch(decisions, claim, contrast)
        n_items = max((one.n for one in found), default=0)
        is_last = len(decisions) >= n_decisions
        if not found or is_last or any(one.word == "undecided" for one in found):
            return ""
        return (
            f"{claim} was settled after {n_items} of {study.test_size} items, 95 % sure however "
            f"often one looks: {'; '.join(map(str, found))}; {n_decisions - len(decisions):,} of "
            f"{n_decisions:,} decisions were not needed; other intervals are not made for stopping"
        )

    return is_known


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
                elif on:
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
    """Return what asks open backends, each at the pace that its model is given."""
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
    """Return what a reader needs to trust or repeat a run; no secret is in it."""
    return {
        "flipmeter": _version("flipmeter"),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in ("numpy", "scipy", "polars", "xllamacpp")},
        "models": {model.title: identity for (model, _), identity in identities.items()},
        "reproducible": sorted(
            {condition.rater.name for condition in grid if is_settled(condition.rater)}
        ),
        "datasets": {name: about for d in datasets for name, about in _described(study, d)},
        "asked": {name: n for name, n in asdict(ledger).items() if name != "started"},
        "stopped": stopped,
    }


def _listed(known: Known) -> dict[str, dict[str, Any]]:
    """Return by model what was found of it, as far as the run needed to know."""
    return {
        model.title: {
            name: {"is_there": one.is_there, "how": one.how} for name, one in found.items()
        }
        for model, found in known.items()
    }


def _described(study: Study, dataset: Dataset) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what was sampled from a dataset, and from it with fewer classes where a level has."""
    styles = {study.style.cardinality: study.style}
    for level in study.levels_on(dataset.name).values():
        styles.setdefault(level.style.cardinality, level.style)
    said: list[str] = []
    for place, style in enumerate(styles.values()):
        merged = merged_for(study, dataset, style)
        drawn = draw_sample(study, dataset, style, study.seeds[0])
        source = dataset if study.is_remapped else merged
        about = {
            "digest": dataset.digest,
            "source": dataset.source,
            "licence": dataset.licence,
            "n_items": len(drawn.test),
            "left_out": dict(source.left_out) | dict(drawn.left_out),
            "notes": [note for note in drawn.notes if note not in said],
        }
        said += drawn.notes
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
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise Problem(
            f"cannot write to the run folder {folder} ({error.strerror}); name another with --out"
        ) from error


def _write(path: Path, text: str) -> None:
    with room_for(path):
        write_text(path, text)


def _write_table(path: Path, table: pl.LazyFrame) -> None:
    with room_for(path), fresh(path) as new:
        # Where chunks begin would show in the pages of the file.
        table.collect().rechunk().write_parquet(new)
