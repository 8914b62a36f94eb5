"""Verdicts on answers of several systems -> win rates and a ranking, in each order and in both.

Does the leaderboard change when the answers change places? Intervals are drawn over clusters
(prompts): all games about one prompt stay together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from flipmeter.measure.aspects.options import Choices, Found, choices_of, estimate_rows, plain
from flipmeter.measure.estimates.long_table import Rows
from flipmeter.measure.panel.checked import Booleans, Floats, Ints, ratio
from flipmeter.measure.panel.panel import Panel, compared
from flipmeter.measure.statistics.davidson import Games, Strengths, fit_strengths, newton
from flipmeter.measure.statistics.resample import SEED
from flipmeter.types import ALPHA, Contrast, Estimate

ORDERS = ("as given", "swapped", "both orders")
DRAWS = 400
MOST_LOST = 0.02
"""More resamples without a maximum than these, and an interval would leave out the far ones."""


@dataclass(frozen=True)
class Played:
    """Games of one judge, a row each: the systems shown first and second, the result, the cluster.

    Results are 0 for the first, 1 for the second and 2 for a tie. `order` is 0 as given, 1 swapped.
    """

    names: tuple[str, ...]
    first: Ints
    second: Ints
    result: Ints
    order: Ints
    cluster: Ints

    def among(self, games: Booleans) -> Played:
        parts = (self.first, self.second, self.result, self.order, self.cluster)
        return Played(self.names, *(part[games] for part in parts))


def system_estimates(played: Played) -> Iterator[tuple[str, Found]]:
    """Yield the estimates of each order that has games, and of both."""
    for place, title in enumerate(ORDERS[:2]):
        own = played.order == place
        if own.any():
            yield title, _ranked(played.among(own), has_order=False)
    if len(np.unique(played.order)) == 2:
        yield ORDERS[2], _ranked(played, has_order=True)


@dataclass(frozen=True)
class _Tables:
    """Games by cluster: each cluster's wins of the first, wins of the second and ties, by pair."""

    games: Games
    counts: Floats

    @classmethod
    def of(cls, played: Played) -> _Tables:
        n = len(played.names)
        pairs, pair = np.unique(played.first * n + played.second, return_inverse=True)
        _, cluster = np.unique(played.cluster, return_inverse=True)
        counts = np.zeros((int(cluster.max()) + 1, len(pairs), 3))
        np.add.at(counts, (cluster, pair, played.result), 1.0)
        return cls(Games(n, pairs // n, pairs % n), counts)


def _ranked(played: Played, *, has_order: bool) -> Found:
    tables = _Tables.of(played)
    totals = tables.counts.sum(axis=0)
    fitted = fit_strengths(tables.games, totals, has_order=has_order)
    drawn = _resampled(tables, fitted, has_order=has_order)
    n = len(tables.counts)
    found: Found = {}
    rates = _win_rates(tables.games, totals)
    for place, name in enumerate(played.names):
        ends = _ends(drawn.rates[:, place])
        one = Estimate(float(rates[place]), *ends, n=n, metric=f"win_rate:{name}")
        found[one.metric] = plain(one)
    note = fitted.note or drawn.note
    for place, name in enumerate(played.names):
        for kind, value, draws in (
            ("strength", fitted.values[place], drawn.strengths[:, place]),
            ("rank", _places(fitted.values)[place], _places(drawn.strengths)[:, place]),
        ):
            one = Estimate(float(value), *_ends(draws), n=n, metric=f"{kind}:{name}", note=note)
            found[one.metric] = plain(one)
    if has_order:
        ends = _ends(drawn.order)
        one = Estimate(fitted.order, *ends, n=n, metric="order_effect", note=note)
        found[one.metric] = plain(one)
    return found


def _win_rates(games: Games, counts: Floats) -> Floats:
    """Share of games that each system wins, a tie as half of one (... x systems)."""
    won = counts[..., 0] + counts[..., 2] / 2, counts[..., 1] + counts[..., 2] / 2
    played = counts.sum(axis=-1)
    sums = np.zeros((2, *counts.shape[:-2], games.n_systems))
    for wins, who in zip(won, (games.first, games.second), strict=True):
        for place, system in enumerate(who.tolist()):
            sums[0, ..., system] += wins[..., place]
            sums[1, ..., system] += played[..., place]
    return ratio(sums[0], sums[1])


def _places(strengths: Floats) -> Floats:
    """Place of each system, 1 for the strongest; systems of one strength share the mean place."""
    above = (strengths[..., None, :] > strengths[..., :, None]).sum(axis=-1)
    level = (strengths[..., None, :] == strengths[..., :, None]).sum(axis=-1)
    places = above + (level + 1) / 2
    return np.where(np.isnan(strengths), np.nan, places)


# --- resamples --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Drawn:
    rates: Floats
    strengths: Floats
    order: Floats
    note: str


def _resampled(tables: _Tables, fitted: Strengths, *, has_order: bool) -> _Drawn:
    """Draw clusters with replacement and fit again; a draw without a maximum is counted."""
    n, n_systems = len(tables.counts), tables.games.n_systems
    chance = np.random.default_rng([SEED, n])
    weights = chance.multinomial(n, np.full(n, 1 / n), size=DRAWS).astype(np.float64)
    counts = np.tensordot(weights, tables.counts, axes=1)
    rates = _win_rates(tables.games, counts)
    strengths, order = np.full((DRAWS, n_systems), np.nan), np.full(DRAWS, np.nan)
    if fitted.is_known and n > 1:
        has_ties = not np.isnan(fitted.tie)
        table = tables.games.design(has_order=has_order, has_ties=has_ties)
        found = newton(table, counts if has_ties else counts[:, :, :2], n_systems)
        strengths, order = found[:, :n_systems], found[:, n_systems] if has_order else order
    lost = int(np.isnan(strengths[:, 0]).sum())
    if not fitted.is_known or lost <= MOST_LOST * DRAWS:
        return _Drawn(rates, strengths, order, "")
    note = f"no interval: {lost} of {DRAWS} resamples have no finite strengths"
    return _Drawn(rates, np.full_like(strengths, np.nan), np.full_like(order, np.nan), note)


def _ends(draws: Floats) -> tuple[float, float]:
    known = draws[~np.isnan(draws)]
    if not len(known):
        return float("nan"), float("nan")
    low, high = np.quantile(known, [ALPHA / 2, 1 - ALPHA / 2])
    return float(low), float(high)


# --- all groups -------------------------------------------------------------------------------


def system_rows(panel: Panel, contrasts: Sequence[Contrast]) -> Iterator[Rows]:
    """Yield win rates and strengths from every contrast that swaps the answers of two systems."""
    unknown = pl.any_horizontal(pl.all().fill_null("") == "")
    has_systems = (~panel.systems.select(unknown).to_series()).to_numpy()
    for contrast in contrasts:
        if not contrast.swaps_answers or not has_systems.any():
            continue
        found = compared(panel, contrast)
        known = found.items & has_systems & (panel.places.n == 2)
        for group in np.flatnonzero(found.measured & (panel.groups.count(known) > 0)).tolist():
            mine = known & (panel.groups.of == group)
            names = [column.to_list() for column in panel.systems.filter(mine)]
            played = played_of(choices_of(panel, contrast, mine), *names)
            for title, some in system_estimates(played):
                yield from estimate_rows(group, some, title)


def played_of(choices: Choices, a: Sequence[str], b: Sequence[str]) -> Played:
    """The games of items in both orders; a verdict that could not be read is not a game."""
    names = tuple(sorted({*a, *b}))
    number = {name: place for place, name in enumerate(names)}
    one, other = (np.array([number[name] for name in who], dtype=np.int64) for who in (a, b))
    read = (choices.classes > 0).T.ravel() & (np.tile(one, 2) != np.tile(other, 2))
    places = choices.places.T.ravel()
    played = Played(
        names,
        np.concatenate([one, other]),
        np.concatenate([other, one]),
        np.where(places > 0, places - 1, 2),
        np.repeat([0, 1], len(one)),
        np.tile(choices.cluster, 2),
    )
    return played.among(read)
