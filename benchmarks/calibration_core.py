"""Hard cases of verdicts, stops, choices and comparisons, through the functions of the core."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import numpy.typing as npt
from calibration_cells import COVERS, COVERS_SMALL, RARE, Cell, Limit, Outcomes
from scipy import special

from flipmeter.stats.blocks import Row
from flipmeter.stats.chosen import simultaneous
from flipmeter.stats.conclude import verdict
from flipmeter.stats.differences import influence_ends
from flipmeter.stats.measured_items import MeasuredItems, Measurer, combined
from flipmeter.stats.scores import scores
from flipmeter.stats.sequential import looks_of, mean_evidence, watch
from flipmeter.stats.verdict import Verdict

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MARGIN = 0.10
SIZES = (20, 30, 60, 200)
N_CLASSES = 5
FLIPPING = (0.02, 0.05)
"""Flip rates of two raters that are compared; what flips the first flips the second."""


# --- what is planted --------------------------------------------------------------------------


@dataclass(frozen=True)
class Planted:
    """Replies of one contrast and the true sizes behind them."""

    row: Row
    rate: float | None = None
    excess: float | None = None
    weighted: float | None = None


def drawn(rng: np.random.Generator, chances: Floats) -> Ints:
    """One class for each row of chances."""
    at = rng.random(len(chances))[:, None] >= chances.cumsum(axis=1)
    return np.asarray(np.minimum(at.sum(axis=1) + 1, chances.shape[1]))


def asked(
    rng: np.random.Generator, views: Sequence[Floats], *, seeds: int = 1, copies: int = 1
) -> Row:
    """Pairs and repeats of items with these chances in each view, under several seeds."""
    n = len(views[0])
    first, again = (
        np.stack([drawn(rng, np.repeat(chances, seeds, axis=0)) for chances in views], axis=1)
        for _ in range(2)
    )
    ids = np.repeat(np.arange(n), seeds * copies)
    return Row(np.repeat(first, copies, axis=0), np.repeat(again, copies, axis=0), ids)


def slipping(at: Ints, noise: float, n_classes: int = N_CLASSES) -> Floats:
    """Chances of items at these classes (from 0) that slip to a neighbour, round the scale."""
    chances = np.eye(n_classes)[at] * (1 - noise)
    for step in (-1, 1):
        chances += np.eye(n_classes)[(at + step) % n_classes] * noise / 2
    return chances


def moved(
    rng: np.random.Generator,
    *,
    n: int,
    noise: tuple[float, float],
    share: float,
    seeds: int = 1,
    n_classes: int = N_CLASSES,
) -> Planted:
    """A rater that slips in both views and moves a share of items by two classes in the second."""
    at, step = rng.integers(0, n_classes, n), max(1, n_classes // 2)
    to = np.where(rng.random(n) < share, (at + step) % n_classes, at)
    views = [slipping(at, noise[0], n_classes), slipping(to, noise[1], n_classes)]
    here = slipping(np.array([0]), noise[0], n_classes)
    staying, moving = (
        float(((here - slipping(np.array([place]), noise[1], n_classes)) ** 2).sum()) / 2
        for place in (0, step)
    )
    excess = share * moving + (1 - share) * staying
    return Planted(asked(rng, views, seeds=seeds), excess=excess)


def flipping(rng: np.random.Generator, *, n: int, seeds: int, rate: float, icc: float) -> Planted:
    """A reproducible rater whose items flip at rates that vary by icc."""
    own = np.full(n, rate)
    if icc:
        own = rng.beta(rate * (1 - icc) / icc, (1 - rate) * (1 - icc) / icc, n)
    flips = rng.random((n, seeds)) < own[:, None]
    first = np.repeat(rng.integers(1, 5, n), seeds)
    pairs = np.stack([first, first + flips.ravel()], axis=1)
    return Planted(Row(pairs, None, np.repeat(np.arange(n), seeds), reproducible=True), rate=rate)


def at_frequencies(
    rng: np.random.Generator,
    *,
    n: int,
    seeds: int,
    rates: Sequence[float],
    weights: Sequence[float],
    noise: float | None = None,
) -> Planted:
    """A balanced test set whose classes flip at rates of their own and are not alike in production.

    Without noise an item flips under every seed or under none; with it, an item moves by two
    classes as often and slips beside that.
    """
    gold = np.arange(n) % len(rates)
    flips = rng.random(n) < np.array(rates)[gold]
    truth = float(np.dot(rates, weights))
    if noise is None:
        first = np.repeat(rng.integers(1, N_CLASSES + 1, n), seeds)
        pairs = np.stack([first, (first + np.repeat(flips, seeds) - 1) % N_CLASSES + 1], axis=1)
        row = Row(pairs, None, np.repeat(np.arange(n), seeds), reproducible=True)
    else:
        at = rng.integers(0, N_CLASSES, n)
        to = np.where(flips, (at + 2) % N_CLASSES, at)
        row = asked(rng, [slipping(at, noise), slipping(to, noise)], seeds=seeds)
        apart = slipping(np.array([0]), noise) - slipping(np.array([2]), noise)
        truth *= float((apart**2).sum()) / 2
    return Planted(
        replace(row, gold=np.repeat(gold + 1, seeds), weights=np.array(weights)), weighted=truth
    )


def always(rng: np.random.Generator, *, n: int, seeds: int) -> Planted:
    """A few items that always flip among many that rarely do."""
    share, rarely = 0.09, 0.01
    own = np.where(rng.random(n) < share, 1.0, rarely)
    flips = rng.random((n, seeds)) < own[:, None]
    pairs = np.stack([np.ones(n * seeds, dtype=np.int64), 1 + flips.ravel()], axis=1)
    rate = share + (1 - share) * rarely
    return Planted(Row(pairs, None, np.repeat(np.arange(n), seeds), reproducible=True), rate=rate)


def leaning(rng: np.random.Generator, *, n: int, lean: float) -> Planted:
    """Every item of two classes leans to the first in one view and to the second in the other."""
    chances = np.tile([0.5 + lean, 0.5 - lean], (n, 1))
    return Planted(asked(rng, [chances, chances[:, ::-1]]), excess=4 * lean**2)


def failing(rng: np.random.Generator, *, n: int, share: float) -> Planted:
    """A rater that never changes its answer but cannot be read on hard items in one view."""
    at = rng.integers(1, N_CLASSES + 1, n)
    pairs = np.stack([at, at], axis=1)
    pairs[(rng.random(n) < 2 * share) & (at > N_CLASSES // 2 + rng.integers(0, 2, n)), 1] = 0
    return Planted(Row(pairs, pairs), rate=0.0, excess=0.0)


def constant(rng: np.random.Generator, *, n: int) -> Planted:
    """A rater that always answers the same class."""
    pairs = np.full((n, 2), int(rng.integers(1, N_CLASSES + 1)))
    return Planted(Row(pairs, pairs), rate=0.0, excess=0.0)


def copied(rng: np.random.Generator, *, n: int, copies: int) -> Planted:
    """Noise alone, every row several times in the file."""
    chances = slipping(rng.integers(0, N_CLASSES, n), 0.25)
    return Planted(asked(rng, [chances, chances], copies=copies), excess=0.0)


# --- surfaces ---------------------------------------------------------------------------------


def by_core(planted: Planted) -> Verdict:
    """The verdict of the core itself."""
    row = planted.row
    return verdict(
        row.pairs,
        repeats=row.repeats,
        clusters=row.clusters,
        reproducible=row.reproducible,
        gold=row.gold,
        weights=row.weights,
        margin=MARGIN,
        draws=500,
    )


def concluded(
    rng: np.random.Generator,
    *,
    plant: Callable[[np.random.Generator], Planted],
) -> Outcomes:
    """Words, the test and the coverage of one study."""
    planted = plant(rng)
    found = by_core(planted)
    out = {word: float(found.word == word) for word in ("stable", "flips", "unreadable")}
    if found.p is not None:
        out["p < .05"] = float(found.p < 0.05)
    if planted.rate is not None:
        out["rate covered"] = _covers(found.low, planted.rate, found.high)
    if planted.excess is not None and found.excess_high is not None:
        out["excess covered"] = _covers(found.excess_low, planted.excess, found.excess_high)
    if planted.weighted is not None:
        out |= _weighted(found, planted.weighted)
    findings = ("constant answers", "readability differs between views")
    return out | {name: float(found.has(name)) for name in findings}


def _weighted(found: Verdict, truth: float) -> Outcomes:
    """Whether the bounds at production's class frequencies hold, where they are given."""
    upper = found.weighted_upper if found.is_reproducible else found.weighted_excess_upper
    if upper is None:
        return {"weighted given": 0.0}
    out = {"weighted given": 1.0, "weighted bound wrong": float(upper < truth)}
    if not found.is_reproducible:
        return out
    return out | {"weighted covered": _covers(found.weighted_low, truth, found.weighted_high)}


