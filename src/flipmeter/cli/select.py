"""The verb select: which configuration of a run to ship, and on what evidence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast

import typer
import yaml

from flipmeter.api import Run
from flipmeter.cli.consoles import say
from flipmeter.cli.options import AsJson, RunFolder, spare, verb
from flipmeter.cli.output import print_json, write_text
from flipmeter.cli.printing import heading, warning_lines
from flipmeter.measure.effects.field import By, Cost
from flipmeter.measure.inference.judge import UNREADABLE_LIMIT
from flipmeter.ship.by_factor import configs_of, configs_yaml
from flipmeter.ship.card import write_card
from flipmeter.ship.select import ALL, Next, Selection, propose_next
from flipmeter.ship.selection_tables import selection_tables
from flipmeter.types import Problem

app = verb()


@app.command("select")
def select_(
    folder: RunFolder,
    by: Annotated[
        str | None,
        typer.Option(
            help="What to optimise: accuracy (the default) or mae; any metric with --by-factor."
        ),
    ] = None,
    by_factor: Annotated[
        bool,
        typer.Option(
            "--by-factor",
            help="Instead: the best level of each prompt factor alone, as YAML for a study.",
        ),
    ] = False,
    max_flip: Annotated[
        list[str] | None,
        typer.Option(
            help="Only what is shown to flip less: P1=0.10 (repeatable), or 0.10 for all."
        ),
    ] = None,
    flip_proof: Annotated[
        list[str] | None,
        typer.Option(help="Only what rules out flips by construction: P1,P2 (repeatable)."),
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
    spare(out, folder)
    run = Run(folder)
    if by_factor:
        others = {
            "--max-flip": max_flip,
            "--flip-proof": flip_proof,
            "--contrast": contrast,
            "--dataset": dataset,
            "--level": level,
            "--all": show_all,
        }
        _refuse(name for name, value in others.items() if value)
        _by_factor(run, by, rater, out, as_json=as_json)
        return
    found = run.select(
        dataset=dataset,
        by=cast(By, by or "accuracy"),
        cost=cast(Cost, cost),
        max_flip=dict(map(_limit, max_flip or [])),
        max_unreadable=max_unreadable,
        flip_proof=[name.strip() for some in flip_proof or () for name in some.split(",")],
        contrasts=contrast,
        rater=rater,
        level=level,
        seed=seed,
    )
    raters = list(dict.fromkeys(who for who, _ in found.field.candidates))
    tries = {who: propose_next(run.source, found, who) for who in raters}
    if as_json:
        print_json(heading(run) | _plain(found, tries))
    else:
        say("", *selection_tables(found, show_all=show_all), *_next_lines(tries))
        say(*warning_lines(run))
    if out is not None:
        write_card(found.card(), out)
        typer.echo(f"rater: {out}", err=as_json)


def _refuse(names: Iterable[str]) -> None:
    for name in names:
        raise Problem(f"{name} has no meaning with --by-factor; leave one of the two out")


def _by_factor(
    run: Run, by: str | None, rater: str | None, out: Path | None, *, as_json: bool
) -> None:
    """Print the greedy choice of levels as YAML or JSON; `out` gets the YAML."""
    chosen = run.select_by_factor(by, rater=rater)
    if out is not None:
        write_text(configs_yaml(chosen), out)
    if as_json:
        content = {
            name: {
                "configs": configs_of(choices),
                "residuals": {one.metric: dict(one.residuals) for one in choices},
                "warning": choices[0].warning,
            }
            for name, choices in chosen.items()
        }
        print_json(heading(run) | {"by_factor": content})
    elif out is None:
        typer.echo(configs_yaml(chosen), nl=False)
    else:
        typer.echo(f"configs: {out}")


def _limit(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=") if "=" in text else (ALL, "=", text)
    try:
        limit = float(value)
    except ValueError:
        limit = math.nan
    if not (name and equals) or math.isnan(limit):
        raise Problem(
            f"--max-flip {text!r} is no limit; write CONTRAST=SHARE, as in P1=0.10, or SHARE"
        )
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
    return {
        "dataset": found.dataset,
        "by": found.by,
        "cost": found.cost,
        "max_flip": found.limits,
        "max_unreadable": found.unreadable_limit,
        "flip_proof": found.flip_proof,
        "n_items": found.field.n_items,
        "n_clusters": found.field.n_clusters,
        "simultaneous_over": len(found.standings),
        "candidates": [asdict(one) for one in found.standings],
        "chosen": found.chosen.candidate if found.chosen else None,
        "held_out": asdict(found.held_out) if found.held_out else None,
        "left_out": found.left_out,
        "can_flip": found.can_flip,
        "next": {rater: asdict(one) for rater, one in tries.items()},
    }
