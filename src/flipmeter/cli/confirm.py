"""The verb confirm: a selected rater on items that the choice did not see."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType

from flipmeter.api import STORE
from flipmeter.choose.card import read_as_written, write_card
from flipmeter.choose.confirm import confirm
from flipmeter.cli.asking import asking
from flipmeter.cli.consoles import INCOMPLETE, exit_by, fail, warn
from flipmeter.cli.options import (
    AsJson,
    DataDir,
    Out,
    StorePath,
    TrustCode,
    TrustHosts,
    run_folder,
    verb,
    written,
)
from flipmeter.cli.output import after_confirm, finish
from flipmeter.files import inside

app = verb()


@app.command("confirm")
def confirm_(
    card: Annotated[
        Path,
        typer.Argument(callback=written, help="A rater card: flipmeter select RUN --out FILE."),
    ],
    items: Annotated[
        int,
        typer.Option("--items", metavar="N", help="The number of unseen items to rate.", min=1),
    ],
    data_dir: DataDir = None,
    out: Out = None,
    store: StorePath = STORE,
    as_json: AsJson = False,
    trust: TrustCode = False,
    trust_host: TrustHosts = None,
) -> None:
    """Test a selected rater on unseen items and write the verdict into its card."""
    chosen = read_as_written(inside(card))
    asked = chosen.beside(card.parent)
    if told := asked.warning(asked.world(card.parent, data_dir)):
        warn(told)
    folder = run_folder(out, f"{card.stem}-confirm")
    with asking(store) as asked_with:
        done = confirm(chosen, items, folder, *asked_with, beside=card.parent, data_dir=data_dir)
    if not done.missing:
        write_card(done.card, card)
    lines: list[RenderableType] = []
    if not as_json:
        lines = [*done.tables(), f"run folder: {folder}"]
    if not as_json and not done.missing:
        said = "confirmed" if done.card.is_confirmed else "not confirmed"
        lines.append(f"{said} ({done.word}): {card}")
    steps = [] if done.missing else after_confirm(card, folder, done.word)
    section = done.card.confirmed if not done.missing else None
    content = {
        "word": done.word,
        "run": str(done.run.folder),
        "missing": done.missing,
        "confirmed": section.model_dump(mode="json") if section else None,
    }
    finish(content, *lines, as_json=as_json, steps=steps)
    if done.missing:
        fail(f"{done.missing}; nothing is confirmed: run the same command to continue", INCOMPLETE)
    exit_by(done.word)
