"""The verbs around a study: demo, run, show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from flipmeter.cli.app import (
    DEFAULT_STORE,
    INCOMPLETE,
    Changes,
    Data,
    DataDir,
    Limit,
    Models,
    Out,
    StorePath,
    StudyName,
    app,
    fail,
    say,
    study_of,
)
from flipmeter.cli.printing import print_flip, print_run
from flipmeter.look import views_of_item
from flipmeter.model import Ledger, Store, open_stored
from flipmeter.registry import suggestion
from flipmeter.report import side_by_side, write_report
from flipmeter.run.perform import Run, perform
from flipmeter.run.progress import Meter
from flipmeter.run.results.gather import gather
from flipmeter.study.file import Study
from flipmeter.study.grid import base_conditions, conditions
from flipmeter.types import Problem


@app.command()
def demo(out: Out = None, store: StorePath = DEFAULT_STORE, limit: Limit = None) -> None:
    """Run the whole job offline: embedded model, bundled data, a few minutes."""
    study = study_of("demo", None, None, None, limit, None)
    _do(study, out or Path("runs") / study.name, store, is_demo=True)


@app.command()
def run(
    study: StudyName,
    changes: Changes = None,
    model: Models = None,
    dataset: Data = None,
    limit: Limit = None,
    data_dir: DataDir = None,
    until: Annotated[
        str | None, typer.Option(help="Stop as soon as a claim is settled: 'P1<0.10'.")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(help="Let Ray actors answer: ray, ray://HOST:PORT or ray:HOST:PORT."),
    ] = None,
    out: Out = None,
    store: StorePath = DEFAULT_STORE,
) -> None:
    """Ask what is missing, then measure. Stop and start as you like: nothing is asked twice."""
    chosen = study_of(study, changes, model, dataset, limit, data_dir)
    if until is not None:
        chosen = chosen.model_copy(update={"until": until})
    _do(chosen, out or Path("runs") / chosen.name, store, on=on)


def _do(
    study: Study, folder: Path, store_path: Path, *, is_demo: bool = False, on: str | None = None
) -> None:
    ledger = Ledger()
    with Store(store_path) as store, resumable(ledger, store_path), Meter(ledger) as meter:
        done = perform(
            study,
            folder,
            store,
            ledger=ledger,
            on_reply=meter.on_reply,
            on_fetch=meter.on_fetch,
            on_plan=meter.on_plan,
            on=on,
        )
    print_run(done, study)
    if is_demo:
        print_flip(done, study)
        with open_stored(store_path) as replies:
            write_report(gather(done, replies), folder / "report.html")
        say(f"\nreport: {folder / 'report.html'}  (open it in a browser)")
    say(f"\nrun folder: {folder}")
    if done.stopped and not done.is_settled:
        fail(done.stopped, INCOMPLETE)
    if ledger.failed:
        fail(
            f"{ledger.failed} requests failed for good ({_first_error(done)}); the tables count "
            "them as errors: run again to ask only those",
            INCOMPLETE,
        )


@contextmanager
def resumable(ledger: Ledger, store: Path) -> Iterator[None]:
    """Say at an interrupt that nothing is lost, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        fail(
            f"stopped; {ledger.asked - ledger.failed} new replies are kept in {store}: "
            "run the same command again to go on",
            INCOMPLETE,
        )


def _first_error(done: Run) -> str:
    """Return the first error with whose it is and the item that it is about."""
    errors = done.calls_with("rater", "item", "error").filter(pl.col("error") != "")
    return "{}, {}: {}".format(*errors.row(0)) if len(errors) else "see calls.parquet"


@app.command()
def show(
    study: StudyName,
    item: Annotated[int, typer.Option(help="Which test item, 1 is the first.", min=1)] = 1,
    view: Annotated[list[str] | None, typer.Option(help="Only these views (repeatable).")] = None,
    changes: Changes = None,
    dataset: Data = None,
    data_dir: DataDir = None,
) -> None:
    """Print the views of one item side by side, differences marked: look before you spend."""
    chosen = study_of(study, changes, None, dataset, None, data_dir)
    grid = base_conditions(conditions(chosen))
    if item > len(grid[0].items):
        raise Problem(f"--item {item}: the test set has {len(grid[0].items)} items")
    prompts = {name: prompt.text for name, prompt in views_of_item(grid, item - 1)}
    base = prompts.pop("base")
    for name in view or []:
        if name not in prompts:
            raise Problem(f"no view named '{name}'{suggestion(name, list(prompts))}")
    for name, text in prompts.items():
        if not view or name in view:
            if text == base:
                say(f"{name}: the prompt is equal to base, so this contrast is not identified")
            else:
                say(side_by_side(["base", name], [base, text]))
    if not prompts:
        say(side_by_side(["base"], [base]))
