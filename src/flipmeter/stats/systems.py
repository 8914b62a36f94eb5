"""Verdicts on answers of several systems -> strengths, win rates and a ranking in each order.

Of a game in which i is shown first and j second, the log-odds of the three results are, up to a
constant: b_i + order / 2 for the first, b_j - order / 2 for the second, and tie + (b_i + b_j) / 2
for a tie. Strengths add up to 0. The likelihood is concave; where it has no maximum (a system that
never loses) there is no answer, and the one that is given says so.

Does the leaderboard change when the answers change places? Intervals are drawn over clusters
(prompts): all games about one prompt stay together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from scipy import special

from flipmeter.stats.groups import Booleans, Floats, Ints, Rows, ratio
from flipmeter.stats.panel import Panel, compared
from flipmeter.stats.preference import Choices, Found, chosen_among, estimate_rows
from flipmeter.stats.resampling import SEED
from flipmeter.types import ALPHA, Contrast, Estimate

FIRST, SECOND, TIE = 0, 1, 2
MOST_STEPS = 60
MOST_SYSTEMS = 40
CLOSE = 1e-9
FAR = 25.0
"""No finite maximum on counts that fit into memory lies farther out, in log-odds."""


@dataclass(frozen=True)
class Games:
    """Ordered pairs of systems (first shown, second shown) that met, by number."""

    n_systems: int
    first: Ints
    second: Ints

    def design(self, *, has_order: bool, has_ties: bool) -> Floats:
        """Pairs x results x parameters: strengths, then the order effect and ties if there are."""
        n, places = len(self.first), np.arange(len(self.first))
        table = np.zeros((n, 3, self.n_systems + has_order + has_ties))
        table[places, FIRST, self.first] = 1
        table[places, SECOND, self.second] = 1
        table[places, TIE, self.first] += 0.5
        table[places, TIE, self.second] += 0.5
        if has_order:
            table[:, FIRST, self.n_systems], table[:, SECOND, self.n_systems] = 0.5, -0.5
        if has_ties:
            table[:, TIE, -1] = 1
        return table if has_ties else table[:, :2]


@dataclass(frozen=True)
class Strengths:
    """Log-strengths of systems that add up to 0, the order effect and ties, in log-odds.

    `order` above 0 favours what is shown first. NaN everywhere says that there is no maximum, and
    `note` why; `tie` is NaN where nothing was tied, `order` where it was not asked for.
    """

    values: Floats
    order: float = float("nan")
    tie: float = float("nan")
    note: str = ""

    @property
    def is_known(self) -> bool:
        return not np.isnan(self.values).any()


def fit_strengths(games: Games, counts: Floats, *, has_order: bool) -> Strengths:
    """Fit strengths to counts (pairs x 3: wins of the first, of the second, ties)."""
    nothing = np.full(games.n_systems, np.nan)
    if games.n_systems > MOST_SYSTEMS:
        return Strengths(nothing, note=f"more than {MOST_SYSTEMS} systems: win rates only")
    played = counts.sum(axis=1) > 0
    own = Games(games.n_systems, games.first[played], games.second[played])
    has_ties = bool(counts[played, TIE].any())
    table, seen = own.design(has_order=has_order, has_ties=has_ties), counts[played]
    seen = seen if has_ties else seen[:, :2]
    if why := _without_maximum(own, table, seen):
        return Strengths(nothing, note=why)
    found = newton(table, seen[None], games.n_systems)[0]
    if np.isnan(found).any():
        return Strengths(nothing, note="no maximum-likelihood estimate was found")
    order = float(found[games.n_systems]) if has_order else float("nan")
    return Strengths(found[: games.n_systems], order, float(found[-1]) if has_ties else np.nan)


def newton(table: Floats, counts: Floats, n_systems: int) -> Floats:
    """Maximise the likelihood of many tables of counts (draws x pairs x results) at once.

    A draw whose steps do not end is NaN, so that nothing half-done gets out.
    """
    n_draws, width = len(counts), table.shape[2]
    flat = table.reshape(-1, width)
    products = (flat[:, :, None] * flat[:, None, :]).reshape(len(flat), -1)
    level = np.zeros((width, width))
    level[:n_systems, :n_systems] = 1.0  # strengths are only known up to a constant
    level += np.eye(width) * 1e-12
    x, n_games = np.zeros((n_draws, width)), counts.sum(axis=2)
    best, open_ = _log_likelihood(table, counts, x), np.ones(n_draws, dtype=np.bool_)
    for _ in range(MOST_STEPS):
        chance = special.softmax(np.einsum("gkp,dp->dgk", table, x), axis=2)
        slope = (counts - n_games[..., None] * chance).reshape(n_draws, -1) @ flat
        weighted = (n_games[..., None] * chance).reshape(n_draws, -1)
        mean = np.einsum("dgk,gkp->dgp", chance, table)
        bend = (weighted @ products).reshape(n_draws, width, width)
        bend -= np.einsum("dgp,dgq->dpq", n_games[..., None] * mean, mean, optimize=True)
        step = np.linalg.solve(bend + level, slope[..., None])[..., 0] * open_[:, None]
        x, best, size = _halve_step(table, counts, x, step, best)
        open_ &= np.abs(x).max(axis=1) < FAR
        if not (open_ & (np.abs(size[:, None] * step).max(axis=1) >= CLOSE)).any():
            break
    ended = open_ & (np.abs(size[:, None] * step).max(axis=1) < CLOSE)
    x[:, :n_systems] -= x[:, :n_systems].mean(axis=1, keepdims=True)
    return np.where(ended[:, None], x, np.nan)


def _halve_step(
    table: Floats, counts: Floats, x: Floats, step: Floats, best: Floats
) -> tuple[Floats, Floats, Floats]:
    """Take a step, halved for every draw until its likelihood does not fall."""
    size = np.ones(len(x))
    for _ in range(30):
        reached = _log_likelihood(table, counts, x + size[:, None] * step)
        falls = reached < best - CLOSE
        if not falls.any():
            break
        size = np.where(falls, size / 2, size)
    return x + size[:, None] * step, reached, size


def _log_likelihood(table: Floats, counts: Floats, x: Floats) -> Floats:
    logs = special.log_softmax(np.einsum("gkp,dp->dgk", table, x), axis=2)
    return np.asarray((counts * logs).sum(axis=(1, 2)))


# --- where there is no maximum ----------------------------------------------------------------


def _without_maximum(games: Games, table: Floats, counts: Floats) -> str:
    """Reason why a likelihood has no maximum, "" if it has one.

    There is none if some direction never makes a result that happened less likely than another
    (a linear programme finds it), and several if one changes nothing at all.
    """
    from scipy import optimize  # slow to import, and only needed here
    from scipy.sparse import csgraph

    if not len(counts):
        return "no games"
    met = np.zeros((games.n_systems, games.n_systems))
    met[games.first, games.second] = 1
    n_parts, _ = csgraph.connected_components(met, directed=False)
    if n_parts > 1:
        return "not comparable: some systems were never compared, directly or through others"
    differences = _result_differences(table, counts)
    n, width = differences.shape
    if np.linalg.matrix_rank(differences) < width - 1:
        return "not identified: the order effect cannot be told from the systems"
    # Rows: (result that happened) - (another) along a direction, which must not be below 0.
    bounds = [(-1.0, 1.0)] * width
    found = optimize.linprog(
        -differences.sum(axis=0), A_ub=-differences, b_ub=np.zeros(n), bounds=bounds
    )
    if found.status != 0 or found.fun is None or found.fun < -1e-7:
        return f"separated: {_divergence_reason(found.x, games)}"
    return ""


def _result_differences(table: Floats, counts: Floats) -> Floats:
    """Every result that happened minus every other of its game, each row once."""
    rows = [
        table[happened, result] - table[happened, other]
        for result in range(counts.shape[1])
        for other in range(counts.shape[1])
        if result != other and (happened := counts[:, result] > 0).any()
    ]
    return np.unique(np.concatenate(rows), axis=0)


def _divergence_reason(direction: Floats | None, games: Games) -> str:
    if direction is None:
        return "no finite strengths"
    strengths = direction[: games.n_systems]
    if np.ptp(strengths) < 1e-6:
        return "position decides every comparison"
    return "some systems never lose to the others, so their strength is infinite"


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
            yield title, _rank_systems(played.among(own), has_order=False)
    if len(np.unique(played.order)) == 2:
        yield ORDERS[2], _rank_systems(played, has_order=True)


def _rank_systems(played: Played, *, has_order: bool) -> Found:
    n_systems = len(played.names)
    pairs, pair = np.unique(played.first * n_systems + played.second, return_inverse=True)
    _, cluster = np.unique(played.cluster, return_inverse=True)
    games = Games(n_systems, pairs // n_systems, pairs % n_systems)
    counts = np.zeros((int(cluster.max()) + 1, len(pairs), 3))  # of each cluster, by pair
    np.add.at(counts, (cluster, pair, played.result), 1.0)
    totals = counts.sum(axis=0)
    fitted = fit_strengths(games, totals, has_order=has_order)
    drawn = _resample_strengths(games, counts, fitted, has_order=has_order)
    found: Found = {}

    def add(metric: str, value: float, draws: Floats, note: str = "") -> None:
        known = draws[~np.isnan(draws)]
        ends = np.quantile(known, [ALPHA / 2, 1 - ALPHA / 2]) if len(known) else [np.nan] * 2
        low, high = (float(end) for end in ends)
        found[metric] = Estimate(float(value), low, high, len(counts), metric=metric, note=note)

    rates, places, note = _win_rates(games, totals), _system_places(fitted.values), drawn.note
    for at, name in enumerate(played.names):
        add(f"win_rate:{name}", rates[at], drawn.rates[:, at])
    for at, name in enumerate(played.names):
        add(f"strength:{name}", fitted.values[at], drawn.strengths[:, at], note)
        add(f"rank:{name}", places[at], _system_places(drawn.strengths)[:, at], note)
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


def _system_places(strengths: Floats) -> Floats:
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


def _resample_strengths(
    games: Games, counts: Floats, fitted: Strengths, *, has_order: bool
) -> _Drawn:
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
