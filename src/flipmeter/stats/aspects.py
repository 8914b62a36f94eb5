"""Decisions -> one aspect of them in detail, as a long table like that of `measure`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy.typing as npt
import polars as pl

from flipmeter.errors import Problem
from flipmeter.registry import Registry
from flipmeter.stats.confidence import certainty_rows, confidence_rows
from flipmeter.stats.direction import direction_rows, matrix_rows
from flipmeter.stats.excess import excess_rows
from flipmeter.stats.formulas import adjusted
from flipmeter.stats.frame import Decisions
from flipmeter.stats.groups import Rows, as_frame
from flipmeter.stats.panel import Panel
from flipmeter.stats.preference import pair_rows, slot_rows
from flipmeter.stats.reading import Panels, panels_of
from flipmeter.stats.severity import severity_rows, worst_rows
from flipmeter.stats.systems import system_rows
from flipmeter.types import Contrast, Mode

Measure = Callable[..., Iterator[Rows]]
"""From a panel and contrasts to the numbers of an aspect, for all groups at once."""


@dataclass(frozen=True)
class Aspect:
    """One side of a run in detail (`measure --show NAME`); `about` is the title of its table.

    `needs` says what a run must have for it. One that `needs_order` is refused where no class is
    higher than another. `rows` of one that `takes_costs` has a keyword for a cost matrix.
    """

    about: str
    rows: Measure
    needs_order: bool = False
    takes_costs: bool = False
    needs: str = "another kind of run"


ASPECTS: Registry[Aspect] = Registry("aspect")


def _register_aspect(name: str, about: str, rows: Measure, needs: str, **traits: bool) -> None:
    ASPECTS.add(name, Aspect(about, rows, needs=needs, **traits))


_register_aspect(
    "excess",
    "Do views disagree beyond their own noise?",
    excess_rows,
    "views that were asked twice (repeats: 2)",
)
_register_aspect(
    "direction", "Which way do answers move?", direction_rows, "a contrast of two views"
)
_register_aspect(
    "matrix",
    "Where do the items of each class go? (first view > second view)",
    matrix_rows,
    "a contrast of two views and a scale of classes",
)
_register_aspect(
    "severity",
    "How far apart are the answers?",
    severity_rows,
    "classes in an order, or decimal scores",
    needs_order=True,
)
_register_aspect(
    "slots",
    "Are some slots preferred, whatever their label?",
    slot_rows,
    "a label-order contrast, or options that change places",
)
_register_aspect(
    "pairs",
    "Does the judge prefer a place?",
    pair_rows,
    "two answers that change places (exchange: [a, b])",
)
_register_aspect(
    "systems",
    "Does the ranking of systems change with the order?",
    system_rows,
    "two answers that change places, and the systems that wrote them (columns system_a and "
    "system_b, or systems: [model_a, model_b] in the dataset)",
)
_register_aspect(
    "worst", "What does the worst position cost?", worst_rows, "gold labels", takes_costs=True
)
_register_aspect(
    "confidence",
    "Is agreement over positions reliable?",
    confidence_rows,
    "gold labels and a scale of classes",
)
_register_aspect(
    "certainty",
    "Do the least certain answers flip? (fifths, by probabilities under base)",
    certainty_rows,
    "the probabilities of labels (scores: true)",
)


def measure_aspects(
    decisions: Decisions | Panel | Panels,
    contrasts: Sequence[Contrast],
    names: Sequence[str] | None = None,
    *,
    reproducible: Collection[str] = (),
    costs: npt.ArrayLike | None = None,
    mode: Mode = "recommended",
) -> dict[str, pl.DataFrame]:
    """Measure some of `ASPECTS`, or all, for every rater, dataset, level and seed: a table of each.

    The columns are those of `measure`, with `view` naming the contrast and the p-values of each
    metric adjusted beside the raw ones. `costs` are for `worst`. The mode changes nothing here.
    """
    wanted = {name: ASPECTS[name] for name in (ASPECTS if names is None else names)}
    panels = panels_of(decisions, reproducible)
    needs_order = all(aspect.needs_order for aspect in wanted.values())
    if needs_order and all(panel.nominal.all() for panel in panels):
        raise Problem(
            f"{', '.join(wanted)}: not defined, because the scale is nominal and no class is "
            "farther from another; --show matrix shows which classes are exchanged"
        )
    found: dict[str, list[pl.DataFrame]] = {name: [] for name in wanted}
    for panel in panels:
        for name, aspect in wanted.items():
            more = {"costs": costs} if aspect.takes_costs else {}
            rows = list(aspect.rows(panel, contrasts, **more))
            found[name].append(as_frame(rows, panel.keys, mode, panel.nominal))
    return {name: adjusted(pl.concat(tables)) for name, tables in found.items()}
