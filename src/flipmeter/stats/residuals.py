"""Decisions -> paired differences: what a level changes, and what a second run does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TypeVar

import numpy as np
import polars as pl

from flipmeter.errors import Problem
from flipmeter.registry import suggestion
from flipmeter.stats.bounds import side_of_zero
from flipmeter.stats.differences import Influences
from flipmeter.stats.formulas import adjusted, mcnemar
from flipmeter.stats.frame import Decisions, any_decimal, any_nominal, distinct, quoted, scanned
from flipmeter.stats.groups import Booleans, Floats, joined
from flipmeter.stats.measured_items import (
    SCORES,
    MeasuredItems,
    Measurer,
    combined,
    in_common,
    merged,
    read_sides,
)
from flipmeter.stats.resampling import (
    MeanCell,
    by_seed,
    fewest,
    over_datasets,
    over_seeds,
    sd_of,
    spread_interval,
)
from flipmeter.stats.scores import MOMENT_SCORES
from flipmeter.types import Contrast, Mode

BASE = ""
JOINT = "joint"
CONFIG = "config"
TRANSFER = "transfer"
TAXONOMY: Mapping[str, tuple[str, ...]] = {
    "label_format": ("letter", "numeric", "natural_language", "neutral_id"),
    "model": (),
    "cardinality": ("5", "3", "2"),
    "shots": ("0", "1", "3", "5"),
    "clarity": ("minimal", "explicit", "ordinal_explicit"),
    "separator": ("colon", "space", "tab"),
    "connector": ("newline", "space", "newline_tab"),
    "mood": ("imperative", "interrogative", "indicative"),
}
"""Factors and levels as the paper lists them; what it does not know comes after."""

CONTRASTS = ("P1", "P2a", "P2b", "P3a", "P3b")

Pair = tuple[int, int, int]
"""A seed, the group at the level and the group at the base."""


@dataclass(frozen=True)
class LevelComparison:
    """A level of a factor against its base: the groups to subtract, by dataset as the base has it.

    `against` is the rater that is subtracted, mostly the same one; "" if nothing is. `left_out`
    names the datasets that the level does not change.
    """

    factor: str
    level: str
    rater: str
    against: str
    pairs: dict[str, list[Pair]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    @property
    def other(self) -> str:
        """The name of the subtrahend, for a note."""
        return "base" if self.against == self.rater else self.against


def paper_contrasts(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """The contrasts of the paper's columns, in its order."""
    known = {contrast.name: contrast for contrast in contrasts}
    return [known[name] for name in CONTRASTS if name in known]


def contrasts_shown(contrasts: Sequence[Contrast], mode: Mode) -> list[Contrast]:
    """The contrasts of a table of residuals: every pair of views, in paper mode the paper's.

    Of rotated options, each rotation with the options as they are: P7:rotated_1 and so on.
    """
    if mode == "paper":
        return paper_contrasts(contrasts)
    return [pair for contrast in contrasts for pair in contrast.pairs]


def split_level(level: str) -> tuple[str, str]:
    """Factor and value of "factor=value"; a level of several factors is `joint`."""
    factor, equals, value = level.partition("=")
    return (factor, value) if equals and "=" not in value else (JOINT, level)


@dataclass(frozen=True)
class StudyGroups:
    """Raters and levels of a study in the order of its decisions, and their groups.

    `places` are the groups of each rater and level, by the base's name of the dataset and by seed;
    `n_classes` the classes of each group.
    """

    raters: list[str]
    levels: list[str]
    places: Mapping[tuple[str, str], Mapping[tuple[str, int], int]]
    n_classes: Sequence[int]

    @classmethod
    def of(
        cls, decisions: Decisions, keys: pl.DataFrame, sides: Sequence[MeasuredItems]
    ) -> StudyGroups:
        raters, datasets, levels = (
            [str(value) for (value,) in distinct(decisions, name)]
            for name in ("rater", "dataset", "level")
        )
        n_classes, rows = [side.n_classes for side in sides], list(keys.iter_rows())
        at_base = {row[1]: n for row, n in zip(rows, n_classes, strict=True) if row[2] == BASE}
        known = {name: at_base[name] for name in datasets if name in at_base}
        places: dict[tuple[str, str], dict[tuple[str, int], int]] = {}
        for group in sorted(range(len(rows)), key=lambda group: datasets.index(rows[group][1])):
            rater, dataset, level, seed = rows[group]
            name = _at_base(dataset, n_classes[group], known)
            places.setdefault((rater, level), {})[name, seed] = group
        return cls(raters, levels, places, n_classes)

    def compare(
        self, factor: str, name: str, level: tuple[str, str], base: tuple[str, str]
    ) -> LevelComparison:
        """A rater at a level against one at another, on the datasets and seeds of both."""
        one, against = LevelComparison(factor, name, level[0], base[0]), self.places.get(base, {})
        for (dataset, seed), group in self.places[level].items():
            other = against.get((dataset, seed))
            if other is None:
                continue
            if factor == "cardinality" and self.n_classes[group] == self.n_classes[other]:
                one.left_out.extend([dataset] if dataset not in one.left_out else [])
            else:
                one.pairs.setdefault(dataset, []).append((seed, group, other))
        return one


