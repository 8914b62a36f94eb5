"""Decisions -> one aspect of them in detail, as a long table like that of `measure`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

import numpy.typing as npt
import polars as pl

from flipmeter.measure.aspects.certainty import certainty_rows
from flipmeter.measure.aspects.confidence import confidence_rows
from flipmeter.measure.aspects.direction import direction_rows, matrix_rows
from flipmeter.measure.aspects.excess import excess_rows
from flipmeter.measure.aspects.pair_order import pair_rows
from flipmeter.measure.aspects.severity import severity_rows
from flipmeter.measure.aspects.slots import slot_rows
from flipmeter.measure.aspects.systems import system_rows
from flipmeter.measure.aspects.worst import worst_rows
from flipmeter.measure.estimates.long_table import Rows, as_frame
from flipmeter.measure.panel.panel import Panel, read_panel
from flipmeter.measure.statistics.multiplicity import adjusted
from flipmeter.registry import suggestion
from flipmeter.types import Contrast, Mode, Problem

Aspect = Callable[[Panel, Sequence[Contrast]], Iterator[Rows]]

ASPECTS: Mapping[str, Aspect] = {
    "excess": excess_rows,
    "direction": direction_rows,
    "matrix": matrix_rows,
    "severity": severity_rows,
    "slots": slot_rows,
    "pairs": pair_rows,
    "systems": system_rows,
    "worst": worst_rows,
    "confidence": confidence_rows,
    "certainty": certainty_rows,
}


def measure_aspects(
    decisions: pl.DataFrame | Panel,
    contrasts: Sequence[Contrast],
    names: Sequence[str] = tuple(ASPECTS),
    *,
    reproducible: Collection[str] = (),
    costs: npt.ArrayLike | None = None,
    mode: Mode = "recommended",
) -> dict[str, pl.DataFrame]:
    """Measure some of `ASPECTS` for every rater, dataset, level and seed: a table of each.

    The columns are those of `measure`, with `view` naming the contrast and the p-values of each
    metric adjusted beside the raw ones. `costs` are for `worst`. The mode changes nothing here.
    """
    for name in names:
        if name not in ASPECTS:
            raise Problem(f"no aspect named '{name}'{suggestion(name, list(ASPECTS))}")
    panel = read_panel(decisions, reproducible)
    if tuple(names) == ("severity",) and panel.nominal.all():
        raise Problem(
            "there is no severity: the scale is nominal, so that no class is farther from another; "
            "see --show matrix for which classes are exchanged"
        )
    makers: dict[str, Aspect] = {**ASPECTS, "worst": partial(worst_rows, costs=costs)}
    return {
        name: adjusted(
            as_frame(list(makers[name](panel, contrasts)), panel.keys, mode, panel.nominal)
        )
        for name in names
    }
