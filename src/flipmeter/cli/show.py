"""The verb show: the prompts of one item under every view."""

from __future__ import annotations

from typing import Annotated

import typer

from flipmeter.cli.next_commands import with_study
from flipmeter.cli.options import (
    AsJson,
    Changes,
    Data,
    DataDir,
    StudyName,
    TrustCode,
    TrustHosts,
    study_of,
    verb,
)
from flipmeter.cli.output import finish

app = verb()


@app.command()
def show(
    study: StudyName,
    item: Annotated[
        int, typer.Option(metavar="N", help="The number of the test item, counted from 1.", min=1)
    ] = 1,
    view: Annotated[
        list[str] | None, typer.Option(metavar="VIEW", help="Only this view (repeatable).")
    ] = None,
    changes: Changes = None,
    dataset: Data = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
    trust: TrustCode = False,
    trust_host: TrustHosts = None,
) -> None:
    """Print the prompts of one item side by side, differences marked; sends nothing."""
    chosen = study_of(study, changes, None, dataset, None, data_dir)
    found = chosen.show(item, views=view or ())
    finish(
        {"study": chosen.name, "item": item, "prompts": found.shown},
        *([] if as_json else found.tables()),
        as_json=as_json,
        steps=[with_study("try", study)],
    )