def _at_base(dataset: str, n_classes: int, known: Mapping[str, int]) -> str:
    """The original name of a dataset, which merged classes rename: "reviews/3"."""
    if dataset in known:
        return dataset
    whole = dataset.removesuffix(f"/{n_classes}")
    same = [name for name, n in known.items() if name.removesuffix(f"/{n}") == whole]
    return same[0] if same else dataset


def comparisons(asked: StudyGroups) -> list[LevelComparison]:
    """Compare every level with its rater's base, and every rater with the first one."""
    first, *others = asked.raters
    found = [
        asked.compare(*split_level(level), (rater, level), (rater, BASE))
        for rater in asked.raters
        for level in asked.levels
        if level != BASE and (rater, level) in asked.places
    ]
    found += [
        asked.compare("model", rater, (rater, BASE), (first, BASE))
        for rater in others
        if (rater, BASE) in asked.places
    ]
    if not found:
        raise Problem("only one model at one level: nothing to subtract; add `vary:` or a model")
    return sorted(found, key=lambda one: _taxonomy_order(one, asked.raters))


def transfers(asked: StudyGroups, *, reference: str) -> list[LevelComparison]:
    """Compare every rater with the reference, both at the base and both at each config."""
    if reference not in asked.raters:
        known = suggestion(reference, asked.raters)
        raise Problem(f"no model named '{reference}' in this run{known}")
    if len(asked.raters) == 1:
        raise Problem(f"'{reference}' is the only model of this run; transfer needs another one")
    parts = {level: split_level(level) for level in asked.levels}
    configs = {level: name for level, (factor, name) in parts.items() if factor == CONFIG}
    if not configs:
        raise Problem("no config was asked in this run; add some to its study, `configs: [A, P1]`")
    return [
        asked.compare(TRANSFER, config or "baseline", (rater, level), (reference, level))
        for rater in asked.raters
        for level, config in {BASE: "", **configs}.items()
        if rater != reference and (rater, level) in asked.places
    ]


def own_levels(asked: StudyGroups) -> list[LevelComparison]:
    """Every rater at the base and at every level it was asked at, without a comparison."""
    found = []
    for rater in asked.raters:
        for level in (level for level in asked.levels if (rater, level) in asked.places):
            factor, value = split_level(level) if level else (BASE, "baseline")
            one = LevelComparison(factor, value, rater, "")
            for (dataset, seed), group in asked.places[rater, level].items():
                one.pairs.setdefault(dataset, []).append((seed, group, group))
            found.append(one)
    return found


def _taxonomy_order(one: LevelComparison, raters: Sequence[str]) -> tuple[int, int, int]:
    factors, levels = list(TAXONOMY), TAXONOMY.get(one.factor, ())
    return (
        factors.index(one.factor) if one.factor in factors else len(factors),
        raters.index(one.rater),
        levels.index(one.level) if one.level in levels else len(levels),
    )


SCHEMA = {
    "factor": pl.String,
    "level": pl.String,
    "rater": pl.String,
    "dataset": pl.String,
    "metric": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "seed_sd": pl.Float64,
    "dataset_sd": pl.Float64,
    "spread_low": pl.Float64,
    "spread_high": pl.Float64,
    "n_datasets": pl.Int64,
    "n_seeds": pl.Int64,
    "n": pl.Int64,
    "failed": pl.Int64,
    "note": pl.String,
    "mode": pl.String,
    "against": pl.String,
}
MERGED = "by merging"
N = TypeVar("N", float, Floats)
Find = Callable[[StudyGroups], list[LevelComparison]]


def residual(level: N, base: N) -> N:
    """Level minus base, times 100: points."""
    return 100 * (level - base)


