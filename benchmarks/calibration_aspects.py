"""Aspects and tests of simulated raters whose true values are computed, over many studies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np
import numpy.typing as npt
from calibration_cells import COVERS_SMALL, RARE, ManyCell
from scipy import stats

from flipmeter.stats.confidence import confidence_estimates
from flipmeter.stats.direction import (
    bowker_tests,
    flip_matrices,
    homogeneity_tests,
    moves,
    outcomes,
    signed_ranks,
)
from flipmeter.stats.excess import excess_estimates
from flipmeter.stats.formulas import benjamini_hochberg, holm, mcnemar_p
from flipmeter.stats.frame import ScaleUnits
from flipmeter.stats.groups import Estimates, Floats, Groups, Ranks, one_group
from flipmeter.stats.preference import slot_estimates
from flipmeter.stats.sequential import share_evidence
from flipmeter.stats.severity import Costs, cost_matrix, severity_estimates, worst_estimates

N_CLASSES, SIZES, DRIFTS = 5, (20, 60, 200), (0.0, 0.1, 0.4)
SLIPS = (0.05, 0.4)
"""Items of every class are easy or hard: how often their answer slips to a neighbour."""

VIEWS = ("base", "reversed", "random")
SEED = 20261116


@dataclass(frozen=True)
class World:
    """Types of items: how frequent, of which class, and the chances of each answer by view."""

    share: Floats
    gold: Ranks
    chance: Mapping[str, Floats]

    @classmethod
    def drifting(cls, drift: float) -> World:
        """Let half the drift of each view's answers go to its first slot, whatever its label."""
        gold = np.repeat(np.arange(1, N_CLASSES + 1), len(SLIPS))
        plain = np.stack([_slipping(slip)[c - 1] for c in range(1, 6) for slip in SLIPS])
        ends = np.eye(N_CLASSES)
        chance = {
            "base": (1 - drift / 2) * plain + drift / 2 * ends[0],
            "reversed": (1 - drift / 2) * plain + drift / 2 * ends[-1],
            "random": plain,
        }
        return cls(np.full(len(gold), 1 / len(gold)), gold, chance)

    def table(self, first: str, second: str) -> Floats:
        """The chance of every pair of answers under two views."""
        return np.asarray(
            np.einsum("t,ti,tj->ij", self.share, self.chance[first], self.chance[second])
        )

    def confusion(self, view: str) -> Floats:
        """The chance of every gold class and answer under a view."""
        known = np.eye(N_CLASSES)[self.gold - 1]
        return np.asarray(np.einsum("t,ti,tj->ij", self.share, known, self.chance[view]))

    def answer(self, types: npt.NDArray[np.int64], view: str, rng: np.random.Generator) -> Ranks:
        """Draw an answer for each item."""
        reached = np.cumsum(self.chance[view], axis=1)[types]
        drawn = 1 + (rng.random(len(types))[:, None] > reached[:, :-1]).sum(axis=1)
        return np.asarray(drawn, dtype=np.int64)


def _slipping(slip: float) -> Floats:
    """Slip to either neighbour, or stay where there is none: no class gains by it."""
    moved = slip / 2 * (np.eye(N_CLASSES, k=1) + np.eye(N_CLASSES, k=-1))
    return np.asarray(moved + np.diag(1 - moved.sum(axis=1)))


@dataclass(frozen=True)
class Sample:
    """Many studies of one size at once: their items, in groups, and the answers by run."""

    world: World
    n_items: int
    groups: Groups
    gold: Ranks
    runs: Mapping[tuple[str, int], Ranks]

    @classmethod
    def drawn(cls, world: World, n_items: int, n_draws: int, rng: np.random.Generator) -> Sample:
        types = rng.choice(len(world.share), n_items * n_draws, p=world.share)
        runs = {(view, run): world.answer(types, view, rng) for view in VIEWS for run in (0, 1)}
        groups = Groups(np.repeat(np.arange(n_draws), n_items), n_draws)
        return cls(world, n_items, groups, world.gold[types], runs)

    def table(self) -> Ranks:
        return np.stack([self.runs[view, 0] for view in VIEWS], axis=1)

    def pair(self) -> tuple[Ranks, Ranks]:
        return self.runs["base", 0], self.runs["reversed", 0]


# --- what is true -----------------------------------------------------------------------------


