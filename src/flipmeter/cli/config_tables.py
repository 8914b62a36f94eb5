"""What the verb measure shows of configs: how they transfer, add up and are chosen."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import typer
import yaml

from flipmeter.api import Run
from flipmeter.cli.consoles import say
from flipmeter.cli.output import Output
from flipmeter.cli.printing import heading, warning_lines
from flipmeter.measure import (
    PROMPT_FACTORS,
    LevelChoice,
    forecasts,
    objectives,
    residuals,
    select_greedy,
)
from flipmeter.report import forecast_notes, forecast_table
from flipmeter.study.configs import configs
from flipmeter.types import Problem


def show_forecasts(done: Run, output: Output) -> None:
    """Print what the levels of each config add up to, beside what was measured."""
    study = done.study
    table = forecasts(done.decisions, done.contrasts, _configs(done), mode=study.mode)
    output.show(
        heading(done),
        {"forecasts": table},
        lambda: say("", forecast_table(table), *forecast_notes(table), *warning_lines(done)),
    )


def _configs(done: Run) -> dict[str, dict[str, object]]:
    """Return what a config changes of the base, by name: the study's own and those we know."""
    at_base = done.study.at_base
    known = {name: dict(levels) for name, levels in configs.items()} | done.study.configs
    return {
        name: {
            factor: levels[factor]
            for factor, value in at_base.items()
            if levels.get(factor, value) != value
        }
        for name, levels in known.items()
    }


def show_choices(done: Run, metric: str | None) -> None:
    """Print the best level of every factor for each objective, as YAML for a study."""
    table = residuals(done.decisions, done.contrasts, mode=done.study.mode)
    varied = table.filter(pl.col("factor").is_in(PROMPT_FACTORS))
    raters = varied["rater"].unique(maintain_order=True).to_list()
    if not raters:
        raise Problem(
            "no factor of the prompt was varied alone in this run; `vary:` some to choose from"
        )
    documents = []
    for rater in raters:
        own = varied.filter(rater=rater)
        choices = [
            select_greedy(own, baseline=done.study.style, metric=name)
            for name in ([metric] if metric else objectives(own))
        ]
        documents.append("\n".join(_document(rater, choices)))
    typer.echo("\n---\n".join(documents))


def _document(rater: str, choices: list[LevelChoice]) -> Iterator[str]:
    """Yield the lines of a YAML document: what was chosen and why, then the configs."""
    yield f"# chosen on {' '.join(rater.split())}; {choices[0].warning}"
    for choice in choices:
        gains = (
            f"{factor}={choice.levels[factor]} {points:+.1f}"
            for factor, points in choice.residuals.items()
        )
        yield f"# {choice.metric}: {', '.join(gains) or 'no level is better than the base'}"
    chosen = {f"greedy-{one.metric}": dict(one.levels) for one in choices if one.levels}
    yield yaml.safe_dump({"configs": chosen}, sort_keys=False).rstrip()