def residuals(
    decisions: Decisions, contrasts: Sequence[Contrast], *, mode: Mode = "recommended"
) -> pl.DataFrame:
    """Subtract the base from every level, and the first rater from every other, by metric.

    A row is about one dataset, or about their mean where `dataset` is empty. `paper`: seeds are
    averaged within a dataset, then mean and population SD are taken over datasets, each side on
    its own items. `recommended`: both sides on the items they share, with an interval
    over clusters of items that holds datasets and seeds fixed, and sample SDs; `spread_low` and
    `spread_high` are the t interval over three datasets or more. What is undefined is null, and
    its note says why. `against` is the rater whose numbers are subtracted.
    """
    return _measure_residuals(decisions, contrasts, mode, comparisons)


def transfer(
    decisions: Decisions,
    contrasts: Sequence[Contrast],
    reference: str,
    *,
    mode: Mode = "recommended",
) -> pl.DataFrame:
    """Subtract the reference from every other rater under the same config, as `residuals` does.

    The factor of all rows is `transfer`, the level is the config, and `baseline` the base itself.
    """
    return _measure_residuals(decisions, contrasts, mode, partial(transfers, reference=reference))


def absolutes(
    decisions: Decisions, contrasts: Sequence[Contrast], *, mode: Mode = "recommended"
) -> pl.DataFrame:
    """Every metric of every rater at the base and at each level, with the columns of `residuals`.

    Values are shares and distances, not points, and nothing is subtracted.
    """
    return _measure_residuals(decisions, contrasts, mode, own_levels)


def _measure_residuals(
    decisions: Decisions, contrasts: Sequence[Contrast], mode: Mode, find: Find
) -> pl.DataFrame:
    if mode not in SCORES:
        raise Problem(f"no mode named '{mode}'{suggestion(mode, list(SCORES))}")
    chosen = contrasts_shown(contrasts, mode)
    keys, sides = read_sides(decisions, chosen, mode)
    names = [contrast.name for contrast in chosen]
    measurer = Measurer(mode, names, any_nominal(decisions), any_decimal(decisions))
    return subtract(sides, measurer, find(StudyGroups.of(decisions, keys, sides)))


def subtract(
    sides: Sequence[MeasuredItems], measurer: Measurer, found: Sequence[LevelComparison]
) -> pl.DataFrame:
    """Make the rows of every comparison."""
    maker = _Subtraction(sides, measurer)
    rows = [row for one in found for row in maker.rows(one)]
    table = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    return table.with_columns(pl.col(pl.Float64).fill_nan(None))