def truths(world: World) -> dict[str, float]:
    """The true value of every estimator that has an interval."""
    table, places = world.table("base", "reversed"), np.arange(1.0, N_CLASSES + 1)
    step = places[None] - places[:, None]
    base, turned = world.chance["base"], world.chance["reversed"]
    reach = np.cumsum(base, axis=1) - np.cumsum(turned, axis=1)
    noise = 1 - np.mean([world.share @ (of**2).sum(axis=1) for of in (base, turned)])
    across = 1 - float(np.trace(table))
    right = [of[np.arange(len(of)), world.gold - 1] for of in (base, turned)]
    both = (world.share * right[0] * right[1]).sum()
    was, now = (float(world.share @ of) for of in right)
    known = {
        "excess": world.share @ ((base - turned) ** 2).sum(axis=1) / 2,
        "excess_ordinal": world.share @ (reach**2).sum(axis=1),
        "across": across,
        "within": noise,
        "primacy": table[step > 0].sum(),
        "recency": table[step < 0].sum(),
        "preference": table[step < 0].sum() - table[step > 0].sum(),
        "slot_bias": -(table * step).sum() / 2,
        "semantic_bias": world.share @ ((base + turned) @ places / 2 - world.gold),
        "right_to_wrong": was - both,
        "wrong_to_right": now - both,
        "wrong_to_wrong": across - was - now + 2 * both,
        "net": now - was,
    }
    known |= _severity(world) | _worst(world)
    slots = (world.share @ base + (world.share @ turned)[::-1]) / 2
    expected = world.share @ np.eye(N_CLASSES)[world.gold - 1]
    for slot in range(N_CLASSES):
        known[f"slot:{slot + 1}"] = slots[slot]
        known[f"slot_excess:{slot + 1}"] = slots[slot] - (expected + expected[::-1])[slot] / 2
    return {name: float(value) for name, value in known.items()}


def _severity(world: World) -> dict[str, float]:
    """The truths of two views; with a huge number of items the coefficients are theirs."""
    table, places = world.table("base", "reversed"), np.arange(1, N_CLASSES + 1)
    away = np.abs(places[:, None] - places)
    sides = np.sign(places - (N_CLASSES + 1) / 2)
    chance = np.outer(table.sum(axis=1), table.sum(axis=0))
    sizes = (table.sum(axis=0) + table.sum(axis=1)) / 2
    rank = np.cumsum(sizes) - sizes / 2
    apart = (rank[:, None] - rank) ** 2
    return {
        "distance": (table * away).sum() / (N_CLASSES - 1),
        "disagreement": table[away > 0].sum(),
        "far": table[away > 1].sum(),
        "polar": table[np.outer(sides, sides) < 0].sum(),
        "kappa": 1 - table[away > 0].sum() / chance[away > 0].sum(),
        "qwk": 1 - (table * away**2).sum() / (chance * away**2).sum(),
        "alpha": 1 - (table * apart).sum() / (np.outer(sizes, sizes) * apart).sum(),
    }


def _worst(world: World) -> dict[str, float]:
    """The truths over all views."""
    places = np.arange(N_CLASSES)
    away = np.abs(places[:, None] - places)
    right = [world.chance[view][np.arange(len(world.gold)), world.gold - 1] for view in VIEWS]
    accuracy = [float(world.share @ of) for of in right]
    all_right = float(world.share @ np.prod(right, axis=0))
    agree = np.prod([world.chance[view] for view in VIEWS], axis=0).sum(axis=1)
    between = [(world.table(a, b) * away).sum() for a, b in combinations(VIEWS, 2)]
    return {
        "robust_accuracy": all_right,
        "worst_accuracy": min(accuracy),
        "spread": max(accuracy) - min(accuracy),
        "cost": float(np.mean([(world.confusion(view) * away).sum() for view in VIEWS])),
        "instability_cost": float(np.mean(between)),
        "coverage": float(world.share @ agree),
        "selective_accuracy": all_right / float(world.share @ agree),
    }


# --- intervals --------------------------------------------------------------------------------


def measured(sample: Sample) -> dict[str, Estimates]:
    """Measure many studies at once, by the functions that a run is measured with."""
    pair, groups = sample.pair(), sample.groups
    repeated = [np.stack([sample.runs[view, run] for run in (0, 1)], axis=1) for view in VIEWS[:2]]
    table, scale = sample.table(), (np.full(groups.n, N_CLASSES), ScaleUnits([None] * groups.n))
    costs = Costs.of_classes(cost_matrix(None, N_CLASSES))
    slots = slot_estimates(*pair, sample.gold, N_CLASSES, groups)
    return {
        **excess_estimates(repeated, scale[0], groups, scale[1]),
        **moves(*pair, groups, True, *scale),
        **outcomes(*pair, sample.gold, groups, *scale),
        **severity_estimates(np.stack(pair, axis=1), N_CLASSES, groups),
        **{name: one for name, (one, _) in slots.items()},
        **worst_estimates(sample.gold, table, groups, costs),
        **confidence_estimates(sample.gold, table, N_CLASSES, groups),
    }


def area_of(world: World, rng: np.random.Generator) -> float:
    """The area under the abstention curve of a million items."""
    sample = Sample.drawn(world, 1_000_000, 1, rng)
    groups = one_group(len(sample.gold))
    found = confidence_estimates(sample.gold, sample.table(), N_CLASSES, groups)
    return float(found["abstention_area"].value[0])


