"""The public `Study` and `Run`: what the command line does, as methods.

import flipmeter as fm

study = fm.Study(models=["local/smollm2-135m"], datasets=["reviews"], probes=["label_order"])
study.plan()
run = study.run("runs/first")
run.verdicts
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from flipmeter.consent import trusting
from flipmeter.drain import draining
from flipmeter.errors import Drained, Problem, Stopped
from flipmeter.files import named
from flipmeter.printed import Printed
from flipmeter.study.file import Study as StudyFile
from flipmeter.study.file import explaining, find_study, held_content, spelled_out
from flipmeter.study.file import read_study as read_study_file

if TYPE_CHECKING:
    import polars as pl
    from rich.console import RenderableType

    from flipmeter.ask.pool import Ledger
    from flipmeter.ask.prices import PriceList
    from flipmeter.ask.store import Store
    from flipmeter.choose.gate import Checked
    from flipmeter.choose.select import Choice, NextStep, Selection
    from flipmeter.run.folder import Run as RunFolder
    from flipmeter.run.preview import Trial
    from flipmeter.stats.held_out import LevelChoice
    from flipmeter.study.forecast import Preview, Speed
    from flipmeter.types import Contrast

StrPath = str | os.PathLike[str]
STORE = Path(".flipmeter") / "replies.sqlite"
"""The default reply store: one for all studies of a folder."""
RUNS = Path("runs")
"""The default folder of run folders."""


class Study(StudyFile):
    """An experiment: models x datasets x seeds x styles x views.

    The keys are those of a study file; the rest stays at the documented baseline.
    """

    def __init__(self, **keys: Any) -> None:
        with explaining("the study"):
            super().__init__(**spelled_out(keys))

    def plan(
        self,
        *,
        store: StrPath = STORE,
        prices: PriceList | None = None,
        is_offline: bool = False,
        speed: Speed | None = None,
        trust: bool = False,
        trust_hosts: Sequence[str] = (),
        power: str | None = None,
    ) -> Preview:
        """Requests, stored replies, tokens, price range and time of the study; sends nothing.

        `power` is a claim such as "P1<0.10": its looks and the power to settle it are added.
        """
        from flipmeter.ask.store import Store
        from flipmeter.run.preview import preview

        place = _check_store_path(store) if Path(store).exists() else ":memory:"
        with trusting(trust, trust_hosts), Store(place) as replies:
            return preview(
                self, replies, listed=prices, is_offline=is_offline, speed=speed, power=power
            )

    def show(self, item: int = 1, *, views: Sequence[str] = (), trust: bool = False) -> SideBySide:
        """The prompts of one test item beside the base, differences marked; items count from 1."""
        from flipmeter.run.conditions import why_fixed
        from flipmeter.show.flipped_items import views_of_item
        from flipmeter.study.grid import base_conditions, conditions

        with trusting(trust):
            grid = base_conditions(conditions(self))
        if not 1 <= item <= len(grid[0].items):
            raise Problem(f"no item {item}: the test set has {len(grid[0].items)} items")
        prompts = {name: prompt.text for name, prompt in views_of_item(grid, item - 1)}
        declared = {one.view.name: why_fixed(one) for one in grid}
        return SideBySide(prompts, tuple(views), declared)

    def try_out(
        self,
        n_items: int = 3,
        *,
        store: StrPath = STORE,
        trust: bool = False,
        trust_hosts: Sequence[str] = (),
    ) -> Trial:
        """Ask a few items under every view; the result shows how each reply is read."""
        from flipmeter.ask.store import Store
        from flipmeter.run.preview import try_study

        if n_items < 1:
            raise Problem(f"n_items is {n_items}; try at least 1")
        with trusting(trust, trust_hosts), Store(_check_store_path(store)) as replies:
            return try_study(self, replies, n_items)

    def run(
        self,
        folder: StrPath | None = None,
        *,
        store: StrPath | Store = STORE,
        on: str | None = None,
        is_quiet: bool | None = None,
        ledger: Ledger | None = None,
        trust: bool = False,
        trust_hosts: Sequence[str] = (),
        anyway: bool = False,
    ) -> Run:
        """Send the requests that are not stored, decide, and write the run folder (`runs/NAME`).

        Stop and resume at any time: a stored reply is never requested again. `on` names a Ray
        cluster. Progress goes to stderr if that is a terminal, unless `is_quiet` says otherwise.
        `trust` runs Python code that the study names; `trust_hosts` may receive its API keys. A
        rater whose first replies cannot be read is stopped, unless `anyway`.
        """
        from flipmeter.ask.pool import Ledger
        from flipmeter.ask.store import Store
        from flipmeter.run.perform import perform
        from flipmeter.run.progress import Listener, Meter, Terms

        where = named(Path(folder)) if folder is not None else RUNS / self.name
        ledger = ledger or Ledger()
        if is_quiet is None:
            is_quiet = sys.stderr is None or not sys.stderr.isatty()
        with (
            trusting(trust, trust_hosts),
            nullcontext(Listener()) if is_quiet else Meter(ledger) as listener,
            nullcontext(store)
            if isinstance(store, Store)
            else Store(_check_store_path(store)) as replies,
        ):
            terms = Terms(ledger, listener=listener, on=on, anyway=anyway)
            return Run.of(perform(self, where, replies, terms))

    async def arun(self, folder: StrPath | None = None, **options: Any) -> Run:
        """`run` for async code; if cancelled, it waits for replies under way."""
        with draining() as drain:
            running = asyncio.create_task(asyncio.to_thread(self.run, folder, **options))
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                drain.begin()
                await asyncio.wait([running])
                running.exception()  # it is known why
                raise
            except Drained as drained:
                raise Stopped(str(drained)) from drained


def _check_store_path(store: StrPath) -> Path:
    """The path of a store, which is the user's unless it is the default."""
    return Path(store) if Path(store) == STORE else named(Path(store))


