"""Laws of the one core: nothing else compares p-values or bounds, and headlines hold over rows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flipmeter
import flipmeter as fm
from flipmeter.stats.bounds import bounded_share, mean_p, mean_upper, share_p
from flipmeter.stats.conclude import verdict
from flipmeter.stats.verdict import headlines, worst_first
from report_runs import simulated

SOURCE = Path(flipmeter.__file__).parent
ROOMS = ("stats", "show", "run", "choose", "cli", "bridge", "paper", "api.py", "pytest_plugin.py")
CORE = {
    *("blocks.py", "bounds.py", "sizes.py", "exchanges.py", "randomise.py", "sequential.py"),
    *("watch.py", "verdict.py", "conclude.py", "judge.py", "limits.py", "chosen.py"),
    "differences.py",
}
EVIDENCE = {
    *("p", "p_value", "p_values", "p_holm", "p_bh", "p_excess", "p_direction", "p_flips"),
    *("p_stable", "alpha", "ALPHA", "low", "high", "lower", "upper", "rate_upper", "margin"),
    *("excess_upper", "shift_upper", "unreadable_low", "weighted_upper", "limit", "limits"),
}
NO_EVIDENCE = {
    # Checks of what was given.
    ("formulas.py", "holm"),
    ("formulas.py", "benjamini_hochberg"),
    # The root of an equation.
    ("formulas.py", "_noncentrality"),
    # How many rows were asked for.
    ("classify.py", "finish"),
    # How a number is printed or drawn; how many labels a table has.
    ("format.py", "p_value"),
    ("draw.py", "ticks"),
    ("prediction_rows.py", "_guessed"),
    # The paper's own rule, shown to say nothing.
    ("errata.py", "zero_intervals"),
}
ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def words_of(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            yield one.id
        elif isinstance(one, ast.Attribute):
            yield one.attr
        elif isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value


def comparisons(source: str) -> Iterator[tuple[str, str]]:
    """Yield the function and the text of every comparison of evidence with something."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare) or not any(isinstance(o, ORDERS) for o in node.ops):
            continue
        if EVIDENCE & set(words_of(node)):
            around = [f.name for f in functions if f.lineno <= node.lineno <= (f.end_lineno or 0)]
            yield (around[-1] if around else ""), ast.unparse(node)


def modules() -> list[Path]:
    paths = [SOURCE / room for room in ROOMS]
    every = [p for path in paths for p in (path.rglob("*.py") if path.is_dir() else [path])]
    return [path for path in every if path.parent.name != "stats" or path.name not in CORE]


def test_nothing_but_the_core_compares_p_values_or_bounds() -> None:
    assert len(modules()) > 80
    found = [
        f"{path.relative_to(SOURCE)}, {function}: {text}"
        for path in modules()
        for function, text in comparisons(path.read_text(encoding="utf-8"))
        if (path.name, function) not in NO_EVIDENCE
    ]
    assert not found, "ask the core of stats instead"


@pytest.mark.parametrize(
    "line",
    [
        "if row['p_holm'] < ALPHA: pass",
        "stable = found.upper < limit",
        "x = pl.col('low') > 0",
        "ok = [p for p in values if p <= 0.05]",
    ],
)
def test_the_law_sees_a_comparison(line: str) -> None:
    assert list(comparisons(line))


# p-values are those of the bounds


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 1.0]), min_size=5, max_size=80),
    st.sampled_from([0.05, 0.1, 0.3]),
    st.sampled_from([0.01, 0.05, 0.2]),
)
def test_a_p_value_is_below_alpha_where_the_bound_is_below_the_margin(
    shares: list[float], margin: float, alpha: float
) -> None:
    x = np.array(shares)
    upper = bounded_share(x, np.ones(len(x)), alpha).upper
    assert (share_p(x, margin, alpha, 1.0) < alpha) == (upper < margin)
    assert (mean_p(x, margin) < alpha) == (mean_upper(x, alpha) < margin)


def test_copies_in_clusters_keep_p_and_bound_together() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        hits = rng.binomial(3, rng.uniform(0, 0.2), size=40).astype(np.float64)
        p, upper = (
            share_p(hits / 3, 0.1, 0.05, 3.0),
            bounded_share(hits, np.full(40, 3), 0.05).upper,
        )
        assert (p < 0.05) == (upper < 0.1)


def test_how_sure_a_word_is_agrees_with_the_word() -> None:
    rng = np.random.default_rng(5)
    words = set()
    for _ in range(60):
        base, again = (np.where(rng.random(80) < 0.05, 3, 2) for _ in range(2))
        rate = rng.choice([0.0, 0.05, 0.3])
        turned, twice = (np.where(rng.random(80) < rate, 4, 2) for _ in range(2))
        found = verdict(np.stack([base, turned], 1), repeats=np.stack([again, twice], 1))
        words.add(found.word)
        assert (found.p_flips < 0.05) == (found.word == "flips")
        assert (found.p_stable < 0.05) == (found.word == "stable")
    assert words >= {"flips", "stable"}


# Headlines


