"""Claims looked at while items are asked: exact boundaries, and bets that hold at any look.

The largest number of items is known before the run. Alpha is spent on each side by the share of
readable items (Pocock's spending function: for rates well below the margin it needs the fewest
items), so boundaries depend only on how many were readable, never on their answers.

Bets are for runs without a largest n and for claims on the excess; where n is known, `boundaries`
needs fewer items. Capital that grows to 1 / alpha settles a claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from flipmeter.errors import Problem
from flipmeter.stats.bounds import LOWEST_EXCESS, MOST, fewest, rough_size
from flipmeter.stats.groups import Floats

Side = Literal["below", "above"]

PRIOR = 0.5
"""Both parameters of the beta prior that bets on shares."""

STAKES = np.geomspace(0.01, 0.95, 24)
"""Shares of the largest stake that cannot go broke; capital is spread evenly over them."""


def share_evidence(k: npt.ArrayLike, n: npt.ArrayLike, margin: float, side: Side) -> Floats:
    """Evidence after k of n that a share is below, or above, a margin; valid at any n."""
    hits, size = (np.asarray(x, dtype=np.float64) for x in (k, n))
    if ((hits < 0) | (hits > size)).any():
        raise Problem("a count k must lie between 0 and n")
    a, b = PRIOR + hits, PRIOR + size - hits
    part = special.betainc if side == "below" else special.betaincc
    null = special.xlogy(hits, margin) + special.xlog1py(size - hits, -margin)
    with np.errstate(divide="ignore"):
        seen = special.betaln(a, b) + np.log(part(a, b, margin))
        bet = special.betaln(PRIOR, PRIOR) + np.log(part(PRIOR, PRIOR, margin))
    return np.asarray(np.exp(seen - bet - null))


def share_bounds(k: int, n: int, *, alpha: float = 0.05) -> tuple[float, float]:
    """Anytime-valid interval of a share after k of n, at 1 - alpha, that agrees with the evidence.

    It is anytime-valid, and wider than one for a number of items fixed in advance.
    """
    if not n:
        return 0.0, 1.0
    enough, rate = 2 / alpha, k / n

    def is_out(side: Side) -> Callable[[float], bool]:
        return lambda margin: bool(share_evidence(k, n, margin, side) >= enough)

    return last_inside(is_out("above"), rate, 0.0, 40), last_inside(is_out("below"), rate, 1.0, 40)


def last_inside(
    is_out: Callable[[float], bool], inside: float, outside: float, n_steps: int
) -> float:
    """The end of an interval between a number that is inside and one that is outside of it."""
    for _ in range(n_steps):
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if is_out(middle) else (middle, outside)
    return outside


def mean_evidence(
    values: npt.ArrayLike,
    margin: float,
    side: Side,
    *,
    bottom: float = LOWEST_EXCESS,
    top: float = 1.0,
) -> Floats:
    """Evidence after each cluster's value that their mean is below, or above, a margin.

    Values lie between bottom and top; the default range is that of a block's excess.
    """
    x = np.asarray(values, dtype=np.float64)
    if not bottom < margin < top:
        raise Problem(f"a margin must lie between {bottom} and {top}; got {margin}")
    if ((x < bottom - 1e-9) | (x > top + 1e-9)).any():
        raise Problem(f"values must lie between {bottom} and {top}")
    logs = np.cumsum(growth(x, margin, side, bottom=bottom, top=top), axis=1)
    return capital(logs)


def growth(
    values: Floats, margin: float, side: Side, *, bottom: float = LOWEST_EXCESS, top: float = 1.0
) -> Floats:
    """Logarithm of what every stake (rows) gains by every value."""
    gain = margin - values if side == "below" else values - margin
    most = top - margin if side == "below" else margin - bottom
    return np.asarray(np.log1p(STAKES[:, None] / most * gain))


def capital(logs: Floats) -> Floats:
    """Capital over all stakes (rows), which start alike and add up to 1; at most e^700."""
    return np.asarray(np.exp(np.minimum(special.logsumexp(logs, axis=0), 700)) / len(STAKES))


def mean_bounds(values: npt.ArrayLike, *, alpha: float = 0.05) -> tuple[float, float]:
    """Anytime-valid bounds of a mean, each at 1 - alpha, that agree with `mean_evidence`."""
    x = np.asarray(values, dtype=np.float64)
    if not len(x):
        return LOWEST_EXCESS, 1.0
    mean = float(x.mean())

    def is_out(side: Side) -> Callable[[float], bool]:
        return lambda margin: bool(mean_evidence(x, margin, side).max() >= 1 / alpha)

    low = last_inside(is_out("above"), mean, LOWEST_EXCESS, 40)
    return low, last_inside(is_out("below"), mean, 1.0, 40)


StopWord = Literal["below", "above", "futile", "undecided"]

MOST_LOOKS = 400
"""Looks up to which a plan is searched for."""


@dataclass(frozen=True)
class Boundaries:
    """Most flips that stop a look as below, fewest that stop it as above (-1 and n + 1: never)."""

    n: tuple[int, ...]
    below: tuple[int, ...]
    above: tuple[int, ...]
    margin: float
    alpha: float

    @property
    def is_reachable(self) -> bool:
        """Whether any number of flips could show a rate below the margin."""
        return max(self.below, default=-1) >= 0


@dataclass(frozen=True)
class Stop:
    """State of a claim after a look: each of `low` and `high` holds at 1 - alpha.

    At a stop the interval orders outcomes by the look at which they stop; before, it is the one
    that holds at every look. Both agree with the word.
    """

    word: StopWord
    look: int
    k: int
    n: int
    low: float
    high: float

    @property
    def is_final(self) -> bool:
        return self.word != "undecided"


@dataclass(frozen=True)
class Operating:
    """Outcome probabilities of a plan at one true rate, and its mean number of items."""

    below: float
    above: float
    futile: float
    undecided: float
    mean_n: float


@dataclass(frozen=True)
class Passed:
    """Chances at one look: of stopping here with each count, and of each count that goes on."""

    reached: Floats
    below: float
    above: float


def looks_of(block: int, most: int) -> tuple[int, ...]:
    """Looks after every block of items, the last one after the last item."""
    if block < 1 or most < 1:
        raise Problem(f"a block and the largest n must be 1 or more; got {block} and {most}")
    return (*range(block, most, block), most)


def boundaries(
    looks: Sequence[int],
    margin: float,
    *,
    alpha: float = 0.05,
    asked: Sequence[int] | None = None,
    most: int | None = None,
) -> Boundaries:
    """Exact boundaries for looks at so many readable items.

    `asked` are the items asked up to each look and `most` the largest number, both the readable
    ones if left out. The last item, readable or not, spends what is left of alpha.
    """
    for name, value in (("margin", margin), ("alpha", alpha)):
        if not 0 < value < 1:
            raise Problem(f"{name} must lie between 0 and 1; got {value}")
    n = tuple(int(x) for x in looks)
    asked = n if asked is None else tuple(int(x) for x in asked)
    largest = max(asked, default=0) if most is None else most
    if list(n) != sorted(n) or any(x > y for x, y in zip(n, asked, strict=True)):
        raise Problem(f"readable items must grow and not exceed those asked; got {n} of {asked}")
    return _boundaries(n, asked, largest, margin, alpha)


def spending(share: float) -> float:
    """Part of alpha that may be spent when this share of the items has been read (Pocock)."""
    return math.log1p((math.e - 1) * share)


@lru_cache(maxsize=512)
def _boundaries(
    n: tuple[int, ...], asked: tuple[int, ...], most: int, margin: float, alpha: float
) -> Boundaries:
    below, above, spent = [], [], np.zeros(2)
    going, seen = np.ones(1), 0
    for size, so_far in zip(n, asked, strict=True):
        going, seen = _extend_distribution(going, size - seen, margin), size
        may = alpha * (1.0 if so_far >= most else spending(size / most))
        low = int(np.searchsorted(np.cumsum(going), may - spent[0], side="right")) - 1
        high = size + 1 - int(np.searchsorted(np.cumsum(going[::-1]), may - spent[1], side="right"))
        spent += going[: low + 1].sum(), going[high:].sum()
        going = _keep_continuing(going, low, high)
        below.append(low)
        above.append(high)
    return Boundaries(n, tuple(below), tuple(above), margin, alpha)


def _extend_distribution(going: Floats, more: int, rate: float) -> Floats:
    """Distribution of the count after some more items."""
    return np.convolve(going, _binomial(more, rate)) if more else going


@lru_cache(maxsize=4096)
def _binomial(n: int, rate: float) -> Floats:
    k = np.arange(n + 1)
    logs = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
    return np.asarray(np.exp(logs + special.xlogy(k, rate) + special.xlog1py(n - k, -rate)))


def _keep_continuing(going: Floats, low: int, high: int) -> Floats:
    kept = going.copy()
    kept[: low + 1] = 0
    kept[high:] = 0
    return kept


# --- watching ---------------------------------------------------------------------------------


def watch(
    k: Sequence[int],
    n: Sequence[int],
    *,
    looks: Sequence[int],
    margin: float,
    alpha: float = 0.05,
) -> Stop:
    """The state of a claim after some looks at k flips of n readable items, counted from the start.

    `looks` are the items asked at every planned look; k and n have one number for each look so far.
    The first look that stops counts; later ones are not looked at.
    """
    if not 0 < len(n) <= len(looks) or len(k) != len(n):
        raise Problem(f"k and n need one count per look so far, 1 to {len(looks)}; got {len(n)}")
    asked, readable, flips = tuple(looks), tuple(n), tuple(k)
    held = boundaries(readable, margin, alpha=alpha, asked=asked[: len(n)], most=asked[-1])
    for look in range(len(n)):
        word = _stop_word(flips[look], look, held, asked)
        if word != "undecided":
            break
    low, high = _stagewise_interval(word, look, flips[look], held, asked)
    return Stop(word, look, flips[look], readable[look], low, high)


def _stop_word(k: int, look: int, held: Boundaries, asked: tuple[int, ...]) -> StopWord:
    if k <= held.below[look]:
        return "below"
    if k >= held.above[look]:
        return "above"
    return "futile" if k in _futile_counts(look, held, asked) else "undecided"


def _futile_counts(look: int, held: Boundaries, asked: tuple[int, ...]) -> range:
    """Counts from which no later look could stop, even if every later item is readable."""
    if look + 1 == len(asked):
        return range(0)
    ahead = _boundaries_ahead(look, held, asked)
    falls = max(ahead.below[look + 1 :])
    rises = min(
        above - size + ahead.n[look]
        for above, size in zip(ahead.above[look + 1 :], ahead.n[look + 1 :], strict=True)
    )
    start = max(falls, held.below[look]) + 1
    return range(start, max(start, min(rises, held.above[look])))


def _boundaries_ahead(look: int, held: Boundaries, asked: tuple[int, ...]) -> Boundaries:
    """Boundaries to the end with all items after a look readable."""
    lost = asked[look] - held.n[look]
    n = (*held.n[: look + 1], *(size - lost for size in asked[look + 1 :]))
    return boundaries(n, held.margin, alpha=held.alpha, asked=asked, most=asked[-1])


# --- intervals --------------------------------------------------------------------------------


def _iter_passes(held: Boundaries, rate: float, last: int) -> Iterator[Passed]:
    """Chances at every look up to the last, at one true rate."""
    going, seen = np.ones(1), 0
    for look in range(last + 1):
        going, seen = _extend_distribution(going, held.n[look] - seen, rate), held.n[look]
        low, high = held.below[look], held.above[look]
        yield Passed(going, float(going[: low + 1].sum()), float(going[high:].sum()))
        going = _keep_continuing(going, low, high)


def _stagewise_interval(
    word: StopWord, look: int, k: int, held: Boundaries, asked: tuple[int, ...]
) -> tuple[float, float]:
    """Stage-wise interval of a stop or the last look; before that, one that holds at every look."""
    if word in ("below", "above") or look + 1 == len(asked):
        return _stagewise_end(look, k, held, upper=False), _stagewise_end(look, k, held, upper=True)
    low, high = (_repeated_end(look, k, held, asked, upper=side) for side in (False, True))
    return min(low, held.margin), max(high, held.margin)


def _repeated_end(
    look: int, k: int, held: Boundaries, asked: tuple[int, ...], *, upper: bool
) -> float:
    """Last margin at which the looks so far would not have stopped."""
    n = held.n[: look + 1]

    def stops(margin: float) -> bool:
        at = _boundaries(n, asked[: look + 1], asked[-1], margin, held.alpha)
        return k <= at.below[look] if upper else k >= at.above[look]

    return last_inside(stops, k / max(n[-1], 1), 1.0 if upper else 0.0, 20)


def _stagewise_end(look: int, k: int, held: Boundaries, *, upper: bool) -> float:
    """Rate at which an outcome at least as low (or high) has chance alpha."""
    if k == (held.n[look] if upper else 0):
        return 1.0 if upper else 0.0

    def is_rare(rate: float) -> bool:
        return _stagewise_tail(look, k, held, rate, low=upper) < held.alpha

    return last_inside(is_rare, *((0.0, 1.0) if upper else (1.0, 0.0)), 50)


def _stagewise_tail(look: int, k: int, held: Boundaries, rate: float, *, low: bool) -> float:
    """Chance to stop earlier on this side or to be at least as extreme at this look."""
    *earlier, here = _iter_passes(held, rate, look)
    if k <= held.below[look] and not low:
        # Seen from above, all that did not stop below by now comes first.
        return 1 - sum(one.below for one in earlier) - float(here.reached[:k].sum())
    if k >= held.above[look] and low:
        return 1 - sum(one.above for one in earlier) - float(here.reached[k + 1 :].sum())
    if low:
        return sum(one.below for one in earlier) + float(here.reached[: k + 1].sum())
    return sum(one.above for one in earlier) + float(here.reached[k:].sum())


# --- planning ---------------------------------------------------------------------------------


def operating(
    looks: Sequence[int], margin: float, rate: float, *, alpha: float = 0.05
) -> Operating:
    """Chance of every end of a plan at a true rate, and the mean number of items asked.

    All items are taken to be readable.
    """
    asked = tuple(looks)
    held = boundaries(asked, margin, alpha=alpha)
    going, seen = np.ones(1), 0
    below = above = futile = mean = 0.0
    for look, size in enumerate(asked):
        going, seen = _extend_distribution(going, size - seen, rate), size
        low, high = held.below[look], held.above[look]
        down, up = float(going[: low + 1].sum()), float(going[high:].sum())
        going = _keep_continuing(going, low, high)
        lost = _futile_counts(look, held, asked)
        gone = float(going[lost.start : lost.stop].sum())
        going[lost.start : lost.stop] = 0
        below, above, futile = below + down, above + up, futile + gone
        mean += size * (down + up + gone)
    left = float(going.sum())
    return Operating(below, above, futile, left, mean + asked[-1] * left)


def needed_most(
    margin: float, rate: float, *, block: int = 50, power: float = 0.8, alpha: float = 0.05
) -> int | None:
    """Fewest items, in whole blocks, with which a plan settles a claim if this is the true rate.

    None if it would take more than 20,000 items or 400 blocks.
    """
    if not 0 <= rate <= 1 or rate == margin:
        raise Problem(
            f"a rate of {rate} cannot be shown to be below or above {margin}; use another rate"
        )

    most = min(MOST, MOST_LOOKS * block)
    if rough_size(rate, margin, alpha, power) > 2 * most:
        return None

    def suffices(blocks: int) -> bool:
        if blocks > MOST_LOOKS:
            return True
        found = operating(looks_of(block, block * blocks), margin, rate, alpha=alpha)
        return (found.below if rate < margin else found.above) >= power

    blocks = fewest(suffices) or MOST
    return None if blocks * block > most else blocks * block