def _covers(low: float | None, truth: float, high: float | None) -> float:
    return float(low is not None and high is not None and low <= truth <= high)


# --- other questions than a verdict -----------------------------------------------------------


def one_pair_each(clusters: npt.ArrayLike, *, seed: int = 0) -> Ints:
    """Rows of one seeded pair per cluster, in order: what an exact binomial may count."""
    ids = np.asarray(clusters)
    order = np.random.default_rng(seed).permutation(len(ids))
    kept = np.unique(ids[order], return_index=True)[1]
    return np.sort(order[kept])


def stopped(
    rng: np.random.Generator,
    *,
    rate: float,
    looks: Sequence[int],
    unread: float = 0.0,
    seeds: int = 1,
) -> Outcomes:
    """A run that looks after every block until it may stop; one pair per item counts."""
    n = looks[-1]
    flips = rng.random((n, seeds)) < rate
    kept = one_pair_each(np.repeat(np.arange(n), seeds), seed=int(rng.integers(1 << 30)))
    read = rng.random(n) >= unread
    k, sizes = np.cumsum(flips.ravel()[kept] & read), np.cumsum(read)
    for last in range(1, len(looks) + 1):
        at = [look - 1 for look in looks[:last]]
        found = watch(k[at].tolist(), sizes[at].tolist(), looks=looks, margin=MARGIN)
        if found.is_final:
            break
    agrees = not (found.word == "below" and found.high > MARGIN) and not (
        found.word == "above" and found.low < MARGIN
    )
    return {
        "below": float(found.word == "below"),
        "above": float(found.word == "above"),
        "lower bound holds": float(found.low <= rate),
        "upper bound holds": float(rate <= found.high),
        "agrees": float(agrees),
        "items": float(looks[found.look]),
    }


