"""Verdicts of random tables against their definition; FLIPMETER_TABLES=600 tries more of them."""

from __future__ import annotations

import os
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from flipmeter.stats.conclude import verdict
from flipmeter.stats.verdict import Verdict
from naive_verdict import NOT_ASKED, Naive, Table, naive_verdict

TABLES = int(os.environ.get("FLIPMETER_TABLES", "80"))
LISTED = 2_000
"""Joint assignments that are listed on both sides; with more, p is not compared."""


def random_table(seed: int) -> Table:
    """Few or many rows of two or three views: noise, faults, seeds, repeats and scales vary."""
    rng = np.random.default_rng([20261117, seed])
    n_views = int(rng.choice([2, 2, 2, 3]))
    n_classes = int(rng.integers(2, 6))
    items, seeds = int(rng.choice([3, 5, 8, 14, 40, 90])), int(rng.choice([1, 1, 2, 3]))
    noise, moved, faults = rng.choice([0, 0.1, 0.3]), rng.choice([0, 0.05, 0.2, 0.6]), 0.0
    if rng.random() < 0.4:
        faults = float(rng.choice([0.03, 0.2]))
    at = np.repeat(rng.integers(1, n_classes + 1, items), seeds)[:, None]
    away = np.repeat(rng.random((items, 1)) < moved, seeds, axis=0) * rng.integers(1, n_classes, 1)
    views = at + away * (np.arange(n_views) > 0)
    views = np.repeat(views[:, :, None], 2, axis=2)
    views = np.where(rng.random(views.shape) < noise, rng.integers(1, 9, views.shape), views)
    replies = (views - 1) % n_classes + 1
    replies[rng.random(replies.shape) < faults] = 0
    replies = _as_repeated(rng, replies)
    if n_views > 2 and rng.random() < 0.5:
        replies[rng.random(len(replies)) < 0.3, 2] = NOT_ASKED
    clusters = np.repeat(np.arange(items), seeds)
    nominal = bool(rng.random() < 0.3)
    orders = [rng.permutation(n_classes) + 1 for _ in range(n_views)]
    places = [[order.tolist() for order in orders] for _ in clusters] if nominal else None
    return Table(
        [tuple(map(tuple, block)) for block in replies.tolist()],
        rng.permutation(items)[clusters].tolist(),
        reproducible=bool(rng.random() < 0.2),
        nominal=nominal,
        places=places,
        margin=float(rng.choice([0.05, 0.1, 0.2])),
        alpha=float(rng.choice([0.05, 0.1])),
        limit=float(rng.choice([0.05, 0.15])),
    )


def _as_repeated(rng: np.random.Generator, replies: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Repeat every view, none, the first alone, or single replies."""
    kind = rng.choice(["every", "none", "first", "some"], p=[0.4, 0.25, 0.15, 0.2])
    if kind == "none":
        replies[:, :, 1] = NOT_ASKED
    elif kind == "first":
        replies[:, 1:, 1] = NOT_ASKED
    elif kind == "some":
        replies[:, :, 1] = np.where(
            rng.random(replies.shape[:2]) < 0.5, NOT_ASKED, replies[:, :, 1]
        )
    return replies


def judged(table: Table) -> Verdict:
    replies = np.array(table.blocks)
    return verdict(
        replies[:, :, 0],
        repeats=replies[:, :, 1],
        clusters=table.clusters,
        reproducible=table.reproducible,
        nominal=table.nominal,
        slots=None if table.places is None else np.array(table.places),
        margin=table.margin,
        alpha=table.alpha,
        unreadable_limit=table.limit,
        draws=LISTED,
    )


NUMBERS = ("value", "low", "high", "unreadable", "unreadable_low", "unreadable_high", "noise")
SIZES = ("excess", "excess_upper", "shift_upper")


def as_core(naive: Naive) -> dict[str, float | None]:
    found = {name: getattr(naive, name) for name in (*NUMBERS, *SIZES)}
    return {name: None if x is None or x != x else x for name, x in found.items()}


@cache
def by_definition(seed: int) -> Naive:
    return naive_verdict(random_table(seed), most=LISTED)


@pytest.mark.parametrize("seed", range(TABLES))
def test_a_verdict_is_what_its_definition_says(seed: int) -> None:
    found, naive = judged(random_table(seed)), by_definition(seed)
    seen = {name: getattr(found, name) for name in (*NUMBERS, *SIZES)}
    assert seen == pytest.approx(as_core(naive), abs=1e-9)
    if found.p is not None and naive.p is not None:
        assert found.p == pytest.approx(naive.p)
    if naive.word:
        assert found.word == naive.word


def test_the_tables_reach_every_word_and_most_are_listed() -> None:
    found = [by_definition(seed) for seed in range(TABLES)]
    assert {one.word for one in found} >= {"stable", "flips", "unreadable", "inconclusive"}
    assert np.mean([one.p is not None for one in found]) > 0.5
