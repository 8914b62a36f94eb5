"""One verdict: every surface prints the rows of one core, and copies are no evidence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import flipmeter as fm
from flipmeter.show.gather import sentences
from flipmeter.stats.estimates import measure
from flipmeter.stats.judge import verdicts
from flipmeter.types import Contrast
from report_runs import simulated

Cli = Callable[..., tuple[int, str, str]]
Runs = dict[str, Any]

P1 = Contrast("P1", ("base", "reversed"), "label list reversed", "label_order")


def frame(runs: Runs, *, seed: int = 0, fault: str = "unparsed", m: int = 5) -> pl.DataFrame:
    """Decisions of one rater: classes by view, repeats as `base#1`."""
    rows = [
        {
            "rater": "r",
            "dataset": "d",
            "level": "",
            "seed": seed,
            "n_classes": m,
            "view": name.partition("#")[0],
            "repeat": int(name.partition("#")[2] or 0),
            "item": f"i{i:04}",
            "rank": int(rank),
            "fault": "" if rank else fault,
        }
        for name, ranks in runs.items()
        for i, rank in enumerate(ranks)
    ]
    return pl.DataFrame(rows)


def judged(decisions: pl.DataFrame, **options: Any) -> dict[str, Any]:
    (row,) = verdicts(decisions, [P1], **options).to_dicts()
    return row


def flipping(n: int, k: int) -> Runs:
    """Answers of which the first k differ between the views."""
    return {"base": [2] * n, "reversed": [4] * k + [2] * (n - k)}


# What went wrong


@pytest.mark.parametrize("n_seeds", [3, 10])
@pytest.mark.parametrize(("n", "k"), [(5, 0), (40, 1), (200, 14)])
def test_seeds_that_repeat_an_answer_make_nothing_stable(n: int, k: int, n_seeds: int) -> None:
    alone = judged(frame(flipping(n, k)))
    copies = judged(pl.concat([frame(flipping(n, k), seed=seed) for seed in range(n_seeds)]))
    assert (alone["word"], copies["word"]) == ("inconclusive", "inconclusive")
    assert copies["n_clusters"] == n


def test_noise_of_one_view_alone_hides_nothing() -> None:
    rng = np.random.default_rng(1)
    found = 0
    for _ in range(20):
        base, again = (np.where(rng.random(100) < 0.25, 3, 2) for _ in range(2))
        turned = np.where(rng.random(100) < 0.15, 4, 2)
        runs = {"base": base, "base#1": again, "reversed": turned, "reversed#1": turned}
        found += judged(frame(runs))["p"] < 0.05
    assert found >= 19


def test_a_direction_alone_is_evidence() -> None:
    runs = flipping(112, 14)
    row = judged(frame(runs | {"base#1": runs["base"], "reversed#1": runs["reversed"]}))
    assert (row["word"], row["leans"]) == ("flips", "up")
    assert row["excess"] == pytest.approx(0.125)


def test_one_number_has_one_interval(tmp_path: Path) -> None:
    run = fm.Run.of(simulated(tmp_path, models=["sim/noisy"], probes=["label_order"]))
    verdict = run.verdicts.row(0, named=True)
    row = run.estimates.filter(metric="excess:P1").row(0, named=True)
    aspect = run.aspects("excess").filter(metric="excess", view="P1").row(0, named=True)
    wanted = pytest.approx([verdict[name] for name in ("excess", "excess_low", "excess_high")])
    assert [row[name] for name in ("value", "low", "high")] == wanted
    assert [aspect[name] for name in ("value", "low", "high")] == wanted


def numbers(row: dict[str, Any]) -> list[float]:
    return [row[name] for name in ("value", "low", "high")]


P7 = Contrast("P7", ("base", "r1", "r2"), "options", "option_order", is_open=True)


@pytest.mark.parametrize("contrast", [P1, P7])
@pytest.mark.parametrize("copies", [1, 3])
def test_the_row_of_a_single_seed_is_the_verdict(contrast: Contrast, copies: int) -> None:
    rng = np.random.default_rng(2)
    runs = {view: rng.choice([0, 2, 2, 2, 3], 60) for view in contrast.views}
    decisions = frame(runs).with_columns(
        cluster="c" + (pl.col("item").str.slice(1).cast(pl.Int64) // copies).cast(pl.String)
    )
    (row,) = verdicts(decisions, [contrast]).to_dicts()
    table = measure(decisions, [contrast]).filter(metric=contrast.name, policy="complete")
    assert numbers(table.row(0, named=True)) == pytest.approx(numbers(row))


def test_orders_of_options_have_the_share_of_any_beside_that_of_pairs() -> None:
    runs = {"base": [1] * 10, "r1": [1] * 10, "r2": [2] * 3 + [1] * 7}
    table = measure(frame(runs), [P7]).filter(policy="complete")
    values = dict(table.select("metric", "value").iter_rows())
    assert (values["P7"], values["P7:any"]) == pytest.approx((0.2, 0.3))


@pytest.mark.parametrize("seed", range(5))
def test_an_excess_lies_in_its_interval(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = ("base", "base#1", "reversed", "reversed#1")
    decisions = frame({name: rng.integers(1, 3, 12) for name in names})
    row, found = judged(decisions), measure(decisions, [P1]).filter(metric="excess:P1")
    assert row["excess_low"] <= row["excess"] <= row["excess_high"]
    told = [row[name] for name in ("excess", "excess_low", "excess_high")]
    assert numbers(found.row(0, named=True)) == pytest.approx(told)


def test_an_unreadable_view_is_no_flip() -> None:
    runs = {"base": [2] * 100, "reversed": [0] * 15 + [2] * 85}
    row = judged(frame(runs))
    assert (row["word"], row["value"]) == ("unreadable", 0.0)
    assert "readability differs between views" in row["findings"]
    assert judged(frame({"base": [0] * 16 + [2] * 84, "reversed": [0] * 16 + [2] * 84}))[
        "word"
    ] == ("unreadable")


def test_a_request_that_failed_is_not_unreadable() -> None:
    runs = {"base": [2] * 100, "reversed": [0] * 20 + [2] * 80}
    row = judged(frame(runs, fault="error"))
    assert (row["unreadable"], row["n_clusters"]) == (0.0, 100)
    assert row["word"] == "stable"


def test_a_constant_rater_is_told_apart() -> None:
    row = judged(frame({"base": [3] * 60, "reversed": [3] * 60}))
    assert row["word"] == "stable"
    assert row["findings"] == ["constant answers"]
    assert row["notes"] == ["always answers class 3"]


def test_repeats_that_differ_deny_reproducibility() -> None:
    runs = {"base": [2] * 50, "base#1": [3] + [2] * 19 + [-1] * 30, "reversed": [2] * 50}
    kept = frame(runs).filter(pl.col("rank") >= 0)
    row = judged(kept, reproducible=["r"])
    assert not row["is_reproducible"]
    assert "reproducibility failed" in row["findings"]


def test_copies_of_a_text_count_once(tmp_path: Path) -> None:
    rows = ["item,condition,label,text"]
    for k in range(40):
        text = f"text {k % 8}"
        rows += [f"{k},base,1,{text}", f"{k},turned,{2 if k % 8 == 0 else 1},{text}"]
    path = tmp_path / "answers.csv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    row = fm.Run(path, scale=["1", "2", "3"]).verdicts.row(0, named=True)
    assert (row["n_clusters"], row["n_pairs"]) == (8, 40)


# One truth


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fm.Run:
    folder = tmp_path_factory.mktemp("verdicts")
    models = ["sim/honest", "sim/first-slot?strength=4", "sim/noisy", "sim/refusing?strength=1"]
    return fm.Run.of(simulated(folder / "run", models=models, seeds=[0, 1], test_size=60))


def test_every_surface_says_the_same_word(run: fm.Run, cli: Cli) -> None:
    rows = {
        (row["rater"], row["contrast"]): row
        for row in run.verdicts.filter(status="measured").to_dicts()
    }
    claims = run.check().claims.filter(pl.col("metric") == "flips").to_dicts()
    for claim in claims:
        row = rows[claim["rater"], claim["where"]]
        assert (claim["word"], claim["value"]) == (row["word"], row["value"])
    told = json.loads(cli("measure", str(run.folder), "--json")[1])["verdicts"]
    assert {(r["rater"], r["contrast"]): r["word"] for r in told if r["status"] == "measured"} == {
        key: row["word"] for key, row in rows.items()
    }
    text = " ".join(cli("measure", str(run.folder), "--show", "verdicts")[1].split())
    for row in rows.values():
        said = re.escape(f": {row['word']} ({row['reason']})")
        assert re.search(rf"\b{re.escape(row['contrast'])}\b[\w, ]*{said}", text)
    page = run.report(run.folder / "page.html").read_text(encoding="utf-8")
    for sentence in sentences(run.source):
        words = {row["word"] for (rater, _), row in rows.items() if rater == sentence.rater}
        assert sentence.word in words | {"inconclusive"}
        if sentence.word == "stable":
            assert words == {"stable"}
    assert page.count('class="word stable"') >= sum(r["word"] == "stable" for r in rows.values())


def test_a_claim_at_the_margin_of_the_study_agrees_with_the_gate(run: fm.Run) -> None:
    margin = run.study.margin
    found = run.check(f"P1<{margin}")
    rows = run.verdicts.filter(contrast="P1").to_dicts()
    for claim, row in zip(found.to_dicts(), rows, strict=True):
        assert claim["rater"] == row["rater"]
        assert (claim["rate_upper"], claim["unreadable"]) == (row["rate_upper"], row["unreadable"])
        if claim["outcome"] == "shown":
            assert row["word"] in ("stable", "inconclusive")


def test_a_column_may_name_what_is_not_independent(tmp_path: Path) -> None:
    rows = ["body,grade,question"]
    rows += [
        f"answer number {k} of many,{['low', 'mid', 'high'][k % 3]},q{k % 12}" for k in range(60)
    ]
    (tmp_path / "answers.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    spec = {
        "file": str(tmp_path / "answers.csv"),
        "text": "body",
        "label": "grade",
        "scale": ["low", "mid", "high"],
        "cluster": "question",
    }
    run = simulated(tmp_path / "run", datasets=[spec], test_size=36, probes=["label_order"])
    row = run.verdicts.row(0, named=True)
    assert (row["n_clusters"], row["n_pairs"]) == (12, 36)
