"""The verbs of the reply store: explain, export, merge, prune."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from rich.progress import Progress

from flipmeter.api import STORE
from flipmeter.base.printed import without_controls
from flipmeter.cli.consoles import errors, warn
from flipmeter.cli.options import (
    Changes,
    Data,
    DataDir,
    Limit,
    Models,
    StorePath,
    StudyName,
    TrustCode,
    TrustHosts,
    study_of,
    verb,
)
from flipmeter.model import (
    Store,
    convert,
    explain,
    export,
    merge,
    open_stored,
    plan_prune,
    prune,
)
from flipmeter.run.preview import plan_first_round
from flipmeter.run.record.folder import Run
from flipmeter.types import Problem

app = verb()


@app.callback(no_args_is_help=True)
def cache() -> None:
    """Look into the reply store, export, merge or prune it."""


@app.command("explain")
def cache_explain(
    study: StudyName,
    changes: Changes = None,
    model: Models = None,
    dataset: Data = None,
    limit: Limit = None,
    data_dir: DataDir = None,
    store: StorePath = STORE,
    trust: TrustCode = False,
    trust_host: TrustHosts = None,
) -> None:
    """Say why the requests of a study are new: what differs from the nearest stored ones."""
    chosen = study_of(study, changes, model, dataset, limit, data_dir)
    with Store(store if store.exists() else ":memory:") as replies:
        for line in explain(plan_first_round(chosen, replies).plan.requests, replies).lines():
            typer.echo(without_controls(line))


@app.command("export")
def cache_export(
    source: Annotated[Path, typer.Argument(help="A reply store, or a run folder.")],
    out: Annotated[Path, typer.Argument(help="The file to write (.jsonl, .parquet).")],
    store: Annotated[
        Path, typer.Option("--store", help="The reply store of the run folder.")
    ] = STORE,
) -> None:
    """Write every request with its reply; of a run folder, only those that it rests on."""
    keys = _keys(source) if source.is_dir() else None
    path = source if keys is None else store
    with open_stored(path) as replies:
        n_written = export(replies, out, keys)
        n_stored = len(replies)
    typer.echo(f"{n_written:,} requests with their replies: {out}")
    if keys is None and n_written < n_stored:
        warn(f"{n_stored - n_written:,} damaged replies of {path} are left out")
    if keys is not None and n_written < len(keys):
        n_absent = len(keys) - n_written
        typer.echo(f"! {n_absent:,} replies of {source} are not in {path}: --store", err=True)


def _keys(folder: Path) -> list[str]:
    answered = Run(folder).calls.filter(pl.col("error") == "")
    return answered["key"].unique(maintain_order=True).to_list()


@app.command("merge")
def cache_merge(
    sources: Annotated[list[Path], typer.Argument(help="Reply stores.")],
    into: Annotated[Path, typer.Option("--into", help="The store that gets their replies.")],
    prefer: Annotated[
        str | None,
        typer.Option(help="first: of different replies to a request keep the first, --into's too."),
    ] = None,
) -> None:
    """Join the reply stores of several machines, all replies or none."""
    if prefer not in (None, "first"):
        raise Problem(f"--prefer {prefer}: only the first can be preferred; name the stores so")
    for done in merge(sources, into, prefers_first=prefer is not None):
        n_old = done.n_replies - done.n_new - done.n_damaged
        differing = f", {done.n_differing:,} of them with another reply" * bool(done.n_differing)
        typer.echo(
            f"{done.path}: {done.n_replies:,} replies, {done.n_new:,} new, {n_old:,} in {into} "
            f"already{differing}" + f"; {done.n_damaged:,} damaged, left out" * bool(done.n_damaged)
        )


@app.command("convert")
def cache_convert(store: StorePath = STORE) -> None:
    """Convert a reply store of an older version to the present layout, in place, all or nothing."""
    before = store.stat().st_size if store.is_file() else 0
    with Progress(console=errors(), transient=True) as bar:
        copying = bar.add_task("converting", total=None)
        n_replies = convert(
            store, lambda done, n_all: bar.update(copying, completed=done, total=n_all)
        )
    if not n_replies:
        typer.echo(f"{store} has the present layout already")
        return
    sizes = f"{before / 1e6:,.1f} MB before, {store.stat().st_size / 1e6:,.1f} MB now"
    typer.echo(f"{store}: {n_replies:,} replies converted; {sizes}")


@app.command("prune")
def cache_prune(
    keep: Annotated[
        list[Path], typer.Option("--keep", help="Keep what this run folder rests on (repeatable).")
    ],
    store: StorePath = STORE,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; else only say what would go.")] = False,
) -> None:
    """Remove the replies that none of the named runs rests on, and give the space back."""
    runs = {folder: _keys(folder) for folder in keep}
    keys = [key for found in runs.values() for key in found]
    with open_stored(store) as replies:
        planned = plan_prune(replies, keys)
        for folder, found in runs.items():
            n_stored = len(replies.among(found))
            typer.echo(f"{folder}: {n_stored:,} of its {len(found):,} replies are stored")
    done = prune(store, keys) if yes else planned
    typer.echo(
        f"{'removed' if yes else 'would remove'} {done.n_removed:,} replies from {store}, "
        f"{done.n_kept:,} stay{'' if yes else '; add --yes to do it'}"
    )
