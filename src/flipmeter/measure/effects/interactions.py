"""Decisions -> effects: what every factor does, alone and together with another.

A row with an empty `level` is the test of a term; the others are what its levels change, in points.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product

import numpy as np
import polars as pl
from scipy import special

from flipmeter.design.coding import (
    Codes,
    Floats,
    Term,
    beyond,
    columns,
    main_terms,
    n_columns,
    pair_terms,
)
from flipmeter.design.quality import Standing, standings, term_name
from flipmeter.measure.effects.baselines import paper_contrasts
from flipmeter.measure.effects.crossed import BASE, Response, read_responses
from flipmeter.measure.effects.gee import Fit, Link, Outcomes, Tested, fit, score_test
from flipmeter.measure.effects.variance_shares import Share, Variance
from flipmeter.measure.inference.significance import found_by, is_shown
from flipmeter.measure.panel.checked import Booleans
from flipmeter.measure.panel.frame import Decisions
from flipmeter.measure.panel.groups import joined
from flipmeter.measure.statistics.formulas import holm
from flipmeter.measure.statistics.multiplicity import adjusted
from flipmeter.types import ALPHA, Contrast, Mode, Problem

SCHEMA = {
    "rater": pl.String,
    "metric": pl.String,
    "term": pl.String,
    "level": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "df": pl.Int64,
    "statistic": pl.Float64,
    "p": pl.Float64,
    "share": pl.Float64,
    "share_by_chance": pl.Float64,
    "in_model": pl.Boolean,
    "standing": pl.String,
    "link": pl.String,
    "n_cells": pl.Int64,
    "n_items": pl.Int64,
    "n": pl.Int64,
    "note": pl.String,
    "mode": pl.String,
}
REST, DATASETS = "(rest)", "(datasets)"
"""The remainder of the model's terms, and the differences of cells between datasets."""
LINEAR = "linear, not log-odds: some levels have no variation"
TOLERANCE = 1e-6


def effects(
    decisions: Decisions,
    contrasts: Sequence[Contrast],
    *,
    views: Sequence[str] = ("base",),
    mode: Mode = "recommended",
    link: Link = "logit",
) -> pl.DataFrame:
    """Test every factor and every two of them on accuracy and on flips, with its share of variance.

    Tests and intervals are over items, given these cells, datasets and seeds. An interaction is
    tested beside the main effects and the interactions already found (forward, by Holm, within a
    rater and metric), because few cells cannot tell many interactions apart. `p_holm` and `p_bh`
    are adjusted over all tests of a rater, `found_by` says which of them shows an effect. Values
    are points: of a factor, level minus base; of an interaction, what two levels do together beyond
    the sum of what each does alone.
    """
    responses = read_responses(decisions, paper_contrasts(contrasts), views, mode)
    rows = [(*row, mode) for one in responses for row in Analysis(one, link).rows()]
    if not rows:
        raise Problem("no decision can be graded or compared; effects need gold classes or probes")
    table = adjusted(pl.DataFrame(rows, schema=SCHEMA, orient="row"), ["rater"])
    names = list(SCHEMA)
    place = names.index("p") + 1
    ordered = table.select(*names[:place], "p_holm", "p_bh", *names[place:])
    found = [found_by(*pair) for pair in ordered.select("p_holm", "p_bh").iter_rows()]
    ordered = ordered.with_columns(pl.Series("found_by", found, dtype=pl.String))
    return ordered.with_columns(pl.col(pl.Float64).fill_nan(None))


