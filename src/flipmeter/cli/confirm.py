"""The verb confirm: ask a selected rater about items that the choice did not see."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from flipmeter.api import STORE
from flipmeter.cli.asking import resumable
from flipmeter.cli.consoles import INCOMPLETE, fail, say, warn
from flipmeter.cli.options import (
    AsJson,
    DataDir,
    Out,
    StorePath,
    TrustCode,
    TrustHosts,
    verb,
)
from flipmeter.model import Ledger, Store
from flipmeter.run.progress import Meter
from flipmeter.ship.card import read_as_written, write_card
from flipmeter.ship.confirm import Confirmation, confirm

app = verb()

EXITS = {"stable": 0, "flips": 1, "unreadable": 1, "inconclusive": 3, "not identified": 3}


@app.command("confirm")
def confirm_(
    card: Annotated[Path, typer.Argument(help="A rater card: flipmeter select RUN --out FILE.")],
    items: Annotated[
        int,
        typer.Option("--items", "-n", help="How many items that the choice did not see.", min=1),
    ],
    data_dir: DataDir = None,
    out: Out = None,
    store: StorePath = STORE,
    as_json: AsJson = False,
    trust: TrustCode = False,
    trust_host: TrustHosts = None,
) -> None:
    """Ask a selected rater about unseen items and write the verdict into its card."""
    chosen = read_as_written(card)
    asked = chosen.beside(card.parent)
    if told := asked.warning(asked.world(card.parent, data_dir)):
        warn(told)
    ledger = Ledger()
    folder = out or Path("runs") / f"{card.stem}-confirm"
    with Store(store) as replies, resumable(ledger, store), Meter(ledger) as meter:
        done = confirm(
            chosen,
            items,
            folder,
            replies,
            beside=card.parent,
            data_dir=data_dir,
            ledger=ledger,
            on_reply=meter.on_reply,
            on_fetch=meter.on_fetch,
            on_plan=meter.on_plan,
            on_note=meter.on_note,
        )
    if as_json:
        typer.echo(json.dumps(_plain(done), ensure_ascii=False))
    else:
        say(*done.tables(), f"run folder: {folder}")
    if done.missing:
        fail(f"{done.missing}; nothing was confirmed: run again to ask the rest", INCOMPLETE)
    write_card(done.card, card)
    said = "confirmed" if done.card.is_confirmed else "not confirmed"
    typer.echo(f"{said} ({done.word}): {card}", err=as_json)
    sys.exit(EXITS[done.word])


def _plain(done: Confirmation) -> dict[str, Any]:
    section = done.card.confirmed if not done.missing else None
    return {
        "word": done.word,
        "run": str(done.run.folder),
        "missing": done.missing,
        "confirmed": section.model_dump(mode="json") if section else None,
    }
