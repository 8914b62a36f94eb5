"""Plant known values, measure them thousands of times, and count how often the instrument is right.

    python benchmarks/calibration.py [--draws 600] [--write]

Raters are simulated from a population whose true values are computed, not estimated. `--write` puts
the tables into docs/calibration.md. A few minutes on an idle core.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import stats

from flipmeter.measure import abstention_curve, conformal_sets
from flipmeter.measure.aspects.confidence import (
    MISCOVERAGE,
    confidence_estimates,
    vote_probabilities,
)
from flipmeter.measure.aspects.direction import (
    bowker_tests,
    flip_matrices,
    homogeneity_tests,
    moves,
    outcomes,
    signed_ranks,
)
from flipmeter.measure.aspects.excess import excess_estimates
from flipmeter.measure.aspects.severity import severity_estimates
from flipmeter.measure.aspects.slots import slot_estimates
from flipmeter.measure.aspects.worst import cost_matrix, worst_estimates
from flipmeter.measure.effects.measured_items import SCORES, MeasuredItems, Measurer, combined
from flipmeter.measure.estimates.scores import scores
from flipmeter.measure.inference.differences import influence_ends
from flipmeter.measure.inference.sequential.bets import share_evidence
from flipmeter.measure.panel.checked import Booleans, Floats, Ranks
from flipmeter.measure.panel.groups import Estimates, Groups
from flipmeter.measure.statistics.formulas import holm, mcnemar_p
from flipmeter.measure.statistics.multiplicity import benjamini_hochberg

PAGE = Path(__file__).parents[1] / "docs" / "calibration.md"
N_CLASSES, SIZES, DRIFTS = 5, (50, 200), (0.0, 0.1, 0.2, 0.3, 0.4)
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
        """Let half the drift of each view's answers go to its first slot, whatever stands there."""
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
        """Return the chance of every pair of answers under two views."""
        return np.asarray(
            np.einsum("t,ti,tj->ij", self.share, self.chance[first], self.chance[second])
        )

    def confusion(self, view: str) -> Floats:
        """Return the chance of every gold class and answer under a view."""
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
    """Return the true value of every estimator that has an interval."""
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
    """Return the truths of two views; with a huge number of items the coefficients are theirs."""
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
    """Return the truths over all views."""
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


@dataclass
class Cover:
    """How often an interval holds the truth, by the number of items; some have no interval."""

    inside: dict[int, int] = field(default_factory=dict)
    given: dict[int, int] = field(default_factory=dict)
    missing: int = 0
    cells: list[float] = field(default_factory=list)

    def add(self, n_items: int, low: Floats, high: Floats, truth: float | Floats) -> None:
        is_given = ~np.isnan(low)
        inside = is_given & (low <= truth + 1e-9) & (truth <= high + 1e-9)
        self.inside[n_items] = self.inside.get(n_items, 0) + int(inside.sum())
        self.given[n_items] = self.given.get(n_items, 0) + int(is_given.sum())
        self.missing += int((~is_given).sum())
        if is_given.any():
            self.cells.append(float(inside.sum() / is_given.sum()))

    @property
    def n(self) -> int:
        return sum(self.given.values())

    @property
    def share(self) -> float:
        return sum(self.inside.values()) / max(self.n, 1)

    @property
    def error(self) -> float:
        return float(np.sqrt(self.share * (1 - self.share) / max(self.n, 1)))

    def row(self, name: str) -> list[str]:
        by_size = (
            f"{100 * self.inside[size] / max(self.given[size], 1):.1f}" for size in self.inside
        )
        shown = f"{100 * self.share:.1f} ± {100 * self.error:.1f}"
        none = f"{100 * self.missing / max(self.missing + self.n, 1):.1f}"
        return [f"`{name}`", shown, *by_size, f"{100 * min(self.cells):.1f}", none, f"{self.n:,}"]


