"""The verb select: which configuration of a run to ship, and on what evidence."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast

import typer
import yaml

from flipmeter.api import Run
from flipmeter.cli.consoles import say
from flipmeter.cli.options import AsJson, RunFolder, verb
from flipmeter.cli.printing import heading, warning_lines
from flipmeter.measure.effects.field import By, Cost
from flipmeter.measure.inference.judge import UNREADABLE_LIMIT
from flipmeter.ship.card import write_card
from flipmeter.ship.select import Next, Selection, propose_next
from flipmeter.ship.selection_tables import selection_tables
from flipmeter.types import Problem

app = verb()


@app.command("select")
def select_(
    folder: RunFolder,
    by: Annotated[str, typer.Option(help="What is best: accuracy, or mae.")] = "accuracy",
    max_flip: Annotated[
        list[str] | None,
        typer.Option(help="Only what is shown to flip less: P1=0.10 (repeatable)."),
    ] = None,
    max_unreadable: Annotated[
        float, typer.Option(help="With a limit: the most pairs that may be unreadable.")
    ] = UNREADABLE_LIMIT,
    contrast: Annotated[
        list[str] | None, typer.Option(help="Compare flips of these pairs only (repeatable).")
    ] = None,
    cost: Annotated[str, typer.Option(help="The third axis: calls, tokens or none.")] = "calls",
    dataset: Annotated[str | None, typer.Option(help="Where a run has several.")] = None,
    rater: Annotated[str | None, typer.Option(help="Only this model of the run.")] = None,
    level: Annotated[
        str | None, typer.Option(help="Take this level instead of the best; base is one too.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Draws the halves that are held out.", min=0)] = 0,
    show_all: Annotated[bool, typer.Option("--all", help="Also what somebody beats.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the chosen rater: rater.yaml.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the Pareto front of the configurations, choose one, and write it as a rater card."""
    run = Run(folder)
    found = run.select(
        dataset=dataset,
        by=cast(By, by),
        cost=cast(Cost, cost),
        max_flip=dict(map(_limit, max_flip or [])),
        max_unreadable=max_unreadable,
        contrasts=contrast,
        rater=rater,
        level=level,
        seed=seed,
    )
    raters = list(dict.fromkeys(who for who, _ in found.field.candidates))
    tries = {who: propose_next(run.source, found, who) for who in raters}
    if as_json:
        typer.echo(json.dumps(heading(run) | _plain(found, tries), ensure_ascii=False))
    else:
        say("", *selection_tables(found, show_all=show_all), *_next_lines(tries))
        say(*warning_lines(run))
    if out is not None:
        write_card(found.card(), out)
        typer.echo(f"rater: {out}", err=as_json)


def _limit(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    try:
        limit = float(value)
    except ValueError:
        limit = math.nan
    if not (name and equals) or math.isnan(limit):
        raise Problem(f"--max-flip {text!r} is no limit; write CONTRAST=SHARE, as in P1=0.10")
    return name, limit


def _next_lines(tries: dict[str, Next]) -> Iterator[str]:
    for rater, found in tries.items():
        if found.configs:
            yield ""
            yield f"# to try next with {rater}: put this into the study"
            for name, why in found.why.items():
                yield f"# {name}: {why}"
            yield yaml.safe_dump({"configs": found.configs}, sort_keys=False).rstrip()


def _plain(found: Selection, tries: dict[str, Next]) -> dict[str, Any]:
    content = {
        "dataset": found.dataset,
        "by": found.by,
        "cost": found.cost,
        "max_flip": found.limits,
        "max_unreadable": found.unreadable_limit,
        "n_items": found.field.n_items,
        "n_clusters": found.field.n_clusters,
        "simultaneous_over": len(found.standings),
        "candidates": [asdict(one) for one in found.standings],
        "chosen": found.chosen.candidate if found.chosen else None,
        "held_out": asdict(found.held_out) if found.held_out else None,
        "left_out": found.left_out,
        "next": {rater: asdict(one) for rater, one in tries.items()},
    }
    return cast(dict[str, Any], _without_nan(content))


def _without_nan(content: Any) -> Any:
    """Put null in the place of every number that is none: JSON has no NaN."""
    if isinstance(content, dict):
        return {name: _without_nan(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_without_nan(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