def betted(rng: np.random.Generator, *, n: int, share: float) -> Outcomes:
    """A claim on the excess that is looked at after every item."""
    at = rng.integers(0, N_CLASSES, n)
    to = np.where(rng.random(n) < share, (at + 2) % N_CLASSES, at)
    four = [drawn(rng, slipping(x, 0.2)) for x in (at, at, to, to)]
    across = np.mean([four[i] != four[j] for i in (0, 1) for j in (2, 3)], axis=0)
    within = np.mean([four[0] != four[1], four[2] != four[3]], axis=0)
    values = across - within
    return {
        "below": float(mean_evidence(values, MARGIN, "below").max() >= 20),
        "above": float(mean_evidence(values, MARGIN, "above").max() >= 20),
    }


def selected(rng: np.random.Generator, *, n: int, candidates: int, alike: float) -> Outcomes:
    """Candidates that all flip exactly at the limit, alike over items; the best is chosen."""
    common, own = rng.standard_normal((n, 1)), rng.standard_normal((n, candidates))
    hidden = np.sqrt(alike) * common + np.sqrt(1 - alike) * own
    flips = (hidden < special.ndtri(MARGIN)).astype(np.float64)
    found = simultaneous(flips)
    best = found.bounds[int(flips.sum(axis=0).argmin())]
    return {
        "one passes": float(any(one.upper < MARGIN for one in found.bounds)),
        "chosen covered": _covers(best.low, MARGIN, best.high),
    }


def compared(rng: np.random.Generator, *, n: int, chances: Floats) -> Outcomes:
    """Two raters on the same items: gold, first and second answer have these joint chances."""
    picked = rng.choice(chances.size, n, p=chances.ravel())
    gold, *answers = (np.asarray(of) + 1 for of in np.unravel_index(picked, chances.shape))
    alike = rng.random(n)
    sides = [
        _side(gold, answer, alike < rate) for answer, rate in zip(answers, FLIPPING, strict=True)
    ]
    measurer = Measurer("recommended", ["P1"])
    value, influences = combined([measurer.measure(side) for side in sides], [1.0, -1.0])
    low, high = influence_ends(value, influences)
    out: dict[str, float] = {}
    truths = true_differences(chances, measurer.scores)
    for name, truth, ends in zip(measurer.names, truths, zip(low, high, strict=True), strict=True):
        out |= _compared(name, truth, *ends)
    return out


