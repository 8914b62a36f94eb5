"""The verb residuals: the change from the base that each factor level makes."""

from __future__ import annotations

from typing import Annotated

import typer

from flipmeter.api import Run
from flipmeter.cli.consoles import say
from flipmeter.cli.next_commands import on_run
from flipmeter.cli.options import (
    AsJson,
    RunsOrTable,
    ScaleOption,
    TableOut,
    WithinOption,
    open_run,
    spare,
    verb,
)
from flipmeter.cli.output import AsCsv, Output
from flipmeter.cli.printing import heading, warning_lines
from flipmeter.report import (
    CANNOT_SEE,
    forecast_notes,
    forecast_table,
    residual_notes,
    residual_table,
    write_residuals,
)

app = verb()


@app.command()
def residuals(
    folders: RunsOrTable,
    scale: ScaleOption = None,
    within: WithinOption = None,
    is_forecast: Annotated[
        bool,
        typer.Option(
            "--forecast",
            help="Print the additive forecast of each config from its levels instead, next "
            "to the measured values.",
        ),
    ] = False,
    as_json: AsJson = False,
    csv: AsCsv = False,
    out: TableOut = None,
) -> None:
    """Print what each factor level changes from the base: accuracy, flips and other metrics."""
    spare(out, *folders)
    done = open_run(folders, scale, within)
    (_show_forecasts if is_forecast else _show_residuals)(
        done, Output(out, as_json=as_json, as_csv=csv)
    )


def _show_residuals(done: Run, output: Output) -> None:
    table, study = done.residuals(), done.study

    def people() -> None:
        blind = [CANNOT_SEE] if study.design == "one-at-a-time" and len(study.vary) > 1 else []
        say("", residual_table(table), *residual_notes(table), *blind, *warning_lines(done))

    steps = on_run(done)
    output.show(heading(done), {"residuals": table}, people, write=write_residuals, steps=steps)


def _show_forecasts(done: Run, output: Output) -> None:
    table = done.forecasts()
    output.show(
        heading(done),
        {"forecasts": table},
        lambda: say("", forecast_table(table), *forecast_notes(table), *warning_lines(done)),
    )
