"""The verb classify: label a file with a rater card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flipmeter.api import STORE
from flipmeter.base.run_sync import wait_for
from flipmeter.cli.asking import resumable
from flipmeter.cli.consoles import INCOMPLETE, fail, warn
from flipmeter.cli.options import (
    DataDir,
    Limit,
    StorePath,
    TrustCode,
    TrustHosts,
    verb,
)
from flipmeter.model import Budget, Ledger, Store
from flipmeter.run.progress import Meter
from flipmeter.ship.card import Card, read_card
from flipmeter.ship.classify import Job, LabelCounts, classify
from flipmeter.types import Problem

app = verb()


@app.command("classify")
def classify_(
    card: Annotated[Path, typer.Argument(help="A rater card: flipmeter select RUN --out FILE.")],
    file: Annotated[Path, typer.Argument(help="The texts: .csv, .jsonl or .parquet.")],
    text: Annotated[str, typer.Option(help="The column with the text.")] = "text",
    fields: Annotated[
        list[str] | None,
        typer.Option("--field", help="A further field of an item: NAME=COLUMN (repeatable)."),
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="Copy this column to the output (repeatable).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The labels: .csv or .jsonl.")
    ] = None,
    limit: Limit = None,
    average: Annotated[
        list[str] | None,
        typer.Option(help="Ask all positions of a probe and put them together (repeatable)."),
    ] = None,
    abstain_below: Annotated[
        float | None, typer.Option(help="No label where fewer positions agree: 0.8.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Ask another model; it warns.")
    ] = None,
    max_calls: Annotated[int | None, typer.Option(help="Stop before more calls.", min=1)] = None,
    max_usd: Annotated[float | None, typer.Option(help="Stop before it costs more.")] = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Start the output over; the store keeps its replies.")
    ] = False,
    data_dir: DataDir = None,
    store: StorePath = STORE,
    trust: TrustCode = False,
    trust_host: TrustHosts = None,
) -> None:
    """Label every text of a file. Stop and start as you like: nothing is asked twice."""
    chosen = read_card(card, model=model)
    if average is not None:
        chosen = Card.model_validate(chosen.model_dump() | {"average": average})
    job = Job(
        file,
        out or file.with_name(f"{file.stem}.labelled.csv"),
        text,
        dict(map(_field, fields or [])),
        tuple(keep or ()),
        limit,
        abstain_below,
    )
    known = chosen.world(card.parent, data_dir)
    if told := chosen.warning(known):
        warn(told)
    ledger = Ledger()
    with Store(store) as replies, resumable(ledger, store), Meter(ledger) as meter:
        done = wait_for(
            classify(
                chosen,
                job,
                replies,
                anew=anew,
                world=known,
                budget=_budget(chosen, max_calls, max_usd),
                ledger=ledger,
                on_reply=meter.on_reply,
                on_fetch=meter.on_fetch,
                on_plan=meter.on_plan,
                on_note=warn,
            )
        )
    _tell(job, done)


def _field(text: str) -> tuple[str, str]:
    name, equals, column = text.partition("=")
    if not (name and equals and column):
        raise Problem(f"--field {text!r} names no column; write NAME=COLUMN")
    return name, column


def _budget(card: Card, max_calls: int | None, max_usd: float | None) -> Budget | None:
    if max_calls is None and max_usd is None:
        return None
    price = card.model.price
    return Budget(calls=max_calls, usd=max_usd, price=price.price if price else None)


def _tell(job: Job, done: LabelCounts) -> None:
    typer.echo(f"labels: {job.out} ({done.n_rows:,} rows, {done.n_new:,} of them new)")
    if done.faults:
        shown = ", ".join(f"{n:,} {fault}" for fault, n in done.faults.most_common())
        typer.echo(f"without a label: {shown}")
    if failed := done.faults["error"]:
        fail(
            f"{failed:,} rows failed for good ({done.error}); --anew asks only those again: all "
            "other replies are in the store",
            INCOMPLETE,
        )
