"""Dataset -> Sample: a fixed test set, demonstrations for each seed, fewer classes by merging.

Whatever is to be in random order is sorted by a hash of (purpose, seed, content), see `chance`. The
result is the same on every platform, and neither the order of rows in a file nor their ids matter:

- an item keeps its place in its class when others come or go, so that a smaller test set or fewer
  shots are part of the larger one;
- the test set depends on `test_seed`, never on the demonstrations' seed or number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from flipmeter.chance import draw, shuffled
from flipmeter.data.items import find_repeats
from flipmeter.data.labels import content_digest, content_key, is_blank
from flipmeter.errors import Problem
from flipmeter.registry import suggestion
from flipmeter.types import Dataset, Item, Rank, Scale

Balance = Literal["equal", "proportional"]
BALANCES: tuple[Balance, ...] = ("equal", "proportional")

# A dataset without a pool sets aside this share of each class, up to this number, as its pool.
RESERVED_PERCENT = 40
RESERVED = 25

_Strata = dict[Rank, list[Item]]

ALIKE: Rank = 0
"""The stratum of all items of a dataset that has no labels, or decimal scores for labels."""


@dataclass(frozen=True)
class Sample:
    """The test items and demonstrations. `demos` are in base order, shuffled regardless of class.

    Every prefix of `test` is about as balanced as the whole. `left_out` counts the rows that must
    not be sampled, by reason; `notes` say it in words. `calibration` items are neither tested nor
    shown; they too are shuffled blind to their class. `n_available` is the largest test set that
    could have been drawn.
    """

    test: tuple[Item, ...]
    demos: tuple[Item, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    calibration: tuple[Item, ...] = ()
    n_available: int = 0


def sample(
    dataset: Dataset,
    *,
    test_size: int = 200,
    shots: int = 5,
    seed: int,
    balance: Balance = "equal",
    test_seed: int = 0,
    n_calibration: int = 0,
    needs_pool: bool = True,
) -> Sample:
    """Draw a stratified test set and `shots` demonstrations of each class; of a range, in all.

    `equal` gives each class the same number of test items, `proportional` its share in the test
    set, both by largest remainder. Calibration items come from what the pool has left. Fixed
    demonstrations of a dataset are shown as they are, unless there are 0 shots. A dataset without
    a pool sets items aside for one unless nothing `needs_pool`. Items of a dataset without labels
    are one class, and so are those with decimal scores.
    """
    if test_size < 1:
        raise Problem(f"test_size is {test_size}; use at least 1 item")
    if shots < 0:
        raise Problem(f"shots is {shots}; show 0 or more demonstrations of each class")
    if balance not in BALANCES:
        raise Problem(f"no balance named '{balance}'{suggestion(balance, list(BALANCES))}")
    scale = dataset.task.scale
    is_labelled = any(item.gold for item in dataset.test)
    tested = _Usable("test", dataset.test, needs_class=is_labelled)
    shown = _Usable("pool", dataset.pool, leaks=tested.keys)
    classes = scale.ranks or (ALIKE,)
    strata = _shuffled_strata(tested.items, classes if is_labelled else (ALIKE,), test_seed, "test")
    is_shown_anyway = not is_labelled or dataset.demos is not None
    if dataset.pool:
        pool = _shuffled_strata(shown.items, classes, seed, "demos")
    elif not n_calibration and (is_shown_anyway or not (needs_pool or shots)):
        pool = {rank: [] for rank in classes}
    else:
        strata, pool = _set_aside(strata, shots, seed)
    fixed, shots = dataset.demos if shots else None, 0 if dataset.demos is not None else shots
    if shots and not is_labelled and not dataset.pool:
        raise Problem(
            f"{dataset.name} has no labels, so it has no demonstrations to show; set base: "
            "{shots: 0}, or set a labelled file of demonstrations with `demos:`"
        )
    demos = _draw_demos_by_class(dataset.name, scale, pool, shots)
    aside = {} if dataset.pool else {rank: len(items) for rank, items in pool.items() if items}
    quotas = _quotas(dataset.name, scale, strata, test_size, balance, aside)
    chosen = {rank: strata[rank][: quotas[rank]] for rank in strata}
    return Sample(
        test=tuple(_interleave_classes(chosen, test_seed)),
        demos=fixed
        or tuple(replace(item, role="demo") for item in _shuffle_items(demos, seed, "base order")),
        left_out=dict(sorted((tested.left_out + shown.left_out).items())),
        notes=(*tested.notes(), *shown.notes()),
        calibration=_draw_calibration(dataset.name, pool, shots, n_calibration, seed),
        n_available=largest_test_size({r: len(items) for r, items in strata.items()}, balance),
    )


def _draw_calibration(
    name: str, pool: _Strata, shots: int, n_items: int, seed: int
) -> tuple[Item, ...]:
    left = [item for items in pool.values() for item in items[shots:]]
    if len(left) < n_items:
        raise Problem(
            f"{name} has {len(left)} items that are neither tested nor shown, but calibration "
            f"needs {n_items}; set calibration_size: {len(left)} or lower, show fewer "
            "demonstrations, or give more rows"
        )
    chosen = _shuffle_items(left, seed, "calibration")[:n_items]
    return tuple(replace(item, role="calibration") for item in chosen)


class _Usable:
    """The items of a split that may be sampled, and how many may not, by reason."""

    _WORDS: Mapping[str, str] = {
        "empty": "without text",
        "unlabelled": "without a class",
        "contradictory": "whose text has two different labels",
        "duplicate": "that repeat a text",
        "leak": "whose text is also in the test set",
    }

    def __init__(
        self,
        split: str,
        items: Sequence[Item],
        leaks: Container[bytes] = (),
        *,
        needs_class: bool = True,
    ):
        keys = [content_digest(item) for item in items]
        repeats = find_repeats(items, keys)
        self.split, self.keys = split, {*keys}
        self.items: list[Item] = []
        self.left_out: Counter[str] = Counter()
        for place, (key, item) in enumerate(zip(keys, items, strict=True)):
            reasons = {
                "empty": is_blank(item.text),
                "unlabelled": needs_class and not item.gold,
                "leak": key in leaks,
                repeats.get(place, ("", 0))[0]: True,
            }
            if reason := next(why for why, is_so in reasons.items() if is_so):
                self.left_out[reason] += 1
            else:
                self.items.append(item)

    def notes(self) -> list[str]:
        counts = sorted(self.left_out.items())
        return [f"{self.split}: {n} rows {self._WORDS[why]} are not sampled" for why, n in counts]


def _shuffle_items(items: Sequence[Item], seed: int, purpose: str) -> list[Item]:
    return list(shuffled(items, purpose, seed, name=content_key))


def _shuffled_strata(
    items: Sequence[Item], ranks: Sequence[Rank], seed: int, purpose: str
) -> _Strata:
    """Each class's items in random order."""
    strata: _Strata = {rank: [] for rank in ranks}
    for item in _shuffle_items(items, seed, purpose):
        rank = ALIKE if ALIKE in strata else item.gold or ALIKE
        if rank in strata:
            strata[rank].append(item)
    return strata


