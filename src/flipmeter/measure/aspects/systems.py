"""Verdicts on answers of several systems -> win rates and a ranking, in each order and in both.

Does the leaderboard change when the answers change places? Intervals are drawn over clusters
(prompts): all games about one prompt stay together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from flipmeter.measure.aspects.options import Choices, Found, chosen_among, estimate_rows
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
    """Yield the estimates of each order that has games, and of both.

    `win_rate:NAME` counts a tie as half a win. `strength:NAME` is that of Bradley and Terry with
    Davidson's ties, in log-odds with mean 0, and `rank:NAME` its place. Both orders together also
    have `order_effect`, above 0 if what is shown first is favoured.
    """
    for place, title in enumerate(ORDERS[:2]):
        own = played.order == place
        if own.any():
            yield title, _ranked(played.among(own), has_order=False)
    if len(np.unique(played.order)) == 2:
        yield ORDERS[2], _ranked(played, has_order=True)


def _ranked(played: Played, *, has_order: bool) -> Found:
    n_systems = len(played.names)
    pairs, pair = np.unique(played.first * n_systems + played.second, return_inverse=True)
    _, cluster = np.unique(played.cluster, return_inverse=True)
    games = Games(n_systems, pairs // n_systems, pairs % n_systems)
    counts = np.zeros((int(cluster.max()) + 1, len(pairs), 3))  # of each cluster, by pair
    np.add.at(counts, (cluster, pair, played.result), 1.0)
    totals = counts.sum(axis=0)
    fitted = fit_strengths(games, totals, has_order=has_order)
    drawn = _resampled(games, counts, fitted, has_order=has_order)
    found: Found = {}

    def add(metric: str, value: float, draws: Floats, note: str = "") -> None:
        known = draws[~np.isnan(draws)]
        ends = np.quantile(known, [ALPHA / 2, 1 - ALPHA / 2]) if len(known) else [np.nan] * 2
        low, high = (float(end) for end in ends)
        found[metric] = Estimate(float(value), low, high, len(counts), metric=metric, note=note)

    rates, places, note = _win_rates(games, totals), _places(fitted.values), drawn.note
    for at, name in enumerate(played.names):
        add(f"win_rate:{name}", rates[at], drawn.rates[:, at])
    for at, name in enumerate(played.names):
        add(f"strength:{name}", fitted.values[at], drawn.strengths[:, at], note)
        add(f"rank:{name}", places[at], _places(drawn.strengths)[:, at], note)
    if has_order:
        add("order_effect", fitted.order, drawn.order, note)
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
    """Numbers of systems in resamples of clusters, and why strengths are missing."""

    rates: Floats
    strengths: Floats
    order: Floats
    note: str


def _resampled(games: Games, counts: Floats, fitted: Strengths, *, has_order: bool) -> _Drawn:
    """Draw clusters with replacement and fit again; a draw without a maximum is counted."""
    n, n_systems = len(counts), games.n_systems
    chance = np.random.default_rng([SEED, n])
    weights = chance.multinomial(n, np.full(n, 1 / n), size=DRAWS).astype(np.float64)
    counts = np.tensordot(weights, counts, axes=1)
    rates = _win_rates(games, counts)
    strengths, order = np.full((DRAWS, n_systems), np.nan), np.full(DRAWS, np.nan)
    if fitted.is_known and n > 1:
        has_ties = not np.isnan(fitted.tie)
        table = games.design(has_order=has_order, has_ties=has_ties)
        found = newton(table, counts if has_ties else counts[:, :, :2], n_systems)
        strengths, order = found[:, :n_systems], found[:, n_systems] if has_order else order
    lost = int(np.isnan(strengths[:, 0]).sum())
    if not fitted.is_known or lost <= MOST_LOST * DRAWS:
        return _Drawn(rates, strengths, order, fitted.note)
    note = fitted.note or f"no interval: {lost} of {DRAWS} resamples have no finite strengths"
    return _Drawn(rates, np.full_like(strengths, np.nan), np.full_like(order, np.nan), note)


# --- all groups -------------------------------------------------------------------------------


def system_rows(panel: Panel, contrasts: Sequence[Contrast]) -> Iterator[Rows]:
    """Yield win rates and strengths from every contrast that swaps the answers of two systems."""
    unknown = pl.any_horizontal(pl.all().fill_null("") == "")
    has_systems = (~panel.systems.select(unknown).to_series()).to_numpy()
    known = has_systems & (panel.places.n == 2)
    for contrast in contrasts if has_systems.any() else ():
        if not contrast.swaps_answers:
            continue
        found = compared(panel, contrast)
        for group, mine, choices in chosen_among(panel, found, contrast, known):
            names = [column.to_list() for column in panel.systems.filter(mine)]
            for title, some in system_estimates(played_of(choices, *names)):
                yield from estimate_rows(group, some, np.nan, title)


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
