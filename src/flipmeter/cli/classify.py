"""The verb classify: label a file with a rater card."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flipmeter.api import STORE
from flipmeter.ask.limits import Budget, Price
from flipmeter.choose.card import Card, read_as_written, read_card
from flipmeter.choose.classify import Job, LabelCounts, classify
from flipmeter.cli.asking import asking
from flipmeter.cli.consoles import INCOMPLETE, fail, warn
from flipmeter.cli.options import (
    AsJson,
    DataDir,
    Limit,
    StorePath,
    TrustCode,
    TrustHosts,
    out_option,
    verb,
)
from flipmeter.cli.output import after_classify, finish, this_again
from flipmeter.errors import Problem
from flipmeter.loops import wait_for

if TYPE_CHECKING:
    from flipmeter.choose.select import NextStep

app = verb()


CardFile = Annotated[Path, typer.Argument(help="A rater card: flipmeter select RUN --out FILE.")]
TextsFile = Annotated[Path, typer.Argument(help="The texts: .csv, .jsonl or .parquet.")]
OtherFields = Annotated[
    list[str] | None,
    typer.Option("--field", metavar="NAME=COLUMN", help="Another field of an item (repeatable)."),
]
KeptColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="COLUMN",
        help="Copy only this input column to the output; default: all (repeatable).",
    ),
]
LabelsOut = Annotated[
    Path | None,
    out_option("The labels: .csv or .jsonl; default: FILE.labelled.csv."),
]
Averaged = Annotated[
    list[str] | None,
    typer.Option(metavar="PROBE", help="Average over all views of this probe (repeatable)."),
]
LeastAgreement = Annotated[
    float | None,
    typer.Option(metavar="SHARE", help="Give no label if fewer views agree: 0.8."),
]
OtherModel = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="MODEL", help="Use this model instead, untested."),
]
MostCalls = Annotated[
    int | None, typer.Option(metavar="N", help="Stop before more calls than this.", min=1)
]
MostUsd = Annotated[
    float | None, typer.Option(metavar="USD", help="Stop before it costs more than this.")
]
Anew = Annotated[bool, typer.Option("--anew", help="Start over; stored replies are reused.")]


@app.command("classify")
def classify_(
    card: CardFile,
    file: TextsFile,
    text: Annotated[
        str, typer.Option(metavar="COLUMN", help="The column with the texts.")
    ] = "text",
    fields: OtherFields = None,
    columns: KeptColumns = None,
    out: LabelsOut = None,
    limit: Limit = None,
    average: Averaged = None,
    abstain_below: LeastAgreement = None,
    model: OtherModel = None,
    max_calls: MostCalls = None,
    max_usd: MostUsd = None,
    anew: Anew = False,
    data_dir: DataDir = None,
    store: StorePath = STORE,
    as_json: AsJson = False,
    trust: TrustCode = False,
    trust_host: TrustHosts = None,
) -> None:
    """Label every row of a file; stop and resume at any time."""
    chosen = read_card(card, model=model)
    if average is not None:
        chosen = chosen.with_average(average)
    job = Job(
        file,
        out or file.with_name(f"{file.stem}.labelled.csv"),
        text,
        dict(map(_parse_field_option, fields or [])),
        tuple(columns) if columns else None,
        limit,
        abstain_below,
    )
    known = chosen.world(card.parent, data_dir)
    if told := chosen.warning(known):
        warn(told)
    with asking(store) as (replies, terms):
        terms = replace(terms, budget=_card_budget(chosen, max_calls, max_usd))
        done = wait_for(classify(chosen, job, replies, terms, anew=anew, world=known))
    is_as_written = model is None and average is None
    steps = after_classify(card, read_as_written(card)) if is_as_written else []
    _print_label_counts(job, done, steps, as_json=as_json)


def _parse_field_option(text: str) -> tuple[str, str]:
    name, equals, column = text.partition("=")
    if not (name and equals and column):
        raise Problem(f"--field {text!r} has no column; write NAME=COLUMN")
    return name, column


def _card_budget(card: Card, max_calls: int | None, max_usd: float | None) -> Budget | None:
    if max_calls is None and max_usd is None:
        return None
    known = [one.price for one in card.members if one.price]
    if len(known) < len(card.members):
        return Budget(calls=max_calls, usd=max_usd)
    dearest = Price(max(one.prompt for one in known), max(one.completion for one in known))
    price = known[0].price if len(known) == 1 else dearest
    return Budget(calls=max_calls, usd=max_usd, price=price)


def _print_label_counts(
    job: Job, done: LabelCounts, steps: list[NextStep], *, as_json: bool
) -> None:
    failed = done.faults["error"]
    lines = [f"labels: {job.out} ({done.n_rows:,} rows, {done.n_new:,} new)"]
    if not done.n_new:
        lines.append("nothing was asked: the file is complete")
    if done.faults:
        shown = ", ".join(f"{n:,} {fault}" for fault, n in done.faults.most_common())
        lines.append(f"rows without a label: {shown}")
    finish(
        {
            "labels": str(job.out),
            "rows": done.n_rows,
            "new": done.n_new,
            "faults": dict(done.faults),
            "error": done.error,
        },
        *lines,
        as_json=as_json,
        steps=[this_again("--anew")] if failed else steps,
    )
    if failed:
        why = f" ({done.error})" if done.error else ""
        fail(f"{failed:,} rows failed after retries{why}; --anew retries only those", INCOMPLETE)
