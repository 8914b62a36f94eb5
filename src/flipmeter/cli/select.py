"""The verb select: the configuration of a run to ship, and the evidence for it."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import RenderableType

from flipmeter.api import Run
from flipmeter.choose.card import write_card
from flipmeter.choose.select import ALL, Selection, configs_of, configs_yaml
from flipmeter.choose.tables import selection_tables
from flipmeter.cli.options import AsJson, RunOrTable, ScaleOption, open_run, out_option, spare, verb
from flipmeter.cli.output import (
    after_select,
    finish,
    heading,
    print_json,
    this_again,
    warning_lines,
    write_text,
)
from flipmeter.errors import Problem
from flipmeter.stats.front import By, Cost
from flipmeter.stats.judge import UNREADABLE_LIMIT

app = verb()

ByMetric = Annotated[
    str | None,
    typer.Option(
        metavar="METRIC",
        help="What to optimise: accuracy (default) or mae; with --by-factor any metric.",
    ),
]
ByFactor = Annotated[
    bool,
    typer.Option(
        "--by-factor",
        help="Choose each prompt factor's best level alone instead, as YAML for a study.",
    ),
]
MaxFlip = Annotated[
    list[str] | None,
    typer.Option(
        metavar="P1=0.10",
        help="Require a flip rate shown to be below a limit; 0.10 applies to all (repeatable).",
    ),
]
FlipProof = Annotated[
    list[str] | None,
    typer.Option(
        metavar="P1,P2", help="Require that the design rules out these flips (repeatable)."
    ),
]
MaxUnreadable = Annotated[
    float,
    typer.Option(metavar="SHARE", help="With --max-flip: allow this share of unreadable pairs."),
]
OnlyContrast = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Compare flips of this contrast only (repeatable)."),
]
CostUnit = Annotated[
    str, typer.Option(metavar="UNIT", help="The cost axis: calls, tokens or none.")
]
OneDataset = Annotated[
    str | None,
    typer.Option(
        "--dataset", "-d", metavar="DATASET", help="Use this dataset of a run with several."
    ),
]
OneRater = Annotated[str | None, typer.Option(metavar="NAME", help="Only this rater of the run.")]
NamedLevel = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Choose this level instead of the best; `base` is a level too."
    ),
]
SplitSeed = Annotated[int, typer.Option(metavar="N", help="The seed of the held-out split.", min=0)]
ShowAll = Annotated[bool, typer.Option("--all", help="Also print dominated configurations.")]
CardOut = Annotated[
    Path | None,
    out_option("Write the rater card: rater.yaml."),
]


@app.command("select")
def select_(
    folder: RunOrTable,
    scale: ScaleOption = None,
    by: ByMetric = None,
    by_factor: ByFactor = False,
    max_flip: MaxFlip = None,
    flip_proof: FlipProof = None,
    max_unreadable: MaxUnreadable = UNREADABLE_LIMIT,
    contrast: OnlyContrast = None,
    cost: CostUnit = "calls",
    dataset: OneDataset = None,
    rater: OneRater = None,
    level: NamedLevel = None,
    seed: SplitSeed = 0,
    show_all: ShowAll = False,
    out: CardOut = None,
    as_json: AsJson = False,
) -> None:
    """Print the Pareto front of configurations, choose one and write its rater card."""
    spare(out, folder)
    run = open_run([folder], scale)
    if by_factor:
        others = {
            "--max-flip": max_flip,
            "--flip-proof": flip_proof,
            "--contrast": contrast,
            "--dataset": dataset,
            "--level": level,
            "--all": show_all,
        }
        if spent := [name for name, value in others.items() if value]:
            raise Problem(f"{spent[0]} does not apply to --by-factor; use one of the two")
        _by_factor(run, by, rater, out, as_json=as_json)
        return
    found = run.select(
        dataset=dataset,
        by=cast(By, by or "accuracy"),
        cost=cast(Cost, cost),
        max_flip=dict(map(_parse_flip_limit, max_flip or [])),
        max_unreadable=max_unreadable,
        flip_proof=[name.strip() for some in flip_proof or () for name in some.split(",")],
        contrasts=contrast,
        rater=rater,
        level=level,
        seed=seed,
    )
    if out is not None:
        write_card(found.card(), out)
    lines: list[RenderableType] = []
    if not as_json:
        tables = selection_tables(found, show_all=show_all)
        lines = ["", *tables, *warning_lines(run)]
        lines += [f"rater card: {out}"] if out else []
    content = heading(run) | _selection_json(found) | {"card": str(out) if out else None}
    steps = [this_again("--out", f"{folder.name}-rater.yaml")] if found.chosen else []
    if out is not None:
        # Items that are left to confirm the choice on; older runs do not say.
        about = found.run.environment["datasets"].get(found.dataset, {})
        n_unseen = about["n_available"] - about["n_items"] if "n_available" in about else None
        steps = [after_select(out, found.field.n_items, n_unseen)]
    finish(content, *lines, as_json=as_json, steps=steps)


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
        print_json(heading(run) | {"by_factor": content, "out": str(out) if out else None})
    elif out is None:
        typer.echo(configs_yaml(chosen), nl=False)
    else:
        typer.echo(f"configs: {out}")


def _parse_flip_limit(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=") if "=" in text else (ALL, "=", text)
    try:
        limit = float(value)
    except ValueError:
        limit = math.nan
    if not (name and equals) or math.isnan(limit):
        raise Problem(
            f"--max-flip {text!r} is not a limit; write CONTRAST=SHARE, as in P1=0.10, or SHARE"
        )
    return name, limit


def _selection_json(found: Selection) -> dict[str, Any]:
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
    }
