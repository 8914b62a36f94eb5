"""Plant one property in a simulated rater, and count the estimators that report it.

    python benchmarks/planted_effects.py [--seeds 100] [--items 80] [--write]

Every seed is another sample of texts, asked as text under all views twice and, in a factorial of
three prompt factors, under both label orders. An estimator must report the property it is made for
and stay at its nominal rate where that property is not there. `--write` puts the matrix at the end
of docs/calibration.md. About a quarter of an hour on an idle core.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from flipmeter.ask.engine import Engine
from flipmeter.ask.family import World
from flipmeter.ask.names import open_backend
from flipmeter.ask.sim import latents
from flipmeter.ask.store import Store
from flipmeter.design import cell_name, factorial
from flipmeter.prompt.probes import contrasts_of, expand, probes
from flipmeter.run.rate import rate
from flipmeter.run.rows import decision_table
from flipmeter.stats.aspects import measure_aspects
from flipmeter.stats.estimates import measure
from flipmeter.stats.formulas import adjusted, wilson
from flipmeter.stats.interactions import interactions
from flipmeter.stats.judge import certify, read_claim, verdicts
from flipmeter.types import Condition, Contrast, Item, Model, Rater, Scale, Style, Task, View

PAGE = Path(__file__).parents[1] / "docs" / "calibration.md"
TASK = Task(Scale(("awful", "poor", "fair", "good", "superb")))
N_CLASSES = len(TASK.scale)
CONTRASTS = contrasts_of(list(probes))
PAIRS = [contrast for contrast in CONTRASTS if contrast.is_pair]
LEVELS: dict[str, list[Any]] = {
    "label_format": ["numeric", "letter"],
    "mood": ["imperative", "interrogative"],
    "separator": ["colon", "tab"],
}
JOINT = "label_format:separator"
"""The interaction that is planted."""
MARGIN = 0.10


@dataclass(frozen=True)
class Property:
    """A rater by what is planted in it, and the estimators that must report it."""

    name: str
    address: str
    shows: frozenset[str]


LABELS, DEMOS, PLACES = "label order", "demo order", "placement"
AXES: Mapping[str, str] = {LABELS: "label_order", DEMOS: "demo_order", PLACES: "placement"}
TESTS = {
    "total against noise": "total",
    "Bowker": "bowker",
    "Stuart-Maxwell": "stuart_maxwell",
    "Wilcoxon": "wilcoxon",
}
EXCESSES = {"excess": "excess", "excess, ordinal": "excess_ordinal"}
NOISE, SLOT_BIAS, SLOT_TEST = "noise floor", "slot bias", "slot test"
NOT_CERTIFIED = "no certificate P1 < 10 %"
INTERACTION, OTHERS = "planted interaction", "another interaction"


def on(axis: str, *names: str) -> frozenset[str]:
    """Estimators of one axis by their names."""
    return frozenset(f"{name}, {axis}" for name in names)


ORDER = on(LABELS, *TESTS, *EXCESSES) | {SLOT_BIAS, SLOT_TEST, NOT_CERTIFIED}
RECENCY = on(DEMOS, *TESTS, *EXCESSES)
NOISY = frozenset({NOISE, NOT_CERTIFIED})
PROPERTIES = (
    Property("nothing", "sim/honest", frozenset()),
    Property("noise", "sim/noisy?strength=0.8", NOISY),
    Property("slot preference", "sim/first-slot?strength=4", ORDER),
    Property("recency", "sim/recency?strength=4", RECENCY),
    Property("interaction", "sim/joint", frozenset({INTERACTION})),
    Property("slot preference + noise", "sim/first-slot?strength=5&noise=0.8", ORDER | NOISY),
    Property("recency + noise", "sim/recency?strength=5&noise=0.8", RECENCY | NOISY),
    Property("interaction + noise", "sim/joint?noise=0.8", NOISY | frozenset({INTERACTION})),
)


def nominal(estimator: str) -> float:
    """Allowed false positive rate of an estimator, in its family."""
    if estimator in (NOISE, NOT_CERTIFIED):
        return 0.0  # repeats of a rater without noise cannot differ; a rate of 0 is certified
    return 0.025 if estimator.startswith("excess") else 0.05


# --- asking -----------------------------------------------------------------------------------


def conditions(address: str, seed: int, n_items: int) -> list[Condition]:
    """The grid of one study: all views twice at the base, both label orders elsewhere."""
    demos = tuple(
        Item(f"d{k}", {"text": f"demo text {seed}.{k}"}, 1 + (3 * k + seed) % N_CLASSES, "demo")
        for k in range(N_CLASSES)
    )
    items = tuple(
        Item(f"{k}", {"text": f"text {seed}.{k}"}, 1 + k % N_CLASSES) for k in range(n_items)
    )
    base = Rater(Model(address))
    everything = expand(list(probes), N_CLASSES, repeats=2, repeated=["all"])
    label_orders = expand(["label_order"], N_CLASSES)

    def under(views: Iterable[View], style: Style, level: str) -> Iterator[Condition]:
        for view in views:
            rater = replace(base, style=style)
            yield Condition(rater, "planted", TASK, seed, view, demos, items, level)

    grid = [*under(everything, base.style, "")]
    for cell in factorial(LEVELS):
        level = cell_name(vars(base.style), cell)
        if level:
            grid += under(label_orders, replace(base.style, **cell), level)
    return grid


def decisions_of(address: str, seed: int, n_items: int) -> pl.DataFrame:
    """Ask a simulated rater about fresh texts, and return what it decided."""
    grid = conditions(address, seed, n_items)
    known = latents((*grid[0].items, *grid[0].demos), TASK.scale)
    backend = open_backend(grid[0].rater.model, World(known, TASK.scale.names))

    async def ask() -> pl.DataFrame:
        with Store() as store:
            engine = Engine({backend.identity: backend}, store)
            seats = {(grid[0].rater.model, "planted"): backend.identity}
            return pl.concat([decision_table(lot) async for lot in rate(grid, engine, seats)])

    return asyncio.run(ask())


# --- reading ----------------------------------------------------------------------------------

Reported = dict[str, set[int]]
"""By estimator, the seeds in which it reports something."""


def reports(decisions: pl.DataFrame) -> Reported:
    """Reports of every estimator in each study at its nominal level."""
    base = decisions.filter(level="")
    rater = base["rater"][0]
    still = [rater] if "noise" not in rater else []
    found: Reported = {NOISE: _seeds(_noise(base), pl.col("low") > 0)}
    tests = pl.concat([_totals(base, still), _directions(base)])
    for axis, probe in AXES.items():
        names = [contrast.name for contrast in PAIRS if contrast.probe == probe]
        for name, metric in TESTS.items():
            own = tests.filter(pl.col("view").is_in(names), metric=metric)
            found[f"{name}, {axis}"] = _seeds(own, pl.col("p_holm") < 0.05)
        found |= _excesses(base, axis, still)
    aspects = measure_aspects(base, CONTRASTS, ["direction", "slots"])
    bias = aspects["direction"].filter(metric="slot_bias")
    found[SLOT_BIAS] = _seeds(bias, (pl.col("low") > 0) | (pl.col("high") < 0))
    found[SLOT_TEST] = _seeds(aspects["slots"].filter(metric="slot_test"), pl.col("p") < 0.05)
    return found | _uncertified(base) | _crossed(decisions)


def _seeds(table: pl.DataFrame, condition: pl.Expr) -> set[int]:
    return set(table.filter(condition)["seed"])


def _noise(base: pl.DataFrame) -> pl.DataFrame:
    return measure(base, CONTRASTS).filter(metric="noise", policy="complete")


def _in_families(table: pl.DataFrame) -> pl.DataFrame:
    """Adjust each test over the contrasts of a study, as the instrument does for a run."""
    return adjusted(table, ["metric", "seed"]).select("seed", "metric", "view", "p", "p_holm")


def _totals(base: pl.DataFrame, still: Sequence[str]) -> pl.DataFrame:
    seeds = base["seed"].unique().sort()
    judged = pl.concat(
        [verdicts(base.filter(seed=seed), PAIRS, reproducible=still) for seed in seeds]
    )
    # Of a reproducible rater every difference is real.
    settled = pl.when(pl.col("value") > 0).then(0.0).otherwise(1.0)
    return _in_families(
        judged.with_columns(pl.col("p").fill_null(settled)).select(
            pl.col("seeds").list.first().alias("seed"),
            pl.lit("total").alias("metric"),
            pl.col("contrast").alias("view"),
            "p",
        )
    )


def _directions(base: pl.DataFrame) -> pl.DataFrame:
    rows = measure_aspects(base, PAIRS, ["direction"])["direction"]
    return _in_families(rows.filter(pl.col("metric").is_in(list(TESTS.values()))).drop("p_holm"))


def _excesses(base: pl.DataFrame, axis: str, still: Sequence[str]) -> Reported:
    """Read the excess over all views of an axis together."""
    whole = max((c for c in CONTRASTS if c.probe == AXES[axis]), key=lambda c: len(c.views))
    rows = measure_aspects(base, [whole], ["excess"], reproducible=still)["excess"]
    return {
        f"{name}, {axis}": _seeds(rows.filter(metric=metric), pl.col("low") > 0)
        for name, metric in EXCESSES.items()
    }


def _uncertified(base: pl.DataFrame) -> Reported:
    """Test the claim in each study alone: the seeds here are not a family."""
    claim = read_claim(f"P1<{MARGIN}")
    outcomes = {
        int(seed): certify(base.filter(seed=seed), PAIRS, [claim])["outcome"][0]
        for seed in base["seed"].unique()
    }
    return {NOT_CERTIFIED: {seed for seed, outcome in outcomes.items() if outcome != "shown"}}


def _crossed(decisions: pl.DataFrame) -> Reported:
    """Read the factorial of each study: what two factors do to accuracy and to flips."""
    label_order: list[Contrast] = [c for c in PAIRS if c.probe == "label_order"]
    found: Reported = {INTERACTION: set(), OTHERS: set()}
    for seed in decisions["seed"].unique().sort():
        table = interactions(decisions.filter(seed=seed), label_order)
        sure = table.filter(pl.col("level") == "", pl.col("p_holm") < 0.05)["term"].to_list()
        for term in sure:
            kind = INTERACTION if term == JOINT else OTHERS
            found[kind].add(int(seed))
    return found


# --- the matrix -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """Share of studies in which an estimator reports an effect of a rater."""

    k: int
    n: int
    is_planted: bool
    nominal: float

    @property
    def is_right(self) -> bool:
        """Say whether what is planted is mostly found, and what is not stays at its rate."""
        low, _ = wilson(self.k, self.n)
        return self.k > 0.8 * self.n if self.is_planted else bool(low <= self.nominal)

    def __str__(self) -> str:
        low, high = (100 * float(end) for end in wilson(self.k, self.n))
        shown = f"{100 * self.k / self.n:.1f} [{low:.1f}, {high:.1f}]"
        return f"**{shown}**" if self.is_planted else shown


TITLE = "## Planted effects"
Matrix = dict[str, dict[str, Cell]]
"""Cells by estimator and property."""


def matrix(properties: Sequence[Property], n_seeds: int, n_items: int) -> Matrix:
    """Plant each property in so many studies, and count the reports of every estimator."""
    found: Matrix = {}
    for planted in properties:
        seeds = range(n_seeds)
        decisions = pl.concat([decisions_of(planted.address, seed, n_items) for seed in seeds])
        for name, reported in reports(decisions).items():
            cell = Cell(len(reported), n_seeds, name in planted.shows, nominal(name))
            found.setdefault(name, {})[planted.name] = cell
    return found


SECTION = """
Written by `python benchmarks/planted_effects.py --write`: simulated raters with one planted
property each, alone and on top of noise (temperature 0.8), asked as text. {seeds} studies of
{items} items of each, with all views twice, and a factorial of label format, mood and separator
under both label orders. How often each estimator reports something, in %, with its Wilson interval.
What is planted is bold and should be found; the rest should stay at or below "at most". Tests are
adjusted by Holm over the six contrasts of a study (effects: over all tests of a rater); excess and
slot bias are reported where their interval excludes 0. All raters see the same texts, and those
with noise draw alike, so that chance shows in several columns at once.
"""


def section(n_seeds: int, n_items: int, properties: Sequence[Property] = PROPERTIES) -> str:
    """The matrix as a part of a page."""
    found = matrix(properties, n_seeds, n_items)
    header = ["reported", "at most", *(planted.name for planted in properties)]
    lines = [header, ["---"] * len(header)]
    for name, cells in found.items():
        lines.append([name, f"{100 * nominal(name):g}", *map(str, cells.values())])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    wrong = [
        f"{name} of {who} ({cell})"
        for name, cells in found.items()
        for who, cell in cells.items()
        if not cell.is_right
    ]
    said = f"Outside its limit: {'; '.join(wrong)}." if wrong else "All is as it should be."
    return f"\n{TITLE}\n{SECTION.format(seeds=n_seeds, items=n_items)}\n{table}\n\n{said}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="studies of each rater")
    parser.add_argument("--items", type=int, default=80)
    parser.add_argument("--write", action="store_true", help="write docs/calibration.md")
    options = parser.parse_args()
    text = section(options.seeds, options.items)
    if options.write:
        before, _, _ = PAGE.read_text(encoding="utf-8").partition(f"\n{TITLE}\n")
        PAGE.write_text(before + text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
