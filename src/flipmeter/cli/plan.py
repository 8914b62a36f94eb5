"""The verb plan: requests, tokens, price and time of a study."""

from __future__ import annotations

from typing import Annotated

import typer

from flipmeter.api import STORE
from flipmeter.ask.prices import read_prices
from flipmeter.cli.options import (
    AsJson,
    Changes,
    Data,
    DataDir,
    Limit,
    Models,
    Offline,
    Prices,
    Rate,
    StorePath,
    StudyName,
    TokensPerSecond,
    TrustCode,
    TrustHosts,
    study_of,
    verb,
)
from flipmeter.cli.output import finish, with_study
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
    prices: Prices = None,
    offline: Offline = False,
    rate: Rate = None,
    tokens_per_second: TokensPerSecond = None,
    power: Annotated[
        str | None,
        typer.Option(metavar="CLAIM", help="The power of a test of a claim: 'P1<0.10'."),
    ] = None,
    as_json: AsJson = False,
    trust: TrustCode = False,
    trust_host: TrustHosts = None,
) -> None:
    """Print requests, tokens, price and time of a study; no model is asked."""
    chosen = study_of(study, changes, model, dataset, limit, data_dir)
    seen = chosen.plan(
        store=store,
        prices=None if prices is None else read_prices(prices),
        is_offline=offline,
        speed=Speed(rate, tokens_per_second),
        power=power,
    )
    finish(
        seen.as_dict(),
        *([] if as_json else seen.tables()),
        as_json=as_json,
        steps=[with_study("run", study, "--limit")],
    )
