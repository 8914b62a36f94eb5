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
    return sorted(found, key=lambda one: _order(one, asked.raters))


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


def _order(one: LevelComparison, raters: Sequence[str]) -> tuple[int, int, int]:
    factors, levels = list(TAXONOMY), TAXONOMY.get(one.factor, ())
    return (
        factors.index(one.factor) if one.factor in factors else len(factors),
        raters.index(one.rater),
        levels.index(one.level) if one.level in levels else len(levels),
    )