def rows(*words: tuple[str, str, float, float]) -> pl.DataFrame:
    """Verdicts: rater, word, p of flipping and p of being stable."""
    return pl.DataFrame(
        [
            {"rater": rater, "dataset": "d", "level": "", "contrast": f"P{i}", "word": word}
            | {"status": "measured", "p_flips": flips, "p_stable": stable}
            for i, (rater, word, flips, stable) in enumerate(words)
        ]
    )


def told(frame: pl.DataFrame, column: str = "word") -> list[str]:
    return [str(word) for word in headlines(frame)[column]]


def test_a_rater_flips_only_if_that_holds_over_its_contrasts() -> None:
    alone = ("r", "flips", 0.03, 1.0)
    assert told(rows(alone)) == ["flips"]
    quiet = ("r", "stable", 1.0, 0.001)
    assert told(rows(alone, quiet, quiet)) == ["inconclusive"]
    assert told(rows(("r", "flips", 0.01, 1.0), quiet, quiet)) == ["flips"]
    # Holm, not Bonferroni: what is left is held to fewer.
    both = ("r", "flips", 0.001, 1.0), ("r", "flips", 0.04, 1.0)
    assert told(rows(*both)) == ["flips"]


def test_a_rater_is_stable_only_if_all_its_contrasts_are() -> None:
    sure = ("r", "stable", 1.0, 0.04)
    assert told(rows(sure, sure)) == ["stable"]
    assert told(rows(sure, ("r", "inconclusive", 1.0, 1.0))) == ["inconclusive"]
    assert told(rows(sure, ("r", "unreadable", 1.0, 1.0))) == ["unreadable"]


def test_counts_of_raters_hold_over_all_raters() -> None:
    ten = [(f"r{i}", "stable", 1.0, 0.03) for i in range(10)]
    assert told(rows(*ten)) == ["stable"] * 10
    assert told(rows(*ten), "word_among") == ["inconclusive"] * 10
    sure = [(f"r{i}", "stable", 1.0, 0.001) for i in range(10)]
    assert told(rows(*sure), "word_among") == ["stable"] * 10
    one = [("a", "flips", 0.02, 1.0), *sure]
    assert told(rows(*one)).count("flips") == 1
    assert "flips" not in told(rows(*one), "word_among")


def test_flips_that_a_count_leaves_out_are_named() -> None:
    sure = [(f"r{i}", "stable", 1.0, 0.001) for i in range(10)]
    frame = rows(("a", "flips", 0.02, 1.0), *sure, ("b", "flips", 0.001, 1.0))
    assert [names for names in headlines(frame)["alone"].to_list() if names] == [["P0"]]


def test_levels_are_counted_where_they_are_told_apart() -> None:
    frame = rows(("r", "flips", 0.001, 1.0), ("r", "stable", 1.0, 0.001))
    frame = frame.with_columns(level=pl.Series(["", "mood=x"]))
    assert told(frame) == ["flips"]
    words = headlines(frame, whose=["rater", "level"])
    assert words.select("level", "word").rows() == [("", "flips"), ("mood=x", "stable")]


def test_rows_are_ordered_by_what_is_shown_then_by_size() -> None:
    words = [
        ("stable", 1.0, 0.09), ("inconclusive", 1.0, 0.2), ("real", 1.0, 0.05),
        ("unreadable", 1.0, 0.9), ("flips", 0.04, 0.8), ("flips", 0.0, 0.2), ("flips", 0.0, 0.3),
    ]  # fmt: skip
    frame = pl.DataFrame(
        [
            {"rater": f"r{i}", "word": "inconclusive" if word == "real" else word, "p_flips": p}
            | {"findings": ["size not settled"] if word == "real" else [], "size": size}
            | {"value": size, "unreadable": 0.4}
            for i, (word, p, size) in enumerate(words)
        ],
        schema_overrides={"findings": pl.List(pl.String)},
    )
    assert worst_first(frame)["rater"].to_list() == ["r6", "r5", "r4", "r3", "r2", "r1", "r0"]


def test_false_counts_are_rare_over_many_raters() -> None:
    rng = np.random.default_rng(11)
    wrong = np.zeros(2)
    for _ in range(60):
        judged = []
        for i in range(10):
            k = int(rng.binomial(100, 0.10))
            found = verdict(np.array([[1, 2]] * k + [[1, 1]] * (100 - k)), reproducible=True)
            judged.append((f"r{i}", found.word, found.p_flips, found.p_stable))
        frame = rows(*judged)
        wrong += "stable" in told(frame), "stable" in told(frame, "word_among")
    assert wrong[1] <= 0.05 * 60 + 3 * (0.0475 * 60) ** 0.5
    assert wrong[1] < wrong[0]


def test_rows_by_seed_have_no_word(tmp_path: Path) -> None:
    run = fm.Run.of(simulated(tmp_path / "run", seeds=[0, 1], probes=["label_order"]))
    assert run.estimates["seed"].n_unique() == 2
    assert "word" not in run.estimates.columns
    assert len(run.verdicts) == 1
    assert run.verdicts["seeds"].to_list() == [[0, 1]]
    content: dict[str, Any] = run.verdicts.to_dicts()[0]
    assert content["n_clusters"] == 45