@dataclass(frozen=True)
class TermFit:
    """A fit of some terms. `kept` marks the columns that the cells can tell apart.

    `nowhere` spans the combinations of all columns about which the cells say nothing.
    """

    response: Response
    terms: tuple[Term, ...]
    kept: Booleans
    fit: Fit
    nowhere: Floats

    def change(self, steps: Sequence[tuple[int, Codes]]) -> tuple[float, float, float]:
        """A signed sum of expected shares, in points, averaged over the cells asked.

        Each step is a sign and the cells as they would be. Cells that the model cannot speak of
        are left out of the average; where all are, there is no number.
        """
        outcomes = self.response.outcomes
        weights = outcomes.totals[1].copy()
        value, slope = 0.0, np.zeros((1, len(self.fit.coefficients)))
        designs = []
        for sign, codes in steps:
            rows = outcomes.rows(_all_columns(codes, self.response.sizes, self.terms))
            weights[np.abs(rows @ self.nowhere).max(axis=1, initial=0) > TOLERANCE] = 0
            designs.append((sign, rows[:, self._kept_rows]))
        if not weights.any():
            return np.nan, np.nan, np.nan
        weights /= weights.sum()
        for sign, rows in designs:
            value += sign * float(weights @ self.fit.mean(rows))
            slope += sign * weights @ self.fit.slope(rows)
        # Cells that no item tells apart have variance 0, and rounding can take it below.
        error = float(np.sqrt(max((slope @ self.fit.covariance @ slope.T).item(), 0.0)))
        half = float(special.stdtrit(self.fit.freedom, 1 - ALPHA / 2)) * error
        return 100 * value, 100 * (value - half), 100 * (value + half)

    @property
    def _kept_rows(self) -> Booleans:
        datasets = np.ones(self.response.outcomes.n_strata, dtype=np.bool_)
        return np.concatenate([datasets, self.kept])


def _all_columns(codes: Codes, sizes: Sequence[int], terms: Sequence[Term]) -> Floats:
    return np.hstack([np.zeros((len(codes), 0)), *(columns(codes, sizes, term) for term in terms)])


