"""A panel: the items of every group under every run, and what a contrast finds there.

A group is one rater on one dataset, level and seed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from flipmeter.errors import Problem
from flipmeter.stats.frame import ScaleUnits, differ, quoted
from flipmeter.stats.groups import Booleans, Floats, Groups, Ints, Ranks
from flipmeter.types import LISTLESS, Contrast

Run = tuple[str, int]
"""A view and which repeat of it."""

Column = npt.NDArray[Any]
Hashes = npt.NDArray[np.uint64]
Status = Literal["measured", "by construction", "not identified", "not applicable"]

KEY = ("rater", "dataset", "level", "seed")
ABSENT = -1
UNKNOWN = 0
POLARITY = "by polarity: the question is negated, not the label list reversed"
NOWHERE = "the prompt does not state the meaning of the labels"


@dataclass(frozen=True)
class Laid(Mapping[Run, Column]):
    """A number of every item under every run, kept as small as it fits and given out in full.

    Without a `table` every item has `blank`.
    """

    runs: Mapping[Run, int]
    n_items: int
    kind: type[np.generic]
    blank: float
    table: npt.NDArray[Any] | None = None

    def __getitem__(self, run: Run) -> Column:
        row = self.runs[run]
        if self.table is None:
            return np.full(self.n_items, self.blank, self.kind)
        return np.asarray(self.table[row], dtype=self.kind)

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)


@dataclass(frozen=True)
class Placement:
    """The places of the chosen field and of the right one; 0 for none.

    `n` counts the places of each item, 0 where nothing changes places.
    """

    chosen: Mapping[Run, Ints]
    right: Mapping[Run, Ints]
    n: Ints


@dataclass(frozen=True)
class Panel:
    """Classes and prompts of all items under every run; -1 where an item was not asked.

    An item that two groups share is there twice; `item` numbers them by name, so that both have one
    number; `item_names` has what the numbers stand for. `reference` is the reference view: base, or
    the first of a table without one. `keys` and `n_classes` have one entry per group, in the order
    of the keys, and so have `labels` ("words", "identifiers", "" for not known) and `reproducible`:
    the rater is said to be, and `nominal`: its classes have no order. `gold` is 0 where there is
    none. Prompts are hashes: equal hashes are equal prompts, 0 is none. `probabilities` are those
    of the classes under the base view, null where there are none. The calls are those of single
    decisions and the tokens those of single replies, grouped by `replies`. Items of one `cluster`
    are not independent of each other: copies of a text, or what a study names. `errors` marks what
    was never answered. `label_mass` is the probability that labels have together, NaN if unknown.
    `slots` say where answers stood in what the prompt offered, 0 where that is not known; `places`
    where the fields stood that they chose. `systems` names who wrote the two fields of an item.
    `weights` are the frequencies of the classes in production, `scales` their names and `available`
    the items that could be rated, by dataset.
    `cluster_names` are what the numbers in `cluster` stand for. Runs of an item with one hash in
    `orbits` show the same set of prompts, as the pipeline declares; `declared` has by group and
    view why that is so. `units` are those of decimal scores, by group. `beside` are the views that
    other parts of the same table have.
    """

    keys: pl.DataFrame
    n_classes: Ints
    labels: list[str]
    reproducible: Booleans
    nominal: Booleans
    groups: Groups
    item: Ints
    reference: str
    gold: Ranks
    cluster: Ints
    ranks: Mapping[Run, Ranks]
    errors: Mapping[Run, Booleans]
    label_mass: Mapping[Run, Floats]
    slots: Mapping[Run, Ints]
    places: Placement
    systems: pl.DataFrame
    prompts: Mapping[Run, Hashes]
    units: ScaleUnits
    probabilities: pl.Series
    replies: Groups
    calls: Floats
    completion: Floats
    reasoning: Floats
    weights: Mapping[str, Floats] = field(default_factory=dict)
    scales: Mapping[str, Sequence[str]] = field(default_factory=dict)
    available: Mapping[str, int] = field(default_factory=dict)
    cluster_names: Sequence[str] = ()
    orbits: Mapping[Run, Hashes] = field(default_factory=dict)
    declared: Mapping[tuple[int, str], str] = field(default_factory=dict)
    beside: Collection[str] = ()
    item_names: pl.Series = field(default_factory=lambda: pl.Series(dtype=pl.String))

    @cached_property
    def tolerance(self) -> Ints:
        """Tolerance of each item in ranks, within which answers are the same; 0 for classes."""
        return np.asarray(self.units.tolerance[self.groups.of])

    def is_right(self, ranks: Ranks, items: Booleans | slice = slice(None)) -> Booleans:
        """Mark the answers to some items that are their gold class, or near enough to its score."""
        gold, tolerance = self.gold[items], self.tolerance[items]
        return np.asarray((ranks > 0) & ~differ(ranks, gold, tolerance))

    @cached_property
    def class_sizes(self) -> list[int]:
        """The numbers of classes that groups have; decimal scores have no classes to count."""
        return [int(n) for n in np.unique(self.n_classes[~self.units.decimal])]

    def of_size(self, n_classes: int) -> Booleans:
        """Mark the groups with so many classes."""
        return np.asarray((self.n_classes == n_classes) & ~self.units.decimal)

    @property
    def has_list(self) -> Booleans:
        """Mark the groups whose prompts list labels; others have passages, or yes and no."""
        return np.array([labels not in LISTLESS for labels in self.labels], dtype=np.bool_)

    @property
    def all_views(self) -> tuple[str, ...]:
        """The views of the table that this is a part of, in the order of their names."""
        return tuple(sorted({*self.views, *self.beside}))

    @property
    def views(self) -> list[str]:
        """The views that any group was asked under, by name."""
        return [view for view, repeat in self.ranks if repeat == 0]

    def classes(self, run: Run) -> Ranks:
        """The class of each item under a run, no class for items not asked."""
        return self.ranks[run] if run in self.ranks else np.full(len(self.gold), ABSENT)

    def asked(self, *runs: Run) -> Booleans:
        """Mark the items that were asked in all of these runs."""
        return np.asarray(np.min([self.classes(run) for run in runs], axis=0) != ABSENT)

    def has(self, *runs: Run) -> Booleans:
        """Mark the groups that know all of these runs, though maybe not for the same items."""
        unasked = np.zeros(self.groups.n, dtype=np.bool_)
        return np.asarray(np.all([self._known.get(run, unasked) for run in runs], axis=0))

    @cached_property
    def _known(self) -> dict[Run, Booleans]:
        return {run: self.groups.count(self.asked(run)) > 0 for run in self.ranks}


# --- contrasts --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """The items that a contrast can speak about, as a mask, and each group's status and note.

    `proved` marks the items that a pipeline declares to be the same under all views, and that are.
    """

    items: Booleans
    status: list[Status]
    note: list[str]
    proved: Booleans

    @property
    def measured(self) -> Booleans:
        return np.array([status == "measured" for status in self.status])


def compared(panel: Panel, contrast: Contrast) -> Compared:
    """Find the items asked under all views of a contrast, whose prompts are not all one prompt."""
    if len(contrast.views) < 2:
        raise Problem(f"contrast '{contrast.name}' lists {len(contrast.views)} view; it needs two")
    runs = [(view, 0) for view in contrast.views]
    asked, equal = panel.asked(*runs), _equal_hashes(panel.prompts, runs, len(panel.gold))
    declared = asked & _equal_hashes(panel.orbits, runs, len(panel.gold))
    replies = [panel.classes(run) for run in runs]
    proved = declared & equal & np.all([replies[0] == other for other in replies[1:]], axis=0)
    known = np.stack([panel.has(run) for run in runs], axis=1)
    counts = [
        panel.groups.count(items).tolist() for items in (asked, asked & equal, declared, proved)
    ]
    whys = [
        "; ".join(dict.fromkeys(filter(None, (panel.declared.get(one, "") for one in shown))))
        for shown in ([(at, view) for view in contrast.views] for at in range(panel.groups.n))
    ]
    each_group = zip(known.tolist(), *counts, panel.labels, whys, strict=True)
    found = [_contrast_status(contrast, *each) for each in each_group]
    # What is declared and does not hold is measured, however equal the prompts are.
    broken = np.array([one.is_broken for one in found])[panel.groups.of]
    items = asked & (~equal | (broken & declared))
    return Compared(items, [one.status for one in found], [one.note for one in found], proved)


class _Standing(NamedTuple):
    """The evidence of a group on a contrast; broken is what is declared and does not hold."""

    status: Status
    note: str
    is_broken: bool = False


def _contrast_status(
    contrast: Contrast,
    known: Sequence[bool],
    n_asked: int,
    n_equal: int,
    n_declared: int,
    n_proved: int,
    labels: str,
    why: str,
) -> _Standing:
    if not all(known):
        missing = [
            view for view, is_known in zip(contrast.views, known, strict=True) if not is_known
        ]
        return _Standing("not applicable", f"not applicable: no view {quoted(missing)}")
    if not n_asked:
        return _Standing("not applicable", "not applicable: the views share no item")
    if n_proved == n_asked:
        same = why or "the same set of prompts"
        return _Standing("by construction", f"0 by construction ({same})")
    if n_declared == n_asked:
        note = f"declared invariant ({why}), and {n_asked - n_proved} items are not"
        return _Standing("measured", note, is_broken=True)
    if n_equal == n_asked:
        return _unidentified_status(labels if contrast.reverses_labels else "")
    notes = [POLARITY] if contrast.reverses_labels and labels == "passages" else []
    notes += [f"{n_equal} items left out: their prompts are byte-equal"] if n_equal else []
    return _Standing("measured", "; ".join(notes))


def _unidentified_status(labels: str) -> _Standing:
    """Say what equal prompts mean; where the label list was to be reversed, its labels are known.

    Words keep their meaning in a prompt that does not list them. Identifiers have none there, so
    that neither view can be read.
    """
    if labels == "identifiers":
        return _Standing("not applicable", f"not applicable: {NOWHERE}")
    same = "; equals the noise floor" if labels else ""
    return _Standing("not identified", f"not identified{same}: the prompts are byte-equal")


def _equal_hashes(hashes: Mapping[Run, Hashes], runs: Sequence[Run], n_items: int) -> Booleans:
    """Mark the items whose hashes are known and the same in all runs."""
    nowhere = np.full(n_items, UNKNOWN, dtype=np.uint64)
    found = [hashes.get(run, nowhere) for run in runs]
    same = np.all([other == found[0] for other in found[1:]], axis=0)
    return np.asarray(same & (found[0] != UNKNOWN))


@dataclass(frozen=True)
class Noise:
    """For each group, the view whose two runs give a contrast's noise, "" if there is none.

    `runs` are the classes of all items in the first run and in the second.
    """

    view: list[str]
    runs: tuple[Ranks, Ranks]

    @property
    def known(self) -> Booleans:
        return np.array([view != "" for view in self.view])


def noise_runs(panel: Panel, contrast: Contrast) -> Noise:
    """Find two runs of one view to compare a contrast with: of its own views, else of base.

    A rater said to be reproducible repeats a few items only; where these agree, the run itself
    stands for its repeat, which is noise 0 on every item.
    """
    chosen = np.full(panel.groups.n, "", dtype=object)
    first = second = np.full(len(panel.gold), ABSENT)
    for view in ("base", *reversed(contrast.views)):  # the last one that is repeated stays
        repeated = panel.has((view, 0), (view, 1))
        settled = by_construction(panel, view)
        run, again = panel.classes((view, 0)), panel.classes((view, 1))
        first = np.where(repeated[panel.groups.of], run, first)
        again = np.where(settled[panel.groups.of], run, again)
        second = np.where(repeated[panel.groups.of], again, second)
        chosen[repeated] = view
    return Noise(chosen.tolist(), (first, second))


def by_construction(panel: Panel, view: str) -> Booleans:
    """Mark the groups of declared reproducible raters whose repeats all agreed."""
    if not panel.reproducible.any():
        return panel.reproducible
    both = panel.asked((view, 0), (view, 1))
    moved = both & differ(panel.classes((view, 0)), panel.classes((view, 1)), panel.tolerance)
    agrees = (panel.groups.count(both) > 0) & (panel.groups.count(moved) == 0)
    return np.asarray(agrees & panel.reproducible)


def conditions(panel: Panel, contrast: Contrast, items: Booleans) -> list[Ranks]:
    """The classes of some items under each view of a contrast."""
    return [panel.classes((view, 0))[items] for view in contrast.views]


def shown_once(panel: Panel, contrast: Contrast, repeat: int = 0) -> Ints:
    """Classes of every item under the views of a contrast (items x views), -1 for not asked.

    A view that shows an item as an earlier one does is not asked: three options have three
    rotations. Its answers are no further evidence, and would pass for agreement; where views ask
    one set of prompts by construction, they agree by that, and stay.
    """
    found = np.stack([panel.classes((view, repeat)) for view in contrast.views], axis=1)
    if not contrast.is_open:
        return found
    nothing = np.zeros(len(panel.gold), dtype=np.uint64)
    prompts = [panel.prompts.get((view, 0), nothing) for view in contrast.views]
    proved = compared(panel, contrast).proved
    for at, prompt in enumerate(prompts):
        for earlier in prompts[:at]:
            found[(prompt == earlier) & (prompt != 0) & ~proved, at] = ABSENT
    return found
