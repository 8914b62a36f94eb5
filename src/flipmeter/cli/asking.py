"""What verbs that ask a model share: progress, an interrupt that loses nothing, how they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from flipmeter.api import Run, Study
from flipmeter.base.drain import draining
from flipmeter.cli.consoles import INCOMPLETE, NOT_SETTLED, fail, say, warn
from flipmeter.model import Ledger


def ask(
    study: Study,
    folder: Path,
    store: Path,
    *,
    on: str | None = None,
    anyway: bool = False,
    then: Callable[[Run], None] = lambda done: None,
) -> None:
    """Run a study and print what it found; one that is not whole ends with its exit code."""
    ledger = Ledger()
    with resumable(ledger, store):
        done = study.run(folder, store=store, on=on, ledger=ledger, is_quiet=False, anyway=anyway)
    say(*done.tables())
    then(done)
    say(f"\nrun folder: {folder}")
    if done.stopped and not done.source.is_settled:
        fail(done.stopped, INCOMPLETE)
    if ledger.failed:
        fail(
            f"{ledger.failed} requests failed for good ({_first_error(done)}); the tables count "
            "them as errors: run again to ask only those",
            INCOMPLETE,
        )
    if done.claim and not done.claim["is_decided"]:
        fail(done.claim["text"], NOT_SETTLED)


@contextmanager
def resumable(ledger: Ledger, store: Path) -> Iterator[None]:
    """Drain at a signal, then say what is kept and how to go on."""
    try:
        with draining(is_for_a_command=True):
            yield
    except KeyboardInterrupt:
        fail(
            f"stopped; {ledger.asked - ledger.failed} new replies are kept in {store}: "
            "run the same command again to go on",
            INCOMPLETE,
        )
    finally:
        if ledger.damaged:
            warn(
                f"{ledger.damaged:,} replies in {store} are damaged (their checksums are wrong); "
                "they count as not stored and are asked again"
            )


def _first_error(done: Run) -> str:
    """Return the first error with whose it is and the item that it is about."""
    errors = done.source.calls_with("rater", "item", "error").filter(pl.col("error") != "")
    return "{}, {}: {}".format(*errors.row(0)) if len(errors) else "see calls.parquet"