def _side(gold: Ints, answer: Ints, flips: npt.NDArray[np.bool_]) -> MeasuredItems:
    """One rater, which answers another class in the second view where it flips."""
    n, turned = len(gold), np.where(flips, answer % N_CLASSES + 1, answer)
    pairs, usable = np.stack([answer, turned])[None], np.ones((2, n), dtype=np.bool_)
    items = np.arange(n)
    return MeasuredItems(N_CLASSES, items, items, gold, answer, pairs, usable, ("", ""))


def _compared(name: str, truth: float, low: float, high: float) -> Outcomes:
    if np.isnan(low):
        return {f"{name} given": 0.0}
    return {
        f"{name} given": 1.0,
        f"{name} covered": _covers(low - 1e-12, truth, high + 1e-12),
        f"{name} width": high - low,
    }


def true_differences(chances: Floats, names: Sequence[str]) -> Floats:
    """Differences of scores that joint chances of gold and two answers imply, and of flips."""
    tables = np.stack([1e9 * chances.sum(axis=axis) for axis in (2, 1)])
    found = scores(np.concatenate([np.zeros((2, N_CLASSES, 1)), tables], axis=2), names=names)
    gaps = [float(found[name][0] - found[name][1]) for name in names]
    return np.array([*gaps, FLIPPING[0] - FLIPPING[1]])


def errors(
    *, own: float, shared: float, first_only: float = 0.0, step: int | None = None
) -> Floats:
    """Joint chances of gold and two answers: shared errors, the second's own, the first's own.

    Errors go to any class, or by so many classes in either direction.
    """
    joint = np.zeros((N_CLASSES,) * 3)
    for gold in range(N_CLASSES):
        wrong = _wrong(gold, step)
        joint[gold, gold, gold] += (1 - own - shared - first_only) / N_CLASSES
        for to, chance in wrong.items():
            joint[gold, to, to] += shared * chance / N_CLASSES
            joint[gold, gold, to] += own * chance / N_CLASSES
            joint[gold, to, gold] += first_only * chance / N_CLASSES
    return joint


