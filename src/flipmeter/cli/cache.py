"""The verbs of the reply store: export, merge, convert, prune."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from rich.progress import Progress

from flipmeter.api import STORE
from flipmeter.ask.export import export, open_stored, plan_prune, prune
from flipmeter.ask.merge import convert, merge
from flipmeter.cli.consoles import errors, warn
from flipmeter.cli.options import AsJson, StorePath, out_option, verb, written
from flipmeter.cli.output import finish, this_again
from flipmeter.errors import Problem
from flipmeter.files import named
from flipmeter.run.folder import Run

app = verb()


@app.callback(no_args_is_help=True)
def cache() -> None:
    """Export, merge, convert or prune the reply store."""


@app.command("export")
def cache_export(
    source: Annotated[Path, typer.Argument(help="A reply store, or a run folder.")],
    out: Annotated[
        Path,
        out_option("The file: .jsonl or .parquet."),
    ],
    store: Annotated[
        Path,
        typer.Option(
            "--store", metavar="FILE", callback=written, help="The reply store of the run folder."
        ),
    ] = STORE,
    no_prompts: Annotated[
        bool,
        typer.Option(
            "--no-prompts",
            help="Leave the prompts out: keys and replies may be shared where the data may not.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write requests with their replies: all of a store, or those of one run."""
    keys = _answered_keys(source) if source.is_dir() else None
    path = named(source) if keys is None else store
    with open_stored(path) as replies:
        n_written = export(replies, out, keys, has_prompts=not no_prompts)
        n_stored = len(replies)
    if keys is None and n_written < n_stored:
        warn(f"{n_stored - n_written:,} damaged replies in {path} are left out")
    if keys is not None and n_written < len(keys):
        n_absent = len(keys) - n_written
        warn(f"{path} lacks {n_absent:,} replies of {source}; pass their store with --store")
    finish(
        {"out": str(out), "replies": n_written},
        f"{n_written:,} requests with replies: {out}",
        as_json=as_json,
    )


def _answered_keys(folder: Path) -> list[str]:
    answered = Run(folder).calls.filter(pl.col("error") == "")
    return answered["key"].unique(maintain_order=True).to_list()


@app.command("merge")
def cache_merge(
    sources: Annotated[
        list[Path], typer.Argument(help="Reply stores, or .jsonl files of cache export.")
    ],
    into: Annotated[
        Path,
        typer.Option(
            "--into", metavar="FILE", callback=written, help="The store that receives the replies."
        ),
    ],
    prefer: Annotated[
        str | None,
        typer.Option(
            metavar="first", help="Where stores differ, keep the first reply (--into comes first)."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Merge reply stores, or what was exported of them, all replies or none."""
    if prefer not in (None, "first"):
        raise Problem(
            f"--prefer {prefer}: the only choice is 'first'; list the preferred store first"
        )
    lines, content = [], []
    for done in merge([*map(named, sources)], into, prefers_first=prefer is not None):
        n_old = done.n_replies - done.n_new - done.n_damaged
        differing = f" ({done.n_differing:,} with a different reply)" * bool(done.n_differing)
        damaged = f", {done.n_damaged:,} damaged and left out" * bool(done.n_damaged)
        lines.append(
            f"{done.path}: {done.n_replies:,} replies, {done.n_new:,} new, {n_old:,} already in "
            f"{into}{differing}{damaged}"
        )
        content.append(asdict(done))
    finish({"into": str(into), "merged": content}, *lines, as_json=as_json)


@app.command("convert")
def cache_convert(store: StorePath = STORE, as_json: AsJson = False) -> None:
    """Convert a reply store of an older version to the current layout, in place and atomically."""
    before = store.stat().st_size if store.is_file() else 0
    with Progress(console=errors(), transient=True) as bar:
        copying = bar.add_task("converting", total=None)
        n_replies = convert(
            store, lambda done, n_all: bar.update(copying, completed=done, total=n_all)
        )
    after = store.stat().st_size
    sizes = f"{before / 1e6:,.1f} MB before, {after / 1e6:,.1f} MB now"
    told = f"{store}: {n_replies:,} replies converted; {sizes}"
    finish(
        {"store": str(store), "converted": n_replies, "bytes_before": before, "bytes_now": after},
        told if n_replies else f"{store} already has the current layout",
        as_json=as_json,
    )


@app.command("prune")
def cache_prune(
    keep: Annotated[
        list[Path],
        typer.Option("--keep", metavar="RUN", help="Keep the replies of this run (repeatable)."),
    ],
    store: StorePath = STORE,
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove them; without it, only report.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove the replies that no named run uses, and free their space."""
    runs = {folder: _answered_keys(folder) for folder in keep}
    keys = [key for found in runs.values() for key in found]
    with open_stored(store) as replies:
        planned = plan_prune(replies, keys)
        stored = {folder: len(replies.among(found)) for folder, found in runs.items()}
    done = prune(store, keys) if yes else planned
    finish(
        {"store": str(store), "is_done": yes, **asdict(done)},
        *(
            f"{folder}: {n:,} of {len(runs[folder]):,} replies stored"
            for folder, n in stored.items()
        ),
        f"{'removed' if yes else 'would remove'} {done.n_removed:,} replies from {store}, "
        f"{'kept' if yes else 'would keep'} {done.n_kept:,}",
        as_json=as_json,
        steps=[] if yes else [this_again("--yes")],
    )
