"""Dataset -> Dataset: fewer classes by merging neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from flipmeter.types import Dataset, Item, Problem, Rank, Scale


def merge(dataset: Dataset, n_classes: int) -> Dataset:
    """Merge a scale to three classes around its middle, or to two without its middle.

    The classes below the middle become the low pole, those above it the high pole. Items of the
    middle class are left out, and counted, when there are two classes.
    """
    scale = dataset.task.scale
    if n_classes == len(scale):
        return dataset
    names, ranks = _merged(scale, n_classes)
    pool, test = (_relabelled(items, ranks) for items in (dataset.pool, dataset.test))
    dropped = len(dataset.pool) + len(dataset.test) - len(pool) - len(test)
    left_out = dict(dataset.left_out) | ({"middle class": dropped} if dropped else {})
    return replace(
        dataset,
        name=f"{dataset.name}/{n_classes}",
        task=replace(dataset.task, scale=replace(scale, names=names)),
        pool=pool,
        test=test,
        left_out=left_out,
    )


def _merged(scale: Scale, n_classes: int) -> tuple[tuple[str, ...], Mapping[Rank, Rank]]:
    n = len(scale)
    if n_classes not in (2, 3) or n_classes > n or (n_classes == 3 and n % 2 == 0):
        raise Problem(
            f"a scale of {n} classes cannot be merged to {n_classes}; "
            "an odd scale merges to 3 or 2 classes, an even one to 2"
        )
    middle = (n + 1) / 2
    if n_classes == 2:
        ranks = {rank: 1 if rank < middle else 2 for rank in scale.ranks if rank != middle}
        return (scale.low, scale.high), ranks
    ranks = {rank: 1 if rank < middle else 2 if rank == middle else 3 for rank in scale.ranks}
    return (scale.low, scale.name(int(middle)), scale.high), ranks


def _relabelled(items: Sequence[Item], ranks: Mapping[Rank, Rank]) -> tuple[Item, ...]:
    return tuple(
        replace(item, gold=ranks.get(item.gold) if item.gold else None)
        for item in items
        if not item.gold or item.gold in ranks
    )
