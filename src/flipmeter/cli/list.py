"""The verb list: the names that a study may use, and a dataset as a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from flipmeter.ask.family import backends
from flipmeter.cli.consoles import say
from flipmeter.cli.options import AsJson, DataDir, out_option, verb
from flipmeter.cli.output import finish, on_file, print_json, write_rows
from flipmeter.data.catalog import datasets
from flipmeter.data.load import load
from flipmeter.errors import Problem
from flipmeter.pipelines.aggregate import aggregators
from flipmeter.pipelines.corrections import debiasers
from flipmeter.pipelines.pipeline import open_pipeline, pipelines
from flipmeter.prompt.levels import factors
from flipmeter.prompt.probes import demo_orders, probes
from flipmeter.registry import OURS, Registry, about, suggestion
from flipmeter.show.section import sections
from flipmeter.show.table import Table, groups_of
from flipmeter.stats.aspects import ASPECTS
from flipmeter.stats.limits import gate_limits
from flipmeter.stats.metrics import metrics
from flipmeter.study.entries import configs

app = verb()

REGISTRIES: Mapping[str, Registry[Any]] = {
    "datasets": datasets,
    "backends": backends,
    "probes": probes,
    "demo-orders": demo_orders,
    "configs": configs,
    "pipelines": pipelines,
    "aggregators": aggregators,
    "debiasers": debiasers,
    "metrics": metrics,
    "aspects": ASPECTS,
    "limits": gate_limits,
    "sections": sections,
}
"""The kinds of parts that are one registry each; models and factors are made of several."""


@app.command("list")
def list_(
    kind: Annotated[str | None, typer.Argument(help="datasets, models, probes, ...")] = None,
    name: Annotated[
        str | None, typer.Argument(help="With `datasets` and --out: the one to write.")
    ] = None,
    out: Annotated[
        Path | None,
        out_option("Write its test items: .csv, .jsonl or .parquet."),
    ] = None,
    text: Annotated[
        str, typer.Option(metavar="COLUMN", help="With --out: the column with the texts.")
    ] = "text",
    label: Annotated[
        str, typer.Option(metavar="COLUMN", help="With --out: the column with the labels.")
    ] = "label",
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Print the names that a study may use; write a dataset of the catalog to a file."""
    kinds = _parts_by_kind()
    if kind is not None and kind not in kinds:
        raise Problem(f"no kind named '{kind}'{suggestion(kind, list(kinds))}")
    if name is not None or out is not None:
        if kind != "datasets" or name is None or out is None:
            raise Problem("to write a dataset: flipmeter list datasets NAME --out FILE")
        _write_dataset(name, out, (text, label), data_dir, as_json=as_json)
        return
    if as_json:
        print_json({kind: kinds[kind]} if kind else kinds)
        return
    for name in [kind] if kind else [*kinds]:
        rows = ((f"  {part}", line) for part, line in kinds[name].items())
        say(Table(name, ["", ""], groups_of(rows), lines="no"))


def _write_dataset(
    name: str, out: Path, columns: tuple[str, str], data_dir: Path | None, *, as_json: bool
) -> None:
    """Write the test items of a dataset as if they were a file of one's own."""
    text, label = columns
    if len({"id", text, label}) < 3:
        raise Problem(f"the columns 'id', '{text}' and '{label}' need three different names")
    dataset = load(name, data_dir=data_dir)
    rows = [
        {"id": item.id, text: item.text, label: dataset.task.scale.name(item.gold)}
        for item in dataset.test
        if item.gold
    ]
    write_rows(pl.DataFrame(rows), out)
    finish(
        {"dataset": name, "items": len(rows), "out": str(out)},
        f"{len(rows):,} items of {name}: {out}",
        as_json=as_json,
        steps=[on_file("init", out)],
    )


def _parts_by_kind() -> dict[str, dict[str, str]]:
    """Every kind of part with the names in it and a line about each."""
    levels = {
        factor: ", ".join(_iter_part_names(registry)) for factor, registry in factors.items()
    } | {
        "shots": "demonstrations per class: 0, 1, 2, ...",
        "layout": "cued, paper",
        "word_reversal": "header, flipped",
        "cardinality": "2 or 3, or a name under `merge`: neighbouring classes are merged",
    }
    return {"models": _model_addresses(), "factors": levels} | {
        kind: {name: _describe_part(registry, name) for name in registry}
        for kind, registry in REGISTRIES.items()
    }


def _describe_part(registry: Registry[Any], name: str) -> str:
    """The description of a part, with the package of a plug-in's."""
    part = open_pipeline(name).traits if registry is pipelines else registry[name]
    package = registry.package(name)
    return about(part) if package == OURS else f"{about(part)} (from {package})"


def _iter_part_names(registry: Registry[Any]) -> Iterator[str]:
    """The names of a registry, with the package of those from plug-ins."""
    for name in registry:
        package = registry.package(name)
        yield name if package == OURS else f"{name} (from {package})"


def _model_addresses() -> dict[str, str]:
    """The address of every model that has a name, and the pattern of all others."""
    names: dict[str, str] = {}
    for kind, family in sorted(backends.items(), key=lambda pair: not pair[1].is_in_process):
        if family.pattern:
            names[f"{kind}/{family.pattern}"] = _describe_part(backends, kind)
        names |= {f"{kind}/{name}": line for name, line in family.models().items()}
    return names
