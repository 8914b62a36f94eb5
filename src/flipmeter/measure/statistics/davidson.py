"""Games between systems -> strengths: Bradley-Terry with ties (Davidson) and an order effect.

Of a game in which i is shown first and j second, the log-odds of the three results are, up to a
constant: b_i + order / 2 for the first, b_j - order / 2 for the second, and tie + (b_i + b_j) / 2
for a tie. Strengths add up to 0. The likelihood is concave; where it has no maximum (a system that
never loses) there is no answer, and the one that is given says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from flipmeter.measure.panel.checked import Floats, Ints

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
        x, best, size = _stepped(table, counts, x, step, best)
        open_ &= np.abs(x).max(axis=1) < FAR
        if not (open_ & (np.abs(size[:, None] * step).max(axis=1) >= CLOSE)).any():
            break
    ended = open_ & (np.abs(size[:, None] * step).max(axis=1) < CLOSE)
    x[:, :n_systems] -= x[:, :n_systems].mean(axis=1, keepdims=True)
    return np.where(ended[:, None], x, np.nan)


def _stepped(
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
    differences = _differences(table, counts)
    n, width = differences.shape
    if np.linalg.matrix_rank(differences) < width - 1:
        return "not identified: the order effect cannot be told from the systems"
    # Rows: (result that happened) - (another) along a direction, which must not be below 0.
    bounds = [(-1.0, 1.0)] * width
    found = optimize.linprog(
        -differences.sum(axis=0), A_ub=-differences, b_ub=np.zeros(n), bounds=bounds
    )
    if found.status != 0 or found.fun is None or found.fun < -1e-7:
        return f"separated: {_culprit(found.x, games)}"
    return ""


def _differences(table: Floats, counts: Floats) -> Floats:
    """Every result that happened minus every other of its game, each row once."""
    rows = [
        table[happened, result] - table[happened, other]
        for result in range(counts.shape[1])
        for other in range(counts.shape[1])
        if result != other and (happened := counts[:, result] > 0).any()
    ]
    return np.unique(np.concatenate(rows), axis=0)


def _culprit(direction: Floats | None, games: Games) -> str:
    if direction is None:
        return "no finite strengths"
    strengths = direction[: games.n_systems]
    if np.ptp(strengths) < 1e-6:
        return "position decides every comparison"
    return "some systems never lose to the others, so their strength is infinite"
