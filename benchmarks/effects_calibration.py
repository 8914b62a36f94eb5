"""False positive rates of the tests of effects, by the number of items.

    python benchmarks/effects_calibration.py [--draws 1000] [--items 30 60 200] [--cells 36]

The cells are a fraction of the paper's six prompt factors. An item answers alike in all cells
(a share of the latent variance, as an item that is hard is hard in every cell); shots have a main
effect and nothing else is there. `any` is the whole procedure: whether it finds any of the 15
interactions. Every rate has the standard error of its draws beside it; 5 % is wanted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import special, stats

from flipmeter.design import fractional
from flipmeter.design.coding import Codes, Floats, Term, columns, main_terms
from flipmeter.design.quality import encode
from flipmeter.measure.effects.crossed import Response
from flipmeter.measure.effects.gee import Outcomes, score_test
from flipmeter.measure.effects.interactions import Analysis

LEVELS = {
    "label_format": ["numeric", "letter", "natural_language", "neutral_id"],
    "clarity": ["explicit", "minimal", "ordinal_explicit"],
    "mood": ["imperative", "interrogative", "indicative"],
    "separator": ["colon", "space", "tab"],
    "connector": ["newline", "space", "newline_tab"],
    "shots": ["5", "0", "1", "3"],
}
SIZES = [len(values) for values in LEVELS.values()]
SHOTS = list(LEVELS).index("shots")
TERMS: dict[str, Term] = {
    "mood, 2 df": (2,),
    "label format, 3 df": (0,),
    "mood x separator, 4 df": (2, 3),
    "label format x mood, 6 df": (0, 2),
    "label format x shots, 9 df": (0, SHOTS),
}
ALIKE = 0.4
ALPHA = 0.05
EFFECT = -0.5
"""Log-odds that one shot adds to the base's, so that the null is not the empty model."""


@dataclass(frozen=True)
class Rates:
    """One line: how many items, how common a yes is, and the p-values of every test."""

    n_items: int
    share: float
    p: dict[str, list[float]]

    def text(self, name: str) -> str:
        known = np.array([p for p in self.p[name] if not np.isnan(p)])
        if not len(known):
            return "-"
        rate = float((known < ALPHA).mean())
        error = np.sqrt(rate * (1 - rate) / len(known))
        return f"{100 * rate:.1f} ± {100 * error:.1f}"


def answers(shares: Floats, n_items: int, chance: np.random.Generator) -> Floats:
    own = chance.normal(size=(n_items, 1)) * np.sqrt(ALIKE)
    mixed = own + chance.normal(size=(n_items, len(shares))) * np.sqrt(1 - ALIKE)
    return np.asarray(mixed < stats.norm.ppf(shares), dtype=np.float64)


def calibrate(codes: Codes, n_items: int, share: float, draws: int, whole: int) -> Rates:
    """Draw the null so many times and test every term; the whole procedure less often."""
    chance = np.random.default_rng([n_items, int(1000 * share)])
    shares = special.expit(special.logit(share) + EFFECT * (codes[:, SHOTS] == 2))
    p: dict[str, list[float]] = {name: [] for name in (*TERMS, "any")}
    for draw in range(draws):
        hits = answers(shares, n_items, chance)
        outcomes = Outcomes(hits, np.ones_like(hits), np.zeros(n_items, dtype=np.int64))
        for name, term in TERMS.items():
            p[name].append(_p(outcomes, codes, term))
        if draw < whole:
            p["any"].append(0.0 if _finds_any(outcomes, codes) else 1.0)
    return Rates(n_items, share, p)


def _p(outcomes: Outcomes, codes: Codes, term: Term) -> float:
    others = [other for other in main_terms(SIZES) if other != term]
    known = np.hstack([columns(codes, SIZES, other) for other in others])
    return score_test(outcomes, known, columns(codes, SIZES, term)).p


def _finds_any(outcomes: Outcomes, codes: Codes) -> bool:
    levels = tuple(tuple(values) for values in LEVELS.values())
    response = Response("r", "yes", tuple(LEVELS), levels, codes, outcomes)
    return bool(Analysis(response, "logit").found)


def lines(options: argparse.Namespace, codes: Codes) -> Iterator[Rates]:
    for share in options.shares:
        for n_items in options.items:
            yield calibrate(codes, n_items, share, options.draws, options.whole)


def show(found: Sequence[Rates], n_cells: int, seconds: float) -> None:
    title = f"reported though not there, % ± standard error; {n_cells} cells, {seconds:.0f} s"
    table = Table("share of yes", "items", *TERMS, "any of 15", title=title)
    for one in found:
        cells = (one.text(name) for name in (*TERMS, "any"))
        table.add_row(f"{one.share:.2f}", str(one.n_items), *cells)
    Console(width=150).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--whole", type=int, default=200, help="draws of the whole procedure")
    parser.add_argument("--items", type=int, nargs="+", default=[30, 60, 200])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.6, 0.15, 0.03])
    parser.add_argument("--cells", type=int, default=36)
    options = parser.parse_args()
    codes = encode(LEVELS, fractional(LEVELS, options.cells))
    start = time.perf_counter()
    found = list(lines(options, codes))
    show(found, options.cells, time.perf_counter() - start)


if __name__ == "__main__":
    main()
