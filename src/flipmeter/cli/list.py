"""The verb list: the names that a study may use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.table import Table

from flipmeter.cli.consoles import say
from flipmeter.cli.options import verb
from flipmeter.data import datasets
from flipmeter.decide import open_pipeline
from flipmeter.decide.pipelines.pipeline import pipelines
from flipmeter.model import backends
from flipmeter.probe import demo_orders, probes
from flipmeter.prompt import factors
from flipmeter.registry import OURS, Registry, suggestion
from flipmeter.study.configs import configs
from flipmeter.types import Problem

app = verb()


@app.command("list")
def list_(
    kind: Annotated[str | None, typer.Argument(help="datasets, models, probes, ...")] = None,
) -> None:
    """Print the names that a study may use."""
    kinds = _kinds()
    if kind is not None and kind not in kinds:
        raise Problem(f"no kind named '{kind}'{suggestion(kind, list(kinds))}")
    for name in [kind] if kind else list(kinds):
        table = Table(title=name, title_justify="left", show_header=False, box=None)
        for part, about in kinds[name].items():
            table.add_row(f"  {part}", about)
        say(table)


def _kinds() -> dict[str, dict[str, str]]:
    levels = {factor: ", ".join(_named(registry)) for factor, registry in factors.items()} | {
        "shots": "demonstrations per class: 0, 1, 2, ...",
        "layout": "cued, paper",
        "word_reversal": "header, flipped",
        "cardinality": "2 or 3, or what `merge` names: neighbouring classes are merged",
    }
    return {
        "datasets": {name: entry.title for name, entry in datasets.items()},
        "models": _model_names(),
        "factors": levels,
        "probes": {name: probe.about for name, probe in probes.items()},
        "demo orders": {name: _first_line(order) for name, order in demo_orders.items()},
        "configs": {name: config.about for name, config in configs.items()},
        "pipelines": {name: open_pipeline(name).traits.about for name in pipelines},
    }


def _named(registry: Registry[Any]) -> Iterator[str]:
    """Yield the names of a registry, with the package of those that are not our own."""
    for name in registry:
        package = registry.package(name)
        yield name if package == OURS else f"{name} (from {package})"


def _model_names() -> dict[str, str]:
    """The address of every model that has a name, and the pattern of all others."""
    names: dict[str, str] = {}
    for kind, family in sorted(backends.items(), key=lambda pair: not pair[1].is_in_process):
        if family.pattern:
            names[f"{kind}/{family.pattern}"] = family.about
        names |= {f"{kind}/{name}": about for name, about in family.models().items()}
    return names


def _first_line(part: object) -> str:
    return (part.__doc__ or "").strip().partition("\n")[0]