def measured(sample: Sample) -> dict[str, Estimates]:
    """Measure many studies at once, by the functions that a run is measured with."""
    pair, groups = sample.pair(), sample.groups
    repeated = [np.stack([sample.runs[view, run] for run in (0, 1)], axis=1) for view in VIEWS[:2]]
    table = sample.table()
    costs = cost_matrix(None, N_CLASSES)
    slots = slot_estimates(*pair, sample.gold, N_CLASSES, groups)
    return {
        **excess_estimates(repeated, np.full(groups.n, N_CLASSES), groups),
        **moves(*pair, groups, True, N_CLASSES),
        **outcomes(*pair, sample.gold, groups, N_CLASSES),
        **severity_estimates(np.stack(pair, axis=1), N_CLASSES, groups),
        **{name: one for name, (one, _) in slots.items()},
        **worst_estimates(sample.gold, table, groups, costs),
        **confidence_estimates(sample.gold, table, N_CLASSES, groups),
    }


def area_of(world: World, rng: np.random.Generator) -> float:
    """Return the area under the abstention curve of a million items."""
    sample = Sample.drawn(world, 1_000_000, 1, rng)
    return abstention_curve(sample.gold, sample.table(), N_CLASSES).area


def covers(n_draws: int) -> dict[str, Cover]:
    """Count how often the intervals hold the truth, over sizes and planted drifts."""
    found: dict[str, Cover] = {}
    for drift in DRIFTS:
        world = World.drifting(drift)
        rng = np.random.default_rng([SEED, round(100 * drift)])
        truth = truths(world) | {"abstention_area": area_of(world, rng)}
        for n_items in SIZES:
            estimates = measured(Sample.drawn(world, n_items, n_draws, rng))
            for name, value in truth.items():
                one = estimates[name]
                found.setdefault(name, Cover()).add(n_items, one.low, one.high, value)
    return found


def compared(n_draws: int) -> dict[str, Cover]:
    """Do the same for the difference between two runs on the same items."""
    found: dict[str, Cover] = {}
    for drift in DRIFTS:
        rng = np.random.default_rng([SEED, 7, round(100 * drift)])
        pairs = World.drifting(0.1), World.drifting(drift)
        exact = [_exact(world) for world in pairs]
        for n_items in SIZES:
            measurer = Measurer("recommended", ["P1"])
            ends: dict[str, list[tuple[float, float]]] = {}
            for _ in range(n_draws):
                types = rng.integers(len(pairs[0].share), size=n_items)
                sides = [_side(world, types, rng) for world in pairs]
                value, moved = combined([measurer.measure(side) for side in sides], [-1.0, 1.0])
                low, high = influence_ends(value, moved)
                for name, pair in zip(exact[0], zip(low, high, strict=True), strict=True):
                    ends.setdefault(name, []).append(pair)
            for name, of_draws in ends.items():
                low_high = np.array(of_draws)
                truth = exact[1][name] - exact[0][name]
                cover = found.setdefault(f"compare: {name}", Cover())
                cover.add(n_items, low_high[:, 0], low_high[:, 1], truth)
    return found


def _exact(world: World) -> dict[str, float]:
    counts = 1e9 * world.confusion("base")
    tables = np.concatenate([np.zeros((N_CLASSES, 1)), counts], axis=1)
    known = scores(tables[None], names=SCORES["recommended"])
    flips = 1 - float(np.trace(world.table("base", "reversed")))
    return {**{name: float(of[0]) for name, of in known.items()}, "P1": flips}


def _side(world: World, types: npt.NDArray[np.int64], rng: np.random.Generator) -> MeasuredItems:
    base, turned = (world.answer(types, view, rng) for view in ("base", "reversed"))
    usable = np.ones((2, len(types)), dtype=np.bool_)
    pairs, items = np.stack([base, turned])[None], np.arange(len(types))
    return MeasuredItems(N_CLASSES, items, items, world.gold[types], base, pairs, usable, ("", ""))


# --- false alarms -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Alarm:
    """How often something is claimed that is not true, against how often it may be."""

    name: str
    wrong: float
    limit: float
    n: int
    note: str = ""

    def row(self) -> list[str]:
        error = np.sqrt(self.wrong * (1 - self.wrong) / self.n) if self.n else 0.0
        shown = (
            f"{100 * self.wrong:.2f} ± {100 * error:.2f}" if self.n else f"{100 * self.wrong:.2f}"
        )
        size = f"{self.n:,}" if self.n else "exact"
        return [self.name, shown, f"{100 * self.limit:.0f}", size, self.note]


