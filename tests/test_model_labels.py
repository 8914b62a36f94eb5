"""Tokens -> label probabilities: the tree, its naive twin, and the words of an endpoint."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipmeter.ask.label_scores import Ids, Step, Tree, ending, scores_along, written

VOCABULARY, DEPTH = 4, 4
FIVE = ("very negative", "negative", "neutral", "positive", "very positive")
Ends = dict[Ids, set[int]]


def model(place: Ids) -> dict[int, float]:
    """Return what a small model says behind some tokens: shares that are never alike."""
    digest = hashlib.sha256(bytes(place)).digest()
    shares = [1 + byte for byte in digest[:VOCABULARY]]
    return {token: math.log(share / sum(shares)) for token, share in enumerate(shares)}


def naive(ends: Mapping[Ids, set[int]], n_labels: int) -> list[float]:
    """Say every text of the model, and give each to the label it begins with."""
    totals = [0.0] * n_labels
    for text in product(range(VOCABULARY), repeat=DEPTH):
        share = math.exp(sum(model(text[:n])[token] for n, token in enumerate(text)))
        own: set[int] = set()
        for n in range(1, DEPTH + 1):
            below = {x for way, labels in ends.items() if way[:n] == text[:n] for x in labels}
            own = ends.get(text[:n], own if below <= own else set())
        for label in own:
            totals[label] += share / len(own)
    return totals


tokens = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=DEPTH - 1).map(tuple)
trees = st.lists(st.lists(tokens, min_size=1, max_size=3), min_size=2, max_size=4)


@given(trees)
def test_labels_have_the_share_of_the_texts_that_begin_with_them(ways: list[list[Ids]]) -> None:
    ends: Ends = {}
    for label, some in enumerate(ways):
        for way in some:
            ends.setdefault(way, {label})
    scores = Tree(len(ways), ends).scores(model)
    assert [math.exp(score) for score in scores] == pytest.approx(naive(ends, len(ways)), abs=2e-6)


@given(trees, st.integers(1, VOCABULARY - 1))
def test_what_is_not_shown_has_at_most_what_is_left(ways: list[list[Ids]], n_shown: int) -> None:
    def shown(place: Ids) -> dict[int, float]:
        best = sorted(model(place).items(), key=lambda pair: -pair[1])
        return dict(best[:n_shown])

    ends: Ends = {way: {label} for label, some in enumerate(ways) for way in some}
    scores = Tree(len(ways), ends).scores(shown)
    least = min(shown(()).values())
    assert all(-100 <= score <= 0 for score in scores)
    for label in range(len(ways)):
        mine = [way for way, labels in ends.items() if label in labels]
        if mine and all(way[0] not in shown(()) for way in mine):
            assert scores[label] <= least - math.log(2) + 1e-9


def test_a_label_that_another_goes_on_from_gives_that_one_its_share() -> None:
    """P("1") = .5 and P("0" after it) = .2: .4 for "1", .1 for "10"."""
    shown = {(): {1: math.log(0.5), 2: math.log(0.3)}, (1,): {0: math.log(0.2)}}
    scores = Tree(3, {(1,): {0}, (2,): {1}, (1, 0): {2}}).scores(shown.__getitem__)
    assert [math.exp(score) for score in scores] == pytest.approx([0.4, 0.3, 0.1])


def test_a_way_that_is_not_shown_takes_nothing_from_one_that_is() -> None:
    shown = {(): {9: math.log(0.9), 8: math.log(0.05)}, (9,): {1: math.log(1e-5)}}
    scores = Tree(1, {(1,): {0}, (9, 1): {0}}).scores(shown.__getitem__)
    assert scores == pytest.approx((math.log(0.9e-5),))


def test_only_forks_are_asked_for() -> None:
    tree = Tree(2, {(1,): {0}, (1, 2): {0}, (3, 4, 5): {1}})
    assert list(tree.forks()) == [(), (3,), (3, 4)]


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("A text.\nLabel:", "\nLabel:"),
        ("A text. Label:", " Label:"),
        ("<|im_start|>assistant\n", "\n"),
        ("a <|end|>\n\n", "\n\n"),
        ("word", "word"),
        ("", ""),
    ],
)
def test_the_end_of_a_prompt_is_what_a_label_joins(text: str, end: str) -> None:
    assert ending(text) == end


def test_ways_are_what_a_tokenizer_adds_to_the_prompt() -> None:
    """A tokenizer by characters that has one token for a colon with a space behind it."""

    def encode(text: str) -> list[int]:
        return [ord(char) for char in text.replace(": ", "\u2236")]

    assert list(written(("a",), ":", encode).forks()) == [(), (32,)]
    assert list(written(("a",), "x", encode).forks()) == [(), (32,)]
    scores = written(("a", "b"), "x", encode).scores(
        lambda place: {97: math.log(0.5), 98: math.log(0.2), 32: math.log(0.3)}
    )
    assert [math.exp(score) for score in scores] == pytest.approx([0.5 * 1.3, 0.2 * 1.3])


# What an endpoint shows


def step(token: str, **shown: float) -> Step:
    """Return a step by shares; `_` stands for a space, and the token itself must be named."""
    shares = {name.replace("_", " "): math.log(share) for name, share in shown.items()}
    assert token in shares
    return Step(token, shares)


def shares(steps: list[Step], *answers: str) -> list[float]:
    found = scores_along(steps, answers)
    assert found is not None
    return [round(math.exp(score), 6) for score in found]


def numbers(token: str, *before: Step, **shown: float) -> list[float]:
    shown = {name.replace("n", ""): share for name, share in shown.items()}
    return shares([*before, Step(token, {k: math.log(v) for k, v in shown.items()})], *"123")


def test_variants_of_a_token_are_summed() -> None:
    one = Step("2", {"2": math.log(0.4), " 2": math.log(0.2), "1": math.log(0.1), "x": -3.0})
    assert shares([one], "1", "2")[:2] == [0.1, 0.6]


def test_an_answer_that_is_not_shown_has_half_the_least_that_is() -> None:
    assert numbers("2", n2=0.6, n1=0.1, nx=0.04) == [0.1, 0.6, 0.02]


def test_an_answer_that_is_not_shown_has_at_most_half_of_what_is_left() -> None:
    assert numbers("2", n2=0.96) == [0.02, 0.96, 0.02]


@pytest.mark.parametrize(
    "before",
    [
        ["\n"],
        ["\n", "\n\n"],
        ["Label", ":"],
        ["Label", ":", "\n"],
        ["**"],
        ["The", " answer", " is", ":"],
        ["<think>", "1 or 3?", "</think>", "\n\n"],
        ['"'],
    ],
)
def test_what_stands_before_a_label_is_skipped(before: list[str]) -> None:
    steps = [Step(token, {token: -0.5, "3": -1.0}) for token in before]
    assert numbers("2", *steps, n2=0.6, n1=0.1, n3=0.1) == [0.1, 0.6, 0.1]


def test_a_space_before_a_label_is_a_way_to_write_it() -> None:
    steps = [step(" ", _=0.8), Step("2", {"2": math.log(0.5), "1": math.log(0.25)})]
    assert shares(steps, "1", "2") == [0.2, 0.4]
    both = [Step(" ", {" ": math.log(0.8), "1": math.log(0.1)}), steps[1]]
    assert shares(both, "1", "2") == [0.3, 0.4]


def test_words_follow_the_reply() -> None:
    """P("very") = .6, then "negative" .9 and "positive" .1 of it."""
    steps = [
        step("very", very=0.6, neutral=0.2, negative=0.1, positive=0.05),
        step(" negative", _negative=0.9, _positive=0.1),
    ]
    assert shares(steps, *FIVE) == [0.54, 0.1, 0.2, 0.05, 0.06]


def test_a_word_beside_the_reply_is_shared_among_the_labels_it_begins() -> None:
    steps = [step("neutral", neutral=0.5, very=0.3, Negative=0.1, negative=0.05, positive=0.04)]
    assert shares(steps, *FIVE) == [0.15, 0.15, 0.5, 0.04, 0.15]


def test_a_number_that_goes_on_is_told_by_the_next_step() -> None:
    labels = ("1", "2", "10")
    on = [Step("1", {"1": math.log(0.5), "2": math.log(0.4)}), Step("0", {"0": math.log(0.2)})]
    assert shares(on, *labels) == [0.4, 0.4, 0.1]
    ended = [on[0], Step("\n", {"\n": math.log(0.8), "0": math.log(0.2)})]
    assert shares(ended, *labels) == [0.4, 0.4, 0.1]


def test_ids_of_several_tokens_share_their_beginning() -> None:
    steps = [
        step("Option", Option=0.9),
        Step("_", {"_": math.log(0.99)}),
        Step("2", {"2": math.log(0.7), "1": math.log(0.3)}),
    ]
    assert shares(steps, "Option_1", "Option_2") == [0.2673, 0.6237]


def test_a_label_that_is_cut_is_shared() -> None:
    assert shares([step("very", very=0.6, neutral=0.3)], *FIVE)[::4] == [0.3, 0.3]


def test_letters_keep_their_case_and_words_do_not() -> None:
    letters = [Step("A", {"A": math.log(0.5), "a": math.log(0.3), "B": math.log(0.1)})]
    assert shares(letters, "A", "B") == [0.5, 0.1]
    words = [step("Neutral", Neutral=0.5, neutral=0.3, positive=0.1)]
    assert shares(words, "neutral", "positive") == [0.8, 0.1]


def test_a_label_may_begin_like_an_opening() -> None:
    steps = [step("Answer", Answer=0.9), Step(" A", {" A": math.log(0.6), " B": math.log(0.4)})]
    assert shares(steps, "Answer A", "Answer B") == [0.54, 0.36]


def test_a_reply_that_begins_with_no_label_still_shows_those_beside_it() -> None:
    assert numbers("I", nI=0.7, n3=0.2, n1=0.05) == [0.05, 0.025, 0.2]


def test_shares_that_were_rounded_to_nothing_are_not_impossible() -> None:
    found = scores_along([Step("1", {"1": 0.0, "2": -9999.0})], ("1", "2", "3"))
    assert found == (0.0, -100.0, -100.0)


def test_no_steps_are_no_scores() -> None:
    assert scores_along([], ("1", "2")) is None
