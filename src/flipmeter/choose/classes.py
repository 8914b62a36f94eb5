"""Labels of `fit` -> Classes: an ordered scale behind the sorted classes of scikit-learn."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from flipmeter.checks import read_number
from flipmeter.data.labels import ScaleSpec, read_span
from flipmeter.data.tables import declared_order
from flipmeter.errors import BadInput
from flipmeter.registry import suggestion
from flipmeter.types import Item, Rank, Scale, Span

AnyArray = npt.NDArray[Any]
NUMBERS = "biuf"
TWO_CLASSES = 2


@dataclass(frozen=True)
class Classes:
    """The classes, lowest first: the `labels` of `fit`, and the `names` that a prompt has for them.

    `values` is what data and raters write for the classes where a scale maps these to names.
    """

    labels: AnyArray
    names: tuple[str, ...]
    values: tuple[str, ...] = ()

    @classmethod
    def of(cls, scale: Any) -> Classes:
        """The classes of a scale: a list, a mapping of values to names, or an ordered dtype.

        A range of decimal scores (`{"from": 0, "to": 10}`) has none.
        """
        if (span := read_span(scale)) is not None:
            return Scores(np.array([]), (), span=span)
        if isinstance(scale, Mapping):
            values = [*scale]
            return cls(
                np.asarray(values), tuple(map(_title_of, scale.values())), _labels_of(values)
            )
        listed = declared_order(scale)
        labels = as_list(scale, "scale") if listed is None else listed
        if len(labels) < TWO_CLASSES:
            raise BadInput(f"there is one class, {labels}; at least two are needed")
        return cls(np.asarray(labels), _labels_of(labels))

    def __len__(self) -> int:
        return len(self.names)

    @property
    def columns(self) -> npt.NDArray[np.intp]:
        """The rank, from 0, of each class in sorted order: what a column of a matrix is about."""
        return np.argsort(self.labels, kind="stable")

    @property
    def scale(self) -> ScaleSpec:
        """The vocabulary of a task."""
        return self.names

    def stratum(self, item: Item) -> Rank | None:
        """The strata for sampling: items of one class."""
        return item.gold

    def are_same(self, given: Any, gold: Any) -> bool:
        """Whether a prediction is right."""
        return bool(given == gold)

    def rank(self, label: Any) -> Rank:
        """The rank of a label; one that is not on the scale is refused."""
        known = self.labels.tolist()
        if label not in known:
            if _title_of(label) in _labels_of(known):
                raise BadInput(
                    f"the label {label!r} is not on the scale, which has "
                    f"{known[_labels_of(known).index(_title_of(label))]!r}; write both alike, as "
                    "numbers or as text"
                )
            near = suggestion(str(label), [str(one) for one in known])
            raise BadInput(f"the label {label!r} is not on the scale{near}")
        return int(known.index(label)) + 1

    def given(self, ranks: Sequence[Rank], unanswered: Any) -> AnyArray:
        """The labels of some ranks; rank 0 is `unanswered`, which may be a class by its name."""
        if all(ranks):
            return np.asarray(self.labels[np.array(ranks, dtype=np.int64) - 1])
        known = self.labels.tolist()
        if unanswered in self.names and unanswered not in known:
            unanswered = known[self.names.index(unanswered)]
        found = [known[rank - 1] if rank else unanswered for rank in ranks]
        is_alike = _label_kind(np.asarray(unanswered)) == _label_kind(self.labels)
        return np.array(found, dtype=None if is_alike else object)


@dataclass(frozen=True)
class Scores(Classes):
    """Decimal scores: labels and predictions are numbers of a range, and there are no classes."""

    span: Span = field(kw_only=True)

    @property
    def scale(self) -> ScaleSpec:
        return Scale((), "low", "high", span=self.span)

    def stratum(self, item: Item) -> Rank | None:
        return None

    def are_same(self, given: Any, gold: Any) -> bool:
        ranks = [self._known(one) for one in (given, gold)]
        return all(ranks) and abs(ranks[0] - ranks[1]) <= self.span.tolerance

    def rank(self, label: Any) -> Rank:
        rank = self._known(label)
        if not rank:
            ends = f"{self.span.low:g} to {self.span.high:g}"
            raise BadInput(f"the label {label!r} is not a number from {ends}")
        return rank

    def _known(self, label: Any) -> Rank:
        number = read_number(label)
        return 0 if number is None else self.span.rank(number)

    def given(self, ranks: Sequence[Rank], unanswered: Any) -> AnyArray:
        """The scores of some ranks; rank 0 is `unanswered`, or NaN."""
        nothing = math.nan if unanswered is None else unanswered
        return np.array([self.span.score(rank) if rank else nothing for rank in ranks])


def read_classes(scale: Any, y: Any, labels: AnyArray) -> Classes:
    """The classes of `fit`: those of the scale, else the order that `y` declares, else numbers."""
    if scale is None:
        scale = declared_order(y)
    if scale is not None:
        told = Classes.of(scale)
        if isinstance(told, Scores):
            return told
        is_own = {*labels.tolist()} <= {*told.labels.tolist()}
        return told if is_own or labels.dtype.kind not in "iu" else _encode_classes(told, labels)
    found = np.unique(labels)
    if found.dtype.kind not in NUMBERS:
        raise BadInput(
            f"cannot infer the order of the classes {found.tolist()}; pass scale=[...], lowest "
            "first, or labels that know their order (an ordered categorical of pandas, an Enum of "
            "polars)"
        )
    if found.dtype.kind in "iu" and found.tolist() == [*range(len(found))]:
        warnings.warn(
            f"labels 0 to {len(found) - 1} are shown to the model as numbers; if they stand for "
            "names, as where scikit-learn encodes labels (cross_val_predict, VotingClassifier), "
            "pass the scale of the names, such as the dtype of an ordered column; otherwise pass "
            f"scale={found.tolist()}",
            UserWarning,
            stacklevel=3,
        )
    return Classes.of(found.tolist())


def as_labels(y: Any) -> AnyArray:
    """One label for each text; missing ones are refused."""
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise BadInput(f"give one label for each text; got an array of shape {labels.shape}")
    for place, label in enumerate(labels.tolist()):
        # What is missing is not equal to itself: NaN, NaT, NA.
        is_missing = label is None or (label == label) is not True
        if is_missing or (isinstance(label, float) and math.isinf(label)):
            raise BadInput(
                f"label {place} is {label}; give every text a label, or leave the text out"
            )
    return labels


def as_list(values: Any, what: str) -> list[Any]:
    """A parameter that is a list, never a text; None is an empty one."""
    if isinstance(values, str):
        raise BadInput(f"{what} is the text {values!r}; give a list")
    try:
        return [] if values is None else list(values)
    except TypeError:
        raise BadInput(f"{what} is {values!r}; give a list") from None


def _encode_classes(told: Classes, labels: AnyArray) -> Classes:
    """The classes as scikit-learn encodes them: each by its place among the sorted names.

    cross_val_predict, VotingClassifier and StackingClassifier fit on such codes. They count the
    classes of the data: without the highest code, a missing class cannot be noticed.
    """
    codes = np.argsort(told.columns, kind="stable")
    ranks = ", ".join(f"{place}: {name!r}" for place, name in enumerate(told.names))
    way_out = f"if they are ranks, pass scale={{{ranks}}}"
    if labels.min() < 0 or labels.max() != len(told) - 1:
        if {*_labels_of(labels.tolist())} <= {*told.names}:
            told.rank(labels.tolist()[0])
        raise BadInput(
            f"the labels are numbers from {labels.min()} to {labels.max()}, but the scale has "
            f"{len(told)} names; {way_out}; if scikit-learn encoded them, some class has no text"
        )
    if codes.tolist() != sorted(codes.tolist()):
        warnings.warn(
            f"labels 0 to {len(told) - 1} are read as scikit-learn encodes class names, in sorted "
            f"order (0 is {told.names[int(told.columns[0])]!r}); {way_out}",
            UserWarning,
            stacklevel=4,
        )
    return Classes(codes, told.names)


def _labels_of(labels: Sequence[Any]) -> tuple[str, ...]:
    return tuple(map(_title_of, labels))


def _title_of(label: Any) -> str:
    """The name of a class in a prompt: the number 1.0 is 1."""
    return str(int(label) if isinstance(label, float) and label.is_integer() else label)


def _label_kind(labels: AnyArray) -> str:
    """Numbers are of one kind, whatever their size."""
    return NUMBERS if labels.dtype.kind in NUMBERS else labels.dtype.kind
