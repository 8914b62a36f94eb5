"""Groups -> comparisons: which group of a study is held against which, in the paper's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from flipmeter.measure.resample import Side
from flipmeter.types import Contrast

BASE = ""
JOINT = "joint"
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
class Comparison:
    """A level of a factor against its base: the groups to subtract, by dataset as the base has it.

    `left_out` names the datasets that the level does not change.
    """

    factor: str
    level: str
    rater: str
    pairs: dict[str, list[Pair]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def paper_contrasts(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """Return the contrasts that the paper has a column for, in its order."""
    known = {contrast.name: contrast for contrast in contrasts}
    return [known[name] for name in CONTRASTS if name in known]


def split_level(level: str) -> tuple[str, str]:
    """Return factor and value of "factor=value"; a level of several factors is `joint`."""
    factor, equals, value = level.partition("=")
    return (factor, value) if equals and "=" not in value else (JOINT, level)


def comparisons(
    decisions: pl.DataFrame, keys: pl.DataFrame, sides: Sequence[Side]
) -> list[Comparison]:
    """Hold every level against its rater's base, and every rater against the first one."""
    raters, datasets, levels = (
        decisions[name].cast(pl.String).unique(maintain_order=True).to_list()
        for name in ("rater", "dataset", "level")
    )
    places = _places(keys, sides, datasets)
    found = [
        _comparison((*split_level(level), rater), (rater, level), (rater, BASE), places, sides)
        for rater in raters
        for level in levels
        if level != BASE and (rater, level) in places
    ]
    found += [
        _comparison(("model", rater, rater), (rater, BASE), (raters[0], BASE), places, sides)
        for rater in raters[1:]
        if (rater, BASE) in places
    ]
    return sorted(found, key=lambda one: _order(one, raters))


_Places = Mapping[tuple[str, str], Mapping[tuple[str, int], int]]
"""The groups of each rater and level, by the base's name of the dataset and by seed."""


def _places(keys: pl.DataFrame, sides: Sequence[Side], datasets: Sequence[str]) -> _Places:
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
    """Return the name at the base of a dataset, which merging classes renames: "reviews/3"."""
    if dataset in known:
        return dataset
    whole = dataset.removesuffix(f"/{n_classes}")
    same = [name for name, n in known.items() if name.removesuffix(f"/{n}") == whole]
    return same[0] if same else dataset


def _comparison(
    names: tuple[str, str, str],
    level: tuple[str, str],
    base: tuple[str, str],
    places: _Places,
    sides: Sequence[Side],
) -> Comparison:
    one, against = Comparison(*names), places.get(base, {})
    for (dataset, seed), group in places[level].items():
        if (dataset, seed) not in against:
            continue
        other = against[dataset, seed]
        if one.factor == "cardinality" and sides[group].n_classes == sides[other].n_classes:
            one.left_out.extend([dataset] if dataset not in one.left_out else [])
        else:
            one.pairs.setdefault(dataset, []).append((seed, group, other))
    return one


def _order(one: Comparison, raters: Sequence[str]) -> tuple[int, int, int]:
    factors, levels = list(TAXONOMY), TAXONOMY.get(one.factor, ())
    return (
        factors.index(one.factor) if one.factor in factors else len(factors),
        raters.index(one.rater),
        levels.index(one.level) if one.level in levels else len(levels),
    )
