"""Looks at a growing count -> exact group-sequential stops: below, above or futile at a margin.

The largest number of items is known before the run. Alpha is spent on each side by the share of
readable items (Pocock's spending function: for rates well below the margin it needs the fewest
items), so boundaries depend only on how many were readable, never on their answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy import special

from flipmeter.measure.inference.needed import MOST, fewest, rough_size
from flipmeter.measure.inference.sequential.bets import last_inside
from flipmeter.measure.panel.checked import Floats
from flipmeter.types import Problem

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
        going, seen = _grown(going, size - seen, margin), size
        may = alpha * (1.0 if so_far >= most else spending(size / most))
        low = int(np.searchsorted(np.cumsum(going), may - spent[0], side="right")) - 1
        high = size + 1 - int(np.searchsorted(np.cumsum(going[::-1]), may - spent[1], side="right"))
        spent += going[: low + 1].sum(), going[high:].sum()
        going = _inner(going, low, high)
        below.append(low)
        above.append(high)
    return Boundaries(n, tuple(below), tuple(above), margin, alpha)


def _grown(going: Floats, more: int, rate: float) -> Floats:
    """Distribution of the count after some more items."""
    return np.convolve(going, _binomial(more, rate)) if more else going


@lru_cache(maxsize=4096)
def _binomial(n: int, rate: float) -> Floats:
    k = np.arange(n + 1)
    logs = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
    return np.asarray(np.exp(logs + special.xlogy(k, rate) + special.xlog1py(n - k, -rate)))


def _inner(going: Floats, low: int, high: int) -> Floats:
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
        word = _word(flips[look], look, held, asked)
        if word != "undecided":
            break
    low, high = _interval(word, look, flips[look], held, asked)
    return Stop(word, look, flips[look], readable[look], low, high)


def _word(k: int, look: int, held: Boundaries, asked: tuple[int, ...]) -> StopWord:
    if k <= held.below[look]:
        return "below"
    if k >= held.above[look]:
        return "above"
    return "futile" if k in _futile(look, held, asked) else "undecided"


def _futile(look: int, held: Boundaries, asked: tuple[int, ...]) -> range:
    """Counts from which no later look could stop, even if every later item is readable."""
    if look + 1 == len(asked):
        return range(0)
    ahead = _ahead(look, held, asked)
    falls = max(ahead.below[look + 1 :])
    rises = min(
        above - size + ahead.n[look]
        for above, size in zip(ahead.above[look + 1 :], ahead.n[look + 1 :], strict=True)
    )
    start = max(falls, held.below[look]) + 1
    return range(start, max(start, min(rises, held.above[look])))


def _ahead(look: int, held: Boundaries, asked: tuple[int, ...]) -> Boundaries:
    """Boundaries to the end with all items after a look readable."""
    lost = asked[look] - held.n[look]
    n = (*held.n[: look + 1], *(size - lost for size in asked[look + 1 :]))
    return boundaries(n, held.margin, alpha=held.alpha, asked=asked, most=asked[-1])


# --- intervals --------------------------------------------------------------------------------


def _passes(held: Boundaries, rate: float, last: int) -> Iterator[Passed]:
    """Chances at every look up to the last, at one true rate."""
    going, seen = np.ones(1), 0
    for look in range(last + 1):
        going, seen = _grown(going, held.n[look] - seen, rate), held.n[look]
        low, high = held.below[look], held.above[look]
        yield Passed(going, float(going[: low + 1].sum()), float(going[high:].sum()))
        going = _inner(going, low, high)


def _interval(
    word: StopWord, look: int, k: int, held: Boundaries, asked: tuple[int, ...]
) -> tuple[float, float]:
    """Stage-wise interval of a stop or the last look; before that, one that holds at every look."""
    if word in ("below", "above") or look + 1 == len(asked):
        return _end(look, k, held, upper=False), _end(look, k, held, upper=True)
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


def _end(look: int, k: int, held: Boundaries, *, upper: bool) -> float:
    """Rate at which an outcome at least as low (or high) has chance alpha."""
    if k == (held.n[look] if upper else 0):
        return 1.0 if upper else 0.0

    def is_rare(rate: float) -> bool:
        return _tail(look, k, held, rate, low=upper) < held.alpha

    return last_inside(is_rare, *((0.0, 1.0) if upper else (1.0, 0.0)), 50)


def _tail(look: int, k: int, held: Boundaries, rate: float, *, low: bool) -> float:
    """Chance to stop earlier on this side or to be at least as extreme at this look."""
    *earlier, here = _passes(held, rate, look)
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
        going, seen = _grown(going, size - seen, rate), size
        low, high = held.below[look], held.above[look]
        down, up = float(going[: low + 1].sum()), float(going[high:].sum())
        going = _inner(going, low, high)
        lost = _futile(look, held, asked)
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
