"""Yes or no, item by item in every cell -> coefficients that allow for an item answering alike.

Generalised estimating equations with independent working correlation. Every item is asked in
(nearly) every cell, so that no other working correlation would know more; the sandwich covariance
over items holds whatever the correlation is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from scipy import special

from flipmeter.measure.panel.checked import Floats, Ints, ratio

Link = Literal["logit", "identity"]

ROUNDS = 40
CLOSE = 1e-10
EXTREME = 14.0
"""Log-odds that no finite fit of a countable number of decisions reaches: a cell without a no."""


@dataclass(frozen=True)
class Outcomes:
    """Counts of yes of each item (row) in each cell (column), and numbers of trials.

    `stratum` is the dataset of each item, 0 to D - 1. Repeated seeds are several trials.
    """

    hits: Floats
    trials: Floats
    stratum: Ints

    @property
    def n_items(self) -> int:
        return len(self.stratum)

    @property
    def n_strata(self) -> int:
        return int(self.stratum.max()) + 1

    @property
    def freedom(self) -> int:
        """The degrees of freedom of a covariance between items within datasets."""
        return self.n_items - self.n_strata

    @cached_property
    def dummies(self) -> Floats:
        """A column for each dataset (items x datasets)."""
        return np.eye(self.n_strata)[self.stratum]

    @cached_property
    def totals(self) -> tuple[Floats, Floats]:
        """Hits and trials of every dataset and cell, one dataset after the other."""
        hits, trials = (self.dummies.T @ of for of in (self.hits, self.trials))
        return hits.ravel(), trials.ravel()

    @cached_property
    def means(self) -> Floats:
        """The share of yes in every dataset and cell; 0 where nothing was asked."""
        return np.nan_to_num(ratio(*self.totals))

    def rows(self, columns: Floats) -> Floats:
        """The design of all datasets and cells: datasets, then the columns of the cells."""
        n_cells = self.hits.shape[1]
        datasets = np.repeat(np.eye(self.n_strata), n_cells, axis=0)
        return np.hstack([datasets, np.tile(columns, (self.n_strata, 1))])

    def within(self, scores: Floats) -> Floats:
        """Centre scores within datasets, scaled so that their squares sum to a covariance."""
        sizes = self.dummies.sum(axis=0)
        centred = scores - (self.dummies @ ((self.dummies.T @ scores) / sizes[:, None]))
        scale = np.sqrt(sizes / np.maximum(sizes - 1, 1))[self.stratum]
        scaled: Floats = centred * scale[:, None]
        return scaled


@dataclass(frozen=True)
class Fit:
    """Coefficients with their covariance over items, given the datasets, seeds and cells."""

    coefficients: Floats
    covariance: Floats
    link: Link
    freedom: int

    def mean(self, rows: Floats) -> Floats:
        """The expected share of yes in some rows of the design."""
        eta = rows @ self.coefficients
        return special.expit(eta) if self.link == "logit" else eta

    def slope(self, rows: Floats) -> Floats:
        """The derivative of the expected share with respect to each coefficient."""
        mean = self.mean(rows)
        rate = mean * (1 - mean) if self.link == "logit" else np.ones_like(mean)
        return rate[:, None] * rows


@dataclass(frozen=True)
class Tested:
    """A test that some columns do nothing; NaN where there is no test, `note` says why."""

    df: int
    statistic: float = np.nan
    p: float = np.nan
    link: Link | None = None
    note: str = ""


def fit(outcomes: Outcomes, columns: Floats, link: Link = "logit") -> Fit | None:
    """Fit dataset intercepts and columns of the cells; None where the fit has no end.

    That is so if a combination of columns tells yes from no without an exception (separation).
    """
    rows = outcomes.rows(columns)
    hits, trials = outcomes.totals
    if link == "identity":
        coefficients, information = _least_squares(rows, hits, trials)
    else:
        found = _newton(rows, hits, trials)
        if found is None:
            return None
        coefficients, information = found
    plain = Fit(coefficients, np.zeros_like(information), link, outcomes.freedom)
    covariance = _sandwich(outcomes, columns, plain.mean(rows), information)
    return Fit(coefficients, covariance, link, outcomes.freedom)


def _least_squares(rows: Floats, hits: Floats, trials: Floats) -> tuple[Floats, Floats]:
    information = rows.T @ (trials[:, None] * rows)
    coefficients = np.linalg.solve(information, rows.T @ hits)
    return np.asarray(coefficients, dtype=np.float64), information


def _newton(rows: Floats, hits: Floats, trials: Floats) -> tuple[Floats, Floats] | None:
    coefficients = np.zeros(rows.shape[1])
    asked = trials > 0
    for _ in range(ROUNDS):
        mean = special.expit(rows @ coefficients)
        information = rows.T @ ((trials * mean * (1 - mean))[:, None] * rows)
        try:
            step = np.linalg.solve(information, rows.T @ (hits - trials * mean))
        except np.linalg.LinAlgError:
            return None
        coefficients = coefficients + step
        if not np.abs(rows[asked] @ coefficients).max() < EXTREME:
            return None
        if np.abs(step).max() < CLOSE:
            return coefficients, information
    return None


def _sandwich(outcomes: Outcomes, columns: Floats, mean: Floats, information: Floats) -> Floats:
    expected = mean.reshape(outcomes.n_strata, -1)[outcomes.stratum]
    left = outcomes.hits - outcomes.trials * expected
    scores = np.hstack([outcomes.dummies * left.sum(axis=1, keepdims=True), left @ columns])
    half = np.linalg.solve(information, outcomes.within(scores).T)
    covariance: Floats = half @ half.T
    return covariance


def score_test(outcomes: Outcomes, known: Floats, added: Floats, link: Link = "logit") -> Tested:
    """Test added columns beside known ones: the generalised score test (Boos 1992).

    It looks at the fit without them, so that it needs no end where a level has no exception, and
    holds its level with rare flips, where a Wald test of log-odds does not. The covariance is that
    of as many items, so it is compared with Hotelling's T-squared: exact for a linear fit of
    complete normal data, where it is the Wald test too.
    """
    df = added.shape[1]
    if not df:
        return Tested(0, note="not estimable from these cells")
    below = outcomes.freedom - df + 1
    if below < 1:
        return Tested(df, note=f"no test: {df} df from too few items")
    without = fit(outcomes, known, link) or fit(outcomes, known, "identity")
    assert without is not None, "a linear fit of independent columns always ends"
    scores = _scores(outcomes, known, added, without)
    total, spread = scores.sum(axis=0), outcomes.within(scores)
    v = spread.T @ spread
    size = np.sqrt(np.diag(v))
    if not (size > CLOSE).all() or np.linalg.cond(v / np.outer(size, size)) > 1 / np.sqrt(CLOSE):
        return Tested(df, link=without.link, note="no test: too few items differ between cells")
    statistic = float(total @ np.linalg.solve(v, total)) * below / (outcomes.freedom * df)
    return Tested(df, statistic, float(special.fdtrc(df, below, statistic)), without.link)


def _scores(outcomes: Outcomes, known: Floats, added: Floats, without: Fit) -> Floats:
    """The score of each item for the added columns, beyond its score for the known ones."""
    rows, n_datasets = outcomes.rows(known), outcomes.n_strata
    mean = without.mean(rows)
    rate = mean * (1 - mean) if without.link == "logit" else np.ones_like(mean)
    weights = (outcomes.totals[1] * rate)[:, None]
    wanted = np.tile(added, (n_datasets, 1))
    beyond = wanted - rows @ np.linalg.solve(rows.T @ (weights * rows), rows.T @ (weights * wanted))
    left = outcomes.hits - outcomes.trials * mean.reshape(n_datasets, -1)[outcomes.stratum]
    scores = np.zeros((outcomes.n_items, added.shape[1]))
    for place, own in enumerate(beyond.reshape(n_datasets, -1, added.shape[1])):
        scores[outcomes.stratum == place] = left[outcomes.stratum == place] @ own
    return scores