def tests_of(sample: Sample) -> dict[str, Floats]:
    """Return the p-values of every test in every study, where nothing is there to be found."""
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


def false_alarms(n_draws: int) -> Iterator[Alarm]:
    """Yield how often each test is below 0.05 in a world without an effect."""
    rng, world = np.random.default_rng([SEED, 1]), World.drifting(0.0)
    found: dict[str, list[Floats]] = {}
    for n_items in SIZES:
        for name, p in tests_of(Sample.drawn(world, n_items, n_draws, rng)).items():
            found.setdefault(name, []).append(p)
    for name, of in found.items():
        wrong = [float(np.mean(p < 0.05)) for p in of]
        note = ", ".join(
            f"n = {size}: {100 * each:.2f}" for size, each in zip(SIZES, wrong, strict=True)
        )
        yield Alarm(name, float(np.mean(wrong)), 0.05, len(SIZES) * n_draws, note)


def certificate_errors(n_draws: int) -> Iterator[Alarm]:
    """Yield how often a certificate is given at a rate that is just not below its margin."""
    margins = (0.02, 0.05, 0.1, 0.2)
    wrong = [
        stats.binom.cdf(_most(n, margin), n, margin) for n in (*SIZES, 500) for margin in margins
    ]
    note = f"n = 50, 200, 500; margins 2 to 20 %; worst {100 * max(wrong):.2f}"
    yield Alarm("`certify`, Clopper-Pearson", float(np.mean(wrong)), 0.05, 0, note)
    yield from _sequential(n_draws)


def _most(n: int, margin: float) -> int:
    """Return the most flips with which n items certify a margin, -1 if none."""
    k = np.arange(n + 1)
    return int((stats.binom.cdf(k, n, margin) < 0.05).sum()) - 1


def _sequential(n_draws: int) -> Iterator[Alarm]:
    rng, n_items = np.random.default_rng([SEED, 2]), 500
    n = np.arange(1, n_items + 1)
    below, above = [], []
    for rate in (0.05, 0.1, 0.2):
        k = np.cumsum(rng.random((n_draws, n_items)) < rate, axis=1)
        below.append((share_evidence(k, n, rate, "below") >= 20).any(axis=1).mean())
        above.append((share_evidence(k, n, rate, "above") >= 20).any(axis=1).mean())
    note = f"looked at after every one of {n_items} items; rates 5, 10, 20 %"
    names = ("evidence below, ever", "evidence above, ever")
    for name, wrong in zip(names, (below, above), strict=True):
        yield Alarm(name, float(np.mean(wrong)), 0.05, 3 * n_draws, note)


def families(n_draws: int) -> Iterator[Alarm]:
    """Yield the errors of many claims at once: ten of twenty hypotheses are false."""
    rng = np.random.default_rng([SEED, 3])
    effect = np.repeat([0.0, 3.0], 10)
    p = stats.norm.sf(rng.standard_normal((n_draws, 20)) + effect)
    claimed = np.stack([holm(row) for row in p]) < 0.05
    yield Alarm("Holm, any false claim", float(claimed[:, :10].any(axis=1).mean()), 0.05, n_draws)
    found = np.stack([benjamini_hochberg(row) for row in p]) < 0.05
    share = found[:, :10].sum(axis=1) / np.maximum(found.sum(axis=1), 1)
    yield Alarm("Benjamini-Hochberg, share of false claims", float(share.mean()), 0.05, n_draws)