def _wrong(gold: int, step: int | None) -> dict[int, float]:
    if step is None:
        return {to: 1 / (N_CLASSES - 1) for to in range(N_CLASSES) if to != gold}
    ends = [to for to in (gold - step, gold + step) if 0 <= to < N_CLASSES]
    ends = ends or [0 if gold > N_CLASSES // 2 else N_CLASSES - 1]
    return {to: 1 / len(ends) for to in ends}


# --- cells ------------------------------------------------------------------------------------


def cells() -> Iterator[Cell]:
    """All hard cases of the core."""
    yield from _verdict_cells()
    yield from _weight_cells()
    yield from _stop_cells()
    yield from _choice_cells()
    yield from _compare_cells()


def cell(name: str, plant: Callable[..., Planted], limits: dict[str, Limit], **how: object) -> Cell:
    """A case of the verdict."""
    return Cell(f"verdict: {name}", partial(concluded, plant=partial(plant, **how)), limits)


def _weight_cells() -> Iterator[Cell]:
    limits = {"weighted bound wrong": RARE, "weighted covered": COVERS}
    frequencies = {"rare class flips": (0.02, 0.08, 0.9), "common class flips": (0.9, 0.08, 0.02)}
    kinds = ((1, None), (3, None), (1, 0.2))
    for n, (name, weights), (seeds, noise) in product(SIZES, frequencies.items(), kinds):
        noisy = "" if noise is None else f" noise={noise:g}"
        yield cell(
            f"weights, {name}, seeds={seeds}{noisy} n={n}",
            at_frequencies,
            limits if noise is None else {"weighted bound wrong": RARE},
            n=n,
            seeds=seeds,
            rates=(0.3, 0.1, 0.02),
            weights=weights,
            noise=noise,
        )


def _verdict_cells() -> Iterator[Cell]:
    false_alarm = {"flips": RARE, "p < .05": RARE, "excess covered": COVERS}
    for n in SIZES:
        yield cell(f"null noise .25 n={n}", moved, false_alarm, n=n, noise=(0.25, 0.25), share=0.0)
        yield cell(
            f"two classes, null n={n}",
            moved,
            false_alarm,
            n=n,
            noise=(0.25, 0.25),
            share=0.0,
            n_classes=2,
        )
        yield cell(f"copies x5, null n={n}", copied, false_alarm, n=n, copies=5)
        yield cell(f"constant n={n}", constant, {"flips": RARE, "constant answers": COVERS}, n=n)
    for n, power in ((30, 0.25), (100, 0.8), (200, 0.95)):
        found = {"p < .05": Limit(least=power), "excess covered": COVERS}
        yield cell(f"unequal noise .25/0 n={n}", moved, found, n=n, noise=(0.25, 0.0), share=0.15)
        yield cell(f"noise .2/.2 n={n}", moved, found, n=n, noise=(0.2, 0.2), share=0.15)
    at_margin = {"stable": RARE, "excess covered": COVERS}
    for n in SIZES:
        yield cell(
            f"excess at margin n={n}", moved, at_margin, n=n, noise=(0.2, 0.2), share=0.1 / 0.65
        )
        yield cell(f"no noise at margin n={n}", moved, at_margin, n=n, noise=(0.0, 0.0), share=0.1)
        yield cell(f"shift at margin n={n}", leaning, {"stable": RARE}, n=n, lean=0.05)
    for seeds in (1, 3, 5):
        for icc in (0.0, 0.3, 0.9):
            for n in SIZES:
                yield cell(
                    f"seeds={seeds} icc={icc:g} at margin n={n}",
                    flipping,
                    {"stable": RARE, "rate covered": COVERS},
                    n=n,
                    seeds=seeds,
                    rate=MARGIN,
                    icc=icc,
                )
    for n in SIZES:
        covered = {"stable": RARE, "rate covered": COVERS}
        yield cell(f"few always flip, seeds=5 n={n}", always, covered, n=n, seeds=5)
        never = {"flips": Limit(most=0.0), "stable": RARE}
        yield cell(f"faults in one view 16 % n={n}", failing, never, n=n, share=0.2)


def _stop_cells() -> Iterator[Cell]:
    looks = looks_of(50, 200)
    holds = {"lower bound holds": COVERS, "upper bound holds": COVERS, "agrees": Limit(least=1.0)}
    wrong: dict[float, dict[str, Limit]] = {
        0.04: {"below": Limit(least=0.88), "items": Limit(most=125)},
        0.06: {"below": Limit(least=0.5)},
        MARGIN: {"below": RARE, "above": RARE},
        0.2: {"above": Limit(least=0.9)},
    }
    for rate, limits in wrong.items():
        for unread in (0.0, 0.04):
            study = partial(stopped, rate=rate, looks=looks, unread=unread, seeds=3)
            yield Cell(f"stop: rate={rate:g} unread={unread:g}", study, limits | holds)
    for share, limit in ((0.1 / 0.65, RARE), (0.0, Limit())):
        study = partial(betted, n=200, share=share)
        yield Cell(f"stop: on excess={0.65 * share:.2f}", study, {"below": limit, "above": RARE})


def _choice_cells() -> Iterator[Cell]:
    for candidates in (1, 10, 40):
        for n in (60, 200):
            for alike in (0.0, 0.9):
                study = partial(selected, n=n, candidates=candidates, alike=alike)
                limits = {"one passes": RARE, "chosen covered": COVERS}
                yield Cell(f"select: candidates={candidates} alike={alike:g} n={n}", study, limits)


def _compare_cells() -> Iterator[Cell]:
    designs = {
        "rare": errors(own=0.03, shared=0.03, step=1),
        "rare, large": errors(own=0.02, shared=0.03, step=3),
        "rare, across": errors(own=0.02, shared=0.05, step=4),
        "alike": errors(own=0.06, shared=0.3),
        "any class": errors(own=0.08, shared=0.1),
        "both ways": errors(own=0.1, shared=0.2, first_only=0.05, step=1),
        "weak": errors(own=0.2, shared=0.2, first_only=0.2),
    }
    names = Measurer("recommended", ["P1"]).names
    covered = {f"{name} covered": COVERS_SMALL for name in names}
    for design, chances in designs.items():
        for n in SIZES:
            study = partial(compared, n=n, chances=chances)
            yield Cell(f"compare: {design} n={n}", study, covered)