@dataclass(frozen=True)
class Analysis:
    """Makes the rows of one outcome of one rater."""

    response: Response
    link: Link

    @property
    def outcomes(self) -> Outcomes:
        return self.response.outcomes

    @property
    def sizes(self) -> list[int]:
        return self.response.sizes

    def rows(self) -> Iterator[tuple[object, ...]]:
        """Yield the test of each term, followed by its levels; then what is left."""
        why = self._why_not()
        if why:
            for term in self.mains:
                yield self._row(term, Tested(0, note=why))
            return
        for term in (*self.mains, *self.pairs):
            yield from self._term_rows(term)
        known = _all_columns(self.response.codes, self.sizes, self.final)
        yield self._remainder(REST, self.variance.rest(known))
        if self.outcomes.n_strata > 1:
            yield self._remainder(DATASETS, self.variance.between_datasets)

    def _why_not(self) -> str:
        """Say why nothing can be tested, "" if something can."""
        hits, trials = (int(of.sum()) for of in self.outcomes.totals)
        if not self.mains:
            return "undefined: readable at only one level of each factor"
        if hits in (0, trials):
            return f"undefined: {hits} of {trials}, the same everywhere"
        return "undefined: too few items" if self.outcomes.freedom < 1 else ""

    # --- the model ----------------------------------------------------------------------------

    @cached_property
    def mains(self) -> list[Term]:
        return main_terms(self.sizes)

    @cached_property
    def pairs(self) -> list[Term]:
        return pair_terms(self.sizes)

    @cached_property
    def standing(self) -> dict[Term, Standing]:
        return standings(self.response.codes, self.sizes)

    @cached_property
    def variance(self) -> Variance:
        return Variance(self.outcomes)

    @cached_property
    def found(self) -> list[Term]:
        """Find interactions one by one until none is left that Holm allows.

        Of those it allows the one comes first that explains most: what stands in for it in these
        cells explains less, though its test may be as sure.
        """
        found: list[Term] = []
        while len(found) < len(self.pairs):
            left = [term for term in self.pairs if term not in found]
            beside = (*self.mains, *found)
            p_values = holm([self.test(beside, term).p for term in left])
            sure = [term for term, p in zip(left, p_values, strict=True) if is_shown(p)]
            if not sure:
                break
            found.append(max(sure, key=partial(self._net, beside)))
        return found

    def _net(self, others: Sequence[Term], term: Term) -> float:
        share = self._share(others, term)
        return share.value - share.by_chance

    def _share(self, others: Sequence[Term], term: Term) -> Share:
        known = _all_columns(self.response.codes, self.sizes, others)
        return self.variance.share(known, columns(self.response.codes, self.sizes, term))

    @cached_property
    def final(self) -> tuple[Term, ...]:
        """The terms of the model: all main effects and the interactions found."""
        return (*self.mains, *self.found)

    def test(self, others: Sequence[Term], term: Term) -> Tested:
        """Test a term beside others: of its columns those that the cells can tell from theirs."""
        full, _, kept = self._columns((*others, term))
        first = full.shape[1] - n_columns(self.sizes, term)
        known, added = full[:, :first][:, kept[:first]], full[:, first:][:, kept[first:]]
        return score_test(self.outcomes, known, added, self.link)

    def model(self, terms: Sequence[Term]) -> TermFit:
        """Fit terms; on the linear scale if log-odds have no end."""
        full, rows, kept = self._columns(terms)
        fitted = fit(self.outcomes, full[:, kept], self.link)
        fitted = fitted or fit(self.outcomes, full[:, kept], "identity")
        assert fitted is not None, "a linear fit of independent columns always ends"
        sizes, directions = np.linalg.eigh(rows.T @ rows)
        nowhere = directions[:, sizes < TOLERANCE**1.5 * sizes[-1]]
        return TermFit(self.response, tuple(terms), kept, fitted, nowhere)

    def _columns(self, terms: Sequence[Term]) -> tuple[Floats, Floats, Booleans]:
        """The columns of terms, the design of the cells asked, and the columns to keep."""
        full = _all_columns(self.response.codes, self.sizes, terms)
        rows = self.outcomes.rows(full)[self.outcomes.totals[1] > 0]
        n_datasets = self.outcomes.n_strata
        datasets, _ = beyond(np.zeros((len(rows), 0)), rows[:, :n_datasets])
        _, kept = beyond(datasets, rows[:, n_datasets:])
        return full, rows, kept

    # --- rows ---------------------------------------------------------------------------------

    def _term_rows(self, term: Term) -> Iterator[tuple[object, ...]]:
        others = [other for other in self.final if other != term]
        test = self.test(others, term)
        yield self._row(term, test, share=self._share(others, term))
        if test.df:
            model = self.model((*others, term))
            for level in product(*(range(1, self.sizes[factor]) for factor in term)):
                yield self._level_row(term, level, model)

    def _level_row(self, term: Term, level: Sequence[int], model: TermFit) -> tuple[object, ...]:
        """The effect of a level, or the interaction of two beyond the effect of each."""
        steps = []
        for corner in product((0, 1), repeat=len(term)):
            codes = self.response.codes.copy()
            for factor, at, is_changed in zip(term, level, corner, strict=True):
                codes[:, factor] = at if is_changed else 0
            steps.append(((-1) ** (len(term) - sum(corner)), codes))
        names = ",".join(
            self.response.levels[factor][at] for factor, at in zip(term, level, strict=True)
        )
        value = model.change(steps)
        missing = "" if np.isfinite(value[0]) else "not estimable from these cells"
        tested = Tested(0, link=model.fit.link, note=missing)
        return self._row(term, tested, level=names, value=value)

    def _row(
        self,
        term: Term,
        test: Tested,
        *,
        level: str = "",
        value: tuple[float, float, float] = (np.nan, np.nan, np.nan),
        share: Share | None = None,
    ) -> tuple[object, ...]:
        response, wanted = self.response, n_columns(self.sizes, term)
        is_test, is_linear = share is not None, test.link == "identity" and self.link == "logit"
        notes = [test.note, LINEAR if is_linear else ""]
        notes += [self._alias_note(term, test.df, wanted)] if is_test and test.df < wanted else []
        notes += [self._reference_note(factor) for factor in term] if level else []
        return (
            *(response.rater, response.metric, term_name(response.factors, term), level, *value),
            *(test.df if is_test else None, test.statistic, test.p),
            *((share.value, share.by_chance) if share else (np.nan, np.nan)),
            *((is_test or level != "") and term in self.final, self.standing[term]),
            *(test.link or "", *self._counts, joined(*notes)),
        )

    def _alias_note(self, term: Term, df: int, wanted: int) -> str:
        names = [term_name(self.response.factors, other) for other in self.found if other != term]
        beside = f" beside {', '.join(names)}" if names else ""
        return f"{df} of {wanted} df can be estimated{beside}" if df or names else ""

    def _reference_note(self, factor: int) -> str:
        first = self.response.levels[factor][0]
        name = self.response.factors[factor]
        return "" if first == BASE else f"against {name}={first}: the base cannot be read"

    def _remainder(self, name: str, share: Share) -> tuple[object, ...]:
        response, nothing = self.response, [np.nan] * 3
        return (
            *(response.rater, response.metric, name, "", *nothing, None, np.nan, np.nan),
            *(share.value, share.by_chance, False, "", "", *self._counts, ""),
        )

    @property
    def _counts(self) -> tuple[int, int, int]:
        outcomes = self.outcomes
        return len(self.response.codes), outcomes.n_items, int(outcomes.totals[1].sum())