def set_misses(n_draws: int) -> Iterator[Alarm]:
    """Yield how often an ordinal set misses the truth; calibrated on as many items as tried."""
    rng, missed = np.random.default_rng([SEED, 4]), []
    for drift in DRIFTS:
        sample = Sample.drawn(World.drifting(drift), 100, n_draws // len(DRIFTS), rng)
        p = vote_probabilities(sample.table(), N_CLASSES).reshape(-1, 100, N_CLASSES)
        gold = sample.gold.reshape(-1, 100)
        for chances, truth in zip(p, gold, strict=True):
            sets = conformal_sets(chances[:50], truth[:50], chances[50:])
            missed.append(1 - sets[np.arange(50), truth[50:] - 1].mean())
            assert _is_contiguous(sets)
    error = float(np.std(missed) / np.sqrt(len(missed)))
    note = f"50 items to calibrate, 50 to try; ± {100 * error:.2f} over studies; no set has a gap"
    yield Alarm(
        "ordinal sets, truth missed", float(np.mean(missed)), MISCOVERAGE, len(missed), note
    )


def _is_contiguous(sets: Booleans) -> bool:
    return bool((np.diff(sets.astype(int), axis=1) == 1).sum(axis=1).max() <= 1)


# --- the page ---------------------------------------------------------------------------------

HEAD = """# Calibration

How often the instrument is right where the truth is known. Written by
`python benchmarks/calibration.py --write`; do not edit by hand. What each number means is in
[method.md](method.md).

Simulated raters answer items of five classes. Half of the items are easy, half hard; answers slip
to a neighbouring class. On top of that a share of the answers goes to the first slot, whichever
class stands there: {drifts}. True values are computed from these chances. A study has
{sizes} items; there are {draws:,} studies of each size and planted share, with fixed seeds.
"""
INTERVALS = """
## Intervals

How many of 100 intervals for 95 % hold the truth, over all planted values, with its Monte Carlo
error; by number of items; in the worst combination of size and planted value; and how often there
is no interval, because no item differs or every resample is the same. An interval that is not given
does not count.
"""
OUTSIDE = """
Outside 93 to 97 %: {names}. The intervals of `worst_accuracy` and `spread` are made to hold for the
view that is picked by looking, so they cover more than 95 %. A difference of Spearman's
coefficients hangs on a few items far out, which 50 items may hold or not: every resample gets about
two such items more, as Wilson's interval adds two of either kind to a share. Resamples alone cover
too little where one of two raters goes astray in a few answers and the other never.
"""
ALARMS = """
## False alarms

How often a test is below 0.05 where nothing is there to be found, and how often a certificate is
given where the true rate is just the margin; in %, with its Monte Carlo error. "Exact" numbers are
sums over all outcomes.
"""


def rows_of(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def page(n_draws: int) -> str:
    """Simulate everything, and return the page."""
    found = covers(n_draws) | compared(n_draws)
    sizes = [f"n = {size}" for size in SIZES]
    header = ["estimator", "covers", *sizes, "worst", "none", "studies"]
    alarms = [
        *false_alarms(len(DRIFTS) * n_draws),
        *certificate_errors(len(DRIFTS) * n_draws),
        *families(len(SIZES) * len(DRIFTS) * n_draws),
        *set_misses(len(SIZES) * len(DRIFTS) * n_draws),
    ]
    drifts = ", ".join(f"{50 * drift:.0f} %" for drift in DRIFTS)
    outside = [f"`{name}`" for name, cover in found.items() if not 0.93 <= cover.share <= 0.97]
    shown = HEAD.format(drifts=drifts, sizes=" or ".join(map(str, SIZES)), draws=n_draws)
    return "".join(
        [
            shown,
            INTERVALS + "\n",
            rows_of(header, (cover.row(name) for name, cover in found.items())),
            OUTSIDE.format(names=", ".join(outside) or "none"),
            ALARMS + "\n",
            rows_of(
                ["test or claim", "wrong", "at most", "studies", ""],
                (alarm.row() for alarm in alarms),
            ),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=600, help="studies of each size and drift")
    parser.add_argument("--write", action="store_true", help="write docs/calibration.md")
    options = parser.parse_args()
    text = page(options.draws)
    if options.write:
        # What benchmarks/planted_effects.py wrote at the end of the page stays there.
        _, title, planted = PAGE.read_text(encoding="utf-8").partition("\n## Planted effects\n")
        PAGE.write_text(text + title + planted, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
