"""What goes wrong when every surface concludes for itself, held against the one verdict."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from flipmeter.errors import Problem
from flipmeter.stats.blocks import Row, as_ranks, placed, read_blocks, shown_alike
from flipmeter.stats.conclude import verdict, verdicts
from flipmeter.stats.groups import Ints
from flipmeter.stats.sizes import excess_p
from flipmeter.stats.verdict import Finding, Verdict, not_identified, percent
from planted_replies import flips, pairs_of, replies


def same(n: int) -> Ints:
    """Pairs that agree, over three classes."""
    return np.repeat((np.arange(n) % 3 + 1)[:, None], 2, axis=1)


def flipped(n: int, k: int) -> Ints:
    """Pairs of which k move one class up, from classes 1 to 3."""
    pairs = same(n)
    pairs[:k, 1] += 1
    return pairs


def within(value: float, low: float | None, high: float | None) -> bool:
    assert low is not None
    assert high is not None
    return low <= value <= high


# --- words ------------------------------------------------------------------------------------


def test_few_flips_of_many_reproducible_pairs_are_stable() -> None:
    found = verdict(flipped(200, 4), reproducible=True)
    assert found.word == "stable"
    assert (found.bound_on, found.noise, found.p) == ("rate", 0.0, None)
    assert found.upper == pytest.approx(0.0452, abs=1e-4)


def test_many_flips_of_a_reproducible_rater_are_real() -> None:
    assert verdict(flipped(100, 30), reproducible=True).word == "flips"


def test_flips_no_larger_than_noise_are_not_called_flips() -> None:
    pairs, repeats = replies(np.random.default_rng(1), n=100, noise=(0.2, 0.2))
    assert verdict(pairs, repeats=repeats).word != "flips"


def test_without_repeats_a_reason_says_that_there_is_no_noise_floor() -> None:
    found = verdict(flipped(100, 40))
    assert found.word == "flips"
    assert found.noise is None
    assert "no noise floor" in found.reason


def test_an_open_case_names_the_items_that_would_settle_it() -> None:
    found = verdict(flipped(40, 1), reproducible=True)
    assert found.word == "inconclusive"
    assert found.n_needed is not None
    assert found.n_needed > 40
    assert str(found.n_needed) in found.reason


def test_the_items_that_would_settle_a_case_mostly_do() -> None:
    rng, first = np.random.default_rng(3), verdict(flipped(40, 2), reproducible=True)
    assert first.n_needed is not None
    more = [flipped(first.n_needed, int(rng.binomial(first.n_needed, 0.05))) for _ in range(60)]
    assert np.mean([verdict(pairs, reproducible=True).word == "stable" for pairs in more]) > 0.6


@pytest.mark.parametrize("is_repeated", [True, False])
def test_no_number_of_items_settles_an_effect_of_the_size_of_the_margin(is_repeated: bool) -> None:
    pairs = flipped(100, 10)
    repeats = pairs if is_repeated else None
    found = verdict(pairs, repeats=repeats, reproducible=not is_repeated)
    assert found.word == "inconclusive"
    assert found.n_needed is None
    assert "would settle" not in found.reason


def test_nothing_to_compare_is_inconclusive() -> None:
    assert verdict(np.zeros((0, 2), dtype=int)).word == "inconclusive"


def test_a_contrast_with_equal_prompts_is_not_identified() -> None:
    found = not_identified("both views send the same prompt")
    assert found.word == "not identified"
    assert found.has("not identified")


def test_a_caller_adds_what_only_it_can_know() -> None:
    found = verdict(flipped(100, 1)).with_findings(Finding("little label mass", "3 %"))
    assert found.has("little label mass")


def test_a_record_has_a_column_for_every_field() -> None:
    row = verdict(same(30)).record()
    assert set(row) == set(Verdict.__dataclass_fields__)


# --- 1. seeds ---------------------------------------------------------------------------------


def test_seeds_that_repeat_the_same_answers_make_no_verdict() -> None:
    pairs = flipped(60, 3)
    once = verdict(pairs, reproducible=True)
    thrice = verdict(
        np.repeat(pairs, 3, axis=0), clusters=np.repeat(np.arange(60), 3), reproducible=True
    )
    assert once.word == thrice.word == "inconclusive"
    assert thrice.n_clusters == 60


def test_five_items_with_ten_seeds_are_not_stable() -> None:
    found = verdict(
        np.repeat(same(5), 10, axis=0), clusters=np.repeat(np.arange(5), 10), reproducible=True
    )
    assert found.word == "inconclusive"
    assert found.high is not None
    assert found.high > 0.4


@pytest.mark.parametrize("seeds", [3, 5])
def test_correlated_seeds_at_the_margin_are_rarely_stable_and_the_interval_covers(
    seeds: int,
) -> None:
    rng, studies = np.random.default_rng(11), 250
    found = []
    for _ in range(studies):
        pairs, clusters = pairs_of(flips(rng, n=200, seeds=seeds, rate=0.10, icc=0.9))
        found.append(verdict(pairs, clusters=clusters, reproducible=True))
    error = np.sqrt(0.05 * 0.95 / studies)
    assert np.mean([one.word == "stable" for one in found]) < 0.05 + 2 * error
    assert np.mean([within(0.10, one.low, one.high) for one in found]) > 0.95 - 2 * error


def test_seeds_that_are_independent_buy_power() -> None:
    rng = np.random.default_rng(5)

    def share_stable(seeds: int) -> float:
        studies = [pairs_of(flips(rng, n=80, seeds=seeds, rate=0.05, icc=0.0)) for _ in range(60)]
        words = [verdict(x, clusters=ids, reproducible=True).word for x, ids in studies]
        return words.count("stable") / len(words)

    assert share_stable(5) > share_stable(1) + 0.2


# --- 2. noise of one view only ----------------------------------------------------------------


@pytest.mark.parametrize("noise", [(0.25, 0.0), (0.2, 0.2)])
def test_an_effect_is_found_whichever_view_is_noisy(noise: tuple[float, float]) -> None:
    rng = np.random.default_rng(2)
    studies = [replies(rng, n=200, noise=noise, moved=0.15) for _ in range(30)]
    p = [verdict(pairs, repeats=repeats).p for pairs, repeats in studies]
    assert all(one is not None and one < 0.05 for one in p)


# --- 3. direction -----------------------------------------------------------------------------


def test_flips_in_one_direction_are_flips() -> None:
    pairs = flipped(112, 14)
    found = verdict(pairs, repeats=pairs)
    assert found.word == "flips"
    assert (found.moved_up, found.moved_down) == (14, 0)
    assert found.excess == pytest.approx(0.125)


def test_a_spread_out_shift_is_not_stable() -> None:
    # Every item goes from 60/40 to 40/60: its excess is .04, and shares move by 20 points.
    rng = np.random.default_rng(4)
    first, again = (
        np.stack([1 + (rng.random(400) < p) for p in (0.4, 0.6)], axis=1) for _ in range(2)
    )
    found = verdict(first, repeats=again)
    assert found.word == "flips"
    assert found.bound_on == "shift"
    assert found.excess is not None
    assert found.shift is not None
    assert found.excess < 0.10 < found.shift


# --- 4. one interval --------------------------------------------------------------------------


def test_an_excess_without_any_difference_has_a_width() -> None:
    found = verdict(same(40), repeats=same(40))
    assert found.excess == 0
    assert found.excess_low == 0
    assert found.excess_upper is not None
    assert within(found.excess_upper, 0.05, found.excess_high)


@pytest.mark.parametrize("n", [30, 60])
def test_the_interval_of_the_excess_covers_at_small_n(n: int) -> None:
    # Slips of 20 % in both views and no item at an end of the scale: the excess is .65 a move.
    rng, truth = np.random.default_rng(6), 0.15 * 0.65
    covered = []
    for _ in range(200):
        true = rng.integers(2, 5, n)
        target = np.where(rng.random(n) < 0.15, true + 2, true)
        first, again = (
            np.stack([at + _slips(rng, n) for at in (true, target)], axis=1) for _ in range(2)
        )
        found = verdict(first, repeats=again, draws=10)
        covered.append(within(truth, found.excess_low, found.excess_high))
    assert np.mean(covered) > 0.93


def _slips(rng: np.random.Generator, n: int) -> Ints:
    return np.where(rng.random(n) < 0.2, rng.choice([-1, 1], n), 0)


# --- 5. unreadable ----------------------------------------------------------------------------


def test_a_rater_that_is_unreadable_in_one_view_does_not_flip() -> None:
    pairs = same(100)
    pairs[:15, 1] = 0
    found = verdict(pairs, repeats=pairs)
    assert found.word == "unreadable"
    assert found.value == 0
    assert found.unreadable == pytest.approx(0.15)
    assert found.unreadable_by_view == (0.0, 0.15)
    assert found.has("readability differs between views")


def test_a_rater_that_refuses_is_never_stable() -> None:
    for refused in range(6, 41):
        pairs = same(100)
        pairs[:refused] = 0
        assert verdict(pairs, reproducible=True).word in ("unreadable", "inconclusive")


def test_bounds_of_the_rate_count_the_unreadable_as_all_same_and_all_different() -> None:
    pairs = flipped(100, 10)
    pairs[-4:, 0] = 0
    found = verdict(pairs)
    assert found.value == pytest.approx(10 / 96)
    assert (found.if_same, found.if_different) == pytest.approx((0.10, 0.14))


def test_flips_among_readable_answers_are_told_beside_unreadable() -> None:
    pairs = flipped(100, 50)
    pairs[-30:, 0] = 0
    found = verdict(pairs, repeats=pairs)
    assert found.word == "unreadable"
    assert found.has("flips where readable")


def test_an_item_without_some_view_is_not_unreadable() -> None:
    pairs = np.repeat((np.arange(60) % 3 + 1)[:, None], 4, axis=1)
    pairs[::2, 3] = -1
    found = verdict(pairs, nominal=True, reproducible=True)
    assert found.unreadable == 0
    assert found.word == "stable"


# --- findings ---------------------------------------------------------------------------------


def test_a_constant_rater_is_told_to_be_constant() -> None:
    found = verdict([[3, 3]] * 60, reproducible=True)
    assert found.has("constant answers")
    assert not verdict(same(60), reproducible=True).has("constant answers")


def test_noise_above_the_margin_is_told() -> None:
    pairs, repeats = replies(np.random.default_rng(8), n=100, noise=(0.4, 0.4))
    assert verdict(pairs, repeats=repeats).has("noisy")
    assert not verdict(same(50), repeats=same(50)).has("noisy")


def test_a_small_effect_that_is_real_is_told_beside_stable() -> None:
    pairs = flipped(400, 12)
    found = verdict(pairs, repeats=pairs)
    assert found.word == "stable"
    assert found.has("a small effect is real")


def test_a_real_effect_of_open_size_is_told() -> None:
    pairs = flipped(100, 8)
    found = verdict(pairs, repeats=pairs)
    assert found.word == "inconclusive"
    assert found.has("size not settled")
    assert found.why.count("size not settled") == 1


def test_repeats_that_differ_show_that_an_engine_is_not_reproducible() -> None:
    pairs, repeats = same(50), same(50)
    repeats[0, 0] += 1
    found = verdict(pairs, repeats=repeats, reproducible=True)
    assert found.has("reproducibility failed")
    assert found.p is not None


# --- laws -------------------------------------------------------------------------------------

cell = st.integers(0, 3)
rows = st.lists(
    st.tuples(cell, cell, st.integers(-1, 3), st.integers(-1, 3), st.integers(0, 9)),
    min_size=1,
    max_size=24,
)


def judged(table: Ints, **options: Any) -> Verdict:
    return verdict(
        table[:, :2],
        repeats=table[:, 2:4],
        clusters=table[:, 4],
        draws=200,
        **options,
    )


def numbers(found: Verdict) -> dict[str, object]:
    row = found.record()
    for name in ("direction", "moved_up", "moved_down", "unreadable_by_view", "reason", "findings"):
        del row[name]
    return {
        name: round(value, 9) if isinstance(value, float) else value for name, value in row.items()
    }


@given(rows, st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_the_order_of_rows_changes_nothing(lines: list[tuple[int, ...]], random: Random) -> None:
    before = np.array(lines)
    random.shuffle(lines)
    assert numbers(judged(np.array(lines))) == numbers(judged(before))


@given(rows)
@settings(max_examples=40)
def test_swapping_views_turns_the_direction_and_nothing_else(lines: list[tuple[int, ...]]) -> None:
    table = np.array(lines)
    one, other = judged(table), judged(table[:, [1, 0, 3, 2, 4]])
    turned = {"": "", "up": "down", "down": "up"}[other.leans]
    assert numbers(one) == numbers(other) | {"leans": turned}
    assert (one.direction or 0.0) == pytest.approx(-(other.direction or 0.0))
    assert (one.moved_up, one.moved_down) == (other.moved_down, other.moved_up)


@given(rows)
@settings(max_examples=40)
def test_names_of_clusters_change_nothing(lines: list[tuple[int, ...]]) -> None:
    table = np.array(lines)
    renamed = table.copy()
    renamed[:, 4] = 9 - renamed[:, 4]
    assert numbers(judged(table)) == numbers(judged(renamed))


@given(rows, st.integers(2, 4))
@settings(max_examples=40)
def test_copying_every_row_of_a_cluster_makes_no_evidence(
    lines: list[tuple[int, ...]], copies: int
) -> None:
    table = np.array(lines)
    assert judged(table).p == pytest.approx(judged(np.repeat(table, copies, axis=0)).p)


@given(rows, st.integers(2, 4), st.booleans())
@settings(max_examples=40)
def test_copying_one_seed_never_makes_a_row_more_stable(
    lines: list[tuple[int, ...]], copies: int, reproducible: bool
) -> None:
    table = np.array(lines)
    table[:, 4] = np.arange(len(table))
    one, many = (
        judged(np.repeat(table, times, axis=0), reproducible=reproducible) for times in (1, copies)
    )
    assert (many.upper or 0.0) > (one.upper or 0.0) - 1e-9
    assert not (many.word == "stable" and one.word != "stable")


@given(rows, st.booleans(), st.integers(0, 9))
@settings(max_examples=60)
def test_an_unreadable_pair_never_makes_a_row_more_stable(
    lines: list[tuple[int, ...]], in_first: bool, cluster: int
) -> None:
    table = np.array(lines)
    broken = [0, 2, -1, -1, cluster] if in_first else [0, 0, 0, 0, 99]
    more = np.vstack([table, broken])
    for reproducible in (False, True):
        before = judged(table, reproducible=reproducible)
        after = judged(more, reproducible=reproducible)
        assert not (after.word == "stable" and before.word != "stable")
        assert not (after.word == "flips" and before.word not in ("flips", "unreadable"))


@given(rows)
@settings(max_examples=40)
def test_numbers_lie_where_they_must(lines: list[tuple[int, ...]]) -> None:
    found = judged(np.array(lines))
    if found.value is not None:
        assert within(found.value, found.low, found.high)
        assert within(found.if_same or 0.0, 0.0, found.if_different)
    assert found.p is None or 0 < found.p <= 1
    if found.unreadable is not None:
        assert within(found.unreadable, found.unreadable_low, found.unreadable_high)


def test_many_rows_give_what_each_gives_alone() -> None:
    rng = np.random.default_rng(9)
    several = [replies(rng, n=50, noise=(0.2, 0.1), moved=moved) for moved in (0.0, 0.1, 0.4)]
    together = verdicts([Row(pairs, repeats) for pairs, repeats in several])
    alone = [verdict(pairs, repeats=repeats) for pairs, repeats in several]
    assert [one.word for one in together] == [one.word for one in alone]
    assert together[0] == alone[0]


def test_at_the_margin_the_estimate_decides() -> None:
    called: dict[int, dict[str, float]] = {}
    for n in (50, 100, 200):
        words: dict[str, float] = {}
        for k in range(n + 1):
            pairs = np.array([[1, 2]] * k + [[1, 1]] * (n - k))
            word = verdict(pairs, reproducible=True).word
            words[word] = words.get(word, 0.0) + float(binom.pmf(k, n, 0.10))
        called[n] = words
    assert [round(called[n]["flips"], 2) for n in called] == [0.38, 0.42, 0.44]
    assert all(words["stable"] <= 0.05 for words in called.values())


def test_a_lower_bound_would_call_half_as_many_rates_above_the_margin_flips() -> None:
    by_estimate = by_bound = 0.0
    for k in range(101):
        chance = float(binom.pmf(k, 100, 0.15))
        found = verdict(np.array([[1, 2]] * k + [[1, 1]] * (100 - k)), reproducible=True)
        by_estimate += chance * (found.word == "flips")
        by_bound += chance * (found.lower is not None and found.lower > 0.10)
    assert (round(by_estimate, 2), round(by_bound, 2)) == (0.90, 0.43)


def test_a_claim_on_all_flips_says_that_noise_counts() -> None:
    rng = np.random.default_rng(2)
    pairs, repeats = rng.integers(1, 4, (2, 120, 2))
    claim = verdict(pairs, repeats=repeats, on="rate")
    assert (claim.word, "noise counts too" in claim.reason) == ("flips", True)
    assert verdict(pairs, repeats=repeats).word != "flips"


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"repeats": [[1, 1, 1]]}, "repeats has shape"),
        ({"clusters": [1, 2]}, "one cluster per row"),
        ({"margin": 0.0}, "margin must lie"),
        ({"alpha": 1.5}, "alpha is 1.5"),
        ({"unreadable_limit": -1}, "unreadable_limit"),
        ({"draws": 0}, "draws must be"),
        ({"nominal": True, "slots": [[1]]}, "slots must have the shape"),
    ],
)
def test_a_wrong_argument_is_named(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(Problem, match=said):
        verdict([[1, 2]], **changed)


@pytest.mark.parametrize("pairs", [[[1.5, 2.0]], [[-3, 1]], [[1]], [1, 2]])
def test_pairs_that_are_no_classes_are_refused(pairs: Any) -> None:
    with pytest.raises(Problem, match="pairs"):
        verdict(pairs)


def test_a_claim_about_all_flips_tells_noise_once() -> None:
    rng = np.random.default_rng(0)
    found = verdict(rng.integers(1, 6, (40, 2)), repeats=rng.integers(1, 6, (40, 2)), on="rate")
    assert found.word == "flips"
    assert found.has("noisy")
    assert found.why.count("of repeats differ") == 1


# --- few repeats --------------------------------------------------------------------------------


def repeated_first(pairs: Ints, n: int) -> Ints:
    """Second replies equal to the first for n items, none for the others."""
    return np.where(np.arange(len(pairs))[:, None] < n, pairs, -1)


def test_a_few_repeats_do_not_hide_what_all_pairs_show() -> None:
    pairs = flipped(200, 0)
    found = verdict(pairs, repeats=repeated_first(pairs, 20))
    assert (found.word, found.bound_on) == ("stable", "rate")
    assert found.upper == verdict(pairs).upper
    beyond = verdict(pairs, repeats=repeated_first(pairs, 20), on="excess")
    assert beyond.word == "stable"


def test_half_of_the_items_repeated_bound_the_excess() -> None:
    pairs = flipped(200, 0)
    assert verdict(pairs, repeats=repeated_first(pairs, 100)).bound_on == "excess"


def test_too_few_repeats_of_many_flips_ask_for_repeats_not_for_items() -> None:
    pairs = flipped(200, 40)[::-1]
    found = verdict(pairs, repeats=repeated_first(pairs, 20))
    assert found.word == "inconclusive"
    assert found.n_needed is None
    assert "repeat all of them" in found.reason


def test_a_clean_stable_rater_has_no_finding() -> None:
    table = np.array([[1, 1], [2, 2], [3, 3]] * 60)
    found = verdict(table, reproducible=True)
    assert (found.word, found.findings) == ("stable", ())


def test_repeats_that_cannot_be_read_do_not_count_as_different() -> None:
    found = verdict([[1, 1]] * 60, repeats=[[2, 0], *[[1, 1]] * 59], reproducible=True)
    (told,) = (one.text for one in found.findings if one.name == "reproducibility failed")
    assert told.startswith("1 of 119 repeats differ")


def test_an_item_that_was_never_asked_changes_no_bound() -> None:
    asked = verdict([[1, 2], [1, 1], [2, 2]])
    more = verdict([[1, 2], [1, 1], [2, 2], [-1, -1]])
    assert (more.if_same, more.if_different) == (asked.if_same, asked.if_different)


def test_a_share_in_a_sentence_is_in_percent() -> None:
    assert [percent(x) for x in (0.125, 0.5, 1.0)] == ["12.5 %", "50 %", "100 %"]


# Scores and places


def test_the_lowest_of_decimal_scores_has_rank_1_and_a_missing_one_0() -> None:
    (ranks, repeats), span = as_ranks([[2.0, 7.0], [np.nan, 12.0]], None, 0.5)
    assert repeats is None
    assert ranks.tolist() == [[1, span.rank(7.0)], [0, span.rank(12.0)]]


def test_places_of_classes_follow_from_items_that_were_shown_alike() -> None:
    classes, places = np.array([[1, 3], [2, 1]]), np.array([[1, 1], [2, 3]])
    found = shown_alike(classes, places, 3)
    assert found is not None
    assert found.tolist() == [[1, 2, 3], [3, 2, 1]]
    assert shown_alike(np.array([[1, 1], [1, 2]]), np.array([[1, 1], [2, 2]]), 2) is None


def test_a_class_with_two_places_keeps_that_of_each_item() -> None:
    first = np.array([[1, 2], [1, 3]])
    table = placed(np.array([[1, 2], [3, 2]]), first, first)
    assert table[:, 0, 0].tolist() == [1, 3]


def test_the_p_of_a_refuted_claim_beyond_noise_is_that_of_the_excess() -> None:
    moved, noisy = [[1, 2]] * 40, [[1, 1], [1, 2], [2, 1]] * 20
    pairs, repeats = np.array(moved + noisy), np.array(moved + [[2, 1], [1, 1], [1, 2]] * 20)
    found = verdict(pairs, repeats=repeats, on="excess")
    assert found.word == "flips"
    of_excess = excess_p(read_blocks(Row(pairs, repeats)), 0.10, above=True)
    assert found.p_flips == pytest.approx(of_excess, rel=1e-9, abs=0)
    assert verdict(pairs, repeats=repeats, on="rate").p_flips < of_excess