def covered(
    rng: np.random.Generator, n: int, *, drift: float, n_items: int
) -> dict[str, list[float]]:
    """Whether every interval holds the truth, in so many studies of one size."""
    world = World.drifting(drift)
    truth = truths(world) | {"abstention_area": area_of(world, rng)}
    estimates = measured(Sample.drawn(world, n_items, n, rng))
    found: dict[str, list[float]] = {}
    for name, value in truth.items():
        one = estimates[name]
        given = ~np.isnan(one.low)
        inside = (one.low <= value + 1e-9) & (value <= one.high + 1e-9)
        found[name] = inside[given].astype(float).tolist()
    return {name: values for name, values in found.items() if values}


def interval_cells() -> Iterator[ManyCell]:
    """Every aspect that has an interval, by size and planted drift."""
    names = [*truths(World.drifting(0.0)), "abstention_area"]
    for drift in DRIFTS:
        for n_items in SIZES:
            study = partial(covered, drift=drift, n_items=n_items)
            limits = dict.fromkeys(names, COVERS_SMALL)
            yield ManyCell(f"aspects: {50 * drift:.0f} % to slot 1, n={n_items}", study, limits)


# --- false alarms -----------------------------------------------------------------------------


def tests_of(sample: Sample) -> dict[str, Floats]:
    """The p-values of every test in every study, where nothing is there to be found."""
    first, second = sample.pair()
    again = sample.runs["base", 1]
    tables = flip_matrices(first, second, N_CLASSES, sample.groups).astype(np.float64)
    count = sample.groups.count
    moved, noisy = first != second, first != again
    b, c = count(moved & ~noisy), count(noisy & ~moved)
    was, now = first == sample.gold, second == sample.gold
    up, down = count(second > first), count(second < first)
    slots = slot_estimates(first, second, sample.gold, N_CLASSES, sample.groups)
    return {
        "Bowker": bowker_tests(tables)[2],
        "Stuart-Maxwell": homogeneity_tests(tables)[2],
        "Wilcoxon": signed_ranks(tables)[1],
        "sign test, mid-p": mcnemar_p(up, down, alternative="two-sided"),
        "slot test": slots["slot_test"][0].value,
        "total against noise, mid-p": mcnemar_p(b, c),
        "accuracy of two views or runs, McNemar mid-p": mcnemar_p(
            count(was & ~now), count(now & ~was), alternative="two-sided"
        ),
    }


def false_alarms(rng: np.random.Generator, n: int, *, n_items: int) -> dict[str, list[float]]:
    """Whether each test is below 0.05 in a world without an effect."""
    found = tests_of(Sample.drawn(World.drifting(0.0), n_items, n, rng))
    return {name: (p < 0.05).astype(float).tolist() for name, p in found.items()}


def ever(rng: np.random.Generator, n: int, *, rate: float) -> dict[str, list[float]]:
    """Whether evidence for a side is ever claimed at its margin, after any of 500 items."""
    k = np.cumsum(rng.random((n, 500)) < rate, axis=1)
    sizes = np.arange(1, 501)
    return {
        f"evidence {side}": (share_evidence(k, sizes, rate, side) >= 20)
        .any(axis=1)
        .astype(float)
        .tolist()
        for side in ("below", "above")
    }


def families(rng: np.random.Generator, n: int) -> dict[str, list[float]]:
    """Errors of many claims at once: ten of twenty hypotheses are false."""
    p = stats.norm.sf(rng.standard_normal((n, 20)) + np.repeat([0.0, 3.0], 10))
    claimed = np.stack([holm(row) for row in p]) < 0.05
    found = np.stack([benjamini_hochberg(row) for row in p]) < 0.05
    wrong = found[:, :10].sum(axis=1) / np.maximum(found.sum(axis=1), 1)
    return {
        "Holm, any false claim": claimed[:, :10].any(axis=1).astype(float).tolist(),
        "Benjamini-Hochberg, share of false claims": wrong.tolist(),
    }


def test_cells() -> Iterator[ManyCell]:
    """Every test where nothing is there to be found."""
    for n_items in SIZES:
        names = tests_of(Sample.drawn(World.drifting(0.0), 20, 1, np.random.default_rng(0)))
        study = partial(false_alarms, n_items=n_items)
        yield ManyCell(f"tests: no effect, n={n_items}", study, dict.fromkeys(names, RARE))
    for rate in (0.05, 0.1, 0.2):
        limits = {"evidence below": RARE, "evidence above": RARE}
        yield ManyCell(f"stop: open-ended, rate={rate:g}", partial(ever, rate=rate), limits)
    errors = ("Holm, any false claim", "Benjamini-Hochberg, share of false claims")
    yield ManyCell("tests: ten of twenty true", families, dict.fromkeys(errors, RARE))
