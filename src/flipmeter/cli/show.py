"""The verb show: the views of one item, before anything is spent."""

from __future__ import annotations

from typing import Annotated

import typer

from flipmeter.cli.consoles import say
from flipmeter.cli.options import (
    Changes,
    Data,
    DataDir,
    StudyName,
    TrustCode,
    TrustHosts,
    study_of,
    verb,
)

app = verb()


@app.command()
def show(
    study: StudyName,
    item: Annotated[int, typer.Option(help="Which test item, 1 is the first.", min=1)] = 1,
    view: Annotated[list[str] | None, typer.Option(help="Only these views (repeatable).")] = None,
    changes: Changes = None,
    dataset: Data = None,
    data_dir: DataDir = None,
    trust: TrustCode = False,
    trust_host: TrustHosts = None,
) -> None:
    """Print the views of one item side by side, differences marked: look before you spend."""
    chosen = study_of(study, changes, None, dataset, None, data_dir)
    say(*chosen.show(item, views=view or ()).tables())
