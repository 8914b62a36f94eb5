"""Groups -> comparisons: which group of a study is compared with which, in the paper's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from flipmeter.measure.effects.measured_items import MeasuredItems
from flipmeter.measure.panel.frame import Decisions, distinct
from flipmeter.registry import suggestion
from flipmeter.types import Contrast, Mode, Problem

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

    `against` is the rater that is subtracted, mostly the same one. `left_out` names the datasets
    that the level does not change.
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


def comparisons(
    decisions: Decisions, keys: pl.DataFrame, sides: Sequence[MeasuredItems]
) -> list[LevelComparison]:
    """Compare every level with its rater's base, and every rater with the first one."""
    raters, datasets, levels = _seen(decisions)
    places = _places(keys, sides, datasets)
    found = [
        _comparison(
            (*split_level(level), rater, rater), (rater, level), (rater, BASE), places, sides
        )
        for rater in raters
        for level in levels
        if level != BASE and (rater, level) in places
    ]
    first = raters[0]
    found += [
        _comparison(("model", rater, rater, first), (rater, BASE), (first, BASE), places, sides)
        for rater in raters[1:]
        if (rater, BASE) in places
    ]
    if not found:
        raise Problem("only one model at one level: nothing to subtract; add `vary:` or a model")
    return sorted(found, key=lambda one: _order(one, raters))


def transfers(
    decisions: Decisions, keys: pl.DataFrame, sides: Sequence[MeasuredItems], *, reference: str
) -> list[LevelComparison]:
    """Compare every rater with the reference, both at the base and both at each config."""
    raters, datasets, levels = _seen(decisions)
    if reference not in raters:
        raise Problem(f"no model named '{reference}' in this run{suggestion(reference, raters)}")
    if len(raters) == 1:
        raise Problem(f"'{reference}' is the only model of this run; transfer needs another one")
    places = _places(keys, sides, datasets)
    return [
        _comparison(
            (TRANSFER, config or "baseline", rater, reference),
            (rater, level),
            (reference, level),
            places,
            sides,
        )
        for rater in raters
        for level, config in {BASE: "", **configs_among(levels)}.items()
        if rater != reference and (rater, level) in places
    ]


def own_levels(
    decisions: Decisions, keys: pl.DataFrame, sides: Sequence[MeasuredItems]
) -> list[LevelComparison]:
    """Every rater at the base and at every level it was asked at, without a comparison."""
    raters, datasets, levels = _seen(decisions)
    places = _places(keys, sides, datasets)
    found = []
    for rater in raters:
        for level in (level for level in levels if (rater, level) in places):
            factor, value = split_level(level) if level else (BASE, "baseline")
            one = LevelComparison(factor, value, rater, "")
            for (dataset, seed), group in places[rater, level].items():
                one.pairs.setdefault(dataset, []).append((seed, group, group))
            found.append(one)
    return found


def configs_among(levels: Sequence[str]) -> dict[str, str]:
    """The names of configs by level, "A" of "config=A"; a run without any is refused."""
    parts = {level: split_level(level) for level in levels}
    found = {level: name for level, (factor, name) in parts.items() if factor == CONFIG}
    if not found:
        raise Problem("no config was asked in this run; add some to its study, `configs: [A, P1]`")
    return found


def _seen(decisions: Decisions) -> tuple[list[str], list[str], list[str]]:
    """Raters, datasets and levels in the order of the decisions."""
    raters, datasets, levels = (
        [str(value) for (value,) in distinct(decisions, name)]
        for name in ("rater", "dataset", "level")
    )
    return raters, datasets, levels


_Places = Mapping[tuple[str, str], Mapping[tuple[str, int], int]]
"""The groups of each rater and level, by the base's name of the dataset and by seed."""


def _places(keys: pl.DataFrame, sides: Sequence[MeasuredItems], datasets: Sequence[str]) -> _Places:
    at_base = {
        dataset: side.n_classes
        for (_, dataset, level, _), side in zip(keys.iter_rows(), sides, strict=True)
        if level == BASE
    }
    known = {name: at_base[name] for name in datasets if name in at_base}
    places: dict[tuple[str, str], dict[tuple[str, int], int]] = {}
    rows = sorted(enumerate(keys.iter_rows()), key=lambda row: datasets.index(row[1][1]))
    for group, (rater, dataset, level, seed) in rows:
        name = _at_base(dataset, sides[group].n_classes, known)
        places.setdefault((rater, level), {})[name, seed] = group
    return places


def _at_base(dataset: str, n_classes: int, known: Mapping[str, int]) -> str:
    """The original name of a dataset, which merged classes rename: "reviews/3"."""
    if dataset in known:
        return dataset
    whole = dataset.removesuffix(f"/{n_classes}")
    same = [name for name, n in known.items() if name.removesuffix(f"/{n}") == whole]
    return same[0] if same else dataset


def _comparison(
    names: tuple[str, str, str, str],
    level: tuple[str, str],
    base: tuple[str, str],
    places: _Places,
    sides: Sequence[MeasuredItems],
) -> LevelComparison:
    one, against = LevelComparison(*names), places.get(base, {})
    for (dataset, seed), group in places[level].items():
        if (dataset, seed) not in against:
            continue
        other = against[dataset, seed]
        if one.factor == "cardinality" and sides[group].n_classes == sides[other].n_classes:
            one.left_out.extend([dataset] if dataset not in one.left_out else [])
        else:
            one.pairs.setdefault(dataset, []).append((seed, group, other))
    return one


def _order(one: LevelComparison, raters: Sequence[str]) -> tuple[int, int, int]:
    factors, levels = list(TAXONOMY), TAXONOMY.get(one.factor, ())
    return (
        factors.index(one.factor) if one.factor in factors else len(factors),
        raters.index(one.rater),
        levels.index(one.level) if one.level in levels else len(levels),
    )
