"""Shared code of verbs that call models: progress, resuming after an interrupt, exit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from rich.console import RenderableType

from flipmeter.api import Run, Study
from flipmeter.ask.pool import Ledger
from flipmeter.ask.rescue import left_behind
from flipmeter.ask.store import Store
from flipmeter.cli.consoles import INCOMPLETE, NOT_SETTLED, fail, say, warn
from flipmeter.cli.output import finish, heading, say_next
from flipmeter.drain import draining
from flipmeter.parquet import collected
from flipmeter.run.generation import CALLS
from flipmeter.run.progress import Meter, Terms

if TYPE_CHECKING:
    from flipmeter.choose.select import NextStep


def ask(
    study: Study,
    folder: Path,
    store: Path,
    *,
    on: str | None = None,
    anyway: bool = False,
    as_json: bool = False,
    then: Callable[[Run], Iterable[RenderableType]] = lambda done: (),
    steps: Callable[[Run], Sequence[NextStep]],
) -> None:
    """Run a study and print what it found, then what `then` adds; end with the exit code."""
    ledger = Ledger()
    with resumable(ledger, store):
        done = study.run(folder, store=store, on=on, ledger=ledger, is_quiet=False, anyway=anyway)
    if as_json:
        print_run(done, folder, steps(done))
    else:
        say(*done.tables(), *then(done), f"\nrun folder: {folder}")
        say_next(steps(done))
    _exit_if_incomplete(done, ledger)


@contextmanager
def asking(store: Path) -> Iterator[tuple[Store, Terms]]:
    """Open a store and show progress; at a signal drain, and say how to continue."""
    ledger = Ledger()
    with resumable(ledger, store), Store(store) as replies, Meter(ledger) as meter:
        yield replies, Terms(ledger, listener=meter)


def print_run(done: Run, folder: Path, steps: Sequence[NextStep]) -> None:
    """Print a run as JSON: where it is, its verdicts and estimates."""
    content = {
        "run": str(folder),
        "stopped": done.stopped,
        "claim": dict(done.claim),
        "verdicts": done.verdicts.to_dicts(),
        "estimates": done.estimates.to_dicts(),
    }
    finish(heading(done) | content, as_json=True, steps=steps)


def _exit_if_incomplete(done: Run, ledger: Ledger) -> None:
    """Exit with an error if the run is incomplete or its claim is open."""
    if done.stopped and not done.source.is_settled:
        fail(done.stopped, INCOMPLETE)
    if ledger.failed:
        table = done.source.scan(CALLS).select("rater", "item", "error")
        errors = table.filter(pl.col("error") != "").pipe(collected)
        first = "{}, {}: {}".format(*errors.row(0)) if len(errors) else "see calls.parquet"
        fail(
            f"{ledger.failed:,} requests failed after retries ({first}) and count as "
            "errors in the tables; the same command retries only those",
            INCOMPLETE,
        )
    if done.claim and not done.claim["is_decided"]:
        fail(done.claim["text"], NOT_SETTLED)


@contextmanager
def resumable(ledger: Ledger, store: Path) -> Iterator[None]:
    """Drain at a signal, then say what was stored and how to continue."""
    for path in left_behind(store):
        warn(f"{path} holds replies of a run that could not store them; they are taken in")
    try:
        with draining(is_for_a_command=True):
            yield
    except KeyboardInterrupt:
        fail(
            f"stopped; {ledger.asked - ledger.failed:,} new replies are stored in {store}: "
            "run the same command again to continue",
            INCOMPLETE,
        )
    finally:
        if ledger.unheard:
            warn(
                f"{ledger.unheard:,} requests were sent without a readable answer (timeout, broken "
                "connection, malformed reply) and sent again: the endpoint may bill both"
            )
        if ledger.damaged:
            warn(
                f"{ledger.damaged:,} replies in {store} are damaged (wrong checksum) and were "
                "requested again"
            )
