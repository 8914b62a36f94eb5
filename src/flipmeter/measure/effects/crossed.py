"""Decisions -> what a rater said of every item in every cell, as yes or no: right, or flipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from flipmeter.design.cells import in_style_order, parse_cell
from flipmeter.design.coding import Codes
from flipmeter.measure.effects.gee import Outcomes
from flipmeter.measure.effects.measured_items import contrasted
from flipmeter.measure.panel.checked import Booleans, Ints
from flipmeter.measure.panel.frame import Decisions, distinct, scanned
from flipmeter.measure.panel.panel import Panel
from flipmeter.measure.panel.reading import read_panel
from flipmeter.measure.panel.units import differ
from flipmeter.types import Contrast, Mode, Problem

BASE = ""
"""The level of a factor that a cell's name does not mention."""


@dataclass(frozen=True)
class Response:
    """One outcome of one rater: its items and the cells in which it can be read.

    `levels` has those of every factor that are left, the base's first; `codes` say which of them
    each cell has.
    """

    rater: str
    metric: str
    factors: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    codes: Codes
    outcomes: Outcomes

    @property
    def sizes(self) -> list[int]:
        return [len(of) for of in self.levels]


def read_responses(
    decisions: Decisions, contrasts: Sequence[Contrast], views: Sequence[str], mode: Mode
) -> Iterator[Response]:
    """Every rater's accuracy under each view and flips in each contrast, rater by rater."""
    rows = scanned(decisions).table.filter(repeat=0)
    plan = _plan([name for (name,) in distinct(rows, "level")])
    for (rater,) in distinct(rows, "rater"):
        panel = read_panel(rows.filter(rater=rater))
        level, dataset = _of_groups(panel, plan)
        unit = _Units(panel.item, level[panel.groups.of], dataset[panel.groups.of])
        for metric, counted, hit in _outcomes(panel, contrasts, views, mode):
            if counted.any():
                yield _response((rater, metric), plan, unit, counted, hit)


@dataclass(frozen=True)
class _Cells:
    """The cells of a study: their names, the factors and levels in them, and which has which."""

    names: list[str]
    factors: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    codes: Codes


@dataclass(frozen=True)
class _Units:
    """For every item of every group: which item it is, of which dataset, in which cell."""

    item: Ints
    cell: Ints
    dataset: Ints


def _plan(names: list[str]) -> _Cells:
    cells = [parse_cell(name) for name in names]
    factors = in_style_order(dict.fromkeys(factor for cell in cells for factor in cell))
    if not factors:
        raise Problem("only one cell: no factor can have an effect; add `vary:` to the study")
    levels = [
        tuple(dict.fromkeys([BASE, *(cell[name] for cell in cells if name in cell)]))
        for name in factors
    ]
    codes = [
        [own.index(cell.get(name, BASE)) for name, own in zip(factors, levels, strict=True)]
        for cell in cells
    ]
    return _Cells(names, tuple(factors), tuple(levels), np.array(codes, dtype=np.int64))


def _of_groups(panel: Panel, plan: _Cells) -> tuple[Ints, Ints]:
    """The cell and the dataset of every group; merged classes do not make another dataset."""
    rows = zip(panel.keys["dataset"], panel.n_classes.tolist(), strict=True)
    is_merged = "cardinality" in plan.factors
    whole = [name.removesuffix(f"/{n}") if is_merged else name for name, n in rows]
    known = list(dict.fromkeys(whole))
    cells = [plan.names.index(name) for name in panel.keys["level"]]
    return np.array(cells), np.array([known.index(name) for name in whole])


def _outcomes(
    panel: Panel, contrasts: Sequence[Contrast], views: Sequence[str], mode: Mode
) -> Iterator[tuple[str, Booleans, Booleans]]:
    """Yield every outcome: its name, where it can be read, and where it is a yes."""
    for view in views:
        classes = panel.classes((view, 0))
        name = "accuracy" if view == "base" else f"accuracy:{view}"
        yield name, (classes > 0) & (panel.gold > 0), panel.is_right(classes)
    for contrast in contrasts:
        (first, second), usable, _ = contrasted(panel, contrast, mode)
        if contrast.reverses_labels:  # a comparison turns its question: that is another effect
            usable = usable & panel.has_list[panel.groups.of]
        flipped = differ(first, second, panel.tolerance)
        yield contrast.name, usable & (np.minimum(first, second) > 0), flipped


def _response(
    names: tuple[str, str], plan: _Cells, unit: _Units, counted: Booleans, hit: Booleans
) -> Response:
    """Lay the counted units out by item and cell; cells and levels without any are left out."""
    cells, cell = np.unique(unit.cell[counted], return_inverse=True)
    which = np.stack([unit.dataset[counted], unit.item[counted]], axis=1)
    items, item = np.unique(which, axis=0, return_inverse=True)
    hits, trials = np.zeros((2, len(items), len(cells)))
    np.add.at(trials, (item.ravel(), cell), 1)
    np.add.at(hits, (item.ravel(), cell), hit[counted])
    _, stratum = np.unique(items[:, 0], return_inverse=True)
    left = [np.unique(column, return_inverse=True) for column in plan.codes[cells].T]
    levels = tuple(
        tuple(own[at] for at in known) for own, (known, _) in zip(plan.levels, left, strict=True)
    )
    codes = np.stack([code for _, code in left], axis=1)
    outcomes = Outcomes(hits, trials, stratum)
    return Response(*names, plan.factors, levels, codes, outcomes)
