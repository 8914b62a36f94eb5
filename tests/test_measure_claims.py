"""Claims about flips, and many tests at once."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from flipmeter.errors import Problem
from flipmeter.stats.formulas import adjusted, benjamini_hochberg
from flipmeter.stats.judge import Claim, certify, read_claim
from flipmeter.stats.watch import refuse_unreachable
from flipmeter.types import Contrast

P1 = Contrast("P1", ("base", "reversed"))
P3 = Contrast("P3", ("base", "reversed", "after"))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_step_up_agrees_with_statsmodels(p: list[float]) -> None:
    assert benjamini_hochberg(p) == pytest.approx(multipletests(p, method="fdr_bh")[1])


def test_a_family_is_adjusted_by_itself_and_rows_keep_their_order() -> None:
    table = pl.DataFrame({"metric": list("abab"), "p": [0.01, 0.04, 0.03, None]})
    found = adjusted(table, ["metric"])
    assert found["metric"].to_list() == list("abab")
    assert found["p_holm"].to_list() == pytest.approx([0.02, 0.04, 0.03, None])
    assert found["p_bh"].to_list() == pytest.approx([0.02, 0.04, 0.03, None])


def frame(n_flips: int, n: int = 200, n_failed: int = 0) -> pl.DataFrame:
    """Write base, its repeat and reversed; the first items flip, the last ones fail."""
    key = {"rater": "r", "dataset": "d", "level": "", "seed": 0, "n_classes": 3}
    moved = [2] * n_flips + [1] * (n - n_flips)
    read = [1] * (n - n_failed) + [0] * n_failed
    runs = [("base", 0, read), ("base", 1, read), ("reversed", 0, moved), ("reversed", 1, moved)]
    return pl.DataFrame(
        [
            key | {"view": view, "repeat": repeat, "item": f"i{i:03}", "rank": rank}
            for view, repeat, ranks in runs
            for i, rank in enumerate(ranks)
        ]
    )


@pytest.mark.parametrize(
    ("k", "margin", "outcome"), [(4, 0.05, "shown"), (5, 0.05, "open"), (60, 0.10, "refuted")]
)
def test_a_claim_is_shown_by_the_bound_of_the_rate(k: int, margin: float, outcome: str) -> None:
    row = certify(frame(k), [P1], [Claim("P1", margin)]).row(0, named=True)
    assert (row["claim"], row["outcome"]) == (f"P1<{margin:g}", outcome)
    assert row["reason"].startswith("all flips: ")
    assert row["upper"] == pytest.approx(proportion_confint(k, 200, 0.1, method="beta")[1])


def test_a_rater_that_fails_often_shows_nothing() -> None:
    row = certify(frame(0, n_failed=50), [P1], [Claim("P1", 0.9)]).row(0, named=True)
    assert (row["outcome"], row["unreadable"]) == ("unreadable", 0.25)


def test_a_claim_beyond_noise_needs_repeats_of_both_views() -> None:
    claim = read_claim("P1-noise < 20 %")
    assert certify(frame(6), [P1], [claim])["outcome"].item() == "shown"
    without = frame(6).filter(pl.col("repeat") == 0)
    row = certify(without, [P1], [claim]).row(0, named=True)
    assert (row["outcome"], "repeat them" in row["reason"]) == ("open", True)


def test_a_claim_beyond_noise_is_refuted_only_by_its_lower_bound() -> None:
    claim = read_claim("P1-noise < 10 %")
    near, far = (certify(frame(k), [P1], [claim]).row(0, named=True) for k in (22, 60))
    assert (near["outcome"], far["outcome"]) == ("open", "refuted")
    assert far["reason"].startswith("flips beyond noise: 30 %, at least ")


def test_a_claim_that_cannot_be_shown_says_so_before_anything_is_asked() -> None:
    with pytest.raises(Problem, match=r"cannot be shown with 20 items.*at least 29"):
        refuse_unreachable(Claim("P1", 0.10), 20)
    refuse_unreachable(Claim("P1", 0.10), 29)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: read_claim("P1 is stable"), "P1<0.10"),
        (lambda: read_claim("P1<1.5"), "above 0 and below 1"),
        (lambda: read_claim("P1<1.2.3"), "cannot read the margin"),
        (lambda: certify(frame(1), [P1], [Claim("P11", 0.1)]), "did you mean 'P1'"),
        (lambda: certify(frame(1), [P1], []), "no claim"),
        (lambda: certify(frame(1), [P3], [Claim("P3", 0.1)]), "any view differs"),
        (lambda: benjamini_hochberg([2.0]), "between 0 and 1"),
        (lambda: adjusted(pl.DataFrame({"p": [0.1]})), "lacks metric"),
    ],
)
def test_a_wrong_question_gets_a_clear_answer(ask: Callable[[], object], says: str) -> None:
    with pytest.raises(Problem, match=says):
        ask()