def _set_aside(strata: _Strata, shots: int, seed: int) -> tuple[_Strata, _Strata]:
    """Split each class into test items and a pool, which is taken from the end.

    Test items are taken from the front: they are the same for any number of shots.
    """
    test: _Strata = {}
    pool: _Strata = {}
    for rank, items in strata.items():
        reserve = max(shots, min(RESERVED, len(items) * RESERVED_PERCENT // 100))
        cut = max(0, len(items) - reserve)
        test[rank] = items[:cut]
        pool[rank] = _shuffle_items(items[cut:], seed, "demos")
    return test, pool


def _quotas(
    name: str,
    scale: Scale,
    strata: _Strata,
    test_size: int,
    balance: Balance,
    aside: Mapping[Rank, int],
) -> dict[Rank, int]:
    """The number of test items per class; a class with too few is a Problem."""
    have = {rank: len(items) for rank, items in strata.items()}
    if balance == "proportional" or ALIKE in have:
        total = largest_test_size(have, balance)
        if test_size > total:
            kept = f" and {sum(aside.values())} set aside for demonstrations" if aside else ""
            raise Problem(
                f"{name} has {total} items to test{kept}, test_size is {test_size}; use {total} "
                "or fewer"
            )
        return _largest_remainder(test_size, have, have)
    quotas = _largest_remainder(test_size, dict.fromkeys(have, 1), have)
    for rank, quota in quotas.items():
        if have[rank] < quota:
            kept = f" ({aside.get(rank, 0)} more are set aside for demonstrations)" if aside else ""
            largest = largest_test_size(have, "equal")
            take = f"the largest equal test_size is {largest}, or " if largest else ""
            raise Problem(
                f"{name}: class '{scale.name(rank)}' has {have[rank]} items to test{kept} and its "
                f"equal share of test_size {test_size} is {quota}; {take}set balance: "
                "proportional, or add rows of this class"
            )
    return quotas


def largest_test_size(have: Mapping[Rank, int], balance: Balance) -> int:
    """The most test items that classes with so many items give; 0 if equal shares need them all."""
    if balance == "proportional" or ALIKE in have:
        return sum(have.values())
    fewest = min(have.values())
    return fewest * len(have) + sum(count > fewest for count in have.values()) if fewest else 0


def _largest_remainder(
    seats: int, weights: Mapping[Rank, int], have: Mapping[Rank, int]
) -> dict[Rank, int]:
    """Share seats out by weight; those left go to the largest remainders, then larger classes."""
    total = sum(weights.values())
    quotas = {rank: seats * weight // total for rank, weight in weights.items()}
    left = seats - sum(quotas.values())
    order = sorted(weights, key=lambda r: (-(seats * weights[r] % total), -have[r], r))
    for rank in order[:left]:
        quotas[rank] += 1
    return quotas


def _interleave_classes(chosen: _Strata, seed: int) -> list[Item]:
    """Interleave the classes evenly, in a random order inside each round."""
    placed = [
        # (2j + 1) / 2n is the middle of the j-th of n equal parts; floats of small integers are
        # rounded alike on every platform.
        ((2 * place + 1) / (2 * len(items)), draw("test order", seed, content_key(item)), item)
        for items in chosen.values()
        for place, item in enumerate(items)
    ]
    return [item for _, _, item in sorted(placed, key=lambda entry: entry[:2])]


def _draw_demos_by_class(name: str, scale: Scale, pool: _Strata, shots: int) -> list[Item]:
    for rank, items in pool.items():
        if len(items) < shots:
            whose = f"{name}: class '{scale.name(rank)}'" if rank else name
            of_class = " of this class" if rank else ""
            raise Problem(
                f"{whose} has {len(items)} items to show and "
                f"shots {shots} needs {shots}; use fewer shots or add rows{of_class}"
            )
    return [item for items in pool.values() for item in items[:shots]]


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
    pool, test = (_relabel_items(items, merging.ranks) for items in (dataset.pool, dataset.test))
    dropped = len(dataset.pool) + len(dataset.test) - len(pool) - len(test)
    demos = None if dataset.demos is None else _relabel_items(dataset.demos, merging.ranks)
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
    test, demos = (_relabel_items(items, merging.ranks) for items in (drawn.test, drawn.demos))
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
        return _merge_given_groups(scale, n_classes, groups)
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


def _merge_given_groups(scale: Scale, n_classes: int, groups: Groups) -> Merging:
    told = list(groups.values()) if isinstance(groups, Mapping) else list(groups)
    ranks = [[_find_class_rank(scale, one) for one in group] for group in told]
    flat = [rank for group in ranks for rank in group]
    if len(ranks) != n_classes or not all(ranks) or flat != sorted(set(flat)):
        raise Problem(
            f"merge: {told} does not make {n_classes} classes of neighbours; list each class at "
            f"most once, lowest first"
        )
    names = tuple(groups) if isinstance(groups, Mapping) else _merged_labels_of(scale, ranks)
    new = {rank: place for place, group in enumerate(ranks, 1) for rank in group}
    return Merging(names, new, "class in no group")


def _find_class_rank(scale: Scale, one: Rank | str) -> Rank:
    if isinstance(one, int) and one in scale.ranks:
        return one
    if isinstance(one, str) and one in scale.names:
        return scale.names.index(one) + 1
    near = suggestion(str(one), list(scale.names))
    raise Problem(f"merge: no class {one!r}; it is a name or a number from 1 to {len(scale)}{near}")


def _merged_labels_of(scale: Scale, ranks: Sequence[Sequence[Rank]]) -> tuple[str, ...]:
    """Name merged classes: one class keeps its name, the ends are the poles, others are listed."""
    names = [" or ".join(scale.name(rank) for rank in group) for group in ranks]
    for place, pole in ((0, scale.low), (-1, scale.high)):
        if len(ranks[place]) > 1 and pole not in names:
            names[place] = pole
    return tuple(names)


def _relabel_items(items: Sequence[Item], ranks: Mapping[Rank, Rank]) -> tuple[Item, ...]:
    return tuple(
        replace(item, gold=ranks.get(item.gold) if item.gold else None)
        for item in items
        if not item.gold or item.gold in ranks
    )
