"""The verb oracle: the aggregators under a perfect comparator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, get_args

import typer
from rich.table import Table

from flipmeter.cli.consoles import say
from flipmeter.cli.options import AsJson, verb
from flipmeter.cli.output import print_json
from flipmeter.decide import aggregators, oracle_check
from flipmeter.types import Mode

app = verb()


@app.command()
def oracle(
    classes: Annotated[int, typer.Option(metavar="N", help="The number of classes.", min=2)] = 5,
    shots: Annotated[int, typer.Option(metavar="N", help="Demonstrations per class.", min=1)] = 5,
    as_json: AsJson = False,
) -> None:
    """Print the class each aggregator gives to each true class under a perfect comparator."""
    found = {
        (name, mode): oracle_check(name, classes, shots, mode=mode)
        for name in aggregators
        for mode in get_args(Mode)
    }
    if as_json:
        rows = [{"aggregator": n, "mode": m, "classes": given} for (n, m), given in found.items()]
        print_json({"classes": classes, "shots": shots, "aggregators": rows})
        return
    title = f"True class under a perfect comparator, {shots} demonstrations each"
    table = Table("aggregator", "mode", title=title, title_justify="left")
    for rank in range(1, classes + 1):
        table.add_column(str(rank), justify="right")
    table.add_column("correct", justify="right")
    table.add_column("broken laws")
    for (name, mode), given in found.items():
        right = sum(rank == true for true, rank in enumerate(given, 1))
        declared = ", ".join(_broken_laws(name, mode))
        table.add_row(name, mode, *map(str, given), f"{right} of {classes}", declared)
    say(table, "a perfect comparator prefers the higher class and ties within a class")


def _broken_laws(name: str, mode: Mode) -> Iterator[str]:
    """The laws that an aggregator declares not to keep."""
    if mode in aggregators[name].order_dependent:
        yield "order of demonstrations"
    if mode in aggregators[name].lopsided:
        yield "mirror"
