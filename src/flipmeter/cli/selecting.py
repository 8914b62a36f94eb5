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
from rich.table import Table

from flipmeter.cli.app import AsJson, DataDir, RunFolder, app, say
from flipmeter.cli.printing import heading, warning_lines
from flipmeter.measure import HeldOut, Standing
from flipmeter.measure.front import By, Cost
from flipmeter.measure.statistics.resample import RESAMPLES
from flipmeter.run.perform import Run
from flipmeter.ship.card import write_card
from flipmeter.ship.select import Next, Selection, card_of, propose_next, select, shown_candidate
from flipmeter.types import Estimate, Problem

NOTHING = "-"


@app.command("select")
def select_(
    folder: RunFolder,
    by: Annotated[str, typer.Option(help="What is best: accuracy, or mae.")] = "accuracy",
    max_flip: Annotated[
        list[str] | None,
        typer.Option(help="Only what flips surely less: P1=0.10 (repeatable)."),
    ] = None,
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
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Print the configurations that nobody beats, choose one, and write it as a rater card."""
    run = Run(folder)
    found = select(
        run,
        dataset=dataset,
        by=cast(By, by),
        cost=cast(Cost, cost),
        max_flip=dict(map(_limit, max_flip or [])),
        contrasts=contrast,
        rater=rater,
        level=level,
        seed=seed,
    )
    raters = list(dict.fromkeys(who for who, _ in found.field.candidates))
    tries = {who: propose_next(run, found, who) for who in raters}
    if as_json:
        typer.echo(json.dumps(heading(run) | _plain(found, tries), ensure_ascii=False))
    else:
        say("", _table(found, show_all=show_all), *_lines(found), *_next_lines(tries))
        say(*warning_lines(run))
    if out is not None:
        write_card(card_of(run, found, data_dir), out)
        typer.echo(f"rater: {out}", err=as_json)


def _limit(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    try:
        limit = float(value)
    except ValueError:
        limit = math.nan
    if not (name and equals and 0 < limit <= 1):
        raise Problem(f"--max-flip {text!r} is no limit; write CONTRAST=SHARE, as in P1=0.10")
    return name, limit


def _table(found: Selection, *, show_all: bool) -> Table:
    shown = found.standings if show_all else found.front
    if found.chosen is not None and found.chosen not in shown:
        shown = [*shown, found.chosen]
    n = f"{len(found.front)} of {len(found.standings)} that nobody beats"
    title = f"{found.dataset}, {found.field.n_items} items: {n}"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    table.add_column("configuration", overflow="fold")
    table.add_column(f"{found.by} [95 %]")
    for name in found.field.contrasts:
        table.add_column(f"{name} flips", justify="right")
    table.add_column(found.cost if found.cost != "none" else "cost", justify="right")
    table.add_column("on front", justify="right")
    table.add_column("chosen", justify="right")
    for one in shown:
        table.add_row(*_cells(found, one))
    return table


def _cells(found: Selection, one: Standing) -> Iterator[str]:
    yield "→" if one is found.chosen else ("" if one.is_on_front else "beaten")
    yield shown_candidate(one.candidate)
    yield str(one.score)
    for name in found.field.contrasts:
        yield _share(one.flips[name])
    yield f"{one.cost:.3g}" if found.cost != "none" else NOTHING
    yield f"{100 * one.chance_on_front:.0f} %"
    yield f"{100 * one.chance_chosen:.0f} %"


def _share(flips: Estimate) -> str:
    return NOTHING if math.isnan(flips.value) else f"{100 * flips.value:.1f} %"


def _lines(found: Selection) -> Iterator[str]:
    """Yield what is chosen and what that is worth beside the naive numbers, and what to know."""
    limits = ", ".join(f"{name} < {limit:g}" for name, limit in found.limits.items())
    if found.chosen is None:
        yield f"nothing is surely below {limits}: ask more items, or raise the limit"
    else:
        yield f"chosen{f' ({limits})' if limits else ''}: {shown_candidate(found.chosen.candidate)}"
        yield f"  on all items, the best of {len(found.standings)}: {_numbers(found, found.chosen)}"
    if found.held_out is not None:
        yield f"  on items it was not chosen on:       {_numbers(found, found.held_out)}"
        chosen = dict.fromkeys(shown_candidate(one) for one in found.held_out.chosen)
        yield f"  the two halves of the items choose: {'; '.join(chosen)}"
    elif found.limits and found.chosen is not None:
        yield "  half of the items is too few to be sure of the limit: nothing could be held out"
    yield f"faults are wrong and flip (strict); chances are shares of {RESAMPLES:,} resamples"
    if any(math.isnan(flip.value) for one in found.standings for flip in one.flips.values()):
        yield f"{NOTHING}: positions that cannot vary there, so that nothing can flip; counts as 0"
    if found.left_out:
        yield f"left out, on another scale or dataset: {', '.join(found.left_out)}"


def _numbers(found: Selection, one: Standing | HeldOut) -> str:
    upper = {name: one.upper[name] for name in found.limits} if isinstance(one, Standing) else {}
    flips = (
        f"{name} {_share(flip)}" + (f" (surely below {upper[name]:.3f})" if name in upper else "")
        for name, flip in one.flips.items()
    )
    return ", ".join([f"{found.by} {one.score}", *flips])


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
        "n_items": found.field.n_items,
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
