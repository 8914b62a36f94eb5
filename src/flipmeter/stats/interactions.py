"""Decisions -> interactions: what the levels of two factors do together, beyond each alone.

A linear model of right or wrong, and of flipped or not, on dummies of every dataset, level and pair
of levels, with standard errors by item. A row with an empty `level` is the test of a pair of
factors; the others are the change that two of their levels make together, in points.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
import polars as pl
from scipy import special

from flipmeter.design import in_style_order, parse_cell
from flipmeter.errors import Problem
from flipmeter.stats.bounds import found_by
from flipmeter.stats.formulas import adjusted
from flipmeter.stats.frame import Decisions, differ, distinct, scanned
from flipmeter.stats.groups import Booleans, Floats, Ints
from flipmeter.stats.measured_items import contrasted
from flipmeter.stats.panel import Panel
from flipmeter.stats.reading import read_panel
from flipmeter.stats.residuals import paper_contrasts
from flipmeter.types import ALPHA, Contrast, Mode

SCHEMA = {
    "rater": pl.String,
    "metric": pl.String,
    "term": pl.String,
    "level": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "df": pl.Int64,
    "p": pl.Float64,
    "n_cells": pl.Int64,
    "n_items": pl.Int64,
    "n": pl.Int64,
    "note": pl.String,
    "mode": pl.String,
}
NOT_CROSSED = "not estimable: these levels were not asked together"
TOLERANCE = 1e-8


@dataclass(frozen=True)
class Cells:
    """The cells of a study: their names, the factors and levels in them, and which has which."""

    names: list[str]
    factors: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    codes: Ints

    @property
    def is_crossed(self) -> bool:
        """Whether a cell changes two factors; without one no interaction can be seen."""
        return bool(((self.codes > 0).sum(axis=1) > 1).any())


@dataclass(frozen=True)
class Outcome:
    """Yes or no of one rater: the answers, and the item, dataset and cell of each."""

    rater: str
    metric: str
    yes: Booleans
    item: Ints
    dataset: Ints
    cell: Ints


def interactions(
    decisions: Decisions, contrasts: Sequence[Contrast], *, mode: Mode = "recommended"
) -> pl.DataFrame:
    """Test every two factors on accuracy and on flips; no rows where no cell changes two.

    Intervals and tests are over items, given these cells, datasets and seeds; `p_holm` and `p_bh`
    are adjusted over all tests of a rater, and `found_by` says which of them shows an interaction.
    Needs statsmodels.
    """
    rows = scanned(decisions).table.filter(repeat=0)
    cells = read_cells([name for (name,) in distinct(rows, "level")])
    found: list[tuple[Any, ...]] = []
    for (rater,) in distinct(rows, "rater") if cells.is_crossed else ():
        panel = read_panel(rows.filter(rater=rater))
        for one in read_outcomes(str(rater), panel, cells, paper_contrasts(contrasts), mode):
            found += [(*row, mode) for row in interaction_rows(one, cells)]
    table = adjusted(pl.DataFrame(found, schema=SCHEMA, orient="row"), ["rater"])
    shown = [found_by(*pair) for pair in table.select("p_holm", "p_bh").iter_rows()]
    table = table.with_columns(pl.Series("found_by", shown, dtype=pl.String))
    return table.with_columns(pl.col(pl.Float64).fill_nan(None))


def read_cells(names: list[str]) -> Cells:
    """The factors and levels in the names of cells; the base has an empty level of each."""
    cells = [parse_cell(name) for name in names if not name.startswith("config=")]
    names = [name for name in names if not name.startswith("config=")]
    factors = in_style_order(dict.fromkeys(factor for cell in cells for factor in cell))
    levels = [
        tuple(dict.fromkeys(["", *(cell[name] for cell in cells if name in cell)]))
        for name in factors
    ]
    codes = [
        [own.index(cell.get(name, "")) for name, own in zip(factors, levels, strict=True)]
        for cell in cells
    ]
    shape = len(cells), len(factors)
    return Cells(
        names, tuple(factors), tuple(levels), np.array(codes, dtype=np.int64).reshape(shape)
    )


def read_outcomes(
    rater: str, panel: Panel, cells: Cells, contrasts: Sequence[Contrast], mode: Mode
) -> Iterator[Outcome]:
    """A rater's accuracy at the base view and its flips in each contrast."""
    known = {name: place for place, name in enumerate(cells.names)}
    cell = np.array([known.get(name, -1) for name in panel.keys["level"]])[panel.groups.of]
    # Merged classes do not make another dataset.
    rows = zip(panel.keys["dataset"], panel.n_classes.tolist(), strict=True)
    is_merged = "cardinality" in cells.factors
    whole = [name.removesuffix(f"/{n}") if is_merged else name for name, n in rows]
    dataset = np.array([whole.index(name) for name in whole])[panel.groups.of]
    for metric, counted, yes in _outcomes(panel, contrasts, mode):
        chosen = counted & (cell >= 0)
        if chosen.any():
            which = np.stack([dataset[chosen], panel.item[chosen]], axis=1)
            item = np.unique(which, axis=0, return_inverse=True)[1].ravel()
            yield Outcome(rater, metric, yes[chosen], item, dataset[chosen], cell[chosen])