@dataclass(frozen=True)
class _Subtraction:
    """Makes the rows of a comparison; the bases of many comparisons are measured once."""

    sides: Sequence[MeasuredItems]
    measurer: Measurer

    @property
    def is_paired(self) -> bool:
        return self.measurer.mode == "recommended"

    def rows(self, one: LevelComparison) -> Iterator[tuple[object, ...]]:
        """Yield the rows of a level; behind those of a cardinality, its coarsening control."""
        note = f"left out, already at this level: {', '.join(one.left_out)}" if one.left_out else ""
        yield from self._table(one, one.level, note)
        if one.factor == "cardinality":
            about = "control: the base's own answers, merged; no call is made"
            yield from self._table(one, f"{one.level} {MERGED}", about, is_control=True)

    # --- one dataset and seed -----------------------------------------------------------------

    def _cell(self, one: LevelComparison, level: int, base: int, is_control: bool) -> MeanCell:
        """Metrics of a level, or of the base's answers merged like it, minus those of the base."""
        here, there = self.sides[level], self.sides[base]
        if not one.against:
            found = self.measurer.measure(here)
            influences = combined([found], [1.0])[1] if self.is_paired else None
            return self._noted({"": (here, found.value)}, found.value, influences, here.read)
        if is_control:
            coarse = merged(there, here)
            if coarse is None:
                return self._empty("merging the base's classes does not give the level's")
            if self.is_paired:
                coarse, there = (side.only(here.items) for side in (coarse, there))
            here = coarse
        has_common, note, read = False, "", here.read
        if self.is_paired:
            common = in_common(here, there)
            n, full = len(common[0].items), max(len(here.items), len(there.items))
            has_common = n > 0
            note = f"on the {n} items in common" if n < full else ""
            if has_common:
                here, there = common
                read = here.read & there.read
            else:
                note = f"no interval: no item in common with {one.other}"
        at_level, at_base = self.measurer.measure(here), self.measurer.remember(there, base)
        value, influences = residual(at_level.value, at_base.value), None
        if has_common:
            value, influences = combined([at_level, at_base], [100.0, -100.0])
        sides = {"": (here, at_level.value), f"{one.other}: ": (there, at_base.value)}
        return self._noted(sides, value, influences, read, note)

    def _noted(
        self,
        sides: Mapping[str, tuple[MeasuredItems, Floats]],
        value: Floats,
        influences: Influences | None,
        read: Booleans,
        note: str = "",
    ) -> MeanCell:
        """Counts and notes beside the numbers of some sides, of which the first is the level's."""
        usable, by_metric = sides[""][0].usable, self.measurer.by_metric
        n, failed = by_metric(usable.sum(axis=1)), by_metric((usable & ~read).sum(axis=1))
        return MeanCell(value, n, failed, self.measurer.notes(sides, note), influences)

    def _empty(self, note: str) -> MeanCell:
        size = len(self.measurer.names)
        nothing, none = np.full(size, np.nan), np.zeros(size, dtype=np.int64)
        return MeanCell(nothing, none, none, [note] * size)

    # --- all of them --------------------------------------------------------------------------

    def _table(
        self, one: LevelComparison, level: str, note: str, *, is_control: bool = False
    ) -> Iterator[tuple[object, ...]]:
        """Yield the rows of the mean over datasets, then those of each dataset."""
        cells = {
            dataset: {f"seed {s}": self._cell(one, a, b, is_control) for s, a, b in pairs}
            for dataset, pairs in one.pairs.items()
        }
        if not cells:
            told = note or f"no dataset and seed in common with {one.other}"
            cells, note = {"": {"": self._empty(told)}}, ""
        means = {dataset: over_seeds(of) for dataset, of in cells.items()}
        every = over_datasets({dataset: mean.cell for dataset, mean in means.items()})
        ddof, names = int(self.is_paired), self.measurer.names
        least = fewest([mean.count for mean in means.values()])
        nothing = np.full(len(names), np.nan)
        shown = {"": (every, sd_of(by_seed(cells), ddof), every.sd(ddof), every.count, least)}
        for dataset, mean in means.items() if "" not in means else ():
            n_datasets = np.minimum(mean.count, 1)
            shown[dataset] = mean, mean.sd(ddof), nothing, n_datasets, mean.count
        for dataset, (mean, seed_sd, dataset_sd, n_datasets, n_seeds) in shown.items():
            cell = mean.cell
            numbers = (cell.value, cell.low, cell.high, seed_sd, dataset_sd)
            counts = (n_datasets, n_seeds, cell.n, cell.failed)
            for at in range(len(self.measurer.scores) if is_control else 0, len(names)):
                value, *rest = (float(of[at]) for of in numbers)
                n, *others = (int(of[at]) for of in counts)
                spread = spread_interval(value, rest[-1], n if self.is_paired else 0)
                yield (
                    *(one.factor, level, one.rater, dataset, names[at], value, *rest, *spread),
                    *(n, *others, joined(note, cell.notes[at]), self.measurer.mode, one.against),
                )


Table = TypeVar("Table", pl.DataFrame, pl.LazyFrame)
FIRST, SECOND = "first", "second"
BY_ITEM = "accuracy"
"""The score that McNemar's test can compare item by item, as it can every flip rate."""

ONE = 2
"""One dataset and the mean over it say the same."""


def compare(first: Decisions, second: Decisions, contrasts: Sequence[Contrast]) -> pl.DataFrame:
    """Subtract a run from another, metric by metric, on the items that both have.

    Raters, datasets, levels and seeds are paired by name; where each run has one rater, these are
    paired whatever their names. The interval is over clusters of items (their copies and seeds),
    and holds datasets and seeds fixed. `word` is `higher`, `lower` or `not distinguishable`, by
    that interval. `b` counts the items that only the second run gets right (or flips), `c` those
    that only the first does; McNemar's two-sided mid-p needs one seed and no copies of items,
    which are not independent.
    """
    pairs = [pair for contrast in contrasts for pair in contrast.pairs]
    frames = same_raters(scanned(first).table, scanned(second).table)
    names = [contrast.name for contrast in pairs]
    nominal, decimal = (any(map(of, frames)) for of in (any_nominal, any_decimal))
    tables: list[pl.DataFrame] = []
    counts: dict[tuple[str, str, str], _Counts] = {}
    raters = [{name for (name,) in distinct(frame, "rater")} for frame in frames]
    for rater in sorted(raters[0] & raters[1]):  # one is let go of before the next
        named = (pl.lit(f"{run}/{rater}").alias("rater") for run in (FIRST, SECOND))
        own = [frame.filter(pl.col("rater") == rater) for frame in frames]
        both = pl.concat(one.with_columns(name) for one, name in zip(own, named, strict=True))
        keys, sides = read_sides(both, pairs, "recommended")
        found = _level_comparisons(keys)
        tables.append(subtract(sides, Measurer("recommended", names, nominal, decimal), found))
        counts |= {
            (one.rater, one.level, dataset): _count_discordant(sides, of)
            for one in found
            for dataset, of in {**one.pairs, "": list(chain(*one.pairs.values()))}.items()
        }
    if not counts:
        raise Problem(
            "the runs have no rater, dataset, level and seed in common; there is nothing to pair"
        )
    table = pl.concat(tables).drop("factor", "mode", "against")
    n_datasets = pl.col("dataset").n_unique().over("rater", "level")
    table = table.filter((pl.col("dataset") != "") | (n_datasets > ONE))
    return _test_differences(table, counts, names)


