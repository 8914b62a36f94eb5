"""Interactions: the values are differences of means, tests hold their level, planted terms show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from scipy import stats

from flipmeter.design import Cell, cell_name, factorial
from flipmeter.errors import Problem
from flipmeter.stats.interactions import interactions
from flipmeter.types import Contrast

Floats = npt.NDArray[np.float64]
P1 = Contrast("P1", ("base", "reversed"), probe="label_order")
LEVELS: dict[str, list[Any]] = {
    "label_format": ["numeric", "letter", "neutral_id"],
    "clarity": ["explicit", "minimal"],
    "shots": [5, 1, 3],
}
CELLS = factorial(LEVELS)


def answers(
    shares: Floats, n_items: int, chance: np.random.Generator, alike: float = 0.4
) -> Floats:
    """Draw yes or no of items in cells with these shares; an item answers alike in all cells."""
    own = chance.normal(size=(n_items, 1)) * np.sqrt(alike)
    mixed = own + chance.normal(size=(n_items, len(shares))) * np.sqrt(1 - alike)
    return np.asarray(mixed < stats.norm.ppf(shares), dtype=np.float64)


def shares(start: float, *planted: tuple[float, Mapping[str, Any]]) -> Floats:
    """The share of yes in each cell: that of the base and what is added at some levels."""
    added = [
        sum(size for size, levels in planted if levels.items() <= cell.items()) for cell in CELLS
    ]
    return np.asarray(start + np.array(added), dtype=np.float64)


def decided(
    right: Floats, flipped: Floats | None = None, cells: Sequence[Cell] = CELLS, **key: Any
) -> pl.DataFrame:
    """Write decisions of two classes, gold 1: items x cells that are right, and that flip."""
    base = {name: values[0] for name, values in LEVELS.items()}
    item, cell = (places.ravel() for places in np.indices(right.shape))
    ranks = {"base": 2 - right.ravel().astype(int)}
    if flipped is not None:
        ranks["reversed"] = np.where(flipped.ravel() > 0, 3 - ranks["base"], ranks["base"])
    names = pl.Series([cell_name(base, one) for one in cells])
    shared = {"rater": "r", "dataset": "d", "seed": 0, "repeat": 0, "gold": 1, "n_classes": 2}
    return pl.concat(
        pl.DataFrame(
            {"level": names[cell], "item": [f"i{at}" for at in item], "rank": of, "view": view}
        ).with_columns(**{name: pl.lit(value) for name, value in (shared | key).items()})
        for view, of in ranks.items()
    )


def by_term(table: pl.DataFrame, metric: str = "accuracy") -> dict[str, dict[str, Any]]:
    return {row["term"]: row for row in table.filter(level="", metric=metric).to_dicts()}


def test_two_by_two_is_a_difference_of_differences_with_the_errors_of_its_items() -> None:
    cells = [cell for cell in CELLS if cell["shots"] == 5 and cell["label_format"] != "neutral_id"]
    right = answers(np.array([0.3, 0.5, 0.4, 0.9]), 80, np.random.default_rng(1))
    (row,) = interactions(decided(right, cells=cells), []).filter(level="letter,minimal").to_dicts()
    own = 100 * (right[:, 3] - right[:, 2] - right[:, 1] + right[:, 0])
    assert row["value"] == pytest.approx(own.mean())
    # The textbook's one-sample interval, up to the small-sample factor of the cluster errors.
    half = stats.t.ppf(0.975, 79) * own.std(ddof=1) / np.sqrt(80)
    assert row["high"] - row["value"] == pytest.approx(half, rel=0.02)
    assert (row["n_cells"], row["n_items"], row["n"]) == (4, 80, 320)


@pytest.mark.parametrize("seed", range(3))
def test_a_planted_interaction_is_found_and_nothing_else(seed: int) -> None:
    chance = np.random.default_rng(seed)
    together = shares(0.5, (-0.1, {"shots": 1}), (0.35, {"label_format": "letter", "shots": 3}))
    table = interactions(decided(answers(together, 150, chance)), [])
    found = {term for term, row in by_term(table).items() if row["found_by"] == "holm"}
    assert found == {"label_format:shots"}
    (row,) = table.filter(level="letter,3").to_dicts()
    assert row["low"] < 35 < row["high"]


def test_flips_are_tested_as_accuracy_is() -> None:
    chance = np.random.default_rng(4)
    flips = answers(shares(0.1, (0.5, {"clarity": "minimal", "shots": 1})), 120, chance)
    table = interactions(decided(answers(shares(0.6), 120, chance), flips), [P1])
    assert by_term(table, "P1")["clarity:shots"]["found_by"] == "holm"
    assert {row["found_by"] for row in by_term(table).values()} == {""}


def test_what_is_not_there_is_found_in_about_five_of_a_hundred() -> None:
    chance = np.random.default_rng(7)
    n_draws = 100
    found = 0
    for _ in range(n_draws):
        right = answers(shares(0.4, (0.2, {"shots": 3})), 60, chance)
        found += any(
            row["found_by"] == "holm" for row in by_term(interactions(decided(right), [])).values()
        )
    assert stats.binom.sf(found - 1, n_draws, 0.05) > 0.01


def test_one_factor_at_a_time_has_no_interaction() -> None:
    single = [c for c in CELLS if sum(c[name] != of[0] for name, of in LEVELS.items()) <= 1]
    right = answers(np.full(len(single), 0.5), 40, np.random.default_rng(0))
    assert interactions(decided(right, cells=single), []).is_empty()


def test_levels_that_were_not_asked_together_are_named_and_the_others_by_term() -> None:
    cells = [c for c in CELLS if not (c["label_format"] == "letter" and c["clarity"] == "minimal")]
    right = answers(np.full(len(cells), 0.5), 60, np.random.default_rng(0))
    table = interactions(decided(right, cells=cells), [])
    (gone,) = table.filter(level="letter,minimal").to_dicts()
    assert (gone["value"], gone["note"][:13]) == (None, "not estimable")
    assert by_term(table)["label_format:clarity"]["df"] == 1


def test_few_items_are_said_and_raters_are_adjusted_alone() -> None:
    chance = np.random.default_rng(3)
    few = interactions(decided(answers(shares(0.5), 6, chance)), [])
    assert set(few["note"]) == {"too few items"}
    right = answers(shares(0.5), 60, chance)
    both = pl.concat([decided(right), decided(1 - right, rater="other")])
    alone = interactions(decided(right), [])["p_holm"].to_list()
    assert interactions(both, []).filter(rater="r")["p_holm"].to_list() == alone


def test_seeds_and_datasets_of_an_item_count_as_one_cluster_each() -> None:
    right = answers(shares(0.5), 40, np.random.default_rng(5))
    twice = pl.concat([decided(right), decided(right, seed=1), decided(right, dataset="e")])
    assert set(interactions(twice, [])["n_items"]) == {80}


def test_a_level_that_is_no_cell_is_refused() -> None:
    frame = decided(np.ones((3, 1)), cells=CELLS[:1]).with_columns(level=pl.lit("P1"))
    with pytest.raises(Problem, match="is not a cell of a design"):
        interactions(frame, [])
