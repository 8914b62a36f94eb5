"""Dataset -> Dataset: fewer classes by merging neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from flipmeter.data.sampling import Sample
from flipmeter.registry import suggestion
from flipmeter.types import Dataset, Item, Problem, Rank, Scale

Groups = Sequence[Sequence[Rank | str]] | Mapping[str, Sequence[Rank | str]]
"""Groups of classes to merge, lowest first, by rank or by name; as a mapping, with names."""


@dataclass(frozen=True)
class Merging:
    """The merged classes, lowest first, and the new rank of each old class that is kept."""

    names: tuple[str, ...]
    ranks: Mapping[Rank, Rank]
    left_out: str = "middle class"


def merge(dataset: Dataset, n_classes: int, groups: Groups | None = None) -> Dataset:
    """Merge a scale to three classes around its middle, to two without its middle, or as told.

    The classes below the middle become the low pole, those above it the high pole. Items of the
    middle class are left out, and counted, when there are two classes; so are those of a class
    that is in no group.
    """
    scale = dataset.task.scale
    if n_classes == len(scale):
        return dataset
    if dataset.task.places is not None:
        raise Problem(
            f"{dataset.name} compares {', '.join(dataset.task.places.fields)}; merging its "
            f"classes "
            "would lose which of them is meant, so leave out cardinality"
        )
    merging = merging_of(scale, n_classes, groups)
    pool, test = (_relabelled(items, merging.ranks) for items in (dataset.pool, dataset.test))
    dropped = len(dataset.pool) + len(dataset.test) - len(pool) - len(test)
    demos = None if dataset.demos is None else _relabelled(dataset.demos, merging.ranks)
    return replace(
        dataset,
        name=f"{dataset.name}/{n_classes}",
        task=replace(dataset.task, scale=replace(scale, names=merging.names)),
        pool=pool,
        test=test,
        demos=demos,
        left_out=dict(dataset.left_out) | ({merging.left_out: dropped} if dropped else {}),
        weights=_merged_weights(dataset, merging),
    )


def _merged_weights(dataset: Dataset, merging: Merging) -> tuple[float, ...]:
    """Frequencies of the merged classes among the items that are kept."""
    if not dataset.weights:
        return ()
    sums = [0.0] * len(merging.names)
    for old, new in merging.ranks.items():
        sums[new - 1] += dataset.weights[old - 1]
    if not sum(sums):
        raise Problem(
            f"weights: all classes of {dataset.name} that remain in {len(sums)} classes have the "
            "weight 0; give one of them a larger weight"
        )
    return tuple(one / sum(sums) for one in sums)


def merge_sample(
    drawn: Sample, scale: Scale, n_classes: int, groups: Groups | None = None
) -> Sample:
    """Relabel a sample of the full scale with fewer classes, without sampling again.

    Five demonstrations of each of five classes become 10, 5 and 10 of three.
    """
    if n_classes == len(scale):
        return drawn
    merging = merging_of(scale, n_classes, groups)
    test, demos = (_relabelled(items, merging.ranks) for items in (drawn.test, drawn.demos))
    dropped = len(drawn.test) - len(test)
    if not dropped:
        return replace(drawn, test=test, demos=demos)
    where = f"{merging.left_out}, of the test set"
    note = (
        f"{n_classes} classes: {dropped} of {len(drawn.test)} test items belong to no merged class"
    )
    left_out = {**drawn.left_out, where: dropped}
    return replace(drawn, test=test, demos=demos, left_out=left_out, notes=(*drawn.notes, note))


def merging_of(scale: Scale, n_classes: int, groups: Groups | None = None) -> Merging:
    """The mapping from a scale to one with fewer classes."""
    if groups is not None:
        return _told(scale, n_classes, groups)
    n = len(scale)
    if n_classes not in (2, 3) or n_classes > n or (n_classes == 3 and n % 2 == 0):
        raise Problem(
            f"a scale of {n} classes cannot be merged to {n_classes}; an odd scale merges to 3 or "
            f"2 classes, an even one to 2; define it with `merge: {{{n_classes}: [[1, 2], …]}}`, "
            "or list its datasets under `only_on`"
        )
    middle = (n + 1) / 2
    if n_classes == 2:
        ranks = {rank: 1 if rank < middle else 2 for rank in scale.ranks if rank != middle}
        return Merging((scale.low, scale.high), ranks)
    ranks = {rank: 1 if rank < middle else 2 if rank == middle else 3 for rank in scale.ranks}
    return Merging((scale.low, scale.name(int(middle)), scale.high), ranks)


def _told(scale: Scale, n_classes: int, groups: Groups) -> Merging:
    told = list(groups.values()) if isinstance(groups, Mapping) else list(groups)
    ranks = [[_rank(scale, one) for one in group] for group in told]
    flat = [rank for group in ranks for rank in group]
    if len(ranks) != n_classes or not all(ranks) or flat != sorted(set(flat)):
        raise Problem(
            f"merge: {told} does not make {n_classes} classes of neighbours; list each class at "
            f"most once, lowest first"
        )
    names = tuple(groups) if isinstance(groups, Mapping) else _names(scale, ranks)
    new = {rank: place for place, group in enumerate(ranks, 1) for rank in group}
    return Merging(names, new, "class in no group")


def _rank(scale: Scale, one: Rank | str) -> Rank:
    if isinstance(one, int) and one in scale.ranks:
        return one
    if isinstance(one, str) and one in scale.names:
        return scale.names.index(one) + 1
    near = suggestion(str(one), list(scale.names))
    raise Problem(f"merge: no class {one!r}; it is a name or a number from 1 to {len(scale)}{near}")


def _names(scale: Scale, ranks: Sequence[Sequence[Rank]]) -> tuple[str, ...]:
    """Name merged classes: one class keeps its name, the ends are the poles, others are listed."""
    names = [" or ".join(scale.name(rank) for rank in group) for group in ranks]
    for place, pole in ((0, scale.low), (-1, scale.high)):
        if len(ranks[place]) > 1 and pole not in names:
            names[place] = pole
    return tuple(names)


def _relabelled(items: Sequence[Item], ranks: Mapping[Rank, Rank]) -> tuple[Item, ...]:
    return tuple(
        replace(item, gold=ranks.get(item.gold) if item.gold else None)
        for item in items
        if not item.gold or item.gold in ranks
    )
