"""Comparisons of items with demonstrations: checked, counted by class, settled as one class each.

An outcome is +1 where the item is higher than the demonstration, -1 where it is lower, and 0 where
they tie, where the two orders of asking disagree, or where the caller counts a lost answer so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from flipmeter.registry import suggestion
from flipmeter.types import Mode, Problem

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
Preference = Literal["lowest", "highest", "central"]


@dataclass(frozen=True, eq=False)
class Aggregated:
    """A class per item, and what must be known about it.

    `tie_decided`: classes were level and a tie rule chose. `last_resort`: that rule had nothing
    left but a convention (the lower class, the upper bin, the vote seen first), so that mirrored
    comparisons need not give the mirrored class. `degenerate`: the strengths that the class rests
    on have no finite estimate.
    """

    ranks: Ints
    tie_decided: Booleans
    last_resort: Booleans
    degenerate: Booleans

    @classmethod
    def of(cls, ranks: Ints) -> Aggregated:
        """Classes that no tie rule had to decide."""
        no = np.zeros(len(ranks), dtype=np.bool_)
        return cls(ranks, no, no, no)

    def at(self, places: Ints) -> Aggregated:
        """The items at these places."""
        return Aggregated(*(of[places] for of in vars(self).values()))


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Outcomes (items x demonstrations) and labels, and wins, ties and losses by class."""

    outcomes: Ints
    labels: Ints
    n_classes: int

    @classmethod
    def of(cls, outcomes: npt.ArrayLike, labels: npt.ArrayLike, n_classes: int) -> Comparisons:
        """Check what a caller gives; one row of outcomes is one item."""
        if n_classes < 2:
            raise Problem(f"n_classes is {n_classes}; a scale has at least two classes")
        shown = _whole(labels, "labels", 1, n_classes)
        if shown.ndim != 1:
            raise Problem(f"labels must be one class per demonstration; got shape {shown.shape}")
        table = np.atleast_2d(_whole(outcomes, "outcomes", -1, 1))
        if table.ndim != 2 or table.shape[1] != len(shown):
            raise Problem(
                f"outcomes must be items x demonstrations with one column for each of the "
                f"{len(shown)} labels; got shape {table.shape}"
            )
        return cls(table, shown, n_classes)

    @cached_property
    def classes(self) -> Ints:
        return np.arange(1, self.n_classes + 1)

    @cached_property
    def sizes(self) -> Ints:
        """Demonstrations of each class."""
        return np.bincount(self.labels, minlength=self.n_classes + 1)[1:]

    @cached_property
    def wins(self) -> Ints:
        """Demonstrations of each class that the item is higher than (items x classes)."""
        return self._counted(self.outcomes == 1)

    @cached_property
    def losses(self) -> Ints:
        return self._counted(self.outcomes == -1)

    @cached_property
    def ties(self) -> Ints:
        return self.sizes - self.wins - self.losses

    @cached_property
    def _shown(self) -> Booleans:
        """Say which demonstration is of which class (demonstrations x classes)."""
        return np.equal(self.labels[:, None], self.classes)

    def _counted(self, chosen: Booleans) -> Ints:
        # numpy multiplies whole numbers without BLAS; these are small, so floats are exact.
        return (chosen.astype(np.float64) @ self._shown).astype(np.int64)


def is_paper(mode: Mode) -> bool:
    """Whether a mode is the paper's; refuse one that does not exist."""
    if mode not in get_args(Mode):
        raise Problem(f"no mode named '{mode}'{suggestion(str(mode), list(get_args(Mode)))}")
    return mode == "paper"


def place(scores: Ints | Floats, cuts: Ints | Floats, prefer: Preference) -> Aggregated:
    """The class between two cuts; a score on a cut belongs to the classes on both sides."""
    low = np.searchsorted(cuts, scores, side="left")
    high = np.searchsorted(cuts, scores, side="right")
    classes = np.arange(len(cuts) + 1)
    return settle((low[:, None] <= classes) & (classes <= high[:, None]), prefer)


def settle(candidates: Booleans, prefer: Preference) -> Aggregated:
    """Choose one class of the candidates (items x classes).

    `central` is the one nearest the middle of the scale, and the lower of two that are as near.
    """
    n_items, n_classes = candidates.shape
    is_tied = candidates.sum(axis=1) > 1
    left = candidates
    if prefer == "central":
        from_middle = np.abs(2 * np.arange(n_classes) - (n_classes - 1))
        distance = np.where(candidates, from_middle, n_classes)
        left = distance == distance.min(axis=1, keepdims=True)
    first = n_classes - 1 - left[:, ::-1].argmax(axis=1) if prefer == "highest" else left.argmax(1)
    return Aggregated(
        ranks=first + 1,
        tie_decided=is_tied,
        last_resort=left.sum(axis=1) > 1,
        degenerate=np.zeros(n_items, dtype=np.bool_),
    )


def _whole(values: npt.ArrayLike, what: str, low: int, high: int) -> Ints:
    try:
        array: npt.NDArray[Any] = np.asarray(values)
    except ValueError as error:
        raise Problem(f"{what} is ragged: every item needs the same demonstrations") from error
    if array.size == 0:
        raise Problem(f"{what} is empty; there is nothing to aggregate")
    if array.dtype.kind not in "iuf":
        raise Problem(f"{what} must be whole numbers; got values such as {array.flat[0]!r}")
    outside = array[~((array >= low) & (array <= high) & (array == np.floor(array)))]
    if outside.size:
        raise Problem(f"{what} must be whole numbers from {low} to {high}; got {outside.flat[0]}")
    return array.astype(np.int64)
