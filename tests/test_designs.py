"""Designs: their laws, what they can tell, and the names of their cells."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flipmeter.design import (
    Cell,
    assess,
    cell_name,
    default_runs,
    factorial,
    fractional,
    is_one_at_a_time,
    levels_of,
    one_at_a_time,
    parse_cell,
)
from flipmeter.design.coding import beyond, contrasts, model_matrix, pair_terms
from flipmeter.types import Problem, Style
from hand_made import PAPER

BASE = {name: values[0] for name, values in PAPER.items()}


def has_meaning(cell: Cell) -> bool:
    """Refuse labels whose meaning is nowhere in the prompt."""
    is_bare = cell["clarity"] == "minimal" and cell["shots"] == 0
    return not is_bare or cell["label_format"] == "natural_language"


def grid(*sizes: int) -> dict[str, list[int]]:
    return {f"f{place}": list(range(size)) for place, size in enumerate(sizes)}


def key(cell: Cell) -> tuple[Any, ...]:
    return tuple(cell.values())


def counts(cells: list[Cell], *factors: str) -> list[int]:
    return list(Counter(tuple(cell[name] for name in factors) for cell in cells).values())


# Laws

LEVELS = st.lists(st.integers(2, 4), min_size=2, max_size=5).map(lambda sizes: grid(*sizes))


@st.composite
def fractions(draw: st.DrawFn) -> tuple[dict[str, list[int]], int, int]:
    levels = draw(LEVELS)
    n_all = math.prod(len(values) for values in levels.values())
    fewest = max(len(values) for values in levels.values())
    return levels, draw(st.integers(fewest, min(n_all, 40))), draw(st.integers(0, 5))


@settings(max_examples=15)
@given(fractions())
def test_a_fraction_has_its_size_the_base_no_cell_twice_and_every_level(
    asked: tuple[dict[str, list[int]], int, int],
) -> None:
    levels, n_runs, seed = asked
    cells = fractional(levels, n_runs, seed=seed)
    assert len(cells) == n_runs == len({key(cell) for cell in cells})
    assert set(cells[0].values()) == {0}
    for name, values in levels.items():
        assert {cell[name] for cell in cells} == set(values)
    assert cells == fractional(levels, n_runs, seed=seed)


@settings(max_examples=10)
@given(LEVELS, st.integers(0, 3))
def test_levels_are_shown_nearly_equally_often(levels: dict[str, list[int]], seed: int) -> None:
    n_runs = default_runs(levels)
    quality = assess(levels, fractional(levels, n_runs, seed=seed))
    for name, shown in quality.balance.items():
        # 24 cells of 2 x 3 x 3 x 3 x 3 give 6, 9, 9: the best determinant is not the evenest.
        assert max(shown) - min(shown) <= 3, (name, shown)
    assert quality.efficiency > 0.85


@given(LEVELS)
def test_all_cells_and_one_at_a_time_have_the_numbers_that_they_must(
    levels: dict[str, list[int]],
) -> None:
    everything, single = factorial(levels), one_at_a_time(levels)
    assert len(everything) == math.prod(len(values) for values in levels.values())
    assert len(single) == 1 + sum(len(values) - 1 for values in levels.values())
    assert everything[0] == single[0] == dict.fromkeys(levels, 0)
    assert {key(cell) for cell in single} <= {key(cell) for cell in everything}
    assert max(sum(value != 0 for value in cell.values()) for cell in single) == 1


@given(st.integers(2, 9))
def test_contrasts_are_orthonormal_in_balanced_data(n_levels: int) -> None:
    table = contrasts(n_levels)
    np.testing.assert_allclose(table.T @ table / n_levels, np.eye(n_levels - 1), atol=1e-12)
    np.testing.assert_allclose(table.sum(axis=0), 0, atol=1e-12)


def test_what_columns_add_is_orthonormal_and_copies_add_nothing() -> None:
    first = np.array([[1.0, 1, 0], [1, 1, 0], [1, 0, 1], [1, 0, 1]])  # the third is 1 - 2
    basis, kept = beyond(np.zeros((4, 0)), first)
    assert kept.tolist() == [True, True, False]
    np.testing.assert_allclose(basis.T @ basis, np.eye(2), atol=1e-12)


# Orthogonal arrays


@pytest.mark.parametrize(
    ("sizes", "n_runs"),
    [
        ((2, 2, 2), 4),
        ((2,) * 7, 8),
        ((3,) * 4, 9),
        ((2,) * 11, 12),
        ((4, 4, 4), 16),
        ((2, 3, 3, 3), 18),
        ((3,) * 5, 27),
        ((2,) * 15, 16),
        ((3,) * 7 + (2,), 18),
        ((4, 3, 3, 3, 3), 36),
    ],
)
def test_an_orthogonal_array_is_found_where_there_is_one(
    sizes: tuple[int, ...], n_runs: int
) -> None:
    levels = grid(*sizes)
    cells = fractional(levels, n_runs)
    assert assess(levels, cells).efficiency == pytest.approx(1)
    for pair in combinations(levels, 2):  # strength 2: every two levels meet equally often
        wanted = n_runs / math.prod(len(levels[name]) for name in pair)
        assert set(counts(cells, *pair)) == {wanted}


# The paper's factors


@pytest.mark.parametrize("n_runs", [12, 15, 36, 96, 324])
def test_fractions_of_the_papers_factors_are_sound(n_runs: int) -> None:
    cells = fractional(PAPER, n_runs, allowed=has_meaning)
    quality = assess(PAPER, cells)
    assert cells[0] == BASE
    assert len({key(cell) for cell in cells}) == n_runs
    assert all(has_meaning(cell) for cell in cells)
    assert all(min(shown) >= 1 for shown in quality.balance.values())
    assert quality.n_cells == 1296
    assert quality.efficiency > 0.9 if n_runs >= 15 else quality.efficiency == 0
    if n_runs >= 144:
        assert not quality.terms("shared")
        assert not quality.terms("aliased")


def test_thirty_six_cells_are_the_default_for_the_papers_factors() -> None:
    assert default_runs(PAPER) == 36
    assert default_runs(grid(2, 2)) == 4
    assert default_runs(grid(3, 3, 3, 3)) == 18
    quality = assess(PAPER, fractional(PAPER))
    assert quality.n_runs == 36
    assert quality.efficiency > 0.97
    for shown in quality.balance.values():
        assert max(shown) - min(shown) <= 1
    assert not quality.terms("aliased")
    assert "36 of 1296 cells" in str(quality)


def test_a_fraction_of_very_many_cells_is_chosen_among_those_that_the_seed_draws() -> None:
    levels = grid(*[3] * 7)
    cells = fractional(levels, 20)
    assert len({key(cell) for cell in cells}) == 20
    assert assess(levels, cells).efficiency > 0.8


# What a design can tell


def test_a_full_design_knows_every_term_and_one_at_a_time_no_interaction() -> None:
    levels = grid(2, 3, 3)
    assert set(assess(levels, factorial(levels)).standing.values()) == {"clear"}
    single = assess(levels, one_at_a_time(levels)).standing
    assert {term: stands for term, stands in single.items() if ":" in term} == dict.fromkeys(
        ["f0:f1", "f0:f2", "f1:f2"], "aliased"
    )
    assert single["f0"] == "shared"


def test_the_half_fraction_of_four_shares_every_interaction_with_another() -> None:
    """ABCD = 1: main effects are clear of interactions, AB is CD."""
    levels = grid(2, 2, 2, 2)
    half = [cell for cell in factorial(levels) if sum(cell.values()) % 2 == 0]
    standing = assess(levels, half).standing
    assert {standing[name] for name in levels} == {"clear"}
    assert {stands for term, stands in standing.items() if ":" in term} == {"shared"}


def test_the_half_fraction_of_three_has_interactions_that_are_main_effects() -> None:
    """ABC = 1: AB is C."""
    levels = grid(2, 2, 2)
    half = [cell for cell in factorial(levels) if sum(cell.values()) % 2 == 0]
    standing = assess(levels, half).standing
    assert {stands for term, stands in standing.items() if ":" in term} == {"aliased"}
    assert standing["f0"] == "shared"


def test_standing_is_what_ranks_of_the_model_say() -> None:
    levels, sizes = grid(3, 3, 2, 2), [3, 3, 2, 2]
    cells = fractional(levels, 20)
    codes = np.array([key(cell) for cell in cells])
    matrix = model_matrix(codes, sizes, [(0,), (1,), (2,), (3,), *pair_terms(sizes)])
    is_full = np.linalg.matrix_rank(matrix) == matrix.shape[1]
    assert is_full == (set(assess(levels, cells).standing.values()) == {"clear"})
    assert is_full


# Refusals


@pytest.mark.parametrize(
    ("levels", "n_runs", "words"),
    [
        ({}, 4, "needs a factor"),
        ({"mood": []}, 4, "has no levels"),
        ({"mood": ["a", "a"]}, 4, "more than once"),
        (grid(4, 2), 3, "cannot cover a factor of 4 levels"),
        (grid(2, 2), 5, "there are 4 to choose"),
    ],
)
def test_a_fraction_that_cannot_be_is_refused(
    levels: dict[str, list[Any]], n_runs: int, words: str
) -> None:
    with pytest.raises(Problem, match=words):
        fractional(levels, n_runs)


def test_a_level_that_is_never_allowed_and_a_base_that_is_not_are_refused() -> None:
    with pytest.raises(Problem, match="no allowed cell with f0=2"):
        fractional(grid(3, 3), 5, allowed=lambda cell: cell["f0"] != 2)
    with pytest.raises(Problem, match=r"the base .* is not allowed"):
        one_at_a_time(grid(3, 3), allowed=lambda cell: cell["f0"] != 0)
    with pytest.raises(Problem, match="use a fractional design"):
        factorial(grid(*[4] * 10))


# Names

VALUES = st.one_of(st.integers(0, 99), st.from_regex(r"[a-z_]{1,8}", fullmatch=True))


@given(st.dictionaries(st.sampled_from(["mood", "shots", "clarity", "own"]), VALUES))
def test_a_name_says_what_differs_and_is_read_back(cell: dict[str, Any]) -> None:
    base = {"mood": "imperative", "shots": 5, "clarity": "explicit", "own": "x"}
    changed = {name: str(value) for name, value in cell.items() if value != base[name]}
    assert parse_cell(cell_name(base, cell)) == changed


def test_names_stand_in_the_order_of_style_and_one_change_is_named_as_ever() -> None:
    base = vars(Style())
    assert cell_name(base, {"shots": 1, "label_format": "letter"}) == "label_format=letter,shots=1"
    assert cell_name(base, {"shots": 1, "label_format": "numeric"}) == "shots=1"
    assert cell_name(base, vars(Style())) == ""
    assert is_one_at_a_time(["", "shots=1", "mood=indicative"])
    assert not is_one_at_a_time(["", "mood=indicative,shots=1"])


@pytest.mark.parametrize("name", ["P1", "mood=a,mood=b", "=a", "mood=a=b", "mood=a,"])
def test_a_name_that_is_no_cell_is_refused(name: str) -> None:
    with pytest.raises(Problem, match="is not a cell of a design"):
        parse_cell(name)


def test_a_level_with_a_comma_has_no_name() -> None:
    with pytest.raises(Problem, match="comma"):
        cell_name({"mood": "a"}, {"mood": "b,c"})


def test_levels_begin_with_the_base_and_leave_out_what_does_not_vary() -> None:
    vary: dict[str, list[Any]] = {
        "shots": [0, 5, 1],
        "mood": ["imperative"],
        "clarity": ["minimal"],
    }
    assert levels_of(vars(Style()), vary) == {
        "clarity": ("explicit", "minimal"),
        "shots": (5, 0, 1),
    }
