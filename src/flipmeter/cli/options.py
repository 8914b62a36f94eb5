"""Arguments and options that verbs share: one name, one meaning."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from flipmeter.api import RUNS, Run, Study, read_study
from flipmeter.consent import trusting
from flipmeter.data.labels import WITHIN, parse_span
from flipmeter.documents import read_yaml
from flipmeter.errors import Problem
from flipmeter.files import inside, is_same_file, named
from flipmeter.run.generation import MANIFEST


def written(ctx: typer.Context, param: typer.CallbackParam, path: Path | None) -> Path | None:
    """A path to write; in one that the user gives, and no default, links are the user's choice."""
    source = ctx.get_parameter_source(param.name)
    is_given = source is not None and source.name != "DEFAULT"
    return named(path) if path is not None and is_given else path


def out_option(help: str) -> Any:
    """The option `--out` of a verb."""
    return typer.Option("--out", "-o", metavar="PATH", callback=written, help=help)


StudyName = Annotated[
    str,
    typer.Argument(help="A study file, a run folder (its study), or the name of a bundled study."),
]
RunOrTable = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", help="A run folder, or a table of predictions (CSV, JSONL, Parquet)."
    ),
]
RunsOrTable = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...",
        help="A run folder, several to join into one run, or a table of predictions (CSV, JSONL, "
        "Parquet).",
    ),
]
ScaleOption = Annotated[
    str | None,
    typer.Option(
        "--scale",
        metavar="SCALE",
        help="Classes of a table, lowest first: low,medium,high; nominal; or a range: 0..10.",
    ),
]
WithinOption = Annotated[
    float | None,
    typer.Option(
        "--within",
        metavar="UNITS",
        help="Scores of a range that lie at most this far apart are the same.",
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key of the study: test_size=40, base.shots=1 (repeatable).",
    ),
]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", "-m", metavar="MODEL", help="Use this model instead (repeatable)."),
]
Data = Annotated[
    list[str] | None,
    typer.Option(
        "--dataset", "-d", metavar="DATASET", help="Use this dataset instead (repeatable)."
    ),
]
Limit = Annotated[
    int | None, typer.Option("--limit", metavar="N", help="Rate at most this many items.", min=1)
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="FOLDER",
        envvar="FLIPMETER_DATA",
        help="The folder with the catalog's datasets.",
    ),
]
StorePath = Annotated[
    Path,
    typer.Option("--store", metavar="FILE", callback=written, help="The reply store."),
]
Out = Annotated[
    Path | None,
    out_option("The run folder; default: runs/NAME."),
]

TableOut = Annotated[
    Path | None,
    out_option("Write the table: .csv, .parquet; most as .md, .tex."),
]


def _trust_code(ctx: typer.Context, code: bool) -> bool:
    ctx.with_resource(trusting(code=code))
    return code


def _trusting_hosts(ctx: typer.Context, hosts: list[str] | None) -> list[str] | None:
    ctx.with_resource(trusting(hosts=hosts or ()))
    return hosts


TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust",
        callback=_trust_code,
        help="Run the Python code that the study or card names, with your permissions.",
    ),
]
TrustHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--trust-host",
        callback=_trusting_hosts,
        metavar="HOST",
        help="Send the API key that a model names (`key:`) to this HOST or HOST:PORT (repeatable).",
    ),
]
"""Consent for this command alone."""
Prices = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Prices by model address (YAML, JSON), or a saved model list of a provider.",
    ),
]
Offline = Annotated[bool, typer.Option("--offline", help="Do not fetch prices from providers.")]
Rate = Annotated[float | None, typer.Option(metavar="N", help="Requests per second of each model.")]
TokensPerSecond = Annotated[
    float | None, typer.Option(metavar="N", help="New prompt tokens per second of each model.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]


def verb() -> typer.Typer:
    """The application of one verb."""
    return typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def study_of(
    name: str,
    changes: list[str] | None,
    models: list[str] | None,
    data: list[str] | None,
    limit: int | None,
    data_dir: Path | None,
) -> Study:
    set_keys = {}
    for text in changes or []:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise Problem(f"--set {text!r} has no value; write KEY=VALUE")
        set_keys[key] = read_yaml(value, f"--set {key}: {value[:80]!r}")
    if models:
        set_keys["models"] = models
    if data:
        set_keys["datasets"] = data
    study = read_study(name, set_keys, data_dir=data_dir)
    return study if limit is None else study.limited(limit)


def run_folder(out: Path | None, name: str) -> Path:
    """The folder for a run: what the user named, or runs/NAME, not through a link."""
    return out or inside(RUNS / name)


def spare(out: Path | None, *sources: Path | None) -> None:
    """Refuse to overwrite an input, or a file of a run folder."""
    if out is None:
        return
    for source in filter(None, sources):
        is_inside = source.is_dir() and Path(os.path.realpath(out)).parent.name.startswith("g-")
        if is_inside or is_same_file(out, source / MANIFEST if source.is_dir() else source):
            raise Problem(f"{out} is an input of this command; use another --out")


def open_run(paths: Sequence[Path], scale: str | None = None, within: float | None = None) -> Run:
    """Open a run; `scale` is a comma-separated list of classes.

    `nominal` means classes without an order, `nominal:red,green` also names them; `0..10` is a
    range of scores.
    """
    span = parse_span(scale) if scale else None
    if span is not None:
        return Run(*paths, scale={**span, WITHIN: within or 0.0})
    if within is not None:
        raise Problem("--within is for a range of scores; pass the range: --scale 0..10")
    return Run(*paths, scale=classes_of(scale))


def classes_of(scale: str | None) -> list[str]:
    """The classes that `--scale` names, `nominal` the first of them if they have no order."""
    if not scale:
        return []
    if scale.startswith("nominal:"):
        scale = f"nominal,{scale.removeprefix('nominal:')}"
    return [name.strip() for name in scale.split(",")]
