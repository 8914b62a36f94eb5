"""The verb plan: what a study would ask, and what that takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from flipmeter.api import STORE
from flipmeter.cli.consoles import say
from flipmeter.cli.options import (
    AsJson,
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
from flipmeter.model import read_prices
from flipmeter.study.forecast import Speed

app = verb()


@app.command()
def plan(
    study: StudyName,
    changes: Changes = None,
    model: Models = None,
    dataset: Data = None,
    limit: Limit = None,
    data_dir: DataDir = None,
    store: StorePath = STORE,
    prices: Annotated[
        Path | None,
        typer.Option(
            help="Prices by address (YAML, JSON), or a saved list of a provider's models."
        ),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not ask providers for their prices.")
    ] = False,
    rate: Annotated[
        float | None, typer.Option(help="Requests per second that each model answers.")
    ] = None,
    tokens_per_second: Annotated[
        float | None,
        typer.Option(help="Prompt tokens per second that each model reads, without shared ones."),
    ] = None,
    power: Annotated[
        str | None,
        typer.Option(help="A claim, 'P1<0.10': its looks, and how often it would be settled."),
    ] = None,
    as_json: AsJson = False,
    trust: TrustCode = False,
    trust_host: TrustHosts = None,
) -> None:
    """Say what a study would ask, and what that takes; no model is asked."""
    chosen = study_of(study, changes, model, dataset, limit, data_dir)
    seen = chosen.plan(
        store=store,
        prices=None if prices is None else read_prices(prices),
        is_offline=offline,
        speed=Speed(rate, tokens_per_second),
        power=power,
    )
    if as_json:
        typer.echo(json.dumps(seen.as_dict(), ensure_ascii=False))
        return
    say(*seen.tables())
