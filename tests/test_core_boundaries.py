"""Group-sequential stops against enumeration, planted rates and their own claims."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flipmeter.errors import Problem
from flipmeter.stats.sequential import Stop, boundaries, looks_of, needed_most, operating, watch

PLAN = looks_of(50, 200)


def test_a_plan_with_few_flips_stops_early_and_rarely_wrongly() -> None:
    found = {rate: operating(PLAN, 0.10, rate) for rate in (0.04, 0.06, 0.10)}
    assert found[0.04].below > 0.88
    assert found[0.04].mean_n < 125
    assert found[0.06].below > 0.50
    assert found[0.10].below <= 0.05
    assert found[0.10].above <= 0.05


@pytest.mark.parametrize("rate", [0.0, 0.03, 0.1, 0.5, 1.0])
def test_the_ends_of_a_plan_are_all_there_is(rate: float) -> None:
    found = operating(looks_of(20, 110), 0.10, rate)
    ends = (found.below, found.above, found.futile, found.undecided)
    assert sum(ends) == pytest.approx(1.0)


def test_the_chance_of_an_end_is_that_of_listing_every_sequence() -> None:
    looks, margin, rate = (3, 6, 9), 0.4, 0.3
    ends = {"below": 0.0, "above": 0.0, "futile": 0.0, "undecided": 0.0}
    for flips in product((0, 1), repeat=looks[-1]):
        word = ended(flips, looks, margin).word
        ends[word] += rate ** sum(flips) * (1 - rate) ** (looks[-1] - sum(flips))
    found = operating(looks, margin, rate)
    assert ends == pytest.approx(
        {
            "below": found.below,
            "above": found.above,
            "futile": found.futile,
            "undecided": found.undecided,
        }
    )
    assert ends["below"] > 0


def ended(
    flips: tuple[int, ...],
    looks: tuple[int, ...],
    margin: float,
    readable: tuple[int, ...] | None = None,
) -> Stop:
    """Ask look by look until a claim stops."""
    read = np.ones(len(flips), dtype=int) if readable is None else np.array(readable)
    k = np.cumsum(np.array(flips) * read)
    n = np.cumsum(read)
    for last in range(1, len(looks) + 1):
        at = [look - 1 for look in looks[:last]]
        found = watch(k[at].tolist(), n[at].tolist(), looks=looks, margin=margin)
        if found.is_final:
            break
    return found


@given(
    st.lists(st.sampled_from([0, 0, 0, 0, 0, 0, 0, 0, 1]), min_size=60, max_size=60),
    st.lists(st.sampled_from([1, 1, 1, 1, 0]), min_size=60, max_size=60),
    st.sampled_from([0.05, 0.1, 0.2, 0.4]),
)
@settings(max_examples=60)
def test_an_interval_agrees_with_its_claim(
    flips: list[int], readable: list[int], margin: float
) -> None:
    found = ended(tuple(flips), (20, 40, 60), margin, tuple(readable))
    assert found.low <= found.k / max(found.n, 1) <= found.high
    if found.word == "below":
        assert found.high <= margin
    elif found.word == "above":
        assert found.low >= margin
    else:
        assert found.low <= margin <= found.high


@pytest.mark.parametrize("unread", [0.0, 0.15])
def test_wrong_stops_stay_rare_when_some_items_cannot_be_read(unread: float) -> None:
    rng, studies, looks = np.random.default_rng(1), 1500, (20, 40, 60, 80)
    wrong = {"below": 0, "above": 0}
    for _ in range(studies):
        read = np.cumsum(rng.random(80) >= unread)[[look - 1 for look in looks]]
        steps = np.diff(read, prepend=0)
        k = np.cumsum(rng.binomial(steps, 0.15))
        held = boundaries(read.tolist(), 0.15, asked=looks, most=80)
        for flips, below, above in zip(k.tolist(), held.below, held.above, strict=True):
            if flips <= below or flips >= above:
                wrong["below" if flips <= below else "above"] += 1
                break
    error = 2 * np.sqrt(0.05 * 0.95 / studies)
    assert wrong["below"] / studies < 0.05 + error
    assert wrong["above"] / studies < 0.05 + error


def test_the_interval_covers_at_a_stop() -> None:
    rng, studies, rate = np.random.default_rng(2), 250, 0.12
    covered = []
    for _ in range(studies):
        flips = tuple((rng.random(60) < rate).astype(int).tolist())
        found = ended(flips, (20, 40, 60), 0.15)
        covered.append((found.low <= rate, rate <= found.high))
    assert np.all(np.mean(covered, axis=0) > 0.95 - 2 * np.sqrt(0.05 * 0.95 / studies))


def test_a_claim_that_cannot_be_reached_is_known_before_anything_is_asked() -> None:
    assert not boundaries(looks_of(10, 20), 0.10).is_reachable
    assert boundaries(looks_of(10, 40), 0.10).is_reachable


def test_more_items_are_needed_the_closer_a_rate_is_to_the_margin() -> None:
    needed = [needed_most(0.10, rate) for rate in (0.0, 0.04, 0.06)]
    assert needed == sorted(needed, key=lambda n: n or 0)
    assert needed[0] == 50
    for rate, n in zip((0.0, 0.04, 0.06), needed, strict=True):
        assert operating(looks_of(50, n or 0), 0.10, rate).below >= 0.8


def test_a_run_is_futile_once_no_later_look_can_stop() -> None:
    # A short plan: ten flips of 25 are too many to fall below and too few to rise above .45.
    looks = (25, 26)
    found = watch([9], [25], looks=looks, margin=0.45)
    assert found.word == "futile"
    assert found.low <= 0.45 <= found.high


@pytest.mark.parametrize(
    ("k", "n", "said"), [([1, 2], [50], "one count per look"), ([0, 0], [50, 40], "must grow")]
)
def test_counts_that_are_no_looks_are_refused(k: list[int], n: list[int], said: str) -> None:
    with pytest.raises(Problem, match=said):
        watch(k, n, looks=PLAN, margin=0.10)


def test_a_rate_at_the_margin_cannot_be_planned_for() -> None:
    with pytest.raises(Problem, match="cannot be shown"):
        needed_most(0.10, 0.10)


def test_the_mean_number_of_items_is_that_of_listing_every_sequence() -> None:
    looks, margin, rate = (3, 6, 9), 0.4, 0.3
    mean = 0.0
    for flips in product((0, 1), repeat=looks[-1]):
        chance = rate ** sum(flips) * (1 - rate) ** (looks[-1] - sum(flips))
        mean += chance * ended(flips, looks, margin).n
    found = operating(looks, margin, rate)
    assert found.futile > 0
    assert found.mean_n == pytest.approx(mean)


def test_at_the_last_look_nothing_is_futile() -> None:
    assert watch([0], [5], looks=(5,), margin=0.1).word == "undecided"
    found = operating((5,), 0.1, 0.0)
    assert (found.futile, found.undecided) == (0.0, 1.0)


def test_an_interval_ends_at_one() -> None:
    found = watch([20], [20], looks=(20, 40), margin=0.1)
    assert (found.word, found.high) == ("above", 1.0)


def test_before_a_stop_the_interval_lies_around_what_was_seen() -> None:
    found = watch([3], [20], looks=(20, 40, 60), margin=0.2)
    assert found.word == "undecided"
    assert 0 < found.low < 3 / 20 < found.high < 0.6
