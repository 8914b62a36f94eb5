"""The verb list: the names that a study may use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
from rich.table import Table

from flipmeter.cli.consoles import say
from flipmeter.cli.options import AsJson, verb
from flipmeter.cli.output import print_json
from flipmeter.data import datasets
from flipmeter.decide import aggregators, debiasers, open_pipeline, pipelines
from flipmeter.measure import ASPECTS, gate_limits
from flipmeter.metrics import metrics
from flipmeter.model import backends
from flipmeter.probe import demo_orders, probes
from flipmeter.prompt import factors
from flipmeter.registry import OURS, Registry, about, suggestion
from flipmeter.report import sections
from flipmeter.study.configs import configs
from flipmeter.types import Problem

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
    as_json: AsJson = False,
) -> None:
    """Print the names that a study may use."""
    kinds = _kinds()
    if kind is not None and kind not in kinds:
        raise Problem(f"no kind named '{kind}'{suggestion(kind, list(kinds))}")
    if as_json:
        print_json({kind: kinds[kind]} if kind else kinds)
        return
    for name in [kind] if kind else [*kinds]:
        table = Table(title=name, title_justify="left", show_header=False, box=None)
        for part, line in kinds[name].items():
            table.add_row(f"  {part}", line)
        say(table)


def _kinds() -> dict[str, dict[str, str]]:
    """Every kind of part with the names in it and a line about each."""
    return {"models": _models(), "factors": _levels()} | {
        kind: {name: _line(registry, name) for name in registry}
        for kind, registry in REGISTRIES.items()
    }


def _line(registry: Registry[Any], name: str) -> str:
    """The description of a part, with the package of a plug-in's."""
    part = open_pipeline(name).traits if registry is pipelines else registry[name]
    package = registry.package(name)
    return about(part) if package == OURS else f"{about(part)} (from {package})"


def _levels() -> dict[str, str]:
    return {factor: ", ".join(_named(registry)) for factor, registry in factors.items()} | {
        "shots": "demonstrations per class: 0, 1, 2, ...",
        "layout": "cued, paper",
        "word_reversal": "header, flipped",
        "cardinality": "2 or 3, or a name under `merge`: neighbouring classes are merged",
    }


def _named(registry: Registry[Any]) -> Iterator[str]:
    """The names of a registry, with the package of those from plug-ins."""
    for name in registry:
        package = registry.package(name)
        yield name if package == OURS else f"{name} (from {package})"


def _models() -> dict[str, str]:
    """The address of every model that has a name, and the pattern of all others."""
    names: dict[str, str] = {}
    for kind, family in sorted(backends.items(), key=lambda pair: not pair[1].is_in_process):
        if family.pattern:
            names[f"{kind}/{family.pattern}"] = _line(backends, kind)
        names |= {f"{kind}/{name}": line for name, line in family.models().items()}
    return names