def same_raters(first: Table, second: Table) -> tuple[Table, Table]:
    """Give the only rater of each run one name; otherwise names must meet."""
    names = [[name for (name,) in distinct(frame, "rater")] for frame in (first, second)]
    if set(names[0]) & set(names[1]):
        return first, second
    if [len(own) for own in names] != [1, 1]:
        raise Problem(
            f"the runs share no rater: {quoted(names[0])} and {quoted(names[1])}; give one of them "
            "the same name in both studies"
        )
    name = pl.lit(f"{names[1][0]} - {names[0][0]}").alias("rater")
    return first.with_columns(name), second.with_columns(name)


def _level_comparisons(keys: pl.DataFrame) -> list[LevelComparison]:
    places = {
        (*rater.split("/", 1), *rest): group
        for group, (rater, *rest) in enumerate(keys.iter_rows())
    }
    found: dict[tuple[str, str], LevelComparison] = {}
    for (run, rater, dataset, level, seed), group in places.items():
        other = places.get((FIRST, rater, dataset, level, seed))
        if run == SECOND and other is not None:
            one = found.setdefault((rater, level), LevelComparison("run", level, rater, rater))
            one.pairs.setdefault(dataset, []).append((seed, group, other))
    return list(found.values())


_Counts = tuple[bool, list[tuple[int, int]]]
"""Whether items are independent, and McNemar's b and c of accuracy and of each contrast."""


def _count_discordant(sides: Sequence[MeasuredItems], pairs: Sequence[Pair]) -> _Counts:
    """Count the items that hold in one run only, added up over seeds and datasets."""
    is_independent = len({seed for seed, _, _ in pairs}) == 1
    totals = np.zeros((1 + len(sides[0].pairs), 2), dtype=np.int64)
    for _, second, first in pairs:
        here, there = in_common(sides[second], sides[first])
        usable = here.usable & here.read & there.read
        is_independent &= len(np.unique(here.cluster)) == len(here.cluster)
        marks = [np.concatenate([side.right[None], side.flipped]) for side in (here, there)]
        for place, (only, other) in enumerate(((0, 1), (1, 0))):
            totals[:, place] += (usable & marks[only] & ~marks[other]).sum(axis=1)
    counts = [(int(b), int(c)) for b, c in totals.tolist()]
    return is_independent, counts


def _test_differences(
    table: pl.DataFrame,
    counts: Mapping[tuple[str, str, str], _Counts],
    names: Sequence[str],
) -> pl.DataFrame:
    scores = {*SCORES["recommended"], *MOMENT_SCORES}
    tested = [BY_ITEM, *(name for name in names if name not in scores)]
    rows: list[tuple[int | None, int | None, float | None]] = []
    for row in table.select("rater", "level", "dataset", "metric").iter_rows():
        is_independent, found = counts[row[:3]]
        if row[3] in tested:
            b, c = found[tested.index(row[3])]
            p = mcnemar(b, c, alternative="two-sided") if is_independent else None
            rows.append((b, c, p))
        else:
            rows.append((None, None, None))
    schema = {"b": pl.Int64, "c": pl.Int64, "p": pl.Float64}
    wide = table.hstack(pl.DataFrame(rows, schema=schema, orient="row"))
    wide = wide.with_columns(side_of_zero().alias("word"), is_mean=pl.col("dataset") == "")
    return adjusted(wide, ["metric", "is_mean"]).drop("is_mean")
