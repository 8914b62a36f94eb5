"""Anything array-like -> checked arrays, or a Problem that says what is wrong with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from flipmeter.types import Problem

Ranks = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]


def ranks(values: npt.ArrayLike, what: str = "ranks", n_classes: int | None = None) -> Ranks:
    """Classes 1..M, with 0 for "no class", as whole numbers along one axis."""
    array = _whole(_shaped(values, what, 1), what)
    if array.min() < 0:
        raise Problem(f"{what} contains {array.min()}; classes are 1 to M, and 0 is 'no class'")
    if n_classes is not None and array.max() > n_classes:
        raise Problem(f"{what} contains {array.max()}, but the scale has {n_classes} classes")
    return array


def same_length(**arrays: npt.NDArray[Any]) -> None:
    """Refuse arrays that cannot be paired item by item."""
    sizes = {name: len(array) for name, array in arrays.items()}
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise Problem(f"items are compared one by one, but {shown}; align them by item first")


def booleans(values: npt.ArrayLike, what: str, n_axes: int) -> Booleans:
    """Yes and no (or 1 and 0) as booleans."""
    array = _shaped(values, what, n_axes)
    if array.dtype != np.bool_ and not np.isin(array, (0, 1)).all():
        raise Problem(f"{what} must be true or false for every item; got {_example(array)}")
    return array.astype(np.bool_)


def ratio(part: npt.ArrayLike, whole: npt.ArrayLike) -> Floats:
    """Divide, with NaN where there is nothing to divide by."""
    part, whole = np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64)
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1), np.nan)


def _whole(array: npt.NDArray[Any], what: str) -> Ranks:
    if array.dtype.kind not in "iufb":
        raise Problem(f"{what} must be whole numbers; got {_example(array)}")
    if array.dtype.kind == "f" and not (np.isfinite(array) & (array == np.floor(array))).all():
        raise Problem(f"{what} must be whole numbers, with 0 for 'no class' and never NaN")
    return array.astype(np.int64)


def _shaped(values: npt.ArrayLike, what: str, n_axes: int) -> npt.NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise Problem(f"{what} is ragged: every item needs the same conditions") from error
    if array.size == 0:
        raise Problem(f"{what} is empty; there is nothing to measure")
    if array.ndim != n_axes:
        wanted = "one value per item" if n_axes == 1 else "items x conditions"
        raise Problem(f"{what} must be {wanted}; got an array of shape {array.shape}")
    return array


def _example(array: npt.NDArray[Any]) -> str:
    return f"values such as {array.flat[0]!r}"