def read_study(
    source: StrPath | Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    *,
    data_dir: StrPath | None = None,
) -> Study:
    """Read a study file, a bundled study by its name, the study of a run, or the content of one.

    `changes` are keys with other values; `base.shots` reaches inside. Data files of a run's study
    count from the current folder.
    """
    found = source if isinstance(source, Mapping) else _study_at(os.fspath(source))
    read = read_study_file(found, changes, data_dir=None if data_dir is None else Path(data_dir))
    return Study.model_construct(set(read.model_fields_set), **dict(read))


def _study_at(name: str) -> Path | Mapping[str, Any]:
    """A study file, or the study that a run folder holds."""
    from flipmeter.run.folder import Run
    from flipmeter.run.generation import MANIFEST, STUDY

    if (Path(name) / MANIFEST).is_file():
        return held_content(Run(Path(name)).path(STUDY))
    return find_study(name)


@dataclass(frozen=True, repr=False)
class SideBySide(Printed):
    """Prompts of one item by view, the base first; `views` narrows what is shown.

    `declared` says why a view with equal prompts cannot flip, by its name.
    """

    prompts: Mapping[str, str]
    views: tuple[str, ...] = ()
    declared: Mapping[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> dict[str, str]:
        """The prompts that were asked for, by view; all of them unless `views` names some."""
        from flipmeter.registry import suggestion

        for name in self.views:
            if name not in self.prompts:
                raise Problem(f"no view named '{name}'{suggestion(name, list(self.prompts))}")
        return {name: self.prompts[name] for name in self.views or self.prompts}

    def tables(self) -> Iterator[RenderableType]:
        from flipmeter.show.differ import side_by_side

        base, shown = self.prompts["base"], self.shown
        if shown.keys() == {"base"}:
            yield side_by_side(["base"], [base])
        for name in (name for name in shown if name != "base"):
            if shown[name] == base and self.declared.get(name):
                yield f"{name}: 0 by construction ({self.declared[name]})"
            elif shown[name] == base:
                yield f"{name}: same prompt as base, so this contrast is not identified"
            else:
                yield side_by_side(["base", name], [base, shown[name]])


class Run(Printed):
    """A run: its folder, several folders joined, or a table of predictions.

    Numbers are computed from the decisions on access; nothing outside the folder is read.
    """

    def __init__(self, *paths: StrPath, scale: Sequence[str] | Mapping[str, float] = ()) -> None:
        from flipmeter.data.tables import ENDINGS
        from flipmeter.run.folder import Run as RunFolder
        from flipmeter.run.joined import joined
        from flipmeter.run.predictions import read_predictions

        found = [Path(path) for path in paths]
        if not found:
            raise Problem("pass a run folder, or a table of predictions")
        tables = [
            path
            for path in found
            if path.is_file() or (path.suffix.lower() in ENDINGS and not path.is_dir())
        ]
        if tables and len(found) > 1:
            raise Problem(
                f"{tables[0]} is a table of predictions, but only run folders can be joined; put "
                "all answers into one table, with a column `model`, `dataset` or `seed` that tells "
                "them apart"
            )
        if scale and not tables:
            raise Problem(
                f"--scale is for a table of predictions; {found[0]} is a run and has its own"
            )
        self.source: RunFolder = (
            read_predictions(tables[0], scale) if tables else joined(list(map(RunFolder, found)))
        )

    @classmethod
    def of(cls, source: RunFolder) -> Run:
        """A run from its record."""
        run = cls.__new__(cls)
        run.source = source
        return run

    @property
    def folder(self) -> Path:
        return self.source.folder

    @property
    def study(self) -> StudyFile:
        return self.source.study

    @property
    def stopped(self) -> str:
        """Reason why the run ended before all items were rated, "" if it did not."""
        return self.source.stopped

    @property
    def claim(self) -> Mapping[str, Any]:
        """The outcome of the claim of `until`; empty without one."""
        found: Mapping[str, Any] = self.environment.get("claim", {})
        return found

    @property
    def environment(self) -> Mapping[str, Any]:
        """Everything needed to repeat the run: versions, models, datasets, counts."""
        return self.source.environment

    @property
    def warnings(self) -> dict[str, str]:
        """Warnings by rater."""
        return self.source.warnings

    @property
    def contrasts(self) -> tuple[Contrast, ...]:
        return self.source.contrasts

    @property
    def decisions(self) -> pl.DataFrame:
        """The class of every item under every rater, level, seed and view."""
        return self.source.decisions

    @property
    def calls(self) -> pl.DataFrame:
        """Requests, replies and parsed answers, call by call."""
        return self.source.calls

    @property
    def items(self) -> pl.DataFrame:
        """Every item with its role, gold class, text and other fields."""
        return self.source.items

    @property
    def estimates(self) -> pl.DataFrame:
        """Every number with its interval, n and failures."""
        return self.source.estimates

    @property
    def verdicts(self) -> pl.DataFrame:
        """One word for every rater, dataset, level and contrast, with its evidence."""
        return self.source.verdicts

    @cached_property
    def flips(self) -> pl.DataFrame:
        """Every item whose class differs between the two views of a contrast, with its text."""
        from flipmeter.show.gather import flips_of

        return flips_of(self.source)

    def aspects(self, name: str, *, costs: Any = None) -> pl.DataFrame:
        """One aspect in detail: direction, severity, slots, excess, worst, ..."""
        from flipmeter.show.gather import aspects_of

        return aspects_of(self.source, [name], costs)[name]

    def residuals(self) -> pl.DataFrame:
        """The change from the base that each factor level makes."""
        from flipmeter.stats.residuals import residuals

        return residuals(self.source.parts.decisions, self.contrasts, mode=self.study.mode)

    def transfer(self, reference: str) -> pl.DataFrame:
        """Each model minus the `reference` model, under the same config."""
        from flipmeter.stats.residuals import transfer

        return transfer(
            self.source.parts.decisions, self.contrasts, reference, mode=self.study.mode
        )

    def effects(self) -> pl.DataFrame:
        """Two-way interactions of the factors that the study crosses; needs statsmodels."""
        from flipmeter.stats.interactions import interactions

        return interactions(self.source.parts.decisions, self.contrasts, mode=self.study.mode)

    def phase0(self, greedy: Run | StrPath | None = None) -> pl.DataFrame:
        """The paper's first table; P1, P2 and P3 come from the `greedy` run if one is given."""
        from flipmeter.stats.estimates import phase0_table

        if greedy is None:
            return phase0_table(self.estimates)
        first = greedy if isinstance(greedy, Run) else Run(greedy)
        return phase0_table(first.estimates, self.estimates)

    def select(self, **options: Any) -> Selection:
        """The Pareto front of the configurations and the one to ship: `max_flip={"P1": 0.10}`."""
        from flipmeter.choose.select import select

        return select(self.source, **options)

    def select_by_factor(
        self, by: str | None = None, *, rater: str | None = None
    ) -> dict[str, tuple[LevelChoice, ...]]:
        """The best level of every prompt factor, each chosen alone, for each rater and metric."""
        from flipmeter.choose.select import select_by_factor

        return select_by_factor(self.source, by, rater=rater)

    @overload
    def check(self, claim: str, /, *claims: str) -> pl.DataFrame: ...

    @overload
    def check(
        self, *, gate: StrPath | Mapping[str, Any] | None = None, against: Run | None = None
    ) -> Checked: ...

    def check(
        self,
        *claims: str,
        gate: StrPath | Mapping[str, Any] | None = None,
        against: Run | None = None,
    ) -> pl.DataFrame | Checked:
        """Test claims such as "P1 < 0.10", row by row; without one, a gate.

        `gate` is a file or its content, by default the margin of the study; `against` is a run
        that this one must not be worse than.
        """
        if claims:
            from flipmeter.show.gather import certificates_of

            if gate is not None or against is not None:
                raise Problem("check either claims or a gate, not both in one call")
            return certificates_of(self.source, claims)
        from flipmeter.choose.gate import check, read_gate

        limits = gate if gate is None or isinstance(gate, Mapping) else Path(gate)
        return check(
            self.source,
            None if limits is None else read_gate(limits),
            None if against is None else against.source,
        )

    def compare(self, other: Run | StrPath) -> pl.DataFrame:
        """The other run minus this one, on the items and contrasts that both have."""
        from flipmeter.show.gather import differences

        second = other if isinstance(other, Run) else Run(other)
        return differences(self.source, second.source)

    def report(self, path: StrPath | None = None, *, greedy: Run | StrPath | None = None) -> Path:
        """Write one file: .html (`report.html` in the folder unless named), .md, .tex, .csv, …

        With a `greedy` run of the same raters it reports on both phases of the paper's first table.
        """
        from flipmeter.show.gather import beside_greedy
        from flipmeter.show.next_steps import findings
        from flipmeter.show.whole import write_report

        where = named(Path(path)) if path is not None else self.folder / "report.html"
        found = findings(self.source, self._choices or None)
        if greedy is not None:
            first = greedy if isinstance(greedy, Run) else Run(greedy)
            found = beside_greedy(found, first.source)
        write_report(found, where)
        return where

    def tables(self) -> Iterator[RenderableType]:
        from flipmeter.show.gather import summary

        return summary(self.source, self._choices)

    @property
    def headline(self) -> list[str]:
        """The answer in a few lines: how many are stable, what is worst, what to use."""
        from flipmeter.show.gather import headline

        return headline(self.source, self._choices)

    def next_steps(self, study: str = "") -> list[NextStep]:
        """Suggested next steps, most urgent first, each with its command.

        `study` is the study file, with options, for the commands that run it again.
        """
        from flipmeter.show.next_steps import next_steps

        return next_steps(self.source, self._choices, study)

    @cached_property
    def _choices(self) -> list[Choice]:
        from flipmeter.show.next_steps import choices_of

        is_compared = self.source.tally.select("rater", "level").n_unique() > 1
        return choices_of(self.source) if is_compared else []