def _outcomes(
    panel: Panel, contrasts: Sequence[Contrast], mode: Mode
) -> Iterator[tuple[str, Booleans, Booleans]]:
    """Yield every outcome: its name, where it can be read, and where it is a yes."""
    classes = panel.classes(("base", 0))
    yield "accuracy", (classes > 0) & (panel.gold > 0), panel.is_right(classes)
    for contrast in contrasts:
        (first, second), usable, _ = contrasted(panel, contrast, mode)
        if contrast.reverses_labels:  # a comparison turns its question: that is another effect
            usable = usable & panel.has_list[panel.groups.of]
        yield (
            contrast.name,
            usable & (np.minimum(first, second) > 0),
            differ(first, second, panel.tolerance),
        )


def interaction_rows(outcome: Outcome, cells: Cells) -> Iterator[tuple[Any, ...]]:
    """The test of every pair of factors, followed by the changes of its levels."""
    codes, n_items = cells.codes[outcome.cell], len(np.unique(outcome.item))
    counts = len(np.unique(outcome.cell)), n_items, len(outcome.yes)
    columns: list[Floats] = [outcome.dataset == one for one in np.unique(outcome.dataset)]
    columns += [
        codes[:, factor] == at
        for factor, levels in enumerate(cells.levels)
        for at in range(1, len(levels))
    ]
    first = len(columns)
    pairs = [
        (one, other, *at)
        for one, other in combinations(range(len(cells.factors)), 2)
        for at in product(range(1, len(cells.levels[one])), range(1, len(cells.levels[other])))
    ]
    columns += [(codes[:, a] == at) & (codes[:, b] == bt) for a, b, at, bt in pairs]
    design = np.stack(columns, axis=1).astype(np.float64)
    kept = independent(design)
    fitted = _fit_least_squares(outcome, design[:, kept]) if n_items > kept.sum() else None
    place = np.cumsum(kept) - 1
    for one, other in combinations(range(len(cells.factors)), 2):
        own = [first + k for k, pair in enumerate(pairs) if pair[:2] == (one, other)]
        tested = [place[column] for column in own if kept[column]] if fitted is not None else []
        term = f"{cells.factors[one]}:{cells.factors[other]}"
        p = _joint_p(fitted, tested) if tested else None
        named = outcome.rater, outcome.metric, term
        note = "" if tested else NOT_CROSSED if fitted is not None else "too few items"
        yield (*named, "", None, None, None, len(tested), p, *counts, note)
        for column in own if tested else ():
            _, _, at, bt = pairs[column - first]
            level = f"{cells.levels[one][at]},{cells.levels[other][bt]}"
            ends = (
                _coefficient_change(fitted, place[column]) if kept[column] else (None, None, None)
            )
            note = "" if kept[column] else NOT_CROSSED
            yield (*named, level, *ends, None, None, *counts, note)


def independent(design: Floats) -> Booleans:
    """The columns that those before them do not explain."""
    basis, kept = np.zeros((len(design), 0)), np.zeros(design.shape[1], dtype=np.bool_)
    for place, column in enumerate(design.T):
        rest = column - basis @ (basis.T @ column)
        rest -= basis @ (basis.T @ rest)  # once more: the first pass leaves rounding behind
        length = float(np.linalg.norm(rest))
        if length > TOLERANCE * max(float(np.linalg.norm(column)), TOLERANCE):
            basis, kept[place] = np.column_stack([basis, rest / length]), True
    return kept


def _fit_least_squares(outcome: Outcome, design: Floats) -> Any:
    try:
        from statsmodels.regression.linear_model import OLS
    except ImportError as error:
        raise Problem("interactions need statsmodels: pip install 'flipmeter[effects]'") from error
    model = OLS(outcome.yes.astype(np.float64), design)
    return model.fit(cov_type="cluster", cov_kwds={"groups": outcome.item}, use_t=True)


def _joint_p(fitted: Any, places: Sequence[int]) -> float:
    """The p-value of Wald's F test that all these coefficients are zero."""
    covariance = fitted.cov_params()[np.ix_(places, places)]
    own, df = fitted.params[places], int(np.linalg.matrix_rank(covariance, hermitian=True))
    if not df:  # no item differs from another: nothing is left to chance
        return 1.0 if np.allclose(own, 0) else 0.0
    statistic = float(own @ np.linalg.pinv(covariance, hermitian=True) @ own) / df
    return float(special.fdtrc(df, fitted.df_resid_inference, statistic))


def _coefficient_change(fitted: Any, place: int) -> tuple[float, float, float]:
    value = float(fitted.params[place])
    error = np.sqrt(max(float(fitted.cov_params()[place, place]), 0.0))
    half = float(special.stdtrit(fitted.df_resid_inference, 1 - ALPHA / 2) * error)
    return 100 * value, 100 * (value - half), 100 * (value + half)
