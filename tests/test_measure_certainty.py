"""Flips by how sure an answer was: bins, a trend, and a plain word where nobody knows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from flipmeter.errors import Problem
from flipmeter.stats.aspects import measure_aspects
from flipmeter.stats.confidence import entropies, margins
from flipmeter.types import Contrast
from hand_made import group
from on_arrays import confidence_trend, flips_by_confidence

Cli = Callable[..., tuple[int, str, str]]
P1 = Contrast("P1", ("base", "reversed"), probe="label_order")


def sure(n: int, draw: int, **key: Any) -> pl.DataFrame:
    """Return decisions on three classes in which the less sure of the items flip more often."""
    rng = np.random.default_rng(draw)
    p = rng.dirichlet([1, 1, 1], n)
    base = p.argmax(axis=1) + 1
    flips = rng.random(n) < 1 - p.max(axis=1)
    frame = group(base.tolist(), np.where(flips, base % 3 + 1, base).tolist(), n_classes=3, **key)
    shares = [*p.tolist(), *([None] * n)]
    return frame.with_columns(pl.Series("probabilities", shares, dtype=pl.List(pl.Float64)))


def rows_of(frame: pl.DataFrame) -> pl.DataFrame:
    return measure_aspects(frame, [P1], ["certainty"])["certainty"]


def test_every_group_gets_the_bins_and_the_trend_that_it_gets_alone() -> None:
    frames = [sure(60, 1, seed=0), sure(45, 2, seed=1)]
    rows = rows_of(pl.concat(frames))
    for seed, frame in enumerate(frames):
        own = rows.filter(seed=seed)
        views = [frame.filter(view=view).sort("item") for view in P1.views]
        flips = (views[0]["rank"] != views[1]["rank"]).to_numpy()
        p = np.array(views[0]["probabilities"].to_list())
        for name, score in (("margin", margins(p)), ("entropy", entropies(p))):
            bins = own.filter(pl.col("metric").str.starts_with(f"{name}:"))
            alone = flips_by_confidence(flips, score)
            assert bins.select("value", "low", "high", "n", "k", "note").rows() == [
                (one.value, one.low, one.high, one.n, one.k, one.note) for one in alone
            ]
            rho, p_value = confidence_trend(flips, score)
            trend = own.filter(metric=f"{name}_trend").row(0, named=True)
            assert trend["p"] == pytest.approx(p_value)
            assert own.filter(metric=f"{name}_rho")["value"][0] == pytest.approx(rho)


def test_unsure_answers_that_flip_more_are_a_trend_and_the_reverse_is_its_mirror() -> None:
    rows = rows_of(sure(200, 3))
    rho = dict(rows.filter(pl.col("metric").str.ends_with("_rho")).select("metric", "value").rows())
    assert rho["margin_rho"] < -0.2
    assert rho["entropy_rho"] > 0.2
    trends = rows.filter(pl.col("metric").str.ends_with("_trend"))
    assert (trends["p"] < 0.001).all()
    assert trends["p"].to_list() == pytest.approx(stats.chi2.sf(trends["statistic"], 1), rel=1e-6)


@given(
    arrays(np.bool_, 12, elements=st.booleans()),
    arrays(np.int64, 12, elements=st.integers(0, 6)),
)
def test_the_trend_is_spearman_s_and_armitage_s_on_ranks(flips: Any, score: Any) -> None:
    rho, p = confidence_trend(flips, score)
    if flips.all() or not flips.any() or len(set(score.tolist())) == 1:
        assert np.isnan([rho, p]).all()
        return
    assert rho == pytest.approx(stats.spearmanr(flips, score).statistic)
    x, n, k = stats.rankdata(score), len(flips), flips.sum()
    pulled = (x * (flips - k / n)).sum()
    # Armitage's variance divides by n; over n - 1, as Mantel's, the draw is without replacement.
    variance = k * (n - k) / (n * (n - 1)) * ((x - x.mean()) ** 2).sum()
    assert p == pytest.approx(stats.chi2.sf(pulled**2 / variance, 1))


def test_a_trend_that_is_not_there_is_reported_in_five_of_a_hundred() -> None:
    rng = np.random.default_rng(4)
    p = [confidence_trend(rng.random(60) < 0.2, rng.random(60))[1] for _ in range(800)]
    assert np.mean(np.array(p) < 0.05) < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 800)


def test_without_probabilities_the_table_says_so() -> None:
    row = rows_of(sure(20, 5).drop("probabilities")).row(0, named=True)
    assert (row["value"], row["n"]) == (None, 0)
    assert row["note"].startswith("no probabilities")


def test_probabilities_of_items_that_were_never_read_twice_are_not_called_missing() -> None:
    unread = pl.when(pl.col("view") == "reversed").then(0).otherwise("rank")
    (row,) = rows_of(sure(20, 3).with_columns(rank=unread)).to_dicts()
    assert row["note"] == "no item with probabilities was read under all views"


def test_where_nothing_flips_there_are_bins_and_no_trend() -> None:
    still = sure(20, 6)
    base = still.filter(view="base")
    same = pl.concat([base, base.with_columns(view=pl.lit("reversed"), prompt=pl.lit("other"))])
    rows = rows_of(same)
    assert set(rows.filter(pl.col("metric").str.starts_with("margin:"))["value"]) == {0.0}
    (trend,) = rows.filter(metric="margin_trend")["note"]
    assert trend.startswith("undefined")


def test_probabilities_of_another_scale_are_refused() -> None:
    with pytest.raises(Problem, match="another number of probabilities"):
        rows_of(sure(20, 7).with_columns(n_classes=pl.lit(5)))


def test_a_run_with_scores_prints_flips_by_margin(
    cli: Cli, write: Callable[[str, str], Path]
) -> None:
    study = write(
        "sure.yaml",
        "name: sure\nmodels: ['sim/noisy']\ndatasets: [reviews]\nscores: true\n"
        "test_size: 80\nbase: {shots: 1}\nprobes: [label_order]\nrepeats: 1\n",
    )
    assert cli("run", str(study))[0] == 0
    content = json.loads(cli("measure", "runs/sure", "--show", "certainty", "--json")[1])
    (trend,) = (row for row in content["certainty"] if row["metric"] == "margin_trend")
    assert trend["p"] < 0.05  # what is drawn anew flips where it is open
    code, out, _ = cli("measure", "runs/sure", "--show", "certainty")
    assert code == 0
    assert "smallest margins first, 5" in out
    assert ", n = 16" in out


def test_one_item_has_rows_for_a_trend_that_say_why_there_is_none() -> None:
    rows = rows_of(sure(60, 3).filter(pl.col("item") == pl.col("item").first()))
    told = rows.filter(pl.col("metric").str.contains("_rho|_trend")).select("metric", "n", "note")
    assert sorted(told["metric"]) == ["entropy_rho", "entropy_trend", "margin_rho", "margin_trend"]
    assert set(told["n"]) == {1}
